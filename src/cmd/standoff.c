/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/standoff.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "cmd/merge_text.h"
#include "git/host.h"
#include "stage/bases.h"
#include "stage/notes.h"

static const char why_kind[] = "only two versions of one file can be put together; this is not two files";
static const char why_job_deleted[] = "the job deleted what you changed";
static const char why_host_deleted[] = "you deleted what the job changed";
static const char why_links[] = "the file has other names in the stage, which would not follow";
static const char why_unreadable[] = "one of the two files cannot be read";
static const char why_large[] = "larger than 16 MiB";
static const char why_busy[] = "is being written to on the host";
static const char why_binary[] = "not text, and both sides changed it";
static const char why_metadata[] = "both sides changed its mode, owner or attributes";
static const char why_no_base[] =
        "what it was when the run began is not known: that is noted of files that git lists or would add";
static const char why_back_again[] =
        "you changed it and back while the job ran: which of the two the job saw is not known";
static const char why_same_lines[] = "both sides changed the same lines";

const char *pv_host_act_name(enum pv_host_act a)
{
        static const char *const name[] = {
                [PV_HOST_MODIFIED] = "modified", [PV_HOST_METADATA] = "metadata", [PV_HOST_ADDED] = "added",
                [PV_HOST_DELETED] = "deleted",   [PV_HOST_TYPE] = "type",         [PV_HOST_UNKNOWN] = "unknown",
        };
        return name[a];
}

const char *pv_merge_verdict_name(enum pv_merge_verdict v)
{
        static const char *const name[] = {
                [PV_MERGE_CLEAN] = "clean",
                [PV_MERGE_SAME] = "same",
                [PV_MERGE_MARKERS] = "markers",
                [PV_MERGE_NONE] = "none",
        };
        return name[v];
}

void pv_standoff_fini(struct pv_standoff *s)
{
        pv_fd_closep(&s->merged.fd);
}

struct side {
        int fd;
        struct pv_facts facts;
        char *bytes;
        size_t len;
        unsigned char sha256[PV_SHA256_SIZE];
};

static void side_fini(struct side *s)
{
        pv_fd_closep(&s->fd);
        pv_freep(&s->bytes);
}
#define auto_side __attribute__((cleanup(side_fini))) struct side

static int none(struct pv_standoff *out, const char *why)
{
        out->verdict = PV_MERGE_NONE;
        out->why = why;
        return 0;
}

/* All of a file, and what it was while it was read: NULL, or why not (static). */
static const char *read_side(struct side *s, enum pv_facts_side which)
{
        struct pv_err ignored = PV_ERR_INIT;
        struct pv_facts after;
        if (s->fd < 0 || pv_facts_get(s->fd, "", NULL, &s->facts) < 0 ||
            pv_facts_get_xattrs(s->fd, "", which, &s->facts.xattrs) < 0)
                return why_unreadable;
        if (s->facts.size > PV_MERGE_FILE_MAX)
                return why_large;
        if (pv_fd_read_all(s->fd, PV_MERGE_FILE_MAX, "a file", &s->bytes, &s->len, &ignored) < 0)
                return ignored.kind == PV_ERR_INPUT ? why_large : why_unreadable;
        if (pv_facts_get(s->fd, "", NULL, &after) < 0 || !pv_facts_same_inode_state(&s->facts, &after) ||
            s->len != after.size)
                return why_busy;
        pv_sha256_bytes(s->bytes, s->len, s->sha256);
        return NULL;
}

static bool is_hash(const struct pv_facts *pre, const struct side *s)
{
        return pre->hashed && memcmp(pre->sha256, s->sha256, PV_SHA256_SIZE) == 0;
}

static bool is_doubtful(const struct pv_change *c)
{
        return c->flags & PV_CHANGE_SUSPECT;
}

/* Was there nothing when the stage was taken, beyond doubt? A file that is there now appeared after the end. */
static bool was_nothing(const struct pv_change *c)
{
        return !is_doubtful(c) && !pv_facts_exist(&c->pre);
}

