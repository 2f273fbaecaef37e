# SPDX-License-Identifier: Apache-2.0
"""apply, undo and drop as a person types them: what is selected, what is left and why, what is printed, exit codes."""
import json
import os
import resource
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from lib import jobs, stepping, tree


def script(text):
    return ["run", "--stage", "--", "sh", "-euc", text]


@pytest.fixture
def agent(pvisor, workspace):
    """agent(shell text) runs it staged in the workspace."""
    def call(text, code=0):
        return pvisor(*script(text), cwd=workspace, code=code)
    return call


@pytest.fixture
def git(run):
    def call(*args, cwd):
        result = run(["git", *args], cwd=cwd)
        assert result.code == 0, result.err
        return result.out
    return call


def apply_json(pvisor, workspace, *args, code=0):
    return json.loads(pvisor("apply", "--json", *args, cwd=workspace, code=code).out)


MIXED = """
echo more >> README.md
echo new > new.txt
rm docs/guide.txt
mkdir -p out src/deep/er && echo x > out/x.bin && echo deep > src/deep/er/file
echo 'echo pwned' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit
echo 'export X=1' > .envrc
"""


# ---- what is taken and what is left ----

def test_all_takes_the_working_tree_and_says_what_it_left(agent, pvisor, workspace):
    agent(MIXED)
    result = pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "README.md").read_text().endswith("more\n")
    assert (workspace / "new.txt").exists() and (workspace / "src/deep/er/file").exists()
    assert not (workspace / "docs/guide.txt").exists()
    for left in (".git/hooks/post-commit", ".envrc", "out/x.bin"):
        assert not (workspace / left).exists(), left
    for said in ("applied", ".git/hooks/post-commit", ".envrc", "out", "pvisor undo", "pvisor drop"):
        assert said in result.out, said


def test_what_is_left_is_a_line_a_directory_and_ignored_files_are_told_apart(agent, pvisor, workspace):
    agent("mkdir -p out/deep docs/new && for i in $(seq 40); do echo $i > out/deep/$i; echo $i > docs/new/$i; done; "
          "echo new > new.txt; mkdir docs/none")
    out = pvisor("apply", "--path", "new.txt", cwd=workspace).out
    left = out[out.index("left staged:"):out.index("next:")]
    assert left == ("left staged:\n"
                    "  40 ignored by git\n    out  40 files, 111 B\n"
                    "  41 not asked for\n    docs/new/  40 files\n    docs/none/\n")
    pvisor("undo", "-q", cwd=workspace)
    agent("mkdir -p a out && echo x > a/x.o; echo y > a/y.c; echo z > out/z; echo new > new.txt")
    for path, told in (("a", "  1 ignored by git; --ignored takes it\n    a/x.o  1 file, 2 B\n"
                             "  1 ignored by git\n    out  1 file, 2 B\n  1 not asked for\n    new.txt\n"),
                       ("new.txt", "  2 ignored by git\n    a/x.o  1 file, 2 B\n    out  1 file, 2 B\n"
                                   "  1 not asked for\n    a/y.c\n")):
        assert pvisor("apply", "-n", "--path", path, cwd=workspace).out.endswith("left staged:\n" + told)


def test_a_drop_with_nothing_left_says_what_stays(agent, pvisor, workspace):
    agent("echo new > new.txt")
    pvisor("apply", "--all", cwd=workspace)
    assert "what was applied stays: pvisor undo" in pvisor("drop", cwd=workspace).err
    assert (workspace / "new.txt").exists()
    pvisor("undo", cwd=workspace)
    assert not (workspace / "new.txt").exists()
    agent("true")
    assert "nothing was staged in" in pvisor("drop", cwd=workspace).err


def test_naming_a_path_takes_what_all_leaves(agent, pvisor, workspace):
    agent(MIXED)
    pvisor("apply", "--path", ".envrc", "--path", ".git/hooks/post-commit", cwd=workspace)
    assert (workspace / ".envrc").exists() and os.access(workspace / ".git/hooks/post-commit", os.X_OK)
    assert not (workspace / "new.txt").exists()


def test_naming_the_whole_does_not_take_what_runs_on_the_host(agent, pvisor, workspace):
    agent(MIXED)
    pvisor("apply", "--path", ".", cwd=workspace)
    assert (workspace / "new.txt").exists()
    assert not (workspace / ".envrc").exists() and not (workspace / ".git/hooks/post-commit").exists()


def test_ignored_takes_ignored_files_too(agent, pvisor, workspace):
    agent(MIXED)
    pvisor("apply", "--all", "--ignored", cwd=workspace)
    assert (workspace / "out/x.bin").exists()


def test_json_tells_the_same(agent, pvisor, workspace):
    agent(MIXED)
    told = apply_json(pvisor, workspace, "--all")
    assert told["batch"] and not told["refused"] and told["conflicts"] == []
    assert set(told["left"]) == {"runs-on-host", "ignored"}
    assert told["left"]["ignored"]["count"] >= 1
    assert {"README.md", "new.txt", "docs/guide.txt"} <= set(told["selected"]["paths"])
    assert told["applied"] == told["selected"]["count"]


