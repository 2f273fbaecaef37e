/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For unit tests only: a runner that starts git here, uncontained, on repositories that the test itself made, and the
 * making of them.
 */
#ifndef PV_GIT_TEST_RUNNER_H
#define PV_GIT_TEST_RUNNER_H

#include "git/runner.h"

/* A runner that works on `root` wherever a question names `view`; ctx is the struct, which must outlive it. */
struct pv_test_runner {
        const char *view, *root;
        unsigned runs; /* how often it was called */
};
struct pv_git_runner pv_test_runner(struct pv_test_runner *t);

/* A new directory below the system's temporary one, and its removal. */
char *pv_test_dir_new(void);
void pv_test_dir_remove(char *dir);
/* Runs a shell script in dir with a fixed identity and no configuration but its own; fails the test when it fails. */
void pv_test_sh(const char *dir, const char *script);

#endif
