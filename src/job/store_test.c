/* SPDX-License-Identifier: Apache-2.0 */
#include "job/store.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/json.h"
#include "base/process.h"
#include "base/test.h"
#include "job/store_internal.h"
#include "job/test_store.h"

#define OK(call) assert_int_equal((call), 0)

static struct pv_live_job make_with(const char *workspace, const char *name, pid_t init)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_live_job live = PV_LIVE_JOB_INIT;
        const struct pv_job_birth birth = { .plan = test_plan(workspace), .name = name, .init = init };
        if (pv_job_create(&birth, &live, &err) < 0)
                fail_msg("%s", err.msg);
        return live;
}

static struct pv_live_job make(const char *workspace, const char *name)
{
        return make_with(workspace, name, 0);
}

/* Made, ended with this code, its supervisor gone. The id is copied out. */
static void make_ended(const char *workspace, const char *name, int code, char id[PV_JOB_ID_TEXT])
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make(workspace, name);
        const struct pv_job_end end = {
                .state = PV_JOB_ENDED, .end = "exited", .exit_code = code, .changes = 3, .pending = 2
        };
        OK(pv_job_started(live.job, &err));
        OK(pv_job_end(&live, &end, &err));
        if (id)
                strcpy(id, live.job->id);
}

static struct pv_job *select_job(const char *selector, const char *workspace, struct pv_err *err)
{
        struct pv_job *job = NULL;
        pv_err_clear(err);
        return pv_job_select(selector, workspace, &job, err) < 0 ? NULL : job;
}

static void assert_selects(const char *selector, const char *workspace, const char *id)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_job job = select_job(selector, workspace, &err);
        if (!job)
                fail_msg("%s: %s", selector ? selector : "(none)", err.msg);
        assert_string_equal(job->id, id);
}

static void assert_refused(const char *selector, const char *workspace, enum pv_err_kind kind, const char *text)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_job job = select_job(selector, workspace, &err);
        assert_null(job);
        assert_int_equal(err.kind, kind);
        if (!strstr(err.msg, text))
                fail_msg("\"%s\" does not say \"%s\"", err.msg, text);
}

/* Replaces a file of a job. */
static void put_file(const struct pv_job *job, const char *name, const char *text)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_fd dir = open(job->dir, O_RDONLY | O_DIRECTORY);
        OK(pv_file_write_at(dir, name, text, strlen(text), 0600, PV_FILE_REPLACE, &err));
}

