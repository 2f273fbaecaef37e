/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "policy/toml_hint.h"

#include <string.h>
#include "base/str.h"

static void told_from_yaml(void **state)
{
        static const char *const toml[] = { "safe = true\n", "# c\n\n[run]\n", "[[overlaynet.rules]]\nhost='x'\n",
                                            "a.b=1", "[filesystem] # c" };
        static const char *const yaml[] = { "safe: true\n", "",     "{\"safe\": true}", "[a, b]\n",
                                            "- a = b\n",    "safe", "a b = c" };
        for (size_t i = 0; i < sizeof toml / sizeof *toml; i++)
                assert_true(pv_toml_hint_is_toml(toml[i]));
        for (size_t i = 0; i < sizeof yaml / sizeof *yaml; i++)
                assert_false(pv_toml_hint_is_toml(yaml[i]));
}

static bool knows(void *ctx, const char *name)
{
        static const char *const names[] = {
                "safe",  "stage",      "timeout",          "pass-env",        "filesystem",
                "mount", "overlaynet", "overlaynet-allow", "overlaynet-deny", "stage-max-size"
        };
        (void)ctx;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (pv_streq(name, names[i]))
                        return true;
        return false;
}

static void translated(void **state)
{
        static const struct {
                const char *toml, *yaml; /* NULL: none of it is */
                size_t left;
        } cases[] = {
                { "safe = true\ntimeout = \"30m\" # long\n", "{safe: true, timeout: 30m}", 0 },
                { "pass_env = [\n  \"A\", # one\n  'B',\n]\n", "{pass-env: [A, B]}", 0 },
                { "[run]\nagent = \"x\"\ncommand = [\"a\"]\n", NULL, 2 },
                { "[filesystem]\nstage = \"../s\"\nmax_size = '1G'\n"
                  "mount = [{ source = \"/opt/t\", access = \"read\" }, {source='/a b', target='/b'}]\n",
                  "{stage: \"../s\", stage-max-size: 1G, mount: [\"/opt/t:read\", \"/a b:/b:read\"]}", 0 },
                { "[overlaynet]\nmode = 'off'\n[[overlaynet.rules]]\nhost = \"a.com\"\nports = [443, 80]\n"
                  "[[overlaynet.rules]]\nhost = 'b.com'\n[[overlaynet.deny]]\nhost = \"10.0.0.0/8\"\n",
                  "{overlaynet: off, overlaynet-allow: [\"a.com:443\", \"a.com:80\", b.com], overlaynet-deny: "
                  "[10.0.0.0/8]}",
                  0 },
                { "[overlaynet]\nallow = ['x.com:1']\n", "{overlaynet-allow: [\"x.com:1\"]}", 0 },
                { "safe = [[1]]\nstage = \"\"\ntimeout = 1.5\n", "{stage: \"\"}", 2 },
                { "stage = \"a\\nb\"\n", "{stage: \"a\\x0ab\"}", 0 },
                { "a = { b = { c = { d = 1 } } }\n", NULL, 1 },
                { "safe = true\nnot TOML\n", NULL, 0 },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                size_t left = 99;
                pv_auto_free char *yaml = pv_toml_hint_yaml(cases[i].toml, 1000, knows, NULL, &left);
                if (cases[i].yaml)
                        assert_string_equal(yaml ? yaml : "(none)", cases[i].yaml);
                else
                        assert_null(yaml);
                assert_int_equal(left, cases[i].left);
        }
}

/* Whatever is in the file: it ends, and stays within bounds. */
static void garbage(void **state)
{
        static const char alphabet[] = "a[]{}=,.'\"\\#\n _1:";
        unsigned seed = 1;
        char text[200];
        for (int round = 0; round < 20000; round++) {
                size_t n = (size_t)(round % (int)(sizeof text - 1)), left;
                for (size_t i = 0; i < n; i++)
                        text[i] = alphabet[(seed = seed * 1103515245U + 12345U) >> 16 & 15];
                text[n] = '\0';
                pv_auto_free char *yaml = pv_toml_hint_yaml(text, 100, knows, NULL, &left);
                assert_true(!yaml || strlen(yaml) <= 100);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(told_from_yaml),
                cmocka_unit_test(translated),
                cmocka_unit_test(garbage),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
