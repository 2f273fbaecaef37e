/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/command.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"
#include "base/str.h"

/* What execvp(3) uses without PATH, less the current directory. */
#define DEFAULT_PATH "/bin:/usr/bin"

static const char *path_of(char *const envp[])
{
        for (; envp && *envp; envp++)
                if (pv_str_has_prefix(*envp, "PATH="))
                        return *envp + strlen("PATH=");
        return DEFAULT_PATH;
}

/* A script without "#!" goes to the shell, execvp(3). */
static void exec_by_shell(const char *file, char *const argv[], char *const envp[])
{
        size_t n = 0;
        while (argv[n])
                n++;
        const char **shell = pv_calloc(n + 2, sizeof *shell);
        shell[0] = "/bin/sh";
        shell[1] = file;
        for (size_t i = 1; i < n; i++)
                shell[i + 1] = argv[i];
        (void)execve(shell[0], (char *const *)shell, envp);
        free(shell);
}

/* Returns errno of the attempt. */
static int try_exec(const char *file, char *const argv[], char *const envp[])
{
        (void)execve(file, argv, envp);
        if (errno == ENOEXEC) {
                exec_by_shell(file, argv, envp);
                errno = ENOEXEC;
        }
        return errno;
}

static bool goes_on(int sys)
{
        return sys == ENOENT || sys == ENOTDIR || sys == EACCES || sys == ESTALE || sys == ENODEV || sys == ETIMEDOUT;
}

static int search(char *const argv[], char *const envp[])
{
        int worst = ENOENT;
        for (const char *p = path_of(envp);; p++) {
                size_t n = strcspn(p, ":");
                pv_auto_free char *dir = n ? pv_strndup(p, n) : pv_strdup(".");
                pv_auto_free char *file = pv_path_join(dir, argv[0]);
                /* A look first: an execve(2) that fails costs ten times as much, and most places have no such file. */
                int sys = access(file, F_OK) < 0 ? errno : try_exec(file, argv, envp);
                if (!goes_on(sys))
                        return sys;
                if (sys == EACCES)
                        worst = EACCES;
                p += n;
                if (*p == '\0')
                        return worst;
        }
}

int pv_command_exec(char *const argv[], char *const envp[], struct pv_err *err)
{
        (void)signal(SIGXFSZ, SIG_DFL); /* which pVisor ignores for itself */
        int sys = strchr(argv[0], '/') ? try_exec(argv[0], argv, envp) : *argv[0] ? search(argv, envp) : ENOENT;
        if (sys == ENOENT || sys == ENOTDIR)
                return pv_err_set(err, PV_ERR_NOT_FOUND, strchr(argv[0], '/') ? sys : 0, "%s%s", argv[0],
                                  strchr(argv[0], '/') ? "" : ": command not found");
        return pv_err_set(err, PV_ERR_NOT_EXEC, sys, "%s", argv[0]);
}
