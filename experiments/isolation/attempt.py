#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every configuration runs inside: tries what an agent may and what it must not, prints what it really got.

One argument: the base64 of a JSON object of names and addresses (the experiment makes it). It knows none of the secrets
that it looks for: whoever started it recognises them in what it prints. Each attempt is bounded in time.
"""
import base64
import ctypes
import json
import os
import socket
import subprocess
import sys
import time

SECONDS = 2.0


def read(path):
    with open(path, "rb") as file:
        return file.read(4096).decode(errors="replace")


def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return "wrote"


def write_and_read_back(path, text):
    write(path, text)
    return read(path)


def socketpair():
    a, b = socket.socketpair()
    a.sendall(b"through a socket pair")
    return b.recv(64).decode()


def send(family, address, text):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(SECONDS)
        s.connect(address)
        s.sendall(text.encode())
        s.shutdown(socket.SHUT_WR)
        return s.recv(64).decode(errors="replace")


def leave_daemon(mark):
    """Double fork and setsid; the grandchild does nothing but exist under a name that can be looked for."""
    code = "import sys, time; time.sleep(float(sys.argv[2]))"
    child = os.fork()
    if child == 0:
        os.setsid()
        subprocess.Popen([sys.executable, "-c", code, mark, "20"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=True)
        os._exit(0)
    os.waitpid(child, 0)
    return "started"


def read_memory(pid, address, size):
    """Stops a process by ptrace(2) and reads its memory: PTRACE_ATTACH 16, PTRACE_DETACH 17."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(16, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        time.sleep(0.05)
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size).decode(errors="replace")
    finally:
        libc.ptrace(17, pid, None, None)


def attempts(a):
    inside = os.getcwd()
    yield "inside_read", lambda: read("inside.txt")
    yield "inside_write", lambda: write_and_read_back("written.txt", a["write_text"])
    yield "inside_socketpair", socketpair
    yield "read_absolute", lambda: read(a["secret_file"])
    yield "read_symlink", lambda: read("link-to-secret")
    yield "read_proc_root", lambda: read("/proc/self/root" + a["secret_file"])
    yield "read_parent", lambda: read(os.path.join("..", a["secret_from_parent"]))
    yield "write_absolute", lambda: write(a["victim_absolute"], a["write_text"])
    yield "write_symlink", lambda: write("link-to-victim", a["write_text"])
    yield "write_workspace_alias", lambda: write(os.path.join(a["workspace"], "alias.txt"), a["write_text"])
    yield "unix_path", lambda: send(socket.AF_UNIX, a["unix_path"], a["mark"])
    yield "unix_abstract", lambda: send(socket.AF_UNIX, "\0" + a["unix_abstract"], a["mark"])
    yield "tcp_loopback", lambda: send(socket.AF_INET, ("127.0.0.1", a["loopback_port"]), a["mark"])
    if a["outside"]:
        yield "tcp_outside", lambda: send(socket.AF_INET, (a["outside"], a["outside_port"]), a["mark"])
    yield "environment_secret", lambda: os.environ[a["secret_variable"]]
    yield "home_secret", lambda: read(os.path.join(a["home"], ".ssh", "id_ed25519"))
    yield "ptrace", lambda: read_memory(a["traced_pid"], a["traced_address"], a["traced_size"])
    yield "daemon", lambda: leave_daemon(a["mark"])
    yield "where", lambda: inside


def main():
    arguments = json.loads(base64.b64decode(sys.argv[1]))
    for name, act in attempts(arguments):
        try:
            got, error = act(), None
        except BaseException as e:  # whatever happens is an outcome, and the next attempt is made
            got, error = None, f"{type(e).__name__}: {e}"
        print("ATTEMPT " + json.dumps({"name": name, "got": got, "error": error}), flush=True)


if __name__ == "__main__":
    main()
