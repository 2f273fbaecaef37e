/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "base/fd.h"

int pv_follow_open(struct pv_follow *f, const struct pv_job *job, struct pv_err *err)
{
        pid_t pid = 0;
        f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (f->inotify < 0) {
                (void)pv_err_set(err, PV_ERR_SYS, errno, "follow the job");
                return errno == EMFILE ? pv_err_hint(err, "sysctl fs.inotify.max_user_instances") : -1;
        }
        if (job->state != PV_JOB_RUNNING || pv_job_open_supervisor(job, &pid, &f->supervisor, err) == 0)
                return 0;
        if (err->kind != PV_ERR_NO_JOB)
                return -1;
        pv_err_clear(err); /* it ended just now */
        return 0;
}

void pv_follow_close(struct pv_follow *f)
{
        pv_fd_closep(&f->inotify);
        pv_fd_closep(&f->supervisor);
}

int pv_follow_file(struct pv_follow *f, int dir, const char *name)
{
        pv_auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                return -1;
        if (inotify_add_watch(f->inotify, pv_fd_path(fd).s, IN_MODIFY) < 0)
                return -1;
        off_t data = lseek(fd, 0, SEEK_DATA); /* the oldest output may have been let go of */
        if (data < 0)
                (void)lseek(fd, 0, SEEK_SET);
        return pv_fd_steal(&fd);
}

void pv_follow_poll(const struct pv_follow *f, struct pollfd p[2])
{
        p[0] = (struct pollfd){ .fd = f->inotify, .events = POLLIN };
        p[1] = (struct pollfd){ .fd = f->supervisor, .events = POLLIN };
}

bool pv_follow_take(struct pv_follow *f, const struct pollfd p[2])
{
        char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
        while (p[0].revents && read(f->inotify, events, sizeof events) > 0)
                ;
        if (p[1].revents)
                pv_fd_closep(&f->supervisor);
        return f->supervisor < 0;
}