def test_path_include_exclude(agent, pvisor, workspace):
    agent("echo 1 >> src/main.c; echo 2 > src/other.h; echo 3 > src/util/x.c; echo 4 > top.c")
    pvisor("apply", "--path", "src", "--exclude", "*.h", cwd=workspace)
    assert (workspace / "src/util/x.c").exists() and not (workspace / "src/other.h").exists()
    assert not (workspace / "top.c").exists()
    pvisor("apply", "--include", "*.c", cwd=workspace)
    assert (workspace / "top.c").exists() and not (workspace / "src/other.h").exists()
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "src/other.h").exists()


def test_path_is_relative_to_where_the_person_stands(agent, pvisor, workspace):
    agent("echo 1 >> src/main.c; echo 2 > main.c")
    pvisor("apply", "--path", "main.c", cwd=workspace / "src")
    assert (workspace / "src/main.c").read_text().endswith("1\n") and not (workspace / "main.c").exists()


def test_new_parents_come_along(agent, pvisor, workspace):
    agent("mkdir -p a/b/c; echo x > a/b/c/file; echo y > a/other")
    pvisor("apply", "--path", "a/b/c/file", cwd=workspace)
    assert (workspace / "a/b/c/file").exists() and not (workspace / "a/other").exists()


@pytest.mark.parametrize("before", ["file", "link", "dangling"])
def test_part_of_a_directory_that_replaces_something_else(pvisor, plain, before):
    if before == "file":
        (plain / "e").write_text("a file\n")
    else:
        (plain / "e").symlink_to("src" if before == "link" else "nowhere")
    was = tree.snapshot(plain)
    pvisor(*script("rm e; mkdir -p e/f; echo 1 > e/one; echo 2 > e/two; echo 3 > e/f/three"), cwd=plain)
    pvisor("apply", "--path", "e/two", cwd=plain)
    assert sorted(os.listdir(plain / "e")) == ["two"]
    pvisor("apply", "--path", "e/f", cwd=plain)
    assert sorted(os.listdir(plain / "e")) == ["f", "two"]
    pvisor("undo", cwd=plain)
    pvisor("undo", cwd=plain)
    tree.assert_same(was, tree.snapshot(plain))
    pvisor("apply", "--all", cwd=plain)
    assert sorted(os.listdir(plain / "e")) == ["f", "one", "two"]


DEEP = """
import os
import signal
import stat
for _ in range(%d):
    os.mkdir("n" * 59)
    os.chdir("n" * 59)
open("bottom", "w").write("x")
"""


def test_a_tree_deeper_than_any_path_is_refused_and_can_be_left_and_dropped(pvisor, plain, environment):
    was = tree.snapshot(plain)
    pvisor("run", "--stage", "--", "/usr/bin/python3", "-c", "open('new', 'w')\n" + DEEP % 100, cwd=plain)
    review = pvisor("review", cwd=plain).out
    assert "1 path not to be applied" in review and "1 added, 1 that cannot be looked into" in review
    for how in (["--all"], ["--path", "n" * 59]):
        refused = pvisor("apply", *how, cwd=plain, code=3).err
        assert "too long" in refused and "--exclude" in refused
        assert "changed on the host" not in refused and "--overwrite" not in refused
        tree.assert_same(was, tree.snapshot(plain))
    for how, came in ((["--path", "new"], ["new"]), (["--all", "--exclude", "n*/**"], ["new", "n" * 59])):
        pvisor("apply", *how, cwd=plain)
        assert sorted(set(os.listdir(plain)) - {os.fsdecode(name) for name in was}) == came
        pvisor("undo", cwd=plain)
        tree.assert_same(was, tree.snapshot(plain))
    pvisor("drop", "--path", "n" * 59, cwd=plain)
    pvisor("drop", cwd=plain)
    pvisor("prune", "--unapplied", cwd=plain)
    assert not jobs.job_dirs(environment)


@pytest.mark.parametrize("act", ["shutil.rmtree('n' * 59)", "os.rename('n' * 59, 'moved')", "os.chmod('n' * 59, 0o700)"])
def test_a_tree_of_the_hosts_deeper_than_any_path_loses_nothing(pvisor, plain, act):
    """Deleted, moved, touched at its top: applied where that needs no name below, else refused by name; never half."""
    def count():
        return sum(1 for _ in os.fwalk(plain))

    subprocess.run(["/usr/bin/python3", "-c", DEEP % 100], cwd=plain, check=True)
    levels = count()
    pvisor("run", "--stage", "--", "/usr/bin/python3", "-c", "import os, shutil\nopen('new', 'w')\n" + act, cwd=plain)
    pvisor("review", cwd=plain)
    pvisor("diff", cwd=plain)
    if "chmod" in act:
        pvisor("apply", "--all", cwd=plain)
        pvisor("undo", cwd=plain)
    else:
        assert "too long" in pvisor("apply", "--all", cwd=plain, code=3).err
    assert count() == levels
    pvisor("apply", "--path", "new", cwd=plain)
    pvisor("undo", cwd=plain)
    pvisor("drop", cwd=plain)
    assert count() == levels and not (plain / "new").exists()
    subprocess.run(["rm", "-r", "n" * 59], cwd=plain, check=True)


