# SPDX-License-Identifier: Apache-2.0
"""Options and configuration of `pvisor run`: what is understood, what is refused, and that nothing is ignored."""
import json
import re

import pytest


@pytest.fixture
def refused(pvisor, workspace, home):
    """refused(*args, code=2) -> stderr; nothing may have been made."""

    def call(*args, code=2):
        result = pvisor("run", *args, cwd=workspace, code=code)
        assert result.out == ""
        assert not (home / ".local/state/pvisor/jobs").exists()
        lines = [line for line in result.err.splitlines() if not line.startswith("hint: ")]
        assert len(lines) == 1 and lines[0].startswith("pvisor: "), result.err
        return result.err

    return call


@pytest.fixture
def plan(pvisor, workspace):
    """plan(*options) -> the plan of a dry run."""

    def call(*options, **how):
        how.setdefault("cwd", workspace)
        return json.loads(pvisor("run", "--dry-run", "--json", *options, "--", "true", **how).out)

    return call


def test_unknown_option_hints_at_the_closest(refused):
    assert "hint: did you mean --safe?" in refused("--saef", "--", "true")


def test_unknown_command_hints(pvisor, workspace):
    result = pvisor("rnu", cwd=workspace, code=2)
    assert "`pvisor run`" in result.err
    assert "pvisor run --safe -- claude" in pvisor("claude", cwd=workspace, code=2).err


@pytest.mark.parametrize("options", [
    ["--memory", "lots"], ["--timeout", "soon"], ["--max-processes", "-1"], ["--max-open-files", "0"],
    ["--filesystem", "elsewhere"], ["--stdio", "none"], ["--name", "../x"], ["--name", "last"],
    ["--mount", "/etc"], ["--mount", "/no/such/place:read"], ["--device", "/etc/passwd"], ["--pass-env", "A=b"],
    ["--workspace", "/no/such/place"], ["--strict"],
])
def test_wrong_values_are_usage_errors(refused, options):
    refused(*options, "--", "true")


@pytest.mark.parametrize("option, little, least", [
    ("--max-open-files", "1", "16"), ("--max-open-files", "15", "16"), ("--memory", "1", "1MiB"), ("--mem", "1023KiB", "1MiB"),
])
def test_a_limit_with_which_no_program_starts_is_refused_with_the_least(refused, plan, option, little, least):
    assert f"the least is {least}" in refused("--safe", option, little, "--", "true")
    plan("--safe", option, least)


@pytest.mark.parametrize("place", ["/etc/shadow", "/usr/no-such-directory/shadow"])
def test_a_mount_that_can_have_no_place_is_refused(pvisor, workspace, place):
    result = pvisor("run", "--safe", "--mount", f"/etc/passwd:{place}:read", "--", "echo", "ran", cwd=workspace, code=2)
    said = result.err
    assert result.out == "" and f"nothing can be mounted at {place}" in said and "hint:" in said


def test_programs_start_with_the_least_open_files(pvisor, workspace):
    assert pvisor("run", "-q", "--safe", "--max-open-files", "16", "--", "echo", "here", cwd=workspace).out == "here\n"


@pytest.mark.parametrize("options", [
    ["--safe", "--filesystem", "host"], ["--overlaynet", "off", "--overlaynet-deny-all"],
    ["--continue", "last", "--stage=x"],
])
def test_contradictions_are_refused(pvisor, workspace, options):
    code = 4 if "--continue" in options else 2
    pvisor("run", *options, "--", "true", cwd=workspace, code=code)


@pytest.mark.parametrize("options", [
    ["--executor", "container"], ["--executor", "vm"], ["--access", "**/.env:deny"], ["--overlayfs-max-size", "1GB"],
    ["--container-network", "none"], ["--cpu", "2"],
])
def test_limits_of_later_versions_are_exit_5(refused, options):
    assert "not in this version" in refused(*options, "--", "true", code=5)


@pytest.mark.parametrize("options", [["--ask"], ["--tui"], ["--feature", "x"], ["--spec", "x"], ["--vm"]])
def test_conveniences_of_later_versions_are_exit_2(refused, options):
    assert "not in this version" in refused(*options, "--", "true")


def test_no_command_is_a_usage_error(refused):
    assert "hint: pvisor run" in refused("--safe")
    refused("--safe", "--")


def test_the_commands_own_options_are_its_own(pvisor, workspace):
    assert pvisor("run", "-q", "echo", "--name", "-q", cwd=workspace).out == "--name -q\n"
    assert pvisor("run", "-q", "--", "echo", "--safe", "-q", cwd=workspace).out == "--safe -q\n"
    assert pvisor("run", "-q", "--", "echo", "--", "--help", cwd=workspace).out == "-- --help\n"


