# SPDX-License-Identifier: Apache-2.0
"""Access lists (acl(5)) that name other users and groups: they are the host's whoever decides, and do not hinder deciding."""
import os
import subprocess

import pytest


def lists(top):
    done = subprocess.run(["getfacl", "-R", "-n", "."], cwd=top, check=True, capture_output=True, text=True)
    return dict(part.split("\n", 1) for part in sorted(done.stdout.strip().split("\n\n")))


@pytest.fixture
def shared(make_workspace):
    """A directory and a file that were shared with user 1 and group 2, and hand that down."""
    top = make_workspace({"d/old": "old\n", "f": "f\n", "plain": "p\n"}, git=False, name="shared")
    for what in (["-m", "u:1:rw,g:2:r", "f"], ["-m", "u:1:rwx", "d"], ["-d", "-m", "u:1:rwx,g:3:rx", "d"], ["-m", "u:1:r", "d/old"]):
        subprocess.run(["setfacl", *what], cwd=top, check=True)
    return top


SCRIPT = "echo more >>f; echo more >>d/old; mkdir d/new; echo x >d/new/x; echo y >d/y; chmod 640 f; rm plain"


@pytest.mark.parametrize("backend", ["kernel", "fuse"])
def test_they_are_kept_by_apply_and_undo(pvisor, shared, request, backend):
    if backend == "fuse":
        request.getfixturevalue("fuse")
    before = lists(shared)
    pvisor("run", "--stage", "--stage-backend", backend, "--", "sh", "-euc", SCRIPT, cwd=shared)
    assert "conflict" not in pvisor("review", cwd=shared).out
    pvisor("apply", "--all", cwd=shared)
    after = lists(shared)
    assert "user:1:rw-" in after["# file: f"] and "group:2:r--" in after["# file: f"]
    assert after["# file: d"] == before["# file: d"] and "user:1:r--" in after["# file: d/old"]
    assert "default:user:1:rwx" in after["# file: d/new"] and "group:3:r-x" in after["# file: d/new/x"]
    pvisor("undo", cwd=shared)
    assert lists(shared) == before
    pvisor("apply", "--path", "d", cwd=shared)
    pvisor("apply", "--all", cwd=shared)
    assert lists(shared) == after


def test_over_fuse_they_are_read_and_written_like_others(pvisor, shared, fuse):
    """What names people that are not inside is not shown, and neither lost nor in the way: read, changed, copied, removed."""
    own = os.getuid()
    told = pvisor("run", "-q", "--stage", "--stage-backend", "fuse", "--", "sh", "-euc", f"""
        getfacl -n d f
        setfacl -m u:{own}:r f; setfacl -d -m u:{own}:rx d; cp -a d d2; setfacl -b d/old; mkdir d/new; getfacl -n d/new""",
                  cwd=shared).out
    assert "# file: d" in told and "# file: f" in told and f"default:user:{own}:r-x" in told
    pvisor("apply", "--all", cwd=shared)
    after = lists(shared)
    assert f"user:{own}:r--" in after["# file: f"] and "user:1:rw-" in after["# file: f"] and "group:2:r--" in after["# file: f"]
    for directory in ("# file: d", "# file: d/new"):
        assert "default:user:1:rwx" in after[directory] and f"default:user:{own}:r-x" in after[directory]
    assert "user:1" not in after["# file: d/old"] and f"default:user:{own}:r-x" in after["# file: d2"]


def test_they_are_kept_on_another_filesystem(pvisor, shared, tmpfs, environment):
    environment["PVISOR_HOME"] = str(tmpfs / "store")
    before = lists(shared)
    pvisor("run", "--stage", "--", "sh", "-euc", SCRIPT, cwd=shared)
    pvisor("apply", "--all", cwd=shared)
    assert "default:user:1:rwx" in lists(shared)["# file: d/new"]
    pvisor("undo", cwd=shared)
    assert lists(shared) == before


def test_they_are_kept_beside_a_run(pvisor, shared, background):
    before = lists(shared)
    job = background("--stage", "--", "sh", "-euc",
                     f"mkfifo /tmp/go; {SCRIPT}; echo ready; read go </tmp/go; echo again >>f; echo again >>d/old", cwd=shared)
    job.await_output("ready")
    pvisor("apply", "--all", cwd=shared)
    landed = lists(shared)
    assert "default:user:1:rwx" in landed["# file: d/new"]
    pvisor("undo", cwd=shared)
    assert lists(shared) == before
    pvisor("apply", "--all", cwd=shared)
    # The job may end before the one that lets it.
    pvisor("exec", job.id, "--", "sh", "-c", "echo >/tmp/go", cwd=shared, code=None)
    assert job.process.wait(60) == 0
    pvisor("apply", "--all", cwd=shared)
    assert lists(shared) == landed and (shared / "f").read_text() == "f\nmore\nagain\n"
    pvisor("undo", cwd=shared)
    pvisor("undo", cwd=shared)
    assert lists(shared) == before


def test_a_host_that_shares_a_file_meanwhile_is_a_conflict(pvisor, shared):
    pvisor("run", "--stage", "--", "sh", "-euc", SCRIPT, cwd=shared)
    subprocess.run(["setfacl", "-m", "u:2:r", "f"], cwd=shared, check=True)
    had = lists(shared)
    refused = pvisor("apply", "--all", cwd=shared, code=3)
    assert "f: its mode, owner or attributes were changed on the host" in refused.err
    assert lists(shared) == had
