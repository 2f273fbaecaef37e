/* SPDX-License-Identifier: Apache-2.0 */
/* For unit tests of what cannot be undone: runs a function in a child and gives back what it returned. */
#ifndef PV_BOUNDARY_CHILD_TEST_H
#define PV_BOUNDARY_CHILD_TEST_H

#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/err.h"

/* In the child: ends it, showing where and why, as assert_true() cannot there. */
#define CHILD_CHECK(condition)                                                                                     \
        do {                                                                                                       \
                if (!(condition)) {                                                                                \
                        (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
                        _exit(99);                                                                                 \
                }                                                                                                  \
        } while (0)

static inline int in_child(int (*run)(void *), void *arg)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(run(arg));
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What a call ended with: 0, or the errno. */
#define OUTCOME(call)                         \
        ({                                    \
                errno = 0;                    \
                (long)(call) < 0 ? errno : 0; \
        })

/* Root of the initial user namespace, not of some `unshare -r`. */
static inline bool is_host_root(void)
{
        unsigned inside = 1, outside = 1, count = 0;
        FILE *f = fopen("/proc/self/uid_map", "re");

        if (f) {
                if (fscanf(f, "%u %u %u", &inside, &outside, &count) != 3)
                        count = 0;
                (void)fclose(f);
        }
        return geteuid() == 0 && count == 4294967295U;
}

static inline int write_file(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

        if (fd >= 0)
                (void)close(fd);
        return n < 0 ? -1 : 0;
}

/*
 * In a child: a user namespace of its own where this process's ids are what they were, with all capabilities there,
 * and more namespaces. -1 where the host refuses.
 */
static inline int enter_userns(int more_flags)
{
        char map[64];
        unsigned uid = geteuid(), gid = getegid();

        if (unshare(CLONE_NEWUSER | more_flags) < 0)
                return -1;
        (void)write_file("/proc/self/setgroups", "deny");
        (void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
        if (write_file("/proc/self/uid_map", map) < 0)
                return -1;
        (void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
        return write_file("/proc/self/gid_map", map);
}

/* The same for root with every id mapped, as a run of root's has it. */
static inline int enter_userns_of_root(int more_flags)
{
        char path[64], byte = 0;
        int go[2], status;
        pid_t parent = getpid();

        if (pipe2(go, O_CLOEXEC) < 0)
                return -1;
        pid_t helper = fork(); /* stays outside: it may write the maps */
        if (helper == 0) {
                (void)close(go[1]);
                if (read(go[0], &byte, 1) != 1)
                        _exit(1);
                for (int i = 0; i < 2; i++) {
                        (void)snprintf(path, sizeof path, "/proc/%d/%s_map", (int)parent, i ? "gid" : "uid");
                        if (write_file(path, "0 0 4294967295") < 0)
                                _exit(1);
                }
                _exit(0);
        }
        bool entered = helper > 0 && unshare(CLONE_NEWUSER | more_flags) == 0 && write(go[1], &byte, 1) == 1;
        (void)close(go[0]);
        (void)close(go[1]);
        return waitpid(helper, &status, 0) == helper && entered && status == 0 ? 0 : -1;
}

#endif
