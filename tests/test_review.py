# SPDX-License-Identifier: Apache-2.0
"""review: what a person sees who comes back to a finished run."""
import json
import re

import pytest

from lib import tree


@pytest.fixture
def agent(pvisor, workspace):
    """agent(shell text, *options) runs it staged in the workspace."""
    def call(text, *options):
        return pvisor("run", "--stage", "-q", *options, "--", "sh", "-euc", text, cwd=workspace)
    return call


@pytest.fixture
def review(pvisor, workspace):
    def call(*args, **options):
        return pvisor("review", *args, cwd=workspace, **options).out
    return call


def section(text, title):
    """The lines below a heading that begins so, without their indentation; None when there is none."""
    match = re.search(rf"^{title}.*\n((?:[ ].*\n?)*)", text, re.M)
    return None if match is None else [line.strip() for line in match.group(1).splitlines()]


def facts(review):
    return json.loads(review("--json"))["filesystem"]


# ---- files ----

def test_counts_then_paths(agent, review):
    agent("""
    echo x >> README.md; echo y > new.txt; rm docs/guide.txt; mv src/util/list.c src/list.c
    chmod 755 src/main.c; head -c 3000 /dev/zero > picture.png; head -c 2000000 /dev/zero | tr '\\0' x > large.txt
    ln -s README.md link; rm latest && echo now a file > latest; mkdir hollow
    """)
    text = review()
    assert "Files  1 modified, 4 added, 1 deleted, 1 renamed, 2 with another type or mode\n" in text
    rows = section(text, "Files")
    for row in (r"M README\.md", r"A new\.txt +2 B", r"D docs/guide\.txt", r"R src/util/list\.c -> src/list\.c",
                r"m src/main\.c +mode 0644 -> 0755", r"A picture\.png +binary, 2\.9 KiB", r"A large\.txt +1\.9 MiB",
                r"A link +link to README\.md", r"T latest +link -> 11 B", r"A hollow/ +empty directory"):
        assert any(re.fullmatch(row, r) for r in rows), (row, rows)


def test_it_fits_80_columns(agent, review):
    agent("""
    d=$(printf 'a-long-directory-name/%.0s' 1 2 3 4 5 6); mkdir -p "$d"; echo x > "$d/file-with-a-long-name.txt"
    ln -s /somewhere/far/away/outside/the/workspace/that/has/a/very/long/name/indeed "$d/link"
    echo 'export X=1' > "$d/.envrc"; echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
    git commit -qm "$(printf 'A subject that never ends %.0s' 1 2 3 4 5 6 7)" --allow-empty --no-verify
    git config alias.x "$(printf 'value %.0s' $(seq 40))"
    """)
    for line in review().splitlines():
        if "run-" not in line and "ignored is not known" not in line:
            assert len(line) <= 80, line


def test_a_renamed_directory_is_one_row(agent, review):
    agent("mkdir lib && mv src/util lib/tools")
    rows = section(review(), "Files")
    assert any(re.fullmatch(r"R src/util/ -> lib/tools/ +1 file", row) for row in rows), rows
    assert not any(row.startswith(("A ", "D ")) and "list.c" in row for row in rows)


def test_large_new_directories_are_one_row_but_every_deletion_is_told(agent, review):
    agent("""
    mkdir -p gen/deep; for i in $(seq 300); do echo $i > gen/deep/$i; done
    rm -r docs; rm src/util/list.c README.md
    """)
    rows = section(review(), "Files")
    assert any(re.fullmatch(r"A gen/ +300 files, 1\.1 KiB", row) for row in rows), rows
    assert any(re.fullmatch(r"D docs/ +1 file", row) for row in rows)
    assert "D src/util/list.c" in rows and "D README.md" in rows
    assert sum("gen/deep/" in row for row in section(review("--paths"), "Files")) == 300


def test_ignored_files_are_one_row_a_directory(agent, review):
    agent("""
    mkdir -p out/a/b; for i in $(seq 30); do echo $i > out/a/b/$i; done
    echo x > src/main.o; echo '*.log' >> .gitignore; echo x > debug.log
    """)
    rows = section(review(), "Files")
    assert any(re.fullmatch(r"i out +ignored: 30 files, 81 B", row) for row in rows), rows
    assert any(re.fullmatch(r"i debug\.log +ignored: 1 file, 2 B", row) for row in rows)
    assert any(re.fullmatch(r"i src/main\.o +ignored: 1 file, 2 B", row) for row in rows)
    assert not any("out/a" in row for row in rows)


