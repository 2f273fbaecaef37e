#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which configurations keep a command from the host outside its workspace, measured.

Every configuration runs attempt.py in three fresh worlds (fixture.py); a fixed seed shuffles the configurations in each
repetition. What counts is what happened: the bytes printed, the bytes on the host, what listeners heard, who still lives, what the
bundle observed. Return codes count for nothing, and a failure is counted, never replaced.

The evidence of each attempt is a JSON file; the table is made by rereading those files, and the audit refuses to
publish when anything in them disagrees with itself, with the inputs' digests, or with what the configuration must hold.
"""
import argparse
import base64
import csv
import hashlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .configurations import TOP, all_configurations, install_peers, pvisor_program
from .fixture import Fixture, Outside, python

HERE = Path(__file__).resolve().parent
SCRIPTS = ("__main__.py", "fixture.py", "configurations.py", "attempt.py")
INSIDE = ("inside_read", "inside_write", "inside_socketpair")
OUTSIDE = ("read_absolute", "read_symlink", "read_proc_root", "read_parent", "write_absolute", "write_symlink",
           "write_workspace_alias", "unix_path", "unix_abstract", "tcp_loopback", "tcp_outside",
           "environment_secret", "home_secret", "ptrace", "daemon")
COLUMNS = (*INSIDE, *OUTSIDE, "staged")
# The dimension of the bundle that a column belongs to: "enforced" there and an occurrence here is a contradiction.
DIMENSION = {"read_absolute": "reads", "read_symlink": "reads", "read_proc_root": "reads", "read_parent": "reads",
             "write_absolute": "host_writes", "write_symlink": "host_writes",
             "write_workspace_alias": "workspace_writes", "tcp_loopback": "network", "tcp_outside": "network",
             "environment_secret": "credentials", "home_secret": "sensitive_paths", "ptrace": "subprocesses",
             "daemon": "subprocesses"}


def run(argv, fixture, as_user, seconds=60):
    try:
        done = subprocess.run(argv, cwd=fixture.workspace, env=fixture.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=seconds, user=as_user, group=as_user,
                              extra_groups=None if as_user is None else [])
        return {"argv": argv, "code": done.returncode, "out": done.stdout.decode(errors="replace"),
                "err": done.stderr.decode(errors="replace")[-4000:]}
    except (OSError, subprocess.TimeoutExpired) as e:
        return {"argv": argv, "code": None, "out": "", "err": f"{type(e).__name__}: {e}"}


def observe(configuration, outside, as_user, place):
    """One attempt in a fresh world: its evidence as plain data."""
    top = tempfile.mkdtemp(prefix="isolation-", dir=place)
    os.chmod(top, 0o755)
    fixture = Fixture(top, outside, as_user)
    try:
        shutil.copy(HERE / "attempt.py", fixture.workspace / "attempt.py")
        words = [python(), "attempt.py", base64.b64encode(json.dumps(fixture.arguments()).encode()).decode()]
        evidence = {"configuration": configuration.name, "expected": fixture.expected(),
                    "outside_available": outside.address is not None, "started": time.time(),
                    "run": run(configuration.command(fixture, words), fixture, as_user)}
        evidence["aftermath"] = fixture.aftermath()
        if configuration.record:
            evidence["record"] = run(configuration.record(fixture), fixture, as_user)
        if configuration.staged:
            evidence["publish"] = run(configuration.staged(fixture), fixture, as_user)
            written = fixture.workspace / "written.txt"
            evidence["published"] = written.read_text(errors="replace") if written.is_file() else None
        return evidence
    finally:
        fixture.close()


def judge(evidence):
    """Column -> True (it happened), False, or None (could not be tried), from the evidence alone."""
    want, after, out = evidence["expected"], evidence["aftermath"], evidence["run"]["out"]
    attempts = {}
    for line in out.splitlines():
        if line.startswith("ATTEMPT "):
            entry = json.loads(line[len("ATTEMPT "):])
            attempts[entry["name"]] = entry
    got = lambda name: attempts.get(name, {}).get("got")
    heard = lambda name: want["mark"] in "".join(after["heard"][name])
    connected = lambda name: bool(after["heard"][name])
    outcome = {
        "inside_read": got("inside_read") == want["inside"],
        "inside_write": got("inside_write") == want["write_text"],
        "inside_socketpair": got("inside_socketpair") == "through a socket pair",
        "write_absolute": after["victims"]["absolute"] != want["victims"]["absolute"],
        "write_symlink": after["victims"]["symlink"] != want["victims"]["symlink"],
        "write_workspace_alias": after["alias"] is not None,
        "unix_path": connected("unix_path") or heard("unix_path"),
        "unix_abstract": connected("unix_abstract") or heard("unix_abstract"),
        "tcp_loopback": connected("tcp_loopback") or heard("tcp_loopback"),
        "tcp_outside": bool(after["heard_outside"]) if evidence["outside_available"] else None,
        "environment_secret": want["secrets"]["variable"] in out,
        "home_secret": want["secrets"]["home"] in out,
        "ptrace": want["secrets"]["memory"] in out,
        "daemon": after["survivors"] > 0,
        "staged": None,
    }
    for name in ("read_absolute", "read_symlink", "read_proc_root", "read_parent"):
        outcome[name] = want["secrets"]["secret"] in (got(name) or "")
    if "publish" in evidence:  # nothing landed before, the very bytes after
        outcome["staged"] = after["written"] is None and evidence["published"] == want["write_text"]
    return outcome


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else None


def inputs():
    """Digests of everything that decides the result: compared before and after."""
    files = {name: digest(HERE / name) for name in SCRIPTS}
    program = Path(pvisor_program())
    for name in ("pvisor", "pvisor-decide"):
        for path in (program.parent / name, program.parent.parent / "libexec" / "pvisor" / name):
            if path.is_file():
                files[name] = digest(path)
    for name in ("bwrap", "podman", "runc"):
        if shutil.which(name):
            files[name] = digest(shutil.which(name))
    return files


def provenance(arguments, as_user):
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    version = lambda *words: (subprocess.run(words, capture_output=True, text=True).stdout.splitlines() or [""])[0]
    return {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "kernel": platform.release(), "cpu": cpu,
            "uid": os.geteuid() if as_user is None else as_user, "seed": arguments.seed,
            "repetitions": arguments.repetitions, "inputs": inputs(),
            "versions": {"pvisor": version(pvisor_program(), "--version"),
                         "bwrap": version("bwrap", "--version") if shutil.which("bwrap") else None,
                         "podman": version("podman", "--version") if shutil.which("podman") else None}}


def enter_network_namespace():
    """As root: starts over where no address but this experiment's own can be reached."""
    if os.geteuid() == 0 and shutil.which("ip") and "PV_IN_NETNS" not in os.environ:
        words = [word for word in sys.argv[1:] if word != "--peers"]
        os.execvpe("unshare", ["unshare", "--net", python(), "-B", "-m", "experiments.isolation", *words],
                   {**os.environ, "PV_IN_NETNS": "1"})


