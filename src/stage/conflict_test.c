/* SPDX-License-Identifier: Apache-2.0 */
/* Which edits of the host, at which time, stand in the way of which changes; and which do not. */
#include "base/test.h"

#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "stage/apply.h"
#include "stage/fixture.h"

struct clash {
        const char *name, *target, *script;
        const char *during, *after; /* what the host does while the command's view lives, and after the seal */
        const char *refused;        /* the paths that apply would refuse, each with a newline */
};

static const struct clash clashes[] = {
        { "nothing happened", "echo a >a; mkdir d", "echo b >>a; echo n >d/n", NULL, NULL, "" },
        { "another file", "echo a >a; echo o >o", "echo b >>a", "echo x >>o", "echo x >>o", "" },
        { "a file saved beside, and gone again", "mkdir d; echo a >d/a", "echo b >>d/a; echo n >d/n",
          "echo s >d/.a.swp; rm d/.a.swp; echo p >d/other", "echo s >d/.a.swp", "" },
        { "the same file, during", "echo a >a; echo o >o", "echo b >>a; echo b >>o", "echo x >>a", NULL, "a\n" },
        { "the same file, same size and time", "echo a >a; touch -d 2001-01-01 a", "echo b >a",
          "echo x >a; touch -d 2001-01-01 a", NULL, "a\n" },
        { "the same file, after", "echo a >a", "echo b >>a", NULL, "echo x >>a", "a\n" },
        { "the same file, after, same size and time", "echo a >a; touch -d 2001-01-01 a", "echo b >>a", NULL,
          "echo x >a; touch -d 2001-01-01 a", "a\n" },
        { "replaced by rename, during", "echo a >a; echo x >x; touch -d 2001-01-01 a x", "echo b >>a", "mv x a", NULL,
          "a\n" },
        { "touched after", "echo a >a", "echo b >>a", NULL, "touch -d 2001-01-01 a", "" },
        { "away and back after", "echo a >a", "echo b >>a", NULL, "cp -p a b; rm a; mv b a", "" },
        { "mode after", "echo a >a", "echo b >>a", NULL, "chmod 700 a", "a\n" },
        { "attribute after", "echo a >a", "echo b >>a", NULL, "setfattr -n user.x -v 1 a", "a\n" },
        { "another link after", "echo a >a", "echo b >>a", NULL, "ln a l", "a\n" },
        { "a new file of the same name, during", "", "echo a >a", "echo x >a", NULL, "a\n" },
        { "a new file of the same name, after", "", "echo a >a", NULL, "echo x >a", "a\n" },
        { "deleted during", "echo a >a; mkdir d; echo b >d/b", "echo b >>a; echo b >>d/b; echo new >n", "rm -r a d",
          NULL, "a\nd\nd/b\n" },
        { "deleted after", "echo a >a", "echo b >>a", NULL, "rm a", "a\n" },
        { "a rename where the host was busy", "echo content >a; echo o >o", "mv a b", "rm o", NULL, "" },
        { "the directory deleted by the command gained a file, during", "mkdir d; echo a >d/a", "rm -r d",
          "echo x >d/x", NULL, "d\nd/a\nd/x\n" },
        { "the directory deleted by the command gained a file, after", "mkdir d; echo a >d/a", "rm -r d", NULL,
          "echo x >d/x", "d/x\n" },
        { "a file in a deleted directory, after", "mkdir d; echo a >d/a; echo b >d/b", "rm -r d", NULL, "echo x >>d/a",
          "d/a\n" },
        { "another directory put in place, during", "mkdir d e; echo a >d/a; echo old >e/a; touch -d 2001-01-01 e/a",
          "echo b >>d/a; echo n >d/n", "mv d f; mv e d", NULL, "d/a\n" },
        { "the directory's mode, during", "mkdir d; echo a >d/a", "chmod 700 d", "chmod 750 d", NULL, "d\n" },
        { "the directory's mode, after", "mkdir d; echo a >d/a", "chmod 700 d", NULL, "chmod 750 d", "d\n" },
        { "the directory's times", "mkdir d; echo a >d/a", "echo b >>d/a; chmod 700 d", NULL, "touch -d 2001-01-01 d",
          "" },
        { "a link to elsewhere, during", "ln -s x l", "ln -sfn y l", "ln -sfn z l", NULL, "l\n" },
        { "a link made again, after", "ln -s x l", "ln -sfn y l", NULL, "rm l; ln -s x l", "" },
        { "a link to elsewhere, after", "ln -s x l", "ln -sfn y l", NULL, "ln -sfn z l", "l\n" },
        { "a directory that became a link", "mkdir d e; echo a >d/a; echo a >e/a", "echo b >>d/a", NULL,
          "mv d f; ln -s e d", "d/a\n" },
};

static char *find_refused(struct fixture *f)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_changes c = NULL;
        pv_auto_str b = { 0 };
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        pv_str_put(&b, "");
        for (size_t i = 0; i < c->n; i++) {
                const char *why = NULL;
                if (pv_change_check(f->stage, &c->item[i], &why))
                        continue;
                assert_non_null(why);
                pv_str_putf(&b, "%s\n", c->item[i].path);
        }
        return pv_str_steal(&b);
}

static void check_clash(const struct clash *k, const struct fixture_place *place)
{
        struct fixture *f = fixture_make_at(place, k->target);
        fixture_run_and_seal(f, k->script, k->during);
        if (k->after)
                fixture_host(f, k->after);
        pv_auto_free char *got = find_refused(f);
        if (!pv_streq(got, k->refused))
                fail_msg("%s in %s, stage in %s: refused\n%s", k->name, place->target, place->stage, got);
        fixture_free(f);
}

