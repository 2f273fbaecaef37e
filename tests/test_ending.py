# SPDX-License-Identifier: Apache-2.0
"""A run ends well in every way: nothing of it lives on, its end is told truly, its stage is whole."""
import json
import os
import signal
import subprocess
import time

import pytest

from lib import jobs, processes

MODES = {"ambient": [], "host": ["--stage", "--filesystem", "host"], "staged": ["--stage"], "safe": ["--safe"]}


@pytest.fixture(params=MODES)
def mode(request):
    """The options of plain, staged and safe runs in turn."""
    return MODES[request.param]


@pytest.fixture
def background(pv, environment, workspace):
    """background(options, script) -> a Popen of a run whose script goes on until something ends it."""
    started = []

    def start(options, script, **how):
        # A session of its own without a terminal; the write end keeps the command's stdin open.
        p = subprocess.Popen([pv, "run", *options, "--", "sh", "-c", script], cwd=workspace, env=environment,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True, **how)
        started.append(p)
        return p

    yield start
    for p in started:
        if p.poll() is None:
            p.kill()
        p.communicate()


def says(process, word):
    line = process.stdout.readline().decode()
    assert word in line, line + process.stderr.read().decode()


def test_double_forked_daemons_are_dead_when_run_returns(pvisor, workspace, marker, mode):
    pvisor("run", *mode, "--", "sh", "-c",
           f"for i in 1 2 3; do (setsid setsid sh -c 'sleep 600; : {marker}' </dev/null >/dev/null 2>&1 &); done; "
           f"while [ $(pgrep -cf '[s]leep 600; : {marker}') -lt 3 ]; do sleep 0.02; done", cwd=workspace)
    processes.assert_none(marker)


def test_a_direct_run_leaves_such_daemons(run, workspace, marker):
    """The twin: without pVisor the daemon lives."""
    run(["sh", "-c", f"(setsid setsid sh -c 'sleep 600; : {marker}' </dev/null >/dev/null 2>&1 &)"], cwd=workspace)
    processes.wait_for(marker)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_to_pvisor_reach_the_command(background, mode, sig):
    name = signal.Signals(sig).name[3:]
    p = background(mode, f"trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.05; done")
    says(p, "ready")
    p.send_signal(sig)
    out, _ = p.communicate(timeout=20)
    assert out.decode().split() == ["got", name]
    assert p.returncode == 7


def test_a_command_that_dies_of_a_forwarded_signal(background, marker, mode):
    p = background(mode, f"echo ready; exec sh -c 'sleep 600; : {marker}'")
    says(p, "ready")
    p.terminate()
    p.communicate(timeout=20)
    assert p.returncode == 128 + signal.SIGTERM
    processes.assert_none(marker)


def test_nothing_survives_the_supervisors_sigkill(background, marker, mode):
    p = background(mode, f"(setsid sh -c 'sleep 600; : {marker}' &) ; echo ready; sleep 600; : {marker}")
    says(p, "ready")
    processes.wait_for(marker)
    p.kill()
    p.wait()
    processes.assert_none(marker, within=5)


def states_of(pvisor, workspace):
    listed = json.loads(pvisor("list", "--json", cwd=workspace).out)
    return [j["state"] for j in (listed["jobs"] if isinstance(listed, dict) else listed)]


# Dying of SIGKILL takes it a while: there is memory to give back, and many of them.
SLOW_TO_DIE = "python3 -c 'x = bytearray(200_000_000); print(\"ready\", flush=True); import time; time.sleep(600)' {marker}"


@pytest.mark.parametrize("killed_when", ["at once", "running"])
def test_lost_is_told_at_once_and_not_before_all_are_dead(background, pvisor, workspace, marker, mode, killed_when):
    """Whoever reads `lost` may take the stage: nothing of the job writes any more, and nobody has to ask twice."""
    p = background(mode, f"for i in 1 2 3 4 5 6 7 8; do (setsid sleep 600 {marker} &); done; "
                         f"while :; do echo x >>grows; done & {SLOW_TO_DIE.format(marker=marker)}"
                   .replace(f"sleep 600 {marker}", f"sh -c 'sleep 600; : {marker}'"))
    if killed_when == "running":
        says(p, "ready")
    while states_of(pvisor, workspace) != ["running"]:
        assert p.poll() is None
    p.kill()
    p.wait()
    assert states_of(pvisor, workspace) == ["lost"]
    assert not processes.marked(marker)


def test_a_killed_runs_stage_is_taken_when_nothing_writes_to_it(background, pvisor, workspace, temporary, marker):
    """By its directory alone, where no job is asked; and while the supervisor lives it is refused."""
    stage = temporary / "stage"
    p = background(["--stage", stage], f"while :; do echo x >>grows; done & {SLOW_TO_DIE.format(marker=marker)}")
    says(p, "ready")
    assert "in use" in pvisor("run", "--stage", stage, "--", "true", cwd=workspace, code=None).err
    p.kill()
    p.wait()
    out = pvisor("run", "-q", "--stage", stage, "--", "sh", "-c", "a=$(wc -c <grows); sleep 0.3; b=$(wc -c <grows); echo $((b - a))",
                 cwd=workspace).out
    assert out == "0\n" and not processes.marked(marker)


@pytest.mark.parametrize("call, nth", [("mkdirat", 1), ("mkdirat", 4), ("renameat", 1), ("pwrite64", 1), ("memfd_create", 1)])
def test_killed_while_the_job_is_made_nothing_lives_on(pv, pvisor, environment, workspace, marker, mode, call, nth):
    """The sandbox is begun before there is a job, and waits for it."""
    subprocess.run(["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}",
                    pv, "run", *mode, "--", "sh", "-c", f": {marker}"], cwd=workspace, env=environment, timeout=60,
                   capture_output=True, check=False)
    processes.assert_none(marker, within=5)
    assert set(states_of(pvisor, workspace)) <= {"lost", "ended"}
    pvisor("run", *mode, "--", "true", cwd=workspace)


