# SPDX-License-Identifier: Apache-2.0
"""What a person allows by group, by configuration file and while a job runs; what stays closed beside it."""
import contextlib
import json
import os
import signal
import subprocess

import pytest

from lib import jobs, outside

REFUSED, RESET = "ECONNREFUSED", "ECONNRESET"
SERVE = """
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Running:
    """A job that evaluates what it is asked, one expression at a time."""

    def __init__(self, world, environment, *options):
        command = world.command("run", *options, "--", "/usr/bin/python3", "-c", outside.PRELUDE + SERVE)
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def ask(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def echo(self, *where):
        return self.ask(f"attempt(lambda: echo(*{where!r}))[0]")

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        return self.process.stderr.read()


@pytest.fixture
def running(world, environment):
    with contextlib.ExitStack() as stack:
        def start(*options):
            job = Running(world, environment, *options)
            stack.callback(job.process.wait)
            stack.callback(job.process.kill)
            assert job.ask("1 + 1") == 2
            return job
        yield start


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


def last_bundle(environment):
    return jobs.bundle(jobs.job_dirs(environment)[-1])


# ---- grants while it runs ----

def test_a_grant_holds_at_once_for_what_it_names_and_for_nothing_else(world, environment, running):
    job = running("--safe")
    assert job.echo("www.example.com") == "no name" and job.echo("11.22.33.3") == REFUSED
    world.pvisor("allow", "last", "www.example.com:7")
    assert job.echo("www.example.com") == "ok"
    assert job.echo("www.example.com", 80) == REFUSED
    assert job.echo("other.test") == "no name" and job.echo("11.22.33.3") == REFUSED
    world.pvisor("allow", "last", "11.22.33.3:7", "[2a01:5f::2]:7", "host.pvisor.internal:31337")
    assert job.echo("11.22.33.3") == job.echo("2a01:5f::2") == job.echo("host.pvisor.internal", 31337) == "ok"
    assert job.echo("11.22.33.3", 31337) == REFUSED
    assert job.echo("host.pvisor.internal") == RESET  # 7 leads somewhere by name, but not by this one
    assert "other.test" in job.end()
    granted = last_bundle(environment)["network"]["granted"]
    assert [g["asked"] for g in granted] == [["www.example.com:7"],
                                             ["11.22.33.3:7", "[2a01:5f::2]:7", "host.pvisor.internal:31337"]]
    assert sum(e["event"] == "network.granted" for e in jobs.events(jobs.job_dirs(environment)[-1])) == 2
    assert "www.example.com:7 (by you, while it ran)" in world.pvisor("review").out


def test_review_of_a_running_job_tells_what_was_refused_so_far_and_what_would_allow_it(world, running):
    job = running("--safe", "--name", "so-far")
    assert "Network" not in world.pvisor("review", "last").out
    assert job.echo("www.example.com") == job.echo("www.example.com") == job.echo("pypi.org", 443) == "no name"
    out = world.pvisor("review", "last").out
    assert "allow it with pvisor allow so-far www.example.com\n" in out
    assert "allow it with pvisor allow so-far pypi.org, or @pypi\n" in out
    world.pvisor("allow", "last", "www.example.com")
    out = world.pvisor("review", "last").out
    assert "granted  www.example.com (by you, while it ran)" in out and "allowed since" in out
    assert "allow so-far www.example.com" not in out and "allow so-far pypi.org" in out
    assert "(--overlaynet-allow pypi.org, or @pypi)" in job.end()


def test_a_grant_adds_to_an_allow_list_and_special_addresses_need_to_be_named(world, running):
    job = running("--safe", "--overlaynet-allow", "four.example.com")
    world.pvisor("allow", "last", "private.example.com", "meta.example.com")
    assert job.echo("private.example.com") == job.echo("meta.example.com") == RESET
    world.pvisor("allow", "last", "--allow-private-ips", "private.example.com")
    assert job.echo("private.example.com") == "ok" and job.echo("meta.example.com") == RESET
    world.pvisor("allow", "last", "169.254.169.254:7")
    assert job.echo("meta.example.com") == "ok"
    assert job.echo("four.example.com") == "ok" and job.echo("www.example.com") == "no name"


def test_a_grant_never_lifts_a_denial(world, running):
    job = running("--safe", "--overlaynet-allow", "four.example.com", "--overlaynet-deny", "*.test",
                  "--overlaynet-deny", "11.22.33.0/30:7")
    for target in ("other.test", "other.test:7", "*.test", "11.22.33.3:7"):
        result = world.pvisor("allow", "last", target, code=6)
        assert "denied by the rule" in result.err and "command line" in result.err
    world.pvisor("allow", "last", "*", "11.22.33.0/24")
    assert job.echo("www.example.com") == "ok" and job.echo("11.22.33.1", 31337) == "ok"
    assert job.echo("other.test") == "no name" and job.echo("11.22.33.1") == REFUSED


@pytest.mark.parametrize("options, why", [
    (["--safe", "--overlaynet-deny-all"], "--overlaynet-deny-all"),
    (["--safe", "--overlaynet", "off"], "host's own network"),
    (["--safe", "--overlaynet-deny-all", "--host-port", "31337"], "denied by the rule *"),
])
def test_a_job_without_rules_has_nothing_to_grant(world, running, options, why):
    running(*options)
    assert why in world.pvisor("allow", "last", "www.example.com", code=None).err
    assert world.pvisor("allow", "last", "www.example.com", code=None).code != 0


def test_what_is_no_target_is_refused_before_the_job_is_asked(world, running):
    job = running("--safe")
    for target in ("a b", "@nosuch", "host=www.example.com;rate=1mbps", "www.example.com:0"):
        world.pvisor("allow", "last", target, code=2)
    assert job.echo("www.example.com") == "no name"
    job.end()
    assert "does not run" in world.pvisor("allow", "last", "www.example.com", code=1).err


def test_nothing_inside_can_grant(world, environment, running, pv):
    """The command sees the whole host here, the job's control socket too: who it is decides, not what it sees."""
    job = running("--filesystem", "host", "--overlaynet-allow", "four.example.com")
    inside = job.ask(f"__import__('subprocess').run([{os.fspath(pv)!r}, 'allow', 'last', 'www.example.com'], "
                     "capture_output=True, text=True).returncode")
    assert inside != 0 and job.echo("www.example.com") == "no name"
    world.pvisor("allow", "last", "www.example.com")
    assert job.echo("www.example.com") == "ok"


