/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching the host's directories, so that the kernel may keep what it was told of them: each one that was looked into
 * is watched (inotify(7)), and what changes there is taken back from the kernel. Where no watch can be had, or for what
 * inotify does not tell (another name of a file, a server's own changes), a short time bounds what is kept.
 *
 * A notification may wait for a lock of the kernel's that is held by a process whose request waits for the lock of the
 * file system here: it is sent without it. The node may be gone by then, or another one be in its place; then the
 * kernel looks for nothing, or once more than it had to.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "fuse/ops.h"

#define EVENTS                                                                                                         \
        (IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | \
         IN_ONLYDIR)
#define OF_NAMES (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define OF_SELF  (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)
#define BUFFER   65536

int pv_fuse_watch_open(struct pv_fuse_fs *fs)
{
        fs->inotify = inotify_init1(IN_CLOEXEC);
        return fs->inotify < 0 ? -1 : 0;
}

void pv_fuse_watch(struct pv_fuse_place *p)
{
        struct pv_fuse_fs *fs = p->fs;
        struct pv_fuse_node *dir = p->dir;
        size_t live = fs->n_layers - 1;
        if (dir->watch_tried || fs->inotify < 0 || dir->bottom < live)
                return;
        dir->watch_tried = true;
        int fd = pv_fuse_place_fd(p, live);
        int wd = fd < 0 ? -1 : inotify_add_watch(fs->inotify, pv_fuse_proc(fd, ".").s, EVENTS);
        if (wd <= 0)
                return;
        if ((size_t)wd >= fs->n_watched) {
                size_t n = (size_t)wd * 2 + 64;
                fs->watched = pv_realloc(fs->watched, n, sizeof *fs->watched);
                memset(fs->watched + fs->n_watched, 0, (n - fs->n_watched) * sizeof *fs->watched);
                fs->n_watched = n;
        }
        if (fs->watched[wd]) /* the same directory at another place: one watch, for the first */
                return;
        fs->watched[wd] = dir;
        dir->wd = wd;
}

void pv_fuse_unwatch(struct pv_fuse_fs *fs, struct pv_fuse_node *dir)
{
        if (dir->wd > 0) {
                (void)inotify_rm_watch(fs->inotify, dir->wd);
                fs->watched[dir->wd] = NULL;
        }
        dir->wd = 0;
        dir->watch_tried = false;
}

/* What is to be said to the kernel of one event. */
struct news {
        fuse_ino_t dir, child; /* 0: nothing */
        bool names;
};

static struct news learn(struct pv_fuse_fs *fs, const struct inotify_event *e)
{
        struct news news = { 0 };
        struct pv_fuse_node *dir = e->wd > 0 && (size_t)e->wd < fs->n_watched ? fs->watched[e->wd] : NULL;
        if (!dir)
                return news;
        news.dir = pv_fuse_ino_of(fs, dir);
        if (e->mask & OF_SELF) {
                if (e->mask & IN_IGNORED) {
                        fs->watched[e->wd] = NULL;
                        dir->wd = 0;
                }
                pv_fuse_unwatch(fs, dir); /* another one may be at its place at the next look */
                return news;
        }
        struct pv_fuse_node *child = e->len ? pv_fuse_name_find(fs, dir, e->name) : NULL;
        news.names = e->mask & OF_NAMES;
        if (child) {
                news.child = pv_fuse_ino_of(fs, child);
                if (news.names && S_ISDIR(child->type))
                        pv_fuse_unwatch(fs, child);
        }
        return news;
}

static void tell(struct pv_fuse_fs *fs, const struct inotify_event *e)
{
        (void)pthread_mutex_lock(&fs->lock);
        struct news news = learn(fs, e);
        (void)pthread_mutex_unlock(&fs->lock);
        if (news.child)
                (void)fuse_lowlevel_notify_inval_inode(fs->session, news.child, 0, 0);
        if (news.dir && news.names && e->len)
                (void)fuse_lowlevel_notify_inval_entry(fs->session, news.dir, e->name, strlen(e->name));
        /* With its pages: the names that the kernel has of it. A name that it does not know would not move it. */
        if (news.dir && (news.names || !e->len))
                (void)fuse_lowlevel_notify_inval_inode(fs->session, news.dir, 0, 0);
}

/* Events were lost: what is told from now on is short-lived, what was told is bounded by its own time. */
static void lose(struct pv_fuse_fs *fs)
{
        (void)pthread_mutex_lock(&fs->lock);
        for (size_t i = 0; i < fs->n_watched; i++)
                if (fs->watched[i])
                        pv_fuse_unwatch(fs, fs->watched[i]);
        (void)pthread_mutex_unlock(&fs->lock);
}

void *pv_fuse_watch_run(void *arg)
{
        struct pv_fuse_fs *fs = arg;
        char *buf = malloc(BUFFER);
        for (ssize_t n; buf && (n = read(fs->inotify, buf, BUFFER)) != 0;) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        break;
                for (ssize_t at = 0; at < n;) {
                        const struct inotify_event *e = (const struct inotify_event *)(const void *)(buf + at);
                        at += (ssize_t)(sizeof *e + e->len);
                        if (e->mask & IN_Q_OVERFLOW)
                                lose(fs);
                        else
                                tell(fs, e);
                }
        }
        free(buf);
        return NULL;
}
