/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job runs (its lock), and how it ended and what was decided since (state.json). */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/process.h"
#include "base/syscall.h"
#include "job/remove.h"
#include "job/store_internal.h"

const char *pv_job_state_name(enum pv_job_state s)
{
        static const char *const name[] = {
                [PV_JOB_RUNNING] = "running",
                [PV_JOB_ENDED] = "ended",
                [PV_JOB_LOST] = "lost",
                [PV_JOB_FAILED] = "failed",
        };
        return name[s];
}

int pv_job_check_stage_left(const struct pv_job *job, const char *verb, struct pv_err *err)
{
        if (!job->dropped || access(job->stage_dir, F_OK) == 0 || errno != ENOENT)
                return 0;
        return pv_err_set(err, PV_ERR_STATE, 0, "%s: job %s was dropped: nothing is left of it", verb, job->id);
}

/* Their order is that of the ends noted in a lock's times. */
static const char *const ends[] = { "exited", "signaled", "timeout", "killed", "stage-size" };
#define ENDS (sizeof ends / sizeof *ends)

/* Ends are static text, so that a pv_job borrows nothing from a file. NULL for what is none of them. */
static const char *end_name(const char *text)
{
        for (size_t i = 0; text && i < ENDS; i++)
                if (pv_streq(text, ends[i]))
                        return ends[i];
        return NULL;
}

int pv_job_lock_take(int dirfd, pid_t init, int *lock, struct pv_err *err)
{
        char text[2 * PV_PROCESS_TEXT];
        struct pv_process self, first = { 0 };
        pv_auto_fd fd = openat(dirfd, PV_JOB_LOCK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "lock of the job");
        pv_process_of(getpid(), &self);
        size_t n = pv_process_format(&self, text);
        if (init)
                pv_process_of(init, &first);
        n += pv_process_format(&first, text + n);
        if (pv_fd_write_all(fd, text, n, "lock of the job", err) < 0)
                return -1;
        *lock = pv_fd_steal(&fd);
        return 0;
}

