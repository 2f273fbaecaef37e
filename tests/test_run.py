# SPDX-License-Identifier: Apache-2.0
"""`pvisor run` as a program: what it returns, what it prints and where, what it leaves behind."""
import json
import os
import signal
import time
from pathlib import Path

import pytest

from lib import parts, processes

MODES = {"ambient": [], "staged": ["--stage"], "safe": ["--safe"]}


@pytest.fixture(params=MODES)
def mode(request):
    """The options of plain, staged and safe runs in turn."""
    return MODES[request.param]


def store(home):
    return home / ".local/state/pvisor"


def jobs(home):
    return sorted(p.name for p in (store(home) / "jobs").glob("run-*"))


def job_file(home, job, name):
    return json.loads((store(home) / "jobs" / job / name).read_text())


# ---- what it is ----

def test_what_every_run_loads_is_linked_whole(pv, run, home):
    """No loader and no library, which would cost each run more than its namespaces do."""
    for program in (Path(pv), parts.program(pv, "pvisor-decide")):
        content = program.read_bytes()
        if b"__asan_init" in content:
            pytest.skip("sanitizers need the loader")
        assert "statically linked" in run(["ldd", program], cwd=home).out
        assert content[16:18] == b"\x03\0"  # ET_DYN: its addresses are random
        assert b"getaddrinfo" not in content and b"getpwuid" not in content


# ---- exit codes ----

def test_exit_code_is_the_commands(pvisor, workspace, mode):
    for code in (0, 1, 7, 125, 255):
        pvisor("run", *mode, "--", "sh", "-c", f"exit {code}", cwd=workspace, code=code)


def test_signal_is_128_plus_its_number(pvisor, workspace, mode):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        pvisor("run", *mode, "--", "sh", "-c", f"kill -{number.value} $$", cwd=workspace, code=128 + number)


def test_command_not_found_is_127(pvisor, workspace, mode):
    result = pvisor("run", *mode, "--", "no-such-command-here", cwd=workspace, code=127)
    assert "no-such-command-here" in result.err and result.out == ""


def test_command_not_executable_is_126(pvisor, workspace, mode):
    pvisor("run", *mode, "--", "./README.md", cwd=workspace, code=126)
    pvisor("run", *mode, "--", "./src", cwd=workspace, code=126)


def test_unusable_store_is_125(pvisor, workspace, temporary, mode):
    (temporary / "file").write_text("")
    result = pvisor("run", *mode, "--", "true", cwd=workspace, code=125, env={"PVISOR_HOME": str(temporary / "file")})
    assert result.err.startswith("pvisor: ") or "\npvisor: " in result.err
    assert "hint: " in result.err


def test_spawn_and_bare_options_are_run(pvisor, workspace):
    assert pvisor("spawn", "--stage", "--", "echo", "one", cwd=workspace).out == "one\n"
    assert pvisor("--stage", "--", "echo", "two", cwd=workspace).out == "two\n"


# ---- streams ----

def test_output_is_the_commands_alone(pvisor, workspace, mode):
    result = pvisor("run", *mode, "--", "sh", "-c", "echo out; echo err >&2; echo new >file", cwd=workspace)
    assert result.out == "out\n"
    lines = result.err.splitlines()
    assert "err" in lines
    assert all(line == "err" or line.startswith("pvisor: ") for line in lines)


def test_quiet_says_nothing(pvisor, workspace, mode):
    assert pvisor("run", "-q", *mode, "--", "touch", "file", cwd=workspace).err == ""


def test_standard_input_reaches_the_command(pvisor, workspace, mode):
    data = "line\n" * 20000
    assert pvisor("run", *mode, "--", "cat", cwd=workspace, input=data).out == data


def test_closed_standard_streams_do_no_harm(pv, run, workspace, home, mode):
    script = f'"{pv}" run {" ".join(mode)} -- touch file <&- >&- 2>&-'
    assert run(["sh", "-c", script], cwd=workspace).code == 0
    assert len(jobs(home)) == 1


