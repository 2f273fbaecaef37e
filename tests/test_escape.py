# SPDX-License-Identifier: Apache-2.0
"""Attempts to get out of the boundary. Each is made twice: inside, where it is refused, and by the same person without
pVisor, where it succeeds: else the refusal would prove nothing. The attempts themselves are in lib/attacks.py.
"""
import contextlib
import ctypes
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from conftest import IN_USER_NAMESPACE, IS_ROOT, pv_skip
from lib import attacks, jobs, tree

pytestmark = pytest.mark.kernel

SAFE, STAGE = ["--safe"], ["--stage"]
MODES = {"safe": SAFE, "staged": STAGE}
LANDLOCK_SCOPES = 6  # the version that has them


@pytest.fixture
def workspace(make_workspace):
    """Without git, which no attack here is about."""
    return make_workspace(git=False)


@pytest.fixture(params=MODES)
def mode(request):
    """The two kinds of runs with a boundary: what holds in both is tried in both."""
    return MODES[request.param]


@pytest.fixture
def attempt(pvisor, run, workspace):
    """attempt(name, *arguments, mode=, **as for run) -> what came of it inside: "refused ERRNO"."""
    shutil.copy(attacks.__file__, workspace / "attacks.py")

    def inside(name, *arguments, mode=SAFE, options=(), **more):
        program = ["env", "INSIDE=1", "/usr/bin/python3", "attacks.py", name, *map(str, arguments)]
        return pvisor("run", "-q", *mode, *options, "--", *program, cwd=workspace, **more).out.strip()

    return inside


@pytest.fixture
def twin(run, workspace):
    """The same without pVisor."""

    def outside(name, *arguments, **more):
        program = ["/usr/bin/python3", attacks.__file__, name, *map(str, arguments)]
        result = run(program, cwd=workspace, **more)
        assert result.code == 0, result.err
        return result.out.strip()

    return outside


@pytest.fixture
def refused(attempt, twin):
    """Succeeds outside, is refused inside; returns how."""

    def check(name, *arguments, mode=SAFE, **more):
        assert twin(name, *arguments) == "succeeded"
        result = attempt(name, *arguments, mode=mode, **more)
        assert result.startswith("refused"), f"{name}: {result}"
        return result.removeprefix("refused ")

    return check


@pytest.fixture
def secret(temporary):
    """A directory of the person's, beside the workspace, with a file in it."""
    directory = temporary / "secret"
    directory.mkdir()
    (directory / "secret").write_text("nobody's business\n")
    return directory


# ---- what is outside the view ----

@pytest.mark.parametrize("way", ["absolute", "dotdot", "self_root", "init_root", "thread_root", "by_new_link"])
def test_files_outside_cannot_be_read(way, refused, attempt, secret, mode):
    path = secret / "secret"
    if way == "init_root":  # the host's pid 1 may be out of reach for a twin
        assert attempt("read_init_root", path, mode=mode).startswith("refused")
    else:
        refused(f"read_{way}", path, mode=mode)


@pytest.mark.parametrize("way", ["absolute", "dotdot", "self_root", "by_link"])
def test_files_outside_cannot_be_made(way, refused, secret, mode):
    refused(f"create_{way}", secret, mode=mode)
    assert os.listdir(secret) == ["secret"]


def test_links_in_the_workspace_lead_nowhere(refused, workspace, secret, mode):
    (workspace / "old-link").symlink_to(secret / "secret")
    (workspace / "relative-link").symlink_to("../secret/secret")
    (workspace / "proc-link").symlink_to(f"/proc/self/root{secret}/secret")
    for link in ("old-link", "relative-link", "proc-link"):
        assert refused("read_by_old_link", link, mode=mode) == "ENOENT"


