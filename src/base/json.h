/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON by jansson: the files of the job store. A path is bytes, JSON is Unicode: what is not valid UTF-8 is written
 * as an object {"bytes": "<hex>"}, read back by the same pair of functions.
 */
#ifndef PV_BASE_JSON_H
#define PV_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>
#include "base/err.h"
#include "base/file.h"

static inline void pv_json_decrefp(json_t **j)
{
        json_decref(*j);
        *j = NULL;
}
#define pv_auto_json __attribute__((cleanup(pv_json_decrefp))) json_t *

/* A string or {"bytes": hex}; JSON null for NULL. A new reference, never NULL. */
json_t *pv_json_bytes(const char *s);
/* The reverse; *out is the caller's. PV_ERR_INPUT when it is neither, or holds a NUL. */
int pv_json_get_bytes(const json_t *value, char **out, struct pv_err *err);

/* Members of an object, of a checked type. A missing or wrong one is PV_ERR_INPUT naming the key. */
int pv_json_get_str(const json_t *object, const char *key, const char **out, struct pv_err *err); /* borrowed */
int pv_json_get_int(const json_t *object, const char *key, int64_t least, int64_t most, int64_t *out,
                    struct pv_err *err);
int pv_json_get_array(const json_t *object, const char *key, size_t most, json_t **out, struct pv_err *err);

/* Reads dirfd/name, of at most max bytes; duplicate keys are refused. *out is the caller's reference. */
int pv_json_read_at(int dirfd, const char *name, size_t max, json_t **out, struct pv_err *err);
/* Writes it whole, mode 0600, indented by two. */
int pv_json_write_at(int dirfd, const char *name, const json_t *value, enum pv_file_flags flags, struct pv_err *err);

#endif
