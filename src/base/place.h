/* SPDX-License-Identifier: Apache-2.0 */
/* Where the parts of this installation are: relative to the running executable, so that the tree can be moved. */
#ifndef PV_BASE_PLACE_H
#define PV_BASE_PLACE_H

#include "base/err.h"

/* The directory of the running executable, absolute. The caller's. */
int pv_place_self(char **out, struct pv_err *err);

/*
 * The first of these files that is there; places are relative to that directory and end with NULL. PV_ERR_SYS with a
 * hint when there is none. The caller's.
 */
int pv_place_find(const char *const *places, char **out, struct pv_err *err);

/*
 * The executable of this installation with that name: bin/pvisor finds libexec/pvisor/NAME, what stands in
 * libexec/pvisor finds its neighbours and bin/pvisor, and all find each other in the build directory. The caller's.
 */
int pv_place_program(const char *name, char **out, struct pv_err *err);

#endif
