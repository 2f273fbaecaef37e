/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of groups. An ordinary user's server moves into a user namespace, where it has rights over all files of
 * the person's own whatever their modes say; there it cannot give a file to another group of the person's, for which
 * that namespace has no id. A child that stays outside does this one thing.
 */
#ifndef PV_FUSE_KEEPER_H
#define PV_FUSE_KEEPER_H

#include "base/err.h"

/* Forks it; *out is the channel to it, the caller's. It ends with the caller or when that closes the channel. */
int pv_fuse_keeper_start(int *out, struct pv_err *err);

/*
 * Gives `to` the group that `from` has (descriptors, O_PATH will do). What the person may not give is left as it is:
 * that is no failure. -1 with errno when the keeper is gone.
 */
int pv_fuse_keeper_copy_group(int keeper, int from, int to);

#endif