def test_a_tree_of_thousands_of_levels_is_refused_at_once(pvisor, plain, environment):
    """Each directory was looked through with all below it: minutes."""
    program = "import os\nfor i in range(2100): os.mkdir('d'); os.chdir('d')"
    pvisor("run", "--stage", "--", "/usr/bin/python3", "-c", program, cwd=plain)
    assert "too long" in pvisor("apply", "--all", cwd=plain, code=3, timeout=40).err
    pvisor("drop", cwd=plain)
    pvisor("prune", "--unapplied", cwd=plain)
    assert not jobs.job_dirs(environment)


def test_the_deepest_tree_that_has_a_path_is_taken_and_given_back(pvisor, plain):
    was = tree.snapshot(plain)
    pvisor("run", "--stage", "--", "/usr/bin/python3", "-c", DEEP % 60, cwd=plain)
    pvisor("apply", "--all", cwd=plain)
    assert "bottom" in os.listdir(os.path.join(plain, *["n" * 59] * 60))
    pvisor("undo", cwd=plain)
    tree.assert_same(was, tree.snapshot(plain))
    pvisor("drop", cwd=plain)


def test_a_link_group_does_not_smuggle_what_runs_on_the_host(agent, pvisor, workspace):
    agent("echo 'export X=1' > harmless.txt; ln harmless.txt .envrc")
    result = pvisor("apply", "--all", cwd=workspace, code=None)
    assert not (workspace / ".envrc").exists()
    if result.code:
        assert result.code == 2 and ".envrc" in result.err
    pvisor("apply", "--path", ".envrc", "--path", "harmless.txt", cwd=workspace)
    assert (workspace / ".envrc").stat().st_ino == (workspace / "harmless.txt").stat().st_ino


# ---- rules of git's that cost too much ----

def test_rules_that_take_for_ever_cost_little_and_hide_nothing(agent, pvisor, workspace, git):
    """They are given up after seconds of the processor, which is said; commits and hooks are still told."""
    git("config", "core.hooksPath", "hooks", cwd=workspace)
    agent("""git commit -q --allow-empty -m 'told all the same'
        mkdir hooks && echo 'echo pwned' > hooks/pre-commit && chmod +x hooks/pre-commit
        for i in 1 2 3 4 5; do echo '*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b'; done > .gitignore
        for i in 1 2 3; do echo $i > $(printf 'a%.0s' $(seq 100))$i; done""")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    review = pvisor("review", cwd=workspace)
    told = apply_json(pvisor, workspace, "--all")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 10
    assert "its rules take too long to match" in review.out and "told all the same" in review.out
    assert told["ignore_known"] is False and told["applied"] == 4
    assert told["left"]["runs-on-host"]["paths"] == ["hooks", "hooks/pre-commit"]


def test_a_pipe_that_configuration_may_name_is_not_waited_for(agent, pvisor, workspace):
    """git would open it for its rules and stand still; without such configuration it is a file like any other."""
    agent("mkfifo trap; git config core.excludesFile $PWD/trap; echo x > out.bin; mkdir -p out; echo x > out/y")
    assert "git is not asked: trap is a pipe" in pvisor("review", cwd=workspace).out
    pvisor("drop", cwd=workspace)
    agent("mkfifo trap; mkdir -p out; echo x > out/y")
    assert "out" in pvisor("review", cwd=workspace).out and apply_json(pvisor, workspace, "--all")["ignore_known"]


# ---- one half of a rename ----

RENAMES = "git mv src/main.c src/start.c; mkdir lib && git mv docs lib/texts"


def together(told):
    return set(told["left"]["together"]["paths"]) if "together" in told["left"] else set()


def test_the_new_place_is_excluded_and_the_old_one_stays(agent, pvisor, workspace):
    """A deletion alone would leave the workspace without the file; all else is taken."""
    before = (workspace / "src/main.c").read_bytes()
    agent(RENAMES)
    told = apply_json(pvisor, workspace, "--all", "--exclude", "start.c")
    assert together(told) == {"src/main.c"} and (workspace / "src/main.c").read_bytes() == before
    assert not (workspace / "src/start.c").exists() and (workspace / "lib/texts/guide.txt").exists()
    told = apply_json(pvisor, workspace, "--all")
    assert not together(told) and (workspace / "src/start.c").read_bytes() == before
    assert not (workspace / "src/main.c").exists()


def test_the_old_place_is_excluded_and_the_new_one_is_an_addition(agent, pvisor, workspace):
    before = (workspace / "src/main.c").read_bytes()
    agent(RENAMES)
    told = apply_json(pvisor, workspace, "--all", "--exclude", "main.c")
    assert not together(told) and told["left"]["excluded"]["paths"] == ["src/main.c"]
    assert (workspace / "src/main.c").read_bytes() == (workspace / "src/start.c").read_bytes() == before


