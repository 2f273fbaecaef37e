# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test stands on; docs/testing.md shows how a test uses it.

A test sees a private HOME, a clean environment and directories that vanish with it, so that neither the person's own
configuration nor another test reaches it.
"""
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections import namedtuple
from pathlib import Path

import pytest

from lib import beside, failures, filesystems, outside, processes, tree
from lib.terminal import Terminal

TOP = Path(__file__).resolve().parent.parent
# An emulated processor needs more time for the same test.
SLOWNESS = float(os.environ.get("PV_TEST_SLOWNESS", "1"))
TEST_SECONDS = 120
# Root of a user namespace is not root: it cannot mount a disk, and files of others are nobody's.
IN_USER_NAMESPACE = Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
IS_ROOT = os.geteuid() == 0 and not IN_USER_NAMESPACE

Result = namedtuple("Result", "code out err")


def pv_skip(reason):
    """For what this machine may lack but a machine of ours must not: PV_MUST_WORK=1 turns the skip into a failure."""
    if os.environ.get("PV_MUST_WORK"):
        pytest.fail(f"cannot be tested here, and PV_MUST_WORK is set: {reason}", pytrace=False)
    pytest.skip(reason)


# ---- which tests, and for how long ----

def pytest_collection_modifyitems(config, items):
    others = ["user"] if IS_ROOT else ["root"] if os.geteuid() else ["root", "user"]
    if not os.environ.get("PV_TEST_DAY"):
        others.append("day")
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in others)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Ends a test that hangs, its fixtures included, with a traceback of where it stood."""
    marker = item.get_closest_marker("timeout")
    seconds = (marker.args[0] if marker else TEST_SECONDS) * SLOWNESS

    def expired(_signum, _frame):
        raise AssertionError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


HALF = "root" if IS_ROOT else "root of a user namespace" if os.geteuid() == 0 else "an ordinary user"


def pytest_runtest_logreport(report):
    if report.failed:
        failures.note(f"{report.nodeid} ({HALF}, {report.when})", report.longreprtext)


def pytest_collectreport(report):
    if report.failed:
        failures.note(f"{report.nodeid} ({HALF}, not even read)", report.longreprtext)


# ---- where ----

@pytest.fixture
def temporary():
    """A fresh directory on a real file system, outside /tmp and /var/tmp (which a sandboxed view replaces)."""
    base = Path(os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir) / ".cache" / "pvisor-tests"
    base.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="t-", dir=base))
    yield path
    tree.remove(path)


@pytest.fixture
def kept():
    """A directory for what explains a failure later (a seed, a tree): it stays, ignored by git."""
    path = TOP / "tests" / "out"
    try:
        path.mkdir(exist_ok=True)
    except OSError:  # somebody else's clone
        path = Path(tempfile.mkdtemp(prefix="pvisor-test-out-", dir="/var/tmp"))
    return path


@pytest.fixture
def tmpfs():
    """A fresh directory on a tmpfs."""
    path = Path(tempfile.mkdtemp(prefix="pvisor-tests-", dir="/dev/shm"))
    yield path
    tree.remove(path)


@pytest.fixture(scope="session")
def mounted_filesystems():
    """{kind: directory}, empty where nothing can be mounted. Mounted once; each test takes a directory inside."""
    prepared = os.environ.get("PV_TEST_FILESYSTEMS")  # by ./dev, for an ordinary user
    if prepared:
        yield {kind: Path(prepared) / kind for kind in filesystems.KINDS if (Path(prepared) / kind).is_dir()}
        return
    if not IS_ROOT:
        yield {}
        return
    base = tempfile.mkdtemp(prefix="pvisor-mounts-", dir="/var/tmp")
    mounted = filesystems.mount_all(base)
    yield {kind: Path(place) for kind, place in mounted.items()}
    for place in mounted.values():
        filesystems.unmount(place)
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(params=filesystems.KINDS)
def filesystem(request, mounted_filesystems):
    """A fresh directory on ext4, xfs, btrfs and tmpfs in turn."""
    if request.param not in mounted_filesystems:
        pv_skip(f"no {request.param}: it cannot be mounted here (./dev test, run as root, mounts for both halves)")
    path = Path(tempfile.mkdtemp(prefix="t-", dir=mounted_filesystems[request.param]))
    yield path
    tree.remove(path)


