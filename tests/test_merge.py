# SPDX-License-Identifier: Apache-2.0
"""The ways out of a conflict: apply --merge, --markers, --overwrite. Each one batch, each undone to the byte."""
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from lib import parts, tree
from lib.live import Agent

LINES = [f"line {i}\n" for i in range(1, 41)]
GUIDE = "docs/guide.txt"


def text(**changed):
    """The guide with some lines changed: text(l3="mine")."""
    lines = list(LINES)
    for key, value in changed.items():
        lines[int(key[1:]) - 1] = value + "\n"
    return "".join(lines)


@pytest.fixture
def agent(pvisor, workspace):
    """agent(shell text) runs it staged in the workspace."""
    def call(script, *options):
        return pvisor("run", "-q", "--stage", *options, "--", "sh", "-euc", script, cwd=workspace)
    return call


@pytest.fixture
def apply(pvisor, workspace):
    """apply(*options, code=0) -> what apply --json said."""
    def call(*options, code=0):
        return json.loads(pvisor("apply", "--json", *options, cwd=workspace, code=code).out)
    return call


@pytest.fixture
def review(pvisor, workspace):
    """review() -> {path: conflict} as review --json has them."""
    def call():
        bundle = json.loads(pvisor("review", "--json", cwd=workspace).out)
        return {c["path"]: c for c in bundle["filesystem"]["conflicts"]}
    return call


def how(told):
    return {r["path"]: r["how"] for r in told["resolved"]}


def why(told):
    return {c["path"]: c["why"] for c in told["conflicts"]}


def sed(line, new, path=GUIDE):
    return f"sed -i '{line}s/.*/{new}/' {path}"


# ---- text ----

