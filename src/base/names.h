/* SPDX-License-Identifier: Apache-2.0 */
/* Names that pVisor gives to entries of a workspace for the while of one operation. */
#ifndef PV_BASE_NAMES_H
#define PV_BASE_NAMES_H

/* A directory that is being renamed in a view, until it is whole: nobody's content. */
#define PV_NAME_RENAMING ".pvisor-rename-"

#endif