def test_home_shows_no_credentials(refused, attempt, home):
    """--safe shows HOME; what opens other doors is not in it, whether it is there now or appears later."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("key")
    (home / ".netrc").write_text("machine x")
    (home / ".config" / "gh").mkdir(parents=True)
    (home / ".config" / "gh" / "hosts.yml").write_text("token")
    for path in (".ssh/id_ed25519", ".netrc", ".config/gh/hosts.yml"):
        refused("read_absolute", home / path)
        assert attempt("read_self_root", home / path).startswith("refused")


def test_a_staged_run_shows_no_home(refused, home):
    (home / "diary").write_text("dear")
    refused("read_absolute", home / "diary", mode=STAGE)


def test_temporary_files_of_the_host_are_not_there(refused, mode):
    for directory in ("/tmp", "/var/tmp", "/dev/shm"):
        path = Path(directory) / f"pvtest-{uuid.uuid4().hex}"
        path.write_text("x")
        try:
            assert refused("read_absolute", path, mode=mode) == "ENOENT"
        finally:
            path.unlink()


def test_a_file_by_its_handle_is_refused(attempt, twin, secret):
    handle = handle_of(secret / "secret")
    if IS_ROOT:
        assert twin("open_by_handle", handle) == "succeeded"
    assert attempt("open_by_handle", handle) == "refused EPERM"


def handle_of(path):
    """kind:hex, as name_to_handle_at(2) gives it."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(4 + 128))
    number = ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(number), 0) < 0:
        pv_skip("this file system has no handles")
    size = int.from_bytes(buffer.raw[:4], "little")
    return f"{int.from_bytes(buffer.raw[4:8], 'little')}:{buffer.raw[8:8 + size].hex()}"


# ---- the host's files, seen and not to be changed ----

def test_the_targets_own_path_leads_to_the_stage(pvisor, workspace, mode):
    """Whatever path the lower directory has: all of them are the view, and the target stays as it was."""
    script = ('echo changed > "$1/README.md"; echo changed > "/proc/self/root$1/src/main.c";'
              'echo new > "$1/../$(basename "$1")/new"; cd ..; echo changed > "./$(basename "$1")/docs/guide.txt";'
              'cat "$1/README.md"')
    before = tree.snapshot(workspace)
    result = pvisor("run", "-q", *mode, "--", "sh", "-c", script, "sh", workspace, cwd=workspace)
    assert result.out == "changed\n"
    tree.assert_same(tree.snapshot(workspace), before)
    pvisor("run", "-q", "--", "sh", "-c", "echo changed > README.md", cwd=workspace)  # the twin: no stage
    assert (workspace / "README.md").read_text() == "changed\n"


@pytest.mark.parametrize("name", ["create_absolute", "change_mode"])
def test_system_directories_cannot_be_changed(name, attempt, twin, mode):
    if IS_ROOT:
        assert twin(name, "/usr/local/share") == "succeeded"
    assert attempt(name, "/usr/local/share", mode=mode) in ("refused EROFS", "refused EACCES", "refused EPERM")


def test_hard_links_to_files_outside_are_refused(refused, attempt, secret, mode):
    refused("hard_link", secret / "secret", mode=mode)
    assert attempt("hard_link", "/etc/passwd", mode=mode).startswith("refused")


def test_no_rename_leads_out_or_in(attempt, twin, refused, secret, mode):
    (secret / "directory").mkdir()
    refused("rename_out", secret, mode=mode)
    refused("rename_in", secret / "directory", mode=mode)
    refused("rename_by_magic_link", secret / "directory", mode=mode)
    assert attempt("rename_in", "/usr/share/doc", mode=mode).startswith("refused")
    assert attempt("rename_by_magic_link", "/usr/share/doc", mode=mode).startswith("refused")


def test_the_jobs_own_record_is_out_of_reach(attempt, twin, pvisor, workspace, home):
    pvisor("run", "-q", *SAFE, "--", "true", cwd=workspace)
    store = home / ".local/state/pvisor"
    bundle = next(store.glob("jobs/run-*/bundle.json"))
    for name, path in (("overwrite", bundle), ("read_absolute", bundle), ("read_directory", store / "jobs")):
        assert twin(name, path) == "succeeded"
        assert attempt(name, path).startswith("refused")
    assert attempt("create_absolute", store).startswith("refused")


