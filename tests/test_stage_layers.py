# SPDX-License-Identifier: Apache-2.0
"""What is applied or dropped leaves the layers without a trace: the view shows neither more nor less afterwards.

Sequences over several layers (checkpoints, continued runs, forks), each reduced from a random one that once failed.
"""
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import pv_skip
from lib import tree

# A line for each path: its type and, of a link, where to, of a file, what is in it.
LOOK = r"""find . -mindepth 1 | LC_ALL=C sort | while read -r p; do
        if [ -L "$p" ]; then echo "$p -> $(readlink "$p")"
        elif [ -d "$p" ]; then echo "$p/"
        elif [ -f "$p" ]; then echo "$p $(cat "$p")"
        else echo "$p ?"; fi; done"""
ALL = ("--all", "--keep-times")


class Play:
    """A workspace, in which shell scripts run as the command of a job or on the host."""

    def __init__(self, pvisor, here):
        self.pvisor, self.here = pvisor, here

    def __call__(self, *args):
        return self.pvisor(*args, cwd=self.here)

    def run(self, script, *options):
        self("run", "-q", "--stage", *options, "--", "sh", "-euc", script)

    def run_on(self, script):
        """A job on the layers of the last one, which stay as they are."""
        self("fork", "last", "--", "sh", "-euc", script)

    def run_above(self, script):
        """In the last job itself, with what it had in a layer below."""
        self("checkpoint", "last")
        self.run(script, "--continue", "last")

    def host(self, script):
        subprocess.run(["sh", "-euc", script], cwd=self.here, check=True)

    def on_host(self):
        return subprocess.run(["sh", "-c", LOOK], cwd=self.here, check=True, capture_output=True, text=True).stdout

    def in_view(self):
        return self("inspect", "last", "--", "sh", "-c", LOOK).out

    def apply(self, *what):
        before = self.in_view()
        self("apply", *what, "--keep-times")
        assert self.in_view() == before, "an apply changed the view"

    def apply_all(self):
        self.apply("--all")
        assert self.on_host() == self.in_view()


@pytest.fixture
def play(pvisor, make_workspace):
    return lambda files, where=None: Play(pvisor, make_workspace(files, git=False, where=where))


@pytest.fixture(params=["same", "across"])
def place(request, mounted_filesystems):
    """Where the workspace is: on the stage's file system, or on another, so that nothing can be renamed."""
    if request.param == "same":
        yield None
        return
    if "tmpfs" not in mounted_filesystems:
        pv_skip("no tmpfs: it cannot be mounted here (./dev test, run as root, mounts for both halves)")
    path = Path(tempfile.mkdtemp(prefix="t-", dir=mounted_filesystems["tmpfs"]))
    yield path
    tree.remove(path)


@pytest.mark.kernel
def test_a_stage_of_many_layers(play):
    """A dozen is what fsconfig(2) takes before Linux 6.7: each number is mounted on the way."""
    p = play({"f": "-1\n", "gone": "host\n"})
    p.run("echo 0 > f; echo 0 > f0; rm gone")
    for n in range(1, 20):
        p.run_above(f"[ $(cat f) = {n - 1} ] || exit 9; echo {n} > f; echo {n} > f{n}")
    files = {"f": 19, **{f"f{n}": n for n in range(20)}}
    assert p.in_view() == "".join(f"./{name} {files[name]}\n" for name in sorted(files))
    p.apply_all()


@pytest.mark.kernel
def test_a_directory_held_for_what_was_applied_follows_the_host_again(play):
    p = play({"d/e/a": "old\n", "other": "old\n"})
    p.run("echo new > d/e/a; echo new > other")
    p.apply("--path", "d/e/a")
    p.host("rm -r d; ln -s other d")
    assert "./d -> other\n" in p.in_view()
    p.apply_all()


def test_a_directory_held_for_what_was_dropped_follows_the_host_again(play):
    p = play({"d/e/a": "old\n", "other": "old\n"})
    p.run("echo new > d/e/a; echo new > other")
    p("drop", "--path", "d/e/a")
    p.host("rm -r d; echo file > d")
    assert "./d file\n" in p.in_view()


def test_a_mode_that_is_staged_outlives_what_was_applied_below_it(play):
    p = play({"d/a": "old\n"})
    p.run("echo new > d/a; chmod 700 d")
    p.apply("--path", "d/a")
    assert p("inspect", "last", "--", "stat", "-c", "%a", "d").out == "700\n"


@pytest.mark.parametrize("above", ["echo file > d", "ln -s other d", "mkdir d", "mkdir d; echo new > d/c"],
                         ids=["file", "link", "directory", "directory-with-a-file"])
@pytest.mark.parametrize("how", ["run_above", "run_on"])
def test_what_a_layer_hid_stays_hidden_when_what_hid_it_is_applied(above, how, play):
    p = play({"other": "old\n"})
    p.run("mkdir d d/sub; echo one > d/a; echo two > d/sub/b")
    getattr(p, how)("rm -r d; " + above)
    p.apply_all()


