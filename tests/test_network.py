# SPDX-License-Identifier: Apache-2.0
"""What network rules hold: every way around them as a pair, refused under the rules and possible without them."""
import json
import shutil
import subprocess

import pytest

from conftest import pv_skip
from lib import jobs, outside

ANY = ["--overlaynet-allow=*"]
REFUSED = "ECONNREFUSED"
AT_ONCE = 2.0  # seconds; a busy machine included


def curl(world, rules, url, *options, code=None, **more):
    return world.safe(rules, ["curl", "-sS", "--max-time", "30", *options, url], code=code, **more)


def flows(environment):
    return jobs.bundle(jobs.job_dirs(environment)[-1])["network"]["flows"]


def target(environment, name, port=None):
    found = [f for f in flows(environment) if f["target"] == name and f["port"] == port]
    assert found, f"{name}:{port} is not among {flows(environment)}"
    return found[0]


# ---- names ----

@pytest.mark.parametrize("rule, url, reached", [
    ("www.example.com", "http://www.example.com/", True),
    ("www.example.com", "http://WWW.Example.COM./", True),
    ("WWW.EXAMPLE.COM.", "http://www.example.com/", True),
    ("www.example.com", "http://example.com/", False),
    ("example.com", "http://www.example.com/", False),
    ("*.example.com", "http://www.example.com/", True),
    ("*.example.com", "http://a.b.example.com/", True),
    ("*.example.com", "http://example.com/", False),
    ("*.example.com", "http://evilexample.com/", False),
    ("*.example.com", "http://www.example.com.other.test/", False),
    ("alias.example.com", "http://alias.example.com/", True),
    ("from-hosts.test", "http://from-hosts.test/", True),
    ("xn--bcher-kva.example", "http://b\u00fccher.example/", True),
    ("www.example.com:80", "http://www.example.com/", True),
    ("www.example.com:81-90", "http://www.example.com/", False),
    ("*", "http://other.test/", True),
    ("*:443", "http://other.test/", False),
])
def test_a_name_is_reached_when_a_rule_holds_it(world, rule, url, reached):
    before = len(world.connections())
    result = curl(world, [rule], url)
    assert (result.code == 0) == reached, result.err
    assert (len(world.connections()) > before) == reached


def test_deny_wins(world):
    rules = ["*.example.com", "--overlaynet-deny=www.example.com"]
    assert curl(world, rules, "http://www.example.com/").code == 6  # curl: could not resolve
    assert curl(world, rules, "http://four.example.com/").code == 0
    assert curl(world, ["--overlaynet-deny=www.example.com"], "http://other.test/").code == 0


def test_a_rule_that_is_not_ascii_is_refused_with_the_way_to_write_it(world):
    result = world.pvisor("run", "--overlaynet-allow", "b\u00fccher.example", "--", "true", code=2)
    assert "xn--" in result.err


# ---- by address ----

LITERALS = """
say({name: attempt(lambda: echo(*where)) for name, where in {
    "v4": ("11.22.33.1", 7), "odd port": ("11.22.33.1", 31337), "v6": ("2a01:5f::1", 7),
    "mapped": ("::ffff:11.22.33.1", 7, socket.AF_INET6), "private": ("10.0.0.5", 7), "metadata": ("169.254.169.254", 7),
}.items()})
"""


def test_addresses_are_refused_in_connect_when_only_names_are_allowed(world):
    before = len(world.connections())
    for name, (word, seconds) in world.inside(["www.example.com"], LITERALS).items():
        assert (name, word) == (name, REFUSED)
        assert seconds < AT_ONCE
    assert len(world.connections()) == before
    assert all(word == "ok" for word, _ in world.directly(LITERALS).values())


def test_addresses_are_reached_when_rules_hold_them(world):
    rules = ["11.22.33.0/24:1-10", "2a01:5f::/64", "10.0.0.0/8"]
    words = {name: word for name, (word, _) in world.inside(rules, LITERALS).items()}
    assert words == {"v4": "ok", "odd port": REFUSED, "v6": "ok", "mapped": "ok", "private": "ok",
                     "metadata": REFUSED}


