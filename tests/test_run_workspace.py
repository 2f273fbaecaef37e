# SPDX-License-Identifier: Apache-2.0
"""Where a command works: every kind of workspace, and its own absolute path in each."""
import json
import os
import pwd
import subprocess

import pytest


@pytest.fixture
def git(environment):
    def call(*args, cwd):
        subprocess.run(["git", "-c", "protocol.file.allow=always", *args], cwd=cwd, env=environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return call


@pytest.fixture
def staged(pvisor):
    """staged(script, cwd=...) -> the output of a shell script in a staged run."""

    def call(script, **how):
        return pvisor("run", "-q", "--stage", "--", "sh", "-c", script, **how).out

    return call


def test_starts_where_the_person_stood(pvisor, workspace):
    result = pvisor("run", "--stage", "--", "pwd", cwd=workspace / "src/util")
    assert result.out == f"{workspace}/src/util\n"
    assert f"workspace: {workspace} (git top level)" in result.err


def test_top_level_is_not_mentioned_when_one_stands_there(pvisor, workspace):
    assert "workspace:" not in pvisor("run", "--stage", "--", "true", cwd=workspace).err


def test_plain_directory(staged, plain):
    assert staged("echo x >a; cat a; pwd", cwd=plain) == f"x\n{plain}\n"
    assert not (plain / "a").exists()


def test_named_workspace(pvisor, workspace, plain):
    result = pvisor("run", "-q", "--stage", "--workspace", plain, "--", "pwd", cwd=workspace)
    assert result.out == f"{plain}\n"
    inside = pvisor("run", "-q", "--stage", "--workspace", workspace / "src", "--", "pwd", cwd=workspace / "src/util")
    assert inside.out == f"{workspace}/src/util\n"


def test_empty_directory(staged, temporary):
    (temporary / "empty").mkdir()
    assert staged("echo x >a; ls", cwd=temporary / "empty") == "a\n"


@pytest.mark.parametrize("name", ["with space", "new\nline", 'quote"\'', "comma,colon:backslash\\", "-dash", "ünïcode",
                                  "\udcff\udcfe bytes"])
def test_odd_names(staged, make_workspace, name):
    place = make_workspace(name=name)
    assert staged("echo x >new && cat new && git status --porcelain", cwd=place) == "x\n?? new\n"
    assert not (place / "new").exists()


def test_symlinked_current_directory(pv, run, workspace, temporary):
    (temporary / "link").symlink_to(workspace)
    for options in ("", "--stage", "--safe"):
        result = run(["bash", "-c", f'cd link/src && "{pv}" run -q {options} -- sh -c "ls; /bin/pwd"'], cwd=temporary)
        assert result.code == 0 and result.out.split() == ["main.c", "util", f"{workspace}/src"]
    logical = run(["bash", "-c", f'cd link/src && "{pv}" run -q -- sh -c pwd'], cwd=temporary)
    assert logical.out == f"{temporary}/link/src\n"


def test_worktree_brings_its_git_directory(staged, workspace, temporary, git):
    git("worktree", "add", "-q", "../other", "-b", "other", cwd=workspace)
    place = temporary / "other"
    out = staged("echo x >new && git add new && git commit -q -m staged && git log --oneline | wc -l", cwd=place)
    assert out.strip() == "2"
    refs = subprocess.run(["git", "log", "--oneline", "other"], cwd=workspace, capture_output=True, text=True).stdout
    assert len(refs.splitlines()) == 1


def test_submodule_brings_its_git_directory(staged, make_workspace, git, environment):
    library = make_workspace(name="library")
    outer = make_workspace(name="outer")
    git("submodule", "add", "-q", str(library), "sub", cwd=outer)
    git("commit", "-q", "-m", "sub", cwd=outer)
    out = staged("pwd; echo x >new && git add new && git commit -q -m staged && git log --oneline | wc -l",
                 cwd=outer / "sub" / "src")
    assert out.split() == [f"{outer}/sub/src", "2"]
    count = subprocess.run(["git", "log", "--oneline"], cwd=outer / "sub", capture_output=True, text=True).stdout
    assert len(count.splitlines()) == 1
    assert "sub" in staged("git submodule status", cwd=outer)


def test_forged_git_file_opens_nothing(pvisor, make_workspace):
    private = make_workspace(name="private")
    place = make_workspace(name="place", git=False)
    (place / ".git").write_text(f"gitdir: {private}/.git\n")
    result = pvisor("run", "--stage", "--", "sh", "-c", f"ls {private}/.git || true", cwd=place)
    assert result.out == "" and "is not shown" in result.err
    # without the sandbox it is there
    assert "HEAD" in pvisor("run", "--", "ls", f"{private}/.git", cwd=place).out


def test_bare_repository(staged, make_workspace, temporary, git):
    git("clone", "-q", "--bare", str(make_workspace()), "bare.git", cwd=temporary)
    assert staged("git rev-parse --is-bare-repository", cwd=temporary / "bare.git").strip() == "true"


def test_inside_dot_git(pvisor, workspace):
    result = pvisor("run", "--stage", "--", "pwd", cwd=workspace / ".git")
    assert f"workspace: {workspace}" in result.err and result.out == f"{workspace}/.git\n"


def test_read_only_workspace_is_a_clear_error(pvisor, make_workspace, is_root):
    place = make_workspace(git=False)
    if is_root:
        place = "/proc/self"
        pvisor("run", "--stage", "--", "true", cwd=place, code=2)
        return
    os.chmod(place, 0o555)
    result = pvisor("run", "--stage", "--", "true", cwd=place, code=125)
    os.chmod(place, 0o755)
    assert "cannot be written" in result.err and "hint: " in result.err


def test_root_directory_is_refused(pvisor, temporary):
    assert "whole machine" in pvisor("run", "--stage", "--", "true", cwd="/", code=2).err
    pvisor("run", "-q", "--", "true", cwd="/")


def test_removed_current_directory(pv, run, temporary):
    script = f'mkdir gone && cd gone && rmdir ../gone && "{pv}" run -- true'
    result = run(["bash", "-c", script], cwd=temporary)
    assert result.code == 125 and "current directory" in result.err


# ---- HOME ----

def test_home_as_workspace(pvisor, home, temporary):
    (home / "notes").write_text("mine\n")
    refused = pvisor("run", "--stage", "--", "true", cwd=home, code=5)
    assert "hint: --stage DIR" in refused.err
    assert not (home / ".local").exists()

    def staged(script):
        return pvisor("run", "-q", "--stage", temporary / "stage", "--", "sh", "-c", script, cwd=home).out

    assert staged("cat notes; echo x >new; ls").split() == ["mine", "new", "notes"]
    assert not (home / "new").exists()
    # the store lies in that workspace; it must not be in the view
    assert staged("ls .local/state/pvisor 2>/dev/null | wc -l").strip() == "0"


def test_stage_inside_the_workspace_is_refused(pvisor, workspace):
    assert "outside of" in pvisor("run", "--stage", "./stage", "--", "true", cwd=workspace, code=5).err
    assert not (workspace / "stage").exists()


def test_safe_in_home_is_refused(pvisor, home):
    result = pvisor("run", "--safe", "--", "true", cwd=home, code=5)
    assert "sensitive paths" in result.err and "hint: " in result.err


def test_git_repository_of_home_does_not_swallow_projects(pvisor, home, git):
    git("init", "-q", cwd=home)
    (home / "project").mkdir()
    result = pvisor("run", "--stage", "--", "pwd", cwd=home / "project")
    assert f"workspace: {home}/project" in result.err


def test_home_that_is_missing(staged, pvisor, workspace, temporary):
    env = {"HOME": str(temporary / "missing"), "PVISOR_HOME": str(temporary / "store")}
    assert pvisor("run", "-q", "--safe", "--", "sh", "-c", "echo x >~/a; cat ~/a", cwd=workspace, env=env).out == "x\n"
    assert not (temporary / "missing").exists()


def test_home_that_is_not_set_is_that_of_the_passwd_file(pvisor, workspace, environment, temporary):
    del environment["HOME"]
    environment["PVISOR_HOME"] = str(temporary / "store")
    home = pwd.getpwuid(os.geteuid()).pw_dir
    plan = json.loads(pvisor("run", "--safe", "--dry-run", "--json", "--", "true", cwd=workspace).out)
    assert plan["home"] == os.path.realpath(home)


@pytest.mark.user
def test_read_only_home_is_a_clear_error(pvisor, workspace, home):
    os.chmod(home, 0o555)
    result = pvisor("run", "--stage", "--", "true", cwd=workspace, code=125)
    os.chmod(home, 0o755)
    assert "job store" in result.err and "hint: " in result.err


def test_store_is_not_in_the_view(pvisor, workspace, home):
    script = f"ls -a {home}/.local/state/pvisor 2>&1 | grep -c run-"
    assert pvisor("run", "-q", "--safe", "--", "sh", "-c", script, cwd=workspace, code=1).out == "0\n"
    assert pvisor("run", "-q", "--", "sh", "-c", f"ls {home}/.local/state/pvisor/jobs | grep -c run-",
                  cwd=workspace).out.strip() != "0"


def test_working_in_the_store_is_refused(pvisor, workspace, home):
    pvisor("run", "-q", "--stage", "--", "touch", "a", cwd=workspace)
    jobs = home / ".local/state/pvisor/jobs"
    assert "pVisor's own" in pvisor("run", "--stage", "--", "true", cwd=jobs, code=2).err


# ---- file systems ----

def test_on_each_filesystem(pvisor, make_workspace, filesystem, home):
    place = make_workspace(where=filesystem)
    result = pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo x >>README.md; rm data/blob.bin; git status -s",
                    cwd=place)
    assert result.out == " M README.md\n D data/blob.bin\n"
    assert (place / "data/blob.bin").exists()


