/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * A stage keeps what a command changed in one or several directories (roots) of the host until a person decides. The
 * kernel's overlayfs does the copying on write: target below, frozen layers over it, an upper on top. This module lays
 * out the directories, says what is to be mounted (the boundary mounts it), and finds out afterwards what changed. It
 * never mounts, never runs anything, and until `apply` never writes below a target.
 *
 *   create      stage.json, lock, one empty upper a root that looks like the target's own directory
 *   begin_run   can overlayfs serve these roots? clear work/, take T0 (startclock.c), note state "running"
 *               ... the command runs; the lock is held ...
 *   seal        walk the uppers (scan.c), record what the host had at each changed path (preimage.c): "sealed"
 *   changes     walk again, compare with the preimages (change.c)
 *   apply, undo, drop, and runs that go on: all with the lock
 *
 * Who is hostile: the command. It shaped names, types, depths, modes, attributes and contents in the layers, through
 * the mount alone; it could not put in a whiteout, an opaque mark or a link out of the layer that the kernel follows.
 * The host's directory is not hostile but lives: anything may change there at any moment. stage.json and preimages are
 * ours, and are checked when read, since disks and people damage files.
 *
 * Locking: `lock` is locked by open file description, so it is held as long as any process has the descriptor: the
 * supervisor, and the sandbox's init that was forked from it. Once it can be taken, nothing of the run lives. State
 * "running" without a holder is a lost run; whoever takes the lock next seals it.
 *
 * Who decides on what is staged while a command runs in it (PV_STAGE_DECIDE) has `decide` instead, which everybody else
 * who changes the stage takes, too, the supervisor when it seals: `lock` first, then `decide`. See beside.c.
 *
 * A crash of the machine: the overlay is mounted volatile and nothing is synced before the command starts. The boot id
 * tells; then every path is suspect, and apply refuses what it cannot prove (docs/decisions/0040).
 */
#include "stage/stage.h"

#include <fcntl.h>
#include <string.h>
#include "base/dir.h"
#include "base/fd.h"
#include "base/own_files.h"
#include "stage/layers.h"
#include "stage/state.h"

#define LOCK_FILE   "lock"
#define DECIDE_FILE "decide"
/* For how long one waits for another's decision, or for the rest of a run whose command is dead. */
#define DECIDE_WAIT_MS 10000
#define DECIDE_STEP_MS 5
/* For how long, for the end of what was killed already. */
#define DYING_MS 10000

/* Of the stage's directory. */
#define OTHER_IDS "other-ids"

void pv_overlays_free(struct pv_overlay *o, size_t n)
{
        for (size_t i = 0; o && i < n; i++) {
                for (size_t k = 0; k < o[i].n_frozen; k++)
                        free(o[i].frozen[k]);
                free(o[i].frozen);
                free(o[i].upper);
                free(o[i].work);
                free(o[i].by_fuse);
        }
        free(o);
}

void pv_stage_close(struct pv_stage *s)
{
        if (!s)
                return;
        int e = errno;
        struct pv_err ignored = PV_ERR_INIT; /* then it opens as one that was never finished */
        if (s->unwritten)
                (void)pv_stage_write_state(s, &ignored);
        pv_overlays_free(s->overlays, s->n_roots);
        pv_overlays_free(s->views, s->n_roots);
        for (size_t k = 0; k < s->n_layers; k++) {
                struct pv_stage_layer *l = &s->layers[k];
                for (size_t i = 0; i < s->n_roots; i++)
                        pv_fd_closep(&l->fd[i]);
                free(l->from);
                free(l->name);
                free(l->t0);
                free(l->fd);
        }
        free(s->layers);
        for (size_t i = 0; i < s->n_roots; i++) {
                free(s->roots[i].root.target);
                free(s->roots[i].root.view);
                pv_pathfd_closep(&s->roots[i].target);
        }
        free(s->roots);
        for (size_t i = 0; s->beside_views && i < s->n_roots; i++)
                pv_pathfd_closep(&s->beside_views[i]);
        free(s->beside_views);
        free(s->view_copies);
        pv_fd_closep(&s->watch.fd);
        pv_fd_closep(&s->decide_fd);
        pv_fd_closep(&s->lock_fd); /* with the last copy of it goes the lock */
        pv_pathfd_closep(&s->fd);
        free(s->dir);
        free(s);
        errno = e;
}

