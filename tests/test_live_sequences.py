# SPDX-License-Identifier: Apache-2.0
"""Random sequences of acts of a running command and of decisions beside it, some killed, against what must hold.

Two trees are looked at after each step: what the host has, and what the command itself sees. A decision leaves the view
as it is, whatever it does to the host; `apply --all` makes the host the view; an undo makes it what it was before; what
`inspect` shows is what the command sees. Then the command ends, and it goes on as with any job.

PV_TEST_SEED and PV_TEST_SEQUENCES as in test_random_sequences.py.
"""
import ast
import os
import shutil
import stat

import pytest

from lib import acts
from lib.live import Agent
from test_random_sequences import EVERYTHING, PYTHON, SOURCE, Sequence, seeds

SEEDS = {"whole": [1], "killed": [5, 6], "elsewhere": [8]}


class Doubt(Exception):
    """Of a file that the command renamed and changed nobody can tell whether the host deleted it where something landed."""


class LiveSequence(Sequence):
    agent = None

    def call(self, *args, **options):
        code, out = super().call(*args, **options)
        if code == 3 and "may have been deleted on the host" in self.log[-1]:
            raise Doubt
        return code, out

    def start(self, *how):
        self.edited, self.edits, self.batches, self.continued = False, set(), [], False
        self.split_links()
        self.agent = Agent(self.pv, self.here, self.environment)
        self.job = self.newest()
        self.act()

    def split_links(self):
        """Moving one name of a file moves the ctime of all: a name that the command touches later stands in doubt then."""
        for path in acts.walk(os.fsencode(self.here)):
            st = os.lstat(path)
            if stat.S_ISREG(st.st_mode) and st.st_nlink > 1:
                parent = os.path.dirname(path)
                mode = stat.S_IMODE(os.lstat(parent).st_mode)
                os.chmod(parent, mode | 0o700)
                os.chmod(path, st.st_mode | 0o400)
                shutil.copyfile(path, os.path.join(parent, b".split"))
                os.replace(os.path.join(parent, b".split"), path)
                os.chmod(path, stat.S_IMODE(st.st_mode))
                os.chmod(parent, mode)

    def act(self):
        host = self.host()
        words = self.acts("A")
        self.log.append("inside: " + " ".join(words))
        assert self.agent.see(f"subprocess.run({[PYTHON, '-c', SOURCE, *words]!r}).returncode") == 0
        self.same(self.host(), host, "the command changed the host")

    def view(self):
        if self.agent is None:
            return super().view()
        seen = self.agent.see(f"subprocess.run({[PYTHON, '-c', SOURCE, 'look']!r}, capture_output=True).stdout.decode()")
        return ast.literal_eval(seen)

    def inspect(self):
        self.same(super().view(), self.view(), "inspect shows something else than the command sees")

    def end(self):
        view, host = self.view(), self.host()
        agent, self.agent = self.agent, None
        agent.process.stdin.close()
        assert agent.process.wait(60) == 0
        agent.process.stdout.close()
        agent.process.stderr.close()
        self.log.append("the command ends")
        self.same(self.host(), host, "the end of the command changed the host")
        self.same(self.view(), view, "the end of the command changed the view")

    def play(self, steps):
        try:
            for _ in range(steps):
                getattr(self, self.random.choice(["act"] * 4 + ["apply"] * 4 + ["undo"] * 2 + ["inspect", "checkpoint"]))()
            self.end()
            for _ in range(3):
                getattr(self, self.random.choice(["apply", "apply", "undo"]))()
            code, _ = self.call("apply", self.job, "--all", *EVERYTHING)
            assert code == 0, self.told("apply --all at the end failed")
            self.same(self.host(), self.view(), "apply --all at the end")
            self.recovers()
        except Doubt:
            self.recovers()
        finally:
            if self.agent:
                self.agent.process.kill()
                self.agent.process.wait()


def played():
    return [pytest.param(kind, seed, id=f"{kind}-{seed}") for kind in SEEDS for seed in seeds(SEEDS[kind])]


@pytest.mark.parametrize("kind,seed", played())
def test_what_is_decided_beside_a_run_can_always_be_explained(kind, seed, pv, temporary, environment, tmpfs):
    if kind == "elsewhere":
        environment["PVISOR_HOME"] = str(tmpfs / "store")
    LiveSequence(pv, seed, temporary, environment, kind == "killed").play(10)
