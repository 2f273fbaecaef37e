/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another program writes to the target while an apply or an undo runs, thousands of times: whatever it wrote last at a
 * path must be there in the end, whoever won; where it wrote nothing, the batch is there whole or not at all; and what
 * was not applied is still staged.
 *
 *   test-stage-race TARGET_BASE STAGE_BASE apply|undo SECONDS [SEED]
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include "base/path.h"
#include "stage/apply.h"

enum { ROUNDS = 6, PATIENCE = 120 }; /* at least; seconds */
enum { MODIFIED = 8, DELETED = 3, ADDED = 4, PATHS = MODIFIED + DELETED + ADDED, TEXT = 64, OPS = 12 };

/* What the other program did last at a path; shared with it. */
struct deed {
        bool any, absent, appended;
        char text[TEXT];
};
struct shared {
        struct deed deed[PATHS];
        unsigned ops;
        bool go;
};

static const char *target_base, *stage_base;
static bool undoing;
static unsigned displaced;
static unsigned seed;
static struct shared *shared;

static void die(const char *what, const char *more)
{
        (void)fprintf(stderr, "seed %u: %s: %s\n", seed, what, more);
        exit(1);
}

static void must(int r, const char *what)
{
        if (r < 0)
                die(what, strerror(errno));
}

static void check(int r, const struct pv_err *err, const char *what)
{
        if (r < 0)
                die(what, err->msg);
}

/* Some paths share a directory, some have one of their own, some are in directories that come or go. */
static const char *path_of(unsigned i)
{
        static const char *const path[PATHS] = { "d/0",  "d/1", "d/2", "d/3", "d/4",   "5",   "6",  "e/7",
                                                 "gone", "g/0", "g/1", "new", "d/new", "n/0", "n/1" };
        return path[i];
}

static void put(int dir, const char *path, const char *text, int flags)
{
        pv_auto_fd fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
        must(fd, path);
        must((int)write(fd, text, strlen(text)), path);
}

/* ---- the other program ---- */

static unsigned draw(unsigned below)
{
        return (unsigned)rand_r(&seed) % below;
}

static void pause_for(unsigned microseconds)
{
        struct timespec until, now;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)microseconds * 1000;
        do /* sleeping is too coarse */
                (void)clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - until.tv_sec) * 1000000000L + now.tv_nsec < until.tv_nsec);
}

static void note(unsigned i, const char *text, bool appended)
{
        struct deed *d = &shared->deed[i];
        d->any = true;
        d->absent = !text;
        d->appended = appended;
        (void)snprintf(d->text, sizeof d->text, "%s", text ? text : "");
}

static void replace(int dir, unsigned i, const char *text)
{
        char tmp[32];
        (void)snprintf(tmp, sizeof tmp, ".tmp-%u", i);
        put(dir, tmp, text, O_TRUNC);
        if (renameat(dir, tmp, dir, path_of(i)) == 0)
                note(i, text, false);
        else
                (void)unlinkat(dir, tmp, 0); /* its directory is gone, as deleted by the batch */
}

static void overwrite(int dir, unsigned i, const char *text, int flags, unsigned hold)
{
        pv_auto_fd fd = openat(dir, path_of(i), O_WRONLY | O_CLOEXEC | flags, 0644);
        if (fd < 0)
                return;
        pause_for(hold);
        must((int)write(fd, text, strlen(text)), path_of(i));
        pause_for(hold / 2);
        note(i, text, flags & O_APPEND);
}

static void deed(int dir, unsigned n)
{
        char text[TEXT];
        unsigned i = draw(PATHS);
        (void)snprintf(text, sizeof text, "host %u of %u\n", n, seed);
        switch (draw(6)) {
        case 0:
                replace(dir, i, text);
                break;
        case 1:
                overwrite(dir, i, text, O_TRUNC, 0);
                break;
        case 2:
                overwrite(dir, i, text, O_APPEND, draw(300));
                break;
        case 3:
                overwrite(dir, i, text, O_TRUNC, draw(300));
                break;
        case 4:
                if (unlinkat(dir, path_of(i), 0) == 0)
                        note(i, NULL, false);
                break;
        case 5:
                overwrite(dir, i, text, O_CREAT | O_TRUNC, 0);
                break;
        default:
                break;
        }
}

static void other_program(const char *target)
{
        pv_auto_fd dir = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        unsigned n = 1 + draw(OPS);
        while (!*(volatile bool *)&shared->go)
                ;
        pause_for(draw(3000));
        for (unsigned i = 0; i < n; i++) {
                deed(dir, i);
                shared->ops++;
                pause_for(draw(150));
        }
        _exit(0);
}