static void a_job_is_private_and_whole(void **state)
{
        struct stat st;
        pv_auto_live_job live = make("a", "fix");
        pv_auto_free char *request = pv_path_join(live.job->dir, PV_JOB_REQUEST);
        pv_auto_free char *events = pv_path_join(live.job->dir, PV_JOB_EVENTS);
        pv_auto_free char *stage = pv_path_join(live.job->dir, PV_JOB_STAGE);
        OK(stat(live.job->dir, &st));
        assert_int_equal(st.st_mode & 07777, 0700);
        OK(stat(request, &st));
        assert_int_equal(st.st_mode & 07777, 0600);
        OK(stat(events, &st));
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_string_equal(live.job->stage_dir, stage);
        assert_true(pv_job_is_id(live.job->id));
        assert_int_equal(fcntl(live.lock, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static void values_of_variables_are_not_written(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make("a", NULL);
        pv_auto_fd dir = pv_job_open_dir(live.job, &err);
        pv_auto_free char *text = NULL;
        size_t n = 0;
        OK(pv_file_read_at(dir, PV_JOB_REQUEST, PV_JOB_REQUEST_MAX, &text, &n, &err));
        assert_non_null(strstr(text, "TOKEN"));
        assert_null(strstr(text, "hunter2"));
}

static void the_plan_comes_back(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make("a", NULL);
        pv_auto_plan p = NULL;
        OK(pv_job_plan(live.job, &p, &err));
        assert_string_equal(p->argv[1], "a b");
        assert_null(p->argv[2]);
        assert_string_equal(p->workspace, "/work/a");
        assert_int_equal(p->filesystem, PV_FS_SANDBOX);
        assert_int_equal(p->net, PV_NET_DENY_ALL);
        assert_int_equal(p->home_mode, PV_HOME_COW);
        assert_int_equal(p->limits.memory_bytes, 1 << 20);
        assert_int_equal(p->n_roots, 1);
        assert_string_equal(p->roots[0].target, "/work/a");
        assert_true(p->required[PV_DIM_NETWORK]);
        assert_false(p->required[PV_DIM_READS]);
        assert_string_equal(p->env.v[0], "TOKEN"); /* the name alone */
}

static void the_lock_tells_running_from_lost(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_live_job live = make("a", NULL);
        pv_auto_job running = select_job("last", "/work/a", &err);
        assert_int_equal(running->state, PV_JOB_RUNNING);
        pv_live_job_fini(&live); /* as a kill would: nothing is written */
        pv_auto_job lost = select_job("last", "/work/a", &err);
        assert_int_equal(lost->state, PV_JOB_LOST);
        assert_int_equal(lost->exit_code, -1);
        assert_int_equal(lost->changes, -1);
}

/* The sandbox may write for a moment after its supervisor's death; of what never ends nobody says that it is lost. */
static void a_job_is_not_lost_before_its_sandbox_is_dead(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_process first;
        pid_t pid = fork();
        if (pid == 0) {
                (void)poll(NULL, 0, 200);
                _exit(0);
        }
        struct pv_live_job live = make_with("a", NULL, pid);
        pv_process_of(pid, &first);
        pv_live_job_fini(&live);
        pv_auto_job lost = select_job("last", "/work/a", &err);
        assert_int_equal(lost->state, PV_JOB_LOST);
        assert_int_equal(pv_process_look(&first), PV_PROCESS_GONE);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A child that was just forked holds its parent's lock until it has closed it: that makes nobody run. */
static void a_job_is_not_running_because_a_child_has_its_lock(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        int status, told[2];
        OK(pipe(told));
        pid_t pid = fork();
        if (pid == 0) { /* the supervisor, which dies with a child that dies a moment later */
                struct pv_live_job live = make("a", NULL);
                pid_t child = fork();
                if (child == 0) {
                        (void)poll(NULL, 0, 200);
                        _exit(0);
                }
                bool sent = write(told[1], live.job->id, PV_JOB_ID_TEXT) == PV_JOB_ID_TEXT;
                _exit(child > 0 && live.lock >= 0 && sent ? 0 : 1);
        }
        char id[PV_JOB_ID_TEXT];
        assert_int_equal(read(told[0], id, sizeof id), sizeof id);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        pv_auto_job lost = select_job(id, "/work/a", &err);
        assert_int_equal(lost->state, PV_JOB_LOST);
        (void)close(told[0]);
        (void)close(told[1]);
}

/*
 * btrfs writes nothing over what is there without room for it elsewhere: then times and mode of the lock tell the
 * end.
 */
static void the_end_is_told_without_any_room(void **state)
{
        static const struct pv_job_end ends[] = {
                { .state = PV_JOB_ENDED, .end = "exited", .exit_code = 0 },
                { .state = PV_JOB_ENDED, .end = "signaled", .exit_code = 137 },
                { .state = PV_JOB_ENDED, .end = "stage-size", .exit_code = 124 },
                { .state = PV_JOB_FAILED, .exit_code = 125 },
        };
        struct pv_err err = PV_ERR_INIT;
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
                pv_auto_live_job live = make("a", NULL);
                pv_auto_free char *path = pv_path_join(live.job->dir, PV_JOB_LOCK);
                pv_auto_fd unwritable = open(path, O_RDONLY | O_CLOEXEC);
                pv_job_conclude(&live, &ends[i]);
                OK(pv_job_lock_note_end(unwritable, live.job));
                pv_fd_closep(&live.lock);
                pv_auto_job job = select_job(live.job->id, "/work/a", &err);
                assert_int_equal(job->state, ends[i].state);
                assert_int_equal(job->exit_code, ends[i].exit_code);
                if (ends[i].end)
                        assert_string_equal(job->end, ends[i].end);
                else
                        assert_null(job->end);
                assert_int_equal(job->ended.tv_sec, live.job->ended.tv_sec);
                assert_int_equal(job->ended.tv_nsec, live.job->ended.tv_nsec / 1000000 * 1000000);
        }
}

static void the_end_is_read_back(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        make_ended("a", NULL, 42, NULL);
        pv_auto_job job = select_job("last", "/work/a", &err);
        assert_int_equal(job->state, PV_JOB_ENDED);
        assert_int_equal(job->exit_code, 42);
        assert_string_equal(job->end, "exited");
        assert_int_equal(job->changes, 3);
        assert_true(job->ended.tv_sec >= job->started.tv_sec);
}

static void a_failed_start_keeps_its_reason(void **state)
{
        struct pv_err err = PV_ERR_INIT, why = PV_ERR_INIT;
        char id[PV_JOB_ID_TEXT];
        {
                pv_auto_live_job live = make("a", NULL);
                memcpy(id, live.job->id, sizeof id);
                pv_err_set(&why, PV_ERR_UNSUPPORTED, 0, "network: \xff cannot be enforced");
                const struct pv_job_end end = {
                        .state = PV_JOB_FAILED, .exit_code = 5, .changes = -1, .pending = -1, .failure = &why
                };
                OK(pv_job_end(&live, &end, &err));
        }
        pv_auto_job job = select_job(id, "/work/a", &err);
        assert_int_equal(job->state, PV_JOB_FAILED);
        assert_string_equal(job->failure, why.msg);
        assert_null(job->end);
}

static void the_newest_is_one_that_started(void **state)
{
        struct pv_err err = PV_ERR_INIT, why = PV_ERR_INIT;
        char started[PV_JOB_ID_TEXT], id[PV_JOB_ID_TEXT];
        make_ended("a", NULL, 0, started);
        pv_auto_live_job live = make("a", NULL);
        memcpy(id, live.job->id, sizeof id);
        assert_selects("last", "/work/a", started); /* it may fail yet */
        pv_err_set(&why, PV_ERR_UNSUPPORTED, 0, "refused");
        const struct pv_job_end end = { .state = PV_JOB_FAILED, .exit_code = 5, .failure = &why };
        OK(pv_job_end(&live, &end, &err));
        assert_selects("last", "/work/a", started);
        assert_selects(id, "/work/a", id);
        pv_auto_live_job next = make("a", NULL);
        OK(pv_job_started(next.job, &err));
        assert_selects("last", "/work/a", next.job->id);
}

static void the_supervisor_is_found_by_its_start_time(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pid_t pid = 0;
        pv_auto_fd pidfd = -1;
        pv_auto_live_job live = make("a", NULL);
        OK(pv_job_open_supervisor(live.job, &pid, &pidfd, &err));
        assert_int_equal(pid, getpid());
        /* The same pid with another start time is another process. */
        char text[2 * PV_PROCESS_TEXT];
        struct pv_process self;
        pv_process_of(getpid(), &self);
        self.start++;
        (void)pv_process_format(&self, text + pv_process_format(&self, text));
        pv_auto_free char *path = pv_path_join(live.job->dir, PV_JOB_LOCK);
        pv_auto_fd fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        pv_auto_fd other = -1;
        assert_int_equal(pv_job_open_supervisor(live.job, &pid, &other, &err), -1);
        assert_int_equal(err.kind, PV_ERR_SYS); /* somebody holds the lock, and goes on to */
        assert_int_equal(other, -1);
        pv_fd_closep(&live.lock);
        assert_int_equal(pv_job_open_supervisor(live.job, &pid, &other, &err), -1);
        assert_int_equal(err.kind, PV_ERR_NO_JOB);
}

/* The supervisor is dead, and what it forked a moment ago has not closed the lock yet. */
static void a_supervisor_that_has_just_died_is_none(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pid_t pid = 0;
        pv_auto_fd pidfd = -1;
        pv_auto_live_job live = make("a", NULL);
        char text[2 * PV_PROCESS_TEXT];
        struct pv_process gone;
        pv_process_of(getpid(), &gone);
        gone.start++;
        (void)pv_process_format(&gone, text + pv_process_format(&gone, text));
        assert_int_equal(pwrite(live.lock, text, strlen(text), 0), strlen(text));
        pid_t child = fork();
        if (child == 0) {
                (void)usleep(50000);
                _exit(0);
        }
        pv_fd_closep(&live.lock);
        assert_int_equal(pv_job_open_supervisor(live.job, &pid, &pidfd, &err), -1);
        assert_int_equal(err.kind, PV_ERR_NO_JOB);
        assert_int_equal(waitpid(child, NULL, 0), child);
}

static void jobs_are_selected_by_what_names_them(void **state)
{
        char a[PV_JOB_ID_TEXT], b[PV_JOB_ID_TEXT];
        make_ended("a", "fix", 0, a);
        make_ended("b", NULL, 0, b);
        assert_selects(NULL, "/work/a", a);
        assert_selects("last", "/work/b", b);
        assert_selects(a, "/work/b", a);
        assert_selects("fix", "/work/b", a); /* the only one, though of another workspace */
        assert_selects(a + strlen(a) - 4, "/work/b", a);
        assert_selects("last", "/work/a/below", a);
        pv_auto_free char *stage = pv_strf("%s/jobs/%s/stage", (const char *)*state, b);
        OK(mkdir(stage, 0700));
        assert_selects(stage, "/work/a", b);
}

static void a_name_means_this_workspace_first(void **state)
{
        char older[PV_JOB_ID_TEXT], newer[PV_JOB_ID_TEXT];
        make_ended("a", "fix", 0, older);
        make_ended("b", "fix", 0, newer);
        assert_selects("fix", "/work/a", older);
        assert_selects("fix", "/work/b", newer);
        assert_refused("fix", "/work/c", PV_ERR_USAGE, "ambiguous");
}

static void what_is_not_there_is_no_job(void **state)
{
        assert_refused("last", "/work/a", PV_ERR_NO_JOB, "none was run in /work/a"); /* no store at all */
        make_ended("a", NULL, 0, NULL);
        assert_refused("nope", "/work/a", PV_ERR_NO_JOB, "nope");
        assert_refused("run-20200101-000000-0000", "/work/a", PV_ERR_NO_JOB, "run-20200101");
        assert_refused("/tmp", "/work/a", PV_ERR_NO_JOB, "/tmp");
        assert_refused("", "/work/a", PV_ERR_USAGE, "empty");
        assert_refused("last", "/work/b", PV_ERR_NO_JOB, "/work/b");
}

static void a_prefix_of_several_is_ambiguous(void **state)
{
        make_ended("a", NULL, 0, NULL);
        make_ended("a", NULL, 0, NULL);
        assert_refused("run-2", "/work/a", PV_ERR_USAGE, "ambiguous");
}

static void last_goes_back_when_the_newest_is_gone(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        char first[PV_JOB_ID_TEXT], second[PV_JOB_ID_TEXT];
        make_ended("a", NULL, 0, first);
        make_ended("a", NULL, 0, second);
        assert_selects("last", "/work/a", second);
        pv_auto_free char *dir = pv_strf("%s/jobs/%s", (const char *)*state, second);
        OK(pv_path_remove_tree(AT_FDCWD, dir, &err));
        assert_selects("last", "/work/a", first);
}

static void damage_is_named_and_hides_nothing(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        static const struct {
                const char *file, *text, *says;
        } cases[] = {
                { PV_JOB_REQUEST, "", "request.json:" },
                { PV_JOB_REQUEST, "{\"format\": 1, \"created_ns\"", "request.json:" },
                { PV_JOB_REQUEST, "[]", "not an object" },
                { PV_JOB_REQUEST, "{\"format\": 2}", "newer pvisor (format 2" },
                { PV_JOB_REQUEST, "{\"format\": 1, \"created_ns\": 5, \"workspace\": \"rel\"}", "absolute" },
                { PV_JOB_REQUEST, "{\"format\": 1, \"created_ns\": 5, \"workspace\": 7}", "workspace" },
                { PV_JOB_REQUEST, "{\"format\": 1, \"created_ns\": 5, \"workspace\": \"/w\", \"name\": \"a/b\"}",
                  "name" },
                { PV_JOB_STATE, "{", "state.json:" },
                { PV_JOB_STATE, "{\"format\": 9}", "newer pvisor (format 9" },
                { PV_JOB_STATE, "{\"format\": 1, \"state\": \"odd\"}", "odd" },
        };
        const size_t n = sizeof cases / sizeof *cases;
        for (size_t i = 0; i < n; i++) {
                pv_auto_live_job live = make("a", NULL);
                OK(pv_job_started(live.job, &err));
                put_file(live.job, cases[i].file, cases[i].text);
                assert_refused(live.job->id, "/work/a", PV_ERR_INPUT, cases[i].says);
                assert_refused("last", "/work/a", PV_ERR_INPUT, live.job->id);
                assert_refused(live.job->id + strlen(live.job->id) - 4, "/work/b", PV_ERR_INPUT, cases[i].says);
        }
        make_ended("a", NULL, 0, NULL);
        struct pv_job **jobs = NULL;
        size_t found = 0, damaged = 0;
        OK(pv_job_list(&jobs, &found, &damaged, &err));
        assert_int_equal(found, 1);
        assert_int_equal(damaged, n);
        pv_job_list_free(jobs, found);
}

static void a_missing_request_and_odd_files_are_damage(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make("a", NULL);
        pv_auto_free char *request = pv_path_join(live.job->dir, PV_JOB_REQUEST);
        OK(unlink(request));
        assert_refused(live.job->id, "/work/a", PV_ERR_INPUT, "request.json");
        OK(mkfifo(request, 0600)); /* must not block */
        assert_refused(live.job->id, "/work/a", PV_ERR_INPUT, "not a regular file");
        OK(unlink(request));
        OK(symlink("/etc/passwd", request));
        pv_auto_job job = select_job(live.job->id, "/work/a", &err);
        assert_null(job);
}

static void names_are_checked(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        static const char *const bad[] = { "",   "last", "run-x", "a b",     "a/b",
                                           "-a", ".a",   "a@b",   "\x1b[2J", "caf\xc3\xa9" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                assert_int_equal(pv_job_check_name(bad[i], &err), -1);
                assert_int_equal(err.kind, PV_ERR_USAGE);
        }
        OK(pv_job_check_name("fix-2.b_C", &err));
}

/* Bytes of a good file changed, cut and doubled at random: read or refused, never worse. */
static void mangle(char *text, size_t *n, unsigned *seed)
{
        for (int k = rand_r(seed) % 4; k >= 0; k--)
                text[(size_t)rand_r(seed) % *n] = "\0\"{}[]:,0-9ae\\\xff\n"[rand_r(seed) % 17];
        if (rand_r(seed) % 4 == 0)
                *n = 1 + (size_t)rand_r(seed) % *n;
}

static void no_file_of_a_job_does_harm(void **state)
{
        static const char *const files[] = { PV_JOB_REQUEST, PV_JOB_STATE, PV_JOB_LOCK };
        struct pv_err err = PV_ERR_INIT;
        char id[PV_JOB_ID_TEXT];
        unsigned seed = 4711;
        make_ended("a", "fix", 1, id);
        pv_auto_job good = select_job(id, "/work/a", &err);
        pv_auto_fd dir = pv_job_open_dir(good, &err);
        for (int round = 0; round < 600; round++) {
                const char *file = files[round % 3];
                pv_auto_free char *whole = NULL;
                size_t n = 0;
                OK(pv_file_read_at(dir, file, 1 << 20, &whole, &n, &err));
                pv_auto_free char *text = pv_strndup(whole, n);
                size_t cut = n;
                mangle(text, &cut, &seed);
                OK(pv_file_write_at(dir, file, text, cut, 0600, PV_FILE_REPLACE, &err));
                pv_auto_job job = select_job(id, "/work/a", &err);
                pv_auto_plan plan = NULL;
                if (job)
                        (void)pv_job_plan(job, &plan, &err);
                else
                        assert_int_equal(err.kind, PV_ERR_INPUT);
                OK(pv_file_write_at(dir, file, whole, n, 0600, PV_FILE_REPLACE, &err));
        }
}

/* Decisions of a lost job are kept, and it stays lost. */
static void decisions_are_saved(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_live_job live = make("a", NULL);
        pv_live_job_fini(&live);
        pv_auto_job lost = select_job("last", "/work/a", &err);
        lost->changes = 7;
        lost->pending = 2;
        lost->applied = 5;
        OK(pv_job_save_decisions(lost, &err));
        pv_auto_job again = select_job("last", "/work/a", &err);
        assert_int_equal(again->state, PV_JOB_LOST);
        assert_int_equal(again->changes, 7);
        assert_int_equal(again->pending, 2);
        assert_int_equal(again->applied, 5);
        assert_false(again->dropped);
}

static void many_at_once_get_ids_of_their_own(void **state)
{
        enum { PROCESSES = 8, EACH = 25 };
        struct pv_err err = PV_ERR_INIT;
        for (int p = 0; p < PROCESSES; p++) {
                if (fork() != 0)
                        continue;
                for (int i = 0; i < EACH; i++) {
                        struct pv_live_job live = PV_LIVE_JOB_INIT;
                        const struct pv_job_birth birth = { .plan = test_plan("a") };
                        if (pv_job_create(&birth, &live, &err) < 0)
                                _exit(1);
                        pv_live_job_fini(&live);
                }
                _exit(0);
        }
        for (int p = 0; p < PROCESSES; p++) {
                int status = -1;
                assert_true(wait(&status) > 0);
                assert_int_equal(status, 0);
        }
        struct pv_job **jobs = NULL;
        size_t n = 0, damaged = 0;
        OK(pv_job_list(&jobs, &n, &damaged, &err));
        assert_int_equal(n, PROCESSES * EACH);
        assert_int_equal(damaged, 0);
        for (size_t i = 1; i < n; i++)
                assert_true(jobs[i - 1]->started.tv_sec >= jobs[i]->started.tv_sec);
        pv_job_list_free(jobs, n);
}

/* Two jobs that were given the same id: the second is refused it. */
static void a_taken_id_is_not_taken_again(void **state)
{
        char one[PATH_MAX], two[PATH_MAX];
        (void)snprintf(one, sizeof one, "%s/full", (const char *)*state);
        (void)snprintf(two, sizeof two, "%s/other", (const char *)*state);
        pv_auto_free char *inside_one = pv_path_join(one, "x"), *inside_two = pv_path_join(two, "x");
        OK(mkdir(one, 0700));
        OK(mkdir(two, 0700));
        OK(close(open(inside_one, O_CREAT | O_WRONLY, 0600)));
        OK(close(open(inside_two, O_CREAT | O_WRONLY, 0600)));
        assert_int_equal(rename(two, one), -1); /* the kernel's rule that creation stands on */
        assert_true(errno == ENOTEMPTY || errno == EEXIST);
}

static void a_store_that_others_may_write_is_refused(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_live_job live = PV_LIVE_JOB_INIT;
        const struct pv_job_birth birth = { .plan = test_plan("a") };
        OK(chmod(*state, 0777));
        assert_int_equal(pv_job_create(&birth, &live, &err), -1);
        assert_int_equal(err.kind, PV_ERR_POLICY);
        OK(chmod(*state, 0700));
        pv_err_clear(&err);
        OK(pv_job_create(&birth, &live, &err));
        pv_live_job_fini(&live);
}

static void events_are_lines_of_json(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make("a", NULL);
        pv_job_event(live.job, "odd", json_pack("{s:o}", "path", pv_json_bytes("a\nb\x1b[2J\xff")));
        pv_auto_fd dir = pv_job_open_dir(live.job, &err);
        pv_auto_free char *text = NULL;
        size_t n = 0, lines = 0;
        OK(pv_file_read_at(dir, PV_JOB_EVENTS, 1 << 16, &text, &n, &err));
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
                json_t *j = json_loads(line, 0, NULL);
                assert_non_null(json_object_get(j, "at"));
                assert_non_null(json_object_get(j, "event"));
                json_decref(j);
                lines++;
        }
        assert_int_equal(lines, 2);
}

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, test_store_make, test_store_remove)

int main(void)
{
        const struct CMUnitTest tests[] = {
                STORE_TEST(a_job_is_private_and_whole),
                STORE_TEST(values_of_variables_are_not_written),
                STORE_TEST(the_plan_comes_back),
                STORE_TEST(the_lock_tells_running_from_lost),
                STORE_TEST(a_job_is_not_lost_before_its_sandbox_is_dead),
                STORE_TEST(a_job_is_not_running_because_a_child_has_its_lock),
                STORE_TEST(the_end_is_told_without_any_room),
                STORE_TEST(the_end_is_read_back),
                STORE_TEST(a_failed_start_keeps_its_reason),
                STORE_TEST(the_newest_is_one_that_started),
                STORE_TEST(the_supervisor_is_found_by_its_start_time),
                STORE_TEST(a_supervisor_that_has_just_died_is_none),
                STORE_TEST(jobs_are_selected_by_what_names_them),
                STORE_TEST(a_name_means_this_workspace_first),
                STORE_TEST(what_is_not_there_is_no_job),
                STORE_TEST(a_prefix_of_several_is_ambiguous),
                STORE_TEST(last_goes_back_when_the_newest_is_gone),
                STORE_TEST(damage_is_named_and_hides_nothing),
                STORE_TEST(a_missing_request_and_odd_files_are_damage),
                STORE_TEST(no_file_of_a_job_does_harm),
                STORE_TEST(names_are_checked),
                STORE_TEST(decisions_are_saved),
                STORE_TEST(many_at_once_get_ids_of_their_own),
                STORE_TEST(a_taken_id_is_not_taken_again),
                STORE_TEST(a_store_that_others_may_write_is_refused),
                STORE_TEST(events_are_lines_of_json),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
