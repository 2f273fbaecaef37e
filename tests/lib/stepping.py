# SPDX-License-Identifier: Apache-2.0
"""A program killed at a system call of its own that the test chose: the same one each time, on a busy machine too."""
import ctypes
import os
import signal
import subprocess

TRACEME, CONTINUE_TO_CALL, SET_OPTIONS, GET_CALL = 0, 24, 0x4200, 0x420e
SYSCALL_GOOD, EXIT_KILL = 1, 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=0):
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


# Calls that change something on disk (x86-64): write, pwrite64, ftruncate, rename, mkdir, rmdir, link, unlink, symlink, chmod,
# fchmod, setxattr and its like, mkdirat, unlinkat, renameat, linkat, symlinkat, fchmodat, utimensat, renameat2; and openat,
# which may create.
CHANGES = {1, 18, 77, 82, 83, 84, 86, 87, 88, 90, 91, 188, 189, 190, 258, 263, 264, 265, 266, 268, 280, 316}
OPENAT, CREATE = 257, os.O_CREAT | os.O_TRUNC


def call_of(pid):
    """The call that the process is about to make: its number and its arguments."""
    info = (ctypes.c_uint64 * 11)()
    libc.ptrace(GET_CALL, pid, ctypes.c_void_p(ctypes.sizeof(info)), ctypes.cast(info, ctypes.c_void_p))
    return info[3], info[4:10]


def changes_something(pid):
    """Is the call that the process is about to make one of those? On other machines each may be."""
    number, arguments = call_of(pid)
    return os.uname().machine != "x86_64" or number in CHANGES or (number == OPENAT and arguments[2] & CREATE != 0)


def swaps(pid):
    """Is it about to exchange two files?"""
    info = (ctypes.c_uint64 * 11)()
    libc.ptrace(GET_CALL, pid, ctypes.c_void_p(ctypes.sizeof(info)), ctypes.cast(info, ctypes.c_void_p))
    return info[3] == 316 and info[8] == 2


def opens(name):
    """only, for act_at: is it about to open a file that exists, by this name relative to a directory?"""
    def is_about_to(pid):
        number, arguments = call_of(pid)
        if number != OPENAT or arguments[2] & CREATE:
            return False
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(arguments[1])
            return memory.read(len(name) + 1) == os.fsencode(name) + b"\0"
    return is_about_to


def kill_at(args, calls, only=None, **options):
    """Runs args and kills it as it enters its call of that number (from 1): (code, stdout, stderr), -9 if it came there.

    Only the program's first thread counts and is killed so; what it forked goes on. With only, a predicate of the process's
    id, calls for which it says no do not count.
    """
    def kill(process):
        process.kill()
        process.wait()
        return False

    return act_at(args, calls, kill, only, **options)


def act_at(args, calls, act, only=None, **options):
    """The same, but that act(process) is called while it stands there; it goes on unless that says False."""
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: ptrace(TRACEME, 0), **options)
    os.waitpid(process.pid, 0)  # stopped by its exec
    ptrace(SET_OPTIONS, process.pid, SYSCALL_GOOD | EXIT_KILL)
    entering, counted, deliver = False, 0, 0
    while True:
        ptrace(CONTINUE_TO_CALL, process.pid, deliver)
        _, status = os.waitpid(process.pid, 0)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        deliver = 0
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            if os.WSTOPSIG(status) != signal.SIGTRAP:  # that is an exec
                deliver = os.WSTOPSIG(status)
            continue
        entering = not entering  # one on the way in, one on the way out
        counted += bool(entering and (only is None or only(process.pid)))
        if entering and counted == calls:
            counted += 1
            if act(process) is False:
                break
    out, err = process.communicate()
    return process.returncode, out, err
