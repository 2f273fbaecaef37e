# SPDX-License-Identifier: Apache-2.0
"""A script of random file operations, the same for the same seed and the same tree.

Run as a program (random_script.py run SEED COUNT), it works on the current directory and prints what each operation did
or why it failed. What it works on is chosen from what is there, so that most operations succeed. It stands alone, so
that its text can be run where this file cannot be seen.

Times: what is written gets a time that depends on the seed alone, mostly; else it keeps "now", which a comparison has
to allow for.
"""
import ctypes
import errno
import os
import random
import socket
import stat
import struct
import sys

NAMES = [b"a", b"b", b"c", b"d e", b"new\nline", b"-x", b"\xff\xfe", "ü".encode(), b"'\"$(id)", b"..z", b"tab\t", b"a.o",
         b"long-" + b"n" * 250, b" ", b"\\", b".hidden", b"A"]
MODES = [0o644, 0o600, 0o755, 0o400, 0o444, 0o666, 0o4755, 0o2755, 0o000]
DIR_MODES = [0o755, 0o700, 0o750, 0o1777, 0o555, 0o500, 0o000]
ATTRIBUTES = ["user.one", "user.two"]
if tuple(int(n) for n in os.uname().release.split(".")[:2]) >= (6, 7):  # before, overlayfs refuses them
    ATTRIBUTES += ["user.overlay.opaque", "user.overlay.x"]
EPOCH = 1_000_000_000
MOST = 150  # entries; beyond it, more is deleted than made
RENAME_EXCHANGE = 2
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    if libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, flags):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def list_all():
    """All paths but the top, sorted, and which of them are directories."""
    found, directories, queue = [], [b"."], [b"."]
    while queue:
        directory = queue.pop()
        try:
            entries = os.listdir(directory)
        except OSError:  # closed by a mode
            continue
        for name in entries:
            path = name if directory == b"." else directory + b"/" + name
            found.append(path)
            try:
                is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
            except OSError:
                is_directory = False
            if is_directory:
                directories.append(path)
                queue.append(path)
    return sorted(found), sorted(directories)


def rename_file(old, new, flags=0):
    """Overlayfs says ESTALE where two names of one inode are renamed over each other; elsewhere that does nothing."""
    try:
        renameat2(old, new, flags)
    except OSError as e:
        if e.errno != errno.ESTALE:
            raise


