# SPDX-License-Identifier: Apache-2.0
"""Profiles of agents: each widens a run by what it names, and by nothing else."""
import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

from lib import jobs

SHIPPED = ["aider", "claude", "codex", "cursor-agent", "gemini", "goose", "opencode"]
SCHEMA = json.loads((Path(__file__).parent.parent / "src/evidence/schema/bundle.schema.json").read_text())
SECRET = "sk-not-a-real-key-7f3a"


@pytest.fixture
def profile(home):
    """profile(name, text) -> writes a profile of the person's own."""

    def write(name, text):
        directory = home / ".config/pvisor/profiles"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.yaml").write_text(text)
        return directory / f"{name}.yaml"

    return write


@pytest.fixture
def agent(home, environment):
    """agent(name, script) -> a program of that name in a directory of PATH that lies in HOME."""

    def install(name, script="exit 0"):
        directory = home / "tools/bin"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
        if str(directory) not in environment["PATH"]:
            environment["PATH"] = f"{directory}:{environment['PATH']}"
        return directory / name

    return install


def bundle(environment):
    found = jobs.bundle(jobs.job_dirs(environment)[-1])
    problems = [e.message for e in jsonschema.Draft202012Validator(SCHEMA).iter_errors(found)]
    assert not problems, problems
    return found


def controls(environment):
    return bundle(environment)["plan"]["controls"]


# ---- what there is ----

def test_the_shipped_ones_are_listed_and_whole(pvisor):
    listed = json.loads(pvisor("profile", "list", "--json").out)["profiles"]
    assert [p["name"] for p in listed] == SHIPPED
    assert all(p["error"] is None and p["about"] and not p["own"] for p in listed)
    text = pvisor("profile").out
    assert all(name in text for name in SHIPPED) and "@npm" in text


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_one_names_little(pvisor, name):
    p = json.loads(pvisor("profile", "show", name, "--json").out)
    assert p["hosts"] and all(h.endswith(":443") and h[0] != "*" or h.startswith("*.") for h in p["hosts"])
    assert p["state"] and all(s.startswith("~/.") for s in p["state"])
    assert p["pass-env"] and not any(v in ("PATH", "HOME", "LD_PRELOAD", "SSH_AUTH_SOCK") for v in p["pass-env"])
    assert name in pvisor("profile", "show", name).out


def test_a_group_is_shown(pvisor):
    assert "registry.npmjs.org:443" in pvisor("profile", "show", "@npm").out
    assert json.loads(pvisor("profile", "show", "@npm", "--json").out)["targets"]
    pvisor("profile", "show", "@no-such", code=2)


def test_the_persons_own_takes_the_place_of_a_shipped_one(pvisor, profile):
    path = profile("claude", "about: mine\nhosts: [www.example.com:443]\n")
    shown = json.loads(pvisor("profile", "show", "claude", "--json").out)
    assert shown["file"] == str(path) and shown["hosts"] == ["www.example.com:443"] and shown["state"] == []
    assert "(yours)" in pvisor("profile", "list").out


@pytest.mark.parametrize("text, why", [
    ("hosts: [a.example]\nnetwork: off\n", "2: network: no such field"),
    ("safe: false\n", "1: safe: no such field"),
    ("allow-userns: true\n", "1: allow-userns: no such field"),
    ("mount: [/etc:write]\n", "1: mount: no such field"),
    ("hosts: ['*']\n", "names hosts, not all"),
    ("hosts: ['*:443']\n", "names hosts, not all"),
    ("hosts: [0.0.0.0/0]\n", "names hosts, not all"),
    ("hosts: ['::/0']\n", "names hosts, not all"),
    ("hosts: ['http://x']\n", "1: hosts"),
    ("state: [/etc]\n", "below HOME"),
    ("state: [~/../other]\n", "below HOME"),
    ("state: ['~/']\n", "below HOME"),
    ("state: [~/.a, ~/.a/b]\n", "overlap"),
    ("settings: [~/.ssh/config]\n", "credential store"),
    ("read: [~/.aws]\n", "credential store"),
    ("read: [relative]\n", "absolute"),
    ("pass-env: [A=b]\n", "not a variable's name"),
    ("set-env: [PATH=/x]\n", "pVisor's to set"),
    ("set-env: [GIT_CONFIG_COUNT=0]\n", "pVisor's to set"),
    ("set-env: [NAME]\n", "NAME=VALUE"),
    ("hosts: [a.example]\nhosts: [b.example]\n", "given twice"),
    ("about: [a, b]\n", "one value"),
    ("hosts: {a: b}\n", "neither a value nor a list"),
    ("hosts: [\n", "yaml:"),
])
def test_a_wrong_one_is_refused_with_its_line(pvisor, profile, workspace, text, why):
    path = profile("mine", text)
    for result in (pvisor("profile", "show", "mine", code=2),
                   pvisor("run", "--safe", "--profile", "mine", "--", "true", cwd=workspace, code=2)):
        assert str(path) in result.err and why in result.err
    assert jobs.job_dirs({"HOME": str(path.parents[3])}) == []


