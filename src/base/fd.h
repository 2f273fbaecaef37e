/* SPDX-License-Identifier: Apache-2.0 */
/* Owners of descriptors and heap memory: declare initialised, return with a steal. Handlers keep errno. */
#ifndef PV_BASE_FD_H
#define PV_BASE_FD_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include <dirent.h>
#include "base/err.h"

static inline void pv_fd_closep(int *fd)
{
        if (*fd >= 0) {
                int e = errno;
                (void)close(*fd);
                *fd = -1;
                errno = e;
        }
}
#define pv_auto_fd __attribute__((cleanup(pv_fd_closep))) int

static inline int pv_fd_steal(int *fd)
{
        int r = *fd;
        *fd = -1;
        return r;
}

/* Frees what the pointer at p points to and clears that pointer. Copied: p may be the address of any object pointer. */
static inline void pv_freep(void *p)
{
        int e = errno;
        void *memory;
        __builtin_memcpy(&memory, p, sizeof memory);
        free(memory);
        memory = NULL;
        __builtin_memcpy(p, &memory, sizeof memory);
        errno = e;
}
#define pv_auto_free __attribute__((cleanup(pv_freep)))

/* The pointer is the caller's again and *p is NULL. */
#define pv_steal(p)                                \
        ({                                         \
                __typeof__(*(p)) steal_tmp = *(p); \
                *(p) = NULL;                       \
                steal_tmp;                         \
        })

static inline void pv_dir_closep(DIR **d)
{
        if (*d) {
                int e = errno;
                (void)closedir(*d);
                *d = NULL;
                errno = e;
        }
}
#define pv_auto_dir __attribute__((cleanup(pv_dir_closep))) DIR *

/* Kills and reaps a child that is still ours (pid > 0); ECHILD is silence. */
void pv_pid_killp(pid_t *pid);

/* Writes all of buf, over short writes and EINTR. 0, or -1 with PV_ERR_SYS ("write what"). */
int pv_fd_write_all(int fd, const void *buf, size_t len, const char *what, struct pv_err *err);

/*
 * Reads to the end of the file into a new buffer with a NUL behind it (not counted). More than max bytes is
 * PV_ERR_INPUT. *out is the caller's (free()).
 */
int pv_fd_read_all(int fd, size_t max, const char *what, char **out, size_t *len, struct pv_err *err);

/*
 * "/proc/self/fd/N": a name of the open file itself, wherever it lies by now, for calls that take no descriptor or none
 * of O_PATH. Lives as long as the expression that it is in.
 */
struct pv_fd_path {
        char s[32];
};
struct pv_fd_path pv_fd_path(int fd);

/* chmod(2) of an open file, O_PATH too. -1 with errno. */
int pv_fd_chmod(int fd, mode_t mode);

/* Closes all from 3 on but these. -1 with errno. */
int pv_fd_keep_only(const int *keep, size_t n);

/* Clears (on = 0) or sets FD_CLOEXEC. */
int pv_fd_set_cloexec(int fd, int on, struct pv_err *err);

#endif
