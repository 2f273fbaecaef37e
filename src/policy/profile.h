/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles: what one agent needs beyond the command line, as data. A profile is a YAML file, read as the configuration
 * is; its name is the file's. It widens a sandboxed run by what it names and by nothing else: there is no field that
 * takes a control away. A profile is the person's (or ships with pVisor) and trusted as their options are; the
 * workspace never has a say in it.
 */
#ifndef PV_POLICY_PROFILE_H
#define PV_POLICY_PROFILE_H

#include <stdbool.h>
#include "base/err.h"
#include "base/str.h"
#include "policy/plan.h"

struct pv_profile {
        char *name, *path;
        char *about;             /* one line */
        struct pv_strv hosts;    /* targets (policy/netrule.h) and @groups that the agent itself needs */
        struct pv_strv state;    /* directories, relative to HOME: pVisor's own in their place, kept from run to run */
        struct pv_strv settings; /* files and directories, relative to HOME: the host's, read-only inside */
        struct pv_strv mcp_settings;  /* the same of files with MCP servers: without secrets (policy/settings.h) */
        char *mcp_reference;          /* how those files name a variable, "${NAME}"; or NULL */
        struct pv_strv read;          /* absolute or relative to HOME ("~/..."): shown read-only */
        struct pv_strv caches;        /* relative to HOME: kept for each workspace */
        struct pv_strv pass_env;      /* names of variables that it may have */
        struct pv_strv set_env;       /* NAME=VALUE; a value that starts with "~/" is a path of HOME */
        char *inner_sandbox;          /* how the agent's own sandbox is switched off, in words; or NULL */
        struct pv_strv inner_args;    /* arguments that do it, put before the person's own */
        char *servers;                /* relative to HOME: a file that lists MCP servers (policy/mcp.h); or NULL */
        char *servers_argument;       /* what stands before that list in an argument: "--mcp-config=" */
        struct pv_strv login;         /* the command line that logs in */
        struct pv_strv login_publish; /* [ADDR:]HOSTPORT:PORT that it waits on */
};

void pv_profile_free(struct pv_profile *p);
static inline void pv_profile_freep(struct pv_profile **p)
{
        pv_profile_free(*p);
        *p = NULL;
}
#define pv_auto_profile __attribute__((cleanup(pv_profile_freep))) struct pv_profile *

/* 1 to 64 of letters, digits, '.', '_', '-', the first a letter or digit; not "none". */
bool pv_profile_is_name(const char *text);

/*
 * Reads one. PV_ERR_USAGE with file and line: unknown or repeated fields, values of the wrong kind, paths that leave
 * HOME or lie in a credential store, a host that is none or that holds everything.
 */
int pv_profile_load(const char *path, const char *name, struct pv_profile **out, struct pv_err *err);

/*
 * Where profiles are: the person's directory, beside config.yaml, then the installation's.
 */
struct pv_profile_places {
        char *own, *shipped; /* directories; NULL: there is none */
};
void pv_profile_places_find(const char *xdg_config_home, const char *home, struct pv_profile_places *out);
void pv_profile_places_fini(struct pv_profile_places *p);
#define pv_auto_profile_places __attribute__((cleanup(pv_profile_places_fini))) struct pv_profile_places

/* The file of that name, the caller's; NULL: there is none. */
char *pv_profile_find(const struct pv_profile_places *places, const char *name);

/* PV_ERR_USAGE for a name that no profile has, "CONTEXT NAME: ...", with the closest one as a hint. */
int pv_profile_missing(const struct pv_profile_places *places, const char *context, const char *name,
                       struct pv_err *err);

/* Names of all, sorted, those of the person and of the installation once. */
void pv_profile_list(const struct pv_profile_places *places, struct pv_strv *names);

/* The profile's file of a program by the base name of argv[0], the caller's; NULL: there is none. */
char *pv_profile_of_program(const struct pv_profile_places *places, const char *program);

/* What the command finds at a place of its view, besides or instead of what the host has there. */
struct pv_backing {
        char *view, *src;
        bool instead; /* a mount covers the host's directory; else src holds what earlier commands left over it */
};
struct pv_backings {
        struct pv_backing *v;
        size_t n;
};
void pv_backings_add(struct pv_backings *b, const char *view, const char *src, bool instead);
void pv_backings_fini(struct pv_backings *b);
#define pv_auto_backings __attribute__((cleanup(pv_backings_fini))) struct pv_backings

/*
 * The one of dirs (real paths) that a program, named or found in path_list as the command will find it, lies in,
 * itself or a link on the way to it; or NULL. Where earlier commands could write, it may be their work: it has no
 * profile by its name. The result is borrowed from dirs or view.
 */
const char *pv_profile_leads_through(const char *program, const char *path_list, const struct pv_strv *dirs,
                                     const struct pv_backings *view);

/* What the plan keeps of it. */
void pv_profile_put(const struct pv_profile *profile, struct pv_plan *plan);

#endif
