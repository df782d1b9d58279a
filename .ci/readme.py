#!/usr/bin/env python3
"""Runs the README's commands, in order, in one shell, as a newcomer would paste them.

A block marked `sh` runs to its end; `# => TEXT` behind a command wants TEXT, as whole words, in what it prints. `sh server` starts a server, waits until
it answers and leaves it on until the next server block; `sh test` is run by .ci/run itself. Other blocks are for reading.
"""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

READY = "http://127.0.0.1:7070/ready"
SERVER_SECONDS = 1800  # the first one builds everything
BLOCK_SECONDS = 600


def blocks(text):
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```", text, re.M | re.S):
        yield match[1].strip(), match[2]


def ready():
    try:
        return urllib.request.urlopen(READY, timeout=2).status == 200
    except OSError:
        return False


class Shell:
    """One bash for all blocks, so that `cd`, `alias` and variables last."""

    def __init__(self):
        self.bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.bash.stdin.write("shopt -s expand_aliases\n")
        self.server = None

    def run(self, block):
        mark = f"__done_{time.monotonic_ns()}"
        self.bash.stdin.write(f"{block}\nstatus=$?; echo; echo {mark} $status\n")
        self.bash.stdin.flush()
        lines = []
        until = time.monotonic() + BLOCK_SECONDS
        for line in self.bash.stdout:
            if line.startswith(mark):
                if line.split()[1] != "0":
                    sys.exit(f"README: failed: {block}\n" + "".join(lines))
                return "".join(lines)
            lines.append(line)
            if time.monotonic() > until:
                sys.exit(f"README: took over {BLOCK_SECONDS} s: {block}")
        sys.exit("README: the shell ended\n" + "".join(lines))

    def serve(self, block):
        self.stop()
        out = self.run(f"{block.strip()} >/tmp/quarry-readme.log 2>&1 & echo server $!")
        self.server = int(re.search(r"server (\d+)", out)[1])
        until = time.monotonic() + SERVER_SECONDS
        while not ready():
            if time.monotonic() > until or not alive(self.server):
                sys.exit(f"README: the server did not come up: {block}\n" + open("/tmp/quarry-readme.log").read()[-4000:])
            time.sleep(0.2)

    def stop(self):
        if self.server is None:
            return
        for pid in children(self.server) + [self.server]:
            try:
                os.kill(pid, signal.SIGINT)
            except ProcessLookupError:
                pass
        until = time.monotonic() + 60
        while ready() and time.monotonic() < until:
            time.sleep(0.1)
        self.server = None


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(child) for child in out.split()]


def main():
    if ready():
        sys.exit("README: something listens on port 7070 already: stop it")
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    subprocess.run(["rm", "-rf", "/tmp/quarry-readme"], check=True)
    shell, commands = Shell(), 0
    try:
        with open("README.md", encoding="utf-8") as readme:
            for kind, block in blocks(readme.read()):
                if kind == "sh server":
                    print(f"README: serving: {block.strip()}", flush=True)
                    shell.serve(block)
                    commands += 1
                elif kind == "sh":
                    for line in filter(None, block.splitlines()):
                        wanted = re.search(r"# => (.*)$", line)
                        print(f"README: {line}", flush=True)
                        out = shell.run(line)
                        commands += 1
                        if wanted and not re.search(rf"(?<![\w.]){re.escape(wanted[1].strip())}(?![\w.])", out):
                            sys.exit(f"README: wanted {wanted[1]!r}, got:\n{out}")
    finally:
        shell.stop()
        shell.bash.kill()
    print(f"README: {commands} commands did what they say")


main()
