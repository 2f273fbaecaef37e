# SPDX-License-Identifier: Apache-2.0
"""On a terminal everything is as without pVisor: job control, keys, sizes, full-screen programs, pipelines."""
import shutil
import time

import pytest

from conftest import IS_ROOT, pv_skip
from lib import processes

MODES = {"ambient": [], "host": ["--stage", "--filesystem", "host"], "staged": ["--stage"], "safe": ["--safe"]}


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


@pytest.fixture
def shell(terminal, pv, workspace):
    """An interactive bash in the workspace, on a terminal, in which `pv` is pvisor."""
    t = terminal(["bash", "--norc", "-i"], cwd=workspace, env={"PS1": "outer> ", "TERM": "xterm"})
    t.expect("outer> ")
    t.line(f"pv() {{ {pv} run -q \"$@\"; }}; set +o emacs")
    t.expect("outer> ")
    return t


def test_the_command_has_the_terminal(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'test -t 0 -a -t 1 -a -t 2 && : >/dev/tty && echo has$((1+1)) && tty'")
    shell.expect("has2")
    shell.expect(r"/dev/\S+")
    shell.expect("outer> ")


def test_ctrl_c_interrupts_the_command(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'echo rea''dy; exec sleep 600'")
    shell.expect("ready")
    shell.key("c")
    shell.expect("outer> ")
    shell.line("echo code=$?")
    shell.expect("code=130")


def test_a_command_that_handles_ctrl_c_goes_on(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'trap \"echo hand''led\" INT; echo rea''dy; sleep 1; echo e''nd'; echo code=$?")
    shell.expect("ready")
    shell.key("c")
    shell.expect("handled")
    shell.expect("end")
    shell.expect("code=0")


def test_ctrl_backslash_quits_the_command(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'echo rea''dy; exec sleep 600'; echo code=$?")
    shell.expect("ready")
    shell.send("\x1c")
    shell.expect("code=131")


def test_ctrl_z_stops_and_fg_resumes(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'echo rea''dy; read line; echo got $line'")
    shell.expect("ready")
    shell.key("z")
    shell.expect("Stopped")
    shell.expect("outer> ")
    shell.line("echo shell$((20+3))")
    shell.expect("shell23")
    shell.line("fg")
    shell.expect("pv|pvisor")
    shell.line("words")
    shell.expect("got words")
    shell.expect("outer> ")


def test_ctrl_z_twice(shell):
    shell.line("pv --safe -- sh -c 'echo rea''dy; read a; echo got $a; read b; echo got $b'")
    shell.expect("ready")
    for word in ("one", "two"):
        shell.key("z")
        shell.expect("Stopped")
        shell.line("fg")
        shell.expect("pv|pvisor")
        shell.line(word)
        shell.expect(f"got {word}")
    shell.expect("outer> ")


def is_guarded(mode):
    return "--filesystem" not in mode and bool(mode)


def until_stopped(shell):
    """The shell is told of its job's stop some time after it: as soon as it knows, it says so."""
    shell.line("while jobs -r | grep -q .; do sleep 0.05; done; jobs")
    shell.expect("Stopped")


def test_a_stopped_run_goes_on_in_the_background(shell, mode):
    # Not a shell's loop around sleep: a stop in the middle of a vfork(2) is seen by nobody, without pVisor as well.
    shell.line(f"pv {' '.join(mode)} -- python3 -c 'import signal; signal.pthread_sigmask(0, [signal.SIGCONT]); "
               "print(\"rea\" \"dy\", flush=True); signal.sigwait([signal.SIGCONT]); print(\"fini\" \"shed\")'")
    shell.expect("ready")
    shell.key("z")
    shell.expect("Stopped")
    shell.line("bg")
    if is_guarded(mode):  # it would read what is typed for the shell
        shell.expect("the run stands still")
        until_stopped(shell)
        shell.line("fg")
        shell.expect("finished")
        return
    shell.expect("finished")
    shell.line("wait; echo code=$?")
    shell.expect("code=0")


def test_a_background_run_stops_for_input_and_fg_gives_it(shell, mode):
    if is_guarded(mode):
        shell.line(f"pv {' '.join(mode)} -- sh -c 'read line || echo no in''put; test -t 1 && echo on a ter''minal' &")
        shell.expect("no input\\s+on a terminal")
        shell.line("wait; echo code=$?")
        shell.expect("code=0")
        return
    shell.line(f"pv {' '.join(mode)} -- sh -c 'read line; echo got $line' &")
    shell.expect("outer> ")
    until_stopped(shell)
    shell.line("fg")
    shell.expect("pv|pvisor")
    shell.line("words")
    shell.expect("got words")


def test_a_shell_inside_has_job_control(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- bash --norc -i")
    shell.expect(r"\$ |# |outer> ")
    shell.line("PS1='in''ner> '")
    shell.expect("inner> ")
    assert "no job control" not in shell.output
    shell.line("sh -c 'echo rea''dy; exec sleep 600'")
    shell.expect("ready")
    shell.key("z")
    shell.expect("Stopped")
    shell.line("kill %1; jobs; echo in$((1+1))")
    shell.expect("in2")
    shell.line("sh -c 'echo rea''dy; exec sleep 600'")
    shell.expect("ready")
    shell.key("c")
    shell.expect("inner> ")
    shell.line("exit 5")
    shell.expect("outer> ")
    shell.line("echo code=$?; cat")
    shell.expect("code=5")
    shell.line("words")
    shell.expect("words\r\n(.*\r\n)?words")
    shell.key("c")
    shell.expect("outer> ")


def test_suspend_of_the_inner_shell_stops_the_run(shell):
    shell.line("pv --stage -- bash --norc -i")
    shell.line("PS1='in''ner> '")
    shell.expect("inner> ")
    shell.line("kill -STOP $$")
    shell.expect("outer> ")
    shell.line("fg")
    shell.line("echo in$((1+1))")
    shell.expect("in2")
    shell.line("exit")
    shell.expect("outer> ")


def test_dash_leaves_without_a_word(shell):
    """dash gives the terminal back to the group it came from, and complains when there is none."""
    shell.line("pv --safe -- sh -i")
    shell.line("PS1='in''ner> '; echo in$((1+1))")
    shell.expect("in2")
    shell.line("exit; ")
    shell.expect("outer> ")
    assert "annot set tty" not in shell.output


def test_resize_reaches_the_command(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- bash -c 'trap \"stty size\" WINCH; echo rea''dy; "
               "while :; do sleep 0.1; done'")
    shell.expect("ready")
    shell.resize(33, 99)
    shell.expect("33 99")


def test_a_pager_behind_a_run_has_the_keyboard(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- seq 1 500 | less")
    shell.expect("\n10\r")
    shell.send("G")
    shell.expect("500")
    shell.send("q")
    shell.expect("outer> ")


def test_a_pager_inside_behind_a_pipe_has_the_keyboard(shell, mode):
    shell.line(f"seq 1 500 | pv {' '.join(mode)} -- less")
    shell.expect("\n10\r")
    shell.send("G")
    shell.expect("500")
    shell.send("q")
    shell.expect("outer> ")


def test_ctrl_c_ends_a_pipeline(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- sh -c 'echo rea''dy >&2; exec sleep 600' | cat")
    shell.expect("ready")
    shell.key("c")
    shell.expect("outer> ")


def test_ctrl_c_ends_a_loop_of_runs(shell):
    """The shell's loop ends with the run, as it does with a direct command."""
    shell.line("for i in 1 2 3; do pv -- sh -c 'echo rou''nd; exec sleep 600'; done; echo l''eft")
    shell.expect("round")
    shell.key("c")
    shell.expect("outer> ")
    assert "round" not in shell.output[shell._seen:]


@pytest.mark.parametrize("editor", ["vim", "vi"])
def test_an_editor_edits(shell, editor, workspace):
    if not shutil.which(editor):
        pytest.skip(f"no {editor}")
    shell.line(f"pv --stage -- sh -c '{editor} -u NONE -N note && cat note'")
    shell.expect("~")
    shell.send("iwritten inside\x1b:wq\r")
    shell.expect("written inside[^\x1b]*outer> ")
    assert not (workspace / "note").exists()


def test_a_suspended_editor_comes_back(shell):
    if not shutil.which("vim"):
        pv_skip("no vim")
    shell.line("pv --safe -- vim -u NONE -N note")
    shell.expect("~")
    shell.key("z")
    shell.expect("Stopped")
    shell.line("fg")
    shell.expect("~")
    shell.send("ihello\x1b:wq\r")
    shell.expect("outer> ")


def test_closing_the_terminal_ends_the_run(terminal, pv, workspace, marker, mode):
    t = terminal([pv, "run", *mode, "--", "sh", "-c", f"echo ready; sleep 600; : {marker}"], cwd=workspace)
    t.expect("ready")
    t.hang_up()
    processes.assert_none(marker, within=10)


def test_closing_the_terminal_of_the_shell_ends_the_run(terminal, pv, workspace, marker):
    t = terminal(["bash", "--norc", "-i"], cwd=workspace, env={"PS1": "outer> "})
    t.expect("outer> ")
    t.line(f"{pv} run --safe -- sh -c 'echo rea''dy; sleep 600; : {marker}'")
    t.expect("ready")
    t.hang_up()
    processes.assert_none(marker, within=10)


def test_the_terminal_is_the_shells_again_afterwards(shell, mode):
    shell.line(f"pv {' '.join(mode)} -- true; cat")
    shell.line("still here")
    shell.expect("still here\r\n.*still here")
    shell.key("d")
    shell.expect("outer> ")
    assert shell.process.poll() is None


# ---- what is typed for others ----

# Leaves the session, where no job control holds it back, and keeps what it reads by every way to the terminal.
LISTENER = """
import os, signal, threading, time
fds = [0, 1, 2]
for path in ("/dev/tty", "/dev/console", "/proc/self/fd/1"):
    try:
        fds.append(os.open(path, os.O_RDWR | os.O_NOCTTY))
    except OSError:
        pass
heard = os.open("heard", os.O_WRONLY | os.O_CREAT, 0o644)

def listen(fd):
    try:
        while data := os.read(fd, 100):
            os.write(heard, data)
    except OSError:
        pass

if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGCONT))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # goes on whenever somebody stops it
    os.write(heard, b"begun ")
    for fd in fds:
        threading.Thread(target=listen, args=[fd], daemon=True).start()
    print("hear" + "ing", flush=True)
    while True:
        time.sleep(1)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["stopped", "started in the background", "continued in the background"])
@pytest.mark.parametrize("mode", [["--stage"], ["--safe"]], ids=["staged", "safe"])
def test_what_is_typed_for_the_shell_is_not_heard(shell, workspace, pvisor, mode, how):
    (workspace / "listener.py").write_text(LISTENER)
    start = how == "started in the background"
    shell.line(f"pv --name ear {' '.join(mode)} -- python3 listener.py {'&' if start else ''}")
    shell.expect("hearing")
    if not start:
        shell.key("z")
        shell.expect("Stopped")
    if how == "continued in the background":
        shell.line("bg")
        shell.expect("stands still")
    for i in range(10):
        shell.line(f"echo pass''word{i}")
        shell.expect(f"password{i}")
    shell.line("kill -KILL %1; wait; echo en''ded")
    shell.expect("ended")
    heard = pvisor("diff", "ear", cwd=workspace).out
    assert "+begun" in heard and "word" not in heard.split("b/heard")[-1], heard


def test_without_a_boundary_it_is_heard(shell, workspace):
    (workspace / "listener.py").write_text(LISTENER)
    shell.line("pv -- python3 listener.py")
    shell.expect("hearing")
    shell.key("z")
    shell.expect("Stopped")
    for i in range(100):
        shell.line(f"echo pass''word{i}")
        shell.line("")
        if b"word" in (workspace / "heard").read_bytes():
            break
        time.sleep(0.1)
    else:
        raise AssertionError("nothing was heard")
    shell.line("kill -KILL %1")


FLAGS = """
import fcntl, os, sys, termios
try:
    fcntl.ioctl(0, termios.TIOCEXCL)
except OSError as e:
    print(e.strerror)
fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_NONBLOCK | os.O_ASYNC)
"""
LOOK = "import fcntl, os; os.open('/dev/tty', os.O_RDWR); print('flags %o' % fcntl.fcntl(0, fcntl.F_GETFL))"


def test_a_run_leaves_the_terminal_usable(shell, workspace):
    (workspace / "flags.py").write_text(FLAGS)
    (workspace / "look.py").write_text(LOOK)
    shell.line("python3 look.py")
    before = shell.expect(r"flags \d+\r").group()
    shell.line("pv --safe -- python3 flags.py")
    shell.expect("not permitted")
    shell.line("python3 look.py")
    assert shell.expect(r"flags \d+\r").group() == before
    shell.line("python3 flags.py; python3 look.py")  # directly
    assert IS_ROOT or shell.expect(r"flags \d+\r|busy").group() != before


def test_output_that_a_run_stopped_goes_on_after_it(shell, workspace):
    """No key lets it go on: pvisor hung at its own last line, and the person's shell would have at its prompt."""
    (workspace / "off.py").write_text("import termios; print('reached', flush=True); termios.tcflow(0, termios.TCOOFF)")
    shell.line("pv --safe -- python3 off.py; echo and 'on'")
    shell.expect("reached")
    shell.expect("and on")


# ---- what a run leaves of the terminal's settings ----

# For the keys alone: no echo, raw, on the other screen, with the mouse.
RAW = "stty raw -echo\nprintf '\\033[?1049h\\033[?1002h''in r''aw'\n"
# In a plain shell: an interactive one would put the settings back itself.
SHOW = "; stty -a | tr ' ' '\\n' | grep -E '^-?(echo|icanon);?$' | tr -d ';' | tr '\\n' ' '; echo shown"


@pytest.fixture
def settings_after(shell, pv, workspace):
    """Runs the command until it is raw, lets during() end it; icanon and echo as they are then, and what was said."""
    (workspace / "raw.sh").write_text(RAW)

    def call(words, command, during=lambda: None, around="{}"):
        (workspace / "command.sh").write_text(command)
        run = f"{pv} run -q {' '.join(words)} -- sh command.sh"
        (workspace / "outer.sh").write_text(around.format(run) + SHOW)
        before = len(shell.output)
        shell.line("sh outer.sh; stty sane")
        shell.expect("in raw")
        during()
        said = shell.expect(r"(-?icanon) (-?echo) shown")
        return said.group(1), said.group(2), shell.output[before:]
    return call


CUT_SHORT = {
    "signal": ". ./raw.sh; kill -KILL $$",
    "time-out": ". ./raw.sh; sleep 600",
    "kill": ". ./raw.sh; sleep 600",
    "inner": "sh -c '. ./raw.sh; kill -KILL $$'; exit $?",
    "behind": "(exec < /dev/tty; . ./raw.sh; echo > raw; exec sleep 600) & until [ -e raw ]; do sleep 0.1; done",
}


@pytest.mark.parametrize("ending, mode", [*((e, "safe") for e in CUT_SHORT), ("signal", "ambient"), ("behind", "ambient")])
def test_settings_are_put_back_when_a_run_is_cut_short(settings_after, pvisor, workspace, mode, ending):
    """By a signal, by the time, by a person, inside another shell; or what did it was left behind by the command."""
    limit = ["--timeout", "4s"] if ending == "time-out" else []  # a busy machine needs a second to come to `raw`
    words = [*MODES[mode], "--name", "raw", *limit]

    def kill():
        pvisor("kill", "raw", cwd=workspace)

    canonical, echo, said = settings_after(words, CUT_SHORT[ending], kill if ending == "kill" else lambda: None)
    assert (canonical, echo) == ("icanon", "echo")
    assert "\x1b[?1047l" in said and "\x1b[?1002l" in said  # and the screen with them


@pytest.mark.parametrize("mode", ["ambient", "safe"])
def test_settings_that_a_run_made_and_ended_with_hold(settings_after, mode):
    canonical, echo, said = settings_after(MODES[mode], ". ./raw.sh; exit 1")
    assert (canonical, echo) == ("-icanon", "-echo") and "\x1b[?1047l" not in said


@pytest.mark.parametrize("mode", ["ambient", "safe"])
def test_a_run_without_the_terminal_puts_nothing_back(settings_after, mode):
    """What a program beside it set meanwhile is that one's."""
    around = "{} < /dev/null > out 2>&1 & until grep -q going out; do sleep 0.1; done; . ./raw.sh; kill $!; wait"
    canonical, echo, said = settings_after(MODES[mode], "echo going; sleep 600", around=around)
    assert (canonical, echo) == ("-icanon", "-echo") and "\x1b[?1047l" not in said
