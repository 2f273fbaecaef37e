/* SPDX-License-Identifier: Apache-2.0 */
/* A job store of a unit test's own, and a plan to make jobs from. */
#ifndef PV_JOB_TEST_STORE_H
#define PV_JOB_TEST_STORE_H

#include "job/store.h"

/* For cmocka_unit_test_setup_teardown(): *state is the store's path; PVISOR_HOME names it. */
int test_store_make(void **state);
int test_store_remove(void **state);

/* A staged plan for the workspace "/work/<name>"; static storage, valid until the next call. */
const struct pv_plan *test_plan(const char *name);

#endif
