# SPDX-License-Identifier: Apache-2.0
"""HOME in a sandboxed run: caches that outlive it, toolchains, git's identity; and the environment."""
import json
import os
import subprocess
import uuid

import pytest

from lib import jobs


@pytest.fixture
def safe(pvisor, workspace):
    """safe(script, *options) -> what the script printed in a --safe run in the workspace."""

    def call(script, *options, cwd=None, code=0, **more):
        return pvisor("run", "-q", "--safe", *options, "--", "sh", "-c", script, cwd=cwd or workspace, code=code,
                      **more).out

    return call


@pytest.fixture
def staged(pvisor, workspace):
    def call(script, *options, cwd=None, code=0, **more):
        return pvisor("run", "-q", "--stage", *options, "--", "sh", "-c", script, cwd=cwd or workspace, code=code,
                      **more).out

    return call


def record(environment):
    return jobs.bundle(jobs.job_dirs(environment)[-1])


# ---- what is said of it ----

HOMES = {  # (options, where the run is, where HOME is shown: None is nowhere)
    "private": ([], "{workspace}", None),
    "workspace": ([], "{home}", "{home}"),
    "share": (["--mount", "{home}:read"], "{workspace}", "{home}"),
    "elsewhere": (["--mount", "{people}:/mnt/people:read"], "{workspace}", "/mnt/people/me"),
    "covered": (["--mount", "{people}:read"], "{workspace}", None),
}


@pytest.mark.parametrize("case", HOMES)
def test_the_record_calls_no_home_private_that_is_shown(pvisor, workspace, temporary, environment, case):
    """Without --safe it may be the workspace, or asked for: of that too the record said "a private empty directory"."""
    home = temporary / "people" / "me"
    home.mkdir(parents=True)
    (home / ".netrc").write_text("machine x")
    environment.update(HOME=str(home), PVISOR_HOME=str(temporary / "store"))
    places = {"home": home, "people": home.parent, "workspace": workspace}
    options, cwd, shown = HOMES[case]
    command = [*[o.format(**places) for o in options], "--", "sh", "-c",
               f"cat {(shown or '{home}').format(**places)}/.netrc || true"]
    said = pvisor("run", "--stage", *command, cwd=cwd.format(**places))
    assert said.out == ("machine x" if shown else "")
    bundle = json.loads((max((temporary / "store" / "jobs").iterdir()) / "bundle.json").read_text())
    assert bundle["safety"]["levels"]["sensitive_paths"] == ("unenforced" if shown else "enforced")
    assert ("credential stores in it are shown" in said.err) == (case == "workspace")
    pvisor("run", "--stage", "--strict", *command, cwd=cwd.format(**places), code=5 if shown else 0)


# ---- caches ----

@pytest.fixture
def npm(workspace):
    """A workspace that calls for npm's caches."""
    (workspace / "package.json").write_text("{}\n")
    return workspace


def test_caches_outlive_a_run_and_are_the_workspaces_own(safe, npm, make_workspace, home, environment):
    script = "cat ~/.npm/x ~/.cache/y 2>/dev/null; echo kept > ~/.npm/x; echo kept > ~/.cache/y"
    assert safe(script) == ""
    assert safe(script) == "kept\nkept\n"
    other = make_workspace(name="other", files={"package.json": "{}\n"})
    assert safe(script, cwd=other) == ""
    assert not (home / ".npm").exists() and not (home / ".cache").exists()
    assert sorted(record(environment)["plan"]["controls"]["kept"]["caches"]) == [".cache", ".npm"]


def test_a_profile_has_caches_of_its_own(safe, npm):
    """What a run without an agent's login left there is not what a run with it executes."""
    script = "cat ~/.cache/tool 2>/dev/null; echo {} > ~/.cache/tool"
    for options, name in (([], "none"), (["--profile", "claude"], "claude"), (["--profile", "codex"], "codex")):
        assert safe(script.format(name), *options) == ""
    for options, name in (([], "none"), (["--profile", "none"], "none"), (["--profile", "claude"], "claude")):
        assert safe(script.format(name), *options) == f"{name}\n"


