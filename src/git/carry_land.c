/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References and index. The index is locked as git does it, by the file index.lock, from before its entries are looked
 * at until they are set; so no git command of the host can change index, or switch branches, between. The lock is only
 * a mark: the new index is made beside it, under a name of its own.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/path.h"
#include "git/carry.h"
#include "git/carry_names.h"

#define LOCK_NAME  "index.lock"
#define INDEX_NAME "index"
#define OUR_INDEX  "index.pvisor"
#define LOCK_MARK  "pVisor: apply --commits of "
#define LOCK_WAIT  2000 /* ms */
#define INDEX_MAX  (2U << 30)
#define TRIES      5

static int open_git_dir(const struct pv_carry *c, struct pv_err *err)
{
        int fd = open(c->host.git_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "%s", c->host.git_dir) : fd;
}

/* --- the lock --- */

static bool is_our_lock(int dir, const char *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *text = NULL, *mark = pv_strf(LOCK_MARK "%s\n", job);
        size_t len;
        return pv_file_read_at(dir, LOCK_NAME, 256, &text, &len, &ignored) == 0 && pv_streq(text, mark);
}

/*
 * A new file that appears whole, under its name alone, so that a crash leaves nothing that nobody would know.
 * PV_ERR_SYS with EEXIST: there is one already.
 */
static int link_file(int dir, const char *name, const void *bytes, size_t len, mode_t mode, struct pv_err *err)
{
        pv_auto_fd fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
        if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) /* a filesystem without: it is short */
                fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        else if (fd >= 0 && pv_fd_write_all(fd, bytes, len, name, err) == 0) {
                pv_auto_free char *self = pv_strf("/proc/self/fd/%d", fd);
                return linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) < 0
                               ? pv_err_set(err, PV_ERR_SYS, errno, "%s", name)
                               : 0;
        }
        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "%s", name) : pv_fd_write_all(fd, bytes, len, name, err);
}

/* 1: it is there, of somebody else's. */
static int link_lock(int dir, const char *job, struct pv_err *err)
{
        pv_auto_free char *text = pv_strf(LOCK_MARK "%s\n", job);
        if (link_file(dir, LOCK_NAME, text, strlen(text), 0600, err) == 0)
                return 0;
        return err->sys == EEXIST ? 1 : -1;
}

int pv_carry_lock(struct pv_carry *c, const char *job, struct pv_err *err)
{
        pv_auto_fd dir = open_git_dir(c, err);
        uint64_t deadline = pv_clock_monotonic_ms() + LOCK_WAIT;
        int r = 1;
        if (dir < 0)
                return -1;
        while (!is_our_lock(dir, job) && (r = link_lock(dir, job, err)) == 1 && pv_clock_monotonic_ms() < deadline)
                (void)usleep(20 * 1000);
        if (r < 0)
                return pv_err_wrap(err, "%s", c->host.git_dir);
        c->locked = is_our_lock(dir, job);
        if (c->locked) {
                pv_err_clear(err);
                return 0;
        }
        (void)pv_err_set(err, PV_ERR_BUSY, 0, "%s/%s is there: git is at work in %s", c->host.git_dir, LOCK_NAME,
                         c->worktree);
        return pv_err_hint(err, "wait until it is done; if none runs, remove that file");
}

void pv_carry_unlock(struct pv_carry *c, const char *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_fd dir = open_git_dir(c, &ignored);
        c->locked = false;
        if (dir < 0 || !is_our_lock(dir, job))
                return;
        (void)unlinkat(dir, OUR_INDEX, 0);
        (void)unlinkat(dir, LOCK_NAME, 0);
}

/* --- the index --- */

static struct pv_carry_path *find_path(struct pv_carry *c, const char *path)
{
        size_t low = 0, high = c->n_changed;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                int order = strcmp(path, c->changed[mid].path);
                if (order == 0)
                        return &c->changed[mid];
                if (order < 0)
                        high = mid;
                else
                        low = mid + 1;
        }
        return NULL;
}

/* Of git ls-files -v. */
static unsigned marks_of(char tag)
{
        return (tag >= 'a' && tag <= 'z' ? PV_CARRY_ASSUMED : 0) | (tag == 'S' || tag == 's' ? PV_CARRY_SKIPPED : 0);
}

