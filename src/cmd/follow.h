/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following the files of a running job as they grow, to the end of its supervisor: what the supervisor and the command
 * append is seen at once (inotify(7)), and all of it, since files are read to their end after the supervisor's.
 */
#ifndef PV_CMD_FOLLOW_H
#define PV_CMD_FOLLOW_H

#include <poll.h>
#include <stdbool.h>
#include "job/store.h"

struct pv_follow {
        int inotify;
        int supervisor; /* pidfd; -1: it has ended */
};
#define PV_FOLLOW_INIT                          \
        {                                       \
                .inotify = -1, .supervisor = -1 \
        }

/* A job that has ended is followed, too: it ends at once. */
int pv_follow_open(struct pv_follow *f, const struct pv_job *job, struct pv_err *err);
void pv_follow_close(struct pv_follow *f);
#define pv_auto_follow __attribute__((cleanup(pv_follow_close))) struct pv_follow

/* Opens a file of the job's directory and has it watched. -1 with errno ENOENT: there is none. */
int pv_follow_file(struct pv_follow *f, int dir, const char *name);

/* For poll(2): two of them. */
void pv_follow_poll(const struct pv_follow *f, struct pollfd p[2]);
/* After poll(2): true once the supervisor has ended; what is read from now on is the end. */
bool pv_follow_take(struct pv_follow *f, const struct pollfd p[2]);

#endif
