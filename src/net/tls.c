/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#define RECORD_HANDSHAKE      22
#define CLIENT_HELLO          1
#define EXTENSION_SERVER_NAME 0
#define HOST_NAME             0

/* What is left to read. All lengths come from the sender: take() never goes beyond the end, and stays failed. */
struct rest {
        const uint8_t *p;
        size_t n;
        bool failed;
};

static struct rest take(struct rest *r, size_t n)
{
        struct rest part = { r->p, n, r->failed };
        if (r->failed || n > r->n) {
                r->failed = true;
                return (struct rest){ .failed = true };
        }
        r->p += n;
        r->n -= n;
        return part;
}

static size_t number(struct rest *r, size_t bytes)
{
        struct rest b = take(r, bytes);
        size_t v = 0;
        for (size_t i = 0; !b.failed && i < bytes; i++)
                v = v << 8 | b.p[i];
        return v;
}

/* A vector with its length before it; one that was cut short is what there is of it. */
static struct rest vector(struct rest *r, size_t length_bytes)
{
        size_t n = number(r, length_bytes);
        return take(r, n < r->n ? n : r->n);
}

static bool read_names(struct rest list, char *name)
{
        while (list.n > 0 && !list.failed) {
                size_t type = number(&list, 1), n = number(&list, 2);
                struct rest text = take(&list, n);
                if (!text.failed && type == HOST_NAME)
                        return pv_netrule_fold_name((const char *)text.p, text.n, name);
        }
        return false;
}

bool pv_tls_server_name(const uint8_t *bytes, size_t n, char name[PV_NETRULE_NAME_MAX + 1])
{
        struct rest r = { bytes, n, false };
        if (number(&r, 1) != RECORD_HANDSHAKE)
                return false;
        (void)take(&r, 2); /* version */
        struct rest record = vector(&r, 2);
        if (number(&record, 1) != CLIENT_HELLO)
                return false;
        struct rest hello = vector(&record, 3);
        (void)take(&hello, 2 + 32); /* version, random */
        (void)vector(&hello, 1);    /* session */
        (void)vector(&hello, 2);    /* ciphers */
        (void)vector(&hello, 1);    /* compression */
        struct rest extensions = vector(&hello, 2);
        while (extensions.n > 0 && !extensions.failed) {
                size_t type = number(&extensions, 2);
                struct rest body = vector(&extensions, 2);
                if (type == EXTENSION_SERVER_NAME && !body.failed)
                        return read_names(vector(&body, 2), name);
        }
        return false;
}
