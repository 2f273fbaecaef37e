/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which preimages are to be doubted
 *
 * The record says what the host has at a path when the stage is sealed. The command saw what the host had at some
 * moment after T0. If nothing changed in between, both are the same:
 *
 *  - Not a directory: its ctime is before T0. Every write, chmod, link, rename and replacement moves the ctime of the
 *    inode that is then there, and nobody can set it.
 *  - A directory that the layers merge with: its entries are each judged on their own, so its own times say nothing
 *    (somebody saves a file beside). But a directory renamed into place brings files with old ctimes. So the directory
 *    itself must be the one of the view, by inode number while the view is mounted; where the view shows no number of
 *    the lower (another filesystem, a view that is gone), its ctime must be before T0. If its mode or owner changed,
 *    its ctime differs from its mtime, which a change of entries sets together.
 *  - A directory that the command deleted, replaced or made again is in no view: its ctime must be before T0.
 *  - Nothing there, but the layers have something: if the overlay copied it up from a lower (its origin mark, which
 *    the command cannot make or take away) the host has deleted it since, or the command renamed something to there.
 *    In a directory whose ctime is before T0 nothing was deleted. Otherwise it is doubted, until a rename explains it.
 *    What the command put in place of a file by rename, or by deleting it first, has no mark that tells it from a new
 *    file: there the notes of the run's start do (notes.h), for what git lists or would add.
 *  - A doubt about a directory is one about everything below it that the host could have lost.
 *  - When the clock was stepped during the run, all that the host could have lost is doubted; when the machine went
 *    down, all is, for the stage's own files may be incomplete too.
 *
 *  - What we did ourselves while the command ran is no edit of the host's: a directory or a file with the very ctime
 *    that our own publishing left it with is as if that were from before T0 (ours.c).
 *
 * The first preimage of a path stays through runs that go on: what the command changed once is not read from the host
 * again. A damaged record doubts all that is not in its readable part.
 *
 * What was applied or undone while the command runs has a record of its own (beside.c), which comes first. Where that
 * says that a directory was put there or taken away, what the host has in it besides is not hidden by the layers, as
 * far as anybody is concerned: the command never saw it. Of a directory that the layers merge with it says which one
 * it was when it was looked at; another one in its place is doubted with all that is below.
 */
#include "stage/baseline.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fuse_channel.h"
#include "stage/bases.h"
#include "stage/layers.h"
#include "stage/notes.h"
#include "stage/ours.h"

/* Overlayfs may put a layer's number into the highest bits of an inode number. */
#define INO_MASK ((1ULL << 48) - 1)
/* What is hashed at stop, so that a file that was touched or came back later can be told from a changed one. */
#define HASH_FILE_MAX (1ULL << 20)
#define HASH_BUDGET   (64ULL << 20)

/* A file of records that is read along with the walk. */
struct record_file {
        struct pv_preimage_reader *in;
        bool have; /* path and p are the next record */
        const char *path;
        struct pv_preimage p;
        bool used; /* the walk has an entry of that path */
};

struct pv_baseline {
        struct pv_stage *s;
        size_t root;
        struct pv_pathfd view;
        bool asks; /* view is a channel to the program that serves it */
        unsigned flags;
        struct record_file old, landed;
        enum pv_doubt all;
        struct timespec t0;
        uint64_t hash_left;
        struct pv_noted *noted; /* read when it is first asked for */
        struct pv_ours *ours;   /* likewise */
        struct pv_bases *bases; /* with KEEP: texts are kept as they are hashed */
        struct pv_str below;    /* everything below this directory is doubted; s is NULL while there is none */
        enum pv_doubt below_why;
        struct pv_str settled; /* what the host has below and no record has is its own; s is NULL while there is none */
        pv_baseline_passed *passed;
        void *passed_ctx;
};

char *pv_baseline_file(size_t root)
{
        return pv_strf("roots/%zu/" PV_PREIMAGES_FILE, root);
}

char *pv_landed_file(size_t root)
{
        return pv_strf("roots/%zu/landed", root);
}

