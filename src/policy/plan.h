/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan: what a run will do, decided before anything is made. policy/admit.c turns a request (options and
 * configuration) into it; the launcher, the stage and the bundle read it; `--dry-run` prints it. All paths are
 * absolute and normalised; those of the host side are real paths (no links in them).
 */
#ifndef PV_POLICY_PLAN_H
#define PV_POLICY_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/str.h"
#include "evidence/observation.h"
#include "policy/netpolicy.h"

enum pv_filesystem { PV_FS_HOST, PV_FS_SANDBOX };
enum pv_net_mode {
        PV_NET_AMBIENT,  /* the host's network as it is */
        PV_NET_DENY_ALL, /* a namespace with nothing in it */
        PV_NET_RULES,    /* a namespace whose only way out is the data plane: pv_plan.netpolicy, enforced */
        PV_NET_PROXY,    /* the host's network and a proxy that programs may use: netpolicy, cooperative */
};
enum pv_stage_backend {
        PV_STAGE_BACKEND_AUTO,   /* the kernel's overlayfs, and FUSE where that cannot serve */
        PV_STAGE_BACKEND_KERNEL, /* or the run is refused */
        PV_STAGE_BACKEND_FUSE,
};
enum pv_stdio { PV_STDIO_INHERIT, PV_STDIO_CAPTURE };
enum pv_mount_access { PV_MOUNT_READ, PV_MOUNT_STAGE, PV_MOUNT_WRITE };

enum pv_home_mode {
        PV_HOME_HOST,  /* HOME as it is (not sandboxed) */
        PV_HOME_EMPTY, /* sandboxed: a private empty directory at HOME's own path */
        PV_HOME_COW,   /* --safe: a copy-on-write view, thrown away at the end, credential stores masked */
};

struct pv_mount {
        char *src, *dst;
        char *named; /* the other path, over links, by which the person named dst; NULL: there is none */
        enum pv_mount_access access; /* STAGE mounts are also in roots[] */
        bool by_profile;             /* not the person's word of this run, but a profile's */
        bool cleaned;                /* a file of which `content` is shown, without the secrets that src says */
        char *content;               /* not recorded: NULL in a plan that was read from a record */
};

/* A directory of pVisor's own in the place of one of HOME: what is written to it is there in the next run, too. */
struct pv_kept {
        char *src; /* in the store; made when it is needed */
        char *dst; /* in the view */
        char *rel; /* as the profile names it, relative to HOME */
};

/* A service or a device of the host that the person let in, knowing (policy/services.h, policy/devices.h). */
struct pv_service {
        char *what, *path;
        unsigned opens; /* 1 << enum pv_dimension: not enforced any more */
        bool device;
};

/* What a run has of an agent's profile (policy/profile.h). */
struct pv_plan_profile {
        char *name, *path; /* NULL: there is none */
        struct pv_strv hosts;
        struct pv_strv pass_env, set_env;
        char *inner_sandbox; /* how the agent's own sandbox was switched off, in words; or NULL */
        char *asked;         /* what --profile said; NULL: nothing */
        size_t n_arguments;  /* that it put before the person's own */
};

/* One directory whose changes are staged. Roots never overlap; roots[0] is the workspace. */
enum pv_root_kind { PV_ROOT_WORKSPACE, PV_ROOT_GIT_DIR, PV_ROOT_MOUNT };
struct pv_root {
        enum pv_root_kind kind;
        char *target; /* the host's directory: the lowest layer, and where apply publishes */
        char *view;   /* where the command sees it; the same, except for --mount SRC:DST:stage */
};

/* A port of the sandbox that can be reached on the host. */
struct pv_publication {
        struct pv_netaddr addr; /* of the host */
        uint16_t host_port, port;
};

/* A port of the host's loopback that can be reached at the sandbox's own. */
#define PV_HOST_PORTS_MAX 24
struct pv_host_port {
        uint16_t host_port, port; /* there and inside */
};

