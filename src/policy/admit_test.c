/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"
#include "policy/admit.h"
#include "policy/env.h"
#include "policy/grant.h"
#include "policy/presets.h"

static char top[PATH_MAX];
static char *home_entry, *workspace;

static char command[] = "make";
static char *const argv[] = { command, NULL };

static char *at(const char *rel)
{
        return pv_path_join(top, rel);
}

static void make_dir(const char *rel)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *path = at(rel);
        assert_int_equal(pv_path_make_dirs(path, 0755, &err), 0);
}

static char secret[] = "API_TOKEN=hunter2", language[] = "LC_TIME=C", path_entry[] = "PATH=/bin";

static int admit(const struct pv_request *r, struct pv_plan **out, struct pv_err *err)
{
        char *environment[] = { home_entry, secret, language, path_entry, NULL };
        pv_auto_free char *store = at("home/.local/state/pvisor");
        pv_auto_strv notes = { 0 };
        *err = (struct pv_err)PV_ERR_INIT;
        const struct pv_surroundings around = { .environment = environment,
                                                .store = store,
                                                .stage_dir = r->stage && *r->stage ? r->stage : NULL };
        return pv_admit(r, &around, argv, out, &notes, err);
}

static struct pv_plan *admitted(const struct pv_request *r)
{
        struct pv_plan *plan = NULL;
        struct pv_err err;
        int result = admit(r, &plan, &err);
        assert_string_equal(err.msg, "");
        assert_int_equal(result, 0);
        return plan;
}

static void refused(const struct pv_request *r, enum pv_err_kind kind, const char *contains)
{
        struct pv_plan *plan = NULL;
        struct pv_err err;
        assert_int_equal(admit(r, &plan, &err), -1);
        assert_int_equal(err.kind, kind);
        assert_non_null(strstr(err.msg, contains));
        assert_null(plan);
}

static char store_stage[] = "", elsewhere[] = "/var/tmp/pv-admit-nowhere";

static void test_ambient(void **state)
{
        pv_auto_plan p = admitted(&(struct pv_request){ 0 });
        assert_false(p->staged);
        assert_int_equal(p->filesystem, PV_FS_HOST);
        assert_int_equal(p->net, PV_NET_AMBIENT);
        assert_int_equal(p->home_mode, PV_HOME_HOST);
        assert_int_equal(p->n_roots, 0);
        assert_string_equal(pv_env_get(p->env.v, "API_TOKEN"), "hunter2");
        for (int d = 0; d < PV_DIMENSIONS; d++)
                assert_false(p->required[d]);
}

static void test_stage_brings_the_sandbox(void **state)
{
        pv_auto_plan p = admitted(&(struct pv_request){ .stage = store_stage });
        assert_true(p->staged);
        assert_int_equal(p->filesystem, PV_FS_SANDBOX);
        assert_int_equal(p->home_mode, PV_HOME_EMPTY);
        assert_int_equal(p->net, PV_NET_AMBIENT);
        assert_int_equal(p->n_roots, 1);
        assert_string_equal(p->roots[0].target, workspace);
        assert_null(pv_env_get(p->env.v, "API_TOKEN"));
        assert_string_equal(pv_env_get(p->env.v, "LC_TIME"), "C");
        pv_auto_plan host = admitted(&(struct pv_request){ .stage = store_stage, .filesystem = PV_REQUEST_FS_HOST });
        assert_int_equal(host->filesystem, PV_FS_HOST);
        assert_true(host->staged);
}

static void test_safe(void **state)
{
        pv_auto_plan p = admitted(&(struct pv_request){ .safe = true });
        assert_true(p->staged);
        assert_int_equal(p->home_mode, PV_HOME_COW);
        assert_int_equal(p->net, PV_NET_RULES);
        for (int d = 0; d < PV_DIMENSIONS; d++)
                assert_int_equal(p->required[d], d != PV_DIM_RESOURCES);
        assert_true(pv_strv_has(&p->masks, ".ssh"));
        pv_auto_free char *store = at("home/.local/state/pvisor");
        assert_true(pv_strv_has(&p->hidden, store));
        pv_auto_plan online = admitted(&(struct pv_request){ .safe = true, .overlaynet = PV_REQUEST_NET_OFF });
        assert_int_equal(online->net, PV_NET_AMBIENT);
        assert_false(online->required[PV_DIM_NETWORK]);
}

