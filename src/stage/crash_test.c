/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills or fails an apply or an undo at each system call that changes something, in turn, and looks whether the target
 * is wholly before or wholly after, in the process that saw the error and after recovery, and whether everything that
 * was staged still is.
 *
 *   test-stage-crash TARGET_BASE STAGE_BASE apply|undo [all|part|wide|live|live-end][-settled] kill|once|from
 *                    [ERRNO [FIRST [STEP]]]
 *
 * settled, with or without the others: the host has changed what the job changed, and all of it is overwritten, or
 * published merged.
 * wide: besides, more files than one thread takes at a time, on as many threads as there are CPUs.
 * live: the command still runs; live-end: it ends before anybody else comes, and the seal finds what was cut short.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include "base/parallel.h"
#include "base/path.h"
#include "stage/apply.h"
#include "stage/describe.h"
#include "stage/faults.h"

/* A tree by hand: what the target holds, and what a command left in the layer. */
struct entry {
        char type; /* d f l(ink) h(ard link) w(hiteout) o(paque directory) p(ipe) */
        const char *path, *content;
        mode_t mode;
};

static const struct entry target_entries[] = {
        { 'd', "many", NULL, 0755 },      { 'f', "many/1", "one", 0644 },  { 'f', "many/2", "two", 0600 },
        { 'f', "many/3", "three", 0444 }, { 'f', "many/4", "four", 0644 }, { 'f', "many/5", "five", 0644 },
        { 'f', "a", "a", 0644 },          { 'f', "gone", "gone", 0644 },   { 'd', "del", NULL, 0755 },
        { 'd', "del/s", NULL, 0755 },     { 'f', "del/1", "1", 0644 },     { 'f', "del/s/2", "2", 0644 },
        { 'l', "del/l", "1", 0 },         { 'f', "td", "x", 0644 },        { 'd', "dt", NULL, 0755 },
        { 'f', "dt/1", "1", 0644 },       { 'd', "meta", NULL, 0755 },     { 'f', "meta/x", "x", 0644 },
        { 'd', "ro", NULL, 0755 },        { 'f', "ro/1", "1", 0644 },      { 'f', "ro/2", "2", 0644 },
        { 'f', "h1", "h", 0644 },         { 'd', "ro2", NULL, 0755 },      { 'f', "ro2/1", "1", 0644 },
};
static const struct entry staged_entries[] = {
        { 'd', "many", NULL, 0755 },      { 'f', "many/1", "one!", 0644 },
        { 'f', "many/2", "two!", 0600 },  { 'f', "many/3", "three!", 0444 },
        { 'f', "many/4", "four!", 0755 }, { 'f', "many/5", "five!", 0644 },
        { 'f', "many/n", "new", 0644 },   { 'f', "a", "aa", 0600 },
        { 'w', "gone", NULL, 0 },         { 'w', "del", NULL, 0 },
        { 'o', "td", NULL, 0755 },        { 'f', "td/1", "1", 0644 },
        { 'f', "td/2", "2", 0644 },       { 'f', "dt", "file", 0644 },
        { 'd', "meta", NULL, 0700 },      { 'o', "new", NULL, 0755 },
        { 'd', "new/s", NULL, 0711 },     { 'f', "new/1", "1", 0644 },
        { 'f', "new/s/2", "2", 0644 },    { 'l', "new/l", "../a", 0 },
        { 'd', "ro", NULL, 0755 },        { 'f', "ro/1", "1!", 0644 },
        { 'w', "ro/2", NULL, 0 },         { 'f', "h1", "hh", 0644 },
        { 'h', "h2", "h1", 0 },           { 'p', "pipe", NULL, 0600 },
        { 'o', "ro3", NULL, 0755 },       { 'f', "ro3/1", "1", 0644 },
        { 'w', "ro2", NULL, 0 },
};
/* Left out of a selection of a part: new directories must then be made apart from what is in them. */
static const char *const left_out[] = { "new/1", "td/2", "many/2", "a" };

/* Directories nobody may write to, once they are filled. */
static const char *const closed_target[] = { "ro", "ro2" }, *const closed_staged[] = { "ro", "ro3" };

static const char *target_base, *stage_base;
static bool undoing, part, wide, settling, live, ends;
static bool ended; /* live: the command has */

struct world {
        char *target_dir, *target, *stage_dir, *stage;
        struct pv_stage *run; /* live: of the supervisor, whose command goes on */
};

static void die(const char *what, const char *more)
{
        (void)fprintf(stderr, "%s: %s\n", what, more);
        exit(1);
}

