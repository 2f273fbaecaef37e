# SPDX-License-Identifier: Apache-2.0
"""A small Internet in a network namespace of its own: lo carries the addresses, servers listen, a name server answers.

Nothing leads out of there, so that no packet can leave, whatever its address. As a program it is that world (Outside starts
it by unshare); tests run their commands in it by nsenter. Addresses of 11.22.33.0/24 and 2a01:5f::/64 stand for public ones.
"""
import hashlib
import http.server
import json
import os
import select
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

PUBLIC = ("11.22.33.1", "11.22.33.2", "11.22.33.3", "11.22.33.53", "2a01:5f::1", "2a01:5f::2")
OWN = ("11.22.44.1", "10.0.0.6", "2a01:5f:1::1")  # of an interface; what lo carries stands for others
SPECIAL = ("10.0.0.5", "192.168.7.7", "169.254.169.254", "203.0.113.9")
NAMES = {
    "www.example.com": ["11.22.33.1", "2a01:5f::1"],
    "four.example.com": ["11.22.33.1"],
    "six.example.com": ["2a01:5f::1"],
    "example.com": ["11.22.33.2"],
    "a.b.example.com": ["11.22.33.2"],
    "evilexample.com": ["11.22.33.3"],
    "other.test": ["11.22.33.3"],
    "xn--bcher-kva.example": ["11.22.33.1"],
    "private.example.com": ["10.0.0.5"],
    "private2.example.com": ["192.168.7.7"],
    "own.example.com": ["11.22.44.1"],
    "ownlan.example.com": ["10.0.0.6"],
    "own6.example.com": ["2a01:5f:1::1"],
    "meta.example.com": ["169.254.169.254"],
    "loop.example.com": ["127.0.0.1"],
    "loop6.example.com": ["::1"],
    "linklocal.example.com": ["fe80::1"],
    "mapped.example.com": ["::ffff:127.0.0.1"],
    "any.example.com": ["0.0.0.0"],
    "mixed.example.com": ["169.254.169.254", "11.22.33.1"],
    "rebind.example.com": [["11.22.33.1"], ["127.0.0.1"]],  # by turns
    "alias.example.com": "www.example.com",
    "empty.example.com": [],
    "broken.example.com": "SERVFAIL",
    "silent.example.com": "SILENCE",
    "unreachable.example.com": ["11.22.34.1"],  # no route in there
    "closed.example.com": ["11.22.33.2"],
}
HTTP, HTTPS, ECHO, RESET, ODD, HANG = 80, 443, 7, 9, 31337, 4444

# In front of every program that a test runs inside.
PRELUDE = """
import errno, json, os, socket, struct, sys, time
def attempt(act):
    "What came of it, and in how many seconds."
    start = time.monotonic()
    try:
        value = act()
        word = 'ok' if value is None else value
    except OSError as e:
        word = errno.errorcode.get(e.errno, str(e)) if not isinstance(e, socket.gaierror) else 'no name'
    return [word, time.monotonic() - start]
def connect(host, port, family=0):
    for af, kind, proto, _, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        s = socket.socket(af, kind, proto)
        s.settimeout(20)
        s.connect(address)
        return s
def echo(host, port=7, family=0):
    "ok when the far end answers: connect alone says nothing of it."
    s = connect(host, port, family)
    s.sendall(b'ping')
    return 'ok' if s.recv(4) == b'ping' else 'no answer'
def query(name, kind=1, server='11.22.33.53', tcp=False, edns=False, raw=None):
    q = struct.pack('!HHHHHH', 77, 0x100, 1, 0, 0, 1 if edns else 0) if raw is None else raw
    if raw is None:
        q += b''.join(bytes([len(l)]) + l.encode() for l in name.split('.') if l) + bytes(1) + struct.pack('!HH', kind, 1)
        if edns:
            q += bytes(1) + struct.pack('!HHIH', 41, 1232, 0, 0)
    family = socket.AF_INET6 if ':' in server else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(15)
    s.connect((server, 53))
    s.sendall(struct.pack('!H', len(q)) + q if tcp else q)
    a = s.recv(4096)
    return a[2:] if tcp else a
def say(value):
    print(json.dumps(value))
"""


