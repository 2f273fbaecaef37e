/* SPDX-License-Identifier: Apache-2.0 */
/* The mount table, proc_pid_mountinfo(5). */
#ifndef PV_BASE_MOUNTINFO_H
#define PV_BASE_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct pv_mount_entry {
        uint64_t parent; /* id of the mount that it is mounted on: stx_mnt_id of statx(2) */
        char *point;     /* unescaped, seen from this process's root */
        char *type;      /* of the file system: "ext4" */
        bool read_only;  /* the mount's own flag, or its file system's */
};

struct pv_mountinfo {
        char *text; /* what the entries point into */
        struct pv_mount_entry *v;
        size_t n;
};

void pv_mountinfo_fini(struct pv_mountinfo *m);
#define pv_auto_mountinfo __attribute__((cleanup(pv_mountinfo_fini))) struct pv_mountinfo

/* Reads /proc/self/mountinfo. */
int pv_mountinfo_read(struct pv_mountinfo *out, struct pv_err *err);
/* Takes text (malloc'ed, NUL-terminated). PV_ERR_INPUT on a line that is none. */
int pv_mountinfo_parse(char *text, struct pv_mountinfo *out, struct pv_err *err);

/* Is something mounted strictly below dir? */
bool pv_mountinfo_has_below(const struct pv_mountinfo *m, const char *dir);
/* Is dir itself a mount point? */
bool pv_mountinfo_has(const struct pv_mountinfo *m, const char *dir);

#endif