char *pv_baseline_snapshot(size_t root, unsigned number)
{
        return pv_strf("roots/%zu/" PV_PREIMAGES_FILE "-%04u", root, number);
}

/* A record that cannot be read on doubts what it does not have. */
static void advance(struct pv_baseline *b, struct record_file *f)
{
        struct pv_err why = PV_ERR_INIT;
        int r = f->in ? pv_preimages_next(f->in, &f->path, &f->p, &why) : 0;
        f->have = r > 0;
        if (r < 0)
                b->all = PV_DOUBT_LOST;
}

static bool is_same_target(const struct pv_stage_root *r)
{
        struct stat st;
        return fstat(r->target.fd, &st) == 0 && r->dev == (uint64_t)st.st_dev && r->ino == (uint64_t)st.st_ino;
}

static enum pv_doubt judge_run(const struct pv_baseline *b)
{
        const struct pv_stage *s = b->s;
        const struct pv_stage_layer *top = pv_stage_top(s);
        struct pv_startclock now;
        if (s->state == PV_STATE_SEALED || s->state == PV_STATE_REMOVING)
                return PV_DOUBT_NONE;
        if (!top->ran)
                return s->state == PV_STATE_NEW ? PV_DOUBT_NONE : PV_DOUBT_REBOOT;
        pv_startclock_read(&now);
        switch (pv_startclock_judge(&top->clock, &now, &s->watch)) {
        case PV_CLOCK_STEPPED:
                return PV_DOUBT_CLOCK;
        case PV_CLOCK_REBOOTED:
                return PV_DOUBT_REBOOT;
        case PV_CLOCK_STEADY:
                break;
        }
        return is_same_target(&s->roots[b->root]) ? PV_DOUBT_NONE : PV_DOUBT_DIRECTORY;
}

/* A damaged file doubts all. */
static int open_records(struct pv_baseline *b, const char *file, struct record_file *f, struct pv_err *err)
{
        struct pv_err why = PV_ERR_INIT;
        if (pv_preimages_open(b->s->fd.fd, file, &f->in, &why) == 0)
                return 0;
        if (why.kind != PV_ERR_INPUT) {
                *err = why;
                return pv_err_wrap(err, "stage %s", b->s->dir);
        }
        b->all = PV_DOUBT_LOST;
        return 0;
}

static int open_landed(struct pv_baseline *b, struct pv_err *err)
{
        pv_auto_free char *file = pv_landed_file(b->root);
        if (b->s->state != PV_STATE_RUNNING)
                return 0; /* the seal has put it into the preimages */
        if (open_records(b, file, &b->landed, err) < 0)
                return -1;
        if (b->landed.in && pv_preimages_run(b->landed.in) != b->s->runs) { /* of a run that was sealed */
                pv_preimages_close(b->landed.in);
                b->landed.in = NULL;
        }
        return 0;
}

int pv_baseline_open(struct pv_stage *s, size_t root, struct pv_pathfd view, unsigned flags, struct pv_baseline **out,
                     struct pv_err *err)
{
        pv_auto_free char *file = pv_baseline_file(root);
        struct pv_baseline *b = pv_calloc(1, sizeof *b);
        *b = (struct pv_baseline){ .s = s,
                                   .root = root,
                                   .view = view,
                                   .asks = pv_fuse_channel_is(view.fd),
                                   .flags = flags,
                                   .hash_left = HASH_BUDGET,
                                   .t0 = pv_stage_top(s)->t0[root] };
        b->all = judge_run(b);
        if (open_records(b, file, &b->old, err) < 0 || open_landed(b, err) < 0) {
                pv_baseline_close(b);
                return -1;
        }
        advance(b, &b->old);
        advance(b, &b->landed);
        *out = b;
        return 0;
}

void pv_baseline_on_passed(struct pv_baseline *b, pv_baseline_passed *passed, void *ctx)
{
        b->passed = passed;
        b->passed_ctx = ctx;
}

void pv_baseline_close(struct pv_baseline *b)
{
        if (!b)
                return;
        pv_preimages_close(b->old.in);
        pv_preimages_close(b->landed.in);
        pv_bases_free(b->bases);
        pv_noted_free(b->noted);
        pv_ours_close(b->ours);
        pv_str_fini(&b->below);
        pv_str_fini(&b->settled);
        free(b);
}

