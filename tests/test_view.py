# SPDX-License-Identifier: Apache-2.0
"""What the command sees: the projected root, HOME, shares, devices, proc - and what it must not see."""
import json
import os
import shutil
import socket
import stat
import subprocess

import pytest

from conftest import pv_skip
from lib import tree

SANDBOXES = {"staged": ["--stage"], "safe": ["--safe"]}


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    """The options of the sandboxed modes in turn."""
    return SANDBOXES[request.param]


@pytest.fixture
def inside(pvisor, workspace):
    """inside(options, script) -> what the script printed, run in the workspace."""

    def call(options, script, code=0, cwd=None, **how):
        return pvisor("run", "-q", *options, "--", "sh", "-c", script, cwd=cwd or workspace, code=code, **how).out

    return call


# ---- the root ----

def test_only_what_is_shown_exists(inside, sandbox):
    names = set(inside(sandbox, "ls -A /").split())
    top = set(os.listdir("/"))
    assert {"dev", "etc", "proc", "run", "tmp", "usr", "var"} <= names
    assert not names & {"boot", "mnt", "media", "srv", "sys", "lost+found"} & top


def test_links_of_a_merged_usr_are_kept(inside, sandbox):
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        if os.path.islink(name):
            assert inside(sandbox, f"readlink {name}").strip() == os.readlink(name)


