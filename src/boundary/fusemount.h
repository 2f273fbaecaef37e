/* SPDX-License-Identifier: Apache-2.0 */
/* Mounting a FUSE overlay whose server (src/fuse) waits on a channel for the descriptor. */
#ifndef PV_BOUNDARY_FUSEMOUNT_H
#define PV_BOUNDARY_FUSEMOUNT_H

#include <stdbool.h>
#include "base/err.h"
#include "base/path.h"
#include "boundary/userns.h"

struct pv_fusemount {
        int channel;                /* to the server */
        const struct pv_idmap *ids; /* of the user namespace that the mount is made in */
        struct pv_pathfd target;    /* the host's directory */
        struct pv_pathfd mask;      /* a layer of whiteouts above it, or {-1} */
        unsigned attr;              /* MOUNT_ATTR_ flags */
};

/*
 * Opens /dev/fuse, creates the mount detached, hands the descriptor over and waits for the server's word. Must: the
 * host's /dev in view (the kernel wants the device opened in the user namespace that mounts), CAP_SYS_ADMIN over the
 * mount namespace. PV_ERR_UNSUPPORTED when FUSE cannot be used here.
 */
int pv_fusemount(const struct pv_fusemount *m, int *mount, struct pv_err *err);

/* Whether this process could open /dev/fuse; else err says why, and the fix. */
int pv_fusemount_check_device(struct pv_err *err);

#endif