bool pv_job_lock_is_held(int dirfd)
{
        /* Read-write, since over NFS flock(2) becomes a write lock of fcntl(2). */
        pv_auto_fd fd = openat(dirfd, PV_JOB_LOCK, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

struct lock_text {
        struct pv_process supervisor, init; /* init: pid 0 where there was none yet */
        char *end;                          /* how the job ended, where that was noted; or "" */
        char *text;
};

static void lock_text_fini(struct lock_text *t)
{
        free(t->text);
}
#define auto_lock_text __attribute__((cleanup(lock_text_fini))) struct lock_text

static int read_lock_text(int dirfd, struct lock_text *out, struct pv_err *err)
{
        auto_lock_text t = { 0 };
        size_t n = 0;
        if (pv_file_read_at(dirfd, PV_JOB_LOCK, 512, &t.text, &n, err) < 0)
                return -1;
        char *second = strchr(t.text, '\n');
        char *third = second ? strchr(second + 1, '\n') : NULL;
        if (!third || !pv_process_parse(t.text, &t.supervisor))
                return pv_err_set(err, PV_ERR_INPUT, 0, "lock: does not name its process");
        (void)pv_process_parse(second + 1, &t.init);
        t.end = third + 1;
        *out = t;
        t.text = NULL;
        return 0;
}

/*
 * Where not even a written block has room to be written again (btrfs copies it), the end is told by the times of the
 * lock, and that it is by its mode: those change on a full disk. The modification time is that of the end, to the
 * millisecond; what is below is NOTED_CODE * which end + exit code.
 */
#define NOTED_MODE 0700
#define NOTED_CODE 1000
#define NOTED_UNIT 1000000

static int note_end_by_times(int lock, const struct pv_job *job)
{
        long which = job->state == PV_JOB_FAILED ? 0 : 1;
        for (size_t i = 0; job->end && i < ENDS; i++)
                if (pv_streq(job->end, ends[i]))
                        which = 2 + (long)i;
        long code = job->exit_code >= 0 && job->exit_code < NOTED_CODE ? job->exit_code : NOTED_CODE - 1;
        long ms = job->ended.tv_nsec / NOTED_UNIT;
        const struct timespec times[2] = {
                { .tv_nsec = UTIME_OMIT },
                { .tv_sec = job->ended.tv_sec, .tv_nsec = ms * NOTED_UNIT + which * NOTED_CODE + code },
        };
        return futimens(lock, times) == 0 && fchmod(lock, NOTED_MODE) == 0 ? 0 : -1;
}

static bool read_noted_times(int dirfd, struct pv_job *job)
{
        struct stat st;
        if (fstatat(dirfd, PV_JOB_LOCK, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & 07777) != NOTED_MODE)
                return false;
        long below = st.st_mtim.tv_nsec % NOTED_UNIT, which = below / NOTED_CODE, code = below % NOTED_CODE;
        job->state = which == 0 ? PV_JOB_FAILED : PV_JOB_ENDED;
        job->end = which >= 2 && (size_t)which < 2 + ENDS ? ends[which - 2] : NULL;
        job->exit_code = code == NOTED_CODE - 1 ? -1 : (int)code;
        job->ended = st.st_mtim;
        job->ended.tv_nsec -= below;
        return true;
}

/*
 * How the job ended, for a full file system: the lock has its block already. Behind the processes:
 * "STATE END CODE NANOSECONDS".
 */
int pv_job_lock_note_end(int lock, const struct pv_job *job)
{
        char text[96];
        struct stat st;
        int n = snprintf(text, sizeof text, "%s %s %d %lld\n", pv_job_state_name(job->state), job->end ? job->end : "-",
                         job->exit_code, (long long)job->ended.tv_sec * 1000000000 + job->ended.tv_nsec);
        if (fstat(lock, &st) == 0 && pwrite(lock, text, (size_t)n, st.st_size) == n)
                return 0;
        return note_end_by_times(lock, job);
}

static bool read_noted_end(int dirfd, struct pv_job *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        auto_lock_text t = { 0 };
        char state[16], end[16];
        long long ended = 0;
        int code = -1;
        if (read_noted_times(dirfd, job))
                return true;
        if (read_lock_text(dirfd, &t, &ignored) < 0 ||
            sscanf(t.end, "%15s %15s %d %lld", state, end, &code, &ended) != 4)
                return false;
        job->state = pv_streq(state, "failed") ? PV_JOB_FAILED : PV_JOB_ENDED;
        job->end = end_name(end);
        job->exit_code = code;
        job->ended = (struct timespec){ .tv_sec = ended / 1000000000, .tv_nsec = ended % 1000000000 };
        return ended > 0;
}

/* How long one waits for what dies of SIGKILL already. A process that does not (a disk that hangs) is not dead. */
#define DYING_MS      10000
#define DYING_STEP_MS 2
/* For a descriptor to be closed by who is running. */
#define CLOSING_MS 1000

/* Is the lock still held when whoever closes it in a moment has had the time to? */
static bool is_held_on(int dirfd, int wait_ms)
{
        bool held = pv_job_lock_is_held(dirfd);
        for (int waited = 0; held && waited < wait_ms; waited += DYING_STEP_MS) {
                (void)usleep(DYING_STEP_MS * 1000);
                held = pv_job_lock_is_held(dirfd);
        }
        return held;
}

/*
 * Does the job still run? The supervisor holds the lock, and so does for a moment, after a fork, a child that has not
 * closed it yet; and when the supervisor is dead, what it started may live for another moment, and write. Of both one
 * waits for the end, so that neither a dead job is told as running nor a live one as lost.
 */
static bool is_running(int dirfd)
{
        struct pv_err ignored = PV_ERR_INIT;
        auto_lock_text t = { 0 };
        bool held = pv_job_lock_is_held(dirfd);
        if (read_lock_text(dirfd, &t, &ignored) < 0)
                return held;
        if (held && pv_process_look(&t.supervisor) != PV_PROCESS_GONE)
                return true;
        return (held && is_held_on(dirfd, DYING_MS)) || pv_process_await(&t.init, DYING_MS) == PV_PROCESS_LIVES;
}

static bool has_open(pid_t pid, const struct stat *file)
{
        char path[32];
        struct stat st;
        bool found = false;
        (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        pv_auto_dir d = opendir(path);
        for (struct dirent *e; d && !found && (e = readdir(d));)
                found = fstatat(dirfd(d), e->d_name, &st, 0) == 0 && st.st_ino == file->st_ino &&
                        st.st_dev == file->st_dev;
        return found;
}

/*
 * Who took the lock, as proc_locks(5) tells it to this pid namespace; 0: not known. That names a file by a device which
 * is not stat(2)'s on all file systems, and may name a process that is dead: so it must have the file open.
 */
static pid_t find_lock_holder(int dirfd)
{
        struct stat st;
        char line[256];
        pid_t found = 0;
        if (fstatat(dirfd, PV_JOB_LOCK, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        FILE *f = fopen("/proc/locks", "re");
        while (f && !found && fgets(line, sizeof line, f)) {
                int pid = 0;
                unsigned long long ino = 0;
                if (sscanf(line, "%*s FLOCK %*s WRITE %d %*x:%*x:%llu", &pid, &ino) == 2 && ino == st.st_ino &&
                    pid > 0 && has_open(pid, &st))
                        found = pid;
        }
        if (f)
                (void)fclose(f);
        return found;
}

const char *pv_job_version(const struct pv_job *job)
{
        return json_string_value(json_object_get(job->request, "version"));
}

/* The lock is held and its text is none that this version writes. */
static int held_by_another_version(const struct pv_job *job, int dirfd, struct pv_err *err)
{
        const char *version = pv_job_version(job);
        pid_t holder = find_lock_holder(dirfd);
        pv_err_clear(err);
        (void)pv_err_set(err, PV_ERR_STATE, 0,
                         "job %s runs under another version of pvisor (%.40s; this is %s), whose lock does not say how "
                         "to reach it",
                         job->id, version ? version : "an older one", PV_VERSION);
        if (holder)
                return pv_err_hint(err, "that pvisor can end it; so does kill %d, its supervisor", (int)holder);
        return pv_err_hint(err, "end it with that pvisor");
}

int pv_job_open_supervisor(const struct pv_job *job, pid_t *pid, int *pidfd, struct pv_err *err)
{
        auto_lock_text t = { 0 };
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        if (!pv_job_lock_is_held(dir))
                return pv_err_set(err, PV_ERR_NO_JOB, 0, "job %s does not run any more", job->id);
        if (read_lock_text(dir, &t, err) < 0)
                return err->kind == PV_ERR_INPUT ? held_by_another_version(job, dir, err)
                                                 : pv_err_wrap(err, "job %s", job->id);
        pid_t p = t.supervisor.pid;
        pv_auto_fd fd = pv_sys_pidfd_open(p, 0);
        if (fd < 0 && errno != ESRCH)
                return pv_err_set(err, PV_ERR_SYS, errno, "job %s: process %d", job->id, (int)p);
        /* The descriptor names one process for good: when the start time is right now, it was and stays the one. */
        enum pv_process_state state = pv_process_look(&t.supervisor);
        if (state == PV_PROCESS_GONE && !is_held_on(dir, CLOSING_MS)) /* it ended between the two looks */
                return pv_err_set(err, PV_ERR_NO_JOB, 0, "job %s does not run any more", job->id);
        if (fd < 0 || state != PV_PROCESS_LIVES) {
                pv_err_set(err, PV_ERR_SYS, 0, "job %s: its supervisor (process %d) is not in sight", job->id, (int)p);
                return pv_err_hint(err, "it runs in another container or on another machine: kill it there");
        }
        *pid = p;
        *pidfd = pv_fd_steal(&fd);
        return 0;
}

json_t *pv_job_time_json(const struct timespec *t)
{
        if (t->tv_sec == 0 && t->tv_nsec == 0)
                return json_null();
        return json_integer((json_int_t)t->tv_sec * 1000000000 + t->tv_nsec);
}

struct timespec pv_job_time_parse(const json_t *value)
{
        json_int_t ns = json_is_integer(value) ? json_integer_value(value) : 0;
        if (ns < 0)
                ns = 0;
        return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

static int check_format(const json_t *j, const char *file, struct pv_err *err)
{
        int64_t format = 0;
        if (!json_is_object(j))
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s: not an object", file);
        if (pv_json_get_int(j, "format", 1, INT64_MAX, &format, err) < 0)
                return pv_err_wrap(err, "%s", file);
        if (format > PV_JOB_FORMAT)
                return pv_err_set(err, PV_ERR_INPUT, 0,
                                  "%s: written by a newer pvisor (format %lld, this one knows %d)", file,
                                  (long long)format, PV_JOB_FORMAT);
        return 0;
}

static long long count_or(const json_t *value, long long other)
{
        return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : other;
}

static int parse_state(const json_t *j, struct pv_job *job, struct pv_err *err)
{
        const char *state = NULL;
        if (check_format(j, PV_JOB_STATE, err) < 0)
                return -1;
        if (pv_json_get_str(j, "state", &state, err) < 0)
                return pv_err_wrap(err, PV_JOB_STATE);
        if (pv_streq(state, "ended"))
                job->state = PV_JOB_ENDED;
        else if (pv_streq(state, "failed"))
                job->state = PV_JOB_FAILED;
        else if (pv_streq(state, "lost"))
                job->state = PV_JOB_LOST;
        else
                return pv_err_set(err, PV_ERR_INPUT, 0, PV_JOB_STATE ": state \"%s\" is not known", state);
        const json_t *failure = json_object_get(j, "failure");
        if (failure && !json_is_null(failure) && pv_json_get_bytes(failure, &job->failure, err) < 0)
                return pv_err_wrap(err, PV_JOB_STATE ": failure");
        job->end = end_name(json_string_value(json_object_get(j, "end")));
        job->ended = pv_job_time_parse(json_object_get(j, "ended_ns"));
        job->exit_code = (int)count_or(json_object_get(j, "exit_code"), -1);
        job->changes = count_or(json_object_get(j, "changes"), -1);
        job->pending = count_or(json_object_get(j, "pending"), -1);
        job->applied = count_or(json_object_get(j, "applied"), 0);
        job->dropped = json_is_true(json_object_get(j, "dropped"));
        job->stage_bytes = count_or(json_object_get(j, "stage_bytes"), -1);
        return 0;
}

/* *found is false when there is none yet. */
static int try_read(int dirfd, struct pv_job *job, bool *found, struct pv_err *err)
{
        pv_auto_json j = NULL;
        *found = true;
        if (pv_json_read_at(dirfd, PV_JOB_STATE, PV_JOB_STATE_MAX, &j, err) == 0)
                return parse_state(j, job, err);
        if (err->kind != PV_ERR_SYS || err->sys != ENOENT)
                return -1;
        pv_err_clear(err);
        *found = false;
        return 0;
}

/* What the supervisor measured last; -1: nothing yet. */
static long long read_size(int dirfd)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *text = NULL;
        size_t n = 0;
        long long bytes = 0;
        if (pv_file_read_at(dirfd, PV_JOB_SIZE, 32, &text, &n, &ignored) < 0 || sscanf(text, "%lld", &bytes) != 1)
                return -1;
        return bytes;
}

int pv_job_state_read(int dirfd, struct pv_job *job, struct pv_err *err)
{
        bool found = false;
        job->exit_code = -1;
        job->changes = -1;
        job->pending = -1;
        job->stage_bytes = read_size(dirfd);
        if (try_read(dirfd, job, &found, err) < 0)
                return -1;
        if (!found && is_running(dirfd)) {
                job->state = PV_JOB_RUNNING;
                return 0;
        }
        if (!found && try_read(dirfd, job, &found, err) < 0) /* it may have ended between the two looks */
                return -1;
        if (!found && !read_noted_end(dirfd, job))
                job->state = PV_JOB_LOST;
        return 0;
}

static json_t *count_json(long long n)
{
        return n < 0 ? json_null() : json_integer(n);
}

int pv_job_state_write(int dirfd, const struct pv_job *job, struct pv_err *err)
{
        pv_auto_json j = json_pack("{s:i, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "format", PV_JOB_FORMAT,
                                   "state", pv_job_state_name(job->state), "end", job->end, "exit_code",
                                   count_json(job->exit_code), "ended_ns", pv_job_time_json(&job->ended), "failure",
                                   pv_json_bytes(job->failure), "changes", count_json(job->changes), "pending",
                                   count_json(job->pending), "applied", json_integer(job->applied), "dropped",
                                   job->dropped, "stage_bytes", count_json(job->stage_bytes));
        if (!j)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s", PV_JOB_STATE);
        return pv_json_write_at(dirfd, PV_JOB_STATE, j, PV_FILE_REPLACE, err);
}

static int save_one(const struct pv_job *job, struct pv_err *err)
{
        pv_auto_fd dir = pv_job_open_dir(job, err);
        return dir < 0 ? -1 : pv_job_state_write(dir, job, err);
}

/* In a stage: the ids of the jobs that went on with it, a line each. */
#define STAGE_JOBS     "jobs"
#define STAGE_JOBS_MAX (1U << 20)

int pv_job_join_stage(const struct pv_job *job, struct pv_err *err)
{
        char line[PV_JOB_ID_TEXT + 1];
        int n = snprintf(line, sizeof line, "%s\n", job->id);
        pv_auto_free char *path = pv_path_join(job->stage_dir, STAGE_JOBS);
        pv_auto_fd fd =
                open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", path);
        return pv_fd_write_all(fd, line, (size_t)n, path, err);
}

/* Who may have the same stage: the job in whose directory it lies, and those that joined. */
static void list_sharers(const struct pv_job *job, const char *store, struct pv_strv *ids)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *jobs = pv_path_join(store, "jobs"), *text = NULL;
        size_t n = strlen(jobs), len = 0;
        if (pv_path_is_within(job->stage_dir, jobs) && job->stage_dir[n] == '/')
                pv_strv_take(ids, pv_strndup(job->stage_dir + n + 1, strcspn(job->stage_dir + n + 1, "/")));
        pv_auto_fd dir = open(job->stage_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 || pv_file_read_at(dir, STAGE_JOBS, STAGE_JOBS_MAX, &text, &len, &ignored) < 0)
                return;
        char *next = text;
        for (char *line; (line = strsep(&next, "\n"));)
                if (!pv_strv_has(ids, line))
                        pv_strv_add(ids, line);
}

static int save_for(const struct pv_job *job, const char *store, const char *id, struct pv_err *err)
{
        struct pv_err damaged = PV_ERR_INIT;
        pv_auto_job other = NULL;
        if (pv_job_load(store, id, &other, &damaged) < 0 || other->state == PV_JOB_RUNNING || !other->stage_dir ||
            pv_job_only_borrows_stage(other) || !pv_streq(other->stage_dir, job->stage_dir))
                return 0;
        other->changes = job->changes;
        other->pending = job->pending;
        other->applied = job->applied;
        other->dropped = job->dropped;
        other->stage_bytes = job->stage_bytes;
        return save_one(other, err);
}

int pv_job_save_decisions(const struct pv_job *job, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_strv ids = { 0 };
        if (save_one(job, err) < 0 || pv_store_path(&store, err) < 0)
                return -1;
        if (!job->stage_dir || pv_job_only_borrows_stage(job))
                return 0;
        list_sharers(job, store, &ids);
        for (size_t i = 0; i < ids.n; i++)
                if (pv_job_is_id(ids.v[i]) && !pv_streq(ids.v[i], job->id) && save_for(job, store, ids.v[i], err) < 0)
                        return -1;
        return 0;
}