static bool is_since_t0(const struct pv_baseline *b, const struct timespec *t)
{
        return pv_clock_compare(t, &b->t0) >= 0;
}

static const struct pv_ours *what_we_did(struct pv_baseline *b)
{
        if (!b->ours)
                b->ours = pv_ours_open(b->s, b->root);
        return b->ours;
}

static bool is_verified(const struct pv_baseline *b, const struct pv_scan_entry *e)
{
        struct stat st;
        uint64_t ino;
        if (e->len == 0)
                return true; /* judge_run() did */
        if (b->asks)
                return pv_fuse_channel_ask(b->view.fd, e->path, &ino) == 0 && ino == e->host.ino;
        return b->view.fd >= 0 && fstatat(b->view.fd, e->path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
               (st.st_ino & INO_MASK) == (e->host.ino & INO_MASK);
}

static void note_dir(struct pv_str *dir, const struct pv_scan_entry *e)
{
        dir->len = 0;
        pv_str_put_bytes(dir, e->path, e->len);
}

static bool is_below(const struct pv_str *dir, const struct pv_scan_entry *e)
{
        if (!dir->s)
                return false;
        return dir->len == 0 ||
               (e->len > dir->len && e->path[dir->len] == '/' && memcmp(e->path, dir->s, dir->len) == 0);
}

static enum pv_doubt doubt_below(struct pv_baseline *b, const struct pv_scan_entry *e, enum pv_doubt why)
{
        note_dir(&b->below, e);
        b->below_why = why;
        return why;
}

static enum pv_doubt judge_directory(struct pv_baseline *b, const struct pv_scan_entry *e)
{
        bool merged = S_ISDIR(e->now.mode) && !(e->flags & PV_SCAN_OPAQUE);
        if (!is_since_t0(b, &e->host.ctime))
                return PV_DOUBT_NONE;
        if (!merged || !is_verified(b, e))
                return doubt_below(b, e, PV_DOUBT_DIRECTORY);
        return pv_clock_compare(&e->host.ctime, &e->host.mtime) == 0 ? PV_DOUBT_NONE : PV_DOUBT_METADATA;
}

/* The host has nothing there. */
static enum pv_doubt judge_missing(struct pv_baseline *b, const struct pv_scan_entry *e)
{
        struct stat dir;
        if (e->host_dir < 0 || e->staged_dir < 0 || fstat(e->host_dir, &dir) < 0 || !is_since_t0(b, &dir.st_ctim) ||
            pv_ours_has_directory(what_we_did(b), dir.st_ino, &dir.st_ctim))
                return PV_DOUBT_NONE;
        if (!b->noted)
                b->noted = pv_noted_open(b->s, b->root);
        if (pv_facts_exist(&e->now) && !S_ISDIR(e->now.mode) && pv_noted_has(b->noted, e->path))
                return PV_DOUBT_DELETED;
        if (!pv_scan_has_origin(e->staged_dir, e->name))
                return PV_DOUBT_NONE;
        if (S_ISDIR(e->now.mode))
                return e->flags & PV_SCAN_OPAQUE ? PV_DOUBT_NONE : doubt_below(b, e, PV_DOUBT_GONE);
        return PV_DOUBT_GONE;
}

/* False for what the command alone made: there is nothing of the host's. */
static bool could_be_lost(const struct pv_scan_entry *e)
{
        return pv_facts_exist(&e->host) || (e->staged_dir >= 0 && pv_scan_has_origin(e->staged_dir, e->name));
}

static enum pv_doubt judge(struct pv_baseline *b, const struct pv_scan_entry *e)
{
        if (e->flags & PV_SCAN_UNREADABLE && !(b->s->state == PV_STATE_SEALED))
                return PV_DOUBT_UNREADABLE;
        if (b->all != PV_DOUBT_NONE)
                return b->all == PV_DOUBT_REBOOT || could_be_lost(e) ? b->all : PV_DOUBT_NONE;
        if (b->s->state == PV_STATE_SEALED) /* the record has all that was there at stop */
                return pv_facts_exist(&e->host) ? PV_DOUBT_APPEARED : PV_DOUBT_NONE;
        if (b->s->state == PV_STATE_NEW)
                return PV_DOUBT_NONE;
        if (is_below(&b->below, e))
                return could_be_lost(e) ? b->below_why : PV_DOUBT_NONE;
        if (!pv_facts_exist(&e->host))
                return judge_missing(b, e);
        if (S_ISDIR(e->host.mode))
                return judge_directory(b, e);
        if (!is_since_t0(b, &e->host.ctime) || pv_ours_has_file(what_we_did(b), e))
                return PV_DOUBT_NONE;
        return PV_DOUBT_CHANGED;
}

static void hash_host(struct pv_baseline *b, const struct pv_scan_entry *e, struct pv_facts *f)
{
        if (!(b->flags & PV_BASELINE_HASH) || !S_ISREG(f->mode) || f->size > HASH_FILE_MAX || f->size > b->hash_left)
                return;
        b->hash_left -= f->size;
        /* Without a hash the file must stay exactly as it is. */
        if (!S_ISREG(e->now.mode) || !(b->flags & PV_BASELINE_KEEP)) {
                (void)pv_facts_hash(e->host_dir, e->name, f);
                return;
        }
        if (!b->bases)
                b->bases = pv_bases_new(b->s, b->root);
        (void)pv_bases_hash_and_keep(b->bases, e->host_dir, e->name, f);
}

/* The records of `landed` before path (NULL: all), of which the walk has no entry. */
static int pass_landed(struct pv_baseline *b, const char *path, struct pv_err *err)
{
        struct record_file *f = &b->landed;
        while (f->have && (!path || pv_path_order(f->path, path) < 0)) {
                if (!f->used && b->passed && b->passed(b->passed_ctx, f->path, &f->p, err) < 0)
                        return -1;
                f->used = false;
                advance(b, f);
        }
        return 0;
}

int pv_baseline_pass_rest(struct pv_baseline *b, struct pv_err *err)
{
        return pass_landed(b, NULL, err);
}

/* Not the one that it was when the record was made. */
static bool is_another_directory(const struct pv_facts *was, const struct pv_scan_entry *e)
{
        return S_ISDIR(was->mode) && S_ISDIR(e->host.mode) && was->ino != 0 && was->ino != e->host.ino;
}

int pv_baseline_resolve(struct pv_baseline *b, const struct pv_scan_entry *e, struct pv_preimage *out,
                        struct pv_err *err)
{
        struct record_file *f = NULL;
        while (b->old.have && pv_path_order(b->old.path, e->path) < 0)
                advance(b, &b->old);
        if (pass_landed(b, e->path, err) < 0)
                return -1;
        if (b->old.have && pv_streq(b->old.path, e->path))
                f = &b->old;
        if (b->landed.have && pv_streq(b->landed.path, e->path))
                f = &b->landed;
        if (f) {
                *out = f->p;
                if (out->landed)
                        note_dir(&b->settled, e);
                if (f == &b->landed && is_another_directory(&out->host, e))
                        out->doubt = doubt_below(b, e, PV_DOUBT_DIRECTORY);
                f->used = true;
                return 0;
        }
        *out = (struct pv_preimage){ .host = e->host };
        if (e->flags & (PV_SCAN_HIDDEN | PV_SCAN_IMPLIED) && is_below(&b->settled, e)) {
                out->host = (struct pv_facts){ 0 };
                return 0;
        }
        out->doubt = judge(b, e);
        if (!pv_facts_exist(&e->host))
                return 0;
        if (pv_facts_get_xattrs(e->host_dir, e->name, PV_FACTS_HOST, &out->host.xattrs) < 0) {
                if (errno != ENOENT && errno != EACCES && errno != EPERM)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read the attributes of %s", e->path);
                out->doubt = PV_DOUBT_UNREADABLE;
        }
        if (out->doubt == PV_DOUBT_NONE)
                hash_host(b, e, &out->host);
        return 0;
}
