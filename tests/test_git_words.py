# SPDX-License-Identifier: Apache-2.0
"""What review says of git, in git's words; and that nothing of the agent's runs on the host for it."""
import re

import pytest


@pytest.fixture
def agent(pvisor, workspace):
    def call(text, cwd=workspace):
        return pvisor("run", "--stage", "-q", "--", "sh", "-euc", text, cwd=cwd)
    return call


@pytest.fixture
def git(run, workspace):
    def call(*args, cwd=workspace):
        result = run(["git", *args], cwd=cwd)
        assert result.code == 0, result.err
        return result.out
    return call


def words(text, where=""):
    """The lines of the section on a repository, without their indentation."""
    match = re.search(rf"^Git{where}  .*\n((?:  .*\n)*)", text, re.M)
    assert match, text
    return [line.strip() for line in match.group(1).splitlines()]


def review(pvisor, cwd):
    return pvisor("review", cwd=cwd).out


def test_commits_by_branch(agent, pvisor, workspace, git):
    git("branch", "old")
    agent("""
    echo 1 >> README.md; git commit -qam 'Fix the parser'; echo 2 >> README.md; git commit -qam 'Add tests'
    git branch -q -D old; git tag v1; git checkout -q -b feature; git commit -q --allow-empty -m 'On the branch'
    """)
    lines = words(review(pvisor, workspace))
    assert lines[lines.index("main +2"):][1:3] == ["Add tests", "Fix the parser"]
    assert lines[lines.index("feature new +3") + 1] == "On the branch"
    assert "HEAD main -> feature" in lines and "tag v1 new, where main is" in lines
    assert any(re.fullmatch(r"old deleted \(was [0-9a-f]{8}\)", line) for line in lines)


def test_rewritten_and_detached(agent, pvisor, workspace, git):
    git("commit", "-q", "--allow-empty", "-m", "Second")
    agent("git commit -q --amend --allow-empty -m Rewritten; git checkout -q --detach")
    lines = words(review(pvisor, workspace))
    assert "main +1 -1 (rewritten)" in lines
    assert any(re.fullmatch(r"HEAD main -> detached at [0-9a-f]{8}", line) for line in lines)


def test_staged_stash_and_settings(agent, pvisor, workspace):
    agent("""
    echo x >> README.md; git stash push -q -m 'put away'; echo x > new; git add new
    git config core.fsmonitor ./evil; git config --unset core.filemode; git config core.bare false
    """)
    lines = words(review(pvisor, workspace))
    assert lines[lines.index("staged: 1 entry") + 1] == "A new"
    assert lines[lines.index("stash: 0 -> 1") + 1] == "On main: put away"
    assert "configuration core.fsmonitor = ./evil" in lines and "configuration core.filemode unset" in lines


def test_what_the_person_had_staged_is_not_the_agents(agent, pvisor, workspace, git):
    (workspace / "mine").write_text("x")
    git("add", "mine")
    agent("echo x > theirs; git add theirs")
    lines = words(review(pvisor, workspace))
    assert "staged: 1 entry" in lines and "A theirs" in lines


def test_objects_and_index_bytes_are_never_listed(agent, pvisor, workspace):
    agent("echo x >> README.md; git commit -qam x; git gc -q")
    text = pvisor("review", "--paths", cwd=workspace).out
    for never in ("objects/", ".git/index", ".git/logs", "packed-refs", "ORIG_HEAD", "COMMIT_EDITMSG"):
        assert never not in text
    assert "main +1" in text


def test_bookkeeping_alone_is_said_in_one_line(agent, pvisor, workspace):
    agent("touch README.md; git status >/dev/null; git update-index -q --refresh")
    text = review(pvisor, workspace)
    assert "nothing but git's own bookkeeping" in text or "Git" not in text


def test_nested_and_replaced_repositories(agent, pvisor, workspace):
    agent("git init -q vendor; cd vendor; git commit -q --allow-empty -m 'Vendored'; cd ..; mv .git .gone")
    text = review(pvisor, workspace)
    assert "a new repository" in words(text, " in vendor")
    assert "the repository was deleted or replaced" in words(text)
    assert "git directory replaced" in text and "new git repository" in text


def test_a_merge_under_way(agent, pvisor, workspace):
    agent("""
    git checkout -q -b other; echo other > README.md; git commit -qam other
    git checkout -q main; echo main > README.md; git commit -qam main; git merge -q other >/dev/null || true
    """)
    assert "a merge is under way" in words(review(pvisor, workspace))


def test_a_linked_worktree(agent, pvisor, workspace, git, temporary):
    linked = temporary / "linked"
    git("worktree", "add", "-q", "-b", "side", str(linked))
    agent("echo x >> README.md; git commit -qam 'In the worktree'", cwd=linked)
    text = review(pvisor, linked)
    assert "side +1" in words(text) and "In the worktree" in text and "M README.md" in text
    assert "x" not in git("show", "side:README.md").splitlines()


