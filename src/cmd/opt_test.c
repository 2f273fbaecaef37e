/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <string.h>
#include "cmd/opt.h"

struct target {
        bool safe;
        char *stage, *name, *json;
        struct pv_strv pass;
        uint64_t processes, memory, timeout;
        int filesystem;
};

static const char *const filesystems[] = { "host", "sandbox", NULL };

static const struct pv_opt table[] = {
        { .name = "safe", .letter = 's', .type = PV_OPT_FLAG, .field = offsetof(struct target, safe) },
        { .name = "stage",
          .type = PV_OPT_TEXT,
          .arg = "DIR",
          .flags = PV_OPT_ARG_OPTIONAL,
          .field = offsetof(struct target, stage) },
        { .name = "json",
          .type = PV_OPT_TEXT,
          .arg = "FD",
          .flags = PV_OPT_ARG_OPTIONAL | PV_OPT_ATTACHED,
          .field = offsetof(struct target, json) },
        { .name = "name", .letter = 'n', .type = PV_OPT_TEXT, .arg = "NAME", .field = offsetof(struct target, name) },
        { .name = "pass-env", .type = PV_OPT_LIST, .arg = "NAME", .field = offsetof(struct target, pass) },
        { .name = "max-processes", .type = PV_OPT_COUNT, .arg = "N", .field = offsetof(struct target, processes) },
        { .name = "memory", .type = PV_OPT_SIZE, .arg = "SIZE", .field = offsetof(struct target, memory) },
        { .name = "timeout", .type = PV_OPT_DURATION, .arg = "TIME", .field = offsetof(struct target, timeout) },
        { .name = "filesystem",
          .type = PV_OPT_CHOICE,
          .arg = "MODE",
          .choices = filesystems,
          .flags = PV_OPT_ARG_OPTIONAL,
          .field = offsetof(struct target, filesystem) },
        { .name = "ask", .type = PV_OPT_REFUSED, .help = "asking", .flags = PV_OPT_LIMIT },
        { .name = "tui", .type = PV_OPT_REFUSED, .help = "a screen", .instead = "use --list" },
        PV_OPT_ELSEWHERE('e', "env", "use --pass-env"),
        { .name = NULL },
};

struct fixture {
        struct pv_parsed parsed;
        struct target t;
        struct pv_err err;
        int result;
};

/* Splits line at blanks, parses and applies. */
static void parse(struct fixture *f, enum pv_args_style style, const char *line)
{
        static char copy[512], *argv[64];
        int argc = 0;
        *f = (struct fixture){ 0 };
        assert_true(strlen(line) < sizeof copy);
        memcpy(copy, line, strlen(line) + 1);
        for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
                argv[argc++] = w;
        argv[argc] = NULL;
        f->result = pv_opt_parse(table, style, argc, argv, &f->parsed, &f->err);
        if (f->result == 0)
                f->result = pv_opt_apply(&f->parsed, &f->t, &f->err);
}

static void done(struct fixture *f)
{
        pv_opt_fini(table, &f->t);
        pv_parsed_fini(&f->parsed);
}

static void test_each_type(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND,
              "run -s --name=a -nb --pass-env X --pass-env=Y --max-processes 7 --memory 2MiB --timeout 30s "
              "--filesystem sandbox make -j --safe");
        assert_int_equal(f.result, 0);
        assert_true(f.t.safe);
        assert_string_equal(f.t.name, "b");
        assert_int_equal(f.t.pass.n, 2);
        assert_string_equal(f.t.pass.v[1], "Y");
        assert_int_equal(f.t.processes, 7);
        assert_int_equal(f.t.memory, 2 << 20);
        assert_int_equal(f.t.timeout, 30000);
        assert_int_equal(f.t.filesystem, 2);
        assert_string_equal(f.parsed.args.command[0], "make");
        assert_string_equal(f.parsed.args.command[2], "--safe");
        done(&f);
}

static void test_flag_can_be_false(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND, "run --safe --safe=false -- x");
        assert_int_equal(f.result, 0);
        assert_false(f.t.safe);
        done(&f);
}

static void expect_stage(const char *line, const char *stage, const char *command)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND, line);
        assert_int_equal(f.result, 0);
        assert_string_equal(f.t.stage, stage);
        assert_string_equal(f.parsed.args.command[0], command);
        done(&f);
}