def test_the_whole_internet_holds_no_special_address(world):
    words = {name: word for name, (word, _) in world.inside(["0.0.0.0/0", "::/0"], LITERALS).items()}
    assert words["v4"] == words["odd port"] == words["v6"] == words["mapped"] == "ok"
    assert words["private"] != "ok" and words["metadata"] != "ok"


SPECIAL_NAMES = ["private", "private2", "meta", "loop", "loop6", "linklocal", "mapped", "any"]
BY_NAME = """
say({name: attempt(lambda: echo(name + ".example.com")) for name in sys.argv[1:]})
"""


def test_names_that_lead_to_special_addresses_are_refused_before_a_connection_is_made(world, environment):
    before = len(world.connections())
    for name, (word, seconds) in world.inside(["*.example.com"], BY_NAME, *SPECIAL_NAMES).items():
        assert (name, word) == (name, "ECONNRESET")
        assert seconds < AT_ONCE
    assert len(world.connections()) == before
    assert "loopback" in target(environment, "loop.example.com", 7)["why"]
    assert target(environment, "private.example.com", 7)["allow_with"] == "--overlaynet-allow-private-ips"
    assert target(environment, "meta.example.com", 7)["allow_with"] is None
    assert "link-local" in target(environment, "meta.example.com", 7)["why"]


def test_private_addresses_can_be_allowed_and_others_not_along_with_them(world):
    rules = ["*.example.com", "--overlaynet-allow-private-ips"]
    words = {name: word for name, (word, _) in world.inside(rules, BY_NAME, *SPECIAL_NAMES).items()}
    assert {name for name, word in words.items() if word == "ok"} == {"private", "private2"}
    rules = ["*.example.com", "169.254.169.254"]
    words = {name: word for name, (word, _) in world.inside(rules, BY_NAME, *SPECIAL_NAMES).items()}
    assert {name for name, word in words.items() if word == "ok"} == {"meta"}


OWN_ADDRESSES = """
say({name: attempt(lambda: echo(name))[0] for name in
     ("own.example.com", "ownlan.example.com", "own6.example.com", "11.22.44.1", "2a01:5f:1::1", "11.22.33.1")})
"""


def own_addresses(world):
    words = set(world.directly(OWN_ADDRESSES).values())
    if words != {"ok"}:
        pv_skip(f"no interface but loopback's can be made here: {words}")


@pytest.mark.parametrize("rules", [["*"], ["*.example.com", "0.0.0.0/0", "::/0"], ["--overlaynet-deny=tracker.test"],
                                   ["*", "--overlaynet-allow-private-ips"]], ids=" ".join)
def test_the_machines_own_addresses_are_not_the_internet(world, environment, rules):
    """What listens there is behind no firewall for the machine itself."""
    own_addresses(world)
    words = world.inside(rules, OWN_ADDRESSES)
    assert {name for name, word in words.items() if word == "ok"} == {"11.22.33.1"}
    assert "an address of this machine" in target(environment, "own.example.com", 7)["why"]


def test_the_machines_own_addresses_are_reached_by_a_rule_by_address(world):
    own_addresses(world)
    words = world.inside(["*.example.com", "11.22.44.1", "2a01:5f:1::/64"], OWN_ADDRESSES)
    assert {name for name, word in words.items() if word == "ok"} == {"own.example.com", "own6.example.com", "11.22.44.1",
                                                                     "2a01:5f:1::1"}


def test_a_name_with_a_refused_and_a_good_address_is_reached_at_the_good_one(world):
    assert world.inside(["mixed.example.com"], BY_NAME, "mixed")["mixed"][0] == "ok"
    assert world.connections()[-1] == ["11.22.33.1", 7]


