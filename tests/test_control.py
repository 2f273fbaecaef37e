# SPDX-License-Identifier: Apache-2.0
"""The control socket of a running job: who may speak, what nonsense does, and that a frozen job does not notice."""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conftest import IS_ROOT, pv_skip
from lib import jobs, tree
from lib.beside import send_descriptors

MODES = {"ambient": [], "host": ["--stage", "--filesystem", "host"], "safe": ["--safe"]}


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


# ---- who may ask ----

ASK = r"""
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    s.connect(sys.argv[1])
    try:
        s.send(b'{"verb": "state"}')
        answer = s.recv(9999)
    except (BrokenPipeError, ConnectionResetError):  # refused before it was asked: why lies there nevertheless
        answer = s.recv(9999)
    print(json.loads(answer).get("error", "answered"))
except OSError as e:
    print("cannot connect", e.errno)
"""


@pytest.fixture
def short_store(environment):
    """A store whose path fits into a socket's address. Must: be asked for before `background`, whose jobs end first."""
    store = Path(tempfile.mkdtemp(prefix="pv-", dir="/var/tmp"))
    environment["PVISOR_HOME"] = str(store)
    yield store
    tree.remove(store)


def test_the_persons_own_processes_are_answered(short_store, background, run, workspace, mode):
    job = background(*mode, "--", "sleep", "600")
    assert run(["/usr/bin/python3", "-c", ASK, job.directory / "control"]).out.strip() == "answered"
    bits = os.stat(job.directory / "control").st_mode & 0o777
    assert bits == 0o600


def test_nothing_inside_can_ask(short_store, pvisor, background, workspace):
    """Where the host's file system is in view the socket is masked or refuses; else it is not there."""
    script = workspace / "ask.py"
    script.write_text(ASK)
    for options in (["--safe"], ["--stage"], ["--stage", "--filesystem", "host"]):
        job = background(*options, "--", "sh", "-c",
                         "sleep 0.2; for s in $STORE/jobs/*/control; do /usr/bin/python3 ask.py $s; done; echo do''ne; sleep 600"
                         .replace("$STORE", str(short_store)))
        job.await_output("done")
        answer = job.output()
        assert "answered" not in answer and ("cannot connect" in answer or "other namespaces" in answer), answer
        job.end()