static void test_optional_directory(void **state)
{
        expect_stage("run --stage -- make", "", "make");
        expect_stage("run --stage make test", "", "make");
        expect_stage("run --stage make test -- --watch", "", "make");
        expect_stage("run --stage changes -- make", "changes", "make");
        expect_stage("run --stage changes --safe --name n -- make", "changes", "make");
        expect_stage("run --stage --safe make", "", "make");
        expect_stage("run --stage=changes make", "changes", "make");
        expect_stage("run --stage /nonexistent/changes make", "/nonexistent/changes", "make");
        expect_stage("run --stage /tmp make", "/tmp", "make");
        expect_stage("run --stage /bin/sh x", "", "/bin/sh");
        expect_stage("run --stage /nonexistent/x", "", "/nonexistent/x");
}

static void test_optional_argument_only_attached(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND, "run --json /tmp -- x");
        assert_int_equal(f.result, 0);
        assert_string_equal(f.t.json, "");
        assert_string_equal(f.parsed.args.command[0], "/tmp");
        done(&f);
        parse(&f, PV_ARGS_COMMAND, "run --json=3 -- x");
        assert_string_equal(f.t.json, "3");
        done(&f);
}

static void test_optional_choice(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND, "run --filesystem make");
        assert_int_equal(f.result, 0);
        assert_int_equal(f.t.filesystem, 1);
        assert_string_equal(f.parsed.args.command[0], "make");
        done(&f);
}

static void test_styles(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_MIXED, "diff last --safe -- --name -");
        assert_int_equal(f.result, 0);
        assert_int_equal(f.parsed.args.n, 3);
        assert_string_equal(f.parsed.args.words[1], "--name");
        assert_null(f.parsed.args.command);
        assert_true(f.t.safe);
        done(&f);
        parse(&f, PV_ARGS_AND_COMMAND, "inspect last --safe -- git --safe");
        assert_int_equal(f.parsed.args.n, 1);
        assert_string_equal(f.parsed.args.command[1], "--safe");
        done(&f);
        parse(&f, PV_ARGS_COMMAND, "run --");
        assert_null(f.parsed.args.command);
        done(&f);
}

static void test_common(void **state)
{
        struct fixture f;
        parse(&f, PV_ARGS_MIXED, "diff -qv");
        assert_int_equal(f.parsed.verbosity, 1);
        done(&f);
        parse(&f, PV_ARGS_MIXED, "diff --quiet --help");
        assert_int_equal(f.parsed.verbosity, -1);
        assert_true(f.parsed.help);
        done(&f);
}

static void expect_error(const char *line, enum pv_err_kind kind, const char *msg, const char *hint)
{
        struct fixture f;
        parse(&f, PV_ARGS_COMMAND, line);
        assert_int_equal(f.result, -1);
        assert_int_equal(f.err.kind, kind);
        assert_string_equal(f.err.msg, msg);
        assert_string_equal(f.err.hint, hint);
        done(&f);
}

static void test_errors(void **state)
{
        expect_error("run --saef -- x", PV_ERR_USAGE, "--saef: no such option", "did you mean --safe?");
        expect_error("run --zzz=1 -- x", PV_ERR_USAGE, "--zzz: no such option", "--help lists the options");
        expect_error("run -z", PV_ERR_USAGE, "-z: no such option", "--help lists the options");
        expect_error("run --name", PV_ERR_USAGE, "--name: needs an argument: NAME", "");
        expect_error("run --name= x", PV_ERR_USAGE, "--name: is empty", "");
        expect_error("run --max-processes 0 x", PV_ERR_USAGE, "--max-processes: must be more than 0", "");
        expect_error("run --max-processes 99999999999999999999 x", PV_ERR_USAGE,
                     "--max-processes: not a number: 99999999999999999999", "");
        expect_error("run --filesystem=wide x", PV_ERR_USAGE, "--filesystem: not one of host, sandbox: wide", "");
        expect_error("run --safe=perhaps x", PV_ERR_USAGE, "--safe: not true or false: perhaps", "");
        expect_error("run --ask x", PV_ERR_UNSUPPORTED, "--ask: not in this version: asking", "");
        expect_error("run --tui x", PV_ERR_USAGE, "--tui: not in this version: a screen", "use --list");
        expect_error("run -e A=b x", PV_ERR_USAGE, "-e: no such option", "use --pass-env");
        expect_error("run --env=A=b x", PV_ERR_USAGE, "--env: no such option", "use --pass-env");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_each_type),
                cmocka_unit_test(test_flag_can_be_false),
                cmocka_unit_test(test_optional_directory),
                cmocka_unit_test(test_optional_argument_only_attached),
                cmocka_unit_test(test_optional_choice),
                cmocka_unit_test(test_styles),
                cmocka_unit_test(test_common),
                cmocka_unit_test(test_errors),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
