"""Firefox and WebKit: a chat on the CPU, and a sentence about what is lost there. docs/guide/browsers.md has the
table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.building.system import can_install, find_firefox, find_webkit
from tests.page.plain_server import PlainServer
from tests.page.shell.web_driver import ENTER, Tab, firefox, webkit
from tests.page.small_site import SmallSite

QUERY = "?backend=wasm&workers=2&max_tokens=8"
READY = """() => {
  const { state } = document.documentElement.dataset;
  const problem = document.querySelector('#banner:not([hidden]) .banner-message')?.textContent ?? '';
  return ['ready', 'failed'].includes(state) && `${state} ${problem}`.trim();
}"""
ANSWERED = """() => document.documentElement?.dataset.state === 'ready'
  && document.querySelector('.answer .body')?.textContent.trim() && window.sonata.lastAnswer.newTokens"""


@pytest.fixture
def bare(tiny_files: SmallSite) -> Iterator[PlainServer]:
    """A server that does not send the site's headers: the service worker adds them, and loads the page again."""
    with PlainServer(tiny_files.folder) as server:
        yield server


@pytest.fixture
def files(bare: PlainServer) -> PlainServer:
    """A server that isolates the page."""
    bare.guards = True
    return bare


def answer(tab: Tab) -> int:
    """Type a message; returns the number of tokens of the answer."""
    assert tab.wait_for(READY) == "ready"
    tab.type("#message", f"Hello.{ENTER}")
    return tab.wait_for(ANSWERED)


def missing(what: str) -> None:
    """Fails if `build.py test` installs the browser here; otherwise there is none to test with."""
    if can_install():
        pytest.fail(f"There is no {what}: run `python build.py test` once, it installs it.")
    pytest.skip(f"{what} is not installed, and only on Debian does the build install it.")


def test_firefox_answers_with_several_workers(files: PlainServer) -> None:
    program = find_firefox()
    if program is None:
        return missing("Firefox")
    with firefox(program) as tab:
        tab.open(f"{files.url}/{QUERY}")
        assert answer(tab) > 0
        assert tab.evaluate("() => sonata.info.adapter") == "CPU, 2 workers, relaxed SIMD"
        assert tab.evaluate("() => sonata.info.notice") is None, "the model is kept"
        assert tab.console_errors() == []


@pytest.mark.all
def test_firefox_answers_also_when_the_server_is_gone(bare: PlainServer) -> None:
    program = find_firefox()
    if program is None:
        return missing("Firefox")
    with firefox(program) as tab:
        tab.open(f"{bare.url}/{QUERY}")
        assert answer(tab) > 0
        assert tab.evaluate("() => sonata.info.adapter") == "CPU, 2 workers, relaxed SIMD"
        tab.wait_for("() => document.documentElement?.dataset.offline === 'ready'")
        bare.stop()
        tab.open(f"{bare.url}/{QUERY}")
        assert answer(tab) > 0
        assert tab.console_errors() == []


@pytest.mark.all
def test_webkit_answers_with_one_worker_and_says_what_it_lacks(files: PlainServer) -> None:
    programs = find_webkit()
    if programs is None:
        return missing("WebKitGTK")
    with webkit(*programs) as tab:
        tab.open(f"{files.url}/{QUERY}")
        assert answer(tab) > 0
        if tab.evaluate("() => typeof SharedArrayBuffer") == "undefined":
            reason = tab.evaluate("() => JSON.stringify(sonata.info.reason)")
            assert "This browser shares no memory between workers, so only one of them answers, more slowly." in reason
        tab.evaluate("() => document.getElementById('model-chip').click()")
        empty = "() => { const menu = document.getElementById('model-menu');"
        empty += " return menu.offsetHeight - menu.querySelector('#models-button').offsetTop; }"
        assert tab.evaluate(empty) < 100, "the menu is as high as what is in it"
        if tab.evaluate("() => typeof FileSystemFileHandle") == "undefined":
            assert "each visit downloads the model again" in tab.evaluate("() => sonata.info.notice.text")
