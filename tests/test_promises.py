# SPDX-License-Identifier: Apache-2.0
"""What pVisor promises about the stage and the target: one test, named like it, each."""
import json
import mmap
import os
import shutil
import signal
import subprocess
import time

import pytest

from lib import filesystems, tree

pytestmark = pytest.mark.kernel

# A little of everything that a command does to files.
SCRIPT = r"""
echo more >> README.md
printf 'int main(void) { return 1; }\n' > src/main.c
mkdir -p new/deep/er && echo x > new/deep/er/x && ln -s ../deep new/link
rm docs/guide.txt
mv src/util src/tools
echo a > linked && ln linked new/linked
chmod 755 README.md; mkdir -m 700 private; echo p > private/p
truncate -s 1M sparse; printf end >> sparse
setfattr -n user.note -v hello README.md
touch -d '2001-02-03 04:05:06' old
mkfifo pipe
rm LICENSE; mkdir LICENSE; echo x > LICENSE/x
ln -sfn src link-to-src
printf 'bytes' > "$(printf 'n\n\303\251 \377')"
"""

FILES = {
    "README.md": "readme\n",
    "LICENSE": "license\n",
    "src/main.c": "int main(void) { return 0; }\n",
    "src/util/a.c": "a\n",
    "src/util/b.c": "b\n",
    "docs/guide.txt": "guide\n",
    "docs/other.txt": "other\n",
}


@pytest.fixture
def project(make_workspace):
    return make_workspace(FILES, git=False)


@pytest.fixture
def staged(pvisor, project):
    """staged(script) runs it staged in the project."""
    def call(script, code=0):
        return pvisor("run", "--stage", "--", "sh", "-euc", script, cwd=project, code=code)
    return call


def take_all(pvisor, project, code=0):
    return pvisor("apply", "--all", "--ignored", "--git-raw", "--keep-times", cwd=project, code=code)


def contents(where):
    """A snapshot without what cannot be the same in two runs: inode times now, and directories' own times."""
    return {name: (e.kind, e.mode, e.uid, e.gid, e.size, e.content, e.target, e.xattrs, e.links, e.sparse,
                   e.mtime_ns if e.kind == "file" and e.mtime_ns < 1_500_000_000 * 10**9 else 0)
            for name, e in tree.snapshot(where).items()}


# ---- before apply ----

@pytest.mark.parametrize("ending", ["true", "exit 3", "kill -9 $$", "kill -TERM $$"])
def test_the_target_is_unchanged_until_apply_however_the_command_ends(staged, project, ending):
    before = tree.snapshot(project)
    staged(SCRIPT + ending, code=None)
    tree.assert_same(before, tree.snapshot(project))


def test_the_target_is_unchanged_when_the_command_runs_out_of_time(pvisor, project):
    before = tree.snapshot(project)
    pvisor("run", "--stage", "--timeout", "1s", "--", "sh", "-c", SCRIPT + "sleep 60", cwd=project, code=124)
    tree.assert_same(before, tree.snapshot(project))


