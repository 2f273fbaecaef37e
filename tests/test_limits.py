# SPDX-License-Identifier: Apache-2.0
"""Resource limits: each one holds, and the same act goes through without it."""
import re
from pathlib import Path

import pytest

from conftest import pv_skip
from lib import jobs

pytestmark = pytest.mark.kernel

FORKS = """
import os, signal, time
n, pids = 0, []
try:
    while n < %d:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
        n += 1
except OSError as e:
    print("refused", e.errno)
for pid in pids:
    os.kill(pid, 9)
print(n)
"""


@pytest.fixture
def python(pvisor, workspace):
    """python(program, *options, **as for run) -> the run of it under --safe with these options."""

    def call(program, *options, **more):
        return pvisor("run", "-q", "--safe", *options, "--", "/usr/bin/python3", "-c", program, cwd=workspace, **more)

    return call


@pytest.fixture
def bundle(environment):
    """The bundle of the newest job."""
    return lambda: jobs.bundle(jobs.job_dirs(environment)[-1])


@pytest.fixture
def resources(bundle):
    """{limit: observation} of the newest job."""
    return lambda: {o["control"]: o for o in bundle()["executor_observations"] if o["dimension"] == "resources"}


PID_MAX = Path("/proc/sys/kernel/pid_max")
UNHELD = "--max-processes: nothing holds it here"


@pytest.fixture
def without_groups(run, pv, workspace):
    """The run of a program under --safe where no control group can be made: root only."""
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'

    def call(program, *options):
        return run(["unshare", "--mount", "sh", "-c", hide, "sh", pv, "run", "-q", "--safe", *options, "--",
                    "/usr/bin/python3", "-c", program], cwd=workspace)

    return call


@pytest.mark.root
def test_root_without_a_control_group_is_held_or_refused(without_groups, resources):
    """RLIMIT_NPROC does not hold root: pid_max does, where it is the pid namespace's own (Linux 6.14). The machine's own
    setting, which root may write in any namespace, is never taken for it."""
    before = PID_MAX.read_text()
    assert without_groups(FORKS % 450).out == "450\n"
    result = without_groups(FORKS % 450, "--max-processes", "20")
    assert PID_MAX.read_text() == before
    if result.code == 5:
        assert result.out == "" and UNHELD in result.err and "hint: a control group" in result.err
        return
    assert result.code == 0 and result.out.startswith("refused") and int(result.out.split()[-1]) <= 350
    assert "pid_max of the pid namespace" in resources()["processes"]["mechanism"]


def test_a_fork_bomb_is_held(python, resources, is_root):
    assert python(FORKS % 450).out == "450\n"
    out = python(FORKS % 450, "--max-processes", "20").out.split()
    limit = resources()["processes"]
    assert limit["installed"] and limit["level"] == "enforced"
    # Root without a control group is held by the pid namespace, which lets the first 300 go.
    assert int(out[-1]) <= (350 if is_root and "pid_max" in limit["mechanism"] else 24)
    assert out[0] == "refused"


def test_a_bomb_that_goes_on_ends_with_the_run(pvisor, workspace, marker):
    """It forks as fast as it can, for ever; the run's time limit ends it all."""
    script = f'bomb() {{ : {marker}; bomb | bomb & }}; bomb; sleep 30'
    pvisor("run", "-q", "--safe", "--max-processes", "40", "--timeout", "2s", "--", "bash", "-c", script,
           cwd=workspace, code=124, timeout=30)


def test_memory_is_held(python, resources, bundle):
    program = "x = bytearray(400 << 20); print(len(x))"
    assert python(program).out == f"{400 << 20}\n"
    result = python(program, "--memory", "200MiB", code=None)
    assert result.code != 0 and result.out == ""
    limit = resources()["memory"]
    assert bundle()["resources"]["effective"]["memory_bytes"] == 200 << 20
    # What holds each process alone is not called enforced.
    assert limit["level"] == ("enforced" if limit["mechanism"].startswith("cgroup") else "cooperative")


def test_open_files_are_held(python, resources):
    program = ("import os\nn = 0\ntry:\n    while n < 500:\n        os.open('/dev/null', 0)\n        n += 1\n"
               "except OSError:\n    pass\nprint(n)")
    assert python(program).out == "500\n"
    assert int(python(program, "--max-open-files", "64").out) < 64
    assert resources()["open-files"]["level"] == "enforced"


def test_file_size_is_held(python, resources, bundle):
    program = ("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ntry:\n    open('big', 'wb').write(bytes(1 << 21))"
               "\nexcept OSError as e:\n    print(e.errno)\nelse:\n    print('written')")
    assert python(program).out == "written\n"
    assert python(program, "--max-file-size", "1MiB").out == "27\n"
    assert bundle()["resources"]["effective"]["max_file_bytes"] == 1 << 20
    assert resources()["file-size"]["level"] == "enforced"


