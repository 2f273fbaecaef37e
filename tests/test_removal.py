# SPDX-License-Identifier: Apache-2.0
"""`drop` and `prune` killed at each call that changes something: never a part of a stage that passes for a whole one, never a
file of anybody else's, and whoever comes next can end it."""
import json

import pytest

from lib import jobs, stepping, tree

COMMANDS = {"drop": ["drop", "job"], "prune": ["prune", "--unapplied"]}
STEPS_MAX = 400


class Scene:
    """A job with two layers of changes and an applied batch; its stage lies in the job's directory or elsewhere."""

    def __init__(self, pvisor, workspace, environment, place):
        self.pvisor, self.workspace, self.environment, self.place = pvisor, workspace, environment, place
        self.before = tree.snapshot(workspace)

    def build(self):
        stage = f"--stage={self.place}" if self.place else "--stage"
        self.pvisor("run", "-q", stage, "--name", "job", "--", "sh", "-euc", "mkdir d; echo 1 >d/1; rm README.md", cwd=self.workspace)
        self.pvisor("checkpoint", "job", cwd=self.workspace)
        [self.job] = jobs.job_dirs(self.environment)
        self.stage = self.place or self.job / "stage"

    def listed(self):
        return [j["id"] for j in json.loads(self.pvisor("list", "--json", cwd=self.workspace).out)["jobs"]]

    def changes(self):
        review = self.pvisor("review", "job", "--json", cwd=self.workspace, code=None)
        return review, [c["path"] for c in json.loads(review.out)["filesystem"]["changes"]] if review.code == 0 else None


@pytest.mark.parametrize("command, where", [("drop", "elsewhere"), ("prune", "own")])
@pytest.mark.timeout(300)
def test_a_removal_killed_at_each_step_can_be_repeated(pv, pvisor, workspace, environment, temporary, command, where):
    mine = temporary / "mine"
    mine.mkdir()
    (mine / "lock").write_text("")
    (mine / "roots").write_text("precious\n")
    scene = Scene(pvisor, workspace, environment, temporary / "elsewhere" if where == "elsewhere" else None)
    seen = set()
    for step in range(1, STEPS_MAX):
        scene.build()
        code, _, err = stepping.kill_at([pv, *COMMANDS[command]], step, stepping.changes_something, cwd=workspace, env=environment)
        assert code in (0, -9), (step, err)
        left = "whole" if (scene.stage / "stage.json").exists() else "marked" if (scene.stage / "stage.unfinished").exists() \
            else "rest" if scene.stage.exists() else "gone"
        seen.add(left)
        if left == "whole":  # all of it, or it would not be called a stage
            assert scene.changes()[1] == ["README.md", "d", "d/1"], step
        elif left == "marked":  # nobody goes on with it, or takes it for a directory that is free
            assert pvisor("run", f"--stage={scene.stage}", "--", "true", cwd=workspace, code=None).code in (1, 2), step
        tree.assert_same(tree.snapshot(workspace), scene.before)
        again = pvisor(*COMMANDS[command], cwd=workspace, code=None)
        assert again.code == 0 or "was dropped" in again.err or not scene.listed(), (step, left, again)
        assert not scene.stage.exists() or left == "rest", (step, left)
        pvisor("prune", "--unapplied", "--damaged", cwd=workspace)
        assert scene.listed() == [] and not scene.stage.exists(), (step, left)
        assert sorted(p.name for p in mine.iterdir()) == ["lock", "roots"]
        if code == 0:
            break
    else:
        raise AssertionError("it never came to its end")
    assert {"whole", "marked", "gone"} <= seen and step > 10, (seen, step)
