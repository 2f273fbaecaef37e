# SPDX-License-Identifier: Apache-2.0
"""inspect: a look into the result, contained, with nothing kept."""
import os
import socket
import subprocess

import pytest

from lib import jobs, tree


@pytest.fixture
def staged(pvisor, workspace):
    pvisor("run", "--safe", "--", "sh", "-c", "echo new > new.txt; rm README.md; echo '#!/bin/sh' > tool; chmod +x tool",
           cwd=workspace)
    return workspace


def test_sees_the_result(pvisor, staged):
    assert pvisor("inspect", "--", "cat", "new.txt", cwd=staged).out == "new\n"
    pvisor("inspect", "--", "test", "-e", "README.md", cwd=staged, code=1)
    assert not (staged / "new.txt").exists()


def test_git_status_in_there(pvisor, staged):
    out = pvisor("inspect", "--", "git", "status", "--porcelain", cwd=staged).out
    assert "?? new.txt" in out and " D README.md" in out


def test_starts_where_the_person_stands(pvisor, staged):
    assert pvisor("inspect", "--", "pwd", cwd=staged / "src").out == f"{staged}/src\n"


def test_keeps_nothing(pvisor, staged, environment):
    (job,) = jobs.job_dirs(environment)
    before = tree.snapshot(job / "stage")
    pvisor("inspect", "--", "sh", "-c", "echo more > more.txt; rm new.txt; echo x >> src/main.c", cwd=staged)
    tree.assert_same(before, tree.snapshot(job / "stage"))
    assert pvisor("inspect", "--", "cat", "new.txt", cwd=staged).out == "new\n"
    assert not (staged / "more.txt").exists()
    assert not list((job / "stage").glob("look-*"))


@pytest.mark.parametrize("command,code", [(["true"], 0), (["false"], 1), (["sh", "-c", "exit 42"], 42),
                                          (["sh", "-c", "kill -9 $$"], 137), (["/no/such"], 127), (["./src"], 126)])
def test_exit_code_is_the_command_s(pvisor, staged, command, code):
    pvisor("inspect", "--", *command, cwd=staged, code=code)


@pytest.mark.parametrize("how", [["--safe"], ["--stage"], ["--stage", "--filesystem", "host"]])
def test_is_contained_whatever_the_job_was(pvisor, workspace, temporary, home, how):
    """Even a job that ran with the host's files and network is looked into without them."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("secret")
    outside = temporary / "outside.txt"
    outside.write_text("outside")
    pvisor("run", *how, "--", "true", cwd=workspace)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    pvisor("inspect", "--", "cat", home / ".ssh/id_ed25519", cwd=workspace, code=1)
    pvisor("inspect", "--", "sh", "-c", f"echo x >> {outside}", cwd=workspace, code=None)
    assert outside.read_text() == "outside"
    pvisor("inspect", "--", "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}", cwd=workspace, code=1)
    listener.close()


def test_the_same_is_reachable_without_inspect(workspace, temporary, home, run):
    """The twin: the very acts succeed when nothing contains them."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text("secret")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    assert run(["cat", home / ".ssh/id_ed25519"]).out == "secret"
    assert run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"]).code == 0
    listener.close()


def test_write_mounts_are_read_only_in_there(pvisor, workspace, temporary):
    share = temporary / "share"
    share.mkdir()
    pvisor("run", "--stage", "--mount", f"{share}:write", "--", "sh", "-c", f"echo by-job > {share}/file", cwd=workspace)
    assert pvisor("inspect", "--", "cat", share / "file", cwd=workspace).out == "by-job\n"
    pvisor("inspect", "--", "sh", "-c", f"echo by-look > {share}/file", cwd=workspace, code=None)
    assert (share / "file").read_text() == "by-job\n"


def test_a_shell_on_a_terminal(terminal, pv, staged):
    with terminal([pv, "inspect", "last", "--", "bash", "--norc"], cwd=staged) as t:
        t.line("stty -echo; PS1='> '; tty; ls")
        t.expect(r"new\.txt")
        t.line("exit 3")
        assert t.wait() == 3


def test_pipes(pvisor, staged):
    assert pvisor("inspect", "--", "tr", "a-z", "A-Z", cwd=staged, input="abc").out == "ABC"


def test_without_a_command_it_is_the_shell(pvisor, staged):
    assert pvisor("inspect", cwd=staged, input="echo from-the-shell\n").out == "from-the-shell\n"


def test_unstaged_job(pvisor, workspace):
    pvisor("run", "--", "true", cwd=workspace)
    assert "not staged" in pvisor("inspect", "--", "true", cwd=workspace, code=1).err


def test_dropped_job(pvisor, staged):
    pvisor("drop", cwd=staged)
    pvisor("inspect", "--", "true", cwd=staged, code=1)


def test_leftovers_of_a_killed_look_are_removed(pvisor, staged, environment):
    (job,) = jobs.job_dirs(environment)
    left = job / "stage" / "look-999999999-0"
    (left / "upper").mkdir(parents=True)
    pvisor("inspect", "--", "true", cwd=staged)
    assert not left.exists()



@pytest.mark.parametrize("how", ["never applied", "undone", "part undone", "part applied", "part dropped", "continued"])
def test_what_was_deleted_is_no_name_where_the_host_has_no_such_directory_any_more(pvisor, plain, how):
    """Overlayfs lists the whiteouts of a directory that merges with nothing, unless that is marked as merged."""
    (plain / "src/other.c").write_text("\n")
    script = "rm src/main.c src/util/list.c; echo 1 >> src/other.c; mkdir src/new; echo 1 | tee src/new/a src/new/b"
    pvisor("run", "--stage", "--", "sh", "-c", script, cwd=plain)
    if how == "undone":
        pvisor("apply", "--all", cwd=plain)
        pvisor("undo", cwd=plain)
    elif how == "part undone":
        pvisor("apply", "--path", "src", cwd=plain)
        pvisor("undo", cwd=plain)
        pvisor("apply", "--path", "src/other.c", cwd=plain)
    elif how == "part applied":
        pvisor("apply", "--path", "src/new/a", cwd=plain)
        pvisor("run", "--continue", "last", "--", "rm", "src/new/a", cwd=plain)
    elif how == "part dropped":
        pvisor("drop", "--path", "src/other.c", cwd=plain)
    elif how == "continued":
        pvisor("checkpoint", cwd=plain)
        pvisor("run", "--continue", "last", "--", "rm", "src/new/a", "src/other.c", cwd=plain)
    subprocess.run("rm -r src; echo file > src", shell=True, cwd=plain, check=True)
    look = "ls -lR . && find . -type f -exec cat {} + > /dev/null && rm -rf src && ! test -e src"
    for command in (["inspect", "last"], ["run", "-q", "--continue", "last"]):
        result = pvisor(*command, "--", "sh", "-c", look, cwd=plain)
        assert not result.err, result


def test_a_dropped_job_is_not_continued(pvisor, staged):
    pvisor("drop", cwd=staged)
    result = pvisor("run", "--continue", "last", "--", "true", cwd=staged, code=125)
    assert "was dropped" in result.err, result
    pvisor("run", "--stage", "--", "true", cwd=staged)
