"""Builds the component of a project: python3 quarry_guest/build.py --out FILE [--app MODULE] [--tool componentize-py].

`quarry build` runs it in the project's folder. The world of the component is made from what is used: of the host's interfaces those that the
guest's modules import through the SDK, and of the optional exports those that the guest defines. A guest with `wsgi` exports
`wasi:http/incoming-handler` too, and only its component imports anything of HTTP.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = "quarry:shard"
VERSION = "0.1.0"
#: As `wasi/` has it; the host takes any 0.2.
HTTP_VERSION = "0.2.10"
#: The version that this SDK was made for.
TOOL_VERSION = "0.25.1"
SDK = Path(__file__).resolve().parent

#: The least that a guest is.
EXAMPLE = "`@export`, and below it `class App(Guest):`"

#: Runs in a process of its own: loads the guest outside of a host, and says what it needs.
PROBE = """
import importlib, json, os, sys, traceback
home, sdk = os.getcwd(), sys.argv[2]
try:
    importlib.import_module(sys.argv[1])
    from quarry_guest import _guest, _wit
    guest = _guest.exported()
    found = {"imports": sorted(_wit.LOADED), "exports": _guest.interfaces(guest), "http": guest.wsgi is not None}
except BaseException as error:
    # Where in the files of the project; how they came to be imported is of no use.
    named = traceback.TracebackException.from_exception(error)
    own = [frame for frame in named.stack if frame.filename.startswith(home + os.sep) and not frame.filename.startswith(sdk + os.sep)]
    named.stack = traceback.StackSummary.from_list(own)
    sys.stderr.write("".join(named.format(chain=False)).replace(home + os.sep, ""))
    if getattr(error, "code", None) == "closed":
        sys.stderr.write("the guest asks the host while its modules are loaded, which happens when it is built; ask in `start` or in a handler\\n")
    sys.exit(1)
print(json.dumps(found))
"""
#: What installs the tool.
INSTALL = f"python3 -m venv .venv && .venv/bin/pip install componentize-py=={TOOL_VERSION}"


class Fault(Exception):
    """A fault of the project's, whose text says it all."""


