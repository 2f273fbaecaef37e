# SPDX-License-Identifier: Apache-2.0
"""`run --detach`, `attach`, `logs -f`, `list --watch`: a job that nobody waits for, and windows on it."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from lib import jobs, processes

MODES = {"ambient": [], "staged": ["--stage"], "safe": ["--safe"]}
LEAVE = "\x10\x11"  # Ctrl-P Ctrl-Q
ID = r"run-\d{8}-\d{6}-[0-9a-f]{4}"


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


@pytest.fixture
def detached(pv, terminal, pvisor, workspace):
    """detached(*args of run) -> id; started from a terminal that is closed again."""
    started = []

    def start(*args):
        t = terminal([pv, "run", "-q", "--detach", *args], cwd=workspace, rows=24, columns=80)
        job = t.expect(ID).group()
        assert t.wait() == 0
        t.close()
        started.append(job)
        return job

    yield start
    for job in started:
        pvisor("kill", "--grace", "1s", job, cwd=workspace, code=None)


@pytest.fixture
def attach(pv, terminal, workspace):
    def start(job, *options, **size):
        return terminal([pv, "attach", *options, job], cwd=workspace, **size)

    return start


# A full-screen program in the small: it draws when its window changes, and says what is typed.
SCREEN = r"""
import os, signal, sys, termios, tty
tty.setraw(0)
def draw(*_):
    size = os.get_terminal_size()
    os.write(1, b"\033[2J\033[Hsize %dx%d\r\n" % (size.lines, size.columns))
signal.signal(signal.SIGWINCH, draw)
os.write(1, b"\033[?1049h\033[?1h\033[?25l")
draw()
while True:
    key = os.read(0, 1)
    if key == b"q":
        break
    os.write(1, b"key %r\r\n" % key)