/* Did the host change the file while the job ran, but is it known what it was when the run began? */
static bool is_noted(const struct pv_standoff_context *x, const struct pv_change *c, struct pv_note *out)
{
        return is_doubtful(c) && c->why == pv_doubt_text(PV_DOUBT_CHANGED) && S_ISREG(c->pre.mode) &&
               pv_notes_find(x->stage, c->root, c->path, &c->pre.ctime, out);
}

/* The blob, unless it is of another size than the file was: then a filter stands between the two. */
static void read_blob(const struct pv_standoff_context *x, const struct pv_change *c, const struct pv_note *note,
                      struct pv_merge_side *base, char **owned)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_git_host h = { 0 };
        pv_auto_git_answer a = { 0 };
        const char *const words[] = { "cat-file", "blob", note->oid, NULL };
        const struct pv_git_call call = { .words = words, .max_out = PV_MERGE_FILE_MAX };
        if (note->size > PV_MERGE_FILE_MAX ||
            pv_git_host_open(pv_stage_root(x->stage, c->root)->target, &h, &ignored) < 0 ||
            pv_git_host_must(&h, &call, &a, &ignored) < 0 || a.len != note->size)
                return;
        *owned = pv_steal(&a.text);
        *base = (struct pv_merge_side){ *owned, note->size };
}

/*
 * What the file was before. NULL bytes: not known, or larger than what is kept. Where a side still is what it was, that
 * side is it.
 */
static int find_base(const struct pv_standoff_context *x, const struct pv_change *c, const struct side *host,
                     const struct side *job, struct pv_merge_side *base, char **owned, struct pv_err *err)
{
        struct pv_note note;
        if (was_nothing(c)) {
                *base = (struct pv_merge_side){ "", 0 };
                return 0;
        }
        if (is_noted(x, c, &note)) {
                if (note.by_git)
                        read_blob(x, c, &note, base, owned);
                else if (pv_bases_find(x->stage, c->root, note.sha256, owned, &base->len, err) < 0)
                        return -1;
                base->bytes = *owned;
                return 0;
        }
        if (is_doubtful(c) || !S_ISREG(c->pre.mode) || !c->pre.hashed)
                return 0;
        if (is_hash(&c->pre, host) || is_hash(&c->pre, job)) {
                const struct side *same = is_hash(&c->pre, host) ? host : job;
                *base = (struct pv_merge_side){ same->bytes, same->len };
                return 0;
        }
        if (pv_bases_find(x->stage, c->root, c->pre.sha256, owned, &base->len, err) < 0)
                return -1;
        base->bytes = *owned;
        return 0;
}

static bool same_metadata(const struct pv_facts *a, const struct pv_facts *b)
{
        return pv_facts_same_metadata(a, b);
}

/* Whose mode, owner and attributes? False: both changed them, each in another way. */
static bool choose_metadata(const struct pv_standoff_context *x, const struct pv_change *c, const struct side *host,
                            const struct side *job, bool *host_metadata)
{
        struct pv_note note;
        struct pv_facts was = c->pre;
        bool known = !is_doubtful(c) && pv_facts_exist(&c->pre);
        if (!known && is_noted(x, c, &note) && host->facts.xattrs == job->facts.xattrs) {
                was = host->facts; /* for the attributes, of which nothing was noted */
                was.mode = note.mode;
                was.uid = note.uid;
                was.gid = note.gid;
                known = true;
        }
        *host_metadata = true;
        if (same_metadata(&host->facts, &job->facts) || (known && same_metadata(&job->facts, &was)))
                return true;
        *host_metadata = false;
        return known && same_metadata(&host->facts, &was);
}

