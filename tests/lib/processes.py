# SPDX-License-Identifier: Apache-2.0
"""Which processes are still there: found by a word in their command line or environment, or by their session."""
import os
import signal
import time


def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:  # gone meanwhile, or somebody else's
        return b""


def marked(marker):
    """{pid: command line} of all living processes but this one whose command line or environment has the marker."""
    word, found = os.fsencode(marker), {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        command = _read(f"/proc/{pid}/cmdline")
        # A zombie has neither; it is dead, whoever has yet to reap it.
        if word in command or word in _read(f"/proc/{pid}/environ"):
            found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def _living(pid):
    """State, parent, group, session and so on of proc_pid_stat(5); nothing of one that is dead, reaped or not."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()  # the name may hold anything, the last ")" ends it
    return [] if fields[:1] == [b"Z"] else fields


def of_session(leader):
    """The living processes of the session that this process leads or led."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = _living(pid)
        if fields and int(fields[3]) == leader:
            found.append(int(pid))
    return found


def await_death(*pids, seconds=30):
    """Waits until all of them are dead, by whatever."""
    deadline = time.monotonic() + seconds
    while living := [pid for pid in pids if _living(pid)]:
        assert time.monotonic() < deadline, f"alive: {living}"
        time.sleep(0.01)


def end_session(leader, seconds=10):
    """Kills all of the session and waits until they are dead (the leader may stay a zombie)."""
    deadline = time.monotonic() + seconds
    while living := of_session(leader):
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert time.monotonic() < deadline, f"the session of {leader} does not die: {living}"
        time.sleep(0.005)


def await_session(leader, seconds=20):
    """Waits until all of the session are dead, each by itself."""
    deadline = time.monotonic() + seconds
    while living := of_session(leader):
        assert time.monotonic() < deadline, f"of the session of {leader} live on: {living}"
        time.sleep(0.005)


def wait_for(marker, timeout=10):
    """The marked processes, as soon as there are any."""
    return _until(marker, bool, timeout, "no process has")


def assert_none(marker, within=0):
    """Fails when a marked process lives on after so many seconds."""
    _until(marker, lambda found: not found, within, "still alive with")


def _until(marker, condition, seconds, complaint):
    deadline = time.monotonic() + seconds
    while True:
        found = marked(marker)
        if condition(found):
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"{complaint} {marker!r}: {found}")
        time.sleep(0.02)
