# SPDX-License-Identifier: Apache-2.0
"""Repositories that want to run something on the host, to bring in what git refuses, or never to end; and a host
whose own git is at work while commits are brought over."""
import os
import resource
import subprocess
import threading

import pytest

from test_commits import Repository

BOUND = 60  # seconds for each command on a hostile repository, and of the processors for all of them


@pytest.fixture
def repo(run, pvisor, workspace):
    return Repository(run, pvisor, workspace)


@pytest.fixture
def marks(temporary):
    """A directory that no view shows: what appears in it was done on the host."""
    path = temporary / "marks"
    path.mkdir(mode=0o777)
    return path


PROGRAMS = r"""
marks=%s
for name in fsmonitor hook filter pager alias textconv ssh proxy gpg editor refs pack driver; do
    printf '#!/bin/sh\ntouch "%%s/%%s" 2>/dev/null; exec cat\n' "$marks" "$name" > ".evil-$name"; chmod +x ".evil-$name"
done
"""
HOOKS = ("reference-transaction post-index-change post-checkout post-commit post-merge pre-commit commit-msg update "
         "pre-receive post-receive post-update pre-auto-gc pre-push proc-receive fsmonitor-watchman")
ATTACKS = {
    "configuration": f"""
        git config core.fsmonitor "$PWD/.evil-fsmonitor"; git config core.pager "$PWD/.evil-pager"
        git config core.hooksPath "$PWD/.hooks"; mkdir .hooks
        for hook in {HOOKS}; do cp .evil-hook ".hooks/$hook"; cp .evil-hook ".git/hooks/$hook"; done
        git config core.sshCommand "$PWD/.evil-ssh"; git config core.gitProxy "$PWD/.evil-proxy"
        git config core.editor "$PWD/.evil-editor"; git config core.alternateRefsCommand "$PWD/.evil-refs"
        git config gpg.program "$PWD/.evil-gpg"; git config log.showSignature true
        git config uploadpack.packObjectsHook "$PWD/.evil-pack"; git config diff.external "$PWD/.evil-textconv"
        git config protocol.ext.allow always; git config remote.origin.url "ext::$PWD/.evil-ssh"
        git config remote.origin.promisor true; git config remote.origin.partialclonefilter blob:none
        git config alias.rev-parse "!$PWD/.evil-alias"; git config pager.for-each-ref "$PWD/.evil-pager"
        git config include.path "$marks/included"; git config includeIf.gitdir:/.path "$marks/included"
    """,
    "filters": """
        git config filter.x.clean "$PWD/.evil-filter"; git config filter.x.smudge "$PWD/.evil-filter"
        git config filter.x.process "$PWD/.evil-filter"; git config filter.x.required true
        git config diff.x.textconv "$PWD/.evil-textconv"; git config diff.x.command "$PWD/.evil-textconv"
        git config merge.x.driver "$PWD/.evil-driver"; echo '* filter=x diff=x merge=x' > .git/info/attributes
        echo '* filter=x diff=x merge=x' > .gitattributes
    """,
    "alternates": """
        git config core.alternateRefsCommand "$PWD/.evil-refs"; printf '%s\\n' "$marks" > .git/objects/info/alternates
    """,
    "submodules": """
        printf '[submodule "x"]\\n\\tpath = x\\n\\turl = ext::%s/.evil-ssh\\n\\tupdate = !touch %s/update\\n' "$PWD" \
            "$marks" > .gitmodules
        git config submodule.x.update "!touch $marks/update"; git config submodule.recurse true
        git config protocol.ext.allow always; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),x
    """,
    "replace-and-grafts": """
        git update-ref refs/replace/$(git rev-parse HEAD) $(git commit-tree -m Replaced HEAD^{tree})
        git rev-parse HEAD > .git/info/grafts
    """,
}
# What an agent can do to its own copy, and no person has to begin with.
SWAPS = {
    "symlinked": "mv .git .real; ln -s .real .git",
    "symlinked-outside": "mv .git .real; ln -s %(marks)s .git",
    "gitfile": "mv .git .real; echo 'gitdir: .real' > .git",
    "gitfile-outside": "rm -rf .git; echo 'gitdir: %(marks)s' > .git",
    "commondir": "cp -r .git .real; echo ../.real > .git/commondir; rm -rf .git/refs .git/objects",
    "no-head": "rm .git/HEAD; mkdir .git/HEAD",
    "index-of-absurd-size": "truncate -s 20G .git/index",
    "index-of-garbage": "head -c 100000 /dev/urandom > .git/index",
    "packed-refs-of-garbage": "head -c 5000000 /dev/urandom > .git/packed-refs",
    "config-of-garbage": "head -c 100000 /dev/urandom > .git/config",
    "objects-gone": "rm -rf .git/objects; mkdir .git/objects",
}


