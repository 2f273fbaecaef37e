/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/patch.h"

#include <git2.h>
#include <string.h>
#include <strings.h>
#include "cmd/quote.h"

enum { BINARY_LOOK = 8000 };

void pv_patch_fini(struct pv_patch *p)
{
        pv_str_fini(&p->text);
}

static int git_failed(const char *what, struct pv_err *err)
{
        const git_error *e = git_error_last();
        return pv_err_set(err, PV_ERR_SYS, 0, "%s: %s", what, e && e->message ? e->message : "libgit2 failed");
}

int pv_patch_begin(struct pv_err *err)
{
        return git_libgit2_init() < 0 ? git_failed("libgit2", err) : 0;
}

bool pv_patch_is_binary(const char *data, size_t len)
{
        return len && memchr(data, '\0', len < BINARY_LOOK ? len : BINARY_LOOK) != NULL;
}

/* The rest of a component behind ".git" or "git~1" that NTFS would drop; true for what is not plainly ".git". */
static bool is_alias_rest(const char *rest, size_t n, bool short_name)
{
        size_t dropped = strspn(rest, ". ");
        if (dropped > n)
                dropped = n;
        return (dropped == n && (short_name || n > 0)) || (dropped < n && rest[dropped] == ':');
}

bool pv_patch_is_refused(const char *path, unsigned mode)
{
        const char *slash = strrchr(path, '/');
        if (mode == 0120000 && strcasecmp(slash ? slash + 1 : path, ".gitmodules") == 0)
                return true;
        for (const char *p = path; *p;) {
                size_t n = strcspn(p, "/\\");
                if ((n >= 4 && strncasecmp(p, ".git", 4) == 0 && is_alias_rest(p + 4, n - 4, false)) ||
                    (n >= 5 && strncasecmp(p, "git~1", 5) == 0 && is_alias_rest(p + 5, n - 5, true)))
                        return true;
                p += n;
                p += *p != '\0';
        }
        return false;
}

/* --- content --- */

struct hunks {
        struct pv_str text;
        size_t added, deleted, deleted_bytes;
};

static int on_hunk(const git_diff_delta *delta, const git_diff_hunk *hunk, void *payload)
{
        struct hunks *h = payload;
        pv_str_put_bytes(&h->text, hunk->header, hunk->header_len);
        return 0;
}

static int on_line(const git_diff_delta *delta, const git_diff_hunk *hunk, const git_diff_line *line, void *payload)
{
        struct hunks *h = payload;
        if (line->origin == GIT_DIFF_LINE_ADDITION || line->origin == GIT_DIFF_LINE_DELETION ||
            line->origin == GIT_DIFF_LINE_CONTEXT)
                pv_str_putc(&h->text, line->origin);
        h->added += line->origin == GIT_DIFF_LINE_ADDITION;
        if (line->origin == GIT_DIFF_LINE_DELETION) {
                h->deleted++;
                h->deleted_bytes += line->content_len;
        }
        pv_str_put_bytes(&h->text, line->content, line->content_len); /* with the marks of a missing newline */
        return 0;
}

static git_diff_options diff_options(unsigned flags)
{
        git_diff_options o;
        (void)git_diff_options_init(&o, GIT_DIFF_OPTIONS_VERSION);
        o.flags = flags;
        o.max_size = -1; /* the caller's to bound */
        return o;
}

static int make_hunks(const struct pv_patch_side *old, const struct pv_patch_side *now, struct hunks *out,
                      struct pv_err *err)
{
        git_diff_options o = diff_options(GIT_DIFF_FORCE_TEXT);
        if (git_diff_buffers(old->data, old->len, NULL, now->data, now->len, NULL, &o, NULL, NULL, on_hunk, on_line,
                             out) < 0)
                return git_failed("diff", err);
        return 0;
}

/* What libgit2 prints behind its own header. */
static int make_binary(const struct pv_patch_side *old, const struct pv_patch_side *now, struct pv_str *out,
                       struct pv_err *err)
{
        static const char mark[] = "GIT binary patch\n";
        git_diff_options o = diff_options(GIT_DIFF_FORCE_BINARY | GIT_DIFF_SHOW_BINARY);
        git_patch *patch = NULL;
        git_buf buf = GIT_BUF_INIT;
        int r = 0;
        if (git_patch_from_buffers(&patch, old->data, old->len, "x", now->data, now->len, "x", &o) < 0 ||
            git_patch_to_buf(&buf, patch) < 0) {
                r = git_failed("diff", err);
        } else {
                const char *at = memmem(buf.ptr, buf.size, mark, sizeof mark - 1);
                if (at)
                        pv_str_put_bytes(out, at, buf.size - (size_t)(at - buf.ptr));
        }
        git_buf_dispose(&buf);
        git_patch_free(patch);
        return r;
}

