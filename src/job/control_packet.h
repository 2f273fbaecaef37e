/* SPDX-License-Identifier: Apache-2.0 */
/* One packet of the control socket, either way: JSON and descriptors. What control.c and control_client.c share. */
#ifndef PV_JOB_CONTROL_PACKET_H
#define PV_JOB_CONTROL_PACKET_H

#include <jansson.h>
#include "job/control.h"

/* What came; descriptors are close-on-exec and owned, -1 where there is none. */
struct pv_control_packet {
        json_t *body; /* an object */
        int fds[PV_CONTROL_FDS_MAX];
};
#define PV_CONTROL_PACKET_INIT                            \
        {                                                 \
                .fds = { -1, -1, -1, -1, -1, -1, -1, -1 } \
        }
void pv_control_packet_fini(struct pv_control_packet *p);
#define pv_auto_control_packet __attribute__((cleanup(pv_control_packet_fini))) struct pv_control_packet

/*
 * Sends body; flags of sendmsg(2). PV_ERR_USAGE: it is too long. err->sys is EAGAIN when the other side does not
 * read.
 */
int pv_control_packet_send(int fd, const json_t *body, const int *fds, size_t n_fds, int flags, struct pv_err *err);

/*
 * Receives into *p (INIT before). 1: got one; 0: the other side has closed; -1: err->sys is EAGAIN when nothing is
 * there, PV_ERR_INPUT when it is no packet of ours (too long, too many descriptors, no JSON object).
 */
int pv_control_packet_receive(int fd, struct pv_control_packet *p, int flags, struct pv_err *err);

/* An error as an answer's members, and back: *err is set as the server had it. */
json_t *pv_control_error_json(const struct pv_err *failure);
void pv_control_error_parse(const json_t *answer, struct pv_err *err);

#endif
