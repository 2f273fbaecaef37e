# SPDX-License-Identifier: Apache-2.0
"""Apply and undo, killed and failed at every system call that changes something, and raced by another program.

Where that would take too long, every so many calls are struck; PV_TEST_OFFSET=N strikes others. The work is done by programs beside the code (src/stage/crash_test.c, race_test.c); here is where and how often.
"""
import errno
import os
from pathlib import Path

import pytest

from conftest import TOP, pv_skip

PROGRAMS = Path(os.environ.get("PV_TEST_PROGRAMS", TOP / "build" / "src" / "stage"))
OFFSET = int(os.environ.get("PV_TEST_OFFSET", "0"))


@pytest.fixture
def program(run, temporary):
    """program(name, arguments...) runs a test program that must end well, and gives its words."""
    def call(name, *args, timeout):
        path = PROGRAMS / name
        if not path.exists():
            pv_skip(f"no {path}: it is built with the unit tests")
        result = run([path, *map(str, args)], env={"PVISOR_HOME": str(temporary / "store")}, timeout=timeout)
        assert result.code == 0, result.out + result.err
        return result.out
    return call


@pytest.fixture(params=["same", "across"])
def places(request, temporary, tmpfs):
    """Target and stage on one filesystem, where all goes by rename, and on two, where all is copied."""
    return (tmpfs, tmpfs) if request.param == "same" else (tmpfs, temporary)


def struck(program, places, act, which, kind, error=0, step=1):
    # Each copy beside the target is several calls more.
    if places[0] != places[1]:
        step *= 7
    first = 1 + OFFSET % step
    out = program("test-stage-crash", *places, act, which, kind, error, first, step, timeout=280)
    assert int(out.split()[0]) > 20, "there were calls to strike"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["all", "part", "settled"])
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_killed_at_every_call_it_recovers_wholly(program, places, act, which):
    struck(program, places, act, which, "kill")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind,error", [("kill", 0), ("once", errno.EIO)], ids=["kill", "once"])
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_many_files_on_several_threads_are_all_or_nothing(program, tmpfs, act, kind, error):
    struck(program, (tmpfs, tmpfs), act, "wide", kind, error, step=29)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["live", "live-end", "live-end-settled"])
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_killed_beside_a_run_the_next_one_or_the_runs_end_recovers_wholly(program, places, act, which):
    struck(program, places, act, which, "kill", step=2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["once", "from"])
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_one_call_that_fails_beside_a_run_leaves_all_or_nothing(program, places, act, kind):
    struck(program, places, act, "live", kind, errno.ENOSPC, step=5)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_one_call_that_fails_leaves_all_or_nothing(program, places, act, error):
    struck(program, places, act, "all", "once", error, step=3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_one_call_that_fails_among_settled_conflicts_leaves_all_or_nothing(program, places, act):
    struck(program, places, act, "settled", "once", errno.EIO, step=3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_when_everything_fails_from_some_call_on_the_next_command_mends_it(program, places, act, error):
    struck(program, places, act, "part", "from", error, step=3)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind,error", [("kill", 0), ("once", errno.EIO), ("from", errno.ENOSPC)], ids=["kill", "once", "from"])
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_without_exchange_by_link_and_rename(program, act, kind, error, temporary, tmpfs, environment):
    """The target's file system takes no flags in renameat2, as NFS and 9p."""
    environment["PV_TEST_NO_RENAME_FLAGS"] = str(tmpfs)
    struck(program, (tmpfs, temporary), act, "all", kind, error, step=3)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_killed_on_each_filesystem(program, filesystem, act):
    out = program("test-stage-crash", filesystem, filesystem, act, "all", "kill", 0, 1 + OFFSET % 9, 9,
                  timeout=280)
    assert int(out.split()[0]) > 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_what_another_program_writes_meanwhile_is_never_lost(program, places, act):
    out = program("test-stage-race", *places, act, 10, timeout=280)
    done, refused = int(out.split()[0]), int(out.split()[2])
    assert done > 0 and refused > 0, out


@pytest.mark.timeout(300)
@pytest.mark.parametrize("act", ["apply", "undo"])
def test_races_on_each_filesystem(program, filesystem, act):
    out = program("test-stage-race", filesystem, filesystem, act, 3, timeout=280)
    assert int(out.split()[0]) + int(out.split()[2]) > 5, out
