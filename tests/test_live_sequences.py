# SPDX-License-Identifier: Apache-2.0
"""Random sequences of acts of a running command and of decisions beside it, some killed, against what must hold.

Two trees are looked at after each step: what the host has, and what the command itself sees. A decision leaves the view
as it is, whatever it does to the host; `apply --all` makes the host the view; an undo makes it what it was before; what
`inspect` shows is what the command sees. Then the command ends, and it goes on as with any job.

PV_TEST_SEED and PV_TEST_SEQUENCES as in test_random_sequences.py.
"""
import ast

import pytest

from lib.live import Agent
from test_random_sequences import EVERYTHING, PYTHON, SOURCE, Sequence, seeds

SEEDS = {"whole": [1, 2], "killed": [5, 6], "elsewhere": [8]}


class LiveSequence(Sequence):
    agent = None

    def start(self, *how):
        self.edited, self.edits, self.batches, self.continued = False, set(), [], False
        self.agent = Agent(self.pv, self.here, self.environment)
        self.job = self.newest()
        self.act()

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
