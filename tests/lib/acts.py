# SPDX-License-Identifier: Apache-2.0
"""Random acts on the tree in the current directory, the same for the command inside and for the person outside.

As a program: python3 -c SOURCE act SEED COUNT WORD makes COUNT acts, each content marked with WORD; look prints what the
tree is (a Python literal). It stands alone, so that its source can be handed to a sandboxed python3.
"""
import hashlib
import os
import random
import shutil
import stat
import sys

NAMES = [b"a", b"b", b"c", b"d", b"e", b"new\nline", b"\xff\xfe", b"-n", b" ", b"w" * 255]
MODES_OF_FILES = [0o644, 0o600, 0o755, 0o444, 0o640]
MODES_OF_DIRECTORIES = [0o755, 0o700, 0o555, 0o750]


def walk(top=b"."):
    """All names below top, directories before what is in them, links not followed."""
    found = []
    try:
        children = sorted(os.listdir(top))
    except OSError:
        return found
    for child in children:
        path = os.path.join(top, child)
        if child == b".git":
            continue
        found.append(path)
        if os.path.isdir(path) and not os.path.islink(path):
            found += walk(path)
    return found


def look(top=b"."):
    """{path: (kind, mode, content, target, attributes)}"""
    seen = {}
    for path in walk(top):
        st = os.lstat(path)
        kind, content, target = stat.S_IFMT(st.st_mode), b"", b""
        if kind == stat.S_IFREG:
            with open(path, "rb") as f:
                content = hashlib.sha256(f.read()).hexdigest()
        elif kind == stat.S_IFLNK:
            target = os.readlink(path)
        attributes = []
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            try:
                attributes = sorted((n, os.getxattr(path, n)) for n in os.listxattr(path) if n.startswith("user."))
            except OSError:
                pass
        seen[os.path.relpath(path, top)] = (kind, stat.S_IMODE(st.st_mode), content, target, tuple(attributes))
    return seen


class Acts:
    def __init__(self, seed, word):
        self.random, self.word, self.made = random.Random(seed), word.encode(), 0

    def content(self):
        self.made += 1
        return b"%s %d\n" % (self.word, self.made) * self.random.choice([1, 1, 1, 3, 3000])

    def any(self, kinds=None):
        paths = [p for p in walk() if kinds is None or stat.S_IFMT(os.lstat(p).st_mode) in kinds]
        return self.random.choice(paths) if paths else None

    def file(self):
        return self.any({stat.S_IFREG})

    def directory(self):
        return self.any({stat.S_IFDIR}) or b"."

    def place(self):
        return os.path.join(self.random.choice([b".", self.directory()]), self.random.choice(NAMES))

    def write(self, path, how="wb"):
        with open(path, how) as f:
            f.write(self.content())

    def remove(self, path):
        if os.path.isdir(path) and not os.path.islink(path):
            for below in walk(path):
                if os.path.isdir(below) and not os.path.islink(below):
                    os.chmod(below, 0o755)
            os.chmod(path, 0o755)
            shutil.rmtree(path)
        else:
            os.unlink(path)

    # ---- the acts ----

    def create(self):
        self.write(self.place(), "xb")

    def rewrite(self):
        self.write(self.file())

    def append(self):
        self.write(self.file(), "ab")

    def save(self):
        path = self.file()
        self.write(path + b"~")
        os.rename(path + b"~", path)

    def poke(self):
        """Same size, and the old time of modification: only the change time can tell."""
        path = self.file()
        st = os.stat(path)
        with open(path, "r+b") as f:
            f.write(self.content()[:st.st_size])
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def delete(self):
        self.remove(self.any())

    def make_directory(self):
        path = self.place()
        os.mkdir(path)
        for _ in range(self.random.randrange(3)):
            self.write(os.path.join(path, self.random.choice(NAMES)))

    def move(self):
        os.rename(self.any(), self.place())

    def move_directory(self):
        os.rename(self.directory(), self.place())

    def link(self):
        os.symlink(self.random.choice([b"a", b"../b", b"/etc/passwd", b".", b"nowhere"]), self.place())

    def hard_link(self):
        os.link(self.file(), self.place())

    def mode(self):
        path = self.any({stat.S_IFREG, stat.S_IFDIR})
        os.chmod(path, self.random.choice(MODES_OF_DIRECTORIES if os.path.isdir(path) else MODES_OF_FILES))

    def attribute(self):
        os.setxattr(self.any({stat.S_IFREG, stat.S_IFDIR}), "user.act", self.content()[:20])

    def time(self):
        os.utime(self.file(), ns=(1, self.random.randrange(10**18)))

    def fifo(self):
        os.mkfifo(self.place())

    def file_to_directory(self):
        path = self.file()
        os.unlink(path)
        os.mkdir(path)
        self.write(os.path.join(path, self.random.choice(NAMES)))

    def directory_to_file(self):
        path = self.directory()
        self.remove(path)
        self.write(path)

    def directory_to_link(self):
        path = self.directory()
        self.remove(path)
        os.symlink(self.random.choice([b"/etc", b".", b"a"]), path)

    def remake_directory(self):
        path = self.directory()
        names = sorted(os.listdir(path))
        self.remove(path)
        os.mkdir(path)
        for name in names:
            if self.random.random() < 0.5:
                self.write(os.path.join(path, name))

    def swap(self):
        one, other = self.any(), self.any()
        os.rename(one, b".swap")
        os.rename(other, one)
        os.rename(b".swap", other)


ACTS = [name for name in vars(Acts) if name not in (
    "__init__", "content", "any", "file", "directory", "place", "write", "remove") and not name.startswith("__")]


def act(seed, count, word):
    acts = Acts(seed, word)
    for _ in range(count):
        name = acts.random.choice(ACTS)
        try:
            getattr(acts, name)()
        except (OSError, TypeError, shutil.Error):  # nothing of that kind there, or in the way
            pass


if __name__ == "__main__":
    if sys.argv[1] == "act":
        act(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        print(look())
