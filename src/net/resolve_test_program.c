/* SPDX-License-Identifier: Apache-2.0 */
/* What resolve_test.c has in the place of pvisor-resolve: the first label of a name says how it is answered. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "net/resolve_packet.h"

#define PAUSE_MS 50 /* in which a question too many would come */

static struct pv_resolve_question held[PV_RESOLVE_AT_ONCE];
static size_t n_held;

static bool is(const char *name, const char *label)
{
        size_t n = strlen(label);
        return strncmp(name, label, n) == 0 && name[n] == '.';
}

static void say(const struct pv_resolve_answer *a, size_t size)
{
        if (send(PV_RESOLVE_FD, a, size, MSG_NOSIGNAL) < 0)
                _exit(1);
}

static bool has_only_its_descriptors(void)
{
        struct stat st;
        DIR *d = opendir("/proc/self/fd");
        size_t n = 0;
        for (int i = 0; i < 3; i++)
                if (fstat(i, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
                        return false;
        if (!d)
                return false;
        for (const struct dirent *e; (e = readdir(d));)
                n += e->d_name[0] != '.';
        (void)closedir(d);
        return n == PV_RESOLVE_FD + 2; /* and the directory's */
}

static bool is_set_apart(void)
{
        sigset_t blocked;
        int death = 0;
        const char *options = getenv("RES_OPTIONS");
        for (int s = 1; s < 32; s++)
                if (sigprocmask(SIG_BLOCK, NULL, &blocked) < 0 || sigismember(&blocked, s))
                        return false;
        return has_only_its_descriptors() && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
               prctl(PR_GET_PDEATHSIG, &death) == 0 && death == SIGKILL && !getenv("HOME") && options &&
               strcmp(options, "timeout:1") == 0 && !environ[1];
}

/* Answers when as many have come as may be asked at once, the last one first, and tells when there was one more. */
static void hold(const struct pv_resolve_question *q)
{
        held[n_held++] = *q;
        if (n_held < PV_RESOLVE_AT_ONCE)
                return;
        struct pollfd p = { .fd = PV_RESOLVE_FD, .events = POLLIN };
        bool one_more = poll(&p, 1, PAUSE_MS) != 0;
        while (n_held > 0) {
                struct pv_resolve_answer a = { .number = held[--n_held].number };
                a.answer.status = one_more ? PV_RESOLVE_FAILED : PV_RESOLVE_FOUND;
                a.answer.n = one_more ? 0 : 1;
                say(&a, sizeof a);
        }
}

/* The address is the number of this question and the process. */
static void answer(const struct pv_resolve_question *q, unsigned count)
{
        struct {
                struct pv_resolve_answer a;
                char more[64];
        } said = { .a = { .number = q->number, .answer = { .status = PV_RESOLVE_FOUND, .n = 1 } } };
        struct pv_resolved *r = &said.a.answer;
        size_t size = sizeof said.a;
        pid_t self = getpid();
        r->addr[0].b[0] = (uint8_t)count;
        memcpy(r->addr[0].b + 4, &self, sizeof self);
        if (is(q->name, "die"))
                _exit(0);
        if (is(q->name, "set-apart") && !is_set_apart())
                *r = (struct pv_resolved){ .status = PV_RESOLVE_FAILED };
        if (is(q->name, "none"))
                *r = (struct pv_resolved){ .status = PV_RESOLVE_NO_NAME };
        if (is(q->name, "several"))
                r->n = PV_RESOLVE_ADDRESSES;
        if (is(q->name, "too-many"))
                r->n = PV_RESOLVE_ADDRESSES + 1;
        if (is(q->name, "endless"))
                r->n = SIZE_MAX;
        if (is(q->name, "empty"))
                r->n = 0;
        if (is(q->name, "none-with-address"))
                r->status = PV_RESOLVE_NO_NAME;
        if (is(q->name, "status"))
                r->status = (enum pv_resolve_status)77;
        if (is(q->name, "number"))
                said.a.number++;
        if (is(q->name, "nothing"))
                size = 0;
        if (is(q->name, "short"))
                size--;
        if (is(q->name, "long"))
                size = sizeof said;
        say(&said.a, size);
        if (is(q->name, "twice"))
                say(&said.a, size);
}

int main(void)
{
        struct pv_resolve_question q;
        for (unsigned count = 1; recv(PV_RESOLVE_FD, &q, sizeof q, 0) == (ssize_t)sizeof q; count++)
                if (is(q.name, "hold"))
                        hold(&q);
                else
                        answer(&q, count);
        return 0;
}
