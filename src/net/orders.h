/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor tells a data plane that runs: a pair of SOCK_SEQPACKET sockets, one JSON object a packet. Each
 * order is answered by one packet, in order: {"ok": true} or {"ok": false, "error": "..."}.
 *
 *   {"order": "allow", "rules": ["example.com:443", ...]}   grants these (the supervisor has asked the deny rules)
 *   {"order": "publish", "port": 3000}                      with a listening socket: leads to that port of the sandbox
 *
 * Both sides are trusted; the sandbox has neither.
 */
#ifndef PV_NET_ORDERS_H
#define PV_NET_ORDERS_H

#include <stdbool.h>
#include "base/err.h"
#include "base/json.h"

#define PV_ORDER_MAX (256U << 10) /* bytes of one */

/* pass: a descriptor that goes along, borrowed; -1: none. Never waits. */
int pv_order_send(int fd, const json_t *order, int pass, struct pv_err *err);
/* *out is the caller's reference, *passed its descriptor or -1. Never waits; PV_ERR_STATE: the other side is gone. */
int pv_order_receive(int fd, json_t **out, int *passed, struct pv_err *err);

struct pv_plane;
/* The plane's side: takes one order and answers it. False when the supervisor has closed its end. */
bool pv_plane_obey(struct pv_plane *p, int fd);

#endif
