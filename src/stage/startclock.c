/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * A host edit that happens while a command runs must not be lost. It is told by its ctime, which nobody can set: it
 * comes from the clock of the kernel that serves the filesystem. So the run's start is taken from the same clock, by
 * touching a file on the same filesystem.
 *
 * Fine-grained timestamps (Linux 6.13, filesystems that take part): a timestamp that somebody has looked at is
 * followed by a strictly greater one. Touch, look, touch gives a T0 that is above everything written before and not
 * above anything written later, on the whole filesystem.
 *
 * Coarse ones (a tick of 1 to 10 ms; a second or two on old filesystems): an edit in the tick of the touch could be on
 * either side. So the touch is repeated until the time moves on: T0 is the first touch of a fresh tick. What was
 * written before has an earlier ctime, but for the few microseconds between the start of that tick and the touch,
 * which are wrongly held for later: that costs a look, and nothing is missed.
 *
 * Which of the two it is shows in behaviour: a coarse timestamp is never above CLOCK_REALTIME_COARSE. (A network
 * filesystem's clock may run ahead of ours and pass for fine-grained. Its T0 then is still one of its own clock, and
 * what can be missed is an edit in the same tick of that clock.)
 *
 * T0 is worth nothing when the clock goes backwards in between. The kernel cancels a timer on CLOCK_REALTIME when the
 * clock is set; a supervisor that was killed leaves only the offsets of the clocks to compare. Slewing keeps the
 * order. After another boot nothing is known: the stage's own files may also be incomplete, for its overlay is mounted
 * volatile. For that reason nothing here is synced to disk before the command starts: a crash of the machine makes
 * every path suspect anyway, by the boot id, or by a stage.json from before the run, which does not know of one.
 */
#include "stage/startclock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include "base/fd.h"

/* The coarsest timestamps in use are FAT's and HFS's, of 1 and 2 seconds. */
#define LONGEST_TICK_MS 2500
#define POLL_NS         200000
/* Largest rate at which the kernel slews: 500 ppm (adjtimex(2)); and what reading two clocks in turn may differ by. */
#define SLEW_PER_S      500000
#define OFFSET_NOISE_NS 5000000
#define MOST_READS      100
#define BILLION         1000000000LL

static int64_t clock_ns(clockid_t clock)
{
        struct timespec t;
        (void)clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * BILLION + t.tv_nsec;
}

static int touch(int fd, struct timespec *ctime)
{
        struct stat st;
        if (futimens(fd, NULL) < 0 || fstat(fd, &st) < 0)
                return -1;
        *ctime = st.st_ctim;
        return 0;
}

static bool is_same_filesystem(int a, int b)
{
        struct stat x, y;
        return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev;
}

static int open_clock_file(struct pv_pathfd target, int own, const char *name, struct pv_err *err)
{
        if (faccessat(target.fd, ".", W_OK, AT_EACCESS) < 0 && errno == EROFS) {
                (void)pv_err_set(err, PV_ERR_SYS, EROFS, "%s cannot be staged", name);
                return pv_err_hint(err, "nothing could ever be applied there; without --stage it can be run in");
        }
        int fd = is_same_filesystem(target.fd, own) ? fcntl(own, F_DUPFD_CLOEXEC, 0)
                                                    : pv_path_openat(target, ".", O_TMPFILE | O_RDWR, 0600);
        if (fd >= 0)
                return fd;
        (void)pv_err_set(err, PV_ERR_SYS, errno, "cannot read the clock of the filesystem of %s", name);
        return pv_err_hint(err, "--stage DIR with a directory on the same filesystem makes it readable");
}

/* Touches until the time moves on. */
static int wait_for_tick(int fd, struct timespec *t)
{
        struct timespec first = *t;
        int64_t give_up = clock_ns(CLOCK_MONOTONIC) + LONGEST_TICK_MS * 1000000LL;
        while (pv_clock_compare(t, &first) <= 0) {
                if (clock_ns(CLOCK_MONOTONIC) > give_up) {
                        errno = ETIME;
                        return -1;
                }
                (void)nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
                if (touch(fd, t) < 0)
                        return -1;
        }
        return 0;
}

int pv_startclock_take(struct pv_pathfd target, int own, const char *name, struct timespec *t0, struct pv_err *err)
{
        pv_auto_fd fd = open_clock_file(target, own, name, err);
        if (fd < 0)
                return -1;
        struct timespec before, after, t;
        if (touch(fd, &t) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the clock of the filesystem of %s", name);
        bool fine = false;
        do { /* again when a tick of the coarse clock passed meanwhile: then the comparison says nothing */
                (void)clock_gettime(CLOCK_REALTIME_COARSE, &before);
                if (touch(fd, &t) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read the clock of the filesystem of %s", name);
                (void)clock_gettime(CLOCK_REALTIME_COARSE, &after);
                fine = pv_clock_compare(&t, &after) > 0;
        } while (!fine && pv_clock_compare(&before, &after) != 0);
        if (!fine && wait_for_tick(fd, &t) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "wait for the clock of the filesystem of %s", name);
        *t0 = t;
        return 0;
}

void pv_startclock_read(struct pv_startclock *out)
{
        int64_t narrowest = INT64_MAX;
        pv_clock_boot_id(out->boot_id);
        /* Who has to wait for the processor between two of the clocks has compared different moments. */
        for (int tries = 0; tries < MOST_READS && narrowest > OFFSET_NOISE_NS / 50; tries++) {
                int64_t boot = clock_ns(CLOCK_BOOTTIME), real = clock_ns(CLOCK_REALTIME);
                int64_t monotonic = clock_ns(CLOCK_MONOTONIC), took = clock_ns(CLOCK_BOOTTIME) - boot;
                if (took >= narrowest)
                        continue;
                narrowest = took;
                out->realtime_ns = real - boot;
                out->suspended_ns = boot - monotonic;
                out->boottime_ns = boot;
        }
}

void pv_clockwatch_start(struct pv_clockwatch *w)
{
        struct itimerspec never = { .it_value.tv_sec = INT32_MAX };
        pv_fd_closep(&w->fd);
        w->fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
        if (w->fd >= 0 && timerfd_settime(w->fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0)
                pv_fd_closep(&w->fd);
}

bool pv_clockwatch_saw_step(const struct pv_clockwatch *w)
{
        uint64_t n;
        return w->fd >= 0 && read(w->fd, &n, sizeof n) < 0 && errno == ECANCELED;
}

enum pv_clock_verdict pv_startclock_judge(const struct pv_startclock *then, const struct pv_startclock *now,
                                          const struct pv_clockwatch *w)
{
        if (!*then->boot_id || !pv_streq(then->boot_id, now->boot_id))
                return PV_CLOCK_REBOOTED;
        int64_t ran_s = (now->boottime_ns - then->boottime_ns) / BILLION + 1;
        int64_t moved = now->realtime_ns - then->realtime_ns;
        bool offset_kept =
                moved <= OFFSET_NOISE_NS + ran_s * SLEW_PER_S && -moved <= OFFSET_NOISE_NS + ran_s * SLEW_PER_S;
        if (w->fd < 0)
                return offset_kept ? PV_CLOCK_STEADY : PV_CLOCK_STEPPED;
        if (!pv_clockwatch_saw_step(w))
                return PV_CLOCK_STEADY;
        /* Waking from sleep looks like a step; it is none when all clocks gained the same. */
        bool slept = now->suspended_ns - then->suspended_ns > OFFSET_NOISE_NS;
        return slept && offset_kept ? PV_CLOCK_STEADY : PV_CLOCK_STEPPED;
}
