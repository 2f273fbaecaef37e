/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/mcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/test.h"

static int read_text(const char *text, const char *passed, struct pv_mcp *out, struct pv_err *err)
{
        char path[] = "/tmp/pvisor-mcp-XXXXXX";
        static char *const environment[] = { "FROM_HOME=1", NULL };
        pv_auto_strv names = { 0 };
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        assert_int_equal(close(fd), 0);
        if (passed)
                pv_strv_add(&names, passed);
        int r = pv_mcp_read(path, "/work/a", environment, &names, out, err);
        assert_int_equal(unlink(path), 0);
        return r;
}

static void servers_are_taken_without_their_secrets(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_mcp m = { 0 };
        assert_int_equal(read_text("{\"oauthAccount\": {\"token\": \"OAUTH\"}, \"mcpServers\": {"
                                   "\"gh\": {\"command\": \"npx\", \"args\": [\"-y\", \"server-gh\"], \"trust\": true,"
                                   "  \"env\": {\"GH_TOKEN\": \"SECRET\", \"LOG\": \"debug\", \"PORT\": \"8080\"}},"
                                   "\"web\": {\"type\": \"http\", \"url\": \"https://x.example/mcp\","
                                   "  \"headers\": {\"Authorization\": \"Bearer SECRET\"}}}}",
                                   NULL, &m, &err),
                         0);
        assert_int_equal(m.servers.n, 2);
        assert_null(strstr(m.json, "SECRET"));
        assert_null(strstr(m.json, "OAUTH"));
        assert_null(strstr(m.json, "trust"));
        assert_null(strstr(m.json, "GH_TOKEN"));
        assert_non_null(strstr(m.json, "\"env\":{\"LOG\":\"debug\",\"PORT\":\"8080\"}"));
        assert_non_null(strstr(m.json, "https://x.example/mcp"));
        assert_int_equal(m.withheld.n, 1);
        assert_string_equal(m.withheld.v[0], "GH_TOKEN");
}

static void a_variable_is_given_by_its_name(void **state)
{
        static const char text[] =
                "{\"mcpServers\": {\"gh\": {\"command\": \"x\", \"env\": {\"FROM_HOME\": \"SECRET\", "
                "\"FROM_FILE\": \"SECRET\"}}}}";
        struct pv_err err = PV_ERR_INIT;
        pv_auto_mcp home = { 0 }, file = { 0 };
        assert_int_equal(read_text(text, "FROM_HOME", &home, &err), 0);
        assert_non_null(strstr(home.json, "\"FROM_HOME\":\"${FROM_HOME}\""));
        assert_int_equal(home.variables.n, 0);
        assert_string_equal(home.withheld.v[0], "FROM_FILE");
        assert_int_equal(read_text(text, "FROM_FILE", &file, &err), 0);
        assert_null(strstr(file.json, "SECRET"));
        assert_string_equal(file.variables.v[0], "FROM_FILE=SECRET");
}

static void a_server_with_a_secret_elsewhere_is_left_out(void **state)
{
        static const char *const secret[] = {
                "{\"command\": \"x\", \"args\": [\"--api-key\", \"abc\"]}",
                "{\"command\": \"x\", \"args\": [\"--token=abc\"]}",
                "{\"command\": \"x\", \"args\": [\"-H\", \"Authorization: abc\"]}",
                "{\"command\": \"x\", \"args\": [\"postgres://me:pw@db/x\"]}",
                "{\"command\": \"x\", \"args\": [\"ghp_0123456789abcdef\"]}",
                "{\"command\": \"x\", \"args\": [\"0123456789abcdef0123456789abcdef\"]}",
                "{\"command\": \"x\", \"args\": [\"DSN=0123456789abcdef0123456789abcdef\"]}",
                "{\"url\": \"https://me:pw@x.example/\"}",
                "{\"url\": \"https://x.example/?api_key=abc\"}",
                "{\"command\": \"x --key sk-0123456789\"}",
                "\"text\"",
        };
        static const char *const plain[] = {
                "{\"command\": \"x\", \"args\": [\"--keyboard\", \"--port\", \"8080\", "
                "\"/srv/a/0123456789abcdef0123456789\"]}",
                "{\"command\": \"x\", \"args\": [\"--api-key\", \"${KEY}\", \"@scope/server-filesystem@1.2.3\"]}",
                "{\"command\": \"x\", \"args\": [\"--verbose\", \"--max-tokens-per-call\"]}",
                "{\"url\": \"https://x.example/mcp/keys\"}",
        };
        for (size_t i = 0; i < sizeof secret / sizeof *secret; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_mcp m = { 0 };
                pv_auto_free char *text = pv_strf("{\"mcpServers\": {\"one\": %s}}", secret[i]);
                assert_int_equal(read_text(text, NULL, &m, &err), 0);
                if (m.json || m.left_out.n != 1)
                        fail_msg("%s", secret[i]);
        }
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_mcp m = { 0 };
                pv_auto_free char *text = pv_strf("{\"mcpServers\": {\"one\": %s}}", plain[i]);
                assert_int_equal(read_text(text, NULL, &m, &err), 0);
                if (!m.json || m.left_out.n != 0)
                        fail_msg("%s", plain[i]);
        }
}

static void the_workspaces_own_come_first_and_what_is_off_stays_off(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_mcp m = { 0 };
        assert_int_equal(read_text("{\"mcpServers\": {\"a\": {\"command\": \"user\"}, \"b\": {\"command\": \"b\"}},"
                                   "\"projects\": {\"/work/a\": {\"mcpServers\": {\"a\": {\"command\": \"own\"}},"
                                   "\"disabledMcpServers\": [\"b\"]}, \"/work/b\": {\"mcpServers\": {\"c\": "
                                   "{\"command\": \"c\"}}}}}",
                                   NULL, &m, &err),
                         0);
        assert_string_equal(m.json, "{\"mcpServers\":{\"a\":{\"command\":\"own\"}}}");
}

static void nothing_and_nonsense(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_mcp m = { 0 };
        pv_auto_strv none = { 0 };
        assert_int_equal(pv_mcp_read("/nonexistent/x.json", "/w", NULL, &none, &m, &err), 0);
        assert_null(m.json);
        assert_int_equal(read_text("{}", NULL, &m, &err), 0);
        assert_null(m.json);
        assert_int_equal(read_text("{\"mcpServers\": [1]}", NULL, &m, &err), 0);
        assert_null(m.json);
        assert_int_equal(read_text("{", NULL, &m, &err), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(servers_are_taken_without_their_secrets),
                cmocka_unit_test(a_variable_is_given_by_its_name),
                cmocka_unit_test(a_server_with_a_secret_elsewhere_is_left_out),
                cmocka_unit_test(the_workspaces_own_come_first_and_what_is_off_stays_off),
                cmocka_unit_test(nothing_and_nonsense),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