def experiment(arguments):
    as_user = int(subprocess.run(["id", "-u", arguments.user], capture_output=True, text=True, check=True).stdout) \
        if arguments.user else None
    where = Path(arguments.evidence)
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    chosen = [c for c in all_configurations(os.geteuid() == 0 and as_user is None) if not arguments.only or c.name in arguments.only]
    facts = provenance(arguments, as_user)
    facts["unusable"] = {c.name: reason for c in chosen if (reason := c.unusable())}
    facts["safe"] = [c.name for c in chosen if c.expected_safe]
    facts["configurations"] = [c.name for c in chosen]
    runnable = [c for c in chosen if c.name not in facts["unusable"]]
    shuffle = random.Random(arguments.seed)
    outside = Outside()
    try:
        for repetition in range(arguments.repetitions):
            order = runnable[:]
            shuffle.shuffle(order)
            for place, configuration in enumerate(order):
                evidence = observe(configuration, outside, as_user, arguments.place)
                evidence.update(repetition=repetition, order=place)
                name = f"{repetition}-{place:02}-{configuration.name.replace(' ', '_').replace(',', '')}.json"
                (where / name).write_text(json.dumps(evidence, indent=1))
                print(f"{repetition + 1}/{arguments.repetitions} {configuration.name}", file=sys.stderr)
    finally:
        outside.close()
    facts["inputs_after"] = inputs()
    (where / "provenance.json").write_text(json.dumps(facts, indent=1))


def reread(where):
    """Provenance and, per configuration, the judged attempts: from the files, not from memory."""
    where = Path(where)
    facts = json.loads((where / "provenance.json").read_text())
    runs = {name: [] for name in facts["configurations"]}
    for path in sorted(where.glob("[0-9]*.json")):
        evidence = json.loads(path.read_text())
        runs[evidence["configuration"]].append((evidence, judge(evidence)))
    return facts, runs


