#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the suite on Debian's own kernel, in QEMU: ./dev test --kernel. docs/testing.md says how it is put together.

usage: run.py BUILD-DIRECTORY [PIECE... | PYTEST-ARGUMENT...]

A piece is one of PIECES; none named are all.

The guest is a microvm under TCG: a nested KVM that opens is not yet one that works. Its root is this machine's, shared
read-only over virtio-fs, so that every program the tests need is there; what is written goes to a scratch ext4 disk
and to tmpfs. tests/kernel/guest is its init. The exit status is the guest's.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
PACKAGE = "linux-image-cloud-amd64"
# Enough to find the root and the scratch disk, each after what it needs; the guest's modprobe loads the others.
EARLY_MODULES = ("virtio_ring", "virtio", "virtio_mmio", "fuse", "virtiofs", "virtio_blk")
MEMORY = "3G"
# Without what costs an emulation time and tests nothing: a sixth less for the same work.
CPU = "max,-la57,-smap,-smep,-avx2"
SCRATCH_BYTES = 8 << 30  # a sparse file
# What every start of a program opens, which through the share costs a switch to its server each time.
PROGRAM_DIRECTORIES = ("/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib/python3.11", "/usr/lib/python3", "/usr/lib/git-core")
PROGRAMS_BYTES = 4 << 30
WHOLE_RUN_SECONDS = int(os.environ.get("PV_KERNEL_SECONDS", "2400"))
# What the guest says last, on a line of its own.
EXIT_MARK = "pv-guest: exit "
# The files with tests marked "kernel". A piece is what one invocation runs, where time is limited.
PIECES = {
    "boundary": ("test_platform.py", "test_limits.py", "test_control.py", "test_exec.py"),
    "escape": ("test_escape.py",),
    "stage": ("test_rename.py", "test_stage_layers.py", "test_watchers.py"),
    "apply": ("test_promises.py", "test_stage_conflicts.py"),
    "random": ("test_stage_random.py",),
    "fuse": ("test_fuse.py",),
    "unit": (),
}
# Of the unit tests, those whose subject is the kernel; the others would cost minutes and say what they say here.
UNIT_SUITES = {"pvisor:boundary", "pvisor:net", "pvisor:fuse"}
# Its overlay lies on a tmpfs of its own, which has no user attributes there; test_rename.py tries the same on ext4.
UNITS_LEFT_OUT = {"boundary-rename"}

# The initramfs' only program besides busybox: mounts the shared root and hands over to the guest's init in it.
EARLY_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
for module in {modules}; do /bin/busybox insmod /$module.ko || echo "pv-guest: no $module"; done
/bin/busybox mount -t virtiofs -o ro root /root || {{ echo "{mark}1"; /bin/busybox poweroff -f; }}
/bin/busybox mount -t devtmpfs dev /root/dev
/bin/busybox umount /proc # what an initramfs leaves mounted is a proc that counts as visible
exec /bin/busybox switch_root /root /bin/bash {guest}
"""


def fail(message):
    sys.exit(f"dev: test --kernel: {message}")


def kernel_package():
    """The name of the package that the metapackage stands for, or None."""
    listed = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=False).stdout
    return next((line.split()[-1] for line in listed.splitlines() if "Depends: linux-image" in line), None)


def fetch_kernel(directory):
    """The kernel package unpacked below directory: downloaded once, never installed."""
    unpacked = directory / "kernel"
    if unpacked.exists():
        return unpacked
    name = kernel_package()
    if not name:  # a new machine has no lists
        subprocess.run(["apt-get", "-qq", "update"], check=False)
        name = kernel_package() or fail(f"no package {PACKAGE} is known")
    part = directory / "kernel.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    print(f"downloading {name}", flush=True)
    if subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name], cwd=part).returncode:
        fail(f"cannot download {name}")
    (package,) = part.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package, part], check=True)
    package.unlink()
    subprocess.run(["depmod", "-b", part, version_of(part)], check=True)
    part.rename(unpacked)
    return unpacked


def version_of(unpacked):
    return next((unpacked / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")


def make_initramfs(unpacked, path):
    """busybox, the early modules and EARLY_INIT, as a cpio archive."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for directory in ("bin", "proc", "root"):
            (top / directory).mkdir()
        shutil.copy2("/bin/busybox", top / "bin/busybox")
        for module in EARLY_MODULES:
            found = next((unpacked / "lib/modules").rglob(module + ".ko"))
            shutil.copy(found, top / found.name)
        init = top / "init"
        init.write_text(EARLY_INIT.format(modules=" ".join(EARLY_MODULES), mark=EXIT_MARK,
                                          guest=shlex.quote(str(HERE / "guest"))))
        init.chmod(0o755)
        names = "\n".join(str(p.relative_to(top)) for p in sorted(top.rglob("*")))
        with open(path, "wb") as archive:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"], cwd=top, input=names.encode(),
                           stdout=archive, check=True)


