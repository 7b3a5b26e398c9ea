"""System packages that the tests need: browsers, a Vulkan driver, fonts. Installed by apt if that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from app.building.common import VENV_PYTHON, BuildError, heading, run_logged

_DISABLED_FEATURES = (
    # Popups of the address bar, each of them a page: 0.6 s of CPU time for every window.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    # Features that Playwright disables: this list replaces its own.
    *("AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay"),
    *("MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch"),
    *("TcpPortRandomizationWin", "ThirdPartyStoragePartitioning"),
)
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
)
"""The flags with which tests and benchmarks start it."""
WEBGPU_FLAG = "--enable-unsafe-webgpu"
"""Gives headless Chromium an adapter, SwiftShader if there is no GPU. Without it there is no adapter."""
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC_CHROMES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_VULKAN_DRIVERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _os_release() -> str:
    try:
        return Path("/etc/os-release").read_text()
    except OSError:
        return ""


def is_debian(or_like: bool = True) -> bool:
    """True for Debian itself, or, with `or_like`, for a system derived from it."""
    release = _os_release()
    lines = [line.replace('"', "") for line in release.splitlines()]
    if "ID=debian" in lines:
        return True
    return or_like and any(line.startswith("ID_LIKE=") and "debian" in line for line in lines)


def apt_install(*packages: str) -> None:
    """Install Debian packages (the caller has checked that this is Debian and that we are root)."""
    heading(f"apt-get install {' '.join(packages)}")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    failure = f"apt-get could not install {' '.join(packages)}"
    run_logged(["apt-get", "update"], failure, env=env)
    run_logged(["apt-get", "install", "-y", "--no-install-recommends", *packages], failure, env=env)


def find_chromium() -> Path | None:
    """A Chromium to test with: $SONATA_CHROMIUM, the system's, or the one Playwright downloaded."""
    if chosen := os.environ.get("SONATA_CHROMIUM"):
        if not Path(chosen).exists():
            raise BuildError(f"SONATA_CHROMIUM is {chosen}, but that file does not exist: correct it or unset it.")
        return Path(chosen)
    for name in CHROMIUM_NAMES:
        if found := shutil.which(name):
            return Path(found)
    for place in _MAC_CHROMES:
        if Path(place).exists():
            return Path(place)
    return _playwright_chromium()


def _playwright_chromium() -> Path | None:
    ask = "from playwright.sync_api import sync_playwright as p\nwith p() as w: print(w.chromium.executable_path)"
    if not VENV_PYTHON.exists():
        return None
    answer = subprocess.run([str(VENV_PYTHON), "-c", ask], capture_output=True, text=True)
    path = Path(answer.stdout.strip() or "/nowhere")
    return path if answer.returncode == 0 and path.is_file() else None


def ensure_chromium() -> Path:
    if found := find_chromium():
        return found
    if can_install():  # Ubuntu's package only installs a snap, which containers cannot run
        apt_install("chromium", "fonts-dejavu-core")
    else:
        heading("Chromium, Playwright's own download")
        with_system_libraries = ["--with-deps"] if is_debian() and is_root() else []
        command = [VENV_PYTHON, "-m", "playwright", "install", *with_system_libraries, "chromium"]
        if subprocess.run([str(word) for word in command]).returncode:
            raise BuildError(
                "No browser for the tests: install Chromium (Debian: `sudo apt install chromium`), "
                "or set SONATA_CHROMIUM to the one you have, and run this command again."
            )
    if found := find_chromium():
        return found
    raise BuildError("Chromium was installed but is not on the PATH: set SONATA_CHROMIUM to its program file.")


def find_firefox() -> Path | None:
    """A Firefox to test with: $SONATA_FIREFOX, or the system's."""
    chosen = os.environ.get("SONATA_FIREFOX")
    found = next((path for name in (chosen, "firefox-esr", "firefox") if name and (path := shutil.which(name))), None)
    return Path(found) if found else None


def find_webkit() -> tuple[Path, Path] | None:
    """WebKitGTK's driver and its small browser, if a display can be made for them."""
    driver, screen = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
    browser = next(Path("/usr").glob("lib*/*/webkit2gtk-4.1/MiniBrowser"), None)
    return (Path(driver), browser) if driver and screen and browser else None


def ensure_other_browsers() -> None:
    """On Debian, Firefox and WebKitGTK for the tests; elsewhere the tests use the installed ones."""
    if can_install() and not (find_firefox() and find_webkit()):
        apt_install("firefox-esr", "webkit2gtk-driver", "xvfb")


def can_install() -> bool:
    """True if this is Debian itself, and we are root."""
    return is_debian(or_like=False) and is_root()


def has_gpu() -> bool:
    return any(Path("/dev/dri").glob("renderD*")) or Path("/dev/nvidia0").exists()


def ensure_vulkan() -> None:
    """On Linux the native tests need a Vulkan driver: without a GPU, Mesa's software one."""
    if not sys.platform.startswith("linux"):
        return  # macOS has Metal, Windows Direct3D 12 with a software adapter
    if has_gpu() or any(any(Path(place).glob("lvp_icd*.json")) for place in _VULKAN_DRIVERS):
        return
    if is_debian() and is_root():
        apt_install("mesa-vulkan-drivers")
    else:
        raise BuildError(
            "There is no GPU and no software Vulkan driver for the tests: install mesa-vulkan-drivers "
            "(Debian, Ubuntu: `sudo apt install mesa-vulkan-drivers`) and run this command again."
        )
