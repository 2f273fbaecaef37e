# SPDX-License-Identifier: Apache-2.0
"""The tests' own tools: a comparison that cannot see a difference would prove every promise."""
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lib import processes, tree


def copies(directory):
    """Two equal trees with one of everything."""
    left, right = directory / "left", directory / "right"
    tree.build(left, {"a": "content", "d/b": "more", "link@": "a", "empty": None})
    os.mkfifo(left / "fifo")
    os.link(left / "a", left / "d/hard")
    subprocess.run(["cp", "-a", left, right], check=True)
    return left, right


def test_equal_trees_have_no_differences(temporary):
    left, right = copies(temporary)
    assert tree.differences(tree.snapshot(left), tree.snapshot(right), dir_times=True) == []


CHANGES = {
    "content": lambda d: (d / "a").write_text("CONTENT"),
    "size": lambda d: (d / "a").write_text("content and more"),
    "mode": lambda d: (d / "a").chmod(0o4755),
    "mtime_ns": lambda d: os.utime(d / "d/b", ns=(1, 1)),
    "target": lambda d: ((d / "link").unlink(), (d / "link").symlink_to("b")),
    "kind": lambda d: ((d / "fifo").unlink(), (d / "fifo").mkdir()),
    "links": lambda d: ((d / "d/hard").unlink(), shutil.copy2(d / "a", d / "d/hard")),
    "xattrs": lambda d: os.setxattr(d / "d/b", "user.test", b"1"),
    "only left": lambda d: (d / "empty").rmdir(),
    "only right": lambda d: (d / "empty/new").touch(),
    "sparse": lambda d: os.truncate(d / "d/b", 1 << 20),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_difference_is_seen(temporary, what):
    left, right = copies(temporary)
    CHANGES[what](right)
    found = tree.differences(tree.snapshot(left), tree.snapshot(right))
    assert any(what in line for line in found), found


@pytest.mark.root
def test_an_owner_is_seen(temporary):
    left, right = copies(temporary)
    os.chown(right / "a", 12345, 54321)
    found = tree.differences(tree.snapshot(left), tree.snapshot(right))
    assert any("uid" in line for line in found) and any("gid" in line for line in found)


def test_closed_directories_are_compared_and_removed(temporary):
    left, right = copies(temporary)
    for each in (left, right):
        (each / "d/b").chmod(0)
        (each / "d").chmod(0)
    assert tree.differences(tree.snapshot(left), tree.snapshot(right)) == []
    assert (left / "d").stat().st_mode & 0o777 == 0
    tree.remove(left)
    assert not left.exists()


def test_what_still_writes_is_waited_for(temporary):
    """A directory that gets new files for a second, as from a run that was killed but is not dead yet."""
    top = temporary / "t"
    tree.build(top, {"a/b/c": "x"})
    writer = subprocess.Popen([sys.executable, "-c", "import os, sys, time\nend = time.monotonic() + 1\n"
                               "while time.monotonic() < end:\n os.makedirs(sys.argv[1], exist_ok=True)\n"
                               " open(sys.argv[1] + '/%d' % time.monotonic_ns(), 'w')", top / "a" / "b"],
                              stderr=subprocess.DEVNULL)
    tree.remove(top)
    writer.wait()
    tree.remove(top)
    assert not top.exists()


def test_a_terminal_takes_its_background_jobs_along(terminal, marker):
    shell = terminal(["bash", "--norc", "-i"])
    shell.line(f"sh -c 'trap \"\" HUP TERM; while :; do sleep 1; done' {marker} & echo star''ted")
    shell.expect("started")
    processes.wait_for(marker)
    shell.close()
    processes.assert_none(marker)


def test_names_are_bytes(temporary):
    name = b"sp ace\nnew\xff"
    tree.build(temporary / "t", {name: "x"})
    assert name in tree.snapshot(temporary / "t")


def test_run_returns_code_and_both_streams(run):
    assert run(["sh", "-c", "cat; echo err >&2; exit 3"], input="in") == (3, "in", "err\n")


def test_run_shows_a_clean_environment(run, home):
    out = run(["env"], env={"EXTRA": "1", "LANG": None}).out
    assert f"HOME={home}" in out and "EXTRA=1" in out
    assert "PVISOR_HOME" not in out and "XDG_" not in out and "LANG=" not in out


def test_run_ends_what_takes_too_long(run, marker):
    with pytest.raises(AssertionError, match="longer than"):
        run(["sh", "-c", f"sleep 100; : {marker}"], timeout=0.3)
    processes.assert_none(marker, within=2)


def test_run_on_a_terminal(run):
    assert "yes" in run(["sh", "-c", "test -t 0 && test -t 1 && echo yes"], pty=True).out


def test_terminal_keys_resize_and_exit(terminal):
    shell = terminal(["bash", "--norc", "-i"], env={"PS1": "ready> "})
    shell.expect("ready> ")
    shell.line("stty size")
    shell.expect("24 80")
    shell.resize(50, 132)
    shell.line("stty size")
    shell.expect("50 132")
    shell.expect("ready> ")
    shell.line("exec sh -c 'trap \"exit 7\" INT; echo be\"\"gun; while :; do sleep 0.1; done'")
    shell.expect("begun")
    shell.key("c")
    assert shell.wait() == 7


def test_terminal_hang_up_reaches_the_program(terminal, marker):
    program = terminal(["sh", "-c", f"echo up; sleep 100; : {marker}"])
    program.expect("up")
    program.hang_up()
    processes.assert_none(marker, within=5)


def test_a_living_process_is_found(marker):
    with subprocess.Popen(["sleep", "100"], env={"MARK": marker}) as child:
        assert child.pid in processes.wait_for(marker)
        with pytest.raises(AssertionError, match="still alive"):
            processes.assert_none(marker)
        child.kill()
    processes.assert_none(marker)


def test_each_filesystem_is_what_it_says(filesystem):
    kind = subprocess.run(["stat", "-f", "-c", "%T", filesystem], capture_output=True, text=True).stdout.strip()
    assert kind in ("ext2/ext3", "xfs", "btrfs", "tmpfs")
    (filesystem / "file").write_text("x")


@pytest.mark.root
def test_a_small_filesystem_gets_full(mount_filesystem):
    place = mount_filesystem("ext4", 8)
    with pytest.raises(OSError, match="No space"):
        (place / "big").write_bytes(b"x" * (16 << 20))


def test_workspace_is_a_clean_repository_on_a_real_filesystem(workspace, run):
    assert run(["git", "status", "--porcelain"], cwd=workspace).out == ""
    assert run(["stat", "-f", "-c", "%T", workspace]).out.strip() != "tmpfs"


OURS = ("PV_MUST_WORK", "PV_TEST_FAILURES")


def inner_suite(directory, text, **environment):
    """Runs a one-file suite under this conftest and returns what pytest said."""
    shutil.copy(Path(__file__).parent / "conftest.py", directory)
    (directory / "lib").symlink_to(Path(__file__).parent / "lib")
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    timeout(s): x\n    root: x\n    user: x\n")
    (directory / "test_inner.py").write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", directory], text=True,
                          env={**{k: v for k, v in os.environ.items() if k not in OURS}, **environment},
                          capture_output=True).stdout


