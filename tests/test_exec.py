# SPDX-License-Identifier: Apache-2.0
"""`exec`: another command in a running job is in the same boundary, and in nothing wider."""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from conftest import IS_ROOT, pv_skip
from lib import attacks, jobs, parts, processes
from lib.beside import send_descriptors

MODES = {"ambient": [], "host": ["--stage", "--filesystem", "host"], "staged": ["--stage"], "safe": ["--safe"]}
SLEEP = ["sleep", "600"]


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


@pytest.fixture(params=["ambient", "safe"])
def either(request):
    """With namespaces and without: for what does not depend on the view."""
    return MODES[request.param]


# What a process can tell of its own limits. Its number, times and memory are its own.
SEEN = r"""
for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done
grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Sig(Blk|Ign))' /proc/self/status
cat /proc/self/limits; sort /proc/self/mountinfo; env | grep -v '^_=' | sort; pwd; umask; ls -l /proc/self/fd | wc -l
"""


@pytest.mark.kernel
def test_it_sees_what_the_command_sees(background, pvisor, workspace, mode):
    limits = ["--max-open-files", "500", "--max-file-size", "1GiB"]
    job = background(*mode, *limits, "--", "sh", "-c", f"({SEEN}) 2>&1; echo rea''dy; exec sleep 600")
    job.await_output("ready")
    first = job.output().split("ready")[0]
    notes = re.compile(r"^pvisor: .*\n", re.M)
    assert pvisor("exec", job.id, "--", "sh", "-c", f"({SEEN}) 2>&1", cwd=workspace).out == notes.sub("", first)


def test_it_exits_as_its_command_did(background, pvisor, workspace, either):
    job = background(*either, "--", *SLEEP)
    pvisor("exec", "--", "true", cwd=workspace)
    pvisor("exec", "--", "sh", "-c", "exit 7", cwd=workspace, code=7)
    pvisor("exec", "--", "sh", "-c", "kill -TERM $$", cwd=workspace, code=143)
    assert "command not found" in pvisor("exec", "--", "no-such-program", cwd=workspace, code=127).err
    pvisor("exec", "--", "/etc/passwd", cwd=workspace, code=126)
    pvisor("exec", "--", cwd=workspace, code=2)
    assert job.process.poll() is None


def test_bytes_go_through(background, pvisor, workspace, either):
    background(*either, "--", *SLEEP)
    text = "".join(f"line {i}\n" for i in range(20000))
    result = pvisor("exec", "--", "sh", "-c", "cat; echo error >&2", cwd=workspace, input=text)
    assert result.out == text and result.err == "error\n"


def test_it_starts_where_the_person_stands(background, pvisor, workspace, temporary):
    background("--safe", "--", *SLEEP)
    assert pvisor("exec", "--", "pwd", cwd=workspace / "src").out.strip() == str(workspace / "src")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    job = pvisor("list", "--all", "--json").out and pvisor("exec", "--", "pwd", cwd=workspace).out.strip()
    assert job == str(workspace)
    listed = re.search(r"run-\d{8}-\d{6}-[0-9a-f]{4}", pvisor("list", "--all").out).group()
    assert pvisor("exec", listed, "--", "pwd", cwd=elsewhere).out.strip() == str(workspace)


def test_what_it_changes_is_the_jobs(background, pvisor, workspace):
    background("--safe", "--", *SLEEP)
    pvisor("exec", "--", "sh", "-c", "echo more >>README.md && mv docs papers", cwd=workspace)
    assert pvisor("exec", "--", "sh", "-c", "ls; tail -1 README.md", cwd=workspace).out.split()[-1] == "more"
    assert (workspace / "docs").is_dir() and "more" not in (workspace / "README.md").read_text()
    pvisor("kill", cwd=workspace)
    assert "papers" in pvisor("review", cwd=workspace).out


def test_it_is_in_the_record(background, pvisor, workspace):
    job = background("--safe", "--", *SLEEP)
    pvisor("exec", "--", "sh", "-c", "exit 3", cwd=workspace, code=3)
    pvisor("exec", "--", "no-such-program", cwd=workspace, code=127)
    first, second = job.events("exec")
    assert first["argv"] == ["sh", "-c", "exit 3"] and second["argv"] == ["no-such-program"]
    assert [e["failure"] for e in job.events("exec-started")] == [None, "no-such-program: command not found"]
    assert [e["exit_code"] for e in job.events("exec-ended")] == [3]


