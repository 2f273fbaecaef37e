# SPDX-License-Identifier: Apache-2.0
"""The data plane, against the same traffic on loopback without it. The server stands outside in both cases."""
import re
import subprocess
from pathlib import Path

from . import places
from .timing import HERE, Contest, Failed, Stopwatch, Target, first_line

HOST = "host.pvisor.internal"


class Traffic:
    """bench/traffic.c: its server running, its clients started outside or inside."""

    def __init__(self, bench, place):
        self.bench, self.place = bench, place
        self.project = place.directory("project")
        self.program = self.project / "traffic"
        subprocess.run(["cc", "-O2", "-o", self.program, HERE / "traffic.c"], check=True)
        self.server = subprocess.Popen([self.program, "serve"], stdout=subprocess.PIPE, text=True)
        self.port = self.server.stdout.readline().strip()

    def close(self):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def run(self, *options):
        return [self.bench.pvisor, "run", "--safe", "--overlaynet-allow", f"{HOST}:{self.port}", *options, "--"]

    def client(self, prefix, host, what, *arguments):
        command = [*prefix, "./traffic", what, host, self.port, *arguments]
        done = subprocess.run([str(word) for word in command], cwd=self.project, env=self.place.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"exit {done.returncode}: {first_line(done.stderr)}")
        return float(done.stdout.split()[-1])

    def direct(self, *what):
        return self.client([], "127.0.0.1", *what)

    def through(self, *what):
        return self.client(self.run(), HOST, *what)


def plane_mib(supervisor):
    """Memory of the data plane's own: what it shares with the process that it was forked from costs nothing more."""
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[3] == pid:
            return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    raise Failed("no data plane was found")


def network(bench):
    """Throughput, latency, connections, start and memory of runs with network rules."""
    place = places.disk()
    traffic = Traffic(bench, place)

    def contest(work, rounds, target, *what):
        return Contest(work, "ms", {"direct": lambda: traffic.direct(*what), "pvisor": lambda: traffic.through(*what)},
                       bench.rounds(rounds), {"pvisor": target})

    # A share of the throughput is a multiple of the time.
    yield contest("download of 32 MiB", 9, Target(1 / 0.4, 1 / 0.7), "get", 32 << 20)
    if not bench.quick:
        yield contest("download of 1 GiB", 3, Target(1 / 0.4, 1 / 0.7), "get", 1 << 30)
    yield contest("5,000 connections, 64 at a time", 7, Target(1 / 0.25, 1 / 0.5), "rush", 5000, 64)
    yield Contest("added to a 1 KiB request on a new connection, P50", "ms",
                  {"pvisor": lambda: traffic.through("ask", 2000) - traffic.direct("ask", 2000)}, bench.rounds(7),
                  {"pvisor": Target(0.4, 0.15, "ms")})

    watch = Stopwatch(place.top, place.environment)

    def added_start():
        with_rules = watch.launch([*traffic.run(), "true"], traffic.project)[0]
        without = watch.launch([bench.pvisor, "run", "--safe", "--overlaynet-deny-all", "--", "true"], traffic.project)[0]
        return with_rules - without

    yield Contest("added to the start of a run by rules", "ms", {"pvisor": added_start}, bench.rounds(40),
                  {"pvisor": Target(8, 3, "ms")})

    def held():
        process = subprocess.Popen([*map(str, traffic.run()), "./traffic", "hold", HOST, traffic.port, "1000"],
                                   cwd=traffic.project, env=place.environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if process.stdout.readline() != "1000\n":
                raise Failed(first_line(process.stderr.read()))
            return plane_mib(process.pid)
        finally:
            process.communicate("\n")

    yield Contest("memory of the data plane, 1,000 connections open", "MiB", {"pvisor": held}, 3,
                  {"pvisor": Target(32, 32, "MiB")}, warm_up=False)
    traffic.close()
    place.close()
