/* SPDX-License-Identifier: Apache-2.0 */
/* Which files changed: counts, then a row a path; what would only be noise is one row for many. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "cmd/review.h"

enum {
        LOOKED_INTO_MAX = 500, /* files whose first bytes are read to tell text from binary */
        LARGE_BYTES = 1 << 20,
        NAME_COLUMNS = 46,
        LEAST_NAME = 24,
};

struct listing {
        const struct pv_review *r;
        struct pv_str *out;
        size_t rows, more, looked;
        size_t times_only;
};

static const struct pv_change *item(const struct pv_review *r, size_t i)
{
        return &r->look.changes->item[i];
}

static bool is_below(const struct pv_change *c, const struct pv_change *dir)
{
        size_t n = strlen(dir->path);
        return c->root == dir->root && (n == 0 || (strncmp(c->path, dir->path, n) == 0 && c->path[n] == '/'));
}

/* The first change behind i that does not lie below it. */
static size_t end_of_tree(const struct pv_review *r, size_t i)
{
        size_t k = i + 1;
        while (k < r->look.changes->n && is_below(item(r, k), item(r, i)))
                k++;
        return k;
}

static bool is_dir(const struct pv_change *c)
{
        return S_ISDIR(c->now.mode ? c->now.mode : c->pre.mode);
}

/* --- one row --- */

static bool is_binary(struct listing *l, const struct pv_change *c)
{
        char head[8000];
        if (!S_ISREG(c->now.mode) || c->now.size == 0 || l->looked++ >= LOOKED_INTO_MAX)
                return false;
        pv_auto_fd fd = pv_change_open_staged(l->r->look.stage, c, O_RDONLY | O_NONBLOCK);
        ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head);
        return n > 0 && memchr(head, '\0', (size_t)n) != NULL;
}

static const char *type_name(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFREG:
                return "file";
        case S_IFDIR:
                return "directory";
        case S_IFLNK:
                return "link";
        case S_IFIFO:
                return "pipe";
        case S_IFSOCK:
                return "socket";
        default:
                return "device";
        }
}

static void put_link(struct pv_str *b, const struct pv_change *c)
{
        pv_str_put(b, "link to ");
        pv_put_fitted(b, c->now.link ? c->now.link : "?", 30);
}

static void put_metadata(struct pv_str *b, const struct pv_change *c)
{
        const char *comma = "";
        if (c->flags & PV_CHANGE_MODE) {
                pv_str_putf(b, "mode %04o -> %04o", (unsigned)c->pre.mode & 07777, (unsigned)c->now.mode & 07777);
                comma = ", ";
        }
        if (c->flags & PV_CHANGE_OWNER) {
                pv_str_putf(b, "%sowner %u:%u -> %u:%u", comma, c->pre.uid, c->pre.gid, c->now.uid, c->now.gid);
                comma = ", ";
        }
        if (c->flags & PV_CHANGE_XATTRS)
                pv_str_putf(b, "%sattributes", comma);
        if (c->flags & PV_CHANGE_LINKED)
                pv_str_putf(b, "%sone file with others", comma);
}

static void put_sizes(struct pv_str *b, const struct pv_change *c, bool binary)
{
        if (binary)
                pv_str_put(b, "binary, ");
        if (c->kind == PV_CHANGE_MODIFIED && c->pre.size != c->now.size) {
                pv_str_put_size(b, c->pre.size);
                pv_str_put(b, " -> ");
        }
        pv_str_put_size(b, c->now.size);
}

static void put_detail(struct listing *l, struct pv_str *b, size_t i)
{
        const struct pv_change *c = item(l->r, i);
        if (c->kind == PV_CHANGE_DELETED)
                return;
        if (c->kind == PV_CHANGE_METADATA) {
                put_metadata(b, c);
                return;
        }
        if (c->kind == PV_CHANGE_TYPE)
                pv_str_putf(b, "%s -> ", type_name(c->pre.mode));
        if (S_ISLNK(c->now.mode)) {
                put_link(b, c);
        } else if (!S_ISREG(c->now.mode)) {
                pv_str_put(b, S_ISDIR(c->now.mode) && c->kind == PV_CHANGE_ADDED ? "empty directory"
                                                                                 : type_name(c->now.mode));
        } else {
                bool binary = is_binary(l, c);
                if (binary || c->now.size >= LARGE_BYTES || c->kind != PV_CHANGE_MODIFIED)
                        put_sizes(b, c, binary);
                if (c->kind == PV_CHANGE_MODIFIED && c->flags & PV_CHANGE_MODE)
                        pv_str_putf(b, "%smode %04o -> %04o", b->len ? ", " : "", (unsigned)c->pre.mode & 07777,
                                    (unsigned)c->now.mode & 07777);
        }
}

