# SPDX-License-Identifier: Apache-2.0
"""A real coding agent, fetched once by npm; and a model for it that says what a test wrote down."""
import fcntl
import http.server
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

CODEX = "0.171.0"
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


class Unreachable(Exception):
    """The agent is not here and cannot be fetched; why."""


def codex(directory):
    """The path of codex, below this directory from then on: a static program, 300 MB with what it ships."""
    machine = MACHINES.get(platform.machine())
    place = Path(directory) / f"codex-{CODEX}"
    if machine and not (place / "codex").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the two halves of the suite fetch it once
            if not (place / "codex").exists():
                _fetch(place, f"@openai/codex@{CODEX}-linux-{machine}")
    if not machine:
        raise Unreachable(f"no codex for {platform.machine()}")
    return place / "codex"


def _fetch(place, package):
    if not shutil.which("npm"):
        raise Unreachable("no npm (apt-get install npm, or Node.js)")
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        command = ["npm", "pack", "--silent", "--cache", f"{work}/cache", "--fetch-retries", "1", package]
        try:
            subprocess.run(command, cwd=work, check=True, capture_output=True, timeout=300, stdin=subprocess.DEVNULL)
        except subprocess.SubprocessError as e:
            raise Unreachable(f"npm cannot be reached: {(getattr(e, 'stderr', None) or b'').decode()[-200:] or e}") from e
        made = Path(work) / "made"
        made.mkdir()
        with tarfile.open(next(Path(work).glob("*.tgz"))) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(("/bin/codex", "/codex-path/rg")):
                    with archive.extractfile(member) as source, open(made / Path(member.name).name, "wb") as target:
                        shutil.copyfileobj(source, target)
        for program in made.iterdir():
            program.chmod(0o755)
        os.rename(made, place)


class Model:
    """Serves the Responses API on the host's loopback: each turn is a shell command, or what the agent says at last.

    Before a turn that is a threading.Event the answer waits for it.
    """

    def __init__(self, *turns):
        self.turns, self.requests, self.asked = list(turns), [], threading.Semaphore(0)
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _answer(self, kind, text):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self._answer("application/json", b'{"data": [], "models": []}')

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._answer("text/event-stream", model._turn(request))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def _turn(self, request):
        number = len(self.requests)
        self.requests.append(request)
        self.asked.release()
        turn = self.turns.pop(0) if self.turns else "Done."
        while isinstance(turn, threading.Event):
            turn.wait(60)
            turn = self.turns.pop(0) if self.turns else "Done."
        if turn.startswith("$ "):
            item = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": "exec_command",
                    "arguments": json.dumps({"cmd": turn[2:]})}
        else:
            item = {"type": "message", "id": f"m{number}", "role": "assistant",
                    "content": [{"type": "output_text", "text": turn}]}
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}
        events = [{"type": "response.created", "response": {"id": f"r{number}"}},
                  {"type": "response.output_item.done", "output_index": 0, "item": item},
                  {"type": "response.completed", "response": {"id": f"r{number}", "usage": usage}}]
        return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()

    def outputs(self):
        """What the agent told the model of its commands, in the last request."""
        return [str(i.get("output")) for i in self.requests[-1]["input"] if i.get("type") == "function_call_output"]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
