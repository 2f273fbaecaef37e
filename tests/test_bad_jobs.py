# SPDX-License-Identifier: Apache-2.0
"""Damaged job directories and stages, newer versions, truncated files: each is named precisely and hides nothing."""
import json
import os

import pytest

from lib import jobs, stepping, tree

EVERY_JOB_COMMAND = (["status"], ["review"], ["apply", "--all"], ["undo"], ["drop"], ["checkpoint"],
                     ["inspect", "--", "true"], ["fork", "--", "true"], ["logs"])


@pytest.fixture
def job(pvisor, workspace, environment):
    pvisor("run", "--stage", "--", "sh", "-c", "echo 1 > made", cwd=workspace)
    return jobs.job_dirs(environment)[-1]


def assert_clean_failure(result):
    assert result.code in (1, 4, 125), result
    assert result.err.startswith("pvisor: ") and len(result.err.splitlines()) <= 3, result.err
    assert jobs.printable(result.err)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"format": 1}', '{"format": 99}', "\x00" * 100,
                                     '{"format": 1, "format": 1}', "x" * 1000, '{"format": 1, "created_ns": -1}'])
def test_damaged_request(pvisor, workspace, job, content):
    (job / "request.json").write_text(content)
    for command in EVERY_JOB_COMMAND:
        result = pvisor(*command, cwd=workspace, code=None)
        assert_clean_failure(result)
        assert job.name in result.err and "request.json" in result.err, (command, result.err)
    listing = pvisor("list", cwd=workspace)
    assert "1 damaged" in listing.err
    assert job.name in pvisor("prune", "--dry-run", cwd=workspace).err


@pytest.mark.parametrize("file", ["request.json", "state.json", "bundle.json", "lock", "events.jsonl"])
@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "missing", "unreadable"])
def test_odd_kinds_of_files_hang_nothing(pvisor, workspace, job, file, kind, is_root):
    if kind == "unreadable" and is_root:
        pytest.skip("root reads everything")
    path = job / file
    path.unlink()
    {"directory": path.mkdir, "fifo": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/etc/passwd"),
     "missing": lambda: None, "unreadable": lambda: (path.write_text("{}"), path.chmod(0))}[kind]()
    for command in (["list"], ["status"], ["review"], ["status", "--review", "--json"], ["prune", "--dry-run"],
                    ["apply", "--all"]):
        result = pvisor(*command, cwd=workspace, code=None, timeout=20)
        assert result.code in (0, 1, 4), (command, result)
        assert "root:x:0" not in result.out


@pytest.mark.parametrize("file", ["request.json", "state.json", "bundle.json", "stage/stage.json"])
def test_truncated_anywhere(pvisor, workspace, job, file):
    whole = (job / file).read_bytes()
    for size in {0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 3}:
        (job / file).write_bytes(whole[:size])
        for command in (["status"], ["review"], ["status", "--review", "--json"], ["apply", "--all"]):
            result = pvisor(*command, cwd=workspace, code=None)
            if result.code:
                assert_clean_failure(result)
            if command == ["apply", "--all"] and result.code == 0:
                pvisor("undo", cwd=workspace)
    (job / file).write_bytes(whole)
    pvisor("apply", "--all", cwd=workspace)


def test_newer_versions_are_refused_by_name(pvisor, workspace, job):
    for file, key in (("request.json", "format"), ("bundle.json", "schema_version"), ("stage/stage.json", "version")):
        whole = (job / file).read_text()
        changed = json.loads(whole)
        changed[key] = 1000
        (job / file).write_text(json.dumps(changed))
        command = ["status", "--review", "--json"] if file == "bundle.json" else ["apply", "--all"]
        result = pvisor(*command, cwd=workspace, code=1)
        assert "newer" in result.err, result.err
        (job / file).write_text(whole)
    pvisor("apply", "--all", cwd=workspace)


def test_a_damaged_job_hides_no_other(pvisor, workspace, environment, job):
    pvisor("run", "--stage", "--name", "good", "--", "true", cwd=workspace)
    (job / "request.json").write_text("{")
    assert [j["name"] for j in json.loads(pvisor("list", "--json", cwd=workspace).out)["jobs"]] == ["good"]
    pvisor("apply", "good", "--all", cwd=workspace)
    pvisor("status", "good", cwd=workspace)


def test_foreign_things_in_the_store(pvisor, workspace, environment, job):
    place = jobs.store(environment) / "jobs"
    (place / "notes.txt").write_text("mine")
    (place / "run-20990101-000000-zzzz").mkdir()
    (place / "run-20990101-000000-abcd").write_text("a file")
    (place / "run-20990101-000000-ffff").symlink_to("/etc")
    (place / ".new-1-x").mkdir()
    (place / os.fsdecode(b"run-\xff\x1b[2J")).mkdir()
    result = pvisor("list", cwd=workspace)
    assert job.name in result.out and jobs.printable(result.out + result.err)
    pvisor("apply", "--all", cwd=workspace)
    pvisor("prune", "--damaged", "--unapplied", cwd=workspace, code=None)
    assert (place / "notes.txt").read_text() == "mine" and os.path.isdir("/etc")


def test_missing_stage(pvisor, workspace, job):
    tree.remove(job / "stage")
    for command in (["apply", "--all"], ["undo"], ["checkpoint"], ["inspect", "--", "true"]):
        assert_clean_failure(pvisor(*command, cwd=workspace, code=None))