/* "tag mode id stage TAB path"; false: an entry of a merge, or one that cannot be read. */
static bool read_entry(char *record, struct pv_carry *c, struct pv_carry_path **out)
{
        char tag, mode[8], id[66], *tab = strchr(record, '\t');
        unsigned stage;
        if (!tab || sscanf(record, "%c %7s %65s %u", &tag, mode, id, &stage) != 4 || strlen(mode) != 6 ||
            !pv_is_object_name(id))
                return false;
        *out = find_path(c, tab + 1);
        if (!*out)
                return true;
        memcpy((*out)->now_mode, mode, sizeof(*out)->now_mode);
        memcpy((*out)->now_id, id, strlen(id) + 1);
        (*out)->now_marks = marks_of(tag);
        return stage == 0;
}

/* The index file as it is; st_ino 0: there is none, or it cannot be told. */
static struct stat look_at_index(const struct pv_carry *c)
{
        pv_auto_free char *path = pv_path_join(c->host.git_dir, INDEX_NAME);
        struct stat st;
        return lstat(path, &st) == 0 ? st : (struct stat){ 0 };
}

/* git replaces the file, and while we hold the lock it does not; who else writes to it moves its times. */
static bool is_same_index(const struct stat *a, const struct stat *b)
{
        return a->st_ino && a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
               a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
               a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Fills now_mode and now_id from the index. */
static int read_index(struct pv_carry *c, pv_carry_refuse *refuse, void *ctx, struct pv_err *err)
{
        static const char *const words[] = { "ls-files", "-s", "-v", "-z", "--full-name", NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        const struct stat seen = look_at_index(c);
        for (size_t i = 0; i < c->n_changed; i++) {
                memcpy(c->changed[i].now_mode, "0", 2);
                c->changed[i].now_id[0] = '\0';
                c->changed[i].now_marks = 0;
        }
        if (pv_git_host_must(&c->host, &call, &a, err) < 0)
                return -1;
        for (char *p = a.text, *end = a.text + a.len; p < end; p += strlen(p) + 1) {
                struct pv_carry_path *found = NULL;
                char *tab = strchr(p, '\t');
                if (!read_entry(p, c, &found) && refuse)
                        refuse(ctx, c, tab ? tab + 1 : "?", "is in the middle of a merge here");
        }
        c->seen = seen;
        return 0;
}

/* The same under the lock under which it was read before: most of the time it need not be read again. */
static int read_index_again(struct pv_carry *c, struct pv_err *err)
{
        const struct stat now = look_at_index(c);
        return c->locked && is_same_index(&now, &c->seen) ? 0 : read_index(c, NULL, NULL, err);
}

static bool is_entry(const struct pv_carry_path *p, const char *mode, const char *id)
{
        return pv_streq(p->now_mode, mode) && (pv_streq(mode, "0") || pv_streq(p->now_id, id));
}

int pv_carry_check_index(struct pv_carry *c, bool as_it_was, pv_carry_refuse *refuse, void *ctx, struct pv_err *err)
{
        if (read_index(c, refuse, ctx, err) < 0)
                return -1;
        for (size_t i = 0; i < c->n_changed; i++) {
                struct pv_carry_path *p = &c->changed[i];
                memcpy(p->was_mode, p->now_mode, sizeof p->was_mode);
                memcpy(p->was_id, p->now_id, sizeof p->was_id);
                p->was_marks = p->now_marks;
                p->stays = is_entry(p, p->new_mode, p->new_id);
                if (!p->stays && !is_entry(p, p->old_mode, p->old_id) && !as_it_was)
                        refuse(ctx, c, p->path, "is staged in your index, with something else");
        }
        return 0;
}

int pv_carry_check_index_back(struct pv_carry *c, pv_carry_refuse *refuse, void *ctx, struct pv_err *err)
{
        if (read_index(c, refuse, ctx, err) < 0)
                return -1;
        for (size_t i = 0; i < c->n_changed; i++) {
                struct pv_carry_path *p = &c->changed[i];
                if (!p->stays && !is_entry(p, p->new_mode, p->new_id) && !is_entry(p, p->was_mode, p->was_id))
                        refuse(ctx, c, p->path, "is staged in your index since, with something else");
        }
        return 0;
}

static void put_entry(struct pv_str *out, const struct pv_carry *c, const char *mode, const char *id, const char *path)
{
        bool none = pv_streq(mode, "0");
        pv_str_putf(out, "%s %s\t%s", mode,
                    !none            ? id
                    : c->host.sha256 ? "0000000000000000000000000000000000000000000000000000000000000000"
                                     : "0000000000000000000000000000000000000000",
                    path);
        pv_str_putc(out, '\0');
}

/* What the entry is to become; NULL: it is not to be touched. */
static const char *next_mode(const struct pv_carry_path *p, bool back)
{
        bool ours = back ? is_entry(p, p->new_mode, p->new_id) : is_entry(p, p->was_mode, p->was_id);
        return p->stays || !ours ? NULL : back ? p->was_mode : p->new_mode;
}

/* Removals first: what they free may be a directory afterwards, and the other way round. */
static void put_entries(struct pv_str *out, const struct pv_carry *c, bool back)
{
        for (int removals = 1; removals >= 0; removals--)
                for (size_t i = 0; i < c->n_changed; i++) {
                        const struct pv_carry_path *p = &c->changed[i];
                        const char *mode = next_mode(p, back);
                        if (mode && pv_streq(mode, "0") == removals)
                                put_entry(out, c, mode, back ? p->was_id : p->new_id, p->path);
                }
}

/* An entry that is set anew is without marks: it keeps those that it has, or gets back those that it had. */
static int set_mark(const struct pv_carry *c, const char *index, bool back, unsigned mark, const char *option,
                    struct pv_err *err)
{
        const char *const words[] = { "update-index", option, "-z", "--stdin", NULL };
        pv_auto_str in = { 0 };
        pv_auto_git_answer a = { 0 };
        for (size_t i = 0; i < c->n_changed; i++) {
                const struct pv_carry_path *p = &c->changed[i];
                const char *mode = next_mode(p, back);
                if (!mode || pv_streq(mode, "0") ||
                    !((pv_streq(p->now_mode, "0") ? p->was_marks : p->now_marks) & mark))
                        continue;
                pv_str_put(&in, p->path);
                pv_str_putc(&in, '\0');
        }
        const struct pv_git_call call = { .words = words, .in = in.s, .in_len = in.len, .index_file = index };
        return in.len ? pv_git_host_must(&c->host, &call, &a, err) : 0;
}

/* A copy to work on; there may be no index yet. */
static int copy_index(const struct pv_carry *c, int dir, struct pv_err *err)
{
        pv_auto_free char *bytes = NULL;
        size_t len;
        struct stat st;
        (void)unlinkat(dir, OUR_INDEX, 0);
        if (fstatat(dir, INDEX_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
                return 0;
        if (pv_file_read_at(dir, INDEX_NAME, INDEX_MAX, &bytes, &len, err) < 0 ||
            link_file(dir, OUR_INDEX, bytes, len, st.st_mode & 0777, err) < 0)
                return pv_err_wrap(err, "%s", c->host.git_dir);
        if (geteuid() == 0 && fchownat(dir, OUR_INDEX, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s/%s", c->host.git_dir, OUR_INDEX);
        return 0;
}

int pv_carry_set_index(struct pv_carry *c, bool back, struct pv_err *err)
{
        static const char *const words[] = { "update-index", "--add", "--replace", "-z", "--index-info", NULL };
        pv_auto_fd dir = open_git_dir(c, err);
        pv_auto_free char *ours = pv_path_join(c->host.git_dir, OUR_INDEX);
        pv_auto_str in = { 0 };
        pv_auto_git_answer a = { 0 };
        if (dir < 0 || read_index_again(c, err) < 0)
                return -1;
        put_entries(&in, c, back);
        if (!in.len)
                return 0;
        const struct pv_git_call call = { .words = words, .in = in.s, .in_len = in.len, .index_file = ours };
        if (copy_index(c, dir, err) < 0 || pv_git_host_must(&c->host, &call, &a, err) < 0 ||
            set_mark(c, ours, back, PV_CARRY_ASSUMED, "--assume-unchanged", err) < 0 ||
            set_mark(c, ours, back, PV_CARRY_SKIPPED, "--skip-worktree", err) < 0)
                return -1;
        if (renameat(dir, OUR_INDEX, dir, INDEX_NAME) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s/%s", c->host.git_dir, INDEX_NAME);
        return 0;
}

/* --- references --- */

/* What the reference is now; "" for nothing. */
static int read_ref(struct pv_carry *c, const char *name, char out[65], struct pv_err *err)
{
        const char *const words[] = { "rev-parse", "-q", "--verify", name, "--", NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_run(&c->host, &call, &a, NULL, err) < 0)
                return -1;
        if (a.text)
                a.text[strcspn(a.text, "\n")] = '\0';
        (void)snprintf(out, 65, "%s", a.exit_code == 0 && pv_is_object_name(a.text) ? a.text : "");
        return 0;
}

static void put_update(struct pv_str *in, const char *name, const char *from, const char *to)
{
        pv_str_put(in, "option no-deref\n");
        if (!*from)
                pv_str_putf(in, "create %s %s\n", name, to);
        else if (!*to)
                pv_str_putf(in, "delete %s %s\n", name, from);
        else
                pv_str_putf(in, "update %s %s %s\n", name, to, from);
}

enum move { MOVE, MOVE_AND_UNPIN, MOVE_BACK };

/* One transaction: all or none. */
static int try_move(struct pv_carry *c, const char *job, enum move how, bool *done, struct pv_str *said,
                    struct pv_err *err)
{
        bool back = how == MOVE_BACK;
        pv_auto_free char *message = pv_strf("pvisor %s of %s", back ? "undo" : "apply --commits", job);
        const char *const words[] = { "update-ref", "--create-reflog", "-m", message, "--stdin", NULL };
        pv_auto_str in = { 0 };
        pv_auto_git_answer a = { 0 };
        for (size_t i = 0; i < c->n_refs; i++) {
                const struct pv_carry_ref *r = &c->ref[i];
                if (r->dest && !r->landed)
                        put_update(&in, r->dest, back ? r->new_id : r->old_id, back ? r->old_id : r->new_id);
        }
        *done = true;
        if (!in.len)
                return 0;
        if (how == MOVE_AND_UNPIN)
                pv_carry_put_unpins(c, &in);
        const struct pv_git_call call = { .words = words, .in = in.s, .in_len = in.len };
        if (pv_git_host_run(&c->host, &call, &a, said, err) < 0)
                return -1;
        *done = a.exit_code == 0;
        if (*done && how == MOVE_AND_UNPIN)
                c->pinned = false;
        return 0;
}

/* What was moved already, by us before a crash, needs no more; what the host moved goes aside. */
static int adapt(struct pv_carry *c, const char *job, struct pv_err *err)
{
        for (size_t i = 0; i < c->n_refs; i++) {
                struct pv_carry_ref *r = &c->ref[i];
                char now[65];
                if (!r->dest)
                        continue;
                if (read_ref(c, r->dest, now, err) < 0)
                        return -1;
                if (pv_streq(now, r->old_id))
                        continue;
                if (pv_streq(now, r->new_id)) {
                        r->landed = true;
                        continue;
                }
                for (unsigned n = 1; n < 1000; n++) {
                        pv_auto_free char *name = n == 1 ? pv_strf("refs/heads/pvisor/%s", job)
                                                         : pv_strf("refs/heads/pvisor/%s-%u", job, n);
                        if (read_ref(c, name, now, err) < 0)
                                return -1;
                        if (*now)
                                continue;
                        free(r->dest);
                        r->dest = pv_steal(&name);
                        r->old_id[0] = '\0';
                        r->aside = true;
                        r->here = false;
                        r->why = "was moved here meanwhile";
                        break;
                }
        }
        return 0;
}

int pv_carry_move_refs(struct pv_carry *c, const char *job, struct pv_err *err)
{
        pv_auto_str said = { 0 };
        bool done = false;
        for (int i = 0; i < TRIES && !done; i++) {
                /* The pins go with it, unless it is they, packed by the host, that stand in the way. */
                enum move how = i == 0 && c->pinned ? MOVE_AND_UNPIN : MOVE;
                said.len = 0;
                if ((i > 0 && adapt(c, job, err) < 0) || try_move(c, job, how, &done, &said, err) < 0)
                        return -1;
        }
        return done ? 0
                    : pv_err_set(err, PV_ERR_BUSY, 0, "commits: the references could not be moved: %s",
                                 said.len ? said.s : "git did not say why");
}

int pv_carry_check_back(struct pv_carry *c, pv_carry_refuse *refuse, void *ctx, struct pv_err *err)
{
        for (size_t i = 0; i < c->n_refs; i++) {
                struct pv_carry_ref *r = &c->ref[i];
                char now[65];
                if (!r->dest)
                        continue;
                if (read_ref(c, r->dest, now, err) < 0)
                        return -1;
                r->landed = pv_streq(now, r->old_id);
                if (!pv_streq(now, r->new_id) && !r->landed)
                        refuse(ctx, c, r->dest, "was moved since");
        }
        return 0;
}

int pv_carry_move_back(struct pv_carry *c, const char *job, struct pv_err *err)
{
        pv_auto_str said = { 0 };
        bool done = false;
        if (try_move(c, job, MOVE_BACK, &done, &said, err) < 0)
                return -1;
        if (done)
                return 0;
        return pv_err_set(err, PV_ERR_CONFLICT, 0, "undo: the references could not be moved back: %s",
                          said.len ? said.s : "git did not say why");
}
