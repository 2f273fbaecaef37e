# SPDX-License-Identifier: Apache-2.0
"""The isolation experiment runs, holds for the modes that promise it, and its audit can say no."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
MODES = ("native", "pVisor host", "pVisor staged", "pVisor safe")


def experiment(pv, evidence, *arguments):
    words = [sys.executable, "-B", "-m", "experiments.isolation", "--evidence", str(evidence), *arguments]
    return subprocess.run(words, cwd=TOP, env={**os.environ, "PVISOR": str(pv)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=110, check=False)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory, request):
    pv = Path(os.environ.get("PVISOR", TOP / "build/pvisor"))
    where = tmp_path_factory.mktemp("isolation")
    only = [word for mode in MODES for word in ("--only", mode)]
    done = experiment(pv, where, "--repetitions", "1", *only)
    assert done.returncode == 0, done.stderr
    return pv, where


def cells(where):
    rows = (where / "table.csv").read_text().splitlines()
    columns = rows[0].split(",")
    return {row.split(",")[0]: dict(zip(columns, row.split(","))) for row in rows[1:]}


def test_staged_and_safe_keep_everything_and_do_their_work(evidence):
    table = cells(evidence[1])
    for mode in ("pVisor staged", "pVisor safe"):
        row = table[mode]
        assert row["staged"] == "1/1"
        for column, cell in row.items():
            if column.startswith("inside_"):
                assert cell == "1/1", (mode, column)
            elif column not in ("configuration", "staged"):
                assert cell in ("0/1", "-"), (mode, column)


def test_without_a_boundary_everything_is_seen_to_happen(evidence):
    row = cells(evidence[1])["native"]
    for column, cell in row.items():
        if column not in ("configuration", "staged", "ptrace"):  # yama may refuse an ordinary user to trace
            assert cell in ("1/1", "-"), column


def test_the_audit_refuses_evidence_that_was_changed(evidence):
    pv, where = evidence
    path = next(where.glob("0-*-pVisor_safe.json"))
    original = path.read_text()
    forged = json.loads(original)
    forged["aftermath"]["victims"]["absolute"] = "overwritten"
    path.write_text(json.dumps(forged))
    try:
        done = experiment(pv, where, "--audit-only")
        assert done.returncode == 1
        assert "write_absolute happened" in done.stderr
    finally:
        path.write_text(original)
    assert experiment(pv, where, "--audit-only").returncode == 0
