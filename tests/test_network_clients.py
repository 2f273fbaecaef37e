# SPDX-License-Identifier: Apache-2.0
"""Programs that people use, as they are, against servers of the test: under --safe with the one rule that they need."""
import getpass
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
import zipfile

import pytest

from conftest import pv_skip
from lib import outside

NAME = ["www.example.com"]


@pytest.fixture
def files(world):
    path = world.directory / "files"
    return path


@pytest.fixture
def certificate(world, plain):
    if not (world.directory / "ca.pem").exists():
        pv_skip("no openssl for a certificate")
    return shutil.copy(world.directory / "ca.pem", plain / "ca.pem")


@pytest.fixture
def repository(files, run):
    path = files / "repository.git"
    if not path.exists():
        work = files / "work"
        run(["git", "init", "-q", work])
        (work / "hello.txt").write_text("hello\n")
        run(["git", "-C", work, "add", "."])
        assert run(["git", "-C", work, "commit", "-q", "-m", "first"]).code == 0
        run(["git", "clone", "-q", "--bare", work, path])
        run(["git", "-C", path, "update-server-info"])
    return path


def test_curl_by_tls(world, certificate):
    result = world.safe(NAME, ["curl", "-sS", "--cacert", certificate, "https://www.example.com/a"])
    assert result.out == "hello www.example.com /a\n"
    assert world.safe(["other.test"], ["curl", "-sS", "--cacert", certificate, "https://www.example.com/"],
                      code=None).code == 6


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_git_clones_over_http(world, repository, certificate, scheme):
    command = ["git", "-c", f"http.sslCAInfo={certificate}", "clone", "-q",
               f"{scheme}://www.example.com/files/repository.git", "/tmp/clone"]
    result = world.safe(NAME, ["sh", "-c", '"$@" && cat /tmp/clone/hello.txt', "sh", *command])
    assert result.out == "hello\n"
    assert world.safe(["other.test"], command, code=None).code == 128


