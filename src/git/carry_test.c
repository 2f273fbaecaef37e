/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/path.h"
#include "base/test.h"
#include "git/carry.h"
#include "git/carry_names.h"
#include "git/test_runner.h"

/* --- names --- */

static void test_names_that_are_taken(void **state)
{
        static const char *const sane[] = { "refs/heads/main", "refs/heads/a/b/c", "refs/tags/v1.2-rc_3+x",
                                            "refs/heads/x@y", "refs/heads/uml\xc3\xa4ut" };
        for (size_t i = 0; i < sizeof sane / sizeof *sane; i++)
                assert_true(pv_carry_is_sane(sane[i]));
}

static void test_names_that_are_left(void **state)
{
        static const char *const odd[] = {
                "HEAD",
                "refs/stash",
                "refs/notes/x",
                "refs/heads/",
                "refs/heads//x",
                "refs/heads/x/",
                "refs/heads/-x",
                "refs/heads/a/-x",
                "refs/heads/.x",
                "refs/heads/x.",
                "refs/heads/x..y",
                "refs/heads/x.lock",
                "refs/heads/x.LOCK/y",
                "refs/heads/x@{1}",
                "refs/heads/@",
                "refs/heads/HEAD",
                "refs/heads/head",
                "refs/heads/refs/heads/x",
                "refs/heads/0123456789012345678901234567890123456789",
                "refs/heads/a b",
                "refs/heads/a\nb",
                "refs/heads/a\x7f",
                "refs/heads/a~1",
                "refs/heads/a^",
                "refs/heads/a:b",
                "refs/heads/a?",
                "refs/heads/a*",
                "refs/heads/a[",
                "refs/heads/a\\b",
                "refs/heads/$(x)",
                "refs/heads/`x`",
                "refs/heads/a;b",
                "refs/heads/a|b",
                "refs/heads/a&b",
                "refs/heads/a'b",
                "refs/heads/a\"b",
                "refs/heads/\xe2\x80\xae"
                "evil",
                "refs/heads/\xff",
                "refs/heads/\xc2\x9b"
                "31m",
        };
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
                assert_false(pv_carry_is_sane(odd[i]));
}

static void test_a_directory_where_a_file_is_clashes(void **state)
{
        struct pv_tip tip[] = { { "", "refs/heads/a/b" }, { "", "refs/heads/main" } };
        struct pv_carry_ref ref = { .name = (char[]){ "x" }, .dest = (char[]){ "refs/heads/new" } };
        const struct pv_carry c = { .host_tips = { tip, 2 }, .ref = &ref, .n_refs = 1 };
        assert_true(pv_carry_clashes(&c, "refs/heads/a"));
        assert_true(pv_carry_clashes(&c, "refs/heads/main/x"));
        assert_true(pv_carry_clashes(&c, "refs/heads/new/x"));
        assert_false(pv_carry_clashes(&c, "refs/heads/a/c"));
        assert_false(pv_carry_clashes(&c, "refs/heads/mainx"));
}

/* --- a repository to work on --- */

struct fixture {
        char *dir;
        int fd;
};

static int setup(void **state)
{
        struct fixture *f = pv_calloc(1, sizeof *f);
        f->dir = pv_test_dir_new();
        pv_test_sh(f->dir, "git init -q repo && cd repo && echo a > a && git add a && git commit -qm First && "
                           "git branch side && git tag v1 && mkdir ../stage ../fork");
        pv_auto_free char *stage = pv_path_join(f->dir, "stage");
        f->fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *state = f;
        return f->fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        (void)close(f->fd);
        pv_test_dir_remove(f->dir);
        free(f);
        return 0;
}

static char *repo_of(const struct fixture *f)
{
        return pv_path_join(f->dir, "repo");
}

/* The first line that a command prints. */
static char *said(const struct fixture *f, const char *command)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *text = NULL;
        size_t len;
        pv_auto_free char *script = pv_strf("cd repo && (%s) > ../said", command);
        pv_test_sh(f->dir, script);
        pv_auto_fd dir = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(pv_file_read_at(dir, "said", 65536, &text, &len, &err), 0);
        text[strcspn(text, "\n")] = '\0';
        return pv_steal(&text);
}

/* --- what the host had --- */

static const char *noted(struct pv_git_start *s, const char *name)
{
        const char *id = pv_tips_find(&s->tips, name);
        return id ? id : "";
}

