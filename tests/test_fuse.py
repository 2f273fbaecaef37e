# SPDX-License-Identifier: Apache-2.0
"""The FUSE backend of the stage: what overlayfs cannot serve is staged all the same, and nothing else is widened."""
import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from conftest import IS_ROOT, pv_skip
from lib import processes, tree
# The person who works meanwhile loses nothing over this backend either: the same tests, with the fixtures below.
from test_stage_conflicts import (EDITS, FILES, refused,  # noqa: F401
                                  test_a_directory_put_in_place_of_another_is_a_conflict,
                                  test_a_file_that_both_made_is_a_conflict, test_deleting_a_directory_that_gained_a_file_is_a_conflict,
                                  test_what_is_unrelated_is_in_no_way)
from test_stage_conflicts import meanwhile as meanwhile_over_any

pytestmark = pytest.mark.kernel

FUSE = ["--stage", "--stage-backend", "fuse"]
PYTHON = "/usr/bin/python3"


@pytest.fixture(autouse=True)
def needs_fuse(fuse):
    pass


@pytest.fixture
def workspace(make_workspace):
    return make_workspace(FILES, git=False)


@pytest.fixture
def meanwhile(meanwhile_over_any):
    return lambda agent, person: meanwhile_over_any(agent, person, *FUSE[1:])


@pytest.fixture
def staged(pvisor, workspace):
    """staged(shell text) -> what it printed."""
    return lambda script, *options, **more: pvisor("run", "-q", *FUSE, *options, "--", "sh", "-euc", script,
                                                   cwd=workspace, **more).out


