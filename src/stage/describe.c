/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/describe.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/copy.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/str.h"

static struct pv_strv lines; /* of the tree that is being described: nftw(3) passes nothing on */
static size_t described_root;

static void describe_xattrs(struct pv_str *line, const char *path)
{
        struct pv_err err;
        pv_auto_xattrs x = { 0 };
        if (pv_xattrs_read(AT_FDCWD, path, PV_COPY_PLAIN, &x, &err) < 0)
                pv_str_put(line, " unreadable attributes");
        for (size_t i = 0; i < x.n; i++) {
                pv_str_putf(line, " %s=", x.item[i].name);
                pv_str_put_safe_n(line, x.item[i].value, x.item[i].size);
        }
}

/* One entry, with everything of it that counts: times of files only when a script set them (they are old then). */
static int describe_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        pv_auto_str line = { 0 };
        char text[PATH_MAX] = "", hash[2 * PV_SHA256_SIZE + 1] = "";
        unsigned char sum[PV_SHA256_SIZE];
        struct pv_err err;
        pv_str_put_safe(&line, path + described_root);
        pv_str_putf(&line, " %o %u:%u", st->st_mode, st->st_uid, st->st_gid);
        if (!S_ISDIR(st->st_mode))
                pv_str_putf(&line, " links=%zu size=%lld", (size_t)st->st_nlink, (long long)st->st_size);
        if (S_ISREG(st->st_mode) && st->st_mtim.tv_sec < 1500000000)
                pv_str_putf(&line, " at %lld", (long long)st->st_mtim.tv_sec);
        if (S_ISLNK(st->st_mode) && readlink(path, text, sizeof text - 1) > 0)
                pv_str_putf(&line, " -> %s", text);
        pv_auto_fd fd = S_ISREG(st->st_mode) ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd >= 0 && pv_sha256_fd(fd, sum, path, &err) == 0)
                pv_hex(sum, sizeof sum, hash);
        pv_str_putf(&line, " %s", hash);
        if (!S_ISLNK(st->st_mode))
                describe_xattrs(&line, path);
        pv_str_putc(&line, '\n');
        pv_strv_take(&lines, pv_str_steal(&line));
        return 0;
}

static int compare_lines(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

char *describe_tree(const char *dir)
{
        pv_auto_str out = { 0 };
        described_root = strlen(dir);
        if (nftw(dir, describe_entry, 32, FTW_PHYS) != 0) {
                perror(dir);
                return NULL;
        }
        qsort(lines.v, lines.n, sizeof *lines.v, compare_lines);
        for (size_t i = 0; i < lines.n; i++)
                pv_str_put(&out, lines.v[i]);
        pv_strv_fini(&lines);
        return pv_str_steal(&out);
}
