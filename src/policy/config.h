/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: YAML (so JSON too), one mapping of option names to values:
 *
 *   safe: true
 *   timeout: 30m
 *   pass-env: [EDITOR, CI]
 *   overlaynet-allow:
 *     - example.com
 *     - host: db.example.com
 *       ports: [5432, 5433]
 *
 * A value that has parts comes as one text, "host=db.example.com;ports=5432,5433", to fields that take such.
 *
 * This module reads it and knows nothing of the options: whoever loads gives a function that takes one field at a
 * time. All errors name the file and the line.
 */
#ifndef PV_POLICY_CONFIG_H
#define PV_POLICY_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

struct pv_config_field {
        const char *name;
        const char *const *values; /* one, or those of a list */
        size_t n;
        bool is_list;
        size_t *wrong; /* the sink may say which value its error is about: the line is that one's */
};

struct pv_config_sink {
        /* An error of its is given on, with file and line before it. */
        int (*set)(void *ctx, const struct pv_config_field *field, struct pv_err *err);
        /* Whether values of this field may have parts; NULL: none. */
        bool (*takes_parts)(void *ctx, const char *name);
        /* Whether there is a field of that name, for hints; NULL: nothing is hinted at. */
        bool (*knows)(void *ctx, const char *name);
        void *ctx;
};

/* PV_ERR_USAGE when it cannot be read or is wrong, or what the sink says. */
int pv_config_load(const char *path, const struct pv_config_sink *sink, struct pv_err *err);

/*
 * The person's own file that is read without being asked for: $XDG_CONFIG_HOME/pvisor/config.yaml, else the one below
 * home/.config. NULL when there is none; the caller's.
 */
char *pv_config_default_path(const char *xdg_config_home, const char *home);

/* The same for another file of the person's in that directory. */
char *pv_config_find(const char *xdg_config_home, const char *home, const char *name);

#endif