def in_mounts(script, arguments, environment, cwd):
    """A shell script in a mount namespace of its own, where the person may mount."""
    own = ["unshare", "--mount"] if IS_ROOT else ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    done = subprocess.run([*own, "bash", "-euc", script, "bash", *arguments], cwd=cwd, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- what overlayfs cannot serve ----

MOUNTS = """
mkdir bound tmp
mount --bind "$2" bound
mount -t tmpfs tmpfs tmp
echo old > tmp/f; mkdir tmp/d; echo old > tmp/d/g
"""


def test_mounts_below_the_workspace_are_staged(workspace, temporary, environment, pv):
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere/e").write_text("old\n")
    out = in_mounts(MOUNTS + """
        "$1" run --stage -- sh -euc '
            cat tmp/f bound/e
            echo new >> tmp/f; rm -r tmp/d; echo n > tmp/new; echo new > bound/e; mv tmp/f tmp/moved; cp tmp/moved bound/c
            rmdir tmp 2>&1 || true; mv bound away 2>&1 || true
            cat tmp/moved; ls tmp bound'
        echo "host: $(cat tmp/f bound/e tmp/d/g)"
        "$1" review | grep -E "^  [ADMR] " || true
        "$1" apply --all
        echo "applied: $(cat tmp/moved bound/e bound/c tmp/new)"; ls tmp bound
        "$1" undo; echo "undone: $(cat tmp/f bound/e tmp/d/g)"; ls tmp bound""",
                    [pv, str(temporary / "elsewhere")], environment, workspace)
    assert out.startswith("old\nold\n")
    assert "Device or resource busy" in out
    assert "host: old\nold\nold\n" in out
    assert "applied: old\nnew\nnew\nold\nnew\nn\nbound:\nc\ne\n\ntmp:\nmoved\nnew\n" in out
    assert out.endswith("undone: old\nold\nold\nbound:\ne\n\ntmp:\nd\nf\n")


def test_edits_below_a_mount_are_conflicts_too(workspace, temporary, environment, pv):
    """Each mount has a clock of its own; what is unrelated there is in no way."""
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere/e").write_text("old\n")
    out = in_mounts(MOUNTS + """
        coproc run { exec "$1" run -q --stage -- sh -euc 'echo a >> tmp/f; echo a >> tmp/d/g; echo a >> bound/e; echo ready; read -r _'; }
        read -r ready <&"${run[0]}"
        echo mine >> tmp/f; echo mine > tmp/d/beside; echo mine >> bound/e
        echo >&"${run[1]}"; wait "$run_PID"
        "$1" apply --all 2>&1 && exit 1; test $? = 3; cat tmp/f bound/e
        "$1" apply --path tmp/d >/dev/null; cat tmp/d/g; ls tmp/d""",
                    [pv, str(temporary / "elsewhere")], environment, workspace)
    conflicts = sorted(line.split(":")[1].strip() for line in out.splitlines() if line.startswith("conflict:"))
    assert conflicts == ["bound/e", "tmp/f"]
    assert out.endswith("old\nmine\nold\nmine\nold\na\nbeside\ng\n")


def test_it_is_chosen_by_itself_and_said(workspace, temporary, environment, pv):
    (temporary / "elsewhere").mkdir()
    out = in_mounts(MOUNTS + """
        "$1" run --stage --stage-backend kernel -- true 2>&1 && exit 1; test $? = 5; echo --
        "$1" run --stage -- true 2>&1; echo --
        "$1" status --review --json
        umount tmp bound; echo --; "$1" run --stage -- true 2>&1""",
                    [pv, str(temporary / "elsewhere")], environment, workspace)
    kernel, chosen, bundle, without = out.split("--\n")
    assert "overlayfs cannot show a tree with mounts in it" in kernel
    assert chosen.startswith("pvisor: staged over FUSE, slower than overlayfs: ") and "is mounted below" in chosen
    assert "FUSE" not in without
    stage = [o for o in json.loads(bundle)["executor_observations"] if o["control"] == "stage"]
    assert stage[0]["mechanism"].startswith("fuse overlay over 1 directory") and stage[0]["level"] == "enforced"
    assert any("slower" in limit for limit in stage[0]["limits"])


@pytest.mark.user
def test_files_of_another_group_of_the_persons_are_staged(pvisor, workspace):
    groups = [g for g in os.getgroups() if g != os.getegid()]
    if not groups:
        pv_skip("this user has no second group")
    for path in (workspace, workspace / "edited", workspace / "dir", workspace / "dir/a"):
        os.chown(path, -1, groups[0])
    (workspace / "dir").chmod(0o2775)
    assert "belongs to group" in pvisor("run", "--stage", "--stage-backend", "kernel", "--", "true", cwd=workspace,
                                        code=5).err
    pvisor("run", "--stage", "--", "sh", "-euc",
           "echo new >> edited; rm dir/a; echo n > dir/new; mkdir dir/sub; mv dir/b dir/c; chmod 600 left",
           cwd=workspace)
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "edited").read_text() == "old\nnew\n" and not (workspace / "dir/a").exists()
    for path in ("edited", "dir", "dir/new", "dir/sub"):
        assert (workspace / path).stat().st_gid == groups[0], path
    assert (workspace / "dir/sub").stat().st_mode & stat.S_ISGID
    assert (workspace / "left").stat().st_gid == os.getegid()
    pvisor("undo", cwd=workspace)
    assert (workspace / "edited").read_text() == "old\n" and (workspace / "dir/a").stat().st_gid == groups[0]


@pytest.mark.user
def test_what_belongs_to_root_is_what_it_is_outside(pvisor, make_workspace):
    """Each act by hand and through the stage: the same succeed, the same are refused."""
    prepared = os.environ.get("PV_TEST_FILESYSTEMS")
    if not prepared or not (Path(prepared) / "foreign").is_dir():
        pv_skip("no files of root's in a directory of this user's (./dev test, run as root, makes them)")
    foreign = Path(prepared) / "foreign"
    acts = {"cat readable": 0, "cat secret": 1, "echo x >> readable": 2, "echo x >> open": 0, "chmod 600 readable": 1,
            "echo x >> group": 0, "cat group": 0, "ls closed": 2, "ls dir": 0, "echo x > dir/new": 2, "rm dir/f": 1,
            "echo x >> dir/mine": 0, "touch -d 2001-01-01 readable": 1, "chmod 640 group": 0}
    outcome = pvisor("run", "-q", "--stage", "--", "sh", "-c",
                     "for act in \"$@\"; do sh -c \"$act\" >/dev/null 2>&1; echo $?; done; rm -f readable; ls", "sh",
                     *acts, cwd=foreign).out.splitlines()
    assert dict(zip(acts, map(int, outcome))) == acts
    assert "readable" not in outcome and (foreign / "readable").read_text() == "root's\n"


