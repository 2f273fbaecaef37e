/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP/1 proxy request (RFC 9110, 9112): CONNECT with an authority, or a method with an absolute http://
 * address, which is rewritten for the origin server. Pure functions over bytes; the sender is hostile.
 */
#ifndef PV_NET_HTTP_H
#define PV_NET_HTTP_H

#include <stdbool.h>
#include "policy/netrule.h"

#define PV_HTTP_HEAD_MAX 32768

enum pv_http_parse {
        PV_HTTP_MORE, /* the head has not ended yet */
        PV_HTTP_CONNECT,
        PV_HTTP_FORWARD,
        PV_HTTP_BAD,       /* answer 400 */
        PV_HTTP_NOT_PROXY, /* an origin-form request: somebody takes the proxy for a web server; answer 400 */
};

struct pv_http_request {
        char host[PV_NETRULE_NAME_MAX + 1]; /* as written, without brackets */
        uint16_t port;
        size_t head; /* bytes of the head, its empty line included; what follows is for the origin */
};

/* Looks at what was received so far. */
enum pv_http_parse pv_http_parse(const char *buf, size_t len, struct pv_http_request *out);

/*
 * The head of a FORWARD request as the origin server gets it: origin-form target, its own Host, no Proxy-* and
 * Connection lines, Connection: close, so that each request passes the policy on a connection of its own.
 */
void pv_http_rewrite(const char *buf, const struct pv_http_request *r, struct pv_str *out);

/* A whole answer with a sentence for people as its body. */
void pv_http_answer(struct pv_str *out, int status, const char *sentence);

#endif
