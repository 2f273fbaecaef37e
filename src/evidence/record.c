/* SPDX-License-Identifier: Apache-2.0 */
#include "evidence/record.h"

#include <assert.h>
#include "base/json.h"
#include "base/str.h"

/* The boolean of each dimension: true only when it is enforced. */
static const char *const claims[] = {
        [PV_DIM_WORKSPACE_WRITES] = "workspace_writes_staged",
        [PV_DIM_HOST_WRITES] = "host_writes_blocked",
        [PV_DIM_READS] = "reads_confined",
        [PV_DIM_SENSITIVE_PATHS] = "sensitive_paths_hidden",
        [PV_DIM_NETWORK] = "network_contained",
        [PV_DIM_CREDENTIALS] = "credentials_withheld",
        [PV_DIM_SUBPROCESSES] = "subprocesses_contained",
        [PV_DIM_RESOURCES] = "resources_limited",
};
static_assert(sizeof claims / sizeof *claims == PV_DIMENSIONS, "a claim for each dimension");

static json_t *optional_text(const char *s)
{
        return s ? json_string(s) : json_null();
}

static json_t *probes_json(const struct pv_observation *o)
{
        json_t *list = json_array();
        for (unsigned i = 0; i < o->n_probes && i < PV_PROBES_MAX; i++) {
                const struct pv_probe *p = &o->probes[i];
                (void)json_array_append_new(
                        list,
                        json_pack("{s:o, s:o, s:o, s:o}", "name", pv_json_bytes(p->name), "attempted",
                                  pv_json_bytes(p->attempted), "outcome", optional_text(pv_outcome_name(p->outcome)),
                                  "errno", p->outcome == PV_OUTCOME_REFUSED ? json_integer(p->sys) : json_null()));
        }
        return list;
}

static json_t *limits_json(const struct pv_observation *o)
{
        json_t *list = json_array();
        for (unsigned i = 0; i < o->n_limits && i < PV_LIMITS_MAX; i++)
                (void)json_array_append_new(list, pv_json_bytes(o->limits[i]));
        return list;
}

static json_t *observation_json(const struct pv_observation *o)
{
        return json_pack("{s:s, s:o, s:o, s:b, s:o, s:o, s:o}", "dimension", pv_dimension_name(o->dimension), "control",
                         pv_json_bytes(o->control), "mechanism", pv_json_bytes(o->mechanism), "installed", o->installed,
                         "level", optional_text(pv_level_name(o->level)), "probes", probes_json(o), "limits",
                         limits_json(o));
}

json_t *pv_record_observations(const struct pv_observations *all)
{
        if (!all)
                return json_null();
        json_t *list = json_array();
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++)
                (void)json_array_append_new(list, observation_json(&all->item[i]));
        return list;
}

static bool has_control(const struct pv_observations *all, enum pv_dimension d)
{
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++)
                if (all->item[i].dimension == d)
                        return true;
        return false;
}

enum pv_level pv_record_level(const struct pv_observations *all, enum pv_record_extent extent, enum pv_dimension d)
{
        if (!all || (extent == PV_RECORD_PARTIAL && !has_control(all, d)))
                return PV_LEVEL_UNKNOWN;
        return pv_observations_level(all, d);
}

static void warn_of_breaches(json_t *warnings, const struct pv_observation *o)
{
        for (unsigned i = 0; i < o->n_probes && i < PV_PROBES_MAX; i++) {
                if (o->probes[i].outcome != PV_OUTCOME_SUCCEEDED)
                        continue;
                pv_auto_free char *text =
                        pv_strf("%s: %s did not hold: %s succeeded (%s)", pv_dimension_name(o->dimension), o->control,
                                o->probes[i].name, o->probes[i].attempted);
                (void)json_array_append_new(warnings, pv_json_bytes(text));
        }
}

static json_t *warnings_json(const struct pv_observations *all, enum pv_record_extent extent)
{
        json_t *warnings = json_array();
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                enum pv_level level = pv_record_level(all, extent, (enum pv_dimension)d);
                if (level == PV_LEVEL_ENFORCED)
                        continue;
                const char *name = pv_level_name(level);
                pv_auto_free char *text =
                        pv_strf("%s: %s", pv_dimension_name((enum pv_dimension)d), name ? name : "not known");
                (void)json_array_append_new(warnings, json_string(text));
        }
        for (unsigned i = 0; all && i < all->n && i < PV_CONTROLS_MAX; i++)
                warn_of_breaches(warnings, &all->item[i]);
        return warnings;
}

json_t *pv_record_safety(const struct pv_observations *all, enum pv_record_extent extent)
{
        json_t *safety = json_object();
        json_t *levels = json_object();
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                enum pv_level level = pv_record_level(all, extent, (enum pv_dimension)d);
                (void)json_object_set_new(levels, pv_dimension_name((enum pv_dimension)d),
                                          optional_text(pv_level_name(level)));
                (void)json_object_set_new(safety, claims[d],
                                          level == PV_LEVEL_UNKNOWN ? json_null()
                                                                    : json_boolean(level == PV_LEVEL_ENFORCED));
        }
        (void)json_object_set_new(safety, "levels", levels);
        (void)json_object_set_new(safety, "warnings", warnings_json(all, extent));
        return safety;
}
