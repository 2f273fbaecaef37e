/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renames. Without privileges overlayfs leaves no trace of what was renamed, so it is read from the result: a regular
 * file (not an empty one) that was deleted and one that was added with the same bytes. Only sizes that occur on both
 * sides are hashed, and no more than a budget of bytes. A directory follows its files: when at least
 * half of the files below an added directory came from the same places below one deleted, what is left of the same
 * names is taken for renamed and edited.
 */
#include "stage/renames.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"
#include "stage/preimage.h"
#include "stage/scan.h"

/* Bytes hashed on each side at most, so that a review stays quick. */
#define HASH_BUDGET (256ULL << 20)
/* Items looked at in all to match directories: nests of them could make it a square. */
#define FOLLOW_STEPS ((size_t)1 << 22)

/* A file on one of the two sides. */
struct side {
        unsigned root;
        uint64_t size;
        unsigned char sha256[PV_SHA256_SIZE];
        size_t item;
};

static const char *last_name(const char *path)
{
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

static int by_size(const void *a, const void *b)
{
        const struct side *x = a, *y = b;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        return x->size < y->size ? -1 : x->size > y->size;
}

static int by_content(const void *a, const void *b)
{
        const struct side *x = a, *y = b;
        int r = by_size(a, b);
        if (r == 0)
                r = memcmp(x->sha256, y->sha256, sizeof x->sha256);
        return r ? r : x->item < y->item ? -1 : x->item > y->item;
}

static int compare_content(const struct side *a, const struct side *b)
{
        int r = by_size(a, b);
        return r ? r : memcmp(a->sha256, b->sha256, sizeof a->sha256);
}

static struct side *collect(const struct pv_changes *c, enum pv_change_kind kind, size_t *n)
{
        struct side *out = pv_calloc(c->n, sizeof *out);
        *n = 0;
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_change *x = &c->item[i];
                const struct pv_facts *f = kind == PV_CHANGE_DELETED ? &x->pre : &x->now;
                if (x->kind == kind && !(x->flags & PV_CHANGE_BLOCKED) && S_ISREG(f->mode) && f->size > 0)
                        out[(*n)++] = (struct side){ .root = x->root, .size = f->size, .item = i };
        }
        qsort(out, *n, sizeof *out, by_size);
        return out;
}

/* Drops those whose size none of the others has. Both are sorted by size. */
static void keep_sizes_of(struct side *side, size_t *n, const struct side *other, size_t n_other)
{
        size_t kept = 0, k = 0;
        for (size_t i = 0; i < *n; i++) {
                while (k < n_other && by_size(&other[k], &side[i]) < 0)
                        k++;
                if (k < n_other && by_size(&other[k], &side[i]) == 0)
                        side[kept++] = side[i];
        }
        *n = kept;
}

static bool hash_file(int fd, struct pv_facts *f, const char *path, uint64_t *budget)
{
        struct pv_err ignored = PV_ERR_INIT; /* a file that cannot be read is not shown as renamed */
        if (fd < 0 || f->size > *budget || pv_sha256_fd(fd, f->sha256, path, &ignored) < 0)
                return false;
        *budget -= f->size;
        f->hashed = true;
        return true;
}