def test_a_submodule_is_no_obstacle(agent, pvisor, workspace, git, make_workspace):
    other = make_workspace({"inner.txt": "x\n", ".gitignore": "*.o\n"}, name="other")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "sub")
    git("commit", "-qm", "With a submodule")
    agent("echo y >> sub/inner.txt; echo x > sub/a.o; echo x > z.o; echo more >> README.md")
    text = review(pvisor, workspace)
    assert "M sub/inner.txt" in text and "M README.md" in text
    assert re.search(r"^  i z\.o +ignored", text, re.M) and re.search(r"^  i sub/a\.o +ignored", text, re.M)


ATTACKS = r"""
marks=%s
for name in fsmonitor hook filter pager alias textconv credential; do
    printf '#!/bin/sh\necho %%s >> "%%s/ran" 2>/dev/null; touch /tmp/pv-ran-here; cat\n' "$name" "$marks" > "evil-$name"
    chmod +x "evil-$name"
done
git config core.fsmonitor "$PWD/evil-fsmonitor"; git config core.hooksPath "$PWD"; cp evil-hook post-index-change
git config filter.x.clean "$PWD/evil-filter"; git config filter.x.smudge "$PWD/evil-filter"
git config filter.x.process "$PWD/evil-filter"; echo '* filter=x diff=x' > .gitattributes
git config diff.x.textconv "$PWD/evil-textconv"; git config core.pager "$PWD/evil-pager"
git config alias.log "!$PWD/evil-alias"; git config pager.log "$PWD/evil-pager"
git config gpg.program "$PWD/evil-alias"; git config log.showSignature true
git config include.path "$marks/included"
printf '%%s\n' "$marks" > .git/objects/info/alternates
echo x >> README.md
"""


def test_nothing_of_the_staged_repository_runs_on_the_host(agent, pvisor, workspace, temporary):
    marks = temporary / "marks"
    marks.mkdir()
    (temporary / "marks" / "included").write_text("[core]\n\tincluded = yes\n")
    agent(ATTACKS % marks)
    before = sorted(p.name for p in marks.iterdir())
    for args in (["review"], ["review", "--json"], ["diff"], ["diff", "--stat"]):
        pvisor(*args, cwd=workspace)
    assert sorted(p.name for p in marks.iterdir()) == before
    # The twin: git itself, over the same configuration on the host, does run it.
    pvisor("inspect", "last", "--", "git", "status", cwd=workspace, code=None)
    assert sorted(p.name for p in marks.iterdir()) == before


def test_a_repository_that_git_cannot_read_is_still_reviewed(agent, pvisor, workspace):
    agent("echo x >> README.md; git commit -qam x; echo garbage > .git/HEAD; echo garbage > .git/config; echo more > new")
    text = review(pvisor, workspace)
    assert "A new" in text and "git configuration" in text


def test_odd_references(agent, pvisor, workspace):
    agent(r"""
    git commit -q --allow-empty -m 'One'; id=$(git rev-parse HEAD)
    for i in $(seq 60); do git update-ref refs/heads/many/$i HEAD; done
    for r in "heads/with space-not" 'heads/a;b' "heads/-dash" 'heads/$(touch x)' "tags/q'uote" notes/x replace/$id; do
        mkdir -p ".git/refs/$(dirname "$r")"; echo $id > ".git/refs/$r"
    done
    """)
    text = review(pvisor, workspace)
    assert "main +1" in words(text) and "more references" in text
    assert not (workspace / "x").exists()


TRAPS = {
    "index": "rm .git/index; mkfifo .git/index",
    "HEAD": "rm .git/HEAD; mkfifo .git/HEAD",
    "config": "rm .git/config; mkfifo .git/config",
    "packed-refs": "mkfifo .git/packed-refs",
    "a reference": "rm .git/refs/heads/main; mkfifo .git/refs/heads/main",
    "exclude": "mkdir -p .git/info; rm -f .git/info/exclude; mkfifo .git/info/exclude",
    "ignore file": "rm .gitignore; mkfifo .gitignore",
    "below": "mkdir sub; mkfifo sub/.gitignore",
    "link to one": "mkfifo pipe; rm .git/index; ln -s ../pipe .git/index",
    "socket": "rm .git/index; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".git/index\")'",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_pipe_where_git_expects_a_file_holds_up_nobody(trap, agent, pvisor, workspace):
    """Git would wait for a writer for ever: it is not asked, and that is said in one line."""
    agent("echo new > new; " + TRAPS[trap])
    out = pvisor("review", cwd=workspace, timeout=20).out
    assert "special file" in out or trap == "link to one"
    (line,) = [line for line in out.splitlines() if "what git ignores is not known" in line]
    assert "git is not asked" in line
    pvisor("apply", "--all", cwd=workspace, timeout=20)
    assert (workspace / "new").read_text() == "new\n"


def test_a_pipe_that_git_has_no_use_for_changes_nothing(agent, pvisor, workspace):
    agent("mkfifo pipe; mkdir out; echo x > out/a.o")
    out = pvisor("review", cwd=workspace).out
    assert "special file" in out and "not known" not in out and "ignored" in out