@pytest.fixture
def on_overlay(temporary):
    """A directory on an overlayfs, which takes no overlay's upper: what the root of a container is."""
    if IS_ROOT:
        place = temporary / "overlay"
        for name in ("lower", "upper", "work", "overlay"):
            (temporary / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "-o",
                        f"lowerdir={temporary}/lower,upperdir={temporary}/upper,workdir={temporary}/work", "overlay",
                        place], check=True)
        yield place
        subprocess.run(["umount", "--lazy", place], check=True)
        return
    prepared = os.environ.get("PV_TEST_FILESYSTEMS")
    if not prepared or not (Path(prepared) / "ext4/overlay/overlay").is_dir():
        pv_skip("no overlayfs that root mounted (./dev test, run as root, does)")
    yield Path(prepared) / "ext4/overlay/overlay"


def test_a_stage_on_an_overlay(on_overlay, make_workspace, environment, pvisor):
    """All that reads layers reads this format of them: review, checkpoint, fork, inspect, apply, undo."""
    workspace = make_workspace(FILES, git=False, where=on_overlay, name=f"on-overlay-{os.getpid()}")
    environment["PVISOR_HOME"] = str(on_overlay / f"store-{os.getpid()}")
    before = tree.snapshot(workspace)
    assert "overlayfs cannot write to" in pvisor("run", "--stage", "--stage-backend", "kernel", "--", "true",
                                                 cwd=workspace, code=5).err
    ran = pvisor("run", "--stage", "--", "sh", "-euc", "rm left dir/a; mv gone there; mkdir new; : > dir/empty; ls -A . dir there",
                 cwd=workspace)
    assert ran.out == ".:\ndir\nedited\nlink\nnew\nthere\n\ndir:\nb\nempty\n\nthere:\nx\n"
    assert "on overlayfs" in ran.err
    tree.assert_same(tree.snapshot(workspace), before, dir_times=True)
    listed = pvisor("review", cwd=workspace).out
    assert "D dir/a" in listed and "A dir/empty" in listed and "D left" in listed
    pvisor("checkpoint", "last", "--name", "one", cwd=workspace)
    pvisor("run", "-q", "--continue", "last", "--", "sh", "-euc", "rm dir/empty; echo back > left", cwd=workspace)
    assert pvisor("inspect", "last", "--", "ls", "-A", "dir", cwd=workspace).out == "b\n"
    forked = pvisor("fork", "last@one", "--", "sh", "-euc", "ls -A dir; rm dir/b; ls -A dir", cwd=workspace)
    assert forked.out == "b\nempty\nempty\n"
    pvisor("apply", "last", "--all", cwd=workspace)
    assert sorted(os.listdir(workspace / "dir")) == ["empty"] and not (workspace / "left").exists()
    pvisor("undo", "last", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), before)
    tree.remove(workspace)


# ---- the host's directory lives ----

@pytest.mark.parametrize("edit", EDITS, ids=lambda word: word.replace(" ", "-"))
def test_an_edit_of_the_same_file_is_a_conflict(edit, meanwhile, pvisor, workspace):
    meanwhile("echo agent >> edited; echo x > other; pause", EDITS[edit])
    mine = tree.snapshot(workspace)
    assert "edited" in refused(pvisor, workspace)
    tree.assert_same(tree.snapshot(workspace), mine, dir_times=True)


def test_an_edit_that_the_command_saw_is_still_one(meanwhile, pvisor, workspace):
    """What it did may rest on what it read before."""
    meanwhile("cat edited >/dev/null; pause; echo agent >> edited", EDITS["written"])
    assert refused(pvisor, workspace) == ["edited"]
    assert (workspace / "edited").read_text() == "old\nmine\n"


