/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of the host that --device shows, and what each opens: a disk holds every file, an input device hears every
 * key, a network device knows no namespace. What is not known opens everything.
 */
#ifndef PV_POLICY_DEVICES_H
#define PV_POLICY_DEVICES_H

#include <stdbool.h>
#include <sys/stat.h>
#include "base/err.h"
#include "policy/plan.h"

/*
 * Judges one device, path being its real one below /dev: what it opens is added to plan->services. PV_ERR_POLICY for
 * one that opens anything under --safe without i_know.
 */
int pv_devices_check(struct pv_plan *plan, const char *path, const struct stat *st, bool i_know, struct pv_err *err);

#endif
