/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/path.h"
#include "stage/apply.h"
#include "stage/describe.h"
#include "stage/fixture.h"

/*
 * What is durable is not tested here, and other programs' unwritten data are not to be waited for. But it marks the
 * steps of a batch: the first is after the journal, the second after the publication.
 */
static int die_at_sync;

int syncfs(int fd)
{
        (void)fd;
        if (die_at_sync > 0 && --die_at_sync == 0)
                (void)kill(getpid(), SIGKILL);
        return 0;
}

/* The host opens a file of a new directory as soon as that is published, and changes what is published next. */
static bool host_is_fast;
static int host_fd = -1;

int renameat2(int a, const char *b, int c, const char *d, unsigned flags)
{
        int r = (int)syscall(SYS_renameat2, a, b, c, d, flags);
        if (r == 0 && host_is_fast && pv_streq(d, "n")) {
                host_is_fast = false;
                host_fd = openat(c, "n/f", O_WRONLY | O_APPEND | O_CLOEXEC);
                pv_auto_fd other = openat(c, "z", O_WRONLY | O_TRUNC | O_CLOEXEC);
                assert_int_equal(write(other, "host\n", 5), 5);
        }
        return r;
}

/* A script in the view, and what it means for a target that another script made. */
struct act {
        const char *name, *target, *script;
};

static const struct act acts[] = {
        { "nothing", "echo a >a", "cat a" },
        { "add", "", "echo a >a; mkdir -p d/e; echo x >d/e/f; ln -s b d/l; mkfifo d/p; chmod 750 d" },
        { "modify", "echo a >a; mkdir d; echo b >d/b; chmod 600 d/b", "echo xx >a; echo c >>d/b" },
        { "modify a read-only file", "echo a >a; chmod 444 a", "chmod 644 a; echo b >a; chmod 444 a" },
        { "delete", "echo a >a; mkdir -p d/e; echo b >d/b; ln -s b d/l", "rm a; rm -r d" },
        { "delete and make again", "mkdir -p d/s; echo a >d/a; echo b >d/b; echo c >d/s/c",
          "rm -r d; mkdir d; echo xx >d/a; echo n >d/n" },
        { "make again with another mode", "mkdir d; echo a >d/a", "rm -r d; mkdir -m 700 d; echo b >d/b" },
        { "file to directory", "echo a >a", "rm a; mkdir -p a/c; echo b >a/b; echo d >a/c/d" },
        { "directory to file", "mkdir -p a/c; echo b >a/b; echo d >a/c/d", "rm -r a; echo a >a" },
        { "directory to link", "mkdir -p a/c; echo b >a/b", "rm -r a; ln -s /nowhere a" },
        { "file to link", "echo a >a", "rm a; ln -s b a" },
        { "link to file", "ln -s b a", "rm a; echo a >a" },
        { "link to another", "ln -s b a", "rm a; ln -s c a" },
        { "modes", "echo a >a; mkdir d; touch d/x", "chmod 600 a; chmod 700 d; chmod 711 ." },
        { "attributes", "echo a >a; mkdir d", "setfattr -n user.x -v 1 a; setfattr -n user.y -v 2 d" },
        { "attributes that look like the overlay's", "echo a >a; mkdir d",
          "setfattr -n user.overlay.opaque -v y d; setfattr -n user.overlay.z -v 1 a; mkdir n; setfattr -n "
          "user.overlay.opaque -v x n; echo b >n/b; setfattr -n user.overlay.q -v 3 n/b" },
        { "attributes taken away", "echo a >a; mkdir d; setfattr -n user.x -v 1 a d",
          "setfattr -x user.x a; setfattr -x user.x d" },
        { "an acl", "echo a >a; mkdir d", "setfacl -m u:$(id -u):r a; setfacl -d -m u:$(id -u):rx d; echo b >d/b" },
        { "times", "echo a >a; touch -d 2001-01-01 a", "touch -d 2002-02-02 a; echo b >b; touch -d 2003-03-03 b" },
        { "rename a file", "echo content >a; mkdir d", "mv a d/b" },
        { "rename over another", "echo content >a; echo other >b", "mv a b" },
        { "move a directory", "mkdir -p d/s; echo one >d/a; echo two >d/s/b; ln -s a d/l",
          "cp -a d e; rm -r d; echo more >>e/s/b" },
        { "swap", "echo a >a; echo b >b", "mv a t; mv b a; mv t b" },
        { "a new link to an old file", "echo a >a", "ln a b" },
        { "links among new files", "mkdir d", "echo a >a; ln a d/b; mkdir n; ln a n/c; echo c >c; ln c c2" },
        { "links inside a new directory", "", "mkdir -p n/m; echo a >n/a; ln n/a n/m/b" },
        { "holes", "", "truncate -s 10M h; echo x | dd of=h bs=1 seek=5000000 conv=notrunc 2>/dev/null" },
        { "sparse change", "truncate -s 4M h", "echo x | dd of=h bs=1 seek=2000000 conv=notrunc 2>/dev/null" },
        { "names", "", "touch 'a b' -- -x \"$(printf 'n\\nl')\" \"$(printf '\\377')\" '*'; mkdir a; touch a/z a-b" },
        { "unwritable directories", "mkdir -p d/e f; echo a >d/a; echo b >d/e/b; echo c >f/c; chmod 555 d/e d f",
          "chmod 755 d d/e f; echo x >d/a; rm d/e/b; echo n >d/e/n; rm f/c; chmod 555 d/e d; rmdir f" },
        { "new unwritable directories", "", "mkdir -p d/e; echo a >d/a; echo b >d/e/b; chmod 555 d/e d" },
        { "an unwritable directory moves", "mkdir -p d/e; echo a >d/e/a; chmod 555 d/e",
          "cp -a d/e n; chmod 755 d/e; rm -r d/e" },
        { "deep", "mkdir -p a/b/c/d/e; echo x >a/b/c/d/e/f",
          "echo y >a/b/c/d/e/f; mkdir -p a/b/c/d/e/g/h/i/j; echo z >a/b/c/d/e/g/h/i/j/k" },
        { "setuid and sticky", "mkdir d", "echo x >s; chmod 4755 s; chmod 1777 d; echo y >g; chmod 2755 g" },
        { "a socket and a fifo go", "mkfifo p", "rm p; echo x >p" },
        { "whole directories of files", "mkdir -p d e/s; for i in 1 2 3 4 5 6; do echo $i >d/$i; echo $i >e/$i; done",
          "for i in 1 2 3 4 5; do echo x$i >d/$i; echo y >>e/$i; done; echo n >d/n; rm d/6 e/6; echo z >e/s/z" },
        { "everything at once",
          "mkdir -p a/b c d/e; echo 1 >a/1; echo 2 >a/b/2; echo 3 >c/3; echo 4 >d/e/4; ln -s 1 a/l",
          "rm -r a/b; echo 1x >a/1; rm a/l; mkdir a/l; echo in >a/l/in; rm -r c; ln -s d c; mv d/e/4 d/5; rm -r d/e; "
          "echo e >d/e; mkdir -p n/m; echo q >n/m/q; chmod 700 d" },
};

