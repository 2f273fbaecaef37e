# SPDX-License-Identifier: Apache-2.0
"""Wrong usage and narrow terminals: what was meant is hinted at, nothing is guessed, and lines fit."""
import json
import re
import subprocess

import pytest


def hint(result):
    lines = result.err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("pvisor: ") and lines[1].startswith("hint: "), result.err
    return lines[1]


@pytest.fixture
def staged(pvisor, workspace):
    """A job named one that staged c.txt."""
    pvisor("run", "--stage", "--name", "one", "--", "sh", "-c", "echo new > c.txt", cwd=workspace)
    return workspace


@pytest.mark.parametrize("word, meant", [
    ("rveiew", "review"), ("lst", "list"), ("ls", "list"), ("ps", "list"), ("rm", "drop"), ("discard", "drop"),
    ("stop", "kill"), ("revert", "undo"), ("accept", "apply"), ("resume", "run --continue JOB -- COMMAND"),
])
def test_a_command_of_another_name_is_hinted_at(pvisor, workspace, word, meant):
    assert f"`pvisor {meant}`" in hint(pvisor(word, cwd=workspace, code=2))


def test_a_word_that_is_no_slip_is_hinted_at_as_a_program(pvisor, workspace):
    for word in ("claude", "pull", "tui"):
        said = hint(pvisor(word, cwd=workspace, code=2))
        assert "did you mean" not in said and f"pvisor run --safe -- {word}" in said
    assert "run --" not in hint(pvisor("help", "claude", cwd=workspace, code=2))


def test_help_of_a_command_in_every_way(pvisor, workspace):
    wanted = pvisor("drop", "--help", cwd=workspace).out
    for words in (["help", "drop"], ["--help", "drop"], ["-h", "drop"], ["drop", "-h"]):
        assert pvisor(*words, cwd=workspace).out == wanted
    assert "--help lists" in hint(pvisor("drop", "--everything", cwd=workspace, code=2))


@pytest.mark.parametrize("words, meant", [
    (["inspect", "one", "ls"], "pvisor inspect one -- ls?"), (["exec", "one", "ls"], "pvisor exec one -- ls?"),
    (["fork", "one", "make", "all"], "pvisor fork one -- make ...?"),
    (["apply", "one", "c.txt", "--all"], "pvisor apply one --path c.txt?"),
    (["drop", "one", "c.txt"], "pvisor drop one --path c.txt?"), (["review", "onee"], "did you mean one?"),
    (["checkpoint", "one", "before"], "pvisor checkpoint one --name before?"),
    (["allow", "one"], "usage: pvisor allow"), (["allow", "pypi.org"], "pvisor allow last pypi.org?"),
    (["publish", "3000"], "pvisor publish last 3000?"),
    (["run", "--safe", "--mount", "/srv:/x:ro", "--", "true"], "did you mean /srv:/x:read?"),
    (["run", "--safe", "--mount", "/srv:rw", "--", "true"], "did you mean /srv:write?"),
    (["run", "--safe", "--mount", "/srv", "--", "true"], ":read shows it"),
    (["checkpoint", "show", "one", "c1"], "pvisor fork JOB@NAME"), (["checkpoint", "gc", "one"], "pvisor prune"),
    (["apply", "one", "--include", "*.zig"], "review --paths"), (["prune", "--older", "14"], "14d for days"),
    (["login", "claud"], "did you mean claude?"), (["run", "--profile", "codx", "--safe", "--", "true"], "codex?"),
    (["run", "--overlaynet-allow", "@nmp", "--", "true"], "did you mean @npm?"),
    (["run", "--overlaynet-allow", "https://example.com/x", "--", "true"], "example.com:443"),
])
def test_what_was_meant_is_hinted_at_and_nothing_done(pvisor, staged, words, meant):
    before = json.loads(pvisor("list", "--json", cwd=staged).out)
    result = pvisor(*words, cwd=staged, code=4 if words[0] == "review" else 2)
    assert meant in hint(result) and result.out == ""
    assert json.loads(pvisor("list", "--json", cwd=staged).out) == before
    assert not (staged / "c.txt").exists()


def test_a_script_without_its_bit_is_told_how_to_start(pvisor, workspace):
    (workspace / "script.sh").write_text("echo\n")
    assert "chmod +x ./script.sh" in hint(pvisor("run", "-q", "--safe", "./script.sh", cwd=workspace, code=126))
    assert "--config: /nonesuch" in pvisor("run", "--config", "/nonesuch", "--", "true", cwd=workspace, code=2).err


