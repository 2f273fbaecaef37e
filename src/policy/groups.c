/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/groups.h"

#include <string.h>
#include "base/closest.h"
#include "base/place.h"
#include "policy/config.h"
#include "policy/netrule.h"

#define GROUPS_FILE "groups.yaml"
#define GROUPS_MAX  1024

/* The build directory, bin/ of an installed tree, libexec/pvisor/ of it and the unit tests. */
static const char *const places[] = {
        "share/pvisor/" GROUPS_FILE,
        "../share/pvisor/" GROUPS_FILE,
        "../../share/pvisor/" GROUPS_FILE,
        NULL,
};

struct loading {
        struct pv_groups *groups;
        const char *file;
};

void pv_groups_fini(struct pv_groups *g)
{
        for (size_t i = 0; i < g->n; i++) {
                free(g->v[i].name);
                free(g->v[i].file);
                pv_strv_fini(&g->v[i].targets);
        }
        free(g->v);
        *g = (struct pv_groups){ 0 };
}

static bool is_name(const char *s)
{
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
        return s[n] == '\0' && n > 0 && n <= PV_GROUP_NAME_MAX;
}

static int add_group(void *ctx, const struct pv_config_field *field, struct pv_err *err)
{
        struct loading *l = ctx;
        struct pv_groups *g = l->groups;
        if (!is_name(field->name))
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: a group's name is lower-case letters, digits and -",
                                  field->name);
        if (pv_groups_find(g, field->name)) /* the person's own came first */
                return 0;
        if (g->n == GROUPS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "more than %d groups", GROUPS_MAX);
        g->v = pv_realloc(g->v, g->n + 1, sizeof *g->v);
        struct pv_group *one = &g->v[g->n++];
        *one = (struct pv_group){ .name = pv_strdup(field->name), .file = pv_strdup(l->file) };
        for (size_t i = 0; i < field->n; i++) {
                struct pv_netrule unused;
                if (pv_netrule_parse(field->values[i], &unused, err) < 0)
                        return pv_err_wrap(err, "%s", field->name);
                pv_strv_add(&one->targets, field->values[i]);
        }
        return 0;
}

static int load(const char *file, struct pv_groups *out, struct pv_err *err)
{
        struct loading l = { .groups = out, .file = file };
        return pv_config_load(file, &(struct pv_config_sink){ .set = add_group, .ctx = &l }, err);
}

int pv_groups_load(const char *xdg_config_home, const char *home, struct pv_groups *out, struct pv_err *err)
{
        pv_auto_groups g = { 0 };
        pv_auto_free char *own = pv_config_find(xdg_config_home, home, GROUPS_FILE), *shipped = NULL;
        if (own && load(own, &g, err) < 0)
                return -1;
        if (pv_place_find(places, &shipped, err) < 0 || load(shipped, &g, err) < 0)
                return -1;
        *out = g;
        g = (struct pv_groups){ 0 };
        return 0;
}

const struct pv_group *pv_groups_find(const struct pv_groups *g, const char *name)
{
        name += name[0] == '@';
        for (size_t i = 0; i < g->n; i++)
                if (pv_streq(g->v[i].name, name))
                        return &g->v[i];
        return NULL;
}

/* A group's entry against what was asked: the same, or the same name where no port was said. */
static bool holds(const char *entry, const char *target)
{
        const char *colon = strrchr(entry, ':');
        size_t n = colon ? (size_t)(colon - entry) : strlen(entry);
        if (pv_streq(entry, target))
                return true;
        if (entry[0] == '*' && entry[1] == '.') { /* "*.example.com:443" holds what ends in ".example.com" */
                size_t len = strlen(target);
                return len > n - 1 && strncmp(target + len - (n - 1), entry + 1, n - 1) == 0;
        }
        return strlen(target) == n && strncmp(entry, target, n) == 0;
}

char *pv_groups_with(const struct pv_groups *g, const char *target)
{
        pv_auto_str out = { 0 };
        for (size_t i = 0; i < g->n; i++)
                for (size_t k = 0; k < g->v[i].targets.n; k++) {
                        if (!holds(g->v[i].targets.v[k], target))
                                continue;
                        pv_str_putf(&out, "%s@%s", out.len ? " or " : "", g->v[i].name);
                        break;
                }
        return out.len ? pv_str_steal(&out) : NULL;
}

const struct pv_group *pv_groups_need(const struct pv_groups *g, const char *name, struct pv_err *err)
{
        pv_auto_str all = { 0 };
        const struct pv_group *found = pv_groups_find(g, name);
        if (found)
                return found;
        struct pv_closest closest = { .word = name + (name[0] == '@') };
        for (size_t i = 0; i < g->n; i++) {
                pv_closest_offer(&closest, g->v[i].name);
                pv_str_putf(&all, "%s@%s", i ? " " : "", g->v[i].name);
        }
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s%.80s: no such group of network targets", name[0] == '@' ? "" : "@",
                         name);
        if (closest.best)
                (void)pv_err_hint(err, "did you mean @%s?", closest.best);
        else
                (void)pv_err_hint(err, "groups are: %s", all.s ? all.s : "none");
        return NULL;
}