static const struct fixture_place *place;

static char *describe_target(struct fixture *f)
{
        char *text = describe_tree(f->target);
        assert_non_null(text);
        return text;
}

static void equal(const struct act *a, const char *what, const char *got, const char *want)
{
        if (!pv_streq(got, want))
                fail_msg("%s on %s, %s:\n--- got\n%s--- want\n%s", a->name, place->target, what, got, want);
}

/* A directory made again may be staged as one that hides all, or with a whiteout for each entry: both say the same. */
static char *changes_of(struct fixture *f)
{
        pv_auto_free char *text = fixture_changes(f);
        pv_auto_str out = { 0 };
        for (const char *p = text; *p;) {
                if (strncmp(p, " [hidden]", 9) == 0)
                        p += 9;
                else if (strncmp(p, "opaque ", 7) == 0)
                        p += 7;
                else
                        pv_str_putc(&out, *p++);
        }
        return pv_str_steal(&out);
}

static int apply(struct fixture *f, bool (*pick)(const char *), struct pv_apply_result *result, struct pv_err *err)
{
        pv_auto_changes c = NULL;
        struct pv_apply_options options = { .keep_times = true };
        if (pv_changes_compute(f->stage, &c, err) < 0)
                fail_msg("%s", err->msg);
        pv_auto_free bool *selected = pv_calloc(c->n + 1, sizeof *selected);
        for (size_t i = 0; i < c->n; i++)
                selected[i] = !pick || pick(c->item[i].path);
        assert_int_equal(pv_apply_close_selection(c, selected, NULL, err), 0);
        return pv_apply(f->stage, c, selected, &options, result, err);
}

static void must_apply(struct fixture *f, const struct act *a)
{
        struct pv_apply_result result;
        struct pv_err err = PV_ERR_INIT;
        if (apply(f, NULL, &result, &err) < 0)
                fail_msg("%s: apply: %s (%s: %s)", a->name, err.msg, result.n_conflicts ? result.conflicts[0].path : "",
                         result.n_conflicts ? result.conflicts[0].why : "");
        pv_apply_result_fini(&result);
}

