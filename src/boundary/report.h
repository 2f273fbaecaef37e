/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two channels between supervisor and sandbox side; trust ends with them.
 *
 * Report (SOCK_SEQPACKET, set-up only): pid 1 and the launcher tell what they installed, hand over descriptors of the
 * staged views, or say why they failed. Its writing end is close-on-exec everywhere and held by nobody that outlives
 * the exec, so that end of file means: the command runs.
 *
 * Control (SOCK_SEQPACKET, the whole run): the supervisor asks pid 1 to signal the command, pid 1 tells how the
 * command stopped or ended. The workload never has it. Either side that finds it closed knows that the other is dead.
 */
#ifndef PV_BOUNDARY_REPORT_H
#define PV_BOUNDARY_REPORT_H

#include <stddef.h>
#include <sys/resource.h>
#include "base/err.h"
#include "evidence/observation.h"

/* Sent by the sandbox side. Of these failure to send is silence: the supervisor sees an end without an exec. */
void pv_report_observations(int fd, const struct pv_observations *obs);
void pv_report_error(int fd, const struct pv_err *failure);
/* Descriptors. -1: the supervisor does not get it, so that nothing may be started. */
int pv_report_view(int fd, size_t index, int view, struct pv_err *err); /* behind the staged ones: one to hold */
int pv_report_net(int fd, size_t index, int net, struct pv_err *err);
int pv_report_netns(int fd, int netns, struct pv_err *err);     /* the namespace, when that is furnished */
int pv_report_helper(int fd, int pidfd, struct pv_err *err);    /* of the rename helper */
int pv_report_terminal(int fd, int master, struct pv_err *err); /* of the terminal that was made for the command */

/* Where what arrives goes; descriptors are -1 before. NULL: it is not expected, and closed. */
struct pv_report_sink {
        struct pv_observations *obs;
        int *views; /* n_views of them */
        size_t n_views;
        int *net; /* PV_BOUNDARY_NET_FDS of them: what the network namespace holds */
        int *netns, *helper, *terminal;
};

/*
 * One message; flags of recv(2). 1: got one; 0: the end (the command was exec'd, or the sender died: the caller looks);
 * -1: nothing there now, or errno. The first error that is reported is kept in *failure (INIT before).
 */
int pv_report_take(int fd, const struct pv_report_sink *sink, int flags, struct pv_err *failure);

enum pv_message_kind {
        PV_MESSAGE_GO = 1,       /* to pid 1: the id maps are written */
        PV_MESSAGE_CHANNEL,      /* to pid 1: a descriptor, to the program that serves overlay `value` */
        PV_MESSAGE_JOB,          /* to pid 1: what comes with the job, job_order.h */
        PV_MESSAGE_NETWORK,      /* to pid 1: the network namespace, after that */
        PV_MESSAGE_SIGNAL,       /* to pid 1: send signal `value` to the command */
        PV_MESSAGE_SIGNAL_GROUP, /* to pid 1: to the command's process group */
        PV_MESSAGE_FOREGROUND,   /* to pid 1: give the command's group the terminal and let it go on */
        PV_MESSAGE_STOPPED,      /* from pid 1: by signal `value` */
        PV_MESSAGE_ENDED,        /* from pid 1: the command, by wait status `value`; all others are dead, too */
        PV_MESSAGE_EXEC,         /* to pid 1: another command, exec.h; descriptors come with it */
        PV_MESSAGE_EXEC_SIGNAL,  /* to pid 1: send signal `value` to the group of command `number` */
        PV_MESSAGE_EXEC_ENDED,   /* from pid 1: wait status `value` of command `number` */
};

struct pv_message {
        int kind, value;
        unsigned number;     /* of another command than the first; with ENDED: how many processes it left behind */
        struct rusage usage; /* with PV_MESSAGE_ENDED: of all that were waited for */
};

int pv_message_send(int fd, int kind, int value);
int pv_message_send_about(int fd, int kind, unsigned number, int value);
/* The same with n descriptors, of which the kernel takes at most PV_MESSAGE_FDS. */
#define PV_MESSAGE_FDS 8
int pv_message_send_fds(int fd, const struct pv_message *m, const int *fds, size_t n);
/* The same, to a pid 1 that waits for it. That nobody is there is silence: why, comes on the report channel. */
int pv_message_hand_over(int fd, const struct pv_message *m, const int *fds, size_t n, struct pv_err *err);
/* As pv_message_receive(); got: PV_MESSAGE_FDS places, -1 where none came; the caller's. */
int pv_message_receive_fds(int fd, struct pv_message *out, int *got, int flags);
/* 1: got one; 0: the other side is gone; -1: nothing there now, or errno. */
int pv_message_receive(int fd, struct pv_message *out, int flags);

#endif