static void must(int r, const char *what)
{
        if (r < 0)
                die(what, strerror(errno));
}

static void make_entry(int dir, const struct entry *e, bool old)
{
        struct timespec t[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
        pv_auto_fd fd = -1;
        switch (e->type) {
        case 'd':
        case 'o':
                must(mkdirat(dir, e->path, 0755), e->path);
                break;
        case 'f':
                fd = openat(dir, e->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
                must(fd, e->path);
                must((int)write(fd, e->content, strlen(e->content)), e->path);
                break;
        case 'l':
                must(symlinkat(e->content, dir, e->path), e->path);
                return;
        case 'h':
                must(linkat(dir, e->content, dir, e->path, 0), e->path);
                return;
        case 'w':
                must(mknodat(dir, e->path, S_IFCHR, makedev(0, 0)), e->path);
                return;
        case 'p':
                must(mknodat(dir, e->path, S_IFIFO | 0600, 0), e->path);
                break;
        default:
                break;
        }
        must(fchmodat(dir, e->path, e->mode, 0), e->path);
        if (old)
                must(utimensat(dir, e->path, t, 0), e->path);
        if (e->type == 'o') {
                pv_auto_fd d = openat(dir, e->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                must(fsetxattr(d, "user.overlay.opaque", "y", 1, 0), e->path);
        }
}

static void make_tree(const char *root, const struct entry *e, size_t n, const char *const closed[2], bool old)
{
        pv_auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(dir, root);
        for (size_t i = 0; i < n; i++)
                make_entry(dir, &e[i], old);
        for (size_t i = 0; i < 2; i++)
                must(fchmodat(dir, closed[i], 0555, 0), closed[i]);
}

#define WIDE_FILES 300

/* Many files in two directories: modified, deleted, of another mode; and new ones among them. */
static void make_wide(const char *root, bool staged)
{
        pv_auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(dir, root);
        must(mkdirat(dir, "wide", 0755), "wide");
        must(mkdirat(dir, "wide/deep", 0755), "wide/deep");
        for (int i = 0; i < WIDE_FILES; i++) {
                char path[64], text[64];
                (void)snprintf(path, sizeof path, "wide/%s%d", i % 2 ? "deep/" : "", i);
                (void)snprintf(text, sizeof text, "file %d%s", i, staged && i % 5 ? "!" : "");
                const bool new = i % 11 == 0, gone = i % 7 == 0;
                const struct entry e = { .type = staged && gone && !new ? 'w' : 'f',
                                         .path = path,
                                         .content = text,
                                         .mode = staged &&i % 5 == 0 ? 0600 : 0644 };
                if (staged || !new)
                        make_entry(dir, &e, !staged);
        }
}

static char *temporary(const char *base)
{
        char *dir = pv_strf("%s/pv-crash-XXXXXX", base);
        if (!mkdtemp(dir))
                die("make a directory", base);
        return dir;
}

static void check(int r, const struct pv_err *err, const char *what)
{
        if (r < 0)
                die(what, err->msg);
}

/* What the host does after the job has ended, to paths that the job changed too. */
static const struct entry host_entries[] = {
        { 'f', "many/1", "one of the host", 0644 },
        { 'f', "a", "a of the host", 0640 },
        { 'f', "gone", "changed", 0644 },
        { 'f', "del/1", "changed", 0644 },
        { 'f', "del/host", "new", 0644 },
        { 'f', "td", "changed", 0644 },
        { 'f', "many/n", "new on the host", 0600 },
        { 'f', "ro/1", "changed", 0444 },
        { 'd', "new", NULL, 0700 },
        { 'f', "new/host", "new", 0644 },
};
/* Of these, the ones whose two versions are put together. */
static const char *const merged_paths[] = { "many/1", "a", "ro/1" };

static void host_edits(const struct world *w)
{
        pv_auto_fd dir = open(w->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        must(dir, w->target);
        must(fchmodat(dir, "ro", 0755, 0), "ro");
        for (size_t i = 0; i < sizeof host_entries / sizeof *host_entries; i++) {
                const struct entry *e = &host_entries[i];
                if (e->type == 'f')
                        (void)unlinkat(dir, e->path, 0);
                make_entry(dir, e, true);
        }
        must(fchmodat(dir, "meta", 0711, 0), "meta");
        must(fchmodat(dir, "ro", 0555, 0), "ro");
        must(unlinkat(dir, "many/2", 0), "many/2");
}

static struct world world_make(void)
{
        struct pv_err err = PV_ERR_INIT;
        struct world w = { .target_dir = temporary(target_base), .stage_dir = temporary(stage_base) };
        w.target = pv_path_join(w.target_dir, "target");
        w.stage = pv_path_join(w.stage_dir, "stage");
        must(mkdir(w.target, 0755), w.target);
        make_tree(w.target, target_entries, sizeof target_entries / sizeof *target_entries, closed_target, true);
        if (wide)
                make_wide(w.target, false);
        struct pv_root root = { .kind = PV_ROOT_WORKSPACE, .target = w.target, .view = w.target };
        const struct pv_overlay *o;
        size_t n;
        pv_auto_stage s = NULL;
        check(pv_stage_create(w.stage, &root, 1, &s, &err), &err, "create");
        check(pv_stage_begin_run(s, &o, &n, &err), &err, "begin");
        make_tree(o[0].upper, staged_entries, sizeof staged_entries / sizeof *staged_entries, closed_staged, false);
        if (wide)
                make_wide(o[0].upper, true);
        if (live)
                w.run = pv_steal(&s);
        else
                check(pv_stage_seal(s, NULL, &err), &err, "seal");
        if (settling)
                host_edits(&w);
        return w;
}

static void world_free(struct world *w)
{
        struct pv_err err = PV_ERR_INIT;
        pv_stage_close(w->run);
        check(pv_path_remove_tree(AT_FDCWD, w->target_dir, &err), &err, "remove");
        check(pv_path_remove_tree(AT_FDCWD, w->stage_dir, &err), &err, "remove");
        free(w->target_dir);
        free(w->target);
        free(w->stage_dir);
        free(w->stage);
}

static bool is_left_out(const char *path)
{
        for (size_t i = 0; part && i < sizeof left_out / sizeof *left_out; i++)
                if (pv_streq(path, left_out[i]))
                        return true;
        return false;
}

static int put_together(struct pv_stage *s, struct pv_changes *c, struct pv_merged *merged, struct pv_err *err)
{
        static const char text[] = "both\n";
        for (size_t i = 0; i < sizeof merged_paths / sizeof *merged_paths; i++) {
                struct pv_change *x = pv_changes_find(c, 0, merged_paths[i]);
                if (!x || !(x->flags & PV_CHANGE_SETTLED))
                        continue;
                pv_auto_fd host = pv_change_open_target(s, x, O_RDONLY);
                merged[i].fd = memfd_create("merged", MFD_CLOEXEC);
                if (host < 0 || merged[i].fd < 0 || write(merged[i].fd, text, sizeof text - 1) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "merge %s", x->path);
                if (pv_sha256_fd(host, merged[i].host_sha256, x->path, err) < 0)
                        return -1;
                merged[i].host_metadata = i == 1;
                x->merged = &merged[i];
        }
        return 0;
}

static int stand_still(void *ctx, struct pv_err *err)
{
        (void)ctx;
        (void)err;
        return 0;
}

static void go_on_running(void *ctx)
{
        (void)ctx;
}

static int apply(struct pv_stage *s, struct pv_err *err)
{
        struct pv_apply_result r = { 0 };
        static const struct pv_freezer still = { .freeze = stand_still, .thaw = go_on_running };
        const struct pv_apply_options options = { .freezer = live && !ended ? &still : NULL };
        static const struct pv_settled all = { .path = "", .below = true };
        struct pv_merged merged[sizeof merged_paths / sizeof *merged_paths] = { 0 };
        pv_auto_changes c = NULL;
        if (pv_changes_compute_settled(s, &all, settling, &c, err) < 0)
                return -1;
        if (settling && put_together(s, c, merged, err) < 0)
                return -1;
        pv_auto_free bool *selected = pv_calloc(c->n + 1, sizeof *selected);
        for (size_t i = 0; i < c->n; i++)
                selected[i] = !is_left_out(c->item[i].path);
        int done = pv_apply_close_selection(c, selected, NULL, err);
        if (done == 0)
                done = pv_apply(s, c, selected, &options, &r, err);
        if (done < 0 && r.n_conflicts > 0)
                (void)fprintf(stderr, "%s: %s\n", r.conflicts[0].path, r.conflicts[0].why);
        pv_apply_result_fini(&r);
        for (size_t i = 0; i < sizeof merged_paths / sizeof *merged_paths; i++)
                if (merged[i].fd > 0)
                        (void)close(merged[i].fd);
        return done;
}

static int undo(struct pv_stage *s, struct pv_err *err)
{
        struct pv_apply_result r;
        int done = pv_undo(s, NULL, &r, err);
        pv_apply_result_fini(&r);
        return done;
}

static int act(struct pv_stage *s, bool undo_it, struct pv_err *err)
{
        return undo_it ? undo(s, err) : apply(s, err);
}

/* The stage as text: what is listed, and with what content. */
static char *describe_stage(struct pv_stage *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        pv_auto_str out = { 0 };
        check(pv_changes_compute(s, &c, &err), &err, "list");
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_change *x = &c->item[i];
                char hash[2 * PV_SHA256_SIZE + 1] = "";
                unsigned char sum[PV_SHA256_SIZE];
                pv_auto_fd fd = S_ISREG(x->now.mode) ? pv_change_open_staged(s, x, O_RDONLY) : -1;
                if (fd >= 0 && pv_sha256_fd(fd, sum, x->path, &err) == 0)
                        pv_hex(sum, sizeof sum, hash);
                pv_str_putf(&out, "%c %s %o %u %lld %s%s\n", "AMDTm"[x->kind], x -> path, x -> now.mode, x->now.nlink,
                            S_ISREG(x->now.mode) ? (long long)x->now.mtime.tv_sec : 0, hash,
                            x->flags &PV_CHANGE_SUSPECT ? " suspect" : "");
                const char *why;
                if (settling && !pv_change_check(s, x, &why))
                        pv_str_putf(&out, "  %s\n", why);
        }
        return pv_str_steal(&out);
}

/* As if the root's view were mounted: it shows the host's own directories. */
static struct pv_pathfd view_of(const struct world *w)
{
        return (struct pv_pathfd){ open(w->target, O_PATH | O_DIRECTORY | O_CLOEXEC) };
}

/* The command ends, and its supervisor takes stock, finishing first what was cut short. */
static void end_run(struct world *w)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_pathfd view = view_of(w);
        check(pv_stage_seal(w->run, &view, &err), &err, "seal");
        pv_stage_closep(&w->run);
        ended = true;
}

static struct pv_stage *open_stage(const struct world *w)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_stage *s;
        check(pv_stage_open(w->stage, live && !ended ? PV_STAGE_DECIDE : PV_STAGE_TAKE, &s, &err), &err, "open");
        if (live && !ended) {
                struct pv_pathfd *views = pv_calloc(1, sizeof *views);
                views[0] = view_of(w);
                pv_stage_take_views(s, views);
        }
        return s;
}

struct state {
        char *target, *stage;
};
static struct state before, after; /* of the apply; an undo goes the other way */

static struct state look(const struct world *w, struct pv_stage *s)
{
        return (struct state){ .target = describe_tree(w->target), .stage = describe_stage(s) };
}

static void state_free(struct state *s)
{
        free(s->target);
        free(s->stage);
}

static bool same(const struct state *a, const struct state *b)
{
        return pv_streq(a->target, b->target) && pv_streq(a->stage, b->stage);
}

static unsigned at;
static const char *kind_name;

static void torn(const char *what, const struct state *got)
{
        (void)fprintf(stderr,
                      "%s %s (%s at %u): %s\n--- target\n%s--- before\n%s--- after\n%s"
                      "--- stage\n%s--- before\n%s--- after\n%s",
                      undoing ? "undo" : "apply",
                      live       ? "live"
                      : settling ? "settled"
                      : part     ? "part"
                      : wide     ? "wide"
                                 : "all",
                      kind_name, at, what, got->target, before.target, after.target, got->stage, before.stage,
                      after.stage);
        exit(1);
}

/* Times of staged files differ between worlds; each must only stay what it was. */
static void remember(const struct world *w)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_stage s = open_stage(w);
        before = look(w, s);
        check(apply(s, &err), &err, "apply");
        after = look(w, s);
        check(undo(s, &err), &err, "undo");
        struct state again = look(w, s);
        if (!same(&again, &before))
                torn("undo without a fault", &again);
        state_free(&again);
        if (undoing)
                check(apply(s, &err), &err, "apply again");
}

