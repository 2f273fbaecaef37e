/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's own git, on the host's own repository. Never over staged data: what comes from a job is a pack that was
 * made inside its boundary, and it enters through index-pack's checks alone (git/import.h).
 *
 * The repository's configuration is the person's, and still nothing that it names is run: no hook, no fsmonitor, no
 * filter (no file of the working tree is ever read), no pager, no transport, no lazy fetch. The configuration of user
 * and system is not read. Whoever runs as root has git work as the repository's owner, as that person would.
 */
#ifndef PV_GIT_HOST_H
#define PV_GIT_HOST_H

#include <stdbool.h>
#include "base/str.h"
#include "git/ask.h"

struct pv_git_host {
        char *program;    /* of git, absolute */
        char *worktree;   /* absolute */
        char *git_dir;    /* of this work tree, a real path */
        char *common_dir; /* where references and objects are, a real path; the same but for linked worktrees */
        char *quarantine; /* object directory that takes what is written, over the repository's own; or NULL */
        bool sha256;
};
void pv_git_host_fini(struct pv_git_host *h);
#define pv_auto_git_host __attribute__((cleanup(pv_git_host_fini))) struct pv_git_host

/*
 * Opens the repository whose work tree this is: worktree/.git, not one that git would find further up.
 * PV_ERR_UNSUPPORTED: there is no git on this machine. PV_ERR_STATE: it is no repository.
 */
int pv_git_host_open(const char *worktree, struct pv_git_host *out, struct pv_err *err);

struct pv_git_call {
        const char *const *words; /* of git's command line, NULL-terminated */
        const void *in;           /* standard input: in_len bytes */
        size_t in_len;
        int in_fd; /* or this descriptor (a file, from its start, or a pipe), when in is NULL and it is > 0 */
        const char *index_file; /* absolute; or NULL: the repository's own */
        size_t max_out;         /* of standard output; 0: PV_GIT_HOST_OUT */
        unsigned seconds;       /* 0: PV_GIT_HOST_SECONDS; when they are over it is killed */
};
enum { PV_GIT_HOST_OUT = 256 << 20, PV_GIT_HOST_SECONDS = 60 };

/*
 * Runs git to its end. -1 only when it could not be run or did not come to an end; else out->exit_code says. said gets
 * the last line of standard error, fit for a terminal; may be NULL.
 */
int pv_git_host_run(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_answer *out,
                    struct pv_str *said, struct pv_err *err);
/* The same where another exit code than 0 is an error: "git WORD: what it said". */
int pv_git_host_must(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_answer *out,
                     struct pv_err *err);

/*
 * The same in two halves, for what can be done meanwhile: but for the freezing of a job, which would take the end of
 * this child for one of its own. It may write no more than a pipe holds before the second half, whose time counts
 * from then.
 */
struct pv_git_running {
        pid_t pid; /* 0: none */
        int from, errors;
        const char *word; /* of git's command line, static */
        size_t max_out;
        unsigned seconds;
};
int pv_git_host_start(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_running *out,
                      struct pv_err *err);
int pv_git_host_finish(const struct pv_git_host *h, struct pv_git_running *running, struct pv_git_answer *out,
                       struct pv_str *said, struct pv_err *err);
/* Kills it, if it still runs. */
void pv_git_running_fini(struct pv_git_running *running);
#define pv_auto_git_running __attribute__((cleanup(pv_git_running_fini))) struct pv_git_running

#endif
