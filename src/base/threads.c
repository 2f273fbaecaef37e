/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#include "base/parallel.h"

#define THREADS_MOST 8 /* each holds directories open */

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

/* The caller's thread works, too; where no other can be made, alone. */
static void share_among_threads(struct pv_parallel_loop *loop, size_t chunks)
{
        struct helper helper[THREADS_MOST - 1];
        size_t n = 0, most = count_cpus();
        most = most < THREADS_MOST ? most : THREADS_MOST;
        most = most < chunks ? most : chunks;
        for (; n + 1 < most; n++) {
                helper[n] = (struct helper){ .loop = loop };
                if (pthread_create(&helper[n].thread, NULL, help, &helper[n]) != 0)
                        break;
        }
        pv_parallel_run(loop);
        while (n > 0)
                see_off(&helper[--n]);
}

void pv_parallel_use_threads(void)
{
        pv_parallel_set_share(share_among_threads);
}
