/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What overlayfs cannot serve goes to FUSE, or is refused before the run, with the reason; and its twin that is
 * served.
 */
#include "base/test.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "stage/fixture.h"

static struct pv_err err;

static const struct pv_overlay *overlay;

static int begin_with(struct fixture *f, enum pv_stage_backend backend)
{
        size_t n = 0;
        pv_err_clear(&err);
        pv_stage_set_backend(f->stage, backend);
        return pv_stage_begin_run(f->stage, &overlay, &n, &err);
}

/* By the kernel or not at all. */
static int begin(struct fixture *f)
{
        return begin_with(f, PV_STAGE_BACKEND_KERNEL);
}

/* Left to itself it takes FUSE and says why in the same words. */
static bool goes_to_fuse(struct fixture *f)
{
        pv_auto_free char *why = pv_strdup(err.msg);
        return begin_with(f, PV_STAGE_BACKEND_AUTO) == 0 && overlay->by_fuse && pv_streq(overlay->by_fuse, why);
}

/* In a mount namespace of its own: mounts what the case needs; 0 when begin_run says what it should. */
static int in_mount_namespace(int (*check)(struct fixture *f), struct fixture *f)
{
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        _exit(77);
                _exit(check(f));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WEXITSTATUS(status);
}

/* What was opened before shows the mounts of before. */
static int stage_anew(struct fixture *f, const char *dir)
{
        struct pv_root root = { .target = f->target, .view = f->target };
        pv_auto_free char *path = pv_path_join(f->dir, dir);
        pv_stage_close(pv_steal(&f->stage));
        return pv_stage_create(path, &root, 1, &f->stage, &err);
}

static int says(int result, enum pv_err_kind kind, const char *word)
{
        return result < 0 && err.kind == kind && strstr(err.msg, word) ? 0 : 1;
}

static int with_submount(struct fixture *f)
{
        pv_auto_free char *below = pv_path_join(f->target, "below here");
        if (mount("tmpfs", below, "tmpfs", 0, NULL) < 0 || stage_anew(f, "other-stage") < 0)
                return 2;
        return says(begin(f), PV_ERR_UNSUPPORTED, "below here") || !strstr(err.hint, "--workspace") || !goes_to_fuse(f);
}

static int with_mounts_beside_and_above(struct fixture *f)
{
        pv_auto_free char *beside = pv_path_join(f->target_dir, "target-beside");
        if (mkdir(beside, 0755) < 0 || mount("tmpfs", beside, "tmpfs", 0, NULL) < 0 || stage_anew(f, "other-stage") < 0)
                return 2;
        return begin(f) < 0;
}

/* A mount that another one hides is in nobody's way. */
static int with_hidden_submount(struct fixture *f)
{
        pv_auto_free char *below = pv_path_join(f->target, "below here");
        if (mount("tmpfs", below, "tmpfs", 0, NULL) < 0 || mount(f->dir, f->target, NULL, MS_BIND, NULL) < 0)
                return 2;
        pv_auto_free char *dir = pv_path_join(f->target_dir, "other-stage");
        struct pv_root root = { .target = f->target, .view = f->target };
        pv_stage_close(pv_steal(&f->stage));
        if (pv_stage_create(dir, &root, 1, &f->stage, &err) < 0) /* f->dir is the target now */
                return 3;
        return begin(f) < 0;
}

static int with_read_only_target(struct fixture *f)
{
        if (mount(f->target, f->target, NULL, MS_BIND, NULL) < 0 ||
            mount(NULL, f->target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
                return 2;
        if (stage_anew(f, "other-stage") < 0)
                return 3;
        return says(begin(f), PV_ERR_SYS, f->target) || err.sys != EROFS;
}

/* A stage on an overlay, as inside a container. */
static int with_stage_on_overlay(struct fixture *f)
{
        pv_auto_free char *options =
                pv_strf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", f->target, f->dir, f->dir);
        pv_auto_free char *upper = pv_path_join(f->dir, "upper"), *work = pv_path_join(f->dir, "work"),
                          *at = pv_path_join(f->dir, "at");
        if (mkdir(upper, 0755) < 0 || mkdir(work, 0755) < 0 || mkdir(at, 0755) < 0 ||
            mount("overlay", at, "overlay", 0, options) < 0)
                return 2;
        if (stage_anew(f, "at/stage") < 0)
                return 3;
        return says(begin(f), PV_ERR_UNSUPPORTED, "overlayfs") || !strstr(err.hint, "--stage DIR") || !goes_to_fuse(f);
}

static void check_mounted(int (*check)(struct fixture *f))
{
        struct fixture *f = fixture_make("mkdir 'below here'");
        int r = geteuid() == 0 ? in_mount_namespace(check, f) : 77;
        fixture_free(f);
        if (r == 77)
                skip(); /* only root mounts outside of user namespaces */
        assert_int_equal(r, 0);
}

static void test_fuse_is_taken_where_it_is_asked_for_alone(void **state)
{
        struct fixture *f = fixture_make("true");
        assert_int_equal(begin_with(f, PV_STAGE_BACKEND_AUTO), 0);
        assert_null(overlay->by_fuse);
        assert_int_equal(begin_with(f, PV_STAGE_BACKEND_FUSE), 0);
        assert_non_null(overlay->by_fuse);
        fixture_free(f);
}

static void test_a_mount_below_the_target_is_refused(void **state)
{
        check_mounted(with_submount);
}

static void test_a_mount_beside_the_target_is_none_below(void **state)
{
        check_mounted(with_mounts_beside_and_above);
}

static void test_a_hidden_mount_is_none(void **state)
{
        check_mounted(with_hidden_submount);
}

static void test_a_read_only_target_is_refused(void **state)
{
        check_mounted(with_read_only_target);
}

static void test_a_stage_on_an_overlay_is_refused(void **state)
{
        check_mounted(with_stage_on_overlay);
}

static int as_user(struct fixture *f, uid_t uid, gid_t gid)
{
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
                _exit(setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0 ? 77 : begin(f) < 0 ? err.kind : 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WEXITSTATUS(status);
}

static void test_a_directory_of_other_ids_is_refused_to_an_ordinary_user(void **state)
{
        if (geteuid() != 0)
                skip(); /* only root becomes several users */
        static const struct {
                uid_t uid;
                gid_t gid;
                int kind;
        } cases[] = { { 1234, 1235, 0 }, { 1234, 1236, PV_ERR_UNSUPPORTED }, { 1237, 1235, PV_ERR_UNSUPPORTED } };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct fixture *f = fixture_make("chown 1234:1235 .; chmod 775 ..");
                pv_auto_free char *script = pv_strf("chown -R 1234:1235 %s; chmod 755 %s", f->stage_dir, f->dir);
                fixture_host(f, script);
                assert_int_equal(as_user(f, cases[i].uid, cases[i].gid), cases[i].kind);
                fixture_free(f);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fuse_is_taken_where_it_is_asked_for_alone),
                cmocka_unit_test(test_a_mount_below_the_target_is_refused),
                cmocka_unit_test(test_a_mount_beside_the_target_is_none_below),
                cmocka_unit_test(test_a_hidden_mount_is_none),
                cmocka_unit_test(test_a_read_only_target_is_refused),
                cmocka_unit_test(test_a_stage_on_an_overlay_is_refused),
                cmocka_unit_test(test_a_directory_of_other_ids_is_refused_to_an_ordinary_user),
        };
        return fixture_main("overlay", tests, sizeof tests / sizeof *tests);
}
