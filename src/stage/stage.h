/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage: the copy-on-write layers of a job, its roots, their baselines. Layout of the directory:
 *
 *   stage.json            version, roots, layers with start clock and boot id, state
 *   other-ids             there when files of other groups or owners are in it
 *   lock                  locked (F_OFD_SETLK) by whoever runs in it or changes it
 *   decide                locked by whoever decides on what is staged, also while the command runs
 *   roots/<n>/layers/<k>  overlayfs upper directories in the kernel's own format, 0000 oldest
 *   roots/<n>/work        overlayfs work directory
 *   roots/<n>/preimages   what the target's changed paths were (written at stop)
 *   roots/<n>/bases       texts of them, for merging (written at stop and when changes land); bases-start: those of
 *   roots/<n>/start-<run> what files were when a run began, noted while it goes on
 *   roots/<n>/landed      the same of paths that were applied or undone while the command runs
 *   roots/<n>/ours        which changes of the host's inodes were our own publishing
 *   snapshots/<name>/     a stage each: copies of the upper, made while the command ran
 *   backup/<batch>/       displaced originals of applied batches
 *   journal               the batch that is under way
 *
 * Only the person's own processes touch it; the command sees it through the mount alone. What a command wrote
 * into the layers is hostile; the files beside them are ours but may be damaged, and are checked when read.
 */
#ifndef PV_STAGE_STAGE_H
#define PV_STAGE_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/path.h"
#include "base/process.h"
#include "policy/plan.h"

#define PV_STAGE_VERSION 1

enum pv_stage_lock {
        PV_STAGE_LOOK,    /* no lock: review and diff of a stage that may be running */
        PV_STAGE_TAKE,    /* exclusive; PV_ERR_BUSY at once when held: run, apply, undo, drop, checkpoint */
        PV_STAGE_DECIDE,  /* beside a run: waits some seconds for others who decide; PV_ERR_STATE: nothing runs */
        PV_STAGE_DISCARD, /* the same, to remove it: nothing is written before, for there may be no room to write */
};

struct pv_freezer; /* apply.h */
struct pv_stage;   /* opaque; open descriptors of the stage directory, its roots' targets and layers */

/* Of a stage that is taken, for a run: who takes it next waits until that process, its sandbox's first, is dead. */
void pv_stage_note_init(const struct pv_stage *s, const struct pv_process *init);
/* Its command is dead: who wants the stage now waits until it is closed. */
void pv_stage_note_over(const struct pv_stage *s);

/* Makes a new stage in dir (made when missing; else it must be empty) for these roots and takes its lock. */
int pv_stage_create(const char *dir, const struct pv_root *roots, size_t n_roots, struct pv_stage **out,
                    struct pv_err *err);
/*
 * Opens an existing one. A newer version, a damaged file or a missing layer is PV_ERR_INPUT naming it. A
 * stage whose run ended without a seal (its supervisor was killed) is sealed now, when the lock is TAKEn.
 */
int pv_stage_open(const char *dir, enum pv_stage_lock lock, struct pv_stage **out, struct pv_err *err);
void pv_stage_close(struct pv_stage *s);
static inline void pv_stage_closep(struct pv_stage **s)
{
        pv_stage_close(*s);
        *s = NULL;
}
#define pv_auto_stage __attribute__((cleanup(pv_stage_closep))) struct pv_stage *

/*
 * Before the stage in dir is opened to decide on it: takes rights over all files of one's own (base/own_files.h), but
 * not where a run found files of the person's other groups, or of others, which would be nobody's then. Must:
 * single-threaded.
 */
void pv_stage_own_files(const char *dir);

/* What serves its views from now on; before it is called: the kernel, and FUSE where that cannot. */
void pv_stage_set_backend(struct pv_stage *s, enum pv_stage_backend backend);

size_t pv_stage_n_roots(const struct pv_stage *s);
const struct pv_root *pv_stage_root(const struct pv_stage *s, size_t i);
const char *pv_stage_dir(const struct pv_stage *s);
bool pv_stage_is_running(const struct pv_stage *s); /* its lock is held by another process */

/*
 * The mounted views of the roots of the run beside which this stage was opened, in its order ({-1}: none); taken. With
 * them a directory of the host's that somebody saved a file in can be told from one that was put in its place.
 */