static void test_loose_and_packed_references_are_noted(void **state)
{
        struct fixture *f = *state;
        pv_auto_free char *repo = repo_of(f);
        pv_auto_free char *first = said(f, "git rev-parse main");
        pv_test_sh(f->dir, "cd repo && git pack-refs --all && git commit -q --allow-empty -m Second");
        pv_auto_free char *second = said(f, "git rev-parse main");
        pv_auto_git_start s = { 0 };
        pv_git_start_note(f->fd, repo, NULL);
        pv_git_start_read(f->fd, &s);
        assert_true(s.known);
        assert_string_equal(noted(&s, "refs/heads/main"), second); /* loose before packed */
        assert_string_equal(noted(&s, "refs/heads/side"), first);
        assert_string_equal(noted(&s, "refs/tags/v1"), first);
        assert_null(pv_tips_find(&s.tips, "HEAD"));
}

static void test_they_are_noted_once_and_renewed(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *repo = repo_of(f);
        pv_auto_free char *first = said(f, "git rev-parse main");
        pv_git_start_note(f->fd, repo, NULL);
        pv_test_sh(f->dir, "cd repo && git commit -q --allow-empty -m Second && git checkout -q --detach");
        pv_git_start_note(f->fd, repo, NULL);
        const struct pv_git_seen seen[] = { { "refs/heads/side", "" }, { "refs/heads/new", first } };
        assert_int_equal(pv_git_start_renew(f->fd, seen, 2, &err), 0);
        pv_auto_git_start s = { 0 };
        pv_git_start_read(f->fd, &s);
        assert_string_equal(noted(&s, "refs/heads/main"), first);
        assert_string_equal(noted(&s, "refs/heads/side"), "");
        assert_string_equal(noted(&s, "refs/heads/new"), first);
}

static void test_a_detached_head_is_noted(void **state)
{
        struct fixture *f = *state;
        pv_auto_free char *repo = repo_of(f);
        pv_test_sh(f->dir, "cd repo && git checkout -q --detach");
        pv_auto_free char *first = said(f, "git rev-parse HEAD");
        pv_auto_git_start s = { 0 };
        pv_git_start_note(f->fd, repo, NULL);
        pv_git_start_read(f->fd, &s);
        assert_string_equal(noted(&s, "HEAD"), first);
}

static void test_what_cannot_be_known_whole_is_not_known(void **state)
{
        struct fixture *f = *state;
        pv_auto_free char *repo = repo_of(f);
        pv_test_sh(f->dir, "cd repo && ln -s main .git/refs/heads/link");
        pv_auto_git_start s = { 0 };
        pv_git_start_note(f->fd, repo, NULL);
        pv_git_start_read(f->fd, &s);
        assert_false(s.known);
}

static void test_a_fork_inherits(void **state)
{
        struct fixture *f = *state;
        pv_auto_free char *repo = repo_of(f);
        pv_auto_free char *path = pv_path_join(f->dir, "fork");
        pv_auto_fd fork_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_git_start s = { 0 };
        pv_git_start_note(f->fd, repo, NULL);
        pv_git_start_inherit(fork_fd, f->fd);
        pv_git_start_read(fork_fd, &s);
        assert_true(s.known);
        assert_non_null(pv_tips_find(&s.tips, "refs/heads/main"));
}

/* --- moving references --- */

static void carry_open(const struct fixture *f, struct pv_carry *c)
{
        struct pv_err err = PV_ERR_INIT;
        *c = (struct pv_carry){ .path = pv_strdup(""),
                                .worktree = repo_of(f),
                                .view = repo_of(f),
                                .quarantine = pv_strdup("pvisor-import-1") };
        assert_int_equal(pv_git_host_open(c->worktree, &c->host, &err), 0);
}

static struct pv_carry_ref *carry_ref(struct pv_carry *c, const char *name, const char *old_id, const char *new_id)
{
        c->ref = pv_realloc(c->ref, c->n_refs + 1, sizeof *c->ref);
        struct pv_carry_ref *r = &c->ref[c->n_refs++];
        *r = (struct pv_carry_ref){ .name = pv_strdup(name), .dest = pv_strdup(name) };
        (void)snprintf(r->old_id, sizeof r->old_id, "%s", old_id);
        (void)snprintf(r->new_id, sizeof r->new_id, "%s", new_id);
        return r;
}

static void never(void *ctx, const struct pv_carry *c, const char *path, const char *why)
{
        fail_msg("%s %s", path, why);
}