class Script:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.time = EPOCH

    # ---- choosing ----

    def look(self):
        self.paths, self.directories = list_all()

    def old(self):
        return self.random.choice(self.paths) if self.paths else b"a"

    def directory(self):
        return self.random.choice(self.directories)

    def new(self):
        path = self.directory() + b"/" + self.random.choice(NAMES)
        return path[2:] if path.startswith(b"./") else path

    def file(self):
        files = [p for p in self.paths if p not in self.directories]
        return self.random.choice(files) if files else self.old()

    def data(self):
        return bytes(self.random.choice([b"line\n", b"x", b"\0" * 100, b"word "]) * self.random.randrange(1, 2000))

    # ---- operations ----

    def settle(self, path):
        """A time of our own for what was written, mostly."""
        self.time += 7
        if self.random.random() < 0.9:
            os.utime(path, ns=(self.time * 10**9 + 1, self.time * 10**9 + 123456789), follow_symlinks=False)

    def write(self, path, flags, data, at=None):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o644)
        try:
            if at is None:
                os.write(fd, data)
            else:
                os.pwrite(fd, data, at)
        finally:
            os.close(fd)
        self.settle(path)

    def create(self):
        path = self.new()
        self.write(path, os.O_CREAT | os.O_EXCL, self.data())
        return path

    def overwrite(self):
        path = self.file()
        self.write(path, os.O_TRUNC, self.data())
        return path

    def append(self):
        path = self.file()
        self.write(path, os.O_APPEND, self.data())
        return path

    def patch(self):
        path = self.file()
        self.write(path, 0, b"patched", self.random.randrange(5000))
        return path

    def rewrite_same(self):
        path = self.file()
        st = os.lstat(path)
        if not stat.S_ISREG(st.st_mode):
            return None
        with open(path, "rb") as f:
            data = f.read()
        with open(path, "wb") as f:
            f.write(data)
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        return path

    def replace(self):
        """As an editor saves."""
        path, temporary = self.file(), self.new()
        self.write(temporary, os.O_CREAT | os.O_EXCL, self.data())
        rename_file(temporary, path)
        return path

    def truncate(self):
        path = self.file()
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.truncate(path, self.random.choice([0, 1, 4096, 100000]))
            self.settle(path)
        return path

    def sparse(self):
        path = self.new()
        self.write(path, os.O_CREAT, b"end", self.random.choice([65536, 1 << 20, (1 << 20) + 7]))
        return path

    def mkdir(self):
        path = self.new()
        os.mkdir(path, self.random.choice([0o755, 0o700]))
        return path

    def deep(self):
        path = self.directory()
        for _ in range(self.random.randrange(2, 12)):
            path += b"/" + self.random.choice([b"deep", b"d", b"a"])
            if len(path) > 3000:
                break
            os.mkdir(path)
        return path

    def unlink(self):
        path = self.file()
        os.unlink(path)
        return path

    def rmdir(self):
        path = self.directory()
        os.rmdir(path)
        return path

    def remove_tree(self):
        path = self.directory()
        if path == b".":
            return None
        failed = 0
        for top, directories, files in os.walk(path, topdown=False):
            for name in files + directories:
                full = top + b"/" + name
                try:
                    if stat.S_ISDIR(os.lstat(full).st_mode):
                        os.rmdir(full)
                    else:
                        os.unlink(full)
                except OSError:
                    failed += 1
        os.rmdir(path)
        if self.random.random() < 0.5:  # and make it again
            os.mkdir(path)
            for _ in range(self.random.randrange(3)):
                self.write(path + b"/" + self.random.choice(NAMES), os.O_CREAT, self.data())
        return path, failed

    def rename(self):
        old, new = self.old(), self.random.choice([self.new, self.new, self.old])()
        rename_file(old, new)
        return old, new

    def rename_directory(self):
        old, new = self.directory(), self.random.choice([self.new, self.new, self.directory])()
        if old == b".":
            return None
        os.rename(old, new)
        return old, new

    def exchange(self):
        old, new = self.old(), self.old()
        rename_file(old, new, RENAME_EXCHANGE)
        return old, new

    def chmod(self):
        path = self.file()
        if not os.path.islink(path):
            os.chmod(path, self.random.choice(MODES))
        return path

    def chown(self):
        path = self.old()
        os.chown(path, self.random.choice([0, 1, 1000]), self.random.choice([0, 1, 65534]), follow_symlinks=False)
        return path

    def chmod_directory(self):
        path = self.directory()
        mode = self.random.choice(DIR_MODES)
        if path != b"." or mode & 0o700 == 0o700:
            os.chmod(path, mode)
        return path, mode

    def reopen_directory(self):
        """Directories that a mode closed come back now and then."""
        path = self.directory()
        os.chmod(path, 0o755)
        return path

    def utime(self):
        path = self.old()
        self.time += 7
        os.utime(path, ns=(self.time * 10**9, self.time * 10**9 + 5), follow_symlinks=False)
        return path

    def symlink(self):
        path = self.new()
        os.symlink(self.random.choice([b"a", b"/nowhere", b"../..", b".", self.old(), b"x" * 1000]), path)
        self.settle(path)
        return path

    def link(self):
        old, new = self.file(), self.new()
        os.link(old, new, follow_symlinks=False)
        return old, new

    def fifo(self):
        path = self.new()
        os.mkfifo(path, 0o640)
        self.settle(path)
        return path

    def socket(self):
        path = self.new()
        if len(path) < 100:
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(path)
            self.settle(path)
        return path

    def set_attribute(self):
        path, name = self.old(), self.random.choice(ATTRIBUTES)
        os.setxattr(path, name, self.data()[:200], follow_symlinks=False)
        return path, name

    def remove_attribute(self):
        path = self.old()
        names = sorted(n for n in os.listxattr(path, follow_symlinks=False) if n.startswith("user."))
        if names:
            os.removexattr(path, names[0], follow_symlinks=False)
        return path, names[:1]

    def acl(self):
        path = self.old()
        entries = [(0x01, 6, 0xffffffff), (0x02, 4, os.geteuid()), (0x04, 4, 0xffffffff), (0x10, 4, 0xffffffff),
                   (0x20, 0, 0xffffffff)]
        value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)
        if not os.path.islink(path):
            os.setxattr(path, "system.posix_acl_access", value)
        return path

    GROWING = [create] * 6 + [sparse, mkdir, mkdir, mkdir, deep, symlink, link, link, fifo, socket]
    CHANGING = [overwrite, overwrite, append, append, patch, rewrite_same, replace, truncate, rename, rename, rename,
                rename_directory, rename_directory, exchange, chown, chmod, chmod, chmod_directory, reopen_directory, utime,
                set_attribute, set_attribute, remove_attribute, acl]
    SHRINKING = [unlink, unlink, unlink, rmdir, remove_tree, remove_tree]

    def step(self):
        self.look()
        pool = self.CHANGING + self.SHRINKING + (self.GROWING if len(self.paths) < MOST else self.SHRINKING * 3)
        operation = self.random.choice(pool)
        try:
            result = operation(self)
        except OSError as e:
            result = errno.errorcode.get(e.errno, e.errno)
        return f"{operation.__name__}: {result!r}"


def fill_holes(path, st):
    """Copying up keeps a file's first hole only, and fills others that lie near data."""
    if stat.S_ISREG(st.st_mode):
        os.chmod(path, 0o600)
        with open(path, "r+b") as f:
            data = f.read()
            f.seek(0)
            f.write(data)
        os.chmod(path, stat.S_IMODE(st.st_mode))


def build(seed):
    """The tree that a script starts from: what a long script makes, with all directories open and no two links."""
    script = Script(f"tree {seed}")
    for _ in range(script.random.choice([0, 5, 40, 120])):
        script.step()
        for directory in list_all()[1]:
            os.chmod(directory, 0o755)
    seen = set()
    for path in list_all()[0]:
        st = os.lstat(path)
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith("user.overlay."):  # in a lower layer they are the overlay's, and not shown
                os.chmod(path, stat.S_IMODE(st.st_mode) | 0o600)
                os.removexattr(path, name, follow_symlinks=False)
                os.chmod(path, stat.S_IMODE(st.st_mode))
        if stat.S_ISDIR(st.st_mode):
            continue
        if st.st_ino in seen:
            os.unlink(path)
        seen.add(st.st_ino)
        if os.path.lexists(path):
            fill_holes(path, st)
            os.utime(path, ns=(EPOCH * 10**9, EPOCH * 10**9), follow_symlinks=False)


def main():
    what, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.umask(0o022)
    if what == "build":
        build(seed)
        return
    script = Script(seed)
    for _ in range(count):
        print(script.step())


if __name__ == "__main__":
    main()