def test_cpu_time_ends_a_process(pvisor, workspace, resources):
    pvisor("run", "-q", "--safe", "--max-cpu-time", "1s", "--", "bash", "-c", "while :; do :; done", cwd=workspace,
           code=128 + 24)
    assert resources()["cpu-time"]["level"] == "cooperative"


def test_limits_cannot_be_raised_again(pvisor, workspace):
    result = pvisor("run", "-q", "--safe", "--max-open-files", "64", "--", "bash", "-c",
                    "ulimit -n 65 2>/dev/null && echo raised; ulimit -n", cwd=workspace)
    assert result.out == "64\n"


def test_strict_refuses_a_limit_that_holds_no_more_than_each_process(pvisor, workspace, resources):
    result = pvisor("run", "-q", "--safe", "--strict", "--max-cpu-time", "1h", "--", "true", cwd=workspace, code=5)
    assert "resources" in result.err


def test_no_core_dumps(pvisor, workspace):
    """Neither a file in the stage nor a host program that is handed one."""
    result = pvisor("run", "-q", "--safe", "--", "bash", "-c", "ulimit -c unlimited; ulimit -c", cwd=workspace,
                    code=None)
    assert result.out in ("0\n", "1\n")


def test_the_record_tells_what_was_asked_and_what_holds(pvisor, workspace, bundle):
    pvisor("run", "-q", "--safe", "--max-processes", "500", "--max-open-files", "100", "--", "true", cwd=workspace)
    record = bundle()["resources"]
    assert record["requested"]["max_processes"] == 500 and record["requested"]["max_open_files"] == 100
    assert record["effective"]["max_processes"] >= 500 and record["effective"]["max_open_files"] == 100
    assert record["effective"]["memory_bytes"] is None


@pytest.mark.parametrize("options", [[], ["--stage", "--filesystem", "host"], ["--safe"]], ids=["plain", "host", "safe"])
def test_a_control_group_that_can_be_left_enforces_nothing(pvisor, workspace, resources, options, is_root):
    """Where the host's control groups are shown, whoever may write them walks out, or raises the limit."""
    leave = ("import os\nfor part in open('/proc/self/cgroup'):\n    if ':pids:' in part or part[0] == '0':\n"
             "        place = '/sys/fs/cgroup/' + ('pids' if 'pids' in part else 'unified' if os.path.isdir("
             "'/sys/fs/cgroup/unified') else '')\n        try: open(place + '/cgroup.procs', 'w').write('0')\n"
             "        except OSError: pass\nprint(open('/proc/self/cgroup').read())")
    out = pvisor("run", "-q", *options, "--max-processes", "60", "--", "/usr/bin/python3", "-c", leave, cwd=workspace,
                 code=None).out
    observation = resources().get("processes")
    if not observation or not observation["mechanism"].startswith("cgroup"):
        (pv_skip if is_root else pytest.skip)("no control group can be made here")
    assert ("pvisor-" in out) == (observation["level"] == "enforced") == (options == ["--safe"])


# ---- what is left to the person, unasked ----

INOTIFY = """
import ctypes, sys, time
inotify, n = ctypes.CDLL(None).inotify_init1, 0
while n < %s and inotify(0) >= 0:
    n += 1
print("has", n, "of them", flush=True)
time.sleep(%d)
"""


def test_the_person_keeps_some_watches(background, run):
    """inotify(7) counts by user: whoever took all of them blinded the person's editor, and `pvisor logs -f`."""
    job = background("--safe", "--", "/usr/bin/python3", "-c", INOTIFY % (100000, 600))
    job.await_output("of them")
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    assert 0 < int(re.search(r"has (\d+) of", job.output())[1]) <= most - most // 4
    assert "has 1 of" in run(["/usr/bin/python3", "-c", INOTIFY % (1, 0)]).out


def test_the_person_keeps_some_processes(pvisor, run, workspace):
    outside = run(["bash", "-c", "ulimit -u"]).out.strip()
    inside = pvisor("run", "-q", "--safe", "--", "bash", "-c", "ulimit -u; ulimit -u %s && echo raised" % outside,
                    cwd=workspace, code=None).out.split()
    wanted = outside if outside == "unlimited" else str(int(outside) - int(outside) // 8)
    assert inside == ([wanted, "raised"] if outside == "unlimited" else [wanted])


def meminfo():
    return {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}


def test_private_files_are_bounded_by_what_memory_is_free(pvisor, workspace):
    """/tmp, HOME's layer and all else that is thrown away are one file system in memory, and what lies there no ending
    of a single process frees."""
    before = meminfo()
    out = pvisor("run", "-q", "--safe", "--", "df", "-k", "--output=size", "/tmp", "/dev/shm", cwd=workspace).out
    sizes = {int(word) for word in out.split()[1:]}
    free = max(m["MemAvailable"] + m["SwapFree"] for m in (before, meminfo()))
    assert len(sizes) == 1
    assert max(sizes) <= min(before["MemTotal"] // 2, free * 3 // 4 + (256 << 10)) + 4