def test_a_link_in_a_cache_leads_nowhere_on_the_host(safe, pvisor, workspace, home, temporary):
    """The next run makes ~/.gradle/wrapper/dists in the layer, as whoever runs pVisor."""
    victim = temporary / "victim"
    victim.mkdir()
    (home / ".config/pvisor/profiles").mkdir(parents=True)
    own = home / ".config/pvisor/profiles/mine.yaml"
    own.write_text("caches: [~/.gradle]\n")
    safe(f"ln -s {victim} ~/.gradle/wrapper; echo kept > ~/.gradle/x", "--profile", "mine")
    own.write_text("caches: [~/.gradle/wrapper/dists, ~/.other]\n")
    result = pvisor("run", "--safe", "--profile", "mine", "--", "sh", "-c", "echo o > ~/.other/x", cwd=workspace)
    assert "~/.gradle/wrapper/dists is not kept" in result.err and not os.listdir(victim)
    assert safe("cat ~/.other/x", "--profile", "mine") == "o\n"
    (workspace / "gradlew").write_text("")
    own.write_text("caches: [~/.gradle/wrapper/dists]\n")
    assert safe("echo fine", "--profile", "mine") == "fine\n" and not os.listdir(victim)


def test_the_hosts_caches_are_under_them_and_stay_as_they_are(safe, npm, home):
    (home / ".npm/_cacache").mkdir(parents=True)
    (home / ".npm/_cacache/old").write_text("host\n")
    (home / ".npm/_cacache/other").write_text("host\n")
    script = "cd ~/.npm/_cacache; cat old other 2>/dev/null; echo mine > old; rm -f other; mkdir -p new; mv new newer"
    assert safe(script) == "host\nhost\n"
    assert safe("cd ~/.npm/_cacache; cat old; ls") == "mine\nnewer\nold\n"
    assert sorted(os.listdir(home / ".npm/_cacache")) == ["old", "other"]
    assert (home / ".npm/_cacache/old").read_text() == "host\n"
    (home / ".npm/_cacache/later").write_text("new on the host\n")
    assert safe("cat ~/.npm/_cacache/later") == "new on the host\n"


def test_only_what_is_called_for_is_kept(safe, workspace, home, environment):
    (home / ".npm").mkdir()
    (home / ".cache").mkdir()
    script = "cat ~/.npm/x 2>/dev/null; mkdir -p ~/.npm ~/bin; echo kept > ~/.npm/x; touch ~/.bashrc ~/bin/tool"
    for _ in range(2):
        assert safe(script) == ""
    assert not (jobs.store(environment) / "caches").exists()
    (workspace / "package.json").write_text("{}\n")
    safe(script)
    assert safe(script + "; ls -A ~/.bashrc ~/bin 2>&1 | wc -l") != ""
    assert safe("ls -A ~") .split() == [".cache", ".gitconfig", ".local", ".npm"]


def test_no_caches_is_none(safe, npm, environment):
    script = "cat ~/.npm/x 2>/dev/null; mkdir -p ~/.npm; echo kept > ~/.npm/x"
    for _ in range(2):
        assert safe(script, "--no-caches") == ""
    assert not (jobs.store(environment) / "caches").exists()


def test_credentials_in_a_cache_stay_hidden(safe, npm, home):
    (home / ".cache/huggingface").mkdir(parents=True)
    (home / ".cache/huggingface/token").write_text("a token")
    (home / ".cache/huggingface/model").write_text("a model")
    assert safe("cd ~/.cache/huggingface; ls; cat token 2>/dev/null; echo own > token") == "model\n"
    assert safe("cat ~/.cache/huggingface/token") == "own\n"
    assert (home / ".cache/huggingface/token").read_text() == "a token"


