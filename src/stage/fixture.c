/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include "base/file.h"
#include "base/path.h"

static void must(int r, const struct pv_err *err)
{
        if (r < 0)
                fail_msg("%s", err->msg);
}

static const struct fixture_place places[] = { { "/var/tmp", "/var/tmp" },
                                               { "/dev/shm", "/dev/shm" },
                                               { "/dev/shm", "/var/tmp" } };

static bool has_xattrs(const char *dir)
{
        return getxattr(dir, "user.overlay.opaque", NULL, 0) >= 0 || errno == ENODATA;
}

const struct fixture_place *fixture_next_place(const struct fixture_place *last)
{
        const struct fixture_place *p = last ? last + 1 : places;
        while (p < places + sizeof places / sizeof *places && !(has_xattrs(p->target) && has_xattrs(p->stage)))
                p++;
        return p < places + sizeof places / sizeof *places ? p : NULL;
}

static char *make_dir(const char *base)
{
        struct pv_err err = PV_ERR_INIT;
        char *real = NULL;
        pv_auto_free char *dir = pv_strf("%s/pv-stage-XXXXXX", base);
        assert_non_null(mkdtemp(dir));
        must(pv_path_real(dir, &real, &err), &err);
        return real;
}

struct fixture *fixture_make_at(const struct fixture_place *place, const char *script)
{
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = pv_calloc(1, sizeof *f);
        f->dir = make_dir(place->stage);
        f->target_dir = make_dir(place->target);
        f->target = pv_path_join(f->target_dir, "target");
        f->stage_dir = pv_path_join(f->dir, "stage");
        must(pv_path_make_dirs(f->target, 0755, &err), &err);
        fixture_host(f, script);
        struct pv_root root = { .kind = PV_ROOT_WORKSPACE, .target = f->target, .view = f->target };
        must(pv_stage_create(f->stage_dir, &root, 1, &f->stage, &err), &err);
        return f;
}

struct fixture *fixture_make(const char *script)
{
        return fixture_make_at(&places[0], script);
}

void fixture_free(struct fixture *f)
{
        struct pv_err err = PV_ERR_INIT;
        if (f->stage)
                pv_stage_close(f->stage);
        must(pv_path_remove_tree(AT_FDCWD, f->dir, &err), &err);
        must(pv_path_remove_tree(AT_FDCWD, f->target_dir, &err), &err);
        free(f->dir);
        free(f->target_dir);
        free(f->target);
        free(f->stage_dir);
        free(f);
}

static int shell(const char *dir, const char *script)
{
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (chdir(dir) == 0)
                        (void)execlp("sh", "sh", "-euc", script, NULL);
                _exit(127);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

void fixture_host(struct fixture *f, const char *script)
{
        if (shell(f->target, script) != 0)
                fail_msg("on the host: %s", script);
}

/* The child: waits for its ids, mounts, runs. */
static int mount_and_run(const struct pv_overlay *o, const char *script, int ids_written)
{
        char c;
        pv_auto_str lower = { 0 };
        if (read(ids_written, &c, 1) != 1)
                return 101;
        for (size_t i = 0; i < o->n_frozen; i++)
                pv_str_putf(&lower, "%s:", o->frozen[i]);
        pv_str_put(&lower, o->root->target);
        pv_auto_free char *options =
                pv_strf("userxattr,volatile,xino=on,lowerdir=%s,upperdir=%s,workdir=%s", lower.s, o->upper, o->work);
        if (mount("overlay", o->root->view, "overlay", 0, options) < 0)
                return 102;
        int status = shell(o->root->view, script);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 103;
}

static bool put(const char *file, const char *text)
{
        pv_auto_fd fd = open(file, O_WRONLY | O_CLOEXEC);
        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool write_ids(pid_t pid)
{
        pv_auto_free char *uids = pv_strf("/proc/%d/uid_map", (int)pid), *gids = pv_strf("/proc/%d/gid_map", (int)pid),
                          *groups = pv_strf("/proc/%d/setgroups", (int)pid);
        pv_auto_free char *uid = pv_strf("%u %u 1\n", geteuid(), geteuid()),
                          *gid = pv_strf("%u %u 1\n", getegid(), getegid());
        if (geteuid() == 0)
                return put(uids, "0 0 4294967295\n") && put(gids, "0 0 4294967295\n");
        return put(groups, "deny") && put(uids, uid) && put(gids, gid);
}

struct running {
        pid_t pid;
        int done; /* write: the view may go */
        int over; /* read: the script's exit status */
};

static struct running start(const struct pv_overlay *o, const char *script)
{
        int unshared[2], ids[2], done[2], over[2];
        assert_int_equal(pipe2(unshared, O_CLOEXEC) | pipe2(ids, O_CLOEXEC) | pipe2(done, O_CLOEXEC) |
                                 pipe2(over, O_CLOEXEC),
                         0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                char c = 0;
                if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || write(unshared[1], &c, 1) != 1)
                        _exit(1);
                (void)close(ids[1]);
                (void)close(done[1]);
                c = (char)mount_and_run(o, script, ids[0]);
                _exit(write(over[1], &c, 1) == 1 && read(done[0], &c, 1) == 0 ? 0 : 1);
        }
        char c = 0;
        (void)close(unshared[1]);
        (void)close(ids[0]);
        (void)close(done[0]);
        (void)close(over[1]);
        assert_int_equal(read(unshared[0], &c, 1), 1);
        assert_true(write_ids(pid));
        assert_int_equal(write(ids[1], "x", 1), 1);
        (void)close(unshared[0]);
        (void)close(ids[1]);
        return (struct running){ .pid = pid, .done = done[1], .over = over[0] };
}

static int wait_for_script(const struct running *r)
{
        char c = 104;
        if (read(r->over, &c, 1) != 1)
                return 105;
        return c;
}

static void end(struct running *r)
{
        (void)close(r->done);
        (void)close(r->over);
        assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
}

static struct running run(struct fixture *f, const char *script)
{
        struct pv_err err = PV_ERR_INIT;
        const struct pv_overlay *o = NULL;
        size_t n = 0;
        must(pv_stage_begin_run(f->stage, &o, &n, &err), &err);
        assert_int_equal(n, 1);
        struct running r = start(o, script);
        int code = wait_for_script(&r);
        if (code != 0)
                fail_msg("in the view, %d: %s", code, script);
        return r;
}

void fixture_in_overlay(const struct pv_overlay *o, const char *script)
{
        struct running r = start(o, script);
        int code = wait_for_script(&r);
        end(&r);
        if (code != 0)
                fail_msg("in the overlay, %d: %s", code, script);
}

void fixture_run(struct fixture *f, const char *script)
{
        struct running r = run(f, script);
        end(&r);
}

void fixture_run_and_seal(struct fixture *f, const char *script, const char *host_script)
{
        struct pv_err err = PV_ERR_INIT;
        struct running r = run(f, script);
        if (host_script)
                fixture_host(f, host_script);
        pv_auto_free char *path = pv_strf("/proc/%d/root%s", (int)r.pid, f->target);
        struct pv_pathfd view = { open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) };
        assert_true(view.fd >= 0);
        must(pv_stage_seal(f->stage, &view, &err), &err);
        pv_pathfd_closep(&view);
        end(&r);
}