def test_a_descriptor_of_the_store_does_not_help(short_store, background, workspace, pv, environment):
    """With the connection's very path in reach it is the namespaces that are judged."""
    if not shutil.which("unshare"):
        pv_skip("no unshare")
    job = background("--safe", "--", "sleep", "600")
    inside = ["unshare", "--user", "--map-current-user", "--"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pv_skip("no user namespaces")
    result = subprocess.run([*inside, "/usr/bin/python3", "-c", ASK, str(job.directory / "control")], text=True,
                            capture_output=True, timeout=60)
    assert "other namespaces" in result.stdout, result
    refused = subprocess.run([*inside, pv, "exec", "--", "true"], cwd=workspace, env=environment, text=True,
                             capture_output=True, timeout=60)
    assert refused.returncode == 6 and "other namespaces" in refused.stderr, refused


@pytest.mark.root
def test_another_users_processes_are_refused(short_store, background, pv, environment, workspace):
    """Root's job from an ordinary account, and an ordinary user's from root's."""
    if not IS_ROOT:
        pv_skip("needs root")
    job = background("--safe", "--", "sleep", "600")
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    result = subprocess.run([*nobody, "/usr/bin/python3", "-c", ASK, str(job.directory / "control")], text=True,
                            capture_output=True, timeout=60)
    assert result.stdout.strip() == "cannot connect 13", result
    os.chown(job.directory, 65534, 65534)
    for path in (short_store, short_store / "jobs", job.directory, job.directory / "control"):
        os.chmod(path, 0o777)  # were the directories open, too
    result = subprocess.run([*nobody, "/usr/bin/python3", "-c", ASK, str(job.directory / "control")], text=True,
                            capture_output=True, timeout=60)
    assert result.stdout.strip() == "the job is another user's", result


# ---- nonsense ----

def test_nonsense_is_answered_and_harms_nobody(background, mode):
    job = background(*mode, "--", "sleep", "600")
    for packet in (b"x", b"{", b"[]", b"{}", b'{"verb": 7}', b'{"verb": "nothing"}', b"\0" * 1000,
                   b'{"verb": "state", "verb": "kill"}', b"[" * 5000, b"x" * (150 << 10),
                   b'{"verb": "kill", "signal": 0}', b'{"verb": "exec"}', b'{"verb": "exec", "argv": []}',
                   b'{"verb": "exec", "argv": ["true"]}', b'{"verb": "exec", "argv": [7], "terminal": true}',
                   b'{"verb": "exec", "argv": ["a\\u0000b"], "terminal": true, "rows": 1, "columns": 1}',
                   b'{"verb": "freeze", "timeout_ms": -1}', b'{"verb": "attach"}'):
        assert job.ask(packet)["ok"] is False, packet
    s = job.connect()
    s.send(b"")
    assert s.recv(10) == b""  # an empty packet is an end
    job.connect().close()
    assert job.ask({"verb": "state"})["state"] == "running"


def test_too_many_descriptors_are_refused_and_closed(background):
    job = background("--safe", "--", "sleep", "600")
    supervisor = job.ask({"verb": "state"})["supervisor_pid"]
    count = lambda: len(os.listdir(f"/proc/{supervisor}/fd"))
    before = count()
    for n in (1, 8, 9, 200):
        s = job.connect()
        send_descriptors(s, {"verb": "state"}, [0] * n)
        assert json.loads(s.recv(9999))["ok"] is (n <= 8)
        s.close()
    deadline = time.monotonic() + 10  # a connection is closed after its answer was taken
    while count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert count() <= before


def test_many_connections_shut_nobody_out(background, pvisor, workspace):
    job = background("--safe", "--", "sleep", "600")
    silent = [job.connect() for _ in range(200)]
    assert job.ask({"verb": "state"})["ok"]
    pvisor("exec", "--", "true", cwd=workspace)
    for s in silent:
        s.close()
    assert job.ask({"verb": "state"})["ok"]


def test_a_supervisor_without_descriptors_waits_and_then_answers(background):
    job = background("--safe", "--", "sleep", "600")
    supervisor = job.ask({"verb": "state"})["supervisor_pid"]
    limits = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
    spent = lambda: sum(map(int, Path(f"/proc/{supervisor}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))

    def ask_without_room():
        """A connection with a question, and the ticks that a second of it cost; None where it was answered."""
        taken = {int(fd) for fd in os.listdir(f"/proc/{supervisor}/fd")}
        free = next(fd for fd in range(1 << 20) if fd not in taken)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (free, limits[1]))
        s = job.connect()
        s.send(b'{"verb": "state"}')
        s.settimeout(1)
        before = spent()
        try:
            s.recv(9999)
        except TimeoutError:
            return s, spent() - before
        except ConnectionResetError:  # let in with the last room, and dropped: it cannot be looked into who that is
            pass
        s.close()
        return None

    deadline = time.monotonic() + 60
    while not (asked := ask_without_room()):  # a descriptor that was just being closed was room for it
        assert time.monotonic() < deadline
    s, ticks = asked
    assert ticks < os.sysconf("SC_CLK_TCK") / 10  # it does not ask again and again
    resource.prlimit(supervisor, resource.RLIMIT_NOFILE, limits)
    s.settimeout(60)
    assert json.loads(s.recv(9999))["state"] == "running"
    s.close()


def test_one_that_does_not_read_is_let_go(background):
    job = background("--safe", "--", "sleep", "600")
    s = job.connect()
    s.send(json.dumps({"verb": "freeze"}).encode())
    assert json.loads(s.recv(9999))["ok"]
    s.setblocking(False)
    with pytest.raises((BlockingIOError, BrokenPipeError, ConnectionResetError)):
        while True:  # a keeper that expects nothing more answers with an error, and closes
            s.send(b'{"verb": "state"}')
    s.close()
    assert job.ask({"verb": "state"})["ok"]


def test_the_socket_goes_with_the_job(background, pvisor, workspace):
    job = background("--safe", "--", "sleep", "600")
    pvisor("kill", cwd=workspace)
    assert not (job.directory / "control").exists()
    killed = background("--safe", "--", "sleep", "600")
    killed.end(signal.SIGKILL)
    deadline = time.monotonic() + 10
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline:  # as soon as all that it had forked are gone, too
            killed.connect().close()
            time.sleep(0.01)
    pvisor("exec", killed.id, "--", "true", cwd=workspace, code=1)


# ---- frozen ----

BUSY = r"""
import os, signal, subprocess, threading, time
noticed = lambda *_: os.write(2, b"NOTICED\n")
signal.signal(signal.SIGCONT, noticed)
signal.signal(signal.SIGCHLD, lambda *_: None)
def count(n):
    i, fd = 0, os.open(f"count{n}", os.O_RDWR | os.O_CREAT)
    while True:  # never cut, so that whoever looks always sees a number
        i += 1
        os.pwrite(fd, b"%020d" % i, 0)
        time.sleep(0.0005)
for n in range(3):
    threading.Thread(target=count, args=(n,), daemon=True).start()
shell = subprocess.Popen(["bash", "-c", "while :; do (date +%s%N 1<>count3); /bin/true; done"])
stopped = subprocess.Popen(["sleep", "600"])
os.kill(stopped.pid, signal.SIGSTOP)
assert os.waitpid(stopped.pid, os.WUNTRACED)[1] & 0xff == 0x7f
print("rea" + "dy", flush=True)
while True:
    time.sleep(0.2)
    for child in (shell, stopped):
        pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid:
            print("NOTICED", child.args, status, flush=True)
"""


def _counts(job, staged):
    directory = next(iter((job.directory / "stage/roots").glob("*/layers/*"))) if staged else job.workspace
    return [(directory / f"count{n}").read_text() for n in range(4)]


def _await_counts(job, staged):
    deadline = time.monotonic() + 20
    while True:
        try:
            return _counts(job, staged)
        except FileNotFoundError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _freeze(job):
    s = job.connect()
    answer = job.ask({"verb": "freeze"}, s)
    assert answer["ok"], answer
    return s


@pytest.mark.kernel
def test_a_frozen_job_stands_still_and_does_not_notice(background, mode):
    job = background(*mode, "--", "/usr/bin/python3", "-c", BUSY)
    job.await_output("ready")
    _await_counts(job, mode)
    for _ in range(10):
        s = _freeze(job)
        first = _counts(job, mode)
        time.sleep(0.03)
        assert _counts(job, mode) == first
        s.close()
        deadline = time.monotonic() + 20
        while any(a == b for a, b in zip(_counts(job, mode), first)):
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.005)
    time.sleep(0.3)
    assert "NOTICED" not in job.output(), job.output()


def test_new_processes_do_not_slip_through(background):
    job = background("--safe", "--", "bash", "-c",
                     "f() { date +%s%N 1<>count$1; f $1 & }; for n in 0 1 2 3; do f $n & done; echo rea''dy; wait; sleep 600")
    job.await_output("ready")
    _await_counts(job, True)
    for _ in range(5):
        s = _freeze(job)
        first = _counts(job, True)
        time.sleep(0.05)
        assert _counts(job, True) == first
        s.close()


TRACED = r"""
import ctypes, os, signal, time
child = os.fork()
if child == 0:
    fd, i = os.open("count0", os.O_RDWR | os.O_CREAT), 0
    while True:
        i += 1
        os.pwrite(fd, b"%020d" % i, 0)
        time.sleep(0.0005)
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, child, None, None) == 0, ctypes.get_errno()
print("rea" + "dy", flush=True)
while True:  # as strace does: what was about to be delivered is, a stop is a stop, and SIGCONT ends it
    pid, status = os.waitpid(child, 0x40000000)
    if os.WIFSTOPPED(status):
        listen = status >> 16 == 128 and os.WSTOPSIG(status) != signal.SIGTRAP
        ctypes.CDLL(None).ptrace(0x4208 if listen else 7, child, None, 0 if status >> 16 else os.WSTOPSIG(status))
"""


def test_what_is_traced_already_stands_still_too(background):
    job = background("--safe", "--", "/usr/bin/python3", "-c", TRACED)
    job.await_output("ready")
    directory = next(iter((job.directory / "stage/roots").glob("*/layers/*")))
    count = lambda: _read(directory / "count0")
    deadline = time.monotonic() + 20
    while not count():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for _ in range(5):
        s = _freeze(job)
        first = count()
        time.sleep(0.05)
        assert first and count() == first
        s.close()
        deadline = time.monotonic() + 20
        while count() == first:
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.005)


def test_exec_of_a_client_that_is_gone_does_not_start(background, pv, environment, workspace, marker):
    job = background("--safe", "--", "sleep", "600")
    s = _freeze(job)
    client = subprocess.Popen([pv, "exec", "--", "sh", "-c", f"touch {marker}"], cwd=workspace, env=environment)
    deadline = time.monotonic() + 20
    while not job.events("exec"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    client.kill()
    client.wait()
    s.close()
    out = job.ask({"verb": "state"})
    assert out["ok"]
    time.sleep(0.2)
    assert not job.events("exec-started")


def test_a_decider_that_dies_lets_it_go_on(background):
    job = background("--safe", "--", "/usr/bin/python3", "-c", BUSY)
    job.await_output("ready")
    _await_counts(job, True)
    s = _freeze(job)
    assert "frozen already" in job.ask({"verb": "freeze"})["error"]
    freezer = [p for p in Path("/proc").glob("[0-9]*/comm") if _read(p) == "pvisor-freezer\n"
               and f"PPid:\t{job.process.pid}\n" in _read(p.parent / "status")]
    assert len(freezer) == 1
    os.kill(int(freezer[0].parent.name), signal.SIGKILL)
    first = _counts(job, True)
    deadline = time.monotonic() + 20
    while _counts(job, True) == first:
        assert time.monotonic() < deadline, "it does not go on"
    s.close()
    _freeze(job).close()


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return ""


def test_what_is_killed_frozen_dies(background, pvisor, workspace, mode):
    job = background(*mode, "--", "/usr/bin/python3", "-c", BUSY)
    job.await_output("ready")
    s = _freeze(job)
    assert job.ask({"verb": "kill", "signal": 9})["ok"]
    assert job.process.wait(30) == 137
    s.close()


def test_exec_waits_until_it_goes_on(background, pv, environment, workspace):
    job = background("--safe", "--", "sleep", "600")
    s = _freeze(job)
    client = subprocess.Popen([pv, "exec", "--", "echo", "late"], cwd=workspace, env=environment,
                              stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not job.events("exec"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)
    assert not job.events("exec-started")
    s.close()
    assert client.communicate(timeout=30)[0] == "late\n" and client.returncode == 0


def test_a_shell_at_a_terminal_does_not_notice(pv, environment, workspace, terminal, temporary):
    t = terminal([pv, "run", "-q", "--safe", "--", "bash", "--norc", "-i"], cwd=workspace)
    t.line("PS1='in''ner> '")
    t.expect("inner> ")
    t.line("sleep 600 & vim_like() { sleep 1; echo do''ne; }; vim_like")
    directory = jobs.job_dirs(environment)[-1]
    for _ in range(5):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = os.open(directory, os.O_PATH)
        s.connect(f"/proc/self/fd/{fd}/control")
        os.close(fd)
        s.send(b'{"verb": "freeze"}')
        assert json.loads(s.recv(9999))["ok"]
        s.close()
    t.expect("done")
    t.line("jobs; echo al''l")
    t.expect("all")
    assert "Stopped" not in t.output
    t.line("exit")
    t.wait()
