/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte string, string vectors, and the one place where bytes from outside are made fit for a terminal.
 * Allocation of these small internal strings aborts on exhaustion; bound what an outsider can make long first.
 */
#ifndef PV_BASE_STR_H
#define PV_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/fd.h"

/* Zero-initialise. s is NUL-terminated once anything was put in; NULL before. */
struct pv_str {
        char *s;
        size_t len, cap;
};

void pv_str_fini(struct pv_str *b);
#define pv_auto_str __attribute__((cleanup(pv_str_fini))) struct pv_str

void pv_str_put(struct pv_str *b, const char *s);
void pv_str_put_bytes(struct pv_str *b, const void *p, size_t n);
void pv_str_putc(struct pv_str *b, char c);
void pv_str_putf(struct pv_str *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The string is the caller's (never NULL), b is empty again. */
char *pv_str_steal(struct pv_str *b);

/*
 * Appends n bytes so that they can neither move a cursor nor end a line nor hide: printable ASCII and well-formed UTF-8
 * of characters that show as they are, all else (C0, DEL, C1, bidi controls, what is shown as nothing, invalid UTF-8,
 * backslash) as \xHH, \n, \t or \\. Every outside text that is shown to a person goes through here.
 */
void pv_str_put_safe_n(struct pv_str *b, const char *s, size_t n);
void pv_str_put_safe(struct pv_str *b, const char *s);
/* The same of a path, of which blanks must show too: other ones than spaces, and spaces at an end of a component. */
void pv_str_put_path_n(struct pv_str *b, const char *path, size_t n);
void pv_str_put_path(struct pv_str *b, const char *path);

/* strdup, asprintf that abort on exhaustion; the caller's to free(). */
char *pv_strdup(const char *s) __attribute__((malloc, nonnull));
char *pv_strndup(const char *s, size_t n) __attribute__((malloc, nonnull));
char *pv_strf(const char *fmt, ...) __attribute__((format(printf, 1, 2), malloc));
/* calloc and realloc of n items of size bytes that abort on exhaustion or overflow. */
void *pv_calloc(size_t n, size_t size) __attribute__((malloc));
void *pv_realloc(void *p, size_t n, size_t size);

static inline bool pv_streq(const char *a, const char *b)
{
        return __builtin_strcmp(a, b) == 0;
}
bool pv_str_has_prefix(const char *s, const char *prefix);
bool pv_str_has_suffix(const char *s, const char *suffix);

/* A NULL-terminated vector of owned strings. Zero-initialise; v is NULL while empty. */
struct pv_strv {
        char **v;
        size_t n, room;
};
void pv_strv_fini(struct pv_strv *v);
#define pv_auto_strv __attribute__((cleanup(pv_strv_fini))) struct pv_strv
void pv_strv_add(struct pv_strv *v, const char *s);
void pv_strv_take(struct pv_strv *v, char *s); /* takes s */
bool pv_strv_has(const struct pv_strv *v, const char *s);

/*
 * Sizes ("64KiB", "5GiB", "4GB", "512", also "2m") to bytes and durations ("500ms", "30s", "5m", "1h", bare = seconds)
 * to milliseconds, at most PV_DURATION_MAX_MS: added to a clock's time it is one. PV_ERR_USAGE names the text that is
 * wrong.
 */
#define PV_DURATION_MAX_MS (UINT64_C(36500) * 24 * 3600 * 1000)
int pv_parse_size(const char *text, uint64_t *bytes, struct pv_err *err);
int pv_parse_duration(const char *text, uint64_t *ms, struct pv_err *err);
/* "1.5 MiB", "12 B" into b. */
void pv_str_put_size(struct pv_str *b, uint64_t bytes);

/* n bytes as 2n lower-case hex digits and a NUL. */
void pv_hex(const void *bytes, size_t n, char *out);

#endif
