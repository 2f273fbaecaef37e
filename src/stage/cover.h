/* SPDX-License-Identifier: Apache-2.0 */
/* Standing something over an entry that must stay in a layer below. Inside src/stage. */
#ifndef PV_STAGE_COVER_H
#define PV_STAGE_COVER_H

#include "stage/facts.h"
#include "stage/state.h"

/*
 * Makes the view show at path what the host has there now: a copy in the top layer (of a directory, it alone), or a
 * whiteout where the host has nothing. What the top layer has there already stays. host gets what the host has; its
 * link lives in text. Directories come before what is in them.
 */
int pv_layer_cover(struct pv_stage *s, size_t root, const char *path, struct pv_arena *text, struct pv_facts *host,
                   struct pv_err *err);

/*
 * Covers with whiteouts what the layers below the top have in the directory of that path and the host has not: it was
 * hidden by what stood there, and would show in the directory that does now.
 */
int pv_layer_cover_entries(struct pv_stage *s, size_t root, const char *path, struct pv_err *err);

#endif