# ---- no way out through it ----

@pytest.fixture
def secret(temporary):
    directory = temporary / "secret"
    directory.mkdir()
    (directory / "secret").write_text("nobody's business\n")
    return directory


def test_escapes_are_refused(background, pvisor, run, workspace, secret):
    """A handful of those that test_escape.py tries through `run`, each with its twin outside."""
    shutil.copy(attacks.__file__, workspace / "attacks.py")
    background("--safe", "--", *SLEEP)
    path, directory = str(secret / "secret"), str(secret)
    for attack in (["read_absolute", path], ["read_dotdot", path], ["read_self_root", path],
                   ["create_absolute", directory], ["create_by_link", directory], ["overwrite", path]):
        outside = run(["/usr/bin/python3", attacks.__file__, *attack], cwd=workspace)
        assert outside.out.strip() == "succeeded", attack
        inside = pvisor("exec", "--", "env", "INSIDE=1", "/usr/bin/python3", "attacks.py", *attack, cwd=workspace)
        assert inside.out.startswith("refused"), attack


def test_walls_are_raised_for_it_too(background, pvisor, workspace):
    background("--safe", "--", *SLEEP)
    script = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call):
    try:
        r = call()
    except OSError:
        r = -1
    print(name, "refused" if r == -1 else "SUCCEEDED")