def test_a_checkpoint_that_is_not_there_is_told_with_where_they_are_listed(pvisor, staged):
    result = pvisor("fork", "one@nope", "--", "true", cwd=staged, code=None)
    assert "pvisor checkpoint --list" in hint(result) and result.code in (2, 125)


def test_an_empty_job_is_not_the_last(pvisor, staged):
    for words in (["drop", ""], ["apply", "", "--all"], ["kill", ""]):
        assert "empty" in pvisor(*words, cwd=staged, code=2).err
    assert "c.txt" in pvisor("diff", "one", cwd=staged).out


def test_a_workspace_names_its_newest_job(pvisor, staged, temporary):
    assert " one " in pvisor("review", staged, cwd=temporary).out
    assert pvisor("review", temporary, cwd=temporary, code=4)


@pytest.mark.parametrize("option", ["--safe", "--strict", "--stage=x", "--overlaynet-deny-all"])
def test_an_option_that_would_confine_is_not_handed_on_by_mistake(pvisor, workspace, option):
    result = pvisor("run", "echo", option, cwd=workspace, code=2)
    assert result.out == "" and f"pvisor run {option} -- echo" in hint(result)
    assert pvisor("run", "--", "echo", option, cwd=workspace).out == f"{option}\n"
    assert pvisor("run", "--stage", "echo", option, cwd=workspace).out == f"{option}\n"
    assert pvisor("run", "echo", "--safely", cwd=workspace).out == "--safely\n"


def test_a_misspelt_choice_is_not_the_command(pvisor, workspace):
    assert "not one of" in pvisor("run", "--safe", "--overlaynet", "on", "--", "true", cwd=workspace, code=2).err
    pvisor("run", "--overlaynet", "true", cwd=workspace)


@pytest.mark.parametrize("words", [["run", "--vm-ram-dedup", "--", "true"], ["run", "-M", "--", "true"],
                                   ["run", "--container-user", "1", "--", "true"], ["pull", "alpine"], ["build", "."],
                                   ["help", "daemon"]])
def test_words_of_the_published_tool_say_what_they_would_be_and_what_instead(pvisor, workspace, words):
    result = pvisor(*words, cwd=workspace, code=2)
    assert "not in this version: " in result.err and hint(result)


@pytest.mark.parametrize("words, way_out", [
    (["apply", "--target", "/x"], "pvisor diff | git apply"), (["fork", "--stage", "/x"], "pvisor list --json"),
    (["fork", "--state", "x"], "leave it out"), (["review", "-o", "x"], "$PVISOR_HOME"),
    (["run", "-e", "A=b", "--", "true"], "--pass-env NAME"), (["run", "-it", "--", "true"], "has the terminal"),
    (["run", "-w", "/x", "--", "true"], "cd there"), (["run", "--volume", "/x:/x", "--", "true"], "--mount SRC[:DST]:read"),
])
def test_options_of_other_tools_say_what_instead(pvisor, workspace, words, way_out):
    assert way_out in hint(pvisor(*words, cwd=workspace, code=2))


def test_an_image_or_a_volume_in_the_place_of_the_command_is_told_as_that(pvisor, workspace):
    assert "images are not in this version" in hint(pvisor("run", "-q", "alpine:3.20", "ls", cwd=workspace, code=127))
    assert "\nhint: --mount SRC[:DST]:read" in pvisor("run", "-v", "/tmp:/tmp", "ls", cwd=workspace, code=127).err


def test_memory_and_ports_have_the_letters_of_other_tools(pvisor, workspace):
    told = pvisor("run", "--safe", "-m", "1GiB", "-p", "3000", "--dry-run", "true", cwd=workspace).out
    assert "1.0 GiB" in told and "3000" in told


def test_review_with_the_diff_is_both(pvisor, workspace):
    pvisor("run", "-q", "--stage", "--", "sh", "-c", "echo new > new.txt", cwd=workspace)
    review, diff = (pvisor(command, cwd=workspace).out for command in ("review", "diff"))
    for words in (["review", "--diff"], ["review", "last", "--diff", "--color=never"], ["status", "--diff"]):
        out = pvisor(*words, cwd=workspace).out
        assert out.endswith("\n\n" + diff) and out.splitlines()[2] == review.splitlines()[2]
    pvisor("review", "--diff", "--json", cwd=workspace, code=2)


