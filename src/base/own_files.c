/* SPDX-License-Identifier: Apache-2.0 */
#include "base/own_files.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/outer_ids.h"

static bool put(const char *path, const char *text)
{
        pv_auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool enter(uid_t uid, gid_t gid)
{
        char uids[64], gids[64];
        (void)snprintf(uids, sizeof uids, "%u %u 1\n", uid, uid);
        (void)snprintf(gids, sizeof gids, "%u %u 1\n", gid, gid);
        return unshare(CLONE_NEWUSER) == 0 && put("/proc/self/setgroups", "deny") && put("/proc/self/uid_map", uids) &&
               put("/proc/self/gid_map", gids);
}

/* Tried out by a child: there is no way back from a namespace whose maps could not be written. */
static bool can_enter(uid_t uid, gid_t gid)
{
        int status = 1;
        pid_t pid = fork();
        if (pid == 0)
                _exit(enter(uid, gid) ? 0 : 1);
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void pv_own_files_open(void)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();
        if (uid == 0 || !can_enter(uid, gid))
                return;
        pv_outer_ids_start();
        (void)enter(uid, gid);
}