def test_the_persons_edits_show(meanwhile, workspace):
    """What the command has looked at before is looked at again: by opening at once, by name after a second."""
    meanwhile("""cat edited >/dev/null; ls dir left >/dev/null; pause
                 test "$(cat edited)" = "$(printf 'old\\nmine and longer')"; until ls dir | grep -q fresh && test -e dir/fresh && ! ls | grep -q left && test ! -e left; do sleep 0.1; done""",
              "echo 'mine and longer' >> edited; echo f > dir/fresh; rm left")


# ---- what programs do ----

PROGRAM = r"""
import ctypes, errno, fcntl, mmap, os, stat, sys
def attempt(what, *args, **more):
    try:
        return what(*args, **more)
    except OSError as e:
        return errno.errorcode[e.errno]
f = open("mapped", "w+b"); f.truncate(10000)
with mmap.mmap(f.fileno(), 10000) as m:
    m[5000:5005] = b"hello"; m.flush()
    print(os.pread(f.fileno(), 5, 5000)); os.pwrite(f.fileno(), b"J", 5000); print(m[5000:5005])
    os.unlink("mapped"); m[0:1] = b"x"; print(os.fstat(f.fileno()).st_nlink, os.pread(f.fileno(), 1, 0))
    os.fchmod(f.fileno(), 0o640); print(oct(os.fstat(f.fileno()).st_mode))
r = open("edited"); w = open("edited", "a"); w.write("more\n"); w.flush(); print(r.read())  # opened before the copy up
r = open("left"); os.unlink("left"); print(r.read(), attempt(os.stat, "left"), os.fstat(r.fileno()).st_size)
h = os.open("sparse", os.O_RDWR | os.O_CREAT); os.pwrite(h, b"end", 1 << 20)
print(os.lseek(h, 0, os.SEEK_DATA) > 0, os.lseek(h, 0, os.SEEK_HOLE), os.stat("sparse").st_blocks < 100)
os.posix_fallocate(h, 0, 4096); t = os.open("copy", os.O_RDWR | os.O_CREAT)
print(os.copy_file_range(h, t, 100, 1 << 20), os.path.getsize("copy"))
fcntl.flock(h, fcntl.LOCK_EX); fcntl.lockf(t, fcntl.LOCK_EX | fcntl.LOCK_NB)
other = os.open("sparse", os.O_RDWR); print(attempt(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB))
os.link("edited", "linked"); a, b = os.stat("edited"), os.stat("linked"); print(a.st_nlink, a.st_ino == b.st_ino)
ino = os.stat("dir").st_ino, os.stat("dir/a").st_ino
open("dir/a", "a").write("x"); os.rename("dir", "moved")
print(ino == (os.stat("moved").st_ino, os.stat("moved/a").st_ino), sorted(os.listdir("moved")), attempt(os.rmdir, "moved"))
libc = ctypes.CDLL(None, use_errno=True)
print(libc.renameat2(-100, b"moved", -100, b"gone", 2), sorted(os.listdir("gone")), sorted(os.listdir("moved")))
print(libc.renameat2(-100, b"moved/x", -100, b"gone/a", 1), ctypes.get_errno() == errno.EEXIST)
os.mkdir("set", 0o2755); os.umask(0o027); os.mkdir("set/in"); print(oct(os.stat("set/in").st_mode)[-4:])
print(attempt(os.mknod, "device", stat.S_IFCHR, 0), attempt(os.mknod, "device", stat.S_IFCHR, os.makedev(1, 3)))
os.setxattr("edited", "user.overlay.opaque", b"y"); print(os.listxattr("edited"), os.getxattr("linked", "user.overlay.opaque"))
print(attempt(os.setxattr, "edited", "security.capability", b"x"), attempt(os.setxattr, "edited", "trusted.x", b"x"))
os.chmod("moved", 0); print(attempt(os.listdir, "moved") if os.geteuid() else "EACCES"); os.chmod("moved", 0o755)
d = os.open(".", os.O_RDONLY); os.mkdir("deep"); os.chdir("deep")
for i in range(40):
    os.mkdir("d" * 200); os.chdir("d" * 200)
open("bottom", "w").write("b"); print(open("bottom").read()); os.unlink("bottom")
for i in range(40):
    os.chdir(".."); os.rmdir("d" * 200)
os.fchdir(d)
print(os.statvfs(".").f_bsize > 0)
"""


