/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/test.h"
#include "policy/toml.h"

static int clean_text(const char *name, const char *text, const char *passed, const char *reference,
                      struct pv_settings *out, struct pv_err *err)
{
        char dir[] = "/tmp/pvisor-settings-XXXXXX";
        static char *const environment[] = { "FROM_HOME=1", NULL };
        pv_auto_strv names = { 0 };
        assert_non_null(mkdtemp(dir));
        pv_auto_free char *path = pv_strf("%s/%s", dir, name);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fputs(text, f) < 0, 0);
        assert_int_equal(fclose(f), 0);
        if (passed)
                pv_strv_add(&names, passed);
        int r = pv_settings_clean(path, environment, &names, reference, out, err);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(dir), 0);
        return r;
}

static const char codex[] = "# mine\n"
                            "model = \"gpt-5\" # the best\n"
                            "notify = ['notify-send', \"it's \\\"done\\\"\"]\n"
                            "[mcp_servers.files]\n"
                            "command = \"npx\"\n"
                            "args = [\"-y\",\n  \"server\", # a comment, with \"quotes\"\n]\n"
                            "env = { LEVEL = \"debug\", TOKEN = \"SECRET\" }\n"
                            "startup_timeout_sec = 20.5\n"
                            "[mcp_servers.\"git hub\".env]\n"
                            "GH_TOKEN = '''SECRET'''\n"
                            "[mcp_servers.web]\n"
                            "url = \"https://x.example/mcp\"\n"
                            "bearer_token_env_var = \"WEB_TOKEN\"\n"
                            "http_headers = { Authorization = \"Bearer SECRET\", \"X-Org\" = \"SECRET\" }\n"
                            "[mcp_servers.db]\n"
                            "command = \"db\"\n"
                            "args = [\"--password\", \"SECRET\"]\n"
                            "[model_providers.own]\n"
                            "experimental_bearer_token = \"SECRET\"\n"
                            "http_headers = { key = \"SECRET\" }\n"
                            "base_url = \"https://llm.example/v1\"\n"
                            "[[profiles.x]]\nmodel_auto_compact_token_limit = "
                            "1_000\n[projects.\"/home/me/a.b\"]\ntrust_level = \"trusted\"\n";

static void codex_keeps_all_but_its_secrets(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_settings s = { 0 };
        assert_int_equal(clean_text("config.toml", codex, NULL, "env_vars", &s, &err), 0);
        assert_null(strstr(s.content, "SECRET"));
        static const char *const kept[] = {
                "\"model\" = \"gpt-5\"\n",
                "\"notify\" = [\"notify-send\", \"it's \\\"done\\\"\"]",
                "[\"mcp_servers\".\"files\"]\n\"command\" = \"npx\"\n\"args\" = [\"-y\", \"server\"]\n",
                "\"LEVEL\" = \"debug\"",
                "[\"mcp_servers\".\"git hub\".\"env\"]",
                "\"bearer_token_env_var\" = \"WEB_TOKEN\"",
                "\"base_url\" = \"https://llm.example/v1\"",
                "[[\"profiles\".\"x\"]]\n\"model_auto_compact_token_limit\" = 1000\n",
                "[\"projects\".\"/home/me/a.b\"]\n\"trust_level\" = \"trusted\"\n",
        };
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
                if (!strstr(s.content, kept[i]))
                        fail_msg("%s is not in %s", kept[i], s.content);
        assert_null(strstr(s.content, "\"db\""));
        assert_true(pv_strv_has(&s.left_out, "db (a secret in its arguments)"));
        assert_true(pv_strv_has(&s.left_out, "model_providers.own.experimental_bearer_token"));
        assert_true(pv_strv_has(&s.withheld, "TOKEN") && pv_strv_has(&s.withheld, "GH_TOKEN"));
        /* What is written reads as the same. */
        pv_auto_json once = NULL;
        pv_auto_json twice = NULL;
        pv_auto_str again = { 0 };
        assert_int_equal(pv_toml_read(s.content, &once, &err), 0);
        assert_int_equal(pv_toml_write(&again, once, &err), 0);
        assert_int_equal(pv_toml_read(again.s, &twice, &err), 0);
        assert_true(json_equal(once, twice));
        assert_string_equal(again.s, s.content);
}

