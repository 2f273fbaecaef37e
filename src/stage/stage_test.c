/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a stage's directory: made, locked, opened, damaged, frozen, forked, removed. */
#include "base/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/file.h"
#include "base/path.h"
#include "base/process.h"
#include "base/syscall.h"
#include "stage/fixture.h"

static struct pv_err err;

static struct pv_stage *reopen(struct fixture *f, enum pv_stage_lock lock)
{
        struct pv_stage *s = NULL;
        if (pv_stage_open(f->stage_dir, lock, &s, &err) < 0)
                return NULL;
        return s;
}

static void edit_state(struct fixture *f, const char *sed)
{
        pv_auto_free char *script = pv_strf("sed -i '%s' %s/stage.json", sed, f->stage_dir);
        fixture_host(f, script);
}

static void test_a_stage_that_is_taken_refuses_a_second(void **state)
{
        struct fixture *f = fixture_make("");
        assert_null(reopen(f, PV_STAGE_TAKE));
        assert_int_equal(err.kind, PV_ERR_BUSY);
        pv_stage_close(pv_steal(&f->stage));
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        fixture_free(f);
}

static void test_a_running_stage_can_be_looked_at(void **state)
{
        const struct pv_overlay *o = NULL;
        size_t n = 0;
        struct fixture *f = fixture_make("echo a >a");
        assert_return_code(pv_stage_begin_run(f->stage, &o, &n, &err), 0);
        pv_auto_stage look = reopen(f, PV_STAGE_LOOK);
        assert_true(pv_stage_is_running(look));
        fixture_free(f);
}