def test_a_name_that_changes_its_address_is_judged_anew(world):
    """Rebinding: the address inside stays, what it leads to is resolved and judged at every connection."""
    script = """
address = socket.getaddrinfo("rebind.example.com", 7, socket.AF_INET)[0][4]
first = attempt(lambda: echo(*address))
time.sleep(11)
say([first[0], attempt(lambda: echo(*address))[0], attempt(lambda: echo("rebind.example.com"))[0]])
"""
    assert world.inside(["rebind.example.com"], script) == ["ok", "ECONNRESET", "ECONNRESET"]


# ---- ways around ----

AROUND = """
def datagram(address, port, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.sendto(b"ping", (address, port))
    return "ok" if s.recv(100) == b"ping" else "no answer"
def vsock():
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
def icmp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b"\\x08" + bytes(7), ("11.22.33.1", 0))
say({
    "udp": attempt(lambda: datagram("11.22.33.1", 7)),
    "udp v6": attempt(lambda: datagram("2a01:5f::1", 7, socket.AF_INET6)),
    "raw": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).close()),
    "packet": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()),
    "vsock": attempt(vsock),
    "netfilter": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12).close()),
    "icmp": attempt(icmp),
    "sctp": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect(("11.22.33.1", 7))),
})
"""


@pytest.mark.parametrize("rules", [ANY, ["11.22.33.0/24", "2a01:5f::/64"]])
def test_what_is_neither_tcp_nor_dns_fails_at_once(world, rules):
    got = world.inside(rules, AROUND)
    for name, (word, seconds) in got.items():
        assert word != "ok" and seconds < AT_ONCE, (name, word, seconds)
    assert got["udp"][0] == got["udp v6"][0] == "ENETUNREACH"  # what programs understand
    without = world.directly(AROUND)
    assert without["udp"][0] == without["udp v6"][0] == "ok"


def test_changing_the_namespace_from_inside_is_refused(world):
    script = """
import ctypes, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def unshare(flags):
    if libc.unshare(flags) < 0:
        raise OSError(ctypes.get_errno(), "")
def address():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    message = struct.pack("=BBBBi", socket.AF_INET, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([11, 22, 33, 1]))
    s.send(struct.pack("=IHHII", 16 + len(message), 20, 0x605, 1, 0) + message)
    code = struct.unpack("=i", s.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, "")
def flush():
    done = subprocess.run(["/usr/sbin/nft", "flush", "ruleset"], capture_output=True)
    if done.returncode:
        raise OSError(1, "")
say({"netns": attempt(lambda: unshare(0x40000000))[0], "userns": attempt(lambda: unshare(0x10000000))[0],
     "address": attempt(address)[0], "flush": attempt(flush)[0],
     "still closed": attempt(lambda: echo("11.22.33.1"))[0], "still open": attempt(lambda: echo("www.example.com"))[0]})
"""
    got = world.inside(["www.example.com"], script)
    assert got.pop("still open") == "ok"
    assert got.pop("still closed") == REFUSED
    assert "ok" not in got.values(), got


