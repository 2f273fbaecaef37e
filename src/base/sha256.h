/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of files by libcrypto, linked statically: loading the shared library would cost each run 0.5 ms. */
#ifndef PV_BASE_SHA256_H
#define PV_BASE_SHA256_H

#include <stddef.h>
#include "base/err.h"

#define PV_SHA256_SIZE 32

/* Hashes from the descriptor's start to its end with pread(2); the offset stays. what names it in an error. */
int pv_sha256_fd(int fd, unsigned char out[PV_SHA256_SIZE], const char *what, struct pv_err *err);
void pv_sha256_bytes(const void *p, size_t n, unsigned char out[PV_SHA256_SIZE]);

#endif