struct report {
        unsigned count;
        int done;
        char msg[512];
};

/* The process that is struck. */
static void struck(const struct world *w, enum fault_kind kind, int error, struct report *report)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_stage *s = open_stage(w);
        faults_arm(kind, at, error);
        report->done = act(s, undoing, &err);
        report->count = faults_count();
        (void)snprintf(report->msg, sizeof report->msg, "%s", err.msg);
        _exit(0);
}

/* Forward and back once more: nothing may have been lost on the way. */
static void go_on(const struct world *w, struct pv_stage *s, bool is_after)
{
        struct pv_err err = PV_ERR_INIT;
        if (!is_after)
                check(apply(s, &err), &err, "apply after recovery");
        struct state now = look(w, s);
        if (!same(&now, &after))
                torn("applied after recovery", &now);
        state_free(&now);
        check(undo(s, &err), &err, "undo after recovery");
        now = look(w, s);
        if (!same(&now, &before))
                torn("undone after recovery", &now);
        state_free(&now);
}

static void check_no_notice(const struct world *w)
{
        char hint[16];
        pv_auto_free char *journal = pv_path_join(w->stage, "journal");
        if (getxattr(w->target, "user.pvisor.pending", hint, sizeof hint) > 0 || errno != ENODATA)
                die("the target still carries a notice", w->target);
        if (access(journal, F_OK) == 0)
                die("there still is a journal", journal);
}

