/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "boundary/limits.h"

/* Version 2 needs one directory for both limits, version 1 one a controller. */
enum { DIR_V2, DIR_MEMORY, DIR_PIDS, DIRS };

struct pv_cgroup {
        char *dir[DIRS]; /* absolute; NULL: not used */
        struct pv_cgroup_effect effect;
};

static bool write_value(const char *dir, const char *file, const char *value)
{
        pv_auto_free char *path = pv_path_join(dir, file);
        pv_auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
}

static bool write_number(const char *dir, const char *file, uint64_t n)
{
        char text[24];

        (void)snprintf(text, sizeof text, "%" PRIu64, n);
        return write_value(dir, file, text);
}

static bool has_file(const char *dir, const char *file)
{
        pv_auto_free char *path = pv_path_join(dir, file);

        return access(path, W_OK) == 0;
}

static bool is_mounted(const char *dir, long magic)
{
        struct statfs fs;

        return statfs(dir, &fs) == 0 && (long)fs.f_type == magic;
}

/* The line of /proc/self/cgroup, cgroups(7), whose second field is `controller` ("" for version 2): its path. */
static char *own_group(const char *table, const char *controller)
{
        size_t len = strlen(controller);

        for (const char *line = table; *line;) {
                const char *end = strchrnul(line, '\n'), *field = strchr(line, ':');

                if (field && field < end) {
                        const char *path = strchr(field + 1, ':');
                        if (path && path < end && (size_t)(path - field - 1) == len &&
                            strncmp(field + 1, controller, len) == 0)
                                return pv_strndup(path + 1, (size_t)(end - path - 1));
                }
                line = *end ? end + 1 : end;
        }
        return NULL;
}

