/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories of policy/kept.h on disk: made before a run, held while it runs, removed on request.
 *
 * An agent's state is one directory for all its runs at once, bound into each: agents replace their files by rename,
 * as they do on a host with several of them open. Its lock is shared by runs and exclusive to who removes it. A
 * workspace's caches are an overlay's upper layer, which only one run can have; a run beside it does without.
 */
#ifndef PV_JOB_KEPT_H
#define PV_JOB_KEPT_H

#include <stdint.h>
#include "base/err.h"
#include "base/process.h"
#include "base/str.h"
#include "policy/plan.h"

/* Held as long as the run. */
struct pv_kept_run {
        int state_lock, caches_lock;
        char *upper, *work; /* of the caches; NULL: there are none in this run */
};
#define PV_KEPT_RUN_INIT                            \
        {                                           \
                .state_lock = -1, .caches_lock = -1 \
        }

/*
 * Makes what the plan names, and puts the places of read-only settings right in the state directories, where an earlier
 * command may have left something else. Caches that another run holds are taken out of the plan, with a note.
 */
int pv_kept_prepare(struct pv_plan *plan, struct pv_kept_run *out, struct pv_err *err);
/* Its sandbox's first process: who wants the caches next waits until that is dead. */
void pv_kept_note_init(const struct pv_kept_run *k, const struct pv_process *init);
/* Its command is dead: who wants the caches now waits until they are let go of. */
void pv_kept_note_over(const struct pv_kept_run *k);
/* Must: nothing of the run be left. */
void pv_kept_run_fini(const struct pv_plan *plan, struct pv_kept_run *k);

/* Removes an agent's state; *there: whether there was any. PV_ERR_BUSY while a run has it. */
int pv_kept_forget_state(const char *name, bool *there, struct pv_err *err);

/* The caches of one workspace. */
struct pv_kept_cache {
        char *workspace; /* whose they are; NULL: not known */
        char *path;
        uint64_t bytes;
        struct timespec used; /* when a run last had them */
        bool in_use;
};
/* All of them, the longest unused first. Free with pv_kept_caches_free(). */
int pv_kept_caches_list(struct pv_kept_cache **out, size_t *n, struct pv_err *err);
void pv_kept_caches_free(struct pv_kept_cache *all, size_t n);
/* PV_ERR_BUSY while a run has them. */
int pv_kept_cache_remove(const struct pv_kept_cache *c, struct pv_err *err);

#endif