static void test_references_move_from_what_was_seen(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        pv_auto_free char *first = said(f, "git rev-parse main");
        pv_auto_free char *next = said(f, "git commit-tree -m Next -p main main^{tree}");
        carry_open(f, &c);
        (void)carry_ref(&c, "refs/heads/side", first, next);
        (void)carry_ref(&c, "refs/heads/new", "", next);
        assert_int_equal(pv_carry_move_refs(&c, "run-1", &err), 0);
        pv_auto_free char *side = said(f, "git rev-parse side");
        pv_auto_free char *new = said(f, "git rev-parse new");
        assert_string_equal(side, next);
        assert_string_equal(new, next);
        assert_int_equal(pv_carry_move_refs(&c, "run-1", &err), 0); /* again, as after a crash */
        assert_int_equal(pv_carry_check_back(&c, never, NULL, &err), 0);
        assert_int_equal(pv_carry_move_back(&c, "run-1", &err), 0);
        pv_auto_free char *back = said(f, "git rev-parse side; ! git rev-parse -q --verify new");
        assert_string_equal(back, first);
}

static void test_what_the_host_moved_goes_aside(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        pv_auto_free char *first = said(f, "git rev-parse main");
        pv_auto_free char *next = said(f, "git commit-tree -m Next -p main main^{tree}");
        pv_auto_free char *mine = said(f, "git commit-tree -m Mine -p main main^{tree}");
        carry_open(f, &c);
        (void)carry_ref(&c, "refs/heads/side", first, next);
        (void)carry_ref(&c, "refs/heads/new", "", next);
        pv_auto_free char *move = pv_strf("cd repo && git update-ref refs/heads/side %s", mine);
        pv_test_sh(f->dir, move);
        assert_int_equal(pv_carry_move_refs(&c, "run-1", &err), 0);
        pv_auto_free char *side = said(f, "git rev-parse side");
        pv_auto_free char *aside = said(f, "git rev-parse pvisor/run-1");
        pv_auto_free char *new = said(f, "git rev-parse new");
        assert_string_equal(side, mine);
        assert_string_equal(aside, next);
        assert_string_equal(new, next);
        assert_true(c.ref[0].aside);
}

/* --- the pack --- */

/* A job whose git says that it packed. ctx: a file in the fixture's directory, so many times over. */
struct says {
        const struct fixture *f;
        const char *file;
        int times;
};

