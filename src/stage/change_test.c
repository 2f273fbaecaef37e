/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include "base/fd.h"
#include "base/path.h"
#include "stage/fixture.h"

/* What a script in the view amounts to, in a target that another script made. */
struct effect {
        const char *name, *target, *script, *changes;
};

static const struct effect effects[] = {
        { "nothing", "echo a >a", "cat a >/dev/null", "" },
        { "add", "", "echo a >a; mkdir -p d/e; ln -s x d/l; mkfifo d/f", "A a\nA d\nA d/e\nA d/f\nA d/l\n" },
        { "modify", "echo a >a; mkdir d; echo b >d/b", "echo xx >a; echo c >>d/b", "M a\nM d/b\n" },
        { "modify without changing the size", "echo a >a; touch -d 2001-01-01 a", "echo b >a; touch -d 2001-01-01 a",
          "M a\n" },
        { "write the same again", "echo a >a; touch -d 2001-01-01 a", "echo a >a", "m a [times]\n" },
        { "write and put back, times too", "echo a >a; touch -d 2001-01-01 a",
          "echo b >a; echo a >a; touch -d 2001-01-01 a", "" },
        { "delete", "echo a >a; mkdir -p d/e; echo b >d/b", "rm a; rm -r d",
          "D a\nD d\nD d/b [implied]\nD d/e [implied]\n" },
        { "add and delete again", "", "echo a >a; rm a; mkdir d; rmdir d", "" },
        { "delete and make again", "mkdir d d/s; echo a >d/a; echo b >d/b; echo c >d/s/c; touch -d 2001-01-01 d/b",
          "rm -r d; mkdir d; echo xx >d/a; echo b >d/b; touch -d 2001-01-01 d/b",
          "M d/a\nD d/s [hidden]\nD d/s/c [implied]\n" },
        { "make again with another mode", "mkdir d; echo a >d/a", "rm -r d; mkdir -m 700 d",
          "m d [opaque mode]\nD d/a [hidden]\n" },
        { "below a directory made again", "mkdir -p d/e; echo a >d/e/a; echo b >d/e/b",
          "rm -r d; mkdir -p d/e; echo c >d/e/c; echo xx >d/e/a", "M d/e/a\nD d/e/b [hidden]\nA d/e/c\n" },
        { "file to directory", "echo a >a", "rm a; mkdir a; echo b >a/b", "T a\nA a/b\n" },
        { "directory to file", "mkdir a; echo b >a/b", "rm -r a; echo a >a", "T a\nD a/b [implied]\n" },
        { "file to link", "echo a >a", "rm a; ln -s b a", "T a\n" },
        { "link to another", "ln -s b a", "rm a; ln -s c a", "M a\n" },
        { "modes", "echo a >a; mkdir d; touch d/x", "chmod 600 a; chmod 700 d; chmod 700 .",
          "m . [mode]\nm a [mode]\nm d [mode]\n" },
        { "attributes", "echo a >a; mkdir d", "setfattr -n user.x -v 1 a; setfattr -n user.overlay.opaque -v y d",
          "m a [xattrs]\nm d [xattrs]\n" },
        { "an acl", "echo a >a", "setfacl -m u:12345:r a 2>/dev/null || setfacl -m m::r a", "m a [xattrs]\n" },
        { "times of a directory are nothing", "mkdir d; touch d/x", "touch -d 2001-01-01 d", "" },
        { "rename a file", "echo content >a", "mv a b", "D a\nA b <- a\n" },
        { "rename a large file", "head -c 3000000 /dev/urandom >a", "mv a b", "D a\nA b <- a\n" },
        { "rename over another", "echo content >a; echo other >b", "mv a b", "D a\nM b\n" },
        { "move a directory", "mkdir d; echo one >d/a; echo two >d/b; ln -s a d/l",
          "cp -a d e; rm -r d; echo more >>e/b",
          "D d\nD d/a [implied]\nD d/b [implied]\nD d/l [implied]\n"
          "A e <- d\nA e/a <- d/a\nA e/b <- d/b\nA e/l <- d/l\n" },
        { "empty files are not renames", "touch a", "rm a; touch b", "D a\nA b\n" },
        { "a new link to an old file", "echo a >a", "ln a b", "m a [linked] =1\nA b =1\n" },
        { "links among new files", "", "echo a >a; ln a b; echo c >c; ln c d", "A a =1\nA b =1\nA c =2\nA d =2\n" },
        { "a linked file is split", "echo a >a; ln a b", "echo x >>a", "M a [split]\n" },
        { "a link made and taken back", "echo a >a", "ln a b; rm b", "" },
        { "names", "",
          "touch 'a b' 'a/b' 2>/dev/null || :; touch -- -x \"$(printf 'n\\nl')\" \"$(printf '\\377')\"; "
          "mkdir a; touch a/z a-b",
          "A -x\nA a\nA a/z\nA a b\nA a-b\nA n\nl\nA \377\n" },
        { "what nobody may read", "echo a >a; mkdir d",
          "echo b >>a; chmod 0 a; mkdir n; echo x >n/x; chmod 0 n; "
          "echo y >d/y; chmod 111 d",
          "M a [mode]\nm d [mode]\nA d/y\nA n\nA n/x\n" },
};

static void check_effect(const struct effect *e, const struct fixture_place *place)
{
        struct fixture *f = fixture_make_at(place, e->target);
        fixture_run_and_seal(f, e->script, NULL);
        pv_auto_free char *got = fixture_changes(f);
        if (!pv_streq(got, e->changes))
                fail_msg("%s in %s, stage in %s:\n%s", e->name, place->target, place->stage, got);
        fixture_free(f);
}

static void test_the_net_effect(void **state)
{
        for (const struct fixture_place *p = NULL; (p = fixture_next_place(p));)
                for (size_t i = 0; i < sizeof effects / sizeof *effects; i++)
                        check_effect(&effects[i], p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_net_effect),
        };
        return fixture_main("change", tests, sizeof tests / sizeof *tests);
}