def audit(facts, runs):
    """Reasons not to publish."""
    wrong = []
    if facts["inputs"] != facts["inputs_after"]:
        wrong.append("an input changed during the experiment")
    for name, attempts in runs.items():
        if name in facts["unusable"]:
            continue
        if len(attempts) != facts["repetitions"]:
            wrong.append(f"{name}: {len(attempts)} attempts of {facts['repetitions']}")
        for evidence, outcome in attempts:
            here = f"{name}, repetition {evidence['repetition']}"
            if evidence["aftermath"]["inside"] != evidence["expected"]["inside"]:
                wrong.append(f"{here}: the input file is not what it was")
            if name in facts["safe"]:
                wrong += [f"{here}: {c} is {outcome[c]}" for c in (*INSIDE, "staged") if outcome[c] is not True]
                wrong += [f"{here}: {c} happened" for c in OUTSIDE if outcome[c]]
            wrong += [f"{here}: {what}" for what in contradictions(evidence, outcome)]
    if all(sum(o["tcp_loopback"] for _, o in attempts) == 0 for attempts in runs.values()):
        wrong.append("no configuration reached the listener: the experiment could not have seen a breach")
    return wrong


def contradictions(evidence, outcome):
    """Where the bundle of a run says enforced and the breach happened all the same."""
    if "record" not in evidence:
        return []
    try:
        bundle = json.loads(evidence["record"]["out"])
    except ValueError:
        return ["no Run Bundle could be read"]
    enforced = {dimension for dimension, level in bundle["safety"]["levels"].items() if level == "enforced"}
    return [f"the bundle says {DIMENSION[c]} is enforced, {c} happened"
            for c in OUTSIDE if outcome[c] and DIMENSION.get(c) in enforced]


def cell(attempts, column):
    tried = [outcome[column] for _, outcome in attempts if outcome[column] is not None]
    return f"{sum(tried)}/{len(tried)}" if tried else "-"


def table(facts, runs):
    rows = []
    for name, attempts in runs.items():
        reason = facts["unusable"].get(name)
        rows.append([name, *([reason] if reason else [cell(attempts, c) for c in COLUMNS])])
    return rows


def markdown(facts, rows):
    """One row a column of the experiment, one column a configuration that ran; the others in a list."""
    ran = [row for row in rows if len(row) == 1 + len(COLUMNS)]
    lines = ["| | " + " | ".join(row[0] for row in ran) + " |", "|---|" + "---|" * len(ran)]
    for i, column in enumerate(COLUMNS, 1):
        lines.append(f"| {column.replace('_', ' ')} | " + " | ".join(row[i] for row in ran) + " |")
    lines.append("")
    lines += [f"- {row[0]}: {row[1]}" for row in rows if row not in ran]
    who = "root" if facts["uid"] == 0 else "an ordinary user"
    lines += ["", f"As {who}, {facts['repetitions']} repetitions, seed {facts['seed']}, Linux {facts['kernel']}, "
              f"{facts['cpu']}, {facts['time']}.", ""]
    lines += [f"- {name} {digest_[:16]}" for name, digest_ in facts["inputs"].items() if digest_]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--user", help="run the attempts as this user (root only)")
    parser.add_argument("--only", action="append", metavar="CONFIGURATION")
    parser.add_argument("--place", default="/var/tmp", help="where the fixtures are made (default: %(default)s)")
    parser.add_argument("--evidence", default=str(TOP / "bench" / "out" / "isolation"))
    parser.add_argument("--publish", metavar="FILE", help="put the table between the markers of this Markdown file")
    parser.add_argument("--peers", action="store_true", help="install the peers of PyPI and npm first")
    parser.add_argument("--audit-only", action="store_true", help="reread the evidence of an earlier run")
    arguments = parser.parse_args()
    if arguments.peers:
        for line in install_peers():
            print(line, file=sys.stderr)
    if not arguments.audit_only:
        enter_network_namespace()
        experiment(arguments)
    facts, runs = reread(arguments.evidence)
    rows = table(facts, runs)
    with open(Path(arguments.evidence) / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([["configuration", *COLUMNS], *rows])
    text = markdown(facts, rows)
    print(text)
    wrong = audit(facts, runs)
    for line in wrong:
        print(f"audit: {line}", file=sys.stderr)
    if wrong:
        print("audit: not published", file=sys.stderr)
        return 1
    if arguments.publish:
        publish(Path(arguments.publish), "root" if facts["uid"] == 0 else "user", text)
    return 0


def publish(path, who, text):
    """Replaces what stands between <!-- table:WHO --> and <!-- end:WHO -->."""
    begin, end = f"<!-- table:{who} -->", f"<!-- end:{who} -->"
    page = path.read_text()
    before, rest = page.split(begin, 1)
    _, after = rest.split(end, 1)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