static int hold(const struct side *s, int *out, struct pv_err *err)
{
        pv_auto_fd fd = memfd_create("merged", MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for a merge");
        if (pv_fd_write_all(fd, s->bytes, s->len, "memory for a merge", err) < 0)
                return -1;
        *out = pv_fd_steal(&fd);
        return 0;
}

static bool same_bytes(const char *a, size_t n, const struct side *s)
{
        return a && s->bytes && n == s->len && memcmp(a, s->bytes, n) == 0;
}

static int merge_texts(const struct pv_standoff_context *x, const struct pv_merge_side *base, const struct side *host,
                       const struct side *job, struct pv_standoff *out, struct pv_err *err)
{
        const struct pv_merge_side h = { host->bytes, host->len }, j = { job->bytes, job->len };
        struct pv_merge_text text;
        if (pv_merge_text(base, &h, &j, x->label, &text, err) < 0)
                return -1;
        out->counted = true;
        out->job_added = text.job_added;
        out->job_deleted = text.job_deleted;
        out->host_added = text.host_added;
        out->host_deleted = text.host_deleted;
        out->merged.fd = text.fd;
        /* Against nothing known nothing is clean: what one side took away the other would bring back. */
        out->verdict = text.clean && base->bytes ? PV_MERGE_CLEAN : PV_MERGE_MARKERS;
        out->why = out->verdict == PV_MERGE_CLEAN ? NULL : base->bytes ? why_same_lines : why_no_base;
        return 0;
}

/* Where only one side changed the content, it is that side's; texts are merged; all else is not. */
static int merge_content(const struct pv_standoff_context *x, const struct pv_change *c, const struct side *host,
                         const struct side *job, struct pv_standoff *out, struct pv_err *err)
{
        struct pv_merge_side base = { 0 };
        pv_auto_free char *owned = NULL;
        if (find_base(x, c, host, job, &base, &owned, err) < 0)
                return -1;
        out->base_known = base.bytes != NULL;
        memcpy(out->merged.host_sha256, host->sha256, PV_SHA256_SIZE);
        const struct side *all = same_bytes(host->bytes, host->len, job)                ? host
                                 : base.bytes && same_bytes(base.bytes, base.len, host) ? job
                                 : base.bytes && same_bytes(base.bytes, base.len, job)  ? host
                                                                                        : NULL;
        /* It moved meanwhile, and the job may have seen it there. */
        if (is_doubtful(c) && base.bytes && same_bytes(base.bytes, base.len, host) &&
            !same_bytes(host->bytes, host->len, job))
                return none(out, why_back_again);
        bool text = pv_bases_is_text(host->bytes, host->len) && pv_bases_is_text(job->bytes, job->len);
        if (text && merge_texts(x, &base, host, job, out, err) < 0)
                return -1;
        if (!all)
                return text ? 0 : none(out, base.bytes || c->pre.hashed ? why_binary : why_no_base);
        pv_fd_closep(&out->merged.fd);
        out->verdict = PV_MERGE_CLEAN;
        out->why = NULL;
        if (same_bytes(host->bytes, host->len, job) && same_metadata(&host->facts, &job->facts)) {
                out->verdict = PV_MERGE_SAME;
                return 0;
        }
        return hold(all, &out->merged.fd, err);
}

static int merge_files(const struct pv_standoff_context *x, const struct pv_change *c, struct pv_standoff *out,
                       struct pv_err *err)
{
        auto_side host = { .fd = pv_path_openat(pv_stage_target(x->stage, c->root), c->path,
                                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0) };
        auto_side job = { .fd = pv_change_open_staged(x->stage, c, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY) };
        const char *why = read_side(&host, PV_FACTS_HOST);
        if (!why)
                why = read_side(&job, PV_FACTS_STAGED);
        if (!why && (!S_ISREG(host.facts.mode) || !S_ISREG(job.facts.mode)))
                why = why_kind;
        if (why)
                return none(out, why);
        out->host = host.facts;
        out->job = job.facts;
        if (out->act == PV_HOST_MODIFIED && is_hash(&c->pre, &host))
                out->act = PV_HOST_METADATA;
        if (merge_content(x, c, &host, &job, out, err) < 0)
                return -1;
        if (out->verdict == PV_MERGE_NONE || out->verdict == PV_MERGE_SAME)
                return 0;
        why = c->now.nlink > 1                                                 ? why_links
              : choose_metadata(x, c, &host, &job, &out->merged.host_metadata) ? NULL
                                                                               : why_metadata;
        if (!why)
                return 0;
        pv_fd_closep(&out->merged.fd);
        return none(out, why);
}

static enum pv_host_act act_of(const struct pv_change *c, const struct pv_facts *host)
{
        if (!pv_facts_exist(host))
                return PV_HOST_DELETED;
        if (was_nothing(c) || (is_doubtful(c) && !pv_facts_exist(&c->pre)))
                return PV_HOST_ADDED;
        if (is_doubtful(c))
                return PV_HOST_UNKNOWN;
        if ((host->mode & S_IFMT) != (c->pre.mode & S_IFMT))
                return PV_HOST_TYPE;
        return S_ISDIR(host->mode) ? PV_HOST_METADATA : PV_HOST_MODIFIED;
}

static int get_host(struct pv_stage *s, const struct pv_change *c, struct pv_arena *text, struct pv_facts *out)
{
        pv_auto_pathfd parent = PV_PATHFD_INIT;
        const char *name = NULL;
        struct pv_pathfd target = pv_stage_target(s, c->root);
        *out = (struct pv_facts){ 0 };
        if (!*c->path)
                return pv_facts_get(target.fd, "", text, out);
        if (pv_path_open_parent(target, c->path, &parent, &name) < 0)
                return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
        return pv_facts_get(parent.fd, name, text, out);
}

static bool same_links(const struct pv_facts *host, const struct pv_facts *now)
{
        return S_ISLNK(host->mode) && S_ISLNK(now->mode) && host->link && now->link &&
               pv_streq(host->link, now->link) && host->uid == now->uid && host->gid == now->gid;
}

/*
 * The host's own, made after the stage was taken, in a directory that the job made (anew) and that therefore hides
 * it: the job knows nothing of it and wants nothing of it.
 */
static bool is_unseen(const struct pv_change *c)
{
        return c->kind == PV_CHANGE_DELETED && c->flags & PV_CHANGE_HIDDEN && is_doubtful(c) &&
               c->why == pv_doubt_text(PV_DOUBT_APPEARED);
}

static bool both_made_directory(struct pv_stage *s, const struct pv_change *c, const struct pv_facts *host)
{
        if (c->kind != PV_CHANGE_ADDED || !S_ISDIR(c->now.mode) || !S_ISDIR(host->mode))
                return false;
        pv_auto_fd ours = pv_path_openat(pv_stage_target(s, c->root), c->path, O_RDONLY | O_DIRECTORY, 0);
        pv_auto_fd theirs = pv_change_open_staged(s, c, O_RDONLY | O_DIRECTORY);
        struct pv_facts a = *host, b = c->now;
        return ours >= 0 && theirs >= 0 && pv_facts_get_xattrs(ours, "", PV_FACTS_HOST, &a.xattrs) == 0 &&
               pv_facts_get_xattrs(theirs, "", PV_FACTS_STAGED, &b.xattrs) == 0 && same_metadata(&a, &b);
}

int pv_standoff_look(const struct pv_standoff_context *x, const struct pv_change *c, struct pv_standoff *out,
                     struct pv_err *err)
{
        pv_auto_arena text = { 0 };
        struct pv_facts host;
        *out = (struct pv_standoff){ .verdict = PV_MERGE_NONE, .why = why_unreadable, .merged = { .fd = -1 } };
        if (get_host(x->stage, c, &text, &host) < 0)
                return 0;
        bool links = same_links(&host, &c->now);
        out->host = host;
        out->host.link = NULL;
        out->act = act_of(c, &host);
        bool deleted = !pv_facts_exist(&c->now);
        if (links || (deleted && !pv_facts_exist(&host)) || is_unseen(c) || both_made_directory(x->stage, c, &host)) {
                out->verdict = PV_MERGE_SAME;
                out->why = NULL;
                return 0;
        }
        if (c->flags & PV_CHANGE_BLOCKED)
                return none(out, c->why);
        if (deleted)
                return none(out, why_job_deleted);
        if (!pv_facts_exist(&host))
                return none(out, why_host_deleted);
        if (!S_ISREG(c->now.mode) || !S_ISREG(host.mode))
                return none(out, why_kind);
        if (merge_files(x, c, out, err) < 0)
                return pv_err_wrap(err, "%s", c->path);
        return 0;
}
