/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor doctor */
#include <sys/utsname.h>
#include "base/json.h"
#include "boundary/boundary.h"
#include "cmd/help.h"
#include "cmd/jobs.h"
#include "evidence/record.h"
#include "job/network.h"

#define WIDTH  80
#define INDENT 19

struct doctor_options {
        bool json;
};

static const struct pv_opt options[] = {
        PV_OPT_JSON(struct doctor_options, json),
        { .name = NULL },
};

/* "projected-root, landlock": the installed controls of a dimension; then those that are not. */
static void put_controls(struct pv_str *b, const struct pv_observations *all, enum pv_dimension d, bool installed,
                         const char *before)
{
        size_t shown = 0;
        for (unsigned i = 0; i < all->n; i++) {
                const struct pv_observation *o = &all->item[i];
                if (o->dimension != d || o->installed != installed)
                        continue;
                pv_str_put(b, shown++ ? ", " : before);
                pv_str_put_safe(b, o->control);
        }
}

static void put_dimension(struct pv_str *b, const struct pv_observations *all, enum pv_dimension d)
{
        pv_auto_str detail = { 0 };
        const char *level = pv_level_name(pv_observations_level(all, d));
        pv_str_putf(&detail, "%s", level ? level : "not known");
        put_controls(&detail, all, d, true, ": ");
        put_controls(&detail, all, d, false, "; not here: ");
        pv_str_putf(b, "%-*s", INDENT, pv_dimension_title(d));
        pv_help_wrap(b, detail.s, INDENT, INDENT, WIDTH);
}

static void put_report(struct pv_str *b, const struct pv_observations *all, const struct pv_strv *fix)
{
        struct utsname u = { 0 };
        (void)uname(&u);
        pv_str_putf(b, "Linux %s, user %u: what a --safe run enforces here\n\n", u.release, (unsigned)geteuid());
        for (int d = 0; d < PV_DIMENSIONS; d++)
                put_dimension(b, all, (enum pv_dimension)d);
        if (fix->n)
                pv_str_put(b, "\nto get more:\n");
        for (size_t i = 0; i < fix->n; i++) {
                pv_str_put(b, "  - ");
                pv_auto_str safe = { 0 };
                pv_str_put_safe(&safe, fix->v[i]);
                pv_help_wrap(b, safe.s ? safe.s : "", 4, 4, WIDTH);
        }
}

static json_t *report_json(const struct pv_observations *all, const struct pv_strv *fix)
{
        json_t *fixes = json_array();
        struct utsname u = { 0 };
        (void)uname(&u);
        for (size_t i = 0; i < fix->n; i++)
                (void)json_array_append_new(fixes, pv_json_bytes(fix->v[i]));
        return json_pack("{s:s, s:i, s:o, s:o, s:o}", "kernel", u.release, "uid", (int)geteuid(), "safety",
                         pv_record_safety(all, PV_RECORD_WHOLE), "controls", pv_record_observations(all), "fix", fixes);
}

/* 5 as in a run: some dimension that --safe needs cannot be enforced here. */
static int exit_code(const struct pv_observations *all)
{
        for (int d = 0; d < PV_DIMENSIONS; d++)
                if (d != PV_DIM_RESOURCES && pv_observations_level(all, (enum pv_dimension)d) != PV_LEVEL_ENFORCED)
                        return 5;
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct doctor_options *o = opts;
        pv_auto_free struct pv_observations *all = pv_calloc(1, sizeof *all);
        pv_auto_strv fix = { 0 };
        pv_auto_str text = { 0 };
        if (pv_boundary_examine(all, &fix, err) < 0 || pv_run_network_examine(&fix, err) < 0)
                return -1;
        if (o->json)
                return pv_cmd_print_json(report_json(all, &fix), err) < 0 ? -1 : exit_code(all);
        put_report(&text, all, &fix);
        return pv_cmd_print(&text, err) < 0 ? -1 : exit_code(all);
}

static const char *const examples[] = {
        "pvisor doctor",
        "before the first --safe run on a machine",
        NULL,
};

const struct pv_command pv_cmd_doctor = {
        .name = "doctor",
        .usage = "[--json]",
        .about = "Says which limits this machine can enforce, by trying each, and what to do about those that it "
                 "cannot. "
                 "Exits with 0 when --safe can run here, with 5 when it cannot.",
        .options = options,
        .options_size = sizeof(struct doctor_options),
        .style = PV_ARGS_MIXED,
        .max_words = 0,
        .examples = examples,
        .run = run,
};
