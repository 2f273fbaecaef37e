# SPDX-License-Identifier: Apache-2.0
"""Services of the host that people mount by habit: refused under --safe, or let in knowingly and recorded so."""
import json
import os
import socket
import threading
from pathlib import Path

import jsonschema
import pytest

from lib import jobs

SCHEMA = json.loads((Path(__file__).parent.parent / "src/evidence/schema/bundle.schema.json").read_text())
CONNECT = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'x');"
           "print(s.recv(8).decode())")


@pytest.fixture
def server(temporary):
    """server(path) -> a socket there that answers `heard` to whoever connects."""
    opened = []

    def start(path):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        s = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(path.parent)  # a path may be longer than an address
        s.bind(path.name)
        os.chdir(here)
        s.listen(8)
        opened.append(s)

        def serve():
            while True:
                try:
                    peer, _ = s.accept()
                    peer.recv(8)
                    peer.sendall(b"heard")
                    peer.close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return path

    yield start
    for s in opened:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


def safe(pvisor, workspace, *options, code=0, command=("true",), **more):
    return pvisor("run", "--safe", *options, "--", *command, cwd=workspace, code=code, **more)


@pytest.mark.parametrize("place, what", [
    (".docker/run/docker.sock", "Docker"), (".docker/run", "Docker"), (".colima/default/docker.sock", "Docker"),
    (".gnupg/S.gpg-agent", "gpg agent"), (".1password/agent.sock", "ssh agent"), ("some/where.sock", "a socket"),
])
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_service_is_refused_with_the_reason(pvisor, server, workspace, home, environment, place, what, access):
    path = home / place
    server(path if place.endswith(("sock", "agent")) else path / "docker.sock")
    if path.is_dir() and access == "read":  # the socket is dead there, and the rest of it may be wanted
        safe(pvisor, workspace, "--mount", f"{path}:read")
        return
    result = safe(pvisor, workspace, "--mount", f"{path}:{access}", code=6)
    assert what in result.err and "--i-know" in result.err
    assert jobs.job_dirs(environment) == []


@pytest.mark.parametrize("variable, value", [
    ("DOCKER_HOST", "unix://{}"), ("CONTAINER_HOST", "unix://{}"), ("SSH_AUTH_SOCK", "{}"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path={},guid=00"), ("TMUX", "{},123,0"), ("WAYLAND_DISPLAY", "{}"),
])
def test_a_service_is_known_by_the_variable_that_names_it(pvisor, server, workspace, home, variable, value):
    path = server(home / "odd place/of.sock")
    env = {variable: value.format(path)}
    assert "a socket of a program" not in safe(pvisor, workspace, "--mount", f"{path}:write", code=6, env=env).err
    # A directory that holds it is no better, nor is a link to either.
    assert "--mount" in safe(pvisor, workspace, "--mount", f"{path.parent}:write", code=6, env=env).err
    (home / "link").symlink_to(path.parent)
    safe(pvisor, workspace, "--mount", f"{home / 'link'}:write", code=6, env=env)
    safe(pvisor, workspace, "--mount", f"{home / 'link/of.sock'}:write", code=6, env=env)


@pytest.mark.parametrize("path", ["/run", "/var/run", "/run/user", "/run/dbus", "/run/systemd", "/tmp/.X11-unix"])
def test_the_machines_directories_are_refused(pvisor, workspace, path):
    if not os.path.isdir(path):
        pytest.skip(f"there is no {path} here")
    if path == "/run/systemd" and not os.path.exists("/run/systemd/private"):
        pytest.skip("no systemd")
    for access in ("write", "read"):
        result = safe(pvisor, workspace, "--mount", f"{path}:{access}", code=None)
        assert result.code == 6 or (access == "read" and path not in ("/run", "/var/run", "/run/user")), result.err


def test_a_share_for_reading_may_hold_one_since_it_is_dead_there(pvisor, server, workspace, home):
    path = server(home / "work/agent.sock")
    env = {"SSH_AUTH_SOCK": str(path)}
    run = safe(pvisor, workspace, "--mount", f"{home / 'work'}:read", env=env, code=None,
               command=["/usr/bin/python3", "-c", CONNECT, str(path)])
    assert run.code != 0 and "heard" not in run.out and "--i-know" not in run.err


def test_without_a_sandbox_preset_it_is_the_persons_word(pvisor, server, workspace, home):
    path = server(home / "agent.sock")
    run = pvisor("run", "--stage", "--mount", f"{path}:write", "--", "/usr/bin/python3", "-c", CONNECT, str(path),
                 cwd=workspace)
    assert run.out == "heard\n"


def test_who_knows_has_it_and_the_record_says_so(pvisor, server, workspace, home, environment):
    path = server(home / "agent.sock")
    env = {"SSH_AUTH_SOCK": str(path)}
    run = safe(pvisor, workspace, "--mount", f"{path}:write", "--i-know", "--pass-env", "SSH_AUTH_SOCK", env=env,
               command=["sh", "-c", "touch made && exec /usr/bin/python3 \"$@\"", "sh", "-c", CONNECT, str(path)])
    assert run.out == "heard\n" and "an ssh agent is shown" in run.err
    bundle = jobs.bundle(jobs.job_dirs(environment)[-1])
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(bundle)] == []
    levels = bundle["safety"]["levels"]
    assert levels["credentials"] == levels["sensitive_paths"] == "unenforced"
    assert levels["workspace_writes"] == levels["network"] == levels["host_writes"] == "enforced"
    assert bundle["plan"]["controls"]["services"] == [
        {"what": "an ssh agent", "path": str(path), "opens": ["sensitive_paths", "credentials"], "device": False}]
    assert "unenforced" in pvisor("review", cwd=workspace).out
    # Looking at the result does not need it.
    script = "/usr/bin/python3 \"$@\" 2>/dev/null || ls made"
    looked = pvisor("inspect", "last", "--", "sh", "-c", script, "sh", "-c", CONNECT, str(path), cwd=workspace)
    assert looked.out == "made\n"