@pytest.fixture
def mount_filesystem(temporary):
    """mount_filesystem(kind, megabytes) -> a directory with a whole small file system of the test's own. Root only."""
    mounted = []

    def mount(kind, megabytes=512):
        place = temporary / f"mount-{len(mounted)}"
        try:
            filesystems.mount(kind, str(place), f"{place}.img", megabytes)
        except OSError as e:
            pv_skip(str(e))
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        filesystems.unmount(place)


@pytest.fixture
def fuse():
    """The device of FUSE, which the person may open."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pv_skip("no /dev/fuse that may be opened (./dev test, run as root, arranges one for both halves)")


# ---- as whom ----

@pytest.fixture
def is_root():
    return IS_ROOT


@pytest.fixture
def home(temporary):
    """A fresh HOME with nothing in it but a git identity."""
    path = temporary / "home"
    path.mkdir(mode=0o755)
    (path / ".gitconfig").write_text(
        "[user]\n\tname = Test Person\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n")
    return path


@pytest.fixture
def environment(home):
    """All that a command under test gets to see; a test may change it before it runs anything."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    return {"HOME": str(home), "USER": name, "LOGNAME": name, "SHELL": "/bin/bash", "TERM": "dumb", "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            # The sanitizers' word on a leak would be exit code 23 of a command that did its work.
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "")}


# ---- what ----

@pytest.fixture(scope="session")
def pv():
    """The pvisor under test, absolute."""
    path = Path(os.environ.get("PVISOR", TOP / "build" / "pvisor")).absolute()
    if not path.exists():
        pytest.fail(f"no {path}: build it first (./dev build), or set PVISOR", pytrace=False)
    return str(path)


SMALL_PROJECT = {
    "README.md": "# A small project\n\nTwo lines.\n",
    "src/main.c": "int main(void)\n{\n\treturn 0;\n}\n",
    "src/util/list.c": "/* a list */\n",
    "docs/guide.txt": "".join(f"line {i}\n" for i in range(1, 41)),
    "data/blob.bin": bytes(range(256)) * 16,
    ".gitignore": "/out/\n*.o\n",
    "latest@": "docs/guide.txt",
}


@pytest.fixture
def make_workspace(temporary, environment):
    """make_workspace(files=..., git=True, where=None, name="project") -> a new directory with these files, committed."""

    def make(files=None, git=True, where=None, name="project"):
        path = Path(where or temporary) / name
        path.mkdir(parents=True)
        tree.build(path, SMALL_PROJECT if files is None else files)
        if git:
            for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "First"]):
                subprocess.run(["git", *command], cwd=path, env=environment, check=True)
        return path

    return make


@pytest.fixture
def workspace(make_workspace):
    """A git repository with a small committed project, on a real file system."""
    return make_workspace()


@pytest.fixture
def plain(make_workspace):
    """The same project without git."""
    return make_workspace(git=False, name="plain")


# ---- running ----

@pytest.fixture
def marker():
    """A word that no other process carries: put it on a command line, then ask lib.processes."""
    word = f"pvtest-{uuid.uuid4().hex}"
    yield word
    for pid in processes.marked(word):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _text(data):
    return data.decode("utf-8", "surrogateescape") if data else ""


