/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What files of the host were when a run began, noted soon after, for those that git lists or would add:
 * roots/<n>/start-<run>. A
 * file that the host changes while the job runs has no preimage that could be trusted; this says what it was, by the
 * blob that git has of it, or, where that has none of it, by a text kept in `bases`. Only files whose
 * ctime lies before the run's start are noted, so it matters not when it is done; and those that git lists and that are
 * gone from a directory that was changed since.
 */
#ifndef PV_STAGE_NOTES_H
#define PV_STAGE_NOTES_H

#include <stdbool.h>
#include "stage/facts.h"
#include "stage/stage.h"

#define PV_NOTES_OID_TEXT 65

/* What git's index says of a file. */
struct pv_notes_known {
        char oid[PV_NOTES_OID_TEXT]; /* hexadecimal */
        struct timespec ctime, mtime;
        uint64_t size;
};

/* Writing: by one process at a time, the newest run's. NULL where it cannot be. */
struct pv_notes;
struct pv_notes *pv_notes_new(const struct pv_stage *s, size_t root);
/*
 * Looks at the file and notes it. known NULL: git does not have it. indexed: when git's index was written; what is as
 * new as that proves nothing.
 */
void pv_notes_put(struct pv_notes *n, const char *path, const struct pv_notes_known *known,
                  const struct timespec *indexed);
/* Makes it known (keep), or forgets it. */
void pv_notes_finish(struct pv_notes *n, bool keep);

/* The paths that were noted of the newest run: the host had them when it began. Empty where nothing was. */
struct pv_noted;
struct pv_noted *pv_noted_open(const struct pv_stage *s, size_t root);
bool pv_noted_has(const struct pv_noted *set, const char *path);
void pv_noted_free(struct pv_noted *set);

struct pv_note {
        bool by_git;
        char oid[PV_NOTES_OID_TEXT];          /* by_git */
        unsigned char sha256[PV_SHA256_SIZE]; /* otherwise; see bases.h */
        uint64_t size;
        mode_t mode;
        uid_t uid;
        gid_t gid;
};
/* The note of the run during which the host changed the path: the newest that began before. False: there is none. */
bool pv_notes_find(const struct pv_stage *s, size_t root, const char *path, const struct timespec *changed,
                   struct pv_note *out);

#endif
