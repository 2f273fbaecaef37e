# SPDX-License-Identifier: Apache-2.0
"""Where the host cannot give what a run needs: refused with the reason and the fix, never run weaker."""
import array
import os
import resource
import signal
import socket
import subprocess
import time

import pytest

from conftest import pv_skip
from lib import parts

SANDBOXES = {"host": ["--stage", "--filesystem", "host"], "staged": ["--stage"], "safe": ["--safe"]}


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    return SANDBOXES[request.param]


@pytest.fixture
def within(run, pv, workspace, home):
    """within(prelude, options, command) -> pvisor run inside `unshare -r`, after a line of shell that cripples it."""

    def call(prelude, options, command="id -u"):
        line = f"{prelude}; exec {pv} run {' '.join(options)} -- {command}"
        result = run(["unshare", "-Urm", "sh", "-c", line], cwd=workspace)
        if "unshare:" in result.err:
            pv_skip("no user namespaces")
        return result

    return call


def test_inside_a_user_namespace(within, sandbox):
    result = within(":", ["-q", *sandbox])
    assert (result.code, result.out) == (0, "0\n"), result


@pytest.mark.user
@pytest.mark.parametrize("options", [[], ["--stage"], ["--safe"]])
def test_no_room_for_descriptors_in_sockets(pv, environment, workspace, options):
    """Those that a program holds in flight count as the person's: a run that can hand over none must not wait."""
    ends = socket.socketpair()
    in_flight, allowed = array.array("i", [ends[0].fileno()] * 250), 128

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))

    def run():
        return subprocess.run([pv, "run", "-q", *options, "--", "echo", "ran"], cwd=workspace, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              start_new_session=True, preexec_fn=few)

    with ends[0], ends[1]:
        assert run().stdout == "ran\n"
        ends[0].sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, in_flight)])
        result = run()
    assert (result.returncode, result.stdout) == (125, ""), result
    assert "hint: another program of this user holds too many descriptors in sockets" in result.stderr


def test_no_user_namespaces_left(within, sandbox):
    result = within("echo 0 >/proc/sys/user/max_user_namespaces", sandbox)
    assert result.code == 5
    assert "user namespaces are switched off or used up here" in result.err
    assert "hint: sudo sysctl user.max_user_namespaces" in result.err


def test_an_ambient_run_needs_none(within):
    assert within("echo 0 >/proc/sys/user/max_user_namespaces", ["-q"]).out == "0\n"


def test_no_mount_namespaces_left(within, sandbox):
    result = within("echo 0 >/proc/sys/user/max_mnt_namespaces", sandbox)
    assert result.code == 5 and "namespaces" in result.err


def test_no_network_namespaces_left(within):
    result = within("echo 0 >/proc/sys/user/max_net_namespaces", ["--safe"])
    assert result.code == 5 and "namespaces" in result.err


def test_a_proc_with_covered_parts(run, pv, workspace, sandbox):
    """What containers do: the kernel forbids to mount another proc, which would uncover them."""
    cover = 'mount -t tmpfs none /proc/fs && exec unshare -Urm "$@"'  # what one namespace mounted is locked in the next
    result = run(["unshare", "-Urm", "sh", "-c", cover, "sh", pv, "run", *sandbox, "--", "true"], cwd=workspace)
    if "unshare:" in result.err or "mount:" in result.err:
        pv_skip("no user namespaces")
    assert result.code == 5, result
    assert "mount proc" in result.err and "unmask" in result.err


def test_a_nested_run_is_refused_with_the_way_out(pv, pvisor, workspace, sandbox):
    shown = {os.path.dirname(os.path.realpath(p)) for p in (pv, parts.program(pv, "pvisor-resolve"))}
    mounts = [word for share in shown for word in ("--mount", f"{share}:read")]
    inner = pvisor("run", "-q", "--stage", *mounts, "--", pv, "run", *sandbox, "--", "true", cwd=workspace, code=5)
    assert "--allow-userns" in inner.err


def test_ambient_runs_work_inside_a_run(pv, pvisor, workspace):
    share = os.path.dirname(os.path.realpath(pv))
    assert pvisor("run", "-q", "--stage", "--mount", f"{share}:read", "--", pv, "run", "-q", "--", "echo", "inner",
                  cwd=workspace).out == "inner\n"


def test_a_refused_run_leaves_nothing_behind(within, workspace, home):
    within("echo 0 >/proc/sys/user/max_user_namespaces", ["--safe"])
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        assert " pvisor " not in f.read()
    assert not list((home / ".local/state/pvisor/jobs").glob("*/scratch"))


def test_what_the_job_lacks_is_said_before_what_the_sandbox_lacks(within, sandbox):
    """The sandbox is begun first; there is no record yet that could say what it lacks."""
    none = "echo 0 >/proc/sys/user/max_user_namespaces"
    result = within(f"{none}; touch ../no-directory; export PVISOR_HOME=$PWD/../no-directory", sandbox)
    assert result.code == 125 and "no-directory" in result.err and "namespaces" not in result.err, result


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
def test_killed_at_any_moment_leaves_no_process(pv, environment, workspace, marker, sig):
    """From before the first fork to after the exec."""
    from lib import processes
    for delay in range(0, 24):
        p = subprocess.Popen([pv, "run", "-q", "--safe", "--", "sh", "-c", f"sleep 600; : {marker}"], cwd=workspace,
                             env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(delay * 0.0008)
        p.send_signal(sig)
        p.wait(timeout=20)
    processes.assert_none(marker, within=5)
