/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The change list is the walk (scan.h) with each path compared against its preimage (baseline.h). The walk notes what
 * there is on both sides; what both sides have is then looked into (compare.h), many paths at a time, and what turns
 * out to be no change leaves the list.
 */
#include "stage/change.h"

#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/parallel.h"
#include "base/whiteout.h"
#include "stage/baseline.h"
#include "stage/compare.h"
#include "stage/dirs.h"
#include "stage/links.h"
#include "stage/renames.h"
#include "stage/scan.h"

#define COMPARED_AT_A_TIME 128

static const char why_too_long[] = "its path is too long for any program to name";
static const char why_unreadable[] = "the directory cannot be read";

/* Beside an item of the list: what is to be done with it when the walk is over. */
struct look {
        enum { LOOK_DECIDED, LOOK_COMPARE, LOOK_NO_CHANGE } what;
        bool host_is_pre; /* as in struct pv_pair */
        bool landed;
};

struct computing {
        struct pv_stage *s;
        unsigned root;
        struct pv_baseline *base;
        const bool *shared;
        const struct pv_settled *settled;
        size_t n_settled, next_settled;
        const struct pv_settled *within; /* the last one that holds for all below it */
        struct pv_changes *out;
        size_t cap, cap_unsettled;
        struct look *look;         /* one an item of out */
        struct pv_changes *landed; /* gets what is staged still but landed as it is; or NULL */
        size_t cap_landed;
        const struct pv_changes *before; /* what they were a moment ago; or NULL */
        size_t *n_selected;              /* of it: how many of the first i are */
};

void pv_changes_free(struct pv_changes *c)
{
        if (!c)
                return;
        pv_arena_fini(&c->text);
        free(c->unsettled);
        free(c->settled);
        tdestroy(c->compared, free);
        free(c->known);
        free(c->item);
        free(c);
}

/* Copying up keeps a file's first hole only: what was sparse on the host is written out in full when it is applied. */
#define FILLED_LEAST ((uint64_t)1 << 20)
static bool is_filled(const struct pv_facts *host, const struct pv_facts *now)
{
        uint64_t had = host->blocks * 512, has = now->blocks * 512;
        return S_ISREG(host->mode) && S_ISREG(now->mode) && host->size > had + FILLED_LEAST &&
               has > 2 * had + FILLED_LEAST;
}

static unsigned flags_of(const struct pv_scan_entry *e)
{
        unsigned flags = 0;
        if (e->flags & PV_SCAN_OPAQUE && S_ISDIR(e->host.mode))
                flags |= PV_CHANGE_OPAQUE;
        if (e->flags & PV_SCAN_HIDDEN)
                flags |= PV_CHANGE_HIDDEN;
        if (e->flags & PV_SCAN_IMPLIED)
                flags |= PV_CHANGE_IMPLIED;
        if (e->flags & (PV_SCAN_TOO_LONG | PV_SCAN_UNREADABLE))
                flags |= PV_CHANGE_BLOCKED;
        return flags;
}

static void append_to(struct pv_changes *out, size_t *cap, const struct pv_change *item)
{
        if (out->n == *cap) {
                *cap = *cap ? *cap + *cap / 2 : 64;
                out->item = pv_realloc(out->item, *cap, sizeof *out->item);
        }
        out->item[out->n++] = *item;
}

static void append(struct computing *c, const struct pv_change *item, const struct look *look)
{
        size_t had = c->cap;
        append_to(c->out, &c->cap, item);
        if (c->cap != had)
                c->look = pv_realloc(c->look, c->cap, sizeof *c->look);
        c->look[c->out->n - 1] = *look;
}

