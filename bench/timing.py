# SPDX-License-Identifier: Apache-2.0
"""Measuring: one stopwatch for every contender, interleaved rounds, medians."""
import os
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .peers import FRESH

HERE = Path(__file__).resolve().parent


class Failed(Exception):
    """A contender did not do the work; the reason is shown in its place in the table."""


@dataclass(frozen=True)
class Target:
    """What the project promises: a ratio to the baseline, or an absolute value in ms or MiB."""
    must: float
    aim: float = None
    unit: str = "ratio"


@dataclass
class Contest:
    """One row's work, done by several contenders; the first named is what the others are compared with."""
    work: str
    unit: str  # ms or MiB
    contenders: dict  # name -> function without arguments that returns one sample
    rounds: int
    targets: dict = field(default_factory=dict)  # name -> Target
    warm_up: bool = True
    samples: dict = field(default_factory=dict)
    failures: dict = field(default_factory=dict)

    def run(self):
        """All contenders in turn, round after round, so that a busy minute falls on all of them alike."""
        for number in range(self.rounds + self.warm_up):
            for name, once in self.contenders.items():
                if name in self.failures:
                    continue
                try:
                    sample = once()
                except Failed as e:
                    self.failures[name] = str(e)
                    continue
                if number >= self.warm_up:
                    self.samples.setdefault(name, []).append(sample)
        return self

    def median(self, name):
        return statistics.median(self.samples[name]) if self.samples.get(name) else None


class Stopwatch:
    """bench/timer.c, compiled into a directory of ours."""

    def __init__(self, directory, environment):
        self.program = Path(directory) / "timer"
        self.environment = environment
        self.used = 0
        subprocess.run(["cc", "-O2", "-static", "-o", self.program, HERE / "timer.c"], check=True)

    def _run(self, command, cwd):
        """Runs to the end; FRESH in a word becomes a path that no command had before."""
        self.used += any(FRESH in str(word) for word in command)
        return subprocess.run([str(word).replace(FRESH, self.fresh()) for word in command], cwd=cwd,
                              env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def fresh(self):
        """The path that FRESH stood for last."""
        return str(self.program.parent / f"fresh{self.used}")

    def _read(self, command, cwd):
        """(milliseconds, exit status, peak MiB) that the timer in this command prints, on its last line."""
        done = self._run(command, cwd)
        words = (done.stdout.strip().splitlines() or [""])[-1].split()
        if done.returncode or len(words) != 3:
            raise Failed(f"exit {done.returncode}: {first_line(done.stderr)}")
        return int(words[0]) / 1e6, int(words[1]), int(words[2]) / 1024

    def launch(self, command, cwd, status=0):
        """Milliseconds and peak MiB of a command from fork to exit; another exit status than this fails."""
        ms, got, mib = self._read([self.program, "run", *command], cwd)
        if got != status:
            raise Failed(f"exit {got}: {self.reason(command, cwd)}")
        return ms, mib

    def inside(self, prefix, work, cwd):
        """Milliseconds that the timer, started through a sandbox's command prefix, says its own work took."""
        ms, got, _ = self._read([*prefix, cwd / self.program.name, *work], cwd)
        if got:
            raise Failed("the work inside went wrong")
        return ms

    def reason(self, command, cwd):
        """What a failing command says; run once more, since the stopwatch throws its words away."""
        done = self._run(command, cwd)
        return first_line(done.stderr) or first_line(done.stdout) or "it says nothing"

    def do(self, command, cwd):
        """Part of the preparation: not measured, must succeed."""
        done = self._run(command, cwd)
        if done.returncode:
            raise Failed(f"{Path(str(command[0])).name} {command[1] if len(command) > 1 else ''}: "
                         f"exit {done.returncode}: {first_line(done.stderr)}")
        return done.stdout


def first_line(text):
    """The first line that is not a log's, cut to the width of a table."""
    lines = [line for line in text.strip().splitlines() if " level=" not in line]
    return lines[0][:90] if lines else ""


def settle():
    """Writes out what is dirty, so that a sync inside a sample pays for that sample's own data only."""
    os.sync()
