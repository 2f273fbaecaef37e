# SPDX-License-Identifier: Apache-2.0
"""A program killed at a system call of its own that the test chose: the same one each time, on a busy machine too."""
import ctypes
import os
import signal
import subprocess

TRACEME, CONTINUE_TO_CALL, SET_OPTIONS = 0, 24, 0x4200
SYSCALL_GOOD, EXIT_KILL = 1, 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def ptrace(request, pid, data=0):
    if libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def kill_at(args, calls, **options):
    """Runs args and kills it as it enters its call of that number (from 1): (code, stdout, stderr), -9 if it came there.

    Only the program's first thread counts and is killed so; what it forked goes on.
    """
    process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: ptrace(TRACEME, 0), **options)
    os.waitpid(process.pid, 0)  # stopped by its exec
    ptrace(SET_OPTIONS, process.pid, SYSCALL_GOOD | EXIT_KILL)
    stops, deliver = 0, 0
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
        stops += 1  # one on the way in, one on the way out
        if stops == 2 * calls - 1:
            process.kill()
            process.wait()
            break
    out, err = process.communicate()
    return process.returncode, out, err