def test_stage_and_the_word_after_it(plan, pvisor, workspace, temporary):
    assert plan("--stage")["staged"]
    staged = json.loads(pvisor("run", "--dry-run", "--json", "--stage", "make", "test", cwd=workspace).out)
    assert staged["argv"] == ["make", "test"]
    named = json.loads(pvisor("run", "--dry-run", "--json", "--stage", temporary / "x", "--", "make", cwd=workspace).out)
    assert named["argv"] == ["make"] and str(temporary / "x") in named["hidden"]


def test_dimensions(plan):
    assert plan()["filesystem"] == "host" and not plan()["staged"]
    assert plan("--stage")["filesystem"] == "sandbox"
    assert plan("--stage", "--filesystem", "host")["filesystem"] == "host"
    safe = plan("--safe")
    assert safe["staged"] and safe["network"] == "rules" and safe["home_mode"] == "copy-on-write"
    assert ".ssh" in safe["masks"]
    assert set(safe["required"]) == {"workspace_writes", "host_writes", "reads", "sensitive_paths", "network",
                                     "credentials", "subprocesses"}
    assert "resources" in plan("--strict", "--memory", "1GiB")["required"]


def test_limits_arrive(plan):
    limits = plan("--timeout", "90s", "--memory", "2GiB", "--max-processes", "50", "--max-cpu-time", "1m",
                  "--max-open-files", "100", "--max-file-size", "1MB")["limits"]
    assert limits == {"timeout_ms": 90000, "memory_bytes": 2 << 30, "max_processes": 50, "max_cpu_ms": 60000,
                      "max_open_files": 100, "max_file_bytes": 1000000}


def test_dry_run_makes_nothing(pvisor, workspace, home):
    result = pvisor("run", "--safe", "--dry-run", "--", "touch", "file", cwd=workspace)
    for word in ("Command", "View", "Rules", str(workspace), "staged", "denied", "enforced, or no run"):
        assert word in result.out
    assert not (home / ".local/state").exists()
    assert not (workspace / "file").exists()


def test_help_everywhere(pvisor):
    for words in (["help"], ["--help"], ["-h"], []):
        assert "Commands:" in pvisor(*words).out
    assert "--overlaynet-deny-all" in pvisor("help", "run").out
    assert pvisor("run", "--help").out == pvisor("spawn", "-h").out
    assert all(len(line) <= 80 for line in pvisor("run", "--help").out.splitlines())


def test_version(pvisor):
    text = pvisor("--version").out
    assert text.startswith("pvisor ") and pvisor("version").out == text
    assert json.loads(pvisor("version", "--json").out)["version"] == text.split()[1]


# ---- the configuration file ----

@pytest.fixture
def config(temporary):
    """config(text) -> the path of a file with it."""

    def write(text):
        path = temporary / "run.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_config_fields_are_options(plan, config):
    result = plan("--config", config("safe: true\ntimeout: 30s\nmount: [/usr/share:/data:read]\nmemory: 1GiB\n"))
    assert result["safe"] and result["limits"]["timeout_ms"] == 30000
    assert result["mounts"][0]["dst"] == "/data"


def test_json_is_configuration_too(plan, config):
    assert plan("--config", config('{"stage": true, "max-processes": 5}'))["limits"]["max_processes"] == 5


def test_command_line_wins(plan, config):
    path = config("safe: true\ntimeout: 30s\nfilesystem: sandbox\n")
    result = plan("--config", path, "--safe=false", "--timeout", "1m")
    assert not result["safe"] and result["limits"]["timeout_ms"] == 60000
    assert result["filesystem"] == "sandbox"


def test_lists_add_up_and_can_be_cleared(pvisor, workspace, config):
    path = config("filesystem: sandbox\npass-env: [ONE]\n")
    run = ["run", "-q", "--config", path, "--pass-env", "TWO"]
    env = {"ONE": "1", "TWO": "2"}
    both = pvisor(*run, "--", "env", cwd=workspace, env=env).out
    assert "ONE=1" in both and "TWO=2" in both
    cleared = pvisor(*run, "--clear-pass-env", "--", "env", cwd=workspace, env=env).out
    assert "ONE=1" not in cleared and "TWO=2" in cleared


@pytest.mark.parametrize("text, line, words", [
    ("safe: true\nsaef: true\n", 2, "saef: no such field"),
    ("\n\nmemory: lots\n", 3, "memory"),
    ("safe: perhaps\n", 1, "not true or false"),
    ("filesystem: [host]\n", 1, "takes one value"),
    ("name: x\n", 1, "for the command line alone"),
    ("safe: true\nsafe: false\n", 2, "twice"),
    ("a: [\n", 2, ""),
])
def test_config_errors_name_file_and_line(pvisor, workspace, config, text, line, words):
    path = config(text)
    result = pvisor("run", "--config", path, "--", "true", cwd=workspace, code=2)
    assert f"pvisor: {path}:{line}: " in result.err and words in result.err


