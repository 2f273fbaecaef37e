/* SPDX-License-Identifier: Apache-2.0 */
#include "git/host.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/path.h"

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define SAID_MAX    4096
/* What a pack may make git hold in memory: its objects are unpacked there to be checked. */
#define MEMORY_MAX (4ULL << 30)

void pv_git_host_fini(struct pv_git_host *h)
{
        free(h->program);
        free(h->worktree);
        free(h->git_dir);
        free(h->common_dir);
        free(h->quarantine);
        *h = (struct pv_git_host){ 0 };
}

static bool is_program(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* As the person's PATH finds it, but for directories that an applied change could have filled. */
static char *find_program(const char *worktree)
{
        const char *person = getenv("PATH");
        pv_auto_free char *all = pv_strf("%s:%s", person ? person : "", SYSTEM_PATH);
        char *rest = all;
        for (char *dir; (dir = strsep(&rest, ":"));) {
                if (dir[0] != '/')
                        continue;
                pv_auto_free char *named = pv_path_join(dir, "git");
                pv_auto_free char *real = realpath(named, NULL);
                if (real && !pv_path_is_within(real, worktree) && is_program(real))
                        return pv_strdup(named);
        }
        return NULL;
}

/* --- one run --- */

/* Quoted, since a colon would divide it. */
static char *alternates_of(const struct pv_git_host *h)
{
        pv_auto_str b = { 0 };
        pv_str_put(&b, "GIT_ALTERNATE_OBJECT_DIRECTORIES=\"");
        for (const char *p = h->common_dir; *p; p++) {
                if (*p == '"' || *p == '\\')
                        pv_str_putc(&b, '\\');
                if (*p == '\n')
                        pv_str_put(&b, "\\n");
                else
                        pv_str_putc(&b, *p);
        }
        pv_str_put(&b, "/objects\"");
        return pv_str_steal(&b);
}

static void put_environment(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_strv *env)
{
        static const char *const fixed[] = {
                "PATH=" SYSTEM_PATH,         "LC_ALL=C",
                "HOME=/nonexistent",         "GIT_CONFIG_GLOBAL=/dev/null",
                "GIT_CONFIG_NOSYSTEM=1",     "GIT_ATTR_NOSYSTEM=1",
                "GIT_OPTIONAL_LOCKS=0",      "GIT_TERMINAL_PROMPT=0",
                "GIT_NO_REPLACE_OBJECTS=1",  "GIT_GRAFT_FILE=/dev/null",
                "GIT_NO_LAZY_FETCH=1",       "GIT_ALLOW_PROTOCOL=none",
                "GIT_COMMITTER_NAME=pVisor", "GIT_COMMITTER_EMAIL=pvisor@localhost",
        };
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
                pv_strv_add(env, fixed[i]);
        pv_strv_take(env, pv_strf("GIT_WORK_TREE=%s", h->worktree));
        pv_strv_take(env, h->git_dir ? pv_strf("GIT_DIR=%s", h->git_dir) : pv_strf("GIT_DIR=%s/.git", h->worktree));
        if (h->quarantine) {
                pv_strv_take(env, pv_strf("GIT_OBJECT_DIRECTORY=%s", h->quarantine));
                pv_strv_take(env, alternates_of(h));
        }
        if (call->index_file)
                pv_strv_take(env, pv_strf("GIT_INDEX_FILE=%s", call->index_file));
}

static void put_words(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_strv *argv)
{
        static const char *const fixed[] = {
                "--no-pager", "--no-optional-locks",
                "-c",         "core.hooksPath=/dev/null",
                "-c",         "core.fsmonitor=false",
                "-c",         "core.alternateRefsCommand=",
                "-c",         "core.filesRefLockTimeout=3000",
                "-c",         "core.packedRefsTimeout=3000",
                "-c",         "gc.auto=0",
                "-c",         "maintenance.auto=false",
                "-c",         "protocol.allow=never",
        };
        pv_strv_add(argv, h->program);
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
                pv_strv_add(argv, fixed[i]);
        for (size_t i = 0; call->words[i]; i++)
                pv_strv_add(argv, call->words[i]);
}

static int input_of(const struct pv_git_call *call, struct pv_err *err)
{
        pv_auto_fd fd = -1;
        if (!call->in && call->in_fd > 0)
                fd = fcntl(call->in_fd, F_DUPFD_CLOEXEC, 3);
        else if (!call->in)
                fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        else
                fd = memfd_create("pvisor-git", MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "input of git");
        if (call->in && pv_fd_write_all(fd, call->in, call->in_len, "input of git", err) < 0)
                return -1;
        if ((call->in || call->in_fd > 0) && lseek(fd, 0, SEEK_SET) < 0 && errno != ESPIPE)
                return pv_err_set(err, PV_ERR_SYS, errno, "input of git");
        return pv_fd_steal(&fd);
}

/* Root works as the owner: what is made is the owner's, and what the repository could still make git do is, too. */
static bool become(const struct stat *owner)
{
        if (geteuid() != 0 || owner->st_uid == 0)
                return true;
        return setgroups(0, NULL) == 0 && setgid(owner->st_gid) == 0 && setuid(owner->st_uid) == 0;
}

/* In the child: nothing is allocated. */
static void __attribute__((noreturn))
exec_git(const struct stat *owner, const int stdio[3], char *const *argv, char *const *env)
{
        const struct rlimit memory = { MEMORY_MAX, MEMORY_MAX }, none = { 0, 0 };
        for (int i = 0; i < 3; i++)
                if (dup2(stdio[i], i) < 0)
                        _exit(126);
        (void)setrlimit(RLIMIT_DATA, &memory);
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGPIPE, SIG_DFL);
        if (become(owner) && chdir("/") == 0)
                (void)execve(argv[0], argv, env);
        _exit(126);
}

