# SPDX-License-Identifier: Apache-2.0
"""The configurations that are compared: how each is started, and how to learn from it whether it can be."""
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Optional

from bench import peers

TOP = Path(__file__).resolve().parents[2]


@dataclass
class Configuration:
    name: str
    command: Callable  # (fixture, words) -> argv
    unusable: Callable = lambda: None  # why it cannot be run here, or None
    staged: Optional[Callable] = None  # fixture -> argv that publishes written.txt
    record: Optional[Callable] = None  # fixture -> argv that prints its Run Bundle
    expected_safe: bool = False  # every outside column must be 0: the audit insists
    environment: dict = field(default_factory=dict)


def answer(*words, cwd="/"):
    """Exit status and the last line said: how a program is asked whether it can do something."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return done.returncode, said[-1] if said else ""


def pvisor_program():
    return os.environ.get("PVISOR", str(TOP / "build" / "pvisor"))


def ours(name, options, staged=False, expected_safe=False):
    program = pvisor_program()

    def unusable():
        code, said = answer(program, "run", "--dry-run", *options, "--", "true", cwd="/var/tmp")
        return None if code == 0 else f"not built: {said}" if "--executor" in options else said

    return Configuration(
        name, lambda fixture, words: [program, "run", "-q", *options, "--", *words], unusable,
        staged=(lambda fixture: [program, "apply", "last", "--path", "written.txt"]) if staged else None,
        record=lambda fixture: [program, "status", "last", "--review", "--json"], expected_safe=expected_safe)


def peer_directory():
    return Path(os.environ.get("PV_PEERS", TOP / "bench" / "out" / "peers"))


def published(name, options, stage):
    """`apply last` does not find a job that has a stage of its own: `stage` says what to name instead."""
    program = str(peer_directory() / "pvisor-sandbox" / "bin" / "pvisor")
    return Configuration(
        name, lambda fixture, words: [program, "spawn", *options, "--", *words],
        lambda: None if os.access(program, os.X_OK) else "not installed (--peers installs it)",
        staged=lambda fixture: [program, "apply", stage(fixture), "--path", "written.txt"])


def npm_peer(name, program, words_before):
    path = peer_directory() / "npm" / "node_modules" / ".bin" / program
    return Configuration(name, lambda fixture, words: [str(path), *words_before(fixture), *words],
                         lambda: None if path.exists() else "not installed (--peers installs it)")


def srt_options(fixture):
    """The settings that its manual gives for working in one directory without network."""
    settings = fixture.top / "srt.json"
    settings.write_text(json.dumps({"filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
                                    "network": {"allowedDomains": [], "deniedDomains": []}}))
    settings.chmod(0o644)
    return ["--settings", str(settings)]


def bubblewrap(fixture, words):
    links = [w for d in ("bin", "sbin", "lib", "lib64") if os.path.islink("/" + d)
             for w in ("--symlink", "usr/" + d, "/" + d)]
    return ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", *links, "--dev", "/dev",
            "--proc", "/proc", "--tmpfs", "/tmp", "--bind", str(fixture.workspace), str(fixture.workspace),
            "--chdir", str(fixture.workspace), *words]


def podman(fixture, words):
    """No image: a root directory of links into the host's /usr, which is mounted read-only."""
    root = fixture.top / "rootfs"
    for directory in ("usr", "proc", "sys", "dev", "tmp", "run", "etc"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink("/" + name) and not (root / name).is_symlink():
            (root / name).symlink_to("usr/" + name)
    return ["podman", "run", "--rm", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--ulimit",
            "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--network", "none", "-v", "/usr:/usr:ro", "-v",
            f"{fixture.workspace}:{fixture.workspace}", "-w", str(fixture.workspace), "--rootfs", str(root), *words]


def podman_unusable(as_root):
    if not shutil.which("podman") or not shutil.which("runc"):
        return "not installed"
    return None if as_root else "set up for root only here"


def all_configurations(as_root):
    container = ("--executor", "container", "--container-rootfs", "/")
    return [
        Configuration("native", lambda fixture, words: words),
        ours("pVisor host", ()),
        ours("pVisor staged", ("--stage", "--filesystem", "sandbox", "--overlaynet-deny-all"), staged=True,
             expected_safe=True),
        ours("pVisor safe", ("--safe",), staged=True, expected_safe=True),
        ours("pVisor container staged", (*container, "--stage", "--overlaynet-deny-all"), staged=True,
             expected_safe=True),
        ours("pVisor container, writable mount", (*container, "--container-runtime", "runc", "--overlaynet-deny-all")),
        ours("pVisor VM", ("--executor", "vm", "--rootfs", "host", "--stage", "--overlaynet-deny-all"), staged=True,
             expected_safe=True),
        Configuration("Podman, writable mount", podman, lambda: podman_unusable(as_root)),
        Configuration("bubblewrap, writable bind", bubblewrap,
                      lambda: None if shutil.which("bwrap") else "not installed"),
        npm_peer("codex sandbox", "codex", 
                 lambda fixture: ("sandbox", "-c", "sandbox_mode=workspace-write", "--")),
        npm_peer("srt", "srt", srt_options),
        published("published 0.3.1 staged", ("--stage", ".pv-stage", "--filesystem", "sandbox"),
                  lambda fixture: str(fixture.workspace / ".pv-stage")),
        published("published 0.3.1 safe", ("--safe",), lambda fixture: "last"),
    ]


def install_peers():
    """Into the ignored directory that the benchmark uses, too; what cannot be had shows as not installed."""
    peer_directory().parent.mkdir(parents=True, exist_ok=True)
    _, absent = peers.install(peer_directory().parent)
    return absent
