# SPDX-License-Identifier: Apache-2.0
"""apply --commits: what lands, what stays, what goes aside; that nothing of the host's is lost; that undo takes it back."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from lib.jobs import printable


class Repository:
    def __init__(self, run, pvisor, path):
        self.run, self.pvisor, self.path = run, pvisor, path

    def git(self, *args, cwd=None, code=0):
        result = self.run(["git", *args], cwd=cwd or self.path)
        assert code is None or result.code == code, result.err
        return result.out.rstrip("\n")

    def agent(self, text, *options, cwd=None):
        self.pvisor("run", "--stage", "-q", *options, "--", "sh", "-euc", text, cwd=cwd or self.path)

    def commits(self, *args, code=0, cwd=None):
        return self.pvisor("apply", "--commits", *args, code=code, cwd=cwd or self.path)

    def references(self, *args, **options):
        return json.loads(self.commits("--json", *args, **options).out)["commits"]

    def status(self, cwd=None):
        return self.git("status", "--porcelain", cwd=cwd).splitlines()

    def refs(self):
        return dict(reversed(line.split(" ", 1)) for line in self.git("show-ref", code=None).splitlines())

    def subjects(self, ref="HEAD", cwd=None):
        return self.git("log", "--format=%s", ref, cwd=cwd).splitlines()

    def check(self, cwd=None):
        """What must hold whatever happened: a whole repository, and nothing of ours left in it."""
        self.git("fsck", "--full", "--strict", "--no-dangling", cwd=cwd)
        top = os.path.realpath(os.path.join(cwd or self.path, self.git("rev-parse", "--git-common-dir", cwd=cwd)))
        own = os.path.realpath(os.path.join(cwd or self.path, self.git("rev-parse", "--git-dir", cwd=cwd)))
        names = os.listdir(os.path.join(top, "objects")) + os.listdir(own)
        assert not [n for n in names if "pvisor" in n or n.endswith(".lock")]
        packs = os.path.join(top, "objects/pack")
        assert not [n for n in os.listdir(packs) if n.endswith(".keep")]
        assert not self.git("for-each-ref", "refs/pvisor", cwd=cwd)
        # git that packs references at the same moment may leave the empty directory.
        assert not [files for _, _, files in os.walk(os.path.join(top, "refs/pvisor")) if files]


@pytest.fixture
def repo(run, pvisor, workspace):
    return Repository(run, pvisor, workspace)


def at(repo, **of):
    """The reference of a report with these members."""
    def find(references):
        found = [r for r in references if all(r[k] == v for k, v in of.items())]
        assert len(found) == 1, references
        return found[0]
    return find


# ---- what lands ----

def test_commits_and_their_files_land_and_the_rest_stays(repo):
    repo.agent("""
    echo 1 >> README.md; echo x > new; git add new; git commit -qam 'Fix the parser'
    git rm -q docs/guide.txt; git mv src/main.c src/start.c; chmod +x src/util/list.c; git commit -qam 'Move'
    echo 2 >> README.md; echo loose > loose; echo 3 >> .gitignore; mkdir -p out; echo o > out/o
    """)
    out = repo.commits().out
    assert "main +2" in out and "checked out here" in out
    assert repo.subjects() == ["Move", "Fix the parser", "First"]
    # The agent's own status, but for what was left: its later line of README.md came with the file.
    assert repo.status() == [" M README.md"]
    assert not (repo.path / "loose").exists() and not (repo.path / "docs/guide.txt").exists()
    assert os.access(repo.path / "src/util/list.c", os.X_OK) and (repo.path / "src/start.c").exists()
    assert repo.git("reflog", "-1", "--format=%gs").startswith("pvisor apply --commits of run-")
    repo.check()
    repo.pvisor("apply", "--all", cwd=repo.path)
    assert repo.status() == [" M .gitignore", " M README.md", "?? loose"]


def test_all_with_the_commits(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; echo loose > loose; echo z >> src/main.c")
    repo.commits("--all")
    assert repo.subjects() == ["One", "First"] and repo.status() == [" M src/main.c", "?? loose"]
    repo.check()


def test_again_is_harmless_and_more_follows(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.commits()
    before = repo.refs()
    assert "no commits to bring over" in repo.commits().out
    repo.pvisor("run", "--stage", "-q", "--continue", "last", "--", "sh", "-c",
                "echo 2 >> README.md; git commit -qam Two", cwd=repo.path)
    assert repo.refs() == before
    repo.commits()
    assert repo.subjects() == ["Two", "One", "First"] and repo.status() == []
    repo.check()


def test_undo_takes_back_branches_index_and_files(repo):
    (repo.path / "mine").write_text("mine")
    repo.git("add", "mine")
    before, status = repo.refs(), repo.status()
    repo.agent("echo 1 >> README.md; echo n > new; git add README.md new; git commit -qm One README.md new; git tag v1")
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == status
    result = repo.pvisor("undo", cwd=repo.path)
    assert "2 references and 2 paths" in result.err
    assert repo.refs() == before and repo.status() == status and not (repo.path / "new").exists()
    repo.check()
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == status
    repo.check()


def test_undo_refuses_when_a_branch_moved_on(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.commits()
    repo.git("commit", "-q", "--allow-empty", "-m", "Mine")
    before = repo.refs()
    result = repo.pvisor("undo", cwd=repo.path, code=3)
    assert "refs/heads/main" in result.err and "moved since" in result.err
    assert repo.refs() == before and repo.status() == []
    repo.check()


def test_undo_takes_newest_first(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; git branch side; echo z >> src/main.c")
    repo.commits()
    repo.pvisor("apply", "--all", cwd=repo.path)
    repo.pvisor("undo", cwd=repo.path)
    assert repo.status() == [] and repo.subjects() == ["One", "First"]
    repo.pvisor("undo", cwd=repo.path)
    assert repo.status() == [] and repo.subjects() == ["First"]
    repo.check()


def test_dry_run_changes_nothing(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; git tag v1")
    before, objects = repo.refs(), repo.git("count-objects", "-v")
    out = repo.commits("--dry-run").out
    assert "main +1" in out and "tag v1 new" in out
    assert repo.refs() == before and repo.git("count-objects", "-v") == objects and repo.status() == []
    repo.check()


def test_branch_takes_commits_alone(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; echo 2 >> README.md; git commit -qam Two")
    repo.commits("--branch", "agent/fix")
    assert repo.subjects() == ["First"] and repo.status() == []
    assert repo.subjects("agent/fix") == ["Two", "One", "First"]
    repo.check()
    assert ": 1 reference of " in repo.pvisor("undo", cwd=repo.path).err
    assert list(repo.refs()) == ["refs/heads/main"]
    for name in ("main", "-x", "a..b", "a b", "x.lock", "HEAD", "pvisor\n"):
        assert repo.commits(f"--branch={name}", code=None).code in (2, 3)
    repo.check()


def test_branch_moves_forward_only(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("branch", "there")
    repo.commits("--branch", "there")
    assert repo.subjects("there") == ["One", "First"]
    repo.git("branch", "other", "main")
    mine = repo.git("commit-tree", "-m", "Mine", "-p", "main", "main^{tree}")
    repo.git("branch", "-f", "other", mine)
    assert "has commits that the job's has not" in repo.commits("--branch", "other", code=3).err
    assert repo.git("rev-parse", "other") == mine


def test_options_that_do_not_go_together(repo):
    repo.agent("echo 1 >> README.md")
    for wrong in (["--branch", "x"], ["--rewritten"], ["--commits", "--branch", "x", "--all"], ["--commits", "--git-raw"]):
        repo.pvisor("apply", *wrong, cwd=repo.path, code=2)


def test_what_runs_by_itself_stays_out_of_the_working_tree(repo):
    repo.agent("mkdir .vscode; echo '{}' > .vscode/tasks.json; echo 1 >> README.md; git add -A; git commit -qm One")
    out = repo.commits().out
    assert "would run on the host by itself" in out
    assert repo.status() == [" D .vscode/tasks.json"] and not (repo.path / ".vscode/tasks.json").exists()
    repo.pvisor("apply", "--path", ".vscode/tasks.json", cwd=repo.path)
    assert repo.status() == []


def test_excluded_files_stay(repo):
    repo.agent("echo 1 >> README.md; echo 1 >> src/main.c; git commit -qam One")
    repo.commits("--exclude", "*.c")
    assert repo.subjects() == ["One", "First"] and repo.status() == [" M src/main.c"]


# ---- what the host did meanwhile ----

def test_a_file_that_the_host_changed_stops_all_of_it(repo):
    repo.agent("echo 1 >> README.md; echo n > new; git add -A; git commit -qm One; git tag v1")
    (repo.path / "README.md").write_text("mine")
    before, objects = repo.refs(), repo.git("count-objects", "-v")
    result = repo.commits(code=3)
    assert "README.md" in result.err
    assert repo.refs() == before and repo.status() == [" M README.md"] and not (repo.path / "new").exists()
    assert repo.git("count-objects", "-v") == objects
    repo.check()


def test_a_conflict_is_merged_with_the_commits(repo):
    """The branch gets the job's commit, the file both sides' lines; status shows the person's own."""
    repo.agent("sed -i 's/^line 3$/line three/' docs/guide.txt; git commit -qam Three")
    guide = repo.path / "docs/guide.txt"
    guide.write_text(guide.read_text().replace("line 30\n", "line thirty\n"))
    repo.commits(code=3)
    repo.commits("--merge")
    assert repo.subjects() == ["Three", "First"] and repo.status() == [" M docs/guide.txt"]
    assert "line three\n" in guide.read_text() and "line thirty\n" in guide.read_text()
    assert [line for line in repo.git("diff").splitlines() if line[:2] in ("+l", "-l")] == ["-line 30", "+line thirty"]
    repo.pvisor("undo", cwd=repo.path)
    assert repo.subjects() == ["First"] and "line three\n" not in guide.read_text()
    assert "line thirty\n" in guide.read_text()
    repo.check()