static int collect(int fd, size_t max, unsigned seconds, const char *word, struct pv_str *out, struct pv_err *err)
{
        char buf[65536];
        uint64_t deadline = pv_clock_monotonic_ms() + seconds * 1000ULL;
        for (;;) {
                uint64_t now = pv_clock_monotonic_ms();
                struct pollfd p = { .fd = fd, .events = POLLIN };
                int ready = now < deadline ? poll(&p, 1, (int)(deadline - now)) : 0;
                if (ready == 0)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "git %s: took longer than %u s", word, seconds);
                ssize_t n = ready < 0 ? -1 : read(fd, buf, sizeof buf);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "git %s: read its output", word);
                if (n == 0)
                        return 0;
                if ((size_t)n > max - out->len)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "git %s: said more than %zu bytes", word, max);
                pv_str_put_bytes(out, buf, (size_t)n);
        }
}

/* The last line that says something. */
static void put_said(int fd, struct pv_str *said)
{
        char buf[SAID_MAX];
        off_t size = lseek(fd, 0, SEEK_END);
        off_t from = size > (off_t)sizeof buf ? size - (off_t)sizeof buf : 0;
        ssize_t n = pread(fd, buf, sizeof buf, from);
        while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
                n--;
        ssize_t start = n > 0 ? n : 0;
        while (start > 0 && buf[start - 1] != '\n' && buf[start - 1] != '\r')
                start--;
        if (n > start)
                pv_str_put_safe_n(said, buf + start, (size_t)(n - start));
}

