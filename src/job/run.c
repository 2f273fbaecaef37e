/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to take one request through its life, in this order, and to leave a whole record whatever happens.
 *
 *   decide      request -> plan; nothing is made yet, so a refusal leaves no trace
 *   accept      a stage that is not the job's own: a refusal leaves no trace, either
 *   begin       the boundary begins to be built beside this process, and waits to hear of the job; what fails is kept
 *   create      the job's directory appears, its lock is ours until this process is dead
 *   stage       made, or opened for another run; T0 is taken and durable before anything hostile runs
 *   start       the boundary is finished and probed, the command exec'd; a failure up to here is a FAILED job
 *   wait        until the command and all that it started are dead
 *   seal        preimages of what changed, while the view is still mounted
 *   end         bundle, state, closing words
 *
 * Actors: this process is the supervisor, trusted, with the person's rights, outside of every namespace it makes. The
 * command is hostile and sees nothing of the job. Any other pvisor process may read the job meanwhile.
 *
 * If this process is killed, the kernel kills the sandbox with it; the job shows as lost, and the next command that
 * takes the stage seals it. So no step here has to be undone by another.
 *
 * After the command has ended, a signal from the terminal must not keep the record from being written: the few
 * milliseconds from there to the end ignore them. The same holds for a closed stderr.
 */
#include "job/run.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/syscall.h"
#include "boundary/boundary.h"
#include "evidence/record.h"
#include "job/bundle.h"
#include "job/commits.h"
#include "job/control.h"
#include "job/detach.h"
#include "job/kept.h"
#include "job/network.h"
#include "job/noter.h"
#include "job/run_report.h"
#include "job/run_streams.h"
#include "job/serve.h"
#include "job/stage_size.h"
#include "job/store_internal.h"
#include "job/tally.h"
#include "stage/apply.h"
#include "stage/change.h"
#include "stage/stage.h"

#define SCRATCH "scratch"

/* A command that ends sooner gets its bundle at its end alone. */
#define FIRST_BUNDLE_MS 20

int pv_run_exit_code(const struct pv_err *err)
{
        switch (err->kind) {
        case PV_ERR_USAGE:
        case PV_ERR_NO_JOB:
        case PV_ERR_UNSUPPORTED:
        case PV_ERR_POLICY:
        case PV_ERR_NOT_EXEC:
        case PV_ERR_NOT_FOUND:
                return pv_err_exit_code(err);
        case PV_ERR_NONE:
        case PV_ERR_SYS:
        case PV_ERR_INPUT:
        case PV_ERR_CONFLICT:
        case PV_ERR_STATE:
        case PV_ERR_BUSY:
        case PV_ERR_KINDS:
                break;
        }
        return 125;
}

struct lifecycle {
        const struct pv_run *run;
        const struct pv_run_plan *decided;
        const struct pv_plan *plan;
        struct pv_live_job live;
        int job_dir;
        struct pv_stage *stage;
        struct pv_serving serving;
        struct pv_run_streams streams;
        struct pv_observations *observations;
        json_t *observed;        /* their record */
        struct pv_launch *begun; /* until the start */
        struct pv_err failure;   /* of the beginning */
        struct pv_boundary *boundary;
        struct pv_run_network network;
        struct pv_kept_run kept;
        struct pv_control *control; /* NULL: there is none */
        struct pv_stage_size *size; /* NULL: not staged, or it cannot be watched */
        struct pv_noter *noter;     /* NULL: nothing to note */
        bool started;
        sigset_t mask; /* of the caller, and of the command */
};

/* What ends a run. */
static const int ending[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT };

/*
 * Held back until the job is in a state that can be told: a directory that is half made, or a job without an end, would
 * be there for ever. The boundary takes them over.
 */
static void hold_signals(struct lifecycle *l)
{
        sigset_t set;
        sigemptyset(&set);
        for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
                sigaddset(&set, ending[i]);
        (void)sigprocmask(SIG_BLOCK, &set, &l->mask);
}