def test_part_of_a_renamed_directory_is_left(agent, pvisor, workspace):
    """The old directory stays whole, the rest of the new one is made; an undo takes it back to the byte."""
    (workspace / "docs/other.txt").write_text("another text of some length\n")
    before = tree.snapshot(workspace)
    agent("mv docs texts")
    result = pvisor("apply", "--all", "--exclude", "texts/guide.txt", cwd=workspace)
    assert "left with what is left out" in result.out
    assert (workspace / "docs/guide.txt").exists() and (workspace / "docs/other.txt").exists()
    assert (workspace / "texts/other.txt").exists() and not (workspace / "texts/guide.txt").exists()
    pvisor("undo", cwd=workspace)
    tree.assert_same(before, tree.snapshot(workspace))
    pvisor("apply", "--all", cwd=workspace)
    assert not (workspace / "docs").exists() and (workspace / "texts/guide.txt").exists()


def test_a_file_that_became_one_that_runs_on_the_host_stays(agent, pvisor, workspace):
    """--all takes the rest, where it was refused altogether; naming the new place takes both halves."""
    agent("mv src/main.c .envrc; echo more >> README.md")
    told = apply_json(pvisor, workspace, "--all")
    assert together(told) == {"src/main.c"} and told["left"]["runs-on-host"]["paths"] == [".envrc"]
    assert (workspace / "src/main.c").exists() and (workspace / "README.md").read_text().endswith("more\n")
    pvisor("apply", "--path", ".envrc", cwd=workspace)
    assert (workspace / ".envrc").exists() and not (workspace / "src/main.c").exists()


def test_a_half_that_the_host_changed_is_left_out_and_the_other_taken(agent, pvisor, workspace):
    agent(RENAMES)
    (workspace / "src/main.c").write_text("int mine;\n")
    assert "src/main.c" in pvisor("apply", "--all", cwd=workspace, code=3).err
    pvisor("apply", "--all", "--exclude", "main.c", cwd=workspace)
    assert (workspace / "src/main.c").read_text() == "int mine;\n" and (workspace / "src/start.c").exists()


def test_what_is_excluded_does_not_come_along(agent, pvisor, workspace):
    """Named by one half, a rename is whole; unless the other half was excluded by name."""
    agent(RENAMES)
    told = apply_json(pvisor, workspace, "--path", "src/start.c", "--exclude", "main.c", "--dry-run")
    assert told["selected"]["paths"] == ["src/start.c"]
    told = apply_json(pvisor, workspace, "--path", "src/start.c", "--dry-run")
    assert told["selected"]["paths"] == ["src/main.c", "src/start.c"]


def test_a_deleted_directory_of_which_something_is_excluded_stays(agent, pvisor, workspace):
    agent("rm -r src; echo more >> README.md")
    told = apply_json(pvisor, workspace, "--all", "--exclude", "main.c")
    assert (workspace / "src/main.c").exists() and "src" in together(told)
    assert (workspace / "README.md").read_text().endswith("more\n")


def test_drop_keeps_a_new_place_whose_old_one_stays_deleted(agent, pvisor, workspace):
    """The mirror image: dropped alone, the file would be gone with the next apply."""
    before = (workspace / "src/main.c").read_bytes()
    agent("mv src/main.c src/start.c")
    assert "left with what is left out" in pvisor("drop", "--path", "src/start.c", "--exclude", "main.c",
                                                  cwd=workspace).err
    pvisor("drop", "--path", "src/main.c", "--exclude", "start.c", cwd=workspace)  # this half alone loses nothing
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "src/main.c").read_bytes() == (workspace / "src/start.c").read_bytes() == before


def test_nothing_asked_for_is_a_usage_error(agent, pvisor, workspace):
    agent("echo 1 > a")
    assert "--all" in pvisor("apply", cwd=workspace, code=2).err
    pvisor("apply", "--path", "no-such-thing", cwd=workspace, code=2)


def test_nothing_staged_is_no_error(agent, pvisor, workspace):
    agent("true")
    assert "nothing" in pvisor("apply", "--all", cwd=workspace).out


def test_repeating_is_harmless(agent, pvisor, workspace):
    agent("echo 1 > a")
    pvisor("apply", "--all", cwd=workspace)
    before = tree.snapshot(workspace)
    assert "nothing" in pvisor("apply", "--all", cwd=workspace).out
    tree.assert_same(before, tree.snapshot(workspace))


def test_unstaged_job_has_nothing_to_apply(pvisor, workspace):
    pvisor("run", "--", "true", cwd=workspace)
    assert "not staged" in pvisor("apply", "--all", cwd=workspace, code=1).err


# ---- dry run ----

def test_dry_run_changes_nothing(agent, pvisor, workspace):
    agent(MIXED)
    before = tree.snapshot(workspace)
    assert "would apply" in pvisor("apply", "--all", "--dry-run", cwd=workspace).out
    assert apply_json(pvisor, workspace, "--all", "--dry-run")["dry_run"] is True
    tree.assert_same(before, tree.snapshot(workspace))
    pvisor("undo", cwd=workspace, code=None)
    tree.assert_same(before, tree.snapshot(workspace))