/* ---- a round ---- */

struct world {
        char *target_dir, *target, *stage_dir, *stage;
        int dir;
};

static char *temporary(const char *base)
{
        char *dir = pv_strf("%s/pv-race-XXXXXX", base);
        if (!mkdtemp(dir))
                die("make a directory", base);
        return dir;
}

static void fill(int dir, bool staged)
{
        char text[TEXT];
        static const char *const dirs[] = { "d", "e" };
        for (size_t i = 0; i < 2; i++)
                must(mkdirat(dir, dirs[i], 0755), dirs[i]);
        must(mkdirat(dir, staged ? "n" : "g", 0755), "a directory");
        for (unsigned i = 0; i < PATHS; i++) {
                (void)snprintf(text, sizeof text, "%s %u\n", staged ? "staged" : "original", i);
                if (i < MODIFIED || (staged ? i >= MODIFIED + DELETED : i < MODIFIED + DELETED))
                        put(dir, path_of(i), text, O_EXCL);
        }
        if (staged) {
                must(mknodat(dir, "gone", S_IFCHR, makedev(0, 0)), "gone");
                must(mknodat(dir, "g", S_IFCHR, makedev(0, 0)), "g");
        }
}

static struct world world_make(void)
{
        struct pv_err err = PV_ERR_INIT;
        struct world w = { .target_dir = temporary(target_base), .stage_dir = temporary(stage_base) };
        const struct pv_overlay *o;
        size_t n;
        pv_auto_stage s = NULL;
        w.target = pv_path_join(w.target_dir, "target");
        w.stage = pv_path_join(w.stage_dir, "stage");
        must(mkdir(w.target, 0755), w.target);
        w.dir = open(w.target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fill(w.dir, false);
        struct pv_root root = { .kind = PV_ROOT_WORKSPACE, .target = w.target, .view = w.target };
        check(pv_stage_create(w.stage, &root, 1, &s, &err), &err, "create");
        check(pv_stage_begin_run(s, &o, &n, &err), &err, "begin");
        pv_auto_fd upper = open(o[0].upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fill(upper, true);
        check(pv_stage_seal(s, NULL, &err), &err, "seal");
        return w;
}

static void world_free(struct world *w)
{
        struct pv_err err = PV_ERR_INIT;
        (void)close(w->dir);
        check(pv_path_remove_tree(AT_FDCWD, w->target_dir, &err), &err, "remove");
        check(pv_path_remove_tree(AT_FDCWD, w->stage_dir, &err), &err, "remove");
        free(w->target_dir);
        free(w->target);
        free(w->stage_dir);
        free(w->stage);
}

static int apply(struct pv_stage *s, struct pv_apply_result *r, struct pv_err *err)
{
        struct pv_apply_options options = { 0 };
        pv_auto_changes c = NULL;
        check(pv_changes_compute(s, &c, err), err, "compute");
        pv_auto_free bool *selected = pv_calloc(c->n + 1, sizeof *selected);
        memset(selected, true, c->n);
        return pv_apply(s, c, selected, &options, r, err);
}

static bool read_path(int dir, unsigned i, char text[TEXT * OPS])
{
        pv_auto_fd fd = openat(dir, path_of(i), O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT * OPS - 1);
        text[n < 0 ? 0 : n] = '\0';
        return n >= 0;
}

static bool ends_with(const char *text, const char *end)
{
        return pv_str_has_suffix(text, end);
}

/* What a path holds where the host did nothing: with the batch in force or not. */
static bool holds(const char *text, bool there, unsigned i, bool in_force)
{
        char want[TEXT] = "";
        bool original = i < MODIFIED + DELETED, staged = i < MODIFIED || i >= MODIFIED + DELETED;
        if (in_force ? staged : original)
                (void)snprintf(want, sizeof want, "%s %u\n", in_force ? "staged" : "original", i);
        return *want ? there && pv_streq(text, want) : !there;
}

static const char *wanted;

static int holds_wanted(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        char text[TEXT * OPS];
        (void)st;
        (void)ftw;
        pv_auto_fd fd = type == FTW_F ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        text[n < 0 ? 0 : n] = '\0';
        return ends_with(text, wanted);
}

/*
 * A write that the kernel had already led into a directory when it was moved arrives after the last look at it (path
 * resolution and the act are not one step): it is then with what was displaced, and nothing of it is thrown away.
 */
static bool is_with_the_displaced(const struct world *w, unsigned i, const char *text)
{
        bool moves_as_a_whole = strncmp(path_of(i), "g/", 2) == 0 || strncmp(path_of(i), "n/", 2) == 0;
        wanted = text;
        return moves_as_a_whole && nftw(w->stage, holds_wanted, 16, FTW_PHYS) == 1;
}

static void check_round(const struct world *w, int done, const struct pv_apply_result *r)
{
        bool in_force = undoing ? done < 0 : done == 0;
        for (unsigned i = 0; i < PATHS; i++) {
                char text[TEXT * OPS], more[TEXT * OPS + 200];
                const struct deed *d = &shared->deed[i];
                bool there = read_path(w->dir, i, text);
                (void)snprintf(more, sizeof more, "%s: %s, batch %s%s, host %s '%s', there %s '%s'", path_of(i),
                               undoing ? "undo" : "apply", done == 0 ? "done" : "refused", r->partly ? " partly" : "",
                               !d->any       ? "did nothing"
                               : d->absent   ? "removed"
                               : d->appended ? "appended"
                                             : "wrote",
                               d->text, there ? "is" : "is not", text);
                if (!d->any && !r->partly && !holds(text, there, i, in_force))
                        die("torn", more);
                /* Made and removed while the batch had the path away: no content of the host's that could be lost. */
                if (d->any && d->absent && i >= MODIFIED &&
                    (holds(text, there, i, true) || holds(text, there, i, false)))
                        continue;
                if (d->any &&
                    (d->absent ? there
                               : !there || !(d->appended ? ends_with(text, d->text) : pv_streq(text, d->text)))) {
                        if (d->absent || !is_with_the_displaced(w, i, d->text))
                                die("a lost edit", more);
                        displaced++;
                }
        }
}

/* What was refused is staged as before. */
static void check_staged(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        check(pv_changes_compute(s, &c, &err), &err, "compute");
        for (unsigned i = 0; i < PATHS; i++) {
                char want[TEXT], have[TEXT] = "";
                const struct pv_change *x = pv_changes_find(c, 0, path_of(i));
                if (i >= MODIFIED && i < MODIFIED + DELETED)
                        continue;
                (void)snprintf(want, sizeof want, "staged %u\n", i);
                pv_auto_fd fd = x ? pv_change_open_staged(s, x, O_RDONLY) : -1;
                if (fd < 0 || read(fd, have, sizeof have - 1) < 0 || !pv_streq(have, want))
                        die("staged content was lost", path_of(i));
        }
}

static unsigned applied, refused, partly;

static void run_round(void)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_apply_result r = { 0 };
        struct world w = world_make();
        struct pv_stage *s;
        memset(shared->deed, 0, sizeof shared->deed);
        shared->go = false;
        check(pv_stage_open(w.stage, PV_STAGE_TAKE, &s, &err), &err, "open");
        if (undoing) {
                check(apply(s, &r, &err), &err, "apply first");
                pv_apply_result_fini(&r);
        }
        pid_t pid = fork();
        must((int)pid, "fork");
        if (pid == 0)
                other_program(w.target);
        shared->go = true;
        int done = undoing ? pv_undo(s, NULL, &r, &err) : apply(s, &r, &err), status;
        if (done < 0 && err.kind != PV_ERR_CONFLICT)
                die("neither done nor refused", err.msg);
        must((int)waitpid(pid, &status, 0), "wait");
        check_round(&w, done, &r);
        if (!undoing && done < 0 && !r.partly)
                check_staged(s);
        applied += done == 0;
        refused += done < 0;
        partly += r.partly;
        pv_apply_result_fini(&r);
        pv_stage_close(s);
        world_free(&w);
}

int main(int argc, char **argv)
{
        if (argc < 5)
                return 2;
        target_base = argv[1];
        stage_base = argv[2];
        undoing = pv_streq(argv[3], "undo");
        unsigned seconds = (unsigned)atoi(argv[4]), first = argc > 5 ? (unsigned)atoi(argv[5]) : (unsigned)time(NULL);
        time_t end = time(NULL) + seconds;
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
                return 1;
        /* Longer where a busy machine has not let the two meet in that time. */
        for (unsigned i = 0; time(NULL) < end || ((i < ROUNDS || !applied || !refused) && time(NULL) < end + PATIENCE);
             i++) {
                seed = first + i;
                run_round();
        }
        (void)printf("%u done, %u refused, %u of them partly, %u deeds, %u with the displaced\n", applied, refused,
                     partly, shared->ops, displaced);
        return 0;
}

/* Other programs' unwritten data are not to be waited for. */
int syncfs(int fd)
{
        (void)fd;
        return 0;
}
