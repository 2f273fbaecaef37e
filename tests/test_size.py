# SPDX-License-Identifier: Apache-2.0
"""How large a stage is and may become, and that clearing up takes nothing that somebody has yet to decide on."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from conftest import SLOWNESS

MIB = 1 << 20
WRITE = "head -c 3000000 /dev/urandom > large; "


@pytest.fixture
def running(pv, environment, workspace):
    """running(*options, script) -> a job that runs until its standard input says go."""
    processes = []

    def start(*options, script):
        process = subprocess.Popen([pv, "run", "--stage", *options, "--", "sh", "-euc", script], cwd=workspace, env=environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def store(environment):
    return Path(environment["HOME"]) / ".local/state/pvisor/jobs"


def events(environment, kind):
    found = []
    for log in store(environment).glob("*/events.jsonl"):
        found += [e for e in map(json.loads, log.read_text().splitlines()) if e["event"] == kind]
    return found


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds * SLOWNESS
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def status(pvisor, workspace):
    return json.loads(pvisor("status", "--json", cwd=workspace).out)


# ---- the soft limit ----

def test_a_stage_beyond_its_limit_is_told_once_and_goes_on(running, environment, pvisor, workspace):
    job = running("--stage-max-size", "1MiB", script=WRITE + "read -r _; head -c 2000000 /dev/urandom > more; read -r _")
    wait_for(lambda: events(environment, "stage-size"))
    job.stdin.write("\n")
    job.stdin.flush()
    wait_for(lambda: int(next(store(environment).glob("*/size")).read_text()) > 0)
    _, err = job.communicate("\n", timeout=60)
    assert job.returncode == 0
    assert err.count("the stage has grown to") == 1 and "more than 1.0 MiB" in err
    [event] = events(environment, "stage-size")
    assert event["action"] == "warn" and event["limit"] == MIB and 3000000 < event["bytes"]
    assert status(pvisor, workspace)["end"] == "exited"


def test_a_stage_within_its_limit_is_not_spoken_of(running, environment):
    job = running("--stage-max-size", "1GiB", script=WRITE + "read -r _")
    wait_for(lambda: any(store(environment).glob("*/size")))
    _, err = job.communicate("\n", timeout=60)
    assert job.returncode == 0 and "grown" not in err and not events(environment, "stage-size")


@pytest.mark.parametrize("wish", ["obeys", "ignores"])
def test_stop_ends_the_job_and_keeps_what_it_wrote(wish, running, environment, pvisor, workspace):
    trap = "trap '' TERM; " if wish == "ignores" else ""
    job = running("--stage-max-size", "1MiB:stop", script=trap + WRITE + "while :; do sleep 0.2; done")
    _, err = job.communicate(timeout=60)
    assert job.returncode == 124
    assert err.count("the stage has grown to") == 1 and "ended because its stage grew too large" in err
    told = status(pvisor, workspace)
    assert told["state"] == "ended" and told["end"] == "stage-size" and told["exit_code"] == 124
    assert "stage-size" in pvisor("list", cwd=workspace).out
    bundle = json.loads(pvisor("review", "--json", cwd=workspace).out)
    assert bundle["run"]["exit"]["kind"] == "stage-size"
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "large").stat().st_size == 3000000


def test_the_limit_comes_from_the_configuration_too(running, environment, home):
    (home / ".config/pvisor").mkdir(parents=True)
    (home / ".config/pvisor/config.yaml").write_text("stage-max-size: 1MiB:stop\n")
    job = running(script=WRITE + "while :; do sleep 0.2; done")
    job.communicate(timeout=60)
    assert job.returncode == 124


@pytest.mark.parametrize("wrong", ["1MiB:halt", "much", "1MiB:"])
def test_a_limit_that_is_none_is_refused(wrong, pvisor, workspace):
    assert "--stage-max-size" in pvisor("run", "--stage", "--stage-max-size", wrong, "--", "true", cwd=workspace, code=2).err


# ---- sizes ----

def test_sizes_are_known_without_a_walk_and_follow_decisions(pvisor, workspace):
    pvisor("run", "--stage", "--", "sh", "-c", WRITE, cwd=workspace)
    [listed] = json.loads(pvisor("list", "--json", cwd=workspace).out)["jobs"]
    assert 3000000 < listed["stage_bytes"] < 4000000
    assert "2.9 MiB" in pvisor("list", cwd=workspace).out or "3." in pvisor("list", cwd=workspace).out
    [measured] = json.loads(pvisor("list", "--json", "--size", cwd=workspace).out)["jobs"]
    assert abs(measured["size_bytes"] - listed["stage_bytes"]) < 100000
    pvisor("apply", "--all", cwd=workspace)
    assert status(pvisor, workspace)["stage_bytes"] < 1000000
    pvisor("undo", cwd=workspace)
    assert status(pvisor, workspace)["stage_bytes"] > 3000000
    pvisor("drop", cwd=workspace)
    assert status(pvisor, workspace)["stage_bytes"] < 1000000


def test_the_size_of_a_running_job_is_the_one_last_measured(running, environment, pvisor, workspace):
    job = running(script=WRITE + "read -r _")
    wait_for(lambda: any(store(environment).glob("*/size")))
    assert status(pvisor, workspace)["stage_bytes"] > 3000000
    job.communicate("\n", timeout=60)


# ---- clearing up ----

def pruned(pvisor, workspace, *options):
    told = json.loads(pvisor("prune", "--json", *options, cwd=workspace).out)
    return {r["id"]: r for r in told["removed"]}, {k["id"]: k["why"] for k in told["kept"]}, told["size_bytes"]


def ids(pvisor, workspace):
    return [j["id"] for j in json.loads(pvisor("list", "--json", cwd=workspace).out)["jobs"]]


def test_pruning_says_what_it_frees_and_that_undo_is_lost_before_it_does(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", WRITE, cwd=workspace)
    (workspace / "large").write_bytes(os.urandom(2000000))
    pvisor("apply", "--all", "--overwrite", "large", cwd=workspace)
    [job] = ids(pvisor, workspace)
    removed, kept, _ = pruned(pvisor, workspace)
    assert not removed and "can still be undone" in kept[job]
    removed, kept, size = pruned(pvisor, workspace, "--applied", "--dry-run")
    assert removed[job]["undo_lost"] and removed[job]["size_bytes"] == size > 2000000 and not kept
    assert "could not be undone any more" in pvisor("prune", "--applied", "--dry-run", cwd=workspace).out
    assert ids(pvisor, workspace) == [job]
    assert not pruned(pvisor, workspace, "--applied", "--older", "14d")[0]
    assert job in pruned(pvisor, workspace, "--applied")[0] and ids(pvisor, workspace) == []
    assert (workspace / "large").stat().st_size == 3000000


def test_pruning_what_was_applied_keeps_commits_that_the_host_has_not_got(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-ec", "echo b >> README.md; git commit -qam agent", cwd=workspace)
    pvisor("apply", "--all", cwd=workspace)
    [job] = ids(pvisor, workspace)
    removed, kept, _ = pruned(pvisor, workspace, "--applied")
    assert not removed and "commits" in kept[job]
    assert pruned(pvisor, workspace, "--applied", "--unapplied")[0].keys() == {job}


def test_pruning_what_was_applied_keeps_what_another_job_stands_on(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--name", "base", "--", "sh", "-c", "echo 1 > new", cwd=workspace)
    pvisor("fork", "base", "--", "sh", "-c", "echo 2 > more", cwd=workspace)
    pvisor("apply", "base", "--all", cwd=workspace)
    fork, base = ids(pvisor, workspace)
    removed, kept, _ = pruned(pvisor, workspace, "--applied")
    assert not removed and kept.keys() == {fork, base}
    assert "not decided on" in kept[fork]
    pvisor("drop", fork, cwd=workspace)
    assert base in pruned(pvisor, workspace, "--applied")[0]
