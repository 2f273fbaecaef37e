# SPDX-License-Identifier: Apache-2.0
"""What a command has made is decided on while it goes on: nothing moves under it, and nothing is lost."""
import json
import os
import subprocess
import threading

import pytest

from lib import jobs, stepping, tree
from lib.live import Agent

# Deciding on files that never rest, this many times.
RACES = int(os.environ.get("PV_TEST_LIVE_RACES", "10"))
FILES = {"a": "old\n", "b": "old\n", "src/one": "old\n", "src/two": "old\n", "gone/x": "old\n", "gone/y": "old\n",
         "closed/x": "old\n"}


@pytest.fixture
def workspace(make_workspace):
    return make_workspace(FILES, git=False)


@pytest.fixture
def start(pv, environment):
    started = []

    def call(cwd, *options):
        started.append(Agent(pv, cwd, environment, *options))
        return started[-1]

    yield call
    for agent in started:
        if agent.code is None:
            agent.process.kill()
            agent.end()


@pytest.fixture
def live(pvisor, environment):
    """The person's side: live(workspace) -> an object with the commands."""

    class Live:
        def __init__(self, workspace):
            self.workspace = workspace

        def call(self, *args, **options):
            return pvisor(*args, cwd=self.workspace, **options)

        def changes(self):
            """{path: kind} of what is staged."""
            found = json.loads(self.call("review", "--json").out)["filesystem"]
            return {jobs.as_path(c["path"]).decode(): c["kind"] for c in found["changes"]}

        def conflicts(self):
            found = json.loads(self.call("review", "--json").out)["filesystem"]
            return {jobs.as_path(c["path"]).decode(): c["why"] for c in found["conflicts"]}

        def apply(self, *paths, **options):
            what = [word for p in paths for word in ("--path", p)] or ["--all"]
            return json.loads(self.call("apply", "--json", *what, **options).out)

        def undo(self, **options):
            return json.loads(self.call("undo", "--json", **options).out)

        def events(self, which):
            (job,) = jobs.job_dirs(environment)
            return [e for e in jobs.events(job) if e["event"] == which]

    return Live


def text(path):
    return path.read_text() if path.exists() else None


# ---- taking ----

