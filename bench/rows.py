# SPDX-License-Identifier: Apache-2.0
"""The rows of the table. Each function yields Contests, ready to run, and clears up when it is resumed."""
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from . import peers, places
from .network import network
from .timing import Contest, Failed, Stopwatch, Target, first_line, settle

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]


class Bench:
    """What all rows share: the pvisor under test, the other contenders, how thorough to be."""

    def __init__(self, pvisor, peers, options):
        self.pvisor, self.peers, self.quick = pvisor, peers, options.quick
        self.only_sizes, self.only_tmpfs = options.sizes, options.tmpfs

    def rounds(self, usual):
        return max(usual // 4, 2) if self.quick else usual

    def sizes(self, *sizes):
        return [n for n in sizes if (n in self.only_sizes if self.only_sizes else not self.quick or n <= 1000)]


def launch(bench):
    """Launch to exit, against bubblewrap."""
    place = places.disk()
    watch, project = Stopwatch(place.top, place.environment), place.directory("project")
    for files in range(3):
        (project / f"file{files}").write_text("text\n")

    def contender(command):
        return lambda: watch.launch([*command, "true"], project)[0]

    contenders = {"bwrap": contender(BWRAP),
                  "pvisor run --stage": contender([bench.pvisor, "run", "--stage", "--"]),
                  "pvisor run --safe, no network": contender([bench.pvisor, "run", "--safe", "--overlaynet-deny-all",
                                                              "--"]),
                  "pvisor run --safe": contender([bench.pvisor, "run", "--safe", "--"])}
    for peer in bench.peers:
        contenders.update({name: contender(prefix) for name, prefix in peer.launches.items()})
    yield Contest("launch to exit of true", "ms", contenders, bench.rounds(40),
                  {"pvisor run --stage": Target(1.3, 0.9), "pvisor run --safe, no network": Target(1.6, 1.1)})
    place.close()


# Runs its arguments in an overlay over the current directory.
FUSE_OVERLAYFS = """
d=$(mktemp -d "$HOME/overlay-XXXXXX"); mkdir "$d/upper" "$d/work" "$d/merged"
fuse-overlayfs -o "lowerdir=$PWD,upperdir=$d/upper,workdir=$d/work" "$d/merged" && cd "$d/merged" && "$@"; code=$?
cd /; umount "$d/merged" 2>/dev/null || fusermount3 -u "$d/merged"; rm -rf "$d"; exit $code"""


def view(bench):
    """File work inside the staged view, timed inside, against the same work outside."""
    place = places.disk()
    watch = Stopwatch(place.top, place.environment)
    project = place.directory("project")
    shutil.copy2(watch.program, project)
    places.make_tree(project / "tree", 2048)
    watch.inside([], ["write", place.directory("project/old"), "64", "65536"], project)
    prefixes = {"native": [], "pvisor run --stage": [bench.pvisor, "run", "--stage", "--"]}
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        prefixes["  over FUSE"] = [bench.pvisor, "run", "--stage", "--stage-backend", "fuse", "--"]
        if shutil.which("fuse-overlayfs"):
            prefixes["fuse-overlayfs"] = ["bash", "-c", FUSE_OVERLAYFS, "fuse-overlayfs"]
    for peer in bench.peers:
        prefixes.update(peer.views)

    def contest(work, rounds, target, timed, before=lambda: None):
        def contender(prefix):
            def once():
                before()
                return watch.inside(prefix, timed, project)
            return once
        return Contest(work, "ms", {name: contender(p) for name, p in prefixes.items()}, bench.rounds(rounds),
                       {"pvisor run --stage": target} if target else {})

    def empty_new():
        place.forget(project / "new")
        (project / "new").mkdir()

    directories = -(-2048 // places.FILES_IN_DIRECTORY)
    walk = ["walk", "tree", str(2048 + directories)]
    yield contest("walk of 2,048 files with stat", 15, Target(1.4, 1.15), ["again", *walk])
    # Each launch makes a new view, whose first look at a file costs the kernel an inode more. Native is warm in both.
    yield contest("  the first walk of a new view", 15, None, walk)
    write, append = ["new", "256", "65536"], ["old", "64"]
    yield contest("write 256 files of 64 KiB, append to 64 of 64 KiB", 11, Target(1.6, 1.2),
                  ["write+append", *write, *append], empty_new)
    # The halves, for who wants to know where the time goes: an append pays for the copy of the file.
    yield contest("  of these, the writes alone", 11, None, ["write", *write], empty_new)
    yield contest("  of these, the appends alone", 11, None, ["append", *append])
    place.close()

    place = places.disk()
    watch = Stopwatch(place.top, place.environment)
    project = place.top / "project"
    places.make_tree(project, 10000)
    places.git_repository(project, place.environment)
    shutil.copy2(watch.program, project)
    yield contest("git status on 10,000 files", 11, Target(1.4, 1.15), ["again", "run", "git", "status"])
    yield contest("  the first one in a new view", 11, None, ["run", "git", "status"])
    place.close()


class Tree:
    """Files of which the first so many change from A to B, in the next round back, and so on."""

    def __init__(self, top, changed, watch):
        self.top, self.changed, self.now = top, changed, "A"
        places.make_tree(top, max(changed, 1000))
        shutil.copy2(watch.program, top)

    @property
    def next(self):
        return "B" if self.now == "A" else "A"

    def has_changed(self):
        """Checks that the change was made, and remembers it."""
        last = (self.top / places.name_of(self.changed - 1)).read_text()
        if last != places.text_of(self.changed - 1, self.next):
            raise Failed("the files are not as the change makes them")
        self.now = self.next


class Applying:
    """The same change published by pvisor apply, by git apply, and by the peers that can; each in a tree of its own."""

    def __init__(self, bench, place, changed):
        self.bench, self.place, self.changed = bench, place, changed
        self.watch = Stopwatch(place.top, place.environment)
        self.trees = {}
        for old, new in ("AB", "BA"):
            places.make_patch(place.top / f"{old}.patch", changed, old, new)

    def close(self):
        self.place.forget(*(tree.top for tree in self.trees.values()), self.place.top / "store")

    def tree(self, name):
        if name not in self.trees:
            self.trees[name] = Tree(self.place.top / name, self.changed, self.watch)
        return self.trees[name]

    def stage(self, tree, prefix):
        """A finished job with the change. Its data is not yet on disk: publishing pays for that."""
        settle()
        self.watch.do([*prefix, "./timer", "edit", ".", self.changed, tree.next], tree.top)

    def pvisor(self):
        """(ms, MiB) of pvisor apply."""
        tree = self.tree("pvisor")
        self.stage(tree, [self.bench.pvisor, "run", "--stage", "--"])
        measured = self.watch.launch([self.bench.pvisor, "apply", "last", "--all"], tree.top)
        tree.has_changed()
        return measured

    def git(self):
        tree = self.tree("git")
        settle()
        ms, _ = self.watch.launch(["git", "apply", self.place.top / f"{tree.now}.patch"], tree.top)
        tree.has_changed()
        return ms

    def peer(self, peer):
        tree = self.tree(peer.name)
        self.stage(tree, peer.stage)
        fresh = self.watch.fresh()
        ms, _ = self.watch.launch([fresh if word == peers.FRESH else word for word in peer.apply], tree.top)
        tree.has_changed()
        return ms

    def conflict(self):
        """The refusal of a batch in whose middle the host edited one file."""
        tree = self.tree("pvisor")
        self.stage(tree, [self.bench.pvisor, "run", "--stage", "--"])
        victim = tree.top / places.name_of(self.changed // 2)
        text = victim.read_text()
        victim.write_text(text + "the host's own line\n")
        try:
            return self.watch.launch([self.bench.pvisor, "apply", "last", "--all"], tree.top, status=3)[0]
        finally:
            victim.write_text(text)

    def drop(self):
        tree = self.tree("pvisor")
        self.stage(tree, [self.bench.pvisor, "run", "--stage", "--"])
        return self.watch.launch([self.bench.pvisor, "drop", "last"], tree.top)[0]


ROUNDS_OF = {10: 15, 1000: 9, 10000: 5, 100000: 3}


def apply(bench):
    """Publishing, against git apply of the same change; then refusing and dropping, against publishing."""
    for where, open_place in (("disk", places.disk), ("tmpfs", places.memory)):
        if where == "disk" and bench.only_tmpfs:
            continue
        place = open_place()
        kind = place.filesystem if where == "disk" else where
        for changed in bench.sizes(10, 1000, 10000, 100000):
            applying = Applying(bench, place, changed)
            contenders = {"git apply": applying.git, "pvisor apply": lambda a=applying: a.pvisor()[0]}
            for peer in bench.peers:
                if peer.apply and changed < 100000:
                    contenders[f"{peer.name} apply"] = lambda a=applying, p=peer: a.peer(p)
            yield Contest(f"apply of {changed:,} changed files ({kind})", "ms", contenders,
                          bench.rounds(ROUNDS_OF[changed]),
                          {"pvisor apply": Target(15, 15, "ms") if changed == 10 else Target(1.0, 0.5)},
                          warm_up=changed < 100000)
            if where == "disk" and changed < 100000:
                yield Contest(f"refusal and drop of {changed:,} changed files ({kind})", "ms",
                              {"pvisor apply": lambda a=applying: a.pvisor()[0],
                               "pvisor apply, conflict": applying.conflict, "pvisor drop": applying.drop},
                              bench.rounds(ROUNDS_OF[changed]),
                              {"pvisor apply, conflict": Target(1.0), "pvisor drop": Target(1.0)})
            applying.close()
        place.close()


WITH_PVISOR = """
"$pvisor" run --stage -- ./timer edit . 20 "$1" >/dev/null
"$pvisor" diff last >/dev/null
"$pvisor" apply last {paths}
"$pvisor" drop last
"""
WITH_GIT = """
git worktree add -q --detach ../worktree
../worktree.timer edit ../worktree 20 "$1" >/dev/null
git -C ../worktree diff >/dev/null
git -C ../worktree diff -- {names} | git apply
git worktree remove --force ../worktree
"""


def workflow(bench):
    """The whole job: a view, 20 edits, a diff, 10 taken, the rest thrown away."""
    place = places.disk()
    watch = Stopwatch(place.top, {**place.environment, "pvisor": str(bench.pvisor)})
    names = [places.name_of(number) for number in range(10)]
    scripts = {"git worktree": WITH_GIT.format(names=" ".join(names)),
               "pvisor": WITH_PVISOR.format(paths=" ".join(f"--path {name}" for name in names))}
    projects = {}
    for name in scripts:
        projects[name] = place.top / name.replace(" ", "-") / "project"
        places.make_tree(projects[name], 10000)
        places.git_repository(projects[name], place.environment)
        shutil.copy2(watch.program, projects[name].parent / "worktree.timer")
    # Committed beside the files, for the command inside to find it.
    shutil.copy2(watch.program, projects["pvisor"])

    def contender(name):
        def once():
            project = projects[name]
            watch.do(["git", "checkout", "-q", "."], project)
            settle()
            ms, _ = watch.launch(["sh", "-ec", scripts[name], "workflow", "B"], project)
            changed = watch.do(["git", "diff", "--name-only"], project).split()
            if changed != names:
                raise Failed(f"{len(changed)} files changed, not the 10 taken")
            return ms
        return once

    yield Contest("workflow on 10,000 files", "ms", {name: contender(name) for name in scripts}, bench.rounds(7),
                  {"pvisor": Target(0.5, 0.2)})
    place.close()


COMMITS = 1000


class Carrying:
    """The same commits, one changed file each, brought into a fresh copy of one repository."""

    def __init__(self, bench, place):
        self.bench, self.place = bench, place
        self.watch = Stopwatch(place.top, place.environment)
        self.template, self.source = place.top / "template", place.top / "source"
        places.make_tree(self.template, 1000)
        places.git_repository(self.template, place.environment)
        self.watch.do(["git", "branch", "-m", "main"], self.template)
        # Untracked, for the job to read: a job makes a thousand commits faster so than by a thousand calls.
        stream = [b"feature done\n"]
        for number in range(COMMITS):
            text = places.text_of(number % 1000, f"commit {number}").encode()
            stream.append(b"commit refs/heads/main\ncommitter Bench <bench@example.invalid> %d +0000\ndata 6\nCommit\n%s"
                          b"M 100644 inline %s\ndata %d\n%s\n" %
                          (1700000000 + number, b"" if number else b"from refs/heads/main^0\n",
                           places.name_of(number % 1000).encode(), len(text), text))
        (place.top / "stream").write_bytes(b"".join([*stream, b"done\n"]))
        shutil.copytree(self.template, self.source)
        self.watch.do(["sh", "-c", "git fast-import --quiet <../stream"], self.source)
        self.tip = self.watch.do(["git", "rev-parse", "main"], self.source).strip()

    def fresh(self, name):
        path = self.place.top / name
        self.place.forget(path)
        shutil.copytree(self.template, path)
        return path

    def check(self, project, branch):
        if self.watch.do(["git", "rev-parse", branch], project).strip() != self.tip:
            raise Failed("the commits are not there")

    def fetch(self):
        project = self.fresh("fetching")
        settle()
        ms, _ = self.watch.launch(["git", "fetch", "-q", self.source, "main:taken"], project)
        self.check(project, "taken")
        return ms

    def pvisor(self, *options, branch="main"):
        project = self.fresh("carrying")
        shutil.copy(self.place.top / "stream", project)
        self.watch.do([self.bench.pvisor, "run", "--stage", "--", "sh", "-c",
                       "git fast-import --quiet <stream && git reset -q --hard main"], project)
        settle()
        ms, _ = self.watch.launch([self.bench.pvisor, "apply", "last", "--commits", *options], project)
        self.check(project, branch)
        return ms


def commits(bench):
    """Commits of a job into the host's repository, against git fetch of the same commits."""
    place = places.disk()
    carrying = Carrying(bench, place)
    yield Contest(f"{COMMITS:,} commits", "ms",
                  {"git fetch": carrying.fetch,
                   "pvisor apply --commits --branch": lambda: carrying.pvisor("--branch", "taken", branch="taken"),
                   "pvisor apply --commits, 1,000 files": carrying.pvisor}, bench.rounds(7),
                  {"pvisor apply --commits --branch": Target(3.0, 2.0),
                   "pvisor apply --commits, 1,000 files": Target(3.0, 2.0)})
    place.close()


def resident_mib(pid, program):
    """Proportional memory of a process and its descendants that still are pvisor (the command itself is not)."""
    total = 0
    pending = [pid]
    while pending:
        each = pending.pop()
        try:
            pending += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
            if Path(f"/proc/{each}/exe").readlink().name == program:
                for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            raise Failed("a process of pvisor's does not let itself be read; measure as root") from None
    if total == 0:
        raise Failed("no process of pvisor's was found")
    return total / 1024


def memory(bench):
    """The supervisor while a command runs; the peak of a large apply."""
    place = places.disk()
    project = place.directory("project")
    (project / "file").write_text("text\n")

    def supervisor():
        process = subprocess.Popen([bench.pvisor, "run", "--stage", "--", "sleep", "60"], cwd=project,
                                   env=place.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        if process.poll() is not None:
            raise Failed(f"exit {process.returncode}: {first_line(process.stderr.read())}")
        mib = resident_mib(process.pid, Path(bench.pvisor).name)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        return mib

    yield Contest("memory of the supervisor, its command running", "MiB", {"pvisor run --stage": supervisor}, 3,
                  {"pvisor run --stage": Target(8, 8, "MiB")}, warm_up=False)

    changed = 1000 if bench.quick else 100000
    applying = Applying(bench, place, changed)
    yield Contest(f"peak memory of apply of {changed:,} changed files", "MiB",
                  {"pvisor apply": lambda: applying.pvisor()[1]}, 1, {"pvisor apply": Target(128, 128, "MiB")},
                  warm_up=False)
    applying.close()
    place.close()


ALL = {"launch": launch, "view": view, "apply": apply, "commits": commits, "workflow": workflow, "memory": memory,
       "network": network}
