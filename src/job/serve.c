/* SPDX-License-Identifier: Apache-2.0 */
#include "job/serve.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/fuse_channel.h"
#include "base/place.h"
#include "base/str.h"
#include "base/syscall.h"

#define PROGRAM    "pvisor-fuse"
#define FD_CHANNEL 3 /* where the program expects it */
#define END_MS     5000

/* Arguments: upper, work, the host's directory, the frozen layers. The array is the caller's, not the strings. */
static char **arguments(const struct pv_overlay *o, char *program)
{
        char **argv = pv_calloc(o->n_frozen + 5, sizeof *argv);
        argv[0] = program;
        argv[1] = o->upper ? o->upper : (char *)"";
        argv[2] = o->work ? o->work : (char *)"";
        argv[3] = o->root->target;
        for (size_t i = 0; i < o->n_frozen; i++)
                argv[4 + i] = o->frozen[i];
        return argv;
}

/* In the child. */
static void exec_program(const char *path, char **argv, int channel)
{
        int fd = channel == FD_CHANNEL ? channel : dup2(channel, FD_CHANNEL);
        struct pv_err ignored = PV_ERR_INIT;
        if (fd == FD_CHANNEL && pv_fd_set_cloexec(fd, 0, &ignored) == 0)
                (void)execv(path, argv);
        _exit(127);
}

static int start_one(struct pv_serving *s, size_t i, struct pv_err *err)
{
        struct pv_overlay *o = &s->overlays[i];
        char name[] = PROGRAM;
        int pair[2];
        pv_auto_free char *path = NULL;
        if (pv_place_program(PROGRAM, &path, err) < 0)
                return -1;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a channel");
        o->channel = pair[0];
        pv_auto_fd theirs = pair[1];
        pv_auto_free char **argv = arguments(o, name);
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start " PROGRAM);
        if (pid == 0)
                exec_program(path, argv, theirs);
        s->pid[i] = pid;
        return 0;
}

int pv_serve_start(const struct pv_overlay *overlays, size_t n, struct pv_serving *out, struct pv_err *err)
{
        *out = (struct pv_serving){ .n = n };
        out->overlays = pv_calloc(n + 1, sizeof *out->overlays);
        out->pid = pv_calloc(n + 1, sizeof *out->pid);
        for (size_t i = 0; i < n; i++) {
                out->overlays[i] = overlays[i];
                out->overlays[i].channel = -1;
        }
        for (size_t i = 0; i < n; i++)
                if (overlays[i].by_fuse && start_one(out, i, err) < 0)
                        return -1;
        return 0;
}

struct pv_pathfd pv_serve_channel(const struct pv_serving *s, size_t i)
{
        return (struct pv_pathfd){ i < s->n ? s->overlays[i].channel : -1 };
}

void pv_serve_write_back(const struct pv_serving *s)
{
        uint64_t ignored;
        for (size_t i = 0; i < s->n; i++)
                if (s->overlays[i].channel >= 0)
                        (void)pv_fuse_channel_ask(s->overlays[i].channel, PV_FUSE_WRITE_BACK, &ignored);
}

/* With the mount and the channel gone it ends by itself. */
static bool end_one(pid_t pid)
{
        int status;
        pv_auto_fd fd = pv_sys_pidfd_open(pid, 0);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int gone = poll(&p, 1, END_MS);
        if (gone <= 0)
                (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return false;
        return gone > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool pv_serve_end(struct pv_serving *s)
{
        bool well = true;
        for (size_t i = 0; i < s->n; i++)
                pv_fd_closep(&s->overlays[i].channel);
        for (size_t i = 0; i < s->n; i++)
                if (s->pid[i] > 0)
                        well = end_one(s->pid[i]) && well;
        free(s->overlays);
        free(s->pid);
        *s = (struct pv_serving)PV_SERVING_INIT;
        return well;
}