def test_a_deletion_is_told_though_git_ignores_the_file(agent, review, workspace):
    (workspace / "out").mkdir()
    (workspace / "out/kept.txt").write_text("x")
    (workspace / "out/gone.txt").write_text("x")
    agent("rm out/gone.txt; echo y > out/new.txt")
    rows = section(review(), "Files")
    assert any(re.fullmatch(r"D out/gone\.txt +ignored by git", row) for row in rows), rows
    assert any(row.startswith("i out") for row in rows)


def test_a_tracked_file_is_never_ignored(agent, review, workspace, run, environment):
    (workspace / "forced.o").write_text("x")
    run(["git", "add", "-f", "forced.o"], cwd=workspace)
    run(["git", "commit", "-qm", "forced"], cwd=workspace)
    agent("echo y > forced.o; echo z > other.o")
    rows = section(review(), "Files")
    assert "M forced.o" in rows
    assert any(row.startswith("i other.o") for row in rows)


def test_without_git_there_is_no_word_of_it(pvisor, plain):
    pvisor("run", "--stage", "-q", "--", "sh", "-c", "echo x > new.o", cwd=plain)
    text = pvisor("review", cwd=plain).out
    assert section(text, "Git") is None and "A new.o" in text


# ---- attention ----

HOST_RUNS = {
    ".git/hooks/pre-commit": "git hook", ".git/config": "git configuration", ".envrc": "environment file",
    ".vscode/tasks.json": "editor tasks and settings", ".claude/settings.json": "agent settings",
    ".mcp.json": "agent settings", "AGENTS.md": "agent settings", ".bashrc": "start-up file",
    ".husky/pre-push": "git hook", "sub/.git": "new git repository",
}


def test_what_runs_on_the_host_by_itself_comes_first(agent, review):
    agent("""
    echo '#!/bin/sh' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git config core.editor x
    echo 'export X=1' > .envrc; mkdir .vscode .claude .husky; echo '{}' > .vscode/tasks.json
    echo '{}' > .claude/settings.json; echo '{}' > .mcp.json; echo hi > AGENTS.md; echo true > .bashrc
    echo true > .husky/pre-push; git init -q sub; echo x >> README.md
    """)
    text = review()
    lines = section(text, "Would run on the host by itself")
    for path, title in HOST_RUNS.items():
        assert any(line.startswith(path) for line in lines), (path, lines)
        assert any(line.startswith(f"! {title} - ") for line in lines), title
    assert "README.md" not in "".join(lines)
    assert text.index("Would run on the host") < text.index("Files  ")


def test_worth_a_look(agent, review, workspace):
    (workspace / "hard").write_text("x")
    (workspace / "hard2").hardlink_to(workspace / "hard")
    agent("""
    mkdir -p .github/workflows; echo x > .github/workflows/ci.yml; echo 'all:' > Makefile
    echo '{"scripts": {"postinstall": "x"}}' > package.json; echo '{}' > package-lock.json
    echo x > tool; chmod 755 tool; ln -s ../../outside link; ln -s README.md inside; mkfifo pipe; echo y > hard
    cp tool setuid; chmod 4755 setuid
    """)
    lines = section(review(), "Worth a look")
    for title, path in (("CI configuration", ".github/workflows/ci.yml"), ("build script", "Makefile"),
                        ("package scripts", "package.json"), ("lockfile", "package-lock.json"),
                        ("new executable", "tool"), ("link out of the workspace", "link -> ../../outside"),
                        ("special file", "pipe"), ("split hard link", "hard"),
                        ("set-user-ID, set-group-ID or capabilities", "setuid")):
        assert any(line.startswith(f"- {title} - ") for line in lines), (title, lines)
        assert path in lines, (path, lines)
    assert "inside" not in " ".join(lines)


@pytest.mark.root
def test_a_programs_capabilities_are_told(pvisor, workspace, review):
    """Root's run with --allow-userns can give them, and whoever starts the program after apply would have them."""
    program = ("import os, struct; open('tool', 'w').close(); os.chmod('tool', 0o755);"
               "os.setxattr('tool', 'security.capability', struct.pack('<5I', 0x2000001, 1 << 7, 0, 0, 0))")
    pvisor("run", "--stage", "--allow-userns", "--", "/usr/bin/python3", "-c", program, cwd=workspace)
    lines = section(review(), "Worth a look")
    assert lines[lines.index("tool") - 1].startswith("- set-user-ID, set-group-ID or capabilities - ")


