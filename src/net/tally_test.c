/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/tally.h"

#include <sys/mman.h>

static json_t *target(json_t *summary, size_t i)
{
        return json_array_get(json_object_get(summary, "targets"), i);
}

static const char *text(json_t *object, const char *key)
{
        return json_string_value(json_object_get(object, key));
}

static void targets_are_summed_and_refusals_say_what_would_help(void **state)
{
        struct pv_tally *t = pv_tally_new(-1);
        struct pv_verdict not_allowed = { .kind = PV_VERDICT_NOT_ALLOWED, .layer = "session" };
        struct pv_verdict special = { .kind = PV_VERDICT_SPECIAL, .layer = "base", .what = "a loopback address" };
        struct pv_netaddr a;
        assert_true(pv_netaddr_parse("2001:db8::1", &a));
        for (int i = 0; i < 2; i++)
                pv_tally_note(t, &(struct pv_flow_record){ .name = "a.example", .port = 443, .bytes_in = 5 });
        pv_tally_note(
                t, &(struct pv_flow_record){ .end = PV_FLOW_REFUSED, .addr = &a, .port = 22, .verdict = &not_allowed });
        pv_tally_note(
                t, &(struct pv_flow_record){
                           .end = PV_FLOW_REFUSED, .name = "b.example", .via = PV_VIA_DNS, .verdict = &not_allowed });
        pv_tally_note(t, &(struct pv_flow_record){
                                 .end = PV_FLOW_REFUSED, .name = "c.example", .port = 80, .verdict = &special });
        pv_tally_note(t, &(struct pv_flow_record){
                                 .end = PV_FLOW_FAILED, .name = "d.example", .port = 80, .error = ETIMEDOUT });
        pv_auto_json s = pv_tally_summary(t);
        assert_int_equal(json_integer_value(json_object_get(target(s, 0), "count")), 2);
        assert_int_equal(json_integer_value(json_object_get(target(s, 0), "bytes_in")), 10);
        assert_string_equal(text(target(s, 0), "state"), "reached");
        assert_string_equal(text(target(s, 1), "allow_with"), "--overlaynet-allow [2001:db8::1]:22");
        assert_string_equal(text(target(s, 2), "allow_with"), "--overlaynet-allow b.example");
        assert_null(text(target(s, 3), "allow_with"));
        assert_string_equal(text(target(s, 3), "why"), "it is a loopback address, which needs a rule by address");
        assert_string_equal(text(target(s, 4), "why"), "Connection timed out");
        json_t *c = json_object_get(s, "counters");
        assert_int_equal(json_integer_value(json_object_get(c, "flows")), 5);
        assert_int_equal(json_integer_value(json_object_get(c, "refused")), 3);
        assert_int_equal(json_integer_value(json_object_get(c, "names_refused")), 1);
        pv_tally_free(t);
}

static void the_sandbox_cannot_fill_the_memory_or_the_disk(void **state)
{
        int events = memfd_create("events", MFD_CLOEXEC);
        struct pv_tally *t = pv_tally_new(events);
        for (unsigned i = 0; i < PV_TALLY_LINES + 10; i++) {
                char name[32];
                (void)snprintf(name, sizeof name, "n%u.example", i);
                pv_tally_note(t, &(struct pv_flow_record){ .name = name, .port = 1 });
        }
        pv_auto_json s = pv_tally_summary(t);
        assert_int_equal(json_array_size(json_object_get(s, "targets")), PV_TALLY_TARGETS + 1);
        assert_string_equal(text(target(s, PV_TALLY_TARGETS), "target"), "(other targets)");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(s, "counters"), "events_left_out")), 10);
        pv_tally_free(t);
        (void)close(events);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(targets_are_summed_and_refusals_say_what_would_help),
                cmocka_unit_test(the_sandbox_cannot_fill_the_memory_or_the_disk),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
