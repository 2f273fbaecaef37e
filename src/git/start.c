/* SPDX-License-Identifier: Apache-2.0 */
#include "git/start.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "base/path.h"

#define REFS_FILE  "refs"
#define LOOSE_MAX  4096 /* files */
#define DEPTH_MAX  16
#define PACKED_MAX (64U << 20)
#define TEXT_MAX   (128U << 20)

/* --- noting --- */

struct walk {
        struct pv_str *out;
        size_t files;
        bool whole;
};

static void note_file(struct walk *w, int dir, const char *file, const char *name)
{
        char text[80];
        pv_auto_fd fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0 || ++w->files > LOOSE_MAX) {
                w->whole = false;
                return;
        }
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        if (pv_is_object_name(text) && !strpbrk(name, " \n"))
                pv_str_putf(w->out, "%s %s\n", text, name);
}

static void note_dir(struct walk *w, int parent, const char *dir, const char *name, unsigned depth)
{
        int fd = openat(parent, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_dir d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
                if (fd >= 0)
                        (void)close(fd);
                w->whole &= errno == ENOENT;
                return;
        }
        for (struct dirent *e; w->whole && (e = readdir(d));) {
                pv_auto_free char *below = pv_strf("%s/%s", name, e->d_name);
                if (e->d_name[0] == '.' || pv_str_has_suffix(e->d_name, ".lock"))
                        continue;
                if (e->d_type == DT_REG)
                        note_file(w, dirfd(d), e->d_name, below);
                else if (e->d_type == DT_DIR && depth < DEPTH_MAX)
                        note_dir(w, dirfd(d), e->d_name, below, depth + 1);
                else
                        w->whole = false;
        }
}

/* "name: value" of a `.git` that is a file: the work tree's own git directory, where its HEAD is. */
static int open_git_dir(const char *worktree)
{
        static const char prefix[] = "gitdir: ";
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *text = NULL;
        size_t len;
        pv_auto_fd top = open(worktree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top < 0)
                return -1;
        int fd = openat(top, ".git", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 || pv_file_read_at(top, ".git", 4096, &text, &len, &ignored) < 0 ||
            !pv_str_has_prefix(text, prefix))
                return fd;
        text[strcspn(text, "\n")] = '\0';
        return openat(top, text + strlen(prefix), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* A detached HEAD. */
static void note_head(struct walk *w, const char *worktree)
{
        pv_auto_fd own = open_git_dir(worktree);
        if (own >= 0)
                note_file(w, own, "HEAD", "HEAD");
}

static void note_packed(struct walk *w, int common)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *text = NULL;
        size_t len;
        if (pv_file_read_at(common, "packed-refs", PACKED_MAX, &text, &len, &ignored) == 0)
                pv_str_put_bytes(w->out, text, len);
        else
                w->whole &= ignored.sys == ENOENT;
}

void pv_git_start_note(int dirfd, const char *worktree, const char *git_dir)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_str text = { 0 };
        struct walk w = { .out = &text, .whole = true };
        if (faccessat(dirfd, REFS_FILE, F_OK, 0) == 0)
                return;
        pv_auto_fd common = git_dir ? open(git_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : open_git_dir(worktree);
        if (common < 0)
                return;
        note_head(&w, worktree);
        note_dir(&w, common, "refs/heads", "refs/heads", 0);
        note_dir(&w, common, "refs/tags", "refs/tags", 0);
        note_packed(&w, common);
        if (w.whole)
                (void)pv_file_write_at(dirfd, REFS_FILE, text.s ? text.s : "", text.len, 0600, PV_FILE_REPLACE,
                                       &ignored);
}

void pv_git_start_inherit(int dirfd, int parent_dirfd)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *text = NULL;
        size_t len;
        if (pv_file_read_at(parent_dirfd, REFS_FILE, TEXT_MAX, &text, &len, &ignored) == 0)
                (void)pv_file_write_at(dirfd, REFS_FILE, text, len, 0600, PV_FILE_REPLACE, &ignored);
}

/* --- reading --- */

void pv_git_start_fini(struct pv_git_start *s)
{
        pv_tips_fini(&s->tips);
        pv_tips_fini(&s->learned);
        free(s->text);
        *s = (struct pv_git_start){ 0 };
}

/* Sorted by name, the first line of a name before its others: what was found loose, or was learned later, counts. */
static int by_name_and_place(const void *a, const void *b)
{
        const struct pv_tip *x = a, *y = b;
        int c = strcmp(x->name, y->name);
        return c ? c : (x->name > y->name) - (x->name < y->name);
}

static void keep_first(struct pv_tips *t)
{
        size_t n = 0;
        for (size_t i = 0; i < t->n; i++)
                if (n == 0 || !pv_streq(t->item[n - 1].name, t->item[i].name))
                        t->item[n++] = t->item[i];
        t->n = n;
}

static void add_tip(struct pv_tips *t, const char *id, const char *name)
{
        if ((t->n & (t->n - 1)) == 0) /* full: 0 or a power of two */
                t->item = pv_realloc(t->item, t->n ? 2 * t->n : 1, sizeof *t->item);
        t->item[t->n++] = (struct pv_tip){ id, name };
}

static void sort_tips(struct pv_tips *t)
{
        if (t->n)
                qsort(t->item, t->n, sizeof *t->item, by_name_and_place);
        keep_first(t);
}

void pv_git_start_read(int dirfd, struct pv_git_start *out)
{
        struct pv_err ignored = PV_ERR_INIT;
        size_t len;
        *out = (struct pv_git_start){ 0 };
        if (pv_file_read_at(dirfd, REFS_FILE, TEXT_MAX, &out->text, &len, &ignored) < 0)
                return;
        out->known = true;
        char *rest = out->text;
        for (char *line; (line = strsep(&rest, "\n"));) {
                char *name = strchr(line, ' ');
                if (!name)
                        continue;
                *name++ = '\0';
                bool learned = *line == '+';
                const char *id = *line == '-' ? "" : line + learned;
                if (*id && !pv_is_object_name(id))
                        continue;
                add_tip(&out->tips, id, name);
                if (learned)
                        add_tip(&out->learned, id, name);
        }
        sort_tips(&out->tips);
        sort_tips(&out->learned);
}

int pv_git_start_renew(int dirfd, const struct pv_git_seen *seen, size_t n, struct pv_err *err)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_str text = { 0 };
        pv_auto_free char *old = NULL;
        size_t len;
        if (pv_file_read_at(dirfd, REFS_FILE, TEXT_MAX, &old, &len, &ignored) < 0)
                return 0;
        for (size_t i = 0; i < n; i++)
                pv_str_putf(&text, "%s%s %s\n", *seen[i].id ? "+" : "-", seen[i].id, seen[i].name);
        pv_str_put_bytes(&text, old, len);
        return pv_file_write_at(dirfd, REFS_FILE, text.s, text.len, 0600, PV_FILE_REPLACE, err);
}
