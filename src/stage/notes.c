/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: fields of text, each ended by a NUL, three a file: what it was ("g" and the blob's name, "s" and a
 * SHA-256, "m": not there any more), its facts, its path. Before them one that says when the run began. Written by
 * us, read back with every field checked.
 */
#include "stage/notes.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "base/path.h"
#include "stage/bases.h"
#include "stage/state.h"
#include "stage/walk.h"

#define FILE_MAX    (256U << 20)
#define KEPT_BUDGET (16U << 20) /* bytes of texts a run */
#define RUNS_KEPT   8

struct pv_notes {
        const struct pv_stage *s;
        size_t root;
        struct timespec t0;
        struct pv_walk walk;
        struct pv_bases *bases;
        uint64_t left; /* of KEPT_BUDGET */
        struct pv_str text;
};

static char *file_of(size_t root, unsigned run)
{
        return pv_strf("roots/%zu/start-%06u", root, run);
}

struct pv_notes *pv_notes_new(const struct pv_stage *s, size_t root)
{
        struct pv_notes *n = pv_calloc(1, sizeof *n);
        n->s = s;
        n->root = root;
        n->t0 = pv_stage_top(s)->t0[root];
        n->left = KEPT_BUDGET;
        n->bases = pv_bases_new_start(s, root);
        pv_walk_init(&n->walk, s->roots[root].target);
        pv_str_putf(&n->text, "%lld %ld", (long long)n->t0.tv_sec, n->t0.tv_nsec);
        pv_str_putc(&n->text, '\0');
        return n;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
        return pv_clock_compare(a, b) == 0;
}

static bool is_clean(const struct pv_facts *f, const struct pv_notes_known *k, const struct timespec *indexed)
{
        return f->size == k->size && same_time(&f->mtime, &k->mtime) && same_time(&f->ctime, &k->ctime) &&
               pv_clock_compare(&f->mtime, indexed) < 0;
}

/* git lists it, and it is gone: since the run began, unless nothing was taken out of its directory since. */
static void put_missing(struct pv_notes *n, int dir, const char *path)
{
        struct stat st;
        if (fstat(dir, &st) < 0 || pv_clock_compare(&st.st_ctim, &n->t0) < 0)
                return;
        pv_str_put_bytes(&n->text, "m 0", sizeof "m 0");
        pv_str_put_bytes(&n->text, "0 0 0 0", sizeof "0 0 0 0");
        pv_str_put_bytes(&n->text, path, strlen(path) + 1);
}

void pv_notes_put(struct pv_notes *n, const char *path, const struct pv_notes_known *known,
                  const struct timespec *indexed)
{
        const char *name;
        char hash[2 * PV_SHA256_SIZE + 1];
        struct pv_facts f;
        int dir = pv_walk_parent(&n->walk, path, &name);
        if (dir < 0 || pv_facts_get(dir, name, NULL, &f) < 0 || n->text.len > FILE_MAX / 2)
                return;
        if (known && !pv_facts_exist(&f))
                put_missing(n, dir, path);
        if (!S_ISREG(f.mode) || pv_clock_compare(&f.ctime, &n->t0) >= 0)
                return;
        if (known && is_clean(&f, known, indexed)) {
                pv_str_putf(&n->text, "g %s", known->oid);
        } else {
                struct pv_facts after;
                if (f.size > PV_BASE_FILE_MAX || f.size > n->left ||
                    pv_bases_hash_and_keep(n->bases, dir, name, &f) < 0 || pv_facts_get(dir, name, NULL, &after) < 0 ||
                    !pv_facts_same_inode_state(&f, &after))
                        return;
                n->left -= f.size;
                pv_hex(f.sha256, sizeof f.sha256, hash);
                pv_str_putf(&n->text, "s %s", hash);
        }
        pv_str_putc(&n->text, '\0');
        pv_str_putf(&n->text, "%o %u %u %" PRIu64, (unsigned)f.mode, f.uid, f.gid, f.size);
        pv_str_putc(&n->text, '\0');
        pv_str_put_bytes(&n->text, path, strlen(path) + 1);
}

/* Of many runs the oldest notes go. */
static void forget_old(const struct pv_notes *n)
{
        if (n->s->runs <= RUNS_KEPT)
                return;
        pv_auto_free char *old = file_of(n->root, n->s->runs - RUNS_KEPT);
        (void)unlinkat(n->s->fd.fd, old, 0);
}