/* The staged entry says what the host was given already: nothing is lost with it. */
static void note_landed(struct computing *c, const struct pv_change *unchanged)
{
        struct pv_change item = *unchanged;
        if (!c->landed || item.layer_shared || item.flags & PV_CHANGE_BLOCKED)
                return;
        item.path = pv_arena_text(&c->landed->text, item.path, strlen(item.path));
        if (S_ISDIR(item.now.mode))
                item.kind = PV_CHANGE_ADDED; /* as it was when it landed: it hides nothing of the host's own */
        append_to(c->landed, &c->cap_landed, &item);
}

/* Did a person decide on the path? Paths come in the order of the list of those. */
static bool is_settled(struct computing *c, const struct pv_scan_entry *e)
{
        if (c->within) {
                size_t n = strlen(c->within->path);
                if (c->within->root == c->root &&
                    (n == 0 || (strncmp(e->path, c->within->path, n) == 0 && e->path[n] == '/')))
                        return true;
                c->within = NULL;
        }
        for (; c->next_settled < c->n_settled; c->next_settled++) {
                const struct pv_settled *s = &c->settled[c->next_settled];
                int order = s->root != c->root ? (s->root < c->root ? -1 : 1) : pv_path_order(s->path, e->path);
                if (order > 0)
                        return false;
                if (order == 0) {
                        c->within = s->below ? s : NULL;
                        return true;
                }
        }
        return false;
}

/* The host is where the stage was taken from already: nothing had to be decided. */
static bool is_undisputed(const struct pv_scan_entry *e, const struct pv_preimage *pre)
{
        if (pre->doubt != PV_DOUBT_NONE || pv_facts_exist(&pre->host) != pv_facts_exist(&e->host))
                return false;
        if (!pv_facts_exist(&e->host))
                return true;
        return S_ISDIR(e->host.mode) ? pre->host.ino == e->host.ino && pre->host.mode == e->host.mode &&
                                               pre->host.uid == e->host.uid && pre->host.gid == e->host.gid
                                     : pv_facts_same_inode_state(&pre->host, &e->host);
}

/* Puts what the host has now in the place of the preimage, which is kept for an undo. */
static int settle(struct computing *c, const struct pv_scan_entry *e, struct pv_preimage *pre, struct pv_err *err)
{
        struct pv_changes *out = c->out;
        const char *path = pv_arena_text(&out->text, e->path, e->len);
        if (out->n_unsettled == c->cap_unsettled) {
                c->cap_unsettled = c->cap_unsettled ? 2 * c->cap_unsettled : 16;
                out->unsettled = pv_realloc(out->unsettled, c->cap_unsettled, sizeof *out->unsettled);
        }
        struct pv_unsettled *u = &out->unsettled[out->n_unsettled++];
        *u = (struct pv_unsettled){ .root = c->root, .path = path, .pre = *pre };
        if (pre->host.link && pre->host.link != e->host.link)
                u->pre.host.link = pv_arena_text(&out->text, pre->host.link, strlen(pre->host.link));
        *pre = (struct pv_preimage){ .host = e->host, .doubt = PV_DOUBT_NONE };
        if (pv_facts_exist(&e->host) &&
            pv_facts_get_xattrs(e->host_dir, *e->name ? e->name : ".", PV_FACTS_HOST, &pre->host.xattrs) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the attributes of %s", e->path);
        return 0;
}

static void note_known(struct computing *c, const struct pv_scan_entry *e, const struct pv_preimage *pre)
{
        struct pv_changes *out = c->out;
        if (!S_ISDIR(e->now.mode) || !S_ISDIR(e->host.mode) || e->flags & PV_SCAN_TOO_LONG || pre->recorded ||
            pre->doubt != PV_DOUBT_NONE)
                return;
        out->known = pv_realloc(out->known, out->n_known + 1, sizeof *out->known);
        out->known[out->n_known++] = (struct pv_known_dir){ .root = c->root,
                                                            .path = pv_arena_text(&out->text, e->path, e->len),
                                                            .host = pre->host };
}

/* Kind and flags, as far as the walk knows them; what both sides have is compared later. */
static void classify(const struct pv_scan_entry *e, struct pv_change *item, struct look *look)
{
        const struct pv_facts *pre = &item->pre, *now = &item->now;
        if (!pv_facts_exist(now)) {
                item->kind = PV_CHANGE_DELETED;
                look->what = pv_facts_exist(pre) ? LOOK_DECIDED : LOOK_NO_CHANGE;
                return;
        }
        item->kind = PV_CHANGE_ADDED;
        if (!pv_facts_exist(pre))
                return;
        look->what = LOOK_COMPARE;
        look->host_is_pre = pv_facts_same_inode_state(&e->host, pre);
        if ((pre->mode & S_IFMT) != (now->mode & S_IFMT))
                return;
        if (!S_ISDIR(pre->mode) && pre->nlink > 1)
                item->flags |= PV_CHANGE_SPLIT;
        if (is_filled(&e->host, now))
                item->flags |= PV_CHANGE_FILLED;
}

static int cannot_compare(const struct pv_change *item, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "read the attributes of %s", item->path);
}