def test_fork_and_checkpoint_as_published(pvisor, staged):
    pvisor("checkpoint", "create", "one", "--name", "c1", cwd=staged)
    assert pvisor("checkpoint", "list", "one", cwd=staged).out == pvisor("checkpoint", "list", cwd=staged).out == "c1\n"
    pvisor("fork", "one", "--checkpoint", "c1", "--name", "two", "--", "sh", "-c", "cat c.txt; echo 2 > d", cwd=staged)
    assert "@c1 and" in pvisor("fork", "one@c1", "--checkpoint", "c1", "--", "true", cwd=staged, code=2).err
    pvisor("fork", "two", "--name", "three", cwd=staged)
    again = json.loads(pvisor("status", "three", "--json", cwd=staged).out)
    assert again["argv"] == ["sh", "-c", "cat c.txt; echo 2 > d"]


@pytest.mark.parametrize("options", [["--safe"], ["--safe", "--detach"], ["--stage"]])
def test_a_program_that_the_view_lacks_is_told_with_its_place(pvisor, workspace, temporary, options):
    tool = temporary / "elsewhere" / "tool.sh"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    bin = temporary / "bin"
    bin.mkdir()
    (bin / "tool").symlink_to("../elsewhere/tool.sh")
    env = {"PATH": f"{bin}:/usr/bin:/bin"}
    said = pvisor("run", *options, "--", "tool", cwd=workspace, env=env, code=127)
    assert str(tool) in said.err and "--mount DIR:read" in said.err
    assert "hint" not in pvisor("run", *options, "--", "no-such-tool", cwd=workspace, env=env, code=127).err
    shown = pvisor("run", "--safe", "--mount", f"{tool.parent}:read", "--", "tool", cwd=workspace, env=env)
    assert shown.out == "found\n"


def test_a_name_stands_for_one_running_job(pvisor, background, workspace, make_workspace):
    job = background("--stage", "--name", "busy", "--", "sleep", "600")
    assert job.id in pvisor("run", "--name", "busy", "--", "true", cwd=workspace, code=2).err
    pvisor("run", "--name", "busy", "--", "true", cwd=make_workspace(name="other"))
    pvisor("kill", job.id, cwd=workspace)
    pvisor("run", "--name", "busy", "--", "true", cwd=workspace)


def test_continuing_a_running_job_says_what_to_do(pvisor, background, workspace):
    job = background("--stage", "--", "sleep", "600")
    assert "pvisor exec" in hint(pvisor("run", "--continue", job.id, "--", "true", cwd=workspace, code=125))


def test_what_is_gone_is_said(pvisor, staged):
    pvisor("drop", "one", cwd=staged)
    for words, code in ((["drop", "one"], 1), (["fork", "one", "--", "true"], 125), (["checkpoint", "--list", "one"], 1),
                        (["apply", "one", "--all"], 1)):
        assert "was dropped: nothing is left" in pvisor(*words, cwd=staged, code=code).err


def test_a_job_that_does_not_run_is_said_to_have_ended(pvisor, staged):
    for words in (["kill", "one"], ["attach", "one"], ["exec", "one", "--", "true"], ["allow", "one", "example.com"],
                  ["publish", "one", "3000"]):
        assert f"{words[0]}: job" in (said := pvisor(*words, cwd=staged, code=1)).err and "has ended" in said.err


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_a_list_fits_its_terminal(pv, terminal, pvisor, workspace, columns):
    pvisor("run", "--stage", "--name", "a-longer-name", "--", "sh", "-c", "true # " + "many words " * 20, cwd=workspace)
    pvisor("run", "--stage", "--", "no-such-program", cwd=workspace, code=127)
    with terminal([pv, "list"], cwd=workspace, columns=columns) as t:
        assert t.wait(30) == 0
        lines = t.output.replace("\r", "").splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= columns, lines
    assert all(re.search(r"run-\d{8}-\d{6}-\w{4}  (ended|failed) ", line) for line in lines[1:])
    assert ("SIZE" in lines[0]) == (columns >= 100) and ("NAME" in lines[0]) == (columns >= 80)


def test_help_and_closing_lines_fit_eighty_columns(pv, pvisor, workspace, environment):
    names = re.findall(r"^  ([a-z]+) +[A-Z]", pvisor("help", cwd=workspace).out, re.M)
    assert "run" in names and len(names) > 20
    for name in names:
        assert all(len(line) <= 80 for line in pvisor("help", name, cwd=workspace).out.splitlines()), name
    said = pvisor("run", "--safe", "--", "sh", "-c", "touch a b c; git commit -qm x --allow-empty", cwd=workspace).err
    assert "3 paths and git's state staged" in said
    assert all(len(line) <= 86 for line in said.splitlines())
