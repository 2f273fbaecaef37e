/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <string.h>
#include <unistd.h>
#include "base/str.h"
#include "policy/config.h"

struct seen {
        struct pv_str text; /* "name=a,b;" */
};

static int remember(void *ctx, const struct pv_config_field *field, struct pv_err *err)
{
        struct seen *s = ctx;
        if (pv_streq(field->name, "unknown"))
                return pv_err_set(err, PV_ERR_USAGE, 0, "unknown: no such field");
        for (size_t i = 0; i < field->n; i++)
                if (pv_streq(field->values[i], "wrong")) {
                        *field->wrong = i;
                        return pv_err_set(err, PV_ERR_USAGE, 0, "wrong: is wrong");
                }
        pv_str_putf(&s->text, "%s%s", field->name, field->is_list ? ":" : "=");
        for (size_t i = 0; i < field->n; i++)
                pv_str_putf(&s->text, "%s%s", i ? "," : "", field->values[i]);
        pv_str_putc(&s->text, ';');
        return 0;
}

static bool takes_parts(void *ctx, const char *name)
{
        (void)ctx;
        return pv_streq(name, "rules");
}

/* Loads text from a file; what the sink saw, or the error without the file's name. */
static char *load(const char *text, size_t len, int *result)
{
        char path[] = "/tmp/pv-config-XXXXXX";
        struct seen s = { 0 };
        struct pv_err err = PV_ERR_INIT;
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, len), len);
        assert_int_equal(close(fd), 0);
        *result = pv_config_load(
                path, &(struct pv_config_sink){ .set = remember, .takes_parts = takes_parts, .ctx = &s }, &err);
        assert_int_equal(unlink(path), 0);
        if (*result == 0) {
                pv_str_put(&s.text, "");
                return pv_str_steal(&s.text);
        }
        pv_str_fini(&s.text);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        assert_true(pv_str_has_prefix(err.msg, path));
        return pv_strdup(err.msg + strlen(path));
}

static void expect(const char *text, const char *seen)
{
        int result = -1;
        pv_auto_free char *got = load(text, strlen(text), &result);
        assert_string_equal(got, seen);
        assert_int_equal(result, 0);
}

static void expect_error(const char *text, const char *why)
{
        int result = 0;
        pv_auto_free char *got = load(text, strlen(text), &result);
        assert_int_equal(result, -1);
        assert_string_equal(got, why);
}

static void test_fields(void **state)
{
        expect("", "");
        expect("# nothing\n", "");
        expect("safe: true\ntimeout: 30s # half a minute\n", "safe=true;timeout=30s;");
        expect("pass-env: [A, 'B']\nmount:\n - /x:read\n - \"/y y:write\"\n", "pass-env:A,B;mount:/x:read,/y y:write;");
        expect("{\"memory\": \"2GiB\", \"max-processes\": 7}", "memory=2GiB;max-processes=7;");
}

static void test_values_with_parts(void **state)
{
        expect("rules: [a, {host: b, ports: [1, 2-3]}]\n", "rules:a,host=b;ports=1,2-3;");
        expect("rules:\n  host: b\n  ports: 5\n", "rules=host=b;ports=5;");
        expect("rules: [{}]\n", "rules:;");
        expect_error("rules:\n - a\n - {host: {b: c}}\n", ":3: rules: neither a value nor a list of values");
        expect_error("rules:\n - {host: 'a;b=c'}\n", ":2: rules: neither a value nor a list of values");
        expect_error("rules:\n - {'a=b': c}\n", ":2: rules: neither a value nor a list of values");
        expect_error("others:\n - {host: a}\n", ":2: others: neither a value nor a list of values");
        expect_error("rules:\n - a\n - wrong\n - b\n", ":3: wrong: is wrong");
}

static void test_errors_have_a_line(void **state)
{
        expect_error("safe: true\nunknown: 1\n", ":2: unknown: no such field");
        expect_error("a: 1\nb: 2\na: 3\n", ":3: a: is given twice");
        expect_error("a:\n  b: 1\n", ":2: a: neither a value nor a list of values");
        expect_error("a: [[1]]\n", ":1: a: neither a value nor a list of values");
        expect_error("- a\n", ":1: fields are expected (YAML, as in \"safe: true\"; TOML is not read)");
        expect_error("just words\n", ":1: fields are expected (YAML, as in \"safe: true\"; TOML is not read)");
        expect_error("[1]: 2\n", ":1: a field's name is expected here");
        expect_error("a: 1\n---\nb: 2\n", ": more than one document");
}

static void test_not_yaml(void **state)
{
        int result = 0;
        pv_auto_free char *a = load("a: [1\nb: 2\n", 10, &result);
        assert_int_equal(result, -1);
        pv_auto_free char *b = load("a: \0 1\n", 7, &result);
        assert_int_equal(result, -1);
        pv_auto_free char *c = load("a: \"\\0x\"\n", 9, &result);
        assert_int_equal(result, -1);
        assert_string_equal(c, ":1: a: neither a value nor a list of values");
}

static void test_random_bytes(void **state)
{
        static const char alphabet[] = "ab:- \n\n[]{},&*!|>'\"%@#\t";
        unsigned seed = 11;
        for (int round = 0; round < 2000; round++) {
                char text[40];
                int result = 0;
                for (size_t i = 0; i < sizeof text; i++)
                        text[i] = alphabet[(size_t)rand_r(&seed) % sizeof alphabet];
                pv_auto_free char *got = load(text, sizeof text, &result);
                assert_non_null(got);
        }
}

static void test_default_path(void **state)
{
        assert_null(pv_config_default_path("/nonexistent", "/nonexistent"));
        assert_null(pv_config_default_path("relative", NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fields),
                cmocka_unit_test(test_values_with_parts),
                cmocka_unit_test(test_errors_have_a_line),
                cmocka_unit_test(test_not_yaml),
                cmocka_unit_test(test_random_bytes),
                cmocka_unit_test(test_default_path),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
