/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/rename_helper.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "base/fd.h"
#include "base/syscall.h"
#include "boundary/caps.h"

/* The string at that address, of less than PATH_MAX bytes. Page by page: the next one may not be there. */
static bool read_string(pid_t tid, uint64_t address, char out[PATH_MAX])
{
        size_t len = 0, page = 4096;

        while (len < PATH_MAX) {
                size_t want = page - (address + len) % page;
                struct iovec here = { .iov_base = out + len, .iov_len = want < PATH_MAX - len ? want : PATH_MAX - len };
                struct iovec there = { .iov_base = (void *)(uintptr_t)(address + len), .iov_len = here.iov_len };
                ssize_t n = process_vm_readv(tid, &here, 1, &there, 1, 0);

                if (n <= 0)
                        return false;
                if (memchr(out + len, 0, (size_t)n))
                        return true;
                len += (size_t)n;
        }
        return false;
}

bool pv_rename_read_path(pid_t tid, struct pv_rename_end *end)
{
        size_t len;

        end->slashes = false;
        if (!read_string(tid, end->address, end->path))
                return false;
        for (len = strlen(end->path); len > 0 && end->path[len - 1] == '/'; end->slashes = true)
                end->path[--len] = '\0';
        return len > 0;
}

bool pv_rename_parse(const struct seccomp_notif *n, struct pv_rename_request *out)
{
        const __u64 *a = n->data.args;

        out->tid = (pid_t)n->pid;
        out->flags = 0;
        switch (n->data.nr) {
#ifdef SYS_rename
        case SYS_rename:
                out->old.dirfd = out->new.dirfd = AT_FDCWD;
                out->old.address = a[0];
                out->new.address = a[1];
                return n->pid != 0; /* of a pid namespace that is not ours to see */
#endif
        case SYS_renameat2:
                out->flags = (unsigned)a[4];
                __attribute__((fallthrough));
#ifdef SYS_renameat
        case SYS_renameat:
#endif
                out->old.dirfd = (int)a[0];
                out->old.address = a[1];
                out->new.dirfd = (int)a[2];
                out->new.address = a[3];
                return n->pid != 0;
        default:
                return false;
        }
}

/* "/proc/TID/cwd" or "/proc/TID/fd/N": the caller's own link to its directory. */
static int start_path(char *out, size_t size, pid_t tid, int dirfd)
{
        return dirfd == AT_FDCWD ? snprintf(out, size, "/proc/%d/cwd", (int)tid)
                                 : snprintf(out, size, "/proc/%d/fd/%d", (int)tid, dirfd);
}

bool pv_rename_is_directory(const struct pv_rename_request *r, const struct pv_rename_end *end)
{
        char path[PATH_MAX + 64];
        struct stat st;
        int n = 0;

        if (end->path[0] != '/') {
                n = start_path(path, sizeof path, r->tid, end->dirfd);
                path[n++] = '/';
        }
        (void)snprintf(path + n, sizeof path - (size_t)n, "%s", end->path);
        return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool same_link(pid_t tid, const char *link, unsigned mask)
{
        char path[64];
        struct statx own, its;

        (void)snprintf(path, sizeof path, "/proc/self/%s", link);
        if (statx(AT_FDCWD, path, 0, mask, &own) < 0)
                return false;
        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)tid, link);
        if (statx(AT_FDCWD, path, 0, mask, &its) < 0)
                return false;
        return own.stx_ino == its.stx_ino && own.stx_dev_major == its.stx_dev_major &&
               own.stx_dev_minor == its.stx_dev_minor && own.stx_mnt_id == its.stx_mnt_id;
}

bool pv_rename_is_at_home(pid_t tid)
{
        return same_link(tid, "root", STATX_INO | STATX_MNT_ID) && same_link(tid, "ns/user", STATX_INO) &&
               same_link(tid, "ns/mnt", STATX_INO);
}

int pv_rename_open_start(const struct pv_rename_request *r, const struct pv_rename_end *end)
{
        char path[64] = "/";

        if (end->path[0] != '/')
                (void)start_path(path, sizeof path, r->tid, end->dirfd);
        return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int pv_rename_open_parent(int start, struct pv_rename_end *end, const char **name)
{
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
        char *slash = strrchr(end->path, '/');
        const char *dir = !slash ? "." : slash == end->path ? "/" : end->path;

        *name = slash ? slash + 1 : end->path;
        if (strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) {
                errno = EBUSY;
                return -1;
        }
        if (slash)
                *slash = '\0';
        int fd = pv_sys_openat2(start, *dir ? dir : "/", &how);
        if (slash)
                *slash = '/';
        return fd;
}

/* The numbers behind "Key:" in proc_pid_status(5). */
static const char *field(const char *status, const char *key)
{
        const char *at = strstr(status, key);

        return at ? at + strlen(key) : NULL;
}

bool pv_rename_read_creds(pid_t tid, struct pv_rename_creds *out)
{
        char path[64], status[4096];
        const char *uid, *gid, *groups, *caps;
        char *end;

        (void)snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, status, sizeof status - 1);
        if (n <= 0)
                return false;
        status[n] = '\0';
        uid = field(status, "\nUid:");
        gid = field(status, "\nGid:");
        groups = field(status, "\nGroups:");
        caps = field(status, "\nCapEff:");
        /* Real, effective, saved, file system: the last counts. */
        if (!uid || !gid || !groups || !caps || sscanf(uid, "%*u %*u %*u %u", &out->uid) != 1 ||
            sscanf(gid, "%*u %*u %*u %u", &out->gid) != 1 || sscanf(caps, "%" SCNx64, &out->effective) != 1)
                return false;
        out->n_groups = 0;
        for (const char *p = groups; out->n_groups < sizeof out->groups / sizeof *out->groups; p = end) {
                while (*p == ' ' || *p == '\t')
                        p++;
                if (*p == '\n')
                        return true;
                out->groups[out->n_groups++] = (gid_t)strtoul(p, &end, 10);
                if (end == p)
                        return false;
        }
        return false; /* more than there is room for */
}

bool pv_rename_same_creds(const struct pv_rename_creds *a, const struct pv_rename_creds *b)
{
        return a->uid == b->uid && a->gid == b->gid && a->effective == b->effective && a->n_groups == b->n_groups &&
               memcmp(a->groups, b->groups, a->n_groups * sizeof *a->groups) == 0;
}

bool pv_rename_become(const struct pv_rename_creds *creds)
{
        return setgroups(creds->n_groups, creds->groups) == 0 && setresgid(creds->gid, creds->gid, creds->gid) == 0 &&
               prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && setresuid(creds->uid, creds->uid, creds->uid) == 0 &&
               pv_caps_set(creds->effective) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}
