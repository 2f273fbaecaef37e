#!/usr/bin/env bash
# The main job on a small real project: an agent works unattended, a person looks, takes a part, takes it back.
# Run by ./dev demo with PVISOR set to the program just built. Leaves nothing behind.
set -euo pipefail

pvisor=${PVISOR:?set PVISOR to the pvisor program}
place=$(mktemp -d "${TMPDIR:-/var/tmp}/pvisor-demo.XXXXXX")
trap 'chmod -R u+rwX "$place" 2>/dev/null; rm -rf "$place"' EXIT
export HOME=$place/home PVISOR_HOME=$place/store NO_COLOR=${NO_COLOR-} PAGER=cat
unset XDG_STATE_HOME XDG_CONFIG_HOME GIT_DIR GIT_WORK_TREE
mkdir -p "$HOME/.ssh" "$place/shop"
echo 'PRIVATE KEY of the demo' >"$HOME/.ssh/id_ed25519"

bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
[ -t 1 ] && [ -z "$NO_COLOR" ] || bold='' dim='' plain=''
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
prompt() { # the command as a person would type it
        printf '%s$ pvisor' "$dim"
        printf ' %s' "$@"
        printf '%s\n' "$plain"
}
show() {
        prompt "$@"
        "$pvisor" "$@"
}

# A small project under git.
cd "$place/shop"
git init -q -b main .
git config user.name Demo && git config user.email demo@example.invalid
mkdir -p lib/old-name docs
printf 'def total(items):\n    return sum(items) + 1  # wrong\n' >lib/price.py
printf 'helper = 1\n' >lib/old-name/helper.py
printf 'Prices of a shop.\n' >docs/index.txt
printf 'obsolete\n' >docs/obsolete.txt
git add . && git commit -qm 'The shop'

# The "agent": useful work, and what nobody asked for.
cat >"$place/agent.sh" <<'AGENT'
printf 'def total(items):\n    return sum(items)\n' >lib/price.py
printf 'from lib.price import total\nassert total([1, 2]) == 3\n' >lib/price_test.py
mv lib/old-name lib/shared
rm docs/obsolete.txt
printf '#!/bin/sh\ntouch /tmp/owned\n' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
try() { what=$1; shift; if "$@" 2>/dev/null; then echo "  agent: $what: WORKED"; else echo "  agent: $what: refused"; fi; }
try 'read ~/.ssh/id_ed25519' cat ~/.ssh/id_ed25519
try 'write outside the project' sh -c 'echo x >>/etc/hosts'
try 'connect out' bash -c 'exec 3<>/dev/tcp/127.0.0.1/'"$PORT"
setsid -f sleep 4321
echo "  agent: left a daemon behind, done"
AGENT

# Somebody listens on the host's loopback, so that a refused connection is the boundary's doing.
exec {ready}< <(exec /usr/bin/python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(120)')
listener=$!
trap 'kill "$listener" 2>/dev/null; chmod -R u+rwX "$place" 2>/dev/null; rm -rf "$place"' EXIT
read -r PORT <&"$ready"
export PORT

say '1. An agent works unattended. Nothing lands in the project.'
show run --safe --mount "$place/agent.sh:/agent.sh:read" --pass-env PORT -- bash /agent.sh
printf '%s$ git status --short      (on the host)%s\n' "$dim" "$plain"
git status --short
if pgrep -f 'sleep 4321' >/dev/null; then echo 'the daemon lives'; else echo '(clean; and the daemon is dead)'; fi

say '2. What did it do? What needs attention? Which limits held?'
show review
show diff last lib/price.py

say '3. Take a part; take it back; take all that is safe; drop the rest.'
show apply last --path lib
show undo last
show apply last --all
git status --short
show drop last

say '4. The record: what the limits were, measured inside the sandbox.'
prompt status last --review --json
"$pvisor" status last --review --json | /usr/bin/python3 -c '
import json, sys
b = json.load(sys.stdin)
for name, value in b["safety"].items():
    if not isinstance(value, (list, dict)):
        print(f"  {name}: {json.dumps(value)}")
n = sum(len(o["probes"]) for o in b["executor_observations"])
print(f"  probes run inside the sandbox before the agent started: {n}")'
