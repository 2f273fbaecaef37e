/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's loop, and the workers that it forks for what takes long. Single-threaded, so that it may fork. */
#include "boundary/rename_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/syscall.h"

#define KNOWN_FLAGS (RENAME_NOREPLACE | RENAME_EXCHANGE)

struct worker {
        pid_t pid; /* 0: free */
        uint64_t id;
};

struct helper {
        struct pv_rename_shared *shared;
        int listener;
        int lock; /* workers take it in turn: two that move each other's directories would lose files */
        bool root;
        bool confined; /* some process of the workload has its own Landlock rules: no more help */
        struct pv_rename_creds own;
        struct worker workers[PV_RENAME_WORKERS];
        unsigned n_workers;
};

/* Both ends resolved with the rights that this process has. */
struct ends {
        int old_parent, new_parent;
        const char *old_name, *new_name;
};

static void ends_fini(struct ends *e)
{
        pv_fd_closep(&e->old_parent);
        pv_fd_closep(&e->new_parent);
}
#define auto_ends __attribute__((cleanup(ends_fini))) struct ends

static bool resolve(struct pv_rename_request *r, int old_start, int new_start, struct ends *out)
{
        out->old_parent = pv_rename_open_parent(old_start, &r->old, &out->old_name);
        out->new_parent = out->old_parent < 0 ? -1 : pv_rename_open_parent(new_start, &r->new, &out->new_name);
        return out->new_parent >= 0;
}

static int rename_ends(const struct ends *e, unsigned flags)
{
        return renameat2(e->old_parent, e->old_name, e->new_parent, e->new_name, flags) < 0 ? errno : 0;
}

/* Two mounts: nothing that copying within one file system could help. */
static bool on_one_mount(const struct ends *e)
{
        struct statx a, b;

        return statx(e->old_parent, "", AT_EMPTY_PATH, STATX_MNT_ID, &a) == 0 &&
               statx(e->new_parent, "", AT_EMPTY_PATH, STATX_MNT_ID, &b) == 0 && a.stx_mnt_id == b.stx_mnt_id;
}

struct waiting {
        int listener;
        uint64_t id;
};

static bool is_wanted(void *ctx)
{
        const struct waiting *w = ctx;

        return pv_rename_is_waiting(w->listener, w->id);
}

/* In a worker. Another may have had the lock for long: look again what is to be done. */
static void work(const struct helper *h, uint64_t id, struct pv_rename_request *r, int old_start, int new_start)
{
        struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        struct waiting waiting = { h->listener, id };
        auto_ends e = { -1, -1, NULL, NULL };
        int error;

        if (fcntl(h->lock, F_SETLKW, &whole) < 0 || !resolve(r, old_start, new_start, &e) || !is_wanted(&waiting)) {
                pv_rename_answer_continue(h->listener, id);
                return;
        }
        error = rename_ends(&e, r->flags);
        if (error == EXDEV && on_one_mount(&e)) {
                const struct pv_rename_move m = { .old_parent = e.old_parent,
                                                  .new_parent = e.new_parent,
                                                  .old_name = e.old_name,
                                                  .new_name = e.new_name,
                                                  .flags = r->flags,
                                                  .wanted = is_wanted,
                                                  .ctx = &waiting };
                error = pv_rename_tree(&m);
        }
        /* Else EXDEV, from the kernel: a program that knows it copies, and meets by itself what stood in the way. */
        if (error == 0 || error == ENOTEMPTY || error == ENOSPC || error == EDQUOT)
                pv_rename_answer(h->listener, id, error);
        else
                pv_rename_answer_continue(h->listener, id);
}

static struct worker *free_worker(struct helper *h)
{
        for (size_t i = 0; i < PV_RENAME_WORKERS; i++)
                if (h->workers[i].pid == 0)
                        return &h->workers[i];
        return NULL;
}

/* creds: what the worker must become; NULL: it has them. False: nobody took it. */
static bool start_worker(struct helper *h, uint64_t id, struct pv_rename_request *r,
                         const struct pv_rename_creds *creds, int old_start, int new_start)
{
        struct worker *w = free_worker(h);

        if (!w)
                return false;
        atomic_store(&h->shared->in_hand[1 + (w - h->workers)], id);
        pid_t pid = fork();
        if (pid == 0) {
                if (creds && !pv_rename_become(creds))
                        pv_rename_answer_continue(h->listener, id);
                else
                        work(h, id, r, old_start, new_start);
                _exit(0);
        }
        if (pid < 0) {
                atomic_store(&h->shared->in_hand[1 + (w - h->workers)], 0);
                return false;
        }
        *w = (struct worker){ .pid = pid, .id = id };
        h->n_workers++;
        return true;
}

