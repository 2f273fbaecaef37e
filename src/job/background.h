/* SPDX-License-Identifier: Apache-2.0 */
/* Work beside a running job that may take as long as it takes: forked, of the lowest priority, gone with its parent. */
#ifndef PV_JOB_BACKGROUND_H
#define PV_JOB_BACKGROUND_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Forks. 0 in the child, which must _exit(): it has no descriptor but keep[], and nothing on 0, 1 and 2. The job's lock
 * belongs among them: should the parent be killed, the job is told as lost when this process is dead, too. 1 in the
 * parent, with the child and a pidfd of it, which is readable at its end. -1: it did not come to be.
 */
int pv_background_fork(const int *keep, size_t n_keep, pid_t *child, int *pidfd);

#endif
