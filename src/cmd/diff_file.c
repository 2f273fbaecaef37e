/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/diff_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include "cmd/quote.h"

void pv_diff_file_fini(struct pv_diff_file *f)
{
        pv_str_fini(&f->note);
        pv_str_fini(&f->patch);
}

/* The content of one side, and why there is none. */
struct content {
        struct pv_patch_side side;
        char *data;          /* owned */
        const char *problem; /* static; NULL: side can be used */
        bool large;
};

static void content_finip(struct content *c)
{
        pv_freep(&c->data);
}
#define auto_content __attribute__((cleanup(content_finip))) struct content

enum which { OLD, NOW };

static const char *kind_of_special(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFIFO:
                return "a pipe";
        case S_IFSOCK:
                return "a socket";
        case S_IFCHR:
        case S_IFBLK:
                return "a device";
        case S_IFDIR:
                return "a directory";
        default:
                return "of an unknown type";
        }
}

static void read_link(int fd, struct content *c)
{
        char target[PATH_MAX];
        ssize_t n = readlinkat(fd, "", target, sizeof target);
        if (n < 0 || (size_t)n == sizeof target) {
                c->problem = "a link that cannot be read";
                return;
        }
        c->data = pv_strndup(target, (size_t)n);
        c->side.len = (size_t)n;
}

static void read_regular(int fd, const char *path, struct content *c)
{
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                c->problem = "not a file any more";
        } else if (st.st_size > PV_DIFF_FILE_MAX) {
                c->large = true;
                c->problem = "too large for a patch";
        } else if (pv_fd_read_all(fd, PV_DIFF_FILE_MAX, path, &c->data, &c->side.len, &err) < 0) {
                c->problem = "cannot be read";
        }
}

/* Opens with O_NONBLOCK: the host's path may be a pipe by now. */
static void load(struct pv_stage *s, const struct pv_change *c, enum which which, struct content *out)
{
        const struct pv_facts *f = which == OLD ? &c->pre : &c->now;
        int flags = S_ISLNK(f->mode) ? O_PATH : O_RDONLY | O_NONBLOCK;
        out->side.path = c->path;
        if (!S_ISREG(f->mode) && !S_ISLNK(f->mode)) {
                out->problem = kind_of_special(f->mode);
                return;
        }
        out->side.mode = S_ISLNK(f->mode) ? 0120000 : f->mode & 0100 ? 0100755 : 0100644;
        pv_auto_fd fd = which == OLD ? pv_change_open_target(s, c, flags) : pv_change_open_staged(s, c, flags);
        if (fd < 0)
                out->problem = errno == ENOENT ? "not there any more" : "cannot be opened";
        else if (S_ISLNK(f->mode))
                read_link(fd, out);
        else
                read_regular(fd, c->path, out);
        out->side.data = out->data;
}

static void put_note(struct pv_diff_file *f, const char *path, const char *what)
{
        pv_str_put(&f->note, "# ");
        pv_quote_name(&f->note, "", path);
        pv_str_putf(&f->note, ": %s\n", what);
}

static int add_patch(struct pv_diff_file *f, const struct content *old, const struct content *now,
                     enum pv_patch_flags flags, struct pv_err *err)
{
        static const struct pv_patch_side nothing = { 0 };
        pv_auto_patch p = { 0 };
        if (pv_patch_make(old ? &old->side : &nothing, now ? &now->side : &nothing, flags, &p, err) < 0)
                return -1;
        f->added += p.added;
        f->deleted += p.deleted;
        f->binary |= p.binary && !p.same_content;
        if (p.text.len)
                pv_str_put_bytes(&f->patch, p.text.s, p.text.len);
        return 0;
}

/* "binary", "too large for a patch": with both sizes. */
static void note_sizes(struct pv_diff_file *f, const char *what)
{
        const struct pv_change *c = f->change;
        pv_auto_str text = { 0 };
        pv_str_putf(&text, "%s, ", what);
        if (f->old_path || c->kind != PV_CHANGE_ADDED)
                pv_str_put_size(&text, f->old_size);
        if ((f->old_path || c->kind != PV_CHANGE_ADDED) && c->kind != PV_CHANGE_DELETED)
                pv_str_put(&text, " -> ");
        if (c->kind != PV_CHANGE_DELETED)
                pv_str_put_size(&text, f->new_size);
        else
                pv_str_put(&text, " deleted");
        if (f->old_path) {
                pv_str_put(&text, ", renamed from ");
                pv_quote_name(&text, "", f->old_path);
        }
        put_note(f, c->path, text.s);
}