def test_a_sparse_file_of_the_hosts_that_was_written_out(make_workspace, pvisor):
    """Copying up keeps the first hole only."""
    workspace = make_workspace({"small": "x\n"})
    for name in ("image", "left"):
        with open(workspace / name, "wb") as f:
            for at in range(0, 64 << 20, 16 << 20):
                f.seek(at)
                f.write(b"block")
            f.truncate(64 << 20)
    pvisor("run", "--stage", "-q", "--", "sh", "-c", "chmod 600 image; echo >> small", cwd=workspace)
    lines = section(pvisor("review", cwd=workspace).out, "Worth a look")
    assert [line for line in lines if line.startswith("- holes filled - ")] and "image" in lines
    assert "left" not in lines and "small" not in lines


def test_package_json_without_other_scripts_is_no_matter(make_workspace, pvisor):
    workspace = make_workspace({"package.json": '{"scripts": {"test": "x"}, "version": "1"}\n'})
    pvisor("run", "--stage", "-q", "--", "sed", "-i", "s/\"1\"/\"2\"/", "package.json", cwd=workspace)
    assert section(pvisor("review", cwd=workspace).out, "Worth a look") is None


def test_configured_hooks_are_hooks(agent, review, run, workspace):
    run(["git", "config", "core.hooksPath", "tools/hooks"], cwd=workspace)
    agent("mkdir -p tools/hooks; echo x > tools/hooks/pre-push; chmod +x tools/hooks/pre-push")
    assert any(line.startswith("tools/hooks") for line in section(review(), "Would run on the host by itself"))


CONFIGURED = {  # the host's settings that name a file of the tree, and what the agent does besides
    "include": (["include.path", "../tools/file"], ""),
    "fsmonitor": (["core.fsmonitor", "./tools/file"], ""),
    "filter": (["filter.x.clean", "sh tools/file %f"], ""),
    "alias": (["alias.x", '!f() { "tools/file"; }; f'], ""),
    "settings taken away": (["core.sshCommand", "tools/file -v"], "; git config --unset core.sshCommand"),
    "settings taken out of an included file": (["include.path", "../tools/settings"], "; echo > tools/settings"),
    "git must not be asked": (["core.hooksPath", "tools"], "; mkfifo .gitattributes"),
}


@pytest.mark.parametrize("case", CONFIGURED)
def test_what_the_hosts_git_is_told_to_run_is_left_out(agent, review, run, pvisor, workspace, case):
    setting, besides = CONFIGURED[case]
    (workspace / "tools").mkdir()
    (workspace / "tools/file").write_text("#\n")
    (workspace / "tools/settings").write_text("[core]\n\teditor = tools/file -w\n")
    run(["git", "config", *setting], cwd=workspace)
    agent("echo '# more' >> tools/file; chmod +x tools/file; echo x > tools/other" + besides)
    lines = section(review(), "Would run on the host by itself")
    assert any(line.startswith("tools") for line in lines) and "tools/other" not in lines
    pvisor("apply", "--all", cwd=workspace)
    assert (workspace / "tools/file").read_text() == "#\n"


def test_an_agents_own_gitignore_hides_no_hook(agent, review):
    agent("echo '*' >> .gitignore; echo 'export X=1' > .envrc; echo x > quiet.txt")
    text = review()
    assert ".envrc" in section(text, "Would run on the host by itself")
    assert "M .gitignore" in section(text, "Files")


def test_a_file_named_like_a_git_directory(agent, review):
    agent("git init -q --bare evil; git -C evil config core.fsmonitor ./x")
    assert any(line.startswith("evil/HEAD") for line in section(review(), "Would run on the host by itself"))


def test_a_git_directory_that_is_there_already_by_any_name(agent, review, pvisor, workspace, run):
    """A repository among test data, say: git in it runs what its configuration and hooks name."""
    run(["git", "init", "-q", "--bare", "data/repository"], cwd=workspace)
    before = (workspace / "data/repository/config").read_text()
    agent("git -C data/repository config core.fsmonitor ./x; echo x > data/repository/hooks/post-update;"
          " chmod +x data/repository/hooks/post-update; mkdir -p data/hooks; echo x > data/config; echo x > data/hooks/y")
    lines = section(review(), "Would run on the host by itself")
    assert any("data/repository/config" in line for line in lines) and any("data/repository/hooks" in line for line in lines)
    pvisor("apply", "last", "--all", cwd=workspace)
    assert (workspace / "data/repository/config").read_text() == before
    assert not (workspace / "data/repository/hooks/post-update").exists()
    assert (workspace / "data/config").exists() and (workspace / "data/hooks/y").exists()  # of no git directory