def test_the_target_is_unchanged_when_pvisor_is_killed(pv, project, environment):
    before = tree.snapshot(project)
    with subprocess.Popen([pv, "run", "--stage", "--", "sh", "-c", SCRIPT + "echo done; sleep 60"], cwd=project,
                          env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"done\n"
        job.kill()
        assert job.stdout.read() == b""  # all that could write to it are dead
    assert job.returncode == -signal.SIGKILL
    tree.assert_same(before, tree.snapshot(project))


def test_the_command_reads_its_own_writes(staged, project):
    staged("""
        echo one > a; test "$(cat a)" = one
        echo two >> README.md; test "$(tail -1 README.md)" = two
        rm LICENSE; test ! -e LICENSE; ! ls | grep -q LICENSE
        mv src source; test -f source/util/a.c; test ! -e src
        mkdir -p src/util; test "$(ls src/util | wc -l)" = 0
        ln README.md hard; echo three >> hard; test "$(tail -1 README.md)" = three
        chmod 600 a; test "$(stat -c %a a)" = 600
    """)


def test_review_shows_the_net_effect(staged, pvisor, project):
    staged("echo x > a; rm a; echo y > b; echo z >> b; mv README.md r; mv r README.md; rm LICENSE; echo c >> src/main.c")
    told = json.loads(pvisor("review", "--json", cwd=project).out)
    text = json.dumps(told)
    assert '"b"' in text and '"LICENSE"' in text and '"src/main.c"' in text
    assert '"a"' not in text and '"README.md"' not in text


# ---- apply ----

def test_applying_everything_equals_running_directly(staged, pvisor, run, project, temporary):
    direct = temporary / "direct"
    shutil.copytree(project, direct, symlinks=True)
    assert run(["sh", "-euc", SCRIPT], cwd=direct).code == 0
    staged(SCRIPT)
    take_all(pvisor, project)
    assert contents(project) == contents(direct)


def test_times_of_files_are_kept_when_asked_for(staged, pvisor, project):
    staged("echo x > a; touch -d '2003-03-03 03:03:03.123456789' a; touch -d '2004-04-04' README.md")
    take_all(pvisor, project)
    assert (project / "a").stat().st_mtime_ns % 10**9 == 123456789
    assert time.gmtime((project / "README.md").stat().st_mtime).tm_year == 2004


def test_applied_files_are_new_to_a_build_but_changed_modes_are_not(staged, pvisor, project):
    old = time.time() - 86400
    os.utime(project / "LICENSE", (old, old))
    staged("echo x > a; touch -d '2003-03-03' a; chmod 600 LICENSE")
    start = time.time() - 5
    pvisor("apply", "--all", cwd=project)
    assert (project / "a").stat().st_mtime > start
    assert abs((project / "LICENSE").stat().st_mtime - old) < 1


def test_a_host_file_with_several_links_is_split_and_review_says_so_before(staged, pvisor, project):
    os.link(project / "README.md", project / "second")
    staged("echo more >> README.md")
    assert "link" in pvisor("review", cwd=project).out
    take_all(pvisor, project)
    assert (project / "README.md").read_text() == "readme\nmore\n"
    assert (project / "second").read_text() == "readme\n"


def test_new_hard_links_are_hard_links(staged, pvisor, project):
    staged("echo a > one; ln one two; mkdir d; ln one d/three")
    take_all(pvisor, project)
    assert {(project / n).stat().st_ino for n in ("one", "two", "d/three")} == {(project / "one").stat().st_ino}


def test_drop_then_apply_is_refused(staged, pvisor, project):
    staged("echo x > a")
    before = tree.snapshot(project)
    pvisor("drop", cwd=project)
    assert "nothing" in (lambda r: r.out + r.err)(pvisor("apply", "--all", cwd=project, code=None))
    tree.assert_same(before, tree.snapshot(project))


def test_a_selection_touches_nothing_else(staged, pvisor, project):
    staged(SCRIPT)
    before = contents(project)
    pvisor("apply", "--path", "src/main.c", cwd=project)
    after = contents(project)
    assert {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)} == {b"src/main.c"}


def test_two_complementary_selections_equal_all(staged, pvisor, run, project, temporary):
    direct = temporary / "direct"
    shutil.copytree(project, direct, symlinks=True)
    assert run(["sh", "-euc", SCRIPT], cwd=direct).code == 0
    staged(SCRIPT)
    pvisor("apply", "--path", "src", "--path", "docs", "--keep-times", cwd=project)
    take_all(pvisor, project)
    assert contents(project) == contents(direct)


def test_a_part_of_a_new_directory_and_then_the_rest(staged, pvisor, project):
    staged("mkdir -p n/m; for i in 1 2 3 4 5 6; do echo $i > n/$i; echo $i > n/m/$i; done")
    pvisor("apply", "--path", "n/m/3", "--path", "n/2", cwd=project)
    assert sorted(p.name for p in (project / "n").rglob("*")) == ["2", "3", "m"]
    pvisor("undo", cwd=project)
    assert not (project / "n").exists()
    pvisor("apply", "--path", "n/m/3", "--path", "n/2", cwd=project)
    take_all(pvisor, project)
    assert sum(1 for p in (project / "n").rglob("*") if p.is_file()) == 12