static void put_row(struct listing *l, char letter, const char *name, const char *detail)
{
        static const struct {
                char letter;
                enum pv_style style;
        } styles[] = { { 'A', PV_STYLE_GREEN }, { 'D', PV_STYLE_RED }, { 'M', PV_STYLE_CYAN }, { 'R', PV_STYLE_CYAN } };
        const struct pv_screen *s = &l->r->screen;
        enum pv_style style = PV_STYLE_YELLOW;
        if (letter != 'D' && !l->r->all_paths && l->rows >= PV_REVIEW_ROWS_MAX) {
                l->more++;
                return;
        }
        l->rows += letter != 'D';
        for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
                if (styles[i].letter == letter)
                        style = styles[i].style;
        pv_str_putf(l->out, "  %s%c%s ", pv_style_on(s, style), letter, pv_style_off(s));
        /* The detail is whole; the name gets what it leaves. */
        size_t wide = s->columns > 90 ? s->columns - 34 : NAME_COLUMNS,
               detail_columns = pv_columns(detail, strlen(detail));
        size_t room = s->columns > detail_columns + 7 + LEAST_NAME ? s->columns - detail_columns - 7 : LEAST_NAME;
        size_t column = room < wide ? room : wide, before = l->out->len;
        if (!*detail)
                column = s->columns - 5;
        pv_put_fitted_safe(l->out, name, column);
        if (*detail) {
                for (size_t n = pv_columns(l->out->s + before, l->out->len - before); n < column; n++)
                        pv_str_putc(l->out, ' ');
                pv_str_putf(l->out, "  %s%s%s", pv_style_on(s, PV_STYLE_DIM), detail, pv_style_off(s));
        }
        pv_str_putc(l->out, '\n');
}

static char *safe_name(const struct pv_review *r, size_t i)
{
        pv_auto_str name = { 0 };
        pv_auto_free char *path = pv_review_path(r, i);
        pv_str_put_path(&name, path);
        if (is_dir(item(r, i)) && *path)
                pv_str_putc(&name, '/');
        return pv_str_steal(&name);
}

/* --- rows for many --- */

/* Files and bytes below a directory; false when something in it deserves a row of its own. */
static bool count_new_tree(const struct pv_review *r, size_t i, size_t end, size_t *files, uint64_t *bytes)
{
        *files = 0;
        *bytes = 0;
        for (size_t k = i + 1; k < end; k++) {
                const struct pv_change *c = item(r, k);
                if (c->kind != PV_CHANGE_ADDED || r->renames.old[k] != PV_NO_CHANGE ||
                    r->look.verdicts.item[k].place == PV_PLACE_GIT)
                        return false;
                *files += !S_ISDIR(c->now.mode);
                *bytes += S_ISREG(c->now.mode) ? c->now.size : 0;
        }
        return true;
}

static void put_count(struct pv_str *b, size_t n, const char *unit)
{
        pv_str_putf(b, "%zu %s%s", n, unit, n == 1 ? "" : "s");
}

static size_t put_added_dir(struct listing *l, size_t i)
{
        size_t end = end_of_tree(l->r, i), files = 0;
        uint64_t bytes = 0;
        pv_auto_free char *name = safe_name(l->r, i);
        pv_auto_str detail = { 0 };
        if (end == i + 1) {
                put_row(l, 'A', name, "empty directory");
                return end;
        }
        if (l->r->all_paths || !count_new_tree(l->r, i, end, &files, &bytes) || files <= PV_REVIEW_FOLD_FROM)
                return i + 1;
        put_count(&detail, files, "file");
        pv_str_put(&detail, ", ");
        pv_str_put_size(&detail, bytes);
        put_row(l, 'A', name, detail.s);
        return end;
}

/* A deleted directory is one row with the number of files that go with it. */
static size_t put_deleted_dir(struct listing *l, size_t i)
{
        size_t end = end_of_tree(l->r, i), files = 0;
        pv_auto_free char *name = safe_name(l->r, i);
        pv_auto_str detail = { 0 };
        for (size_t k = i + 1; k < end; k++)
                files += !is_dir(item(l->r, k)) && item(l->r, k)->kind == PV_CHANGE_DELETED &&
                         l->r->renames.now[k] == PV_NO_CHANGE;
        if (files == 0 && end > i + 1)
                return end; /* all that was in it was renamed */
        put_count(&detail, files, "file");
        put_row(l, 'D', name, files ? detail.s : "empty directory");
        return end;
}