@pytest.mark.parametrize("name", ["no-such", "../claude", "a/b", ".claude", "none "])
def test_an_unknown_one_is_refused(pvisor, workspace, name):
    assert "no such profile" in pvisor("run", "--safe", "--profile", name, "--", "true", cwd=workspace, code=2).err
    pvisor("profile", "show", name, code=2)


# ---- which one ----

def test_the_programs_name_chooses(pvisor, agent, workspace, environment):
    agent("codex", "echo \"$@\"; echo $CODEX_HOME")
    result = pvisor("run", "--safe", "--", "codex", "exec", "hello", cwd=workspace)
    assert result.out == f'-c sandbox_mode="danger-full-access" exec hello\n{environment["HOME"]}/.codex\n'
    assert "profile codex" in result.err and "pvisor login codex" in result.err
    found = controls(environment)["profile"]
    assert found["name"] == "codex" and "api.openai.com:443" in found["hosts"] and found["inner_sandbox"]


def test_none_is_none(pvisor, agent, workspace, environment):
    agent("codex", "echo \"$@\"; echo $CODEX_HOME")
    assert pvisor("run", "--safe", "--profile", "none", "--", "codex", "x", cwd=workspace).out == "x\n\n"
    assert controls(environment)["profile"] is None
    assert bundle(environment)["network"]["policy"] == "rules"


def test_only_safe_chooses_by_name(pvisor, agent, workspace, environment):
    agent("codex", "echo \"$@\"")
    assert pvisor("run", "--stage", "--", "codex", "x", cwd=workspace).out == "x\n"
    assert controls(environment)["profile"] is None
    assert pvisor("run", "--stage", "--profile", "codex", "--", "codex", "x", cwd=workspace).out.startswith("-c sandbox_mode")
    assert controls(environment)["profile"]["name"] == "codex"
    assert "--safe" in pvisor("run", "--profile", "codex", "--", "true", cwd=workspace, code=2).err


def test_another_program_gets_no_arguments(pvisor, workspace, environment):
    out = pvisor("run", "--safe", "--profile", "codex", "--", "sh", "-c", "echo $# $CODEX_HOME", cwd=workspace).out
    assert out == f"0 {environment['HOME']}/.codex\n"
    assert controls(environment)["profile"]["inner_sandbox"] is None  # nothing was switched off


@pytest.mark.parametrize("how", ["path", "search", "link"])
def test_a_program_in_the_workspace_gets_none_by_its_name(pvisor, workspace, environment, how):
    """An earlier command may have put it there, to be given the agent's login."""
    (workspace / "codex").write_text("#!/bin/sh\necho \"$@\"\n")
    (workspace / "codex").chmod(0o755)
    if how == "link":
        (workspace / "codex").unlink()
        (workspace / "codex").symlink_to("/bin/echo")
    if how != "path":
        environment["PATH"] = f"{workspace}:{environment['PATH']}"
    result = pvisor("run", "--safe", "--", "./codex" if how == "path" else "codex", "x", cwd=workspace)
    assert result.out == "x\n" and "lies in the workspace" in result.err
    assert controls(environment)["profile"] is None
    pvisor("run", "--safe", "--profile", "codex", "--", "./codex", "x", cwd=workspace)
    assert controls(environment)["profile"]["name"] == "codex"


# ---- the network ----

HOSTS = "hosts: [www.example.com:80]\n"


@pytest.fixture
def online(world, environment, profile):
    """online(*options, host=) -> curl's exit code for a host, in a run with a profile that names one."""
    profile("mine", HOSTS)

    def call(*options, host="www.example.com"):
        return world.pvisor("run", "--safe", *options, "--", "curl", "-sS", "--max-time", "30", f"http://{host}/",
                            code=None).code

    return call


def test_its_hosts_are_reached_and_no_others(online, environment):
    assert online("--profile", "mine") == 0
    assert bundle(environment)["safety"]["levels"]["network"] == "enforced"
    assert [layer["name"] for layer in bundle(environment)["network"]["rules"]["layers"]] == ["profile"]
    assert online("--profile", "mine", host="other.test") != 0
    assert online() != 0  # without it: nothing


def test_the_persons_rules_are_added_to_it(online):
    allow = ["--profile", "mine", "--overlaynet-allow", "other.test"]
    assert online(*allow, host="other.test") == 0
    assert online(*allow) == 0
    assert online(*allow, host="example.com") != 0
    assert online("--overlaynet-allow", "other.test") != 0


def test_the_persons_word_is_stronger(online):
    assert online("--profile", "mine", "--overlaynet-deny-all") != 0
    assert online("--profile", "mine", "--overlaynet-allow", "other.test", "--overlaynet-deny", "www.example.com") != 0


# ---- variables ----

