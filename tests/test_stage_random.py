# SPDX-License-Identifier: Apache-2.0
"""Running through a stage and applying everything is the same as running directly; undo is the way back.

Random scripts (lib/random_script.py) run on one copy of a tree directly, on another through `run` and `apply`. More
seeds on demand: PV_SEEDS=1000-3000 ./dev test tests/test_stage_random.py. A failing seed is kept with both logs.
"""
import contextlib
import ctypes
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SLOWNESS
from lib import filesystems, random_script, tree

SCRIPT = Path(random_script.__file__).read_text()
CLONE_NEWUSER = 0x10000000
STEPS = 60
A_TEST = 10  # seeds
# Seeds that once failed are run always.
ONCE_FAILED = []
ALL = ["--all", "--ignored", "--git-raw", "--keep-times"]


def seeds():
    first, _, last = os.environ.get("PV_SEEDS", "0-149").partition("-")
    numbers = [*ONCE_FAILED, *range(int(first), int(last or first) + 1)]
    return [numbers[i:i + A_TEST] for i in range(0, len(numbers), A_TEST)]


def settled(snapshot):
    """Times that are those of the test itself say only that something was written."""
    recent = (random_script.EPOCH + 10**7) * 10**9
    return {name: tree.Entry(**{**e.__dict__, "mtime_ns": min(e.mtime_ns, recent)}) for name, e in snapshot.items()}


def enter_user_namespace():
    """One with the same ids, as the boundary's: there set-id bits go the way they go in the view."""
    ready, go = os.pipe()
    helper = os.fork()
    if helper == 0:  # still outside: it may write the maps
        os.read(ready, 1)
        root, me = os.geteuid() == 0, os.getppid()
        for kind, own in (("uid", os.geteuid()), ("gid", os.getegid())):
            if not root and kind == "gid":
                Path(f"/proc/{me}/setgroups").write_text("deny")
            Path(f"/proc/{me}/{kind}_map").write_text("0 0 4294967295" if root else f"{own} {own} 1")
        os._exit(0)
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(go, b"x")
    if os.waitpid(helper, 0)[1]:
        raise OSError("the maps of the user namespace")


def as_in_the_boundary(command):
    """Root keeps there what it needs for files, and nothing else."""
    kept = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid"
    return ["setpriv", "--bounding-set", kept, *command] if os.geteuid() == 0 else command


