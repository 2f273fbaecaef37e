# SPDX-License-Identifier: Apache-2.0
"""Where the work is done: directories on the file systems of the table, trees of small text files, their patches."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

FILES_IN_DIRECTORY = 100
LINES = 30
CHANGED_LINE = 10


def name_of(number):
    return f"d{number // FILES_IN_DIRECTORY:03d}/f{number % FILES_IN_DIRECTORY:02d}.txt"


def text_of(number, word):
    lines = [f"file {number} line {i} of thirty, as long as a line is\n" for i in range(1, LINES + 1)]
    lines[CHANGED_LINE - 1] = f"value {word}\n"
    return "".join(lines)


def make_tree(top, files):
    """So many text files, 100 in a directory; line 10 of each says "value A"."""
    for number in range(files):
        path = Path(top) / name_of(number)
        if number % FILES_IN_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        path.write_text(text_of(number, "A"))


def make_patch(path, files, old, new):
    """The patch that changes line 10 of the first files from one word to another, as git diff would write it."""
    with open(path, "w") as f:
        for number in range(files):
            name, lines = name_of(number), text_of(number, old).splitlines(keepends=True)
            before, after = lines[CHANGED_LINE - 4:CHANGED_LINE - 1], lines[CHANGED_LINE:CHANGED_LINE + 3]
            f.write(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -7,7 +7,7 @@\n")
            f.writelines(" " + line for line in before)
            f.write(f"-value {old}\n+value {new}\n")
            f.writelines(" " + line for line in after)


def git_repository(top, environment):
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "All"]):
        subprocess.run(["git", *command], cwd=top, env=environment, check=True)


class Place:
    """A directory of the benchmark's own on one file system, with HOME and the job store on the same one."""

    def __init__(self, base):
        base = Path(base)
        base.mkdir(parents=True, exist_ok=True)
        self.top = Path(tempfile.mkdtemp(prefix="pvisor-bench-", dir=base))
        self.filesystem = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", self.top], capture_output=True,
                                         text=True, check=True).stdout.strip()
        (self.top / "home").mkdir()
        (self.top / "home/.gitconfig").write_text("[user]\nname = Bench\nemail = bench@example.invalid\n"
                                                  "[gc]\nauto = 0\n[maintenance]\nauto = false\n")

    @property
    def environment(self):
        # The ceiling keeps `git apply` from finding a repository above us.
        return {"HOME": str(self.top / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "dumb",
                "USER": os.environ.get("USER", "user"), "PVISOR_HOME": str(self.top / "store"),
                "GIT_CEILING_DIRECTORIES": str(self.top)}

    def directory(self, name):
        path = self.top / name
        path.mkdir()
        return path

    def forget(self, *paths):
        for path in paths:
            subprocess.run(["chmod", "-R", "u+rwX", path], check=False, capture_output=True)
            shutil.rmtree(path, ignore_errors=True)

    def close(self):
        self.forget(self.top)


def disk():
    """The place on the machine's own disk: HOME, unless PV_BENCH_DIR says another."""
    return Place(os.environ.get("PV_BENCH_DIR") or Path.home() / ".cache")


class Mounted(Place):
    """A place on a tmpfs of its own: what lies below /dev is no workspace."""

    def __init__(self):
        self.mount = Path(tempfile.mkdtemp(prefix="pvisor-bench-tmpfs-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.mount], check=True, capture_output=True)
        super().__init__(self.mount)

    def close(self):
        super().close()
        subprocess.run(["umount", self.mount], check=False, capture_output=True)
        self.mount.rmdir()


def memory():
    """The place on tmpfs: one of our own for root, else PV_BENCH_MEMORY (below /dev a run is refused: the row says so)."""
    if os.geteuid() == 0:
        return Mounted()
    return Place(os.environ.get("PV_BENCH_MEMORY", "/dev/shm"))