static void test_strict_requires_what_is_asked(void **state)
{
        pv_auto_plan p =
                admitted(&(struct pv_request){ .strict = true, .overlaynet_deny_all = true, .memory = 1 << 20 });
        assert_true(p->required[PV_DIM_NETWORK]);
        assert_true(p->required[PV_DIM_RESOURCES]);
        assert_false(p->required[PV_DIM_READS]);
        refused(&(struct pv_request){ .strict = true }, PV_ERR_USAGE, "--strict");
}

static void test_contradictions(void **state)
{
        static char dir[] = "/tmp/x", job[] = "last";
        refused(&(struct pv_request){ .safe = true, .filesystem = PV_REQUEST_FS_HOST }, PV_ERR_USAGE, "contradict");
        refused(&(struct pv_request){ .overlaynet = PV_REQUEST_NET_OFF, .overlaynet_deny_all = true }, PV_ERR_USAGE,
                "contradict");
        refused(&(struct pv_request){ .stage = dir, .continue_job = job }, PV_ERR_USAGE, "contradict");
        refused(&(struct pv_request){ .executor = PV_REQUEST_EXECUTOR_VM }, PV_ERR_UNSUPPORTED, "vm");
}

static void rules(struct pv_strv *list, const char *text)
{
        pv_strv_add(list, text);
}

static void test_network(void **state)
{
        struct pv_request r = { 0 };
        rules(&r.overlaynet_allow, "*.example.com:443");
        rules(&r.overlaynet_limit, "10mbps");
        rules(&r.overlaynet_limit, "host.example:443=2mb/s");
        rules(&r.user_deny, "bad.example.com");
        rules(&r.publish, "8080:3000");
        rules(&r.publish, "[::1]:8081:3001");
        pv_auto_plan p = admitted(&r);
        assert_int_equal(p->net, PV_NET_RULES);
        assert_int_equal(p->netpolicy.n_layers, 2);
        assert_string_equal(p->netpolicy.layer[0].name, "configuration");
        assert_int_equal(p->netpolicy.layer[1].n_allow, 1);
        assert_int_equal(p->netpolicy.limits[1].bytes_per_second, 2000000);
        assert_int_equal(p->publications[1].port, 3001);

        r.overlaynet = PV_REQUEST_NET_OFF;
        refused(&r, PV_ERR_USAGE, "contradict");
        r.overlaynet = 0;
        r.overlaynet_deny_all = true;
        refused(&r, PV_ERR_USAGE, "contradict");
        r.overlaynet_deny_all = false;
        rules(&r.overlaynet_deny, "http://x");
        refused(&r, PV_ERR_USAGE, "--overlaynet-deny");
        pv_strv_fini(&r.overlaynet_deny);
        rules(&r.publish, "0:1");
        refused(&r, PV_ERR_USAGE, "--publish");
        pv_strv_fini(&r.publish);
        pv_strv_fini(&r.overlaynet_allow);
        pv_strv_fini(&r.overlaynet_limit);
        pv_strv_fini(&r.user_deny);

        /* What is published by a run that allows nothing out may be reached and reaches nothing. */
        rules(&r.publish, "8080:3000");
        r.safe = true;
        pv_auto_plan closed = admitted(&r);
        assert_int_equal(closed->net, PV_NET_RULES);
        assert_int_equal(closed->netpolicy.n_layers, 1);
        assert_true(closed->netpolicy.layer[0].closed);
        rules(&r.overlaynet_limit, "10mbps"); /* opens nothing */
        rules(&r.user_deny, "bad.example");
        pv_auto_plan limited = admitted(&r);
        assert_int_equal(limited->netpolicy.n_layers, 2);
        assert_true(limited->netpolicy.layer[1].closed);
        pv_strv_fini(&r.overlaynet_limit);
        pv_strv_fini(&r.user_deny);
        r.overlaynet_deny_all = true;
        pv_auto_plan sealed = admitted(&r);
        assert_int_equal(sealed->net, PV_NET_RULES);
        assert_int_equal(sealed->netpolicy.layer[0].n_deny, 1);
        pv_strv_fini(&r.publish);
        pv_auto_plan empty = admitted(&r);
        assert_int_equal(empty->net, PV_NET_DENY_ALL);

        pv_auto_plan same = admitted(&(struct pv_request){ .safe = true, .overlaynet = PV_REQUEST_NET_AUTO });
        assert_true(same->netpolicy.layer[0].closed);
        pv_auto_plan open = admitted(&(struct pv_request){ .overlaynet = PV_REQUEST_NET_AUTO });
        assert_int_equal(open->net, PV_NET_RULES);
        assert_int_equal(open->netpolicy.n_layers, 0);
}

