/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the data plane and libexec/pvisor/pvisor-resolve say to each other, over one SOCK_SEQPACKET: a question is one
 * packet, and so is its answer. Both are of one installation and one machine: structures as they are.
 */
#ifndef PV_NET_RESOLVE_PACKET_H
#define PV_NET_RESOLVE_PACKET_H

#include "net/resolve.h"

#define PV_RESOLVE_FD 3 /* where the program expects its end */
#define PV_RESOLVE_AT_ONCE \
        4 /* questions that the plane asks before it has an answer: as many threads has the program */

struct pv_resolve_question {
        uint32_t number; /* comes back with the answer */
        char name[PV_NETRULE_NAME_MAX + 1];
};

struct pv_resolve_answer {
        uint32_t number;
        struct pv_resolved answer;
};

#endif