def test_an_unknown_socket_opens_everything(pvisor, server, workspace, home, environment):
    path = server(home / "thing.sock")
    safe(pvisor, workspace, "--mount", f"{path}:write", "--i-know")
    levels = jobs.bundle(jobs.job_dirs(environment)[-1])["safety"]["levels"]
    assert {d for d, level in levels.items() if level == "enforced"} == set()


def test_strict_does_not_give_it_up(pvisor, server, workspace, home):
    path = server(home / "agent.sock")
    options = ["--strict", "--mount", f"{path}:write", "--i-know"]
    result = safe(pvisor, workspace, *options, code=5, env={"SSH_AUTH_SOCK": str(path)})
    assert "--strict" in result.err and "ssh agent" in result.err


def test_knowing_widens_nothing_by_itself(pvisor, workspace, environment):
    safe(pvisor, workspace, "--i-know")
    levels = jobs.bundle(jobs.job_dirs(environment)[-1])["safety"]["levels"]
    assert all(level == "enforced" for d, level in levels.items() if d != "resources")


def test_a_passed_variable_without_its_socket_is_explained(pvisor, workspace, home):
    env = {"SSH_AUTH_SOCK": str(home / "agent"), "DBUS_SESSION_BUS_ADDRESS": f"unix:path={home}/bus"}
    passed = ["--pass-env", "SSH_AUTH_SOCK", "--pass-env", "DBUS_SESSION_BUS_ADDRESS"]
    err = safe(pvisor, workspace, *passed, env=env).err
    assert "signs with your keys" in err and "D-Bus" not in err.replace("DBUS", "") and f"{home}/bus" in err
    assert "signs" not in safe(pvisor, workspace, env=env).err


def test_other_mounts_are_as_before(pvisor, workspace, temporary):
    (temporary / "data").mkdir()
    (temporary / "data/x").write_text("y")
    for access in ("read", "stage", "write"):
        assert safe(pvisor, workspace, "--mount", f"{temporary / 'data'}:{access}",
                    command=["cat", f"{temporary}/data/x"]).out == "y"


def test_without_safe_the_record_says_what_it_opens(pvisor, server, workspace, home, environment):
    path = server(home / "agent.sock")
    env = {"SSH_AUTH_SOCK": str(path)}
    pvisor("run", "--stage", "--mount", f"{path}:write", "--", "true", cwd=workspace, env=env)
    [shown] = jobs.job_dirs(environment)
    pvisor("run", "--stage", "--", "true", cwd=workspace, env=env)
    [other] = set(jobs.job_dirs(environment)) - {shown}
    for job, level in ((shown, "unenforced"), (other, "enforced")):
        levels = jobs.bundle(job)["safety"]["levels"]
        assert levels["credentials"] == levels["sensitive_paths"] == level
    refused = pvisor("run", "--stage", "--strict", "--mount", f"{path}:write", "--", "true", cwd=workspace, env=env, code=5)
    assert "ssh agent" in refused.err


# ---- the kernel's own files ----