/* The rename of a directory stands for the renames in it. */
static bool goes_with_directory(const struct pv_review *r, size_t i)
{
        size_t old = r->renames.old[i];
        const char *a = item(r, i)->path, *b = item(r, old)->path;
        const char *a_slash = strrchr(a, '/'), *b_slash = strrchr(b, '/');
        if (!a_slash || !b_slash || !pv_streq(a_slash, b_slash))
                return false;
        pv_auto_free char *parent = pv_strndup(a, (size_t)(a_slash - a));
        const struct pv_change *dir = pv_changes_find(r->look.changes, item(r, i)->root, parent);
        size_t k = dir ? (size_t)(dir - r->look.changes->item) : 0;
        return dir && r->renames.old[k] != PV_NO_CHANGE &&
               strlen(item(r, r->renames.old[k])->path) == (size_t)(b_slash - b) &&
               strncmp(item(r, r->renames.old[k])->path, b, (size_t)(b_slash - b)) == 0;
}

static void put_renamed(struct listing *l, size_t i)
{
        size_t end = end_of_tree(l->r, i), files = 0;
        if (goes_with_directory(l->r, i))
                return;
        pv_auto_free char *old = safe_name(l->r, l->r->renames.old[i]), *now = safe_name(l->r, i);
        pv_auto_free char *both = pv_strf("%s -> %s", old, now);
        pv_auto_str detail = { 0 };
        for (size_t k = i + 1; k < end; k++)
                files += !is_dir(item(l->r, k)) && l->r->renames.old[k] != PV_NO_CHANGE;
        if (is_dir(item(l->r, i)))
                put_count(&detail, files, "file");
        put_row(l, 'R', both, detail.len ? detail.s : "");
}

/* The row or rows of change i; the index to go on with. */
static size_t put_change(struct listing *l, size_t i)
{
        static const char letters[] = { [PV_CHANGE_ADDED] = 'A',
                                        [PV_CHANGE_MODIFIED] = 'M',
                                        [PV_CHANGE_DELETED] = 'D',
                                        [PV_CHANGE_TYPE] = 'T',
                                        [PV_CHANGE_METADATA] = 'm' };
        const struct pv_review *r = l->r;
        const struct pv_change *c = item(r, i);
        const struct pv_verdict *v = &r->look.verdicts.item[i];
        if (v->place == PV_PLACE_GIT || v->ignored || r->renames.now[i] != PV_NO_CHANGE)
                return i + 1;
        if (r->renames.old[i] != PV_NO_CHANGE) {
                put_renamed(l, i);
                return i + 1;
        }
        if (is_dir(c) && c->kind == PV_CHANGE_ADDED)
                return put_added_dir(l, i);
        if (is_dir(c) && c->kind == PV_CHANGE_DELETED)
                return put_deleted_dir(l, i);
        if (r->look.verdicts.change[i].times_only && !(c->flags & PV_CHANGE_LINKED)) {
                l->times_only++;
                return i + 1;
        }
        pv_auto_free char *name = safe_name(r, i);
        pv_auto_str detail = { 0 };
        put_detail(l, &detail, i);
        put_row(l, letters[c->kind], name, detail.len ? detail.s : "");
        return i + 1;
}

/* Deletions in a fold are rows of their own while they are few; their number is told in any case. */
static void put_fold(struct listing *l, const struct pv_fold *f)
{
        const struct pv_verdicts *v = &l->r->look.verdicts;
        const struct pv_screen *s = &l->r->screen;
        pv_auto_free char *path = pv_strndup(f->path, f->len);
        for (size_t i = 0; i < v->n && f->n_deleted <= PV_REVIEW_FOLD_FROM && f->n_deleted; i++) {
                const struct pv_path_change *c = &v->change[i];
                if (!v->item[i].ignored || c->kind != PV_PATH_DELETED || c->root != f->root ||
                    strncmp(c->path, f->path, f->len) != 0 || (c->path[f->len] && c->path[f->len] != '/'))
                        continue;
                pv_auto_free char *name = safe_name(l->r, i);
                put_row(l, 'D', name, "ignored by git");
        }
        size_t n = f->n - (f->n_deleted < f->n ? f->n_deleted : f->n);
        if (n == 0 && f->n_deleted <= PV_REVIEW_FOLD_FROM)
                return;
        pv_str_putf(l->out, "  %si ", pv_style_on(s, PV_STYLE_DIM));
        size_t before = l->out->len;
        pv_put_fitted(l->out, path, NAME_COLUMNS);
        for (size_t k = pv_columns(l->out->s + before, l->out->len - before); k < NAME_COLUMNS; k++)
                pv_str_putc(l->out, ' ');
        pv_str_put(l->out, "  ignored: ");
        put_count(l->out, n, "file");
        pv_str_put(l->out, ", ");
        pv_str_put_size(l->out, f->size);
        if (f->n_deleted > PV_REVIEW_FOLD_FROM)
                pv_str_putf(l->out, "%s, %s%zu deleted%s", pv_style_off(s), pv_style_on(s, PV_STYLE_RED), f->n_deleted,
                            pv_style_off(s));
        pv_str_putf(l->out, "%s\n", pv_style_off(s));
}

