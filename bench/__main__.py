# SPDX-License-Identifier: Apache-2.0
"""./dev bench: how fast pVisor is, and which of its targets miss. Misses are printed; the exit status is 0."""
import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from . import peers, report, rows

TOP = Path(__file__).resolve().parent.parent


def output_directory():
    """bench/out, which git ignores; elsewhere in somebody else's clone."""
    path = TOP / "bench" / "out"
    try:
        path.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return Path(tempfile.mkdtemp(prefix="pvisor-bench-out-"))


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="install other sandboxes and measure them too")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds, at most 1,000 changed files")
    parser.add_argument("--sizes", metavar="N,...", type=lambda text: [int(n) for n in text.split(",")],
                        help="only these numbers of changed files")
    parser.add_argument("--tmpfs", action="store_true", help="publish on tmpfs alone")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these: {', '.join(rows.ALL)}")
    options = parser.parse_args()
    unknown = set(options.rows) - rows.ALL.keys()
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")

    pvisor = Path(os.environ.get("PVISOR", TOP / "build" / "pvisor")).absolute()
    out = output_directory()
    others, absent = peers.install(out) if options.peers else ([], [])
    bench = rows.Bench(str(pvisor), others, options)
    known = report.facts(pvisor) + [(peer.name, peer.version) for peer in others]

    contests = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in options.rows or rows.ALL:
            for contest in rows.ALL[name](bench):
                print(f"measuring: {contest.work}", file=sys.stderr, flush=True)
                contests.append(contest.run())
    except KeyboardInterrupt:
        print("interrupted: this is what was measured", file=sys.stderr)

    text = "\n".join([report.table(contests), "", *(f"{name}: {value}" for name, value in known)])
    print(f"\n{text}")
    for line in absent:
        print(f"peer not measured: {line}")
    missed = list(report.misses(contests))
    print(f"\ntargets that miss: {len(missed)}")
    for line in missed:
        print(f"  {line}")
    report.write_csv(out / "bench.csv", contests, known)
    (out / "bench.txt").write_text(text + "\n")
    print(f"\nwritten: {out}/bench.txt and bench.csv")


main()