@pytest.fixture
def share(temporary):
    """A directory to be shown read-only, with a socket and a FIFO that somebody of the host serves."""
    directory = temporary / "share"
    directory.mkdir()
    (directory / "file").write_text("x")
    os.mkfifo(directory / "fifo")
    reader = os.open(directory / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with listening(socket.AF_UNIX, str(directory / "socket")):
        yield directory
    os.close(reader)


@contextlib.contextmanager
def listening(family, address, kind=socket.SOCK_STREAM):
    """A socket of the host's. TCP and Unix ones accept by themselves; a UDP one answers."""
    with socket.socket(family, kind) as s:
        s.bind(address)
        if kind == socket.SOCK_STREAM:
            s.listen(16)
            yield s
            return
        s.settimeout(0.1)
        over = threading.Event()

        def answer():
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    _data, peer = s.recvfrom(16)
                    if peer:
                        s.sendto(b"y", peer)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield s
        finally:
            over.set()
            thread.join()


def test_a_read_only_share_reaches_nobody(refused, share, mode):
    show = ["--mount", f"{share}:read"]
    refused("unix_path", share / "socket", mode=mode, options=show)
    refused("fifo_write", share / "fifo", mode=mode, options=show)
    refused("create_absolute", share, mode=mode, options=show)
    refused("overwrite", share / "file", mode=mode, options=show)
    refused("change_mode", share / "file", mode=mode, options=show)


@pytest.mark.root
def test_a_share_with_mounts_below_stays_read_only(attempt, twin, temporary, mode):
    """nosuid,nodev mounts and submounts: a remount without their flags is refused, and one with them too."""
    top = temporary / "mounted"
    top.mkdir()
    with mounted(top, "nosuid,nodev"):
        below = top / "below"
        below.mkdir()
        with mounted(below, "nosuid,nodev,noexec"):
            show = ["--mount", f"{top}:read"]
            for place in (top, below):
                assert twin("create_absolute", place) == "succeeded"
                for name in ("create_absolute", "remount_writable", "unmount"):
                    assert attempt(name, place, mode=mode, options=show).startswith("refused")
                assert os.access(place, os.W_OK)
            assert twin("remount_writable", below) == "succeeded"


@contextlib.contextmanager
def mounted(place, options):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=False).returncode:
        pv_skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("name", ["kernel/core_pattern", "vm/drop_caches", "kernel/hostname"])
def test_kernel_settings_cannot_be_written(name, attempt, twin, mode):
    if IS_ROOT:
        assert twin("sysctl", name) == "succeeded"
    assert attempt("sysctl", name, mode=mode).startswith("refused")


@pytest.mark.root
@pytest.mark.parametrize("kind", ["char", "block"])
def test_no_device_can_be_made(kind, attempt, twin, mode):
    assert twin("make_device", kind) in ("succeeded", "refused ENXIO")  # made, whether or not anything is behind it
    assert attempt("make_device", kind, mode=mode) == "refused EPERM"


def test_no_disk_or_memory_is_there(attempt, mode):
    for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net/tun"):
        assert attempt("read_absolute", path, mode=mode) in ("refused ENOENT", "refused EACCES")


# ---- descriptors ----

@pytest.mark.parametrize("kind", ["directory", "file"])
def test_descriptors_are_not_inherited(kind, pv, environment, workspace, secret, attempt, mode):
    fd = os.open(secret if kind == "directory" else secret / "secret", os.O_RDONLY)
    program = ["/usr/bin/python3", "attacks.py", "inherited_descriptor", kind]
    try:
        for command, expected in ((program, "succeeded"), ([pv, "run", "-q", *mode, "--", *program], "refused EBADF")):
            out = subprocess.run(command, cwd=workspace, env=environment, pass_fds=[fd], check=True,
                                 stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout
            assert out.strip() == expected
    finally:
        os.close(fd)


def test_a_directory_as_stdin_is_no_way_out(pv, environment, workspace, secret, mode):
    program = ["cat", "/proc/self/fd/0/secret", "/proc/self/fd/0/../secret/secret"]
    for command, expected in ((program, "nobody's business\n" * 2), ([pv, "run", "-q", *mode, "--", *program], "")):
        fd = os.open(secret, os.O_RDONLY)
        out = subprocess.run(command, cwd=workspace, env=environment, stdin=fd, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL, check=False).stdout
        os.close(fd)
        assert out == expected


# As inetd and systemd give a service its connection. A socket stays in the network that it was made in.
RECONNECT = """
import ctypes, socket, sys
s = socket.socket(fileno=0)
if s.family == socket.AF_INET:
    ctypes.CDLL(None).connect(0, bytes(16), 16)  # AF_UNSPEC: disconnected
s.connect(("127.0.0.1", int(sys.argv[1])) if s.family == socket.AF_INET else sys.argv[1].encode().join([b"\\0", b""]))
print("through")
"""


def inet_stream():
    return socket.socket()


def inet_connected():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname())


