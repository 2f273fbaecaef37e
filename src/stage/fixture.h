/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the unit tests of src/stage: a directory with a target and a stage in it, commands that run in a real overlay of
 * both, change lists as text.
 */
#ifndef PV_STAGE_FIXTURE_H
#define PV_STAGE_FIXTURE_H

#include "base/test.h"
#include "stage/change.h"

/* Directories on what filesystems: the target's and the stage's. */
struct fixture_place {
        const char *target, *stage;
};
/* The places that serve here, one after the other; NULL starts and ends. */
const struct fixture_place *fixture_next_place(const struct fixture_place *last);

struct fixture {
        char *dir, *target_dir; /* temporary directories for the stage and for the target */
        char *target, *stage_dir;
        struct pv_stage *stage;
};

/* A target with what the script, run in it, makes, and a new stage for it. */
struct fixture *fixture_make_at(const struct fixture_place *place, const char *script);
struct fixture *fixture_make(const char *script); /* at the first place */
void fixture_free(struct fixture *f);

/* Runs a shell script on the host, in the target. */
void fixture_host(struct fixture *f, const char *script);
/* Begins a run, runs the script in the view (the overlay mounted at the target's path), ends it without a seal. */
void fixture_run(struct fixture *f, const char *script);
/* Runs the script in one overlay of a run that was begun. */
void fixture_in_overlay(const struct pv_overlay *o, const char *script);
/* The same as fixture_run() and seals, with the view; between the two, the host's script runs (NULL: none). */
void fixture_run_and_seal(struct fixture *f, const char *script, const char *host_script);
/* Mounts what the stage gives for looking, runs the script there; its standard output, the caller's. */
char *fixture_look(struct fixture *f, const char *script);

/* Runs a group of tests; skips it (an error under PV_MUST_WORK=1) where no overlay can be mounted. */
int fixture_main(const char *group, const struct CMUnitTest *tests, size_t n);

/*
 * One line a change: "A path", "M", "D", "T" or "m" (metadata), then its flags in brackets, " <- old" when renamed, and

 * " =N" with its link group. The caller's.
 */
char *fixture_changes(struct fixture *f);

#endif