def test_a_hanging_test_fails_and_the_next_one_runs(temporary):
    out = inner_suite(temporary, """
        import pytest, time
        @pytest.mark.timeout(0.3)
        def test_hangs(): time.sleep(60)
        def test_next(): pass
        """)
    assert "took longer than" in out and "1 failed, 1 passed" in out


def test_the_end_of_each_failure_is_noted_for_the_end_of_the_log(temporary):
    noted = temporary / "noted"
    noted.touch()
    inner_suite(temporary, """
        import pytest
        @pytest.fixture
        def broken():
            yield
            raise OSError("in the tear-down")
        def test_passes(): pass
        def test_fails():
            for i in range(100):
                print(i)
            assert "this" == "that"
        def test_breaks(broken): pass
        """, PV_TEST_FAILURES=str(noted))
    text = noted.read_text()
    assert text.count("FAILED ") == 2 and len(text.splitlines()) < 40
    assert "test_fails (" in text and "'this' == 'that'" in text and "test_passes" not in text
    assert "test_breaks (" in text and ", teardown)" in text and "in the tear-down" in text


@pytest.mark.parametrize("must_work, closing", [("", "1 skipped"), ("1", "1 failed")])
def test_must_work_turns_a_skip_into_a_failure(temporary, must_work, closing):
    out = inner_suite(temporary, """
        from conftest import pv_skip
        def test_skips(): pv_skip("no such thing")
        """, PV_MUST_WORK=must_work)
    assert closing in out, out


def test_only_this_half_runs(temporary, is_root):
    out = inner_suite(temporary, """
        import os, pytest
        @pytest.mark.root
        def test_root(): assert os.geteuid() == 0
        @pytest.mark.user
        def test_user(): assert os.geteuid() != 0
        """)
    assert "1 passed, 1 deselected" in out, out


def test_sockets_and_devices_have_kinds(temporary):
    with socket.socket(socket.AF_UNIX) as s:
        directory = os.open(temporary, os.O_PATH)
        s.bind(f"/proc/self/fd/{directory}/sock")
        os.close(directory)
        assert tree.snapshot(temporary)[b"sock"].kind == "socket"