def test_stderr_that_nobody_reads_does_not_lose_the_record(pv, run, workspace, home):
    script = f'"{pv}" run --stage -- touch file 2>&1 >/dev/null | true; exit 0'
    run(["bash", "-c", script], cwd=workspace)
    deadline = time.monotonic() + 10
    while not list((store(home) / "jobs").glob("run-*/state.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job_file(home, jobs(home)[0], "state.json")["state"] == "ended"


def test_capture_goes_to_the_record(pvisor, workspace, home, mode):
    result = pvisor("run", *mode, "--stdio", "capture", "--", "sh", "-c", "echo out; echo err >&2", cwd=workspace)
    assert result.out == ""
    directory = store(home) / "jobs" / jobs(home)[0]
    assert (directory / "stdout.log").read_text() == "out\n"
    assert (directory / "stderr.log").read_text() == "err\n"
    assert os.stat(directory / "stdout.log").st_mode & 0o777 == 0o600


def test_plain_run_says_that_it_is_ambient(pvisor, workspace):
    assert "no boundary" in pvisor("run", "--", "true", cwd=workspace).err
    assert "no boundary" not in pvisor("run", "--stage", "--", "true", cwd=workspace).err


# ---- limits ----

def test_timeout_is_124_and_ends_everything(pvisor, workspace, marker, mode):
    began = time.monotonic()
    pvisor("run", *mode, "--timeout", "500ms", "--", "sh", "-c", f"sleep 600 & exec sh -c 'sleep 600; : {marker}'",
           cwd=workspace, code=124)
    assert time.monotonic() - began < 10
    processes.assert_none(marker, within=2)


def test_timeout_kills_what_ignores_term(pvisor, workspace, marker, mode):
    pvisor("run", *mode, "--timeout", "300ms", "--", "sh", "-c",
           f"trap '' TERM; while :; do sleep 1; done; : {marker}", cwd=workspace, code=124)
    processes.assert_none(marker, within=2)


def test_time_enough_is_no_timeout(pvisor, workspace):
    pvisor("run", "--timeout", "1m", "--", "true", cwd=workspace)


# ---- the record ----

def test_every_run_leaves_a_record(pvisor, workspace, home, mode):
    pvisor("run", *mode, "--name", "a-name", "--", "sh", "-c", "exit 3", cwd=workspace, code=3)
    (job,) = jobs(home)
    bundle = job_file(home, job, "bundle.json")
    assert bundle["run"]["id"] == job
    state = job_file(home, job, "state.json")
    assert state["state"] == "ended" and state["exit_code"] == 3
    assert job_file(home, job, "request.json")["name"] == "a-name"
    assert not (store(home) / "jobs" / job / "scratch").exists()
    assert os.stat(store(home)).st_mode & 0o777 == 0o700


def test_failed_start_is_recorded(pvisor, workspace, home):
    pvisor("run", "--stage", "--", "no-such-command-here", cwd=workspace, code=127)
    (job,) = jobs(home)
    assert job_file(home, job, "state.json")["state"] == "failed"


def test_record_holds_no_values_of_the_environment(pvisor, workspace, home, mode):
    secret = "value-5c6f4a1e"
    pvisor("run", *mode, "--pass-env", "API_TOKEN", "--", "true", cwd=workspace, env={"API_TOKEN": secret})
    (job,) = jobs(home)
    for path in (store(home) / "jobs" / job).rglob("*"):
        if path.is_file():
            assert secret not in path.read_text(errors="replace"), path


def test_json_summary(pvisor, workspace, temporary, mode):
    result = pvisor("run", "-q", "--json", *mode, "--", "sh", "-c", "echo out; echo x >new; exit 4", cwd=workspace,
                    code=4)
    assert result.out == "out\n"
    summary = json.loads(result.err)
    assert summary["exit_code"] == 4 and summary["end"] == "exited" and summary["failure"] is None
    assert summary["workspace"] == str(workspace)
    staged = "--stage" in mode or "--safe" in mode
    assert summary["changes"] == ({"paths": 1, "git": False} if staged else None)
    pvisor("run", f"--json={temporary}/summary", *mode, "--", "true", cwd=workspace)
    assert json.loads((temporary / "summary").read_text())["exit_code"] == 0


def test_json_summary_to_a_descriptor_that_the_command_does_not_get(pv, run, workspace, temporary, mode):
    options = " ".join(mode)
    script = f'exec 7>"{temporary}/summary"; "{pv}" run --json=7 {options} -- sh -c "ls /proc/self/fd"'
    result = run(["bash", "-c", script], cwd=workspace)
    assert result.code == 0 and "7" not in result.out.split()
    assert json.loads((temporary / "summary").read_text())["exit_code"] == 0


def test_json_descriptor_must_be_open(pvisor, workspace, home):
    pvisor("run", "--json=77", "--", "true", cwd=workspace, code=2)
    assert not store(home).exists()


def test_closing_line_counts_changes(pvisor, workspace):
    result = pvisor("run", "--stage", "--", "sh", "-c", "echo 1 >a; echo 2 >b", cwd=workspace)
    assert "2 paths staged" in result.err and "pvisor review" in result.err
    assert "no changes" in pvisor("run", "--stage", "--", "true", cwd=workspace).err


# ---- stages ----

def test_nothing_lands(pvisor, workspace):
    before = (workspace / "README.md").read_bytes()
    pvisor("run", "--stage", "--", "sh", "-c", "echo changed >README.md; echo new >new; cat README.md", cwd=workspace)
    assert (workspace / "README.md").read_bytes() == before
    assert not (workspace / "new").exists()


def test_ambient_run_writes_directly(pvisor, workspace):
    pvisor("run", "--", "sh", "-c", "echo new >new", cwd=workspace)
    assert (workspace / "new").read_text() == "new\n"


def test_sandbox_without_stage_writes_the_workspace_directly(pvisor, workspace):
    pvisor("run", "--filesystem", "sandbox", "--", "sh", "-c", "echo new >new", cwd=workspace)
    assert (workspace / "new").read_text() == "new\n"


def test_continue_goes_on_with_the_stage(pvisor, workspace, home):
    pvisor("run", "--stage", "--name", "first", "--", "sh", "-c", "echo 1 >a", cwd=workspace)
    result = pvisor("run", "--continue", "last", "--", "sh", "-c", "cat a; echo 2 >b", cwd=workspace)
    assert result.out == "1\n" and "2 paths staged" in result.err
    assert pvisor("run", "--continue", "first", "--", "cat", "b", cwd=workspace).out == "2\n"
    assert not (workspace / "a").exists()
    assert len(jobs(home)) == 3


def test_continue_without_a_job(pvisor, workspace):
    pvisor("run", "--continue", "last", "--", "true", cwd=workspace, code=4)
    pvisor("run", "--", "true", cwd=workspace)
    assert "not staged" in pvisor("run", "--continue", "last", "--", "true", cwd=workspace, code=2).err


def test_stage_directory_is_made_and_continued(pvisor, workspace, temporary):
    place = temporary / "a stage"
    pvisor("run", "--stage", place, "--", "sh", "-c", "echo 1 >a", cwd=workspace)
    assert (place / "stage.json").exists()
    assert pvisor("run", f"--stage={place}", "cat", "a", cwd=workspace).out == "1\n"


def test_stage_directory_of_another_workspace_is_refused(pvisor, workspace, make_workspace, temporary):
    other = make_workspace(name="other")
    pvisor("run", "--stage", temporary / "stage", "--", "true", cwd=workspace)
    result = pvisor("run", "--stage", temporary / "stage", "--", "true", cwd=other, code=2)
    assert str(workspace) in result.err


def test_stage_in_use_refuses_a_second_run(pv, pvisor, terminal, workspace, temporary, marker):
    first = terminal([pv, "run", "--stage", temporary / "stage", "--", "sh", "-c", f"echo ready; read line; : {marker}"],
                     cwd=workspace)
    first.expect("ready")
    pvisor("run", "--stage", temporary / "stage", "--", "true", cwd=workspace, code=125)
    first.key("c")
    assert first.wait() == -signal.SIGINT  # of the key, as the command did


def test_many_jobs_on_one_workspace(pv, workspace, environment, home):
    import subprocess
    started = [subprocess.Popen([pv, "run", "-q", "--stage", "--", "sh", "-c", f"echo {i} >mine; sleep 0.3; cat mine"],
                                cwd=workspace, env=environment, stdout=subprocess.PIPE, text=True) for i in range(8)]
    assert [p.communicate()[0].strip() for p in started] == [str(i) for i in range(8)]
    assert len(jobs(home)) == 8


# ---- the environment ----

def test_sandboxed_environment_is_clean(pvisor, workspace):
    result = pvisor("run", "--safe", "--pass-env", "WANTED", "--", "env", cwd=workspace,
                    env={"SECRET": "x", "WANTED": "yes", "SSH_AUTH_SOCK": "/tmp/agent", "LC_TIME": "C"})
    names = {line.split("=")[0] for line in result.out.splitlines()}
    assert "WANTED" in names and "LC_TIME" in names and "HOME" in names
    assert not names & {"SECRET", "SSH_AUTH_SOCK"}


def test_ambient_environment_is_kept(pvisor, workspace):
    assert pvisor("run", "--", "printenv", "SECRET", cwd=workspace, env={"SECRET": "x"}).out == "x\n"


def test_unset_variable_is_said(pvisor, workspace):
    assert "NOT_SET" in pvisor("run", "--safe", "--pass-env", "NOT_SET", "--", "true", cwd=workspace).err


def test_no_descriptor_is_inherited(pv, run, workspace, mode):
    script = f'exec 9<README.md; exec "{pv}" run -q {" ".join(mode)} -- sh -c "ls /proc/self/fd"'
    result = run(["bash", "-c", script], cwd=workspace)
    assert result.code == 0 and "9" not in result.out.split()


def test_git_signing_is_off_and_the_workspace_is_safe_inside(pvisor, workspace, home):
    with open(home / ".gitconfig", "a") as f:
        f.write("[commit]\n\tgpgSign = true\n[user]\n\tsigningKey = NOBODY\n")
    pvisor("run", "--safe", "--", "git", "commit", "-q", "--allow-empty", "-m", "inside", cwd=workspace)
