/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For people who come with the published tool's TOML: tells it from YAML, and shows what of it is a field here, as
 * YAML. It is for a hint that a person reads, never for use.
 */
#ifndef PV_POLICY_TOML_HINT_H
#define PV_POLICY_TOML_HINT_H

#include <stdbool.h>
#include <stddef.h>

/* Is the first line that says anything a table's head or `key = value`? */
bool pv_toml_hint_is_toml(const char *text);

/*
 * One line of YAML, "{safe: true, pass-env: [A, B]}", of the fields that knows() has; the caller's. NULL: there are
 * none, or it cannot be read. *left: how many were left out, also of those that did not fit in max bytes.
 */
char *pv_toml_hint_yaml(const char *text, size_t max, bool (*knows)(void *ctx, const char *name), void *ctx,
                        size_t *left);

#endif
