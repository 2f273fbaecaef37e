/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened on the network, for the record: each flow as a line of events.jsonl, and per target a sum for the
 * bundle, the review and the closing lines of a run. Bounded: targets are the sandbox's choice.
 */
#ifndef PV_NET_TALLY_H
#define PV_NET_TALLY_H

#include "base/json.h"
#include "net/match.h"

#define PV_TALLY_TARGETS 1024  /* kept apart; further ones are summed up as one */
#define PV_TALLY_LINES   20000 /* lines of events of one run; what is beyond is counted only */

enum pv_flow_end {
        PV_FLOW_DONE,    /* both sides ended it */
        PV_FLOW_BROKEN,  /* reset or failed on the way: error */
        PV_FLOW_FAILED,  /* the far end could not be reached: error, or text */
        PV_FLOW_REFUSED, /* by the policy: verdict */
};

enum pv_flow_via { PV_VIA_CONNECT, PV_VIA_DNS, PV_VIA_PROXY, PV_VIA_PUBLISH, PV_VIA_HOST_PORT };

struct pv_flow_record {
        enum pv_flow_end end;
        enum pv_flow_via via;
        const char *name;              /* or NULL */
        const struct pv_netaddr *addr; /* the real one, or NULL */
        uint16_t port;                 /* 0 for a DNS question */
        uint64_t bytes_out, bytes_in;  /* from and to the sandbox */
        uint64_t duration_ms;
        int error;                        /* errno, or 0 */
        const char *text;                 /* a static sentence where there is no errno; or NULL */
        const struct pv_verdict *verdict; /* REFUSED */
        const char *tls_name; /* the server name that the client asked for when it is another one; or NULL */
};

struct pv_tally; /* opaque */

/* events: a descriptor of events.jsonl opened with O_APPEND, borrowed; -1: no lines are written. */
struct pv_tally *pv_tally_new(int events);
void pv_tally_free(struct pv_tally *t);
void pv_tally_note(struct pv_tally *t, const struct pv_flow_record *r);

/*
 * {"counters": {...}, "targets": [{"target", "port", "state": "reached"|"refused"|"failed", "count", "bytes_out",
 * "bytes_in", "why", "allow_with"}, ...]}; targets in the order in which they were first seen. A new reference.
 */
json_t *pv_tally_summary(const struct pv_tally *t);

/* Why a verdict refuses, as a person reads it: "not named by an allow rule", ... Static, or in buf. */
const char *pv_verdict_text(const struct pv_verdict *v, char *buf, size_t size);

#endif