/* A worker has answered before it ends; where it could not, the caller gets what it would have got without help. */
static void reap(struct helper *h)
{
        pid_t pid;

        while (h->n_workers > 0 && (pid = waitpid(-1, NULL, WNOHANG)) > 0) {
                for (size_t i = 0; i < PV_RENAME_WORKERS; i++) {
                        struct worker *w = &h->workers[i];

                        if (w->pid != pid)
                                continue;
                        pv_rename_answer(h->listener, w->id, EXDEV);
                        atomic_store(&h->shared->in_hand[1 + i], 0);
                        *w = (struct worker){ 0 };
                        h->n_workers--;
                }
        }
}

/* A directory is to be renamed. Answers, or leaves it to a worker; false: let the kernel have it. */
static bool serve_directory(struct helper *h, uint64_t id, struct pv_rename_request *r)
{
        pv_auto_fd old_start = -1, new_start = -1;
        struct pv_rename_creds creds;
        bool other;
        int error;

        if (!pv_rename_is_at_home(r->tid) || (h->root && !pv_rename_read_creds(r->tid, &creds)))
                return false;
        old_start = pv_rename_open_start(r, &r->old);
        new_start = pv_rename_open_start(r, &r->new);
        /* All of this was the caller's, and not of a later process of that number. */
        if (old_start < 0 || new_start < 0 || !pv_rename_is_waiting(h->listener, id))
                return false;
        other = h->root && !pv_rename_same_creds(&creds, &h->own);
        if (other)
                return start_worker(h, id, r, &creds, old_start, new_start);

        auto_ends e = { -1, -1, NULL, NULL };
        if (!resolve(r, old_start, new_start, &e))
                return false;
        error = rename_ends(&e, r->flags);
        if (error == 0)
                pv_rename_answer(h->listener, id, 0);
        else if (error == EXDEV && on_one_mount(&e))
                return start_worker(h, id, r, NULL, old_start, new_start);
        return error == 0;
}

/* The common case is a file: one path is read and one stat(2) made, and the kernel does it. */
static bool may_need_help(struct pv_rename_request *r)
{
        bool exchange = r->flags & RENAME_EXCHANGE, directory;

        if (r->flags & ~KNOWN_FLAGS || !pv_rename_read_path(r->tid, &r->old))
                return false;
        directory = pv_rename_is_directory(r, &r->old);
        if ((!directory && !exchange) || !pv_rename_read_path(r->tid, &r->new))
                return false;
        if (!exchange)
                return true;
        /* One side may be no directory, and then must not be named with a slash behind. */
        return (directory || pv_rename_is_directory(r, &r->new)) && !r->old.slashes && !r->new.slashes;
}

static void serve(struct helper *h, const struct seccomp_notif *n)
{
        static struct pv_rename_request r; /* two paths: too much for a stack frame */

        if (n->data.nr == SYS_landlock_restrict_self)
                h->confined = true;
        if (h->confined || !pv_rename_parse(n, &r) || !may_need_help(&r) || !serve_directory(h, n->id, &r))
                pv_rename_answer_continue(h->listener, n->id);
}

/* Waits for a notification (true) or the end of a worker. *over: nobody is left who could ask. */
static bool wait_for_one(const struct helper *h, bool *over)
{
        struct pollfd p = { .fd = h->listener, .events = POLLIN };
        sigset_t all_but_child;

        (void)sigfillset(&all_but_child);
        (void)sigdelset(&all_but_child, SIGCHLD);
        if (ppoll(&p, 1, NULL, &all_but_child) < 0)
                return false;
        *over = p.revents & (POLLHUP | POLLERR | POLLNVAL);
        return p.revents & POLLIN;
}

static void on_child(int sig)
{
        (void)sig; /* it interrupts ppoll(2) */
}

static bool init(struct helper *h)
{
        struct sigaction child = { .sa_handler = on_child };
        uint64_t flags = PV_SECCOMP_NOTIF_SYNC_WAKE_UP;

        (void)sigaction(SIGCHLD, &child, NULL);
        /* Linux 6.6: 16 us a rename instead of 50. */
        (void)ioctl(h->listener, PV_SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
        h->lock = memfd_create("pvisor-rename", MFD_CLOEXEC);
        if (h->lock < 0 || (h->root && !pv_rename_read_creds(getpid(), &h->own)))
                return false;
        h->own.effective &= ~(UINT64_C(1) << CAP_SYS_PTRACE); /* no right over files */
        return true;
}

void pv_rename_serve(struct pv_rename_shared *shared, int listener, bool root)
{
        static struct helper h;
        bool over = false;

        h.shared = shared;
        h.listener = listener;
        h.root = root;
        h.confined = !init(&h);
        while (!over) {
                struct seccomp_notif n = { 0 };

                reap(&h);
                if (h.n_workers > 0 && !wait_for_one(&h, &over))
                        continue;
                if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0) {
                        struct pollfd p = { .fd = listener };

                        /* ENOENT: that caller was killed, or it was the last one. */
                        over = (errno != EINTR && errno != ENOENT) || (poll(&p, 1, 0) > 0 && p.revents & POLLHUP);
                        continue;
                }
                atomic_store(&shared->in_hand[0], n.id);
                atomic_store(&shared->last, n.id);
                serve(&h, &n);
                atomic_store(&shared->in_hand[0], 0);
        }
}