/* The one that came meanwhile; 0: none did. One that the caller holds back itself waits for them. */
static int signal_held(const struct lifecycle *l)
{
        sigset_t pending;
        (void)sigpending(&pending);
        for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
                if (sigismember(&pending, ending[i]) && !sigismember(&l->mask, ending[i]) &&
                    !pv_signal_is_ignored(ending[i]))
                        return ending[i];
        return 0;
}

static int go_on(const struct lifecycle *l, struct pv_err *err)
{
        return signal_held(l) ? pv_err_set(err, PV_ERR_SYS, EINTR, "set up the run") : 0;
}

static int create_job(struct lifecycle *l, struct pv_err *err)
{
        const struct pv_job_birth birth = {
                .plan = l->plan,
                .name = l->run->request->name,
                .stage_dir = l->decided->stage_dir,
                .origin = l->decided->origin,
                .parent = l->decided->parent,
                .checkpoint = l->decided->checkpoint,
                .init = l->begun ? pv_boundary_begun_pid(l->begun) : 0,
        };
        if (pv_job_create(&birth, &l->live, err) < 0)
                return -1;
        pv_log_debug("job %s", l->live.job->dir);
        if (l->live.job->stage_dir)
                pv_log_debug("stage %s", l->live.job->stage_dir);
        l->job_dir = pv_job_open_dir(l->live.job, err);
        return l->job_dir < 0 ? -1 : 0;
}

/* A stage keeps its roots for life: what was asked must be what it has. */
static int check_roots(const struct lifecycle *l, struct pv_err *err)
{
        const struct pv_plan *p = l->plan;
        bool same = pv_stage_n_roots(l->stage) == p->n_roots;
        for (size_t i = 0; same && i < p->n_roots; i++) {
                const struct pv_root *r = pv_stage_root(l->stage, i);
                same = pv_streq(r->target, p->roots[i].target) && pv_streq(r->view, p->roots[i].view);
        }
        if (same)
                return 0;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "stage %s: was made for other directories (%s, ...)",
                         pv_stage_dir(l->stage), pv_stage_root(l->stage, 0)->target);
        return pv_err_hint(err, "run it in that workspace, with the same --mount ...:stage options");
}

/* An existing stage: alone in it, and with what a crash left of an apply finished. */
static int take_stage(const char *dir, struct pv_stage **out, struct pv_err *err)
{
        const char *did = NULL;
        pv_auto_stage s = NULL;
        if (pv_stage_open(dir, PV_STAGE_TAKE, &s, err) < 0 || pv_apply_recover(s, &did, err) < 0)
                return -1;
        if (did)
                pv_log_note("%s", did);
        if (pv_commits_recover(s, &did, err) < 0)
                return -1;
        if (did)
                pv_log_note("%s", did);
        *out = pv_steal(&s);
        return 0;
}

/* What the host's references are now: tells later who moved which. */
static void note_references(const struct lifecycle *l)
{
        const char *git_dir = NULL;
        if (!l->plan->workspace_is_git)
                return;
        for (size_t i = 0; i < l->plan->n_roots; i++)
                if (l->plan->roots[i].kind == PV_ROOT_GIT_DIR)
                        git_dir = l->plan->roots[i].target;
        pv_git_start_note(pv_stage_dirfd(l->stage).fd, l->plan->roots[0].target, git_dir);
}

static int fork_stage(struct lifecycle *l, const char *dir, struct pv_err *err)
{
        pv_auto_stage parent = NULL;
        if (take_stage(l->decided->parent_stage, &parent, err) < 0)
                return -1;
        if (pv_stage_fork(parent, l->decided->checkpoint, dir, &l->stage, err) < 0)
                return -1;
        pv_git_start_inherit(pv_stage_dirfd(l->stage).fd, pv_stage_dirfd(parent).fd);
        return 0;
}

