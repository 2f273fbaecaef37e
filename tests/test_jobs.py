# SPDX-License-Identifier: Apache-2.0
"""Jobs in the store: list, status, logs, kill, prune, selectors, checkpoint and fork."""
import json
import os
import signal
import subprocess
import time
import unicodedata
from pathlib import Path

import pytest

from conftest import pv_skip
from lib import jobs, processes, tree

HOSTILE = b"odd\x1b[2J\x1b]0;title\x07\n\xff name"


@pytest.fixture
def listed(pvisor):
    """listed(cwd, *args) -> the jobs that list tells."""
    def call(cwd, *args):
        return json.loads(pvisor("list", "--json", *args, cwd=cwd).out)["jobs"]
    return call


@pytest.fixture
def background(pv, environment):
    """background(args, cwd) -> a running pvisor; what is left of it is killed."""
    started = []

    def start(args, cwd):
        p = subprocess.Popen([pv, *args], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
        started.append(p)
        return p

    yield start
    for p in started:
        if p.poll() is None:
            p.kill()
        p.wait()
        processes.await_session(p.pid)


@pytest.fixture
def wait_staged(environment):
    """Waits until the stage of the one job there is has this path: its script has come so far."""
    def call(path):
        deadline = time.monotonic() + 20
        while not list(jobs.store(environment).glob(f"jobs/*/stage/roots/*/layers/*/{path}")):
            assert time.monotonic() < deadline, f"{path} is not made"
            time.sleep(0.02)
    return call


@pytest.fixture
def wait_started(environment):
    """Waits until so many jobs have started their command."""
    def call(count=1):
        deadline = time.monotonic() + 20
        while True:
            started = [d for d in jobs.job_dirs(environment)
                       if (d / "events.jsonl").exists() and '"started"' in (d / "events.jsonl").read_text()]
            if len(started) >= count:
                return started
            assert time.monotonic() < deadline, "no job has started"
            time.sleep(0.02)
    return call


# ---- the store ----

def test_store_is_private(pvisor, workspace, environment):
    pvisor("run", "--stage", "--stdio", "capture", "--", "true", cwd=workspace)
    top = jobs.store(environment)
    assert top.stat().st_mode & 0o7777 == 0o700
    for path in [p for p in top.rglob("*") if "stage" not in p.relative_to(top).parts and not p.is_symlink()]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_nothing_of_a_run_is_left_but_its_record(pvisor, workspace, environment):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    (job,) = jobs.job_dirs(environment)
    assert {p.name for p in job.iterdir()} == {"request.json", "lock", "state.json", "bundle.json", "events.jsonl", "stage"}


def test_events_tell_the_life_of_a_job(pvisor, workspace, environment):
    pvisor("run", "--stage", "--", "sh", "-c", "echo new > new.txt", cwd=workspace)
    pvisor("apply", "--all", cwd=workspace)
    pvisor("undo", cwd=workspace)
    pvisor("drop", cwd=workspace)
    (job,) = jobs.job_dirs(environment)
    names = [e["event"] for e in jobs.events(job)]
    assert [n for n in names if n in ("created", "started", "ended", "applied", "undone", "dropped")] == [
        "created", "started", "ended", "applied", "undone", "dropped"]


@pytest.mark.parametrize("where", ["read-only", "not-a-directory"])
def test_store_that_cannot_be_made_is_a_clear_error(pvisor, workspace, temporary, is_root, where):
    place = temporary / "place"
    if where == "read-only":
        if is_root:
            pytest.skip("root may write anywhere that is mounted writable")
        place.mkdir(mode=0o555)
    else:
        place.write_text("")
    result = pvisor("run", "--stage", "--", "true", cwd=workspace, env={"PVISOR_HOME": str(place / "store")}, code=125)
    assert "job store" in result.err and "hint: set PVISOR_HOME" in result.err


def test_store_of_somebody_else_is_refused(pvisor, workspace, temporary, is_root):
    if not is_root:
        pytest.skip("needs a second user's directory")
    other = temporary / "other"
    other.mkdir(mode=0o755)
    os.chown(other, 12345, 12345)
    result = pvisor("list", cwd=workspace, env={"PVISOR_HOME": str(other)}, code=6)
    assert "belongs to user 12345" in result.err


# ---- list and status ----

def test_list_shows_state_changes_and_name(pvisor, workspace, listed):
    pvisor("run", "--stage", "--name", "fix", "--", "sh", "-c", "echo 1 > a; echo 2 > b; exit 3", cwd=workspace, code=3)
    (job,) = listed(workspace)
    assert (job["state"], job["exit_code"], job["name"], job["changes"]) == ("ended", 3, "fix", 2)
    text = pvisor("list", cwd=workspace).out
    assert "ended (3)" in text and "fix" in text and "exit 3" in text


def test_list_is_of_this_workspace(pvisor, workspace, make_workspace, listed):
    other = make_workspace(name="other")
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    pvisor("run", "--stage", "--", "true", cwd=other)
    assert len(listed(workspace)) == 1
    assert len(listed(workspace, "--all")) == 2
    assert "1 of other workspaces" in pvisor("list", cwd=workspace).err


def test_list_without_a_store_is_empty(pvisor, workspace, listed):
    assert listed(workspace) == []
    assert pvisor("list", cwd=workspace).out == ""


def test_list_json_goes_to_stdout_alone(pvisor, workspace):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    json.loads(pvisor("list", "--json", cwd=workspace).out)


def test_list_size(pvisor, workspace, listed):
    pvisor("run", "--stage", "--", "dd", "if=/dev/zero", "of=big", "bs=1M", "count=2", "status=none", cwd=workspace)
    (job,) = listed(workspace, "--size")
    assert 2 << 20 <= job["size_bytes"] < 4 << 20
    assert "MiB" in pvisor("list", "--size", cwd=workspace).out


def test_status_tells_of_one_job(pvisor, workspace):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    text = pvisor("status", cwd=workspace).out
    assert "ended, exit code 0" in text and "0 staged" in text
    assert json.loads(pvisor("status", "last", "--json", cwd=workspace).out)["state"] == "ended"


def test_status_review_is_review(pvisor, workspace):
    pvisor("run", "--stage", "--", "sh", "-c", "echo new > new.txt", cwd=workspace)
    assert "new.txt" in pvisor("status", "--review", cwd=workspace).out
    bundle = json.loads(pvisor("status", "--review", "--json", cwd=workspace).out)
    assert bundle["filesystem"]["counts"]["added"] == 1


def test_hostile_names_reach_no_terminal(pvisor, pv, workspace, run):
    make = "import os; open(os.fsencode('odd')+bytes.fromhex('%s'),'w').write('x')" % HOSTILE[3:].hex()
    pvisor("run", "--stage", "--stdio", "capture", "--", "python3", "-c", make, "\x1b[2Jargument", cwd=workspace)
    for command in (["list"], ["status"], ["review"], ["apply", "--all", "--dry-run"], ["apply", "--path", "README.md"],
                    ["drop", "--path", "nothing-such"], ["undo"], ["prune", "--dry-run", "-v"]):
        for pty in (False, True):
            result = run([pv, *command], cwd=workspace, pty=pty)
            text = (result.out + result.err).replace("\r\n", "\n")
            if pty and command == ["review"]:  # its own colours
                continue
            assert jobs.printable(text), (command, pty, text)


# ---- selectors ----

def test_selectors(pvisor, workspace, environment):
    pvisor("run", "--stage", "--name", "first", "--", "true", cwd=workspace)
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    one, two = [p.name for p in jobs.job_dirs(environment)]

    def selected(selector):
        return json.loads(pvisor("status", "--json", *([selector] if selector else []), cwd=workspace).out)["id"]

    newest = selected(None)
    assert newest in (one, two) and selected("last") == newest
    first = selected("first")
    assert {first, newest} == {one, two}
    assert selected(one) == one
    assert selected(one[-4:]) == one
    assert selected(jobs.job_dir(environment, two) / "stage") == two
    assert "ambiguous" in pvisor("status", "run-", cwd=workspace, code=2).err


def test_no_such_job_is_4(pvisor, workspace):
    for command in (["status"], ["logs"], ["kill"], ["drop"], ["undo"], ["apply", "--all"], ["checkpoint"],
                    ["inspect", "--", "true"], ["fork", "--", "true"], ["status", "nope"], ["review", "/nowhere"]):
        result = pvisor(*command, cwd=workspace, code=4)
        assert result.err.startswith("pvisor: "), result.err


def test_last_is_found_from_below_the_workspace(pvisor, plain):
    pvisor("run", "--stage", "--", "true", cwd=plain)
    assert json.loads(pvisor("status", "--json", cwd=plain / "src").out)["workspace"] == str(plain)


# ---- running, lost ----

def test_running_job_is_shown_and_killed(pvisor, workspace, listed, background, marker, wait_started, wait_staged):
    p = background(["run", "--stage", "--", "sh", "-c", f"echo 1 > made; sleep 1000; : {marker}"], workspace)
    wait_started()
    assert [j["state"] for j in listed(workspace)] == ["running"]
    wait_staged("made")
    pvisor("kill", cwd=workspace)
    p.wait(20)
    processes.assert_none(marker, within=2)
    (job,) = listed(workspace)
    assert job["state"] == "ended" and job["end"] in ("killed", "signaled")
    assert job["changes"] == 1


def test_kill_escalates(pvisor, workspace, listed, background, marker, wait_staged):
    background(["run", "--stage", "--", "sh", "-c", f"trap '' TERM; echo 1 > made; while :; do sleep 1; done; : {marker}"],
               workspace)
    wait_staged("made")
    pvisor("kill", "--grace", "300ms", cwd=workspace)
    processes.assert_none(marker, within=2)
    (job,) = listed(workspace)
    assert job["state"] in ("ended", "lost")


def test_a_long_grace_is_kept(pvisor, workspace, listed, background, environment, marker, wait_staged):
    background(["run", "--stage", "--", "sh", "-c", "trap 'sleep 1; echo 2 > last; exit 0' TERM; echo 1 > made; "
                f"while :; do sleep 0.1; done; : {marker}"], workspace)
    wait_staged("made")
    pvisor("kill", "--grace", "4294967297ms", cwd=workspace)  # 1 ms, were its upper half lost
    (job,) = listed(workspace)
    assert job["changes"] == 2
    sent = [e["signal"] for e in jobs.events(jobs.job_dir(environment, job["id"])) if e["event"] == "kill"]
    assert sent == ["TERM"]
    result = pvisor("kill", "--grace", "36501d", cwd=workspace, code=2)
    assert "--grace: '36501d' is longer than 36500d" in result.err


def test_kill_of_an_ended_job_fails(pvisor, workspace):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    assert "does not run" in pvisor("kill", cwd=workspace, code=1).err


def test_lost_job_is_whole(pvisor, workspace, listed, background, environment, marker, wait_started):
    p = background(["run", "--stage", "--", "sh", "-c", f"echo kept > kept.txt; sleep 1000; : {marker}"], workspace)
    wait_started()
    processes.wait_for(marker)
    deadline = time.monotonic() + 10
    while not (list(jobs.store(environment).glob("jobs/*/stage/roots/*/layers/*/kept.txt"))
               and list(jobs.store(environment).glob("jobs/*/bundle.json"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    (job,) = listed(workspace)
    processes.assert_none(marker)
    assert job["state"] == "lost" and job["exit_code"] is None
    bundle = json.loads(pvisor("status", "--review", "--json", cwd=workspace).out)
    assert bundle["run"]["exit"] is None
    assert bundle["safety"]["levels"]["workspace_writes"] is not None  # seen at its start
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "kept.txt").read_text() == "kept\n"


def test_many_jobs_at_once(pvisor, workspace, listed, background):
    started = [background(["run", "--stage", "--name", f"job-{i}", "--", "sh", "-c", f"echo {i} > made"], workspace)
               for i in range(12)]
    assert [p.wait(60) for p in started] == [0] * 12
    found = listed(workspace)
    assert {j["name"] for j in found} == {f"job-{i}" for i in range(12)}
    assert all(j["changes"] == 1 for j in found)
    for i in (3, 7):
        pvisor("apply", f"job-{i}", "--all", "--dry-run", cwd=workspace)


# ---- logs ----

def test_logs_of_captured_output(pvisor, workspace):
    result = pvisor("run", "--stage", "--stdio", "capture", "--", "sh", "-c", "echo out; echo err >&2", cwd=workspace)
    assert "out\n" not in result.out
    logs = pvisor("logs", cwd=workspace)
    assert (logs.out, logs.err) == ("out\n", "err\n")
    assert pvisor("logs", "--only", "stderr", cwd=workspace).out == ""


def test_logs_begin_with_the_last_lines(pvisor, workspace):
    script = "seq 30000; printf last; seq 5 >&2"
    pvisor("run", "--stage", "--stdio", "capture", "--", "sh", "-c", script, cwd=workspace)
    whole = pvisor("logs", "--only", "stdout", cwd=workspace).out
    assert whole.endswith("29999\n30000\nlast")
    for n in (0, 1, 2, 3, 29999, 30001, 999999999):
        tail = "".join(whole.splitlines(keepends=True)[-n:]) if n else ""
        assert pvisor("logs", "--tail", str(n), "--only", "stdout", cwd=workspace).out == tail, n
    assert pvisor("logs", "-n2", "--only", "stderr", cwd=workspace).err == "4\n5\n"
    assert pvisor("logs", "-f", "--tail=1", cwd=workspace).out == "last"
    assert json.loads(pvisor("logs", "--events", "-n", "1", cwd=workspace).out)["event"] == "ended"
    lines = [json.loads(line) for line in pvisor("logs", "--json", "--tail", "1", cwd=workspace).out.splitlines()]
    assert lines == [{"stream": "stdout", "line": "last"}, {"stream": "stderr", "line": "5"}]
    for wrong in ("-1", "x", "2x", "99999999999999999999"):
        assert "number of lines" in pvisor("logs", f"--tail={wrong}", cwd=workspace, code=2).err


def test_logs_to_a_terminal_are_escaped(pvisor, pv, run, workspace):
    pvisor("run", "--stage", "--stdio", "capture", "--", "printf", "a\\tb\\n\\033[2Jc\\n", cwd=workspace)
    assert "\x1b" in pvisor("logs", cwd=workspace).out
    assert "\x1b[2J" not in run([pv, "logs"], cwd=workspace, pty=True).out
    assert "\x1b[2J" in run([pv, "logs", "--raw"], cwd=workspace, pty=True).out


def test_logs_of_output_that_was_not_kept(pvisor, workspace):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    assert "--stdio capture" in pvisor("logs", cwd=workspace, code=1).err
    assert '"created"' in pvisor("logs", "--events", cwd=workspace).out


# ---- checkpoint and fork ----

def test_fork_stands_on_a_checkpoint(pvisor, workspace, listed):
    pvisor("run", "--stage", "--name", "base", "--", "sh", "-c", "echo one > made", cwd=workspace)
    pvisor("checkpoint", "base", "--name", "one", cwd=workspace)
    assert pvisor("checkpoint", "base", "--list", cwd=workspace).out == "one\n"
    pvisor("fork", "base@one", "--name", "child", "--", "sh", "-c", "cat made; echo two >> made", cwd=workspace)
    child = next(j for j in listed(workspace) if j["name"] == "child")
    assert child["parent"] == next(j for j in listed(workspace) if j["name"] == "base")["id"]
    pvisor("apply", "child", "--all", cwd=workspace)
    assert (workspace / "made").read_text() == "one\ntwo\n"


def test_fork_leaves_its_parent_alone(pvisor, workspace):
    pvisor("run", "--stage", "--name", "base", "--", "sh", "-c", "echo one > made", cwd=workspace)
    pvisor("fork", "base", "--", "sh", "-c", "echo two > made; rm README.md", cwd=workspace)
    pvisor("apply", "base", "--all", cwd=workspace)
    assert (workspace / "made").read_text() == "one\n" and (workspace / "README.md").exists()


def test_fork_returns_the_code_of_its_command(pvisor, workspace):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    pvisor("fork", "--", "sh", "-c", "exit 7", cwd=workspace, code=7)


def test_checkpoint_names(pvisor, workspace):
    pvisor("run", "--stage", "--", "sh", "-c", "echo one > made", cwd=workspace)
    pvisor("checkpoint", cwd=workspace)
    pvisor("checkpoint", cwd=workspace)
    assert pvisor("checkpoint", "--list", cwd=workspace).out == "c1\nc2\n"
    assert "has one named c1" in pvisor("checkpoint", "--name", "c1", cwd=workspace, code=2).err
    pvisor("checkpoint", "--name", "../x", cwd=workspace, code=2)
    pvisor("fork", "last@nope", "--", "true", cwd=workspace, code=None)


# ---- prune ----

def test_prune_keeps_what_is_not_decided_on(pvisor, workspace, listed):
    pvisor("run", "--stage", "--name", "pending", "--", "sh", "-c", "echo 1 > a", cwd=workspace)
    pvisor("run", "--stage", "--name", "nothing", "--", "true", cwd=workspace)
    pvisor("run", "--stage", "--name", "dropped", "--", "sh", "-c", "echo 1 > b", cwd=workspace)
    pvisor("drop", "dropped", cwd=workspace)
    pvisor("run", "--stage", "--name", "applied", "--", "sh", "-c", "echo 1 > c", cwd=workspace)
    pvisor("apply", "applied", "--all", cwd=workspace)
    dry = json.loads(pvisor("prune", "--dry-run", "--json", cwd=workspace).out)
    assert len(dry["removed"]) == 2 and len(dry["kept"]) == 2 and len(listed(workspace)) == 4
    pvisor("prune", "--older", "1d", cwd=workspace)
    assert len(listed(workspace)) == 4
    pvisor("prune", cwd=workspace)
    assert {j["name"] for j in listed(workspace)} == {"pending", "applied"}
    pvisor("prune", "--applied", cwd=workspace)
    assert {j["name"] for j in listed(workspace)} == {"pending"}
    pvisor("prune", "--unapplied", cwd=workspace)
    assert listed(workspace) == []


def test_prune_of_an_applied_job_with_ignored_files_left(pvisor, workspace, listed):
    pvisor("run", "--stage", "--", "sh", "-c", "echo 1 > c; mkdir out; echo 2 > out/x.bin", cwd=workspace)
    pvisor("apply", "--all", cwd=workspace)
    (job,) = listed(workspace)
    assert job["changes"] > 0
    pvisor("prune", cwd=workspace)
    assert len(listed(workspace)) == 1
    pvisor("prune", "--applied", cwd=workspace)
    assert listed(workspace) == []


def test_prune_keeps_what_another_job_stands_on(pvisor, workspace, listed):
    pvisor("run", "--stage", "--name", "base", "--", "sh", "-c", "echo one > made", cwd=workspace)
    pvisor("fork", "base", "--name", "child", "--", "true", cwd=workspace)
    pvisor("drop", "base", cwd=workspace, code=None)
    pvisor("prune", cwd=workspace)
    pvisor("apply", "child", "--all", cwd=workspace)
    assert (workspace / "made").read_text() == "one\n"


def test_prune_leaves_no_trace(pvisor, workspace, environment):
    pvisor("run", "--stage", "--", "true", cwd=workspace)
    pvisor("prune", cwd=workspace)
    assert list((jobs.store(environment) / "jobs").iterdir()) == []
    pvisor("status", cwd=workspace, code=4)


def test_prune_of_a_stage_elsewhere(pvisor, workspace, temporary, listed):
    place = temporary / "elsewhere"
    pvisor("run", "--stage", place, "--name", "one", "--", "sh", "-c", "echo 1 > a", cwd=workspace)
    pvisor("run", "--stage", place, "--name", "two", "--", "sh", "-c", "echo 2 > b", cwd=workspace)
    assert json.loads(pvisor("status", "--json", place, cwd=workspace).out)["name"] == "two"
    pvisor("apply", "two", "--all", cwd=workspace)
    assert (workspace / "a").exists() and (workspace / "b").exists()
    pvisor("prune", "--applied", cwd=workspace)
    assert listed(workspace) == [] and not place.exists()


def test_prune_keeps_a_stage_that_was_continued(pvisor, workspace, listed):
    pvisor("run", "--stage", "--name", "one", "--", "sh", "-c", "echo 1 > a", cwd=workspace)
    pvisor("run", "--continue", "one", "--name", "two", "--", "sh", "-c", "cat a; echo 2 > b", cwd=workspace)
    pvisor("checkpoint", "two", cwd=workspace)
    pvisor("run", "--stage", "--name", "other", "--", "true", cwd=workspace)
    pvisor("prune", cwd=workspace)
    assert {j["name"] for j in listed(workspace)} == {"one", "two"}
    pvisor("apply", "two", "--all", cwd=workspace)
    assert (workspace / "a").exists() and (workspace / "b").exists()
    assert all(j["changes"] == 0 and j["applied"] == 2 for j in listed(workspace))
    pvisor("prune", "--applied", cwd=workspace)
    assert listed(workspace) == []


# ---- doctor ----

def test_doctor_says_what_a_safe_run_gets(pvisor, workspace, environment):
    """Its word and the word of a run must be the same."""
    told = pvisor("doctor", "--json", cwd=workspace, code=None)
    levels = json.loads(told.out)["safety"]["levels"]
    ran = pvisor("run", "--safe", "--", "true", cwd=workspace, code=None)
    assert (told.code == 0) == (ran.code == 0) and told.code in (0, 5)
    if ran.code == 0:
        seen = jobs.bundle(jobs.job_dirs(environment)[-1])["safety"]["levels"]
        assert {k: v for k, v in levels.items() if k != "resources"} == {k: v for k, v in seen.items() if k != "resources"}


def test_doctor_reads_well(pvisor):
    text = pvisor("doctor", code=None).out
    assert all(len(line) <= 80 for line in text.splitlines()) and "network" in text and "\n\n\n" not in text


# ---- a drop that was cut short ----

@pytest.fixture
def staged(pvisor, workspace, environment):
    """The directory of a job that has something staged."""
    pvisor("run", "--stage", "--", "sh", "-c", "echo new > new.txt; mkdir d; echo x > d/x", cwd=workspace)
    return jobs.job_dirs(environment)[-1]


def test_half_removed_stage_is_dropped_by_dropping_it_again(pvisor, workspace, staged):
    (staged / "stage/stage.json").rename(staged / "stage/stage.unfinished")  # what a removal does first
    assert "drop it again" in pvisor("review", cwd=workspace, code=1).err
    pvisor("drop", cwd=workspace)
    assert not (staged / "stage").exists()
    assert "dropped" in pvisor("review", cwd=workspace).out


def test_what_is_left_of_a_killed_drop_can_be_looked_at_and_dropped_again(pv, pvisor, workspace, staged, environment):
    for delay in (0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015):
        pvisor("run", "--stage", "--", "sh", "-c", "mkdir -p d; for i in 1 2 3 4 5 6 7 8; do echo > d/$i; done",
               cwd=workspace)
        process = subprocess.Popen([pv, "drop", "-q"], cwd=workspace, env=environment)
        time.sleep(delay)
        process.kill()
        process.wait()
        here = Path(json.loads(pvisor("status", "--json", cwd=workspace).out)["directory"])
        review = pvisor("review", cwd=workspace, code=None)
        assert review.code == 0 or "drop it again" in review.err
        if (here / "stage").exists():
            pvisor("drop", cwd=workspace)
        assert not (here / "stage").exists()


def test_a_drop_killed_just_before_its_end_can_be_dropped_again(pvisor, workspace, staged):
    tree.remove(staged / "stage")
    (staged / "stage").mkdir()
    assert "drop it again" in pvisor("review", staged.name, cwd=workspace, code=None).err
    pvisor("drop", staged.name, cwd=workspace)
    assert not (staged / "stage").exists()


def test_stage_of_a_vanished_workspace_can_be_dropped(pvisor, workspace, staged):
    tree.remove(workspace)
    pvisor("drop", staged.name)
    assert not (staged / "stage").exists()


def shown(pvisor, where):
    return {j["name"]: (j["pending"], j["applied"], j["dropped"]) for j in json.loads(pvisor("list", "--json", cwd=where).out)["jobs"]}


@pytest.mark.parametrize("dropped", [["--path", "new"], []], ids=["part", "whole"])
@pytest.mark.parametrize("where", ["store", "directory"])
def test_jobs_with_one_stage_are_listed_alike(pvisor, workspace, temporary, where, dropped):
    """Whichever of them a decision names, it is on what all of them staged."""
    if where == "store":
        first, again = ["--stage"], ["--continue", "first"]
    else:
        first = again = ["--stage", temporary / "stage"]
    pvisor("run", *first, "--name", "first", "--", "sh", "-c", "echo more >>README.md", cwd=workspace)
    pvisor("run", *again, "--name", "second", "--", "sh", "-c", "echo new >new", cwd=workspace)
    pvisor("apply", "second", "--all", cwd=workspace)
    assert shown(pvisor, workspace) == {"first": (0, 2, False), "second": (0, 2, False)}
    pvisor("undo", "first", cwd=workspace)
    assert shown(pvisor, workspace) == {"first": (2, 0, False), "second": (2, 0, False)}
    pvisor("drop", "first", *dropped, cwd=workspace)
    after = (0, 0, True) if not dropped else (1, 0, False)
    assert shown(pvisor, workspace) == {"first": after, "second": after}
    if not dropped:
        assert "was dropped: nothing is left of it" in pvisor("apply", "second", "--all", cwd=workspace, code=1).err


def test_a_stage_that_is_gone_is_said_to_be_and_its_job_can_be_dropped(pvisor, workspace, temporary):
    place = temporary / "stage"
    pvisor("run", "--stage", place, "--name", "it", "--", "sh", "-c", "echo more >>README.md", cwd=workspace)
    place.rename(temporary / "elsewhere")
    for command in (["review"], ["diff"], ["apply", "--all"], ["undo"], ["drop", "--path", "README.md"]):
        said = pvisor(*command, cwd=workspace, code=1).err
        assert f"{place}: what job run-" in said and "is not there" in said and "hint: put it back" in said
    place.symlink_to(temporary / "elsewhere")
    assert "README.md" in pvisor("diff", cwd=workspace).out
    place.unlink()
    assert "would drop 0 changes" in pvisor("drop", "--dry-run", cwd=workspace).err
    assert not shown(pvisor, workspace)["it"][2]
    assert "is not there any more" in pvisor("drop", cwd=workspace).err
    assert shown(pvisor, workspace)["it"][2]
    assert (temporary / "elsewhere/stage.json").exists()


def test_what_was_applied_to_a_vanished_workspace_is_not_dropped(pvisor, workspace, staged):
    pvisor("apply", "--all", cwd=workspace)
    tree.remove(workspace)
    refused = pvisor("drop", staged.name, code=1).err
    assert "No such file" in refused and "hint: once it is back, what was applied can be undone" in refused
    assert (staged / "stage").exists()


# ---- a store without room ----

@pytest.mark.root
@pytest.mark.parametrize("way", ["drop", "prune"])
def test_what_filled_the_store_can_be_thrown_away(pvisor, workspace, environment, mount_filesystem, way):
    place = mount_filesystem("tmpfs", 1)
    environment["PVISOR_HOME"] = str(place / "store")
    pvisor("run", "--stage", "--", "sh", "-c", "echo more >> README.md; head -c 3000000 /dev/zero | tr '\\0' x > big",
           cwd=workspace, code=None)
    assert os.statvfs(place).f_bavail == 0
    pvisor(*{"drop": ["drop"], "prune": ["prune", "--unapplied"]}[way], cwd=workspace)
    assert os.statvfs(place).f_bavail * os.statvfs(place).f_frsize > 500_000
    assert not list(jobs.store(environment).glob("jobs/*/stage"))
    if way == "drop":
        assert "dropped" in pvisor("review", cwd=workspace).out


@pytest.mark.root
def test_without_room_for_the_originals_nothing_is_applied(pvisor, make_workspace, environment, mount_filesystem):
    environment["PVISOR_HOME"] = str(mount_filesystem("tmpfs", 4) / "store")
    top = make_workspace({f"f{i}": b"x" * 1_500_000 for i in range(4)}, git=False)
    before = tree.snapshot(top)
    pvisor("run", "--stage", "--", "sh", "-c", "rm f*; echo new >new", cwd=top)
    refused = pvisor("apply", "--all", cwd=top, code=1)
    assert "No space left" in refused.err and "hint: make room where the job is stored" in refused.err
    tree.assert_same(before, tree.snapshot(top))
    pvisor("apply", "--path", "f1", "--path", "new", cwd=top)
    assert sorted(p.name for p in top.iterdir()) == ["f0", "f2", "f3", "new"]
    pvisor("undo", cwd=top)
    tree.assert_same(before, tree.snapshot(top))


@pytest.mark.root
def test_a_target_that_became_read_only_refuses_and_leaves_nothing_to_finish(pvisor, make_workspace, mount_filesystem):
    place = mount_filesystem("ext4", 16)
    top = make_workspace({"f": "1\n", "gone": "1\n"}, git=False, where=place)
    pvisor("run", "--stage", "--", "sh", "-c", "echo 2 >f; echo n >n; rm gone", cwd=top)

    def remount(how):
        subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)

    remount("ro")
    try:
        assert "Read-only file system" in pvisor("apply", "--all", cwd=top, code=1).err
        again = pvisor("apply", "--all", cwd=top, code=1).err
        assert "Read-only file system" in again and "cut short" not in again
        assert "cut short" not in pvisor("review", cwd=top).err
        remount("rw")
        pvisor("apply", "--all", cwd=top)
        remount("ro")
        assert "Read-only file system" in pvisor("undo", cwd=top, code=1).err
        assert "cut short" not in pvisor("review", cwd=top).err
    finally:
        remount("rw")
    pvisor("undo", cwd=top)
    assert sorted(p.name for p in top.iterdir()) == ["f", "gone"] and (top / "f").read_text() == "1\n"


@pytest.mark.root
def test_what_is_mounted_below_a_stage_is_not_emptied_with_it(pvisor, workspace, staged):
    place = staged / "stage" / "roots" / "0" / "mounted"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    try:
        (place / "somebody's").write_text("x")
        pvisor("drop", cwd=workspace, code=1)
        assert (place / "somebody's").exists()
    finally:
        subprocess.run(["umount", place], check=True)
    pvisor("drop", cwd=workspace)
    assert not (staged / "stage").exists()


# ---- what the newest job is ----

def test_a_run_that_fails_to_start_is_listed_but_never_the_newest(pvisor, plain):
    pvisor("run", "-q", "--stage", "--", "true", cwd=plain)
    started = json.loads(pvisor("status", "--json", cwd=plain).out)["id"]
    pvisor("run", "-q", "--stage", "--", "./no-such-command", cwd=plain, code=127)
    assert json.loads(pvisor("status", "--json", "last", cwd=plain).out)["id"] == started
    listed = json.loads(pvisor("list", "--json", cwd=plain).out)["jobs"]
    (failed,) = [job for job in listed if job["id"] != started]
    assert failed["state"] == "failed"
    assert json.loads(pvisor("status", "--json", failed["id"], cwd=plain).out)["state"] == "failed"


def test_a_list_fits_its_terminal_whatever_the_names_are(pv, run, pvisor, workspace, environment):
    pvisor("run", "--stage", "--name", "n" * 64, "--", "echo", "w\u5bbd" * 60, "x" * 300, cwd=workspace)
    request = max(jobs.job_dirs(environment), key=lambda p: p.stat().st_mtime_ns) / "request.json"
    for columns in (20, 38, 60, 80, 120, 200):
        out = run(["sh", "-c", f"stty cols {columns}; exec {pv} list"], cwd=workspace, pty=True).out
        width = max(sum(2 if unicodedata.east_asian_width(c) == "W" else 1 for c in line) for line in out.splitlines())
        assert width <= max(columns, 38), (columns, out)
        assert ("nnnnnnnnn..." in out or "n" * 64 in out) == (columns >= 80), out
    whole = json.loads(request.read_text())  # as a damaged one may have it
    request.write_text(json.dumps({**whole, "name": "a\x1b[2J\nb"}))
    out = run(["sh", "-c", f"stty cols 100; exec {pv} list"], cwd=workspace, pty=True).out
    assert "\x1b" not in out and len(out.splitlines()) == 2


def test_a_job_of_another_version_says_so(pvisor, workspace, background, environment, listed, wait_started):
    background(["run", "--stage", "--", "sleep", "600"], workspace)
    wait_started()
    (directory,) = jobs.job_dirs(environment)
    request, lock = directory / "request.json", directory / "lock"
    whole, held = json.loads(request.read_text()), lock.read_bytes()
    assert "(this is" not in pvisor("status", cwd=workspace).out
    for version, word in (("0.0.1", "0.0.1"), (None, "an older one")):
        request.write_text(json.dumps({k: v for k, v in {**whole, "version": version}.items() if v is not None or k != "version"}))
        with lock.open("r+b") as f:  # what an older one wrote
            f.write(b"pid " + b"-" * (len(held) - 5) + b"\n")
        assert listed(workspace)[0]["state"] == "running"
        assert f"{word} (this is " in pvisor("status", cwd=workspace).out
        for command in (["kill"], ["logs", "-f"]):
            err = pvisor(*command, cwd=workspace, code=1).err
            assert word in err and "another version" in err and "kill " in err and "its supervisor" in err
        with lock.open("r+b") as f:
            f.write(held)
    pvisor("kill", cwd=workspace)


def test_the_holder_that_is_named_has_the_jobs_lock(run, pv, plain, temporary):
    """Not one of a file that has the same inode number on another file system."""
    script = f"""
        mkdir a b && mount -t tmpfs a a && mount -t tmpfs b b && export PVISOR_HOME=$PWD/a/store
        cd {plain} && {pv} run -q --detach -- sleep 600 >/dev/null && cd - >/dev/null
        lock=$(echo a/store/jobs/*/lock) && read -r holder start <$lock
        while : >b/f && [ $(stat -c %i b/f) -lt $(stat -c %i $lock) ]; do rm b/f; done
        [ $(stat -c %i b/f) = $(stat -c %i $lock) ] || echo "other inodes"
        flock b/f sleep 600 & other=$!
        until grep -q "FLOCK .* $other " /proc/locks; do sleep 0.02; done
        printf 'pid -' | dd of=$lock conv=notrunc status=none
        cd {plain}; {pv} kill last; kill $holder
        pkill -P $other; wait
        echo "kill $holder, its"
    """
    result = run(["unshare", "-Urm", "sh", "-c", script], cwd=temporary)
    if "unshare:" in result.err:
        pv_skip("no user namespaces")
    assert result.out.startswith("kill ") and result.out[:-1] in result.err, result


def test_a_list_in_a_pipe_has_short_lines(pvisor, plain):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", ": 'first\nsecond line\x1b[31m'", "x" * 5000, cwd=plain)
    lines = pvisor("list", cwd=plain).out.splitlines()
    assert len(lines) == 2 and all(len(line) < 220 for line in lines), lines
    assert "\x1b" not in lines[1]


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])  # the last writes nothing in place
def test_a_job_that_filled_the_disk_of_its_stage_has_ended(kind, pvisor, plain, environment, mount_filesystem):
    environment["PVISOR_HOME"] = str(mount_filesystem(kind) / "store")
    filling = "i=0; while dd if=/dev/zero of=big$i bs=1M count=64 2>/dev/null; do i=$((i + 1)); done; " \
        "i=0; while echo x > small$i; do i=$((i + 1)); [ $i -lt 5000 ] || break; done 2>/dev/null; exit 7"
    pvisor("run", "-q", "--stage", "--", "sh", "-c", filling, cwd=plain, code=7, timeout=100)
    status = json.loads(pvisor("status", "--json", cwd=plain).out)
    assert (status["state"], status["exit_code"]) == ("ended", 7)
    pvisor("drop", cwd=plain)
    pvisor("run", "-q", "--stage", "--", "true", cwd=plain)


def test_a_fifo_in_a_stage_holds_up_nobody(pvisor, workspace, temporary):
    stage = temporary / "stage"
    pvisor("run", "-q", "--stage", stage, "--", "true", cwd=workspace)
    (stage / "jobs").unlink()
    os.mkfifo(stage / "jobs")
    assert "jobs" in pvisor("run", "-q", "--stage", stage, "--", "true", cwd=workspace, code=125).err
