# SPDX-License-Identifier: Apache-2.0
"""Directories of the host are renamed in a staged view, which an overlay alone refuses, and by nobody's rights but the
caller's."""
import os
import subprocess

import pytest

from conftest import pv_skip
from lib import tree

pytestmark = pytest.mark.kernel

MODES = {"safe": ["--safe"], "staged": ["--stage"]}


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


RENAME = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"


def test_git_and_mv_move_directories(pvisor, workspace, mode):
    script = ("git mv src source && mv docs papers && ls -d source/util/list.c papers/guide.txt && git status --short &&"
              "! ls src docs 2>/dev/null")
    out = pvisor("run", "-q", *mode, "--", "sh", "-c", script, cwd=workspace).out.splitlines()
    assert out[:2] == ["papers/guide.txt", "source/util/list.c"]
    assert "R  src/main.c -> source/main.c" in out
    assert (workspace / "src/main.c").exists() and not (workspace / "source").exists()


def test_it_is_one_rename_and_no_copy(pvisor, workspace, mode):
    """A program that does not copy on EXDEV: the file that it has open goes along, links stay links."""
    program = ("import os\n"
               "os.link('src/main.c', 'src/util/other-name')\n"
               "f = open('src/main.c', 'r+')\n"
               "os.rename('src', 'elsewhere')\n"
               "f.write('changed')\nf.flush()\n"
               "print(open('elsewhere/main.c').read()[:7], open('elsewhere/util/other-name').read()[:7])\n"
               "print(os.path.exists('src'))")
    out = pvisor("run", "-q", *mode, "--", "/usr/bin/python3", "-c", program, cwd=workspace).out
    assert out == "changed changed\nFalse\n"


def test_home_is_renamed_in_too(pvisor, workspace, home):
    (home / "tool" / "bin").mkdir(parents=True)
    (home / "tool" / "bin" / "x").write_text("x")
    pvisor("run", "-q", "--safe", "--", "/usr/bin/python3", "-c", RENAME, home / "tool", home / "tool.old", cwd=workspace)
    assert (home / "tool" / "bin" / "x").exists()


def test_applied_it_equals_a_direct_run(pvisor, make_workspace, temporary):
    """Contents, modes, links and times of what moved; over and over, into each other and back."""
    script = ("mkdir new && mv src new/src && mv new/src/util docs/util && mv docs new/docs && chmod 700 new/docs &&"
              "mv new/docs/util back && mv data other && mv other/blob.bin . && rmdir other && mv new newer")
    staged, direct = make_workspace(git=False, name="staged"), make_workspace(git=False, name="direct")
    for place in (staged, direct):
        subprocess.run(["find", ".", "-exec", "touch", "-h", "-d", "2001-01-01", "{}", "+"], cwd=place, check=True)
    pvisor("run", "-q", "--safe", "--", "sh", "-ec", script, cwd=staged)
    pvisor("apply", "last", "--all", "--keep-times", cwd=staged)
    subprocess.run(["sh", "-ec", script], cwd=direct, check=True)
    left, right = tree.snapshot(staged), tree.snapshot(direct)
    assert left.keys() == right.keys()
    for name, entry in left.items():
        other = right[name]
        assert (entry.kind, entry.mode, entry.content, entry.target, entry.links) == \
               (other.kind, other.mode, other.content, other.target, other.links), name
        if entry.kind == "file":
            assert entry.mtime_ns == other.mtime_ns, name


def test_errors_are_the_callers_own(pvisor, workspace, mode):
    program = ("import errno, os\n"
               "def t(a, b):\n    try:\n        os.rename(a, b)\n        print('done')\n"
               "    except OSError as e:\n        print(errno.errorcode[e.errno])\n"
               "os.mkdir('full'); os.mkdir('full/x')\n"
               "t('src', 'full'); t('src', 'README.md'); t('src', 'src/util/x'); t('none', 'y'); t('src', 'no/where')\n"
               "t('/usr/share', 'z'); t('src', '/usr/share/src'); t('.', 'w'); t('src/..', 'v')")
    out = pvisor("run", "-q", *mode, "--", "/usr/bin/python3", "-c", program, cwd=workspace).out.split()
    assert out[:5] == ["ENOTEMPTY", "ENOTDIR", "EINVAL", "ENOENT", "ENOENT"]
    assert all(e in ("EXDEV", "EROFS", "EACCES") for e in out[5:7]) and out[7:] == ["EBUSY", "EBUSY"]


