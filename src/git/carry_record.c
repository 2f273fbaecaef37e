/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash must not lose, as JSON. The file lies in the stage, among the person's own; it is checked all the same,
 * since it may be damaged. A path is relative to the workspace and is looked up again.
 */
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/path.h"
#include "git/carry.h"

enum { MODE_TEXT = 7, REASON_MAX = 200 };

static json_t *ref_json(const struct pv_carry_ref *r)
{
        return json_pack("{s:o, s:o, s:s, s:s, s:b, s:b, s:b, s:I, s:s?}", "name", pv_json_bytes(r->name), "dest",
                         pv_json_bytes(r->dest), "old", r->old_id, "new", r->new_id, "here", r->here, "aside", r->aside,
                         "rewritten", r->rewritten, "commits", (json_int_t)r->commits, "why", r->why);
}

static json_t *path_json(const struct pv_carry_path *p)
{
        return json_pack("[o, s, s, s, s, b, i]", pv_json_bytes(p->path), p->new_mode, p->new_id, p->was_mode,
                         p->was_id, p->stays, (int)p->was_marks);
}

json_t *pv_carry_json(const struct pv_carry *c)
{
        json_t *refs = json_array(), *index = json_array();
        for (size_t i = 0; i < c->n_refs; i++)
                (void)json_array_append_new(refs, ref_json(&c->ref[i]));
        for (size_t i = 0; i < c->n_changed; i++)
                (void)json_array_append_new(index, path_json(&c->changed[i]));
        return json_pack("{s:o, s:s, s:s, s:b, s:o, s:o, s:o}", "path", pv_json_bytes(c->path), "quarantine",
                         c->quarantine, "pack", c->pack, "locked", c->locked, "head", pv_json_bytes(c->host_head),
                         "refs", refs, "index", index);
}

static int damaged(struct pv_err *err, const char *what)
{
        return pv_err_set(err, PV_ERR_INPUT, 0, "record of commits: %s cannot be read", what);
}

static bool is_id(const char *s)
{
        return !*s || pv_is_object_name(s);
}

static int read_id(const json_t *j, const char *key, char out[65], struct pv_err *err)
{
        const char *s;
        if (pv_json_get_str(j, key, &s, err) < 0)
                return -1;
        if (!is_id(s))
                return damaged(err, key);
        (void)snprintf(out, 65, "%s", s);
        return 0;
}

/* A name goes into a line for update-ref. */
static int read_name(const json_t *j, const char *key, char **out, struct pv_err *err)
{
        const json_t *value = json_object_get(j, key);
        if (!value || json_is_null(value))
                return 0;
        if (pv_json_get_bytes(value, out, err) < 0)
                return -1;
        return strpbrk(*out, " \n") || **out == '-' ? damaged(err, key) : 0;
}

static int read_ref(const json_t *j, struct pv_carry_ref *r, struct pv_err *err)
{
        int64_t commits;
        if (read_name(j, "dest", &r->dest, err) < 0 || read_id(j, "old", r->old_id, err) < 0 ||
            read_id(j, "new", r->new_id, err) < 0 || pv_json_get_int(j, "commits", 0, INT64_MAX, &commits, err) < 0 ||
            pv_json_get_bytes(json_object_get(j, "name"), &r->name, err) < 0)
                return -1;
        r->commits = (size_t)commits;
        r->here = json_is_true(json_object_get(j, "here"));
        r->aside = json_is_true(json_object_get(j, "aside"));
        r->rewritten = json_is_true(json_object_get(j, "rewritten"));
        return 0;
}

static bool read_text(const json_t *j, size_t i, char *out, size_t size)
{
        const char *s = json_string_value(json_array_get(j, i));
        if (!s || strlen(s) >= size)
                return false;
        memcpy(out, s, strlen(s) + 1);
        return true;
}

static bool is_mode(const char *s)
{
        return *s && strspn(s, "01234567") == strlen(s);
}

static int read_path(const json_t *j, struct pv_carry_path *p, struct pv_err *err)
{
        if (pv_json_get_bytes(json_array_get(j, 0), &p->path, err) < 0)
                return -1;
        if (!read_text(j, 1, p->new_mode, MODE_TEXT) || !read_text(j, 2, p->new_id, sizeof p->new_id) ||
            !read_text(j, 3, p->was_mode, MODE_TEXT) || !read_text(j, 4, p->was_id, sizeof p->was_id) ||
            !is_id(p->new_id) || !is_id(p->was_id) || (*p->was_mode && !is_mode(p->was_mode)) || !is_mode(p->new_mode))
                return damaged(err, "index");
        p->stays = json_is_true(json_array_get(j, 5));
        p->was_marks = (unsigned)json_integer_value(json_array_get(j, 6)) & PV_CARRY_MARKS;
        return 0;
}

static int read_lists(const json_t *j, struct pv_carry *c, struct pv_err *err)
{
        json_t *refs, *index;
        if (pv_json_get_array(j, "refs", PV_CARRY_REFS_MAX, &refs, err) < 0 ||
            pv_json_get_array(j, "index", PV_CARRY_PATHS_MAX, &index, err) < 0)
                return -1;
        c->ref = pv_calloc(json_array_size(refs) + 1, sizeof *c->ref);
        c->changed = pv_calloc(json_array_size(index) + 1, sizeof *c->changed);
        /* Counted before they are read: half of one is freed, too. */
        for (size_t i = 0; i < json_array_size(refs); i++)
                if (read_ref(json_array_get(refs, i), &c->ref[c->n_refs++], err) < 0)
                        return -1;
        for (size_t i = 0; i < json_array_size(index); i++)
                if (read_path(json_array_get(index, i), &c->changed[c->n_changed++], err) < 0)
                        return -1;
        return 0;
}

int pv_carry_from_json(const json_t *j, const char *workspace, struct pv_carry *out, struct pv_err *err)
{
        const char *quarantine;
        *out = (struct pv_carry){ 0 };
        out->pinned = true;
        if (pv_json_get_bytes(json_object_get(j, "path"), &out->path, err) < 0 ||
            pv_json_get_str(j, "quarantine", &quarantine, err) < 0 || read_id(j, "pack", out->pack, err) < 0 ||
            read_name(j, "head", &out->host_head, err) < 0 || read_lists(j, out, err) < 0)
                return -1;
        if (!pv_str_has_prefix(quarantine, "pvisor-import-") || strchr(quarantine, '/'))
                return damaged(err, "quarantine");
        out->quarantine = pv_strdup(quarantine);
        out->locked = json_is_true(json_object_get(j, "locked"));
        out->worktree = *out->path ? pv_path_join(workspace, out->path) : pv_strdup(workspace);
        return pv_git_host_open(out->worktree, &out->host, err);
}