/* At once, while the directory that it is in lets itself be looked into. */
static int compare_now(struct computing *c, const struct pv_scan_entry *e, struct pv_change *item, struct look *look,
                       struct pv_err *err)
{
        pv_auto_comparing m = { .s = c->s, .known = c->before ? c->before->compared : NULL, .may_open = true };
        const struct pv_pair p = {
                .staged_dir = e->staged_dir, .host_dir = e->host_dir, .name = e->name, .host_is_pre = look->host_is_pre
        };
        int r = pv_compare(&m, &p, item);
        look->what = r > 0 ? LOOK_DECIDED : LOOK_NO_CHANGE;
        return r < 0 ? cannot_compare(item, err) : 0;
}

static int compute_entry(void *ctx, const struct pv_scan_entry *e, struct pv_err *err)
{
        struct computing *c = ctx;
        struct pv_change item = { .root = c->root,
                                  .flags = flags_of(e),
                                  .layer = e->layer,
                                  .layer_shared = c->shared[e->layer],
                                  .now = e->now };
        struct pv_preimage pre = { .host = e->host };
        if (!(e->flags & PV_SCAN_TOO_LONG) && pv_baseline_resolve(c->base, e, &pre, err) < 0)
                return -1;
        if (c->s->beside) /* by what is known, not by what was decided */
                note_known(c, e, &pre);
        if (is_settled(c, e) && !(item.flags & PV_CHANGE_BLOCKED) && !is_undisputed(e, &pre)) {
                if (settle(c, e, &pre, err) < 0)
                        return -1;
                item.flags |= PV_CHANGE_SETTLED;
        }
        if (pre.doubt != PV_DOUBT_NONE) {
                item.flags |= PV_CHANGE_SUSPECT;
                item.why = pv_doubt_text(pre.doubt);
        }
        if (item.flags & PV_CHANGE_BLOCKED)
                item.why = e->flags & PV_SCAN_TOO_LONG ? why_too_long : why_unreadable;
        item.pre = pre.host;
        if (pre.host.link && pre.host.link != e->host.link) /* the record's; it goes with the next one */
                item.pre.link = pv_arena_text(&c->out->text, pre.host.link, strlen(pre.host.link));
        item.path = pv_arena_text(&c->out->text, e->path, e->len);
        struct look look = { .landed = pre.landed };
        classify(e, &item, &look);
        if (look.what == LOOK_COMPARE && e->flags & PV_SCAN_OPENED && compare_now(c, e, &item, &look, err) < 0)
                return -1;
        append(c, &item, &look);
        return 0;
}

