# SPDX-License-Identifier: Apache-2.0
"""File systems in files, for tests that must see more than the machine's own.

As a program (root): python3 filesystems.py DIRECTORY OWNER mounts one of each kind at DIRECTORY/KIND, open to OWNER;
./dev does this in a mount namespace of its own for the ordinary user's half, which cannot mount.
"""
import os
import shutil
import stat
import subprocess
import sys

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
KINDS = (*MKFS, "tmpfs")


def mount(kind, directory, image, megabytes=512):
    """Makes a file system of this kind in the file image (sparse) and mounts it. Root only; OSError where it cannot."""
    os.makedirs(directory, exist_ok=True)
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "tmpfs", directory]
    else:
        with open(image, "wb") as f:
            f.truncate(megabytes << 20)
        _run([*MKFS[kind], image])
        command = ["mount", "-t", kind, "-o", "loop", image, directory]
    _run(command)


def mount_all(base):
    """{kind: directory} of those that can be mounted here, one of each kind below base."""
    mounted = {}
    for kind in KINDS:
        place = os.path.join(base, kind)
        try:
            mount(kind, place, place + ".img")
            mounted[kind] = place
        except OSError as e:  # its tests say that they lack it
            print(f"no {kind}: {e}", file=sys.stderr)
            os.rmdir(place)
    return mounted


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def takes_attributes(directory):
    """Attributes of users: tmpfs has them since Linux 6.6."""
    try:
        os.setxattr(directory, "user.test", b"")
        os.removexattr(directory, "user.test")
    except OSError:
        return False
    return True


def unmount(directory):
    """At once if it can be; what still holds it does not keep it in sight."""
    subprocess.run(["umount", "--lazy", directory], check=False, capture_output=True)


def open_fuse_device(place):
    """Lets everybody open /dev/fuse in this mount namespace, where that is one of the tests' own."""
    if not os.path.exists("/dev/fuse") or not os.environ.get("PV_TEST_OWN_MOUNTS"):
        return
    os.mknod(place, stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    os.chmod(place, 0o666)
    _run(["mount", "--bind", place, "/dev/fuse"])


def mount_overlay(place):
    """An overlayfs of root's: what a container's root is."""
    for name in ("lower", "upper", "work", "overlay"):
        os.makedirs(os.path.join(place, name))
    options = ",".join(f"{name}dir={place}/{name}" for name in ("lower", "upper", "work"))
    _run(["mount", "-t", "overlay", "-o", options, "overlay", os.path.join(place, "overlay")])
    return os.path.join(place, "overlay")


def make_foreign(place, owner):
    """A directory of owner's with files of root's in it."""
    os.makedirs(os.path.join(place, "dir"))
    os.mkdir(os.path.join(place, "closed"), 0o700)
    for name, mode in {"readable": 0o644, "secret": 0o600, "open": 0o666, "group": 0o640, "dir/f": 0o644,
                       "dir/mine": 0o644}.items():
        path = os.path.join(place, name)
        with open(path, "w") as f:
            f.write("root's\n")
        os.chmod(path, mode)
    shutil.chown(os.path.join(place, "dir/mine"), owner, owner)
    shutil.chown(os.path.join(place, "group"), owner)
    shutil.chown(place, owner, owner)


if __name__ == "__main__":
    places = mount_all(sys.argv[1])
    if "tmpfs" in places:
        open_fuse_device(os.path.join(places["tmpfs"], "fuse-device"))
    if "ext4" in places:  # before Linux 6.6 tmpfs has no attributes for the stage that is to lie on it
        try:
            places["overlay"] = mount_overlay(os.path.join(places["ext4"], "overlay"))
        except OSError as e:
            print(f"no overlayfs: {e}", file=sys.stderr)
    make_foreign(os.path.join(sys.argv[1], "foreign"), sys.argv[2])
    for each in places.values():
        shutil.chown(each, sys.argv[2], sys.argv[2])
