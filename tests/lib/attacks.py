# SPDX-License-Identifier: Apache-2.0
"""Attempts to get out of a boundary, as a program: attacks.py NAME [ARGUMENT...] prints "succeeded" or "refused ERRNO".

Each attack returns when it reached what it should not reach, and raises OSError when it was refused. It is run twice:
inside the boundary, and by the same person without one, where it must succeed (the twin): an attack that can never
succeed proves nothing. Standard library only: inside there is nothing else.
"""
import errno
import os
import stat
import sys
import time


class Later:
    """A module that is imported when it is first used: to start is most of what an attack costs."""

    def __init__(self, name):
        self.later = name

    def __getattr__(self, name):
        module = globals()[self.later] = __import__(self.later)
        return getattr(module, name)


array, contextlib, ctypes, fcntl, mmap = map(Later, ("array", "contextlib", "ctypes", "fcntl", "mmap"))
signal, socket, struct, subprocess, termios = map(Later, ("signal", "socket", "struct", "subprocess", "termios"))
ATTACKS = {}

# x86-64; those above 423 are the same on all architectures.
SYS = {"ptrace": 101, "mount": 165, "umount2": 166, "pivot_root": 155, "unshare": 272, "clone": 56, "clone3": 435,
       "setns": 308, "io_uring_setup": 425, "add_key": 248, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
       "open_by_handle_at": 304, "syslog": 103, "shmget": 29, "shmat": 30, "process_vm_readv": 310, "fsopen": 430,
       "open_tree": 428, "mount_setattr": 442, "userfaultfd": 323, "init_module": 175, "kexec_load": 246,
       "pidfd_open": 434, "pidfd_getfd": 438, "getpid": 39}
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def libc():
    return ctypes.CDLL(None, use_errno=True)


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def call(name, *arguments):
    """The raw system call; OSError when it fails."""
    number = SYS[name] if isinstance(name, str) else name
    converted = [ctypes.c_char_p(a) if isinstance(a, bytes) else a if isinstance(a, ctypes.Array) else ctypes.c_long(a)
                 for a in arguments]
    result = libc().syscall(ctypes.c_long(number), *converted)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def refuse(reason=errno.EACCES):
    """For what is refused without an errno: the thing is not there, or has no effect."""
    raise OSError(reason, os.strerror(reason))


# ---- files ----

def _read(path):
    with open(path, "rb") as f:
        f.read(1)


def _create(path):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(fd)
    os.unlink(path)


UP = "/".join([".."] * 40)


@attack
def read_absolute(path):
    _read(path)


@attack
def read_dotdot(path):
    _read(UP + path)


@attack
def read_self_root(path):
    _read("/proc/self/root" + path)


@attack
def read_init_root(path):
    _read("/proc/1/root" + path)


@attack
def read_thread_root(path):
    _read(f"/proc/self/task/{os.getpid()}/root" + path)


@attack
def read_by_new_link(path):
    with contextlib.suppress(FileExistsError):
        os.symlink(path, "new-link")
    _read("new-link")


@attack
def read_by_old_link(link):
    _read(link)


@attack
def read_directory(path):
    os.listdir(path)


@attack
def create_absolute(directory):
    _create(directory + "/created")


@attack
def create_dotdot(directory):
    _create(UP + directory + "/created")


@attack
def create_self_root(directory):
    _create("/proc/self/root" + directory + "/created")


@attack
def create_by_link(directory):
    with contextlib.suppress(FileExistsError):
        os.symlink(directory, "directory-link")
    _create("directory-link/created")


@attack
def overwrite(path):
    os.close(os.open(path, os.O_WRONLY))


@attack
def change_mode(path):
    os.chmod(path, os.stat(path).st_mode)


@attack
def hard_link(path):
    os.link(path, "hard-link")
    os.unlink("hard-link")