refused("mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
refused("userns", lambda: libc.unshare(0x10000000))
refused("io_uring", lambda: libc.syscall(425, 1, ctypes.create_string_buffer(256)))
refused("vsock", lambda: socket.socket(40, socket.SOCK_STREAM) and 0)
refused("usr", lambda: os.open("/usr/x", os.O_CREAT | os.O_WRONLY))
refused("ptrace init", lambda: libc.ptrace(16, 1, None, None))
refused("init's memory", lambda: os.open("/proc/1/mem", os.O_RDONLY))
refused("init's descriptors", lambda: len(os.readlink("/proc/1/fd/3")))
refused("network", lambda: socket.create_connection(("127.0.0.1", 9), 1) and 0)
"""
    out = pvisor("exec", "--", "/usr/bin/python3", "-c", script, cwd=workspace).out
    assert out.count("refused") == 9 and "SUCCEEDED" not in out, out


# Reads the memory and takes descriptors of everything that is not behind the filter yet.
HUNTER = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
seen = 0
print("rea" "dy", flush=True)
while not os.path.exists("enough"):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid == "1" or int(pid) == os.getpid():
            continue
        try:
            if "Seccomp:\t0" not in open(f"/proc/{pid}/status").read():
                continue
            seen += 1
            try:
                os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
                print("GOT memory", flush=True)
            except OSError:
                pass
            for n in range(12):
                try:
                    os.readlink(f"/proc/{pid}/fd/{n}")
                    print("GOT a descriptor's name", flush=True)
                except OSError:
                    pass
            if libc.ptrace(0x4206, int(pid), None, None) == 0:
                print("GOT traced", flush=True)
            fd = libc.syscall(434, int(pid), 0)
            if fd >= 0:
                for n in range(12):
                    if libc.syscall(438, fd, n, 0) >= 0:
                        print("GOT a descriptor", flush=True)
                os.close(fd)
        except (FileNotFoundError, ProcessLookupError):
            pass
print("seen", seen, flush=True)
"""


def test_the_launcher_cannot_be_caught_before_its_walls(background, pvisor, workspace):
    job = background("--safe", "--", "/usr/bin/python3", "-c", HUNTER)
    job.await_output("ready")
    for _ in range(40):
        pvisor("exec", "--", "true", cwd=workspace)
    pvisor("exec", "--", "touch", "enough", cwd=workspace)
    job.process.wait(30)
    assert "GOT" not in job.output(), job.output()
    # The rename helper is never behind the filter: there was something to hunt.
    assert int(re.search(r"seen (\d+)", job.output()).group(1)) > 0


def test_a_directory_as_stdin_is_no_way_out(background, pv, environment, workspace, secret):
    background("--safe", "--", *SLEEP)
    fd = os.open(secret, os.O_RDONLY)
    result = subprocess.run([pv, "exec", "--", "sh", "-c", "ls /proc/self/fd/0/ && cat /proc/self/fd/0/secret"],
                            cwd=workspace, env=environment, stdin=fd, capture_output=True, text=True, timeout=60)
    os.close(fd)
    assert result.returncode != 0 and "nobody" not in result.stdout


def test_sockets_are_not_handed_in(background, pv, environment, workspace):
    job = background("--safe", "--", *SLEEP)
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([pv, "exec", "--", "sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/1; cat"],
                               cwd=workspace, env=environment, stdin=theirs, stdout=theirs)
    theirs.close()
    ours.sendall(b"through a pipe\n")
    ours.shutdown(socket.SHUT_WR)
    text = b""
    while data := ours.recv(4096):
        text += data
    ours.close()
    assert process.wait(30) == 0 and text.endswith(b"through a pipe\n") and text.count(b"pipe:") == 2, text
    # And by the socket itself: not asked nicely either.
    s = job.connect()
    a, b = socket.socketpair()
    send_descriptors(s, {"verb": "exec", "argv": ["true"], "given": [True] * 3}, [a.fileno()] * 3)
    assert b"is a socket" in s.recv(4096)
    s.close(), a.close(), b.close()


# ---- a terminal ----

@pytest.fixture
def exec_terminal(background, terminal, pv, workspace, either):
    background(*either, "--", *SLEEP)

    def start(*argv, **size):
        return terminal([pv, "exec", "--", *argv], cwd=workspace, **size)

    return start


def test_it_has_a_terminal_of_its_own(exec_terminal):
    t = exec_terminal("sh", "-c", "test -t 0 -a -t 1 -a -t 2 && : >/dev/tty && tty && stty size", rows=30, columns=99)
    t.expect(r"/dev/pts/\d+")
    t.expect("30 99")
    assert t.wait() == 0


def test_the_windows_size_follows(exec_terminal):
    t = exec_terminal("bash", "-c", "trap 'stty size; exit 6' WINCH; echo rea''dy; while :; do sleep 0.1; done")
    t.expect("ready")
    t.resize(41, 123)
    t.expect("41 123")
    assert t.wait() == 6


def test_keys_are_the_commands(exec_terminal):
    t = exec_terminal("bash", "--norc", "-i")
    t.expect(r"[#$] ")
    t.line("PS1='in''ner> '")
    t.expect("inner> ")
    assert "no job control" not in t.output
    t.line("sh -c 'echo rea''dy; exec sleep 600'")
    t.expect("ready")
    t.key("z")
    t.expect("Stopped")
    t.expect("inner> ")
    t.line("kill -9 %1; wait; echo g''one")
    t.expect("gone")
    t.line("sh -c 'echo aga''in; exec sleep 600'")
    t.expect("again")
    t.key("c")
    t.expect("inner> ")
    t.line("exit 5")
    assert t.wait() == 5


def test_it_ends_though_its_terminal_is_written_to_for_ever(exec_terminal):
    """By what the command left in the background, which Ctrl-C does not reach."""
    t = exec_terminal("sh", "-c", "trap '' HUP; yes & exit 3")
    assert t.wait() == 3


def test_the_terminal_is_given_back(background, terminal, pv, workspace):
    background("--safe", "--", *SLEEP)
    t = terminal(["bash", "--norc", "-i"], cwd=workspace, env={"PS1": "outer> "})
    t.expect("outer> ")
    t.line("stty -g >before")
    t.expect("outer> ")
    t.line(f"{pv} exec -- sh -c 'echo rea''dy; exec sleep 600'; echo code=$?")
    t.expect("ready")
    t.key("c")
    t.expect("code=130")
    t.line("stty -g | cmp - before && echo sa''me")
    t.expect("same")


# ---- ends ----

@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_the_job(background, pv, environment, workspace, marker, how, either):
    job = background(*either, "--", *SLEEP)
    client = subprocess.Popen([pv, "exec", "--", "sh", "-c", f": {marker}; echo rea''dy; sleep 600; :"], cwd=workspace,
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "ready\n"
    job.end(how)
    _, err = client.communicate(timeout=30)
    # 1: the supervisor ended before it could say that the command had started.
    assert (client.returncode, err.split()[-1]) in ((137, "it"), (1, "more")), err
    processes.assert_none(marker, within=10)


def test_it_is_hung_up_when_its_client_dies(background, pv, environment, workspace, marker, either):
    job = background(*either, "--", *SLEEP)
    client = subprocess.Popen([pv, "exec", "--", "sh", "-c", f": {marker}; echo rea''dy; sleep 600; :"], cwd=workspace,
                              env=environment, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "ready\n"
    client.kill()
    client.communicate()
    processes.assert_none(marker, within=10)
    assert job.process.poll() is None


def test_signals_are_passed_on(background, pv, environment, workspace):
    background("--safe", "--", *SLEEP)
    client = subprocess.Popen([pv, "exec", "--", "bash", "-c",
                               "trap 'echo handled; exit 9' TERM; echo rea''dy; sleep 600 & wait"], cwd=workspace,
                              env=environment, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "ready\n"
    client.terminate()
    assert client.communicate(timeout=30)[0] == "handled\n" and client.returncode == 9


def test_a_job_that_has_ended_takes_none(pvisor, workspace):
    pvisor("run", "--safe", "-q", "--", "true", cwd=workspace)
    assert "does not run" in pvisor("exec", "--", "true", cwd=workspace, code=1).err


def test_the_commands_own_end_is_not_held_up(background, pvisor, pv, environment, workspace):
    job = background("--safe", "--", "sh", "-c", "until test -e go; do sleep 0.05; done; exit 4")
    client = subprocess.Popen([pv, "exec", "--", "sh", "-c", "echo ready; exec sleep 600"], cwd=workspace, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert client.stdout.readline() == b"ready\n"
    pvisor("exec", "--", "touch", "go", cwd=workspace, code=None)  # it may be overtaken by what it lets go
    assert job.process.wait(30) == 4
    client.communicate(timeout=30)
    assert client.returncode == 137


def test_there_is_a_bound(background, pvisor, pv, environment, workspace):
    background("--safe", "--", *SLEEP)
    many = [subprocess.Popen([pv, "exec", "--", "sh", "-c", "echo r; exec sleep 600"], cwd=workspace, env=environment,
                             stdout=subprocess.PIPE) for _ in range(32)]
    for each in many:
        assert each.stdout.readline() == b"r\n"
    assert "32 other commands" in pvisor("exec", "--", "true", cwd=workspace, code=125).err
    for each in many:
        each.terminate()
        each.communicate()
    pvisor("exec", "--", "true", cwd=workspace)


@pytest.mark.root
def test_another_users_job_is_refused(background, pv, pvisor, environment):
    """Root's job by an ordinary account, and an ordinary account's by root."""
    if not IS_ROOT:
        pv_skip("needs root")
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    commands = (["exec", "JOB", "--", "true"], ["attach", "JOB"], ["kill", "JOB"], ["logs", "JOB"])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:  # where either may look
        os.chmod(place, 0o755)
        own = shutil.copy(pv, place)
        shutil.copy(parts.program(pv, "pvisor-resolve"), place)
        home = Path(place) / "home"
        project = home / "project"
        for directory in (home, project):
            directory.mkdir()
            os.chown(directory, 65534, 65534)
        theirs = {**environment, "HOME": str(home)}

        def as_nobody(*args, **more):
            return subprocess.run([*nobody, own, *args], cwd=project, env={**theirs, **more}, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60)

        job = background("--safe", "--", *SLEEP)
        store = str(jobs.store(environment))
        for command in commands:
            result = as_nobody(*[job.id if a == "JOB" else a for a in command], PVISOR_HOME=store)
            assert result.returncode == 1 and "Permission denied" in result.stderr, result
        assert job.process.poll() is None

        started = as_nobody("run", "-q", "--detach", "--safe", "--", *SLEEP)
        job = started.stdout.strip()
        assert started.returncode == 0, started
        for command in commands:
            result = pvisor(*[job if a == "JOB" else a for a in command], code=6,
                            env={"PVISOR_HOME": str(home / ".local/state/pvisor")})
            assert "belongs to user 65534" in result.err
        assert as_nobody("exec", job, "--", "id", "-u").stdout == "65534\n"
        assert as_nobody("kill", job).returncode == 0