def test_dry_run_tells_conflicts(agent, pvisor, workspace):
    agent("echo theirs >> README.md")
    (workspace / "README.md").write_text("mine\n")
    told = apply_json(pvisor, workspace, "--all", "--dry-run", code=3)
    assert [c["path"] for c in told["conflicts"]] == ["README.md"]


# ---- conflicts ----

def test_conflicts_are_all_named_and_nothing_changes(agent, pvisor, workspace):
    agent("echo theirs >> README.md; echo theirs >> src/main.c; echo new > new.txt; rm docs/guide.txt")
    (workspace / "README.md").write_text("mine\n")
    (workspace / "docs/guide.txt").write_text("mine too\n")
    before = tree.snapshot(workspace)
    result = pvisor("apply", "--all", cwd=workspace, code=3)
    assert "README.md" in result.err and "docs/guide.txt" in result.err and "src/main.c" not in result.err
    tree.assert_same(before, tree.snapshot(workspace))
    quiet = pvisor("apply", "-q", "--all", cwd=workspace, code=3)
    assert "README.md" in quiet.err
    told = apply_json(pvisor, workspace, "--all", code=3)
    assert told["refused"] and {c["path"] for c in told["conflicts"]} == {"README.md", "docs/guide.txt"}
    pvisor("apply", "--all", "--exclude", "README.md", "--exclude", "docs/guide.txt", cwd=workspace)
    assert (workspace / "new.txt").exists() and (workspace / "README.md").read_text() == "mine\n"


# ---- undo ----

def test_undo_takes_the_batch_back_and_stages_it_again(agent, pvisor, workspace):
    before = tree.snapshot(workspace)
    agent(MIXED)
    pvisor("apply", "--all", cwd=workspace)
    after = tree.snapshot(workspace)
    pvisor("undo", cwd=workspace)
    tree.assert_same(before, tree.snapshot(workspace))
    assert not (workspace / "new.txt").exists() and (workspace / "docs/guide.txt").exists()
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "new.txt").exists()
    assert set(after) == set(tree.snapshot(workspace))


@pytest.mark.parametrize("store", ["same filesystem", "another filesystem"])
@pytest.mark.parametrize("command", [
    "ln README.md second", "ln README.md second; ln README.md docs/third", "ln src/main.c README; ln -f README README.md",
    "mkdir new; ln README.md new/one; ln README.md new/two", "echo more >> README.md; ln README.md second"])
def test_undo_knows_hard_links_that_landed_again(agent, pvisor, workspace, environment, tmpfs, command, store):
    if store == "another filesystem":
        environment["PVISOR_HOME"] = str(tmpfs / "store")
    was = tree.snapshot(workspace)
    agent(command)
    for _ in range(2):
        pvisor("apply", "--all", cwd=workspace)
        assert tree.snapshot(workspace) != was
        pvisor("undo", cwd=workspace)
        tree.assert_same(was, tree.snapshot(workspace))
    pvisor("apply", "--all", cwd=workspace)
    (workspace / "README.md").write_text("the person's\n")
    assert "changed on the host" in pvisor("undo", cwd=workspace, code=3).err


def test_undo_says_that_the_workspace_is_gone(agent, pvisor, workspace):
    agent("echo more >> README.md")
    job = apply_json(pvisor, workspace, "--all")["job"]
    workspace.rename(workspace.with_name("elsewhere"))
    refused = pvisor("undo", job, cwd=workspace.parent, code=1).err
    assert f"{workspace}: No such file or directory" in refused and "descriptor" not in refused
    workspace.with_name("elsewhere").rename(workspace)
    pvisor("undo", job, cwd=workspace)


def test_what_was_tried_is_not_hinted_at_again(agent, pvisor, workspace):
    agent("echo more >> docs/guide.txt")
    (workspace / "docs").rename(workspace / "moved")
    (workspace / "docs").write_text("the person's\n")
    refused = pvisor("apply", "--path", "docs/guide.txt", "--overwrite", "docs/guide.txt", cwd=workspace, code=3).err
    assert "a directory above it was removed or replaced" in refused
    assert "--overwrite" not in refused and "--exclude" in refused and "pvisor drop" in refused
    agent("echo more >> README.md; echo more >> src/main.py")
    for name in ("README.md", "src/main.py"):
        (workspace / name).write_text("the person's\n")
    refused = pvisor("apply", "--path", "README.md", "--path", "src/main.py", "--overwrite", "README.md", cwd=workspace,
                     code=3).err
    assert "src/main.py" in refused and "--overwrite PATH" in refused


def test_undo_of_batches_newest_first(agent, pvisor, workspace):
    agent("echo 1 > a; echo 2 > b")
    pvisor("apply", "--path", "a", cwd=workspace)
    pvisor("apply", "--path", "b", cwd=workspace)
    listed = json.loads(pvisor("undo", "--list", "--json", cwd=workspace).out)["batches"]
    assert [b["paths"] for b in listed] == [1, 1]
    pvisor("undo", cwd=workspace)
    assert (workspace / "a").exists() and not (workspace / "b").exists()
    pvisor("undo", cwd=workspace)
    assert not (workspace / "a").exists()
    assert "nothing to undo" in pvisor("undo", cwd=workspace, code=2).err


