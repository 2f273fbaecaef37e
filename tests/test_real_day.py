# SPDX-License-Identifier: Apache-2.0
"""What a day's work needs under --safe, with the real tools and the real registries: npm, pip, cargo, go, commits, a
server, a browser. On demand (./dev test --day): it wants compilers, a browser and the Internet.
"""
import re
import shutil
import socket
import subprocess

import pytest

from conftest import pv_skip

pytestmark = [pytest.mark.day, pytest.mark.timeout(300)]

PROJECT = {
    "package.json": '{"name": "day", "version": "1.0.0", "dependencies": {"left-pad": "1.3.0"}}\n',
    "rust/Cargo.toml": '[package]\nname = "day"\nversion = "0.1.0"\nedition = "2021"\n',
    "rust/src/main.rs": 'fn main() { println!("{}", 6 * 7); }\n',
    "go/go.mod": "module day\n\ngo 1.19\n\nrequire github.com/google/uuid v1.6.0\n",
    "go/main.go": 'package main\n\nimport (\n\t"fmt"\n\n\t"github.com/google/uuid"\n)\n\n'
                  "func main() { fmt.Println(len(uuid.NewString())) }\n",
    "page.html": '<h1 id="x"></h1><script>document.getElementById("x").textContent = "ran " + 6 * 7</script>\n',
}


@pytest.fixture
def project(make_workspace):
    return make_workspace(PROJECT)


@pytest.fixture
def safe(pvisor, project):
    """safe(script, *options) -> what it printed, the host's project being as it was."""

    def call(script, *options, **how):
        before = sorted(p.relative_to(project) for p in project.rglob("*"))
        out = pvisor("run", "--safe", *options, "--", "sh", "-e", "-c", script, cwd=project, timeout=280, **how).out
        assert sorted(p.relative_to(project) for p in project.rglob("*")) == before
        return out

    return call


@pytest.fixture
def tool(environment):
    def need(name):
        if not shutil.which(name, path=environment["PATH"]):
            pv_skip(f"no {name}")

    return need


def test_npm_install(safe, tool, pvisor, project):
    tool("npm")
    assert safe("npm install --no-fund --no-audit >/dev/null; node -p 'require(\"left-pad\")(7, 3, 0)'",
                "--overlaynet-allow", "@npm") == "007\n"
    pvisor("apply", "last", "--all", "--ignored", cwd=project)
    assert subprocess.check_output(["node", "-p", "require('left-pad')(7, 3, 0)"], cwd=project, text=True) == "007\n"


def test_pip_install(safe):
    assert re.fullmatch(r"[0-9.]+\n", safe(
        "/usr/bin/python3 -m venv .venv; .venv/bin/pip install -q --disable-pip-version-check idna; "
        ".venv/bin/python -c 'import idna; print(idna.__version__)'", "--overlaynet-allow", "@pypi"))


def test_cargo_build(safe, tool):
    tool("cargo")
    assert safe("cd rust; cargo build -q; target/debug/day") == "42\n"


def test_go_build_and_commit(safe, tool, pvisor, project):
    tool("go")
    assert safe("cd go; go mod tidy 2>/dev/null; go build -o ../day .; ../day; git add go.sum; git commit -qm 'Sums'",
                "--overlaynet-allow", "@go") == "36\n"
    pvisor("apply", "last", "--commits", cwd=project)
    log = subprocess.check_output(["git", "log", "--format=%s"], cwd=project, text=True)
    assert log.splitlines() == ["Sums", "First"] and (project / "go/go.sum").exists()


def test_a_server_is_published_while_it_runs(pvisor, project):
    job = pvisor("run", "--safe", "--detach", "--", "/usr/bin/python3", "-m", "http.server", "8000", cwd=project).out.strip()
    try:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        pvisor("publish", job, f"{port}:8000", cwd=project)
        page = subprocess.check_output(["curl", "-sS", "--retry", "20", "--retry-delay", "1", "--retry-all-errors",
                                        f"http://127.0.0.1:{port}/page.html"], text=True)
        assert page == PROJECT["page.html"]
    finally:
        pvisor("kill", job, cwd=project)


def test_a_browser(safe, tool):
    tool("chromium")
    seen = safe("/usr/bin/python3 -m http.server 8000 >/dev/null 2>&1 & "
                "until curl -s -o /dev/null http://127.0.0.1:8000/; do sleep .1; done; "
                "chromium --headless --no-sandbox --disable-gpu --dump-dom http://127.0.0.1:8000/page.html 2>/dev/null")
    assert "ran 42</h1>" in seen