void pv_stage_note_other_ids(struct pv_stage *s)
{
        pv_auto_fd fd = geteuid() == 0 ? -1 : openat(s->fd.fd, OTHER_IDS, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        (void)fd; /* without it the owners are taken for changed: a look, and nothing is lost */
}

void pv_stage_own_files(const char *dir)
{
        pv_auto_free char *mark = pv_path_join(dir, OTHER_IDS);
        if (access(mark, F_OK) < 0)
                pv_own_files_open();
}

void pv_stage_set_backend(struct pv_stage *s, enum pv_stage_backend backend)
{
        s->backend = backend;
}

size_t pv_stage_n_roots(const struct pv_stage *s)
{
        return s->n_roots;
}

const struct pv_root *pv_stage_root(const struct pv_stage *s, size_t i)
{
        return &s->roots[i].root;
}

const char *pv_stage_dir(const struct pv_stage *s)
{
        return s->dir;
}

struct pv_pathfd pv_stage_dirfd(const struct pv_stage *s)
{
        return s->fd;
}

bool pv_stage_is_another_target(const struct pv_stage *s, size_t i)
{
        struct stat st;
        const struct pv_stage_root *r = &s->roots[i];
        return r->ino != 0 && r->target.fd >= 0 && fstat(r->target.fd, &st) == 0 && st.st_ino != r->ino;
}

struct pv_pathfd pv_stage_target(const struct pv_stage *s, size_t i)
{
        return s->roots[i].target;
}

static struct flock whole_file(short type)
{
        return (struct flock){ .l_type = type, .l_whence = SEEK_SET };
}

void pv_stage_note_init(const struct pv_stage *s, const struct pv_process *init)
{
        pv_process_note(s->lock_fd, init);
}

void pv_stage_note_over(const struct pv_stage *s)
{
        pv_process_note_over(s->lock_fd);
}

/*
 * PV_ERR_BUSY: at once while the command of a run lives, or somebody decides. A run that is over tells its end before
 * it has cleared up and lets go, and of one that was killed a child may hold the lock for a moment: who was told of the
 * end is not sent away for that.
 */
static int take_lock(struct pv_stage *s, int wait_ms, struct pv_err *err)
{
        struct flock l = whole_file(F_WRLCK);
        for (int waited = 0; fcntl(s->lock_fd, F_OFD_SETLK, &l) < 0; waited += DECIDE_STEP_MS) {
                if (errno != EAGAIN && errno != EACCES)
                        return pv_err_set(err, PV_ERR_SYS, errno, "lock the stage %s", s->dir);
                if (waited >= wait_ms || !pv_process_noted_over(s->lock_fd))
                        return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s is in use", s->dir);
                (void)usleep(DECIDE_STEP_MS * 1000);
        }
        /* A supervisor that was killed lets go before the kernel has ended its command, which writes meanwhile. */
        s->taken = !pv_process_noted_lives(s->lock_fd, DYING_MS);
        if (s->taken) {
                pv_process_note_none(s->lock_fd);
                return 0;
        }
        l.l_type = F_UNLCK;
        (void)fcntl(s->lock_fd, F_OFD_SETLK, &l);
        return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s: what ran on it does not end", s->dir);
}

int pv_stage_take_decide(struct pv_stage *s, struct pv_err *err)
{
        struct flock l = whole_file(F_WRLCK);
        if (s->decide_fd >= 0)
                return 0;
        pv_auto_fd fd = openat(s->fd.fd, DECIDE_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stage %s: " DECIDE_FILE, s->dir);
        for (int waited = 0; fcntl(fd, F_OFD_SETLK, &l) < 0; waited += DECIDE_STEP_MS) {
                if (errno != EAGAIN && errno != EACCES)
                        return pv_err_set(err, PV_ERR_SYS, errno, "lock the stage %s", s->dir);
                if (waited >= DECIDE_WAIT_MS)
                        return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s: another decision is under way", s->dir);
                (void)usleep(DECIDE_STEP_MS * 1000);
        }
        s->decide_fd = pv_fd_steal(&fd);
        return 0;
}

void pv_stage_take_views(struct pv_stage *s, struct pv_pathfd *views)
{
        for (size_t i = 0; s->beside_views && i < s->n_roots; i++)
                pv_pathfd_closep(&s->beside_views[i]);
        free(s->beside_views);
        s->beside_views = views;
}

bool pv_stage_borrow(struct pv_stage *s)
{
        struct pv_err busy = PV_ERR_INIT;
        if (!s->taken && s->state == PV_STATE_SEALED)
                s->borrowed = take_lock(s, 0, &busy) == 0;
        return s->taken;
}

void pv_stage_give_back(struct pv_stage *s)
{
        struct flock l = whole_file(F_UNLCK);
        if (s->borrowed && fcntl(s->lock_fd, F_OFD_SETLK, &l) == 0)
                s->borrowed = s->taken = false;
}

bool pv_stage_is_running(const struct pv_stage *s)
{
        struct flock l = whole_file(F_WRLCK);
        if (s->taken || s->state != PV_STATE_RUNNING)
                return false;
        return fcntl(s->lock_fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

static int open_lock(struct pv_stage *s, int flags, struct pv_err *err)
{
        s->lock_fd = openat(s->fd.fd, LOCK_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
        if (s->lock_fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stage %s: " LOCK_FILE, s->dir);
        return 0;
}

static int being_removed(const struct pv_stage *s, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_INPUT, 0, "stage %s was not finished, or only half removed", s->dir);
        return pv_err_hint(err, "drop it again");
}

/*
 * A removal that was cut short just before its end leaves an empty directory, without even the lock: that is made anew
 * by who may remove the rest.
 */
static int open_lock_of_rest(struct pv_stage *s, enum pv_stage_lock lock, struct pv_err *err)
{
        pv_auto_dir d = pv_dir_open(s->fd.fd, ".");
        struct dirent *e;
        if (!d || pv_dir_next(d, &e) != 0)
                return -1;
        pv_err_clear(err);
        if (lock == PV_STAGE_LOOK || lock == PV_STAGE_DECIDE)
                return being_removed(s, err);
        return open_lock(s, O_CREAT, err);
}

static void open_targets(struct pv_stage *s)
{
        for (size_t i = 0; i < s->n_roots; i++) /* a real path: a link in its place now is not what was staged */
                s->roots[i].target.fd = open(s->roots[i].root.target, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool pv_stage_is_half_removed(const struct pv_stage *s)
{
        return s->state == PV_STATE_REMOVING;
}

int pv_stage_require_targets(const struct pv_stage *s, struct pv_err *err)
{
        if (pv_stage_is_half_removed(s))
                return being_removed(s, err);
        for (size_t i = 0; i < s->n_roots; i++)
                if (s->roots[i].target.fd < 0)
                        return pv_err_set(err, PV_ERR_SYS, ENOENT, "the staged directory %s", s->roots[i].root.target);
        return 0;
}

/* Roots never overlap each other, and the stage lies in none of them (overlayfs then shows ELOOP entries). */
static int check_places(const struct pv_stage *s, struct pv_err *err)
{
        for (size_t i = 0; i < s->n_roots; i++) {
                const char *a = s->roots[i].root.target;
                if (pv_path_is_within(s->dir, a)) {
                        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                         "the stage %s lies inside %s, which it is to stage", s->dir, a);
                        return pv_err_hint(err, "--stage DIR with a directory outside %s", a);
                }
                for (size_t j = 0; j < i; j++) {
                        const char *b = s->roots[j].root.target;
                        if (pv_path_is_within(a, b) || pv_path_is_within(b, a))
                                return pv_err_set(err, PV_ERR_USAGE, 0,
                                                  "%s and %s overlap: one is staged with the other", b, a);
                }
        }
        return 0;
}

static int make_dir(struct pv_stage *s, const char *name, struct pv_err *err)
{
        if (mkdirat(s->fd.fd, name, 0700) < 0 && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s/%s", s->dir, name);
        return 0;
}

static int make_root_dirs(struct pv_stage *s, struct pv_err *err)
{
        if (make_dir(s, "roots", err) < 0)
                return -1;
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *root = pv_strf("roots/%zu", i), *layers = pv_strf("roots/%zu/layers", i);
                if (make_dir(s, root, err) < 0 || make_dir(s, layers, err) < 0)
                        return -1;
        }
        return 0;
}

static bool has_entry(const struct pv_stage *s, const char *name)
{
        return faccessat(s->fd.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/*
 * What is in the directory already: nothing, or what an interrupted create (no stage.json yet) left of a stage. A
 * directory of the person's own may have one of its names, too: the mark tells. Of a stage that was half removed it is
 * what stage.json was, not empty: what is left there was thrown away, and is no beginning of another one.
 */
static int check_unused(struct pv_stage *s, struct pv_err *err)
{
        static const char *const ours[] = { PV_STAGE_UNFINISHED, OTHER_IDS, LOCK_FILE, DECIDE_FILE, "roots" };
        pv_auto_dir d = pv_dir_open(s->fd.fd, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                bool known = false;
                for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
                        known = known || pv_streq(e->d_name, ours[i]);
                if (pv_streq(e->d_name, "stage.json"))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s is a stage already", s->dir);
                if (!known)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s is not empty: a stage needs a directory of its own",
                                          s->dir);
        }
        if (more < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", s->dir);
        struct pv_err foreign = PV_ERR_INIT;
        if (pv_stage_check_unfinished(s, &foreign) < 0)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s is not empty: a stage needs a directory of its own",
                                  s->dir);
        struct stat mark;
        if (fstatat(s->fd.fd, PV_STAGE_UNFINISHED, &mark, AT_SYMLINK_NOFOLLOW) == 0 && mark.st_size > 0) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s is a stage that was only half removed", s->dir);
                return pv_err_hint(err, "drop its job again, or take another directory");
        }
        return 0;
}

/* After the lock, before anything else. */
static int mark_unfinished(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_fd fd = openat(s->fd.fd, PV_STAGE_UNFINISHED, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "create %s/" PV_STAGE_UNFINISHED, s->dir) : 0;
}

static int open_dir(struct pv_stage *s, const char *dir, struct pv_err *err)
{
        if (pv_path_real(dir, &s->dir, err) < 0)
                return -1;
        return pv_path_open_root(s->dir, &s->fd, err);
}

int pv_stage_lay_out(struct pv_stage *s, const char *dir, struct pv_err *err)
{
        if (pv_path_make_dirs(dir, 0700, err) < 0 || open_dir(s, dir, err) < 0 || check_places(s, err) < 0 ||
            check_unused(s, err) < 0 || open_lock(s, O_CREAT, err) < 0 || take_lock(s, 0, err) < 0 ||
            mark_unfinished(s, err) < 0)
                return -1;
        open_targets(s);
        if (pv_stage_require_targets(s, err) < 0 || make_root_dirs(s, err) < 0)
                return -1;
        return pv_layers_make_top(s, err);
}

int pv_stage_create(const char *dir, const struct pv_root *roots, size_t n_roots, struct pv_stage **out,
                    struct pv_err *err)
{
        pv_auto_stage s = pv_stage_new();
        if (n_roots == 0 || n_roots > PV_STAGE_MAX_ROOTS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "a stage has 1 to %d roots", PV_STAGE_MAX_ROOTS);
        for (size_t i = 0; i < n_roots; i++)
                pv_stage_add_root(s, &roots[i]);
        (void)pv_stage_add_layer(s, NULL, 0);
        if (pv_stage_lay_out(s, dir, err) < 0)
                return -1;
        s->unwritten = true; /* one file less to write before a run begins */
        *out = pv_steal(&s);
        return 0;
}

/* Without the lock stage.json may come between two looks. */
static int check_is_stage(const struct pv_stage *s, struct pv_err *err)
{
        if (has_entry(s, "stage.json") || pv_stage_check_unfinished(s, err) == 0)
                return 0;
        if (!has_entry(s, "stage.json"))
                return -1;
        pv_err_clear(err);
        return 0;
}

/* Whose filesystem has no room for one more name wants to drop the stage, not to wait for anybody. */
static int take_decide(struct pv_stage *s, enum pv_stage_lock lock, struct pv_err *err)
{
        if (pv_stage_take_decide(s, err) == 0)
                return 0;
        if (lock == PV_STAGE_DECIDE || err->kind == PV_ERR_BUSY)
                return -1;
        pv_err_clear(err);
        return 0;
}

int pv_stage_open(const char *dir, enum pv_stage_lock lock, struct pv_stage **out, struct pv_err *err)
{
        pv_auto_stage s = pv_stage_new();
        if (open_dir(s, dir, err) < 0 ||
            (open_lock(s, 0, err) < 0 && (err->sys != ENOENT || open_lock_of_rest(s, lock, err) < 0)))
                return -1;
        if ((lock == PV_STAGE_TAKE || lock == PV_STAGE_DISCARD) && take_lock(s, DECIDE_WAIT_MS, err) < 0)
                return -1;
        if (check_is_stage(s, err) < 0)
                return -1;
        if (lock != PV_STAGE_LOOK && take_decide(s, lock, err) < 0)
                return -1;
        if (pv_stage_read_state(s, err) < 0) {
                if (err->sys != ENOENT)
                        return -1;
                s->state = PV_STATE_REMOVING;
        }
        if (s->state == PV_STATE_REMOVING && (lock == PV_STAGE_LOOK || lock == PV_STAGE_DECIDE))
                return being_removed(s, err);
        s->beside = lock == PV_STAGE_DECIDE;
        if (s->beside && !pv_stage_is_running(s))
                return pv_err_set(err, PV_ERR_STATE, 0, "nothing runs in stage %s any more", s->dir);
        if (s->state != PV_STATE_REMOVING &&
            (pv_layers_open(s, err) < 0 || pv_dependents_find(s, &s->stood_on, err) < 0))
                return -1;
        open_targets(s);
        struct pv_err missing = PV_ERR_INIT;
        if (lock == PV_STAGE_TAKE && s->state == PV_STATE_RUNNING && pv_stage_require_targets(s, &missing) == 0 &&
            pv_stage_seal(s, NULL, err) < 0)
                return pv_err_wrap(err, "take stock of the lost run in %s", s->dir);
        *out = pv_steal(&s);
        return 0;
}