def test_its_variables_are_given_and_named_and_written_nowhere(pvisor, agent, workspace, environment):
    agent("claude", "echo key=$ANTHROPIC_API_KEY other=$OPENAI_API_KEY")
    keys = {"ANTHROPIC_API_KEY": SECRET, "OPENAI_API_KEY": "other-" + SECRET}
    result = pvisor("run", "--safe", "--", "claude", cwd=workspace, env=keys)
    assert result.out == f"key={SECRET} other=\n" and "given ANTHROPIC_API_KEY" in result.err
    assert "login" not in result.err
    assert "ANTHROPIC_API_KEY" in bundle(environment)["environment"]["passed"]
    assert "CLAUDE_CONFIG_DIR" in bundle(environment)["environment"]["injected"]
    assert subprocess.run(["grep", "-rlF", SECRET, str(jobs.store(environment))], capture_output=True).stdout == b""
    assert SECRET not in pvisor("run", "--safe", "--dry-run", "--json", "--", "claude", cwd=workspace, env=keys).out


def test_the_persons_variable_overrules_what_is_set(pvisor, workspace):
    script = ["--", "sh", "-c", "echo $DISABLE_AUTOUPDATER"]
    own = {"DISABLE_AUTOUPDATER": "0"}
    run = ["run", "--safe", "--profile", "claude"]
    assert pvisor(*run, *script, cwd=workspace, env=own).out == "1\n"
    assert pvisor(*run, "--pass-env", "DISABLE_AUTOUPDATER", *script, cwd=workspace, env=own).out == "0\n"


# ---- state and settings ----

def test_state_outlives_a_run_and_the_hosts_own_is_not_seen(pvisor, agent, workspace, home):
    (home / ".claude").mkdir()
    (home / ".claude/.credentials.json").write_text("the host's login")
    (home / ".claude/history.jsonl").write_text("the host's history")
    agent("claude", "cd ~/.claude; ls -A; echo mine > .credentials.json.new; mv .credentials.json.new .credentials.json;"
                    " cat .credentials.json")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == "mine\n"
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == ".credentials.json\nmine\n"
    assert (home / ".claude/.credentials.json").read_text() == "the host's login"
    assert sorted(os.listdir(home / ".claude")) == [".credentials.json", "history.jsonl"]
    # Another agent, and no agent, see nothing of it.
    script = "cat ~/.claude/.credentials.json 2>/dev/null; true"
    for profile in ("codex", "none"):
        assert pvisor("run", "--safe", "--profile", profile, "--", "sh", "-c", script, cwd=workspace).out == ""
    assert pvisor("run", "--safe", "--no-state", "--", "claude", cwd=workspace).out.endswith("mine\n")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == ".credentials.json\nmine\n"


def test_without_state_nothing_is_kept(pvisor, agent, workspace, environment):
    agent("claude", "ls -A ~/.claude 2>/dev/null; mkdir -p ~/.claude; touch ~/.claude/x")
    for _ in range(2):
        assert pvisor("run", "--safe", "--no-state", "--", "claude", cwd=workspace).out == ""
    assert not (jobs.store(environment) / "agents").exists()


def test_the_hosts_settings_are_there_and_cannot_be_changed(pvisor, agent, workspace, home):
    """A changed one would run on the host, the next time that the agent is started there."""
    (home / ".claude/skills/one").mkdir(parents=True)
    (home / ".claude/settings.json").write_text('{"model": "x"}')
    (home / ".claude/skills/one/SKILL.md").write_text("a skill")
    agent("claude", """cd ~/.claude; cat settings.json skills/one/SKILL.md
        echo evil 2>/dev/null > settings.json; echo evil 2>/dev/null >> settings.json
        mv settings.json gone 2>/dev/null; rm -f settings.json 2>/dev/null
        ( echo evil > n; mv n settings.json ) 2>/dev/null; mkdir skills/two 2>/dev/null; rm -rf skills 2>/dev/null
        echo; cat settings.json; ls skills""")
    out = pvisor("run", "--safe", "--", "claude", cwd=workspace).out
    assert out == '{"model": "x"}a skill\n{"model": "x"}one\n'
    assert (home / ".claude/settings.json").read_text() == '{"model": "x"}'
    assert sorted(os.listdir(home / ".claude")) == ["settings.json", "skills"]
    assert os.listdir(home / ".claude/skills") == ["one"]


def test_what_an_earlier_run_left_at_a_settings_place_does_not_matter(pvisor, agent, workspace, home):
    script = "cd ~/.claude; cat settings.json; ls -ld skills | cut -c1; cat /proc/self/mountinfo | grep -c ' /etc/passwd '"
    agent("claude", "cd ~/.claude; ln -s /etc/passwd settings.json; echo x > skills; mkdir CLAUDE.md")
    pvisor("run", "--safe", "--", "claude", cwd=workspace)
    (home / ".claude/skills").mkdir(parents=True)
    (home / ".claude/settings.json").write_text("{}\n")
    (home / ".claude/CLAUDE.md").write_text("hello\n")
    agent("claude", script)
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace, code=1).out == "{}\nd\n0\n"


def test_no_trace_of_settings_that_are_gone(pvisor, agent, workspace, home):
    agent("claude", "ls -A ~/.claude")
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text("{}\n")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == "settings.json\n"
    (home / ".claude/settings.json").unlink()
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == ""


def test_a_link_to_a_credential_store_shows_nothing(pvisor, agent, workspace, home):
    """Such a link may be an agent's work in a repository of settings."""
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("the key")
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").symlink_to("../.ssh/id")
    agent("claude", "cat ~/.claude/settings.json ~/.ssh/id 2>/dev/null; true")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == ""