void pv_stage_take_views(struct pv_stage *s, struct pv_pathfd *views);

/* Has another directory the target's name now than when the last run began (a new clone, a restored copy, a move)? */
bool pv_stage_is_another_target(const struct pv_stage *s, size_t i);

/* Descriptors, borrowed: the stage directory, and the target of root i. */
struct pv_pathfd pv_stage_dirfd(const struct pv_stage *s);
struct pv_pathfd pv_stage_target(const struct pv_stage *s, size_t i);

/*
 * Prepares for a run: clears work/, takes the start clock T0 of each root from the target filesystem's own
 * clock, notes it with the boot id in stage.json (durable before the command starts), and fills the overlays
 * to mount. The array and what it points to belong to the stage. A root that the kernel's overlayfs cannot serve
 * (submounts below it, owner or group not mapped here, a filesystem that refuses) is by_fuse with the reason;
 * PV_ERR_UNSUPPORTED, with it too, where that can neither or the backend is KERNEL.
 */
int pv_stage_begin_run(struct pv_stage *s, const struct pv_overlay **overlays, size_t *n, struct pv_err *err);

/* The overlays for looking only (inspect, contained git): the same layers, with this directory's upper and
 * work. */
int pv_stage_view_overlays(struct pv_stage *s, const char *throwaway_dir, const struct pv_overlay **overlays, size_t *n,
                           struct pv_err *err);

/*
 * The same for a stage that was opened with PV_STAGE_DECIDE: views show, from now on, a copy of what is staged at this
 * moment, made in throwaway_dir while the command stands still. Others may decide on the stage again afterwards.
 */
int pv_stage_copy_for_views(struct pv_stage *s, const char *throwaway_dir, const struct pv_freezer *freezer,
                            struct pv_err *err);

/*
 * At stop: walks the upper layers, records the preimage of each changed path that has none yet, and what is
 * suspect (target's ctime at or after T0, ancestors that are not the host's any more, a clock step, another
 * boot). views[i] is the still-mounted view of root i, the channel to the program that serves it over FUSE
 * (base/fuse_channel.h), or {-1}; views may be NULL (nothing is mounted any more).
 */
int pv_stage_seal(struct pv_stage *s, const struct pv_pathfd *views, struct pv_err *err);

/* Freezes the upper of an ended stage under a name and starts a new one on top. O(1). */
int pv_stage_checkpoint(struct pv_stage *s, const char *name, struct pv_err *err);
/* A new stage in dir that stands on parent's layers up to the checkpoint (NULL: freezes now). O(1). */
int pv_stage_fork(struct pv_stage *parent, const char *checkpoint, const char *dir, struct pv_stage **out,
                  struct pv_err *err);
/*
 * A checkpoint of a stage that was opened with PV_STAGE_DECIDE: a copy of what is staged, made while the command stands
 * still. Forks stand on the stage that pv_stage_snapshot_dir() names, at its checkpoint of the same name.
 */
int pv_stage_snapshot(struct pv_stage *s, const char *name, const struct pv_freezer *freezer, struct pv_err *err);
/* NULL: there is none of that name. The caller's. */
char *pv_stage_snapshot_dir(const char *stage_dir, const char *name);
/* Names of the checkpoints, oldest first: those made while nothing ran, then the others. */
int pv_stage_checkpoints(const struct pv_stage *s, struct pv_strv *names, struct pv_err *err);

/*
 * Without its targets a stage can be opened (PV_STAGE_TAKE) and removed, but nothing else: PV_ERR_SYS naming the root
 * whose directory is not there any more; PV_ERR_INPUT when the stage itself was never finished or is half removed.
 */
int pv_stage_require_targets(const struct pv_stage *s, struct pv_err *err);
bool pv_stage_is_half_removed(const struct pv_stage *s);

/* Removes the whole stage directory; refused (PV_ERR_BUSY) while another stage stands on its layers. */
int pv_stage_remove(struct pv_stage *s, struct pv_err *err);
/* Bytes on disk of the layers. Costs a walk of the layers. */
int pv_stage_size(const struct pv_stage *s, uint64_t *bytes, struct pv_err *err);

#endif