static void a_variable_that_is_passed_is_named(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_settings toml = { 0 }, json = { 0 };
        assert_int_equal(clean_text("config.toml", codex, "TOKEN", "env_vars", &toml, &err), 0);
        assert_non_null(strstr(toml.content, "\"env_vars\" = [\"TOKEN\"]"));
        assert_string_equal(toml.variables.v[0], "TOKEN=SECRET");
        static const char text[] =
                "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"FROM_HOME\": \"SECRET\"}}}}";
        assert_int_equal(clean_text("mcp.json", text, "FROM_HOME", "${env:NAME}", &json, &err), 0);
        assert_non_null(strstr(json.content, "\"FROM_HOME\": \"${env:FROM_HOME}\""));
        assert_null(strstr(json.content, "SECRET"));
        assert_int_equal(json.variables.n, 0);
}

static void json_may_have_comments(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_settings s = { 0 };
        static const char text[] =
                "{ // mine \"SECRET\n \"theme\": \"a // b\", /* SECRET */\n"
                "\"mcp\": {\"gh\": {\"type\": \"local\", \"command\": [\"npx\", \"gh\"], \"environment\": {\"T\": "
                "\"SECRET\", "
                "\"U\": \"{env:U}\"}, \"headers\": {\"A\": \"SECRET\", \"B\": \"Bearer {env:B}\"},},"
                "\"bad\": {\"command\": [\"x\", \"--token=SECRET\"]}, \"text\": \"ghp_SECRETSECRETSECRET\"},\n"
                "\"provider\": {\"openai\": {\"options\": {\"apiKey\": \"SECRET\", \"other\": [\"sk-SECRETSECRET\", "
                "\"b\",],}}},}";
        assert_int_equal(clean_text("opencode.jsonc", text, NULL, "{env:NAME}", &s, &err), 0);
        assert_null(strstr(s.content, "SECRET"));
        assert_non_null(strstr(s.content, "\"a // b\""));
        assert_non_null(strstr(s.content, "\"U\": \"{env:U}\""));
        assert_non_null(strstr(s.content, "Bearer {env:B}"));
        assert_non_null(strstr(s.content, "\"b\""));
        assert_true(pv_strv_has(&s.left_out, "provider.openai.options.apiKey"));
}

static void what_cannot_be_read_is_no_settings(void **state)
{
        static const struct {
                const char *name, *text;
        } wrong[] = {
                { "c.toml", "a = 1\na = 2\n" },
                { "c.toml", "a = \"open\n" },
                { "c.toml", "a = 1979-05-27\n" },
                { "c.toml", "a = 0x10\n" },
                { "c.toml", "a = [1\n" },
                { "c.toml", "a\n" },
                { "c.toml", "a = 1 b = 2\n" },
                { "c.toml", "[a\n" },
                { "c.toml", "a = 1\n[a]\n" },
                { "c.toml", "a = \"\\q\"\n" },
                { "c.toml", "a = {b = 1\n}\n" },
                { "c.toml", "a = '\xff'\n" },
                { "c.toml", "a = \"\\ud800\"\n" },
                { "c.json", "{\"a\": 1" },
                { "c.json", "{\"a\": 1, \"a\": 2}" },
                { "c.json", "{\"a\": \"x /* \n}" },
                { "c.json", "{ /* open \n}" },
                { "c.json", "\"\\" },
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_settings s = { 0 };
                if (clean_text(wrong[i].name, wrong[i].text, NULL, NULL, &s, &err) == 0)
                        fail_msg("%s was read: %s", wrong[i].text, s.content);
        }
        struct pv_err err = PV_ERR_INIT;
        pv_auto_settings s = { 0 };
        pv_auto_str deep = { 0 };
        pv_str_put(&deep, "a = ");
        for (int i = 0; i < 5000; i++)
                pv_str_put(&deep, "[");
        assert_int_equal(clean_text("c.toml", deep.s, NULL, NULL, &s, &err), -1);
        assert_int_equal(clean_text("c.toml", " \n", NULL, NULL, &s, &err), 0);
}

static void repeat(struct pv_str *out, const char *text, size_t n)
{
        while (n-- > 0)
                pv_str_put(out, text);
}