static void test_edits_of_the_host(void **state)
{
        for (const struct fixture_place *p = NULL; (p = fixture_next_place(p));)
                for (size_t i = 0; i < sizeof clashes / sizeof *clashes; i++)
                        check_clash(&clashes[i], p);
}

/* The supervisor was killed: nothing is mounted any more when somebody takes stock. */
static void test_a_lost_run_is_sealed_by_who_takes_it_next(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = fixture_make("echo a >a; echo o >o; mkdir d; echo b >d/b");
        fixture_run(f, "echo x >>a; echo x >>o; echo x >>d/b");
        fixture_host(f, "echo y >>o; touch d/new");
        pv_stage_close(pv_steal(&f->stage));
        assert_return_code(pv_stage_open(f->stage_dir, PV_STAGE_TAKE, &f->stage, &err), 0);
        pv_auto_free char *changes = fixture_changes(f), *refused = find_refused(f);
        /* The view is gone: whether d is still the directory that the command saw cannot be told. */
        assert_string_equal(changes, "M a\nM d/b [suspect]\nM o [suspect]\n");
        assert_string_equal(refused, "d/b\no\n");
        fixture_free(f);
}

static void test_the_first_preimage_stays_when_a_run_goes_on(void **state)
{
        struct fixture *f = fixture_make("echo a >a; echo b >b");
        fixture_run_and_seal(f, "echo x >>a", NULL);
        fixture_host(f, "echo host >>a; echo host >>b");
        fixture_run_and_seal(f, "echo y >>a; echo y >>b", NULL);
        pv_auto_free char *refused = find_refused(f);
        assert_string_equal(refused, "a\n"); /* b: the second run saw what the host had made of it */
        fixture_free(f);
}

/* stage.json as a crash of the machine leaves it. */
static void set_boot_id(struct fixture *f, const char *id)
{
        pv_auto_free char *script =
                pv_strf("sed -i 's/\"boot_id\": \".*\"/\"boot_id\": \"%s\"/' %s/stage.json", id, f->stage_dir);
        fixture_host(f, script);
}

static void test_after_a_crash_of_the_machine_all_is_suspect(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = fixture_make("echo a >a");
        fixture_run(f, "echo x >>a; echo n >n");
        pv_stage_close(pv_steal(&f->stage));
        set_boot_id(f, "01234567-89ab-cdef-0123-456789abcdef");
        assert_return_code(pv_stage_open(f->stage_dir, PV_STAGE_TAKE, &f->stage, &err), 0);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "M a [suspect]\nA n [suspect]\n");
        fixture_free(f);
}

static void test_a_restart_after_the_seal_is_none(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct fixture *f = fixture_make("echo a >a");
        fixture_run_and_seal(f, "echo x >>a", NULL);
        pv_stage_close(pv_steal(&f->stage));
        set_boot_id(f, "01234567-89ab-cdef-0123-456789abcdef");
        assert_return_code(pv_stage_open(f->stage_dir, PV_STAGE_TAKE, &f->stage, &err), 0);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "M a\n");
        fixture_free(f);
}

static void test_damaged_preimages_doubt_what_they_lack(void **state)
{
        struct fixture *f = fixture_make("echo a >a");
        fixture_run_and_seal(f, "echo x >>a; echo n >n", NULL);
        pv_auto_free char *script =
                pv_strf("printf X | dd of=%s/roots/0/preimages bs=1 seek=70 conv=notrunc 2>/dev/null", f->stage_dir);
        fixture_host(f, script);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "M a [suspect]\nA n\n");
        fixture_free(f);
}

/* Among so many a search of all for each new one would outlast the test's time. */
static void test_each_path_is_listed_once_among_many(void **state)
{
        enum { MANY = 300000 };
        struct pv_apply_result r = { 0 };
        char path[32];
        for (int turn = 0; turn < 2; turn++)
                for (int i = 0; i < MANY; i++) {
                        (void)snprintf(path, sizeof path, "directory/%d", i);
                        pv_apply_result_add(&r, 0, path, turn ? "later" : "first");
                }
        pv_apply_result_add(&r, 1, path, "of another root");
        assert_int_equal(r.n_conflicts, MANY + 1);
        assert_string_equal(r.conflicts[0].path, "directory/0");
        assert_string_equal(r.conflicts[MANY - 1].path, path);
        assert_string_equal(r.conflicts[MANY - 1].why, "first");
        assert_string_equal(r.conflicts[MANY].why, "of another root");
        pv_apply_result_fini(&r);
        assert_null(r.conflicts);
        pv_apply_result_add(NULL, 0, "nobody", "wants to know");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_edits_of_the_host),
                cmocka_unit_test(test_a_lost_run_is_sealed_by_who_takes_it_next),
                cmocka_unit_test(test_the_first_preimage_stays_when_a_run_goes_on),
                cmocka_unit_test(test_after_a_crash_of_the_machine_all_is_suspect),
                cmocka_unit_test(test_a_restart_after_the_seal_is_none),
                cmocka_unit_test(test_damaged_preimages_doubt_what_they_lack),
                cmocka_unit_test(test_each_path_is_listed_once_among_many),
        };
        return fixture_main("conflict", tests, sizeof tests / sizeof *tests);
}
