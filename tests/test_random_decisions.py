# SPDX-License-Identifier: Apache-2.0
"""Random decisions on several jobs of one workspace, with edits of the host between them.

What test_random_sequences.py leaves out: selections by pattern, --merge, --markers and --overwrite, batches taken back
in any order, a job and its forks decided on in turn. What must hold after each step:

- no content is ever lost: what the host or a view had is on the host or in the store, unless a person or a command wrote
  over it, or it was dropped;
- an apply leaves each path of the host as it was or as the view has it;
- what is refused changes nothing;
- while the person has edited nothing, what `review` lists is what the host and the view differ in, and the patch of
  `diff` makes the view of the host.

PV_TEST_SEED and PV_TEST_SEQUENCES as there.
"""
import hashlib
import json
import os
import shutil
import stat
import subprocess

import pytest

from lib import acts
from test_random_sequences import EVERYTHING, Sequence, seeds

SEEDS = {"whole": [2009], "killed": [3], "elsewhere": [4]}


def contents(top):
    """Hashes of all files below that are not empty, with one path of each, whatever the modes are."""
    found, closed = {}, []
    pending = [os.fsencode(top)]
    while pending:
        directory = pending.pop()
        mode = stat.S_IMODE(os.lstat(directory).st_mode)
        if mode & 0o700 != 0o700:
            closed.append((directory, mode))
            os.chmod(directory, mode | 0o700)
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                st = entry.stat(follow_symlinks=False)
                if not st.st_mode & 0o400:
                    continue
                with open(entry.path, "rb") as f:
                    data = f.read()
                if data:
                    found[hashlib.sha256(data).hexdigest()] = entry.path
    for directory, mode in reversed(closed):
        os.chmod(directory, mode)
    return found


def is_file(value):
    return value is not None and stat.S_ISREG(value[0])


def sayable(tree):
    """What a patch in git's form can say of a tree: files with their x bit, and links."""
    return {path: (kind, mode & 0o100 if stat.S_ISREG(kind) else 0, content, target)
            for path, (kind, mode, content, target, _) in tree.items() if stat.S_ISREG(kind) or stat.S_ISLNK(kind)}


