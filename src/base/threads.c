/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/parallel.h"

#define THREADS_MOST     8
#define DESCRIPTORS_EACH 512 /* it holds the directories above its files open, in the target and in each layer */

struct helper {
        struct pv_parallel_loop *loop;
        pthread_t thread;
        pid_t tid;
};

static void *help(void *arg)
{
        struct helper *h = arg;
        h->tid = gettid();
        pv_parallel_run(h->loop);
        return NULL;
}

static size_t count_cpus(void)
{
        cpu_set_t set;
        return sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
}

/* A thread that was joined may still be on its way out of the kernel. */
static void see_off(const struct helper *h)
{
        (void)pthread_join(h->thread, NULL);
        while (tgkill(getpid(), h->tid, 0) == 0)
                (void)sched_yield();
}

/* As many descriptors as so many threads hold, if the person may have them. Returns how many threads have enough. */
static size_t raise_descriptor_limit(size_t threads, const struct rlimit *old)
{
        struct rlimit more = *old;
        const rlim_t want = (rlim_t)threads * DESCRIPTORS_EACH;
        if (want <= old->rlim_cur)
                return threads;
        more.rlim_cur = want < old->rlim_max ? want : old->rlim_max;
        const rlim_t have = setrlimit(RLIMIT_NOFILE, &more) == 0 ? more.rlim_cur : old->rlim_cur;
        return (size_t)(have < want ? have / DESCRIPTORS_EACH : threads);
}

/*
 * The caller's thread works, too; where no other can be made, alone. The limit of descriptors is the person's again
 * afterwards: what is started later has it.
 */
static void share_among_threads(struct pv_parallel_loop *loop, size_t chunks)
{
        struct helper helper[THREADS_MOST - 1];
        struct rlimit descriptors = { 0 };
        size_t n = 0, most = count_cpus();
        most = most < THREADS_MOST ? most : THREADS_MOST;
        most = most < chunks ? most : chunks;
        const bool limited = getrlimit(RLIMIT_NOFILE, &descriptors) == 0;
        if (limited)
                most = raise_descriptor_limit(most, &descriptors);
        for (; n + 1 < most; n++) {
                helper[n] = (struct helper){ .loop = loop };
                if (pthread_create(&helper[n].thread, NULL, help, &helper[n]) != 0)
                        break;
        }
        pv_parallel_run(loop);
        while (n > 0)
                see_off(&helper[--n]);
        if (limited)
                (void)setrlimit(RLIMIT_NOFILE, &descriptors);
}

void pv_parallel_use_threads(void)
{
        pv_parallel_set_share(share_among_threads);
}