/* --- headers --- */

/* A name with a space ends in a tab, so that what follows cannot be taken for a part of it. */
static void put_file_line(struct pv_str *b, const char *mark, const char *prefix, const char *path)
{
        pv_str_put(b, mark);
        if (!path) {
                pv_str_put(b, "/dev/null\n");
                return;
        }
        pv_quote_name(b, prefix, path);
        pv_str_put(b, strchr(path, ' ') ? "\t\n" : "\n");
}

static int put_object_name(struct pv_str *b, const struct pv_patch_side *side, struct pv_err *err)
{
        char hex[GIT_OID_HEXSZ + 1] = "0000000000000000000000000000000000000000";
        git_oid id;
        if (side->path) {
                if (git_odb_hash(&id, side->len ? side->data : "", side->len, GIT_OBJECT_BLOB) < 0)
                        return git_failed("hash", err);
                (void)git_oid_tostr(hex, sizeof hex, &id);
        }
        pv_str_put(b, hex);
        return 0;
}

static int put_header(struct pv_str *b, const struct pv_patch_side *old, const struct pv_patch_side *now,
                      const struct pv_patch *p, struct pv_err *err)
{
        const char *old_path = old->path ? old->path : now->path, *new_path = now->path ? now->path : old->path;
        if (!old_path || !new_path)
                return pv_err_set(err, PV_ERR_INPUT, 0, "a patch from nothing to nothing");
        pv_str_put(b, "diff --git ");
        pv_quote_name(b, "a/", old_path);
        pv_str_putc(b, ' ');
        pv_quote_name(b, "b/", new_path);
        pv_str_putc(b, '\n');
        if (!old->path)
                pv_str_putf(b, "new file mode %o\n", now->mode);
        else if (!now->path)
                pv_str_putf(b, "deleted file mode %o\n", old->mode);
        else if (old->mode != now->mode)
                pv_str_putf(b, "old mode %o\nnew mode %o\n", old->mode, now->mode);
        if (!pv_streq(old_path, new_path)) {
                pv_str_putf(b, "similarity index %u%%\nrename from ", p->similarity);
                pv_quote_name(b, "", old_path);
                pv_str_put(b, "\nrename to ");
                pv_quote_name(b, "", new_path);
                pv_str_putc(b, '\n');
        }
        if (old->path && now->path && p->same_content)
                return 0;
        pv_str_put(b, "index ");
        if (put_object_name(b, old, err) < 0)
                return -1;
        pv_str_put(b, "..");
        if (put_object_name(b, now, err) < 0)
                return -1;
        if (old->path && now->path && old->mode == now->mode)
                pv_str_putf(b, " %o", now->mode);
        pv_str_putc(b, '\n');
        return 0;
}

static unsigned similarity(size_t old_len, size_t new_len, size_t kept)
{
        size_t most = old_len > new_len ? old_len : new_len;
        return most ? (unsigned)(kept * 100 / most) : 100;
}

int pv_patch_make(const struct pv_patch_side *old, const struct pv_patch_side *now, enum pv_patch_flags flags,
                  struct pv_patch *out, struct pv_err *err)
{
        struct hunks h = { 0 };
        pv_auto_str content = { 0 };
        struct pv_patch p = { .same_content = old->path && now->path && old->len == now->len &&
                                              (old->len == 0 || memcmp(old->data, now->data, old->len) == 0),
                              .similarity = 100 };
        p.binary = pv_patch_is_binary(old->data, old->len) || pv_patch_is_binary(now->data, now->len);
        if (p.binary && !p.same_content) {
                p.similarity = 0;
                if (flags & PV_PATCH_BINARY && make_binary(old, now, &content, err) < 0)
                        return -1;
        } else if (!p.same_content) {
                if (make_hunks(old, now, &h, err) < 0) {
                        pv_str_fini(&h.text);
                        return -1;
                }
                p.added = h.added;
                p.deleted = h.deleted;
                p.similarity = similarity(old->len, now->len, old->len - h.deleted_bytes);
                if (h.text.len) {
                        put_file_line(&content, "--- ", "a/", old->path);
                        put_file_line(&content, "+++ ", "b/", now->path);
                        pv_str_put_bytes(&content, h.text.s, h.text.len);
                }
                pv_str_fini(&h.text);
        }
        bool nothing = p.same_content && old->mode == now->mode && pv_streq(old->path, now->path);
        if (!nothing && (!p.binary || p.same_content || content.len)) {
                if (put_header(&p.text, old, now, &p, err) < 0) {
                        pv_patch_fini(&p);
                        return -1;
                }
                pv_str_put_bytes(&p.text, content.len ? content.s : "", content.len);
        }
        *out = p;
        return 0;
}