class Decisions(Sequence):
    def __init__(self, pv, seed, base, environment, kills):
        self.jobs, self.clean = [], True
        super().__init__(pv, seed, base, environment, kills)
        self.store = environment.get("PVISOR_HOME") or environment["HOME"] + "/.local/state/pvisor"

    # ---- several jobs ----

    def start(self, *how):
        super().start(*how)
        if self.job not in self.jobs:
            self.jobs.append(self.job)
        self.edited = self.edited or not self.clean

    def edit(self, count=None):
        super().edit(count)
        if self.jobs:
            self.clean = False

    def choose(self):
        """What another job puts there is an edit to this one."""
        self.job = self.random.choice(self.jobs)
        self.edited = not self.clean or len(self.jobs) > 1

    # ---- what must hold ----

    def keep(self, act):
        """Nothing of what the host and the jobs had is lost by what act does."""
        host, view = self.host(), self.view()
        wanted = {value[2]: path for tree in (host, view) for path, value in tree.items() if is_file(value)}
        wanted.pop(hashlib.sha256(b"").hexdigest(), None)
        act(host, view)
        have = {**contents(self.here), **contents(self.store)}
        lost = [(path, value) for value, path in wanted.items() if value not in have]
        assert not lost, self.told(f"lost: {lost[:5]}")

    def patterns(self, host, view):
        """Options that choose something; the paths they name literally."""
        paths = sorted(p for p in {*host, *view} if host.get(p) != view.get(p))
        names = [os.path.basename(p) for p in paths if b"\n" not in p]
        some = [os.fsdecode(n) for n in self.random.sample(names, min(len(names), self.random.randrange(1, 3)))]
        how = self.random.randrange(4)
        if how == 0 or not some:
            return ["--all"]
        if how == 1:
            return [w for n in some for w in ("--include", n)]
        if how == 2:
            return ["--all", *[w for n in some for w in ("--exclude", n)]]
        return self.selection(host, view) or ["--all"]

    # ---- the steps ----

    def apply(self):
        def act(host, view):
            killed, settling = self.is_killed(), []
            if self.edited:
                settling = self.random.choice([[], [], ["--merge"], ["--markers"], ["--overwrite"]])
                if settling == ["--overwrite"]:
                    path = self.random.choice(sorted({*host, *view}) or [b"none"])
                    settling = ["--overwrite", os.fsdecode(b"./" + path)]
            chosen = self.patterns(host, view)
            options = [o for o in EVERYTHING if self.random.random() < .7]
            code, _ = self.call("apply", self.job, *chosen, *options, *settling, killed=killed)
            if killed and code:
                self.recovers()
            elif code:
                assert code == 2 and len(chosen) > 1 or code in (2, 3) and self.edited, self.told("apply failed")
                self.same(self.host(), host, "apply changed what it refused to")
            if not settling or settling[0] == "--overwrite":
                self.either(self.host(), host, view, "apply: the host has what neither had")
            if not self.edited:
                self.same_view(view, "an apply changed the view")
        self.choose()
        self.keep(act)

    def undo(self):
        def act(host, view):
            killed = self.is_killed()
            standing = self.standing()
            which = ["--batch", self.random.choice(standing)["batch"]] if standing and self.random.random() < .6 else []
            code, _ = self.call("undo", self.job, *which, killed=killed)
            if killed and code:
                self.recovers()
            elif code:
                assert code == 2 and not standing or code == 3, self.told("undo failed")
                self.same(self.host(), host, "undo changed what it refused to")
            left = self.standing()
            assert len(standing) - len(left) in (0, 1), self.told("undo took back more than one")
            if len(standing) == len(left):
                self.same(self.host(), host, "no batch was taken back, but the host changed")
            if not self.edited:
                self.same_view(view, "an undo changed the view")
        self.choose()
        self.keep(act)

    def drop(self):
        self.choose()
        host, view = self.host(), self.view()
        chosen = [w for w in self.patterns(host, view) if w != "--all"] or ["--include", "a"]
        if chosen[0] == "--exclude":
            chosen = ["--include", "b"] + chosen
        self.call("drop", self.job, *chosen, killed=self.is_killed())
        self.same(self.host(), host, "a drop changed the host")
        self.recovers()
        if json.loads(self.call("status", "--json", self.job)[1])["dropped"]:
            self.jobs.remove(self.job)
            if not self.jobs:
                self.start()
        elif not self.edited:
            self.either(self.view(), host, view, "drop: the view has what neither had")

    def checkpoint(self):
        self.choose()
        self.keep(lambda *_: super(Decisions, self).checkpoint())

    def fork(self):
        self.choose()
        kept = self.clean
        self.keep(lambda *_: super(Decisions, self).fork())
        self.jobs.append(self.job)
        self.clean = kept
        self.edited = not kept

    def go_on(self):
        self.choose()
        super().go_on()

    def review(self):
        self.choose()
        host, view = self.host(), self.view()
        code, out = self.call("review", "--json", self.job)
        assert code == 0, self.told("review failed")
        if self.edited:
            return
        listed = set()
        for change in json.loads(out)["filesystem"]["changes"]:
            path = change["path"]
            listed.add(bytes.fromhex(path["bytes"]) if isinstance(path, dict) else os.fsencode(path))
        differ = {p for p in {*host, *view} if host.get(p) != view.get(p)}
        # A directory that goes whole, or comes whole, may stand for what is in it.
        missing = [p for p in differ - listed if not any(p.startswith(d + b"/") for d in listed
                                                         if (d in host) != (d in view) or host[d][0] != view[d][0])]
        assert not missing, self.told(f"review does not list {missing[:5]}")

    def patch(self):
        self.choose()
        host, view = self.host(), self.view()
        code, out = self.call("diff", "--binary", "--ignored", self.job)
        assert code == 0, self.told("diff failed")
        odd = [v for tree in (host, view) for v in tree.values() if not (
            stat.S_ISREG(v[0]) or stat.S_ISDIR(v[0]) or stat.S_ISLNK(v[0]))]
        if self.edited or odd:  # a patch cannot say what stands in the way of it
            return
        copy = self.here.parent / "copy"
        subprocess.run(["cp", "-a", self.here, copy], check=True)
        subprocess.run(["find", copy, "-type", "d", "-exec", "chmod", "u+rwx", "{}", "+"], check=True)
        subprocess.run(["find", copy, "-type", "f", "-exec", "chmod", "u+rw", "{}", "+"], check=True)
        try:
            if any(not line.startswith(b"#") for line in out.splitlines()):
                done = subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=copy, input=out,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment)
                assert done.returncode == 0, self.told(f"git apply: {done.stdout[:1000]}")
            made, wanted = sayable(acts.look(os.fsencode(copy))), sayable(view)
            self.same(made, wanted, "the patch makes something else than the view has")
        finally:
            shutil.rmtree(copy)

    def play(self, steps):
        for _ in range(steps):
            getattr(self, self.random.choice(["apply"] * 5 + ["undo"] * 4 + ["drop"] + ["review"] * 2 + ["patch"] * 2 +
                                             ["edit", "checkpoint", "fork", "go_on"]))()
        self.recovers()


def played(kind):
    return [pytest.param(kind, seed, id=f"{kind}-{seed}") for seed in seeds(SEEDS[kind])]


@pytest.mark.parametrize("kind,seed", [p for kind in SEEDS for p in played(kind)])
def test_no_decision_loses_what_anybody_wrote(kind, seed, pv, temporary, environment, tmpfs):
    """killed: commands are, on the way; elsewhere: the store is on another file system, so that nothing can be renamed."""
    if kind == "elsewhere":
        environment["PVISOR_HOME"] = str(tmpfs / "store")
    Decisions(pv, seed, temporary, environment, kind == "killed").play(12)
