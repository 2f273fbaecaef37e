# SPDX-License-Identifier: Apache-2.0
"""Directories that only look like a stage, and stages with others' work in them, outlive every removal of jobs."""
import json

import pytest

from lib import jobs


@pytest.fixture
def listed(pvisor):
    """listed(cwd) -> names of the jobs."""
    def call(cwd, **more):
        return [j["name"] for j in json.loads(pvisor("list", "--json", cwd=cwd, **more).out)["jobs"]]
    return call


@pytest.mark.parametrize("entries", [["mine", "lock"], ["mine"], ["lock", "roots/mine"], ["lock", "decide", "backup/mine"]])
def test_a_refused_directory_is_in_no_job(pvisor, workspace, temporary, listed, entries):
    place = temporary / "own"
    for name in entries:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("precious\n" if name.endswith("mine") else "")
    before = sorted(p.relative_to(place) for p in place.rglob("*"))
    assert "not empty" in pvisor("run", f"--stage={place}", "--", "true", cwd=workspace, code=2).err
    assert listed(workspace) == []
    pvisor("prune", "--unapplied", "--damaged", cwd=workspace)
    assert sorted(p.relative_to(place) for p in place.rglob("*")) == before


def test_what_a_job_names_is_emptied_only_when_it_is_a_stage(pvisor, workspace, temporary):
    place = temporary / "elsewhere"
    pvisor("run", f"--stage={place}", "--name", "one", "--", "true", cwd=workspace)
    (place / "stage.json").unlink()
    for command in (["drop", "one"], ["prune"], ["prune", "--unapplied"]):
        pvisor(*command, cwd=workspace, code=None)
        assert (place / "lock").exists() and (place / "roots").exists()
    (place / "stage.unfinished").touch()
    pvisor("drop", "one", cwd=workspace)
    assert not place.exists()


@pytest.mark.parametrize("command", [["drop", "one"], ["prune", "--unapplied"]])
def test_an_unknown_entry_stays_and_is_named(pvisor, workspace, temporary, command):
    place = temporary / "elsewhere"
    pvisor("run", f"--stage={place}", "--name", "one", "--", "sh", "-c", "echo work > w", cwd=workspace)
    (place / "mine").write_text("precious\n")
    assert f"{place}/mine is nothing of a stage" in pvisor(*command, cwd=workspace, code=None).err
    assert (place / "mine").read_text() == "precious\n" and (place / "stage.json").exists()
    (place / "mine").unlink()
    pvisor(*command, cwd=workspace)
    assert not place.exists()


@pytest.mark.parametrize("inside", ["", "jobs", "jobs/{id}", "jobs/{id}/new", "jobs/{id}/stage/roots", "new"])
def test_a_directory_of_the_store_is_no_stage(pvisor, workspace, environment, temporary, listed, inside):
    pvisor("run", "--stage", "--name", "one", "--", "sh", "-c", "echo work > w", cwd=workspace)
    (job,) = jobs.job_dirs(environment)
    place = jobs.store(environment) / inside.format(id=job.name)
    link = temporary / "link"
    link.symlink_to(jobs.store(environment))
    for path in (place, link / inside.format(id=job.name)):
        assert "lies in the job store" in pvisor("run", f"--stage={path}", "--", "true", cwd=workspace, code=2).err
    assert listed(workspace) == ["one"]
    pvisor("prune", cwd=workspace)
    pvisor("apply", "one", "--all", cwd=workspace)
    assert (workspace / "w").read_text() == "work\n"


def test_the_stage_of_a_job_can_be_gone_on_with_by_its_path(pvisor, workspace, environment):
    pvisor("run", "--stage", "--name", "one", "--", "sh", "-c", "echo work > w", cwd=workspace)
    (job,) = jobs.job_dirs(environment)
    pvisor("run", f"--stage={job / 'stage'}", "--", "test", "-e", "w", cwd=workspace)


@pytest.mark.parametrize("how", ["no such command", "other directories", "another store", "another store fails"])
def test_a_later_run_takes_no_earlier_work_along(pvisor, workspace, make_workspace, temporary, listed, how):
    place = temporary / "elsewhere"
    there = {"PVISOR_HOME": str(temporary / "store-2")}
    pvisor("run", f"--stage={place}", "--name", "one", "--", "sh", "-c", "echo work > w", cwd=workspace)
    again = ["run", f"--stage={place}", "--name", "two", "--"]
    if how == "no such command":
        pvisor(*again, "/no/such", cwd=workspace, code=127)
    elif how == "other directories":
        pvisor(*again, "true", cwd=make_workspace(name="other"), code=2)
    elif how == "another store":
        pvisor(*again, "true", cwd=workspace, env=there)
    else:
        pvisor(*again, "/no/such", cwd=workspace, env=there, code=127)
    pvisor("prune", cwd=workspace, env=there)
    pvisor("prune", cwd=workspace)
    assert listed(workspace) == ["one"]
    pvisor("apply", "one", "--all", cwd=workspace)
    assert (workspace / "w").read_text() == "work\n"
    pvisor("prune", "--applied", cwd=workspace)
    assert not place.exists()


@pytest.mark.parametrize("what", [[], ["--path", "w"]], ids=["whole", "part"])
def test_dropping_a_run_that_failed_drops_nothing_of_others(pvisor, workspace, temporary, what):
    place = temporary / "elsewhere"
    pvisor("run", f"--stage={place}", "--name", "one", "--", "sh", "-c", "echo work > w", cwd=workspace)
    pvisor("run", f"--stage={place}", "--name", "two", "--", "/no/such", cwd=workspace, code=127)
    assert "the stage is another job's" in pvisor("drop", "two", *what, cwd=workspace, code=None).err
    pvisor("apply", "one", "--all", cwd=workspace)
    assert (workspace / "w").read_text() == "work\n"


def test_work_of_another_store_is_seen_in_the_stage(pvisor, workspace, temporary, listed):
    place = temporary / "elsewhere"
    pvisor("run", f"--stage={place}", "--name", "one", "--", "true", cwd=workspace)
    pvisor("run", f"--stage={place}", "--", "sh", "-c", "echo work > w", cwd=workspace,
           env={"PVISOR_HOME": str(temporary / "store-2")})
    pvisor("prune", cwd=workspace)
    assert listed(workspace) == ["one"] and place.exists()
    pvisor("prune", "--unapplied", cwd=workspace)
    assert listed(workspace) == [] and not place.exists()