def test_settings_behind_links_are_found(pvisor, agent, workspace, home):
    (home / "dotfiles/claude").mkdir(parents=True)
    (home / "dotfiles/claude/settings.json").write_text("{}")
    (home / ".claude").symlink_to("dotfiles/claude")
    agent("claude", "cat ~/.claude/settings.json; echo new > ~/.claude/state; cat ~/.claude/state")
    for _ in range(2):
        assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out == "{}new\n"
    assert os.listdir(home / "dotfiles/claude") == ["settings.json"]


# ---- MCP servers ----

def servers(home, workspace, **more):
    (home / ".claude.json").write_text(json.dumps({
        "oauthAccount": {"accessToken": SECRET}, "primaryApiKey": SECRET,
        "mcpServers": {"files": {"command": "files-server", "args": ["/srv"], "env": {"LEVEL": "debug", "FILES_TOKEN": SECRET}},
                       "web": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
                       "db": {"command": "db", "args": [f"postgres://me:{SECRET}@db/x"]}},
        "projects": {str(workspace): {"mcpServers": {"local": {"command": "./server"}}},
                     "/elsewhere": {"mcpServers": {"other": {"command": "x"}}}}, **more}))


GIVEN = "for a; do case $a in --mcp-config=*) echo \"${a#--mcp-config=}\";; esac; done; cat ~/.claude.json 2>/dev/null; "


def test_the_persons_mcp_servers_are_there_without_their_secrets(pvisor, agent, workspace, home, environment):
    servers(home, workspace)
    agent("claude", GIVEN + "echo \"$FILES_TOKEN\"")
    result = pvisor("run", "--safe", "--", "claude", "-p", "hi", cwd=workspace)
    listed, token = result.out.split("\n")[:2]
    assert json.loads(listed) == {"mcpServers": {
        "local": {"command": "./server"}, "files": {"command": "files-server", "args": ["/srv"], "env": {"LEVEL": "debug"}},
        "web": {"type": "http", "url": "https://mcp.example.com/mcp"}}}
    assert token == "" and SECRET not in result.out
    for word in ("local", "files", "web", "db (a secret in its arguments)", "FILES_TOKEN", "--pass-env"):
        assert word in result.err
    assert SECRET not in result.err
    assert subprocess.run(["grep", "-rlF", SECRET, str(jobs.store(environment))], capture_output=True).stdout == b""
    dry = pvisor("run", "--safe", "--dry-run", "--json", "--", "claude", cwd=workspace).out
    assert "files-server" in dry and SECRET not in dry


def test_a_servers_variable_is_given_when_it_is_named(pvisor, agent, workspace, home, environment):
    """From the person's environment, else from the file; by name in the list, and in no file of the job."""
    servers(home, workspace)
    agent("claude", GIVEN + "echo \"$FILES_TOKEN\"")
    run = ["run", "--safe", "--pass-env", "FILES_TOKEN", "--", "claude"]
    for env, value in ({}, SECRET), ({"FILES_TOKEN": "other"}, "other"):
        listed, token = pvisor(*run, cwd=workspace, env=env).out.split("\n")[:2]
        assert json.loads(listed)["mcpServers"]["files"]["env"] == {"LEVEL": "debug", "FILES_TOKEN": "${FILES_TOKEN}"}
        assert token == value
    assert "FILES_TOKEN" in bundle(environment)["environment"]["passed"]
    assert subprocess.run(["grep", "-rlF", SECRET, str(jobs.store(environment))], capture_output=True).stdout == b""


def test_nobody_else_is_given_the_servers(pvisor, agent, workspace, home):
    servers(home, workspace)
    for name in ("claude", "codex"):
        agent(name, GIVEN + "echo $#")
    for options, program in ((["--profile", "none"], "claude"), ([], "codex"), (["--profile", "claude"], "codex")):
        out = pvisor("run", "--safe", *options, "--", program, cwd=workspace).out
        assert "files-server" not in out and SECRET not in out
    out = pvisor("run", "--safe", "--profile", "claude", "--", "sh", "-c", "cat ~/.claude.json", cwd=workspace, code=1).out
    assert out == ""


@pytest.mark.parametrize("text", [None, "{}", "{", '{"mcpServers": {"x": 7}}', "[]"])
def test_without_servers_the_agent_starts_as_ever(pvisor, agent, workspace, home, text):
    if text is not None:
        (home / ".claude.json").write_text(text)
    agent("claude", GIVEN + "echo started")
    result = pvisor("run", "--safe", "--", "claude", cwd=workspace)
    assert result.out == "started\n" and ("MCP" in result.err) == (text in ("{", '{"mcpServers": {"x": 7}}'))