def test_repeating_is_harmless(staged, pvisor, project):
    staged(SCRIPT)
    take_all(pvisor, project)
    before = tree.snapshot(project)
    take_all(pvisor, project)
    tree.assert_same(before, tree.snapshot(project))
    pvisor("undo", cwd=project)
    pvisor("undo", cwd=project, code=None)
    take_all(pvisor, project)
    assert contents(project).keys() == before.keys()


def test_undo_gives_back_the_target_as_it_was(staged, pvisor, project):
    before = tree.snapshot(project)
    staged(SCRIPT)
    take_all(pvisor, project)
    pvisor("undo", cwd=project)
    after = tree.snapshot(project)
    assert {n: e.content for n, e in before.items()} == {n: e.content for n, e in after.items()}
    assert contents(project).keys() == before.keys()
    assert all(before[n].mtime_ns == e.mtime_ns for n, e in after.items() if e.kind == "file")


def test_undo_keeps_what_the_host_changed_since(staged, pvisor, project):
    staged("echo more >> README.md; echo x > a")
    take_all(pvisor, project)
    (project / "README.md").write_text("host\n")
    before = tree.snapshot(project)
    assert "README.md" in pvisor("undo", cwd=project, code=3).err
    tree.assert_same(before, tree.snapshot(project))


# ---- the host's own edits ----

EDITS = {
    "saved in place": lambda p: (p / "README.md").write_text("host\n"),
    "replaced": lambda p: ((p / "tmp").write_text("host\n"), os.replace(p / "tmp", p / "README.md")),
    "deleted": lambda p: (p / "README.md").unlink(),
    "became a link": lambda p: ((p / "README.md").unlink(), os.symlink("/etc/passwd", p / "README.md")),
    "became a directory": lambda p: ((p / "README.md").unlink(), (p / "README.md").mkdir()),
    "mode": lambda p: os.chmod(p / "README.md", 0o600),
    "attribute": lambda p: os.setxattr(p / "README.md", "user.host", b"1"),
    "same size and time": lambda p: _same_size_and_time(p / "README.md"),
}


def _same_size_and_time(path):
    st = path.stat()
    path.write_text("README\n")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


@pytest.mark.parametrize("edit", EDITS)
def test_a_conflict_keeps_the_outside_state_and_the_batch_has_no_effect(staged, pvisor, project, edit):
    staged("echo more >> README.md; echo x > a; rm LICENSE; rm -r docs")
    EDITS[edit](project)
    before = tree.snapshot(project)
    result = pvisor("apply", "--all", cwd=project, code=3)
    assert "README.md" in result.err
    tree.assert_same(before, tree.snapshot(project))
    pvisor("apply", "--path", "a", cwd=project)  # the rest is still there to be taken
    assert (project / "a").exists()


def test_a_file_of_the_same_name_as_a_new_one_is_a_conflict(staged, pvisor, project):
    staged("echo agent > a; mkdir d; echo agent > d/x")
    (project / "a").write_text("host\n")
    (project / "d").mkdir()
    (project / "d" / "y").write_text("host\n")
    before = tree.snapshot(project)
    pvisor("apply", "--all", cwd=project, code=3)
    tree.assert_same(before, tree.snapshot(project))


def test_a_file_that_is_open_for_writing_is_a_conflict(staged, pvisor, project):
    staged("echo more >> README.md; echo x > a")
    before = tree.snapshot(project)
    with open(project / "README.md", "r+"):
        result = pvisor("apply", "--all", cwd=project, code=3)
    assert "open for writing" in result.err
    tree.assert_same(before, tree.snapshot(project))
    take_all(pvisor, project)


def test_a_file_that_is_mapped_for_writing_is_a_conflict(staged, pvisor, project):
    staged("echo more >> README.md")
    before = tree.snapshot(project)
    fd = os.open(project / "README.md", os.O_RDWR)
    mapping = mmap.mmap(fd, 0)
    os.close(fd)
    pvisor("apply", "--all", cwd=project, code=3)
    tree.assert_same(before, tree.snapshot(project))
    mapping.close()
    take_all(pvisor, project)