@pytest.fixture
def ssh_server(world, outside_world, plain, run):
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if not sshd:
        pv_skip("no sshd")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    place = world.directory / "ssh"
    if not place.exists():
        place.mkdir(mode=0o700)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
        (place / "config").write_text(f"""
Port 2222
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
""")
    process = subprocess.Popen(outside_world.command([sshd, "-D", "-e", "-f", place / "config"], place),
                               stderr=open(place / "log", "w"))
    shutil.copy(place / "user", plain / "key")
    os.chmod(plain / "key", 0o600)
    deadline = time.monotonic() + 30
    while "listening" not in (place / "log").read_text():
        assert process.poll() is None and time.monotonic() < deadline, (place / "log").read_text()
        time.sleep(0.05)
    yield ["ssh", "-F", "none", "-i", str(plain / "key"), "-p", "2222", "-o", "StrictHostKeyChecking=no",
           "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
    process.terminate()
    process.wait()


def test_ssh_and_git_over_ssh(world, ssh_server, repository):
    who = f"{getpass.getuser()}@www.example.com"
    if world.run([*ssh_server, who, "true"]).code:
        pv_skip("sshd does not let this user in")
    rules = ["www.example.com:2222"]
    assert world.safe(rules, [*ssh_server, who, "echo from far"]).out == "from far\n"
    assert world.safe(["www.example.com:22"], [*ssh_server, who, "true"], code=None).code == 255
    clone = ["git", "-c", "core.sshCommand=" + " ".join(ssh_server), "clone", "-q", f"{who}:{repository}", "/tmp/clone"]
    result = world.safe(rules, ["sh", "-c", '"$@" && cat /tmp/clone/hello.txt', "sh", *clone])
    assert result.out == "hello\n", result.err


def test_ssh_keeps_a_large_transfer_whole(world, ssh_server):
    who = f"{getpass.getuser()}@www.example.com"
    if world.run([*ssh_server, who, "true"]).code:
        pv_skip("sshd does not let this user in")
    script = "head -c 20000000 /dev/zero | \"$@\" sha256sum"
    result = world.safe(["www.example.com:2222"], ["sh", "-c", script, "sh", *ssh_server, who])
    assert result.out.split()[0] == hashlib.sha256(bytes(20000000)).hexdigest()


def test_pip_installs(world, files, plain):
    if world.run(["/usr/bin/python3", "-m", "pip", "--version"]).code:
        pv_skip("no pip")
    wheel = "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(files / wheel, "w") as z:
        z.writestr("tiny.py", "WORD = 'tiny'\n")
        z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("tiny-1.0.dist-info/RECORD", "")
    (files / "links.html").write_text(f'<!DOCTYPE html><html><body><a href="{wheel}">{wheel}</a></body></html>')
    command = ["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-index", "--trusted-host", "www.example.com",
               "--find-links", "http://www.example.com/files/links.html", "--target", "/tmp/out", "tiny"]
    script = '"$@" && PYTHONPATH=/tmp/out python3 -c "import tiny; print(tiny.WORD)"'
    assert world.safe(NAME, ["sh", "-c", script, "sh", *command]).out == "tiny\n"
    assert world.safe(["other.test"], command, code=None, env={"PIP_RETRIES": "0"}).code != 0


def test_npm_installs(world, files):
    if not shutil.which("npm", path="/usr/bin:/bin"):
        pytest.skip("no npm")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as t:
        for name, data in (("package.json", b'{"name": "tiny", "version": "1.0.0", "main": "i.js"}'),
                           ("i.js", b"module.exports = 'tiny'\n")):
            info = tarfile.TarInfo("package/" + name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    (files / "tiny-1.0.0.tgz").write_bytes(archive.getvalue())
    (files / "tiny").write_text(json.dumps({
        "name": "tiny", "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": {
            "tarball": "http://www.example.com/files/tiny-1.0.0.tgz",
            "shasum": hashlib.sha1(archive.getvalue()).hexdigest()}}}}))
    script = ("mkdir /tmp/p && cd /tmp/p && npm install --silent --no-audit --no-fund --no-update-notifier "
              "--registry http://www.example.com/files/ tiny && node -p \"require('tiny')\"")
    assert world.safe(NAME, ["sh", "-c", script]).out.endswith("tiny\n")


def test_an_apt_client_downloads(world, files):
    helper = "/usr/lib/apt/apt-helper"
    if not os.path.exists(helper):
        pytest.skip("no apt")
    (files / "some.deb").write_bytes(os.urandom(100000))
    command = ["sh", "-c", f"{helper} -o APT::Sandbox::User=root download-file http://www.example.com/files/some.deb "
               "/tmp/some.deb >&2 && sha256sum /tmp/some.deb"]
    result = world.safe(NAME, command)
    assert result.out.split()[0] == hashlib.sha256((files / "some.deb").read_bytes()).hexdigest()


@pytest.mark.parametrize("client", [
    'node -e "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t), e => process.exit(7))"',
    'perl -MIO::Socket::INET -e "\\$s = IO::Socket::INET->new(PeerAddr => \'www.example.com:80\') or exit 7; '
    'print \\$s \\"GET / HTTP/1.0\\r\\n\\r\\n\\"; print <\\$s>"',
    "bash -c 'exec 3<>/dev/tcp/www.example.com/80 && printf \"GET / HTTP/1.0\\r\\n\\r\\n\" >&3 && cat <&3'",
])
def test_resolvers_and_clients_of_several_kinds(world, client):
    if not shutil.which(client.split()[0], path="/usr/bin:/bin"):
        pytest.skip("no " + client.split()[0])
    command = ["sh", "-c", client + (" http://www.example.com/" if client.startswith("node") else "")]
    assert "hello" in world.safe(NAME, command).out
    assert world.safe(["other.test"], command, code=None).code != 0
