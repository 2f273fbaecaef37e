/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passwd(5) read as a file. getpwuid(3) would ask the name service, whose parts are shared objects that a statically
 * linked program cannot load (docs/decisions/0189-linked-statically.md).
 */
#ifndef PV_BASE_PASSWD_H
#define PV_BASE_PASSWD_H

#include <sys/types.h>

#define PV_PASSWD "/etc/passwd"

/* The absolute home directory of a user as that file has it; NULL: it has none. The caller's. */
char *pv_passwd_home(const char *file, uid_t uid);

#endif