def test_programs_meet_what_they_meet_directly(make_workspace, run, pvisor):
    direct, staged = (make_workspace(FILES, git=False, name=name) for name in ("direct", "staged"))
    want = run([PYTHON, "-c", PROGRAM], cwd=direct)
    got = pvisor("run", "-q", *FUSE, "--", PYTHON, "-c", PROGRAM, cwd=staged)
    want, got = want.out.splitlines(), got.out.splitlines()
    # By hand root makes devices and attributes of the system's, and everybody what would be a whiteout.
    for i, line in enumerate(got):
        if line and set(line.split()) <= {"EPERM", "EINVAL"} and set(want[i].split()) <= {"EPERM", "EINVAL", "EEXIST", "None"}:
            want[i] = line
    assert got == want


def test_a_safe_run_over_fuse(make_workspace, pvisor):
    workspace = make_workspace()
    pvisor("run", "--safe", "--stage-backend", "fuse", "--", "sh", "-euc",
           "git mv src source; echo x >> README.md; git commit -qam Second; git status --porcelain", cwd=workspace)
    assert "Second" in pvisor("review", cwd=workspace).out
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "source/main.c").exists() and not (workspace / "src").exists()


def test_commits_of_a_repository_with_a_mount_in_it(make_workspace, environment, pv):
    """The looks of contained git, at the host's side too, are served the same way."""
    workspace = make_workspace()
    out = in_mounts("""
        mkdir mnt; mount -t tmpfs tmpfs mnt; echo h > mnt/h
        "$1" run -q --safe -- sh -euc 'echo x >> README.md; git commit -qam Second; echo n >> mnt/h'
        "$1" review; "$1" inspect last -- git log --format=%s -1; "$1" apply --commits >/dev/null
        git log --all --format=%s -1; cat mnt/h""", [pv], environment, workspace)
    assert "M mnt/h" in out and "main +1" in out and out.endswith("Second\nSecond\nh\n")


@pytest.mark.root
def test_roots_run_serves_every_user_by_their_own_rights(staged, workspace):
    (workspace / "secret").write_text("s\n")
    (workspace / "secret").chmod(0o600)
    (workspace / "shared").mkdir()
    os.chown(workspace / "shared", 0, 4321)
    (workspace / "shared").chmod(0o2770)
    out = staged("""
        chmod 777 .
        as() { setpriv --reuid 1234 --regid 1234 "$@"; }
        as --clear-groups sh -c 'cat secret 2>/dev/null || echo refused; echo mine > made; ls shared 2>/dev/null || echo refused'
        as --groups 4321 sh -c 'echo in > shared/made; mkdir shared/d'
        stat -c '%n %u %g %a' made shared/made shared/d""")
    assert out == "refused\nrefused\nmade 1234 1234 644\nshared/made 1234 4321 644\nshared/d 1234 4321 2755\n"


# ---- nothing else is widened ----

def test_links_lead_where_they_lead_in_the_sandbox(staged, workspace, temporary):
    (temporary / "secret").write_text("secret\n")
    (workspace / "absolute").symlink_to(temporary / "secret")
    (workspace / "climbing").symlink_to("../secret")
    (workspace / "there").symlink_to(temporary)
    assert staged("cat absolute climbing there/secret ../secret 2>/dev/null || echo refused; ls -A ..") == \
        "refused\nhome\nproject\n"
    assert (workspace / "climbing").read_text() == "secret\n"


def test_a_directory_that_the_host_swaps_for_a_link_is_a_link(meanwhile, workspace, temporary):
    (temporary / "outside").mkdir()
    (temporary / "outside/a").write_text("secret\n")
    meanwhile("cat dir/a >/dev/null; cd dir; pause; ! grep -r secret . .. ../dir/a 2>/dev/null",
              f"mv dir old; ln -s {temporary}/outside dir")