def test_the_stage_of_a_killed_run_is_whole(background, pvisor, workspace, environment):
    p = background(["--stage", "--name", "killed"], "echo mine >mine; rm README.md; echo ready; sleep 600")
    says(p, "ready")
    p.kill()
    p.wait()
    assert states_of(pvisor, workspace) == ["lost"]
    assert (workspace / "README.md").exists() and not (workspace / "mine").exists()
    review = pvisor("review", "killed", cwd=workspace).out
    assert "mine" in review and "README.md" in review


def test_init_killed_from_outside_ends_the_run(background, workspace, marker):
    p = background(["--stage"], f"echo ready; sleep 600; : {marker}")
    says(p, "ready")
    children = subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(int(children[0]), signal.SIGKILL)
    p.communicate(timeout=20)
    assert p.returncode == 128 + signal.SIGKILL
    processes.assert_none(marker)


@pytest.mark.parametrize("options", [["--stage"], ["--safe"]], ids=["staged", "safe"])
def test_the_command_cannot_end_its_init(pvisor, workspace, options):
    out = pvisor("run", "-q", *options, "--", "sh", "-c",
                 "kill -KILL 1; kill -STOP 1; kill -TERM 1; sleep 0.1; kill -0 $$ && echo alive", cwd=workspace).out
    assert out.split() == ["alive"]


def test_kill_0_stays_inside(background, workspace, mode):
    """A group of its own: `kill 0` in a script is for the script's processes, not for pVisor."""
    p = background(mode, "sleep 600 & trap '' TERM; kill 0; wait; echo done")
    says(p, "done")
    p.communicate(timeout=20)
    assert p.returncode == 0


def test_orphans_are_reaped_while_the_command_runs(pvisor, workspace, mode):
    zombies = "[ $(for s in /proc/[0-9]*/stat; do cat $s; done 2>/dev/null | grep -c ' Z ') != 0 ]"
    if not mode:
        zombies = "false"  # an ambient run sees the machine's
    pvisor("run", "-q", *mode, "--", "sh", "-c",
           f": $(for i in 1 2 3 4 5 6 7 8; do (sh -c 'exit 0' &) ; done); "  # its end: all of them have exited
           f"while {zombies}; do sleep 0.05; done", cwd=workspace)


def test_a_stopped_command_still_times_out(pvisor, workspace, marker, mode):
    began = time.monotonic()
    pvisor("run", *mode, "--timeout", "300ms", "--", "sh", "-c", f"kill -STOP $$; : {marker}", cwd=workspace, code=124)
    assert time.monotonic() - began < 10
    processes.assert_none(marker)


def test_usage_of_the_command_is_recorded(pvisor, workspace, home):
    pvisor("run", "--stage", "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", cwd=workspace)
    (job,) = (home / ".local/state/pvisor/jobs").glob("run-*")
    text = (job / "bundle.json").read_text()
    assert json.loads(text)["run"]["exit"]


def test_blocked_and_ignored_signals_are_passed_on_as_they_were(run, pv, workspace, mode):
    """The command starts with the caller's signal mask and dispositions, not with pVisor's."""
    script = "import signal,os,sys; signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGUSR2]); " \
             "signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    out = run(["python3", "-c", script, pv, "run", "-q", *mode, "--", "grep", "-E", "SigBlk|SigIgn", "/proc/self/status"],
              cwd=workspace).out
    masks = dict(line.split(":\t") for line in out.splitlines())
    assert int(masks["SigBlk"], 16) == 1 << (signal.SIGUSR2 - 1)
    assert int(masks["SigIgn"], 16) & (1 << (signal.SIGUSR1 - 1))
    assert not int(masks["SigIgn"], 16) & (1 << (signal.SIGTSTP - 1))


def test_a_signal_that_the_caller_blocks_does_not_end_the_set_up(run, pv, workspace, mode):
    """It waits for the command, which has it blocked, too."""
    script = "import os,signal,sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); " \
             "os.kill(os.getpid(), signal.SIGTERM); os.execv(sys.argv[1], sys.argv[1:])"
    result = run(["python3", "-c", script, pv, "run", "-q", *mode, "--", "echo", "ran"], cwd=workspace)
    assert (result.code, result.out) == (0, "ran\n"), result


@pytest.mark.parametrize("sig", ["TERM", "INT"])
def test_a_signal_during_set_up_leaves_no_half_of_a_job(run, pv, pvisor, workspace, environment, sig):
    """Wherever it falls: no job yet, one that says why it failed, or one that ended; never lost, and nothing besides."""
    number = getattr(signal, f"SIG{sig}")
    seen = {}
    for when in range(1, 300, 13):
        done = run(["strace", "-o", "/dev/null", "-e", f"inject=%file:signal={sig}:when={when}", pv, "run", "--stage", "--",
                    "true"], cwd=workspace)
        listed = json.loads(pvisor("list", "--json", cwd=workspace).out)["jobs"]
        assert {job["state"] for job in listed} <= {"failed", "ended"}
        assert {path.name for path in jobs.job_dirs(environment)} == {job["id"] for job in listed}
        assert done.code in (0, 128 + number, -number)
        for job in listed:
            seen[job["id"]] = job["state"], job["exit_code"]
            if job["state"] == "failed":
                assert f"ended by SIG{sig} before the command started" in pvisor("status", job["id"], cwd=workspace).out
    assert ("failed", 128 + number) in seen.values() and ("ended", 0) in seen.values()
