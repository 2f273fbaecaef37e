# SPDX-License-Identifier: Apache-2.0
"""What the person does in the workspace while the command runs is never lost, and what is unrelated is in no way."""
import os
import subprocess

import pytest

from lib import tree

pytestmark = pytest.mark.kernel

FILES = {"edited": "old\n", "left": "old\n", "dir/a": "old\n", "dir/b": "old\n", "gone/x": "old\n", "link@": "left"}


@pytest.fixture
def workspace(filesystem, make_workspace):
    return make_workspace(FILES, git=False, where=filesystem)


@pytest.fixture
def meanwhile(pv, environment, workspace):
    """meanwhile(agent, person, *options of run): the agent's shell text, with the person's run when it says so by `pause`."""
    def call(agent, person, *options):
        script = "pause() { echo ready; read -r _; }\n" + agent
        with subprocess.Popen([pv, "run", "-q", "--stage", *options, "--", "sh", "-euc", script], cwd=workspace, env=environment,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            subprocess.run(["sh", "-euc", person], cwd=workspace, check=True)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(60) == 0
    return call


def refused(pvisor, workspace, job="last"):
    """The paths that stood in the way of applying everything; then nothing was changed."""
    lines = pvisor("apply", job, "--all", cwd=workspace, code=3).err.splitlines()
    return sorted(line.split(":")[1].strip() for line in lines if line.startswith("conflict:"))


EDITS = {
    "written": "echo mine >> edited",
    "replaced": "echo mine > new; mv new edited",
    "same size and time": "printf 'new\\n' > edited; touch -r left edited",
    "deleted": "rm edited",
    "became a link": "ln -sf left edited",
    "chmod": "chmod 600 edited",
}


# A file that was deleted before the agent wrote it is the agent's own.
ORDERS = [(edit, order) for edit in EDITS for order in ("before", "after") if (edit, order) != ("deleted", "before")]


@pytest.mark.parametrize("edit,order", ORDERS, ids=lambda word: word.replace(" ", "-"))
def test_an_edit_of_the_same_file_is_a_conflict(edit, order, meanwhile, pvisor, workspace):
    agent = "pause; echo agent >> edited" if order == "before" else "echo agent >> edited; pause"
    meanwhile("cat edited >/dev/null; " + agent + "; echo x > other", EDITS[edit])
    mine = tree.snapshot(workspace)
    assert "edited" in refused(pvisor, workspace)
    tree.assert_same(tree.snapshot(workspace), mine, dir_times=True)


def test_a_file_that_both_made_is_a_conflict(meanwhile, pvisor, workspace):
    meanwhile("echo agent > fresh; pause", "echo mine > fresh")
    assert refused(pvisor, workspace) == ["fresh"]
    assert (workspace / "fresh").read_text() == "mine\n"


def test_deleting_a_directory_that_gained_a_file_is_a_conflict(meanwhile, pvisor, workspace):
    meanwhile("rm -r gone; pause", "echo mine > gone/mine")
    assert "gone/mine" in refused(pvisor, workspace)
    assert (workspace / "gone/mine").read_text() == "mine\n" and (workspace / "gone/x").exists()


def test_a_directory_put_in_place_of_another_is_a_conflict(meanwhile, pvisor, workspace):
    """The files in it are old, so that their own times say nothing."""
    (workspace / "spare").mkdir()
    (workspace / "spare/a").write_text("mine\n")
    os.utime(workspace / "spare/a", (10**9, 10**9))
    meanwhile("echo agent >> dir/a; pause", "mv dir dir.old; mv spare dir")
    assert refused(pvisor, workspace) == ["dir/a"]


def test_what_is_unrelated_is_in_no_way(meanwhile, pvisor, workspace):
    meanwhile("echo agent >> edited; echo agent >> dir/a; echo n > dir/new; mv gone there; pause",
              "echo mine >> left; echo s > dir/.a.swp; rm dir/.a.swp; echo mine > mine; echo mine >> dir/b; touch dir .;"
              "cat edited > /dev/null; ls -R > /dev/null")
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "edited").read_text() == "old\nagent\n"
    assert (workspace / "dir/a").read_text() == "old\nagent\n"
    assert (workspace / "dir/b").read_text() == "old\nmine\n" and (workspace / "left").read_text() == "old\nmine\n"
    assert (workspace / "there/x").exists() and not (workspace / "gone").exists()
    assert (workspace / "mine").exists()


def test_what_was_done_just_before_the_start_is_no_conflict(pvisor, workspace):
    """However close it is: on a kernel of coarse timestamps a run waits for the next tick."""
    for i in range(20):
        (workspace / "edited").write_text(f"person {i}\n")
        pvisor("run", "-q", "--stage", "--", "sh", "-c", f"grep -q 'person {i}' edited && echo agent >> edited",
               cwd=workspace)
        pvisor("apply", "-q", "--all", cwd=workspace)
        assert (workspace / "edited").read_text() == f"person {i}\nagent\n"


def test_what_is_done_right_after_the_start_is_a_conflict(meanwhile, pvisor, workspace):
    for i in range(5):
        meanwhile("pause; echo agent >> left; echo agent >> edited", f"echo mine {i} >> edited")
        assert refused(pvisor, workspace) == ["edited"]
        pvisor("drop", "-q", cwd=workspace)


def test_a_branch_switched_forth_and_back_is_no_conflict(meanwhile, pvisor, workspace):
    meanwhile("echo agent >> edited; pause", ":")
    subprocess.run(["sh", "-euc", "cp edited keep; echo other > edited; rm edited; cp keep edited; rm keep"],
                   cwd=workspace, check=True)
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "edited").read_text() == "old\nagent\n"


def test_several_jobs_at_once_on_one_workspace(meanwhile, pvisor, workspace, pv, environment):
    """What one brought stands in the way of the other, where both changed it."""
    job = f"{pv} run -q --stage --name second -- sh -c 'echo second >> edited; echo second > second'"
    person = f"HOME='{environment['HOME']}' {job}; HOME='{environment['HOME']}' {pv} apply -q second --all"
    meanwhile("echo first >> edited; echo first >> left; pause", person, "--name", "first")
    assert (workspace / "edited").read_text() == "old\nsecond\n"
    assert refused(pvisor, workspace, "first") == ["edited"]
    pvisor("apply", "first", "--path", "left", cwd=workspace)
    assert (workspace / "left").read_text() == "old\nfirst\n"
