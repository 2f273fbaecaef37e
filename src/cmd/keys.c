/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/keys.h"

#include <ctype.h>
#include <string.h>

/* One key of n characters; -1: it is none. */
static int parse_key(const char *text, size_t n)
{
        static const char ctrl[] = "ctrl-";
        size_t head = sizeof ctrl - 1;
        if (n == 1)
                return (unsigned char)text[0];
        if (n != head + 1 || strncmp(text, ctrl, head) != 0)
                return -1;
        int c = toupper((unsigned char)text[head]);
        return c >= '@' && c <= '_' ? c - '@' : -1;
}

int pv_keys_parse(const char *text, struct pv_keys *out, struct pv_err *err)
{
        struct pv_keys k = { .n = 0 };
        for (const char *p = text; *p;) {
                size_t n = strcspn(p, ",");
                int key = parse_key(p, n);
                if (key < 0 || k.n == PV_KEYS_MAX) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "detach keys \"%.60s\": not understood", text);
                        return pv_err_hint(err, "up to %d keys with commas between: ctrl-p,ctrl-q", PV_KEYS_MAX);
                }
                k.key[k.n++] = (char)key;
                p += n;
                p += *p == ',';
        }
        *out = k;
        return 0;
}

bool pv_keys_see(struct pv_keys *k, const char *bytes, size_t n, struct pv_str *out)
{
        for (size_t i = 0; i < n; i++) {
                while (k->seen && bytes[i] != k->key[k->seen]) {
                        /* What was held back is no beginning of it; but its own end may be. */
                        size_t again = k->seen - 1;
                        while (again && memcmp(k->key, k->key + k->seen - again, again) != 0)
                                again--;
                        pv_str_put_bytes(out, k->key, k->seen - again);
                        k->seen = again;
                }
                if (k->n && bytes[i] == k->key[k->seen])
                        k->seen++;
                else
                        pv_str_putc(out, bytes[i]);
                if (k->n && k->seen == k->n)
                        return true;
        }
        return false;
}
