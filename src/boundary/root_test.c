/* SPDX-License-Identifier: Apache-2.0 */
/* The list of steps that a plan becomes, without carrying it out. */
#include "base/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "boundary/root.h"

static char top[64];

static struct pv_strv kept; /* what at() made, freed at the end */

static char *at(const char *rel)
{
        pv_strv_take(&kept, pv_path_join(top, rel));
        return kept.v[kept.n - 1];
}

static int setup(void **state)
{
        static const char *const dirs[] = { "home",         "home/.ssh",       "home/src", "home/src/p", "home/bin",
                                            "home/.config", "home/.config/gh", "store",    "other",      "other/deep" };
        (void)strcpy(top, "/tmp/pv-root-XXXXXX");
        if (!mkdtemp(top))
                return -1;
        for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
                if (mkdir(at(dirs[i]), 0755) < 0)
                        return -1;
        return mknod(at("other/file"), S_IFREG | 0644, 0) < 0 || mkfifo(at("other/fifo"), 0600) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_strv_fini(&kept);
        return pv_path_remove_tree(AT_FDCWD, top, &err);
}

/* A --safe plan over home/src/p, as admission would make it. */
struct fixture {
        struct pv_plan plan;
        struct pv_root root;
        struct pv_mount mount;
        struct pv_view view;
        struct pv_err err;
};

static void fill(struct fixture *f)
{
        *f = (struct fixture){ .err = PV_ERR_INIT };
        f->root.target = f->root.view = f->plan.workspace = f->plan.cwd = at("home/src/p");
        f->plan.filesystem = PV_FS_SANDBOX;
        f->plan.net = PV_NET_DENY_ALL;
        f->plan.home_mode = PV_HOME_COW;
        f->plan.home = at("home");
        f->plan.roots = &f->root;
        f->plan.n_roots = 1;
        f->plan.mounts = &f->mount;
        pv_strv_add(&f->plan.masks, ".ssh");
        pv_strv_add(&f->plan.masks, ".config/gh");
        pv_strv_add(&f->plan.hidden, at("store"));
        pv_strv_add(&f->plan.env, "PATH=/usr/bin:/bin");
}

static int build(struct fixture *f, const char *mount_table)
{
        pv_auto_mountinfo mounts = { 0 };
        assert_int_equal(pv_mountinfo_parse(pv_strdup(mount_table), &mounts, &f->err), 0);
        return pv_root_view(&f->plan, &mounts, NULL, &f->view, &f->err);
}

#define ROOT_MOUNT "1 0 8:1 / / rw - ext4 /dev/vda rw\n"

static const struct pv_view_step *step_at(const struct fixture *f, const char *path)
{
        for (size_t i = f->view.n; i-- > 0;)
                if (pv_streq(f->view.v[i].dst, path))
                        return &f->view.v[i];
        return NULL;
}

static size_t index_of(const struct fixture *f, const char *path)
{
        const struct pv_view_step *s = step_at(f, path);
        assert_non_null(s);
        return (size_t)(s - f->view.v);
}

static void done(struct fixture *f)
{
        pv_view_fini(&f->view);
        pv_strv_fini(&f->plan.masks);
        pv_strv_fini(&f->plan.hidden);
        pv_strv_fini(&f->plan.devices);
        pv_strv_fini(&f->plan.env);
}

static void system_directories_are_read_only_and_private_ones_are_not(void **state)
{
        struct fixture f;
        fill(&f);
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_int_equal(f.view.base, PV_VIEW_NEW_ROOT);
        assert_int_equal(step_at(&f, "/usr")->op, PV_VIEW_SYSTEM);
        assert_int_equal(step_at(&f, "/etc")->op, PV_VIEW_READ);
        assert_true(pv_strv_has(&step_at(&f, "/etc")->masks, "shadow"));
        assert_int_equal(step_at(&f, "/tmp")->op, PV_VIEW_PRIVATE);
        assert_int_equal(step_at(&f, "/tmp")->mode, 01777);
        assert_int_equal(step_at(&f, "/proc")->op, PV_VIEW_PROC);
        assert_null(step_at(&f, "/sys"));
        done(&f);
}

static void parents_come_before_what_lies_in_them(void **state)
{
        struct fixture f;
        fill(&f);
        f.mount = (struct pv_mount){ .src = at("other"), .dst = at("home/src/p/vendor"), .access = PV_MOUNT_READ };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_true(index_of(&f, f.plan.home) < index_of(&f, f.root.view));
        assert_true(index_of(&f, f.root.view) < index_of(&f, f.mount.dst));
        done(&f);
}

static void secrets_are_hidden_in_every_tree_that_holds_them(void **state)
{
        struct fixture f;
        fill(&f);
        f.mount = (struct pv_mount){ .src = top, .dst = at("all"), .access = PV_MOUNT_READ };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        const struct pv_view_step *home = step_at(&f, f.plan.home), *all = step_at(&f, f.mount.dst);
        assert_int_equal(home->op, PV_VIEW_COW);
        assert_true(pv_strv_has(&home->masks, ".ssh"));
        assert_true(pv_strv_has(&home->masks, ".config/gh"));
        assert_true(pv_strv_has(&all->masks, "home/.ssh"));
        assert_true(pv_strv_has(&all->masks, "store"));
        assert_true(pv_strv_has(&f.view.absent, at("home/.ssh")));
        done(&f);
}