def test_missing_target(pvisor, workspace, environment, job, temporary):
    workspace.rename(temporary / "moved-away")
    result = pvisor("apply", job.name, "--all", cwd=temporary, code=None)
    assert_clean_failure(result)
    (temporary / "moved-away").rename(workspace)
    pvisor("apply", "--all", cwd=workspace)


@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 64, b"garbage\n" * 100, b'{"version": 1000}\n'])
def test_damaged_journal(pvisor, workspace, job, content):
    before = (workspace / "README.md").read_bytes()
    (job / "stage/journal").write_bytes(content)
    result = pvisor("apply", "--all", cwd=workspace, code=None)
    if result.code:
        assert_clean_failure(result)
    assert (workspace / "README.md").read_bytes() == before


def test_damaged_jobs_are_pruned_only_when_asked(pvisor, workspace, job):
    (job / "request.json").write_text("{")
    pvisor("prune", cwd=workspace)
    assert job.exists()
    pvisor("prune", "--damaged", cwd=workspace)
    assert not job.exists()


def test_store_that_others_may_write_is_refused(pvisor, workspace, environment, job):
    top = jobs.store(environment)
    top.chmod(0o777)
    assert "others may write" in pvisor("apply", "--all", cwd=workspace, code=6).err
    top.chmod(0o700)
    pvisor("apply", "--all", cwd=workspace)


def is_a_move(pid):
    return stepping.call_of(pid)[0] == 316  # renameat2


def contents(*tops):
    """What all files below hold."""
    found = set()
    for top in tops:
        for path in top.rglob("*"):
            if path.is_file() and not path.is_symlink():
                found.add(path.read_bytes())
    return found


DAMAGES = {
    "an item": lambda whole: whole[:len(whole) // 2] + b"\xff\xff\xff" + whole[len(whole) // 2 + 3:],
    "cut off": lambda whole: whole[:len(whole) // 2],
    "no mark": lambda whole: whole[:-1],
    "the head": lambda whole: whole[:5] + b"\xff\xff" + whole[7:],
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"garbage\n" * 30,
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="counts system calls by their numbers")
@pytest.mark.parametrize("store,damage", [("elsewhere", "an item"), *[("same", damage) for damage in DAMAGES]])
def test_a_half_published_batch_whose_journal_is_damaged_is_not_taken_for_one_that_never_began(
        pv, pvisor, plain, environment, tmpfs, store, damage):
    """What it displaced lies in the stage alone: it would go with the copies, and the target would stay a mix."""
    if store == "elsewhere":
        environment["PVISOR_HOME"] = str(tmpfs / "store")
    for name in "abcdef":
        (plain / name).write_text(f"the host's {name}\n")
    pvisor("run", "--stage", "--", "sh", "-c", "rm a b c; for x in d e f; do echo new $x > $x; done", cwd=plain)
    before = contents(plain)
    stage = jobs.job_dirs(environment)[-1] / "stage"
    for moves in range(1, 60):
        code, _, _ = stepping.kill_at([pv, "apply", "--all"], moves, only=is_a_move, cwd=plain, env=environment)
        assert code == -9, "half of it was never seen"
        gone = [name for name in "abc" if not (plain / name).exists()]
        if gone and contents(plain) & before:
            break
        pvisor("review", cwd=plain)
    journal = stage / "journal"
    journal.write_bytes(DAMAGES[damage](journal.read_bytes()))
    there = [plain, stage]
    for command in (["apply", "--all"], ["undo"], ["drop"], ["checkpoint"]):
        result = pvisor(*command, cwd=plain, code=1)
        assert "damaged" in result.err and "--abandon" in result.err, result.err
    pvisor("review", cwd=plain)
    assert "removed" not in pvisor("prune", "--applied", cwd=plain).out
    assert before <= contents(*there)
    pvisor("undo", "--abandon", cwd=plain)
    assert before <= contents(*there)
    pvisor("review", cwd=plain)
    pvisor("prune", "--applied", cwd=plain)
    assert before <= contents(*there)


@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_a_batch_whose_record_is_damaged_stands_and_hides_no_other(pvisor, plain, environment, damage):
    pvisor("run", "--stage", "--", "sh", "-c", "rm README.md src/main.c; echo 1 > new", cwd=plain)
    before = contents(plain)
    pvisor("apply", "--path", "new", cwd=plain)
    pvisor("apply", "--all", cwd=plain)
    stage = jobs.job_dirs(environment)[-1] / "stage"
    first, last = sorted((stage / "backup").iterdir())
    record = last / "record"
    if damage == "missing":
        record.unlink()
    else:
        record.write_bytes(DAMAGES[damage](record.read_bytes()))
    assert damage == "no mark" or "damaged" in pvisor("undo", "--list", cwd=plain).out
    listed = {b["batch"]: b for b in json.loads(pvisor("undo", "--list", "--json", cwd=plain).out)["batches"]}
    assert set(listed) == {first.name, last.name} and not listed[first.name]["damaged"]
    if damage != "no mark":  # what it lacks then was written when all had been done
        result = pvisor("undo", cwd=plain, code=1)
        assert last.name in result.err and "backup" in result.err, result.err
    assert "removed" not in pvisor("prune", cwd=plain).out
    assert json.loads(pvisor("status", "--json", cwd=plain).out)["applied"] > 0
    assert before <= contents(plain, stage)
    pvisor("undo", "--batch", first.name, cwd=plain)
    assert not (plain / "new").exists()
    assert before <= contents(plain, stage)
