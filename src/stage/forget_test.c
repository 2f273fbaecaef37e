/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a selection out of a stage leaves exactly the rest of the changes, and the host's files show again. */
#include "base/test.h"

#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "stage/fixture.h"

#define LIST "find . -mindepth 1 | sort | sed 's/^..//'"

struct taking {
        const char *name, *target, *script;
        const char *selected; /* paths, each with a newline; what is below them is selected as well */
        const char *applied;  /* what an apply of them does to the host; NULL: they are dropped */
        const char *left;     /* the changes that are left */
        const char *view;     /* what the view shows: find's paths, sorted */
};

static const struct taking takings[] = {
        { "drop an addition", "echo a >a", "echo b >b; echo c >c", "b\n", NULL, "A c\n", "a\nc\n" },
        { "drop a modification", "echo a >a; echo b >b", "echo x >>a; echo x >>b", "a\n", NULL, "M b\n", "a\nb\n" },
        { "drop a deletion", "echo a >a; mkdir d; echo b >d/b", "rm -r a d", "d\n", NULL, "D a\n", "d\nd/b\n" },
        { "drop a new tree", "", "mkdir -p d/e; echo x >d/e/x; echo y >y", "d\n", NULL, "A y\n", "y\n" },
        { "drop one of a directory made again", "mkdir d; echo a >d/a; echo b >d/b; echo c >d/c",
          "rm -r d; mkdir d; echo xx >d/a; echo n >d/n", "d/b\n", NULL, "M d/a\nD d/c\nA d/n\n", "d\nd/a\nd/b\nd/n\n" },
        { "drop what was written into a directory made again", "mkdir d; echo a >d/a; echo b >d/b",
          "rm -r d; mkdir d; echo xx >d/a", "d/a\n", NULL, "D d/b\n", "d\nd/a\n" },
        { "drop below a directory made again below", "mkdir -p d/e; echo a >d/e/a; echo b >d/e/b",
          "rm -r d; mkdir -p d/e; echo c >d/e/c", "d/e/a\n", NULL, "D d/e/b\nA d/e/c\n", "d\nd/e\nd/e/a\nd/e/c\n" },
        { "drop a mode", "mkdir d; echo a >d/a", "chmod 700 d; echo x >>d/a", "d\n", NULL, "", "d\nd/a\n" },
        { "drop a change of type", "echo a >a; mkdir d; echo b >d/b", "rm -r a d; mkdir a; echo x >a/x; echo d >d",
          "d\n", NULL, "T a\nA a/x\n", "a\na/x\nd\nd/b\n" },
        { "drop what nobody may read", "mkdir d; echo a >a", "mkdir -p n/m; echo x >n/m/x; chmod 0 n/m n; echo b >>a",
          "n\n", NULL, "M a\n", "a\nd\n" },
        { "apply part of a new tree", "", "mkdir -p d/e; echo a >d/a; echo b >d/e/b", "d/a\n+d\n",
          "mkdir d; echo a >d/a", "A d/e\nA d/e/b\n", "d\nd/a\nd/e\nd/e/b\n" },
        { "apply a modification", "echo a >a; echo b >b", "echo x >>a; echo x >>b", "a\n", "echo x >>a", "M b\n",
          "a\nb\n" },
        { "apply a deletion in a directory made again", "mkdir d; echo a >d/a; echo b >d/b",
          "rm -r d; mkdir d; echo n >d/n", "d/a\n", "rm d/a", "D d/b\nA d/n\n", "d\nd/n\n" },
        { "apply all", "mkdir d; echo a >d/a; echo b >d/b", "rm -r d; mkdir d; echo n >d/n; echo m >m", "d\nm\n",
          "rm -r d; mkdir d; echo n >d/n; echo m >m", "", "d\nd/n\nm\n" },
};

static bool is_selected(const char *list, const char *path)
{
        for (const char *p = list; *p; p += strcspn(p, "\n") + 1) {
                size_t n = strcspn(p, "\n");
                bool alone = *p == '+'; /* not what is below it */
                const char *name = p + alone;
                n -= alone;
                if (strncmp(path, name, n) == 0 && (path[n] == '\0' || (!alone && path[n] == '/')))
                        return true;
        }
        return false;
}

static void take_out(struct fixture *f, const char *list, const char *applied)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        pv_auto_free bool *selected = pv_calloc(c->n, sizeof *selected);
        for (size_t i = 0; i < c->n; i++)
                selected[i] = is_selected(list, c->item[i].path);
        if (applied)
                fixture_host(f, applied);
        enum pv_changes_fate fate = applied ? PV_CHANGES_APPLIED : PV_CHANGES_DROPPED;
        for (int again = 0; again < 2; again++) /* a recovery repeats it */
                if (pv_changes_forget(f->stage, c, selected, fate, &err) < 0)
                        fail_msg("%s", err.msg);
}