def inet_datagram():
    return socket.socket(type=socket.SOCK_DGRAM)


def unix_datagram():
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


@pytest.mark.parametrize("made", [inet_stream, inet_connected, inet_datagram, unix_datagram])
@pytest.mark.parametrize("options", [["--safe"], ["--strict", "--safe"], ["--stage", "--overlaynet-deny-all"],
                                     ["--safe", "--overlaynet-allow", "example.com"]], ids=" ".join)
def test_a_socket_as_stdin_is_no_way_to_the_hosts_network(pv, environment, workspace, options, made):
    with contextlib.ExitStack() as stack:
        if made is unix_datagram:
            name = f"pvisor-test-{os.getpid()}"
            stack.enter_context(unix_datagram()).bind("\0" + name)
        else:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            name = str(server.getsockname()[1])
        program = ["/usr/bin/python3", "-c", RECONNECT, name]
        with made() as given:
            result = subprocess.run([pv, "run", "-q", *options, "--", *program], cwd=workspace, env=environment, stdin=given,
                                    capture_output=True, text=True, check=False)
        assert result.returncode == 6 and "stdin is a socket" in result.stderr and not result.stdout, result
        with made() as given:  # directly
            assert subprocess.run(program, stdin=given, capture_output=True, text=True, check=False).stdout == "through\n"


def test_a_connected_unix_stream_may_be_stdin_and_stdout(pv, environment, workspace):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen([pv, "run", "-q", "--safe", "--", "cat"], cwd=workspace, env=environment, stdin=theirs,
                                   stdout=theirs)
        ours.sendall(b"words\n")
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0 and ours.recv(100) == b"words\n"


def test_a_handle_of_the_kernels_is_no_stdin(pv, environment, workspace):
    for fd in (os.pidfd_open(os.getpid()), os.open("/proc/self/ns/net", os.O_RDONLY)):
        result = subprocess.run([pv, "run", "-q", "--safe", "--", "true"], cwd=workspace, env=environment, stdin=fd,
                                capture_output=True, text=True, check=False)
        os.close(fd)
        assert result.returncode == 6 and "handle of the kernel's" in result.stderr, result


REOPEN = ["sh", "-c", "echo hacked 2>/dev/null > /proc/self/fd/0"]


def fed(command, path, **options):
    with open(path, "rb") as f:
        return subprocess.run(command, stdin=f, capture_output=True, text=True, check=False, **options)


def test_a_file_as_stdin_is_not_to_be_written(pv, environment, workspace, secret, mode):
    prompt = secret / "prompt"
    for command, expected in ((REOPEN, "hacked\n"), ([pv, "run", "-q", *mode, "--", *REOPEN], "a task\n")):
        prompt.write_text("a task\n")
        fed(command, prompt, cwd=workspace, env=environment)
        assert prompt.read_text() == expected


def test_a_file_as_stdin_without_landlock_is_refused_or_said(pv, environment, workspace, secret, pvisor):
    """--allow-userns leaves the half of Landlock out that holds files."""
    prompt = secret / "prompt"
    prompt.write_text("a task\n")
    refused = fed([pv, "run", "--safe", "--allow-userns", "--", *REOPEN], prompt, cwd=workspace, env=environment)
    assert refused.returncode == 5 and "hint: pass the input through a pipe" in refused.stderr
    assert prompt.read_text() == "a task\n"
    assert fed([pv, "run", "--stage", "--allow-userns", "--", "true"], prompt, cwd=workspace,
               env=environment).returncode == 0
    levels = {line.split("  ")[1]: line for line in pvisor("review", cwd=workspace).out.splitlines()
              if line.startswith("  host writes")}
    assert "unenforced" in levels["host writes"]


