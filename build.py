#!/usr/bin/env python3
"""Makes and runs Sonata: `python build.py serve`, `python build.py test`.

Needs Python 3.11 and nothing else; what is missing is made in .venv/, node_modules/, dist/ and the cache
($SONATA_CACHE, else ~/.cache/sonata). Run again, it makes only what changed, and needs no network.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said in a sentence instead of failing on an import below
    sys.exit("Sonata needs Python 3.11 or later; this is Python %d.%d." % sys.version_info[:2])  # noqa: UP031

import argparse
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from app.building import locks, node, python_env, system
from app.building.common import DISK_FULL, ROOT, VENV_PYTHON, BuildError, disk_full, heading, one_build_at_a_time
from app.building.download import Downloader
from app.building.embedder.files import fetch_multilingual
from app.building.larger_models import ensure_larger_model, larger_model_names
from app.building.packages import make_packages
from app.building.site.dist import DIST, MULTILINGUAL, build_site, ensure_protocol, made_files, total_bytes
from app.paths import cache_dir

TEST_WORKERS = min((os.cpu_count() or 1) + 1, 4)
"""Each has browsers, a software GPU and models of its own: some 2 GB of memory."""


def prepare(groups: tuple[str, ...] = ("runtime",), meanwhile: Callable[[], object] = lambda: None) -> None:
    """.venv, npm packages, downloads and dist/: makes what is missing or out of date.

    `meanwhile` is called once the packages are there, before the site is made.
    """
    cache = cache_dir()
    with one_build_at_a_time(cache):
        downloader = Downloader(cache, python_env.pypi_address)
        python_env.ensure_venv(cache, downloader, groups)
        node.ensure_node_modules(cache, downloader, dev="dev" in groups)
        meanwhile()
        if "dev" in groups:  # before the site, whose snapshot of Python is made in it
            heading(f"Browser: {system.ensure_chromium()}")
        heading("Model and Pyodide packages")
        files = made_files(cache, downloader)
        heading("Site")
        ensure_protocol()
        changed = build_site(files)
        size = total_bytes(DIST)
        heading(f"dist/ is up to date ({changed} files changed, {size / 1e6:.1f} MB without the model)")


def serve(options: argparse.Namespace) -> int:
    prepare()
    arguments = ["-m", "app.server.site", "--host", options.host, "--port", str(options.port)]
    arguments += [word for name in options.allow_name for word in ("--allow-name", name)]
    if options.api is not None:
        arguments[1:2] = [
            "app.cli.main",
            "serve",
            "--api",
            "--page",
            *(["--model", options.api] if options.api else []),
        ]
        for name in ("api_key", "allow_origin", "memory"):
            arguments += [word for value in getattr(options, name) for word in (f"--{name.replace('_', '-')}", value)]
    return _continue_with([*arguments, "--no-open"] if options.no_open else arguments)


def make_site(options: argparse.Namespace) -> int:
    prepare()
    return 0


def packages(options: argparse.Namespace) -> int:
    prepare()
    for path in make_packages(DIST):
        heading(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


def fetch_models(options: argparse.Namespace) -> int:
    cache = cache_dir()
    with one_build_at_a_time(cache):
        downloader = Downloader(cache, python_env.pypi_address)
        python_env.ensure_venv(cache, downloader, ("runtime",))
        for name in options.names:
            if name.lower() == MULTILINGUAL:
                fetch_multilingual(cache, downloader)
                heading("From now on each site has the multilingual embedder: `python build.py serve`")
                continue
            path = ensure_larger_model(cache, downloader, name)
            subprocess.run(
                [VENV_PYTHON, "-m", "app.cli.main", "models", "import", path, "--name", path.stem], cwd=ROOT, check=True
            )
    return 0


def lock(options: argparse.Namespace) -> int:
    locks.make_locks()
    return 0


def test(options: argparse.Namespace) -> int:
    checks: dict[str, list[subprocess.Popen[str]]] = {}
    prepare(("runtime", "dev"), meanwhile=lambda: checks.update(_started_checks()))
    system.ensure_other_browsers()
    system.ensure_vulkan()
    failed = []
    for name, running in checks.items():
        heading(name)
        for check in running:
            print(check.communicate()[0], end="", flush=True)
        if any(check.returncode for check in running):
            failed.append(name)
    arguments = list(options.pytest)
    everything = "--all" in arguments
    if everything:
        arguments.remove("--all")
    if not arguments:
        arguments = ["-n", str(TEST_WORKERS), "--dist=worksteal"]
        arguments += ["--cov=py_core", "--cov-fail-under=90"] if everything else []
    if everything:
        arguments = ["-m", "not long", *arguments]  # instead of pyproject.toml's "not all and not long"
    heading("pytest")
    code = subprocess.run([str(VENV_PYTHON), "-m", "pytest", *arguments], cwd=ROOT, env=_coverage_env()).returncode
    heading(f"pytest ended with {code}" + (f"; these failed before it: {', '.join(failed)}" if failed else ""))
    return code or int(bool(failed))


def _coverage_env() -> dict[str, str]:
    """coverage asks Python's own monitoring if there is one: its tracer doubles the time of Python that loops."""
    return {**os.environ, "COVERAGE_CORE": "sysmon"} if sys.version_info >= (3, 12) else dict(os.environ)


