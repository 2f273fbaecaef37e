/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage's decisions without the commands around them, for tests that kill, starve and race them:
 *
 *   test-stage-driver create STAGE TARGET      a new stage, a run begun in it: the test then fills the layer
 *   test-stage-driver list STAGE               seals what was not, one change a line
 *   test-stage-driver apply STAGE [PATH...]    all, or these and what belongs to them; times are kept
 *   test-stage-driver undo|recover|drop STAGE
 *   test-stage-driver batches STAGE
 *
 * Exit codes are those of the commands; conflicts go to standard output.
 */
#include <stdio.h>
#include <string.h>
#include "stage/apply.h"

static int complain(const struct pv_err *err)
{
        (void)fprintf(stderr, "%s\n", err->msg);
        return pv_err_exit_code(err);
}

static void tell(const struct pv_apply_result *r)
{
        for (size_t i = 0; i < r->n_conflicts; i++)
                (void)printf("conflict %s: %s\n", r->conflicts[i].path, r->conflicts[i].why);
        if (r->partly)
                (void)printf("partly\n");
        if (r->weaker)
                (void)printf("weaker\n");
        if (r->batch[0])
                (void)printf("batch %s: %zu paths\n", r->batch, r->applied);
}

static int create(const char *stage, const char *target)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_root root = { .kind = PV_ROOT_WORKSPACE, .target = (char *)target, .view = (char *)target };
        const struct pv_overlay *overlays;
        size_t n;
        pv_auto_stage s = NULL;
        if (pv_stage_create(stage, &root, 1, &s, &err) < 0 || pv_stage_begin_run(s, &overlays, &n, &err) < 0)
                return complain(&err);
        (void)printf("%s\n", overlays[0].upper);
        return 0;
}

static int list(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        if (pv_changes_compute(s, &c, &err) < 0)
                return complain(&err);
        for (size_t i = 0; i < c->n; i++)
                (void)printf("%c %s\n", "AMDTm"[c->item[i].kind], c -> item[i].path);
        return 0;
}

static int select_paths(const struct pv_changes *c, char *const *paths, bool *selected, struct pv_err *err)
{
        for (size_t i = 0; i < c->n; i++) {
                selected[i] = !*paths;
                for (char *const *p = paths; *p; p++)
                        selected[i] |= pv_path_is_within(c->item[i].path, *p);
        }
        return pv_apply_close_selection(c, selected, NULL, err);
}

static int apply(struct pv_stage *s, char *const *paths)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_apply_result r = { 0 };
        struct pv_apply_options options = { .keep_times = true };
        pv_auto_changes c = NULL;
        if (pv_changes_compute(s, &c, &err) < 0)
                return complain(&err);
        pv_auto_free bool *selected = pv_calloc(c->n + 1, sizeof *selected);
        if (select_paths(c, paths, selected, &err) < 0)
                return complain(&err);
        int done = pv_apply(s, c, selected, &options, &r, &err);
        tell(&r);
        pv_apply_result_fini(&r);
        return done < 0 ? complain(&err) : 0;
}

static int drop(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        if (pv_changes_compute(s, &c, &err) < 0)
                return complain(&err);
        pv_auto_free bool *selected = pv_calloc(c->n + 1, sizeof *selected);
        memset(selected, true, c->n);
        return pv_drop_changes(s, c, selected, &err) < 0 ? complain(&err) : 0;
}

static int undo(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_apply_result r = { 0 };
        int done = pv_undo(s, NULL, &r, &err);
        tell(&r);
        pv_apply_result_fini(&r);
        return done < 0 ? complain(&err) : 0;
}

static int batches(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free struct pv_batch *b = NULL;
        size_t n;
        if (pv_batches_list(s, &b, &n, &err) < 0)
                return complain(&err);
        for (size_t i = 0; i < n; i++)
                (void)printf("%s %zu%s\n", b[i].id, b[i].n_paths, b[i].undone ? " undone" : "");
        return 0;
}

int main(int argc, char **argv)
{
        struct pv_err err = PV_ERR_INIT;
        const char *did;
        pv_auto_stage s = NULL;
        if (argc == 4 && pv_streq(argv[1], "create"))
                return create(argv[2], argv[3]);
        if (argc < 3)
                return 2;
        if (pv_stage_open(argv[2], PV_STAGE_TAKE, &s, &err) < 0 || pv_apply_recover(s, &did, &err) < 0)
                return complain(&err);
        if (did)
                (void)printf("%s\n", did);
        if (pv_streq(argv[1], "list"))
                return list(s);
        if (pv_streq(argv[1], "apply"))
                return apply(s, argv + 3);
        if (pv_streq(argv[1], "undo"))
                return undo(s);
        if (pv_streq(argv[1], "drop"))
                return drop(s);
        if (pv_streq(argv[1], "batches"))
                return batches(s);
        return pv_streq(argv[1], "recover") ? 0 : 2;
}
