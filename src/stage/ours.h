/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What we did to the host ourselves while a command runs. Publishing moves the ctime of the directory in which it is
 * done, and that of all other names of a file of which one is moved; by that time the seal tells what the host changed.
 * roots/<n>/ours says of such inodes with which ctime they were left, where it is certain that nobody but us had
 * touched them since the run began. The theory of operation heads ours.c. Inside src/stage.
 */
#ifndef PV_STAGE_OURS_H
#define PV_STAGE_OURS_H

#include "stage/engine.h"
#include "stage/scan.h"

/*
 * From before a batch is published until it is settled: what others do meanwhile to the directories and files that it
 * touches is seen. Never fails: what cannot be watched is not noted, and stands in doubt. The caller's.
 */
struct pv_ours_watch;
struct pv_ours_watch *pv_ours_watch(struct pv_engine *e);
/* All items are published and settled: notes what is certain. */
void pv_ours_note(struct pv_engine *e, struct pv_ours_watch *w);
void pv_ours_unwatch(struct pv_ours_watch *w);
static inline void pv_ours_unwatchp(struct pv_ours_watch **w)
{
        pv_ours_unwatch(*w);
}
#define pv_auto_ours_watch __attribute__((cleanup(pv_ours_unwatchp))) struct pv_ours_watch *

/* What was noted of a root during the newest run. Never fails: what cannot be read is not noted. The caller's. */
struct pv_ours;
struct pv_ours *pv_ours_open(const struct pv_stage *s, size_t root);
void pv_ours_close(struct pv_ours *o);
/* Is it as we left it, and was it before as the run began on it? */
bool pv_ours_has_directory(const struct pv_ours *o, uint64_t ino, const struct timespec *ctime);
bool pv_ours_has_file(const struct pv_ours *o, const struct pv_scan_entry *e);

/* Relative to the stage's directory. The caller's. */
char *pv_ours_file(size_t root);

#endif
