/* SPDX-License-Identifier: Apache-2.0 */
#include "job/noter.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include "base/container.h"
#include "base/fd.h"
#include "base/str.h"
#include "git/ask.h"
#include "git/host.h"
#include "job/background.h"
#include "stage/notes.h"

enum { AFTER_S = 1 };

struct pv_noter {
        struct pv_stage *stage;
        struct pv_boundary *boundary;
        int lock;                       /* borrowed */
        struct pv_boundary_watch watch; /* the timer, then the process */
        pid_t child;
};

/* "100644 <id> 0\tPATH", NUL, then lines of what git's index knows (git-ls-files(1), --debug). */
static bool parse_entry(const char *head, const char *facts, struct pv_notes_known *out, const char **path)
{
        unsigned mode, stage;
        int at = 0;
        long long csec, msec;
        unsigned long long size;
        if (sscanf(head, "%o %64[0-9a-f] %u%n", &mode, out->oid, &stage, &at) != 3 || stage != 0 || head[at] != '\t' ||
            !S_ISREG(mode))
                return false;
        if (sscanf(facts, " ctime: %lld:%ld mtime: %lld:%ld dev: %*u ino: %*u uid: %*u gid: %*u size: %llu", &csec,
                   &out->ctime.tv_nsec, &msec, &out->mtime.tv_nsec, &size) != 5)
                return false;
        out->ctime.tv_sec = (time_t)csec;
        out->mtime.tv_sec = (time_t)msec;
        out->size = size;
        *path = head + at + 1;
        return true;
}

/* Behind an entry's facts, which are lines that begin with blanks. */
static const char *skip_facts(const char *p, const char *end)
{
        while (p < end && *p == ' ') {
                const char *nl = memchr(p, '\n', (size_t)(end - p));
                p = nl ? nl + 1 : end;
        }
        return p;
}

static void note_all(struct pv_notes *n, const struct pv_git_answer *a, const struct timespec *indexed)
{
        const char *p = a->text, *end = a->text + a->len;
        while (p < end) {
                const char *head = p, *path, *nul = memchr(p, '\0', (size_t)(end - p));
                struct pv_notes_known known;
                if (!nul)
                        return;
                p = skip_facts(nul + 1, end);
                if (parse_entry(head, nul + 1, &known, &path))
                        pv_notes_put(n, path, &known, indexed);
        }
}

/* What git would add, had the person told it to. There may be many, of which the first are looked at. */
enum { OTHERS_MAX = 20000 };
static void note_others(struct pv_notes *n, const struct pv_git_host *h)
{
        static const char *const words[] = { "ls-files", "-z", "--others", "--exclude-standard", NULL };
        const struct pv_git_call call = { .words = words };
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_must(h, &call, &a, &ignored) < 0)
                return;
        const char *p = a.text, *end = a.text + a.len, *nul;
        for (int i = 0; i < OTHERS_MAX && p < end && (nul = memchr(p, '\0', (size_t)(end - p))); i++, p = nul + 1)
                pv_notes_put(n, p, NULL, NULL);
}

static int note(struct pv_stage *s)
{
        static const char *const words[] = { "ls-files", "-z", "-s", "--debug", NULL };
        const struct pv_git_call call = { .words = words };
        struct pv_err err = PV_ERR_INIT;
        struct stat index;
        pv_auto_git_host h = { 0 };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_open(pv_stage_root(s, 0)->target, &h, &err) < 0)
                return 1;
        pv_auto_free char *file = pv_path_join(h.git_dir, "index");
        if (stat(file, &index) < 0 || pv_git_host_must(&h, &call, &a, &err) < 0)
                return 1;
        struct pv_notes *n = pv_notes_new(s, 0);
        note_all(n, &a, &index.st_mtim);
        note_others(n, &h);
        pv_notes_finish(n, true);
        return 0;
}

static void ready(struct pv_boundary_watch *watch, short revents)
{
        struct pv_noter *n = PV_CONTAINER_OF(watch, struct pv_noter, watch);
        const int keep[] = { pv_stage_dirfd(n->stage).fd, pv_stage_target(n->stage, 0).fd, n->lock };
        (void)revents;
        pv_fd_closep(&watch->fd);
        if (n->child > 0) { /* it has ended */
                pv_pid_killp(&n->child);
                return;
        }
        if (pv_background_fork(keep, sizeof keep / sizeof *keep, &n->child, &watch->fd) == 0)
                _exit(note(n->stage));
}

int pv_noter_start(struct pv_stage *stage, struct pv_boundary *boundary, int lock, struct pv_noter **out,
                   struct pv_err *err)
{
        const struct itimerspec once = { .it_value = { .tv_sec = AFTER_S } };
        struct pv_noter *n = pv_calloc(1, sizeof *n);
        *n = (struct pv_noter){
                .stage = stage, .boundary = boundary, .lock = lock, .watch = { .events = POLLIN, .ready = ready }
        };
        n->watch.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (n->watch.fd < 0 || timerfd_settime(n->watch.fd, 0, &once, NULL) < 0 ||
            pv_boundary_watch_add(boundary, &n->watch) < 0) {
                int sys = errno;
                pv_noter_end(n);
                return pv_err_set(err, PV_ERR_SYS, sys, "note what the host has");
        }
        *out = n;
        return 0;
}

void pv_noter_end(struct pv_noter *n)
{
        if (!n)
                return;
        pv_boundary_watch_remove(n->boundary, &n->watch);
        pv_pid_killp(&n->child);
        pv_fd_closep(&n->watch.fd);
        free(n);
}
