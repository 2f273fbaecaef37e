/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of a detached job, from another process: the client of the verb `attach`. What it is: detach.c. */
#ifndef PV_JOB_ATTACH_H
#define PV_JOB_ATTACH_H

#include "base/err.h"
#include "job/store.h"

/*
 * *terminal: the master, non-blocking and shared with the job's supervisor, the caller's: to write keys to and to set
 * the size of. Mustn't be read: what comes out lies in PV_JOB_STDOUT. PV_ERR_STATE: the job has no terminal of its
 * own, or does not run any more.
 */
int pv_attach(const struct pv_job *job, int *terminal, struct pv_err *err);

#endif