static void test_no_command(void **state)
{
        char *const none[] = { NULL };
        struct pv_plan *plan = NULL;
        pv_auto_strv notes = { 0 };
        struct pv_err err = PV_ERR_INIT;
        assert_int_equal(pv_admit(&(struct pv_request){ 0 }, &(struct pv_surroundings){ 0 }, none, &plan, &notes, &err),
                         -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
}

static void test_workspace_that_holds_home(void **state)
{
        pv_auto_free char *home = at("home");
        struct pv_request r = { .safe = true, .workspace = home };
        refused(&r, PV_ERR_UNSUPPORTED, "sensitive paths");
        r = (struct pv_request){ .stage = store_stage, .workspace = home };
        refused(&r, PV_ERR_UNSUPPORTED, "stage: ");
        r.stage = elsewhere;
        pv_auto_plan p = admitted(&r);
        assert_int_equal(p->home_mode, PV_HOME_HOST);
        r.workspace = top + strlen(top) - 1; /* not a directory of that name */
        refused(&r, PV_ERR_USAGE, "--workspace");
        static char slash[] = "/";
        r.workspace = slash;
        refused(&r, PV_ERR_USAGE, "whole machine");
}

static void test_workspace_in_a_credential_store(void **state)
{
        make_dir("home/.ssh/keys");
        pv_auto_free char *dir = at("home/.ssh/keys");
        refused(&(struct pv_request){ .safe = true, .workspace = dir }, PV_ERR_UNSUPPORTED, ".ssh");
}

static void test_a_granted_path_is_not_masked(void **state)
{
        make_dir("home/.kube");
        struct pv_request r = { .safe = true };
        pv_strv_add(&r.mount, "~/.kube:read");
        pv_auto_plan p = admitted(&r);
        assert_false(pv_strv_has(&p->masks, ".kube"));
        assert_true(pv_strv_has(&p->masks, ".ssh"));
        pv_strv_fini(&r.mount);
}

static void test_masks_are_well_formed(void **state)
{
        pv_auto_strv masks = { 0 };
        pv_presets_add_masks(&masks);
        for (size_t i = 0; i < masks.n; i++) {
                pv_auto_free char *absolute = pv_path_join("/", masks.v[i]);
                pv_auto_free char *clean = pv_path_normalise(absolute);
                assert_string_equal(clean + 1, masks.v[i]);
                for (size_t j = 0; j < masks.n; j++)
                        assert_true(i == j || !pv_path_is_within(masks.v[i], masks.v[j]));
        }
}

static void parse_mount(const char *text, const char *src, const char *dst, enum pv_mount_access access)
{
        struct pv_mount m = { 0 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *home = at("home");
        pv_auto_free char *full_src = at(src), *full_dst = dst[0] == '/' ? pv_strdup(dst) : at(dst);
        assert_int_equal(pv_grant_parse_mount(text, home, &m, &err), 0);
        assert_string_equal(m.src, full_src);
        assert_string_equal(m.dst, full_dst);
        assert_int_equal(m.access, access);
        pv_mount_fini(&m);
}

static void test_mount_syntax(void **state)
{
        make_dir("home/lib:/x");
        make_dir("data");
        parse_mount("../data:read", "data", "data", PV_MOUNT_READ);
        parse_mount("../data:/srv/data/:write", "data", "/srv/data", PV_MOUNT_WRITE);
        parse_mount("~/lib::read", "home/lib:", "home/lib:", PV_MOUNT_READ);
        parse_mount("~/lib:/x:read", "home/lib:/x", "home/lib:/x", PV_MOUNT_READ);
        parse_mount("~/lib::/x:read", "home/lib:", "/x", PV_MOUNT_READ);
        struct pv_mount m = { 0 };
        struct pv_err err = PV_ERR_INIT;
        assert_int_equal(pv_grant_parse_mount("/tmp", NULL, &m, &err), -1);
        assert_int_equal(pv_grant_parse_mount("/tmp:own", NULL, &m, &err), -1);
        assert_int_equal(pv_grant_parse_mount(":read", NULL, &m, &err), -1);
        assert_int_equal(pv_grant_parse_mount("/nonexistent:read", NULL, &m, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
}

/* A name that leads over links is kept beside the real one, unless another place was asked for. */
static void test_mount_by_a_link(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        make_dir("versions/v1/lib");
        pv_auto_free char *link = at("current"), *text = pv_strf("%s/lib:read", link), *real = at("versions/v1/lib");
        pv_auto_free char *named = pv_strf("%s/lib", link), *placed = pv_strf("%s/lib:/lib1:read", link);
        assert_int_equal(symlink("versions/v1", link), 0);
        struct pv_mount m = { 0 };
        assert_int_equal(pv_grant_parse_mount(text, NULL, &m, &err), 0);
        assert_string_equal(m.dst, real);
        assert_string_equal(m.named, named);
        pv_mount_fini(&m);
        assert_int_equal(pv_grant_parse_mount(placed, NULL, &m, &err), 0);
        assert_string_equal(m.dst, "/lib1");
        assert_null(m.named);
        pv_mount_fini(&m);
}

static void refused_mount(bool staged, int filesystem, const char *text, const char *contains)
{
        struct pv_request r = { .stage = staged ? store_stage : NULL, .filesystem = filesystem };
        pv_strv_add(&r.mount, text);
        refused(&r, PV_ERR_USAGE, contains);
        pv_strv_fini(&r.mount);
}

static void test_mount_rules(void **state)
{
        refused_mount(false, 0, "../data:read", "as it is");
        refused_mount(false, PV_REQUEST_FS_SANDBOX, "../data:stage", "nothing is staged");
        refused_mount(true, 0, ".:stage", "cover the workspace");
        refused_mount(true, 0, "..:/other:stage", "pVisor's own");
        refused_mount(true, 0, "../data:/proc/x:read", "/proc");
        refused_mount(true, 0, "../data:/:read", "cover the workspace");
        struct pv_request r = { .stage = store_stage };
        pv_strv_add(&r.mount, "../data:stage");
        pv_auto_plan p = admitted(&r);
        assert_int_equal(p->n_roots, 2);
        assert_int_equal(p->roots[1].kind, PV_ROOT_MOUNT);
        pv_strv_fini(&r.mount);
}

static void test_devices(void **state)
{
        struct pv_request r = { .stage = store_stage };
        pv_strv_add(&r.device, "/dev/null");
        pv_auto_plan p = admitted(&r);
        assert_string_equal(p->devices.v[0], "/dev/null");
        pv_strv_add(&r.device, "/etc/passwd");
        refused(&r, PV_ERR_USAGE, "--device");
        pv_strv_fini(&r.device);
}

static void test_pass_env(void **state)
{
        struct pv_request r = { .safe = true };
        pv_strv_add(&r.pass_env, "API_TOKEN");
        pv_strv_add(&r.pass_env, "NOT_SET");
        pv_auto_plan p = admitted(&r);
        assert_string_equal(pv_env_get(p->env.v, "API_TOKEN"), "hunter2");
        assert_int_equal(p->env_passed.n, 1);
        assert_string_equal(pv_env_get(p->env.v, "GIT_CONFIG_COUNT"), "6");
        assert_string_equal(pv_env_get(p->env.v, "GIT_CONFIG_VALUE_5"), workspace);
        assert_string_equal(pv_env_get(p->env.v, "PWD"), workspace);
        pv_strv_add(&r.pass_env, "TOKEN=secret");
        struct pv_plan *none = NULL;
        struct pv_err err;
        assert_int_equal(admit(&r, &none, &err), -1);
        assert_null(strstr(err.msg, "secret"));
        pv_strv_fini(&r.pass_env);
}

static int set_up(void **state)
{
        char template[] = "/tmp/pv-admit-XXXXXX";
        if (!mkdtemp(template) || !realpath(template, top))
                return -1;
        make_dir("home");
        make_dir("work");
        workspace = at("work");
        home_entry = pv_strf("HOME=%s/home", top);
        return chdir(workspace);
}

static int tear_down(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        free(workspace);
        free(home_entry);
        return chdir("/") < 0 ? -1 : pv_path_remove_tree(AT_FDCWD, top, &err);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ambient),
                cmocka_unit_test(test_stage_brings_the_sandbox),
                cmocka_unit_test(test_safe),
                cmocka_unit_test(test_strict_requires_what_is_asked),
                cmocka_unit_test(test_contradictions),
                cmocka_unit_test(test_network),
                cmocka_unit_test(test_no_command),
                cmocka_unit_test(test_workspace_that_holds_home),
                cmocka_unit_test(test_workspace_in_a_credential_store),
                cmocka_unit_test(test_a_granted_path_is_not_masked),
                cmocka_unit_test(test_masks_are_well_formed),
                cmocka_unit_test(test_mount_syntax),
                cmocka_unit_test(test_mount_by_a_link),
                cmocka_unit_test(test_mount_rules),
                cmocka_unit_test(test_devices),
                cmocka_unit_test(test_pass_env),
        };
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
