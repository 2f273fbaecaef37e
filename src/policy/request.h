/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request: what a person asked of `run`, by options and configuration, converted but not yet judged. admit.c
 * turns it into a plan. Each field has the name of its option; 0, NULL and empty mean "not given".
 */
#ifndef PV_POLICY_REQUEST_H
#define PV_POLICY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

/* Choices count from 1, in the order of the option's list; 0 is "not given". */
enum pv_request_filesystem { PV_REQUEST_FS_HOST = 1, PV_REQUEST_FS_SANDBOX };
enum pv_request_stage_backend { PV_REQUEST_STAGE_AUTO = 1, PV_REQUEST_STAGE_KERNEL, PV_REQUEST_STAGE_FUSE };
enum pv_request_stdio { PV_REQUEST_STDIO_INHERIT = 1, PV_REQUEST_STDIO_CAPTURE };
enum pv_request_net { PV_REQUEST_NET_AUTO = 1, PV_REQUEST_NET_OFF, PV_REQUEST_NET_PROXY };
enum pv_request_executor { PV_REQUEST_EXECUTOR_HOST = 1, PV_REQUEST_EXECUTOR_CONTAINER, PV_REQUEST_EXECUTOR_VM };

struct pv_request {
        bool safe, strict, allow_userns, dry_run, detach;
        char *stage;       /* "" in the job's directory, else a directory */
        int stage_backend; /* enum pv_request_stage_backend */
        char *continue_job;
        char *workspace;
        char *name;
        char *config;
        char *profile; /* a name, or "none"; NULL: that of the program, under --safe */
        bool no_state, no_caches;
        /* Of `login`: the agent writes its own settings, and its workspace is an empty directory that goes away. */
        bool no_settings, unstaged;
        char *json; /* "" on stderr, a number: that descriptor, else a file */

        int filesystem;       /* enum pv_request_filesystem */
        struct pv_strv mount; /* SRC[:DST]:read|stage|write */
        struct pv_strv device;
        bool i_know; /* services of the host that a mount shows may be shown */

        int overlaynet; /* enum pv_request_net */
        bool overlaynet_deny_all, overlaynet_allow_private_ips;
        struct pv_strv overlaynet_allow, overlaynet_deny, overlaynet_limit;
        struct pv_strv user_allow, user_deny; /* those of the configuration file: a layer of their own */
        struct pv_strv publish;               /* [ADDR:]HOSTPORT[:PORT] */
        struct pv_strv host_port;             /* HOSTPORT[:PORT] */
        int executor;                         /* enum pv_request_executor */

        struct pv_strv pass_env;
        bool clear_pass_env; /* those of the configuration file do not count */
        int stdio;           /* enum pv_request_stdio */

        char *stage_max_size;           /* SIZE[:warn|:stop] */
        uint64_t timeout, max_cpu_time; /* milliseconds */
        uint64_t memory, max_file_size; /* bytes */
        uint64_t max_processes, max_open_files;
};

#endif
