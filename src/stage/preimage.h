/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preimages: what the host had at each changed path when the stage was sealed, and whether that can be trusted to be
 * what the command saw. One file a root, in the order of the walk, read and written as a stream.
 */
#ifndef PV_STAGE_PREIMAGE_H
#define PV_STAGE_PREIMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "stage/facts.h"

/* Why a preimage may not be what the command saw. Kept in files: new ones go to the end. */
enum pv_doubt {
        PV_DOUBT_NONE,
        PV_DOUBT_CHANGED,    /* ctime at T0 or later */
        PV_DOUBT_METADATA,   /* of a directory: mode or owner may have been changed */
        PV_DOUBT_DIRECTORY,  /* a directory above (or itself) may have been put in place of another */
        PV_DOUBT_GONE,       /* was there when the command copied it */
        PV_DOUBT_APPEARED,   /* is there now, was not at stop */
        PV_DOUBT_CLOCK,      /* the clock was set back or forth during the run */
        PV_DOUBT_REBOOT,     /* the machine went down during the run */
        PV_DOUBT_UNREADABLE, /* could not be looked at */
        PV_DOUBT_LOST,       /* the record of it is damaged */
        PV_DOUBT_DELETED,    /* the host had it when the run began, and had not at stop */
        PV_DOUBTS
};
/* A static sentence, for people. */
const char *pv_doubt_text(enum pv_doubt d);

struct pv_preimage {
        struct pv_facts host;
        enum pv_doubt doubt;
        bool landed;   /* an apply made it so while the command ran: what else the host has below is the host's own */
        bool recorded; /* it was read from a file of preimages; not kept there */
};

#define PV_PREIMAGES_FILE "preimages"

/*
 * Writes dirfd/name, whole or not at all: others see it after pv_preimages_finish(). run is the number of the run whose
 * end it records.
 */
struct pv_preimage_writer;
int pv_preimages_create(int dirfd, const char *name, unsigned run, struct pv_preimage_writer **out, struct pv_err *err);
/* Paths come in the order of the walk, each once. */
int pv_preimages_put(struct pv_preimage_writer *w, const char *path, const struct pv_preimage *p, struct pv_err *err);
enum pv_preimage_flags {
        PV_PREIMAGE_CACHED = 0,
        PV_PREIMAGE_DURABLE = 1 << 0, /* synced to disk before it replaces the old one, and the directory after */
};
int pv_preimages_finish(struct pv_preimage_writer *w, enum pv_preimage_flags flags,
                        struct pv_err *err); /* w is free()d either way */
void pv_preimages_abandon(struct pv_preimage_writer *w);

/* Reads it. A missing file reads as an empty one; *out is the caller's. */
struct pv_preimage_reader;
int pv_preimages_open(int dirfd, const char *name, struct pv_preimage_reader **out, struct pv_err *err);
void pv_preimages_close(struct pv_preimage_reader *r);
/* The number of the run whose end it records; 0: there is no file. */
unsigned pv_preimages_run(const struct pv_preimage_reader *r);
/* The next one: 1 with *path and *p, valid until the next call; 0 at the end; -1 PV_ERR_INPUT when damaged. */
int pv_preimages_next(struct pv_preimage_reader *r, const char **path, struct pv_preimage *p, struct pv_err *err);

#endif