os.write(1, b"\033[?25h\033[?1l\033[?1049l")
sys.exit(7)
"""


# ---- starting ----

def test_it_prints_the_id_and_returns_once_the_command_runs(pv, pvisor, workspace, environment, mode):
    job = pvisor("run", "-q", *mode, "--detach", "--", "sh", "-c", "echo out; echo err >&2; sleep 600", cwd=workspace)
    assert re.fullmatch(ID + "\n", job.out) and job.err == ""
    name = job.out.strip()
    assert any(e["event"] == "started" for e in jobs.events(jobs.job_dir(environment, name)))
    assert json.loads(pvisor("status", name, "--json", cwd=workspace).out)["state"] == "running"
    follower = subprocess.Popen([pv, "logs", "-f", name], cwd=workspace, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    assert (follower.stdout.readline(), follower.stderr.readline()) == ("out\n", "err\n")
    pvisor("kill", name, cwd=workspace)
    assert follower.communicate(timeout=60) == ("", "") and follower.returncode == 0
    logs = pvisor("logs", name, cwd=workspace)
    assert (logs.out, logs.err) == ("out\n", "err\n")


def test_errors_before_the_start_are_the_starters(pvisor, workspace, mode):
    failed = pvisor("run", "-q", *mode, "-d", "--", "no-such-program", cwd=workspace, code=127)
    assert failed.out == "" and "command not found" in failed.err
    pvisor("run", "-q", *mode, "-d", "--", "/etc/passwd", cwd=workspace, code=126)
    pvisor("run", "-q", *mode, "-d", "--workspace", "/no/such/place", "--", "true", cwd=workspace, code=2)


def summary_of(path):
    [line] = path.read_text().splitlines()
    return json.loads(line)


def test_the_summary_tells_a_start_that_failed(pvisor, workspace, temporary, mode):
    """Detached or not, and wherever it fails: one line of JSON, the same exit code in it, and the reason."""
    path = temporary / "summary"
    for options, command, code in ([[], ["no-such-program"], 127], [[], ["/etc/passwd"], 126],
                                   [["--workspace", "/no/such/place"], ["true"], 2],
                                   [["--continue", "nobody"], ["true"], 4], [["--name", "../x"], ["true"], 2]):
        for detach in ([], ["--detach"]):
            failed = pvisor("run", "-q", *mode, *options, *detach, f"--json={path}", "--", *command, cwd=workspace, code=code)
            told = summary_of(path)
            assert told["exit_code"] == code and told["failure"] and told["failure"] in failed.err and failed.out == ""
            assert (told["id"] is None) == (code in (2, 4))


def test_the_summary_of_a_detached_start_is_the_starters(pvisor, workspace, temporary, mode):
    path = temporary / "summary"
    job = pvisor("run", "-q", *mode, "--detach", f"--json={path}", "--", "true", cwd=workspace).out.strip()
    assert pvisor("logs", "-f", job, cwd=workspace).out == ""
    assert summary_of(path)["id"] == job and summary_of(path)["detached"] is True


def test_a_fork_can_be_detached(pvisor, workspace, environment, temporary, mode):
    if not mode:
        mode = ["--stage"]
    path = temporary / "summary"
    base = pvisor("run", "-q", *mode, "-d", "--", "sh", "-c", "echo one >made", cwd=workspace).out.strip()
    pvisor("logs", "-f", base, cwd=workspace)
    job = pvisor("fork", "-q", "--detach", f"--json={path}", "--name", "child", base, "--", "sh", "-c",
                 "cat made; echo two >>made; sleep 600", cwd=workspace).out.strip()
    assert re.fullmatch(ID, job) and summary_of(path)["id"] == job
    assert json.loads(pvisor("status", "child", "--json", cwd=workspace).out)["state"] == "running"
    seen = pvisor("exec", "child", "--", "sh", "-c", "until grep two made; do sleep 0.05; done; cat made", cwd=workspace)
    assert seen.out == "two\none\ntwo\n"
    pvisor("kill", "child", cwd=workspace)
    assert pvisor("logs", "child", cwd=workspace).out == "one\n"
    # It widens nothing: what the parent's boundary refused is refused in the fork, and its stage is its own.
    assert pvisor("diff", base, cwd=workspace).out.count("+two") == 0
    failed = pvisor("fork", "-q", "-d", f"--json={path}", base, "--", "no-such-program", cwd=workspace, code=127)
    assert failed.out == "" and summary_of(path)["exit_code"] == 127 and summary_of(path)["failure"]
    pvisor("fork", "-q", "-d", f"--json={path}", "nobody", "--", "true", cwd=workspace, code=4)
    assert summary_of(path)["exit_code"] == 4
    ended = pvisor("fork", "-q", f"--json={path}", base, "--", "sh", "-c", "exit 3", cwd=workspace, code=3)
    assert ended.out == "" and summary_of(path)["exit_code"] == 3 and summary_of(path)["end"] == "exited"


def test_who_has_waited_for_the_end_goes_on_at_once(pvisor, workspace):
    """Its stage can be decided on and run on, and the next run has the caches, though it still clears up."""
    (workspace / "package.json").write_text("{}\n")
    for i in range(4):
        script = f"cat ~/.npm/x; echo {i} >~/.npm/x; echo {i} >made; echo {i} >later"
        job = pvisor("run", "-q", "--safe", "-d", "--", "sh", "-c", script, cwd=workspace).out.strip()
        assert pvisor("logs", "-f", job, cwd=workspace).out == (f"{i - 1}\n" if i else "")
        pvisor("apply", job, "--path", "made", cwd=workspace)
        job = pvisor("run", "-q", "--continue", job, "-d", "--", "cat", "later", cwd=workspace).out.strip()
        assert pvisor("logs", "-f", job, cwd=workspace).out == f"{i}\n"
        pvisor("drop", job, cwd=workspace)
        assert (workspace / "made").read_text() == f"{i}\n"


def test_it_outlives_the_terminals_end(detached, pvisor, workspace, marker, mode):
    job = detached(*mode, "--", "sh", "-c", f": {marker}; sleep 600; :")  # the terminal is closed by now
    processes.wait_for(marker)
    assert json.loads(pvisor("status", job, "--json", cwd=workspace).out)["state"] == "running"
    pvisor("kill", job, cwd=workspace)
    processes.assert_none(marker, within=10)


def test_nothing_of_the_starter_stays_open(pv, environment, workspace, pvisor):
    """A script that reads what `run --detach` prints sees the end of it, and no descriptor of its own goes in."""
    r, w = os.pipe()
    process = subprocess.run([pv, "run", "-q", "--detach", "--", "sleep", "600"], cwd=workspace, env=environment,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[w],
                             timeout=30)
    os.close(w)
    assert os.read(r, 1) == b""
    os.close(r)
    pvisor("kill", process.stdout.decode().strip(), cwd=workspace)


def test_what_is_piped_in_is_read(pvisor, workspace):
    job = pvisor("run", "-q", "--safe", "-d", "--", "cat", cwd=workspace, input="from a pipe\n").out.strip()
    assert pvisor("logs", "-f", job, cwd=workspace).out == "from a pipe\n"


def test_closing_words_are_kept(pvisor, workspace):
    job = pvisor("run", "--safe", "-d", "--", "sh", "-c", "echo >new; exit 3", cwd=workspace).out.strip()
    pvisor("logs", "-f", job, cwd=workspace)
    words = f"pvisor: {job}: 1 path staged; next: pvisor review"
    assert words in pvisor("status", job, cwd=workspace).out
    review = pvisor("review", job, cwd=workspace).out
    assert "next: pvisor review" not in review and re.search(r"^  A new +1 B$", review, re.M)  # it tells that itself
    status = json.loads(pvisor("status", job, "--json", cwd=workspace).out)
    assert status["exit_code"] == 3 and words in status["closing"]
    pvisor("run", "-q", "--", "true", cwd=workspace)
    assert json.loads(pvisor("status", "--json", cwd=workspace).out)["closing"] is None


def test_a_person_at_a_terminal_is_told_what_comes_next_and_a_program_the_id_alone(pv, terminal, pvisor, workspace):
    t = terminal([pv, "run", "--safe", "-d", "--name", "seen", "--", "sleep", "1000"], cwd=workspace, rows=24, columns=80)
    job = t.expect(ID).group()
    t.expect("next: pvisor attach seen")
    assert t.wait() == 0
    pvisor("kill", "--grace", "1s", job, cwd=workspace)
    alone = pvisor("run", "--safe", "-d", "--", "true", cwd=workspace)
    assert alone.err == "" and re.fullmatch(f"{ID}\n", alone.out)


# ---- windows ----

def test_a_full_screen_program_survives_windows_that_come_and_go(detached, attach, workspace, pvisor, mode):
    job = detached(*mode, "--", "/usr/bin/python3", "-c", SCREEN)
    first = attach(job, rows=30, columns=90)
    first.expect(re.escape("\033[?1049h"))  # though it was said before
    first.expect("size 30x90")
    first.send("a")
    first.expect("key b'a'")
    first.resize(33, 99)
    first.expect("size 33x99")
    first.send(LEAVE)
    first.expect(re.escape("\033[?1049l"))
    first.expect("detached from")
    assert first.wait() == 0
    second = attach(job, rows=33, columns=99)  # the same size: drawn anew all the same
    second.expect("size 33x99")
    second.send("\x03")
    second.expect(r"key b'\\x03'")  # Ctrl-C is the program's
    second.send("\x10z")
    second.expect(r"key b'\\x10'")  # half of the keys
    second.expect("key b'z'")
    second.send("q")
    assert second.wait() == 7


def test_several_windows_see_the_same(detached, attach):
    job = detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN)
    windows = [attach(job) for _ in range(3)]
    for each in windows:
        each.expect("size")
    windows[1].send("x")
    for each in windows:
        each.expect("key b'x'")
    windows[2].hang_up()
    windows[0].send("q")
    assert windows[0].wait() == 7 and windows[1].wait() == 7


def test_a_shell_in_the_window_has_job_control(detached, attach, mode):
    t = attach(detached(*mode, "--", "bash", "--norc", "-i"))
    t.line("PS1='in''ner> '")
    t.expect("inner> ")
    t.line("tty; sh -c 'echo rea''dy; exec sleep 600'")
    t.expect("/dev/")
    t.expect("ready")
    t.key("z")
    t.expect("Stopped")
    t.line("kill -9 %1; disown %1; echo g''one")
    t.expect("gone")
    t.line("exit 4")
    assert t.wait() == 4


def test_other_keys_may_leave(detached, attach, pvisor, workspace):
    job = detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN)
    t = attach(job, "--detach-keys", "ctrl-a,d")
    t.expect("size")
    t.send(LEAVE)
    t.expect(r"key b'\\x11'")
    t.send("\x01d")
    t.expect("detached")
    assert t.wait() == 0
    pvisor("attach", "--detach-keys", "ctrl-ab", job, cwd=workspace, code=2)


def test_no_keys_leave(detached, attach):
    t = attach(detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN), "--detach-keys", "")
    t.expect("size")
    t.send(LEAVE)
    t.expect(r"key b'\\x11'")


def test_the_terminal_is_given_back(detached, terminal, pv, workspace):
    job = detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN)
    t = terminal(["bash", "--norc", "-i"], cwd=workspace, env={"PS1": "outer> "})
    t.expect("outer> ")
    t.line("stty -g >before")
    t.expect("outer> ")
    t.line(f"{pv} attach {job}; stty -g | cmp - before && echo sa''me")
    t.expect("size")
    t.send(LEAVE)
    t.expect("same")


def test_what_was_said_last_is_shown_and_nothing_is_lost(detached, attach, workspace):
    job = detached("--safe", "--", "sh", "-c", "echo before; read go; seq 1 50000; exit 5")
    t = attach(job)
    t.expect("before")
    t.line("go")
    assert t.wait(60) == 5
    numbers = re.findall(r"^(\d+)\r?$", t.output, re.M)
    assert numbers == [str(n) for n in range(1, 50001)]


def test_a_window_that_does_not_read_holds_up_nobody(detached, attach, pv, environment, workspace, pvisor):
    job = detached("--safe", "--", "sh", "-c", "read go; seq 1 200000; echo e''nd >done; sleep 600")
    slow = attach(job)
    slow.send("go\r")  # and nothing is read from it
    os.kill(slow.process.pid, signal.SIGSTOP)
    other = attach(job)
    if "go" not in other.output:
        other.line("go")
    other.expect("200000", timeout=60)
    pvisor("exec", job, "--", "sh", "-c", "until test -e done; do sleep 0.05; done", cwd=workspace)
    slow.process.kill()
    pvisor("exec", job, "--", "true", cwd=workspace)


def test_a_thousand_windows(detached, pv, environment, workspace, pvisor):
    """Opened and closed by every way there is; what the supervisor holds stays the same."""
    job = detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN)
    supervisor = int((jobs.job_dir(environment, job) / "lock").read_text().split()[0])
    pvisor("exec", job, "--", "true", cwd=workspace)  # it serves by now
    before = len(os.listdir(f"/proc/{supervisor}/fd"))
    for _ in range(25):
        many = [subprocess.Popen([pv, "attach", job], cwd=workspace, env=environment, stdin=subprocess.PIPE,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(40)]
        for i, each in enumerate(many):
            if i % 3 == 0:
                each.kill()
            elif i % 3 == 1:
                each.communicate(LEAVE.encode(), timeout=60)
            else:
                each.terminate()
        for each in many:
            each.wait(60)
    assert json.loads(pvisor("status", job, "--json", cwd=workspace).out)["state"] == "running"
    deadline = time.monotonic() + 10
    while len(os.listdir(f"/proc/{supervisor}/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(os.listdir(f"/proc/{supervisor}/fd")) <= before


def test_a_window_says_when_the_supervisor_is_killed(detached, attach, environment):
    job = detached("--safe", "--", "/usr/bin/python3", "-c", SCREEN)
    t = attach(job)
    t.expect("size")
    os.kill(int((jobs.job_dir(environment, job) / "lock").read_text().split()[0]), signal.SIGKILL)
    t.expect("lost")
    assert t.wait() == 137


def test_a_job_without_a_terminal_has_no_window(background, pvisor, workspace):
    background("--safe", "--", "sleep", "600")
    refused = pvisor("attach", cwd=workspace, code=1)
    assert "no terminal of its own" in refused.err and "logs -f" in refused.err
    pvisor("kill", cwd=workspace)
    assert "does not run" in pvisor("attach", cwd=workspace, code=1).err


# ---- logs and list ----

def test_logs_follow_to_the_end(pv, environment, workspace, pvisor):
    job = pvisor("run", "-q", "--safe", "-d", "--", "sh", "-c",
                 "echo one; until test -e go; do sleep 0.05; done; echo two; echo err >&2; printf three",
                 cwd=workspace).out.strip()
    follower = subprocess.Popen([pv, "logs", "-f", job], cwd=workspace, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    assert follower.stdout.readline() == "one\n"
    pvisor("exec", job, "--", "touch", "go", cwd=workspace, code=None)
    out, err = follower.communicate(timeout=60)
    assert (out, err, follower.returncode) == ("two\nthree", "err\n", 0)
    lines = [json.loads(line) for line in pvisor("logs", "--json", job, cwd=workspace).out.splitlines()]
    assert lines == [{"stream": "stdout", "line": "one"}, {"stream": "stdout", "line": "two"},
                     {"stream": "stdout", "line": "three"}, {"stream": "stderr", "line": "err"}]
    events = pvisor("logs", "-f", "--events", job, cwd=workspace).out
    assert json.loads(events.splitlines()[-1])["event"] == "ended"


def test_logs_show_a_terminals_lines_as_lines_and_nothing_that_steers(detached, terminal, pv, workspace, pvisor):
    job = detached("--safe", "--", "printf", r"one\ntwo\n\033[31mred\007\n")
    assert pvisor("logs", "-f", job, cwd=workspace).out == "one\r\ntwo\r\n\033[31mred\007\r\n"
    t = terminal([pv, "logs", job], cwd=workspace)
    assert t.wait() == 0
    assert t.output == "one\r\ntwo\r\n\\x1b[31mred\\x07\r\n"


def test_what_a_terminal_said_is_kept_within_bounds(detached, pv, environment, workspace, pvisor):
    """More than 64 MiB: the oldest is given back, and what is left begins with what was said, not with zeros."""
    job = detached("--safe", "--", "sh", "-c", "stty -opost; yes 0123456789abcde | head -c 72000000; echo e''nd")
    pvisor("logs", "-f", "--only", "stderr", job, cwd=workspace, timeout=100)
    log = jobs.job_dir(environment, job) / "stdout.log"
    assert log.stat().st_size == 72000004 and log.stat().st_blocks * 512 < 70 << 20
    kept = subprocess.run([pv, "logs", job], cwd=workspace, env=environment, capture_output=True,
                          timeout=100).stdout
    assert 60 << 20 < len(kept) < 70 << 20 and kept[:4096].count(b"0123456789abcde\n") >= 255
    assert kept.endswith(b"end\n")


def test_captured_output_is_kept_within_bounds(pvisor, environment, workspace):
    said = "yes 0123456789abcde | head -c 72000000; echo end"
    pvisor("run", "-q", "--safe", "--stdio", "capture", "--", "sh", "-c", said, cwd=workspace, timeout=100)
    log = jobs.job_dirs(environment)[-1] / "stdout.log"
    assert log.stat().st_size == 72000004 and log.stat().st_blocks * 512 < 70 << 20
    assert pvisor("logs", cwd=workspace, timeout=100).out.endswith("\nend\n")


TAKE_BACK = """
import fcntl, os
os.write(1, b"said\\n")
for act in (lambda: os.ftruncate(1, 0), lambda: fcntl.fcntl(1, fcntl.F_SETFL, 0), lambda: os.lseek(1, 0, 0),
            lambda: os.write(1, b"not that\\n"), lambda: os.ftruncate(1, 1 << 40)):
    try:
        act()
    except OSError:
        pass