char *fixture_look(struct fixture *f, const char *script)
{
        struct pv_err err = PV_ERR_INIT;
        const struct pv_overlay *o = NULL;
        size_t n = 0, len = 0;
        char *out = NULL;
        pv_auto_free char *away = pv_path_join(f->dir, "away"), *file = pv_path_join(f->dir, "away/out");
        must(pv_path_make_dirs(away, 0700, &err), &err);
        must(pv_stage_view_overlays(f->stage, away, &o, &n, &err), &err);
        pv_auto_free char *to_file = pv_strf("{ %s\n} >%s", script, file);
        struct running r = start(o, to_file);
        assert_int_equal(wait_for_script(&r), 0);
        end(&r);
        must(pv_file_read_at(AT_FDCWD, file, (size_t)1 << 20, &out, &len, &err), &err);
        must(pv_path_remove_tree(AT_FDCWD, away, &err), &err);
        return out;
}

static bool can_mount(void)
{
        pid_t pid = fork();
        if (pid == 0)
                _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
        int status = 1;
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int fixture_main(const char *group, const struct CMUnitTest *tests, size_t n)
{
        if (can_mount())
                return _cmocka_run_group_tests(group, tests, n, NULL, NULL);
        (void)fprintf(stderr, "%s: no user namespaces here\n", group);
        return getenv("PV_MUST_WORK") ? 1 : 77;
}

static void put_flags(struct pv_str *b, unsigned flags)
{
        static const struct {
                unsigned flag;
                const char *name;
        } names[] = {
                { PV_CHANGE_OPAQUE, "opaque" }, { PV_CHANGE_IMPLIED, "implied" }, { PV_CHANGE_SUSPECT, "suspect" },
                { PV_CHANGE_SPLIT, "split" },   { PV_CHANGE_FILLED, "filled" },   { PV_CHANGE_XATTRS, "xattrs" },
                { PV_CHANGE_MODE, "mode" },     { PV_CHANGE_OWNER, "owner" },     { PV_CHANGE_TIMES, "times" },
                { PV_CHANGE_LINKED, "linked" }, { PV_CHANGE_HIDDEN, "hidden" },   { PV_CHANGE_BLOCKED, "blocked" },
        };
        const char *separator = " [";
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (flags & names[i].flag) {
                        pv_str_putf(b, "%s%s", separator, names[i].name);
                        separator = " ";
                }
        if (flags)
                pv_str_putc(b, ']');
}

/* Groups are numbered by inode, which differs from run to run: here by their first path. */
static size_t group_in_order(const struct pv_changes *c, size_t of)
{
        size_t number = 0;
        for (size_t i = 0; i <= of; i++) {
                bool seen = c->item[i].link_group == 0;
                for (size_t k = 0; k < i && !seen; k++)
                        seen = c->item[k].link_group == c->item[i].link_group;
                number += !seen;
                if (c->item[i].link_group == c->item[of].link_group)
                        return number;
        }
        return number;
}

char *fixture_changes(struct fixture *f)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        pv_auto_str b = { 0 };
        must(pv_changes_compute(f->stage, &c, &err), &err);
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_change *x = &c->item[i];
                pv_str_putf(&b, "%c %s", "AMDTm"[x->kind], *x -> path ? x -> path : ".");
                put_flags(&b, x->flags);
                if (x->renamed_from)
                        pv_str_putf(&b, " <- %s", x->renamed_from);
                if (x->link_group)
                        pv_str_putf(&b, " =%zu", group_in_order(c, i));
                pv_str_putc(&b, '\n');
        }
        return pv_str_steal(&b);
}
