/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libexec/pvisor/pvisor-merge: puts two versions of a text together, on descriptors alone.
 *
 *   pvisor-merge LABEL     descriptors: 1 the result, 3 the base (closed: there is none), 4 the host's, 5 the job's
 *
 * The result begins with one line, "clean|conflict JOB_ADDED JOB_DELETED HOST_ADDED HOST_DELETED", lines counted from
 * the base (without one: of the job's against the host's, and 0 0). The merged text follows; where it is no clean one,
 * with conflict markers in it. LABEL is what the markers call the job's side.
 *
 * The job's text is hostile and libgit2 is large: by the time that a byte of it is looked at, this process cannot be
 * traced, holds nothing but the result, and can do no more than compute and write (seccomp), within limits.
 */
#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "base/syscall.h"
#include "cmd/merge_text.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif /* on another machine the compiler asks for its name */

#if defined(__SANITIZE_ADDRESS__) /* its shadow alone is larger than the limit, its reports need more calls */
#define IS_CONFINED false
#else
#define IS_CONFINED true
#endif

#define MEMORY_MAX  ((rlim_t)1 << 30)
#define SECONDS_MAX 20

static int limit(int resource, rlim_t most, struct pv_err *err)
{
        const struct rlimit l = { most, most };
        return setrlimit(resource, &l) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "limit a merge") : 0;
}

/* Memory, the result, the end: nothing else. */
static int confine(struct pv_err *err)
{
        static const int allowed[] = { SYS_read,   SYS_write,          SYS_brk,       SYS_mmap,     SYS_munmap,
                                       SYS_mremap, SYS_madvise,        SYS_futex,     SYS_fstat,    SYS_newfstatat,
                                       SYS_lseek,  SYS_rt_sigprocmask, SYS_getrandom, SYS_mprotect, SYS_exit_group };
        enum { HEAD = 4, N = sizeof allowed / sizeof *allowed };
        const struct sock_filter head[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        };
        /* One test a call; each that fits jumps over the rest, and over the refusal, to the last statement. */
        struct sock_filter code[HEAD + N + 2];
        memcpy(code, head, sizeof head);
        for (unsigned i = 0; i < N; i++)
                code[HEAD + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i],
                                                              (unsigned char)(N - i), 0);
        code[HEAD + N] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
        code[HEAD + N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        const struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "confine a merge");
        return 0;
}

static int prepare(struct pv_err *err)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
            pv_sys_close_range(PV_MERGE_JOB + 1, ~0U, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "prepare a merge");
        if (IS_CONFINED && limit(RLIMIT_AS, MEMORY_MAX, err) < 0)
                return -1;
        if (limit(RLIMIT_CPU, SECONDS_MAX, err) < 0 || limit(RLIMIT_CORE, 0, err) < 0)
                return -1;
        return git_libgit2_init() < 0 ? pv_err_set(err, PV_ERR_SYS, 0, "libgit2 does not start") : 0;
}

struct text {
        char *bytes;
        size_t len;
};

static int read_text(int fd, struct text *out, struct pv_err *err)
{
        if (fcntl(fd, F_GETFD) < 0)
                return 0;
        if (pv_fd_read_all(fd, PV_MERGE_FILE_MAX, "a text", &out->bytes, &out->len, err) < 0)
                return -1;
        (void)close(fd);
        return 0;
}

struct lines {
        size_t added, deleted;
};

static int count_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *payload)
{
        struct lines *n = payload;
        n->added += line->origin == GIT_DIFF_LINE_ADDITION;
        n->deleted += line->origin == GIT_DIFF_LINE_DELETION;
        return 0;
}

static int count(const struct text *old, const struct text *new, struct lines *out, struct pv_err *err)
{
        git_diff_options o = GIT_DIFF_OPTIONS_INIT;
        o.flags = GIT_DIFF_FORCE_TEXT;
        o.context_lines = 0;
        *out = (struct lines){ 0 };
        if (git_diff_buffers(old->bytes, old->len, NULL, new->bytes, new->len, NULL, &o, NULL, NULL, NULL, count_line,
                             out) < 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "the texts cannot be compared");
        return 0;
}

static int merge(const struct text *base, const struct text *host, const struct text *job, const char *label,
                 struct pv_err *err)
{
        static const struct text nothing = { .bytes = "" };
        git_merge_file_options o = GIT_MERGE_FILE_OPTIONS_INIT;
        git_merge_file_input in[3];
        git_merge_file_result r = { 0 };
        struct lines of_job, of_host = { 0 };
        const struct text *sides[3] = { base->bytes ? base : &nothing, host, job };
        for (int i = 0; i < 3; i++) {
                (void)git_merge_file_input_init(&in[i], GIT_MERGE_FILE_INPUT_VERSION);
                in[i].ptr = sides[i]->bytes;
                in[i].size = sides[i]->len;
        }
        o.our_label = "workspace";
        o.their_label = label;
        if (count(base->bytes ? base : host, job, &of_job, err) < 0 ||
            (base->bytes && count(base, host, &of_host, err) < 0))
                return -1;
        if (git_merge_file(&r, &in[0], &in[1], &in[2], &o) < 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "the texts cannot be merged");
        pv_auto_free char *head = pv_strf("%s %zu %zu %zu %zu\n", r.automergeable ? "clean" : "conflict", of_job.added,
                                          of_job.deleted, of_host.added, of_host.deleted);
        if (pv_fd_write_all(STDOUT_FILENO, head, strlen(head), "the result", err) < 0 ||
            pv_fd_write_all(STDOUT_FILENO, r.ptr, r.len, "the result", err) < 0)
                return -1;
        return 0;
}

static int run(const char *label, struct pv_err *err)
{
        struct text base = { 0 }, host = { 0 }, job = { 0 };
        if (prepare(err) < 0 || read_text(PV_MERGE_BASE, &base, err) < 0 || read_text(PV_MERGE_HOST, &host, err) < 0 ||
            read_text(PV_MERGE_JOB, &job, err) < 0)
                return -1;
        if (!host.bytes || !job.bytes)
                return pv_err_set(err, PV_ERR_USAGE, 0, "pvisor-merge: called by `pvisor apply --merge` alone");
        if (IS_CONFINED && confine(err) < 0)
                return -1;
        return merge(&base, &host, &job, label, err);
}

int main(int argc, char **argv)
{
        struct pv_err err = PV_ERR_INIT;
        if (argc != 2)
                (void)pv_err_set(&err, PV_ERR_USAGE, 0, "pvisor-merge: called by `pvisor apply --merge` alone");
        else if (run(argv[1], &err) == 0)
                _exit(0); /* what exit handlers would do is forbidden by now */
        pv_log_err(&err);
        _exit(1);
}