def test_toml_is_told_what_it_would_be(pvisor, workspace, temporary, plan):
    """The published tool's configuration is refused with its fields as they are written here, and that is understood."""
    path = temporary / "run.toml"
    path.write_text("""# mine
safe = true
pass_env = ["TERM"]

[run]
agent = "x"

[filesystem]
mount = [{ source = "/usr/share", access = "read" }]

[[overlaynet.rules]]
host = "api.example.com"
ports = [443]
""")
    result = pvisor("run", "--config", str(path), "--", "true", cwd=workspace, code=2)
    assert "this is TOML" in result.err
    yaml = re.search(r"in YAML: (\{.*\}), and 1 more", result.err).group(1)
    path.write_text(yaml + "\n")
    assert "/usr/share" in json.dumps(plan("--config", str(path)))


def test_config_cannot_ask_for_a_later_versions_limit(pvisor, workspace, config):
    path = config("access: ['**/.env:deny']\n")
    result = pvisor("run", "--config", path, "--", "true", cwd=workspace, code=5)
    assert f"{path}:1: " in result.err and "not in this version" in result.err


def test_config_file_must_be_there(refused):
    assert "/no/such/file" in refused("--config", "/no/such/file", "--", "true")


def test_own_configuration_applies_unasked(plan, home, temporary, pvisor, workspace):
    (home / ".config/pvisor").mkdir(parents=True)
    (home / ".config/pvisor/config.yaml").write_text("timeout: 5s\n")
    assert plan()["limits"]["timeout_ms"] == 5000
    elsewhere = temporary / "xdg"
    (elsewhere / "pvisor").mkdir(parents=True)
    (elsewhere / "pvisor/config.yaml").write_text("timeout: 6s\n")
    assert plan(env={"XDG_CONFIG_HOME": str(elsewhere)})["limits"]["timeout_ms"] == 6000
    empty = temporary / "empty.yaml"
    empty.write_text("")
    assert plan("--config", empty)["limits"]["timeout_ms"] == 0


# ---- what the tables generate ----

def test_completion_scripts(pvisor, run, temporary):
    for shell in ("bash", "zsh", "fish"):
        script = pvisor("completion", shell).out
        assert "overlaynet-deny-all" in script and "review" in script
    (temporary / "script").write_text(pvisor("completion", "bash").out)
    ask = ('. ./script; COMP_WORDS=(pvisor run --fi); COMP_CWORD=2; _pvisor; echo "${COMPREPLY[@]}";'
           'COMP_WORDS=(pvisor run --filesystem s); COMP_CWORD=3; _pvisor; echo "${COMPREPLY[@]}"')
    assert run(["bash", "-c", ask], cwd=temporary).out == "--filesystem\nsandbox\n"


@pytest.mark.parametrize("words, wanted", [
    (["re"], "review"), (["review", "la"], "last"), (["review", "run-"], "run-"), (["run", "--continue", "run-"], "run-"),
    (["help", "che"], "checkpoint"), (["completion", "z"], "zsh"), (["login", "cod"], "codex"),
    (["profile", "show", "gem"], "gemini"), (["apply", "fi"], "fixed"), (["diff", "READ"], "README.md"), (["diff", "fi"], "fixed"), (["run", "--overlaynet-allow", "@np"], "@npm"),
    (["run", "--profile", "G"], ""), (["run", "--vm"], ""),
])
def test_bash_completes_each_kind_of_word(pvisor, pv, run, workspace, temporary, words, wanted):
    pvisor("run", "-q", "--stage", "--name", "fixed", "--", "true", cwd=workspace)
    script = temporary / "script"
    script.write_text(f"pvisor() {{ {pv} \"$@\"; }}\n" + pvisor("completion", "bash").out)
    said = run(["bash", "-c", '. "$1"; shift; COMP_WORDS=(pvisor "$@"); COMP_CWORD=$#; _pvisor; echo "${COMPREPLY[@]}"',
                "bash", script, *words], cwd=workspace)
    assert said.err == "" and len(said.out.split()) == (1 if wanted else 0) and said.out.startswith(wanted)


def test_completion_of_an_unknown_shell(pvisor):
    pvisor("completion", "tcsh", code=2)


@pytest.mark.parametrize("words", [["-q", "run"], ["--safe", "-q", "spawn"], ["--safe", "run", "-q"]])
def test_options_may_stand_before_run(pvisor, workspace, words):
    assert pvisor(*words, "--", "echo", "it ran", cwd=workspace).out == "it ran\n"


def test_a_program_called_run_is_named_after_two_dashes(pvisor, workspace):
    program = workspace / "run"
    program.write_text("#!/bin/sh\necho the program\n")
    program.chmod(0o755)
    assert pvisor("--safe", "--", "./run", cwd=workspace).out == "the program\n"
    assert pvisor("--safe", "diff", "/dev/null", "/dev/null", cwd=workspace).out == ""
