# SPDX-License-Identifier: Apache-2.0
"""File systems in files, for tests that must see more than the machine's own.

As a program (root): python3 filesystems.py DIRECTORY OWNER mounts one of each kind at DIRECTORY/KIND, open to OWNER;
./dev does this in a mount namespace of its own for the ordinary user's half, which cannot mount.
"""
import os
import shutil
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


def unmount(directory):
    """At once if it can be; what still holds it does not keep it in sight."""
    subprocess.run(["umount", "--lazy", directory], check=False, capture_output=True)


if __name__ == "__main__":
    for each in mount_all(sys.argv[1]).values():
        shutil.chown(each, sys.argv[2], sys.argv[2])
