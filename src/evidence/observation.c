/* SPDX-License-Identifier: Apache-2.0 */
#include "evidence/observation.h"

#include <assert.h>
#include <string.h>

/* The text is cut at the field's end: these are words for people, and the structure must stay flat. */
static void put_text(char *field, size_t size, const char *text)
{
        size_t len = strnlen(text, size - 1);

        memcpy(field, text, len);
        field[len] = '\0';
}

const char *pv_dimension_name(enum pv_dimension d)
{
        static const char *const names[] = {
                [PV_DIM_WORKSPACE_WRITES] = "workspace_writes",
                [PV_DIM_HOST_WRITES] = "host_writes",
                [PV_DIM_READS] = "reads",
                [PV_DIM_SENSITIVE_PATHS] = "sensitive_paths",
                [PV_DIM_NETWORK] = "network",
                [PV_DIM_CREDENTIALS] = "credentials",
                [PV_DIM_SUBPROCESSES] = "subprocesses",
                [PV_DIM_RESOURCES] = "resources",
        };
        static_assert(sizeof names / sizeof *names == PV_DIMENSIONS, "a name for each dimension");

        return (unsigned)d < PV_DIMENSIONS ? names[d] : NULL;
}

const char *pv_dimension_title(enum pv_dimension d)
{
        static const char *const titles[] = {
                [PV_DIM_WORKSPACE_WRITES] = "workspace writes",
                [PV_DIM_HOST_WRITES] = "host writes",
                [PV_DIM_READS] = "reads",
                [PV_DIM_SENSITIVE_PATHS] = "sensitive paths",
                [PV_DIM_NETWORK] = "network",
                [PV_DIM_CREDENTIALS] = "credentials",
                [PV_DIM_SUBPROCESSES] = "subprocesses",
                [PV_DIM_RESOURCES] = "resources",
        };
        static_assert(sizeof titles / sizeof *titles == PV_DIMENSIONS, "a title for each dimension");
        return (unsigned)d < PV_DIMENSIONS ? titles[d] : NULL;
}

const char *pv_level_name(enum pv_level l)
{
        switch (l) {
        case PV_LEVEL_UNENFORCED:
                return "unenforced";
        case PV_LEVEL_COOPERATIVE:
                return "cooperative";
        case PV_LEVEL_ENFORCED:
                return "enforced";
        case PV_LEVEL_UNKNOWN:
                break;
        }
        return NULL;
}

const char *pv_outcome_name(enum pv_outcome o)
{
        switch (o) {
        case PV_OUTCOME_REFUSED:
                return "refused";
        case PV_OUTCOME_SUCCEEDED:
                return "succeeded";
        case PV_OUTCOME_ABSENT:
                return "absent";
        case PV_OUTCOME_NOT_RUN:
                break;
        }
        return NULL;
}

struct pv_observation *pv_observations_add(struct pv_observations *all, enum pv_dimension d, const char *control,
                                           const char *mechanism)
{
        if (all->n >= PV_CONTROLS_MAX)
                return NULL;

        struct pv_observation *o = &all->item[all->n++];
        *o = (struct pv_observation){ .dimension = d, .level = PV_LEVEL_UNENFORCED };
        put_text(o->control, sizeof o->control, control);
        put_text(o->mechanism, sizeof o->mechanism, mechanism);
        return o;
}

struct pv_observation *pv_observations_find(struct pv_observations *all, enum pv_dimension d, const char *control)
{
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++) {
                struct pv_observation *o = &all->item[i];

                if (o->dimension == d && strcmp(o->control, control) == 0)
                        return o;
        }
        return NULL;
}

void pv_observation_probe(struct pv_observation *o, const char *name, const char *attempted, enum pv_outcome outcome,
                          int sys)
{
        unsigned at = o->n_probes;

        if (at == PV_PROBES_MAX) {
                if (outcome != PV_OUTCOME_SUCCEEDED)
                        return;
                at--;
        } else {
                o->n_probes++;
        }

        struct pv_probe *p = &o->probes[at];
        *p = (struct pv_probe){ .outcome = outcome, .sys = sys };
        put_text(p->name, sizeof p->name, name);
        put_text(p->attempted, sizeof p->attempted, attempted);
}

void pv_observation_limit(struct pv_observation *o, const char *sentence)
{
        if (o->n_limits < PV_LIMITS_MAX)
                put_text(o->limits[o->n_limits++], sizeof o->limits[0], sentence);
}

/* A probe of something that the kernel does not have was tried all the same: it counts as run. */
static bool was_run(const struct pv_probe *p)
{
        return p->outcome == PV_OUTCOME_REFUSED || p->outcome == PV_OUTCOME_ABSENT;
}

static const struct pv_probe *first_success(const struct pv_observation *o)
{
        for (unsigned i = 0; i < o->n_probes && i < PV_PROBES_MAX; i++)
                if (o->probes[i].outcome == PV_OUTCOME_SUCCEEDED)
                        return &o->probes[i];
        return NULL;
}

void pv_observation_conclude(struct pv_observation *o, enum pv_level best)
{
        unsigned run = 0;

        o->level = PV_LEVEL_UNENFORCED;
        if (!o->installed || first_success(o))
                return;
        for (unsigned i = 0; i < o->n_probes && i < PV_PROBES_MAX; i++)
                run += was_run(&o->probes[i]);
        if (best == PV_LEVEL_ENFORCED && run == 0)
                return;
        o->level = best;
}

static enum pv_level lowest_level(const struct pv_observations *all, enum pv_dimension d)
{
        enum pv_level level = PV_LEVEL_ENFORCED;
        bool any = false;

        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++) {
                const struct pv_observation *o = &all->item[i];

                if (o->dimension != d)
                        continue;
                any = true;
                if (!o->installed || o->level < level)
                        level = o->installed ? o->level : PV_LEVEL_UNENFORCED;
        }
        return any ? level : PV_LEVEL_UNENFORCED;
}

enum pv_level pv_observations_level(const struct pv_observations *all, enum pv_dimension d)
{
        enum pv_level level = PV_LEVEL_UNENFORCED;

        if (d == PV_DIM_RESOURCES)
                return lowest_level(all, d);
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++) {
                const struct pv_observation *o = &all->item[i];

                if (o->dimension != d || !o->installed)
                        continue;
                if (o->partial && first_success(o))
                        return PV_LEVEL_UNENFORCED;
                if (!o->partial && o->level > level)
                        level = o->level;
        }
        return level;
}

const struct pv_probe *pv_observations_first_breach(const struct pv_observations *all)
{
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++) {
                const struct pv_probe *p = all->item[i].installed ? first_success(&all->item[i]) : NULL;

                if (p)
                        return p;
        }
        return NULL;
}
