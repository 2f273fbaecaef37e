# SPDX-License-Identifier: Apache-2.0
"""What the documents name exists: tests that back a claim, files, options."""
import re
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
