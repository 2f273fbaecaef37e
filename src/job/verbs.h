/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of control.h that have a file of their own; each is a row of the table in verbs.c. */
#ifndef PV_JOB_VERBS_H
#define PV_JOB_VERBS_H

#include "job/control.h"

extern const struct pv_control_verb pv_control_beside;  /* beside.c */
extern const struct pv_control_verb pv_control_exec;    /* exec.c */
extern const struct pv_control_verb pv_control_freeze;  /* freeze.c */
extern const struct pv_control_verb pv_control_allow;   /* grants.c */
extern const struct pv_control_verb pv_control_publish; /* grants.c */
extern const struct pv_control_verb pv_control_attach;  /* attach.c */

#endif