def files_of(names):
    """The arguments for pytest that these pieces are; names itself where it is no pieces."""
    marked = {p.name for p in (TOP / "tests").glob("test_*.py") if "mark.kernel" in p.read_text()}
    known = {name for names in PIECES.values() for name in names}
    if marked != known:
        fail("PIECES in tests/kernel/run.py does not list the files with marked tests: " + " ".join(sorted(marked ^ known)))
    pieces = names or list(PIECES)
    if not set(pieces) <= set(PIECES):
        return names
    if pieces == ["unit"]:
        return []
    return ["-m", "kernel", *(f"tests/{name}" for piece in pieces for name in PIECES[piece])]


def copy_units(build, top):
    """The unit tests of UNIT_SUITES with the programs they are given, into top; their command lines."""
    listed = subprocess.run(["meson", "introspect", "--tests", build], capture_output=True, check=True).stdout
    lines = []
    top.mkdir()
    for test in json.loads(listed):
        if not UNIT_SUITES & set(test["suite"]) or test["name"] in UNITS_LEFT_OUT:
            continue
        words = []
        for word in test["cmd"]:
            source = Path(build) / word
            if source.is_file():
                shutil.copy2(source, top / source.name)
                word = f"/mnt/units/{source.name}"
            words.append(word)
        lines.append(shlex.join(words))
    return lines


def make_scratch(work, build, unpacked, arguments, units):
    """An ext4 disk with what the guest is to do: the installed tree, a copy of the suite, and a file of settings."""
    top = work / "scratch"
    (top / "src").mkdir(parents=True)
    for name in ("tests", "src", "docs", "pytest.ini"):
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, top / "src" / name, symlinks=True, ignore=shutil.ignore_patterns("out", "__pycache__"))
        else:
            shutil.copy(source, top / "src" / name)
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild"], env={**os.environ, "DESTDIR": str(top / "installed")},
                   check=True, stdout=subprocess.DEVNULL)
    lines = copy_units(build, top / "units") if units else []
    (top / "settings").write_text(
        f"modules={shlex.quote(str(unpacked))}\n"
        f"programs=({' '.join(PROGRAM_DIRECTORIES)})\n"
        f"must_work={shlex.quote(os.environ.get('PV_MUST_WORK', ''))}\n"
        f"arguments=({' '.join(map(shlex.quote, arguments))})\n"
        f"units=({' '.join(map(shlex.quote, lines))})\n")
    disk = work / "scratch.img"
    with open(disk, "wb") as f:
        f.truncate(SCRATCH_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", "-d", top, disk], check=True)
    shutil.rmtree(top)
    return disk


def make_programs(directory):
    """An ext4 disk with this machine's PROGRAM_DIRECTORIES, made again when its packages have changed."""
    disk = directory / "kernel-programs.img"
    if disk.exists() and disk.stat().st_mtime > os.stat("/var/lib/dpkg/status").st_mtime:
        return disk
    print("copying this machine's programs", flush=True)
    script = ('top=$1 disk=$2; shift 2; for d; do mkdir -p "$top$d" && mount --bind "$d" "$top$d" || exit; done; '
              'mkfs.ext4 -q -F -O ^has_journal -d "$top" "$disk"')
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        part = disk.with_suffix(".part")
        with open(part, "wb") as f:
            f.truncate(PROGRAMS_BYTES)
        subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", top, part, *PROGRAM_DIRECTORIES], check=True)
        part.rename(disk)
    return disk


def start_share(work):
    """virtiofsd on a read-only view of this machine's root, in a mount namespace that ends with it."""
    socket, view = work / "share.sock", work / "view"
    view.mkdir()
    log = open(work / "virtiofsd.log", "wb")
    script = ('mount --rbind / "$1" && mount -o remount,bind,ro "$1" && '
              'exec /usr/lib/qemu/virtiofsd --socket-path="$2" -o source="$1",cache=always,xattr')
    share = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "share", view, socket],
                             stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 10
    while not socket.exists():
        if share.poll() is not None or time.monotonic() > deadline:
            fail("virtiofsd does not start:\n" + (work / "virtiofsd.log").read_text())
        time.sleep(0.02)
    return share, socket