void pv_notes_finish(struct pv_notes *n, bool keep)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *file = file_of(n->root, n->s->runs);
        pv_bases_free(n->bases); /* the texts first */
        if (keep)
                (void)pv_file_write_at(n->s->fd.fd, file, n->text.s, n->text.len, 0600, PV_FILE_REPLACE, &ignored);
        forget_old(n);
        pv_walk_fini(&n->walk);
        pv_str_fini(&n->text);
        free(n);
}

/* Reading */

struct reading {
        char *text;
        size_t len;
        const char *p;
};

static const char *next_field(struct reading *r)
{
        size_t left = r->len - (size_t)(r->p - r->text);
        const char *field = r->p, *end = left ? memchr(r->p, '\0', left) : NULL;
        if (!end)
                return NULL;
        r->p = end + 1;
        return field;
}

static bool open_run(const struct pv_stage *s, size_t root, unsigned run, struct reading *r, struct timespec *t0)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *file = file_of(root, run);
        long long sec = 0;
        long ns = 0;
        *r = (struct reading){ 0 };
        if (pv_file_read_at(s->fd.fd, file, FILE_MAX, &r->text, &r->len, &ignored) < 0)
                return false;
        r->p = r->text;
        const char *began = next_field(r);
        if (!began || sscanf(began, "%lld %ld", &sec, &ns) != 2)
                return false;
        *t0 = (struct timespec){ .tv_sec = (time_t)sec, .tv_nsec = ns };
        return true;
}

static bool read_hash(const char *hex, unsigned char *out)
{
        for (size_t i = 0; i < PV_SHA256_SIZE; i++)
                if (sscanf(hex + 2 * i, "%2hhx", &out[i]) != 1)
                        return false;
        return true;
}

static bool parse(const char *what, const char *facts, struct pv_note *out)
{
        *out = (struct pv_note){ .by_git = what[0] == 'g' };
        size_t n = strspn(what + 2, "0123456789abcdef");
        if (what[2 + n] || (n != 40 && n != 64) ||
            sscanf(facts, "%o %u %u %" SCNu64, &out->mode, &out->uid, &out->gid, &out->size) != 4)
                return false;
        if (out->by_git)
                memcpy(out->oid, what + 2, n + 1);
        return out->by_git || (n == 64 && read_hash(what + 2, out->sha256));
}

static bool find_path(struct reading *r, const char *path, struct pv_note *out)
{
        const char *what, *facts, *name;
        while ((what = next_field(r)) && (facts = next_field(r)) && (name = next_field(r)))
                if (pv_streq(name, path))
                        return strlen(what) > 2 && parse(what, facts, out);
        return false;
}

bool pv_notes_find(const struct pv_stage *s, size_t root, const char *path, const struct timespec *changed,
                   struct pv_note *out)
{
        bool found = false, began = false;
        for (unsigned run = s->runs, tries = 0; run > 0 && tries <= RUNS_KEPT && !began; run--, tries++) {
                struct reading r;
                struct timespec t0;
                if (open_run(s, root, run, &r, &t0) && pv_clock_compare(&t0, changed) <= 0) {
                        began = true;
                        found = find_path(&r, path, out);
                }
                free(r.text);
        }
        return found;
}

/* A set of paths */

struct pv_noted {
        struct reading r;
        const char **path; /* sorted; into r */
        size_t n;
};

static int compare_paths(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct pv_noted *pv_noted_open(const struct pv_stage *s, size_t root)
{
        struct pv_noted *set = pv_calloc(1, sizeof *set);
        struct timespec t0;
        size_t cap = 0;
        const char *what, *facts, *path;
        if (!open_run(s, root, s->runs, &set->r, &t0) || !same_time(&t0, &pv_stage_top(s)->t0[root]))
                return set;
        while ((what = next_field(&set->r)) && (facts = next_field(&set->r)) && (path = next_field(&set->r))) {
                if (set->n == cap)
                        set->path = pv_realloc(set->path, cap = cap ? 2 * cap : 256, sizeof *set->path);
                set->path[set->n++] = path;
        }
        if (set->n)
                qsort(set->path, set->n, sizeof *set->path, compare_paths);
        return set;
}

bool pv_noted_has(const struct pv_noted *set, const char *path)
{
        return set->n && bsearch(&path, set->path, set->n, sizeof *set->path, compare_paths);
}

void pv_noted_free(struct pv_noted *set)
{
        if (!set)
                return;
        free(set->path);
        free(set->r.text);
        free(set);
}