def test_edits_of_different_lines_are_put_together(agent, apply, workspace):
    agent(sed(30, "agent"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    assert how(apply("--all", "--merge")) == {GUIDE: "merged"}
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")


def test_without_being_asked_nothing_is_merged_and_the_ways_out_are_named(agent, pvisor, workspace):
    agent(sed(30, "agent"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    err = pvisor("apply", "--all", cwd=workspace, code=3).err
    assert "hint: " in err and "--merge" in err and "--overwrite PATH" in err and "pvisor drop" in err
    assert (workspace / GUIDE).read_text() == text(l3="mine")


def test_edits_of_the_same_lines_leave_nothing_half_merged(agent, apply, workspace):
    agent(sed(3, "agent") + "; echo new > new.txt; " + sed(1, "other", "README.md"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    (workspace / "README.md").write_text("# A small project\n\nTwo lines.\nand mine\n")
    mine = tree.snapshot(workspace)
    told = apply("--all", "--merge", code=3)
    assert why(told) == {GUIDE: "both sides changed the same lines"}
    tree.assert_same(tree.snapshot(workspace), mine, dir_times=True)


def test_markers_are_written_when_asked_for(agent, apply, pvisor, workspace):
    agent(sed(3, "agent"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    told = apply("--all", "--markers")
    assert how(told) == {GUIDE: "merged-with-markers"}
    merged = (workspace / GUIDE).read_text()
    assert merged == text(l3=f"<<<<<<< workspace\nmine\n=======\nagent\n>>>>>>> {told['job']}")
    pvisor("undo", cwd=workspace)
    assert (workspace / GUIDE).read_text() == text(l3="mine")


def test_a_merge_is_undone_to_the_byte_and_is_a_conflict_again(agent, apply, review, pvisor, workspace):
    agent(sed(30, "agent") + "; echo new > new.txt; chmod 755 src/main.c")
    (workspace / GUIDE).write_text(text(l3="mine"))
    os.chmod(workspace / GUIDE, 0o640)
    before, conflicts = tree.snapshot(workspace), review()
    staged = pvisor("diff", "--ignored", cwd=workspace).out
    apply("--all", "--merge")
    assert (workspace / "new.txt").exists() and not review()
    pvisor("undo", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), before)
    assert review().keys() == conflicts.keys() == {GUIDE}
    assert pvisor("diff", "--ignored", cwd=workspace).out == staged
    apply("--all", code=3)
    apply("--all", "--merge")
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")


def test_what_the_host_has_from_elsewhere_by_now_needs_no_publishing(agent, apply, review, workspace):
    agent(sed(30, "agent") + "; rm README.md; echo same > same.txt; ln -s here link")
    (workspace / GUIDE).write_text(text(l30="agent"))
    (workspace / "README.md").unlink()
    (workspace / "same.txt").write_text("same\n")
    (workspace / "link").symlink_to("here")
    before = tree.snapshot(workspace)
    told = apply("--all", "--merge")
    assert how(told) == dict.fromkeys([GUIDE, "link", "same.txt"], "same")
    tree.assert_same(tree.snapshot(workspace), before)
    assert not review()


def test_a_file_that_both_made_has_nothing_in_common(agent, apply, workspace):
    agent("echo agent > fresh")
    (workspace / "fresh").write_text("mine\n")
    assert why(apply("--all", "--merge", code=3)) == {"fresh": "both sides changed the same lines"}
    told = apply("--all", "--markers")
    assert (workspace / "fresh").read_text() == f"<<<<<<< workspace\nmine\n=======\nagent\n>>>>>>> {told['job']}\n"


def test_a_directory_that_both_made_holds_what_both_put_there(agent, apply, review, pvisor, workspace):
    agent("mkdir -p tests/deep; echo agent > tests/agent; echo agent > tests/deep/agent; echo x > tests/both")
    (workspace / "tests/deep").mkdir(parents=True)
    (workspace / "tests/mine").write_text("mine\n")
    (workspace / "tests/deep/mine").write_text("mine\n")
    before = tree.snapshot(workspace)
    apply("--all", code=3)
    told = apply("--all", "--merge")
    assert set(how(told).values()) == {"same"} and "tests" in how(told)
    names = {str(p.relative_to(workspace)) for p in (workspace / "tests").rglob("*") if p.is_file()}
    assert names == {"tests/agent", "tests/deep/agent", "tests/mine", "tests/deep/mine", "tests/both"}
    assert not review() and "no file of the working tree changed" in pvisor("review", cwd=workspace).out
    pvisor("undo", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), before)
    apply("--all", "--merge")
    assert (workspace / "tests/deep/agent").exists() and (workspace / "tests/deep/mine").exists()


def test_a_directory_that_the_job_made_anew_hides_nothing_that_it_never_saw(agent, apply, workspace):
    agent("rm -r docs; mkdir docs; echo agent > docs/new.txt")
    (workspace / "docs/mine.txt").write_text("mine\n")
    apply("--all", "--merge")
    assert sorted(p.name for p in (workspace / "docs").iterdir()) == ["mine.txt", "new.txt"]


def test_commits_go_with_a_merge(agent, apply, run, pvisor, workspace):
    agent(sed(30, "agent") + "; git commit -qam 'By the agent'")
    (workspace / GUIDE).write_text(text(l3="mine"))
    assert how(apply("--commits", "--all", "--merge")) == {GUIDE: "merged"}
    assert run(["git", "log", "-1", "--format=%s"], cwd=workspace).out == "By the agent\n"
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")
    pvisor("undo", cwd=workspace)
    assert (workspace / GUIDE).read_text() == text(l3="mine")
    assert run(["git", "log", "-1", "--format=%s"], cwd=workspace).out == "First\n"


# ---- what is not text, or not content ----

def test_mode_and_content_of_two_sides_go_together(agent, apply, workspace):
    agent("chmod 755 src/main.c; " + sed(30, "agent"))
    (workspace / "src/main.c").write_text("int main(void)\n{\n\treturn 1;\n}\n")
    os.chmod(workspace / GUIDE, 0o600)
    assert how(apply("--all", "--merge")) == {GUIDE: "merged", "src/main.c": "merged"}
    assert (workspace / "src/main.c").read_text().count("return 1") == 1
    assert (workspace / "src/main.c").stat().st_mode & 0o777 == 0o755
    assert (workspace / GUIDE).read_text() == text(l30="agent")
    assert (workspace / GUIDE).stat().st_mode & 0o777 == 0o600


def test_two_modes_do_not_go_together(agent, apply, workspace):
    agent("chmod 755 src/main.c")
    os.chmod(workspace / "src/main.c", 0o600)
    assert why(apply("--all", "--merge", code=3)) == {
        "src/main.c": "both sides changed its mode, owner or attributes"}


NOT_MERGED = {
    "binary": ("printf 'a\\0agent' > data/blob.bin", lambda w: (w / "data/blob.bin").write_bytes(b"b\0mine"),
               "data/blob.bin", "not text, and both sides changed it"),
    "job deleted": ("rm src/main.c", lambda w: (w / "src/main.c").write_text("mine\n"),
                    "src/main.c", "the job deleted what you changed"),
    "host deleted": ("echo agent > src/main.c", lambda w: (w / "src/main.c").unlink(),
                     "src/main.c", "you deleted what the job changed"),
    "links": ("ln -sfn src latest", lambda w: ((w / "latest").unlink(), (w / "latest").symlink_to("docs")),
              "latest", "only two versions of one file can be put together; this is not two files"),
    "file and directory": ("rm src/main.c; mkdir src/main.c; echo x > src/main.c/x",
                           lambda w: (w / "src/main.c").write_text("mine\n"),
                           "src/main.c", "only two versions of one file can be put together; this is not two files"),
}


@pytest.mark.parametrize("case", NOT_MERGED, ids=lambda word: word.replace(" ", "-"))
def test_what_cannot_be_merged_is_refused_with_the_reason_and_can_be_overwritten(case, agent, apply, pvisor, workspace):
    script, edit, path, reason = NOT_MERGED[case]
    agent(script + "; echo new > new.txt")
    edit(workspace)
    mine = tree.snapshot(workspace)
    assert why(apply("--all", "--merge", code=3))[path] == reason
    tree.assert_same(tree.snapshot(workspace), mine, dir_times=True)
    assert how(apply("--all", "--overwrite", path))[path] == "overwritten"
    assert (workspace / "new.txt").exists()
    pvisor("undo", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), mine)
    apply("--all", code=3)


def test_a_binary_file_that_one_side_only_touched_is_the_other_sides(agent, apply, workspace):
    agent("printf 'a\\0agent' > data/blob.bin")
    os.chmod(workspace / "data/blob.bin", 0o600)
    assert how(apply("--all", "--merge")) == {"data/blob.bin": "merged"}
    assert (workspace / "data/blob.bin").read_bytes() == b"a\0agent"
    assert (workspace / "data/blob.bin").stat().st_mode & 0o777 == 0o600


# ---- overwriting ----

def test_overwrite_takes_the_jobs_version_of_what_is_named_and_of_nothing_else(agent, apply, pvisor, workspace):
    agent("echo agent > src/main.c; echo agent > README.md")
    (workspace / "src/main.c").write_text("mine\n")
    (workspace / "README.md").write_text("mine\n")
    assert why(apply("--all", "--overwrite", "src", code=3)).keys() == {"README.md"}
    assert how(apply("--overwrite", "src")) == {"src/main.c": "overwritten"}
    assert (workspace / "src/main.c").read_text() == "agent\n"
    assert (workspace / "README.md").read_text() == "mine\n"
    pvisor("undo", cwd=workspace)
    assert (workspace / "src/main.c").read_text() == "mine\n"
    apply("--path", "src", code=3)


def test_a_directory_that_goes_takes_what_the_host_made_in_it_along_and_undo_brings_it_back(agent, apply, pvisor, workspace):
    agent("rm -r src")
    (workspace / "src/mine.c").write_text("mine\n")
    (workspace / "src/util/list.c").write_text("mine\n")
    mine = tree.snapshot(workspace)
    apply("--all", "--merge", code=3)
    apply("--overwrite", "src")
    assert not (workspace / "src").exists()
    pvisor("undo", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), mine)
    apply("--all", code=3)


def test_a_dry_run_says_what_would_be_merged_and_changes_nothing(agent, apply, review, workspace):
    agent(sed(30, "agent"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    mine = tree.snapshot(workspace)
    told = apply("--all", "--merge", "--dry-run")
    assert told["dry_run"] and how(told) == {GUIDE: "merged"}
    tree.assert_same(tree.snapshot(workspace), mine, dir_times=True)
    assert review().keys() == {GUIDE}


# ---- the program that merges ----

def test_the_merging_program_can_only_compute_once_it_has_read(pv, temporary):
    """It is held at a pipe that nobody reads: by then it is confined."""
    if b"__asan_init" in parts.program(pv, "pvisor-merge").read_bytes():
        pytest.skip("the sanitizers need more system calls than are left")
    (temporary / "host").write_text("".join(f"host {i}\n" for i in range(50000)))
    (temporary / "job").write_text("".join(f"job {i}\n" for i in range(50000)))
    with subprocess.Popen(["sh", "-c", 'exec "$0" label 4<host 5<job', parts.program(pv, "pvisor-merge")], cwd=temporary,
                          stdout=subprocess.PIPE) as merging:
        def status():
            lines = Path(f"/proc/{merging.pid}/status").read_text().splitlines()
            return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert merging.stdout.read(8) == b"conflict"
        facts = status()
        assert facts["Name"] == "pvisor-merge" and facts["Seccomp"] == "2" and facts["NoNewPrivs"] == "1"
        rest = merging.stdout.read()
        assert b"<<<<<<< workspace\nhost 0\n" in rest and merging.wait(60) == 0


# ---- while the person goes on ----

def test_a_host_edit_between_the_merge_and_the_exchange_is_a_conflict_and_is_kept(agent, pv, run, workspace, environment):
    """The merging program is made to wait; the person saves meanwhile."""
    agent(sed(30, "agent"))
    (workspace / GUIDE).write_text(text(l3="mine"))
    slow, merge = Path(environment["HOME"]) / "slow", parts.program(pv, "pvisor-merge")
    slow.mkdir()
    for each in (Path(pv), merge.with_name("pvisor-decide")):
        (slow / each.name).write_bytes(each.read_bytes())
        (slow / each.name).chmod(0o755)
    (slow / "pvisor-merge").write_text(f"#!/bin/sh\n{merge} \"$@\" || exit\necho later >> {workspace / GUIDE}\n")
    (slow / "pvisor-merge").chmod(0o755)
    result = run([slow / "pvisor", "apply", "--all", "--merge", "--json"], cwd=workspace)
    assert result.code == 3, result.err
    assert why(json.loads(result.out)).keys() == {GUIDE}
    assert (workspace / GUIDE).read_text() == text(l3="mine") + "later\n"
    again = run([pv, "apply", "--all", "--merge"], cwd=workspace)
    assert again.code == 0, again.err
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent") + "later\n"


# ---- while the job runs ----

@pytest.fixture
def meanwhile(pv, environment, workspace):
    """meanwhile(agent, person, noted=True): the agent's shell text; the person acts where it says `pause`, once the run is noted."""
    def call(agent, person, noted=True):
        script = "pause() { echo ready; read -r _; }\n" + agent
        with subprocess.Popen([pv, "run", "-q", "--stage", "--", "sh", "-euc", script], cwd=workspace, env=environment,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            jobs = Path(environment["HOME"]) / ".local/state/pvisor/jobs"
            end = time.monotonic() + 60
            while noted and not list(jobs.glob("*/stage/roots/0/start-*")) and time.monotonic() < end:
                time.sleep(0.05)
            person()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(60) == 0
    return call


@pytest.mark.parametrize("order", ["before", "after"])
def test_what_both_edit_while_the_job_runs_is_merged_from_what_git_has(order, meanwhile, apply, review, pvisor, workspace):
    agent = "pause; " + sed(30, "agent") if order == "before" else sed(30, "agent") + "; pause"
    meanwhile(agent, lambda: (workspace / GUIDE).write_text(text(l3="mine")))
    mine = tree.snapshot(workspace)
    assert review()[GUIDE]["merge"] == "clean" and review()[GUIDE]["host"]["phase"] == "during"
    assert how(apply("--all", "--merge")) == {GUIDE: "merged"}
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")
    pvisor("undo", cwd=workspace)
    tree.assert_same(tree.snapshot(workspace), mine)
    assert review()[GUIDE]["merge"] == "clean"


def test_what_was_edited_and_not_committed_before_the_run_is_what_both_started_from(meanwhile, apply, workspace):
    (workspace / GUIDE).write_text(text(l20="mine before"))
    meanwhile(sed(30, "agent") + "; pause", lambda: (workspace / GUIDE).write_text(text(l3="mine")))
    assert how(apply("--all", "--merge")) == {GUIDE: "merged"}
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent"), "line 20 was taken back by the person"


def test_a_file_that_git_would_add_is_merged(meanwhile, apply, workspace):
    (workspace / "not added yet").write_text(text())
    meanwhile(sed(30, "agent", "'not added yet'") + "; pause",
              lambda: (workspace / "not added yet").write_text(text(l3="mine")))
    assert how(apply("--all", "--merge")) == {"not added yet": "merged"}
    assert (workspace / "not added yet").read_text() == text(l3="mine", l30="agent")


def test_what_is_not_known_is_not_merged(meanwhile, apply, workspace):
    ignored = workspace / "ignored.o"
    ignored.write_text(text())
    meanwhile(sed(30, "agent", "ignored.o") + "; pause", lambda: ignored.write_text(text(l3="mine")))
    reasons = why(apply("--all", "--ignored", "--merge", code=3))
    assert "is not known" in reasons["ignored.o"] and "git lists or would add" in reasons["ignored.o"]
    apply("--all", "--ignored", "--markers")
    assert "<<<<<<< workspace" in ignored.read_text()


REPLACE = {"rename": "cp {0} new; echo agent >>new; mv new {0}", "delete": "rm {0}; echo agent >{0}",
           "another": "mv docs/guide2.txt {0}"}


@pytest.mark.parametrize("way, order", [("rename", "after"), ("delete", "after"), ("another", "after"), ("another", "before")])
def test_what_the_host_deletes_while_the_agent_replaces_it_is_a_conflict(way, order, meanwhile, apply, review, workspace):
    """Nothing in the layer tells such a file from a new one."""
    (workspace / "docs/guide2.txt").write_text("another\n")
    agent = REPLACE[way].format(GUIDE)
    meanwhile(f"pause; {agent}" if order == "before" else f"{agent}; pause", (workspace / GUIDE).unlink)
    conflict = review()[GUIDE]
    assert conflict["host"]["act"] == "deleted", conflict
    apply("--all", code=3)
    assert not (workspace / GUIDE).exists()
    apply("--path", GUIDE, "--overwrite", GUIDE)
    assert (workspace / GUIDE).exists()


def test_what_the_agent_makes_where_the_host_deletes_another_file_is_none(meanwhile, apply, review, workspace):
    """The twin: in the same directory, and what the host never had."""
    meanwhile("echo mine >docs/new.txt; cp docs/new.txt n; mv n docs/newer.txt; pause", (workspace / GUIDE).unlink)
    assert review() == {}
    apply("--all")
    assert (workspace / "docs/new.txt").read_text() == (workspace / "docs/newer.txt").read_text() == "mine\n"
    assert not (workspace / GUIDE).exists()


def test_what_the_host_changed_and_took_back_is_not_merged(meanwhile, apply, workspace):
    def forth_and_back():
        (workspace / GUIDE).write_text(text(l3="mine"))
        (workspace / GUIDE).write_text(text())
    meanwhile(sed(30, "agent") + "; pause", forth_and_back)
    assert "is not known" in why(apply("--all", "--merge", code=3))[GUIDE]


@pytest.fixture
def beside(pv, environment, workspace):
    """A running job that does what it is told, once what the host has was noted."""
    with Agent(pv, workspace, environment) as agent:
        jobs = Path(environment["HOME"]) / ".local/state/pvisor/jobs"
        end = time.monotonic() + 60
        while not list(jobs.glob("*/stage/roots/0/start-*")) and time.monotonic() < end:
            time.sleep(0.05)
        yield agent


def write(path, new):
    return f"write({str(path)!r}, {new!r})"


def test_beside_a_running_job_each_side_goes_on_from_what_it_has(beside, apply, review, pvisor, workspace):
    beside.do(write(GUIDE, text(l30="agent")))
    (workspace / GUIDE).write_text(text(l3="mine"))
    assert how(apply("--all", "--merge")) == {GUIDE: "merged"}
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")
    assert beside.see(f"open({GUIDE!r}).read()") == text(l30="agent")
    assert review() == {} and "no file of the working tree changed" in pvisor("review", cwd=workspace).out
    beside.do(write(GUIDE, text(l30="agent", l35="agent again")))
    assert review()[GUIDE]["merge"] == "clean"
    assert review()[GUIDE]["lines"]["job_added"] == 1, "what landed is what it started from"
    apply("--all", "--merge")
    both = text(l3="mine", l30="agent", l35="agent again")
    assert (workspace / GUIDE).read_text() == both
    pvisor("undo", cwd=workspace)
    assert (workspace / GUIDE).read_text() == text(l3="mine", l30="agent")
    assert beside.end() == 0
    assert review()[GUIDE]["merge"] == "clean"
    apply("--all", "--merge")
    assert (workspace / GUIDE).read_text() == both


def test_what_was_merged_beside_a_run_comes_apart_after_the_stage_was_continued(beside, apply, pvisor, workspace):
    beside.do(write(GUIDE, text(l30="agent")))
    (workspace / GUIDE).write_text(text(l3="mine"))
    first = apply("--all", "--merge")["job"]
    assert beside.end() == 0
    pvisor("run", "-q", "--continue", first, "--", "sh", "-c", f"cp {GUIDE} seen", cwd=workspace)
    apply("--path", "seen")
    assert (workspace / "seen").read_text() == text(l3="mine", l30="agent"), "the next run sees both"
    pvisor("undo", cwd=workspace)
    pvisor("undo", cwd=workspace)
    assert (workspace / GUIDE).read_text() == text(l3="mine")
    assert how(apply("--path", GUIDE, "--overwrite", GUIDE))
    assert (workspace / GUIDE).read_text() == text(l30="agent")


def test_beside_a_running_job_its_version_is_taken_and_yours_comes_back(beside, apply, review, pvisor, workspace):
    beside.do(write(GUIDE, text(l3="agent")))
    (workspace / GUIDE).write_text(text(l3="mine"))
    apply("--all", "--merge", code=3)
    assert how(apply("--overwrite", GUIDE)) == {GUIDE: "overwritten"}
    assert (workspace / GUIDE).read_text() == text(l3="agent") and review() == {}
    pvisor("undo", cwd=workspace)
    assert (workspace / GUIDE).read_text() == text(l3="mine")
    assert review().keys() == {GUIDE}
    assert beside.end() == 0
    assert review().keys() == {GUIDE}
    apply("--all", code=3)


# ---- what review says of it ----

def test_review_says_who_changed_what_since_when_and_the_ways_out(agent, pvisor, review, workspace):
    agent(sed(30, "agent") + "; rm README.md; printf 'a\\0a' > data/blob.bin; echo agent > fresh; chmod 755 src/main.c",
          "--name", "fix")
    (workspace / GUIDE).write_text(text(l3="mine", l4="mine"))
    (workspace / "README.md").write_text("mine\n")
    (workspace / "data/blob.bin").write_bytes(b"b\0mine")
    (workspace / "fresh").write_text("mine\n")
    os.chmod(workspace / "src/main.c", 0o600)
    said = " ".join(pvisor("review", cwd=workspace).out.split())
    for words in ("5 conflicts with the host now", "the host changed 5 of the 5 paths that the job touched",
                  "ago, after the job had ended (+2 -2); the job wrote +1 -1: they fit together",
                  "the job deleted it: only one of the two can stay",
                  "not text, and both sides changed it", "you made it too ",
                  "you changed its mode, owner or attributes",
                  "pvisor apply fix --all --merge", "pvisor apply fix --all --markers", "pvisor apply fix --overwrite PATH"):
        assert words in said, words
    told = review()
    guide = told[GUIDE]
    assert guide["merge"] == "clean" and guide["base_known"] and guide["merge_why"] is None
    assert guide["lines"] == {"from": "base", "job_added": 1, "job_deleted": 1, "host_added": 2, "host_deleted": 2}
    assert guide["host"]["act"] == guide["job"]["act"] == "modified" and guide["host"]["phase"] == "after"
    assert guide["ways_out"][0][3:] == ["--path", GUIDE, "--merge"]
    assert told["README.md"]["merge"] == "none" and told["README.md"]["job"]["act"] == "deleted"
    assert told["src/main.c"]["host"]["act"] == "metadata"
    assert told["fresh"]["merge"] == "markers" and told["fresh"]["host"]["act"] == "added"
    # Each command that was named does what it says.
    for path, conflict in told.items():
        code = 0 if conflict["merge"] in ("clean", "markers") else None
        pvisor(*conflict["ways_out"][0][1:], "--dry-run", cwd=workspace, code=code)
        pvisor(*conflict["ways_out"][-1][1:], "--dry-run", cwd=workspace)


def test_what_the_host_changed_elsewhere_stands_against_nothing(agent, pvisor, review, workspace):
    agent("echo agent > src/main.c")
    (workspace / "README.md").write_text("mine\n")
    assert review() == {}
    assert "the host changed" not in pvisor("review", cwd=workspace).out


@pytest.mark.parametrize("became", ["link", "file", "nothing"])
def test_what_has_no_directory_any_more_is_told_as_apply_refuses_it(pvisor, make_workspace, temporary, became):
    """Of files that were there and of new ones, with no way out that would be refused again."""
    top = make_workspace({"d/a": "1\n", "other": "1\n"}, git=False)
    pvisor("run", "--stage", "--", "sh", "-c", "echo 2 >d/a; echo n >d/n; mkdir d/sub; echo s >d/sub/s; mkdir e; echo e >e/e", cwd=top)
    (top / "d").rename(temporary / "away")
    if became == "link":
        (top / "d").symlink_to(temporary / "away")
    elif became == "file":
        (top / "d").write_text("a file\n")
    refused = json.loads(pvisor("apply", "--all", "--json", cwd=top, code=3).out)
    bundle = json.loads(pvisor("review", "--json", cwd=top).out)
    said = {c["path"]: c["why"] for c in bundle["filesystem"]["conflicts"]}
    assert said == {c["path"]: c["why"] for c in refused["conflicts"]}
    assert {p for p, why in said.items() if "a directory above it was removed or replaced" in why} >= {"d/a", "d/n"}
    assert not any(p.startswith("e") for p in said)
    assert not any(c.get("ways_out") for c in bundle["filesystem"]["conflicts"] if c["path"] in ("d/a", "d/n"))
    text = pvisor("review", cwd=top).out
    assert "--overwrite" not in text and "ways out: make the host what it was" in text
    assert "# d/n: conflict: a directory above it" in pvisor("diff", cwd=top).out
    pvisor("apply", "--all", "--overwrite", "d", cwd=top, code=3)
    pvisor("apply", "--path", "e", cwd=top)
    if became != "nothing":
        (top / "d").unlink()
    (temporary / "away").rename(top / "d")
    pvisor("apply", "--all", cwd=top)
    assert (top / "d/sub/s").read_text() == "s\n" and (top / "d/a").read_text() == "2\n"