/* 0 means that no limit was asked for. */
struct pv_limits {
        uint64_t timeout_ms;
        uint64_t memory_bytes;
        uint64_t max_processes;
        uint64_t max_cpu_ms;
        uint64_t max_open_files;
        uint64_t max_file_bytes;
};

/* Whether any limit was asked for. */
bool pv_limits_any(const struct pv_limits *l);

struct pv_plan {
        char **argv;     /* NULL-terminated, owned */
        char *workspace; /* a path to the workspace as the person knows it resolves to this real path */
        char *cwd;       /* where the command starts: where the person stood */
        bool workspace_is_git;

        bool safe, strict, staged;
        enum pv_stage_backend stage_backend;
        bool allow_userns;
        enum pv_filesystem filesystem;
        enum pv_net_mode net;
        struct pv_netpolicy netpolicy; /* of RULES and PROXY */
        struct pv_publication *publications;
        size_t n_publications;
        struct pv_host_port *host_ports;
        size_t n_host_ports;
        enum pv_home_mode home_mode;
        enum pv_stdio stdio;
        struct pv_limits limits;
        uint64_t stage_max_bytes; /* soft limit of the stage; 0: none */
        bool stage_max_stop;      /* beyond it the job ends; else it is told once */

        char *home; /* of the person, real path; from the environment, else passwd */
        struct pv_root *roots;
        size_t n_roots; /* 0 when not staged */
        struct pv_mount *mounts;
        size_t n_mounts;
        struct pv_service *services;
        size_t n_services;
        struct pv_plan_profile profile;
        bool no_state, no_caches; /* as asked */
        struct pv_kept *state;    /* of the agent, for all its runs */
        size_t n_state;
        struct pv_strv caches;     /* relative to home: one layer over the host's for each workspace */
        char *cache_dir;           /* where that layer is, in the store; NULL: no caches */
        struct pv_strv toolchains; /* relative to home: shown in an EMPTY one, copy-on-write, thrown away */
        struct pv_strv devices;    /* more than the minimal /dev */
        struct pv_strv hidden;     /* paths that no view may show: the job store, a --stage directory */
        struct pv_strv unmade;     /* where stores are by default and none is yet: no mount lets the command make one */
        struct pv_strv masks;      /* credential stores, relative to home, hidden under PV_HOME_COW */

        struct pv_strv env;          /* NAME=VALUE, all that the command gets; never written to a file */
        struct pv_strv env_passed;   /* names asked for with --pass-env that were present */
        struct pv_strv env_asked;    /* those of --pass-env, whether present or not */
        struct pv_strv env_injected; /* names that pVisor itself sets */

        /* What must be enforced or the run is refused (exit 5): set by --safe and --strict. */
        bool required[PV_DIMENSIONS];
};

void pv_mount_fini(struct pv_mount *m);
void pv_plan_free(struct pv_plan *plan);
/* The command line, copied, in place of the one that the plan has. */
void pv_plan_set_argv(struct pv_plan *plan, char *const *argv);
/* Nothing outlives the run then: all of HOME is thrown away. */
void pv_plan_forget_kept(struct pv_plan *plan);
void pv_plan_forget_caches(struct pv_plan *plan);
static inline void pv_plan_freep(struct pv_plan **p)
{
        pv_plan_free(*p);
        *p = NULL;
}
#define pv_auto_plan __attribute__((cleanup(pv_plan_freep))) struct pv_plan *

/*
 * The kernel overlay of one root, as the stage lays it out and the launcher mounts it: frozen layers newest first,
 * with the target itself (root->target) as the lowest, which is not listed. Owned by the stage that filled it.
 */
struct pv_overlay {
        const struct pv_root *root;
        char **frozen; /* absolute paths */
        size_t n_frozen;
        char *upper, *work; /* absolute; NULL: a read-only view */
        char *by_fuse;      /* why the kernel's overlayfs does not serve it but a program of ours; NULL: it does */
        int channel;        /* by_fuse: to that program (base/fuse_channel.h); whoever starts it sets this */
};

/* The layer of a plan's caches over the host's, as the job's owner laid it out; all absolute. */
struct pv_cache_layer {
        const char *home, *upper, *work;
};

#endif