def test_an_index_entry_that_the_host_staged_is_never_lost(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    text = (repo.path / "README.md").read_text()
    (repo.path / "README.md").write_text("staged by the person")
    repo.git("add", "README.md")
    (repo.path / "README.md").write_text(text)
    entry = repo.git("ls-files", "-s", "README.md")
    result = repo.commits(code=3)
    assert "README.md" in result.err
    assert repo.git("ls-files", "-s", "README.md") == entry and repo.subjects() == ["First"]
    repo.check()


def test_what_the_person_had_staged_before_may_be_committed_by_the_job(repo):
    (repo.path / "README.md").write_text("staged by the person\n")
    repo.git("add", "README.md")
    repo.agent("echo 1 >> README.md; git add -A; git commit -qm One")
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == []
    repo.pvisor("undo", cwd=repo.path)
    assert repo.status() == ["M  README.md"] and "staged by the person" in repo.git("show", ":README.md")
    repo.check()


def test_marks_of_index_entries_stay_the_persons(repo):
    repo.git("update-index", "--assume-unchanged", "README.md", "docs/guide.txt")
    repo.git("update-index", "--skip-worktree", "src/main.c", "docs/guide.txt")
    marks = repo.git("ls-files", "-v").splitlines()
    repo.agent("""
    git update-index --no-assume-unchanged README.md docs/guide.txt
    git update-index --no-skip-worktree src/main.c docs/guide.txt
    echo 1 >> README.md; echo 1 >> src/main.c; echo 1 >> src/util/list.c; git rm -q docs/guide.txt; git commit -qam One
    """)
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == []
    assert repo.git("ls-files", "-v").splitlines() == [line for line in marks if "guide" not in line]
    repo.pvisor("undo", cwd=repo.path)
    assert repo.subjects() == ["First"] and repo.git("ls-files", "-v").splitlines() == marks
    assert {line[0] for line in marks} == {"H", "h", "S", "s"} and repo.status() == []
    repo.check()


def test_marks_that_the_person_set_or_took_away_since_stay_so(repo):
    repo.git("update-index", "--assume-unchanged", "README.md")
    repo.agent("git update-index --no-assume-unchanged README.md; echo 1 >> README.md; echo 1 >> src/main.c; git commit -qam One")
    repo.commits()
    repo.git("update-index", "--no-assume-unchanged", "README.md")
    repo.git("update-index", "--skip-worktree", "src/main.c")
    marks = repo.git("ls-files", "-v")
    repo.pvisor("undo", cwd=repo.path)
    assert repo.git("ls-files", "-v") == marks and repo.subjects() == ["First"]


def test_other_entries_and_edits_of_the_host_are_left_alone(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    (repo.path / "docs/guide.txt").write_text("mine")
    (repo.path / "mine").write_text("mine")
    repo.git("add", "mine")
    repo.commits()
    assert repo.status() == [" M docs/guide.txt", "A  mine"] and repo.subjects() == ["One", "First"]
    repo.check()


def test_a_branch_that_the_host_moved_gets_a_branch_beside_it(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("commit", "-q", "--allow-empty", "-m", "Mine")
    mine = repo.git("rev-parse", "main")
    out = repo.commits().out
    assert "since main was moved here meanwhile" in out
    aside = [name for name in repo.refs() if name.startswith("refs/heads/pvisor/run-")]
    assert len(aside) == 1 and repo.subjects(aside[0]) == ["One", "First"]
    assert repo.git("rev-parse", "main") == mine and repo.status() == []
    again = repo.commits(code=3)
    assert "brought aside before" in again.err
    assert [name for name in repo.refs() if name.startswith("refs/heads/pvisor/")] == aside
    repo.check()


def test_a_branch_that_the_host_moved_back_or_deleted_does_not_come_again(repo):
    repo.git("commit", "-q", "--allow-empty", "-m", "Second")
    repo.git("branch", "gone")
    repo.agent("""
    echo 1 >> README.md; git commit -qam One
    git checkout -q gone; git commit -q --allow-empty -m Gone; git checkout -q main
    """)
    repo.git("reset", "-q", "--hard", "HEAD~1")
    repo.git("branch", "-q", "-D", "gone")
    report = repo.references()
    assert {r["why"] for r in report} == {"was moved here meanwhile", "was deleted here meanwhile"}
    assert repo.subjects("main") == ["First"] and "refs/heads/gone" not in repo.refs()
    assert sorted(repo.subjects(r["to"])[0] for r in report) == ["Gone", "One"]
    repo.check()


def test_host_packs_its_references_meanwhile(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("pack-refs", "--all")
    repo.git("gc", "-q", "--prune=now")
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == []
    repo.check()


def test_host_that_switched_branches(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("checkout", "-q", "-b", "elsewhere")
    out = repo.commits().out
    assert "main +1" in out and "checked out" not in out
    assert repo.subjects("main") == ["One", "First"] and repo.subjects() == ["First"] and repo.status() == []
    repo.check()


def test_host_in_the_middle_of_a_merge(repo):
    repo.git("checkout", "-q", "-b", "other")
    (repo.path / "docs/guide.txt").write_text("theirs")
    repo.git("commit", "-qam", "Other")
    repo.git("checkout", "-q", "main")
    (repo.path / "docs/guide.txt").write_text("ours")
    repo.git("commit", "-qam", "Ours")
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("merge", "-q", "other", code=1)
    out = repo.commits().out
    assert "is under way here" in out and repo.subjects("main")[0] == "Ours"
    assert (repo.path / ".git/MERGE_HEAD").exists()


@pytest.fixture
def side(repo):
    """main and side both change the first line of a file."""
    def diverge(name, text):
        (repo.path / "docs/guide.txt").write_text(text)
        repo.git("commit", "-qam", name)
    repo.git("checkout", "-q", "-b", "side")
    diverge("Side", "theirs")
    repo.git("checkout", "-q", "main")
    diverge("Main", "ours")
    return repo


@pytest.mark.parametrize("how", ["--merge", "--apply"])
def test_a_branch_that_is_being_rebased_does_not_move_under_it(side, how):
    side.agent("echo 1 >> README.md; git commit -qam One")
    side.git("rebase", "-q", how, "side", code=1)
    before = side.git("rev-parse", "main")
    assert "is checked out here" not in side.commits("--branch", "main", code=3).err
    out = side.commits().out
    assert "since main is in a rebase or bisect that is under way here" in out
    assert side.git("rev-parse", "main") == before
    side.git("rebase", "--abort")
    assert side.subjects() == ["Main", "First"] and side.status() == []
    [aside] = [r for r in side.refs() if "/pvisor/" in r]
    assert side.subjects(aside) == ["One", "Main", "First"]
    side.commits()  # once nothing is under way it moves after all
    assert side.subjects() == ["One", "Main", "First"] and side.status() == []
    side.check()


def test_other_branches_move_during_a_rebase(side):
    side.agent("git checkout -q -b fresh; echo 1 >> README.md; git commit -qam One; git checkout -q main")
    side.git("rebase", "-q", "side", code=1)
    assert "fresh new +1" in side.commits().out
    side.git("rebase", "--abort")
    assert side.subjects("fresh") == ["One", "Main", "First"] and not [r for r in side.refs() if "/pvisor/" in r]
    side.check()


def test_a_branch_that_another_worktree_rebases_or_a_rebase_will_move_does_not_move(side, temporary):
    linked = temporary / "linked"
    side.git("branch", "below", "side~1")
    side.git("branch", "top", "side")
    side.git("branch", "middle", "side")
    side.git("worktree", "add", "-q", str(linked), "top")
    side.agent("""
    for b in top middle below; do git update-ref refs/heads/$b $(git commit-tree -m $b -p $b $b^{tree}); done
    """)
    side.git("rebase", "-q", "--update-refs", "main", cwd=linked, code=1)
    report = {r["name"].rpartition("/")[2]: r for r in side.references()}
    assert report["top"]["aside"] and report["middle"]["aside"] and not report["below"]["aside"]
    assert "is under way here" in report["top"]["why"] and "is under way here" in report["middle"]["why"]
    side.git("rebase", "--abort", cwd=linked)
    assert side.subjects("top")[0] == side.subjects("middle")[0] == "Side" and side.subjects("below")[0] == "below"
    side.check()


def test_a_branch_that_is_being_bisected_does_not_move(repo):
    for n in range(4):
        repo.git("commit", "-q", "--allow-empty", "-m", str(n))
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.git("bisect", "start", "HEAD", "HEAD~4")
    assert "is under way here" in repo.commits().out
    repo.git("bisect", "reset")
    assert repo.subjects()[0] == "3" and repo.status() == []
    repo.check()


def test_a_head_that_a_bisect_has_detached_does_not_move(repo):
    for n in range(4):
        repo.git("commit", "-q", "--allow-empty", "-m", str(n))
    repo.git("bisect", "start", "HEAD", "HEAD~4")
    here = repo.git("rev-parse", "HEAD")
    repo.agent("echo 1 >> README.md; git commit -qam One")
    [ref] = repo.references()
    assert ref["aside"] and "is under way here" in ref["why"]
    assert repo.git("rev-parse", "HEAD") == here and repo.status() == []
    repo.git("bisect", "reset")
    repo.check()


def test_what_the_host_reset_away_can_be_had_again(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.commits()
    repo.git("reset", "-q", "--hard", "HEAD~1")
    [ref] = repo.references("--dry-run")
    assert ref["aside"] and ref["why"] == "was moved here meanwhile"
    repo.commits("--branch", "again")
    assert repo.subjects("again") == ["One", "First"]
    assert "no commits to bring over" in repo.commits().out
    repo.git("branch", "-q", "-D", "again")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    [ref] = repo.references("--rewritten")
    assert ref["aside"] and repo.subjects(ref["to"]) == ["One", "First"]
    assert repo.subjects() == ["First"] and repo.status() == []
    assert "no commits to bring over" in repo.commits().out
    repo.check()


def test_what_the_host_reset_away_and_the_job_never_made_stays_away(repo):
    repo.git("commit", "-q", "--allow-empty", "-m", "Second")
    repo.agent("echo 1 >> README.md")
    repo.git("reset", "-q", "--hard", "HEAD~1")
    assert "no commits to bring over" in repo.commits().out
    assert list(repo.refs()) == ["refs/heads/main"]


def test_index_lock_of_the_host_is_waited_for_and_respected(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One")
    lock = repo.path / ".git/index.lock"
    lock.write_text("")
    result = repo.commits(code=1)
    assert "index.lock" in result.err and "hint:" in result.err
    assert lock.exists() and repo.subjects() == ["First"]
    lock.unlink()
    repo.commits()
    assert repo.subjects() == ["One", "First"]
    repo.check()


# ---- what the job did ----

def test_rewritten_history_is_said_and_needs_a_word(repo):
    repo.git("commit", "-q", "--allow-empty", "-m", "Second")
    old = repo.git("rev-parse", "main")
    repo.agent("echo 1 >> README.md; git commit -q -a --amend -m Rewritten")
    result = repo.commits(code=3)
    assert "was rewritten in the job" in result.err and repo.git("rev-parse", "main") == old
    repo.check()
    repo.commits("--rewritten")
    assert repo.subjects() == ["Rewritten", "First"] and repo.status() == []
    repo.pvisor("undo", cwd=repo.path)
    assert repo.git("rev-parse", "main") == old and repo.status() == []
    repo.commits("--branch", "rewritten")
    assert repo.subjects("rewritten") == ["Rewritten", "First"] and repo.git("rev-parse", "main") == old
    repo.check()


def test_rewritten_never_takes_what_the_host_committed(repo):
    repo.git("commit", "-q", "--allow-empty", "-m", "Second")
    repo.agent("git commit -q --amend --allow-empty -m Rewritten")
    repo.git("commit", "-q", "--allow-empty", "-m", "Mine")
    repo.commits("--rewritten")
    assert repo.subjects("main") == ["Mine", "Second", "First"]
    repo.check()


def test_new_branches_tags_merges_and_deletions(repo):
    repo.git("branch", "old")
    repo.git("tag", "v0")
    repo.agent("""
    git checkout -q -b topic; echo 1 > topic; git add -A; git commit -qm Topic; git checkout -q main
    echo 2 >> README.md; git commit -qam Main; git merge -q --no-edit topic
    git tag light; git tag -a -m annotated v1; git tag -f v0 >/dev/null; git branch -q -D old
    git update-ref refs/notes/commits HEAD; git update-ref refs/odd/x HEAD
    """)
    out = repo.commits().out
    assert "tag v0 is another one here; tags are not moved" in out
    assert "old was deleted in the job; it stays here" in out
    assert "of other kinds" in out
    refs = repo.refs()
    assert sorted(refs) == ["refs/heads/main", "refs/heads/old", "refs/heads/topic", "refs/tags/light", "refs/tags/v0",
                            "refs/tags/v1"]
    assert repo.git("cat-file", "-t", "v1") == "tag" and repo.git("rev-parse", "v1^{}") == refs["refs/heads/main"]
    assert len(repo.git("log", "-1", "--format=%P", "main").split()) == 2
    assert repo.status() == [] and (repo.path / "topic").read_text() == "1\n"
    repo.check()


def test_stash_stays(repo):
    repo.agent("echo 1 >> README.md; git stash -q; echo 1 >> src/main.c; git commit -qam One")
    assert "of other kinds (stash" in repo.commits().out
    assert repo.subjects() == ["One", "First"] and not repo.git("stash", "list")


def test_a_job_on_another_branch(repo):
    """The checked-out branch only moves together with its files."""
    repo.agent("""
    echo 1 >> README.md; git commit -qam Main
    git checkout -q -b feature HEAD~1; echo f > feature; git add -A; git commit -qm Feature
    """)
    report = repo.references()
    assert at(repo, name="refs/heads/feature")(report)["to"] == "refs/heads/feature"
    main = at(repo, name="refs/heads/main")(report)
    assert main["aside"] and main["to"].startswith("refs/heads/pvisor/run-")
    assert repo.subjects("feature") == ["Feature", "First"] and repo.subjects() == ["First"] and repo.status() == []
    repo.check()


def test_a_switch_to_a_new_branch_brings_it_and_touches_no_file(repo):
    repo.agent("git checkout -q -b feature; echo f > feature; git add -A; git commit -qm Feature")
    repo.commits()
    assert repo.subjects("feature") == ["Feature", "First"] and not (repo.path / "feature").exists()
    assert repo.git("symbolic-ref", "HEAD") == "refs/heads/main" and repo.status() == []
    repo.git("switch", "-q", "feature")
    assert (repo.path / "feature").exists()
    repo.check()


def test_odd_names(repo):
    """What git takes for a name and a shell, an option parser or a person might take for something else stays."""
    odd = ["with;semicolon", "$(touch,x)", "`x`", "a'b", "-dash", "HEAD", "a" * 40, "x/-y", "pvisor/mine", "refs/heads/x",
           "a#b", "a!b", "\u202eevil", "a\x01b"]
    sane = ["uml\u00e4ut", "a/b/c", "v1.2-rc_3+x", "x@y"]
    script = "import subprocess, sys\nfor n in sys.argv[1:]: subprocess.run(['git', 'update-ref', 'refs/heads/' + n, 'HEAD'])"
    repo.pvisor("run", "--stage", "-q", "--", "/usr/bin/python3", "-c", script, *[n for n in odd if "\x01" not in n], *sane,
                cwd=repo.path)
    result = repo.commits()
    assert sorted(n.removeprefix("refs/heads/") for n in repo.refs()) == sorted([*sane, "main"])
    assert printable(result.out) and "has a name that is not taken over" in result.out
    repo.check()


def test_a_name_that_clashes(repo):
    repo.agent("git branch -m main trunk; git branch main/x; git branch fine")
    out = repo.commits().out
    assert "main/x its name clashes" in out and "refs/heads/fine" in repo.refs()
    repo.check()


# ---- kinds of repositories ----

def test_detached(repo):
    repo.git("checkout", "-q", "--detach")
    repo.agent("echo 1 >> README.md; git commit -qam One")
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.subjects("main") == ["First"] and repo.status() == []
    repo.pvisor("undo", cwd=repo.path)
    assert repo.subjects() == ["First"] and repo.status() == []
    repo.check()


def test_detached_in_the_job_alone(repo):
    repo.agent("git checkout -q --detach; echo 1 >> README.md; git commit -qam One")
    out = repo.commits().out
    assert "its HEAD is on no branch" in out
    assert repo.subjects() == ["First"] and repo.status() == []
    assert [repo.subjects(n)[0] for n in repo.refs() if "/pvisor/" in n] == ["One"]
    repo.check()


def test_unborn(run, pvisor, make_workspace, environment):
    path = make_workspace(git=False, name="unborn")
    repo = Repository(run, pvisor, path)
    repo.git("init", "-q")
    repo.git("add", "README.md", "src")
    repo.agent("echo 1 >> README.md; git add -A; git commit -qm 'The very first'")
    repo.commits()
    assert repo.subjects() == ["The very first"] and repo.status() == []
    repo.check()
    repo.pvisor("undo", cwd=path)
    assert repo.refs() == {} and "A  README.md" in repo.status() and "?? docs/" in repo.status()


def test_sha256(run, pvisor, make_workspace):
    path = make_workspace(git=False, name="sha256")
    repo = Repository(run, pvisor, path)
    repo.git("init", "-q", "--object-format=sha256")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "First")
    repo.agent("echo 1 >> README.md; git rm -q docs/guide.txt; git commit -qam One; git tag -a -m x v1")
    repo.commits()
    assert repo.subjects() == ["One", "First"] and repo.status() == [] and len(repo.git("rev-parse", "HEAD")) == 64
    repo.check()
    repo.pvisor("undo", cwd=path)
    assert repo.subjects() == ["First"] and repo.status() == []


def test_shallow(run, pvisor, repo, temporary):
    for i in range(5):
        repo.git("commit", "-q", "--allow-empty", "-m", f"More {i}")
    path = temporary / "shallow"
    repo.git("clone", "-q", "--depth", "2", f"file://{repo.path}", str(path))
    shallow = Repository(run, pvisor, path)
    shallow.agent("echo 1 >> README.md; git commit -qam One")
    out = shallow.commits().out
    assert "git push origin main" in out
    assert shallow.subjects() == ["One", "More 4", "More 3"] and shallow.status() == []
    shallow.check()


def test_a_cut_in_the_jobs_history_is_refused(repo):
    """A commit whose parent is nowhere: git inside believes it, with a shallow file of the agent's."""
    repo.agent("""
    tree=$(git write-tree)
    commit=$(printf 'tree %s\\nparent %040d\\nauthor A <a@b> 1 +0000\\ncommitter A <a@b> 1 +0000\\n\\nCut\\n' $tree 7 |
             git hash-object -t commit -w --stdin --literally)
    echo $commit > .git/shallow; git update-ref refs/heads/cut $commit
    """)
    before = repo.refs()
    assert "git refuses their objects" in repo.commits(code=6).err
    assert repo.refs() == before
    repo.check()


def test_a_linked_worktree(run, pvisor, repo, temporary):
    linked = temporary / "linked"
    repo.git("worktree", "add", "-q", "-b", "side", str(linked))
    there = Repository(run, pvisor, linked)
    there.agent("echo x >> README.md; git commit -qam 'In the worktree'")
    there.commits()
    assert there.subjects() == ["In the worktree", "First"] and there.status() == []
    assert repo.subjects() == ["First"] and repo.status() == []
    there.check()
    there.pvisor("undo", cwd=linked)
    assert there.subjects() == ["First"] and there.status() == []


def test_a_branch_of_another_worktree_does_not_move_under_it(run, pvisor, repo, temporary):
    linked = temporary / "linked"
    repo.git("worktree", "add", "-q", "-b", "side", str(linked))
    repo.agent("git update-ref refs/heads/side $(git commit-tree -m Sly -p side side^{tree})")
    out = repo.commits().out
    assert "is checked out in another work tree" in out
    assert repo.subjects("side") == ["First"] and repo.status(cwd=linked) == []
    assert "is checked out here" in repo.commits("--branch", "side", code=3).err
    repo.check()


def test_submodules(run, pvisor, repo, make_workspace):
    other = make_workspace({"inner.txt": "x\n"}, name="other")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    repo.git("commit", "-qm", "With a submodule")
    repo.git("-C", "sub", "checkout", "-q", "--detach")
    repo.agent("""
    cd sub; echo y >> inner.txt; git commit -qam Inner; cd ..
    echo 1 >> README.md; git add sub README.md; git commit -qm Outer
    """)
    out = repo.commits().out
    assert "sub: HEAD +1" in out and "main +1" in out
    assert repo.status() == [] and repo.subjects()[0] == "Outer"
    assert repo.subjects(cwd=repo.path / "sub") == ["Inner", "First"] and repo.status(cwd=repo.path / "sub") == []
    assert repo.git("rev-parse", "HEAD:sub") == repo.git("rev-parse", "HEAD", cwd=repo.path / "sub")
    repo.check()
    repo.check(cwd=repo.path / "sub")
    repo.pvisor("undo", cwd=repo.path)
    assert repo.status() == [] and repo.subjects()[0] == "With a submodule"
    assert repo.subjects(cwd=repo.path / "sub") == ["First"]


def test_submodules_of_a_work_tree_of_its_own(run, pvisor, repo, make_workspace, temporary):
    """Their git directories lie in that of the work tree: their commits come, their hooks do not."""
    allowed = ("-c", "protocol.file.allow=always")
    other = make_workspace({"inner.txt": "x\n"}, name="other")
    repo.git(*allowed, "submodule", "--quiet", "add", str(other), "sub")
    repo.git("commit", "-qm", "With a submodule")
    repo.git("worktree", "add", "-q", "-b", "side", str(temporary / "side"))
    side = type(repo)(run, pvisor, temporary / "side")
    side.git(*allowed, "submodule", "--quiet", "update", "--init")
    side.agent("""
    cd sub; echo y >> inner.txt; git commit -qam Inner
    d=$(git rev-parse --git-dir); mkdir -p "$d/hooks"; echo evil >"$d/hooks/pre-commit"; chmod 755 "$d/hooks/pre-commit"
    git config core.fsmonitor ./evil; cd ..; git add sub; git commit -qm Outer
    """)
    gitdir = Path(side.git("-C", "sub", "rev-parse", "--absolute-git-dir").strip())
    runs = pvisor("review", cwd=side.path).out.split("Would run on the host by itself")[1].split("\n\n")[0]
    assert "hooks/pre-commit" in runs and "sub/config" in runs
    out = side.commits().out
    assert "side +1" in out and "sub: HEAD +1" in out
    assert side.status() == [] and side.subjects(cwd=side.path / "sub") == ["Inner", "First"]
    assert side.git("rev-parse", "HEAD:sub") == side.git("rev-parse", "HEAD", cwd=side.path / "sub")
    assert not (gitdir / "hooks/pre-commit").exists()
    side.check(cwd=side.path / "sub")
    pvisor("undo", cwd=side.path)
    assert side.status() == [] and side.subjects(cwd=side.path / "sub") == ["First"]


@pytest.fixture
def nested(repo, make_workspace):
    """A submodule in a submodule, each on a branch."""
    allowed = ("-c", "protocol.file.allow=always")
    middle, inner = (make_workspace({f"{name}.txt": "x\n"}, name=name) for name in ("middle", "inner"))
    repo.git(*allowed, "submodule", "--quiet", "add", str(inner), "deep", cwd=middle)
    repo.git("commit", "-qm", "With a submodule", cwd=middle)
    repo.git(*allowed, "submodule", "--quiet", "add", str(middle), "sub")
    repo.git("commit", "-qm", "With submodules")
    repo.git(*allowed, "submodule", "--quiet", "update", "--init", "--recursive")
    for path in ("sub", "sub/deep"):
        repo.git("checkout", "-q", "-B", "main", cwd=repo.path / path)
    return repo


IN_ALL_THREE = """
cd sub/deep; echo y >> inner.txt; git commit -qam Inner; cd ..
echo y >> middle.txt; git commit -qm Middle deep middle.txt; cd ..
echo y >> README.md; git commit -qm Outer sub README.md
"""


def test_nested_submodules(nested):
    before = [nested.subjects(cwd=nested.path / path) for path in ("", "sub", "sub/deep")]
    nested.agent(IN_ALL_THREE)
    review = nested.pvisor("review", cwd=nested.path).out
    assert re.search(r"^ *main \+1", review, re.M), review
    assert nested.status() == [] and "+y" in nested.pvisor("diff", cwd=nested.path).out
    out = nested.commits().out
    for line in ("  main +1", "  sub: main +1", "  sub/deep: main +1"):
        assert line in out
    for path, subject in ("", "Outer"), ("sub", "Middle"), ("sub/deep", "Inner"):
        there = nested.path / path
        assert nested.subjects(cwd=there)[0] == subject and nested.status(cwd=there) == []
        nested.check(cwd=there)
    nested.pvisor("undo", cwd=nested.path)
    assert [nested.subjects(cwd=nested.path / path) for path in ("", "sub", "sub/deep")] == before
    assert nested.status() == [] and nested.status(cwd=nested.path / "sub/deep") == []


@pytest.mark.parametrize("where,said", [("sub", ["  main +1", "  deep: main +1"]), ("sub/deep", ["  main +1"])])
def test_a_workspace_that_is_a_submodule(nested, where, said):
    there = nested.path / where
    nested.agent({"sub": IN_ALL_THREE.split("cd ..\necho y >> README")[0].replace("cd sub/deep", "cd deep"),
                  "sub/deep": "echo y >> inner.txt; git commit -qam Inner"}[where], cwd=there)
    out = nested.commits(cwd=there).out
    assert [line for line in said if line not in out] == []
    assert nested.status(cwd=there) == [] and nested.subjects() == ["With submodules", "First"]
    assert nested.status() == [" M sub"]
    nested.check(cwd=there)
    nested.pvisor("undo", cwd=there)
    assert nested.status() == [] and nested.status(cwd=there) == []


def test_the_files_of_nested_submodules_alone(nested):
    nested.agent(IN_ALL_THREE)
    nested.pvisor("apply", "--all", cwd=nested.path)
    assert nested.status(cwd=nested.path / "sub/deep") == [" M inner.txt"]
    assert nested.subjects(cwd=nested.path / "sub/deep")[0] == "First"
    nested.pvisor("undo", cwd=nested.path)
    assert nested.status(cwd=nested.path / "sub/deep") == []


def test_a_host_edit_in_a_nested_submodule_stops_all_of_it(nested):
    nested.agent(IN_ALL_THREE)
    (nested.path / "sub/deep/inner.txt").write_text("mine\n")
    refs = [nested.git("show-ref", cwd=nested.path / path) for path in ("", "sub", "sub/deep")]
    assert "sub/deep/inner.txt" in nested.commits(code=3).err
    assert [nested.git("show-ref", cwd=nested.path / path) for path in ("", "sub", "sub/deep")] == refs
    for path in ("", "sub", "sub/deep"):
        nested.check(cwd=nested.path / path)


def test_a_submodule_with_a_git_directory_of_its_own(repo, make_workspace):
    make_workspace({"inner.txt": "x\n"}, where=repo.path, name="old")
    repo.git("-c", "advice.addEmbeddedRepo=false", "add", "old")
    repo.git("commit", "-qm", "With a repository in it")
    repo.agent("cd old; echo y >> inner.txt; git commit -qam Inner")
    assert "  old: main +1" in repo.commits().out
    assert repo.subjects(cwd=repo.path / "old") == ["Inner", "First"] and repo.status() == [" M old"]
    repo.check(cwd=repo.path / "old")


def test_lfs_pointers_are_carried_as_they_are_and_their_objects_with_them(repo):
    name = hashlib.sha256(b"large content").hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize 13\n"
    place = f".git/lfs/objects/{name[:2]}/{name[2:4]}"
    wrong = "f" * 64
    repo.agent(f"""
    printf '%s' '{pointer}' > a.big; git add a.big; git commit -qm Big
    mkdir -p {place}; printf 'large content' > {place}/{name}; printf 'other' > {place}/{wrong}; echo x > {place}/x
    """)
    repo.commits()
    assert repo.git("show", "HEAD:a.big") == pointer.strip() and repo.status() == []
    assert (repo.path / place / name).read_text() == "large content"
    assert os.listdir(repo.path / place) == [name]
    repo.check()
    repo.pvisor("undo", cwd=repo.path)
    assert not (repo.path / place / name).exists()


@pytest.mark.root
def test_roots_apply_leaves_the_owner_an_own_repository(run, pvisor):
    """Root takes commits into somebody else's repository: git works as that person, and nothing in it becomes root's."""
    place = Path(tempfile.mkdtemp(prefix="pvisor-test-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        path = place / "theirs"
        path.mkdir()
        repo = Repository(run, pvisor, path)
        (path / "a").write_text("a\n")
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "First"]):
            repo.git(*command)
        for top, _, files in os.walk(place):
            for name in [top, *(os.path.join(top, f) for f in files)]:
                os.chown(name, 65534, 65534)
        repo.agent("git config --global --add safe.directory '*'; echo b >> a; git commit -qam One; git tag v1")
        repo.commits()
        assert (path / ".git/refs/tags/v1").exists() and (path / "a").read_text() == "a\nb\n"
        others = [p for p in path.rglob("*") if p.lstat().st_uid != 65534]
        assert not others
        repo.pvisor("undo", cwd=path)
        assert (path / "a").read_text() == "a\n" and not [p for p in path.rglob("*") if p.lstat().st_uid != 65534]
    finally:
        shutil.rmtree(place)


def test_a_plain_directory_has_no_commits(pvisor, plain):
    pvisor("run", "--stage", "-q", "--", "sh", "-euc", "git init -q; git add -A; git commit -qm One", cwd=plain)
    result = pvisor("apply", "--commits", cwd=plain, code=1)
    assert "hint:" in result.err and not (plain / ".git").exists()


# ---- other jobs ----

def test_while_the_job_runs(repo, pv, environment):
    """Commits are taken from a running job, taken back, taken again; and what it commits afterwards follows."""
    job = subprocess.Popen([pv, "run", "--stage", "-q", "--name", "live", "--", "sh", "-euc", """
        echo 1 >> README.md; git commit -qam One; echo one; read go
        echo 2 >> README.md; git commit -qam Two; git tag v2; echo two; read go
        """], cwd=repo.path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "one\n"
        repo.commits("live")
        assert repo.subjects() == ["One", "First"] and repo.status() == []
        repo.pvisor("undo", "live", cwd=repo.path)
        assert repo.subjects() == ["First"] and repo.status() == []
        repo.commits("live")
        job.stdin.write("go\n")
        job.stdin.flush()
        assert job.stdout.readline() == "two\n"
        repo.commits("live")
        assert repo.subjects() == ["Two", "One", "First"] and repo.status() == [] and "refs/tags/v2" in repo.refs()
        assert job.poll() is None
    finally:
        job.communicate("go\n", timeout=60)
    assert job.returncode == 0
    assert "no commits to bring over" in repo.commits("live").out
    repo.check()


def test_a_fork_brings_its_parents_commits_with_its_own(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; git commit -q --amend -m Parent")
    repo.pvisor("fork", "last", "--", "sh", "-euc", "echo 2 >> README.md; git commit -qam Child", cwd=repo.path)
    repo.commits()
    assert repo.subjects() == ["Child", "Parent", "First"] and repo.status() == []
    repo.check()


def test_two_jobs_on_one_branch(repo):
    """The second one's branch no longer follows what the host has, and goes aside."""
    repo.agent("echo 1 >> README.md; git commit -qam One", "--name", "one")
    repo.agent("echo z >> src/main.c; git commit -qam Other", "--name", "two")
    repo.commits("one")
    out = repo.commits("two").out
    assert "since main was moved here meanwhile" in out and repo.subjects() == ["One", "First"]
    repo.pvisor("undo", "two", cwd=repo.path)
    repo.pvisor("undo", "one", cwd=repo.path)
    assert list(repo.refs()) == ["refs/heads/main"] and repo.subjects() == ["First"] and repo.status() == []
    repo.check()


def test_dropping_leaves_what_was_brought(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; echo z > z")
    repo.commits()
    repo.pvisor("drop", "last", cwd=repo.path)
    assert repo.subjects() == ["One", "First"] and repo.status() == []
    repo.check()


# ---- crashes ----

# Calls of pvisor's own that change something, and how many of each one landing makes; clone starts git.
CALLS = {"renameat": 21, "renameat2": 4, "linkat": 1, "unlink": 1, "mkdirat": 10, "fsync": 4, "clone": 26, "unlinkat": 86}
POINTS = [(call, nth) for call, most in CALLS.items() for nth in range(1, most + 1) if call != "unlinkat" or nth > 50]
STEP = 11
struck = pytest.mark.parametrize("call, nth", POINTS[int(os.environ.get("PV_TEST_OFFSET", "0")) % STEP::STEP])


class Landing:
    """One commit, a new file and a tag, that land whole or not at all."""

    def __init__(self, repo, pv, environment):
        self.repo, self.pv, self.environment = repo, pv, environment
        repo.agent("echo 1 >> README.md; echo n > new; git add -A; git commit -qm One; git tag v1")
        self.before = repo.refs()

    def killed(self, *command, call, nth):
        """Kills pvisor at the nth such call; what it had started comes to its end."""
        subprocess.run(["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                        f"inject={call}:signal=KILL:when={nth}", self.pv, *command],
                       cwd=self.repo.path, env=self.environment, capture_output=True)
        deadline = time.monotonic() + 20
        while subprocess.run(["pgrep", "-f", str(self.repo.path / ".git")], capture_output=True).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def settle(self):
        """Any command that takes the stage finishes it or takes it back: then all of it is there, or nothing."""
        self.repo.pvisor("undo", "--list", cwd=self.repo.path)
        self.repo.check()
        landed = self.repo.subjects() == ["One", "First"]
        assert self.repo.status() == [] and (self.repo.path / "new").exists() == landed
        assert ("refs/tags/v1" in self.repo.refs()) == landed and (landed or self.repo.refs() == self.before)
        return landed


@pytest.fixture
def landing(repo, pv, environment):
    return Landing(repo, pv, environment)


@pytest.mark.slow
@struck
def test_killed_anywhere_it_is_finished_or_taken_back(landing, call, nth):
    landing.killed("apply", "--commits", call=call, nth=nth)
    if not landing.settle():
        landing.repo.commits()
        assert landing.settle()
    landing.repo.pvisor("undo", cwd=landing.repo.path)
    assert not landing.settle()


@pytest.mark.slow
@struck
def test_killed_while_it_is_taken_back_all_of_it_goes_or_none(landing, call, nth):
    landing.repo.commits()
    landing.killed("undo", call=call, nth=nth)
    if landing.settle():
        landing.repo.pvisor("undo", cwd=landing.repo.path)
        assert not landing.settle()


# ---- the words around it ----

def test_review_names_the_command(repo):
    repo.agent("echo 1 >> README.md; git commit -qam One; echo 1 >> README.md; git commit -qam Two")
    assert re.search(r"pvisor apply \S+ --commits +2 commits with their files", repo.pvisor("review", cwd=repo.path).out)
    assert "--commits brings commits over" in repo.pvisor("apply", "--all", "--dry-run", cwd=repo.path).out
    repo.commits()
    assert "--commits" not in repo.pvisor("review", cwd=repo.path).out


def test_what_to_type_next(repo):
    repo.git("remote", "add", "upstream", "https://example.invalid/x.git")
    repo.agent("echo 1 >> README.md; git commit -qam One")
    base = repo.git("rev-parse", "main")
    out = repo.commits().out
    assert f"rebase --exec 'git commit -q --amend --no-edit -S' {base[:8]}" in out
    assert "git push upstream main" in out and "pvisor undo" in out