def main() -> None:
    if sys.version_info < (3, 10):
        install = "apt-get install python3 python3-venv"
        raise Fault(f"the build needs Python 3.10 or later, and this is {sys.version.split()[0]}; install it with: {install}")
    parser = argparse.ArgumentParser(description="Builds the component of a project.")
    parser.add_argument("--out", type=Path, default=Path("target/guest.wasm"))
    parser.add_argument("--app", default="app", help="the module that exports the guest")
    parser.add_argument("--tool", default="componentize-py")
    args = parser.parse_args()
    home = Path.cwd()
    check_tool(args.tool)

    say("loading the guest")
    work = home / "target/quarry"
    shutil.rmtree(work, ignore_errors=True)
    staged = work / "python"
    stage(home, staged, args.app)
    found = probe(home, args.app)
    names = ["handler", *found["exports"]]
    wit = make_world([name.replace("_", "-") for name in found["imports"]], names, found["http"], work)
    classes = ", ".join("".join(part.title() for part in name.split("-")) for name in names)
    source = f"import {args.app}\nfrom quarry_guest._component import {classes}\n"
    if found["http"]:
        names.append("wasi:http/incoming-handler")
        source = f"from quarry_guest._incoming import IncomingHandler\n{source}"
    (staged / "quarry_component.py").write_text(source)

    say(f"making the component: {', '.join(names)}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    part = args.out.with_name(args.out.name + ".part")
    command = [args.tool, "-q", "-d", str(wit), "-w", "guest", "componentize", "-p", str(staged), *packages(home), "quarry_component"]
    ran = subprocess.run([*command, "-o", str(part)], env=environment(work), stdout=sys.stderr, check=False)
    if ran.returncode != 0 or not part.exists():
        raise Fault("componentize-py failed; what it said stands above")
    # Whole or not at all: `quarry dev` may be reading the one before.
    os.replace(part, args.out)


def check_tool(tool: str) -> None:
    try:
        said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Fault(f"{tool} cannot be run ({error}); install it with: {INSTALL}") from None
    version = (said.split() or ["of no version"])[-1]
    if numbers(version) < numbers(TOOL_VERSION):
        raise Fault(f"the build needs componentize-py {TOOL_VERSION} or later, and {tool} is {version}; install it with: {INSTALL}")
    if version != TOOL_VERSION:
        say(f"this SDK was made for componentize-py {TOOL_VERSION}, and {tool} is {version}")


def numbers(version: str) -> list[int]:
    """A version, to be compared. One that is none is older than any."""
    parts = version.split(".")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def stage(home: Path, staged: Path, app: str) -> None:
    """Copies what belongs into the component, so that nothing else of the project gets there."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc", "_testing", "testing.py", "build.py", "wit", "wasi", "py.typed", "README.md", "VERSION")
    package, module = home / app, home / f"{app}.py"
    if (package / "__init__.py").is_file():
        shutil.copytree(package, staged / app, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    elif module.is_file():
        staged.mkdir(parents=True)
        shutil.copy(module, staged)
    else:
        raise Fault(f"there is no {app}/__init__.py or {app}.py, which the guest begins with: {EXAMPLE}")
    shutil.copytree(SDK, staged / SDK.name, ignore=unwanted)


def probe(home: Path, app: str) -> dict[str, Any]:
    # Not the staged copy, which lacks the host for tests.
    path = [str(SDK.parent), *site_packages(home)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([sys.executable, "-c", PROBE, app, str(SDK)], capture_output=True, text=True, env=env, cwd=home, check=False)
    sys.stderr.write(ran.stderr)
    if ran.returncode != 0:
        raise Fault(f"the module `{app}` is no guest that can be loaded; why stands above")
    # What the guest prints while it is loaded comes before.
    return json.loads(ran.stdout.splitlines()[-1])


def make_world(imports: list[str], exports: list[str], is_http: bool, work: Path) -> Path:
    wit = work / "wit"
    shutil.copytree(part_of_sdk("wit"), wit / "deps/quarry-shard")
    lines = [f"  import {PACKAGE}/{name}@{VERSION};" for name in imports] + [f"  export {PACKAGE}/{name}@{VERSION};" for name in exports]
    if is_http:
        shutil.copytree(part_of_sdk("wasi"), wit / "deps", dirs_exist_ok=True)
        lines += [f"  import wasi:http/types@{HTTP_VERSION};", f"  export wasi:http/incoming-handler@{HTTP_VERSION};"]
    (wit / "world.wit").write_text("\n".join(["package quarry:project;", "", "world guest {", *lines, "}", ""]))
    return wit


def part_of_sdk(name: str) -> Path:
    """A folder that the SDKs of all languages share: inside of this one in a project, near it in the repository."""
    found = next((folder for folder in (SDK / name, SDK.parents[1] / name) if folder.is_dir()), None)
    if found is None:
        raise Fault(f"the SDK at {SDK} has no {name} folder")
    return found


def site_packages(home: Path) -> list[str]:
    """Pure Python packages of the project's own environment."""
    return [str(folder) for folder in sorted(home.glob(".venv/lib/python3*/site-packages"))]


def packages(home: Path) -> list[str]:
    return [argument for folder in site_packages(home) for argument in ("-p", folder)]


def environment(work: Path) -> dict[str, str]:
    # An environment without packages: componentize-py would take those of whatever environment it finds.
    empty = work / "no-environment"
    (empty / "lib/python3/site-packages").mkdir(parents=True)
    # Where componentize-py itself was when it failed is of no use to anybody who builds a guest.
    return {**os.environ, "VIRTUAL_ENV": str(empty), "RUST_BACKTRACE": "0"}


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        say(str(fault))
        sys.exit(1)