"""


@pytest.mark.parametrize("how", [["--stdio", "capture"], ["--detach"]], ids=["captured", "detached"])
def test_captured_output_cannot_be_taken_back(pvisor, workspace, temporary, how):
    pvisor("run", "-q", "--safe", *how, "--", "/usr/bin/python3", "-c", TAKE_BACK, cwd=workspace)
    assert pvisor("logs", "-f", cwd=workspace).out == "said\nnot that\n"
    with open(temporary / "a-file", "wb") as f:  # the same with a file, without pvisor
        subprocess.run(["/usr/bin/python3", "-c", TAKE_BACK], stdout=f, check=True)
    with open(temporary / "a-file", "rb") as f:
        assert f.read(9) == b"not that\n" and f.seek(0, os.SEEK_END) == 1 << 40


def test_logs_as_json_hold_any_byte(pvisor, workspace):
    job = pvisor("run", "-q", "--safe", "-d", "--", "printf", r"a\000b\n\377\n", cwd=workspace).out.strip()
    lines = pvisor("logs", "-f", "--json", job, cwd=workspace).out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == ["a\0b", {"bytes": "ff"}]


def test_list_is_watched(background, terminal, pv, workspace, pvisor):
    job = background("--safe", "--name", "watched", "--", "sleep", "600")
    t = terminal([pv, "list", "--watch"], cwd=workspace, env={"TERM": "xterm"})
    t.expect(job.id + " +running.*watched")
    pvisor("kill", cwd=workspace)
    t.expect(job.id + " +ended")
    t.send("q")
    assert t.wait() == 0
    t = terminal([pv, "list", "--watch"], cwd=workspace, env={"TERM": "xterm"})
    t.expect(job.id)
    t.key("c")
    assert t.wait() in (130, -signal.SIGINT)


def test_a_watched_list_breaks_no_line(background, terminal, pv, workspace):
    job = background("--safe", "--name", "n" * 60, "--", "sleep", "600")
    t = terminal([pv, "list", "--watch"], cwd=workspace, env={"TERM": "xterm"}, rows=10, columns=30)
    t.expect(job.id + r"  runn\x1b\[K")
    t.send("q")
    assert t.wait() == 0


def test_list_is_watched_without_a_terminal(pv, environment, workspace, pvisor):
    pvisor("run", "-q", "--safe", "--", "true", cwd=workspace)
    process = subprocess.Popen([pv, "list", "--watch"], cwd=workspace, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(4)]
    process.terminate()
    process.communicate(timeout=30)
    assert sum(line.startswith("JOB") for line in lines) == 2 and "\033" not in "".join(lines)
