# SPDX-License-Identifier: Apache-2.0
"""File watchers (inotify) on both sides of a stage: what each sees of the other's edits, with and without an event."""
import ctypes
import json
import os
import select
import struct
import subprocess

import pytest

pytestmark = pytest.mark.kernel

# Watches the current directory and two files in it, and answers one word a line: "edit" -> writes a file itself;
# "look" -> what it reads and which names it was told of since.
WATCHER = r"""
import ctypes, json, os, select, struct, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
names = {}
for path in (".", "seen", "known"):
    names[libc.inotify_add_watch(fd, path.encode(), 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200)] = path
kept = open("known")  # as long as it is open the kernel remembers what the name stood for
def told():
    out = set()
    while select.select([fd], [], [], 0.3)[0]:
        data = os.read(fd, 65536)
        while data:
            wd, mask, cookie, n = struct.unpack_from("iIII", data)
            out.add(data[16:16 + n].rstrip(b"\0").decode() or names[wd])
            data = data[16 + n:]
    return sorted(out)
print("ready", flush=True)
for word in sys.stdin:
    if word == "edit\n":
        open("own", "w").write("agent\n")
    content = {p: open(p).read() for p in sorted(os.listdir(".")) if os.path.isfile(p)}
    print(json.dumps({"told": told(), "content": content}), flush=True)
"""


@pytest.fixture
def workspace(make_workspace):
    return make_workspace({"seen": "old\n", "known": "old\n", "unseen": "old\n"}, git=False)


@pytest.fixture
def watcher(pv, environment, workspace):
    """Runs in a stage; watcher(word) -> its answer."""
    process = subprocess.Popen([pv, "run", "-q", "--stage", "--", "/usr/bin/python3", "-c", WATCHER], cwd=workspace,
                               env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"

    def ask(word):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.communicate(timeout=60)


def replace(path, text):
    path.with_suffix(".new").write_text(text)
    os.replace(path.with_suffix(".new"), path)


class HostWatch:
    def __init__(self, path):
        self.libc = ctypes.CDLL(None)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK)
        self.libc.inotify_add_watch(self.fd, os.fsencode(path), 0x2 | 0x80 | 0x100 | 0x200)

    def told(self):
        names = set()
        while select.select([self.fd], [], [], 0.3)[0]:
            data = os.read(self.fd, 65536)
            while data:
                _, _, _, n = struct.unpack_from("iIII", data)
                names.add(data[16:16 + n].rstrip(b"\0").decode())
                data = data[16 + n:]
        return sorted(names)


def test_host_edits_show_in_the_view_without_an_event(watcher, workspace):
    assert watcher("look")["told"] == []
    (workspace / "seen").write_text("mine, longer than before\n")  # in place
    (workspace / "fresh").write_text("fresh\n")
    replace(workspace / "unseen", "mine\n")
    answer = watcher("look")
    assert answer["told"] == []
    assert answer["content"]["seen"] == "mine, longer than before\n"
    assert answer["content"]["fresh"] == "fresh\n"


def test_a_file_that_the_host_replaces_stays_the_old_one_for_who_has_looked_it_up(watcher, workspace):
    """Editors that save to another name and rename it over the old one do that."""
    replace(workspace / "known", "mine\n")
    replace(workspace / "unseen", "mine\n")
    answer = watcher("look")
    assert answer["told"] == []
    assert answer["content"]["known"] == "old\n" and answer["content"]["unseen"] == "mine\n"


def test_what_is_edited_in_the_view_is_an_event_there(watcher):
    answer = watcher("edit")
    assert answer["told"] == ["own"] and answer["content"]["own"] == "agent\n"


def test_the_host_hears_of_a_jobs_edit_when_it_is_applied(watcher, pvisor, workspace):
    host = HostWatch(workspace)
    watcher("edit")
    assert host.told() == [] and not (workspace / "own").exists()
    pvisor("apply", "--all", cwd=workspace)
    assert "own" in host.told() and (workspace / "own").read_text() == "agent\n"