def test_undo_refuses_what_was_changed_since(agent, pvisor, workspace):
    agent("echo 1 > a; echo 2 >> README.md")
    pvisor("apply", "--all", cwd=workspace)
    (workspace / "a").write_text("mine\n")
    result = pvisor("undo", cwd=workspace, code=3)
    assert "a" in result.err and (workspace / "a").read_text() == "mine\n"
    assert (workspace / "README.md").read_text().endswith("2\n")


# ---- drop ----

def test_drop_then_apply_is_refused(agent, pvisor, workspace):
    agent("echo 1 > a")
    before = tree.snapshot(workspace)
    pvisor("drop", cwd=workspace)
    assert "dropped" in pvisor("apply", "--all", cwd=workspace, code=1).err
    tree.assert_same(before, tree.snapshot(workspace))


def test_drop_of_a_part(agent, pvisor, workspace):
    agent("echo 1 > a; echo 2 > b; rm README.md; echo x > .envrc")
    pvisor("drop", "--path", "a", "--path", "README.md", "--path", ".envrc", cwd=workspace)
    told = apply_json(pvisor, workspace, "--all")
    assert told["selected"]["paths"] == ["b"] and told["left"] == {}
    assert not (workspace / "a").exists() and (workspace / "README.md").exists()


def test_drop_dry_run(agent, pvisor, workspace):
    agent("echo 1 > a; echo 2 > b")
    assert "would drop 2 changes" in pvisor("drop", "--dry-run", cwd=workspace).err
    assert "would drop 1 change " in pvisor("drop", "--dry-run", "--path", "a", cwd=workspace).err
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "a").exists() and (workspace / "b").exists()


def test_undo_after_apply_and_drop(agent, pvisor, workspace):
    agent("echo 1 > a; echo 2 > b")
    pvisor("apply", "--path", "a", cwd=workspace)
    pvisor("drop", cwd=workspace)
    assert not (workspace / "b").exists() and (workspace / "a").exists()
    pvisor("undo", cwd=workspace)
    assert not (workspace / "a").exists()


# ---- git ----

def test_commits_stay_and_are_named(agent, pvisor, git, workspace):
    head = git("rev-parse", "HEAD", cwd=workspace)
    agent("echo 1 > a; git add a; git commit -qm 'A fine commit'; echo 2 > b")
    result = pvisor("apply", "--all", cwd=workspace)
    assert "A fine commit" in result.out and "main" in result.out
    assert ".git/objects" not in result.out and "index" not in result.out
    assert git("rev-parse", "HEAD", cwd=workspace) == head
    assert git("status", "--porcelain", cwd=workspace).splitlines() == ["?? a", "?? b"]


def test_git_raw_takes_the_git_directory_literally(agent, pvisor, git, workspace):
    agent("echo 1 > a; git add a; git commit -qm 'A fine commit'")
    pvisor("apply", "--all", "--git-raw", cwd=workspace)
    assert git("log", "-1", "--format=%s", cwd=workspace) == "A fine commit\n"
    git("fsck", "--strict", cwd=workspace)


def test_host_git_status_makes_no_conflict(agent, pvisor, git, workspace):
    agent("echo 1 > a; git status -s")
    git("status", cwd=workspace)
    os.utime(workspace / "src")
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "a").exists()


def test_staged_git_configuration_runs_nothing_on_the_host(agent, pvisor, workspace, temporary):
    bait = temporary / "ran-on-the-host"
    agent(f"""
        printf '#!/bin/sh\\ntouch {bait}\\n' > trap.sh; chmod +x trap.sh
        git config core.fsmonitor "$PWD/trap.sh"; git config core.hooksPath "$PWD/hooks"
        git config filter.x.clean "$PWD/trap.sh"; git config diff.external "$PWD/trap.sh"
        echo '* filter=x' > .gitattributes; echo new > new.txt
        git add -A; git commit -qm trap || true
    """)
    for command in (["review"], ["apply", "--all", "--dry-run"], ["apply", "--all", "--exclude", "trap.sh"], ["undo"],
                    ["drop", "--path", "new.txt"]):
        pvisor(*command, cwd=workspace)
        assert not bait.exists(), command


# ---- recovery ----

@pytest.mark.parametrize("command", [["apply", "--all"], ["undo"], ["drop"], ["checkpoint"],
                                     ["run", "--continue", "last", "--", "true"]])
