# SPDX-License-Identifier: Apache-2.0
"""The table, the CSV and the facts of the machine that they were measured on."""
import csv
import os
import platform
import statistics
import subprocess
from datetime import datetime, timezone


def facts(pvisor):
    """[(name, value)] of what the numbers depend on."""

    def said(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "?"

    with open("/proc/cpuinfo") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "?")
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) // 1024
    return [("date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")), ("kernel", platform.release()),
            ("processor", f"{model}, {os.cpu_count()} cores"), ("memory", f"{memory} MiB"),
            ("load before", "%.2f" % os.getloadavg()[0]), ("user", "root" if os.geteuid() == 0 else "ordinary"),
            ("pvisor", said(pvisor, "version")), ("bwrap", said("bwrap", "--version")), ("git", said("git", "--version"))]


def verdict(contest, name):
    """(value that the target speaks of, "aim"|"must"|"MISS"|"") of one contender."""
    value, base = contest.median(name), contest.median(next(iter(contest.contenders)))
    target = contest.targets.get(name)
    ratio = value / base if value is not None and base else None
    if not target:
        return ratio, ""
    judged = ratio if target.unit == "ratio" else value
    if judged is None:
        return ratio, "?"
    if target.aim is not None and judged <= target.aim:
        return ratio, "aim"
    return ratio, "must" if judged <= target.must else "MISS"


def limit(target, which):
    value = getattr(target, which) if target else None
    if value is None:
        return ""
    return f"{value:g} x" if target.unit == "ratio" else f"{value:g} {target.unit}"


def table(contests):
    """Lines for a terminal: each contest's baseline, then the others against it."""
    lines = [f"{'':38} {'median':>12} {'quartiles':>17} {'ratio':>8} {'must':>8} {'aim':>8}"]
    for contest in contests:
        lines.append(f"\n{contest.work}")
        baseline = next(iter(contest.contenders))
        for name in contest.contenders:
            if name in contest.failures:
                lines.append(f"  {name:36} failed: {contest.failures[name]}")
                continue
            samples, target = contest.samples[name], contest.targets.get(name)
            low, _, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
            ratio, judged = verdict(contest, name)
            shown = f"{ratio:.2f} x" if ratio and name != baseline else ""
            lines.append(f"  {name:36} {contest.median(name):8.2f} {contest.unit:3} {low:8.2f} {high:8.2f} {shown:>8} "
                         f"{limit(target, 'must'):>8} {limit(target, 'aim'):>8} {judged}".rstrip())
    return "\n".join(lines)


def misses(contests):
    """Targets that were not met or could not be measured."""
    for contest in contests:
        for name, target in contest.targets.items():
            ratio, judged = verdict(contest, name)
            if name in contest.failures:
                yield f"{contest.work}: {name}: not measured: {contest.failures[name]}"
            elif judged == "?":
                yield f"{contest.work}: {name}: nothing to compare with"
            elif judged == "MISS":
                got = f"{ratio:.2f} x" if target.unit == "ratio" else f"{contest.median(name):.2f} {target.unit}"
                yield f"{contest.work}: {name}: {got}, must be {limit(target, 'must')}"


def write_csv(path, contests, known):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["work", "contender", "unit", "median", "ratio", "must", "aim", "verdict", "failure", "samples"])
        for contest in contests:
            for name in contest.contenders:
                ratio, judged = verdict(contest, name)
                target, median = contest.targets.get(name), contest.median(name)
                writer.writerow([contest.work, name, contest.unit, "" if median is None else f"{median:.4f}",
                               "" if ratio is None else f"{ratio:.4f}", limit(target, "must"), limit(target, "aim"),
                               judged, contest.failures.get(name, ""),
                               " ".join(f"{s:.4f}" for s in contest.samples.get(name, ()))])
        for name, value in known:
            writer.writerow(["machine", name, "", value])