def test_an_unwritable_directory_keeps_what_it_has(pvisor, workspace, is_root, mode):
    """The helper may do no more than the caller."""
    (workspace / "closed" / "inner").mkdir(parents=True)
    (workspace / "closed" / "inner" / "file").write_text("x")
    os.chmod(workspace / "closed", 0o555)
    try:
        inside = pvisor("run", "-q", *mode, "--", "/usr/bin/python3", "-c", RENAME, "closed/inner", "out",
                        cwd=workspace, code=None).code
        direct = subprocess.run(["/usr/bin/python3", "-c", RENAME, "closed/inner", "out"], cwd=workspace, check=False,
                                capture_output=True).returncode
        assert (direct == 0) == (inside == 0) == is_root
    finally:
        os.chmod(workspace / "closed", 0o755)


@pytest.mark.root
def test_a_caller_that_gave_up_rights_gets_no_more(pvisor, workspace, mode):
    """Root's command becomes somebody else: what it may not rename, the helper does not rename for it."""
    program = ("import os, sys\n"
               "os.chmod('.', 0o755)\n"
               "os.makedirs('theirs'); os.chown('theirs', 65534, 65534)\n"
               "pid = os.fork()\n"
               "if pid == 0:\n"
               "    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
               "    for target in ('elsewhere', 'theirs/src'):\n"
               "        try:\n            os.rename('src', target)\n            print('done')\n"
               "        except OSError as e:\n            print(e.errno)\n"
               "    sys.stdout.flush(); os._exit(0)\n"
               "os.waitpid(pid, 0)\n"
               "os.rename('src', 'elsewhere'); print('root can')")
    out = pvisor("run", "-q", *mode, "--", "/usr/bin/python3", "-c", program, cwd=workspace).out
    assert out == "13\n13\nroot can\n"


@pytest.mark.root
def test_a_caller_with_other_rights_is_helped_by_those(pvisor, workspace, mode):
    """Somebody else's own directory, renamed by that somebody."""
    os.chmod(workspace, 0o755)
    os.makedirs(workspace / "theirs" / "a" / "b")
    for path in ("theirs", "theirs/a", "theirs/a/b"):
        os.chown(workspace / path, 65534, 65534)
    program = ("import os\n"
               "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
               "os.chdir('theirs'); os.rename('a', 'c'); s = os.stat('c/b'); print(s.st_uid, os.listdir('.'))")
    out = pvisor("run", "-q", *mode, "--", "/usr/bin/python3", "-c", program, cwd=workspace).out
    assert out == "65534 ['c']\n"


@pytest.mark.parametrize("options", [["--stage", "--allow-userns"], ["--safe", "--allow-userns"]])
def test_a_program_with_a_sandbox_of_its_own_is_not_helped_around_it(pvisor, workspace, options):
    """In another user namespace ids and rights mean something else: the kernel alone decides there."""
    script = (f"unshare -Ur true || exit 77; unshare -Ur /usr/bin/python3 -c '{RENAME}' src elsewhere 2>&1 |"
              f"grep -o 'Errno 18'; ls; /usr/bin/python3 -c '{RENAME}' src elsewhere && ls")
    result = pvisor("run", "-q", *options, "--", "sh", "-c", script, cwd=workspace, code=None)
    if result.code == 77:
        pv_skip("no user namespace within another here")
    if result.code == 5 and "--safe" in options:
        pv_skip(f"--safe refuses this here: {result.err.splitlines()[0]}")
    words = result.out.split()
    assert words[:2] == ["Errno", "18"] and words.count("src") == 1 and words.count("elsewhere") == 1