def test_the_next_command_finishes_what_a_crash_left_and_says_so(agent, pvisor, run, pv, workspace, command, environment):
    """apply is killed at its first exchange; whatever comes next puts the target right and tells it in one line."""
    before = tree.snapshot(workspace)
    agent("echo 1 >> README.md; echo 2 >> src/main.c; echo 3 >> docs/guide.txt")
    killed = run(["strace", "-f", "-o", "/dev/null", "-e", "inject=renameat2:signal=KILL:when=2", pv, "apply", "--all"],
                 cwd=workspace)
    assert killed.code != 0
    if "Operation not permitted" in killed.err:
        pytest.skip("no ptrace here")
    (job,) = jobs.job_dirs(environment)
    assert (job / "stage/journal").exists()
    result = pvisor(*command, cwd=workspace, code=None)
    said = [line for line in result.err.splitlines() if "batch" in line or "cut short" in line or "taken back" in line]
    assert said, result
    if command[0] in ("drop", "checkpoint", "run"):
        tree.assert_same(before, tree.snapshot(workspace))
    if command[0] == "apply":
        assert (workspace / "README.md").read_text().endswith("1\n")
    assert not (job / "stage/journal").exists() or command[0] == "apply"


@pytest.fixture
def cut_short(run, pv, workspace):
    """cut_short(call, number): an apply of everything, killed at that call of its."""
    def call(name, when):
        killed = run(["strace", "-f", "-o", "/dev/null", "-e", f"inject={name}:signal=KILL:when={when}", pv, "apply",
                      "--all"], cwd=workspace)
        assert killed.code != 0
        if "Operation not permitted" in killed.err:
            pytest.skip("no ptrace here")
    return call


@pytest.mark.parametrize("command", [["review"], ["diff"], ["run", "--stage", "--", "true"]], ids=lambda c: c[0])
def test_looking_and_running_clear_away_the_copies_of_an_apply_that_was_killed(command, agent, pvisor, cut_short, workspace,
                                                                               environment, tmpfs):
    """The store is on another file system, so that what is new lies beside what it replaces for a while."""
    environment["PVISOR_HOME"] = str(tmpfs / "store")
    before = tree.snapshot(workspace)
    agent("echo 1 >> README.md; echo 2 >> src/main.c; echo 3 > new")
    cut_short("copy_file_range", 1)
    assert list(workspace.rglob(".pvisor-*")), "nothing was left: this tests nothing"
    pvisor(*command, cwd=workspace)
    assert not list(workspace.rglob(".pvisor-*"))
    tree.assert_same(before, tree.snapshot(workspace))


@pytest.mark.parametrize("by", ["file", "link", "socket", "directory"])
def test_what_is_replaced_under_a_copy_of_it_is_a_conflict(by, pvisor, pv, make_workspace, environment, tmpfs):
    """At whichever opening of the host's file that happens, the store on another file system: nothing else fails."""
    environment["PVISOR_HOME"] = str(tmpfs / "store")
    opened = 0
    for number in range(1, 100):
        workspace, acted = make_workspace(git=False, name=f"p{number}", files={"one": "old\n", "other": "o\n"}), []

        def replace(_):
            acted.append(True)
            new = workspace / "new"
            if by == "file":
                new.write_text("the host's\n")
            elif by == "link":
                new.symlink_to("other")
            elif by == "socket":
                os.mknod(new, stat.S_IFSOCK | 0o600)
            else:
                new.mkdir()
                (workspace / "one").unlink()
            new.rename(workspace / "one")

        pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo new > one", cwd=workspace)
        code, _, err = stepping.act_at([pv, "apply", "--all"], number, replace, stepping.opens("one"), cwd=workspace,
                                       env=environment)
        if not acted:
            assert code == 0, err
            break
        opened += 1
        if code == 0:  # after the last look: what is there is the agent's or the host's
            continue
        assert code == 3, err
        assert not (workspace / "one").is_file() or (workspace / "one").read_text() in ("the host's\n", "o\n")
    assert opened > 2


def test_a_batch_that_cannot_be_finished_can_be_given_up(agent, pvisor, cut_short, workspace, environment):
    """Others are kept from the target until then, with the way out named; both versions are still there, and said where."""
    agent("echo new > README.md; echo new > src/main.c; echo new > added")
    (first,) = jobs.job_dirs(environment)
    old = {name: (workspace / name).read_text() for name in ("README.md", "src/main.c")}
    cut_short("renameat2", 3)
    backup, aside = first / "stage/backup", first / "stage/aside"
    backup.rename(aside)
    backup.write_text("no directory")
    agent("echo other > other")
    refused = pvisor("apply", "--all", cwd=workspace, code=1)
    assert f"pvisor undo --abandon {first / 'stage'}" in refused.err
    refused = pvisor("apply", first.name, "--all", cwd=workspace, code=1)
    assert f"pvisor undo --abandon {first.name}" in refused.err
    backup.unlink()
    aside.rename(backup)
    given_up = json.loads(pvisor("undo", "--abandon", "--json", first.name, cwd=workspace).out)
    held = {Path(p["path"]).relative_to(workspace): p for p in given_up["paths"]}
    assert {str(name) for name in held} >= {"README.md", "src/main.c", "added"}
    assert {p["holds"] for p in given_up["paths"]} == {"old", "new"}, "the kill came too early or too late"
    for name, text in old.items():
        p = held[Path(name)]
        assert (workspace / name).read_text() == (text if p["holds"] == "old" else "new\n")
        assert Path(p["other"]).read_text() == ("new\n" if p["holds"] == "old" else text)
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "other").exists()
    assert "no batch" in pvisor("undo", "--abandon", first.name, cwd=workspace, code=1).err