def test_sockets_and_pipes_of_the_host_are_not_reached(staged, workspace):
    os.mkfifo(workspace / "pipe")
    reader = os.open(workspace / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(workspace)
        listener.bind("socket")
        os.chdir("/")
        listener.listen()
        script = ("import os, socket\nfor what in (lambda: os.open('pipe', os.O_WRONLY | os.O_NONBLOCK),"
                  " lambda: socket.socket(socket.AF_UNIX).connect('socket')):\n"
                  " try: what(); print('reached')\n except OSError as e: print(e.strerror)\n")
        direct = subprocess.run([PYTHON, "-c", script], cwd=workspace, capture_output=True, text=True, check=True)
        assert direct.stdout == "reached\nreached\n"
        assert staged(f"cat > s.py <<'E'\n{script}E\n{PYTHON} s.py") == \
            "No such device or address\nConnection refused\n"
    os.close(reader)
    assert staged("python3 - <<'E'\nimport os, socket, threading\ns = socket.socket(socket.AF_UNIX); s.bind('own'); s.listen()\n"
                  "c = socket.socket(socket.AF_UNIX); c.connect('own'); print('own')\nE".replace("python3", PYTHON)) == "own\n"


@pytest.mark.root
def test_devices_do_not_open(staged, workspace):
    os.mknod(workspace / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert staged("ls null; (: > null) 2>/dev/null || echo refused") == "null\nrefused\n"
    with open(workspace / "null", "wb"):
        pass


def server_of(job):
    """The pid of the program that serves a running job's view."""
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return next(int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "pvisor-fuse\n")


@pytest.fixture
def running(pv, environment, workspace):
    with subprocess.Popen([pv, "run", *FUSE, "--", "sh", "-c", "echo new >> edited; echo ready; read -r _; cat edited; echo $?"],
                          cwd=workspace, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        if process.poll() is None:
            process.kill()


def test_without_its_server_a_view_fails_and_what_was_written_stays(running, pvisor, workspace):
    os.kill(server_of(running), signal.SIGKILL)
    out, err = running.communicate("\n", timeout=60)
    assert out == "1\n" and "ended before the command" in err
    assert (workspace / "edited").read_text() == "old\n"
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "edited").read_text() == "old\nnew\n"


def test_the_server_dies_with_its_supervisor(running, pvisor, workspace):
    server = server_of(running)
    running.kill()
    running.wait()
    processes.await_death(server)
    assert "M edited" in pvisor("review", cwd=workspace).out


def test_the_server_is_confined(running):
    status = Path(f"/proc/{server_of(running)}/status").read_text()
    assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status
    kept = sum(1 << bit for bit in (0, 1, 2, 3, 4, 31))  # over files alone (linux/capability.h)
    assert int(status.partition("CapEff:")[2].split()[0], 16) & ~kept == 0
    running.communicate("\n", timeout=60)


def test_without_the_device_it_is_refused_with_the_fix(workspace, environment, pv, temporary):
    out = in_mounts("""
        mkdir tmp; mount -t tmpfs tmpfs tmp; mount --bind /dev/fuse /dev/fuse; mount -o remount,bind,nodev /dev/fuse
        "$1" run --stage -- true 2>&1 && exit 1; echo "exit $?" """, [pv], environment, workspace)
    assert "FUSE: " in out and "hint: " in out and out.endswith("exit 5\n")


def test_doctor_says_what_is_missing(environment, pv, workspace, pvisor):
    missing = in_mounts("""
        mount --bind /dev/fuse /dev/fuse; mount -o remount,bind,nodev /dev/fuse
        "$1" doctor || true""", [pv], environment, workspace)
    assert "FUSE: open /dev/fuse: Permission denied" in " ".join(missing.split())
    assert "/dev/fuse" not in pvisor("doctor", cwd=workspace, code=None).out