@pytest.fixture
def run(environment, temporary):
    """run(args, cwd=, env=, input=, timeout=60, pty=False) -> (code, out, err) as text, raw bytes surrogate-escaped.

    env adds to the environment (None as a value takes away). A negative code is a signal. With pty the command has
    a terminal, out is what the terminal showed and err is empty. What outlives the time fails the test.
    """

    def call(args, cwd=None, env=None, input=None, timeout=60, pty=False):
        full = {k: v for k, v in {**environment, **(env or {})}.items() if v is not None}
        args, cwd, timeout = [os.fspath(a) for a in args], cwd or temporary, timeout * SLOWNESS
        if pty:
            with Terminal(args, cwd=cwd, env=full) as terminal:
                if input:
                    terminal.send(input)
                code = terminal.wait(timeout)
                return Result(code, terminal.output, "")
        process = subprocess.Popen(args, cwd=cwd, env=full, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = process.communicate(input.encode() if isinstance(input, str) else input, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"{args} took longer than {timeout} s") from None
        return Result(process.returncode, _text(out), _text(err))

    return call


@pytest.fixture
def pvisor(run, pv):
    """pvisor(*args, code=0, **as for run) -> the same result; any other exit code fails (code=None: none does)."""

    def call(*args, code=0, **options):
        result = run([pv, *args], **options)
        assert code is None or result.code == code, (
            f"pvisor {' '.join(map(str, args))}: exit {result.code}, wanted {code}\n{result.out}\n{result.err}")
        return result

    return call


@pytest.fixture
def terminal(environment, temporary):
    """terminal(args, cwd=, env=, rows=, columns=) -> a Terminal, closed with the test."""
    opened = []

    def start(args, cwd=None, env=None, **size):
        opened.append(Terminal([os.fspath(a) for a in args], cwd=cwd or temporary, env={**environment, **(env or {})},
                               **size))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def background(pv, environment, workspace, temporary):
    """background(*args of run, cwd=workspace) -> a lib.beside.Job that runs, ended with the test."""
    started = []

    def start(*args, cwd=None):
        started.append(beside.Job(pv, args, cwd or workspace, environment, temporary / f"job-{len(started)}.log"))
        return started[-1]

    yield start
    for job in started:
        job.end()


# ---- a network ----

@pytest.fixture(scope="module")
def outside_world():
    base = Path(os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir) / ".cache" / "pvisor-tests"
    base.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="outside-", dir=base))
    try:
        world = outside.Outside(path)
    except OSError as e:
        pv_skip(f"no network namespace with a world of its own: {e}")
    yield world
    world.close()
    tree.remove(path)


@pytest.fixture
def world(outside_world, run, pv, plain):
    """A network with servers and names of its own, lib.outside; world.pvisor() runs in it, world.run() without pVisor."""

    class Here:
        directory, names = outside_world.directory, outside.NAMES

        def run(self, args, cwd=None, **options):
            return run(outside_world.command(args, cwd or plain), **options)

        def pvisor(self, *args, code=0, wrap=(), **options):
            result = self.run([*wrap, pv, *args], **options)
            assert code is None or result.code == code, (
                f"pvisor {' '.join(map(str, args))}: exit {result.code}, wanted {code}\n{result.out}\n{result.err}")
            return result

        def command(self, *args):
            return outside_world.command([pv, *args], plain)

        def safe(self, rules, command, **options):
            """--safe with these targets allowed (or whole options, where they begin with --)."""
            more = [a for r in rules for a in (r.split("=", 1) if r.startswith("--") else ["--overlaynet-allow", r])]
            return self.pvisor("run", "--safe", *more, "--", *command, **options)

        def inside(self, rules, script, *arguments, code=0, **options):
            """What a Python program in the sandbox printed as JSON."""
            result = self.safe(rules, ["/usr/bin/python3", "-c", outside.PRELUDE + script, *arguments], code=code,
                               **options)
            return json.loads(result.out)

        def directly(self, script, *arguments, **options):
            """The same without pVisor."""
            result = self.run(["/usr/bin/python3", "-c", outside.PRELUDE + script, *arguments], **options)
            assert result.code == 0, result.err
            return json.loads(result.out)

        def free_port(self):
            return outside_world.free_port()

        def connections(self):
            return outside_world.connections()

        def questions(self):
            return outside_world.questions()

    return Here()
