# SPDX-License-Identifier: Apache-2.0
"""diff: a patch that `git apply` takes, and what it says of the rest; shown to a person it does no harm."""
import json
import os
import random
import re
import shutil
import stat

import pytest

from lib import tree


@pytest.fixture
def agent(pvisor, workspace):
    """agent(shell text) runs it staged in the workspace."""
    def call(text, cwd=workspace):
        return pvisor("run", "--stage", "-q", "--", "sh", "-euc", text, cwd=cwd)
    return call


@pytest.fixture
def patched(run, pvisor, temporary):
    """patched(workspace, *diff arguments) -> a copy of the workspace with `pvisor diff | git apply` done in it."""
    def call(workspace, *args):
        copy = temporary / "patched"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(workspace, copy, symlinks=True)
        patch = pvisor("diff", *args, cwd=workspace).out
        applied = run(["git", "apply", "--whitespace=nowarn", "-"], cwd=copy,
                      input=patch.encode("utf-8", "surrogateescape"))
        assert applied.code == 0, applied.err + patch
        return copy
    return call


def contents(top):
    """{path: what a patch can say of it} of the working tree: type, the owner's x, content."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(top)):
        names[:] = [n for n in names if n != b".git"]
        for name in files + [n for n in names if os.path.islink(os.path.join(directory, n))]:
            path = os.path.join(directory, name)
            st = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(top))
            if stat.S_ISLNK(st.st_mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    found[key] = ("file", bool(st.st_mode & 0o100), f.read())
    return found


def expected(run, workspace, temporary, script):
    """The same script run directly on a copy."""
    copy = temporary / "direct"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(workspace, copy, symlinks=True)
    done = run(["sh", "-euc", script], cwd=copy)
    assert done.code == 0, done.err
    return contents(copy)


EVERY_KIND = r"""
echo more >> README.md
printf 'no newline' > new.txt
: > empty
rm docs/guide.txt
mv src/util src/tools
chmod +x src/main.c
ln -s ../README.md docs/link
rm latest && ln -s README.md latest
printf 'a\r\nb\r\n' > crlf.txt
mkdir 'with space' && echo x > 'with space/a b.txt'
printf 'x\n' > "$(printf 'tab\there')"
printf 'x\n' > "$(printf 'quote"back\\slash')"
printf 'x\n' > "$(printf 'new\nline')"
printf 'x\n' > "$(printf 'caf\303\251')"
printf 'x\n' > "$(printf 'bad\377')"
printf 'x\n' > "$(printf 'esc\033[31m')"
printf '%s\n' '--- a/x' '+++ b/x' '@@ -1 +1 @@' '-a' '+b' > patch-like.txt
rm .gitignore && mkdir .gitignore && echo x > .gitignore/now-a-directory
"""


def test_git_applies_every_kind_of_change(agent, patched, run, workspace, temporary):
    agent(EVERY_KIND)
    assert contents(patched(workspace)) == expected(run, workspace, temporary, EVERY_KIND)


def test_it_leaves_the_target_alone(agent, pvisor, workspace):
    agent(EVERY_KIND)
    before = tree.snapshot(workspace)
    pvisor("diff", cwd=workspace)
    pvisor("diff", "--stat", cwd=workspace)
    tree.assert_same(before, tree.snapshot(workspace))


def test_types_change_both_ways(agent, patched, run, workspace, temporary):
    script = """
    rm README.md && ln -s src README.md
    rm latest && echo file > latest
    rm -r docs && echo file > docs
    rm src/main.c && mkdir src/main.c && echo x > src/main.c/inner
    """
    agent(script)
    assert contents(patched(workspace)) == expected(run, workspace, temporary, script)


def test_renames_are_renames(agent, pvisor, workspace):
    agent("mkdir lib && mv src/util lib/util && mv docs/guide.txt docs/manual.txt")
    patch = pvisor("diff", cwd=workspace).out
    assert "rename from src/util/list.c\nrename to lib/util/list.c\n" in patch
    assert "rename from docs/guide.txt\nrename to docs/manual.txt\n" in patch
    assert "line 1" not in patch
    assert json.loads(pvisor("diff", "--json", cwd=workspace).out)["files"][0]["status"] == "renamed"


def test_half_a_rename_is_an_addition_or_a_deletion(agent, pvisor, workspace):
    agent("mv docs/guide.txt manual.txt")
    assert "new file mode" in pvisor("diff", "last", "manual.txt", cwd=workspace).out
    assert "deleted file mode" in pvisor("diff", "last", "docs", cwd=workspace).out


def test_binary_and_large_files_are_named_and_do_not_break_the_rest(agent, patched, pvisor, workspace):
    agent("""
    head -c 5000 /dev/zero > data/blob.bin
    head -c 3000 /dev/zero > new.bin
    head -c 20000000 /dev/zero | tr '\\0' 'x' > large.txt
    mkfifo pipe
    echo text >> README.md
    """)
    patch = pvisor("diff", cwd=workspace).out
    assert "# data/blob.bin: binary, 4.0 KiB -> 4.9 KiB\n" in patch
    assert "# new.bin: binary, 2.9 KiB\n" in patch
    assert "# large.txt: too large for a patch, 19.1 MiB\n" in patch
    assert "# pipe: a pipe\n" in patch
    copy = patched(workspace)
    assert (copy / "README.md").read_text().endswith("text\n")
    assert (copy / "data/blob.bin").read_bytes() == (workspace / "data/blob.bin").read_bytes()


def test_binary_on_demand(agent, patched, run, workspace, temporary):
    script = "head -c 5000 /dev/zero > data/blob.bin; printf '\\000\\377' > new.bin; echo x >> README.md"
    agent(script)
    assert contents(patched(workspace, "--binary")) == expected(run, workspace, temporary, script)


def test_only_the_named_paths(agent, pvisor, workspace):
    agent("echo x >> README.md; echo x >> src/main.c; echo x > src/util/new.c; echo x > src2")
    assert pvisor("diff", "--json", "last", "src", cwd=workspace).out.count('"path"') == 2
    out = pvisor("diff", "README.md", cwd=workspace).out  # no job is called so
    assert "README.md" in out and "main.c" not in out
    assert "main.c" in pvisor("diff", "last", "main.c", cwd=workspace / "src").out
    failed = pvisor("diff", "last", "READMEE.md", cwd=workspace, code=2)
    assert "nothing changed there" in failed.err and "hint: did you mean README.md?" in failed.err
    assert pvisor("diff", "run-20200101-000000-0000", cwd=workspace, code=4).out == ""


def test_git_directories_and_ignored_files_only_when_named(agent, patched, pvisor, workspace):
    agent("""
    echo 'echo hi' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
    mkdir out; echo x > out/x.txt; echo x > a.o; git add README.md; echo x >> README.md
    """)
    patch = pvisor("diff", cwd=workspace).out
    assert "pre-commit" not in patch and "+++ b/out/x.txt" not in patch
    assert "# left out: " in patch and "ignored by git: out (1 file, 2 B)" in patch
    assert "+echo hi" in pvisor("diff", "last", ".git/hooks/pre-commit", cwd=workspace).out
    assert "+++ b/out/x.txt" in pvisor("diff", "last", "out", cwd=workspace).out
    assert "+++ b/a.o" in pvisor("diff", "--ignored", cwd=workspace).out
    patched(workspace)


def test_what_a_patch_cannot_say_is_a_note(agent, pvisor, workspace):
    agent("chmod 600 README.md; mkdir hollow")
    patch = pvisor("diff", cwd=workspace).out
    assert "# README.md: mode 0644 -> 0600 (not in a patch)\n" in patch
    assert "# hollow: a directory\n" in patch


def test_a_name_that_git_refuses_does_not_spoil_the_patch(agent, patched, workspace, pvisor):
    agent("echo x > 'git~1'; mkdir sub; ln -s x sub/.gitmodules; echo x >> README.md")
    assert "# git~1: git refuses patches with such a name, 2 B\n" in pvisor("diff", cwd=workspace).out
    assert (patched(workspace) / "README.md").read_text().endswith("x\n")


def test_a_conflict_is_said(agent, pvisor, workspace):
    agent("echo agent >> README.md")
    (workspace / "README.md").write_text("edited by the person\n")
    assert "# README.md: conflict: " in pvisor("diff", cwd=workspace).out


def test_stat(agent, pvisor, workspace):
    agent("echo x >> README.md; rm src/main.c; printf '\\000' > b")
    lines = pvisor("diff", "--stat", cwd=workspace).out.splitlines()
    assert lines[0] == " README.md  | 1 +"
    assert lines[1] == " b          | binary, 0 B -> 1 B"
    assert lines[2] == " src/main.c | 4 ----"
    assert lines[3] == " 3 files changed, 1 insertion(+), 4 deletions(-)"


def test_nothing_changed_is_nothing_printed(agent, pvisor, workspace):
    agent("true")
    assert pvisor("diff", cwd=workspace).out == ""


def test_a_terminal_gets_no_escapes_of_the_agent(agent, pvisor, workspace):
    agent(r"""printf '\033]0;owned\007\033[2J\r\302\233\342\200\256x\n' > evil.txt; echo x > "$(printf 'n\033[2Jx')" """)
    shown = pvisor("diff", "--no-pager", cwd=workspace, pty=True, env={"TERM": "xterm"}).out
    assert "\\x1b]0;owned\\x07" in shown
    for bad in ("\033]", "\033[2J", "\x07", "\u009b", "\u202e"):
        assert bad not in shown
    assert "\033[32m+" in shown  # colours of ours
    assert "\033" not in pvisor("diff", "--no-pager", cwd=workspace, pty=True,
                                env={"TERM": "xterm", "NO_COLOR": "1"}).out
    raw = pvisor("diff", cwd=workspace).out
    assert "\033]0;owned\007" in raw  # a pipe gets the bytes, or `git apply` would write others


def test_long_output_is_paged(agent, pvisor, workspace, temporary):
    agent("seq 1 500 > long.txt")
    pager = temporary / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {temporary}/paged\n")
    pager.chmod(0o755)
    shown = pvisor("diff", cwd=workspace, pty=True, env={"TERM": "xterm", "PAGER": str(pager)}).out
    assert "+500" not in shown and "+500" in (temporary / "paged").read_text()
    assert "+500" in pvisor("diff", "--no-pager", cwd=workspace, pty=True, env={"TERM": "xterm",
                                                                             "PAGER": str(pager)}).out
    # A pager that is quit at once is no failure.
    pvisor("diff", cwd=workspace, pty=True, env={"TERM": "xterm", "PAGER": "true"})


def test_not_staged_says_so(pvisor, workspace):
    pvisor("run", "-q", "--", "true", cwd=workspace)
    failed = pvisor("diff", cwd=workspace, code=1)
    assert "no staged changes" in failed.err and "hint:" in failed.err


# ---- diff | git apply equals apply --all, whatever the changes ----

WORDS = ["alpha", "beta", "", "  indented", "\ttab", "x\r", "-minus", "+plus", "@@ -1 +1 @@", "\\ No newline", "# note"]
NAMES = ["a", "b c", "d.txt", "e\"f", "tab\tx", "caf\u00e9", "z\udcff", "-dash", "new\nline"]


def random_text(rng):
    text = "\n".join(rng.choice(WORDS) for _ in range(rng.randrange(30)))
    return text + ("\n" if rng.random() < 0.8 else "")


def random_project(rng):
    files = {}
    for directory in ("", "one/", "one/two/", "three/"):
        for name in rng.sample(NAMES, 5):
            files[directory + name] = random_text(rng)
    return files


def random_changes(rng, files):
    """A Python program of file operations: the same for a staged run and a direct one."""
    lines = ["import os"]
    names = sorted(files)
    rng.shuffle(names)
    for name in names[:12]:
        other = rng.choice(["", "one/", "new dir/", "three/"]) + rng.choice(NAMES) + str(rng.randrange(1000))
        operation = rng.choice(["edit", "edit", "write", "delete", "rename", "chmod", "link", "add"])
        lines.append({
            "edit": f"open({name!r}, 'a', newline='').write({random_text(rng)!r})",
            "write": f"open({name!r}, 'w', newline='').write({random_text(rng)!r})",
            "delete": f"os.remove({name!r})",
            "rename": f"os.makedirs(os.path.dirname({other!r}) or '.', exist_ok=True); os.rename({name!r}, {other!r})",
            "chmod": f"os.chmod({name!r}, 0o755)",
            "link": f"os.remove({name!r}); os.symlink({other!r}, {name!r})",
            "add": f"os.makedirs(os.path.dirname({other!r}) or '.', exist_ok=True);"
                   f" open({other!r}, 'w', newline='').write({random_text(rng)!r})",
        }[operation])
    if rng.random() < 0.4:
        lines.append("import shutil; shutil.move('one', 'moved')")
    return "\n".join(lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(int(os.environ.get("PV_DIFF_SEEDS", "12"))))
def test_git_apply_of_the_diff_equals_apply(seed, run, pvisor, patched, make_workspace, temporary):
    rng = random.Random(seed)
    files = random_project(rng)
    workspace = make_workspace(files)
    command = ["/usr/bin/python3", "-c", random_changes(rng, files)]
    direct = temporary / "direct"
    shutil.copytree(workspace, direct, symlinks=True)
    assert run(command, cwd=direct).code == 0
    pvisor("run", "--stage", "-q", "--", *command, cwd=workspace)
    by_git = contents(patched(workspace))
    assert by_git == contents(direct), f"seed {seed}"
    pvisor("apply", "--all", "--keep-times", cwd=workspace)
    assert by_git == contents(workspace), f"seed {seed}"


def test_names_alone_are_one_a_line(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo 1 > new; mkdir d; echo 2 > 'd/a b'; rm README.md", cwd=workspace)
    assert pvisor("diff", "--name-only", cwd=workspace).out.splitlines()[:3] == ["README.md", "d/a b", "new"]
    assert pvisor("diff", "--name-only", "last", "d", cwd=workspace).out == "d/a b\n"


def test_people_see_short_object_names_and_git_whole_ones(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo 1 > new", cwd=workspace)
    assert re.search(r"^index 0{40}\.\.[0-9a-f]{40}$", pvisor("diff", cwd=workspace).out, re.M)
    assert re.search(r"index 0{8}\.\.[0-9a-f]{8}\x1b", pvisor("diff", "--color=always", cwd=workspace).out)
