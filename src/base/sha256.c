/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

/* The one-shot functions are what the static archive gives without the provider machinery behind EVP. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include "base/fd.h"

int pv_sha256_fd(int fd, unsigned char out[PV_SHA256_SIZE], const char *what, struct pv_err *err)
{
        unsigned char buf[64 * 1024];
        SHA256_CTX c;
        (void)SHA256_Init(&c);
        for (off_t at = 0;;) {
                ssize_t n = pread(fd, buf, sizeof buf, at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read %s", what);
                if (n == 0)
                        break;
                (void)SHA256_Update(&c, buf, (size_t)n);
                at += n;
        }
        (void)SHA256_Final(out, &c);
        return 0;
}

void pv_sha256_bytes(const void *p, size_t n, unsigned char out[PV_SHA256_SIZE])
{
        SHA256_CTX c;
        (void)SHA256_Init(&c);
        (void)SHA256_Update(&c, p, n);
        (void)SHA256_Final(out, &c);
}