def test_rules_cannot_be_changed_through_netlink_from_inside(world, running):
    """What the data plane may do from outside, by who it is, the command may not: it has no right over the namespace."""
    job = running("--safe")
    attempt = job.ask("attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12).close())[0]")
    assert attempt != "ok"


def test_the_offered_proxy_learns_of_grants_too(world, running):
    job = running("--overlaynet", "proxy", "--overlaynet-allow", "four.example.com")
    fetch = ("attempt(lambda: __import__('urllib.request').request.urlopen('http://www.example.com/', timeout=20)"
             ".read().decode().split()[0])[0]")
    assert job.ask(fetch) != "hello"
    world.pvisor("allow", "last", "www.example.com")
    assert job.ask(fetch) == "hello"


def test_without_the_data_plane_a_grant_fails_and_opens_nothing(world, running):
    job = running("--safe")
    plane, = [pid for pid in children(job.process.pid) if os.getsid(pid) == pid]  # it has a session of its own
    os.kill(plane, signal.SIGKILL)
    for _ in range(2):
        assert world.pvisor("allow", "last", "11.22.33.3", code=None, timeout=30).code != 0
    assert job.echo("11.22.33.3") == REFUSED


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_cannot_grant(world, running, environment, pv):
    job = running("--safe")
    as_nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    store = os.path.join(environment["HOME"], ".local/state/pvisor")
    result = world.pvisor("allow", jobs.job_dirs(environment)[-1].name, "www.example.com", code=None, wrap=as_nobody,
                          env={"PVISOR_HOME": store})
    assert result.code != 0 and job.echo("www.example.com") == "no name"
    world.pvisor("allow", "last", "www.example.com")
    assert job.echo("www.example.com") == "ok"


# ---- published while it runs ----

def test_a_port_is_published_while_it_runs(world, environment, running):
    port, other = world.free_port(), world.free_port()
    job = running("--safe")
    job.ask("globals().update(s=socket.create_server(('127.0.0.1', 3000))) or 1")
    reach = f"say(attempt(lambda: connect('127.0.0.1', {port}).recv(2).decode())[0])"
    assert world.directly(reach) == REFUSED
    world.pvisor("publish", "last", f"{port}:3000")
    client = subprocess.Popen(world.command()[:-1] + ["/usr/bin/python3", "-c", outside.PRELUDE + reach],
                              stdout=subprocess.PIPE)
    job.ask("s.accept()[0].sendall(b'hi') or 1")
    assert json.loads(client.communicate(timeout=30)[0]) == "hi"
    assert "in use" in world.pvisor("publish", "last", str(port), code=1).err
    assert world.directly(f"say(attempt(lambda: connect('127.0.0.1', {other}))[0])") == REFUSED
    job.end()
    assert world.directly(reach) == REFUSED
    granted = last_bundle(environment)["network"]["granted"]
    assert [(g["kind"], g["host_port"], g["port"]) for g in granted] == [("publish", port, 3000)]
    assert f"127.0.0.1:{port} leads to its port 3000" in world.pvisor("review").out


# ---- a port of the host's ----

def test_a_port_of_the_hosts_loopback_is_the_jobs_own(world, environment):
    script = """
say([attempt(lambda: echo(host, port))[0] for host, port in (("127.0.0.1", 31337), ("::1", 31337), ("localhost", 31337),
     ("localhost", 5000), ("localhost", 7), ("host.pvisor.internal", 31337), ("www.example.com", 7))])
"""
    options = ["--host-port=31337", "--host-port=7:5000"]
    assert world.inside(options, script) == ["ok"] * 4 + [REFUSED, "no name", "no name"]
    flows = last_bundle(environment)["network"]["flows"]
    assert ("host.pvisor.internal", 31337, "reached", 3) in [
        (f["target"], f["port"], f["state"], f["count"]) for f in flows]
    assert "host.pvisor.internal:31337" in world.pvisor("review").out
    assert world.inside([], script) == [REFUSED] * 5 + ["no name"] * 2