/* The lock lives as long as a process of the run does, whatever becomes of the supervisor. */
static void test_the_lock_is_held_by_what_was_forked_from_its_holder(void **state)
{
        int release[2];
        char c = 0;
        struct fixture *f = fixture_make("");
        assert_return_code(pipe(release), 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void)close(release[1]);
                _exit(read(release[0], &c, 1) == 0 ? 0 : 1);
        }
        pv_stage_close(pv_steal(&f->stage));
        assert_null(reopen(f, PV_STAGE_TAKE));
        assert_int_equal(err.kind, PV_ERR_BUSY);
        (void)close(release[0]);
        (void)close(release[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        fixture_free(f);
}

static pid_t start_init(const struct fixture *f)
{
        struct pv_process first;
        pid_t pid = fork();
        if (pid == 0) {
                (void)pv_sys_close_range(3, ~0U, 0);
                (void)pause();
                _exit(1);
        }
        pv_process_of(pid, &first);
        assert_int_equal(first.pid, pid);
        pv_stage_note_init(f->stage, &first);
        return pid;
}

static void end_process(pid_t pid)
{
        assert_return_code(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A child that holds the stage's lock for as long as it lives. */
static pid_t start_holder(void)
{
        pid_t pid = fork();
        if (pid == 0) {
                (void)pause();
                _exit(1);
        }
        return pid;
}

/* One that holds it for another moment, as what is left of a run does; it may kill a process. */
static pid_t start_rest(pid_t to_kill)
{
        pid_t pid = fork();
        if (pid == 0) {
                (void)usleep(100000);
                if (to_kill)
                        (void)kill(to_kill, SIGKILL);
                _exit(0);
        }
        return pid;
}

static void test_while_a_command_lives_its_stage_is_in_use_at_once(void **state)
{
        struct fixture *f = fixture_make("");
        pid_t init = start_init(f), holder = start_holder();
        pv_stage_close(pv_steal(&f->stage));
        assert_null(reopen(f, PV_STAGE_TAKE));
        assert_int_equal(err.kind, PV_ERR_BUSY);
        end_process(holder);
        end_process(init);
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        fixture_free(f);
}

static void test_the_rest_of_a_run_that_was_killed_is_waited_for(void **state)
{
        struct fixture *f = fixture_make("");
        end_process(start_init(f));
        pid_t rest = start_rest(0);
        pv_stage_close(pv_steal(&f->stage));
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        assert_int_equal(waitpid(rest, NULL, 0), rest);
        fixture_free(f);
}

/* The run has told its end; its supervisor clears up, and its sandbox's first process dissolves the mounts. */
static void test_the_rest_of_a_run_that_is_over_is_waited_for(void **state)
{
        struct fixture *f = fixture_make("");
        pid_t init = start_init(f), rest = start_rest(init);
        pv_stage_note_over(f->stage);
        pv_stage_close(pv_steal(&f->stage));
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        assert_int_equal(waitpid(rest, NULL, 0), rest);
        assert_int_equal(waitpid(init, NULL, 0), init);
        /* From now on it is somebody's who decides, and no run's. */
        pid_t holder = start_holder();
        pv_stage_close(pv_steal(&f->stage));
        assert_null(reopen(f, PV_STAGE_TAKE));
        assert_int_equal(err.kind, PV_ERR_BUSY);
        end_process(holder);
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        fixture_free(f);
}

static const struct {
        const char *sed, *says;
} damages[] = {
        { "s/\"version\": 1/\"version\": 2/", "newer pVisor" },
        { "s/\"version\": 1/\"version\": \"1\"/", "\"version\"" },
        { "s/\"runs\": .*/\"runs\": -1,/", "\"runs\"" },
        { "s/\"owner\": null/\"owner\": \"relative\"/", "absolute" },
        { "s/\"owner\": null/\"owner\": \"\\/nowhere\"/", "none of this stage on top" },
        { "s/\"number\": 0/\"number\": 7/", "layers/0007" },
        { "s/\"number\": 0/\"number\": -1/", "\"number\"" },
        { "s/\"kind\": \"workspace\"/\"kind\": \"other\"/", "\"kind\"" },
        { "s/\"id\": \"..../\"id\": \"\\/..\\//", "\"id\"" },
        { "/\"layers\"/,$d", "stage.json" },
        { "1,$d", "stage.json" },
};

static void test_a_damaged_or_newer_stage_is_refused_by_name(void **state)
{
        for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
                struct fixture *f = fixture_make("");
                pv_stage_close(pv_steal(&f->stage));
                edit_state(f, damages[i].sed);
                assert_null(reopen(f, PV_STAGE_TAKE));
                if (err.kind != PV_ERR_INPUT || !strstr(err.msg, damages[i].says) || !strstr(err.msg, f->stage_dir))
                        fail_msg("%s: %d %s", damages[i].sed, err.kind, err.msg);
                fixture_free(f);
        }
}

static void test_a_stage_needs_an_empty_directory_outside_of_its_roots(void **state)
{
        struct fixture *f = fixture_make("mkdir in");
        pv_auto_free char *inside = pv_path_join(f->target, "in/stage"), *full = pv_path_join(f->dir, "full");
        struct pv_root root = { .target = f->target, .view = f->target };
        struct pv_root twice[2] = { root, { .target = inside, .view = inside } };
        pv_auto_stage s = NULL;
        assert_return_code(pv_path_make_dirs(full, 0700, &err), 0);
        assert_int_equal(pv_stage_create(inside, &root, 1, &s, &err), -1);
        assert_int_equal(err.kind, PV_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.hint, "--stage DIR"));
        assert_int_equal(pv_stage_create(full, twice, 2, &s, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        pv_auto_free char *foreign = pv_path_join(full, "foreign");
        assert_return_code(pv_path_make_dirs(foreign, 0700, &err), 0);
        assert_int_equal(pv_stage_create(full, &root, 1, &s, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        assert_int_equal(pv_stage_create(f->stage_dir, &root, 1, &s, &err), -1);
        assert_int_equal(err.kind, PV_ERR_BUSY);
        pv_stage_close(pv_steal(&f->stage));
        assert_int_equal(pv_stage_create(f->stage_dir, &root, 1, &s, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        fixture_free(f);
}

static void test_the_view_of_the_root_looks_like_the_target(void **state)
{
        struct fixture *f = fixture_make("chmod 2750 .; setfattr -n user.x -v 1 .; touch -d 2001-01-01 .");
        fixture_run_and_seal(
                f, "test $(stat -c %a-%Y .) = 2750-$(date -d 2001-01-01 +%s) && getfattr -n user.x . >/dev/null", NULL);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "");
        fixture_free(f);
}

static void test_a_target_may_have_many_attributes(void **state)
{
        /* Names of more than a page's quarter: ext4 keeps all of an inode's in one block. */
        struct fixture *f = fixture_make("n=$(printf %0200d 0); for i in 1 2 3 4 5 6 7; do "
                                         "setfattr -n user.$i$n -v $i .; done");
        fixture_run_and_seal(f, "test $(getfattr . | grep -c '^user') = 7", NULL);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "");
        fixture_free(f);
}

static void test_a_vanished_target_leaves_the_stage_to_be_dropped(void **state)
{
        pv_auto_changes c = NULL;
        struct fixture *f = fixture_make("echo a >a");
        fixture_run(f, "echo b >b");
        pv_stage_close(pv_steal(&f->stage));
        fixture_host(f, "rm a; rmdir ../target");
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        assert_int_equal(pv_changes_compute(f->stage, &c, &err), -1);
        assert_non_null(strstr(err.msg, f->target));
        assert_return_code(pv_stage_remove(f->stage, &err), 0);
        assert_int_equal(access(f->stage_dir, F_OK), -1);
        fixture_free(f);
}

static void test_a_checkpoint_freezes_and_the_run_goes_on(void **state)
{
        pv_auto_strv names = { 0 };
        struct fixture *f = fixture_make("echo a >a; mkdir d; echo b >d/b");
        fixture_run_and_seal(f, "echo x >>a; echo n >d/n; rm d/b", NULL);
        assert_return_code(pv_stage_checkpoint(f->stage, "one", &err), 0);
        assert_int_equal(pv_stage_checkpoint(f->stage, "one", &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        fixture_run_and_seal(f, "test -e d/n && test ! -e d/b && echo y >>a; rm -r d; mkdir d; echo m >m", NULL);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "M a\nD d/b [hidden]\nA m\n");
        assert_return_code(pv_stage_checkpoints(f->stage, &names, &err), 0);
        assert_int_equal(names.n, 1);
        assert_string_equal(names.v[0], "one");
        pv_stage_close(pv_steal(&f->stage));
        f->stage = reopen(f, PV_STAGE_TAKE);
        pv_auto_free char *again = fixture_changes(f);
        assert_string_equal(again, changes);
        fixture_free(f);
}

static void swap_stages(struct fixture *f, struct pv_stage *other)
{
        pv_stage_close(f->stage);
        f->stage = other;
        free(f->stage_dir);
        f->stage_dir = pv_strdup(pv_stage_dir(other));
}

static void test_a_fork_stands_on_its_parent_and_goes_its_own_way(void **state)
{
        struct fixture *f = fixture_make("echo a >a; echo b >b");
        struct pv_stage *child = NULL;
        pv_auto_free char *dir = pv_path_join(f->dir, "child"), *parent_dir = pv_strdup(f->stage_dir);
        fixture_run_and_seal(f, "echo x >>a", NULL);
        assert_return_code(pv_stage_checkpoint(f->stage, "one", &err), 0);
        fixture_run_and_seal(f, "echo later >later", NULL);
        fixture_host(f, "echo host >>a");
        assert_return_code(pv_stage_fork(f->stage, "one", dir, &child, &err), 0);

        /* The parent cannot go, and takes nothing out of the layer it shares. */
        assert_int_equal(pv_stage_remove(f->stage, &err), -1);
        assert_int_equal(err.kind, PV_ERR_BUSY);
        pv_auto_changes c = NULL;
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        assert_int_equal(c->n, 2);
        assert_true(c->item[0].layer_shared);
        assert_false(c->item[1].layer_shared);
        assert_return_code(pv_changes_forget(f->stage, c, (bool[]){ true, false }, PV_CHANGES_APPLIED, &err), 0);
        pv_auto_free char *parents = fixture_changes(f);
        assert_string_equal(parents, "A later\n");

        swap_stages(f, child);
        fixture_run_and_seal(f, "grep -q x a && test ! -e later && echo y >>b", NULL);
        pv_auto_free char *childs = fixture_changes(f);
        assert_string_equal(childs, "M a\nM b\n");
        pv_auto_changes d = NULL;
        const char *why = NULL;
        assert_return_code(pv_changes_compute(f->stage, &d, &err), 0);
        assert_true(d->item[0].layer_shared);
        assert_false(pv_change_check(f->stage, &d->item[0], &why)); /* the host's edit came before the fork */
        assert_true(pv_change_check(f->stage, &d->item[1], &why));

        assert_return_code(pv_stage_remove(f->stage, &err), 0);
        struct pv_stage *parent = NULL;
        assert_return_code(pv_stage_open(parent_dir, PV_STAGE_TAKE, &parent, &err), 0);
        swap_stages(f, parent);
        assert_return_code(pv_stage_remove(f->stage, &err), 0);
        fixture_free(f);
}

static void test_a_fork_of_now_freezes_the_parent(void **state)
{
        struct fixture *f = fixture_make("echo a >a");
        struct pv_stage *child = NULL;
        pv_auto_free char *dir = pv_path_join(f->dir, "child"), *grand = pv_path_join(f->dir, "grandchild");
        fixture_run_and_seal(f, "echo x >>a", NULL);
        assert_return_code(pv_stage_fork(f->stage, NULL, dir, &child, &err), 0);
        pv_auto_stage grandchild = NULL;
        assert_return_code(pv_stage_fork(child, NULL, grand, &grandchild, &err), 0);
        assert_int_equal(pv_stage_remove(child, &err), -1);
        fixture_run_and_seal(f, "echo parent >>a", NULL);
        swap_stages(f, child);
        pv_auto_free char *seen = fixture_look(f, "cat a");
        assert_string_equal(seen, "a\nx\n");
        fixture_free(f);
}

static void test_a_missing_layer_of_the_parent_is_named(void **state)
{
        struct fixture *f = fixture_make("echo a >a");
        struct pv_stage *child = NULL;
        pv_auto_free char *dir = pv_path_join(f->dir, "child"),
                          *script = pv_strf("chmod -R u+rwx %s; rm -r %s", f->stage_dir, f->stage_dir);
        fixture_run_and_seal(f, "echo x >>a", NULL);
        assert_return_code(pv_stage_fork(f->stage, NULL, dir, &child, &err), 0);
        pv_stage_close(child);
        fixture_host(f, script);
        assert_int_equal(pv_stage_open(dir, PV_STAGE_TAKE, &child, &err), -1);
        assert_int_equal(err.kind, PV_ERR_INPUT);
        assert_non_null(strstr(err.msg, "layers/0000"));
        fixture_free(f);
}

static void test_size_and_removal_cope_with_what_an_agent_leaves(void **state)
{
        uint64_t bytes = 0;
        struct fixture *f = fixture_make("");
        fixture_run_and_seal(
                f,
                "head -c 1048576 /dev/urandom >big; ln big again; mkdir -p closed/in; chmod 0 closed/in closed; "
                "python3 -c 'import os\nfor i in range(3000): os.mkdir(\"deeper\"); os.chdir(\"deeper\")'",
                NULL);
        assert_return_code(pv_stage_size(f->stage, &bytes, &err), 0);
        assert_true(bytes >= 1048576 && bytes < 16 * 1048576);
        if (pv_stage_remove(f->stage, &err) < 0)
                fail_msg("%s", err.msg);
        assert_int_equal(access(f->stage_dir, F_OK), -1);
        fixture_free(f);
}

static void test_an_interrupted_removal_can_only_be_ended(void **state)
{
        struct fixture *f = fixture_make("");
        pv_stage_close(pv_steal(&f->stage));
        pv_auto_free char *script =
                pv_strf("rm -r %s/roots; cd %s; mv stage.json stage.unfinished", f->stage_dir, f->stage_dir);
        fixture_host(f, script);
        assert_null(reopen(f, PV_STAGE_LOOK));
        assert_int_equal(err.kind, PV_ERR_INPUT);
        f->stage = reopen(f, PV_STAGE_TAKE);
        assert_non_null(f->stage);
        const struct pv_overlay *o = NULL;
        size_t n = 0;
        assert_int_equal(pv_stage_begin_run(f->stage, &o, &n, &err), -1);
        assert_return_code(pv_stage_remove(f->stage, &err), 0);
        fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_stage_that_is_taken_refuses_a_second),
                cmocka_unit_test(test_a_running_stage_can_be_looked_at),
                cmocka_unit_test(test_the_lock_is_held_by_what_was_forked_from_its_holder),
                cmocka_unit_test(test_while_a_command_lives_its_stage_is_in_use_at_once),
                cmocka_unit_test(test_the_rest_of_a_run_that_was_killed_is_waited_for),
                cmocka_unit_test(test_the_rest_of_a_run_that_is_over_is_waited_for),
                cmocka_unit_test(test_a_damaged_or_newer_stage_is_refused_by_name),
                cmocka_unit_test(test_a_stage_needs_an_empty_directory_outside_of_its_roots),
                cmocka_unit_test(test_the_view_of_the_root_looks_like_the_target),
                cmocka_unit_test(test_a_target_may_have_many_attributes),
                cmocka_unit_test(test_a_vanished_target_leaves_the_stage_to_be_dropped),
                cmocka_unit_test(test_a_checkpoint_freezes_and_the_run_goes_on),
                cmocka_unit_test(test_a_fork_stands_on_its_parent_and_goes_its_own_way),
                cmocka_unit_test(test_a_fork_of_now_freezes_the_parent),
                cmocka_unit_test(test_a_missing_layer_of_the_parent_is_named),
                cmocka_unit_test(test_size_and_removal_cope_with_what_an_agent_leaves),
                cmocka_unit_test(test_an_interrupted_removal_can_only_be_ended),
        };
        return fixture_main("stage", tests, sizeof tests / sizeof *tests);
}