def used_by_children():
    """Seconds of the processors: of others' work on this machine they hold nothing."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def look_and_take(repo, marks, *commands):
    """What a person does with a job, whatever each comes to."""
    began = used_by_children()
    for command in commands or (["review"], ["diff"], ["apply", "--commits"], ["apply", "--all"],
                                ["inspect", "last", "--", "git", "status"], ["undo"]):
        result = repo.pvisor(*command, cwd=repo.path, code=None, timeout=BOUND)
        assert result.code in (0, 1, 2, 3, 6, 128), (command, result)
        assert not os.listdir(marks), (command, os.listdir(marks))
    assert used_by_children() - began < BOUND


def shell(repo, environment, text):
    return subprocess.run(["sh", "-uc", text], cwd=repo.path, env=environment, capture_output=True)


def test_nothing_of_the_jobs_runs_on_the_host(repo, marks):
    before = repo.refs()
    repo.agent(PROGRAMS % marks + "echo x >> README.md; git add -A; git commit -qm One; set +e\n" +
               "\n".join(ATTACKS.values()) +
               "\necho y >> README.md; git update-ref refs/heads/more $(git commit-tree -m Two -p HEAD HEAD^{tree})")
    look_and_take(repo, marks)
    assert repo.refs().keys() >= before.keys()
    repo.check()


def test_nothing_of_the_hosts_own_repository_runs_either(repo, marks, environment):
    """A repository that came from elsewhere and lies on the host as it is."""
    shell(repo, environment, PROGRAMS % marks + "\n".join(ATTACKS.values()))
    for name in os.listdir(marks):  # what git ran for the attack's own making
        (marks / name).unlink()
    repo.agent("git update-ref refs/heads/x $(git commit-tree -m One -p HEAD HEAD^{tree})")
    look_and_take(repo, marks, ["review"], ["diff"], ["apply", "--commits"], ["inspect", "last", "--", "git", "status"])
    assert (repo.path / ".git/refs/heads/x").exists()
    look_and_take(repo, marks, ["undo"])
    assert not (repo.path / ".git/refs/heads/x").exists()


@pytest.mark.parametrize("attack, ran", [("configuration", {"fsmonitor", "hook"}), ("filters", {"filter"})])
def test_the_same_attacks_do_run_where_nobody_prevents_it(repo, marks, environment, attack, ran):
    """The twin: without this, the tests above would show nothing."""
    shell(repo, environment, PROGRAMS % marks + ATTACKS[attack])
    shell(repo, environment, "git status; echo x >> README.md; git commit -qam One </dev/null; git log -1")
    assert ran <= set(os.listdir(marks))


@pytest.mark.parametrize("swap", SWAPS)
def test_a_git_directory_that_is_not_what_it_was(repo, marks, swap):
    before, status = repo.refs(), repo.status()
    repo.agent("echo x >> README.md; git commit -qam One; set +e; " + SWAPS[swap] % {"marks": marks})
    look_and_take(repo, marks, ["review"], ["apply", "--commits", "--branch", "taken"], ["apply", "--all"], ["undo"])
    after = {n: v for n, v in repo.refs().items() if n != "refs/heads/taken"}
    assert after == before and (repo.path / ".git").is_dir() and not (repo.path / ".git").is_symlink()
    assert [line for line in repo.status() if "README.md" not in line and "real" not in line] == status
    repo.check()


TREES = {
    "dotdot": r"printf '40000 ..\0%b' $empty",
    "dot": r"printf '40000 .\0%b' $empty",
    "dotgit": r"printf '40000 .git\0%b' $empty",
    "dotgit-of-other-case": r"printf '40000 .GIT\0%b' $empty",
    "dotgit-of-ntfs": r"printf '40000 git~1\0%b' $empty",
    "slash": r"printf '100644 a/b\0%b' $blob",
    "empty-name": r"printf '100644 \0%b' $blob",
    "duplicates": r"printf '100644 a\0%b100644 a\0%b' $blob $blob",
    "unsorted": r"printf '100644 b\0%b100644 a\0%b' $blob $blob",
    "null-id": r"printf '100644 a\0%b' $null",
    "zero-padded": r"printf '0100644 a\0%b' $blob",
    "gitmodules-link": r"printf '120000 .gitmodules\0%b' $blob",
    "gitmodules-option": r"printf '100644 .gitmodules\0%b' $option",
    "gitmodules-name": r"printf '100644 .gitmodules\0%b' $escape",
}
MAKE_TREE = r"""
raw() { printf '%s' "$1" | sed 's/../\\0x&/g; s/\\0x/\\x/g'; }
bytes() { raw "$(git hash-object -w --stdin)"; }
blob=$(echo content | bytes); empty=$(raw $(git mktree </dev/null)); null=$(raw $(printf '%040d' 0))
option=$(printf '[submodule "x"]\n\tpath = x\n\turl = -u./evil\n' | bytes)
escape=$(printf '[submodule "../../x"]\n\tpath = x\n\turl = https://example.invalid/\n' | bytes)
tree=$(bash -c "$1" 2>/dev/null | git hash-object -t tree -w --stdin --literally)
git update-ref refs/heads/evil $(git commit-tree -m Evil -p HEAD $tree)
"""


@pytest.mark.parametrize("tree", TREES)
def test_what_fsck_refuses_is_not_imported(repo, tree):
    before, objects = repo.refs(), repo.git("count-objects", "-v")
    repo.pvisor("run", "--stage", "-q", "--", "bash", "-euc", MAKE_TREE.replace('bash -c "$1"', TREES[tree]),
                cwd=repo.path)
    result = repo.commits(code=None)
    if result.code == 1:  # the job's own git does not get that far
        assert "could not pack them" in result.err and tree in ("empty-name", "null-id")
    else:
        assert result.code == 6 and "git refuses their objects" in result.err
    assert repo.refs() == before and repo.status() == [] and repo.git("count-objects", "-v") == objects
    repo.check()


WRONG = {
    "an-object-under-another-name": """
        git commit -q --allow-empty -m One; c=$(git rev-parse HEAD); o=.git/objects/$(echo $c | cut -c1-2)
        w=$(echo $c | tr 0-9a-f 1-9a-f0); mkdir -p .git/objects/$(echo $w | cut -c1-2)
        cp $o/$(echo $c | cut -c3-) .git/objects/$(echo $w | cut -c1-2)/$(echo $w | cut -c3-)
        git reset -q --hard HEAD~1; echo $w > .git/refs/heads/evil
    """,
    "a-corrupt-object": """
        echo new > new; git add new; git commit -qm One; b=$(git rev-parse HEAD:new)
        f=.git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-); chmod u+w $f; head -c 40 /dev/urandom > $f
    """,
    "a-missing-object": """
        echo new > new; git add new; git commit -qm One; b=$(git rev-parse HEAD:new)
        rm -f .git/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-)
    """,
    "a-corrupt-pack": """
        echo new > new; git add new; git commit -qm One; git repack -adq
        for p in .git/objects/pack/*.pack; do chmod u+w $p; dd if=/dev/urandom of=$p bs=1 seek=60 count=80 conv=notrunc
        done 2>/dev/null
    """,
    "a-malformed-commit": """
        c=$(printf 'tree %s\\nauthor x\\n\\nOne\\n' $(git write-tree) | git hash-object -t commit -w --stdin --literally)
        git update-ref refs/heads/evil $c
    """,
    "a-branch-of-a-blob": """
        git hash-object -w README.md > .git/refs/heads/evil
    """,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_objects_that_are_not_what_they_seem(repo, wrong):
    before = repo.refs()
    repo.agent("set +e; " + WRONG[wrong])
    result = repo.commits(code=None)
    assert result.code in (1, 3, 6), result
    assert repo.refs() == before and repo.status() == []
    repo.check()


# ---- the host's own git, at work meanwhile ----

# Commits brought and taken back beside it, this many times.
ROUNDS = int(os.environ.get("PV_TEST_HOST_ROUNDS", "3"))


class Host:
    """Repeats one kind of work on the repository until it is told to stop, and notes what succeeded."""

    def __init__(self, repo, environment):
        self.repo, self.environment = repo, environment
        self.stop, self.done, self.entries, self.commits, self.rounds = threading.Event(), False, set(), set(), 0

    def git(self, *args):
        done = subprocess.run(["git", *args], cwd=self.repo.path, env=self.environment, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    def status(self):
        self.git("status", "--porcelain")

    def stage(self):
        name = f"staged-{self.rounds}"
        (self.repo.path / name).write_text(name)
        if self.git("add", name) is not None:
            self.entries.add(name)

    def commit(self):
        """On whatever main is now: each commit that succeeded must stay."""
        if self.git("commit", "-q", "--allow-empty", "-m", f"Host {self.rounds}") is not None:
            self.commits.add(f"Host {self.rounds}")

    def move(self):
        """The same past the index and its lock, as a fetch or a script moves a branch."""
        old = self.git("rev-parse", "main")
        new = self.git("commit-tree", "-m", f"Host {self.rounds}", "-p", old, f"{old}^{{tree}}")
        if new and self.git("update-ref", "refs/heads/main", new, old) is not None:
            self.commits.add(f"Host {self.rounds}")

    def collect(self):
        self.git("gc", "-q", "--prune=now")

    def branches(self):
        self.git("branch", f"temporary-{self.rounds}")
        self.git("branch", "-q", "-D", f"temporary-{self.rounds}")
        self.git("pack-refs", "--all")

    def rebase(self):
        self.git("rebase", "-q", "main~1", "topic")
        self.git("rebase", "--abort")
        self.git("checkout", "-q", "main")

    def work(self, kind):
        while not self.stop.is_set() and self.rounds < 400 * ROUNDS:
            getattr(self, kind)()
            self.rounds += 1


@pytest.mark.parametrize("kind", ["status", "stage", "commit", "move", "collect", "branches", "rebase"])
def test_the_hosts_git_at_work_loses_nothing(repo, environment, kind):
    repo.git("commit", "-q", "--allow-empty", "-m", "Second")
    repo.git("branch", "topic", "main~1")
    topic = repo.git("commit-tree", "-m", "Topic", "-p", "topic", "topic^{tree}")
    repo.git("update-ref", "refs/heads/topic", topic)
    repo.agent("echo 1 >> README.md; git commit -qam One; echo 2 > two; git add two; git commit -qm Two; git branch side")
    host = Host(repo, environment)
    worker = threading.Thread(target=host.work, args=(kind,))
    worker.start()
    must_land = kind in ("status", "stage", "collect", "branches")
    try:
        landed = rounds = 0
        while rounds < ROUNDS or (must_land and not landed and rounds < 20 * ROUNDS):
            rounds += 1
            result = repo.commits(code=None)
            assert result.code in (0, 1, 3), result
            landed += result.code == 0 and "brought over" in result.out
            repo.pvisor("undo", cwd=repo.path, code=None)
        repo.commits(code=None)
    finally:
        host.stop.set()
        worker.join()
    assert host.rounds > 0 and (landed or not must_land)
    repo.git("checkout", "-q", "main", code=None)
    every = repo.subjects("--all")
    assert {"First", "Second", "Topic"} | host.commits <= set(every)
    assert host.commits <= set(repo.subjects("main"))
    assert host.entries <= set(repo.git("ls-files").splitlines())
    repo.check()