/* git knows one permission, the owner's x; owners, other bits and attributes come with an apply only. */
static void note_metadata(struct pv_diff_file *f)
{
        const struct pv_change *c = f->change;
        unsigned old = c->pre.mode & 07777, now = c->now.mode & 07777;
        pv_auto_str text = { 0 };
        if ((c->flags & PV_CHANGE_MODE) && c->pre.mode && ((old ^ now) & ~0111U))
                pv_str_putf(&text, "mode %04o -> %04o", old, now);
        if (c->flags & PV_CHANGE_OWNER)
                pv_str_putf(&text, "%sowner %u:%u -> %u:%u", text.len ? ", " : "", c->pre.uid, c->pre.gid, c->now.uid,
                            c->now.gid);
        if (c->flags & PV_CHANGE_XATTRS)
                pv_str_putf(&text, "%sextended attributes", text.len ? ", " : "");
        if (!text.len)
                return;
        pv_str_put(&text, " (not in a patch)");
        put_note(f, c->path, text.s);
}

static void note_conflict(struct pv_stage *s, const struct pv_changes *all, struct pv_diff_file *f,
                          const struct pv_change *c)
{
        const char *why = NULL;
        pv_auto_str text = { 0 };
        if (pv_change_check_among(s, all, c, &why))
                return;
        pv_str_putf(&text, "conflict: %s", why);
        put_note(f, c->path, text.s);
}

static bool is_git_type(mode_t mode)
{
        return S_ISREG(mode) || S_ISLNK(mode);
}

static int make_pair(struct pv_diff_file *f, const struct content *old, const struct content *now,
                     enum pv_patch_flags flags, struct pv_err *err)
{
        const char *problem = old && old->problem ? old->problem : now && now->problem ? now->problem : NULL;
        if (now && pv_patch_is_refused(now->side.path, now->side.mode))
                problem = "git refuses patches with such a name";
        f->large = (old && old->large) || (now && now->large);
        if (problem) {
                note_sizes(f, problem);
                return 0;
        }
        if (old && now && (old->side.mode & S_IFMT) != (now->side.mode & S_IFMT))
                return add_patch(f, old, NULL, flags, err) < 0 ? -1 : add_patch(f, NULL, now, flags, err);
        if (add_patch(f, old, now, flags, err) < 0)
                return -1;
        if (f->binary && !f->patch.len)
                note_sizes(f, "binary");
        return 0;
}

int pv_diff_file_make(struct pv_stage *s, const struct pv_changes *all, const struct pv_change *c,
                      const struct pv_change *old_half, enum pv_patch_flags flags, struct pv_diff_file *out,
                      struct pv_err *err)
{
        const struct pv_change *before = old_half ? old_half : c;
        auto_content old = { 0 }, now = { 0 };
        struct pv_diff_file f = { .change = c,
                                  .old_path = old_half ? old_half->path : NULL,
                                  .old_size = before->pre.size,
                                  .new_size = c->now.size };
        bool has_old = is_git_type(before->pre.mode), has_now = is_git_type(c->now.mode);
        if (c->flags & PV_CHANGE_BLOCKED)
                put_note(&f, c->path, c->why);
        note_conflict(s, all, &f, before);
        if (has_old)
                load(s, before, OLD, &old);
        if (has_now)
                load(s, c, NOW, &now);
        if (c->now.mode && !has_now && !(S_ISDIR(c->now.mode) && c->kind == PV_CHANGE_METADATA))
                put_note(&f, c->path, kind_of_special(c->now.mode));
        if (!old_half)
                note_metadata(&f);
        if ((has_old || has_now) && make_pair(&f, has_old ? &old : NULL, has_now ? &now : NULL, flags, err) < 0) {
                pv_diff_file_fini(&f);
                return -1;
        }
        *out = f;
        return 0;
}