def test_a_batch_with_an_unreadable_journal_can_be_given_up(agent, pvisor, cut_short, workspace, environment):
    agent("echo new > README.md; echo new > src/main.c")
    (job,) = jobs.job_dirs(environment)
    cut_short("renameat2", 2)
    (job / "stage/journal").write_bytes(b"damaged")
    result = pvisor("undo", "--abandon", cwd=workspace)
    assert "cannot be read" in result.err
    agent("echo other > other")
    pvisor("apply", "--all", cwd=workspace)


def test_a_limit_on_the_size_of_files_is_an_error_and_no_death(run, pv, pvisor, plain, environment, tmpfs):
    """What is copied is beyond `ulimit -f`: nothing is applied, nothing is left lying; the command keeps its SIGXFSZ."""
    environment["PVISOR_HOME"] = str(tmpfs / "store")
    pvisor("run", "--stage", "--", "sh", "-c", "head -c 300000 /dev/zero > README.md; echo 1 > added", cwd=plain)
    before = tree.snapshot(plain)
    result = run(["bash", "-c", 'ulimit -f 100; exec "$0" apply --all', pv], cwd=plain)
    assert result.code == 1 and "File too large" in result.err, result
    tree.assert_same(before, tree.snapshot(plain))
    pvisor("apply", "--all", cwd=plain)
    result = run(["bash", "-c", 'ulimit -f 0; exec "$0" undo', pv], cwd=plain)
    assert result.code == 1 and "File too large" in result.err, result
    pvisor("undo", cwd=plain)
    tree.assert_same(before, tree.snapshot(plain))
    assert pvisor("run", "--stage", "--max-file-size", "100000", "--", "head", "-c", "300000", "/dev/zero", cwd=plain,
                  code=None).code == 0
    assert pvisor("run", "--stage", "--max-file-size", "100000", "--", "sh", "-c", "exec head -c 300000 /dev/zero > README.md",
                  cwd=plain, code=None).code == 128 + signal.SIGXFSZ


@pytest.mark.parametrize("limit", ["-Sn", "-n"])
def test_threads_share_the_descriptors_that_there_are(run, pv, pvisor, plain, limit):
    """Each thread holds the directories above its files open: of a deep tree more than one has room for."""
    deep = "/".join("d" * 90)
    (plain / deep).mkdir(parents=True)
    for i in range(300):
        (plain / deep / f"f{i}").write_text("1\n")
    before = tree.snapshot(plain)
    pvisor("run", "--stage", "--", "sh", "-c", f"cd {deep}; for f in *; do echo 2 > $f; done", cwd=plain)
    for command in ("apply --all", "undo"):
        result = run(["bash", "-c", f'ulimit {limit} 240; exec "$0" {command}', pv], cwd=plain)
        assert result.code == 0, result
        assert (plain / deep / "f299").read_text() == ("2\n" if command == "apply --all" else "1\n")
    tree.assert_same(before, tree.snapshot(plain))


def test_the_store_is_never_a_change(pvisor, environment, temporary, home):
    """HOME as the workspace: the command sees no store; what it makes in its place, or removes above it, is not taken."""
    (home / "file").write_text("1\n")
    stage = temporary / "stage"
    script = "echo 2 > file; mkdir -p .local/state/pvisor/jobs; echo x > .local/state/pvisor/jobs/x; echo y > .local/y"
    pvisor("run", f"--stage={stage}", "--workspace", home, "--", "sh", "-c", script, cwd=home)
    held = sorted(p for p in jobs.store(environment).rglob("*"))
    for options in (["--all"], ["--path", ".local"], ["--overwrite", ".local"], ["--all", "--overwrite", ".local"]):
        result = pvisor("apply", *options, cwd=home, code=None)
        assert result.code in (3, 6), result
    assert result.code == 6 and "pVisor's own" in result.err, result
    assert sorted(p for p in jobs.store(environment).rglob("*") if p in held) == held
    pvisor("apply", "--path", "file", cwd=home)
    assert (home / "file").read_text() == "2\n"
    pvisor("run", f"--stage={temporary / 'other'}", "--workspace", home, "--", "rm", "-rf", ".local", cwd=home)
    assert pvisor("apply", "--all", "--overwrite", ".local", cwd=home, code=None).code == 6
    assert sorted(p for p in jobs.store(environment).rglob("*") if p in held) == held


def test_another_directory_in_the_workspaces_place_is_told(pvisor, plain, temporary):
    pvisor("run", "--stage", "--", "sh", "-c", "echo 1 > new", cwd=plain)
    assert "another directory" not in pvisor("review", cwd=plain).out
    plain.rename(temporary / "moved")
    plain.mkdir()
    assert "another directory" in pvisor("review", cwd=plain).out
    assert "another directory" in pvisor("apply", "--all", "--dry-run", cwd=plain).err
    plain.rmdir()
    (temporary / "moved").rename(plain)
    assert "another directory" not in pvisor("apply", "--all", cwd=plain).err
