/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a job may reach a network target or a path, or may not: its recorded plan is asked again, with what the person
 * has granted since. Nothing is tried, nothing is changed.
 */
#ifndef PV_JOB_WHY_H
#define PV_JOB_WHY_H

#include "base/json.h"
#include "job/store.h"

struct pv_why {
        bool refused;     /* for a path: it is not there */
        char *what;       /* what is so, and why: "is refused: not named by an allow rule" */
        char *layer;      /* "command line", "configuration", "profile", "base", ...: what decided; NULL: nothing did */
        char *rule;       /* the rule, step or option of it; or NULL */
        char *allow_with; /* what would change it in another run; or NULL */
        char *grant;      /* TARGET of `pvisor allow` that would change it in this one; or NULL */
};
void pv_why_fini(struct pv_why *w);
#define pv_auto_why __attribute__((cleanup(pv_why_fini))) struct pv_why

/* Whether a text is meant as a path: it begins with '/', '.' or '~'. */
bool pv_why_is_path(const char *text);

/*
 * HOST, ADDRESS, either with :PORT. granted: the rules of the record (pv_why_events()); NULL: none. PV_ERR_USAGE: it
 * is no single target.
 */
int pv_why_target(const struct pv_plan *plan, const json_t *granted, const char *text, struct pv_why *out,
                  struct pv_err *err);

/* An absolute, normalised path of the view. Looks at the host's mounts, as a start of that plan would. */
int pv_why_path(const struct pv_plan *plan, const char *path, struct pv_why *out, struct pv_err *err);

/*
 * What events.jsonl tells of the network. *granted: an array of rules; *refusals: an array of the refused flows'
 * events, oldest first. New references; both empty where there is nothing.
 */
int pv_why_events(const struct pv_job *job, json_t **granted, json_t **refusals, struct pv_err *err);

#endif
