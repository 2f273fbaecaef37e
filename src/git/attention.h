/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a change deserves attention: it runs later, or it widens what may be reached. Two strengths. What runs
 * on the host by itself (a hook at the next commit, an editor's task at the next start, a setting that the
 * next agent loads) is left out by `apply --all` until the person names it; the rest is shown to be looked
 * at.
 */
#ifndef PV_GIT_ATTENTION_H
#define PV_GIT_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pv_attention {
        /* run on the host by themselves */
        PV_ATTENTION_GIT_HOOK,
        PV_ATTENTION_GIT_CONFIG,
        PV_ATTENTION_GIT_REPLACED,
        PV_ATTENTION_NESTED_REPO,
        PV_ATTENTION_ENV,
        PV_ATTENTION_EDITOR,
        PV_ATTENTION_AGENT,
        PV_ATTENTION_SHELL,
        /* to look at */
        PV_ATTENTION_SETUID,
        PV_ATTENTION_LINK_LEAVES,
        PV_ATTENTION_GUARD_REMOVED,
        PV_ATTENTION_CI,
        PV_ATTENTION_PACKAGE_SCRIPTS,
        PV_ATTENTION_BUILD,
        PV_ATTENTION_TOOL_CONFIG,
        PV_ATTENTION_GIT_SETTING,
        PV_ATTENTION_EXECUTABLE,
        PV_ATTENTION_LOCKFILE,
        PV_ATTENTION_SPECIAL_FILE,
        PV_ATTENTION_SPLIT_LINK,
        PV_ATTENTION_HOLES_FILLED,
        PV_ATTENTION_METADATA_LOST,
        PV_ATTENTIONS
};

#define PV_ATTENTION_BIT(a) (UINT64_C(1) << (a))

struct pv_attention_info {
        const char *name;   /* "git-hook": in JSON */
        const char *title;  /* "git hook" */
        const char *reason; /* a clause: "git runs it at the next commit, merge or checkout" */
        bool host_runs;     /* runs on the host by itself: left out by `apply --all` */
};

const struct pv_attention_info *pv_attention_info(enum pv_attention a); /* static */
/* True when one of the reasons runs on the host by itself. */
bool pv_attention_host_runs(uint64_t reasons);
/* The strongest of the reasons (the first of the enum); reasons must not be 0. */
enum pv_attention pv_attention_first(uint64_t reasons);

#endif
