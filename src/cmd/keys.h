/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that leave a job's terminal: a sequence that is taken out of what is typed. */
#ifndef PV_CMD_KEYS_H
#define PV_CMD_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "base/str.h"

#define PV_KEYS_MAX 16
struct pv_keys {
        char key[PV_KEYS_MAX];
        size_t n;    /* 0: there is no such sequence */
        size_t seen; /* of it, typed and held back */
};

/* "ctrl-p,ctrl-q", "ctrl-a,d": keys, or ctrl- and one of a-z @ [ \ ] ^ _; "": none. PV_ERR_USAGE. */
int pv_keys_parse(const char *text, struct pv_keys *out, struct pv_err *err);
/*
 * What was typed passes by; appends what goes on to the job. True when the sequence is complete: the rest is dropped.
 */
bool pv_keys_see(struct pv_keys *k, const char *bytes, size_t n, struct pv_str *out);

#endif
