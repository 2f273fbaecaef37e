# SPDX-License-Identifier: Apache-2.0
"""A job that runs in the background, and its control socket spoken to without pvisor's help."""
import array
import json
import os
import signal
import socket
import subprocess
import time

from lib import jobs, processes


class Job:
    """`pvisor run ARGS`, started; ready once its supervisor listens. Its output goes to a file beside the workspace."""

    def __init__(self, pv, args, cwd, environment, log):
        self.environment, self.workspace = environment, cwd
        before = set(jobs.job_dirs(environment))
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([pv, "run", *map(os.fspath, args)], cwd=cwd, env=environment,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self.directory = self._await(lambda: next(iter(set(jobs.job_dirs(environment)) - before), None))
        self._await(lambda: (self.directory / "events.jsonl").exists() and self.events("started"))
        self.id = self.directory.name

    def _await(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, "the job does not start"
            time.sleep(0.005)
        return found

    def output(self):
        return self.log.read_text(errors="replace")

    def await_output(self, text):
        self._await(lambda: text in self.output())

    def events(self, name):
        return [e for e in jobs.events(self.directory) if e["event"] == name]

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = os.open(self.directory, os.O_PATH)  # the path itself may be longer than an address
        try:
            s.connect(f"/proc/self/fd/{fd}/control")
        finally:
            os.close(fd)
        s.settimeout(30)
        return s

    def ask(self, request, s=None):
        """Sends a packet (bytes as they are) and returns the answer."""
        own = s or self.connect()
        own.send(request if isinstance(request, bytes) else json.dumps(request).encode())
        answer = json.loads(own.recv(1 << 20))
        if not s:
            own.close()
        return answer

    def end(self, sig=signal.SIGKILL):
        """The exit code of the run, when nothing of it lives any more."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(30)
        processes.await_session(self.process.pid)
        return code


def send_descriptors(s, request, fds):
    s.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
