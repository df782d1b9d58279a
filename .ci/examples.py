#!/usr/bin/env python3
"""Tries the examples as their READMEs tell a newcomer to: .ci/examples.py QUARRY [EXAMPLE...]

The `console` blocks of each README, in order, from the root of the checkout: a line behind `$ ` is run, and has to print what stands below it, where `...` is
anything. `quarry dev` runs until the next one. A command with `# once` behind it installs tools,
and has been run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
USUAL = ["ledger", "jobs", "presence", "ratelimit", "web", "views"]
LISTEN = os.environ.get("EXAMPLES_LISTEN", "127.0.0.1:7070")
UP_SECONDS = 600  # it builds the guest first
COMMAND_SECONDS = 120


class Server:
    """`quarry dev`, with what it says in a file."""

    def __init__(self, command, folder, env):
        self.command = command
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command} --listen {LISTEN}"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )

    def wait(self):
        until = time.monotonic() + UP_SECONDS
        while not ready():
            if self.process.poll() is not None or time.monotonic() > until:
                fail(f"{self.command} did not come up", self.said())
            time.sleep(0.2)

    def said(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            fail(f"{self.command} did not stop", self.said())


def ready():
    try:
        return urllib.request.urlopen(f"http://{LISTEN}/ready", timeout=2).status == 200
    except OSError:
        return False


def fail(what, seen):
    sys.exit(f"examples: {what}\n{seen}")


def commands(readme):
    """The commands of a README, each with the lines that it prints."""
    for block in re.findall(r"^```console\n(.*?)^```", readme, re.M | re.S):
        command, wanted = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command is not None:
                    yield command, wanted
                command, wanted = line[2:], []
            else:
                wanted.append(line)
        if command is not None:
            yield command, wanted


def fits(wanted, seen):
    pattern = "\n".join(".*".join(re.escape(part) for part in line.split("...")) for line in wanted)
    return re.fullmatch(pattern, seen.strip("\n"))


def readme(example, folder, env):
    with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
        told = list(commands(file.read()))
    if not any(command.startswith("quarry dev") for command, _ in told):
        fail(f"the README of {example} runs nothing", "")
    server, at, count = None, ROOT, 0
    try:
        for command, wanted in told:
            if re.search(r"# once\b", command):
                continue
            command = command.split("  #")[0].rstrip()
            print(f"examples: {example}: $ {command}", flush=True)
            count += 1
            if command.startswith("cd "):
                at = os.path.join(at, command[3:])
            elif command.startswith("quarry dev"):
                if server is not None:
                    server.stop()
                server = Server(command, at, env)
                server.wait()
            else:
                command = command.replace("127.0.0.1:7070", LISTEN)
                ran = subprocess.run(
                    ["bash", "-c", command], cwd=at, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=COMMAND_SECONDS
                )
                if not fits(wanted, ran.stdout):
                    said = "" if server is None else server.said()
                    fail(f"{example}: {command}\nhas to print\n" + "\n".join(wanted) + "\nand printed", f"{ran.stdout}{ran.stderr}\n{said}")
    finally:
        if server is not None:
            server.stop()
    return count


def main():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit(__doc__)
    if ready():
        fail(f"something listens on {LISTEN} already: stop it, or set EXAMPLES_LISTEN", "")
    with tempfile.TemporaryDirectory() as bin:
        os.symlink(os.path.abspath(sys.argv[1]), os.path.join(bin, "quarry"))
        # `curl` says nothing of its progress, as on a terminal.
        with open(os.path.join(bin, "curl"), "w", encoding="utf-8") as curl:
            curl.write(f'#!/bin/sh\nexec {shutil.which("curl")} --silent --show-error "$@"\n')
        os.chmod(os.path.join(bin, "curl"), 0o755)
        env = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "QUARRY_SERVER": f"http://{LISTEN}"}
        count = 0
        for example in sys.argv[2:] or USUAL:
            folder = os.path.join(ROOT, "examples", example)
            count += readme(example, folder, env)
    print(f"examples: {count} commands did what they say")


main()