static void must_undo(struct fixture *f, const struct act *a)
{
        struct pv_apply_result result;
        struct pv_err err = PV_ERR_INIT;
        if (pv_undo(f->stage, NULL, &result, &err) < 0)
                fail_msg("%s: undo: %s (%s: %s)", a->name, err.msg, result.n_conflicts ? result.conflicts[0].path : "",
                         result.n_conflicts ? result.conflicts[0].why : "");
        pv_apply_result_fini(&result);
}

/* What the script does directly to the same target. */
static char *directly(const struct act *a)
{
        struct fixture *f = fixture_make_at(place, a->target);
        fixture_host(f, a->script);
        char *text = describe_target(f);
        fixture_host(f, "chmod -R u+rwX .");
        fixture_free(f);
        return text;
}

static void check_act(const struct act *a)
{
        pv_auto_free char *want = directly(a);
        struct fixture *f = fixture_make_at(place, a->target);
        pv_auto_free char *before = describe_target(f);
        fixture_run_and_seal(f, a->script, NULL);
        pv_auto_free char *changes = changes_of(f);
        for (int round = 0; round < 2; round++) {
                must_apply(f, a);
                pv_auto_free char *after = describe_target(f), *left = changes_of(f);
                equal(a, "applied", after, want);
                equal(a, "left after apply", left, "");
                if (!*changes)
                        break;
                must_undo(f, a);
                pv_auto_free char *again = describe_target(f), *staged = changes_of(f);
                equal(a, "undone", again, before);
                equal(a, "staged again", staged, changes);
        }
        fixture_host(f, "chmod -R u+rwX .");
        fixture_free(f);
}

static void test_apply_and_undo(void **state)
{
        /* The notices go where no other test's do. */
        char store[] = "/tmp/pv-apply-test-XXXXXX";
        assert_non_null(mkdtemp(store));
        assert_int_equal(setenv("PVISOR_HOME", store, 1), 0);
        for (place = fixture_next_place(NULL); place; place = fixture_next_place(place))
                for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
                        check_act(&acts[i]);
        struct pv_err err = PV_ERR_INIT;
        pv_auto_fd tmp = open("/tmp", O_PATH | O_DIRECTORY);
        assert_return_code(pv_path_remove_tree(tmp, store + strlen("/tmp/"), &err), 0);
}

/* ---- more than one stage on a target ---- */

/* A second stage on the target of the first, of the same store or another. */
static struct fixture another_stage(struct fixture *f)
{
        struct pv_err err = PV_ERR_INIT;
        struct fixture g = *f;
        struct pv_root root = { .kind = PV_ROOT_WORKSPACE, .target = f->target, .view = f->target };
        g.stage_dir = pv_path_join(f->dir, "stage2");
        assert_int_equal(pv_stage_create(g.stage_dir, &root, 1, &g.stage, &err), 0);
        return g;
}

static void close_another(struct fixture *g)
{
        pv_stage_close(g->stage);
        free(g->stage_dir);
}

