/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that serve a run's FUSE overlays: started before its boundary, ended after it. */
#ifndef PV_JOB_SERVE_H
#define PV_JOB_SERVE_H

#include "base/err.h"
#include "base/path.h"
#include "policy/plan.h"

struct pv_serving {
        struct pv_overlay *overlays; /* those that were given, with channels; what they point to is not owned */
        size_t n;
        pid_t *pid; /* n; 0: the kernel serves it */
};
#define PV_SERVING_INIT \
        {               \
                .n = 0  \
        }

/*
 * Starts one program for each overlay that is by_fuse; the others are copied as they are. *out is to be ended on
 * failure, too. Must: single-threaded, in the host's namespaces with the person's own rights.
 */
int pv_serve_start(const struct pv_overlay *overlays, size_t n, struct pv_serving *out, struct pv_err *err);

/* The channel to ask overlay i's program by (base/fuse_channel.h), borrowed; {-1} when the kernel serves it. */
struct pv_pathfd pv_serve_channel(const struct pv_serving *s, size_t i);

/* What programs stored in mappings goes into the layers. Must: they are frozen. A server that is gone is silence. */
void pv_serve_write_back(const struct pv_serving *s);

/*
 * Ends them all. Must: the boundary is gone. False when one had ended before: the command then met errors in its view,
 * and what it wrote is there nevertheless.
 */
bool pv_serve_end(struct pv_serving *s);

#endif