@attack
def rename_out(path):
    """A directory of the workspace to somewhere outside: nobody who helps with renames may do it."""
    os.makedirs("to-be-renamed/inside", exist_ok=True)
    os.rename("to-be-renamed", path + "/renamed")
    os.rename(path + "/renamed", "to-be-renamed")


@attack
def rename_in(path):
    os.rename(path, "stolen")
    os.rename("stolen", path)


@attack
def rename_by_magic_link(path):
    """By a link that means something else to a helper than to the caller."""
    os.rename("/proc/self/root" + path, "stolen")
    os.rename("stolen", path)


@attack
def open_by_handle(handle):
    """A file by its number, from any descriptor on its file system (the handle was made outside)."""
    kind, data = handle.split(":")
    raw = bytes.fromhex(data)
    buffer = ctypes.create_string_buffer(struct.pack("Ii", len(raw), int(kind)) + raw)
    last = OSError(errno.ENOENT, "")
    for mount in (".", "/usr", "/etc", "/"):
        try:
            fd = os.open(mount, os.O_RDONLY)
            os.read(call("open_by_handle_at", fd, buffer, os.O_RDONLY), 1)
            return
        except OSError as e:
            last = e
    raise last


@attack
def sysctl(name):
    os.close(os.open(f"/proc/sys/{name}", os.O_WRONLY))


@attack
def make_device(kind):
    mode, device = (stat.S_IFCHR, os.makedev(1, 5)) if kind == "char" else (stat.S_IFBLK, os.makedev(7, 0))
    with contextlib.suppress(FileNotFoundError):
        os.unlink("device")
    os.mknod("device", mode | 0o600, device)
    try:
        os.close(os.open("device", os.O_RDONLY | os.O_NONBLOCK))
    finally:
        os.unlink("device")


# ---- descriptors ----

@attack
def inherited_descriptor(kind):
    """Any descriptor above stderr that is open on a file or directory of somebody else's."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            mode = os.fstat(fd).st_mode
            if fd > 2 and (stat.S_ISDIR(mode) if kind == "directory" else stat.S_ISREG(mode)):
                target = os.readlink(f"/proc/self/fd/{fd}")
                if "pvisor-tests" in target and "secret" in target:
                    return
    refuse(errno.EBADF)


def _take_descriptor(s):
    s.settimeout(5)
    _data, control, _flags, _address = s.recvmsg(1, socket.CMSG_SPACE(4))
    for level, kind, data in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(data[:4])
            os.read(numbers[0], 1)
            return
    refuse(errno.EBADF)


@attack
def descriptor_over_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        _take_descriptor(s)


@attack
def descriptor_over_abstract(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name)
        _take_descriptor(s)


# ---- sockets ----

@attack
def unix_path(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)


@attack
def unix_abstract(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name)


@attack
def unix_datagram(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", path)


@attack
def session_bus():
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "")
    if not address.startswith("unix:path="):
        refuse(errno.ENOENT)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(address.removeprefix("unix:path="))


@attack
def ssh_agent():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.environ.get("SSH_AUTH_SOCK") or refuse(errno.ENOENT))


@attack
def fifo_write(path):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, b"x")
    os.close(fd)


@attack
def tcp(address, port):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
        s.settimeout(5)
        s.connect((address, int(port)))


@attack
def udp(address, port):
    """Somebody answers."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.connect((address, int(port)))
        s.send(b"x")
        s.recv(1)


@attack
def socket_family(family, kind, protocol="0"):
    socket.socket(int(family), int(kind), int(protocol)).close()


@attack
def socket_family_high_bits(family):
    """The kernel looks at 32 bits of the family; a filter that looked at 64 would let this through."""
    os.close(call(41, int(family) | 1 << 32, socket.SOCK_STREAM, 0))


# ---- processes ----

@attack
def signal_host(pid):
    os.kill(int(pid), 0)


@attack
def signal_everybody(pid):
    """Signal 0 to all: there is nobody but our own; the number outside means nothing here."""
    os.kill(-1, 0)
    os.kill(int(pid), 0)