/* An apply in a process that dies before it is committed, with the stage's lock given up here. */
static void apply_and_die(struct fixture *f, int at)
{
        struct pv_apply_result result;
        struct pv_err err = PV_ERR_INIT;
        int status;
        pv_stage_close(f->stage);
        f->stage = NULL;
        pid_t pid = fork();
        if (pid == 0) {
                if (pv_stage_open(f->stage_dir, PV_STAGE_TAKE, &f->stage, &err) < 0)
                        _exit(1);
                die_at_sync = at;
                (void)apply(f, NULL, &result, &err);
                _exit(2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
}

static void use_store(struct fixture *f, const char *name)
{
        pv_auto_free char *store = pv_path_join(f->dir, name);
        assert_int_equal(setenv("PVISOR_HOME", store, 1), 0);
}

static const struct act none = { "another stage", "", "" };

static void test_what_another_stage_left_unfinished_is_finished_first(void **state)
{
        struct fixture *f = fixture_make("echo a >a; echo b >b; echo c >c");
        place = fixture_next_place(NULL);
        use_store(f, "store");
        fixture_run_and_seal(f, "echo x >a; echo y >b", NULL);
        struct fixture g = another_stage(f);
        fixture_run_and_seal(&g, "echo z >c", NULL);
        apply_and_die(f, 2);
        must_apply(&g, &none);
        fixture_host(f, "test $(cat a) = x; test $(cat b) = y; test $(cat c) = z");
        pv_auto_free char *journal = pv_path_join(f->stage_dir, "journal");
        assert_int_equal(access(journal, F_OK), -1);
        close_another(&g);
        fixture_free(f);
}

static void test_what_another_store_left_unfinished_is_refused_with_the_way_out(void **state)
{
        struct pv_apply_result result;
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = fixture_make("echo a >a; echo c >c");
        use_store(f, "store");
        fixture_run_and_seal(f, "echo x >a", NULL);
        struct fixture g = another_stage(f);
        fixture_run_and_seal(&g, "echo z >c", NULL);
        apply_and_die(f, 2);
        use_store(f, "other-store");
        assert_int_equal(apply(&g, NULL, &result, &err), -1);
        assert_int_equal(err.kind, PV_ERR_BUSY);
        assert_non_null(strstr(err.hint, f->stage_dir));
        fixture_host(f, "test $(cat c) = c");
        /* A stage that is gone stands in nobody's way. */
        pv_auto_free char *rm = pv_strf("rm -r '%s'", f->stage_dir);
        assert_int_equal(system(rm), 0);
        must_apply(&g, &none);
        fixture_host(f, "test $(cat c) = z; ! getfattr -n user.pvisor.pending . 2>/dev/null");
        close_another(&g);
        fixture_free(f);
}

static void test_an_apply_waits_for_another_to_end(void **state)
{
        struct fixture *f = fixture_make("echo a >a");
        use_store(f, "store");
        fixture_run_and_seal(f, "echo x >a", NULL);
        int status, locked[2];
        char c;
        assert_return_code(pipe(locked), 0);
        pid_t pid = fork();
        if (pid == 0) {
                int fd = open(f->target, O_RDONLY | O_DIRECTORY);
                if (flock(fd, LOCK_EX) < 0 || write(locked[1], "", 1) != 1)
                        _exit(1);
                (void)usleep(300 * 1000);
                fixture_host(f, "test $(cat a) = a");
                _exit(0);
        }
        assert_int_equal(read(locked[0], &c, 1), 1);
        (void)close(locked[0]);
        (void)close(locked[1]);
        must_apply(f, &none);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        fixture_free(f);
}

static void test_a_batch_cut_short_before_it_began_leaves_nothing(void **state)
{
        const char *did;
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = fixture_make("echo a >a");
        use_store(f, "store");
        fixture_run_and_seal(f, "echo x >a", NULL);
        apply_and_die(f, 1);
        assert_int_equal(pv_stage_open(f->stage_dir, PV_STAGE_TAKE, &f->stage, &err), 0);
        assert_int_equal(pv_apply_recover(f->stage, &did, &err), 0);
        assert_non_null(did);
        fixture_host(f, "test $(cat a) = a; test $(ls -A | wc -l) = 1");
        must_apply(f, &none);
        fixture_host(f, "test $(cat a) = x");
        fixture_free(f);
}

/* What it writes when the batch is taken back must not go where nobody looks. */
static void test_a_file_of_a_new_directory_that_the_host_writes_to_stays_with_it(void **state)
{
        for (place = fixture_next_place(NULL); place; place = fixture_next_place(place)) {
                struct pv_apply_result result;
                struct pv_err err = PV_ERR_INIT;
                struct fixture *f = fixture_make_at(place, "echo z >z");
                use_store(f, "store");
                fixture_run_and_seal(f, "mkdir n; echo staged >n/f; echo x >z", NULL);
                host_is_fast = true;
                assert_int_equal(apply(f, NULL, &result, &err), -1);
                assert_int_equal(err.kind, PV_ERR_CONFLICT);
                assert_true(result.partly);
                assert_int_equal(write(host_fd, "late\n", 5), 5);
                pv_fd_closep(&host_fd);
                fixture_host(f, "test \"$(cat n/f)\" = \"$(printf 'staged\\nlate')\"; test $(cat z) = host");
                pv_auto_free char *left = changes_of(f);
                assert_non_null(strstr(left, " z"));
                assert_null(strstr(left, " n/f"));
                pv_apply_result_fini(&result);
                fixture_free(f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_apply_and_undo),
                cmocka_unit_test(test_what_another_stage_left_unfinished_is_finished_first),
                cmocka_unit_test(test_what_another_store_left_unfinished_is_refused_with_the_way_out),
                cmocka_unit_test(test_an_apply_waits_for_another_to_end),
                cmocka_unit_test(test_a_batch_cut_short_before_it_began_leaves_nothing),
                cmocka_unit_test(test_a_file_of_a_new_directory_that_the_host_writes_to_stays_with_it),
        };
        return fixture_main("apply", tests, sizeof tests / sizeof *tests);
}