@pytest.mark.parametrize("path", [".lefthook.yml", "lefthook-local.yml", ".hg/hgrc", ".jj/repo/config.toml", ".direnv/x.rc",
                                  ".config/mise/config.toml", ".iex.exs", ".Renviron", ".ocamlinit"])
def test_what_other_tools_run_by_themselves(agent, pvisor, workspace, path):
    agent(f"mkdir -p ./$(dirname {path}); echo x > {path}; echo x > plain")
    pvisor("apply", "last", "--all", cwd=workspace)
    assert not (workspace / path).exists() and (workspace / "plain").exists()
    pvisor("apply", "last", "--path", path, cwd=workspace)
    assert (workspace / path).exists()


# ---- conflicts ----

def test_conflicts_come_before_everything_else(agent, review, workspace):
    agent("echo agent >> README.md; echo agent >> src/main.c; echo x > .envrc")
    (workspace / "README.md").write_text("edited by the person\n")
    text = review()
    assert "1 conflict with the host now" in text
    assert any(line.startswith("! README.md") for line in section(text, "1 conflict"))
    assert text.index("1 conflict") < text.index("Would run on the host")
    assert [c["path"] for c in facts(review)["conflicts"]] == ["README.md"]


def test_other_edits_of_the_host_are_none(agent, review, workspace, run):
    agent("echo agent >> README.md")
    (workspace / "src/main.c").write_text("edited by the person\n")
    (workspace / "mine.txt").write_text("x")
    run(["git", "status"], cwd=workspace)
    assert "conflict" not in review()
    assert facts(review)["conflicts"] == []


# ---- the run and its limits ----

def test_how_it_ended(pvisor, workspace):
    pvisor("run", "--stage", "-q", "--name", "fix-it", "--", "sh", "-c", "exit 7", cwd=workspace, code=7)
    text = pvisor("review", "fix-it", cwd=workspace).out
    assert re.match(r"run-\S+ fix-it  exited with 7 after \d+s, ", text)
    assert "  $ sh -c 'exit 7'\n" in text and f"  in {workspace}"[:60] in text
    assert "no file of the working tree changed" in text


def test_limits_by_dimension(pvisor, workspace):
    pvisor("run", "--safe", "-q", "--", "true", cwd=workspace)
    levels = dict(re.match(r"(\w+(?: \w+)?) +(enforced|unenforced|cooperative|not known)", line).groups()
                  for line in section(pvisor("review", cwd=workspace).out, "Limits"))
    assert len(levels) == 8
    assert levels["network"] == levels["host writes"] == levels["reads"] == "enforced"
    bundle = json.loads(pvisor("review", "--json", cwd=workspace).out)["safety"]["levels"]
    assert {k.replace("_", " "): v for k, v in bundle.items()} == levels


def test_without_limits_it_says_so(pvisor, workspace):
    pvisor("run", "-q", "--", "true", cwd=workspace)
    text = pvisor("review", cwd=workspace).out
    assert "none: the command had all your rights" in text
    assert "not staged: what the command wrote is in place already" in text


def test_next_commands_can_be_typed(agent, review):
    agent("echo x > new.txt", "--name", "typed")
    lines = section(review(), "Next")
    assert "pvisor diff typed" in lines and any(line.startswith("pvisor apply typed --all") for line in lines)


def test_a_running_job_can_be_looked_at(pvisor, workspace, terminal, pv):
    job = terminal([pv, "run", "--stage", "--", "sh", "-c", "echo x > early.txt; echo ready; read line"], cwd=workspace)
    job.expect("ready")
    assert "still running" in pvisor("review", cwd=workspace).out
    job.line("")
    job.wait(20)


# ---- forms ----

def test_json_is_the_bundle_as_it_stands_now(agent, review, pvisor, workspace):
    agent("echo x >> README.md; echo 'export X=1' > .envrc; mkdir out; echo x > out/y")
    bundle = json.loads(review("--json"))
    assert bundle["schema_version"] == 1 and bundle["run"]["id"].startswith("run-")
    attention = {(a["path"], a["reason"], a["runs_on_host"]) for a in bundle["filesystem"]["attention"]}
    assert attention == {(".envrc", "environment", True)}
    assert bundle["filesystem"]["ignored"] == [{"path": "out", "files": 1, "deleted": 0, "bytes": 2}]
    other = json.loads(pvisor("status", "--review", "--json", cwd=workspace).out)
    assert other["filesystem"] == bundle["filesystem"]