def _started_checks() -> dict[str, list[subprocess.Popen[str]]]:
    """They read the sources only, and compute while the site is made."""
    commands: dict[str, list[list[str | Path]]] = {
        "ruff check": [[VENV_PYTHON, "-m", "ruff", "check"]],
        "ruff format --check": [[VENV_PYTHON, "-m", "ruff", "format", "--check"]],
        "mypy": [[VENV_PYTHON, "-m", "mypy"]],
        "tsc --checkJs": node.type_checks(),
    }
    return {name: [_started(command) for command in several] for name, several in commands.items()}


def _started(command: Sequence[str | Path]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def clean(options: argparse.Namespace) -> int:
    """Remove what this folder can make again. The cache of downloads stays."""
    caches = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")
    for name in (".venv", "node_modules", "dist", "dist-packages", "build", *caches):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    heading(f"Removed .venv, node_modules, dist, dist-packages and the tools' caches; downloads stay in {cache_dir()}")
    return 0


def _continue_with(arguments: Sequence[str]) -> int:
    """Become .venv's Python, so that Ctrl-C reaches the server alone."""
    command = [str(VENV_PYTHON), *arguments]
    os.chdir(ROOT)
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.call(command)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="build.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="make what is missing and serve the site")
    serving.add_argument("--host", default="localhost", help="address to listen on (default: localhost)")
    serving.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    serving.add_argument(
        "--allow-name", action="append", default=[], metavar="NAME", help="a name that other machines call this one by"
    )
    serving.add_argument("--no-open", action="store_true", help="do not open the browser")
    serving.add_argument(
        "--api", nargs="?", const="", metavar="MODEL", help="answer other programs, too, as `sonata serve --api` does"
    )
    for name, value, about in (
        ("--api-key", "KEY", "a key that opens the API"),
        ("--allow-origin", "ORIGIN", "the origin of a page that may use the API"),
        ("--memory", "NAME", "a memory whose lessons answer requests that name it"),
    ):
        serving.add_argument(name, action="append", default=[], metavar=value, help=about)
    commands.add_parser("site", help="make what is missing, without serving it")
    commands.add_parser("packages", help="make the packages for your own code, in dist-packages/")
    testing = commands.add_parser("test", help="make what is missing, then run the checks and the gate's tests")
    testing.add_argument(
        "pytest",
        nargs="*",
        metavar="[--all] ...",
        help="--all: every test, with coverage; anything else goes to pytest (then one worker, no coverage)",
    )
    fetching = commands.add_parser(
        "models", help="fetch larger models, for benchmarks and long tests, or the embedder for other languages"
    )
    names = ", ".join((*larger_model_names(), MULTILINGUAL))
    fetching.add_argument("names", nargs="+", metavar="NAME", help=f"one of {names}")
    commands.add_parser("clean", help="remove what this folder can make again")
    commands.add_parser("lock", help="for maintainers: make the lock files again from pyproject.toml and package.json")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for_pytest: list[str] = []
    if arguments[:1] == ["test"] and arguments[1:2] not in (["-h"], ["--help"]):
        arguments, for_pytest = arguments[:1], arguments[1:]  # whatever they are, pytest knows them
    options = parser.parse_args(arguments)
    options.pytest = for_pytest
    # Else every process that is started here compiles whatever it imports: pip has compiled nothing of .venv.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run: dict[str, Callable[[argparse.Namespace], int]] = {
        "serve": serve,
        "site": make_site,
        "packages": packages,
        "test": test,
        "models": fetch_models,
        "clean": clean,
        "lock": lock,
    }
    try:
        return run[options.command](options)
    except BuildError as error:
        print(f"\n{error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nStopped; run the command again to continue.", file=sys.stderr)
    except OSError as error:
        place = Path(error.filename or ROOT)
        if error.errno in DISK_FULL:
            print(f"\n{disk_full(place, 'a file of the build')}", file=sys.stderr)
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            print(
                f"\n{place} cannot be written: make it yours (or set SONATA_CACHE to another folder).", file=sys.stderr
            )
        else:
            raise
    return 1


if __name__ == "__main__":
    sys.exit(main())