def test_large_workspace(staged, make_workspace):
    place = make_workspace(files={}, git=False)
    for d in range(100):
        (place / f"d{d}").mkdir()
        for f in range(100):
            (place / f"d{d}" / f"f{f}").touch()
    assert staged("find . -type f | wc -l", cwd=place).strip() == "10000"


# ---- grants ----

def test_mounts(pvisor, workspace, plain, temporary):
    out = temporary / "out"
    out.mkdir()
    script = f"cat {plain}/README.md | wc -l; echo x >{plain}/new 2>/dev/null || echo refused; echo y >{out}/new"
    result = pvisor("run", "-q", "--stage", "--mount", f"{plain}:read", "--mount", f"{out}:write", "--", "sh", "-c",
                    script, cwd=workspace)
    assert result.out.split() == ["3", "refused"]
    assert (out / "new").read_text() == "y\n"
    # not granted: not there
    pvisor("run", "-q", "--stage", "--", "ls", plain, cwd=workspace, code=2)


def test_staged_mount(pvisor, workspace, plain):
    pvisor("run", "-q", "--stage", "--mount", f"{plain}:stage", "--", "sh", "-c", f"echo x >{plain}/new; cat {plain}/new",
           cwd=workspace)
    assert not (plain / "new").exists()


def test_mount_at_another_place(pvisor, workspace, plain):
    assert "main.c" in pvisor("run", "-q", "--stage", "--mount", f"{plain}:/data:read", "--", "ls", "/data/src",
                              cwd=workspace).out


def test_request_records_the_workspace(pvisor, workspace, home):
    pvisor("run", "-q", "--stage", "--", "true", cwd=workspace / "src")
    (request,) = (home / ".local/state/pvisor/jobs").glob("run-*/request.json")
    assert json.loads(request.read_text())["workspace"] == str(workspace)
