# SPDX-License-Identifier: Apache-2.0
"""What the documents name exists: tests that back a claim, files, options."""
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]


def test_every_test_that_the_boundaries_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (TOP / "docs/boundaries.md").read_text()))
    sources = "\n".join(path.read_text() for path in (TOP / "tests").glob("test_*.py"))
    missing = sorted(name for name in named if f"def {name}(" not in sources)
    assert named and not missing, missing


def test_every_control_of_the_source_is_on_the_boundaries_page():
    page = (TOP / "docs/boundaries.md").read_text()
    controls = re.findall(r'#define PV_CONTROL_\w+\s+"([\w-]+)"', (TOP / "src/boundary/control.h").read_text())
    assert controls and all(f"`{name}`" in page for name in controls), [n for n in controls if f"`{n}`" not in page]


def test_files_that_documents_name_exist():
    pages = [TOP / "README.md", *(TOP / "docs").glob("**/*.md")]
    missing = []
    for page in pages:
        for name in re.findall(r"`((?:src|docs|tests|bench)/[\w./-]+\.\w+)`", page.read_text()):
            if not (TOP / name).exists():
                missing.append(f"{page.relative_to(TOP)}: {name}")
    assert not missing, missing


def same_in_every_run(text, home):
    text = text.replace(str(home), "/home/you")
    for what, word in ((r"run-\d{8}-\d{6}-[0-9a-f]{4}", "run-ID"), (r"\b[0-9a-f]{7,8}\b", "HASH"), (r"\b\d+s\b", "Ns"),
                       (r"left out: \d+ changes in git", "left out: N changes in git")):
        text = re.sub(what, word, text)
    return text


def test_the_tour_of_the_readme_is_what_happens(pv, environment, home):
    environment["PATH"] = f"{Path(pv).parent}:{environment['PATH']}"
    subprocess.run([TOP / "demo" / "shop.sh"], env=environment, check=True, stdout=subprocess.DEVNULL)
    tour = (TOP / "README.md").read_text().split("## Five minutes")[1].split("If you change a file yourself")[0]
    steps = re.findall(r"^```\n\$ (.*)\n((?:.*\n)*?)```$", tour, re.M)
    assert len(steps) > 8
    for command, shown in steps:
        done = subprocess.run(["bash", "-c", command], cwd=home / "shop", env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert same_in_every_run(done.stdout, home) == same_in_every_run(shown, home), command