def test_a_denial_holds_for_a_port_of_the_hosts_too(world):
    script = 'say(attempt(lambda: echo("127.0.0.1", 31337))[0])'
    assert world.inside(["--host-port=31337", "--overlaynet-deny=host.pvisor.internal:31337"], script) == RESET
    for port in ("15128", "8053:53"):  # the proxy's own, the name server's
        world.pvisor("run", "--safe", "--host-port", port, "--", "true", code=2)
    world.pvisor("run", "--host-port", "80", "--overlaynet", "off", "--", "true", code=2)
    world.pvisor("run", "--host-port", "99999", "--", "true", code=2)


# ---- groups and the configuration file ----

def configure(environment, name, text):
    directory = os.path.join(environment["HOME"], ".config", "pvisor")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "w") as f:
        f.write(text)


THREE = 'say([attempt(lambda: echo(*where))[0] for where in (("www.example.com", 7), ("other.test", 7), ("11.22.33.2", 7))])'


def test_a_group_is_its_targets_and_off_until_it_is_named(world, environment, running):
    configure(environment, "groups.yaml", "work:\n  - www.example.com:7\n  - 11.22.33.2:7\n")
    assert world.inside([], THREE) == ["no name", "no name", REFUSED]
    assert world.inside(["@work"], THREE) == ["ok", "no name", "ok"]
    rules = last_bundle(environment)["network"]["rules"]["layers"][0]
    assert rules["groups"] == {"@work": ["www.example.com:7", "11.22.33.2:7"]}
    assert world.inside(["*", "--overlaynet-deny=@work"], THREE) == [RESET, "ok", REFUSED]
    job = running("--safe")
    world.pvisor("allow", "last", "@work")
    assert job.echo("www.example.com") == job.echo("11.22.33.2") == "ok" and job.echo("other.test") == "no name"
    assert "@npm" in world.pvisor("run", "--overlaynet-allow", "@nosuch", "--", "true", code=2).err


def test_rules_of_a_configuration_file_have_parts(world, environment):
    configure(environment, "config.yaml", """
overlaynet-allow:
  - four.example.com:7
  - host: www.example.com
    ports: [7, 8000-8010]
  - host: private.example.com
    ports: 7
    allow_private_ips: true
  - {host: other.test, transports: [udp]}
""")
    script = """
say([attempt(lambda: echo(*where))[0] for where in (("four.example.com", 7), ("www.example.com", 7),
     ("www.example.com", 31337), ("private.example.com", 7), ("other.test", 7), ("example.com", 7))])
"""
    assert world.inside([], script) == ["ok", "ok", REFUSED, "ok", RESET, "no name"]
    assert world.inside(["four.example.com"], script) == ["ok"] + ["no name"] * 5  # both must allow


def test_a_dry_run_shows_the_rules(world):
    out = world.pvisor("run", "--safe", "--overlaynet-allow", "@npm", "--overlaynet-deny", "bad.example", "--publish",
                       "8080:3000", "--host-port", "5432", "--dry-run", "--", "true").out
    assert "@npm" in out and "bad.example" in out and "its port 3000 at 127.0.0.1:8080" in out and "port 5432" in out
    assert "allows         nothing" in world.pvisor("run", "--safe", "--dry-run", "--", "true").out


def test_what_only_limits_or_denies_opens_nothing(world, environment):
    assert world.inside(["--overlaynet-limit=100mbps"], THREE) == ["no name", "no name", REFUSED]
    configure(environment, "config.yaml", "overlaynet-deny: [other.test]\noverlaynet-limit: 100mbps\n")
    assert world.inside([], THREE) == ["no name", "no name", REFUSED]
    assert world.inside(["*", "11.22.33.0/24"], THREE) == ["ok", "no name", "ok"]


@pytest.mark.parametrize("text, line, why", [
    ("safe: true\noverlaynet-allow:\n  - host: a.example\n    ports: [80, 0]\n", 3, "no port"),
    ("overlaynet-allow:\n  - a.example\n  - b c\n", 3, "not a host name"),
    ("overlaynet-deny:\n  - a.example\n  - {host: b.example, colour: red}\n", 3, "no such field"),
    ("overlaynet-allow:\n  - '@nosuch'\n", 2, "no such group"),
    ("overlaynet-limit: fast\n", 1, "not a rate"),
    ("publish:\n  - 8080:3000\n  - 1:2:3:4\n", 3, "HOSTPORT"),
    ("host-port: [x]\n", 1, "HOSTPORT"),
    ("pass-env:\n  - {host: a}\n", 2, "neither a value"),
])
def test_what_is_wrong_in_a_configuration_file_is_said_with_its_line(world, environment, text, line, why):
    configure(environment, "config.yaml", text)
    result = world.pvisor("run", "--", "true", code=2)
    assert f"config.yaml:{line}:" in result.err and why in result.err
