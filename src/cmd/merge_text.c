/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/merge_text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/place.h"
#include "base/str.h"

#define HEAD_MAX 128

static int put(const struct pv_merge_side *side, const char *name, struct pv_err *err)
{
        pv_auto_fd fd = memfd_create(name, MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for a merge");
        if (pv_fd_write_all(fd, side->bytes, side->len, "memory for a merge", err) < 0)
                return -1;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for a merge");
        return pv_fd_steal(&fd);
}

/* In the child: the descriptors to their numbers, from above, so that none is overwritten before it was moved. */
static void become(const char *program, const char *label, const int fds[3], int result)
{
        enum { ABOVE = 64 };
        int high[4];
        for (int i = 0; i < 3; i++) {
                high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, ABOVE);
                if (fds[i] >= 0 && high[i] < 0) /* a side that is there must not pass for none */
                        _exit(126);
        }
        high[3] = fcntl(result, F_DUPFD, ABOVE);
        (void)close(PV_MERGE_BASE);
        for (int i = 0; i < 3; i++)
                if (high[i] >= 0 && dup2(high[i], PV_MERGE_BASE + i) < 0)
                        _exit(126);
        if (dup2(high[3], STDOUT_FILENO) < 0)
                _exit(126);
        const char *const argv[] = { "pvisor-merge", label, NULL };
        const char *const environment[] = { NULL };
        (void)execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)environment);
        _exit(127);
}

static int run(const int fds[3], int result, const char *label, struct pv_err *err)
{
        static const char *const places[] = { "pvisor-merge", "../libexec/pvisor/pvisor-merge", NULL };
        pv_auto_free char *program = NULL;
        int status;
        if (pv_place_find(places, &program, err) < 0)
                return -1;
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start a merge");
        if (pid == 0)
                become(program, label, fds, result);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "wait for a merge");
        if (WIFSIGNALED(status))
                return pv_err_set(err, PV_ERR_SYS, 0, "the merge was ended by signal %d (%s)", WTERMSIG(status),
                                  strsignal(WTERMSIG(status)));
        if (WEXITSTATUS(status) != 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "the merge did not come to an end");
        return 0;
}

/* Cuts the head off, which comes from a process that read hostile text: believed in its form alone. */
static int take_head(int fd, struct pv_merge_text *out, struct pv_err *err)
{
        char head[HEAD_MAX + 1], word[16];
        struct stat st;
        ssize_t n = pread(fd, head, HEAD_MAX, 0);
        char *end = n > 0 ? memchr(head, '\n', (size_t)n) : NULL;
        if (end)
                *end = '\0';
        if (!end || fstat(fd, &st) < 0 ||
            sscanf(head, "%15s %zu %zu %zu %zu", word, &out->job_added, &out->job_deleted, &out->host_added,
                   &out->host_deleted) != 5 ||
            (!pv_streq(word, "clean") && !pv_streq(word, "conflict")) || st.st_size > 4 * (off_t)PV_MERGE_FILE_MAX)
                return pv_err_set(err, PV_ERR_INPUT, 0, "the merge gave no result");
        out->clean = pv_streq(word, "clean");
        pv_auto_fd text = memfd_create("merged", MFD_CLOEXEC);
        if (text < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for a merge");
        for (off_t at = end + 1 - head; at < st.st_size;) {
                char buf[65536];
                ssize_t k = pread(fd, buf, sizeof buf, at);
                if (k <= 0)
                        return pv_err_set(err, PV_ERR_SYS, k < 0 ? errno : EIO, "read the result of a merge");
                if (pv_fd_write_all(text, buf, (size_t)k, "memory for a merge", err) < 0)
                        return -1;
                at += k;
        }
        out->fd = pv_fd_steal(&text);
        return 0;
}

int pv_merge_text(const struct pv_merge_side *base, const struct pv_merge_side *host, const struct pv_merge_side *job,
                  const char *label, struct pv_merge_text *out, struct pv_err *err)
{
        *out = (struct pv_merge_text){ .fd = -1 };
        pv_auto_fd result = memfd_create("result", MFD_CLOEXEC);
        pv_auto_fd b = base->bytes ? put(base, "base", err) : -1;
        pv_auto_fd h = put(host, "host", err), j = put(job, "job", err);
        if ((base->bytes && b < 0) || h < 0 || j < 0)
                return -1;
        if (result < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for a merge");
        const int fds[3] = { b, h, j };
        if (run(fds, result, label, err) < 0)
                return -1;
        return take_head(result, out, err);
}
