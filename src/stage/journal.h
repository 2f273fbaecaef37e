/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: a batch's plan on disk, append-only. Each record is length, type, payload, checksum (CRC-32C); a torn
 * tail ends the reading and is no error, since a plan counts only once its READY mark is there. Order of records:
 *
 *   HEAD  ACCESS* ITEM*  READY   [COMMITTED]   [KEPT* PARTLY]
 *
 * `journal` in the stage directory is the batch that is under way; renamed to backup/<batch>/record (or `undone`, of
 * an undo) it is history. Numbers are LEB128, paths share their beginning with the item before.
 */
#ifndef PV_STAGE_JOURNAL_H
#define PV_STAGE_JOURNAL_H

#include "stage/batch.h"

struct pv_journal {
        int fd;
        struct pv_str buf;
};
#define PV_JOURNAL_INIT  \
        {                \
                .fd = -1 \
        }
void pv_journal_close(struct pv_journal *j);
#define pv_auto_journal __attribute__((cleanup(pv_journal_close))) struct pv_journal

/* Creates (replacing what is left of an unready one) or opens for appending. */
int pv_journal_create(struct pv_journal *j, int dirfd, const char *name, struct pv_err *err);
int pv_journal_append(struct pv_journal *j, int dirfd, const char *name, struct pv_err *err);

/* Head, access list and items; buffered until a mark is put. PV_ERR_UNSUPPORTED: one does not fit into a record. */
int pv_journal_put_plan(struct pv_journal *j, const struct pv_plan_list *p, struct pv_err *err);
int pv_journal_flush(struct pv_journal *j, struct pv_err *err);
/* Puts a mark and writes all that is buffered; durable only after the caller's sync. */
int pv_journal_mark(struct pv_journal *j, enum pv_batch_mark mark, struct pv_err *err);
/* Items whose host version stayed; followed by PV_MARK_PARTLY. */
int pv_journal_put_kept(struct pv_journal *j, const struct pv_plan_list *p, struct pv_err *err);

/* Reads what is whole. PV_ERR_INPUT: not even a head of a version that is known, or an impossible record. */
int pv_journal_read(int dirfd, const char *name, struct pv_plan_list *out, struct pv_err *err);
/* The head and the number of items alone. */
int pv_journal_read_head(int dirfd, const char *name, struct pv_batch_head *head, size_t *n_items, unsigned *marks,
                         struct pv_err *err);

#endif
