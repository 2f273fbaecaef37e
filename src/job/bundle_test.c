/* SPDX-License-Identifier: Apache-2.0 */
#include "job/bundle.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/test.h"
#include "job/test_store.h"

#define OK(call) assert_int_equal((call), 0)

static struct pv_live_job make(void)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_live_job live = PV_LIVE_JOB_INIT;
        const struct pv_job_birth birth = { .plan = test_plan("a") };
        OK(pv_job_create(&birth, &live, &err));
        return live;
}

static const json_t *at(const json_t *j, const char *one, const char *two)
{
        const json_t *v = json_object_get(json_object_get(j, one), two);
        if (!v)
                fail_msg("no %s.%s", one, two);
        return v;
}

static void what_is_not_known_is_null(void **state)
{
        pv_auto_live_job live = make();
        const struct pv_bundle_facts facts = { .job = live.job, .plan = test_plan("a") };
        pv_auto_json b = pv_bundle_make(&facts);
        assert_true(json_is_null(json_object_get(b, "executor_observations")));
        assert_true(json_is_null(at(b, "safety", "network_contained")));
        assert_true(json_is_null(at(b, "safety", "host_writes_blocked")));
        assert_true(json_is_null(json_object_get(at(b, "safety", "levels"), "reads")));
        assert_true(json_is_null(at(b, "run", "exit")));
        assert_true(json_is_null(at(b, "run", "exit_code")));
        assert_true(json_is_null(at(b, "filesystem", "counts")));
        assert_true(json_is_null(at(b, "network", "counters")));
        assert_true(json_is_null(at(b, "resources", "effective")));
}

/* The plan asks for everything; nothing was seen: nothing is claimed. */
static void a_plan_raises_no_claim(void **state)
{
        pv_auto_live_job live = make();
        struct pv_observations none = { 0 };
        const struct pv_bundle_facts facts = {
                .job = live.job, .plan = test_plan("a"), .observations = &none, .started = true
        };
        pv_auto_json b = pv_bundle_make(&facts);
        assert_true(json_is_false(at(b, "safety", "network_contained")));
        assert_true(json_is_false(at(b, "safety", "reads_confined")));
        assert_string_equal(
                json_string_value(
                        json_object_get(at(b, "plan", "dimensions"), "network")
                                ? json_object_get(json_object_get(at(b, "plan", "dimensions"), "network"), "wanted")
                                : NULL),
                "enforced");
        assert_true(json_is_null(at(b, "network", "counters")));
}

static void a_control_speaks_for_its_dimension_alone(void **state)
{
        pv_auto_live_job live = make();
        struct pv_observations all = { 0 };
        struct pv_observation *o = pv_observations_add(&all, PV_DIM_NETWORK, "network-namespace", "an empty one");
        o->installed = true;
        pv_observation_probe(o, "network.tcp4", "connect to the host's loopback", PV_OUTCOME_REFUSED, 101);
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        struct pv_bundle_facts facts = {
                .job = live.job, .plan = test_plan("a"), .observations = &all, .started = true
        };
        pv_auto_json b = pv_bundle_make(&facts);
        assert_true(json_is_true(at(b, "safety", "network_contained")));
        assert_true(json_is_false(at(b, "safety", "host_writes_blocked")));
        assert_int_equal(json_integer_value(json_object_get(at(b, "network", "counters"), "flows")), 0);
        facts.started = false; /* set-up ended early: of the others nothing is known */
        pv_auto_json early = pv_bundle_make(&facts);
        assert_true(json_is_null(at(early, "safety", "host_writes_blocked")));
}

static void a_breach_is_a_warning(void **state)
{
        pv_auto_live_job live = make();
        struct pv_observations all = { 0 };
        struct pv_observation *o = pv_observations_add(&all, PV_DIM_READS, "projected-root", "mounts");
        o->installed = true;
        pv_observation_probe(o, "read.absolute-path", "open a file outside", PV_OUTCOME_SUCCEEDED, 0);
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        const struct pv_bundle_facts facts = {
                .job = live.job, .plan = test_plan("a"), .observations = &all, .started = true
        };
        pv_auto_json b = pv_bundle_make(&facts);
        pv_auto_free char *warnings = json_dumps(at(b, "safety", "warnings"), 0);
        assert_true(json_is_false(at(b, "safety", "reads_confined")));
        assert_non_null(strstr(warnings, "read.absolute-path"));
}