def test_of_two_runs_at_once_one_has_the_caches(pv, pvisor, npm, environment, safe):
    first = subprocess.Popen([pv, "run", "-q", "--safe", "--", "sh", "-c", "echo first > ~/.npm/x; echo ready; read l"],
                             cwd=npm, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout.readline() == b"ready\n"
        second = pvisor("run", "--safe", "--", "sh", "-c", "mkdir -p ~/.npm; echo second > ~/.npm/x", cwd=npm)
        assert "another run of this workspace" in second.err
        first.communicate(b"\n", timeout=30)
    finally:
        first.kill()
        first.wait()
    assert safe("cat ~/.npm/x") == "first\n"


def test_a_killed_run_leaves_the_caches_usable(pv, npm, environment, safe):
    run = subprocess.Popen([pv, "run", "-q", "--safe", "--", "sh", "-c", "echo x > ~/.npm/x; echo ready; sleep 60"],
                           cwd=npm, env=environment, stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"ready\n"
    run.kill()
    run.wait()
    assert safe("cat ~/.npm/x") == "x\n"


def test_a_cache_that_is_a_link_is_left_alone(safe, npm, home, environment):
    (home / "elsewhere").mkdir()
    (home / ".npm").symlink_to("elsewhere")
    safe("echo x > ~/.npm/x")
    assert safe("ls ~/.npm") == ""
    assert record(environment)["plan"]["controls"]["kept"]["caches"] == [".cache"]


def test_a_workspace_in_a_cache_is_the_workspace(safe, home, make_workspace):
    workspace = make_workspace(where=home, name=".cache/project", files={"package.json": "{}\n"})
    assert safe("echo new > made; cat ~/.cache/project/made; echo y > ~/.cache/y", cwd=workspace) == "new\n"
    assert safe("ls; cat ~/.cache/y", cwd=workspace) == "package.json\ny\n"


@pytest.mark.root
def test_where_they_cannot_be_kept_a_run_goes_on_and_says_so(safe, npm, temporary, environment):
    for name in ("lower", "upper", "work", "store"):
        (temporary / name).mkdir()
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={temporary}/lower,upperdir={temporary}/upper,workdir={temporary}/work", temporary / "store"],
                   check=True)
    try:
        environment["PVISOR_HOME"] = str(temporary / "store")
        script = "cat ~/.npm/x 2>/dev/null; mkdir -p ~/.npm; echo kept > ~/.npm/x"
        for run in range(2):
            assert safe(script, f"--stage={temporary}/stage-{run}") == ""
        assert "Caches are not kept" in json.dumps(record(environment)["executor_observations"])
    finally:
        subprocess.run(["umount", temporary / "store"], check=True)


@pytest.mark.root
def test_below_a_home_with_mounts_they_are_as_the_rest_of_it(safe, npm, home, environment):
    for name in ("drive", ".npm"):
        (home / name).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", home / "drive"], check=True)
    try:
        script = "cat ~/.npm/x 2>/dev/null; echo thrown away > ~/.npm/x; cat ~/.npm/x"
        for _ in range(2):
            assert safe(script) == "thrown away\n"
        assert "Caches are not kept" in json.dumps(record(environment)["executor_observations"])
    finally:
        subprocess.run(["umount", home / "drive"], check=True)
    assert os.listdir(home / ".npm") == []


def test_inspect_sees_no_caches(pvisor, safe, npm):
    safe("echo x > ~/.npm/x; echo 1 > changed")
    assert pvisor("inspect", "last", "--", "sh", "-c", "ls ~/.npm 2>/dev/null; true", cwd=npm).out == ""


def test_caches_are_pruned_by_age_and_size(pvisor, safe, npm, environment):
    safe("head -c 300000 /dev/urandom > ~/.npm/x")
    listed = json.loads(pvisor("prune", "--caches", "--older", "1d", "--dry-run", "--json").out)
    assert listed["caches"]["removed"] == [] and len(listed["caches"]["kept"]) == 1
    assert safe("wc -c < ~/.npm/x").strip() == "300000"
    assert json.loads(pvisor("prune", "--caches=1MiB", "--json").out)["caches"]["removed"] == []
    would = json.loads(pvisor("prune", "--caches=100KiB", "--dry-run", "--json").out)["caches"]["removed"]
    assert [c["workspace"] for c in would] == [str(npm)] and would[0]["size_bytes"] > 300000
    assert safe("wc -c < ~/.npm/x").strip() == "300000"
    directory = next((jobs.store(environment) / "caches").iterdir())
    os.utime(directory / "lock", (0, 0))
    assert str(npm) in pvisor("prune", "--caches", "--older", "30d").out
    assert list((jobs.store(environment) / "caches").iterdir()) == []
    assert safe("cat ~/.npm/x 2>/dev/null; true") == ""


def test_caches_in_use_are_not_pruned(pv, pvisor, npm, environment):
    run = subprocess.Popen([pv, "run", "-q", "--safe", "--", "sh", "-c", "echo x > ~/.npm/x; echo ready; read l; cat ~/.npm/x"],
                           cwd=npm, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert run.stdout.readline() == b"ready\n"
        pvisor("prune", "--caches=1B")
        assert run.communicate(b"\n", timeout=30)[0] == b"x\n"
    finally:
        run.kill()
        run.wait()


# ---- toolchains ----

def put_toolchain(home):
    """rustup's shape: a program in ~/.cargo/bin that needs ~/.rustup, and a credential beside it."""
    for directory in (".cargo/bin", ".rustup/toolchains/x/bin", ".local/bin", ".local/share/pipx/venvs/t"):
        (home / directory).mkdir(parents=True)
    (home / ".rustup/toolchains/x/bin/cargo").write_text("#!/bin/sh\necho real cargo\n")
    (home / ".cargo/bin/cargo").write_text("#!/bin/sh\nexec ~/.rustup/toolchains/x/bin/cargo\n")
    (home / ".cargo/credentials.toml").write_text("a token")
    (home / ".local/share/pipx/venvs/t/tool").write_text("#!/bin/sh\necho real tool\n")
    (home / ".local/bin/tool").symlink_to("../share/pipx/venvs/t/tool")
    for program in home.rglob("*/cargo"):
        program.chmod(0o755)
    (home / ".local/share/pipx/venvs/t/tool").chmod(0o755)


@pytest.mark.parametrize("mode", ["--safe", "--stage"])
def test_toolchains_of_home_work_and_cannot_be_changed(pvisor, workspace, home, environment, mode):
    put_toolchain(home)
    environment["PATH"] = f"{home}/.cargo/bin:{home}/.local/bin:{environment['PATH']}"
    script = ("cargo; tool; cat ~/.cargo/credentials.toml 2>/dev/null; echo evil > ~/.cargo/bin/cargo;"
              " mkdir -p ~/.cargo/registry && echo made")
    for _ in range(2):
        assert pvisor("run", mode, "--", "sh", "-c", script, cwd=workspace).out == "real cargo\nreal tool\nmade\n"
    assert (home / ".cargo/bin/cargo").read_text().startswith("#!/bin/sh\nexec")
    assert sorted(os.listdir(home / ".cargo")) == ["bin", "credentials.toml"]


def test_what_path_does_not_name_is_not_shown_in_an_empty_home(staged, home, environment):
    put_toolchain(home)
    (home / "secret").write_text("x")
    environment["PATH"] = f"{home}/.cargo/bin:{environment['PATH']}"
    assert staged("ls -A ~").split() == [".cargo", ".rustup"]
    assert record(environment)["plan"]["controls"]["kept"]["toolchains"] == [".cargo", ".rustup"]
    environment["PATH"] = environment["PATH"].split(":", 1)[1]
    assert staged("ls -A ~") == ""


# ---- git ----

COMMIT = "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"


@pytest.mark.parametrize("mode", ["--safe", "--stage"])
def test_commits_are_the_persons_and_not_signed(pvisor, workspace, home, mode):
    with open(home / ".gitconfig", "a") as f:
        f.write("[commit]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n\tforceSignAnnotated = true\n[log]\n\tshowSignature = true\n"
                "[gpg]\n\tprogram = /no/such/gpg\n")
    script = COMMIT + " && git tag -a -m t t1 && git tag t2 && git cat-file commit HEAD | grep -c gpgsig"
    run = pvisor("run", mode, "--", "sh", "-c", script, cwd=workspace, code=1)
    assert run.out == "Test Person <test@example.invalid>\n0\n", run.err


@pytest.mark.parametrize("mode", ["--safe", "--stage"])
def test_the_identity_is_found_where_git_finds_it(pvisor, workspace, home, environment, mode):
    def who():
        expected = subprocess.run(["sh", "-c", "echo \"$(git config user.name) <$(git config user.email)>\""], cwd=workspace,
                                  env=environment, capture_output=True, text=True, check=True).stdout
        assert pvisor("run", mode, "--", "sh", "-c", COMMIT, cwd=workspace).out == expected
        return expected.strip()

    (home / ".gitconfig").unlink()
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/config").write_text("[user]\n\tname = General\n\temail = general@x.invalid\n")
    assert who() == "General <general@x.invalid>"
    (home / "more").mkdir()
    (home / "more/inc").write_text("[user]\n\tname = \"Included; one\"\n[include]\n\tpath = deeper\n")
    (home / "more/deeper").write_text("[user]\n\temail = deeper@x.invalid\n")
    (home / ".gitconfig").write_text("[user]\n\temail = early@x.invalid\n[include]\n\tpath = ~/more/inc\n")
    assert who() == "Included; one <deeper@x.invalid>"
    (home / ".gitconfig").write_text(
        f"[user]\n\tname = A\n\temail = a@x.invalid\n[includeIf \"gitdir:{workspace.parent}/\"]\n\tpath = ~/more/inc\n"
        "[includeIf \"gitdir:~/nowhere/\"]\n\tpath = ~/more/other\n")
    (home / "more/other").write_text("[user]\n\tname = Wrong\n")
    assert who() == "Included; one <deeper@x.invalid>"
    # The repository's own is stronger than the person's, inside as outside.
    subprocess.run(["git", "config", "user.email", "local@x.invalid"], cwd=workspace, env=environment, check=True)
    assert who() == "Included; one <local@x.invalid>"


def test_what_is_ignored_everywhere_is_ignored_in_a_staged_run(staged, workspace, home, environment):
    (home / "ignores").write_text("*.tmp\n")
    with open(home / ".gitconfig", "a") as f:
        f.write("[core]\n\texcludesFile = ~/ignores\n")
    assert staged("touch x.tmp y; git status --porcelain; ls -A ~; echo evil >> ~/ignores", code=2) == "?? y\nignores\n"
    assert (home / "ignores").read_text() == "*.tmp\n"
    (home / ".gitconfig").write_text("[user]\n\tname = x\n")
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("y\n")
    assert staged("touch x.tmp y; git status --porcelain") == "?? x.tmp\n"


def test_a_workspace_of_another_owner_is_safe(safe, workspace, is_root):
    if not is_root:
        pytest.skip("only root can give a directory away")
    os.chown(workspace, 1234, 1234)
    assert safe("git status --porcelain") == ""


@pytest.mark.parametrize("mode", ["--safe", "--stage"])
def test_objects_of_another_repository_are_named_and_not_shown(pvisor, make_workspace, temporary, environment, mode):
    """The file that names them may be an agent's work: it opens nothing by itself."""
    origin = make_workspace(where=temporary / "away", name="origin")
    subprocess.run(["git", "clone", "-q", "--shared", str(origin), str(temporary / "clone")], env=environment, check=True)
    objects = origin / ".git/objects"
    run = pvisor("run", mode, "--", "sh", "-c", "git log --oneline 2>&1; true", cwd=temporary / "clone")
    assert f"--mount {objects}:read" in run.err and "First" not in run.out
    run = pvisor("run", mode, "--mount", f"{objects}:read", "--", "git", "log", "--format=%s", cwd=temporary / "clone")
    assert run.out == "First\n" and "--mount" not in run.err


def test_links_to_sibling_packages_are_named(pvisor, npm, temporary):
    for package in ("one", "two"):
        (temporary / "siblings" / package).mkdir(parents=True)
        (temporary / "siblings" / package / "index.js").write_text(f"{package}\n")
    (npm / "node_modules/@scope").mkdir(parents=True)
    (npm / "node_modules/one").symlink_to("../../siblings/one")
    (npm / "node_modules/@scope/two").symlink_to(temporary / "siblings/two")
    (npm / "node_modules/own").symlink_to("../src")
    run = pvisor("run", "--safe", "--", "sh", "-c", "cat node_modules/one/index.js 2>/dev/null; true", cwd=npm)
    assert run.out == "" and "node_modules/one is a link" in run.err and "@scope/two is a link" in run.err
    assert "node_modules/own" not in run.err
    mounts = ["--mount", f"{temporary}/siblings/one:read", "--mount", f"{temporary}/siblings/two:read"]
    run = pvisor("run", "--safe", *mounts, "--", "sh", "-c", "cat node_modules/one/index.js node_modules/@scope/two/index.js",
                 cwd=npm)
    assert run.out == "one\ntwo\n" and "is a link" not in run.err


def test_included_files_outside_are_named(pvisor, workspace, home, temporary):
    (temporary / "dotfiles").mkdir()
    (temporary / "dotfiles/git").write_text("[user]\n\tname = From Elsewhere\n")
    (home / ".gitconfig").write_text(f"[user]\n\temail = x@x.invalid\n[include]\n\tpath = {temporary}/dotfiles/git\n")
    assert f"--mount {temporary}/dotfiles/git:read" in pvisor("run", "--safe", "--", "true", cwd=workspace).err
    run = pvisor("run", "--safe", "--mount", f"{temporary}/dotfiles/git:read", "--", "sh", "-c", COMMIT, cwd=workspace)
    assert run.out == "From Elsewhere <x@x.invalid>\n" and "includes" not in run.err


def test_many_are_counted(pvisor, npm, temporary):
    (npm / "node_modules").mkdir()
    (temporary / "siblings").mkdir()
    for i in range(9):
        (temporary / f"siblings/{i}").mkdir()
        (npm / f"node_modules/{i}").symlink_to(temporary / f"siblings/{i}")
    err = pvisor("run", "--safe", "--", "true", cwd=npm).err
    assert err.count("is a link to") == 3 and "6 more links" in err


# ---- the environment ----

LOOK = r"""
import os, sys
found = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'cmdline'):
        try:
            data = open(f'/proc/{pid}/{name}', 'rb').read()
        except OSError:
            continue
        if sys.argv[1].encode() in data:
            found.append(f"{name} of {'me' if int(pid) == os.getpid() else pid}")
print(found)
"""


@pytest.mark.parametrize("mode", ["--safe", "--stage"])
def test_values_are_in_no_file_of_the_job_and_in_no_process_but_its_own(pvisor, workspace, environment, mode):
    passed, withheld = (f"secret-{uuid.uuid4().hex}" for _ in range(2))
    env = {"PV_TEST_PASSED": passed, "PV_TEST_WITHHELD": withheld, "PV_TEST_WORD": ""}
    # Told in two halves, so that the question is not what is found.
    split = "a, b = sys.argv[1].split('+'); sys.argv[1] = a + b;"
    for value, expected in ((passed, "['environ of me']"), (withheld, "[]")):
        run = pvisor("run", mode, "--pass-env", "PV_TEST_PASSED", "--", "/usr/bin/python3", "-c",
                     "import sys; " + split + LOOK, value[:20] + "+" + value[20:], cwd=workspace, env=env)
        assert run.out == expected + "\n"
    pvisor("review", cwd=workspace, env=env)
    store = str(jobs.store(environment))
    for value in (passed, withheld):
        assert subprocess.run(["grep", "-rlF", value, store], capture_output=True, text=True).stdout == ""
    bundle = record(environment)
    assert bundle["environment"]["passed"] == ["PV_TEST_PASSED"]
    assert "PV_TEST_PASSED" in json.dumps(bundle) and "PV_TEST_WITHHELD" not in json.dumps(bundle)


def test_the_same_values_are_found_without_a_sandbox(pvisor, workspace):
    value = f"secret-{uuid.uuid4().hex}"
    run = pvisor("run", "--", "/usr/bin/python3", "-c", "import sys; a, b = sys.argv[1].split('+'); sys.argv[1] = a + b;" + LOOK,
                 value[:20] + "+" + value[20:], cwd=workspace, env={"PV_TEST_PASSED": value})
    assert "environ of me" in run.out


@pytest.mark.parametrize("access", ["write", "read"])
def test_no_mount_lets_a_run_make_a_store_where_the_next_one_looks(pvisor, workspace, environment, temporary, access):
    home = temporary / "another-home"
    (home / ".local/state").mkdir(parents=True)
    env = {"HOME": str(home), "PVISOR_HOME": str(temporary / "store-2")}
    result = pvisor("run", "--safe", "--mount", f"{home}/.local:{access}", "--", "true", cwd=workspace, env=env,
                    code=2 if access == "write" else 0)
    assert ("would let the command make" in result.err) is (access == "write")