/* Of ours; what was not opened for it may well be there. */
static bool is_want_of_means(int error)
{
        return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* As pv_compare(). */
static int compare_item(struct computing *c, struct pv_dirs *dirs, struct pv_comparing *m, size_t i)
{
        struct pv_change *item = &c->out->item[i];
        const char *name = NULL;
        struct pv_pair p = { .host_is_pre = c->look[i].host_is_pre };
        p.staged_dir = pv_dirs_layer(dirs, item->root, item->layer, item->path, &p.name);
        if (p.staged_dir < 0 && is_want_of_means(errno))
                return -1;
        p.host_dir = pv_dirs_target(dirs, item->root, item->path, &name);
        if (p.host_dir < 0 && is_want_of_means(errno))
                return -1;
        int r = pv_compare(m, &p, item);
        if (r >= 0)
                c->look[i].what = r ? LOOK_DECIDED : LOOK_NO_CHANGE;
        return r;
}

/* On any thread. What cannot be told so is left as it is. */
static void compare_range(void *ctx, size_t from, size_t end)
{
        struct computing *c = ctx;
        pv_auto_comparing m = { .s = c->s, .known = c->before ? c->before->compared : NULL };
        pv_auto_dirs dirs;
        pv_dirs_init(&dirs, c->s);
        for (size_t i = from; i < end; i++)
                if (c->look[i].what == LOOK_COMPARE)
                        (void)compare_item(c, &dirs, &m, i);
}

/* What the threads could not tell. */
static int compare_rest(struct computing *c, struct pv_dirs *dirs, struct pv_err *err)
{
        pv_auto_comparing m = { .s = c->s, .known = c->before ? c->before->compared : NULL, .may_open = true };
        for (size_t i = 0; i < c->out->n; i++)
                if (c->look[i].what == LOOK_COMPARE && compare_item(c, dirs, &m, i) < 0)
                        return cannot_compare(&c->out->item[i], err);
        return 0;
}

/* What has no net effect goes, but for names of a file of which another name may turn out to be a change. */
static void drop_unchanged(struct computing *c)
{
        size_t kept = 0;
        for (size_t i = 0; i < c->out->n; i++) {
                struct pv_change *item = &c->out->item[i];
                bool linked = !S_ISDIR(item->now.mode) && item->now.nlink > 1;
                if (c->s->beside && !c->before)
                        pv_compare_note(&c->out->compared, item);
                if (c->look[i].what == LOOK_NO_CHANGE) {
                        if (c->look[i].landed)
                                note_landed(c, item);
                        if (!linked && !(item->flags & PV_CHANGE_BLOCKED))
                                continue;
                        item->flags |= linked ? PV_CHANGE_LINKED : 0; /* settled when all are there */
                }
                c->out->item[kept++] = *item;
        }
        c->out->n = kept;
}

static int compare_all(struct computing *c, struct pv_err *err)
{
        pv_auto_dirs dirs;
        pv_dirs_init(&dirs, c->s);
        pv_parallel_for(c->out->n, COMPARED_AT_A_TIME, compare_range, c);
        if (compare_rest(c, &dirs, err) < 0)
                return -1;
        drop_unchanged(c);
        return 0;
}

/* The index of the first change of before that comes after the path and, with below, is not below it either. */
static size_t after(const struct computing *c, const char *path, size_t len, bool below)
{
        size_t low = 0, high = c->before->n;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                const struct pv_change *x = &c->before->item[mid];
                bool inside = below && x->root == c->root &&
                              (len == 0 || (strncmp(x->path, path, len) == 0 && x->path[len] == '/'));
                bool comes_after = x->root != c->root ? x->root > c->root : pv_path_order(x->path, path) > 0;
                if (comes_after && !inside)
                        high = mid;
                else
                        low = mid + 1;
        }
        return low;
}

/* A directory that is selected and that is one on one side alone takes all that is in it along. */
static bool is_taken_whole(const struct computing *c, const char *path)
{
        const struct pv_change *x = pv_changes_find((struct pv_changes *)(uintptr_t)c->before, c->root, path);
        if (!x || S_ISDIR(x->now.mode) == S_ISDIR(x->pre.mode))
                return false;
        size_t i = (size_t)(x - c->before->item);
        return c->n_selected[i + 1] > c->n_selected[i];
}

