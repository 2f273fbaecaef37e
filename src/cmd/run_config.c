/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration fields are options: the same table, the same conversions. */
#include "base/closest.h"
#include "base/log.h"
#include "cmd/run_options.h"
#include "policy/config.h"

static int unknown_field(const char *name, struct pv_err *err)
{
        struct pv_closest closest = { .word = name };
        for (const struct pv_opt *o = pv_run_options; o->name; o++)
                if (!(o->flags & (PV_OPT_HIDDEN | PV_OPT_CLI_ONLY)) && o->type != PV_OPT_REFUSED)
                        pv_closest_offer(&closest, o->name);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: no such field", name);
        if (closest.best)
                (void)pv_err_hint(err, "did you mean %s?", closest.best);
        return -1;
}

static int set_field(void *ctx, const struct pv_config_field *field, struct pv_err *err)
{
        const struct pv_opt *o = pv_opt_find(pv_run_options, field->name);
        if (!o)
                return unknown_field(field->name, err);
        if (o->flags & PV_OPT_CLI_ONLY)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: is for the command line alone", field->name);
        if (field->is_list && o->type != PV_OPT_LIST && o->type != PV_OPT_REFUSED)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: takes one value, not a list", field->name);
        /* `stage: true` is the flag that --stage is without its argument. */
        if (o->flags & PV_OPT_ARG_OPTIONAL && field->n == 1 && pv_streq(field->values[0], "true"))
                return pv_opt_set(o, ctx, NULL, field->name, err);
        if (o->type == PV_OPT_REFUSED)
                return pv_opt_set(o, ctx, NULL, field->name, err);
        for (size_t i = 0; i < field->n; i++) {
                *field->wrong = i;
                if (pv_opt_set(o, ctx, field->values[i], field->name, err) < 0)
                        return -1;
        }
        return 0;
}

/* Network rules; a group's targets are looked at as the rules are. */
static bool takes_parts(void *ctx, const char *name)
{
        (void)ctx;
        return pv_streq(name, "overlaynet-allow") || pv_streq(name, "overlaynet-deny");
}

static bool knows(void *ctx, const char *name)
{
        (void)ctx;
        const struct pv_opt *o = pv_opt_find(pv_run_options, name);
        return o && !(o->flags & (PV_OPT_HIDDEN | PV_OPT_CLI_ONLY)) && o->type != PV_OPT_REFUSED;
}

int pv_run_load_config(const char *path, struct pv_request *request, struct pv_err *err)
{
        pv_auto_free char *own = NULL;
        if (!path) {
                own = pv_config_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"));
                if (!own)
                        return 0;
                pv_log_debug("options of %s apply", own);
                path = own;
        }
        const struct pv_config_sink sink = {
                .set = set_field, .takes_parts = takes_parts, .knows = knows, .ctx = request
        };
        if (pv_config_load(path, &sink, err) == 0)
                return 0;
        return !own && err->sys ? pv_err_wrap(err, "--config") : -1; /* else it names file and line already */
}