def snapshot(where):
    """lib.tree's, taken by a process with rights over its own files: opening them up would change them."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        enter_user_namespace()
        tree._access = lambda path, st: contextlib.nullcontext()
        with os.fdopen(send, "wb") as f:
            pickle.dump(tree.snapshot(where), f)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as f:
        data = f.read()
    assert os.waitpid(child, 0)[1] == 0, "no snapshot"
    return pickle.loads(data)


def assert_same_log(staged, direct):
    for i, (x, y) in enumerate(zip(staged, direct)):
        assert x == y, f"operation {i}: staged {x}, direct {y}"
    assert len(staged) == len(direct)


class Pair:
    """Two equal trees, one for each way."""

    def __init__(self, base, seed, pvisor, options=()):
        self.seed, self.pvisor, self.options = seed, pvisor, options
        self.base = base / f"seed-{seed}"
        self.direct, self.staged = self.base / "direct", self.base / "staged"
        for where in (self.direct, self.staged):
            where.mkdir(parents=True)
            self.python(where, "build")
        self.before = snapshot(self.staged)

    def command(self, what):
        return [sys.executable, "-c", SCRIPT, what, str(self.seed), str(STEPS)]

    def python(self, where, what):
        return subprocess.run(as_in_the_boundary(self.command(what)), cwd=where, check=True, capture_output=True,
                              text=True, preexec_fn=enter_user_namespace).stdout

    def run_both(self):
        self.direct_log = self.python(self.direct, "run")
        self.staged_log = self.pvisor("run", "-q", "--stage", *self.options, "--", *self.command("run"), cwd=self.staged).out
        assert_same_log(self.staged_log.splitlines(), self.direct_log.splitlines())
        tree.assert_same(snapshot(self.staged), self.before, dir_times=True)

    def apply(self, *selection):
        self.pvisor("apply", "-q", *selection, cwd=self.staged)

    def assert_equal(self):
        tree.assert_same(settled(snapshot(self.staged)), settled(snapshot(self.direct)))

    def assert_undone(self):
        tree.assert_same(snapshot(self.staged), self.before)

    def keep(self, where):
        where = where / f"seed-{self.seed}"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        for name in ("direct_log", "staged_log"):
            (where / name).write_text(getattr(self, name, ""))


def check_whole(pair):
    pair.run_both()
    pair.apply(*ALL)
    pair.assert_equal()
    pair.pvisor("undo", "-q", cwd=pair.staged)
    pair.assert_undone()
    pair.apply(*ALL)
    pair.assert_equal()


def check_in_parts(pair):
    """Half of what lies at the top by name, then the rest; what belongs together comes along."""
    pair.run_both()
    top = sorted({name.partition(b"/")[0] for name in [*pair.before, *snapshot(pair.direct)]} - {b"."})
    chosen = random.Random(pair.seed).sample(top, len(top) // 2)
    if chosen:
        paths = [part for name in chosen for part in ("--path", os.fsdecode(b"./" + name))]
        pair.pvisor("apply", "-q", *ALL[1:], *paths, cwd=pair.staged, code=None)  # there may be nothing of them
    pair.apply(*ALL)
    pair.assert_equal()


def check_all(seeds_, base, pvisor, kept, check, options=()):
    failed = []
    for seed in seeds_:
        pair = Pair(base, seed, pvisor, options)
        try:
            check(pair)
        except (AssertionError, subprocess.CalledProcessError) as e:
            pair.keep(kept)
            failed.append(f"seed {seed}: {e}")
        tree.remove(pair.base)
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("group", seeds(), ids=lambda g: f"{g[0]}-{g[-1]}")
def test_a_random_script_applied_is_the_script_run_directly(group, temporary, pvisor, kept):
    check_all(group, temporary, pvisor, kept, check_whole)


@pytest.mark.parametrize("group", seeds()[:3], ids=lambda g: f"{g[0]}-{g[-1]}")
def test_applied_in_two_parts_it_is_the_same(group, temporary, pvisor, kept):
    check_all(group, temporary, pvisor, kept, check_in_parts)


def some(n, numbers):
    """On an emulated processor, which takes half a minute for one, not all of them."""
    return numbers[:n] if SLOWNESS > 1 else numbers


def fuse_seeds():
    """PV_FUSE_SEEDS=2000-3000 for more of them."""
    first, _, last = os.environ.get("PV_FUSE_SEEDS", "600-619").partition("-")
    numbers = range(int(first), int(last or first) + 1)
    return [numbers[i:i + A_TEST] for i in range(0, len(numbers), A_TEST)]


@pytest.mark.kernel
@pytest.mark.parametrize("group", some(1, fuse_seeds()), ids=lambda g: f"{g[0]}-{g[-1]}")
def test_over_fuse_it_is_the_same(group, temporary, fuse, pvisor, kept):
    check_all(some(3, group), temporary, pvisor, kept, check_whole, ["--stage-backend", "fuse"])


@pytest.mark.kernel
def test_on_the_second_kernel_it_is_the_same(temporary, pvisor, kept):
    check_all(range(400, 404), temporary, pvisor, kept, check_whole)


def refuses_attributes(store, where, pvisor):
    """No stage lies on such a file system, and what is applied to it keeps all that was staged or changes nothing."""
    where.mkdir()
    (where / "f").write_text("old\n")
    if store == "beside it":
        refused = pvisor("run", "--stage", "--", "true", cwd=where, code=5).err
        assert "without extended attributes" in refused and "hint: --stage DIR" in refused
        return
    pvisor("run", "-q", "--stage", "--", "sh", "-euc", "echo new > f; setfattr -n user.one -v 1 f", cwd=where)
    assert "attribute user.one of f: Operation not supported" in pvisor("apply", "--all", cwd=where, code=1).err
    assert (where / "f").read_text() == "old\n"
    pvisor("run", "-q", "--stage", "--", "sh", "-euc", "echo new > f", cwd=where)
    pvisor("apply", "--all", cwd=where)
    assert (where / "f").read_text() == "new\n"


@pytest.mark.kernel
@pytest.mark.parametrize("store", ["beside it", "elsewhere"])
def test_on_every_file_system_it_is_the_same(store, filesystem, environment, pvisor, kept):
    """With the store elsewhere nothing can be exchanged: all is copied."""
    if store == "beside it":
        environment["PVISOR_HOME"] = str(filesystem / "store")
    if not filesystems.takes_attributes(filesystem):  # tmpfs before Linux 6.6
        refuses_attributes(store, filesystem / "project", pvisor)
        return
    check_all(some(1, range(500, 510)), filesystem, pvisor, kept, check_whole)