/* Is anything selected below the directory, or does it go with one above? */
static bool matters_below(void *ctx, const char *path, size_t len)
{
        const struct computing *c = ctx;
        if (c->n_selected[after(c, path, len, true)] > c->n_selected[after(c, path, len, false)])
                return true;
        pv_auto_free char *dir = pv_strndup(path, len);
        for (char *slash = dir + len; slash; slash = strrchr(dir, '/')) {
                *slash = '\0';
                if (is_taken_whole(c, dir))
                        return true;
        }
        return false;
}

static int compute_root(struct computing *c, struct pv_err *err)
{
        struct pv_scan_visitor v = { .visit = compute_entry, .ctx = c, .text = &c->out->text };
        v.enter = c->before ? matters_below : NULL;
        const struct pv_pathfd view =
                c->s->beside_views ? c->s->beside_views[c->root] : (struct pv_pathfd)PV_PATHFD_INIT;
        /* Who is about to move the host's files notes what they were. */
        unsigned flags = c->s->beside && !c->before ? PV_BASELINE_HASH : 0;
        if (pv_baseline_open(c->s, c->root, view, flags, &c->base, err) < 0)
                return -1;
        int r = pv_scan_root(c->s, c->root, &v, err);
        pv_baseline_close(c->base);
        return r;
}

/* What was found out before of a path that is still what it was. */
static void carry_over(struct pv_changes *changes, const struct pv_changes *before)
{
        for (size_t i = 0; i < changes->n; i++) {
                struct pv_change *x = &changes->item[i];
                const struct pv_change *was = pv_changes_find((struct pv_changes *)(uintptr_t)before, x->root, x->path);
                if (!was)
                        continue;
                if (was->pre.hashed && !x->pre.hashed && pv_facts_same_inode_state(&was->pre, &x->pre)) {
                        x->pre.hashed = true;
                        memcpy(x->pre.sha256, was->pre.sha256, sizeof x->pre.sha256);
                }
                const struct pv_change *from =
                        was->renamed_from ? pv_changes_find(changes, x->root, was->renamed_from) : NULL;
                if (from && from->kind == PV_CHANGE_DELETED && was->kind == x->kind)
                        pv_change_set_renamed(x, from);
        }
}

static void keep_settled(struct pv_changes *c, const struct pv_settled *settled, size_t n)
{
        if (n)
                c->settled = pv_calloc(n, sizeof *c->settled);
        for (; c->n_settled < n; c->n_settled++) {
                const struct pv_settled *x = &settled[c->n_settled];
                c->settled[c->n_settled] = *x;
                c->settled[c->n_settled].path = pv_arena_text(&c->text, x->path, strlen(x->path));
        }
}

static int compute(struct pv_stage *s, const struct pv_settled *settled, size_t n_settled,
                   const struct pv_changes *before, const bool *selected, struct pv_changes *landed,
                   struct pv_changes **out, struct pv_err *err)
{
        pv_auto_free bool *shared = NULL;
        pv_auto_free size_t *n_selected = before ? pv_calloc(before->n + 1, sizeof *n_selected) : NULL;
        pv_auto_changes changes = pv_calloc(1, sizeof *changes);
        struct computing c = {
                .s = s, .out = changes, .settled = settled, .n_settled = n_settled, .before = before, .landed = landed
        };
        if (pv_stage_require_targets(s, err) < 0 || pv_layers_find_shared(s, &shared, err) < 0)
                return -1;
        c.shared = shared;
        for (size_t i = 0; before && i < before->n; i++)
                n_selected[i + 1] = n_selected[i] + selected[i];
        c.n_selected = n_selected;
        int r = 0;
        for (; r == 0 && c.root < s->n_roots; c.root++)
                r = compute_root(&c, err);
        if (r == 0)
                r = compare_all(&c, err);
        free(c.look);
        pv_stage_give_back(s);
        if (r < 0)
                return -1;
        pv_changes_find_links(changes);
        if (before)
                carry_over(changes, before);
        else
                pv_changes_find_renames(s, changes);
        keep_settled(changes, settled, n_settled);
        *out = pv_steal(&changes);
        return 0;
}