/* Each of them small; read as one may read it, it would take for ever or all memory. */
static void what_is_made_to_be_dear_is_not(void **state)
{
        enum { LEVELS = 400, LONG = 400000, MEMBERS = 30000 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_settings servers = { 0 }, lines = { 0 }, paths = { 0 }, tables = { 0 };
        pv_auto_str nested = { 0 }, deep = { 0 }, wide = { 0 }, toml = { 0 };
        (void)alarm(120);
        repeat(&nested, "{\"mcp\": {\"x\": ", LEVELS);
        pv_str_put(&nested, "{\"apiKey\": \"SECRET\"}");
        repeat(&nested, "}}", LEVELS);
        assert_int_equal(clean_text("c.json", nested.s, NULL, NULL, &servers, &err), 0);
        assert_null(strstr(servers.content, "SECRET"));
        assert_int_equal(servers.left_out.n, 1);
        pv_str_put(&deep, "{\"a\": ");
        repeat(&deep, "[", 2000);
        repeat(&deep, "1,", LONG / 2);
        pv_str_put(&deep, "1");
        repeat(&deep, "]", 2000);
        pv_str_put(&deep, "}");
        assert_int_equal(clean_text("c.json", deep.s, NULL, NULL, &lines, &err), 0);
        assert_in_range(strlen(lines.content), LONG, 4 * LONG);
        pv_str_put(&wide, "{\"");
        repeat(&wide, "k", LONG);
        pv_str_put(&wide, "\": {");
        for (int i = 0; i < MEMBERS; i++)
                pv_str_putf(&wide, "%s\"%xtoken\": \"S\"", i ? "," : "", (unsigned)i);
        pv_str_put(&wide, "}}");
        assert_int_equal(clean_text("c.json", wide.s, NULL, NULL, &paths, &err), 0);
        assert_int_equal(paths.left_out.n, MEMBERS);
        assert_in_range(strlen(paths.left_out.v[0]), 1, 1000);
        pv_str_put(&toml, "[");
        repeat(&toml, "k", LONG);
        pv_str_put(&toml, "]\n");
        for (int i = 0; i < MEMBERS; i++)
                pv_str_putf(&toml, "%x.a=1\n", (unsigned)i);
        assert_int_equal(clean_text("c.toml", toml.s, NULL, NULL, &tables, &err), -1);
        (void)alarm(0);
}

static void toml_is_read_as_it_is_written(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_json got = NULL;
        pv_auto_json want = NULL;
        static const char text[] =
                "\xef\xbb\xbf"
                "a.b.\"c.d\" = +1\r\ns = \"\"\"\r\none \\\r\n   two\"\"\"\"\nl = 'a\\b'\nu = \"\\u00e4\\U0001F600\"\n"
                "f = -1.5e3\nt = true\nn = [[], {}, {x.y = false}]\n[[p.q]]\nk = 1\n[p.q.r]\nm = 2\n[[p.q]]\n";
        assert_int_equal(pv_toml_read(text, &got, &err), 0);
        want = json_loads("{\"a\": {\"b\": {\"c.d\": 1}}, \"s\": \"one two\\\"\", \"l\": \"a\\\\b\", \"u\": \"ä😀\","
                          "\"f\": -1500.0, \"t\": true, \"n\": [[], {}, {\"x\": {\"y\": false}}],"
                          "\"p\": {\"q\": [{\"k\": 1, \"r\": {\"m\": 2}}, {}]}}",
                          0, NULL);
        if (!json_equal(got, want))
                fail_msg("%s", json_dumps(got, 0));
        pv_auto_str written = { 0 };
        pv_auto_json again = NULL;
        assert_int_equal(pv_toml_write(&written, got, &err), 0);
        assert_int_equal(pv_toml_read(written.s, &again, &err), 0);
        assert_true(json_equal(got, again));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(codex_keeps_all_but_its_secrets), cmocka_unit_test(a_variable_that_is_passed_is_named),
                cmocka_unit_test(json_may_have_comments),          cmocka_unit_test(what_cannot_be_read_is_no_settings),
                cmocka_unit_test(toml_is_read_as_it_is_written),   cmocka_unit_test(what_is_made_to_be_dear_is_not),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