/* What the seal left out for its size can be hashed as long as the host's file is still the preimage. */
static bool hash_gone(struct pv_stage *s, struct pv_change *x, uint64_t *budget)
{
        struct pv_facts live;
        pv_auto_arena text = { 0 };
        if (x->pre.hashed)
                return true;
        pv_auto_fd fd = pv_change_open_target(s, x, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        return fd >= 0 && pv_facts_get(fd, "", &text, &live) == 0 && pv_facts_same_inode_state(&live, &x->pre) &&
               hash_file(fd, &x->pre, x->path, budget);
}

static bool hash_added(struct pv_stage *s, struct pv_change *x, uint64_t *budget)
{
        pv_auto_fd fd = pv_change_open_staged(s, x, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        return hash_file(fd, &x->now, x->path, budget);
}

/* Hashes one side, drops what has none, sorts the rest by content. */
static void hash_side(struct pv_stage *s, struct pv_changes *c, struct side *side, size_t *n,
                      bool (*hash)(struct pv_stage *s, struct pv_change *x, uint64_t *budget))
{
        size_t kept = 0;
        uint64_t budget = HASH_BUDGET;
        for (size_t i = 0; i < *n; i++) {
                struct pv_change *x = &c->item[side[i].item];
                if (!hash(s, x, &budget))
                        continue;
                memcpy(side[i].sha256, x->kind == PV_CHANGE_DELETED ? x->pre.sha256 : x->now.sha256,
                       sizeof side[i].sha256);
                side[kept++] = side[i];
        }
        *n = kept;
        qsort(side, kept, sizeof *side, by_content);
}

void pv_change_set_renamed(struct pv_change *to, const struct pv_change *from)
{
        to->renamed_from = from->path;
        if (to->flags & PV_CHANGE_SUSPECT && to->why == pv_doubt_text(PV_DOUBT_GONE)) {
                to->flags &= ~(unsigned)PV_CHANGE_SUSPECT;
                to->why = NULL;
        }
}

/*
 * Pairs the files of one content: those of the same last name first, then in order. There may be many of each (a
 * licence in every directory), so that each is paired at most once and looked at a bounded number of times.
 */
static void pair_run(struct pv_changes *c, const struct side *gone, size_t n_gone, bool *used, const struct side *added,
                     size_t n_added)
{
        enum { LOOK_AHEAD = 16 };
        size_t next = 0;
        for (size_t i = 0; i < n_added; i++) {
                struct pv_change *to = &c->item[added[i].item];
                while (next < n_gone && used[next])
                        next++;
                size_t best = next;
                for (size_t k = next; k < n_gone && k < next + LOOK_AHEAD; k++)
                        if (!used[k] && pv_streq(last_name(c->item[gone[k].item].path), last_name(to->path))) {
                                best = k;
                                break;
                        }
                if (best >= n_gone)
                        return;
                used[best] = true;
                pv_change_set_renamed(to, &c->item[gone[best].item]);
        }
}

static void pair(struct pv_changes *c, const struct side *gone, size_t n_gone, const struct side *added, size_t n_added)
{
        pv_auto_free bool *used = pv_calloc(n_gone, sizeof *used);
        for (size_t i = 0, g = 0; i < n_added && g < n_gone;) {
                int r = compare_content(&gone[g], &added[i]);
                if (r < 0)
                        g++;
                if (r > 0)
                        i++;
                if (r != 0)
                        continue;
                size_t gone_end = g, added_end = i;
                while (gone_end < n_gone && compare_content(&gone[gone_end], &gone[g]) == 0)
                        gone_end++;
                while (added_end < n_added && compare_content(&added[added_end], &added[i]) == 0)
                        added_end++;
                pair_run(c, gone + g, gone_end - g, used + g, added + i, added_end - i);
                g = gone_end;
                i = added_end;
        }
}

/* Items i + 1 .. end - 1 lie below the directory of item i; no more than most of them are looked at. */
static size_t subtree_end(const struct pv_changes *c, size_t i, size_t most)
{
        const char *dir = c->item[i].path;
        size_t len = strlen(dir), end = i + 1;
        while (end < c->n && end - i <= most && c->item[end].root == c->item[i].root &&
               strncmp(c->item[end].path, dir, len) == 0 && c->item[end].path[len] == '/')
                end++;
        return end;
}

/* The deleted directory that most plainly became item i: told by the first file below it that was renamed alike. */
static struct pv_change *find_old_dir(struct pv_changes *c, size_t i, size_t end)
{
        size_t len = strlen(c->item[i].path);
        for (size_t k = i + 1; k < end; k++) {
                const struct pv_change *x = &c->item[k];
                const char *below = x->path + len; /* with its '/' */
                if (!x->renamed_from || !S_ISREG(x->now.mode) || !pv_str_has_suffix(x->renamed_from, below))
                        continue;
                pv_auto_free char *old = pv_strndup(x->renamed_from, strlen(x->renamed_from) - strlen(below));
                struct pv_change *from = pv_changes_find(c, x->root, old);
                if (from && from->kind == PV_CHANGE_DELETED && S_ISDIR(from->pre.mode))
                        return from;
        }
        return NULL;
}

static struct pv_change *old_place(struct pv_changes *c, const struct pv_change *x, size_t len, const char *old)
{
        pv_auto_free char *path = pv_strf("%s%s", old, x->path + len);
        struct pv_change *from = pv_changes_find(c, x->root, path);
        return from && from->kind == PV_CHANGE_DELETED && (from->pre.mode & S_IFMT) == (x->now.mode & S_IFMT) ? from
                                                                                                              : NULL;
}

static void follow_dir(struct pv_changes *c, size_t i, size_t *left)
{
        size_t end = subtree_end(c, i, *left), len = strlen(c->item[i].path), files = 0, alike = 0;
        *left -= end - i - 1;
        struct pv_change *old = find_old_dir(c, i, end);
        if (!old)
                return;
        for (size_t k = i + 1; k < end; k++) {
                const struct pv_change *x = &c->item[k];
                if (!S_ISREG(x->now.mode))
                        continue;
                files++;
                alike += x->renamed_from && pv_str_has_prefix(x->renamed_from, old->path) &&
                         pv_streq(x->renamed_from + strlen(old->path), x->path + len);
        }
        if (2 * alike < files)
                return;
        pv_change_set_renamed(&c->item[i], old);
        for (size_t k = i + 1; k < end; k++) {
                struct pv_change *from = c->item[k].renamed_from ? NULL : old_place(c, &c->item[k], len, old->path);
                if (from)
                        pv_change_set_renamed(&c->item[k], from);
        }
}

void pv_changes_find_renames(struct pv_stage *s, struct pv_changes *c)
{
        size_t n_gone = 0, n_added = 0, left = FOLLOW_STEPS;
        pv_auto_free struct side *gone = collect(c, PV_CHANGE_DELETED, &n_gone);
        pv_auto_free struct side *added = collect(c, PV_CHANGE_ADDED, &n_added);
        keep_sizes_of(gone, &n_gone, added, n_added);
        keep_sizes_of(added, &n_added, gone, n_gone);
        hash_side(s, c, gone, &n_gone, hash_gone);
        hash_side(s, c, added, &n_added, hash_added);
        pair(c, gone, n_gone, added, n_added);
        for (size_t i = 0; i < c->n && n_added > 0; i++)
                if (c->item[i].kind == PV_CHANGE_ADDED && S_ISDIR(c->item[i].now.mode) && !c->item[i].renamed_from)
                        follow_dir(c, i, &left);
}