MCP = {"command": "files-server", "env": {"LEVEL": "debug", "FILES_TOKEN": SECRET}}
SETTINGS = {
    "codex": (".codex/config.toml", '"env_vars" = ["FILES_TOKEN"]',
              f'model = "x"\n[mcp_servers.files]\ncommand = "files-server"\nenv = {{LEVEL = "debug", FILES_TOKEN = "{SECRET}"}}\n'
              f'[mcp_servers.db]\ncommand = "db"\nargs = ["--password", "{SECRET}"]\n'),
    "gemini": (".gemini/settings.json", '"FILES_TOKEN": "${FILES_TOKEN}"',
               "// mine\n" + json.dumps({"model": "x", "mcpServers": {"files": MCP, "db": {"url": f"https://me:{SECRET}@db.example/"}}})),
    "cursor-agent": (".cursor/mcp.json", '"FILES_TOKEN": "${env:FILES_TOKEN}"',
                     json.dumps({"model": "x", "mcpServers": {"files": MCP, "db": {"command": "db", "args": [f"--key={SECRET}"]}}})),
    "opencode": (".config/opencode/opencode.jsonc", '"FILES_TOKEN": "{env:FILES_TOKEN}"',
                 json.dumps({"model": "x", "provider": {"own": {"options": {"apiKey": SECRET}}},
                             "mcp": {"files": {"type": "local", "command": ["files-server"], "environment": MCP["env"]},
                                     "db": {"type": "local", "command": ["db", "--token", SECRET]}}})),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_with_servers_are_shown_without_the_secrets_in_them(pvisor, agent, workspace, home, environment, name):
    path, reference, text = SETTINGS[name]
    (home / path).parent.mkdir(parents=True)
    (home / path).write_text(text)
    agent(name, f"cat ~/{path}; echo; echo x > ~/{path} && echo written; echo \"token $FILES_TOKEN\"; echo made > made")
    result = pvisor("run", "--safe", "--", name, cwd=workspace)
    assert "files-server" in result.out and "debug" in result.out and '"x"' in result.out and SECRET not in result.out
    assert "written" not in result.out and "token \n" in result.out and '"db"' not in result.out
    assert "db (a secret in its" in result.err and "FILES_TOKEN (--pass-env" in result.err and SECRET not in result.err
    assert (home / path).read_text() == text
    # To look at the job, nobody needs them; and another command is shown none of it.
    assert "files-server" not in pvisor("inspect", "--", "sh", "-c", f"cat ~/{path}; :", cwd=workspace).out
    for options in (["--safe"], ["--safe", "--profile", "aider"]):
        assert pvisor("run", *options, "--", "sh", "-c", f"cat ~/{path}; :", cwd=workspace).out == ""
    dry = pvisor("run", "--safe", "--dry-run", "--", name, cwd=workspace).out
    assert f"{home}/{path} without its secrets" in dry and "files-server" not in dry and SECRET not in dry
    given = pvisor("run", "--safe", "--pass-env", "FILES_TOKEN", "--", name, cwd=workspace)
    assert reference in given.out and f"token {SECRET}\n" in given.out and given.out.count(SECRET) == 1
    assert pvisor("fork", "last", "--", name, cwd=workspace).out == given.out
    assert subprocess.run(["grep", "-rlF", SECRET, str(jobs.store(environment))], capture_output=True).stdout == b""


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cannot_be_read_are_not_shown(pvisor, agent, workspace, home, name):
    """Nor is what lies behind a link that an agent may have made."""
    path = home / SETTINGS[name][0]
    path.parent.mkdir(parents=True)
    path.write_text(f"= {SETTINGS[name][2]}")
    agent(name, f"cat ~/{SETTINGS[name][0]} 2>/dev/null; :")
    result = pvisor("run", "--safe", "--", name, cwd=workspace)
    assert result.out == "" and "is not shown" in result.err and "line 1: " in result.err
    path.unlink()
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("{}")
    path.symlink_to(home / ".ssh/id")
    assert pvisor("run", "--safe", "--", name, cwd=workspace).out == ""


def test_a_profile_shows_no_credential_store_as_settings(pvisor, profile, workspace):
    for field, path, word in (("mcp-settings", "~/.ssh/id", "credential store"), ("settings", "~/.codex/config.toml", "mcp-settings")):
        profile("mine", f"{field}: [{path}]\n")
        assert word in pvisor("run", "--safe", "--profile", "mine", "--", "true", cwd=workspace, code=2).err


def test_two_runs_of_an_agent_at_once_have_one_state(pv, pvisor, agent, workspace, make_workspace, environment):
    agent("claude", "echo ready; read line; cat ~/.claude/login")
    first = subprocess.Popen([pv, "run", "-q", "--safe", "--", "claude"], cwd=workspace, env=environment,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert first.stdout.readline() == b"ready\n"
        other = make_workspace(name="other")
        pvisor("run", "--safe", "--profile", "claude", "--", "sh", "-c", "echo new > ~/.claude/x; mv ~/.claude/x ~/.claude/login",
               cwd=other)
        assert "a run has it" in pvisor("login", "claude", "--forget", code=1).err
        assert first.communicate(b"\n", timeout=30)[0] == b"new\n"
    finally:
        first.kill()
        first.wait()


def test_a_staged_run_has_them_in_its_empty_home(pvisor, workspace, home):
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text("{}\n")
    script = "cd ~; ls -A; cat .claude/settings.json; touch .claude/kept; ls .claude"
    run = ["run", "--stage", "--profile", "claude", "--", "sh", "-c", script]
    for _ in range(2):
        assert pvisor(*run, cwd=workspace).out == ".claude\n{}\nkept\nsettings.json\n"


def test_a_workspace_in_the_state_directory_is_the_workspace(pvisor, home, make_workspace):
    workspace = make_workspace(where=home, name=".claude", files={"settings.json": "{}\n"})
    result = pvisor("run", "--safe", "--profile", "claude", "--", "sh", "-c", "echo x > settings.json; pwd", cwd=workspace)
    assert "not kept" in result.err and result.out == f"{workspace}\n"
    assert (workspace / "settings.json").read_text() == "{}\n"


def test_a_fork_has_the_agents_state_and_inspect_has_not(pvisor, agent, workspace):
    agent("claude", "echo $CLAUDE_CONFIG_DIR; echo login > ~/.claude/login; echo x > made")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace).out.endswith("/.claude\n")
    script = "cat ~/.claude/login 2>/dev/null; echo ${CLAUDE_CONFIG_DIR:+set}"
    assert pvisor("fork", "last", "--", "sh", "-c", script, cwd=workspace).out == "login\nset\n"
    assert pvisor("inspect", "last", "--", "sh", "-c", script, cwd=workspace).out == "\n"
    key = {"ANTHROPIC_API_KEY": SECRET}
    agent("claude", "echo $ANTHROPIC_API_KEY; echo y > made")
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace, env=key).out == f"{SECRET}\n"
    script = "echo ${ANTHROPIC_API_KEY:-none}"
    assert pvisor("inspect", "last", "--", "sh", "-c", script, cwd=workspace, env=key).out == "none\n"
    assert pvisor("fork", "last", "--", "sh", "-c", script, cwd=workspace, env=key).out == f"{SECRET}\n"