static void check_recovered(const struct world *w, const struct report *report, bool told)
{
        struct pv_err err = PV_ERR_INIT;
        const char *did;
        pv_auto_stage s = open_stage(w);
        if (told && !pv_streq(report->msg, "") && report->done == 0)
                die("success with an error", report->msg);
        check(pv_apply_recover(s, &did, &err), &err, "recover");
        struct state now = look(w, s);
        bool is_before = same(&now, &before), is_after = same(&now, &after);
        if (!is_before && !is_after)
                torn("after recovery", &now);
        if (told && report->done == 0 && (undoing ? !is_before : !is_after))
                torn("reported as done, but is not", &now);
        state_free(&now);
        if (!told)
                check_no_notice(w); /* one whose removal was made to fail goes with the next batch */
        go_on(w, s, is_after);
        check_no_notice(w);
}

/* What is left beside the target when clearing up fails as well is gone after the recovery. Takes the text. */
static char *without_copies(char *text)
{
        pv_auto_str out = { 0 };
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                if (!strstr(line, "/.pvisor-"))
                        pv_str_putf(&out, "%s\n", line);
        free(text);
        return pv_str_steal(&out);
}

/* One fault. False when the act ended before it came. */
static bool strike(enum fault_kind kind, int error, struct report *report)
{
        ended = false;
        struct world w = world_make();
        remember(&w);
        *report = (struct report){ 0 };
        pid_t pid = fork();
        must((int)pid, "fork");
        if (pid == 0)
                struck(&w, kind, error, report);
        int status = 0;
        must((int)waitpid(pid, &status, 0), "wait");
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (!killed && status != 0)
                die("the struck process died of something else", strerror(0));
        bool came = killed || report->count >= at;
        if (!killed && kind == FAULT_ONCE) {
                /* Without recovery already: an error leaves the target whole, or says that it could not. */
                pv_auto_free char *target = without_copies(describe_tree(w.target));
                if (!pv_streq(target, before.target) && !pv_streq(target, after.target) &&
                    !strstr(report->msg, "could not be taken back"))
                        die("torn, and not said", report->msg);
        }
        if (ends)
                end_run(&w);
        check_recovered(&w, report, !killed);
        state_free(&before);
        state_free(&after);
        world_free(&w);
        return came;
}

int main(int argc, char **argv)
{
        if (argc < 6)
                return 2;
        target_base = argv[1];
        stage_base = argv[2];
        undoing = pv_streq(argv[3], "undo");
        part = pv_streq(argv[4], "part");
        wide = pv_streq(argv[4], "wide");
        if (wide)
                pv_parallel_use_threads();
        settling = strstr(argv[4], "settled") != NULL;
        live = strstr(argv[4], "live") != NULL;
        ends = strstr(argv[4], "live-end") != NULL;
        kind_name = argv[5];
        enum fault_kind kind = pv_streq(argv[5], "kill")   ? FAULT_KILL
                               : pv_streq(argv[5], "once") ? FAULT_ONCE
                                                           : FAULT_FROM;
        int error = argc > 6 ? atoi(argv[6]) : EIO;
        unsigned first = argc > 7 ? (unsigned)atoi(argv[7]) : 1, step = argc > 8 ? (unsigned)atoi(argv[8]) : 1;
        struct report *report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (report == MAP_FAILED)
                return 1;
        for (at = first; strike(kind, error, report); at += step)
                ;
        (void)printf("%u faults\n", at - 1);
        return 0;
}