/* Groups of runs whose supervisor was killed; a process of the number in the name means that it is in use. */
static void sweep(const char *parent)
{
        pv_auto_dir d = opendir(parent);

        for (struct dirent *e; d && (e = readdir(d));) {
                long pid;

                if (sscanf(e->d_name, "pvisor-%ld", &pid) == 1 && pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
                        (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
}

static char *make_below(const char *parent)
{
        pv_auto_free char *dir = NULL;

        sweep(parent);
        dir = pv_strf("%s/pvisor-%d", pv_streq(parent, "/") ? "" : parent, (int)getpid());
        return mkdir(dir, 0700) == 0 ? pv_steal(&dir) : NULL;
}

static void limit_v2(struct pv_cgroup *g, const struct pv_limits *limits)
{
        const char *dir = g->dir[DIR_V2];

        g->effect.version = 2;
        g->effect.kill = has_file(dir, "cgroup.kill");
        if (limits->memory_bytes && write_number(dir, "memory.max", limits->memory_bytes)) {
                g->effect.memory_bytes = limits->memory_bytes;
                (void)write_value(dir, "memory.swap.max", "0");
        }
        if (limits->max_processes && write_number(dir, "pids.max", limits->max_processes + PV_LIMITS_OWN_PROCESSES))
                g->effect.max_processes = limits->max_processes;
}

/* Below the own group and, since a group with processes cannot have controllers for its children, beside it. */
static bool open_v2(struct pv_cgroup *g, const struct pv_limits *limits, const char *table)
{
        static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
        pv_auto_free char *own = own_group(table, "");

        for (size_t i = 0; own && i < 2; i++) {
                if (!is_mounted(mounts[i], CGROUP2_SUPER_MAGIC))
                        continue;
                pv_auto_free char *parent = pv_strf("%s%s", mounts[i], pv_streq(own, "/") ? "" : own);
                for (int up = 0; up < 2; up++) {
                        g->dir[DIR_V2] = make_below(parent);
                        if (g->dir[DIR_V2]) {
                                limit_v2(g, limits);
                                if (g->effect.memory_bytes || g->effect.max_processes)
                                        return true;
                                (void)rmdir(g->dir[DIR_V2]);
                                free(pv_steal(&g->dir[DIR_V2]));
                        }
                        if (pv_streq(own, "/"))
                                break;
                        *strrchr(parent, '/') = '\0';
                }
        }
        return false;
}

static bool open_v1(struct pv_cgroup *g, const char *table, const char *controller, int which, const char *file,
                    uint64_t value)
{
        pv_auto_free char *own = own_group(table, controller);
        pv_auto_free char *mount = pv_strf("/sys/fs/cgroup/%s", controller);

        if (!own || value == 0 || !is_mounted(mount, CGROUP_SUPER_MAGIC))
                return false;
        pv_auto_free char *parent = pv_strf("%s%s", mount, pv_streq(own, "/") ? "" : own);
        g->dir[which] = make_below(parent);
        if (!g->dir[which])
                return false;
        if (write_number(g->dir[which], file, value)) {
                g->effect.version = 1;
                return true;
        }
        (void)rmdir(g->dir[which]);
        free(pv_steal(&g->dir[which]));
        return false;
}

int pv_cgroup_open(const struct pv_limits *limits, struct pv_cgroup **out, struct pv_err *err)
{
        pv_auto_cgroup g = pv_calloc(1, sizeof *g);
        pv_auto_free char *table = NULL;
        pv_auto_fd fd = -1;
        size_t len;

        *out = NULL;
        if (!limits->memory_bytes && !limits->max_processes)
                return 0;
        fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
        if (fd < 0) /* a kernel without them */
                return 0;
        if (pv_fd_read_all(fd, 65536, "/proc/self/cgroup", &table, &len, err) < 0)
                return -1;
        if (!open_v2(g, limits, table)) {
                if (open_v1(g, table, "memory", DIR_MEMORY, "memory.limit_in_bytes", limits->memory_bytes))
                        g->effect.memory_bytes = limits->memory_bytes;
                if (open_v1(g, table, "pids", DIR_PIDS, "pids.max",
                            limits->max_processes ? limits->max_processes + PV_LIMITS_OWN_PROCESSES : 0))
                        g->effect.max_processes = limits->max_processes;
        }
        if (g->effect.memory_bytes || g->effect.max_processes)
                *out = pv_steal(&g);
        return 0;
}

int pv_cgroup_enter(struct pv_cgroup *g, pid_t pid, struct pv_err *err)
{
        for (int i = 0; i < DIRS; i++)
                if (g->dir[i] && !write_number(g->dir[i], "cgroup.procs", (uint64_t)pid))
                        return pv_err_set(err, PV_ERR_SYS, errno, "move the sandbox into %s", g->dir[i]);
        return 0;
}

struct pv_cgroup_effect pv_cgroup_effect(const struct pv_cgroup *g)
{
        struct pv_cgroup_effect effect = g ? g->effect : (struct pv_cgroup_effect){ 0 };

        for (int i = 0; g && i < DIRS; i++)
                if (g->dir[i] && strlen(g->dir[i]) < sizeof effect.dir)
                        memcpy(effect.dir, g->dir[i], strlen(g->dir[i]) + 1);
        return effect;
}

bool pv_cgroup_kill(struct pv_cgroup *g)
{
        return g && g->dir[DIR_V2] && write_value(g->dir[DIR_V2], "cgroup.kill", "1");
}

const char *pv_cgroup_path(const struct pv_cgroup *g)
{
        return g ? g->dir[DIR_V2] : NULL;
}

/* The last process may have been reaped and not yet left its group: try for a tenth of a second. */
static void remove_group(const char *dir)
{
        const struct timespec pause = { .tv_nsec = 2000000 };

        for (int i = 0; i < 50 && rmdir(dir) < 0 && errno == EBUSY; i++)
                (void)nanosleep(&pause, NULL);
}

void pv_cgroup_free(struct pv_cgroup *g)
{
        if (!g)
                return;
        for (int i = 0; i < DIRS; i++) {
                if (g->dir[i])
                        remove_group(g->dir[i]);
                free(g->dir[i]);
        }
        free(g);
}
