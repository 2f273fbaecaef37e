# SPDX-License-Identifier: Apache-2.0
"""The job store as a test sees it: its files, read without pvisor's help."""
import json
import os
from pathlib import Path


def store(environment):
    return Path(environment.get("PVISOR_HOME") or Path(environment["HOME"]) / ".local/state/pvisor")


def job_dirs(environment):
    """The job directories, oldest first: names do not tell that of jobs of one second."""
    jobs = store(environment) / "jobs"
    return sorted(jobs.glob("run-*"), key=_age) if jobs.is_dir() else []


def _age(directory):
    try:  # each job's first file, written once
        return directory.name[:19], (directory / "request.json").stat().st_mtime_ns
    except FileNotFoundError:
        return directory.name[:19], 0


def job_dir(environment, job):
    return store(environment) / "jobs" / job


def events(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def bundle(directory):
    return json.loads((directory / "bundle.json").read_text())


def as_path(value):
    """A path as JSON tells it: text, or {"bytes": hex}."""
    return os.fsencode(value) if isinstance(value, str) else bytes.fromhex(value["bytes"])


def printable(text):
    """True when nothing in what was printed could steer a terminal."""
    return all(c in "\n\t" or (c.isprintable() and not 0x80 <= ord(c) < 0xa0) for c in text)
