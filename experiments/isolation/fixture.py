# SPDX-License-Identifier: Apache-2.0
"""A fresh world for one attempt: files, secrets, listeners, a process to trace; and what became of them afterwards."""
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


class Listener:
    """Accepts connections and keeps what was sent. One thread, ended by close()."""

    def __init__(self, sock):
        self.socket, self.received = sock, []
        self.socket.listen(16)
        self.socket.settimeout(0.1)
        self.stopping = False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.stopping:
            try:
                peer, _ = self.socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with peer:
                peer.settimeout(1)
                try:
                    self.received.append(peer.recv(256).decode(errors="replace"))
                    peer.sendall(b"heard")
                except OSError:
                    self.received.append("(connected, nothing read)")

    def close(self):
        self.stopping = True
        self.thread.join()
        self.socket.close()


class Outside:
    """A network namespace that stands for the outside, with a listener in it.

    Needs root, and that the experiment itself runs in a network namespace of its own (it sees to that itself): there
    is then no route to anywhere but this listener.
    """

    NAME, HERE, THERE = "pv-outside", "198.51.100.1", "198.51.100.2"
    SERVER = ("import socket, sys\n"
              "s = socket.create_server((sys.argv[1], 0)); print(s.getsockname()[1], flush=True)\n"
              "while True:\n"
              "    c, _ = s.accept(); c.settimeout(1)\n"
              "    try:\n"
              "        print(c.recv(256).decode(errors='replace'), flush=True); c.sendall(b'heard')\n"
              "    except OSError:\n"
              "        print('(connected, nothing read)', flush=True)\n"
              "    c.close()\n")

    def __init__(self):
        self.received, self.server = [], None
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.address, self.port = None, None
            return
        run = lambda *words: subprocess.run(words, check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.NAME], capture_output=True)
        run("ip", "link", "set", "lo", "up")
        run("ip", "netns", "add", self.NAME)
        run("ip", "link", "add", "pv-here", "type", "veth", "peer", "name", "pv-there", "netns", self.NAME)
        run("ip", "addr", "add", self.HERE + "/30", "dev", "pv-here")
        run("ip", "link", "set", "pv-here", "up")
        run("ip", "-n", self.NAME, "addr", "add", self.THERE + "/30", "dev", "pv-there")
        run("ip", "-n", self.NAME, "link", "set", "pv-there", "up")
        self.server = subprocess.Popen(["ip", "netns", "exec", self.NAME, "/usr/bin/python3", "-c", self.SERVER,
                                        self.THERE], stdout=subprocess.PIPE, text=True)
        self.address, self.port = self.THERE, int(self.server.stdout.readline())
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def collect(self):
        for line in self.server.stdout:
            self.received.append(line.strip())

    def close(self):
        if self.server:
            self.server.kill()
            self.server.wait()
            self.thread.join()
            subprocess.run(["ip", "netns", "del", self.NAME], capture_output=True)


TRACED = ("import ctypes, sys, time\n"
          "ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1 & 0xffffffffffffffff), 0, 0, 0)\n"
          "b = ctypes.create_string_buffer(sys.stdin.readline().strip().encode())\n"
          "print(ctypes.addressof(b), flush=True); time.sleep(120)\n")


class Fixture:
    """Everything has a token of its own, so that what leaks can be told by its bytes."""

    def __init__(self, top, outside, as_user=None):
        self.top, self.outside = Path(top), outside
        token = lambda what: f"{what}-{secrets.token_hex(8)}"
        self.mark, self.write_text = token("mark"), token("written")
        self.inside_token = token("inside")
        self.secrets = {name: token(name) for name in ("secret", "home", "variable", "memory")}
        self.victims = {name: token("original") for name in ("absolute", "symlink")}
        self.workspace, self.elsewhere, self.home = self.top / "work", self.top / "elsewhere", self.top / "home"
        for directory in (self.workspace, self.elsewhere, self.home / ".ssh"):
            directory.mkdir(parents=True)
        (self.workspace / "inside.txt").write_text(self.inside_token)
        (self.elsewhere / "secret.txt").write_text(self.secrets["secret"])
        (self.home / ".ssh" / "id_ed25519").write_text(self.secrets["home"])
        for name, text in self.victims.items():
            (self.elsewhere / f"victim-{name}.txt").write_text(text)
        (self.workspace / "link-to-secret").symlink_to(self.elsewhere / "secret.txt")
        (self.workspace / "link-to-victim").symlink_to(self.elsewhere / "victim-symlink.txt")
        self.listeners = {}
        for name, address in (("unix_path", str(self.elsewhere / "s")), ("unix_abstract", "\0" + token("abstract"))):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(address)
            self.listeners[name] = Listener(sock)
        self.unix_path, self.unix_abstract = str(self.elsewhere / "s"), address[1:]
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind(("127.0.0.1", 0))
        self.listeners["tcp_loopback"] = Listener(sock)
        self.outside_before = len(outside.received)
        self.traced = subprocess.Popen(["/usr/bin/python3", "-c", TRACED], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True, user=as_user, group=as_user)
        self.traced.stdin.write(self.secrets["memory"] + "\n")
        self.traced.stdin.flush()
        self.traced_address = int(self.traced.stdout.readline())
        if as_user is not None:
            subprocess.run(["chown", "-R", f"{as_user}:{as_user}", str(self.top)], check=True)

    def arguments(self):
        return {"secret_file": str(self.elsewhere / "secret.txt"), "secret_from_parent": "elsewhere/secret.txt",
                "victim_absolute": str(self.elsewhere / "victim-absolute.txt"), "workspace": str(self.workspace),
                "unix_path": self.unix_path, "unix_abstract": self.unix_abstract, "home": str(self.home),
                "loopback_port": self.listeners["tcp_loopback"].socket.getsockname()[1],
                "outside": self.outside.address, "outside_port": self.outside.port, "mark": self.mark,
                "write_text": self.write_text, "secret_variable": "PV_EXPERIMENT_SECRET",
                "traced_pid": self.traced.pid, "traced_address": self.traced_address,
                "traced_size": len(self.secrets["memory"])}

    def environment(self):
        return {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "user",
                "PV_EXPERIMENT_SECRET": self.secrets["variable"], "PVISOR_HOME": str(self.top / "store")}

    def survivors(self):
        """Pids of processes that carry the mark in their command line, after a moment for those that are dying."""
        deadline = time.monotonic() + 0.5
        while True:
            found = []
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    try:
                        words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                    except OSError:
                        continue
                    if self.mark.encode() in words:
                        found.append(int(entry.name))
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def aftermath(self):
        """What the host looks like now: evidence, as plain data. Ends the survivors."""
        text = lambda path: path.read_text(errors="replace") if path.is_file() else None
        time.sleep(0.1)  # a listener's last line
        left = self.survivors()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return {"victims": {name: text(self.elsewhere / f"victim-{name}.txt") for name in self.victims},
                "alias": text(self.workspace / "alias.txt"), "written": text(self.workspace / "written.txt"),
                "inside": text(self.workspace / "inside.txt"), "survivors": len(left),
                "heard": {name: listener.received for name, listener in self.listeners.items()},
                "heard_outside": self.outside.received[self.outside_before:]}

    def expected(self):
        return {"inside": self.inside_token, "write_text": self.write_text, "mark": self.mark,
                "secrets": self.secrets, "victims": self.victims}

    def close(self):
        for listener in self.listeners.values():
            listener.close()
        self.traced.kill()
        self.traced.wait()
        subprocess.run(["chmod", "-R", "u+rwX", str(self.top)], capture_output=True)
        shutil.rmtree(self.top, ignore_errors=True)


def python():
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
