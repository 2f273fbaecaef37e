/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TOML as agents keep their settings in it, read into JSON values and written again. Tables become objects, in the
 * order in which their keys stand. Times and numbers that are not decimal are refused, not guessed: whoever reads a
 * file with this to hide something in it must know all of it. https://toml.io/en/v1.0.0
 */
#ifndef PV_POLICY_TOML_H
#define PV_POLICY_TOML_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

/* *out is the caller's reference. PV_ERR_INPUT with the line. */
int pv_toml_read(const char *text, json_t **out, struct pv_err *err);
/* Appends an object as a document that reads as the same again. PV_ERR_INPUT: it would be too large. */
int pv_toml_write(struct pv_str *out, const json_t *table, struct pv_err *err);

#endif