@contextlib.contextmanager
def handing_out(address, path):
    """A host process that gives whoever connects a descriptor of its own."""
    with listening(socket.AF_UNIX, address) as server, open(path, "rb") as f:
        server.settimeout(0.1)
        over = threading.Event()

        def give():
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    peer, _address = server.accept()
                    with peer:
                        socket.send_fds(peer, [b"x"], [f.fileno()])

        thread = threading.Thread(target=give)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


WRITE_BACK = "import os; os.write(os.open('/proc/self/fd/0', os.O_WRONLY), b'a line of the agent\\n')"


@pytest.mark.parametrize("options", [[], ["</dev/null"]], ids=["pipe", "null"])
def test_a_pipe_as_stdin_can_be_written_to_and_the_record_says_so(run, pv, workspace, environment, options):
    """No control: nothing there is keeps a pipe from being opened anew."""
    script = ('echo one | { read -r x; "$0" run -q --safe -- /usr/bin/python3 -c "$1" %s; read -r x; echo "$x"; }'
              % " ".join(options))
    out = run(["sh", "-c", script, pv, WRITE_BACK], cwd=workspace).out
    observations = jobs.bundle(jobs.job_dirs(environment)[-1])["executor_observations"]
    limits = [o["limits"] for o in observations if o["control"] == "no-inherited-fds"][0]
    assert any("a pipe" in limit for limit in limits) == ("agent" in out) == (not options)


def test_nobody_hands_a_descriptor_in(refused, home, secret):
    with handing_out(str(home / "socket"), secret / "secret"):
        refused("descriptor_over_socket", home / "socket")
    name = f"pvtest-{uuid.uuid4().hex}"
    with handing_out("\0" + name, secret / "secret"):
        refused("descriptor_over_abstract", name)


# ---- sockets ----

def test_sockets_by_path_are_out_of_reach(refused, temporary, home, mode):
    short = Path(f"/tmp/pvtest-{uuid.uuid4().hex[:8]}")
    for path in (short, temporary / "s", home / "s"):
        with listening(socket.AF_UNIX, str(path)):
            refused("unix_path", path, mode=mode)
        path.unlink()
    with listening(socket.AF_UNIX, str(short), socket.SOCK_DGRAM):
        refused("unix_datagram", short, mode=mode)
    short.unlink()


def test_abstract_sockets_are_out_of_reach(refused):
    name = f"pvtest-{uuid.uuid4().hex}"
    with listening(socket.AF_UNIX, "\0" + name):
        refused("unix_abstract", name)


def landlock_version():
    landlock_create_ruleset, only_version = 444, 1
    return ctypes.CDLL(None).syscall(landlock_create_ruleset, None, 0, only_version)


def test_abstract_sockets_are_out_of_reach_with_the_hosts_network(refused, attempt, environment):
    """Without a network namespace it is Landlock that keeps them apart. Where it cannot (before Linux 6.12) the record
    says so."""
    name = f"pvtest-{uuid.uuid4().hex}"
    with listening(socket.AF_UNIX, "\0" + name):
        if landlock_version() >= LANDLOCK_SCOPES:
            refused("unix_abstract", name, mode=STAGE)
            return
        assert attempt("unix_abstract", name, mode=STAGE) == "succeeded"
    record = jobs.bundle(jobs.job_dirs(environment)[-1])
    assert record["safety"]["levels"]["network"] == "unenforced"
    assert any("does not cover abstract Unix sockets" in limit
               for o in record["executor_observations"] if o["dimension"] == "network" for limit in o["limits"])


def test_buses_and_agents_are_not_passed_on(attempt, twin, temporary, mode):
    for name, variable, prefix in (("session_bus", "DBUS_SESSION_BUS_ADDRESS", "unix:path="),
                                   ("ssh_agent", "SSH_AUTH_SOCK", "")):
        path = Path(f"/tmp/pvtest-{uuid.uuid4().hex[:8]}")
        with listening(socket.AF_UNIX, str(path)):
            env = {variable: f"{prefix}{path}"}
            assert twin(name, env=env) == "succeeded"
            assert attempt(name, mode=mode, env=env) == "refused ENOENT"
            # Passing the name on purpose does not open the path.
            assert attempt(name, mode=mode, env=env, options=["--pass-env", variable]).startswith("refused")
        path.unlink()