def plan_of(environment):
    newest = max(jobs.job_dirs(environment), key=lambda p: p.stat().st_mtime_ns)
    return json.loads((newest / "request.json").read_text())["plan"]


@pytest.mark.parametrize("before", [["--safe"], ["--safe", "--overlaynet-allow", "example.com:443"], ["--safe", "--no-state"],
                                    ["--safe", "--pass-env", "FILES_TOKEN"], ["--safe", "--overlaynet-deny-all"]])
def test_an_agent_is_started_in_another_jobs_boundary_as_by_a_run(pvisor, agent, workspace, home, environment, before):
    """By fork and by --continue: its hosts, state, settings, arguments and MCP servers, and nothing more than by run."""
    servers(home, workspace)
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text("{}\n")
    agent("claude", GIVEN + "echo $#; ls -A ~/.claude; cat made; echo ${FILES_TOKEN:-none}")
    pvisor("run", *before, "--name", "base", "--", "sh", "-c", "echo made > made", cwd=workspace)
    (workspace / "made").write_text("made\n")
    run = pvisor("run", *before, "--", "claude", "-p", "hi", cwd=workspace)
    plan = plan_of(environment)
    (workspace / "made").unlink()
    forked = pvisor("fork", "base", "--name", "child", "--", "claude", "-p", "hi", cwd=workspace)
    assert forked.out == run.out and "MCP servers: " in forked.err and SECRET not in forked.err + forked.out.split("\n")[0]
    assert plan_of(environment) == plan
    again = pvisor("fork", "child", cwd=workspace)  # the same command once more
    assert again.out == run.out and plan_of(environment) == plan
    own = [] if len(before) == 1 else before[1:]
    assert pvisor("run", "--continue", "base", *own, "--", "claude", "-p", "hi", cwd=workspace).out == run.out
    assert plan_of(environment) == {**plan, "hidden": plan_of(environment)["hidden"]}
    # Where a profile was refused, it stays so; and what is no agent has none.
    pvisor("run", "--safe", "--profile", "none", "--name", "bare", "--", "sh", "-c", "echo made > made", cwd=workspace)
    for start in (["fork", "bare"], ["run", "--continue", "bare", "--profile", "none"], ["run", "--stage", "--continue", "bare"]):
        out = pvisor(*start, "--", "claude", cwd=workspace).out
        assert out.startswith("0\n") and out.endswith("made\nnone\n")
    assert plan_of(environment)["profile"] is None
    pvisor("fork", "base", "--", "true", cwd=workspace)
    assert plan_of(environment)["profile"] is None and not plan_of(environment)["kept"]["state"]


def test_another_agent_in_a_jobs_boundary_has_its_own_profile(pvisor, agent, workspace, home, environment):
    agent("claude", "echo login > ~/.claude/login; echo x > made")
    agent("codex", "ls -A ~/.claude ~/.codex 2>&1; echo $CODEX_HOME ${CLAUDE_CONFIG_DIR:-none} ${ANTHROPIC_API_KEY:-none}; echo \"$@\"")
    key = {"ANTHROPIC_API_KEY": SECRET}
    pvisor("run", "--safe", "--", "claude", cwd=workspace, env=key)
    result = pvisor("fork", "last", "--", "codex", "exec", cwd=workspace, env=key)
    assert "login\n" not in result.out and f"{home}/.codex none none\n" in result.out
    assert "danger-full-access" in result.out and "sandbox" not in result.out.replace("sandbox_mode", "").replace("no-sandbox", "")
    plan = plan_of(environment)
    assert plan["profile"]["name"] == "codex" and [k["rel"] for k in plan["kept"]["state"]] == [".codex"]
    assert "api.openai.com" in json.dumps(plan["network_rules"])