int pv_changes_compute(struct pv_stage *s, struct pv_changes **out, struct pv_err *err)
{
        return compute(s, NULL, 0, NULL, NULL, NULL, out, err);
}

int pv_changes_compute_settled(struct pv_stage *s, const struct pv_settled *settled, size_t n_settled,
                               struct pv_changes **out, struct pv_err *err)
{
        return compute(s, settled, n_settled, NULL, NULL, NULL, out, err);
}

int pv_changes_compute_again(struct pv_stage *s, const struct pv_changes *before, const bool *selected,
                             struct pv_changes **out, struct pv_err *err)
{
        return compute(s, before->settled, before->n_settled, before, selected, NULL, out, err);
}

/*
 * A deletion that is told by nothing but the mark of a directory that landed gets a whiteout: the mark goes, so that
 * what the host has there of its own shows.
 */
static int say_deletions(struct pv_stage *s, const struct pv_changes *rest, struct pv_err *err)
{
        struct pv_opened opened = { 0 };
        int r = 0;
        for (size_t i = 0; r == 0 && i < rest->n; i++) {
                const struct pv_change *x = &rest->item[i];
                const char *slash = strrchr(x->path, '/');
                if (x->kind != PV_CHANGE_DELETED || !(x->flags & PV_CHANGE_HIDDEN) || x->layer_shared || !slash)
                        continue;
                pv_auto_free char *dir = pv_strndup(x->path, (size_t)(slash - x->path));
                pv_auto_fd fd = pv_layer_open_dir(s, x->root, x->layer, dir, &opened);
                if (fd < 0 || (pv_whiteout_make(fd, slash + 1) < 0 && errno != EEXIST))
                        r = pv_err_set(err, PV_ERR_SYS, errno, "write the whiteout of %s", x->path);
        }
        pv_layers_close_up(s, &opened);
        return r;
}

int pv_changes_let_go_of_landed(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_changes landed = pv_calloc(1, sizeof *landed);
        pv_auto_changes rest = NULL;
        if (compute(s, NULL, 0, NULL, NULL, landed, &rest, err) < 0)
                return -1;
        pv_auto_free bool *all = pv_calloc(landed->n + 1, sizeof *all);
        for (size_t i = 0; i < landed->n; i++)
                all[i] = true;
        if (landed->n == 0)
                return 0;
        return say_deletions(s, rest, err) < 0 ? -1 : pv_changes_forget(s, landed, all, PV_CHANGES_APPLIED, err);
}

static int find_order(const void *key, const void *item)
{
        const struct pv_change *a = key, *b = item;
        if (a->root != b->root)
                return a->root < b->root ? -1 : 1;
        return pv_path_order(a->path, b->path);
}

struct pv_change *pv_changes_find(struct pv_changes *c, unsigned root, const char *path)
{
        struct pv_change key = { .root = root, .path = (char *)(uintptr_t)path };
        return c->n ? bsearch(&key, c->item, c->n, sizeof *c->item, find_order) : NULL;
}

int pv_change_open_staged(struct pv_stage *s, const struct pv_change *c, int flags)
{
        struct pv_pathfd layer = pv_layer_fd(s, c->root, c->layer);
        return layer.fd < 0 ? -1 : pv_path_openat(layer, c->path, flags | (S_ISLNK(c->now.mode) ? O_NOFOLLOW : 0), 0);
}

int pv_change_open_target(struct pv_stage *s, const struct pv_change *c, int flags)
{
        return pv_path_openat(s->roots[c->root].target, c->path, flags | (S_ISLNK(c->pre.mode) ? O_NOFOLLOW : 0), 0);
}
