/* SPDX-License-Identifier: Apache-2.0 */
/* How a callback that is given a member finds the struct that the member lies in. */
#ifndef PV_BASE_CONTAINER_H
#define PV_BASE_CONTAINER_H

#include <stddef.h>

#define PV_CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
