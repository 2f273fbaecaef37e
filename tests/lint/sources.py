#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the source tree that no compiler checks: includes point one way, a header compiles alone, a line of C has
its length, no test hides another of its name, and no file holds a left-over mark or a character that hides what the
code says. Prints file:line: reason;
exit 1 when there is any.

usage: sources.py [--headers BUILD-DIRECTORY] (with it, headers are compiled as that build compiles them)
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
SRC = TOP / "src"

# A file may include its own module's headers and those of the layers before it. Modules of one layer meet in their
# callers, except through the contracts of SHARED.
LAYERS = (
    ("base",),
    ("policy", "boundary", "stage", "git", "net", "evidence", "fuse"),
    ("executor", "job"),
    ("cmd",),
)
SHARED = {
    "evidence/observation.h": {"policy", "boundary", "stage", "git", "net"},
    "policy/plan.h": {"boundary", "stage", "git", "net", "evidence"},
    "policy/admit.h": {"boundary"},  # doctor examines the plan of a real --safe run
    "policy/netrule.h": {"net"},
    "policy/netpolicy.h": {"net"},
    "policy/netrules.h": {"net"},
}
LAYER_OF = {module: level for level, modules in enumerate(LAYERS) for module in modules}

MARKS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|^(?:<{7}|>{7}|={7})(?: |$)|\bissue #\d")
# Bidirectional controls, zero-width characters: what a reader sees would not be what a compiler reads.
HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
COLUMNS = 120  # of a line of C: clang-format leaves comments as they are
TEST = re.compile(r"def (test_\w+)")
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def include_problem(module, header):
    """Why a file of this module may not include this header, or None."""
    other = header.split("/")[0]
    if "/" not in header:  # made by the build; one of ours is named from src/
        return f'"{header}": name it {module}/{header}' if (SRC / module / header).exists() else None
    if other == module or module in SHARED.get(header, ()):
        return None
    if other not in LAYER_OF or module not in LAYER_OF:
        return f'"{header}": {other if other not in LAYER_OF else module} is no module that LAYERS in sources.py knows'
    if LAYER_OF[other] >= LAYER_OF[module]:
        return f'"{header}": {module} may not include from {other}'
    return None


def check_includes(path):
    module = path.relative_to(SRC).parts[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        problem = found and include_problem(module, found[1])
        if problem:
            yield f"{path.relative_to(TOP)}:{number}: {problem}"


def check_marks(path):
    try:
        text = path.read_bytes().decode()
    except (UnicodeDecodeError, FileNotFoundError):  # data of a test; deleted, not yet committed
        return
    for number, line in enumerate(text.splitlines(), 1):
        if MARKS.search(line) and path != Path(__file__).resolve():
            yield f"{path.relative_to(TOP)}:{number}: left-over mark: {line.strip()[:60]}"
        if HIDDEN.search(line):
            yield f"{path.relative_to(TOP)}:{number}: hidden character"
        if path.suffix in (".c", ".h") and len(line) > COLUMNS:
            yield f"{path.relative_to(TOP)}:{number}: {len(line)} columns, and a line has {COLUMNS}"


def check_tests(path):
    """Of two functions of one name Python keeps the last: the other would never run."""
    first = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = TEST.match(line)
        if found and first.setdefault(found[1], number) != number:
            yield f"{path.relative_to(TOP)}:{number}: hides the {found[1]} of line {first[found[1]]}"


def check_header(path, flags):
    done = subprocess.run(["cc", *flags, "-Wall", "-Wextra", "-Wno-pragma-once-outside-header", "-fsyntax-only", "-x",
                           "c", path], capture_output=True, text=True)
    if done.returncode:
        yield f"{path.relative_to(TOP)}:1: does not compile alone:\n{done.stderr}"


def flags_of(build):
    """The -I, -isystem and -D options of all compilations of the build, made absolute."""
    flags = []
    for entry in json.loads((Path(build) / "compile_commands.json").read_text()):
        for word in shlex.split(entry["command"]):
            if word.startswith("-I"):
                word = "-I" + os.path.join(entry["directory"], word[2:])
            elif not word.startswith(("-D", "-isystem", "-std=")) or word.startswith("-D_FORTIFY_SOURCE"):
                continue
            if word not in flags:
                flags.append(word)
    return flags


def tracked_files():
    """What git has or would take: the clone may be another user's."""
    listed = subprocess.run(["git", "-c", f"safe.directory={TOP}", "ls-files", "-z", "-co", "--exclude-standard"],
                            cwd=TOP, check=True, capture_output=True).stdout
    return [TOP / os.fsdecode(name) for name in listed.split(b"\0") if name]


def main(arguments):
    problems = []
    for path in tracked_files():
        problems += check_marks(path)
    for path in sorted(SRC.rglob("*.[ch]")):
        problems += check_includes(path)
    for path in sorted((TOP / "tests").glob("test_*.py")):
        problems += check_tests(path)
    if arguments[:1] == ["--headers"]:
        flags = flags_of(arguments[1])
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for found in pool.map(lambda path: list(check_header(path, flags)), sorted(SRC.rglob("*.h"))):
                problems += found
    for problem in problems:
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
