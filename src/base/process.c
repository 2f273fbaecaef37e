/* SPDX-License-Identifier: Apache-2.0 */
#include "base/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"
#include "base/syscall.h"

/* Where no descriptor tells its end. */
#define STEP_MS 5

/*
 * State and start time of /proc/PID/stat (proc(5), fields 3 and 22). A zombie is dead: the kernel makes a namespace's
 * first process one only when all others in there are gone.
 */
static bool read_stat(pid_t pid, char *state, uint64_t *start)
{
        char path[32], text[1024];
        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
                return false;
        text[n] = '\0';
        const char *p = strrchr(text, ')'); /* the name before it may hold anything */
        if (!p || p[1] != ' ')
                return false;
        *state = p[2];
        for (int field = 2; p && field < 22; field++)
                p = strchr(p + 1, ' ');
        *start = p ? strtoull(p, NULL, 10) : 0;
        return *start > 0;
}

static uint64_t own_namespace(void)
{
        struct stat st;
        return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

void pv_process_of(pid_t pid, struct pv_process *out)
{
        char state;
        *out = (struct pv_process){ .ns = own_namespace() };
        pv_clock_boot_id(out->boot);
        if (read_stat(pid, &state, &out->start))
                out->pid = pid;
}

size_t pv_process_format(const struct pv_process *p, char out[PV_PROCESS_TEXT])
{
        return (size_t)snprintf(out, PV_PROCESS_TEXT, "%-10d %-20" PRIu64 " %-20" PRIu64 " %-36s\n", (int)p->pid,
                                p->start, p->ns, *p->boot ? p->boot : "-");
}

/* One that is none, too. */
static bool read_text(const char *text, struct pv_process *out)
{
        int pid = 0;
        *out = (struct pv_process){ 0 };
        if (sscanf(text, "%d %" SCNu64 " %" SCNu64 " %36s", &pid, &out->start, &out->ns, out->boot) != 4)
                return false;
        out->pid = (pid_t)pid;
        return true;
}

bool pv_process_parse(const char *text, struct pv_process *out)
{
        struct pv_process p;
        if (!read_text(text, &p) || p.pid <= 0 || p.start == 0)
                return false;
        *out = p;
        return true;
}

enum pv_process_state pv_process_look(const struct pv_process *p)
{
        char boot[PV_BOOT_ID_TEXT], state;
        uint64_t start;
        if (p->pid == 0)
                return PV_PROCESS_GONE;
        pv_clock_boot_id(boot);
        if (!pv_streq(boot, p->boot)) /* another boot of this machine, or another machine */
                return PV_PROCESS_UNSEEN;
        if (p->ns != own_namespace())
                return PV_PROCESS_UNSEEN;
        if (!read_stat(p->pid, &state, &start) || start != p->start || state == 'Z' || state == 'X')
                return PV_PROCESS_GONE;
        return PV_PROCESS_LIVES;
}

enum pv_process_state pv_process_await(const struct pv_process *p, int timeout_ms)
{
        uint64_t until = pv_clock_monotonic_ms() + (uint64_t)timeout_ms;
        enum pv_process_state state = pv_process_look(p);
        if (state != PV_PROCESS_LIVES)
                return state;
        pv_auto_fd fd = pv_sys_pidfd_open(p->pid, 0);
        struct pollfd end = { .fd = fd, .events = POLLIN };
        while ((state = pv_process_look(p)) == PV_PROCESS_LIVES && pv_clock_monotonic_ms() < until)
                (void)poll(&end, 1, fd < 0 ? STEP_MS : timeout_ms);
        return state;
}

/* Behind the process, the one as long as the other. */
#define OVER     "over\n"
#define NOT_OVER "    \n"

static bool read_note(int lock, struct pv_process *out, bool *over)
{
        char text[PV_PROCESS_TEXT + sizeof OVER];
        ssize_t n = pread(lock, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        const char *second = strchr(text, '\n');
        *over = second && pv_streq(second + 1, OVER);
        return pv_process_parse(text, out);
}

static void write_note(int lock, const struct pv_process *p, bool over)
{
        char text[PV_PROCESS_TEXT + sizeof OVER];
        size_t n = pv_process_format(p, text);
        (void)snprintf(text + n, sizeof text - n, "%s", over ? OVER : NOT_OVER);
        ssize_t ignored = pwrite(lock, text, strlen(text), 0);
        (void)ignored; /* on a full disk: nobody waits, then */
}

void pv_process_note(int lock, const struct pv_process *first)
{
        write_note(lock, first, false);
}

void pv_process_note_none(int lock)
{
        struct pv_process first;
        bool over;
        if (read_note(lock, &first, &over))
                write_note(lock, &(struct pv_process){ 0 }, false);
}

void pv_process_note_over(int lock)
{
        struct pv_process first;
        bool over;
        if (read_note(lock, &first, &over))
                write_note(lock, &first, true);
}

bool pv_process_noted_over(int lock)
{
        struct pv_process first;
        bool over;
        return read_note(lock, &first, &over) && (over || pv_process_look(&first) == PV_PROCESS_GONE);
}

bool pv_process_noted_lives(int lock, int timeout_ms)
{
        struct pv_process first;
        bool over;
        return read_note(lock, &first, &over) && pv_process_await(&first, timeout_ms) == PV_PROCESS_LIVES;
}

bool pv_process_is_note(int lock)
{
        char text[PV_PROCESS_TEXT + sizeof OVER + 1], again[PV_PROCESS_TEXT]; /* more than a note has */
        struct pv_process p;
        ssize_t n = pread(lock, text, sizeof text - 1, 0);
        if (n <= 0)
                return n == 0;
        text[n] = '\0';
        if (strlen(text) != (size_t)n || !read_text(text, &p))
                return false;
        size_t first = pv_process_format(&p, again);
        return pv_str_has_prefix(text, again) && (pv_streq(text + first, OVER) || pv_streq(text + first, NOT_OVER));
}

bool pv_signal_is_ignored(int sig)
{
        struct sigaction a;
        return sigaction(sig, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}