static int say_a_pack(void *ctx, char *const argv[], const void *in, size_t in_len, int out_fd, uint64_t max_out,
                      unsigned seconds, int *exit_code, struct pv_err *err)
{
        const struct says *s = ctx;
        pv_auto_free char *bytes = NULL;
        size_t len;
        pv_auto_fd dir = open(s->f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(pv_file_read_at(dir, s->file, 1 << 20, &bytes, &len, err), 0);
        *exit_code = 0;
        for (int i = 0; i < s->times; i++)
                if (pv_fd_write_all(out_fd, bytes, len, "pack", err) < 0)
                        return -1;
        return 0;
}

static void test_what_is_no_pack_is_refused_while_it_comes(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        struct says says = { f, "garbage", 1000 }; /* more than a pipe holds: nobody reads the rest */
        const struct pv_git_runner job = { .run_to = say_a_pack, .ctx = &says };
        pv_test_sh(f->dir, "head -c 100000 /dev/zero > garbage");
        carry_open(f, &c);
        assert_int_equal(pv_carry_import(&c, &job, &err), -1);
        assert_int_equal(err.kind, PV_ERR_POLICY);
        assert_non_null(strstr(err.msg, "git refuses their objects"));
        pv_carry_unpin(&c);
        pv_auto_free char *left = said(f, "ls .git/objects | grep -c pvisor || :");
        assert_string_equal(left, "0");
}

static void test_a_pack_of_nothing_is_not_kept(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        struct says says = { f, "empty", 1 };
        const struct pv_git_runner job = { .run_to = say_a_pack, .ctx = &says };
        pv_test_sh(f->dir, "git -C repo pack-objects --stdout -q < /dev/null > empty");
        carry_open(f, &c);
        assert_int_equal(pv_carry_import(&c, &job, &err), 0);
        assert_int_equal(pv_carry_is_whole(&c, &err), 0);
        assert_string_equal(c.pack, "");
        assert_int_equal(pv_carry_admit(&c, &err), 0);
        pv_carry_unpin(&c);
        pv_auto_free char *left = said(f, "ls .git/objects .git/objects/pack | grep -c pack- || :");
        assert_string_equal(left, "0");
}

/* --- the lock --- */

static void test_the_lock_is_of_one_job(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        carry_open(f, &c);
        assert_int_equal(pv_carry_lock(&c, "run-1", &err), 0);
        pv_auto_free char *refused = said(f, "echo b >> a; git add a 2>&1 | grep -q index.lock && echo refused");
        assert_string_equal(refused, "refused");
        assert_int_equal(pv_carry_lock(&c, "run-1", &err), 0);
        pv_carry_unlock(&c, "run-2");
        assert_int_equal(pv_carry_lock(&c, "run-2", &err), -1);
        assert_int_equal(err.kind, PV_ERR_BUSY);
        pv_carry_unlock(&c, "run-1");
        pv_auto_free char *free_again = said(f, "git add a && ls .git | grep -c pvisor || :");
        assert_string_equal(free_again, "0");
}

/* --- the record --- */

static json_t *a_record(const struct fixture *f)
{
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        pv_auto_free char *id = said(f, "git rev-parse main");
        carry_open(f, &c);
        struct pv_carry_ref *r = carry_ref(&c, "refs/heads/main", id, id);
        r->here = true;
        r->commits = 3;
        c.host_head = pv_strdup("refs/heads/main");
        c.changed = pv_calloc(1, sizeof *c.changed);
        c.n_changed = 1;
        c.changed[0] =
                (struct pv_carry_path){ .path = pv_strdup("odd\xffname"), .new_mode = "100644", .was_mode = "0" };
        (void)snprintf(c.changed[0].new_id, sizeof c.changed[0].new_id, "%s", id);
        return pv_carry_json(&c);
}

static void test_a_record_is_read_as_it_was_written(void **state)
{
        struct fixture *f = *state;
        struct pv_err err = PV_ERR_INIT;
        pv_auto_json j = a_record(f);
        pv_auto_free char *repo = repo_of(f);
        __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
        assert_int_equal(pv_carry_from_json(j, repo, &c, &err), 0);
        assert_int_equal(c.n_refs, 1);
        assert_string_equal(c.ref[0].dest, "refs/heads/main");
        assert_true(c.ref[0].here);
        assert_int_equal(c.n_changed, 1);
        assert_string_equal(c.changed[0].path, "odd\xffname");
        assert_string_equal(c.changed[0].new_mode, "100644");
        assert_string_equal(c.host_head, "refs/heads/main");
}

static void test_a_damaged_record_is_refused(void **state)
{
        struct fixture *f = *state;
        pv_auto_free char *repo = repo_of(f);
        static const struct {
                const char *from, *to;
        } damage[] = {
                { "\"refs/heads/main\", \"old\"", "\"refs/heads/main\\ndelete refs/heads/side\", \"old\"" },
                { "\"refs/heads/main\", \"old\"", "\"-d\", \"old\"" },
                { "pvisor-import-1", "../../x" },
                { "pvisor-import-1", "pvisor-import-/../x" },
                { "\"100644\"", "\"100644 \"" },
                { "\"100644\"", "\"\"" },
                { "\"pack\": \"\"", "\"pack\": \"../x\"" },
                { "\"refs\"", "\"nothing\"" },
                { "\"commits\": 3", "\"commits\": -1" },
        };
        for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_json whole = a_record(f);
                pv_auto_free char *text = json_dumps(whole, JSON_SORT_KEYS);
                pv_auto_str b = { 0 };
                if (strstr(damage[i].from, "old")) { /* in the order in which it is written */
                        free(text);
                        text = json_dumps(whole, 0);
                }
                const char *at = strstr(text, damage[i].from);
                assert_non_null(at);
                pv_str_put_bytes(&b, text, (size_t)(at - text));
                pv_str_put(&b, damage[i].to);
                pv_str_put(&b, at + strlen(damage[i].from));
                pv_auto_json j = json_loads(b.s, 0, NULL);
                __attribute__((cleanup(pv_carry_fini))) struct pv_carry c = { 0 };
                assert_non_null(j);
                assert_int_equal(pv_carry_from_json(j, repo, &c, &err), -1);
                assert_int_equal(err.kind, PV_ERR_INPUT);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names_that_are_taken),
                cmocka_unit_test(test_names_that_are_left),
                cmocka_unit_test(test_a_directory_where_a_file_is_clashes),
                cmocka_unit_test_setup_teardown(test_loose_and_packed_references_are_noted, setup, teardown),
                cmocka_unit_test_setup_teardown(test_they_are_noted_once_and_renewed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_detached_head_is_noted, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_cannot_be_known_whole_is_not_known, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_fork_inherits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_references_move_from_what_was_seen, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_the_host_moved_goes_aside, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_is_no_pack_is_refused_while_it_comes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_pack_of_nothing_is_not_kept, setup, teardown),
                cmocka_unit_test_setup_teardown(test_the_lock_is_of_one_job, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_record_is_read_as_it_was_written, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_damaged_record_is_refused, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
