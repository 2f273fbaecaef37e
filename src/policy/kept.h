/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of HOME outlives a sandboxed run, and what of the host's is fixed inside. All of it lies in directories of
 * pVisor's own, below its store, which no program of the host reads:
 *
 *   agents/NAME/REL        an agent's state: the directory ~/REL, one for all runs of the agent
 *   caches/HASH/upper/REL  caches: a layer over the host's ~/REL, one for each workspace and profile, so that
 *                          what a run without an agent's login left is never executed by one that has it
 *
 * Only what a profile names, or what is known to be a cache and is in use here, is taken.
 */
#ifndef PV_POLICY_KEPT_H
#define PV_POLICY_KEPT_H

#include "base/err.h"
#include "policy/plan.h"
#include "policy/profile.h"
#include "policy/request.h"

/*
 * Adds the profile's state, settings and shared paths to the plan, whose home, home_mode, workspace, roots and mounts
 * must be set. What lies in a directory that is staged or that the person mounted is left alone, with a note.
 */
void pv_kept_add_profile(struct pv_plan *plan, const struct pv_profile *profile, const char *store,
                         const struct pv_request *request, struct pv_strv *notes);

/*
 * The host's file of settings ~/rel and its place inside, for one that is shown without its secrets. False: it is not
 * there, or may not be shown. Both are the caller's. Then what is left of it takes that place; src and content are
 * taken.
 */
bool pv_kept_find_setting(const struct pv_plan *plan, const char *rel, char **src, char **dst);
void pv_kept_add_cleaned(struct pv_plan *plan, char *src, const char *dst, char *content);

/*
 * Adds the caches: the profile's; those known that a file of the workspace calls for (~/.npm where there is a
 * package.json), that an earlier run of this workspace kept, or, for an agent, that the host has; an agent has ~/.cache
 * in any case. Not all of them always: an overlay costs each run a millisecond.
 */
void pv_kept_add_caches(struct pv_plan *plan, const struct pv_profile *profile, const char *store);

/* The directories of home that runs with this profile may keep: programs there may be an earlier run's work. */
void pv_kept_list(const char *home, const struct pv_profile *profile, struct pv_strv *out);

/*
 * In an empty HOME: the toolchains that PATH names a directory of (~/.cargo for ~/.cargo/bin), whole, since what lies
 * in their bin directories leads to the rest of them. path_list: the person's PATH or NULL.
 */
void pv_kept_add_toolchains(struct pv_plan *plan, const char *path_list);

/*
 * The directory of the caches that runs with this profile (NULL: without one) have of a workspace, and that of all. The
 * caller's.
 */
char *pv_kept_caches_of(const char *store, const char *workspace, const char *profile);
char *pv_kept_caches(const char *store);

/* The directory of an agent's state. The caller's. */
char *pv_kept_state_of(const char *store, const char *name);

#endif