def own_address():
    """One of this machine's own addresses that is no loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return s.getsockname()[0]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.99.99.99", "own"])
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_the_network_is_denied(kind, address, refused):
    address = own_address() if address == "own" else address
    if not address:
        pytest.skip("this machine has no address but its loopback's")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = listening(family, (address, 0), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        with server as s:
            assert refused(kind, address, s.getsockname()[1]) in ("ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL")
    except OSError as e:
        pytest.skip(f"{address} cannot be listened on: {e}")


def test_denied_network_is_denied_without_safe(refused):
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as s:
        refused("tcp", "127.0.0.1", s.getsockname()[1], mode=["--stage", "--overlaynet-deny-all"])


def test_one_may_talk_to_oneself(pvisor, workspace):
    """Denied is the world, not the loopback of one's own: test suites need it."""
    program = ("import socket; s = socket.create_server(('127.0.0.1', 0));"
               "c = socket.create_connection(s.getsockname()); c.send(b'x'); print(s.accept()[0].recv(1))")
    assert pvisor("run", "-q", *SAFE, "--", "/usr/bin/python3", "-c", program, cwd=workspace).out == "b'x'\n"


FAMILIES = {"vsock": (40, 1, 0), "packet": (17, 3, 0), "bluetooth": (31, 3, 1), "alg": (38, 5, 0), "rds": (21, 5, 0),
            "tipc": (30, 1, 0), "can": (29, 3, 1), "netlink-audit": (16, 3, 9), "netlink-netfilter": (16, 3, 12),
            "netlink-uevent": (16, 3, 15)}


@pytest.mark.parametrize("family", FAMILIES)
def test_odd_sockets_are_refused(family, attempt, twin, mode):
    number, kind, protocol = FAMILIES[family]
    if family in ("vsock", "netlink-netfilter"):  # the twin that every kernel of ours has
        assert twin("socket_family", number, kind, protocol) == "succeeded"
    assert attempt("socket_family", number, kind, protocol, mode=mode) in ("refused EAFNOSUPPORT",
                                                                          "refused EPROTONOSUPPORT")


def test_vsock_hides_behind_no_high_bits(refused, mode):
    assert refused("socket_family_high_bits", 40, mode=mode) == "EAFNOSUPPORT"


# ---- processes ----

@pytest.fixture
def victim():
    """A host process of the same person's."""
    with subprocess.Popen(["sleep", "60"], cwd="/") as process:
        yield process
        process.kill()


@pytest.mark.parametrize("name", ["signal_host", "signal_everybody", "trace_host", "take_descriptor_of"])
def test_host_processes_are_out_of_reach(name, attempt, twin, victim, mode):
    if name in ("signal_host", "signal_everybody") or IS_ROOT:  # yama may refuse an ordinary twin to trace
        assert twin(name, victim.pid) == "succeeded"
    assert attempt(name, victim.pid, mode=mode).startswith("refused")
    assert victim.poll() is None


@pytest.mark.parametrize("link", ["cwd", "root", "fd"])
def test_host_processes_directories_are_out_of_reach(link, refused, victim, mode):
    refused("host_process_link", victim.pid, link, mode=mode)


@pytest.mark.parametrize("name", ["environ", "cmdline", "maps", "status"])
def test_host_processes_are_invisible(name, refused, victim, mode):
    refused("host_process_file", victim.pid, name, mode=mode)


@pytest.mark.parametrize("name", ["environ", "maps"])
def test_the_sandboxs_init_keeps_its_secrets(name, attempt, twin, mode):
    assert twin("init_secrets", name) == "succeeded"
    assert attempt("init_secrets", name, mode=mode).startswith("refused")