static int start(const struct pv_git_host *h, const struct pv_git_call *call, int said, int *from, pid_t *pid,
                 struct pv_err *err)
{
        int pipefd[2];
        struct stat owner = { 0 };
        pv_auto_strv argv = { 0 }, env = { 0 };
        pv_auto_fd in = input_of(call, err);
        const char *place = h->common_dir ? h->common_dir : h->worktree;
        if (in < 0)
                return -1;
        if (stat(place, &owner) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", place);
        put_words(h, call, &argv);
        put_environment(h, call, &env);
        if (pipe2(pipefd, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "output of git");
        const int stdio[3] = { in, pipefd[1], said };
        *pid = fork();
        if (*pid == 0)
                exec_git(&owner, stdio, argv.v, env.v);
        (void)close(pipefd[1]);
        *from = pipefd[0];
        return *pid < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "start git") : 0;
}

static int wait_for(pid_t *pid, int *exit_code, struct pv_err *err)
{
        int status = 0;
        pid_t got;
        while ((got = waitpid(*pid, &status, 0)) < 0 && errno == EINTR)
                ;
        if (got < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "wait for git");
        *pid = -1;
        *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return 0;
}

int pv_git_host_start(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_running *out,
                      struct pv_err *err)
{
        pv_auto_git_running r = { 0 };
        r.word = call->words[0];
        r.max_out = call->max_out ? call->max_out : PV_GIT_HOST_OUT;
        r.seconds = call->seconds ? call->seconds : PV_GIT_HOST_SECONDS;
        r.errors = memfd_create("pvisor-git-errors", MFD_CLOEXEC);
        if (r.errors < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "output of git");
        if (start(h, call, r.errors, &r.from, &r.pid, err) < 0)
                return -1;
        *out = r;
        r = (struct pv_git_running){ 0 };
        return 0;
}

int pv_git_host_finish(const struct pv_git_host *h, struct pv_git_running *running, struct pv_git_answer *out,
                       struct pv_str *said, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        int exit_code = 0;
        if (collect(running->from, running->max_out, running->seconds, running->word, &text, err) < 0 ||
            wait_for(&running->pid, &exit_code, err) < 0)
                return -1;
        if (said)
                put_said(running->errors, said);
        if (exit_code == 126)
                return pv_err_set(err, PV_ERR_SYS, EACCES, "%s: could not be started as the owner of %s", h->program,
                                  h->worktree);
        pv_git_answer_fini(out);
        *out = (struct pv_git_answer){ .len = text.len, .exit_code = exit_code };
        out->text = pv_str_steal(&text);
        return 0;
}

void pv_git_running_fini(struct pv_git_running *running)
{
        if (running->from > 0)
                (void)close(running->from);
        if (running->errors > 0)
                (void)close(running->errors);
        pv_pid_killp(&running->pid);
        *running = (struct pv_git_running){ 0 };
}

int pv_git_host_run(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_answer *out,
                    struct pv_str *said, struct pv_err *err)
{
        pv_auto_git_running running = { 0 };
        return pv_git_host_start(h, call, &running, err) < 0 ? -1 : pv_git_host_finish(h, &running, out, said, err);
}

int pv_git_host_must(const struct pv_git_host *h, const struct pv_git_call *call, struct pv_git_answer *out,
                     struct pv_err *err)
{
        pv_auto_str said = { 0 };
        if (pv_git_host_run(h, call, out, &said, err) < 0)
                return -1;
        if (out->exit_code == 0)
                return 0;
        return pv_err_set(err, PV_ERR_INPUT, 0, "git %s: %s", call->words[0],
                          said.len ? said.s : "failed without a word");
}

/* --- opening --- */

/* The answers of rev-parse, a line each: git directory, common directory, object format. */
static int read_places(const struct pv_git_answer *a, struct pv_git_host *h, struct pv_err *err)
{
        char *line[3] = { 0 }, *rest = a->text;
        for (size_t i = 0; i < 3 && rest; i++)
                line[i] = strsep(&rest, "\n");
        if (!line[2] || line[0][0] != '/' || line[1][0] != '/')
                return pv_err_set(err, PV_ERR_INPUT, 0, "git rev-parse: an answer that cannot be read");
        if (pv_path_real(line[0], &h->git_dir, err) < 0 || pv_path_real(line[1], &h->common_dir, err) < 0)
                return -1;
        h->sha256 = pv_streq(line[2], "sha256");
        return 0;
}

int pv_git_host_open(const char *worktree, struct pv_git_host *out, struct pv_err *err)
{
        static const char *const words[] = { "rev-parse",        "--path-format=absolute", "--git-dir",
                                             "--git-common-dir", "--show-object-format",   NULL };
        const struct pv_git_call call = { .words = words };
        struct stat st;
        pv_auto_git_host h = { .worktree = pv_strdup(worktree) };
        pv_auto_git_answer a = { 0 };
        pv_auto_free char *dot_git = pv_path_join(worktree, ".git");
        if (stat(dot_git, &st) < 0)
                return pv_err_set(err, PV_ERR_STATE, errno, "%s", dot_git);
        h.program = find_program(worktree);
        if (!h.program) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "commits: there is no git on this machine");
                return pv_err_hint(err, "apply --git-raw takes the git directory literally");
        }
        if (pv_git_host_must(&h, &call, &a, err) < 0 || read_places(&a, &h, err) < 0) {
                (void)pv_err_wrap(err, "%s", worktree);
                return geteuid() == 0 && st.st_uid != 0
                               ? pv_err_hint(err,
                                             "git works there as its owner, uid %u, who has to be able to reach it",
                                             (unsigned)st.st_uid)
                               : -1;
        }
        *out = h;
        h = (struct pv_git_host){ 0 };
        return 0;
}