class Outside:
    """The world, started; close() ends it with all its servers."""

    def __init__(self, directory, names=None):
        self.directory, self.ports = Path(directory), 20000
        self.directory.mkdir(parents=True, exist_ok=True)
        self.set_names(names or NAMES)
        root = os.geteuid() == 0
        user = [] if root else ["--user", "--map-current-user", "--keep-caps"]
        self.process = subprocess.Popen(
            ["unshare", *user, "--net", "--mount", "/usr/bin/python3", __file__, str(self.directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.directory / "errors", "w"))
        line = self.process.stdout.readline()
        if line.strip() != b"ready":
            raise OSError("no outside: " + (self.directory / "errors").read_text())
        entry = ["--net", "--mount"] if root else ["--user", "--preserve-credentials", "--net", "--mount"]
        self.prefix = ["nsenter", "--target", str(self.process.pid), *entry, "--wd=" + os.getcwd()]

    def set_names(self, names):
        part = self.directory / "names.part"
        part.write_text(json.dumps(names))
        part.rename(self.directory / "names.json")

    def command(self, args, cwd):
        return [*self.prefix[:-1], "--wd=" + os.fspath(cwd), *map(os.fspath, args)]

    def _lines(self, name):
        path = self.directory / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def free_port(self):
        """A port of loopback that nobody had before: below those that the kernel gives to connections."""
        self.ports += 1
        return self.ports

    def connections(self):
        """[[address, port], ...] that the servers accepted connections at."""
        return self._lines("connections")

    def questions(self):
        """[[name, type], ...] that the name server was asked."""
        return self._lines("questions")

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---- inside ----

class Log:
    def __init__(self, path):
        self.file, self.lock = open(path, "a", buffering=1), threading.Lock()

    def put(self, value):
        with self.lock:
            self.file.write(json.dumps(value) + "\n")


def read_name(message, at):
    labels = []
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("ascii", "replace"))
        at += 1 + message[at]
    return ".".join(labels), at + 1


def put_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


