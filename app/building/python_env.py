"""The .venv: pinned packages, fetched by our own downloader into the cache, and installed from there without the
network."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.building.common import ROOT, VENV, VENV_BIN, VENV_PYTHON, BuildError, NoNetwork, heading, run_logged
from app.building.download import Download, Downloader, Source
from app.building.system import apt_install, is_debian, is_root
from app.models.http_range import SourceError, Unreachable

LOCKS = ROOT / "requirements"
_INSTALLING = VENV / ".installing"
_MAKE_ANEW = "delete the folder .venv and run this command again"
# Python compiles what it imports; pip would compile every file of every package, in three times the time.
_PIP = ("--disable-pip-version-check", "--no-input", "--no-compile")
_NO_NETWORK = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|Temporary failure|Name or service|unreachable")


def ensure_venv(cache: Path, downloader: Downloader, groups: tuple[str, ...] = ("runtime",)) -> None:
    """Make .venv with the packages of requirements/<group>.lock and `sonata` itself; quick if everything is there.

    A .venv that is incomplete, or was made for another place or Python, is made again.
    """
    if not _venv_works():
        _make_venv()
    for group in groups:
        lock = LOCKS / f"{group}.lock"
        stamp = VENV / f".{group}.stamp"
        wanted = _fingerprint(lock)
        if stamp.is_file() and stamp.read_text() == wanted:
            continue
        heading(f"Python packages ({group})")
        wheels = _ensure_wheels(lock, cache, downloader)
        _INSTALLING.touch()
        install: list[str | Path] = [VENV_PYTHON, "-m", "pip", "install", "--quiet", "--no-index", *_PIP]
        # --find-links in the user's own configuration could point to servers; here only the cache may be used
        env = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
        run_logged(
            [*install, "--no-deps", "--require-hashes", "--find-links", wheels, "-r", lock],
            "The Python packages could not be installed",
            _MAKE_ANEW,
            env,
        )
        if group == "runtime":
            run_logged(
                [*install, "--no-deps", "--no-build-isolation", "--editable", ROOT],
                "Sonata itself could not be installed into .venv",
                _MAKE_ANEW,
                env,
            )
        stamp.write_text(wanted)
        _INSTALLING.unlink()


def _fingerprint(lock: Path) -> str:
    """A digest that changes whenever the packages of this .venv must be checked again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    installed = [project["build-system"], project["project"], project["tool"]["setuptools"]]
    content = lock.read_bytes() + json.dumps(installed, sort_keys=True).encode()
    return f"{ROOT}\n{hashlib.sha256(content).hexdigest()}\n"


def _venv_works() -> bool:
    if not VENV_PYTHON.exists() or not (VENV / "pyvenv.cfg").exists() or _INSTALLING.exists():
        return False
    stamps = list(VENV.glob(".*.stamp"))
    if stamps:  # it was finished once, and is valid as long as it is not moved
        return all(stamp.read_text().startswith(f"{ROOT}\n") for stamp in stamps)
    check = [str(VENV_PYTHON), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
    try:
        return subprocess.run(check, capture_output=True).returncode == 0
    except OSError:
        return False


def _venv_version() -> str:
    """ "3.11" of the Python that .venv was made with, which may differ from the Python that runs build.py today."""
    config = (VENV / "pyvenv.cfg").read_text()
    version = re.search(r"^version(?:_info)? *= *(\d+\.\d+)", config, re.MULTILINE)
    return version[1] if version else "unknown"


def _make_venv() -> None:
    if VENV.is_symlink():
        raise BuildError(
            f"{VENV} is a link to {VENV.resolve()}, and making it again would empty that folder: remove the link and "
            "run this command again."
        )
    heading(f"Making {VENV}")
    if importlib.util.find_spec("ensurepip") is None:
        if not (is_debian() and is_root()):
            raise BuildError(
                "This Python cannot make virtual environments: install the package python3-venv "
                "(Debian, Ubuntu: `sudo apt install python3-venv`) and run this command again."
            )
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        apt_install(f"python{version}-venv", "python3-venv")
    run_logged(
        [sys.executable, "-m", "venv", "--clear", VENV],
        "The virtual environment .venv could not be made",
        _MAKE_ANEW,
    )


def _ensure_wheels(lock: Path, cache: Path, downloader: Downloader) -> Path:
    """Put every wheel of the lock that this machine needs into the cache; without the network if they are there
    already."""
    wheels = cache / "wheels"
    tag = f"python{_venv_version()}-{sysconfig.get_platform()}-{platform.libc_ver()[0]}"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    listing = wheels / f"{lock.stem}-{digest}-{tag}.json"
    hashes = _locked_hashes(lock)
    if listing.is_file():
        addresses = json.loads(listing.read_text())
    else:
        addresses = [
            {"name": name, "url": url, "sha256": sha256}
            for name, url, sha256 in _pip_report(
                [f"{requirement}\n" for requirement in hashes],
                f"The Python packages of {lock.name} could not be found for this machine",
            )
        ]
    for entry in addresses:
        known = {digest for requirement, digests in hashes.items() for digest in digests}
        if entry["sha256"] not in known:
            raise BuildError(
                f"{entry['name']} has a checksum that is not in {lock.relative_to(ROOT)}: "
                "the package index offers another file than the one tested; use another index or update the lock."
            )
        name = unquote(urlsplit(entry["url"]).path.rsplit("/", 1)[1])
        downloader.ensure(Download(wheels / name, entry["sha256"], (Source(url=entry["url"]),)))
    listing.write_text(json.dumps(addresses, indent=1))
    return wheels


def _locked_hashes(lock: Path) -> dict[str, list[str]]:
    """requirement line (with its marker) -> its sha256 values"""
    found: dict[str, list[str]] = {}
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            found[line.split("--hash", 1)[0].strip()] = re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
    return found


def pypi_address(source: Source) -> str:
    """The address of a package's file. It comes from pip, which knows the index that this machine uses."""
    try:
        ((_, url, _),) = _pip_report([f"{source.pypi}\n"], f"pip did not find {source.pypi}", source.pip)
    except NoNetwork as error:
        raise Unreachable("no connection") from error
    except BuildError as error:
        raise SourceError(str(error)) from error
    return url


def _pip_report(requirements: list[str], failure: str, options: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    """(name, address, sha256) of the file that pip would install for each requirement, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.txt")
        wanted.write_text("".join(requirements))
        report = Path(folder, "report.json")
        ask: list[str | Path] = [
            VENV_PYTHON,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--no-deps",
            "--quiet",
            *_PIP,
        ]
        ask += ["--retries=1", "--timeout=30", "--only-binary=:all:", "--ignore-requires-python"]
        # pip demands --target for another platform's files; nothing is written there.
        run_logged(
            [*ask, *options, "--target", Path(folder, "none"), "--report", report, "-r", wanted],
            failure,
        )
        items = json.loads(report.read_text())["install"]
    return [
        (item["metadata"]["name"], item["download_info"]["url"], _sha256(item["download_info"]["archive_info"]))
        for item in items
    ]


def _sha256(archive_info: dict[str, object]) -> str:
    """pip before 23 writes "hash": "sha256=...", later ones also "hashes"."""
    return str(archive_info.get("hash", "")).removeprefix("sha256=") or str(
        dict(archive_info.get("hashes", {})).get("sha256", "")  # type: ignore[call-overload]
    )


def venv_script(name: str) -> Path:
    return VENV_BIN / (f"{name}.exe" if os.name == "nt" else name)