@attack
def trace_host(pid):
    call("ptrace", 0x4206, int(pid), 0, 0)  # PTRACE_SEIZE; our end lets it go


@attack
def read_memory(pid, address):
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_ulong * 2)(int(address), 8)
    call("process_vm_readv", int(pid), local, 1, remote, 1, 0)


@attack
def host_process_link(pid, link):
    os.listdir(f"/proc/{pid}/{link}")


@attack
def host_process_file(pid, name):
    _read(f"/proc/{pid}/{name}")


@attack
def take_descriptor_of(pid):
    os.close(call("pidfd_getfd", call("pidfd_open", int(pid), 0), 0, 0))


@attack
def init_secrets(name):
    """Of the sandbox's own pid 1, which is pVisor's; outside, of our own parent."""
    pid = 1 if os.environ.get("INSIDE") else os.getppid()
    _read(f"/proc/{pid}/{name}")


@attack
def shared_memory(key):
    call("shmget", int(key), 0, 0)


@attack
def other_terminal(path):
    os.close(os.open(path, os.O_WRONLY | os.O_NOCTTY))


# ---- the kernel ----

@attack
def mount_tmpfs():
    os.makedirs("mount-point", exist_ok=True)
    call("mount", b"none", b"mount-point", b"tmpfs", 0, 0)
    call("umount2", b"mount-point", 2)


@attack
def mount_bind(source):
    os.makedirs("mount-point", exist_ok=True)
    call("mount", os.fsencode(source), b"mount-point", 0, MS_BIND, 0)
    call("umount2", b"mount-point", 2)


@attack
def mount_new_interface():
    os.close(call("fsopen", b"tmpfs", 1))


@attack
def mount_clone_tree():
    os.close(call("open_tree", -100, b"/", 1 | 0o2000000))  # OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC


@attack
def remount_writable(path):
    """A read-only mount made writable, with the flags that it is locked to (nosuid, nodev) kept."""
    for flags in (0, 2 | 4, 2 | 4 | 8):
        with contextlib.suppress(PermissionError):
            call("mount", 0, os.fsencode(path), 0, MS_REMOUNT | MS_BIND | flags, 0)
            return
    refuse(errno.EPERM)


@attack
def unmount(path):
    call("umount2", os.fsencode(path), 2)


def _in_child(action):
    """Runs action in a child, so that a success changes nothing here; its errno comes back."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
        finally:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        refuse(code)


@attack
def new_user_namespace():
    _in_child(lambda: call("unshare", CLONE_NEWUSER))


@attack
def new_user_namespace_by_clone():
    pid = call("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def new_user_namespace_by_clone3():
    arguments = ctypes.create_string_buffer(struct.pack("8Q", CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
    pid = call("clone3", arguments, 64)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def new_namespace_without_user(flag):
    _in_child(lambda: call("unshare", int(flag)))


@attack
def join_namespace(kind):
    """One's own, of all namespaces the least: what is refused is the call."""
    fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    _in_child(lambda: call("setns", fd, 0))


def _become_root_of_namespaces(flags):
    uid, gid = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER | flags)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as f:
            f.write(text)


@attack
def uncover(workspace, path):
    """As root of namespaces of one's own: take the mounts off the workspace, bind and mount all that is there."""
    def work():
        _become_root_of_namespaces(CLONE_NEWNS)
        last = OSError(errno.EACCES, "")
        for place in (workspace, os.path.dirname(workspace), "/proc", "/tmp", "/"):
            for _layer in range(3):
                try:
                    call("umount2", os.fsencode(place), 2)
                except OSError as e:
                    last = e
            for read in (path, "/proc/1/root" + path, "/proc/self/root" + path):
                try:
                    _read(read)
                    return
                except OSError as e:
                    last = e
        raise last
    _in_child(work)


