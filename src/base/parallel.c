/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parallel.h"

#include <stdatomic.h>

struct pv_parallel_loop {
        size_t n, chunk;
        pv_parallel_work *work;
        void *ctx;
        atomic_size_t next; /* the first chunk that nobody has begun */
};

static pv_parallel_share *share_out; /* NULL: there are no threads */

void pv_parallel_set_share(pv_parallel_share *share)
{
        share_out = share;
}

void pv_parallel_run(struct pv_parallel_loop *loop)
{
        size_t from;
        while ((from = atomic_fetch_add(&loop->next, 1) * loop->chunk) < loop->n)
                loop->work(loop->ctx, from, loop->n - from < loop->chunk ? loop->n : from + loop->chunk);
}

void pv_parallel_for(size_t n, size_t chunk, pv_parallel_work *work, void *ctx)
{
        struct pv_parallel_loop loop = { .n = n, .chunk = chunk, .work = work, .ctx = ctx };
        if (share_out && n > chunk)
                share_out(&loop, (n + chunk - 1) / chunk);
        else
                pv_parallel_run(&loop);
}
