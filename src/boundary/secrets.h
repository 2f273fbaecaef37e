/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own secrets: what of /etc no view shows, not to root either. */
#ifndef PV_BOUNDARY_SECRETS_H
#define PV_BOUNDARY_SECRETS_H

/* Paths relative to /etc, NULL-terminated. */
extern const char *const pv_secrets_etc[];

#endif
