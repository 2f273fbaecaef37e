# SPDX-License-Identifier: Apache-2.0
"""The Run Bundle against its schema, and what it must and must not say."""
import json
import os
from pathlib import Path

import jsonschema
import pytest

from lib import jobs

SCHEMA = json.loads((Path(__file__).parent.parent / "src/evidence/schema/bundle.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def check(bundle):
    problems = [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in VALIDATOR.iter_errors(bundle)]
    assert not problems, "\n".join(problems)
    return bundle


@pytest.fixture
def bundle_of(pvisor, environment):
    """bundle_of(*run_args, **options) -> the checked bundle of a run with these arguments."""
    def call(*args, **options):
        pvisor("run", *args, **options)
        return check(jobs.bundle(jobs.job_dirs(environment)[-1]))
    return call


def test_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_schema_refuses_a_claim_that_was_not_probed():
    good = {"dimension": "network", "control": "c", "mechanism": "m", "installed": True, "level": "enforced",
            "limits": [], "probes": [{"name": "p", "attempted": "a", "outcome": "refused", "errno": 1}]}
    observation = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["observation"], "$defs": SCHEMA["$defs"]})
    assert observation.is_valid(good)
    assert not observation.is_valid({**good, "probes": []})
    assert not observation.is_valid({**good, "installed": False})
    assert not observation.is_valid({**good, "probes": [{**good["probes"][0], "outcome": "succeeded"}]})


@pytest.mark.parametrize("options", [[], ["--stage"], ["--safe"], ["--filesystem", "sandbox"],
                                     ["--stage", "--filesystem", "host"], ["--stage", "--overlaynet-deny-all"],
                                     ["--stage", "--max-open-files", "100", "--timeout", "30s"],
                                     ["--stage", "--stdio", "capture", "--name", "x"]])
def test_every_kind_of_run_has_a_valid_bundle(bundle_of, workspace, options):
    bundle = bundle_of(*options, "--", "sh", "-c", "echo 1 > made-here; rm -f README.md", cwd=workspace)
    assert bundle["run"]["exit"]["kind"] == "exited" and bundle["run"]["exit_code"] == 0
    assert bundle["run"]["state"] == "ended" and bundle["run"]["ended_at"]
    if "--stage" in options or "--safe" in options:
        assert bundle["filesystem"]["state"] == "pending"
        assert bundle["filesystem"]["counts"]["added"] == 1 and bundle["filesystem"]["counts"]["deleted"] == 1
    else:
        assert bundle["filesystem"]["counts"] is None


def test_safe_claims_what_was_probed(bundle_of, workspace):
    bundle = bundle_of("--safe", "--", "true", cwd=workspace)
    for claim in ("workspace_writes_staged", "host_writes_blocked", "reads_confined", "sensitive_paths_hidden",
                  "network_contained", "subprocesses_contained"):
        assert bundle["safety"][claim] is True, (claim, bundle["safety"]["warnings"])
    for observation in bundle["executor_observations"]:
        if observation["level"] == "enforced":
            assert any(p["outcome"] == "refused" for p in observation["probes"]), observation


def test_ambient_claims_nothing(bundle_of, workspace):
    bundle = bundle_of("--", "true", cwd=workspace)
    for name, value in bundle["safety"].items():
        if name not in ("levels", "warnings"):
            assert value is False, name
    assert bundle["network"]["policy"] == "ambient" and bundle["network"]["counters"] is None


def test_network_alone_raises_no_other_dimension(bundle_of, workspace):
    bundle = bundle_of("--stage", "--filesystem", "host", "--overlaynet-deny-all", "--", "true", cwd=workspace)
    assert bundle["safety"]["reads_confined"] is False and bundle["safety"]["host_writes_blocked"] is False


def test_no_value_of_a_variable_is_in_any_file_of_the_job(pvisor, environment, workspace):
    secret = "s3cr3t-value-of-a-token"
    pvisor("run", "--safe", "--pass-env", "API_TOKEN", "--", "sh", "-c", "test -n \"$API_TOKEN\"", cwd=workspace,
           env={"API_TOKEN": secret, "OTHER_SECRET": secret})
    (job,) = jobs.job_dirs(environment)
    for path in job.rglob("*"):
        if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
            assert secret.encode() not in path.read_bytes(), path
    bundle = check(jobs.bundle(job))
    assert bundle["environment"]["passed"] == ["API_TOKEN"]
    assert "OTHER_SECRET" not in json.dumps(bundle)


def test_signal_timeout_and_code(bundle_of, workspace):
    killed = bundle_of("--stage", "--", "sh", "-c", "kill -9 $$", cwd=workspace, code=137)
    assert (killed["run"]["exit"]["kind"], killed["run"]["exit"]["signal"], killed["run"]["exit"]["code"]) == (
        "signaled", 9, None)
    late = bundle_of("--stage", "--timeout", "300ms", "--", "sleep", "60", cwd=workspace, code=124)
    assert late["run"]["exit"]["kind"] == "timeout" and late["run"]["exit"]["duration_ms"] >= 300
    seven = bundle_of("--stage", "--", "sh", "-c", "exit 7", cwd=workspace, code=7)
    assert (seven["run"]["exit"]["code"], seven["run"]["exit"]["signal"]) == (7, None)


def test_failed_start_has_a_bundle_with_the_reason(bundle_of, workspace):
    bundle = bundle_of("--stage", "--", "/no/such/program", cwd=workspace, code=127)
    assert bundle["run"]["state"] == "failed" and "no/such/program" in bundle["run"]["failure"]
    assert bundle["run"]["exit"] is None and bundle["run"]["exit_code"] == 127


def test_odd_bytes_survive(bundle_of, workspace):
    bundle = bundle_of("--stage", "--", "python3", "-c", "open(b'odd \\xff\\n\\x1b', 'w').write('x')", cwd=workspace)
    (change,) = bundle["filesystem"]["changes"]
    assert jobs.as_path(change["path"]) == b"odd \xff\n\x1b"


def test_many_changes_are_counted_and_cut(bundle_of, workspace):
    bundle = bundle_of("--stage", "--", "python3", "-c", "for i in range(1500): open(f'f{i}', 'w')", cwd=workspace)
    assert bundle["filesystem"]["counts"]["total"] == 1500
    assert len(bundle["filesystem"]["changes"]) == 1000 and bundle["filesystem"]["truncated"] is True


def test_limits_asked_for_are_not_claimed_unless_installed(bundle_of, workspace):
    bundle = bundle_of("--stage", "--max-open-files", "64", "--", "sh", "-c", "ulimit -n", cwd=workspace)
    assert bundle["resources"]["requested"]["max_open_files"] == 64
    assert bundle["resources"]["requested"]["memory_bytes"] is None
    assert bundle["resources"]["effective"]["max_open_files"] == 64
    none = bundle_of("--stage", "--", "true", cwd=workspace)
    assert all(v is None for v in none["resources"]["requested"].values())


def test_lineage(bundle_of, pvisor, environment, workspace):
    bundle_of("--stage", "--name", "base", "--", "sh", "-c", "echo 1 > a", cwd=workspace)
    pvisor("checkpoint", "base", "--name", "one", cwd=workspace)
    pvisor("fork", "base@one", "--name", "child", "--", "true", cwd=workspace)
    child = json.loads(pvisor("status", "child", "--review", "--json", cwd=workspace).out)
    check(child)
    assert child["lineage"]["origin"] == "forked" and child["lineage"]["checkpoint"] == "one"