static void check_taking(const struct taking *t, const struct fixture_place *place)
{
        struct fixture *f = fixture_make_at(place, t->target);
        fixture_run_and_seal(f, t->script, NULL);
        take_out(f, t->selected, t->applied);
        pv_auto_free char *left = fixture_changes(f);
        if (!pv_streq(left, t->left))
                fail_msg("%s in %s, stage in %s: left\n%s", t->name, place->target, place->stage, left);
        pv_auto_free char *view = fixture_look(f, LIST);
        if (!pv_streq(view, t->view))
                fail_msg("%s in %s, stage in %s: the view has\n%s", t->name, place->target, place->stage, view);
        fixture_free(f);
}

static void test_the_rest_is_left(void **state)
{
        for (const struct fixture_place *p = NULL; (p = fixture_next_place(p));)
                for (size_t i = 0; i < sizeof takings / sizeof *takings; i++)
                        check_taking(&takings[i], p);
}

static const struct taking droppings_below_a_fork[] = {
        { "an addition", "", "echo a >a; mkdir -p d/e; echo b >d/e/b", "a\nd\n", NULL, "", "" },
        { "a modification", "mkdir d; echo a >d/a; setfattr -n user.x -v 1 d/a; touch -d 2001-01-01 d/a",
          "echo x >>d/a; echo b >b", "d/a\n", NULL, "A b\n", "b\nd\nd/a\n" },
        { "a deletion", "mkdir -p d/e; echo a >d/a; ln -s x d/e/l", "rm -r d; echo b >b", "d\n", NULL, "A b\n",
          "b\nd\nd/a\nd/e\nd/e/l\n" },
        { "one of a directory made again", "mkdir d; echo a >d/a; echo b >d/b", "rm -r d; mkdir d; echo n >d/n",
          "d/a\n", NULL, "D d/b [hidden]\nA d/n\n", "d\nd/a\nd/n\n" },
        { "a type", "echo a >a; mkdir d; echo b >d/b", "rm -r a d; mkdir a; echo x >a/x; echo d >d", "a\nd\n", NULL, "",
          "a\nd\nd/b\n" },
        { "a mode", "mkdir d; echo a >d/a", "chmod 700 d; echo b >d/b", "d\n+d\n", NULL, "", "d\nd/a\n" },
};

/* The fork's changes lie in its parent's layer, which stays as it is. */
static void check_fork(const struct taking *t)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_stage *child = NULL;
        struct fixture *f = fixture_make(t->target);
        pv_auto_free char *dir = pv_path_join(f->dir, "child");
        fixture_run_and_seal(f, t->script, NULL);
        pv_auto_free char *before = fixture_changes(f);
        assert_return_code(pv_stage_fork(f->stage, NULL, dir, &child, &err), 0);
        struct pv_stage *parent = f->stage;
        f->stage = child;
        take_out(f, t->selected, NULL);
        pv_auto_free char *left = fixture_changes(f), *view = fixture_look(f, LIST);
        if (!pv_streq(left, t->left) || !pv_streq(view, t->view))
                fail_msg("%s: left\n%sin the view\n%s", t->name, left, view);
        pv_stage_close(child);
        f->stage = parent;
        pv_auto_free char *after = fixture_changes(f);
        assert_string_equal(after, before);
        fixture_free(f);
}

static void test_a_fork_drops_what_its_parent_keeps(void **state)
{
        for (size_t i = 0; i < sizeof droppings_below_a_fork / sizeof *droppings_below_a_fork; i++)
                check_fork(&droppings_below_a_fork[i]);
}

static void test_a_path_changed_again_after_it_was_applied_has_a_new_preimage(void **state)
{
        struct fixture *f = fixture_make("echo a >a");
        const char *why = NULL;
        fixture_run_and_seal(f, "echo x >>a", NULL);
        take_out(f, "a\n", "echo x >>a");
        fixture_run_and_seal(f, "echo y >>a", NULL);
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        assert_int_equal(c->n, 1);
        assert_true(pv_change_check(f->stage, &c->item[0], &why));
        fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_rest_is_left),
                cmocka_unit_test(test_a_fork_drops_what_its_parent_keeps),
                cmocka_unit_test(test_a_path_changed_again_after_it_was_applied_has_a_new_preimage),
        };
        return fixture_main("forget", tests, sizeof tests / sizeof *tests);
}
