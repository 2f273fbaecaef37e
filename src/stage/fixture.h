/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the unit tests of src/stage: a directory with a target and a stage in it, commands that run in a real overlay of
 * both, change lists as text.
 */
#ifndef PV_STAGE_FIXTURE_H
#define PV_STAGE_FIXTURE_H

#include "stage/change.h"

struct fixture {
        char *dir;    /* a temporary directory */
        char *target; /* dir/target */
        char *stage_dir;
        struct pv_stage *stage;
};

/* cmocka set-up and tear-down: *state is a struct fixture, the target has what the script (run in it) makes. */
struct fixture *fixture_make(const char *base_dir, const char *script);
void fixture_free(struct fixture *f);

/* Runs a shell script on the host, in the target. */
void fixture_host(struct fixture *f, const char *script);
/* Begins a run, runs the script in the view (the overlay mounted at the target's path), ends it without a seal. */
void fixture_run(struct fixture *f, const char *script);
/* The same and seals, with the view; between the two, the host's script runs (NULL: none). */
void fixture_run_and_seal(struct fixture *f, const char *script, const char *host_script);
/* Mounts what the stage gives for looking, runs the script there; its standard output, the caller's. */
char *fixture_look(struct fixture *f, const char *script);

/* True when overlays can be mounted here. */
bool fixture_can_mount(void);

/*
 * One line a change: "A path", "M", "D", "T" or "m" (metadata), then its flags in brackets, " <- old" when renamed, and

 * " =N" with its link group. The caller's.
 */
char *fixture_changes(struct fixture *f);

#endif