static void put_folds(struct listing *l)
{
        const struct pv_verdicts *v = &l->r->look.verdicts;
        pv_auto_free struct pv_fold *fold = NULL;
        size_t n = 0;
        pv_fold_ignored(v->change, v->item, v->n, &fold, &n);
        for (size_t i = 0; i < n && (i < PV_REVIEW_FOLD_FROM || l->r->all_paths); i++)
                put_fold(l, &fold[i]);
        if (n > PV_REVIEW_FOLD_FROM && !l->r->all_paths)
                pv_str_putf(l->out, "  ... and ignored files in %zu more places (--paths)\n", n - PV_REVIEW_FOLD_FROM);
}

/* --- counts --- */

struct counts {
        size_t modified, added, deleted, renamed, other, blocked, directories;
};

static struct counts count(const struct pv_review *r)
{
        struct counts n = { 0 };
        for (size_t i = 0; i < r->look.changes->n; i++) {
                const struct pv_change *c = item(r, i);
                const struct pv_verdict *v = &r->look.verdicts.item[i];
                if (v->place == PV_PLACE_GIT || v->ignored || r->renames.now[i] != PV_NO_CHANGE)
                        continue;
                if (c->flags & PV_CHANGE_BLOCKED)
                        n.blocked++;
                else if (is_dir(c) && c->kind != PV_CHANGE_METADATA && c->kind != PV_CHANGE_TYPE)
                        n.directories++;
                else if (r->renames.old[i] != PV_NO_CHANGE)
                        n.renamed++;
                else if (c->kind == PV_CHANGE_MODIFIED)
                        n.modified++;
                else if (c->kind == PV_CHANGE_ADDED)
                        n.added++;
                else if (c->kind == PV_CHANGE_DELETED)
                        n.deleted++;
                else
                        n.other++;
        }
        return n;
}

static void put_one_count(struct pv_str *b, size_t n, const char *what)
{
        if (n)
                pv_str_putf(b, "%s%zu %s", b->len ? ", " : "", n, what);
}

void pv_review_put_changes(const struct pv_review *r, struct pv_str *out)
{
        struct counts n = count(r);
        pv_auto_str title = { 0 }, rows = { 0 };
        struct listing l = { .r = r, .out = &rows };
        for (size_t i = 0; i < r->look.changes->n;)
                i = put_change(&l, i);
        size_t listed = rows.len;
        put_folds(&l);
        put_one_count(&title, n.modified, "modified");
        put_one_count(&title, n.added, "added");
        put_one_count(&title, n.deleted, "deleted");
        put_one_count(&title, n.renamed, "renamed");
        put_one_count(&title, n.other, "with another type or mode");
        put_one_count(&title, n.blocked, "that cannot be looked into");
        if (title.len == 0)
                pv_str_put(&title, rows.len > listed ? "only ignored files"
                                   : n.directories   ? "directories alone"
                                                     : "no file of the working tree changed");
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Files", title.s);
        if (rows.len)
                pv_str_put_bytes(out, rows.s, rows.len);
        if (l.more)
                pv_str_putf(out, "  ... and %zu more (--paths lists them)\n", l.more);
        if (l.times_only) {
                pv_str_put(out, "  ");
                put_count(out, l.times_only, "file");
                pv_str_put(out, " with another time only\n");
        }
        if (!r->look.verdicts.ignore_known && r->look.verdicts.no_git[0]) {
                pv_str_put(out, "  (what git ignores is not known: ");
                pv_str_put_safe(out, r->look.verdicts.no_git);
                pv_str_put(out, ")\n");
        }
}
