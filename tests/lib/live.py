# SPDX-License-Identifier: Apache-2.0
"""A job whose command does what a test tells it to, one thing after the other, while the person decides beside it."""
import json
import subprocess

AGENT = r"""
import json, mmap, os, shutil, stat, subprocess, sys, threading, time
def write(path, text):
    with open(path, "w") as f:
        f.write(text)
print("null", flush=True)
for line in sys.stdin:
    what, script = json.loads(line)
    found = None
    try:
        if what == "value":
            found = eval(script)
        else:
            exec(script)
    except Exception as e:
        found = {"failed": repr(e)}
    print(json.dumps(found), flush=True)
"""


class Agent:
    """The command of a run, by its standard streams. A context: at its end the command has ended and *code* is known."""

    def __init__(self, pv, cwd, environment, *options):
        self.process = subprocess.Popen(
            [pv, "run", "--stage", *options, "--", "/usr/bin/python3", "-u", "-c", AGENT], cwd=cwd, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.code = self.err = None
        self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        found = json.loads(line)
        assert not (isinstance(found, dict) and "failed" in found), found
        return found

    def begin(self, script, what="do"):
        self.process.stdin.write(json.dumps([what, script]) + "\n")
        self.process.stdin.flush()

    def do(self, script):
        """Python statements, in there."""
        self.begin(script)
        self._answer()

    def see(self, expression):
        """The value of a Python expression, in there."""
        self.begin(expression, "value")
        return self._answer()

    def end(self):
        if self.code is None:
            self.process.stdin.close()
            self.process.stdout.read()
            self.err = self.process.stderr.read()
            self.code = self.process.wait(60)
        return self.code

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None and failure[0]:
            self.process.kill()
        self.end()
        self.process.stdout.close()
        self.process.stderr.close()
