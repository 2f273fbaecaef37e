# SPDX-License-Identifier: Apache-2.0
"""What a directory tree is, down to what stat, xattrs and holes show, and in what two trees differ.

Names are bytes relative to the top (b"." is the top itself), so that any name the kernel takes can be compared.
"""
import contextlib
import errno
import hashlib
import os
import stat
import time
from dataclasses import dataclass, fields

# Labels that a security module puts on by itself say nothing about what a command did.
FOREIGN_XATTRS = ("security.selinux", "security.SMACK64", "security.ima", "security.evm")


@dataclass(frozen=True)
class Entry:
    kind: str  # file, dir, link, fifo, socket, char, block
    mode: int  # permission bits, set-id and sticky
    uid: int
    gid: int
    size: int  # of regular files and links, else 0
    content: str  # SHA-256 of regular files, else ""
    target: bytes  # of links, else b""
    rdev: int
    mtime_ns: int
    xattrs: tuple  # sorted (name, value)
    links: tuple  # all names of this inode inside the tree, sorted
    nlink: int
    sparse: bool  # a regular file with at least one hole


KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket", stat.S_IFCHR: "char", stat.S_IFBLK: "block",
}


@contextlib.contextmanager
def _access(path, st):
    """Lets an ordinary owner look into what it forbade itself, and puts the mode back."""
    needed = 0o700 if stat.S_ISDIR(st.st_mode) else 0o400
    closed = os.geteuid() != 0 and st.st_uid == os.geteuid() and st.st_mode & needed != needed
    if closed:
        os.chmod(path, stat.S_IMODE(st.st_mode) | needed)
    try:
        yield
    finally:
        if closed:
            os.chmod(path, stat.S_IMODE(st.st_mode))


def _xattrs(path):
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as e:
        if e.errno in (errno.ENOTSUP, errno.EPERM):
            return ()
        raise
    return tuple(sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in names if n not in FOREIGN_XATTRS))


def _content(path, size):
    digest, sparse = hashlib.sha256(), False
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if size > 0:
            sparse = os.lseek(fd, 0, os.SEEK_HOLE) < size
            os.lseek(fd, 0, os.SEEK_SET)
        while block := os.read(fd, 1 << 20):
            digest.update(block)
    finally:
        os.close(fd)
    return digest.hexdigest(), sparse


def _entry(path, st):
    kind = KINDS[stat.S_IFMT(st.st_mode)]
    content, target, sparse, xattrs = "", b"", False, ()
    if kind == "link":
        target = os.readlink(path)
        xattrs = _xattrs(path)
    else:
        with _access(path, st):
            xattrs = _xattrs(path)
            if kind == "file":
                content, sparse = _content(path, st.st_size)
    return Entry(kind=kind, mode=stat.S_IMODE(st.st_mode), uid=st.st_uid, gid=st.st_gid,
                 size=st.st_size if kind in ("file", "link") else 0, content=content, target=target,
                 rdev=st.st_rdev if kind in ("char", "block") else 0, mtime_ns=st.st_mtime_ns, xattrs=xattrs,
                 links=(), nlink=st.st_nlink if kind != "dir" else 0, sparse=sparse)


def snapshot(top, skip=()):
    """{name: Entry} of everything at and below top; names in skip (bytes) are left out with what is below them."""
    top = os.fsencode(top)
    entries, inodes = {}, {}

    def visit(name):
        path = top if name == b"." else os.path.join(top, name)
        st = os.lstat(path)
        entries[name] = _entry(path, st)
        if not stat.S_ISDIR(st.st_mode):
            inodes.setdefault((st.st_dev, st.st_ino), []).append(name)
            return
        with _access(path, st):
            for child in sorted(os.listdir(path)):
                below = child if name == b"." else name + b"/" + child
                if below not in skip:
                    visit(below)

    visit(b".")
    for names in inodes.values():
        group = tuple(sorted(names))
        for name in names:
            entries[name] = Entry(**{**entries[name].__dict__, "links": group})
    return entries


def differences(left, right, ignore=(), dir_times=False):
    """Lines that say in what two snapshots differ; [] when they are equal.

    ignore: names of Entry's fields. A directory's own mtime counts only with dir_times: whoever puts an entry into
    it moves it.
    """
    lines = []
    for name in sorted(left.keys() | right.keys()):
        shown = os.fsdecode(name).encode("unicode_escape", "surrogatepass").decode()
        a, b = left.get(name), right.get(name)
        if a is None or b is None:
            lines.append(f"{shown}: only {'right' if a is None else 'left'} ({(a or b).kind})")
            continue
        for field in fields(Entry):
            if field.name in ignore or (field.name == "mtime_ns" and a.kind == b.kind == "dir" and not dir_times):
                continue
            x, y = getattr(a, field.name), getattr(b, field.name)
            if x != y:
                show = oct if field.name == "mode" else repr
                lines.append(f"{shown}: {field.name}: {show(x)} != {show(y)}")
    return lines


def assert_same(left, right, **options):
    found = differences(left, right, **options)
    assert not found, "trees differ:\n  " + "\n  ".join(found[:60])


def build(top, spec):
    """Makes files from {name: content}: str or bytes is a file, None a directory, a name ending in @ a link."""
    for name, content in spec.items():
        path = os.path.join(os.fsencode(top), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if content is None:
            os.makedirs(path, exist_ok=True)
        elif path.endswith(b"@"):
            os.symlink(content, path[:-1])
        else:
            with open(path, "wb") as f:
                f.write(content.encode() if isinstance(content, str) else content)


def remove(top, patience=10):
    """Removes a tree whatever the modes of its directories are.

    What was killed a moment ago may write, or tidy up, until it is dead: it is waited for, so many seconds.
    """
    top, deadline = os.fsencode(top), time.monotonic() + patience
    while True:
        try:
            st = os.lstat(top)
            if not stat.S_ISDIR(st.st_mode):
                os.unlink(top)
                return
            if st.st_mode & 0o700 != 0o700:
                os.chmod(top, 0o700)
            for child in os.listdir(top):
                remove(os.path.join(top, child), patience)
            os.rmdir(top)
            return
        except FileNotFoundError:
            return
        except OSError as e:
            if e.errno != errno.ENOTEMPTY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