static void a_secret_that_is_mounted_is_granted(void **state)
{
        struct fixture f;
        fill(&f);
        f.mount = (struct pv_mount){ .src = at("home/.ssh"), .dst = at("home/.ssh"), .access = PV_MOUNT_READ };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_int_equal(step_at(&f, f.mount.dst)->op, PV_VIEW_READ);
        assert_false(pv_strv_has(&f.view.absent, at("home/.ssh")));
        assert_true(pv_strv_has(&f.view.absent, at("home/.config/gh")));
        done(&f);
}

static void a_workspace_that_holds_home_is_its_own_view_of_it(void **state)
{
        struct fixture f;
        fill(&f);
        f.root.target = f.root.view = f.plan.workspace = top;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_null(step_at(&f, f.plan.home));
        const struct pv_view_step *s = step_at(&f, top);
        assert_int_equal(s->op, PV_VIEW_STAGE);
        assert_true(pv_strv_has(&s->masks, "home/.ssh"));
        assert_true(pv_strv_has(&s->masks, "store"));
        done(&f);
}

static void a_write_mount_gets_masks_over_what_is_there(void **state)
{
        struct fixture f;
        fill(&f);
        f.mount = (struct pv_mount){ .src = top, .dst = "/all", .access = PV_MOUNT_WRITE };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_int_equal(step_at(&f, "/all")->op, PV_VIEW_WRITE);
        assert_int_equal(step_at(&f, "/all/store")->op, PV_VIEW_MASK);
        assert_int_equal(step_at(&f, "/all/home/.ssh")->op, PV_VIEW_MASK);
        done(&f);
}

static void mounts_below_are_shown_entry_by_entry(void **state)
{
        struct fixture f;
        pv_auto_free char *table = pv_strf(ROOT_MOUNT "2 1 0:5 / %s/other/deep rw - tmpfs t rw\n", top);
        fill(&f);
        f.mount = (struct pv_mount){ .src = at("other"), .dst = "/share", .access = PV_MOUNT_READ };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, table), 0);
        assert_int_equal(step_at(&f, "/share/deep")->op, PV_VIEW_READ);
        assert_int_equal(step_at(&f, "/share/file")->op, PV_VIEW_FILE);
        assert_null(step_at(&f, "/share/fifo"));
        assert_int_equal(step_at(&f, "/share")->op, PV_VIEW_SEAL);
        done(&f);
}

static void path_shows_its_directories_but_not_home(void **state)
{
        struct fixture f;
        fill(&f);
        f.plan.home_mode = PV_HOME_EMPTY;
        pv_strv_fini(&f.plan.env);
        pv_strv_take(&f.plan.env,
                     pv_strf("PATH=/usr/bin:%s/home/bin::.:%s/home:%s:/:relative:%s/home/src/p", top, top, top, top));
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_int_equal(step_at(&f, at("home/bin"))->op, PV_VIEW_READ);
        assert_int_equal(step_at(&f, f.plan.home)->op, PV_VIEW_PRIVATE);
        assert_int_equal(step_at(&f, f.root.view)->op, PV_VIEW_STAGE);
        assert_null(step_at(&f, top));
        assert_null(step_at(&f, "/"));
        done(&f);
}

static void what_cannot_be_shown_is_refused(void **state)
{
        struct fixture f;
        fill(&f);
        f.mount = (struct pv_mount){ .src = at("other/fifo"), .dst = "/x", .access = PV_MOUNT_READ };
        f.plan.n_mounts = 1;
        assert_int_equal(build(&f, ROOT_MOUNT), -1);
        assert_int_equal(f.err.kind, PV_ERR_USAGE);
        done(&f);
        fill(&f);
        pv_strv_add(&f.plan.devices, at("other/file"));
        assert_int_equal(build(&f, ROOT_MOUNT), -1);
        assert_int_equal(f.err.kind, PV_ERR_USAGE);
        done(&f);
}

static void the_host_view_is_the_host_with_the_stage_over_it(void **state)
{
        struct fixture f;
        fill(&f);
        f.plan.filesystem = PV_FS_HOST;
        f.plan.home_mode = PV_HOME_HOST;
        assert_int_equal(build(&f, ROOT_MOUNT), 0);
        assert_int_equal(f.view.base, PV_VIEW_HOST);
        assert_int_equal(f.view.n, 3);
        assert_int_equal(step_at(&f, f.root.view)->op, PV_VIEW_STAGE);
        assert_int_equal(step_at(&f, at("store"))->op, PV_VIEW_MASK);
        assert_int_equal(step_at(&f, "/proc")->op, PV_VIEW_PROC);
        done(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(system_directories_are_read_only_and_private_ones_are_not),
                cmocka_unit_test(parents_come_before_what_lies_in_them),
                cmocka_unit_test(secrets_are_hidden_in_every_tree_that_holds_them),
                cmocka_unit_test(a_secret_that_is_mounted_is_granted),
                cmocka_unit_test(a_workspace_that_holds_home_is_its_own_view_of_it),
                cmocka_unit_test(a_write_mount_gets_masks_over_what_is_there),
                cmocka_unit_test(mounts_below_are_shown_entry_by_entry),
                cmocka_unit_test(path_shows_its_directories_but_not_home),
                cmocka_unit_test(what_cannot_be_shown_is_refused),
                cmocka_unit_test(the_host_view_is_the_host_with_the_stage_over_it),
        };
        return cmocka_run_group_tests(tests, setup, teardown);
}
