/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked once for each of many items must not look through all of them: the test's time limit is the check. */
#include "base/test.h"
#include "stage/batch.h"

#include <stdio.h>

#define MANY 300000U

/* In the order of a change list. */
static void name(char out[32], unsigned i)
{
        (void)snprintf(out, 32, "d%06u/f", i);
}

static void an_item_is_found_among_many(void **state)
{
        struct pv_plan_list p = { .owns_paths = true };
        char path[32];
        for (unsigned i = 0; i < MANY; i++) {
                name(path, i);
                struct pv_item *it = pv_plan_list_add(&p);
                it->path = pv_strdup(path);
                it->root = i / (MANY / 2);
        }
        for (unsigned i = 0; i < MANY; i++) {
                name(path, i);
                assert_ptr_equal(pv_plan_list_find(&p, i / (MANY / 2), path), &p.item[i]);
                assert_null(pv_plan_list_find(&p, 1 - i / (MANY / 2), path));
        }
        assert_null(pv_plan_list_find(&p, 0, ""));
        pv_plan_list_fini(&p);
        assert_null(pv_plan_list_find(&p, 0, "a"));
}

static void a_conflict_is_found_among_many(void **state)
{
        struct pv_apply_result r = { 0 };
        char path[32];
        for (unsigned i = 0; i < MANY; i += 2) {
                name(path, i);
                pv_apply_result_add(&r, 1, path, "changed");
                pv_apply_result_add(&r, 1, path, "changed otherwise");
        }
        assert_int_equal(r.n_conflicts, MANY / 2);
        assert_string_equal(r.conflicts[7].why, "changed");
        for (unsigned i = 0; i < MANY; i++) {
                name(path, i);
                assert_int_equal(pv_apply_result_has(&r, 1, path), i % 2 == 0);
                assert_false(pv_apply_result_has(&r, 0, path));
        }
        pv_apply_result_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_item_is_found_among_many),
                cmocka_unit_test(a_conflict_is_found_among_many),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
