/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before each source when clang-tidy reads it, never by the compiler: it cannot see into err.c, so it would
 * follow paths on which setting an error returned 0, and find uninitialised results there.
 */
#include "base/err.h"
#define pv_err_set(...) (pv_err_set(__VA_ARGS__), -1)
#define pv_err_wrap(...) (pv_err_wrap(__VA_ARGS__), -1)
#define pv_err_hint(...) (pv_err_hint(__VA_ARGS__), -1)
