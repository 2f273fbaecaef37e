# SPDX-License-Identifier: Apache-2.0
"""pvisor why: the rule and the option that it names are the ones that decide."""
import json

import pytest

from lib import outside

TRY = """
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    print(where, attempt(lambda: echo(host.strip("[]"), int(port)))[0])
"""


def why(world, *words, **options):
    return json.loads(world.pvisor("why", "--json", *words, **options).out)


def test_what_it_says_of_a_target_is_what_happens(world):
    targets = ["www.example.com:7", "www.example.com:80", "other.test:7", "four.example.com:7", "11.22.33.1:7",
               "11.22.33.3:7", "[2a01:5f::1]:7", "host.pvisor.internal:7", "host.pvisor.internal:31337"]
    result = world.safe(["*.example.com:7", "11.22.33.0/30:7", "host.pvisor.internal:7",
                         "--overlaynet-deny=four.example.com", "--overlaynet-deny=11.22.33.3"],
                        ["/usr/bin/python3", "-c", outside.PRELUDE + TRY, *targets])
    happened = {line.split()[0]: line.split(maxsplit=1)[1] == "ok" for line in result.out.splitlines()}
    assert sorted(happened.values()) == [False] * 6 + [True] * 3
    for target, reached in happened.items():
        answer, = why(world, "last", target)
        assert answer["refused"] == (not reached), answer
        assert reached or answer["allow_with"]
    assert why(world, "last", "four.example.com:7")[0]["rule"] == "four.example.com"
    assert why(world, "last", "four.example.com:7")[0]["layer"] == "command line"


def test_the_option_that_it_names_allows(world):
    script = 'say(attempt(lambda: echo("private.example.com"))[0])'
    assert world.inside(["four.example.com"], script) == "no name"
    answer, = why(world, "--last")
    assert (answer["asked"], answer["allow_with"]) == ("private.example.com", "--overlaynet-allow private.example.com")
    assert world.inside(["private.example.com"], script) == "ECONNRESET"
    review = world.pvisor("why").out
    assert "private address" in review
    assert world.inside(["private.example.com", "--overlaynet-allow-private-ips"], script) == "ok"
    assert why(world, "last") == [] and "nothing was refused" in world.pvisor("why").out


@pytest.mark.parametrize("options, layer", [
    (["--safe"], "--safe"), (["--safe", "--overlaynet-deny-all"], "--overlaynet-deny-all"),
    (["--overlaynet-allow", "a.example"], "command line")])
def test_the_layer_is_named(world, options, layer):
    world.pvisor("run", *options, "--", "true")
    answer, = why(world, "last", "www.example.com")
    assert answer["refused"] and answer["layer"] == layer


def test_groups_and_grants_are_named(world):
    world.pvisor("run", "--safe", "--", "true")
    text = world.pvisor("why", "last", "registry.npmjs.org:443").out
    assert "--overlaynet-allow @npm" in text
    world.pvisor("run", "--safe", "--overlaynet-allow", "@npm", "--", "true")
    answer, = why(world, "last", "registry.npmjs.org:443")
    assert not answer["refused"] and answer["rule"] == "registry.npmjs.org:443 of @npm"
    assert not why(world, "last", "host.pvisor.internal")[0]["allow_with"].endswith("@npm")


def test_a_path_is_told_as_the_job_sees_it(pvisor, workspace, environment, home):
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "id").write_text("secret")
    (home / "notes").write_text("mine")
    (workspace / "file").write_text("x")
    paths = [workspace / "file", home / ".ssh" / "id", home / "notes", "/etc/shadow", "/usr/bin/env", "/srv/nothing"]
    program = "import os, sys; [print(int(os.path.exists(p)), int(os.access(p, os.W_OK))) for p in sys.argv[1:]]"
    seen = pvisor("run", "--safe", "--", "/usr/bin/python3", "-c", program, *map(str, paths), cwd=workspace).out.split()
    answers = json.loads(pvisor("why", "--json", "last", *map(str, paths), cwd=workspace).out)
    assert [str(int(not a["refused"])) for a in answers] == [*seen[:6:2], "0", seen[8], seen[10]]
    assert "staged" in answers[0]["what"] and "~/.ssh" in answers[1]["what"] and "thrown away" in answers[2]["what"]
    assert "secret" in answers[3]["what"] and "read-only" in answers[4]["what"]
    assert answers[5]["allow_with"].startswith("--mount /srv/nothing:read")
    assert {a["walls"] for a in answers} <= {"mounts", "mounts, Landlock"}
    store = json.loads(pvisor("why", "--json", "last", str(home / ".local/state/pvisor"), cwd=workspace).out)
    assert store[0]["refused"]
    relative = json.loads(pvisor("why", "--json", "last", "./file", "~/notes", cwd=workspace).out)
    assert [a["asked"] for a in relative] == [str(workspace / "file"), str(home / "notes")]
    bare = json.loads(pvisor("why", "--json", "file", "src/none", "example.com", cwd=workspace).out)
    assert [(a["kind"], a["asked"]) for a in bare] == [
        ("path", str(workspace / "file")), ("path", str(workspace / "src/none")), ("network", "example.com")]


def test_questions_that_are_none(world):
    world.pvisor("run", "--safe", "--", "true")
    for words in (["last", "a b"], ["last", "*.example.com"], ["last", "10.0.0.0/8"], ["last", "a:1-2"],
                  ["--last", "last", "a.example"]):
        world.pvisor("why", *words, code=2)
    world.pvisor("why", "nosuchjob", code=4)