@pytest.mark.parametrize("place", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/var", "/proc/sys"])
def test_system_directories_cannot_be_written(inside, sandbox, place):
    script = f"touch {place}/pvisor-test 2>/dev/null && echo written; mkdir {place}/pvisor-test-d 2>/dev/null && echo made; true"
    assert inside(sandbox, script) == ""
    assert not os.path.exists(f"{place}/pvisor-test")


def test_every_mount_of_the_system_is_read_only(inside, sandbox):
    """Nothing is believed: the mount table itself, as seen from inside."""
    own = ("/tmp", "/var/tmp", "/run", "/dev/shm", "/dev/pts", "/proc")
    lines = [line.split() for line in inside(sandbox, "cat /proc/self/mountinfo").splitlines()]
    writable = {f[4] for f in lines if "ro" not in f[5].split(",") and "ro" not in f[-1].split(",")}
    assert {"/usr", "/etc", "/"} & {f[4] for f in lines}
    assert not {p for p in writable if p.startswith(("/usr", "/etc", "/opt", "/bin", "/lib")) or p == "/"}
    assert {p for p in writable if p in own} == set(own)


def test_private_directories_are_empty_and_gone_afterwards(inside, sandbox):
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        assert inside(sandbox, f"ls -A {place} | grep -v pvisor-tests; echo x >{place}/pvisor-test-x && cat {place}/pvisor-test-x") == "x\n"
        assert not os.path.exists(f"{place}/pvisor-test-x")
        assert inside(sandbox, f"ls {place}/pvisor-test-x 2>/dev/null; true") == ""


def test_tmp_is_sticky_and_everybodys(inside, sandbox):
    assert inside(sandbox, "stat -c %a /tmp /var/tmp /dev/shm").split() == ["1777"] * 3


def test_files_made_get_the_callers_umask(inside, sandbox):
    old = os.umask(0o027)
    try:
        assert inside(sandbox, "umask; touch f; stat -c %a f").split() == ["0027", "640"]
    finally:
        os.umask(old)


# ---- /etc ----

SECRETS = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/etc/ssh/ssh_host_ed25519_key"]


def test_secrets_of_the_machine_are_not_there(inside, sandbox):
    for path in SECRETS:
        assert inside(sandbox, f"test -e {path} && echo there; true") == "", path
    assert inside(sandbox, "getent passwd root").startswith("root:")


@pytest.mark.root
def test_such_secrets_are_there_without_a_sandbox(pvisor, workspace):
    assert pvisor("run", "-q", "--", "cat", "/etc/shadow", cwd=workspace).out


@pytest.mark.root
def test_a_secret_that_appears_later_stays_hidden(pv, workspace, environment, tmp_path):
    """A whiteout hides a name, not a file: the host may make it while the command runs."""
    path = "/etc/ssh/ssh_host_dsa_key"
    if os.path.exists(path):
        pytest.skip("this machine has a DSA host key")
    made_ssh = not os.path.isdir("/etc/ssh")
    os.makedirs("/etc/ssh", exist_ok=True)
    p = subprocess.Popen([pv, "run", "-q", "--stage", "--", "sh", "-c", f"echo ready; read x; test -e {path} && echo seen; true"],
                         cwd=workspace, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline() == b"ready\n"
        with open(path, "w") as f:
            f.write("not a key\n")
        out, _ = p.communicate(b"\n", timeout=20)
        assert out == b""
    finally:
        if os.path.exists(path):
            os.unlink(path)
        if made_ssh:
            os.rmdir("/etc/ssh")


# ---- devices, proc ----

def test_minimal_devices_work(inside, sandbox):
    script = ("echo x >/dev/null; head -c4 /dev/zero | od -An -tx1; head -c4 /dev/urandom | wc -c; "
              "head -c4 /dev/random | wc -c; echo x >/dev/full 2>/dev/null || echo full; echo y | cat /dev/stdin; "
              "ls /dev | sort | tr '\\n' ' '")
    out = inside(sandbox, script).split()
    assert out[:8] == ["00"] * 4 + ["4", "4", "full", "y"]
    assert set(out[8:]) == {"fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
                            "urandom", "zero"}


def test_device_nodes_keep_their_modes(inside, sandbox):
    before = os.stat("/dev/null").st_mode
    inside(sandbox, "chmod 600 /dev/null 2>/dev/null; true")
    assert os.stat("/dev/null").st_mode == before


def test_a_named_device_is_shown(pvisor, workspace):
    device = next((d for d in ("/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/kmsg") if os.path.exists(d)), None)
    if not device:
        pv_skip("no further device")
    assert pvisor("run", "-q", "--stage", "--device", device, "--", "ls", device, cwd=workspace).out.strip() == device
    pvisor("run", "-q", "--stage", "--", "ls", device, cwd=workspace, code=2)


def test_ptys_can_be_made(inside, sandbox):
    assert "inner" in inside(sandbox, "script -qec 'echo inner' /dev/null </dev/null")


def test_proc_is_the_sandboxes_own(inside, sandbox):
    pids = [p for p in inside(sandbox, "ls /proc").split() if p.isdigit()]
    assert len(pids) < 8 and "1" in pids


def test_machine_wide_parts_of_proc_are_read_only(inside, sandbox):
    script = "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/irq/default_smp_affinity; do " \
             "[ -e $f ] && (: >>$f) 2>/dev/null && echo $f; done; true"
    assert inside(sandbox, script) == ""


def test_own_entries_of_proc_are_writable(inside, sandbox):
    assert inside(sandbox, "echo 500 >/proc/self/oom_score_adj && echo done") == "done\n"


# ---- read shares ----

@pytest.fixture
def share(temporary):
    """A directory with a listening socket, a FIFO, and plain things."""
    path = temporary / "share"
    path.mkdir()
    (path / "file").write_text("words\n")
    (path / "sub").mkdir()
    (path / "sub" / "deep").write_text("deep\n")
    os.mkfifo(path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(path)
    listener.bind("sock")
    os.chdir("/")
    listener.listen()
    yield path
    listener.close()


CONNECT = "python3 -c 'import socket; s=socket.socket(socket.AF_UNIX); s.connect(\"sock\"); print(\"connected\")'"


def test_a_read_share_is_read_only_and_its_sockets_are_inert(inside, sandbox, share):
    options = [*sandbox, "--mount", f"{share}:read"]
    assert inside(options, f"cat {share}/file {share}/sub/deep") == "words\ndeep\n"
    assert inside(options, f"touch {share}/new 2>/dev/null || echo refused") == "refused\n"
    assert inside(options, f"cd {share} && {CONNECT} 2>/dev/null || echo refused") == "refused\n"
    # with a reader on the host, opening the FIFO would succeed at once
    reader = os.open(share / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = f"python3 -c 'import os; os.open(\"{share}/fifo\", os.O_WRONLY|os.O_NONBLOCK)' 2>/dev/null || echo refused"
        assert inside(options, script) == "refused\n"
    finally:
        os.close(reader)


@pytest.mark.parametrize("place", ["/tmp", "/run", "home"])
def test_a_read_share_in_place_of_a_private_directory(inside, sandbox, share, home, place):
    """The private one stayed below it, writable, and the run was refused for that."""
    there = home if place == "home" else place
    look = f"cat {there}/file; touch {there}/new 2>/dev/null || echo read-only"
    assert inside([*sandbox, "--mount", f"{share}:{there}:read"], look) == "words\nread-only\n"


def test_read_shares_of_one_place_show_nothing_else_of_it(inside, sandbox, share):
    """Several of one directory are parts of one overlay: each is inert, and none leads to what lies beside it."""
    for name in ("one", "two"):
        (share / name).mkdir()
        (share / name / "file").write_text(f"{name}\n")
        os.link(share / "sock", share / name / "sock")
    options = [*sandbox, *(word for name in ("one", "two", "sub") for word in ("--mount", f"{share}/{name}:read"))]
    assert inside(options, f"cat {share}/one/file {share}/two/file {share}/sub/deep") == "one\ntwo\ndeep\n"
    assert inside(options, f"ls {share}; ls -d {share}/one/../file 2>/dev/null || echo refused").split() == [
        "one", "sub", "two", "refused"]
    for name in ("one", "two"):
        assert inside(options, f"touch {share}/{name}/new 2>/dev/null || echo refused") == "refused\n"
        assert inside(options, f"cd {share}/{name} && {CONNECT} 2>/dev/null || echo refused") == "refused\n"


def test_read_shares_below_home_are_no_part_of_its_copy(inside, home):
    """They share one overlay of HOME, which is read-only and has nothing to do with the one that HOME itself is."""
    (home / ".ssh").mkdir()
    for name in ("one", "two"):
        (home / name).mkdir()
        (home / name / "file").write_text(name)
    shares = [word for name in ("one", "two") for word in ("--mount", f"{home}/{name}:read")]
    out = inside(["--safe", *shares], f"cat {home}/one/file {home}/two/file; ls -d {home}/.ssh 2>/dev/null; "
                                      f"touch {home}/one/new 2>/dev/null; grep ' {home}/one \\| {home}/two ' /proc/self/mountinfo")
    assert out.startswith("onetwo") and ".ssh" not in out
    mounts = [line for line in out.splitlines() if " overlay " in line]
    assert len(mounts) == 2 and all("upperdir" not in line and " ro," in line for line in mounts), out
    assert not (home / "one/new").exists()


def test_a_write_share_is_the_hosts_own(inside, sandbox, share):
    options = [*sandbox, "--mount", f"{share}:write"]
    assert inside(options, f"cd {share} && {CONNECT}") == "connected\n"
    inside(options, f"echo mine >{share}/new")
    assert (share / "new").read_text() == "mine\n"


def test_a_single_file_can_be_shared(inside, sandbox, temporary):
    (temporary / "one").write_text("1\n")
    (temporary / "two").write_text("2\n")
    options = [*sandbox, "--mount", f"{temporary}/one:read"]
    assert inside(options, f"cat {temporary}/one; ls {temporary}/two 2>/dev/null; "
                           f"(: >{temporary}/one) 2>/dev/null || echo refused") == "1\nrefused\n"


@pytest.mark.parametrize("access", ["read", "stage", "write"])
@pytest.mark.parametrize("place", ["beside", "home"])
def test_what_is_named_by_a_link_is_there_under_both_names(inside, sandbox, temporary, home, access, place):
    (temporary / "versions/v1/sub").mkdir(parents=True)
    (temporary / "versions/v1/file").write_text("one\n")
    (temporary / "versions/v1/sub/deep").write_text("deep\n")
    (temporary / "versions/other").write_text("other\n")
    link = (home if place == "home" else temporary) / "current"
    link.symlink_to(temporary / "versions/v1")
    (temporary / "second").symlink_to("versions")
    options = [*sandbox, "--mount", f"{link}:{access}"]
    assert inside(options, f"cat {link}/file {temporary}/versions/v1/sub/deep") == "one\ndeep\n"
    # What the link's own directory and the real one hold beside it is not shown for that.
    assert inside(options, f"ls {temporary}/versions; cat {temporary}/versions/other {temporary}/second/other 2>/dev/null; true") == "v1\n"
    script = f"(echo two >{link}/new) 2>/dev/null && cat {temporary}/versions/v1/new || echo refused"
    assert inside(options, script) == ("refused\n" if access == "read" else "two\n")
    assert (temporary / "versions/v1/new").exists() == (access == "write")


def test_names_by_links_of_many_kinds(inside, sandbox, temporary):
    """A link on the way, a link to a link, a file, a relative name; and without the mount none of them leads anywhere."""
    (temporary / "real/lib").mkdir(parents=True)
    (temporary / "real/lib/file").write_text("x\n")
    (temporary / "dir").symlink_to("real")
    (temporary / "chain").symlink_to("dir/lib")
    (temporary / "one").symlink_to("real/lib/file")
    names = [f"{temporary}/dir/lib", f"{temporary}/chain", f"{temporary}/one"]
    looks = f"cat {temporary}/dir/lib/file {temporary}/chain/file {temporary}/one 2>/dev/null | wc -l"
    for name in names:
        assert inside([*sandbox, "--mount", f"{name}:read"], f"test -e {name} && echo there") == "there\n"
    assert inside([*sandbox, "--mount", "../chain:read"], f"cat {temporary}/chain/file") == "x\n"
    assert inside(sandbox, looks) == "0\n"


@pytest.mark.root
def test_a_read_share_with_mounts_below_it(inside, sandbox, share):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", share / "sub"], check=True)
    try:
        (share / "sub" / "inner").write_text("inner\n")
        (share / "sub" / "d").mkdir()
        listener = socket.socket(socket.AF_UNIX)
        os.chdir(share / "sub")
        listener.bind("sock")
        os.chdir("/")
        listener.listen()
        options = [*sandbox, "--mount", f"{share}:read"]
        assert inside(options, f"cat {share}/file {share}/sub/inner") == "words\ninner\n"
        assert inside(options, f"for d in {share} {share}/sub {share}/sub/d; do touch $d/new 2>/dev/null && echo $d; done; true") == ""
        assert inside(options, f"cd {share}/sub && {CONNECT} 2>/dev/null || echo refused") == "refused\n"
        listener.close()
    finally:
        subprocess.run(["umount", share / "sub"], check=True)


@pytest.mark.root
def test_a_read_only_bind_does_not_become_writable(inside, temporary, sandbox):
    """A share that the host itself shows read-only, nosuid, nodev stays so even as a write mount."""
    source, place = temporary / "source", temporary / "place"
    source.mkdir()
    place.mkdir()
    subprocess.run(["mount", "--bind", source, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro,nosuid,nodev", place], check=True)
    try:
        script = f"touch {place}/x 2>/dev/null || echo refused; mount -o remount,bind,rw {place} 2>/dev/null; " \
                 f"touch {place}/x 2>/dev/null || echo refused"
        assert inside([*sandbox, "--mount", f"{place}:write"], script) == "refused\nrefused\n"
    finally:
        subprocess.run(["umount", place], check=True)


# ---- HOME ----

def test_home_is_private_and_empty_without_safe(inside, home):
    (home / "letter").write_text("private\n")
    assert inside(["--stage"], "ls -A ~ | wc -l; echo x >~/new && cat ~/new; stat -c %a ~").split() == ["0", "x", "700"]
    assert not (home / "new").exists()


def test_home_is_a_throw_away_view_under_safe(inside, home):
    (home / "letter").write_text("mine\n")
    (home / "dir").mkdir()
    (home / "dir" / "old").write_text("old\n")
    script = "cat ~/letter; echo theirs >>~/letter; rm ~/dir/old; mv ~/dir ~/moved; ls ~; cat ~/letter"
    assert inside(["--safe"], script).split() == ["mine", "letter", "moved", "mine", "theirs"]
    assert (home / "letter").read_text() == "mine\n"
    assert (home / "dir" / "old").exists()
    assert inside(["--safe"], "ls ~").split() == ["dir", "letter"]


STORES = [".ssh/id_ed25519", ".gnupg/secring.gpg", ".aws/credentials", ".config/gh/hosts.yml", ".netrc",
          ".docker/config.json", ".config/gcloud/credentials.db", ".bash_history", ".git-credentials",
          ".config/helm/repositories.yaml", ".config/.wrangler/config/default.toml", ".cloudflared/cert.pem",
          ".config/configstore/firebase-tools.json", ".sbt/.credentials", ".lpass/key", ".snowsql/config"]


def test_credential_stores_are_not_in_the_view(inside, home):
    for path in STORES:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("secret\n")
    (home / ".config" / "app.conf").write_text("setting\n")
    os.chmod(home / ".config", 0o750)
    for path in STORES:
        assert inside(["--safe"], f"cat ~/{path} 2>/dev/null; true") == "", path
    assert inside(["--safe"], "grep -rl secret ~ 2>/dev/null; ls ~/.config; stat -c %a ~/.config").split() == ["app.conf", "750"]


def test_a_credential_store_that_appears_later_stays_hidden(pv, workspace, environment, home):
    p = subprocess.Popen([pv, "run", "-q", "--safe", "--", "sh", "-c",
                          "echo ready; read x; cat ~/.ssh/id_rsa ~/.config/gh/hosts.yml ~/.netrc 2>/dev/null; echo end"],
                         cwd=workspace, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    for path in (".ssh/id_rsa", ".config/gh/hosts.yml", ".netrc"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("secret\n")
    out, _ = p.communicate(b"\n", timeout=20)
    assert out == b"end\n"


def test_a_store_behind_a_link_is_hidden_under_both_names(inside, home):
    (home / "dotfiles" / "ssh").mkdir(parents=True)
    (home / "dotfiles" / "ssh" / "id_rsa").write_text("secret\n")
    (home / "dotfiles" / "config" / "gh").mkdir(parents=True)
    (home / "dotfiles" / "config" / "gh" / "hosts.yml").write_text("secret\n")
    (home / "dotfiles" / "config" / "app").write_text("setting\n")
    (home / ".ssh").symlink_to("dotfiles/ssh")
    (home / ".config").symlink_to(home / "dotfiles" / "config")
    assert inside(["--safe"], "grep -rlR secret ~ 2>/dev/null; cat ~/.config/app") == "setting\n"


def test_hidden_names_can_be_used_anew(inside, home):
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("secret\n")
    assert inside(["--safe"], "mkdir ~/.ssh && echo new >~/.ssh/config && ls ~/.ssh") == "config\n"
    assert os.listdir(home / ".ssh") == ["id_rsa"]


def test_a_workspace_below_home(inside, home, make_workspace):
    place = make_workspace(where=home, name="src/project", git=False)
    (home / "src" / "other").write_text("other\n")
    script = "echo new >made; ls ~/src; cat ~/src/project/made"
    assert inside(["--safe"], script, cwd=place).split() == ["other", "project", "new"]
    assert not (place / "made").exists()
    assert inside(["--stage"], "ls ~/src", cwd=place).split() == ["project"]


@pytest.mark.root
def test_home_with_mounts_below_it(inside, home):
    """Built entry by entry: overlayfs cannot have such a HOME as its lower layer."""
    (home / "mnt").mkdir()
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("secret\n")
    (home / "dir").mkdir()
    (home / "dir" / "file").write_text("file\n")
    (home / "notes").write_text("notes\n")
    (home / "link").symlink_to("notes")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", home / "mnt"], check=True)
    try:
        (home / "mnt" / "inner").write_text("inner\n")
        script = "cat ~/notes ~/link ~/dir/file ~/mnt/inner; for f in ~/notes ~/dir/file ~/mnt/inner; do echo x >>$f || echo failed; done; " \
                 "cat ~/.ssh/id_rsa 2>/dev/null; touch ~/new && echo made; echo ok"
        assert inside(["--safe"], script).split() == ["notes", "notes", "file", "inner", "made", "ok"]
        assert (home / "notes").read_text() == "notes\n"
        assert (home / "dir" / "file").read_text() == "file\n"
        assert (home / "mnt" / "inner").read_text() == "inner\n"
    finally:
        subprocess.run(["umount", home / "mnt"], check=True)


def test_directories_of_path_are_shown(pv, run, workspace, home):
    tools = home / "tools"
    tools.mkdir()
    (tools / "mytool").write_text("#!/bin/sh\necho mytool works\n")
    (tools / "mytool").chmod(0o755)
    (home / "private").write_text("p\n")
    path = f"{tools}:/usr/bin:/bin"
    for options in SANDBOXES.values():
        result = run([pv, "run", "-q", *options, "--", "mytool"], cwd=workspace, env={"PATH": path})
        assert result.out == "mytool works\n", result
    # HOME itself, or what is above it, in PATH opens nothing
    result = run([pv, "run", "-q", "--stage", "--", "ls", "-A", home], cwd=workspace,
                 env={"PATH": f"{home}:{home.parent}:/:/usr/bin:/bin"})
    assert result.out == ""


def test_the_store_is_hidden_in_the_workspace_above_it(pvisor, temporary, make_workspace):
    place = make_workspace(git=False)
    store = place / "deep" / "store"
    store.parent.mkdir()
    out = pvisor("run", "-q", "--stage", temporary / "stage", "--", "sh", "-c", "ls -A deep; find . -name 'run-*'", cwd=place,
                 env={"PVISOR_HOME": str(store)}, code=None)
    if out.code == 0:
        assert out.out == ""


# ---- as an ordinary program expects ----

@pytest.mark.parametrize("mode", [["--stage", "--filesystem", "host"], ["--stage"], ["--safe"]], ids=["host", "staged", "safe"])
def test_ids_are_what_they_are_outside(inside, mode):
    assert inside(mode, "id -u; id -g").split() == [str(os.getuid()), str(os.getgid())]


def test_own_files_look_owned_by_oneself(inside, home, sandbox):
    (home / "f").write_text("")
    if sandbox == ["--safe"]:
        assert inside(sandbox, "stat -c %u:%g ~/f ~").split() == [f"{os.getuid()}:{os.getgid()}"] * 2
    assert inside(sandbox, "stat -c %u README.md").strip() == str(os.getuid())


@pytest.mark.root
def test_owners_of_others_are_shown_to_root(inside, temporary, sandbox):
    path = temporary / "theirs"
    path.mkdir()
    (path / "f").write_text("")
    os.chown(path / "f", 1234, 5678)
    assert inside([*sandbox, "--mount", f"{path}:read"], f"stat -c %u:%g {path}/f /etc/passwd").split() == ["1234:5678", "0:0"]


def test_ssh_accepts_its_configuration(inside, home, sandbox):
    if not shutil.which("ssh"):
        pv_skip("no ssh")
    assert "hostname example.invalid" in inside(sandbox, "ssh -G example.invalid")


def test_sudo_is_refused_cleanly(inside, sandbox):
    if not shutil.which("sudo"):
        pytest.skip("no sudo")
    assert inside(sandbox, "sudo -n true 2>&1; echo code=$?").splitlines()[-1] == "code=1"


def test_hidden_things_leave_no_trace_in_the_stage(pvisor, workspace):
    assert "no changes" in pvisor("run", "--safe", "--", "true", cwd=workspace).err


def test_host_view_is_the_host(inside, workspace):
    host = ["--stage", "--filesystem", "host"]
    assert sorted(inside(host, "ls -A /").split()) == sorted(os.listdir("/"))
    inside(host, "echo x >made")
    assert not (workspace / "made").exists()


def test_host_view_hides_the_store(inside, home):
    assert inside(["--stage", "--filesystem", "host"], "ls -A ~/.local/state/pvisor; true") == ""


def test_nothing_of_the_view_is_left_on_the_host(inside, workspace, home, sandbox):
    before = tree.snapshot(workspace)
    inside(sandbox, "echo x >made; mkdir -p /tmp/a/b; ln -s x y")
    tree.assert_same(before, tree.snapshot(workspace))
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        assert " pvisor " not in f.read()  # the source that all its mounts name
    assert stat.S_ISDIR(os.stat(workspace).st_mode)


# ---- core dumps ----

def test_no_core_file_can_be_asked_for(inside, pvisor, workspace, sandbox):
    """The kernel writes core files on the host's side (core_pattern): the limit is 0, and stays."""
    asked = "ulimit -Hc; (ulimit -c unlimited) 2>/dev/null || echo refused"
    assert inside(sandbox, asked).split() == ["0", "refused"]
    assert pvisor("run", "-q", "--", "sh", "-c", "ulimit -Hc", cwd=workspace).out.strip() == \
        subprocess.run(["sh", "-c", "ulimit -Hc"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("where", ["workspace", "above"])
def test_a_mount_past_the_stage_is_not_called_staged(pvisor, make_workspace, temporary, where):
    """The workspace itself, to be written under another name: then nothing keeps its changes in the stage."""
    workspace = make_workspace(where=temporary / "above")
    source, inside = (workspace, "/x") if where == "workspace" else (workspace.parent, f"/x/{workspace.name}")
    pvisor("run", "--stage", "--mount", f"{source}:/x:write", "--", "sh", "-c", f"echo past > {inside}/past", cwd=workspace)
    assert (workspace / "past").read_text() == "past\n"
    bundle = json.loads(pvisor("status", "last", "--review", "--json", cwd=workspace).out)
    assert not bundle["safety"]["workspace_writes_staged"]
    refused = pvisor("run", "--safe", "--mount", f"{source}:/x:write", "--", "true", cwd=workspace, code=None)
    assert refused.code in (2, 5), refused


def test_a_part_that_lands_at_once_is_a_limit_of_the_staging(pvisor, workspace):
    (workspace / "out").mkdir()
    pvisor("run", "--stage", "--mount", f"{workspace}/out:write", "--", "sh", "-c", "echo 1 > out/new; echo 2 > staged",
           cwd=workspace)
    assert (workspace / "out/new").exists() and not (workspace / "staged").exists()
    bundle = json.loads(pvisor("status", "last", "--review", "--json", cwd=workspace).out)
    limits = [limit for o in bundle["executor_observations"] if o["control"] == "stage" for limit in o["limits"]]
    assert bundle["safety"]["workspace_writes_staged"] and any("out is the host's own" in limit for limit in limits)
