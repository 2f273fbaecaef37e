/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server name that a TLS client asks for (RFC 8446, 4.1.2; RFC 6066, 3), for the record alone: a client says what
 * it likes, and may hide it. A pure function over the first bytes that it sent; the sender is hostile.
 */
#ifndef PV_NET_TLS_H
#define PV_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "policy/netrule.h"

/* False when these bytes are no ClientHello, or hold no host name (so far as they go). name: in the compared form. */
bool pv_tls_server_name(const uint8_t *bytes, size_t n, char name[PV_NETRULE_NAME_MAX + 1]);

#endif