def test_what_is_there_is_taken_and_the_job_goes_on(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', 'new\\n'); os.mkdir('new'); write('new/n', 'n\\n'); shutil.rmtree('gone')")
        before = agent.see("[os.stat(p).st_ino for p in ('a', 'new', 'new/n')] + [os.stat('a').st_mtime_ns]")
        result = person.apply()
        assert result["applied"] == 6 and result["paused_ms"] > 0
        assert text(workspace / "a") == "new\n" and text(workspace / "new/n") == "n\n"
        assert not (workspace / "gone").exists()
        assert person.changes() == {} and person.conflicts() == {}
        assert agent.see("[os.stat(p).st_ino for p in ('a', 'new', 'new/n')] + [os.stat('a').st_mtime_ns]") == before
        assert agent.see("sorted(os.listdir())") == ["a", "b", "closed", "new", "src"]
        agent.do("write('a', 'newer\\n')")
        assert text(workspace / "a") == "new\n"
        assert person.changes() == {"a": "modified"} and person.conflicts() == {}
        person.apply()
        assert text(workspace / "a") == "newer\n"
    assert agent.code == 0 and "applied already" in agent.err
    assert person.changes() == {}
    assert [e["for"] for e in person.events("paused")] == ["apply", "apply"]
    assert "7 paths applied already" in person.call("review").out


def test_a_part_is_taken_and_the_rest_stays_staged(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('src/one', '1'); write('src/two', '2'); write('src/three', '3'); write('a', 'a')")
        person.apply("src/one", "src/three")
        assert person.changes() == {"a": "modified", "src/two": "modified"} and person.conflicts() == {}
        assert text(workspace / "src/two") == "old\n"
        agent.do("os.remove('src/three')")
        assert person.changes()["src/three"] == "deleted"
    person.apply()
    assert {p: text(workspace / p) for p in ("src/one", "src/two", "src/three", "a")} == \
        {"src/one": "1", "src/two": "2", "src/three": None, "a": "a"}


def test_what_landed_can_be_deleted_moved_and_made_again(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("os.mkdir('d'); write('d/x', 'x'); write('d/y', 'y'); os.mkdir('d/e'); write('d/e/z', 'z'); write('n', 'n')")
        person.apply()
        agent.do("os.remove('d/x'); os.rename('n', 'm'); shutil.rmtree('d/e')")
        assert person.changes() == {"d/x": "deleted", "n": "deleted", "m": "added", "d/e": "deleted", "d/e/z": "deleted"}
        person.apply()
        assert tree_of(workspace / "d") == {"y": "y"} and text(workspace / "m") == "n" and text(workspace / "n") is None
        assert person.changes() == {}
        agent.do("shutil.rmtree('d'); os.mkdir('d'); write('d/x', 'again')")
        person.apply()
        assert tree_of(workspace / "d") == {"x": "again"}
        agent.do("shutil.rmtree('d'); write('d', 'a file now')")
        person.apply()
        assert text(workspace / "d") == "a file now"
    assert person.changes() == {} and person.conflicts() == {}


def tree_of(top):
    return {str(p.relative_to(top)): p.read_text() for p in top.rglob("*") if p.is_file()}


def test_kinds_modes_links_and_attributes_land_as_they_are(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('h1', 'linked'); os.link('h1', 'h2'); os.symlink('h1', 'sym'); os.mkfifo('pipe'); write('x', '#!')\n"
                 "os.chmod('x', 0o755); os.setxattr('x', 'user.note', b'kept'); os.chmod('closed', 0o555)\n"
                 "os.mkdir('sealed'); write('sealed/f', 'f'); os.chmod('sealed', 0o555)")
        person.apply()
        assert (workspace / "h1").stat().st_ino == (workspace / "h2").stat().st_ino
        assert os.readlink(workspace / "sym") == "h1" and (workspace / "pipe").is_fifo()
        assert os.getxattr(workspace / "x", "user.note") == b"kept" and (workspace / "x").stat().st_mode & 0o777 == 0o755
        assert (workspace / "closed").stat().st_mode & 0o777 == (workspace / "sealed").stat().st_mode & 0o777 == 0o555
        assert person.changes() == {} and person.conflicts() == {}
        agent.do("write('h1', 'both'); os.chmod('x', 0o700)")
        assert person.changes() == {"h1": "modified", "h2": "modified", "x": "metadata"}
        person.apply()
        assert text(workspace / "h2") == "both" and person.changes() == {}
        person.undo()
        person.undo()
        assert not (workspace / "sealed").exists() and (workspace / "closed").stat().st_mode & 0o777 != 0o555
    person.apply()
    assert person.changes() == {} and text(workspace / "h2") == "both"


def test_a_renamed_directory_lands_whole(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("os.rename('src', 'lib'); write('lib/one', 'edited')")
        person.apply()
        assert tree_of(workspace / "lib") == {"one": "edited", "two": "old\n"} and not (workspace / "src").exists()
        assert person.changes() == {} and person.conflicts() == {}
        agent.do("os.rename('lib', 'src')")
        person.apply()
        assert tree_of(workspace / "src") == {"one": "edited", "two": "old\n"} and not (workspace / "lib").exists()
    assert person.changes() == {}


def test_on_each_filesystem(start, live, make_workspace, filesystem, environment):
    environment["PVISOR_HOME"] = str(filesystem / "store")
    for where in (filesystem, None):  # where the store is, and elsewhere
        workspace = make_workspace(FILES, git=False, where=where)
        os.link(workspace / "b", workspace / "b2")
        person = live(workspace)
        with start(workspace) as agent:
            agent.do("write('a', '1'); os.mkdir('d'); write('d/x', 'x'); os.link('a', 'a2'); shutil.rmtree('gone'); write('b', '1')")
            before = agent.see("[os.stat(p).st_ino for p in ('a', 'd', 'd/x')]")
            person.apply()
            assert person.changes() == {} and person.conflicts() == {}
            agent.do("write('a', '2'); shutil.rmtree('d'); os.rename('src', 'lib'); write('b2', '2')")
            assert person.conflicts() == {}
            # Elsewhere the original is copied to the store and unlinked, and overlayfs no longer lends its number.
            assert agent.see("os.stat('a').st_ino") == before[0] or not where
            person.apply()
            assert text(workspace / "a2") == "2" and tree_of(workspace / "lib") == {"one": "old\n", "two": "old\n"}
            person.call("checkpoint", "--name", "c")
            assert person.call("inspect", "--", "cat", "a2").out == "2"
            person.undo()
            person.undo()
            assert text(workspace / "a") == "old\n" and (workspace / "gone/x").exists() and not (workspace / "lib").exists()
        assert person.conflicts() == {}
        person.apply()
        assert text(workspace / "a2") == "2" and not (workspace / "gone").exists() and not (workspace / "d").exists()
        assert person.changes() == {}


def test_a_worktree_lands_with_its_git_directory_beside(start, live, make_workspace, environment, temporary):
    main = make_workspace()
    tree_at = temporary / "tree"
    subprocess.run(["git", "worktree", "add", "-q", "-b", "side", str(tree_at)], cwd=main, env=environment, check=True)
    person = live(tree_at)
    with start(tree_at) as agent:
        agent.do("write('README.md', 'mine'); subprocess.run(['git', 'commit', '-qam', 'Mine'], check=True)")
        person.apply()
        assert text(tree_at / "README.md") == "mine"
        assert "Mine" not in subprocess.run(["git", "log", "side"], cwd=main, env=environment, capture_output=True, text=True).stdout
        person.call("apply", "--all", "--git-raw")
        assert "Mine" in subprocess.run(["git", "log", "side"], cwd=main, env=environment, capture_output=True, text=True).stdout
        agent.do("write('README.md', 'again'); subprocess.run(['git', 'commit', '-qam', 'Again'], check=True)")
        person.call("apply", "--all", "--git-raw")
    assert "Again" in subprocess.run(["git", "log", "side"], cwd=main, env=environment, capture_output=True, text=True).stdout
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tree_at, env=environment, capture_output=True, text=True).stdout == ""
    assert subprocess.run(["git", "fsck", "--strict"], cwd=main, env=environment, capture_output=True).returncode == 0


def test_commits_are_taken_while_it_runs(start, live, make_workspace, environment):
    workspace = make_workspace()
    person = live(workspace)

    def log():
        return subprocess.run(["git", "log", "--format=%s"], cwd=workspace, env=environment, capture_output=True, text=True).stdout.split()

    with start(workspace) as agent:
        agent.do("write('README.md', '1'); subprocess.run(['git', 'commit', '-qam', 'Mine'], check=True)")
        person.call("apply", "--commits")
        assert log() == ["Mine", "First"] and text(workspace / "README.md") == "1"
        agent.do("write('README.md', '2'); subprocess.run(['git', 'commit', '-qam', 'Again'], check=True)")
        person.call("apply", "--commits")
        assert log() == ["Again", "Mine", "First"] and text(workspace / "README.md") == "2"
        person.undo()
        assert log() == ["Mine", "First"] and text(workspace / "README.md") == "1"
    person.call("apply", "--commits")
    assert log() == ["Again", "Mine", "First"]
    assert subprocess.run(["git", "status", "--porcelain"], cwd=workspace, env=environment, capture_output=True).stdout == b""


def test_ten_changes_hold_it_for_milliseconds(start, live, workspace):
    person, paused = live(workspace), []
    with start(workspace) as agent:
        while len(paused) < 6 or min(paused) > 50:  # 2 to 15 where nobody else wants the processor
            assert len(paused) < 60, paused
            agent.do(f"for n in range(10): write('n%d' % n, '{len(paused)}')")
            paused.append(person.apply()["paused_ms"])


# ---- taking back ----

def test_undo_while_it_runs_and_after(start, live, workspace):
    person = live(workspace)
    before = tree.snapshot(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); os.mkdir('new'); write('new/n', 'n'); shutil.rmtree('gone')")
        listed = person.changes()
        person.apply()
        agent.do("write('b', '2'); write('new/m', 'm')")
        person.apply()
        person.undo()
        assert person.changes() == {"b": "modified", "new/m": "added"} and text(workspace / "b") == "old\n"
        person.apply("b")
        person.undo()
        person.undo()
        tree.assert_same(before, tree.snapshot(workspace))
        assert person.changes() == {**listed, "b": "modified", "new/m": "added"} and person.conflicts() == {}
        person.apply("b")
        person.apply()
        assert agent.see("open('a').read() + open('b').read()") == "12"
    person.undo()
    person.undo()
    tree.assert_same(before, tree.snapshot(workspace))
    assert person.changes() == {**listed, "b": "modified", "new/m": "added"} and person.conflicts() == {}
    person.apply()
    assert text(workspace / "a") == "1" and text(workspace / "new/m") == "m"


def test_after_an_undo_a_conflict_starts_from_what_is_there_again(start, live, workspace):
    person = live(workspace)
    lines = [f"line {i}\n" for i in range(20)]
    (workspace / "src/text").write_text("".join(lines))
    with start(workspace) as agent:
        agent.do("t = open('src/text').read(); write('src/text', t.replace('line 3\\n', 'job\\n'))")
        person.apply()
        person.undo()
        (workspace / "src/text").write_text("".join(lines[:17] + ["host\n"] + lines[18:]))
        assert "src/text" in person.conflicts()
        person.call("apply", "--all", "--merge")
        merged = (workspace / "src/text").read_text()
    assert merged == "".join(lines[:3] + ["job\n"] + lines[4:17] + ["host\n"] + lines[18:])


# ---- the host ----

def test_the_hosts_edits_of_what_landed_are_conflicts_as_ever(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); write('src/new', '1'); os.mkdir('d'); write('d/x', 'x')")
        person.apply()
        (workspace / "a").write_text("host")
        (workspace / "d/own").write_text("host")
        assert person.changes() == {}
        agent.do("write('a', '2'); write('src/new', '2')")
        assert set(person.conflicts()) == {"a"}
        person.apply(code=3)
        assert text(workspace / "a") == "host" and text(workspace / "src/new") == "1"
        person.apply("src/new")
        agent.do("shutil.rmtree('d')")
        assert person.apply("d", code=3)["conflicts"][0]["path"] == "d/own"
    assert set(person.conflicts()) == {"a"}
    assert person.apply("d", code=3)["conflicts"][0]["path"] == "d/own"
    assert text(workspace / "d/own") == "host"


def test_a_name_of_a_file_with_several_stands_in_no_doubt_for_another(start, live, workspace):
    os.link(workspace / "a", workspace / "a-too")
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); write('a-too', '2')")
        person.apply("a")
        assert person.conflicts() == {} and person.changes() == {"a-too": "modified"}
    assert person.conflicts() == {}
    person.apply()
    assert (text(workspace / "a"), text(workspace / "a-too")) == ("1", "2")


def test_another_name_that_is_touched_only_later_stands_in_no_doubt(start, live, workspace):
    for name in ("a-too", "a-three", "a-four"):
        os.link(workspace / "a", workspace / name)
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1')")
        person.apply()
        agent.do("write('a-too', '2')")
        assert person.conflicts() == {} and person.changes() == {"a-too": "modified"}
        person.apply()
        person.undo()
        agent.do("write('a-three', '3')")
        assert person.conflicts() == {} and person.changes() == {"a-too": "modified", "a-three": "modified"}
    assert person.conflicts() == {}
    person.apply()
    assert [text(workspace / n) for n in ("a", "a-too", "a-three", "a-four")] == ["1", "2", "3", "old\n"]


def rewrite(path):
    path.write_text("host")


def rewrite_and_hide(path):
    was = path.stat()
    path.write_text("hos\n")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize("edit", [rewrite, rewrite_and_hide, lambda path: path.chmod(0o600),
                                  lambda path: path.with_name("more").hardlink_to(path)],
                         ids=["written", "written-and-hidden", "mode", "linked"])
@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_edit_through_another_name_is_never_taken_for_ours(start, live, workspace, pv, environment, edit, when):
    os.link(workspace / "a", workspace / "a-too")
    os.link(workspace / "a", workspace / "src/other")
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('b', '1'); write('a', '1')")
        if when == "before":
            edit(workspace / "src/other")
        if when == "while":
            landed = stepping.act_at([pv, "apply", "--all"], 1, lambda _: edit(workspace / "src/other"), stepping.swaps,
                                     cwd=workspace, env=environment)[0] == 0
        else:
            landed = person.call("apply", "--all", code=None).code == 0
        if when == "after":
            edit(workspace / "src/other")
        agent.do("write('a-too', '2')")
        assert "a-too" in person.conflicts(), landed
    assert "a-too" in person.conflicts()


def test_what_is_renamed_and_changed_where_something_landed_stands_in_no_doubt(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('src/one', '1'); os.mkdir('new'); os.mkdir('new/deep'); write('new/deep/n', 'n')")
        person.apply()
        agent.do("os.rename('src/two', 'src/three'); write('src/three', '3')")
        agent.do("os.rename('b', 'new/deep/b'); write('new/deep/b', 'b2')")
        assert person.conflicts() == {}
        person.apply()
        person.undo()
        agent.do("os.rename('a', 'src/a'); write('src/a', 'a2')")
        assert person.conflicts() == {}
    assert person.conflicts() == {}
    person.apply()
    assert sorted(tree_of(workspace / "src")) == ["a", "one", "three"] and text(workspace / "src/three") == "3"
    assert text(workspace / "src/a") == "a2" and text(workspace / "new/deep/b") == "b2" and not (workspace / "b").exists()


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_a_deletion_where_something_landed_is_never_taken_for_ours(start, live, workspace, pv, environment, when):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('src/one', '1'); write('src/two', '2')")
        if when == "before":
            (workspace / "src/two").unlink()
        if when == "while":
            code, _, err = stepping.act_at([pv, "apply", "--path", "src/one"], 1, lambda _: (workspace / "src/two").unlink(),
                                           stepping.swaps, cwd=workspace, env=environment)
            assert code == 0, err
        else:
            person.apply("src/one")
        if when == "after":
            (workspace / "src/two").unlink()
        assert list(person.conflicts()) == ["src/two"]
    assert list(person.conflicts()) == ["src/two"]
    person.apply("src/two", code=3)


def test_files_that_the_host_saves_beside_are_no_conflict(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        (workspace / "src/theirs").write_text("host")
        agent.do("write('src/one', '1'); os.remove('src/two')")
        assert person.conflicts() == {}
        person.apply()
        (workspace / "src/theirs2").write_text("host")
        agent.do("write('src/one', '2')")
        person.apply()
        os.rename(workspace / "src", workspace / "moved")
        (workspace / "src").mkdir()
        (workspace / "src/one").write_text("another's")
        agent.do("write('src/one', '3')")
        assert "src/one" in person.conflicts()
        person.apply(code=3)
    assert "src/one" in person.conflicts() and text(workspace / "src/one") == "another's"


# ---- looking, and going on from there ----

def test_inspect_sees_one_moment(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', 'staged'); os.mkdir('new'); write('new/n', 'n'); shutil.rmtree('gone'); os.link('a', 'a2')")
        seen = person.call("inspect", "--", "sh", "-c", "cat a a2 new/n; ls; echo other > a; rm b").out
        assert seen == "stagedstagedn" + "a\na2\nb\nclosed\nnew\nsrc\n"
        assert agent.see("open('a').read()") == "staged" and text(workspace / "a") == text(workspace / "b") == "old\n"
        assert not [name for name in os.listdir(stage_of(person)) if name.startswith("look-")]
    assert [e["for"] for e in person.events("paused")] == ["inspect"]


def stage_of(person, job="last"):
    return json.loads(person.call("status", "--json", job).out)["stage"]


def test_a_checkpoint_of_a_running_job_is_a_base_for_others(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); os.mkdir('d'); write('d/x', 'x'); write('d/y', 'y'); shutil.rmtree('gone')")
        person.apply("d")
        assert json.loads(person.call("checkpoint", "--name", "half", "--json").out)["paused_ms"] > 0
        agent.do("write('a', '2'); shutil.rmtree('d'); write('b', '2')")
        assert person.call("checkpoint", "--list").out == "half\n"
        assert person.call("fork", "last@half", "--", "cat", "a", "d/x").out == "1x"
        assert person.changes() == {"a": "modified", "gone": "deleted", "gone/x": "deleted", "gone/y": "deleted"}
        assert person.conflicts() == {}  # of the fork, which is the newest now
        first, second = jobs_of(person)
        assert "still runs" in person.call("fork", first, "--", "true", code=125).err
        assert "still runs" in person.call("fork", f"{first}@other", "--", "true", code=125).err
        person.call("checkpoint", first, "--name", "half", code=2)
    assert person.call("fork", f"{first}@half", "--", "cat", "a", "d/x").out == "1x"
    assert person.call("fork", first, "--", "sh", "-c", "cat a b; ls").out == "22a\nb\nclosed\nsrc\n"
    person.call("apply", second, "--all")
    assert text(workspace / "a") == "1"
    snapshot = stage_of(person, first) + "/snapshots/half/stage.json"
    person.call("undo", first)
    person.call("drop", first)
    assert os.path.exists(snapshot)  # others stand on it
    for job in reversed(jobs_of(person)):
        person.call("undo", job, code=None)
        person.call("drop", job)
    assert not os.path.exists(snapshot)


def jobs_of(person):
    """Ids, oldest first."""
    return [job["id"] for job in reversed(json.loads(person.call("list", "--json").out)["jobs"])]


def test_a_run_that_goes_on_sees_what_the_host_made_of_what_landed(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); write('b', '1'); os.mkdir('d'); write('d/x', 'x'); write('d/y', 'y'); write('d/z', 'z'); os.remove('gone/x')")
        person.apply("a", "d", "gone")
        agent.do("write('d/y', '2'); os.remove('d/z')")
    (workspace / "a").write_text("host")
    (workspace / "d/own").write_text("host")
    (workspace / "d/x").unlink()
    (workspace / "gone/x").write_text("host")
    seen = person.call("run", "--continue", "last", "--stage", "--", "sh", "-c", "cat a b d/own d/y gone/x; ls d; echo 3 > d/own").out
    assert seen == "host1host2hostown\ny\n"
    assert person.changes() == {"b": "modified", "d/y": "modified", "d/own": "modified", "d/z": "deleted"}
    assert person.conflicts() == {}
    person.apply()
    assert tree_of(workspace / "d") == {"own": "3\n", "y": "2"} and text(workspace / "a") == "host"


def test_undo_of_what_was_let_go_stages_it_again(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1'); os.mkdir('d'); write('d/x', 'x'); os.remove('gone/x'); os.setxattr('d/x', 'user.overlay.opaque', b'y')")
        person.apply()
        agent.do("write('b', '2')")
    listed = {"a": "modified", "b": "modified", "d": "added", "d/x": "added", "gone/x": "deleted"}
    with start(workspace, "--continue", "last") as agent:
        assert agent.see("sorted(os.listdir('d') + os.listdir('gone'))") == ["x", "y"]
        assert "before the job went on" in person.call("undo", code=1).err
        assert person.changes() == {"b": "modified"}
    person.undo()
    assert text(workspace / "a") == "old\n" and not (workspace / "d").exists() and (workspace / "gone/x").exists()
    assert person.changes() == listed and person.conflicts() == {}
    person.apply()
    assert text(workspace / "a") == "1" and os.getxattr(workspace / "d/x", "user.overlay.opaque") == b"y"


# ---- what waits ----

def test_what_waits_for_the_end_says_so(start, live, workspace, pvisor):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("write('a', '1')")
        for command in (["drop"], ["drop", "--path", "a"], ["fork", "--", "true"], ["run", "--continue", "last", "--", "true"]):
            result = person.call(*command, code=None)
            assert result.code in (1, 125) and ("still runs" in result.err or "in use" in result.err), (command, result)
        person.call("prune", "--unapplied")
        assert person.changes() == {"a": "modified"}
    assert person.changes() == {"a": "modified"}


# ---- races ----

CHURN = r"""
stop, churning = threading.Event(), []
def churn(step):
    def loop():
        n = 0
        while not stop.is_set():
            n += 1
            step(n, bytes([97 + n % 26]) * 65536)
    churning.append(threading.Thread(target=loop, daemon=True))
    churning[-1].start()
def by_rename(n, data):
    with open('renamed.new', 'wb') as f:
        f.write(data)
    os.rename('renamed.new', 'renamed')
fd = os.open('written', os.O_RDWR | os.O_CREAT)
def in_one_write(n, data):
    os.pwrite(fd, data, 0)
def cut_and_written(n, data):
    with open('cut', 'wb') as f:
        f.write(data)
os.pwrite(fd, b'a' * 65536, 0)
for step in by_rename, cut_and_written:
    step(0, b'a' * 65536)
shared = os.open('mapped', os.O_RDWR | os.O_CREAT)
os.ftruncate(shared, 65536)
view = mmap.mmap(shared, 65536)
def by_store(n, data):
    view[:] = data
def come_and_go(n, data):
    os.makedirs('d%d/e' % (n % 3), exist_ok=True)
    write('d%d/e/f' % (n % 3), str(n))
    shutil.rmtree('d%d' % ((n + 1) % 3), ignore_errors=True)
for step in by_rename, in_one_write, cut_and_written, by_store, come_and_go:
    churn(step)
"""


@pytest.mark.timeout(120 + RACES)
def test_what_lands_is_one_version_of_a_file_that_never_rests(start, live, workspace):
    person, undone = live(workspace), 0
    with start(workspace) as agent:
        agent.do(CHURN)
        for i in range(RACES):
            person.call("review", "--json")
            result = person.call("apply", "--json", "--all", code=None)
            while result.code == 1 and "does not stop" in result.err:  # on a machine that is too busy: nothing was done
                result = person.call("apply", "--json", "--all", code=None)
            assert result.code == 0, (i, result)
            for name in ("renamed", "written"):
                data = (workspace / name).read_bytes()
                assert len(data) == 65536 and len(set(data)) == 1, (i, name, len(data), sorted(set(data)))
            assert len(set((workspace / "cut").read_bytes())) <= 1  # between its two calls it is empty
            if i % 5 == 4:
                person.call("undo")
                undone += 1
        agent.do("stop.set(); [each.join() for each in churning]")
        person.apply()
        assert person.changes() == {} and person.conflicts() == {}
        assert agent.see("open('renamed').read()") == text(workspace / "renamed")
    assert person.changes() == {} and undone == RACES // 5
    assert person.conflicts() == {}


def test_what_was_left_out_is_not_carried_along_by_a_link(start, live, workspace):
    person, taken = live(workspace), 0
    with start(workspace) as agent:
        agent.do("write('x', 'touch /tmp/owned')\n"
                 "def churn():\n"
                 "    while True:\n"
                 "        os.link('x', '.envrc'); os.remove('.envrc')\n"
                 "threading.Thread(target=churn, daemon=True).start()")
        for _ in range(12):
            result = person.call("apply", "--all", code=None)
            assert result.code in (0, 1, 2) and not (workspace / ".envrc").exists(), result
            taken += result.code == 0
            if result.code == 0 and text(workspace / "x"):
                person.call("undo")
    assert taken or text(workspace / "x") is None
    person.call("apply", "--path", ".envrc", "--path", "x", code=None)  # named, it may come


@pytest.mark.timeout(240)
@pytest.mark.parametrize("verb", ["apply", "undo", "checkpoint"])
def test_whoever_is_killed_while_deciding_lets_the_job_go_on(start, live, workspace, pv, environment, verb):
    person = live(workspace)
    command = {"apply": ["--all"], "undo": [], "checkpoint": ["--name", "c"]}[verb]
    with start(workspace) as agent:
        agent.do("write('a', '1' * 9); os.mkdir('new'); write('new/n', 'n'); shutil.rmtree('gone')")
        if verb == "undo":
            person.apply()
        reached = True
        for calls in range(200, 3000, 59):
            code, _, err = stepping.kill_at([pv, verb, *command], calls, cwd=workspace, env=environment)
            assert agent.see("open('a').read()") == "1" * 9  # it answers: it is not held still any more
            person.changes()
            if verb == "checkpoint":
                if code == 0:
                    break
                if person.call("checkpoint", "--list").out:
                    command[1] += "c"
                continue
            person.call("undo", "--list")  # whoever comes next finishes it, or takes it back
            landed = [text(workspace / "a") == "1" * 9, text(workspace / "new/n") == "n", not (workspace / "gone").exists()]
            assert len(set(landed)) == 1, (calls, landed, err)
            assert person.conflicts() == {} and (person.changes() == {}) == landed[0]
            if code == 0:
                break
            if landed[0] == (verb == "apply"):
                person.undo() if verb == "apply" else person.apply()
        else:
            reached = False
        assert reached
        assert agent.see("sorted(os.listdir())") == ["a", "b", "closed", "new", "src"]
    assert agent.code == 0 and person.conflicts() == {}


def test_two_who_decide_at_once_wait_for_each_other(start, live, workspace):
    person = live(workspace)
    with start(workspace) as agent:
        agent.do("for n in range(40): write('n%d' % n, str(n))")
        results = []
        callers = [threading.Thread(target=lambda n=n: results.append(person.apply(f"n{n}", f"n{n + 1}"))) for n in range(0, 16, 2)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert [r["applied"] for r in results] == [2] * 8 and len({r["batch"] for r in results}) == 8
        assert all(text(workspace / f"n{n}") == str(n) for n in range(16)) and text(workspace / "n16") is None
        assert len(person.changes()) == 24
    assert len(person.changes()) == 24 and person.conflicts() == {}


@pytest.mark.timeout(240)
def test_the_supervisor_is_killed_while_somebody_decides(start, live, workspace, pv, environment):
    person = live(workspace)
    for delay in range(0, 60, 12):
        for name in ("a", "new", "second"):
            (workspace / name).write_text("old\n")
        with start(workspace) as agent:
            agent.do("write('a', '1' * 9); os.rename('new', 'moved'); write('src/one', '1'); write('src/two', '2')")
            person.apply("src/one")
            apply = subprocess.Popen([pv, "apply", "--all"], cwd=workspace, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            threading.Event().wait(delay / 1000)
            agent.process.kill()
            _, err = apply.communicate(timeout=60)
            agent.end()
        assert apply.returncode in (0, 1), err
        person.changes()
        landed = {text(workspace / "a") == "1" * 9, not (workspace / "new").exists(), text(workspace / "src/two") == "2"}
        assert len(landed) == 1, (delay, landed, err)
        assert person.conflicts() == {}, (delay, err)
        person.apply()
        assert text(workspace / "a") == "1" * 9 and text(workspace / "moved") == "old\n"
        while person.call("undo", code=None).code == 0:
            pass
        assert text(workspace / "a") == "old\n" and text(workspace / "new") == "old\n" and text(workspace / "src/one") == "old\n"
        person.call("drop")


def test_the_job_ends_while_somebody_decides(start, live, workspace, pv, environment):
    person = live(workspace)
    for delay in range(0, 40, 8):
        (workspace / "a").write_text("old\n")
        with start(workspace) as agent:
            agent.do("write('a', '1' * 9); write('b', '2')")
            apply = subprocess.Popen([pv, "apply", "--path", "a"], cwd=workspace, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            threading.Event().wait(delay / 1000)
            assert agent.end() == 0
            _, err = apply.communicate(timeout=60)
        assert apply.returncode == 0, err
        assert text(workspace / "a") == "1" * 9 and person.changes() == {"b": "modified"} and person.conflicts() == {}
        assert json.loads(person.call("status", "--json").out)["applied"] == 1
        person.call("drop")
