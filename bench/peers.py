# SPDX-License-Identifier: Apache-2.0
"""Other sandboxes, installed below an ignored directory from their registries by name, and how each runs a command.

A peer that cannot be installed, or does not run here, is said so in the table; nothing else depends on it.
"""
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# In a command: a path that has not been used before.
FRESH = "{fresh}"


@dataclass
class Peer:
    name: str
    version: str
    launches: dict  # name in the table -> the words before the command
    views: dict = field(default_factory=dict)  # those that show the working directory copy-on-write
    stage: list = None  # the words before a command whose changes are kept in FRESH
    apply: list = None  # publishes the FRESH of the last stage


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.strip().splitlines() or ["?"])[0]


def quiet(command, **options):
    """Runs an installer; raises with its last words."""
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=300, **options)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip()).splitlines()[-1][:120])


def published_pvisor(directory):
    venv = directory / "pvisor-sandbox"
    program = venv / "bin/pvisor"
    if not program.exists():
        quiet(["/usr/bin/python3", "-m", "venv", venv])
        quiet([venv / "bin/pip", "install", "-q", "pvisor-sandbox==0.3.1"])
    staged = [program, "spawn", "--stage", FRESH, "--"]
    return Peer("pvisor-sandbox", "0.3.1 (PyPI)",
                {"pvisor-sandbox --stage": staged, "pvisor-sandbox --safe": [program, "spawn", "--safe", "--"]},
                views={"pvisor-sandbox --stage": staged}, stage=staged, apply=[program, "apply", FRESH, "--all"])


def from_npm(directory, package, program):
    if not shutil.which("npm"):
        raise RuntimeError("no npm (apt-get install npm, or Node.js)")
    prefix = directory / "npm"
    path = prefix / "node_modules/.bin" / program
    if not path.exists():
        quiet(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", prefix, package])
    return path


def sandbox_runtime(directory):
    program = from_npm(directory, "@anthropic-ai/sandbox-runtime", "srt")
    return Peer("sandbox-runtime", said(program, "--version"), {"sandbox-runtime (srt)": [program]})


def codex(directory):
    program = from_npm(directory, "@openai/codex", "codex")
    return Peer("codex", said(program, "--version"), {"codex sandbox": [program, "sandbox", "--"]})


def podman(_directory):
    if not shutil.which("podman"):
        raise RuntimeError("podman is not installed")
    return Peer("podman", said("podman", "--version"),
                {"podman, root in an overlay": ["podman", "run", "--rm", "--network", "none", "--rootfs", "/:O"]})


def install(directory):
    """(peers that are there, lines about those that are not)."""
    directory = Path(directory) / "peers"
    directory.mkdir(exist_ok=True)
    found, absent = [], []
    for each in (published_pvisor, sandbox_runtime, codex, podman):
        try:
            found.append(each(directory))
        except (RuntimeError, OSError, subprocess.SubprocessError) as e:
            absent.append(f"{each.__name__}: {e}")
    return found, absent