@pytest.mark.parametrize("how", ["run_above", "run_on"])
def test_a_directory_of_the_host_that_a_lower_layer_changed_can_become_a_file(how, play):
    p = play({"d/a": "old\n", "d/b": "old\n"})
    p.run("echo new > d/a; mkdir d/c")
    getattr(p, how)("rm -r d; echo file > d")
    p.apply_all()


@pytest.mark.kernel
@pytest.mark.parametrize("how", ["run_above", "run_on"])
@pytest.mark.parametrize("below", ["rm d; echo file > d", "rm d; mkdir d; echo x > d/x"], ids=["file", "directory"])
def test_what_stands_on_what_hides_the_host_can_be_applied(below, how, play):
    p = play({"d@": "nowhere"})
    p.run(below)
    getattr(p, how)("rm -rf d; mkdir d; echo new > d/c; mkdir d/e; echo new > d/e/f")
    p.apply_all()
    p("undo")
    assert p.on_host() == "./d -> nowhere\n"
    p.apply_all()


def test_what_a_fork_puts_into_its_parents_new_directory_can_be_applied(play):
    p = play({"other": "old\n"})
    p.run("mkdir d; echo one > d/a")
    p.run_on("echo two > d/b; rm d/a")
    p.apply_all()


@pytest.mark.kernel
def test_a_deletion_in_a_directory_made_again_above_a_shared_layer_can_be_applied(play):
    p = play({"d/a": "old\n", "d/b": "old\n"})
    p.run("echo new > d/a; echo new > d/x")
    p.run_on("rm -r d; mkdir d; echo newer > d/b")
    p.apply_all()


def test_dropping_a_link_in_a_fork_does_not_show_what_it_hid_of_the_parents(play):
    p = play({"d/a": "old\n", "other": "old\n"})
    p.run("echo new > d/a; echo new > d/b; mkdir d/c; echo new > d/c/x")
    p.run_on("rm -r d; ln -s other d; echo new > other")
    p("drop", "--path", "d")
    assert p.in_view() == "./d/\n./d/a old\n./other new\n"


@pytest.mark.kernel
def test_dropping_in_a_fork_what_hides_two_layers_leaves_no_names_without_files(play):
    p = play({"d/a": "old\n", "other": "old\n"})
    p.run("echo new > d/b")
    p.run_above("rm -r d; ln -s other d")
    p.run_on("echo new > other")
    p("drop", "--path", "d")
    assert p.in_view() == "./d/\n./d/a old\n./other new\n"


def test_applying_in_a_directory_made_again_above_two_layers_leaves_no_names_without_files(play):
    p = play({"other": "old\n"})
    p.run("mkdir d; echo one > d/a")
    p.run_above("rm -r d; ln -s other d")
    p.run_above("rm d; mkdir d; echo two > d/b; echo two > d/c")
    p.apply("--path", "d/b")
    p.apply_all()


def test_what_is_new_in_a_directory_that_the_host_removed_is_a_conflict(place, play, pvisor):
    p = play({"d/a": "old\n", "other": "old\n"}, place)
    p.run("echo new > d/b; mkdir d/c; echo new > d/c/x")
    p.host("rm -r d")
    result = pvisor("apply", "--all", cwd=p.here, code=3)
    assert "directory above it" in result.err and not (p.here / "d").exists()


@pytest.mark.kernel
def test_a_programs_own_attributes_below_the_overlays_name_come_back_as_they_were(play, pvisor):
    """Or, where overlayfs keeps them for itself (before Linux 6.7), the program hears that they cannot be set."""
    names = ["user.overlay.overlay.x", "user.overlay.x", "user.x"]
    p = play({"f": "old\n"})
    done = pvisor("run", "-q", "--stage", "--", "python3", "-c", "import os, sys\nfor n in sys.argv[1:]: os.setxattr('f', n, n.encode())",
                  *names, cwd=p.here, code=None)
    if done.code:
        assert "Operation not supported: 'f'" in done.err
        p.apply_all()
        assert os.listxattr(p.here / "f") == []
        return
    for _ in range(3):
        p.apply_all()
        assert {n: os.getxattr(p.here / "f", n).decode() for n in sorted(os.listxattr(p.here / "f"))} == {n: n for n in names}
        p("undo")
        assert os.listxattr(p.here / "f") == []


@pytest.mark.kernel
def test_undoing_a_part_of_a_new_directory_shows_the_rest_again(place, play):
    """The rest lies in the layer below the checkpoint, what comes back goes into the one above."""
    p = play({"other": "old\n"}, place)
    p.run("mkdir -p d/e; for n in a b c; do echo new > d/e/$n; done")
    p("checkpoint", "last")
    before = p.in_view()
    p.apply("--path", "d/e/b")
    p("undo")
    assert p.in_view() == before and p.on_host() == "./other old\n"
    p.apply_all()


def test_metadata_of_a_directory_that_the_host_removed_is_a_conflict(play, pvisor):
    p = play({"d/a": "old\n"})
    p.run("chmod 700 d; rm d/a")
    p.host("rm -r d")
    assert "conflict: d:" in pvisor("apply", "--all", cwd=p.here, code=3).err
