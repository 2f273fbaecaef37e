/* SPDX-License-Identifier: Apache-2.0 */
#include "git/test_runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/path.h"
#include "base/str.h"
#include "base/test.h"

static void set_environment(void)
{
        static const char *const env[][2] = {
                { "GIT_CONFIG_GLOBAL", "/dev/null" },
                { "GIT_CONFIG_SYSTEM", "/dev/null" },
                { "GIT_AUTHOR_NAME", "A" },
                { "GIT_AUTHOR_EMAIL", "a@example.org" },
                { "GIT_COMMITTER_NAME", "A" },
                { "GIT_COMMITTER_EMAIL", "a@example.org" },
                { "GIT_AUTHOR_DATE", "1700000000 +0000" },
                { "GIT_COMMITTER_DATE", "1700000000 +0000" },
                { "GIT_CONFIG_COUNT", "1" },
                { "GIT_CONFIG_KEY_0", "init.defaultBranch" },
                { "GIT_CONFIG_VALUE_0", "main" },
        };
        for (size_t i = 0; i < sizeof env / sizeof *env; i++)
                (void)setenv(env[i][0], env[i][1], 1);
}

/* The word with the quoted path of the view in it replaced by where it is. */
static char *in_place(const struct pv_test_runner *t, const char *word)
{
        pv_auto_str b = { 0 };
        pv_auto_free char *view = pv_strf("'%s'", t->view);
        for (const char *at; (at = strstr(word, view)); word = at + strlen(view)) {
                pv_str_put_bytes(&b, word, (size_t)(at - word));
                pv_str_putf(&b, "'%s'", t->root);
        }
        pv_str_put(&b, word);
        return pv_str_steal(&b);
}

/* The test's input fits into the files that stand in for pipes here, so that nothing can block. */
static int run(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
               size_t *out_len, int *exit_code, struct pv_err *err)
{
        struct pv_test_runner *t = ctx;
        pv_auto_fd from = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        pv_auto_fd to = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        pv_auto_strv words = { 0 };
        int status = 0;
        t->runs++;
        for (size_t i = 0; argv[i]; i++)
                pv_strv_take(&words, in_place(t, argv[i]));
        if (in_len)
                assert_int_equal(pv_fd_write_all(from, in, in_len, "input", err), 0);
        assert_int_equal(lseek(from, 0, SEEK_SET), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                set_environment();
                int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
                if (dup2(from, 0) < 0 || dup2(to, 1) < 0 || dup2(null, 2) < 0)
                        _exit(99);
                execvp(words.v[0], words.v);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (*exit_code == 127)
                return pv_err_set(err, PV_ERR_NOT_FOUND, 0, "%s", argv[0]);
        assert_int_equal(lseek(to, 0, SEEK_SET), 0);
        return pv_fd_read_all(to, max_out, "output", out, out_len, err);
}

struct pv_git_runner pv_test_runner(struct pv_test_runner *t)
{
        return (struct pv_git_runner){ run, t };
}

char *pv_test_dir_new(void)
{
        char *dir = pv_strdup("/tmp/pv-git-test-XXXXXX");
        assert_non_null(mkdtemp(dir));
        return dir;
}

void pv_test_dir_remove(char *dir)
{
        struct pv_err err = PV_ERR_INIT;
        assert_int_equal(pv_path_remove_tree(AT_FDCWD, dir, &err), 0);
        free(dir);
}

void pv_test_sh(const char *dir, const char *script)
{
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                set_environment();
                if (chdir(dir) < 0)
                        _exit(99);
                execl("/bin/sh", "sh", "-e", "-c", script, NULL);
                _exit(99);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}