class NameServer:
    def __init__(self, directory, log):
        self.directory, self.log, self.turn = Path(directory), log, {}

    def addresses(self, names, name):
        value = names.get(name.lower())
        if isinstance(value, list) and value and isinstance(value[0], list):
            at = self.turn.get(name, 0)
            return value[at // 2 % len(value)], at  # A and AAAA are one turn
        return value, None

    def answer(self, message):
        name, end = read_name(message, 12)
        kind = struct.unpack("!H", message[end:end + 2])[0]
        self.log.put([name, kind])
        names = json.loads((self.directory / "names.json").read_text())
        value, at = self.addresses(names, name)
        if at is not None:
            self.turn[name] = at + 1
        if value == "SILENCE":
            return None
        records, code = [], 0
        if value is None:
            code = 3
        elif value == "SERVFAIL":
            code = 2
        elif isinstance(value, str):
            records.append((b"\xc0\x0c", 5, put_name(value)))
            records += [(put_name(value), *r) for r in self.records(names.get(value, []), kind)]
        else:
            records += [(b"\xc0\x0c", *r) for r in self.records(value, kind)]
        body = b"".join(owner + struct.pack("!HHIH", t, 1, 5, len(data)) + data for owner, t, data in records)
        return message[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(records), 0, 0) + message[12:end + 4] + body

    @staticmethod
    def records(addresses, kind):
        for a in addresses:
            six = ":" in a
            if kind == (28 if six else 1):
                yield kind, socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, a)

    def listen(self, address):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((address, 53))

        def serve():
            while True:
                message, peer = s.recvfrom(4096)
                answer = self.answer(message)
                if answer:
                    s.sendto(answer, peer)

        return serve


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_):
        pass

    def reply(self, body, code=200, kind="text/plain"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/big":
            self.big(int(query))
        elif path == "/events":
            self.events()
        elif path == "/upgrade":
            self.upgrade()
        elif path.startswith("/files/"):
            file = self.server.files / path[7:]
            if file.is_file():
                kinds = {"": "application/json", ".html": "text/html"}
                self.reply(file.read_bytes(), kind=kinds.get(file.suffix, "application/octet-stream"))
            else:
                self.reply(b"no such file\n", 404)
        else:
            self.reply(f"hello {self.headers.get('Host')} {self.path}\n".encode())

    def big(self, size):
        block = bytes(range(256)) * 1024
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        while size > 0:
            self.wfile.write(block[:min(size, len(block))])
            size -= len(block)

    def events(self):
        """Three, each of which is sent when a byte said that the one before was seen."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for i in range(3):
            self.wfile.write(f"data: {i}\n\n".encode())
            self.wfile.flush()
            self.rfile.read(1)

    def upgrade(self):
        self.send_response(101)
        self.send_header("Upgrade", "echo")
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.close_connection = True
        while True:
            data = self.rfile.readline()
            if not data:
                return
            self.wfile.write(data)

    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left > 0:
            data = self.rfile.read(min(left, 65536))
            if not data:
                return
            digest.update(data)
            left -= len(data)
        self.reply(digest.hexdigest().encode())


class Servers(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, request_queue_size, address_family = True, 4096, socket.AF_INET6


# Each of these listens already when it returns what serves it, so that the world is whole once they were called.

def listen_web(port, log, directory, context=None):
    class Logged(Web):
        def setup(self):
            super().setup()
            log.put([self.connection.getsockname()[0].removeprefix("::ffff:"), port])

    class Dual(Servers):
        def server_bind(self):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

        def handle_error(self, request, client_address):
            pass

        def get_request(self):
            raw, peer = self.socket.accept()
            if context:
                raw.settimeout(10)
                raw = context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            return raw, peer

    server = Dual(("::", port), Logged)
    server.files = Path(directory) / "files"
    return server.serve_forever


def listen_loop(port, log, handle):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    poller, peers = select.epoll(), {}
    listener.setblocking(False)
    poller.register(listener, select.EPOLLIN)

    def take():
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        log.put([peer.getsockname()[0].removeprefix("::ffff:"), port])
        if handle(peer, None):
            peers[peer.fileno()] = peer
            poller.register(peer, select.EPOLLIN)

    def hear(fd):
        peer = peers[fd]
        try:
            keep = handle(peer, peer.recv(65536))
        except OSError:
            keep = False
        if not keep:
            del peers[fd]
            poller.unregister(fd)
            peer.close()

    def serve():
        while True:
            for fd, _ in poller.poll():
                if fd == listener.fileno():
                    take()
                else:
                    hear(fd)

    return serve


def echo(peer, data):
    if data is None:
        return True
    if data:
        peer.sendall(data)
    return bool(data)


def listen_datagrams():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", ECHO))

    def serve():
        while True:
            data, peer = s.recvfrom(4096)
            s.sendto(data, peer)

    return serve


def reset(peer, _):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    return False


def hang(_peer, data):
    return data is None or bool(data)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make_certificate(directory):
    key, cert = directory / "key.pem", directory / "ca.pem"
    names = "DNS:www.example.com,DNS:four.example.com,DNS:example.com"
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=outside", "-addext", "subjectAltName=" + names, "-keyout", str(key), "-out", str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def main(directory):
    batch = ["link set lo up", *(f"addr add {a}{'/128' if ':' in a else '/32'} dev lo" for a in (*PUBLIC, *SPECIAL))]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(batch), text=True, check=True, stdout=subprocess.DEVNULL)
    veth = ["ip", "link", "add", "own0", "type", "veth", "peer", "name", "own1"]  # both ends are in here
    if subprocess.run(veth, stdout=subprocess.DEVNULL, check=False).returncode == 0:
        for a in OWN:
            run("ip", "addr", "add", *([a + "/128", "nodad"] if ":" in a else [a + "/32"]), "dev", "own0")
        run("ip", "link", "set", "own0", "up")
    resolver = directory / "resolv.conf"
    resolver.write_text("nameserver 11.22.33.53\noptions timeout:2 attempts:1\n")
    hosts = directory / "hosts"
    hosts.write_text("127.0.0.1 localhost\n::1 localhost\n11.22.33.2 from-hosts.test\n")
    switch = directory / "nsswitch.conf"
    switch.write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    for file, place in ((resolver, "resolv.conf"), (hosts, "hosts"), (switch, "nsswitch.conf")):
        real = os.path.realpath("/etc/" + place)
        if os.path.exists(real):
            run("mount", "--bind", str(file), real)
    (directory / "files").mkdir(exist_ok=True)
    log = Log(directory / "connections")
    names = NameServer(directory, Log(directory / "questions"))
    servers = [names.listen("11.22.33.53"), listen_web(HTTP, log, directory), listen_datagrams()]
    if shutil.which("openssl"):
        servers.append(listen_web(HTTPS, log, directory, make_certificate(directory)))
    servers += [listen_loop(port, log, handle)
                for port, handle in ((ECHO, echo), (RESET, reset), (ODD, echo), (HANG, hang))]
    for serve in servers:
        threading.Thread(target=serve, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    main(Path(sys.argv[1]))