def test_a_program_that_a_job_left_gets_no_profile_in_a_fork(pvisor, agent, workspace, environment):
    script = "echo ${CLAUDE_CONFIG_DIR:-none}"
    plant = f"mkdir -p late/bin; printf '#!/bin/sh\\n{script}\\n' >late/bin/claude; chmod +x late/bin/claude"
    pvisor("run", "--safe", "--name", "planted", "--", "sh", "-c", plant, cwd=workspace)
    agent("claude", script)
    path = {"PATH": f"{workspace}/late/bin:{environment['PATH']}"}
    forked = pvisor("fork", "planted", "--", "claude", cwd=workspace, env=path)
    assert forked.out == "none\n" and "gets no profile by its name" in forked.err


def test_review_and_the_plan_show_it(pvisor, agent, workspace):
    agent("claude")
    plan = pvisor("run", "--safe", "--dry-run", "--", "claude", cwd=workspace).out
    assert "api.anthropic.com:443" in plan and "/agents/claude/.claude" in plan and "CLAUDE_CONFIG_DIR" in plan
    pvisor("run", "--safe", "--", "claude", cwd=workspace)
    review = pvisor("review", cwd=workspace).out
    assert "claude" in review and "api.anthropic.com:443" in review and "sandbox" in review


@pytest.mark.parametrize("default", ["home", "xdg"])
def test_the_default_store_is_hidden_when_another_is_in_use(pvisor, workspace, home, temporary, default):
    """Its agents' logins are there, whichever store this run has."""
    xdg = {"XDG_STATE_HOME": str(home / "state")} if default == "xdg" else {}
    store = home / ("state/pvisor" if xdg else ".local/state/pvisor")
    pvisor("run", "--safe", "--profile", "claude", "--", "sh", "-c", "echo TOK >~/.claude/.credentials.json",
           cwd=workspace, env=xdg)
    login = store / "agents/claude/.claude/.credentials.json"
    assert login.read_text() == "TOK\n"
    other = {**xdg, "PVISOR_HOME": str(temporary / "other")}
    for options in (["--safe"], ["--stage"], ["--stage", "--filesystem", "host"]):
        assert pvisor("run", *options, "--", "sh", "-c", f"cat {login}; :", cwd=workspace, env=other).out == ""
    for place in (store, store.parent, login):
        for access in ("read", "write"):
            assert "pVisor's own" in pvisor("run", "--safe", "--mount", f"{place}:{access}", "--", "true", cwd=workspace,
                                            env=other, code=2).err


@pytest.mark.parametrize("place", [".cache/tools", ".npm/_npx/1", ".claude/local", "shared/bin"])
def test_a_program_where_runs_write_gets_no_profile_by_its_name(pvisor, agent, workspace, home, place):
    script = "echo ${CLAUDE_CONFIG_DIR:-none}"
    agent("claude", script)
    (home / place).mkdir(parents=True)
    planted = home / place / "claude"
    planted.write_text(f"#!/bin/sh\n{script}\n")
    planted.chmod(0o755)
    (home / "way").symlink_to(planted.parent)
    (home / "tools/link").mkdir()
    (home / "tools/link/claude").symlink_to("../../way/claude")
    mount = ["--mount", f"{home}/shared:write"] if place.startswith("shared") else []
    for program in (planted, home / "way/claude", home / "tools/link/claude"):
        result = pvisor("run", "--safe", *mount, "--", program, cwd=workspace, code=None)
        assert "gets no profile by its name" in result.err and "/.claude" not in result.out
    assert pvisor("run", "--safe", *mount, "--", "claude", cwd=workspace).out == f"{home}/.claude\n"
    named = pvisor("run", "--safe", *mount, "--profile", "claude", "--", planted, cwd=workspace, code=None)
    assert "no profile" not in named.err and (place == ".claude/local" or named.out == f"{home}/.claude\n")


def test_a_program_that_is_there_only_inside_gets_none_by_its_name(pvisor, agent, workspace, temporary, environment):
    """In a directory of PATH that a mount or an earlier run's stage makes, before the one that the host would find."""
    script = "echo inner ${CLAUDE_CONFIG_DIR:-none}"
    agent("claude", script.replace("inner", "outer"))
    (temporary / "shared").mkdir()
    (temporary / "shared/claude").write_text(f"#!/bin/sh\n{script}\n")
    (temporary / "shared/claude").chmod(0o755)
    path = {"PATH": f"/tools/only/inside:{workspace}/late/bin:{environment['PATH']}"}
    for access, out in (("write", "inner none\n"), ("stage", "inner none\n"), ("read", f"inner {environment['HOME']}/.claude\n")):
        mount = ["--mount", f"{temporary}/shared:/tools/only/inside:{access}"]
        result = pvisor("run", "--safe", *mount, "--", "claude", cwd=workspace, env=path)
        assert result.out == out and ("gets no profile by its name" in result.err) == (access != "read")
    outer = f"outer {environment['HOME']}/.claude\n"
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace, env=path).out == outer
    # What a run staged is nowhere but in a run that goes on with it.
    plant = f"mkdir -p late/bin; printf '#!/bin/sh\\n{script}\\n' >late/bin/claude; chmod +x late/bin/claude"
    pvisor("run", "--safe", "--name", "planted", "--", "sh", "-c", plant, cwd=workspace)
    again = pvisor("run", "--safe", "--continue", "planted", "--", "claude", cwd=workspace, env=path)
    assert again.out == "inner none\n" and "gets no profile by its name" in again.err
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace, env=path).out == outer
    # A directory of the workspace in PATH, as an activated environment has, changes nothing by itself.
    (workspace / "late/bin").mkdir(parents=True)
    assert pvisor("run", "--safe", "--", "claude", cwd=workspace, env=path).out == outer