def test_a_file_open_for_writing_in_a_directory_that_goes_is_a_conflict(staged, pvisor, project):
    staged("rm -r docs")
    before = tree.snapshot(project)
    with open(project / "docs/other.txt", "r+"):
        pvisor("apply", "--all", cwd=project, code=3)
    tree.assert_same(before, tree.snapshot(project))


def test_unrelated_outside_edits_do_not_block(staged, pvisor, project):
    staged("echo more >> README.md; echo x > src/new.c; rm docs/guide.txt")
    (project / "src/main.c").write_text("host\n")
    (project / "docs/host.txt").write_text("host\n")
    (project / "host").mkdir()
    (project / ".README.md.swp").write_text("swap")
    (project / ".README.md.swp").unlink()
    os.utime(project / "src")
    take_all(pvisor, project)
    assert (project / "src/main.c").read_text() == "host\n" and (project / "docs/host.txt").exists()
    assert (project / "README.md").read_text() == "readme\nmore\n" and (project / "src/new.c").exists()


@pytest.mark.parametrize("gained", ["docs/host.txt", "docs/sub/host.txt"])
def test_deleting_a_directory_that_gained_outside_files_is_refused(staged, pvisor, project, gained):
    (project / "docs/sub").mkdir()
    staged("rm -r docs; echo x > a")
    (project / gained).write_text("host\n")
    before = tree.snapshot(project)
    pvisor("apply", "--all", cwd=project, code=3)
    tree.assert_same(before, tree.snapshot(project))


def test_touching_and_restoring_is_no_conflict(staged, pvisor, project):
    staged("echo more >> README.md")
    text = (project / "README.md").read_bytes()
    (project / "README.md").write_bytes(b"something else\n")
    (project / "README.md").write_bytes(text)  # as a branch that is switched forth and back
    take_all(pvisor, project)


# ---- links ----

@pytest.mark.parametrize("above", ["src", "src/util"])
def test_apply_never_leaves_the_target_through_a_link(staged, pvisor, project, temporary, above):
    staged("echo evil > src/util/a.c; echo new > src/util/new.c; rm src/util/b.c")
    outside = temporary / "outside"
    shutil.move(project / above, outside)
    os.symlink(outside, project / above)
    before, held = tree.snapshot(project), tree.snapshot(outside)
    pvisor("apply", "--all", cwd=project, code=3)
    tree.assert_same(before, tree.snapshot(project))
    tree.assert_same(held, tree.snapshot(outside))


def test_staged_links_are_published_as_links_and_never_followed(staged, pvisor, project, temporary):
    victim = temporary / "victim"
    victim.write_text("victim\n")
    staged(f"rm -r docs; ln -s {temporary} docs; rm README.md; ln -s {victim} README.md")
    take_all(pvisor, project)
    assert (project / "docs").is_symlink() and (project / "README.md").is_symlink()
    assert victim.read_text() == "victim\n" and sorted(p.name for p in temporary.iterdir() if p == victim) == ["victim"]


def test_marks_of_the_layers_never_reach_the_target(staged, pvisor, project):
    staged("rm -r docs; mkdir -p docs/new; echo x > docs/new/x; echo more >> README.md; chmod 755 src; mv src/util src/u")
    take_all(pvisor, project)
    for path in [project, *project.rglob("*")]:
        assert [n for n in os.listxattr(path, follow_symlinks=False) if "overlay" in n or "pvisor" in n] == [], path


# ---- where ----

def test_all_of_it_on_each_filesystem(pvisor, run, filesystem, temporary, make_workspace):
    project, direct = make_workspace(FILES, git=False, where=filesystem), temporary / "direct"
    shutil.copytree(project, direct, symlinks=True)
    script = SCRIPT if filesystems.takes_attributes(filesystem) else SCRIPT.replace("setfattr", ": setfattr")
    assert run(["sh", "-euc", script], cwd=direct).code == 0
    before = contents(project)
    pvisor("run", "--stage", "--", "sh", "-euc", script, cwd=project)
    take_all(pvisor, project)
    here, there = contents(project), contents(direct)
    assert {n: e[:9] for n, e in here.items()} == {n: e[:9] for n, e in there.items()}
    pvisor("undo", cwd=project)
    assert contents(project).keys() == before.keys()
    take_all(pvisor, project)
    assert contents(project) == here