@attack
def remount_in_own_namespace(path):
    """A read-only mount that came along is locked; without this it could be made writable."""
    def work():
        _become_root_of_namespaces(CLONE_NEWNS)
        call("mount", 0, os.fsencode(path), 0, MS_REMOUNT | MS_BIND, 0)
        _create(path + "/created")
    _in_child(work)


@attack
def kernel_setting_of_own_namespace(name):
    """With a proc of one's own, in a pid namespace of one's own."""
    def work():
        _become_root_of_namespaces(CLONE_NEWNS | 0x20000000)
        pid = os.fork()
        if pid == 0:
            try:
                call("mount", b"proc", b"/tmp", b"proc", 0, 0)
                os.close(os.open(f"/tmp/sys/{name}", os.O_WRONLY))
                os._exit(0)
            except OSError as e:
                os._exit(e.errno)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            refuse(code)
    _in_child(work)


@attack
def control_groups_of_own_namespace():
    """The machine's, by way of a namespace of one's own: what the person may write there one may write, too."""
    def work():
        _become_root_of_namespaces(CLONE_NEWNS | 0x02000000)
        call("mount", b"cgroup2", b"/tmp", b"cgroup2", 0, 0)
        os.listdir("/tmp")
    _in_child(work)


@attack
def terminal_input():
    """Types a character for the shell that comes after."""
    fcntl.ioctl(0, termios.TIOCSTI, b"x")
    termios.tcflush(0, termios.TCIFLUSH)


@attack
def terminal_input_high_bits():
    if libc().ioctl(0, ctypes.c_ulong(termios.TIOCSTI | 1 << 32), b"x") < 0:
        refuse(ctypes.get_errno())
    termios.tcflush(0, termios.TCIFLUSH)


@attack
def io_uring():
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


@attack
def keyring():
    call("add_key", b"user", b"pvisor-test", b"x", 1, -3)  # the session's


@attack
def bpf_program():
    os.close(call("bpf", 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(100)), 72))


@attack
def perf_counter():
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0) + bytes(96))
    os.close(call("perf_event_open", attributes, 0, -1, -1, 0))


@attack
def kernel_log():
    call("syslog", 10, 0, 0)


@attack
def page_faults():
    os.close(call("userfaultfd", 1))


def _machine_code(code):
    """Runs these instructions; the result is what they leave in eax."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        refuse(-result)


@attack
def call_of_32_bits():
    _in_child(lambda: _machine_code(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3"))  # getpid by int 0x80


@attack
def call_of_x32():
    call(0x40000000 | SYS["getpid"])


@attack
def setuid_program(program):
    """What a set-user-id program runs as, seen in /proc while it waits for its input."""
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as child:
        time.sleep(0.2)
        with open(f"/proc/{child.pid}/status", encoding="ascii") as f:
            effective = next(line.split()[2] for line in f if line.startswith("Uid:"))
        child.kill()
    if int(effective) == os.geteuid():
        refuse(errno.EPERM)


@attack
def setuid_copy(program, uid):
    """Root gives a copy of a program its rights, becomes somebody else and runs it."""
    subprocess.run(["cp", program, "setuid-copy"], check=True)
    os.chmod("setuid-copy", 0o4755)
    os.chmod(".", 0o755)

    def run_it():
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
        out = subprocess.run(["./setuid-copy", "-u"], capture_output=True, check=True).stdout
        os._exit(0 if int(out) == 0 else errno.EPERM)

    _in_child(run_it)


@attack
def no_such_thing():
    """The probe of this program itself."""
    refuse(errno.ENOENT)


def main():
    name, *arguments = sys.argv[1:]
    try:
        ATTACKS[name](*arguments)
    except TimeoutError:  # a socket's
        print("refused by silence")
    except OSError as e:
        print("refused", errno.errorcode.get(e.errno, e.errno))
    else:
        print("succeeded")


if __name__ == "__main__":
    main()