/* What is to be mounted, and the programs that serve what the kernel cannot. */
static int serve_stage(struct lifecycle *l, struct pv_err *err)
{
        const struct pv_overlay *overlays;
        size_t n;
        pv_stage_set_backend(l->stage, l->plan->stage_backend);
        if (pv_stage_begin_run(l->stage, &overlays, &n, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
                if (overlays[i].by_fuse &&
                    (i == 0 || !overlays[i - 1].by_fuse || !pv_streq(overlays[i].by_fuse, overlays[i - 1].by_fuse)))
                        pv_log_note("staged over FUSE, slower than overlayfs: %s", overlays[i].by_fuse);
        return pv_serve_start(overlays, n, &l->serving, err);
}

static int accept_stage(struct lifecycle *l, const char *dir, struct pv_err *err)
{
        int done = -1;
        switch (l->decided->origin) {
        case PV_JOB_CONTINUES:
                done = take_stage(dir, &l->stage, err);
                break;
        case PV_JOB_FORKED:
                done = fork_stage(l, dir, err);
                break;
        case PV_JOB_NEW:
                done = pv_stage_create(dir, l->plan->roots, l->plan->n_roots, &l->stage, err);
                break;
        }
        return done < 0 || (l->decided->origin != PV_JOB_NEW && check_roots(l, err) < 0) ? -1 : 0;
}

static void begin_boundary(struct lifecycle *l)
{
        const struct pv_run_streams *io = &l->streams;
        const struct pv_boundary_spec spec = {
                .plan = l->plan,
                .stdio = { pv_run_streams_early(io, STDIN_FILENO), pv_run_streams_early(io, STDOUT_FILENO),
                           pv_run_streams_early(io, STDERR_FILENO) },
                .terminal = !io->captured && isatty(pv_run_streams_early(io, STDIN_FILENO)),
                .network = l->network.inside ? &l->network.hooks : NULL,
                .mask = &l->mask,
        };
        l->begun = pv_boundary_begin(&spec);
}

/* What fails is kept: where there is a job, its record says so. */
static void begin(struct lifecycle *l)
{
        if (pv_run_network_prepare(&l->network, l->decided->plan, &l->failure) == 0 &&
            pv_kept_prepare(l->decided->plan, &l->kept, &l->failure) == 0)
                begin_boundary(l);
        l->observations = pv_calloc(1, sizeof *l->observations); /* large: while the other processor builds */
}

/*
 * A directory that is not the job's own is accepted as its stage, and locked, before there is a job: whatever a record
 * names as a stage may be removed with it one day.
 */
static int create_job_and_accept_stage(struct lifecycle *l, struct pv_err *err)
{
        const char *elsewhere = l->plan->staged ? l->decided->stage_dir : NULL;
        if ((elsewhere && accept_stage(l, elsewhere, err) < 0) || go_on(l, err) < 0)
                return -1;
        begin(l);
        if (create_job(l, err) < 0)
                return -1;
        if (elsewhere)
                return pv_job_join_stage(l->live.job, err);
        return l->plan->staged ? accept_stage(l, l->live.job->stage_dir, err) : 0;
}

static int open_stage(struct lifecycle *l, struct pv_err *err)
{
        if (!l->plan->staged)
                return 0;
        struct pv_err why = PV_ERR_INIT;
        if (pv_apply_recover_targets(l->stage, &why) < 0)
                pv_log_warn("%s%s%s", why.msg, *why.hint ? "; " : "", why.hint);
        note_references(l);
        return serve_stage(l, err);
}

/* Some file systems have no sockets: then nobody can speak with the job, which runs nevertheless. */
static void open_control(struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        if (pv_control_open(l->job_dir, &l->control, &err) == 0)
                return;
        (void)pv_err_wrap(&err, "nothing can be asked of this job while it runs");
        pv_log_warn("%s", err.msg);
}

static void serve_control(struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        const struct pv_control_job job = {
                .job = l->live.job,
                .plan = l->plan,
                .boundary = l->boundary,
                .serving = &l->serving,
                .network = &l->network,
                .terminal = pv_run_streams_is_terminal(&l->streams, STDOUT_FILENO) ? l->run->detached->master : -1,
        };
        if (l->control && pv_control_serve(l->control, &job, &err) < 0)
                pv_log_err(&err);
}

/* What goes on beside the command. A stage that nobody watches is no reason not to run. */
static void start_background(struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        const struct pv_stage_size_job job = { .job = l->live.job,
                                               .lock = l->live.lock,
                                               .job_dir = l->job_dir,
                                               .plan = l->plan,
                                               .stage = l->stage,
                                               .boundary = l->boundary };
        if (l->stage && pv_stage_size_watch(&job, &l->size, &err) < 0)
                pv_log_err(&err);
        if (l->stage && l->plan->workspace_is_git &&
            pv_noter_start(l->stage, l->boundary, l->live.lock, &l->noter, &err) < 0)
                pv_log_err(&err);
}

static long long measure_stage(const struct lifecycle *l, const struct pv_changes *changes)
{
        struct pv_err ignored = PV_ERR_INIT;
        uint64_t bytes = 0;
        if (l->decided->origin == PV_JOB_NEW && changes && changes->n == 0) /* it was empty, too */
                return 0;
        return l->stage && pv_stage_size(l->stage, &bytes, &ignored) == 0 ? (long long)bytes : -1;
}

static int start_network(struct lifecycle *l, struct pv_err *err)
{
        int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
        pv_auto_fd events = openat(l->job_dir, PV_JOB_EVENTS, flags, 0600);
        if (events < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", PV_JOB_EVENTS);
        return pv_run_network_start(&l->network, l->boundary, events, err);
}

/* Before the starter of a detached job hears of it: whoever asks for the newest job then means this one. */
static void announce(const struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        if (pv_job_started(l->live.job, &err) < 0)
                pv_log_err(&err);
        pv_job_event(l->live.job, "started", json_pack("{s:i}", "init_pid", (int)pv_boundary_init_pid(l->boundary)));
}

/*
 * Whoever takes the job's stage or caches after our death waits for this process's, and so for the command's. The job's
 * own lock names it already.
 */
static void note_init(void *ctx, pid_t init)
{
        const struct lifecycle *l = ctx;
        struct pv_process first;
        pv_process_of(init, &first);
        pv_kept_note_init(&l->kept, &first);
        if (l->stage)
                pv_stage_note_init(l->stage, &first);
}

static void note_over(const struct lifecycle *l)
{
        pv_kept_note_over(&l->kept);
        if (l->stage)
                pv_stage_note_over(l->stage);
}

static int start(struct lifecycle *l, struct pv_err *err)
{
        if (l->failure.kind != PV_ERR_NONE) {
                *err = l->failure;
                return -1;
        }
        const struct pv_run_streams *io = &l->streams;
        pv_auto_free char *scratch = pv_path_join(l->live.job->dir, SCRATCH);
        const struct pv_cache_layer caches = { l->plan->home, l->kept.upper, l->kept.work };
        const struct pv_boundary_job job = {
                .overlays = l->serving.overlays,
                .n_overlays = l->serving.n,
                .scratch = scratch,
                .stdio = { pv_run_streams_late(io, STDIN_FILENO), pv_run_streams_late(io, STDOUT_FILENO),
                           pv_run_streams_late(io, STDERR_FILENO) },
                .caches = l->kept.upper ? &caches : NULL,
                .born = note_init,
                .ctx = l,
        };
        if (pv_boundary_start(pv_steal(&l->begun), &job, &l->boundary, l->observations, err) < 0 ||
            start_network(l, err) < 0)
                return -1;
        pv_run_streams_given(&l->streams);
        announce(l);
        if (l->run->detached && pv_detached_started(l->run->detached, l->live.job, l->job_dir, err) < 0)
                return -1;
        l->started = true;
        return 0;
}

/* Everything up to the command's first instruction. */
static int prepare(struct lifecycle *l, struct pv_err *err)
{
        if (create_job_and_accept_stage(l, err) < 0 || go_on(l, err) < 0 || open_stage(l, err) < 0 ||
            go_on(l, err) < 0 || pv_run_streams_open(&l->streams, l->job_dir, err) < 0)
                return -1;
        open_control(l);
        return start(l, err);
}

static void ignore_signals(void)
{
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP };
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
                (void)signal(signals[i], SIG_IGN);
}

/* Preimages while the view is still mounted; a stage that could not be sealed is sealed by the next command. */
static void seal(struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        if (!l->stage)
                return;
        pv_auto_free struct pv_pathfd *views = pv_calloc(l->plan->n_roots, sizeof *views);
        for (size_t i = 0; i < l->plan->n_roots; i++)
                views[i] = pv_serve_channel(&l->serving, i).fd >= 0 ? pv_serve_channel(&l->serving, i)
                                                                    : pv_boundary_view(l->boundary, i);
        if (pv_stage_seal(l->stage, views, &err) < 0) {
                (void)pv_err_wrap(&err, "what the host had could not be noted; the next command tries again");
                pv_log_err(&err);
        }
}

static void compute_changes(struct lifecycle *l, struct pv_changes **out)
{
        struct pv_err err = PV_ERR_INIT;
        if (l->stage && pv_changes_compute(l->stage, out, &err) < 0) {
                (void)pv_err_wrap(&err, "changes");
                pv_log_err(&err);
        }
}

static long long count_pending(const struct lifecycle *l, const struct pv_changes *changes)
{
        struct pv_tally n;
        if (!changes)
                return -1;
        pv_tally_changes(l->plan->roots, l->plan->n_roots, changes, &n);
        return (long long)n.paths;
}

static void write_bundle(const struct lifecycle *l, const struct pv_exit *end, const struct pv_changes *changes,
                         const struct pv_err *failure)
{
        struct pv_err err = PV_ERR_INIT;
        const struct pv_bundle_facts facts = {
                .job = l->live.job,
                .plan = l->plan,
                .observations = l->observations,
                .observed = l->observed,
                .output_kept = l->streams.log[0] >= 0,
                .started = l->started,
                .exit = end,
                .changes = changes,
                .network = l->network.result,
                .granted = l->network.granted,
                .failure = failure,
        };
        if (pv_bundle_write(&facts, &err) < 0)
                pv_log_err(&err);
}

static void end_job(struct lifecycle *l, const struct pv_job_end *end)
{
        struct pv_err err = PV_ERR_INIT;
        if (pv_job_end(&l->live, end, &err) < 0)
                pv_log_err(&err);
}

static void remove_scratch(const struct lifecycle *l)
{
        struct pv_err err = PV_ERR_INIT;
        if (l->job_dir >= 0 && pv_path_remove_tree(l->job_dir, SCRATCH, &err) < 0)
                pv_log_err(&err);
}

static int exit_code(const struct pv_exit *e)
{
        switch (e->end) {
        case PV_END_EXITED:
                return e->code;
        case PV_END_TIMEOUT:
        case PV_END_STAGE_SIZE:
                return 124;
        case PV_END_SIGNALED:
        case PV_END_KILLED:
                break;
        }
        return 128 + (e->code ? e->code : SIGKILL);
}

/* From the command's start to the end of the record: nothing in here fails the run any more. */
static void follow(struct lifecycle *l, struct pv_run_end *out)
{
        struct pv_exit end = { .end = PV_END_KILLED, .code = SIGKILL };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes changes = NULL;
        l->observed =
                pv_record_observations(l->observations); /* the longest part of the record, while the command runs */
        if (pv_boundary_outlasts(l->boundary, FIRST_BUNDLE_MS))
                write_bundle(l, NULL, NULL, NULL); /* what is left should this process be killed */
        serve_control(l);
        start_background(l);
        pv_run_streams_serve(&l->streams, l->boundary);
        if (pv_boundary_wait(l->boundary, &end, &err) < 0)
                pv_log_err(&err);
        note_over(l);
        pv_control_close(pv_steal(&l->control));
        pv_stage_size_end(pv_steal(&l->size));
        pv_noter_end(pv_steal(&l->noter));
        ignore_signals();
        pv_run_network_stop(&l->network);
        seal(l);
        if (l->stage)
                l->live.job->applied = (long long)pv_batches_count_standing(l->stage);
        pv_boundary_dissolve(l->boundary);
        pv_run_streams_finish(&l->streams);
        if (!pv_serve_end(&l->serving))
                pv_log_warn("the program that served the stage ended before the command: it may have met errors");
        compute_changes(l, &changes);
        pv_run_network_end(&l->network);
        int code = exit_code(&end);
        const struct pv_job_end how = {
                .state = PV_JOB_ENDED,
                .end = pv_run_end_name(end.end),
                .exit_code = code,
                .changes = changes ? (long long)changes->n : -1,
                .pending = count_pending(l, changes),
                .stage_bytes = measure_stage(l, changes),
        };
        pv_job_conclude(&l->live, &how); /* the bundle tells it, too */
        write_bundle(l, &end, changes, NULL);
        end_job(l, &how);
        const struct pv_run_outcome outcome = {
                .job = l->live.job,
                .plan = l->plan,
                .exit = &end,
                .code = code,
                .changes = changes,
                .observations = l->observations,
                .network = l->network.result,
        };
        pv_run_report(&outcome, l->run->detached ? -1 : l->run->summary);
        pv_boundary_free(l->boundary);
        l->boundary = NULL;
        remove_scratch(l);
        *out = (struct pv_run_end){ .code = code, .signal = end.by_key ? end.code : 0 };
}

/* Nothing was started: the record says why, where there is one already. */
static void give_up(struct lifecycle *l, int code, const struct pv_err *failure)
{
        ignore_signals();
        remove_scratch(l);
        const struct pv_job_end how = { .state = PV_JOB_FAILED,
                                        .exit_code = code,
                                        .changes = -1,
                                        .pending = -1,
                                        .stage_bytes = -1,
                                        .failure = failure };
        if (l->live.job) {
                pv_job_conclude(&l->live, &how);
                write_bundle(l, NULL, NULL, failure);
                end_job(l, &how);
        }
        const struct pv_run_outcome outcome = { .job = l->live.job, .plan = l->plan, .code = code, .failure = failure };
        pv_run_report(&outcome, l->run->summary);
}

static void lifecycle_fini(struct lifecycle *l)
{
        pv_control_close(l->control);
        pv_stage_size_end(l->size);
        pv_noter_end(l->noter);
        pv_boundary_forget(l->begun);
        pv_boundary_free(l->boundary);
        (void)pv_serve_end(&l->serving);
        pv_run_network_fini(&l->network);
        pv_kept_run_fini(l->plan, &l->kept);
        pv_stage_close(l->stage);
        free(l->observations);
        json_decref(l->observed);
        pv_run_streams_fini(&l->streams);
        pv_fd_closep(&l->job_dir);
        pv_live_job_fini(&l->live); /* last: its lock tells others that the job has ended */
}

/*
 * Ended by a signal before there was a command: as if that had died of it. Whoever started a detached job is told of a
 * failure.
 */
static int interrupted(struct lifecycle *l, int sig, struct pv_run_end *end, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_SYS, 0, "ended by SIG%s before the command started", sigabbrev_np(sig));
        give_up(l, 128 + sig, err);
        if (l->run->detached)
                return -1;
        pv_log_err(err);
        *end = (struct pv_run_end){ .code = 128 + sig, .signal = sig == SIGINT || sig == SIGQUIT ? sig : 0 };
        return 0;
}

int pv_run_execute(const struct pv_run *run, const struct pv_run_plan *decided, struct pv_run_end *end,
                   struct pv_err *err)
{
        struct lifecycle l = {
                .run = run,
                .decided = decided,
                .plan = decided->plan,
                .live = PV_LIVE_JOB_INIT,
                .job_dir = -1,
                .streams = PV_RUN_STREAMS_INIT,
                .failure = PV_ERR_INIT,
                .network = PV_RUN_NETWORK_INIT,
                .kept = PV_KEPT_RUN_INIT,
        };
        l.streams.detached = run->detached;
        l.streams.captured = decided->plan->stdio == PV_STDIO_CAPTURE;
        (void)mallopt(M_TRIM_THRESHOLD, 16 << 20); /* memory that goes back and forth is faults */
        hold_signals(&l);
        int r = prepare(&l, err);
        int sig = r < 0 && err->sys == EINTR ? signal_held(&l) : 0;
        if (r == 0)
                follow(&l, end);
        else if (sig)
                r = interrupted(&l, sig, end, err);
        else
                give_up(&l, pv_run_exit_code(err), err);
        lifecycle_fini(&l);
        (void)sigprocmask(SIG_SETMASK, &l.mask, NULL);
        return r;
}