static void names_of_variables_without_values(void **state)
{
        pv_auto_live_job live = make();
        const struct pv_bundle_facts facts = { .job = live.job, .plan = test_plan("a") };
        pv_auto_json b = pv_bundle_make(&facts);
        pv_auto_free char *text = json_dumps(b, 0);
        assert_null(strstr(text, "hunter2"));
        assert_string_equal(json_string_value(json_array_get(at(b, "environment", "passed"), 0)), "TOKEN");
        assert_string_equal(json_string_value(json_array_get(at(b, "environment", "inherited"), 0)), "PATH");
        assert_int_equal(json_array_size(at(b, "environment", "inherited")), 1);
}

static void many_changes_are_counted_and_cut(void **state)
{
        enum { N = PV_BUNDLE_CHANGES_MAX + 5 };
        static char path[] = "odd\x1b\xff";
        pv_auto_live_job live = make();
        live.job->state = PV_JOB_ENDED;
        struct pv_change *items = pv_calloc(N, sizeof *items);
        for (size_t i = 0; i < N; i++)
                items[i] = (struct pv_change){ .path = path, .kind = i ? PV_CHANGE_ADDED : PV_CHANGE_DELETED };
        const struct pv_changes changes = { .item = items, .n = N };
        const struct pv_bundle_facts facts = { .job = live.job, .plan = test_plan("a"), .changes = &changes };
        pv_auto_json b = pv_bundle_make(&facts);
        assert_int_equal(json_array_size(at(b, "filesystem", "changes")), PV_BUNDLE_CHANGES_MAX);
        assert_true(json_is_true(at(b, "filesystem", "truncated")));
        assert_int_equal(json_integer_value(json_object_get(at(b, "filesystem", "counts"), "total")), N);
        assert_int_equal(json_integer_value(json_object_get(at(b, "filesystem", "counts"), "deleted")), 1);
        free(items);
}

static void it_is_written_whole_and_private(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        pv_auto_live_job live = make();
        const struct pv_bundle_facts facts = { .job = live.job, .plan = test_plan("a") };
        OK(pv_bundle_write(&facts, &err));
        OK(pv_bundle_write(&facts, &err)); /* again at the end */
        pv_auto_free char *path = pv_path_join(live.job->dir, PV_JOB_BUNDLE);
        OK(stat(path, &st));
        assert_int_equal(st.st_mode & 07777, 0600);
        pv_auto_json b = NULL;
        OK(pv_bundle_read(live.job, &b, &err));
        assert_string_equal(json_string_value(at(b, "run", "id")), live.job->id);
}

static void without_one_the_request_speaks(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make();
        pv_auto_json b = NULL;
        OK(pv_bundle_read(live.job, &b, &err));
        assert_string_equal(json_string_value(json_array_get(at(b, "run", "argv"), 0)), "true");
        assert_true(json_is_null(json_object_get(b, "executor_observations")));
}

static void damage_is_named(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_live_job live = make();
        static const char newer[] = "{\"schema_version\": 2}", cut[] = "{\"schema_version\": 1, \"run\"";
        pv_auto_json b = NULL;
        pv_auto_fd dir = pv_job_open_dir(live.job, &err);
        OK(pv_file_write_at(dir, PV_JOB_BUNDLE, newer, strlen(newer), 0600, PV_FILE_REPLACE, &err));
        assert_int_equal(pv_bundle_read(live.job, &b, &err), -1);
        assert_non_null(strstr(err.msg, "newer pvisor"));
        OK(pv_file_write_at(dir, PV_JOB_BUNDLE, cut, strlen(cut), 0600, PV_FILE_REPLACE, &err));
        assert_int_equal(pv_bundle_read(live.job, &b, &err), -1);
        assert_int_equal(err.kind, PV_ERR_INPUT);
}

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, test_store_make, test_store_remove)

int main(void)
{
        const struct CMUnitTest tests[] = {
                STORE_TEST(what_is_not_known_is_null),
                STORE_TEST(a_plan_raises_no_claim),
                STORE_TEST(a_control_speaks_for_its_dimension_alone),
                STORE_TEST(a_breach_is_a_warning),
                STORE_TEST(names_of_variables_without_values),
                STORE_TEST(many_changes_are_counted_and_cut),
                STORE_TEST(it_is_written_whole_and_private),
                STORE_TEST(without_one_the_request_speaks),
                STORE_TEST(damage_is_named),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
