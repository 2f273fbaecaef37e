# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own: send keys, wait for words, resize, hang up."""
import errno
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

from lib import processes


class Terminal:
    """Starts argv as the leader of a new session whose controlling terminal is a new pty."""

    def __init__(self, argv, cwd=None, env=None, rows=24, columns=80):
        self.master, slave = os.openpty()
        self.output = ""  # all that was printed
        self._seen = 0  # how much of it expect() has passed
        self.resize(rows, columns)

        def take_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=take_terminal)
        os.close(slave)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.master, text.encode())

    def line(self, text):
        self.send(text + "\r")

    def key(self, letter):
        """Control and a letter: key("c") is Ctrl-C."""
        self.send(chr(ord(letter.upper()) - 64))

    def _read(self, seconds):
        """More output within the time; False at the end of output or of the time."""
        if not select.select([self.master], [], [], max(seconds, 0))[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as e:
            if e.errno != errno.EIO:  # what Linux says when the last user of the terminal is gone
                raise
            data = b""
        self.output += data.decode("utf-8", "surrogateescape")
        return bool(data)

    def expect(self, pattern, timeout=20):
        """Waits until the pattern appears in output that no earlier expect() has passed; returns the match."""
        deadline = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.output[self._seen:])
            if found:
                self._seen += found.end()
                return found
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"terminal: no {pattern!r} in:\n{self.output[self._seen:]}")

    def wait(self, timeout=20):
        """Reads to the end and returns the exit status (negative: the signal)."""
        deadline = time.monotonic() + timeout
        while self._read(deadline - time.monotonic()):
            pass
        try:
            return self.process.wait(max(deadline - time.monotonic(), 0.5))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"terminal: still running after {timeout} s:\n{self.output}") from None

    def hang_up(self):
        """Closes the terminal, as a closed window does."""
        os.close(self.master)
        self.master = -1

    def close(self):
        """Kills what is left of the session, a shell's background jobs too."""
        self.process.poll()
        processes.end_session(self.process.pid)
        self.process.wait()
        if self.master >= 0:
            self.hang_up()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
