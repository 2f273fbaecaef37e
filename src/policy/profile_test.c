/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test_dir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/path.h"
#include "policy/profile.h"

static char top[] = "/tmp/pv-profile-XXXXXX";

static char *put(const char *rel, const char *text, mode_t mode)
{
        return pv_test_dir_put(top, rel, text, mode);
}

static void test_names(void **state)
{
        assert_true(pv_profile_is_name("claude"));
        assert_true(pv_profile_is_name("cursor-agent"));
        assert_true(pv_profile_is_name("a.b_c-1"));
        static const char *const none[] = { "", ".", "..", "a/b", "none", "-x", ".x", "a b", "a\n" };
        for (size_t i = 0; i < sizeof none / sizeof *none; i++)
                assert_false(pv_profile_is_name(none[i]));
}

static void test_fields(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_profile p = NULL;
        pv_auto_plan plan = pv_calloc(1, sizeof *plan);
        pv_auto_free char *path = put("p.yaml",
                                      "about: one\nhosts: [a.example:443, '@npm']\nstate: [~/.a, ~/.b//c/]\n"
                                      "settings: ~/.a/s\nread: [/srv/x, ~/y]\npass-env: KEY\nset-env: ['A=b=c']\n"
                                      "inner-sandbox: off\ninner-sandbox-arguments: [-c, '']\nlogin: [p, in]\n",
                                      0600);
        assert_int_equal(pv_profile_load(path, "p", &p, &err), 0);
        assert_string_equal(p->state.v[1], ".b/c");
        assert_string_equal(p->read.v[1], "~/y");
        assert_string_equal(p->inner_args.v[1], "");
        pv_profile_put(p, plan);
        assert_string_equal(plan->profile.name, "p");
        assert_int_equal(plan->profile.hosts.n, 2);
        assert_string_equal(plan->profile.set_env.v[0], "A=b=c");
}

/* Whose profile a program is given, by how it is named and where it lies. */
static void test_programs(void **state)
{
        static const struct pv_backings none = { 0 };
        struct pv_profile_places places = { 0 };
        pv_auto_free char *own = pv_path_join(top, "profiles"), *ws = pv_path_join(top, "ws");
        pv_auto_free char *bin = pv_path_join(top, "bin");
        free(put("profiles/tool.yaml", "about: x\n", 0600));
        free(put("bin/tool", "", 0700));
        pv_auto_free char *inside = put("ws/bin/tool", "", 0700);
        pv_auto_free char *outer = pv_path_join(bin, "tool");
        pv_auto_free char *chain = pv_path_join(top, "bin/chain"), *link = pv_path_join(top, "ws/link");
        pv_auto_strv dirs = { 0 };
        pv_strv_add(&dirs, ws);
        places.own = own;
        assert_int_equal(symlink(outer, link), 0);
        assert_int_equal(symlink("../ws/link", chain), 0);
        assert_string_equal(pv_profile_leads_through(chain, NULL, &dirs, &none), ws); /* out of the workspace again */
        pv_auto_free char *first = pv_strf("%s:%s/bin", bin, ws), *second = pv_strf("%s/bin:%s", ws, bin);
        const struct {
                const char *program, *path;
                bool found, inside;
        } cases[] = {
                { "tool", first, true, false }, { "tool", second, false, true },  { outer, first, true, false },
                { inside, first, false, true }, { "other", first, false, false }, { "/x/tool", first, true, false },
                { "tool", NULL, true, false },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                pv_auto_free char *found = pv_profile_of_program(&places, cases[i].program);
                const char *in = pv_profile_leads_through(cases[i].program, cases[i].path, &dirs, &none);
                assert_int_equal(found && !in, cases[i].found);
                assert_int_equal(in != NULL, cases[i].inside);
        }
}

/* Directories of PATH that the command finds otherwise than the host, or that only it finds. */
static void test_programs_of_the_view(void **state)
{
        pv_auto_free char *bin = pv_path_join(top, "bin"), *shared = pv_path_join(top, "shared");
        pv_auto_free char *layer = pv_path_join(top, "layer"), *ws = pv_path_join(top, "ws");
        free(put("bin/thing", "", 0700));
        free(put("shared/x/thing", "", 0700));
        free(put("layer/y/thing", "", 0700));
        pv_auto_free char *within = pv_strf("/nowhere/x:%s", bin), *over = pv_strf("%s/y:%s", ws, bin);
        pv_auto_free char *beside = pv_strf("/nowhere/z:%s/z:%s", ws, bin), *direct = pv_strdup("/nowhere/x/thing");
        pv_auto_strv writable = { 0 }, readable = { 0 };
        pv_auto_backings view = { 0 };
        pv_strv_add(&readable, ws);
        pv_strv_add(&writable, ws);
        pv_strv_add(&writable, shared);
        pv_strv_add(&writable, "/nowhere");
        pv_backings_add(&view, "/nowhere", shared, true);
        pv_backings_add(&view, ws, layer, false);
        const struct {
                const char *program, *path;
                const struct pv_strv *dirs;
                const char *in;
        } cases[] = {
                { "thing", within, &writable, shared }, { "thing", within, &readable, NULL },
                { direct, NULL, &writable, shared },    { direct, NULL, &readable, NULL },
                { "thing", over, &readable, ws },       { "thing", beside, &writable, NULL },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                const char *in = pv_profile_leads_through(cases[i].program, cases[i].path, cases[i].dirs, &view);
                if (!in != !cases[i].in || (in && !pv_streq(in, cases[i].in)))
                        fail_msg("%zu: %s", i, in ? in : "none");
        }
}

static int make(void **state)
{
        return pv_test_dir_make(top);
}

static int clear(void **state)
{
        return pv_test_dir_remove(top);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_fields),
                cmocka_unit_test(test_programs),
                cmocka_unit_test(test_programs_of_the_view),
        };
        return cmocka_run_group_tests(tests, make, clear);
}
