#!/usr/bin/env python3
"""What users see who get something wrong, in each language: .ci/toolchains with .ci/bad-input.py QUARRY [LANGUAGE...]

Makes projects by `quarry new`, breaks them as tests/bad-input/cases.py says, and looks at what `quarry build`, `verify`, `dev` and `call` make of it.
"""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/bad-input"))
sys.dont_write_bytecode = True

import cases  # noqa: E402

# npm packages that were installed for an example of the same tools.
PACKAGES = ROOT / "examples/kv-ts/node_modules"
DEADLINE_SECONDS = 300
CALL_SECONDS = 60


class Failure(Exception):
    """What was not as it has to be."""


class Bench:
    """The program, and a folder with a fresh project of each language."""

    def __init__(self, quarry, folder):
        self.quarry, self.folder = quarry, folder
        self.env = {**os.environ, "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR_GUESTS", str(ROOT / "target/guests")), "NO_COLOR": "1"}
        self.bases = {}

    def project(self, language, name):
        """A copy of a fresh project, as large as its sources are."""
        if language not in self.bases:
            base = self.folder / f"base-{language}"
            sdk = ["--sdk-path", str(ROOT / "guest-sdk")] if language == "rust" else []
            self.run(["new", str(base), "--lang", language, *sdk], expected=0)
            if language in ("js", "ts"):
                modules = base / "node_modules"
                modules.mkdir()
                for package in PACKAGES.iterdir():
                    if package.name not in (".package-lock.json", ".stamp", "quarry-guest"):
                        (modules / package.name).symlink_to(package)
                (modules / "quarry-guest").symlink_to("../quarry_guest")
            self.bases[language] = base
        made = self.folder / name
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(self.bases[language], made, symlinks=True)
        # Cargo takes two projects of one name for one: this one is newer than what it built of the other.
        (made / cases.SOURCES[language][0]).touch()
        return made

    def run(self, words, expected, env=None):
        ran = subprocess.run([self.quarry, *words], env=env or self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        if ran.returncode != expected:
            raise Failure(f"`quarry {' '.join(words)}` ended with {ran.returncode}, not {expected}\n{ran.stdout}{ran.stderr}")
        return ran


def in_order(parts, text):
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            raise Failure(f"{part!r} is not said{', or not behind the others' if part in text else ''}:\n{text}")
        at = found + len(part)


def builds(bench, language):
    for case in cases.BUILDS:
        if case.language != language:
            continue
        with told(language, case.what):
            project = bench.project(language, f"build-{language}")
            case.change(project)
            said = bench.run(["build", str(project)], case.exit).stderr
            in_order(case.says, said)
            last = said.rstrip().splitlines()[-1]
            if not last.startswith("error: ") or "Traceback" in last:
                raise Failure(f"the last line is no error of ours:\n{said}")
            error = json.loads(bench.run(["build", str(project), "--json"], case.exit).stderr.rstrip().splitlines()[-1])["error"]
            if case.compiled:
                in_order(case.says[:1], error["output"])
            elif "output" in error:
                raise Failure(f"an output of no compiler: {error}")


def tools(bench, language):
    for number, case in enumerate(cases.TOOLS):
        if case.language != language:
            continue
        with told(language, case.what):
            project = bench.project(language, f"tool-{language}")
            path = bench.folder / f"bin-{number}"
            path.mkdir()
            for tool in ("sh", "env", "bash", *case.tools):
                real = shutil.which(tool, path=bench.env["PATH"])
                if real is None:
                    raise Failure(f"{tool} is not installed: see .ci/toolchains")
                (path / tool).symlink_to(real)
            for file, text in case.files.items():
                is_script = "." not in file
                (path / file).write_text(f"#!/bin/sh\n{text}\n" if is_script else text)
                (path / file).chmod(0o755 if is_script else 0o644)
            env = {name: value for name, value in bench.env.items() if name not in ("VIRTUAL_ENV", "WASI_SDK_PATH")}
            env.update(PATH=str(path), **{name: value.format(bin=path) for name, value in case.env.items()})
            in_order(case.says, bench.run(["build", str(project)], 1, env).stderr)


def versions(bench, language):
    """An older SDK, as far as this one's version lets one be made, and its way to this program's."""
    if language == "rust":
        return
    with told(language, "an SDK without a version"):
        project = bench.project(language, f"version-{language}")
        (project / "quarry_guest/VERSION").unlink()
        (project / "quarry_guest/mine.txt").write_text("mine")
        said = bench.run(["build", str(project)], 0).stderr
        in_order([f"warning: the SDK in {project}/quarry_guest has no VERSION", f"`quarry build --update-sdk {project}`"], said)
        said = bench.run(["build", "--update-sdk", str(project)], 0).stderr
        in_order(["is the SDK of", "target/quarry_guest.before"], said)
        if "warning" in said or (project / "quarry_guest/mine.txt").exists():
            raise Failure(f"it is not up to date:\n{said}")
        if (project / "target/quarry_guest.before/mine.txt").read_text() != "mine":
            raise Failure("what was changed is lost")
    with told(language, "unit tests of a new project"):
        ran = subprocess.run(cases.UNIT_TESTS[language], cwd=project, env=bench.env, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        if ran.returncode != 0:
            raise Failure(ran.stdout + ran.stderr)
    if language == "go":
        with told(language, "a panic at load is said by verify"):
            project = bench.project(language, "verify-go")
            cases.BREAKS["go"][1][0](project)
            component = bench.run(["build", str(project)], 0).stdout.splitlines()[0]
            in_order(["the guest failed when an instance of it was made", "not today"], bench.run(["verify", component], 1).stderr)


class Dev:
    """A `quarry dev` that runs, with what it says."""

    def __init__(self, bench, project):
        self.bench = bench
        self.process = subprocess.Popen(
            [bench.quarry, "dev", str(project), "--json", "--listen", "127.0.0.1:0"],
            env=bench.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.lines, self.said = queue.Queue(), []
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()
        self.url = self.event(lambda line: line.get("event") == "ready")["url"]

    def _read(self, stream):
        for line in stream:
            self.lines.put(line)
        self.lines.put(None)

    def event(self, wanted):
        """The next line of JSON that is wanted. What is no JSON is what compilers say."""
        until, ended = time.monotonic() + DEADLINE_SECONDS, 0
        while ended < 2:
            try:
                line = self.lines.get(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                ended += 1
                continue
            self.said.append(line)
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and wanted(found):
                return found
        raise Failure("what is waited for is not said:\n" + "".join(self.said[-60:]))

    def call(self, method, payload=b""):
        """A call by HTTP: the error's code and message, or None and the reply."""
        request = urllib.request.Request(f"{self.url}/v1/call/{method}?key=k", data=payload, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
                return None, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            problem = json.loads(error.read())
            return problem["code"], problem["detail"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(CALL_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def develops(bench, language):
    """`quarry dev` goes on with the last guest that worked, and says why."""
    with told(language, "quarry dev"):
        project = bench.project(language, f"dev-{language}")
        source = project / cases.SOURCES[language][0]
        whole = source.read_text()
        with Dev(bench, project) as dev:
            count = 0
            for change, says, mend in zip(*zip(*cases.BREAKS[language]), (cases.MENDS[language], lambda _: None)):
                count += 1
                counted = dev.call("increment")
                if counted != (None, str(count)):
                    raise Failure(f"it does not count to {count}: {counted}")
                change(project)
                failed = dev.event(lambda line: "error" in line)
                in_order([says], "".join(dev.said))
                dev.said.clear()
                if failed["error"]["code"] not in ("build", "failed"):
                    raise Failure(f"another error: {failed}")
                count += 1
                counted = dev.call("increment")
                if counted != (None, str(count)):
                    raise Failure(f"the last good one does not go on: {counted}")
                # Another component each time: of the one that runs already, nothing is said in JSON.
                source.write_text(whole)
                mend(project)
                dev.event(lambda line: line.get("event") == "reloaded")


def calls(bench, language):
    """Every method of the guest that gives something wrong: an error of its call, and the instance goes on."""
    main, guest = cases.SOURCES[language]
    if guest is None:
        return
    with told(language, "calls"):
        project = bench.project(language, f"calls-{language}")
        text = (ROOT / "tests/bad-input" / guest).read_text()
        (project / main).write_text(text)
        methods = [method for method in cases.CALLS if f'"{method}"' in text or f"'{method}'" in text or f"  {method}: " in text]
        with Dev(bench, project) as dev:
            alive, wrong = 0, []
            for method in [*methods, "no-such-method"]:
                expected = cases.CALLS[method]
                if isinstance(expected, dict):
                    expected = expected.get(language, expected.get("*"))
                found = dev.call(method, b"\xff\xfe")
                if expected is None or found[0] != expected[0] or expected[1] not in found[1]:
                    wrong.append(f"{method}: {found}, not {expected}")
                alive = 1 if method in cases.ENDS else alive + 1
                lives = dev.call("alive")
                if lives != (None, str(alive)):
                    wrong.append(f"{method}: the instance did not go on: {lives}, not {alive}")
                    alive = int(lives[1]) if lives[0] is None else 0
            if wrong:
                raise Failure("\n".join(wrong))
            # As a user sees it.
            ran = bench.run(["call", "key-empty", "--key", "k", "--server", dev.url], 4)
            in_order(["a key cannot be empty"], ran.stderr)
        print(f"bad-input: {language}: {len(methods) + 1} calls", flush=True)


class told:
    """Says of a failure where it was."""

    failures = 0
    count = 0

    def __init__(self, language, what):
        self.where = f"{language}: {what}"

    def __enter__(self):
        told.count += 1

    def __exit__(self, kind, error, trace):
        if not isinstance(error, (Failure, AssertionError, OSError, subprocess.TimeoutExpired)):
            return False
        told.failures += 1
        print(f"bad-input: {self.where}: {error}", file=sys.stderr, flush=True)
        return True


def main():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK) or not set(sys.argv[2:]) <= set(cases.SOURCES):
        sys.exit(f"{__doc__}\nlanguages: {', '.join(cases.SOURCES)}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(sys.argv[1]), Path(folder).resolve())
        for language in sys.argv[2:] or cases.SOURCES:
            parts = [builds, tools, versions, calls, develops]
            # TypeScript has the same engine and SDK, and each component of it takes its time to make.
            if language == "js" and not sys.argv[2:]:
                parts = [builds, tools, calls]
            for part in parts:
                begun = time.monotonic()
                part(bench, language)
                print(f"bad-input: {language}: {part.__name__} took {time.monotonic() - begun:.0f} s", flush=True)
    if told.failures:
        sys.exit(f"bad-input: {told.failures} of {told.count} cases are not as they have to be")
    print(f"bad-input: all {told.count} cases are as they have to be")


main()