def test_shared_memory_is_not_shared(refused, mode):
    libc = ctypes.CDLL(None, use_errno=True)
    key = uuid.uuid4().int & 0x7fffffff
    number = libc.shmget(key, 4096, 0o600 | 0o1000)
    if number < 0:
        pv_skip("no System V shared memory")
    try:
        assert refused("shared_memory", key, mode=mode) == "ENOENT"
    finally:
        libc.shmctl(number, 0, None)


def test_other_terminals_are_not_there(refused, mode):
    master, slave = os.openpty()
    try:
        refused("other_terminal", os.ttyname(slave), mode=mode)
    finally:
        os.close(master)
        os.close(slave)


# ---- the kernel's other doors ----

@pytest.mark.parametrize("name", ["mount_tmpfs", "mount_new_interface", "mount_clone_tree"])
def test_nothing_can_be_mounted(name, attempt, twin):
    if IS_ROOT:
        assert twin(name) == "succeeded"
    assert attempt(name) == "refused EPERM"


def test_no_bind_mount_uncovers_anything(attempt, twin, workspace):
    if IS_ROOT:
        assert twin("mount_bind", "/proc") == "succeeded"
    assert attempt("mount_bind", "/proc") == "refused EPERM"


@pytest.mark.parametrize("path", ["/usr", "/proc/sys", "/"])
def test_mounts_stay_as_they_are(path, attempt):
    assert attempt("remount_writable", path) == "refused EPERM"
    assert attempt("unmount", path) == "refused EPERM"


@pytest.mark.parametrize("name", ["new_user_namespace", "new_user_namespace_by_clone", "new_user_namespace_by_clone3"])
def test_no_user_namespace_within(name, refused):
    assert refused(name) in ("EPERM", "ENOSYS", "ENOSPC")


@pytest.mark.parametrize("flag", [attacks.CLONE_NEWNS, attacks.CLONE_NEWNET])
def test_no_other_namespace_either(flag, attempt, twin):
    if IS_ROOT:
        assert twin("new_namespace_without_user", flag) == "succeeded"
    assert attempt("new_namespace_without_user", flag) == "refused EPERM"


def test_no_namespace_can_be_joined(attempt, twin):
    if IS_ROOT:
        assert twin("join_namespace", "uts") == "succeeded"
    assert attempt("join_namespace", "uts") == "refused EPERM"


@pytest.fixture(params=["--safe", "--stage"])
def with_namespaces(request, pvisor, workspace, environment):
    """Options of a run that may make namespaces, where one by root does not stand open: then --safe refuses to start,
    and without it the record says so (an initramfs that left its proc mounted under the root is the cause)."""
    options = [request.param, "--allow-userns"]
    started = pvisor("run", "-q", *options, "--", "true", cwd=workspace, code=None).code
    observations = jobs.bundle(jobs.job_dirs(environment)[-1])["executor_observations"]
    probes = {p["name"]: p["outcome"] for o in observations for p in o["probes"]}
    assert (started == 5) == (request.param == "--safe" and probes["proc.of-its-own"] == "succeeded")
    if probes["proc.of-its-own"] == "succeeded":
        pytest.skip("a proc of its own can be had here, and the record says so")
    return options


@pytest.mark.parametrize("name", ["kernel/core_pattern", "vm/drop_caches"])
def test_a_proc_of_ones_own_opens_no_kernel_setting(name, attempt, with_namespaces):
    assert attempt("kernel_setting_of_own_namespace", name, mode=with_namespaces).startswith("refused")


def test_ones_own_namespaces_uncover_nothing(attempt, workspace, secret, with_namespaces):
    """--allow-userns gives back mount(2) and takes away Landlock: what came along stays as it is."""
    options = with_namespaces
    assert attempt("new_user_namespace", mode=options) == "succeeded"
    assert attempt("uncover", workspace, secret / "secret", mode=options).startswith("refused")
    assert attempt("remount_in_own_namespace", "/usr", mode=options).startswith("refused")


def test_no_control_groups_in_ones_own_namespaces(attempt, refused, with_namespaces):
    """From there root froze and killed what is in any group of the machine, and others what shares the run's."""
    assert refused("control_groups_of_own_namespace", mode=with_namespaces) == "ENOSPC"