def test_a_program_that_runs_left_in_caches_or_state_gets_none_by_its_name(pvisor, agent, workspace, home, environment):
    script = "echo inner ${CLAUDE_CONFIG_DIR:-none}"
    agent("claude", script.replace("inner", "outer"))
    plant = f"mkdir -p $0; printf '#!/bin/sh\\n{script}\\n' >$0/claude; chmod +x $0/claude"
    (home / ".cache").mkdir()
    for place in (home / ".cache/t/bin", home / ".claude/t/bin"):
        path = {"PATH": f"{place}:{environment['PATH']}"}
        pvisor("run", "--safe", "--profile", "claude", "--", "sh", "-c", plant, place, cwd=workspace)
        assert not place.exists()
        result = pvisor("run", "--safe", "--", "claude", cwd=workspace, env=path, code=None)
        assert "gets no profile by its name" in result.err and f"{home}/.claude" not in result.out


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_the_store_is_refused_by_whatever_name_it_is_mounted(pvisor, workspace, temporary, environment):
    store, alias = jobs.store(environment), temporary / "alias"
    pvisor("run", "--safe", "--profile", "claude", "--", "true", cwd=workspace)
    alias.mkdir()
    for source, places in ((store, [".", "agents/claude"]), (store.parent, [".", store.name, f"{store.name}/agents"])):
        subprocess.run(["mount", "--bind", source, alias], check=True)
        try:
            for place in places:
                assert "pVisor's own" in pvisor("run", "--safe", "--mount", f"{alias / place}:write", "--", "true",
                                                cwd=workspace, code=2).err
        finally:
            subprocess.run(["umount", alias], check=True)
    pvisor("run", "--safe", "--mount", f"{alias}:write", "--", "true", cwd=workspace)


def test_rights_that_a_run_took_from_its_state_come_back(pvisor, workspace, home):
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text("{}\n")
    run = ["run", "--safe", "--profile", "claude", "--", "sh", "-c"]
    pvisor(*run, "echo kept > ~/.claude/x; mkdir -p ~/.cache; chmod 0 ~/.claude ~/.cache", cwd=workspace)
    assert pvisor(*run, "cat ~/.claude/x; cat ~/.claude/settings.json; touch ~/.cache/y", cwd=workspace).out == "kept\n{}\n"


# ---- logging in ----

def test_a_login_fills_the_state(pvisor, agent, workspace, profile, environment):
    profile("mine", "state: [~/.mine]\nlogin: [mine, login]\nhosts: [a.example:443]\nsettings: [~/.mine/config]\n")
    agent("mine", "[ \"$1\" = login ] && { echo token > ~/.mine/login; pwd; ls -A; exit 3; }; cat ~/.mine/login")
    result = pvisor("login", "mine", cwd=workspace, code=3)
    assert "pvisor-login-" in result.out and len(result.out.split()) == 1
    assert not os.path.exists(result.out.split()[0])
    assert len(json.loads(pvisor("prune", "--json", cwd=workspace).out)["removed"]) == 1  # nothing to decide on
    assert pvisor("run", "--safe", "--", "mine", cwd=workspace).out == "token\n"
    assert "removed" in pvisor("login", "mine", "--forget").err
    assert pvisor("run", "--safe", "--", "mine", cwd=workspace, code=1).out == ""
    pvisor("login", "mine", "--forget")
    assert "nothing to remove" in pvisor("login", "mine", "--forget").err


def test_a_login_that_there_is_not(pvisor, workspace):
    assert "ANTHROPIC_API_KEY" in pvisor("login", "aider", cwd=workspace, code=2).err
    assert "no such profile" in pvisor("login", "no-such", cwd=workspace, code=2).err
    assert pvisor("login", "aider", "--", "sh", "-c", "echo other", cwd=workspace).out == "other\n"


def test_a_login_reaches_no_more_than_the_agent(world, profile, environment):
    profile("mine", HOSTS + "state: [~/.mine]\n")
    for host, code in (("www.example.com", 0), ("other.test", None)):
        result = world.pvisor("login", "mine", "--", "curl", "-sS", "--max-time", "30", f"http://{host}/", code=None)
        assert (result.code == 0) == (code == 0), result.err