@pytest.mark.parametrize("path", ["/proc", "/proc/sys/kernel", "/sys", "/sys/kernel"])
def test_the_kernels_own_files_are_refused(pvisor, workspace, environment, path):
    refused = safe(pvisor, workspace, "--mount", f"{path}:/kernel:write", code=6)
    assert "kernel's own files" in refused.err and "--i-know" in refused.err and jobs.job_dirs(environment) == []
    refused = pvisor("run", "--stage", "--strict", "--mount", f"{path}:/kernel:write", "--", "true", cwd=workspace, code=5)
    assert "--strict" in refused.err
    pvisor("run", "--stage", "--mount", f"{path}:/kernel:write", "--", "ls", "/kernel", cwd=workspace)
    levels = levels_of(environment)
    assert levels["host_writes"] == levels["reads"] == levels["subprocesses"] == "unenforced"


def test_the_hosts_processes_are_not_shown_for_reading_either(pvisor, workspace, environment):
    assert "kernel's own files" in safe(pvisor, workspace, "--mount", "/proc:/kernel:read", code=6).err
    assert jobs.job_dirs(environment) == []


@pytest.mark.root
def test_the_kernels_own_files_below_a_share_are_refused(run, pv, workspace, temporary):
    system = temporary / "system"
    (system / "proc").mkdir(parents=True)
    (system / "etc").mkdir()
    script = f"mount -t proc proc {system}/proc && exec {pv} run --safe --mount \"$1\" -- ls {system}"
    for share, code in ((f"{system}:write", 6), (f"{system}/etc:write", 0)):
        result = run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", share], cwd=workspace)
        assert result.code == code and ("kernel's own files" in result.err) == bool(code), result


# ---- devices ----

NODES = {"/dev/kmsg": {"reads"}, "/dev/net/tun": {"network"}, "/dev/loop-control": None, "/dev/mem": None, "/dev/tty1": None}
HARMLESS = ("/dev/kvm", "/dev/fuse", "/dev/null")


@pytest.fixture(params=NODES)
def node(request):
    """A device that opens something; None as its dimensions: more than one."""
    if not os.path.exists(request.param):
        pytest.skip(f"there is no {request.param} here")
    return os.path.realpath(request.param), NODES[request.param]


def levels_of(environment):
    return jobs.bundle(jobs.job_dirs(environment)[-1])["safety"]["levels"]


def test_a_device_lowers_what_it_opens(pvisor, workspace, environment, node):
    path, opens = node
    run = pvisor("run", "--stage", "--overlaynet-deny-all", "--device", path, "--", "ls", path, cwd=workspace)
    assert f"({path})" in run.err and "not enforced" in run.err
    [job] = jobs.job_dirs(environment)
    bundle = jobs.bundle(job)
    assert [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(bundle)] == []
    lowered = {d for d, level in bundle["safety"]["levels"].items() if level == "unenforced"}
    pvisor("run", "--stage", "--overlaynet-deny-all", "--", "true", cwd=workspace)
    [other] = set(jobs.job_dirs(environment)) - {job}
    lowered -= {d for d, level in jobs.bundle(other)["safety"]["levels"].items() if level == "unenforced"}
    assert lowered == opens if opens else len(lowered) > 1
    [entry] = bundle["plan"]["controls"]["services"]
    assert entry["path"] == path and entry["device"] and set(entry["opens"]) >= lowered
    # Looking at the result does not need it.
    assert pvisor("inspect", job.name, "--", "ls", path, cwd=workspace, code=None).code == 2


def test_under_safe_the_person_says_that_they_know(pvisor, workspace, environment, node):
    path, _ = node
    refused = safe(pvisor, workspace, "--device", path, code=6)
    assert f"--device {path}" in refused.err and "--i-know" in refused.err and jobs.job_dirs(environment) == []
    safe(pvisor, workspace, "--device", path, "--i-know", command=("ls", path))
    assert "unenforced" in [level for d, level in levels_of(environment).items() if d != "resources"]


def test_strict_does_not_give_up_what_a_device_opens(pvisor, workspace, node):
    path, _ = node
    for options in (["--safe", "--i-know"], ["--stage", "--overlaynet-deny-all"]):
        refused = pvisor("run", *options, "--strict", "--device", path, "--", "true", cwd=workspace, code=5)
        assert "--strict" in refused.err and f"--device {path}" in refused.err


@pytest.mark.parametrize("path", HARMLESS)
def test_a_device_that_opens_nothing_lowers_nothing(pvisor, workspace, environment, path):
    if not os.path.exists(path):
        pytest.skip(f"there is no {path} here")
    if path != "/dev/null":
        safe(pvisor, workspace, "--strict", "--device", path, command=("ls", path))
        assert all(level == "enforced" for d, level in levels_of(environment).items() if d != "resources")
    else:
        safe(pvisor, workspace, "--device", path)