def test_a_stage_on_the_targets_own_filesystem_moves_and_copies_nothing(pvisor, project, temporary):
    pvisor("run", "--stage", str(temporary / "stage"), "--", "sh", "-c", "head -c 1000000 /dev/zero > big", cwd=project)
    staged = next((temporary / "stage/roots/0/layers").rglob("big")).stat().st_ino
    take_all(pvisor, project)
    assert (project / "big").stat().st_ino == staged


# ---- two at once ----

def test_two_jobs_on_one_workspace_each_apply_what_does_not_clash(staged, pvisor, project):
    staged("echo one > one; echo 1 >> README.md")
    staged("echo two > two; echo 2 >> README.md")
    pvisor("apply", "last", "--path", "two", "--path", "README.md", cwd=project)
    jobs = json.loads(pvisor("list", "--json", cwd=project).out)
    first = next(j["id"] for j in (jobs["jobs"] if isinstance(jobs, dict) else jobs) if j["changes"])
    pvisor("apply", first, "--all", cwd=project, code=3)
    pvisor("apply", first, "--path", "one", cwd=project)
    assert (project / "README.md").read_text() == "readme\n2\n" and (project / "one").exists()


# ---- undo across file systems ----

def inodes(top):
    return {str(p.relative_to(top)): (p.lstat().st_nlink, p.lstat().st_ino) for p in top.rglob("*") if not p.is_dir()}


@pytest.fixture
def linked(pvisor, make_workspace, environment, tmpfs):
    """Files with several names, and a store that no rename reaches; what a job does to some of the names is applied."""
    environment["PVISOR_HOME"] = str(tmpfs / "store")
    top = make_workspace({"a": "one\n", "d/in": "two\n", "x/y/z": "three\n", "alone": "four\n"}, git=False)
    os.link(top / "a", top / "x/also-a")
    os.link(top / "d/in", top / "x/also-in")
    os.link(top / "x/y/z", top / "x/y/again")
    before = tree.snapshot(top), inodes(top)
    pvisor("run", "--stage", "--", "sh", "-euc", "echo more >>a; rm -r d; echo more >>x/y/z; rm x/y/again; rm alone", cwd=top)
    pvisor("apply", "--all", cwd=top)
    return top, *before


def test_undo_across_filesystems_makes_names_of_one_file_what_they_were(pvisor, linked):
    top, before, were = linked
    assert (top / "x/also-a").stat().st_nlink == 1
    pvisor("undo", cwd=top)
    tree.assert_same(before, tree.snapshot(top))
    now = inodes(top)
    for one, other in ("a", "x/also-a"), ("d/in", "x/also-in"), ("x/y/z", "x/y/again"):
        assert now[one] == now[other] and now[one][0] == 2
    assert now["a"] == were["a"] and now["d/in"] == were["d/in"]
    pvisor("apply", "--all", cwd=top)
    pvisor("undo", cwd=top)
    tree.assert_same(before, tree.snapshot(top))
    assert inodes(top)["a"] == were["a"]


@pytest.mark.parametrize("edit", ["content", "mode", "attributes", "same-bytes"])
def test_a_name_that_the_host_changed_since_stays_a_file_of_its_own(pvisor, linked, edit):
    top, before, _ = linked
    other = top / "x/also-a"
    times = other.stat()
    if edit == "content":
        other.write_text("two\n")
        os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif edit == "mode":
        other.chmod(0o755)
    elif edit == "attributes":
        os.setxattr(other, "user.note", b"the host's")
    else:
        other.write_text(other.read_text())
    state = other.read_text(), other.stat().st_mode, os.listxattr(other)
    pvisor("undo", cwd=top)
    assert (top / "a").read_text() == "one\n" and (top / "a").stat().st_nlink == 1
    assert (other.read_text(), other.stat().st_mode, os.listxattr(other)) == state
