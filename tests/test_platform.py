# SPDX-License-Identifier: Apache-2.0
"""What pVisor stands on, seen without pVisor: when one of these fails, the machine is the reason for what else does."""
import ctypes
import subprocess

import pytest

pytestmark = [pytest.mark.kernel, pytest.mark.userns]


def unshare(script, cwd):
    return subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script], cwd=cwd,
                          capture_output=True, text=True)


def test_overlayfs_mounts_in_a_user_namespace(temporary):
    done = unshare("""
        mkdir lower upper work view; echo old >lower/file
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr,volatile overlay view
        echo new >view/file; rm -f view/none; cat lower/file upper/file
        """, temporary)
    assert (done.stdout, done.stderr) == ("old\nnew\n", "")


def test_user_xattrs_on_a_real_filesystem(temporary):
    done = unshare("touch f && setfattr -n user.overlay.test -v 1 f && getfattr --only-values -n user.overlay.test f",
                   temporary)
    assert done.stdout == "1", done.stderr


def test_landlock_is_there():
    landlock_create_ruleset, only_version = 444, 1
    assert ctypes.CDLL(None).syscall(landlock_create_ruleset, None, 0, only_version) >= 1
