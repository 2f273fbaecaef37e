/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define MOUNTINFO_MAX (64u << 20)

void pv_mountinfo_fini(struct pv_mountinfo *m)
{
        free(m->text);
        free(m->v);
        *m = (struct pv_mountinfo){ 0 };
}

/* Undoes the kernel's \ooo of blanks, newlines and backslashes, in place. */
static void unescape(char *s)
{
        char *to = s;
        for (const char *p = s; *p;) {
                if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' &&
                    p[3] <= '7') {
                        *to++ = (char)(((p[1] - '0') << 6) | ((p[2] - '0') << 3) | (p[3] - '0'));
                        p += 4;
                } else {
                        *to++ = *p++;
                }
        }
        *to = '\0';
}

static bool has_option(const char *list, const char *name)
{
        size_t n = strlen(name);
        for (const char *p = list; p; p = strchr(p, ',')) {
                p += *p == ',';
                if (strncmp(p, name, n) == 0 && (p[n] == '\0' || p[n] == ','))
                        return true;
        }
        return false;
}

/* "36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/x rw,errors=continue" */
static int parse_line(char *line, struct pv_mount_entry *out)
{
        char *field[6];
        for (size_t i = 0; i < 6; i++) {
                field[i] = strsep(&line, " ");
                if (!line)
                        return -1;
        }
        char *tail = strncmp(line, "- ", 2) == 0 ? line : strstr(line, " - ");
        if (!tail)
                return -1;
        char *super = strrchr(tail, ' ');
        char *end = NULL;
        errno = 0;
        out->parent = strtoull(field[1], &end, 10);
        if (end == field[1] || *end || errno)
                return -1;
        bool read_only = has_option(field[5], "ro") || (super && has_option(super + 1, "ro"));
        tail = strchr(tail, '-') + 1;
        tail += strspn(tail, " ");
        unescape(field[4]);
        out->point = field[4];
        out->type = strsep(&tail, " ");
        out->read_only = read_only;
        return 0;
}

int pv_mountinfo_parse(char *text, struct pv_mountinfo *out, struct pv_err *err)
{
        struct pv_mountinfo m = { .text = text };
        size_t cap = 0;
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n")) && (*line || rest);) {
                if (m.n == cap)
                        m.v = pv_realloc(m.v, cap = cap ? 2 * cap : 32, sizeof *m.v);
                if (parse_line(line, &m.v[m.n++]) < 0) {
                        pv_mountinfo_fini(&m);
                        return pv_err_set(err, PV_ERR_INPUT, 0, "mount table: a line that is not understood");
                }
        }
        *out = m;
        return 0;
}

int pv_mountinfo_read(struct pv_mountinfo *out, struct pv_err *err)
{
        pv_auto_fd fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open /proc/self/mountinfo");
        char *text;
        if (pv_fd_read_all(fd, MOUNTINFO_MAX, "/proc/self/mountinfo", &text, NULL, err) < 0)
                return -1;
        return pv_mountinfo_parse(text, out, err);
}

bool pv_mountinfo_has_below(const struct pv_mountinfo *m, const char *dir)
{
        for (size_t i = 0; i < m->n; i++)
                if (pv_path_is_within(m->v[i].point, dir) && !pv_streq(m->v[i].point, dir))
                        return true;
        return false;
}

bool pv_mountinfo_has(const struct pv_mountinfo *m, const char *dir)
{
        for (size_t i = 0; i < m->n; i++)
                if (pv_streq(m->v[i].point, dir))
                        return true;
        return false;
}
