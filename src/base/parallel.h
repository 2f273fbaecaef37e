/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop over many things that do not depend on each other, shared among the CPUs. Only a program whose main says so
 * has threads, and only while such a loop runs: what starts and guards jobs stays single-threaded, since it forks and
 * changes namespaces. Elsewhere, with one CPU, or where there is little to do, the loop runs on the caller's thread
 * alone. What comes out is the same.
 */
#ifndef PV_BASE_PARALLEL_H
#define PV_BASE_PARALLEL_H

#include <stddef.h>

/* Does what there is to do for [from, end). Called on any thread: it must write nothing but what is of this range. */
typedef void pv_parallel_work(void *ctx, size_t from, size_t end);

/*
 * Calls work for ranges of `chunk` (the last may be shorter) that together are [0, n). They are begun in rising order:
 * when one is, all before it are. Returns when all are done.
 */
void pv_parallel_for(size_t n, size_t chunk, pv_parallel_work *work, void *ctx);

/*
 * From now on with threads. Called by main, once. They are gone when pv_parallel_for() returns, for the kernel too:
 * unshare(2) and setns(2) refuse a process with threads.
 */
void pv_parallel_use_threads(void);

/* Between parallel.c and threads.c, which is linked only where it is asked for. */
struct pv_parallel_loop;
typedef void pv_parallel_share(struct pv_parallel_loop *loop, size_t chunks);
void pv_parallel_set_share(pv_parallel_share *share);
/* Takes ranges until there are none left. */
void pv_parallel_run(struct pv_parallel_loop *loop);

#endif
