# SPDX-License-Identifier: Apache-2.0
"""The end of each failure, for the end of a log: appended to the file that PV_TEST_FAILURES names, should there be one.

As a program it takes meson's testlog.json: failures.py NAME LOG notes what failed of these unit tests.
"""
import json
import os
import sys

LINES, COLUMNS = 14, 240


def shortened(text):
    """The last lines; of more than that which pytest has to say ("E ...") the first ones, too."""
    lines = [line[:COLUMNS] for line in text.splitlines() if line.strip()]
    said = next((i for i, line in enumerate(lines) if line.startswith("E ")), len(lines))
    if len(lines) - said <= LINES:
        return lines[-LINES:]
    return [*lines[said:said + LINES // 2], "...", *lines[-LINES // 2:]]


def note(title, text):
    """As soon as it is known: whoever is stopped later has told it. Many write, each at once."""
    block = "\n".join([f"\nFAILED {title}", *("    " + line for line in shortened(text))]) + "\n"
    try:
        # Not made here: in /tmp only its owner may open it so.
        fd = os.open(os.environ.get("PV_TEST_FAILURES", ""), os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    os.write(fd, block.encode(errors="replace"))
    os.close(fd)


def main(name, log):
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            test = json.loads(line)
            if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
                note(f"{test['name']} ({name}): {test['result']}", (test.get("stdout") or "") + (test.get("stderr") or ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