def test_colours_only_on_a_terminal(agent, pvisor, workspace):
    agent("echo x >> README.md")
    assert "\033" not in pvisor("review", cwd=workspace).out
    assert "\033[" in pvisor("review", cwd=workspace, pty=True, env={"TERM": "xterm"}).out
    assert "\033" not in pvisor("review", cwd=workspace, pty=True, env={"TERM": "xterm", "NO_COLOR": "1"}).out
    assert "\033" not in pvisor("review", cwd=workspace, pty=True, env={"TERM": "dumb"}).out
    assert "\033[" in pvisor("review", "--color=always", cwd=workspace).out


def test_pages_when_long(agent, pvisor, workspace, temporary):
    agent("for i in $(seq 100); do echo x > f$i; done")
    pager = temporary / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {temporary}/paged\n")
    pager.chmod(0o755)
    env = {"TERM": "xterm", "PAGER": str(pager)}
    assert "A" not in pvisor("review", cwd=workspace, pty=True, env=env).out
    assert "f99" in (temporary / "paged").read_text()
    assert "f99" in pvisor("review", "--no-pager", cwd=workspace, pty=True, env=env).out


HOSTILE = r"""
n=$(printf 'evil\033]0;owned\007\033[2J\r\n\302\233x\342\200\256')
echo x > "$n"; ln -s "/etc/$n" link; mkdir -p "d$n/.claude"; echo x > "d$n/.claude/a"
git -c core.hooksPath=/dev/null commit -q --allow-empty -m "subject$(printf '\033[31m\302\233')"
git branch "b$(printf '\342\200\256')"; git config alias.x "$(printf '\033[2J')"; echo x > staged; git add staged
git config user.name "$(printf '\033[5m')"
"""


def test_nothing_of_the_agents_reaches_the_terminal_raw(agent, pvisor, workspace):
    agent(HOSTILE)
    for args in (["review", "--no-pager"], ["review", "--paths", "--no-pager"]):
        shown = pvisor(*args, cwd=workspace, pty=True, env={"TERM": "xterm"}).out
        assert "\\x1b" in shown
        for bad in ("\033]", "\033[2J", "\033[5m", "\x07", "\u009b", "\u202e"):
            assert bad not in shown, repr(bad)
        piped = pvisor(*args, cwd=workspace).out
        assert "\033" not in piped and "\r" not in piped
    json.loads(pvisor("review", "--json", cwd=workspace).out)


def test_no_name_looks_like_another_by_what_is_not_seen(agent, pvisor, workspace):
    names = ["README.md ", " README.md", "README\u3164.md", "README\ufe00.md", "README\u00a0.md", "README.md\u200b"]
    agent(";".join(f"echo x > '{name}'" for name in names) + "; ln -s 'README.md ' link")
    for shown in (pvisor("review", "--paths", cwd=workspace).out, pvisor("diff", "--stat", cwd=workspace).out,
                  pvisor("apply", "--path", "link", "-n", cwd=workspace).out):
        for told in ("README.md\\x20", "\\x20README.md", "\\xe3\\x85\\xa4", "\\xef\\xb8\\x80", "\\xc2\\xa0", "\\xe2\\x80\\x8b"):
            assert told in shown, shown


def test_it_changes_nothing(agent, review, workspace):
    agent(HOSTILE)
    before = tree.snapshot(workspace)
    review()
    tree.assert_same(before, tree.snapshot(workspace))


def test_wide_characters_take_their_columns(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo a > 日本語.txt; echo b > plain.txt; echo c > é.txt", cwd=workspace)
    rows = [row for row in pvisor("review", cwd=workspace).out.splitlines() if row.endswith(".txt  2 B") or row.endswith("2 B")]
    at = {row.split()[1]: row.index("2 B") for row in rows}
    assert at["日本語.txt"] == at["plain.txt"] - 3 and at["é.txt"] == at["plain.txt"], rows


def test_an_end_that_was_not_its_own_is_told_in_words(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--timeout", "100ms", "--", "sleep", "100", cwd=workspace, code=124)
    assert "ended by its time limit (124)" in pvisor("review", cwd=workspace).out
