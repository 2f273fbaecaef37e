/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of the controls in the record. Who installs a control adds its observation under such a name and sets
 * `installed`; probe.c knows which probes belong to each name, what level they can earn it, and concludes.
 */
#ifndef PV_BOUNDARY_CONTROL_H
#define PV_BOUNDARY_CONTROL_H

/* By the launcher. The dimensions in brackets: one observation for each. */
#define PV_CONTROL_STAGE  "stage"             /* [workspace_writes] an overlay over each root */
#define PV_CONTROL_ROOT   "projected-root"    /* [workspace_writes, host_writes, reads] no other path exists */
#define PV_CONTROL_RO     "read-only-mounts"  /* [host_writes] what is shown but not writable, verified */
#define PV_CONTROL_SHARES "inert-shares"      /* [host_writes] sockets and FIFOs below `read` mounts reach nobody */
#define PV_CONTROL_PROC   "own-proc"          /* [host_writes] the pid namespace's proc, host-wide parts read-only */
#define PV_CONTROL_HOME   "private-home"      /* [sensitive_paths] HOME is empty, or a masked throw-away view */
#define PV_CONTROL_NETNS  "network-namespace" /* [network] */
#define PV_CONTROL_PROXY  "http-proxy"        /* [network] */
#define PV_CONTROL_ENV    "clean-environment" /* [credentials] */
#define PV_CONTROL_FDS    "no-inherited-fds"  /* [credentials] */
#define PV_CONTROL_PIDNS  "pid-namespace"     /* [subprocesses] dies with the supervisor, sees no host process */
#define PV_CONTROL_IPCNS  "ipc-namespace"     /* [subprocesses] */
#define PV_CONTROL_USERNS "user-namespaces"   /* [subprocesses] no capability outside, no new ones inside */

/* What the person let in, a part of each dimension that it opens: its level is then `unenforced`. */
#define PV_CONTROL_SERVICE "host-service"

/* By the walls themselves, in the functions that install them. */
#define PV_CONTROL_LANDLOCK "landlock"           /* [host_writes, reads, network, subprocesses] */
#define PV_CONTROL_SECCOMP  "system-call-filter" /* [host_writes, network, credentials, subprocesses] */
#define PV_CONTROL_CAPS     "no-capabilities"    /* [subprocesses] */
#define PV_CONTROL_NNP      "no-new-privileges"  /* [subprocesses] */
#define PV_CONTROL_CGROUP   "cgroup"             /* [subprocesses] killed as one */
#define PV_CONTROL_CORE     "no-core-dumps"      /* [host_writes] */
/* [resources] PV_LIMIT_* of limits.h */

#endif