def clock_khz():
    """What this machine's TSC counts."""
    with open("/proc/cpuinfo") as f:
        return next((int(float(line.split(":")[1]) * 1000) for line in f if line.startswith("cpu MHz")), 2000000)


def boot(unpacked, work, disk, programs, socket):
    """Starts the guest; its console is our pipe."""
    make_initramfs(unpacked, work / "initramfs")
    kernel = unpacked / "boot" / f"vmlinuz-{version_of(unpacked)}"
    return subprocess.Popen(
        ["qemu-system-x86_64", "-M", "microvm,acpi=on,memory-backend=mem", "-global", "virtio-mmio.force-legacy=off",
         "-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "2", "-m", MEMORY,
         "-object", f"memory-backend-memfd,id=mem,size={MEMORY},share=on",
         "-nodefaults", "-no-user-config", "-no-reboot", "-nographic", "-serial", "stdio",
         "-kernel", str(kernel), "-initrd", str(work / "initramfs"),
         # nokaslr: the relocation takes seconds under TCG. tsc_early_khz and lpj: on a busy machine the guest's own
         # calibration of its clock against the emulated timer fails, and boot stops there; TCG's TSC is this machine's.
         "-append", f"console=ttyS0 quiet nokaslr tsc_early_khz={clock_khz()} lpj=8000000 panic=-1 mitigations=off",
         "-chardev", f"socket,id=share,path={socket}", "-device", "vhost-user-fs-device,chardev=share,tag=root",
         "-drive", f"id=scratch,file={disk},format=raw,if=none,cache=unsafe", "-device", "virtio-blk-device,drive=scratch",
         "-drive", f"id=programs,file={programs},format=raw,if=none,readonly=on", "-device", "virtio-blk-device,drive=programs",
         "-device", "virtio-rng-device"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


class Times:
    """What each half took for each file, by the clock of this machine, from the lines of pytest -v."""

    LINE = re.compile(r"\[(\w+)\] tests/(\w+\.py)::.* (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")

    def __init__(self):
        self.last, self.rows = {}, {}

    def see(self, text):
        half = re.match(r"\[(\w+)\] ", text)
        if not half:
            return
        half, now, found = half[1], time.monotonic(), self.LINE.match(text)
        if found:
            row = self.rows.setdefault((half, found[2]), {"seconds": 0.0})
            row[found[3]] = row.get(found[3], 0) + 1
            row["seconds"] += now - self.last.get(half, now)
        if found or "test session starts" in text:
            self.last[half] = now

    def report(self):
        if self.rows:
            print("\n| file | as | passed | failed | skipped | seconds |\n|---|---|---|---|---|---|")
        for (half, name), row in sorted(self.rows.items(), key=lambda item: (item[0][1], item[0][0])):
            failed = row.get("FAILED", 0) + row.get("ERROR", 0)
            print(f"| {name} | {half} | {row.get('PASSED', 0)} | {failed} | {row.get('SKIPPED', 0)} | {row['seconds']:.0f} |")


def follow(guest, times):
    """Prints what the guest prints until it ends; its exit status, or None when it never said one."""
    status = None
    for line in guest.stdout:
        text = line.decode(errors="replace").replace("\r", "").rstrip("\n")
        if text.startswith(EXIT_MARK):
            status = int(text.removeprefix(EXIT_MARK))
        else:
            print(text, flush=True)
            times.see(text)
    return status


def main(build, arguments):
    if os.geteuid() != 0:
        fail("needs root: virtiofsd shares this machine's files only then with their owners")
    processes = []

    def stop(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(WHOLE_RUN_SECONDS)
    with tempfile.TemporaryDirectory(prefix="pvisor-kernel-", dir="/var/tmp") as name:
        work, status, times = Path(name), None, Times()
        try:
            unpacked = fetch_kernel(Path(build))
            disk = make_scratch(work, build, unpacked, files_of(arguments), not arguments or "unit" in arguments)
            share, socket = start_share(work)
            processes.append(share)
            guest = boot(unpacked, work, disk, make_programs(Path(build)), socket)
            processes.append(guest)
            status = follow(guest, times)
        except KeyboardInterrupt:
            print("dev: test --kernel: stopped")
        finally:
            times.report()
            for each in processes:
                if each.poll() is None:
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()
    if status is None:
        fail("the guest ended without a result")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