@pytest.mark.parametrize("name", ["terminal_input", "terminal_input_high_bits"])
def test_nothing_is_typed_for_the_next_shell(name, attempt, twin, mode):
    allowed = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if not allowed.exists() or allowed.read_text().strip() == "1" or IS_ROOT:
        assert "succeeded" in twin(name, pty=True)
    assert "refused EPERM" in attempt(name, mode=mode, pty=True)


def test_no_io_uring(attempt, twin):
    if Path("/proc/sys/kernel/io_uring_disabled").exists() and \
            Path("/proc/sys/kernel/io_uring_disabled").read_text().strip() != "0":
        pv_skip("io_uring is switched off here")
    assert twin("io_uring") == "succeeded"
    assert attempt("io_uring") == "refused ENOSYS"


def test_no_keyring(refused, mode):
    assert refused("keyring", mode=mode) == "ENOSYS"


@pytest.mark.parametrize("name", ["bpf_program", "perf_counter", "kernel_log", "page_faults"])
def test_large_kernel_interfaces_are_shut(name, attempt, twin, mode):
    if IS_ROOT:
        assert twin(name) in ("succeeded", "refused ENOENT", "refused EOPNOTSUPP")  # let in, if not served
    assert attempt(name, mode=mode) == "refused EPERM"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="an x86-64 kernel's other ABIs")
def test_foreign_abis_do_not_exist(attempt, twin, mode):
    if twin("call_of_32_bits") == "succeeded":
        assert attempt("call_of_32_bits", mode=mode) == "refused ENOSYS"
    assert attempt("call_of_x32", mode=mode) == "refused ENOSYS"


SETUID_PROGRAMS = ["/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp"]


@pytest.mark.user
def test_setuid_programs_stay_with_ones_own_rights(refused, mode):
    program = next((p for p in SETUID_PROGRAMS if os.path.exists(p) and os.stat(p).st_mode & stat.S_ISUID), None)
    if not program:
        pv_skip("no set-user-id program here")
    refused("setuid_program", program, mode=mode)


@pytest.mark.root
def test_a_setuid_copy_gives_nothing(attempt, twin, workspace, mode):
    result = attempt("setuid_copy", "/usr/bin/id", 65534, mode=mode)
    assert result == "refused EPERM"
    plain = Path("/var/tmp") / f"pvtest-{uuid.uuid4().hex[:8]}"  # HOME may be closed to the twin's other user
    plain.mkdir()
    try:
        out = subprocess.run([sys.executable, attacks.__file__, "setuid_copy", "/usr/bin/id", "65534"], cwd=plain,
                             stdout=subprocess.PIPE, check=True, text=True).stdout
        assert out == "succeeded\n"
    finally:
        shutil.rmtree(plain)


def test_capabilities_are_gone(pvisor, workspace, mode):
    """What a person's run has: nothing; root's: what reaches files of the view and processes of its own."""
    status = pvisor("run", "-q", *mode, "--", "cat", "/proc/self/status", cwd=workspace).out
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    expected = "00000000000400fb" if IS_ROOT else "0" * 16
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert fields[name] == expected, name
    for name in ("CapInh", "CapAmb"):
        assert fields[name] == "0" * 16, name


def test_the_attacks_can_tell(twin):
    assert twin("no_such_thing") == "refused ENOENT"


# Takes init's and the rename helper's descriptors away, and has the helper needed: the sandbox comes down at once.
COME_DOWN = """
import os, resource
os.write(1, b"ran\\n")
for pid in (1, 3):
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
os.rename("some", "other")
"""


def test_a_command_that_brings_the_sandbox_down_did_start(pvisor, workspace, environment):
    (workspace / "some").write_text("x")
    (workspace / "down.py").write_text(COME_DOWN)
    for _ in range(5):
        result = pvisor("run", "--safe", "--", "/usr/bin/python3", "-S", "-I", "down.py", cwd=workspace, code=None)
        assert result.out == "ran\n" and result.code in (0, 137) and "set up" not in result.err, result
    for job in jobs.job_dirs(environment):
        assert jobs.bundle(job)["run"]["exit"] is not None