def test_no_proxy_variable_is_in_the_way(world):
    env = {name: "http://127.0.0.1:1" for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY")}
    for options in (["--noproxy", "*"], []):
        assert curl(world, ["www.example.com"], "http://other.test/", *options, env=env).code != 0
        assert curl(world, ["www.example.com"], "http://www.example.com/", *options, env=env).code == 0
    assert curl(world, ["www.example.com"], "http://other.test/", env={"NO_PROXY": "*"}).code != 0


def test_a_static_program_is_held_too(world, plain):
    if not shutil.which("gcc"):
        pv_skip("no gcc for a static program")
    source = plain / "static.c"
    source.write_text("""
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int argc, char **argv)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[argc - 1])) };
        inet_pton(AF_INET, argv[1], &a.sin_addr);
        return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof a) < 0;
}
""")
    subprocess.run(["gcc", "-static", "-o", plain / "static", source], check=True)
    assert world.run(["./static", "11.22.33.3", "80"]).code == 0
    world.safe(["www.example.com"], ["./static", "11.22.33.3", "80"], code=1)
    world.safe(["11.22.33.3"], ["./static", "11.22.33.3", "80"], code=0)


def test_pvisors_own_ports_refuse_a_direct_connection(world):
    """All that listens inside belongs to pVisor; only the proxy may be talked to, and it asks the policy."""
    script = """
ports = {int(line.split()[1].split(":")[1], 16) for line in open("/proc/net/tcp").read().splitlines()[1:]
         if line.split()[3] == "0A"}
def talk(port):
    s = connect("127.0.0.1", port)
    s.sendall(b"CONNECT other.test:80 HTTP/1.1\\r\\n\\r\\n")
    return s.recv(12).decode()
say([attempt(lambda: talk(port))[0] for port in ports])
"""
    assert sorted(world.inside(["www.example.com"], script)) == [REFUSED, REFUSED, "HTTP/1.1 403"]


def test_the_sandbox_has_its_own_loopback(world):
    script = """
listener = socket.create_server(("127.0.0.1", 0))
mine = attempt(lambda: connect("127.0.0.1", listener.getsockname()[1]).close())[0]
say([mine, attempt(lambda: echo("127.0.0.1"))[0], attempt(lambda: echo("::1"))[0], attempt(lambda: echo("localhost"))[0]])
"""
    assert world.inside(ANY, script) == ["ok", REFUSED, REFUSED, REFUSED]
    assert world.directly(script) == ["ok"] * 4


def test_an_abstract_socket_of_the_host_is_out_of_reach(world):
    script = """
s = socket.socket(socket.AF_UNIX)
say(attempt(lambda: s.connect(sys.argv[1]))[0])
"""
    server = """
s = socket.socket(socket.AF_UNIX)
s.bind("\\0pvisor-test-" + str(os.getpid())); s.listen()
os.write(1, b"pvisor-test-%d\\n" % os.getpid())
s.accept(); s.accept()
"""
    command = world.command()[:-1] + ["/usr/bin/python3", "-c", outside.PRELUDE + server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        program = script.replace("sys.argv[1]", f"'\\0{name}'")
        try:
            assert world.inside(ANY, program) != "ok"
            assert world.directly(program) == "ok"
        finally:
            process.kill()


# ---- the host's loopback ----

def test_the_hosts_loopback_is_reached_by_its_name_and_only_at_the_ports_named(world):
    script = 'say([attempt(lambda: echo("host.pvisor.internal", p))[0] for p in (7, 31337)])'
    assert world.inside(["host.pvisor.internal:7"], script) == ["ok", REFUSED]
    assert world.inside(["*", "host.pvisor.internal:7"], script)[0] == "ok"
    assert "ok" not in world.inside(["*"], script)
    assert "ok" not in world.inside(["*.pvisor.internal"], script)
    assert "ok" not in world.inside(["host.pvisor.internal", "--overlaynet-deny=*:7", "--overlaynet-deny=*:31337"], script)


# ---- what it says ----

def test_what_was_refused_and_reached_is_told(world, environment):
    script = """
attempt(lambda: echo("www.example.com"))
attempt(lambda: echo("nobody.test"))
attempt(lambda: echo("11.22.33.3", 31337))
attempt(lambda: echo("2a01:5f::2", 31337))
say(0)
"""
    result = world.safe(["www.example.com"], ["/usr/bin/python3", "-c", outside.PRELUDE + script])
    assert "nobody.test" in result.err and "--overlaynet-allow nobody.test" in result.err
    assert "--overlaynet-allow 11.22.33.3:31337" in result.err
    assert "--overlaynet-allow [2a01:5f::2]:31337" in result.err
    reached = target(environment, "www.example.com", 7)
    assert (reached["state"], reached["count"], reached["bytes_out"], reached["bytes_in"]) == ("reached", 1, 4, 4)
    assert target(environment, "nobody.test")["count"] == 1
    bundle = jobs.bundle(jobs.job_dirs(environment)[-1])
    assert bundle["network"]["interception"] == "namespace"
    assert bundle["network"]["counters"]["refused"] == 3
    kinds = [(e["event"], e["end"], e["target"]) for e in jobs.events(jobs.job_dirs(environment)[-1])
             if e["event"].startswith("network.")]
    assert ("network.flow", "done", "www.example.com") in kinds
    assert ("network.name", "refused", "nobody.test") in kinds
    assert ("network.flow", "refused", "11.22.33.3") in kinds
    review = world.pvisor("review").out
    assert "refused" in review and "nobody.test" in review and "www.example.com:7" in review


@pytest.mark.parametrize("host, port, why", [
    ("closed.example.com", 5555, "Connection refused"),
    ("unreachable.example.com", 80, "unreachable"),
    ("broken.example.com", 80, "resolver failed"),
])
def test_a_far_end_that_cannot_be_reached_is_a_prompt_reset_with_the_reason_in_the_record(
        world, environment, host, port, why):
    script = f'say(attempt(lambda: echo("{host}", {port})))'
    word, seconds = world.inside(["*.example.com"], script)
    assert word in ("ECONNRESET", "no name")
    assert seconds < 12
    if word == "ECONNRESET":
        assert why in target(environment, host, port)["why"]


def test_a_server_that_resets_is_a_reset(world):
    word, _ = world.inside(["www.example.com"], 'say(attempt(lambda: connect("www.example.com", 9).recv(1) and 1))')
    assert word == "ECONNRESET"


# ---- modes ----

def test_the_levels_say_what_holds(world, environment):
    def run(*options, code=0):
        before = set(jobs.job_dirs(environment))
        world.pvisor("run", *options, "--", "true", code=code)
        bundle = jobs.bundle((set(jobs.job_dirs(environment)) - before).pop())
        levels = {o["control"]: o["level"] for o in bundle["executor_observations"] if o["dimension"] == "network"}
        return bundle["network"]["interception"], levels, bundle["safety"]["network_contained"]

    how, levels, contained = run("--overlaynet-allow", "www.example.com")
    assert how == "namespace" and levels["network-namespace"] == "enforced" and contained
    how, levels, contained = run("--safe", "--strict", "--overlaynet-allow", "www.example.com")
    assert contained
    how, levels, contained = run("--overlaynet", "proxy", "--overlaynet-allow", "www.example.com")
    assert how == "offered-proxy" and levels == {"http-proxy": "cooperative"} and not contained
    how, levels, contained = run("--overlaynet", "off")
    assert how is None and not contained


def test_deny_all_is_a_namespace_with_nothing_in_it(world):
    script = 'say([attempt(lambda: echo("11.22.33.1"))[0], attempt(lambda: query("www.example.com"))[0]])'
    got = world.inside(["--overlaynet-deny-all"], script)
    assert got == ["ENETUNREACH", "ENETUNREACH"]


@pytest.mark.parametrize("options", [
    ["--overlaynet", "off", "--overlaynet-allow", "a.test"],
    ["--overlaynet-deny-all", "--overlaynet-allow", "a.test"],
    ["--overlaynet-allow", "1.2.3"],
    ["--overlaynet-allow", "a..test"],
    ["--overlaynet-allow", "a.test:99999"],
    ["--overlaynet-allow", "10.0.0.0/33"],
    ["--overlaynet-limit", "fast"],
    ["--publish", "80:"],
])
def test_contradictions_and_typing_errors_are_refused(world, options):
    world.pvisor("run", *options, "--", "true", code=2)


def test_rules_of_the_configuration_are_a_layer_of_their_own(world, plain):
    config = plain / "rules.yaml"
    config.write_text(json.dumps({"overlaynet-allow": ["*.example.com"], "overlaynet-deny": ["four.example.com"]}))
    result = world.pvisor("run", "--config", config, "--overlaynet-allow", "www.example.com", "--overlaynet-allow",
                          "other.test", "--overlaynet-allow", "four.example.com", "--", "sh", "-c",
                          "for n in www.example.com other.test four.example.com; do curl -sS http://$n/ || true; done")
    assert "hello www.example.com" in result.out
    assert "hello other.test" not in result.out and "hello four" not in result.out
