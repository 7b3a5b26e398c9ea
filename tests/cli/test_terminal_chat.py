"""`sonata chat` under a real terminal: keys go in, and the visible output comes out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli.adapters import base_at
from app.cli.home import opened_memory
from py_core.adapters.files import write_adapter
from py_core.store.passphrase import set_passphrase
from tests.cli.command_line import SONATA, sonata
from tests.tiny.adapters import drawn

pytestmark = pytest.mark.usefixtures("fast_routing")

CTRL_C, CTRL_D = b"\x03", b"\x04"
PROMPT = "\n> "
STUCK_AFTER = 120


class Terminal:
    """A pseudo-terminal with `sonata chat` in it."""

    def __init__(self, *options: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [str(SONATA), "chat", "--backend", "numpy", *options],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, close_fds=True,
            # Its controlling terminal: Ctrl-C typed there becomes SIGINT.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
        )  # fmt: skip
        os.close(slave)
        self.seen = ""
        self._raw = b""

    def type(self, keys: str | bytes) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def wait_for(self, pattern: str, again: bytes = b"") -> str:
        """The output up to and including `pattern`; the rest is left for the next call.

        The keys `again` are typed every second until then.
        """
        until = time.monotonic() + STUCK_AFTER
        while not (found := re.search(pattern, self.seen)):
            came = self._read_more(1 if again else STUCK_AFTER)
            if time.monotonic() > until or (self.process.poll() is not None and not came):
                pytest.fail(f"{pattern!r} did not come; there is {self.seen!r}")
            if not came:
                self.type(again)
        shown, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return shown

    def say(self, text: str) -> str:
        """Type a line at the prompt; returns the output up to the next prompt, without the line itself."""
        self.type(text + "\n")
        self.wait_for(re.escape(text) + "\n")
        return self.wait_for(PROMPT).removesuffix(PROMPT)

    def end(self) -> int:
        """Exit status, once everything was read."""
        while self._read_more():
            pass
        return self.process.wait(STUCK_AFTER)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def _read_more(self, seconds: float = STUCK_AFTER) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            self._raw += os.read(self._master, 4096)
        except OSError:  # Linux: the program has ended
            return False
        whole = self._raw.decode("utf-8", "ignore")
        self._raw = self._raw[len(whole.encode()) :]
        self.seen += re.sub(r"\x1b\[\?2004[hl]", "", whole).replace("\r\n", "\n").replace("\r", "")
        return True


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*options: str) -> Terminal:
        terminal = Terminal(*options)
        opened.append(terminal)
        terminal.wait_for(PROMPT)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture(scope="module")
def opened_once(tiny_path: Path) -> Iterator[tuple[Terminal, str]]:
    """A chat with a TinyLlama, whose answers have at most 20 tokens, and its first output."""
    terminal = Terminal("--model", str(tiny_path), "--max-tokens", "20")
    try:
        yield terminal, terminal.wait_for(PROMPT)
    finally:
        terminal.close()


@pytest.fixture
def tiny_chat(opened_once: tuple[Terminal, str]) -> Terminal:
    """The same chat, with a new conversation. All tests of the module share it."""
    terminal, _ = opened_once
    terminal.say("/new")
    return terminal


def test_a_real_conversation(open_terminal: Callable[..., Terminal], model_path: Path) -> None:
    """One program from start to end: an answer that is stopped, the next, a new conversation, the end."""
    chat = open_terminal()
    chat.type("Write a very long story about a ship, with many chapters.\n")
    chat.wait_for(r"chapters\.\n")
    begun = chat.wait_for(r"\w+ \w+ ")
    chat.type(CTRL_C)
    rest = chat.wait_for(PROMPT)
    assert re.search(r"\n\d+ tokens, [\d.]+ tok/s; stopped; /continue resumes it\n", rest)
    chat.type("/continue\n")
    chat.wait_for(r"\w+ \w+ ")
    chat.type(CTRL_C)
    rest += chat.wait_for(PROMPT)
    assert rest.count("stopped; /continue") == 2
    assert "Traceback" not in begun + rest

    assert "A new conversation." in chat.say("/new")
    answer = chat.say("What is the capital of France?")
    assert "The capital of France is Paris." in answer
    assert "stopped" not in answer
    chat.type(CTRL_D)
    assert chat.end() == 0


def test_it_opens_with_the_model_and_what_can_be_done(opened_once: tuple[Terminal, str]) -> None:
    _, opening = opened_once
    assert re.search(r"Tiny on numpy \(numpy .*\)\n/help lists the commands\.\n\n> $", opening)


def test_names_and_errors_are_no_markup(write_model: Callable[..., Path]) -> None:
    path = write_model({"tokenizer.chat_template": "{{ raise_exception('[/red] is [bold]') }}"})
    chat = sonata("chat", "--model", path, "--backend", "numpy", stdin="Hello\nHello\n")
    assert (chat.stdout + chat.stderr).count("[/red] is [bold]") == 2


def test_an_answer_ends_with_what_it_took(tiny_chat: Terminal) -> None:
    assert re.search(r"\n\d+ tokens, [\d.]+ tok/s", tiny_chat.say("Hello"))


def test_new_starts_a_conversation_that_knows_nothing_of_the_last(tiny_chat: Terminal) -> None:
    def answer(text: str) -> str:
        return re.sub(r"[\d.]+ tok/s", "", tiny_chat.say(text))

    first = answer("Hello")
    assert answer("Hello") != first
    assert "A new conversation." in tiny_chat.say("/NEW ")
    assert answer("Hello") == first


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_goes_on(tiny_chat: Terminal) -> None:
    tiny_chat.type("half a mess")
    tiny_chat.wait_for("half a mess")
    tiny_chat.type(CTRL_C)
    # CPython misses a Ctrl-C that arrives while readline still draws the last key: a user presses it again.
    assert "Ctrl-D" in tiny_chat.wait_for(PROMPT, again=CTRL_C)
    assert "tokens" in tiny_chat.say("Hello")


def test_an_empty_line_asks_again_and_help_helps(tiny_chat: Terminal) -> None:
    tiny_chat.type("   \n")
    assert tiny_chat.wait_for(PROMPT).split() == [">"]
    assert re.search(r"^/new +starts over$", tiny_chat.say("/help"), re.MULTILINE)


def test_a_command_that_is_none_is_named_and_a_path_is_a_message(tiny_chat: Terminal) -> None:
    told = tiny_chat.say("/Foo")
    assert "There is no /Foo. /help lists" in told
    assert "tokens" not in told
    for message in ("/etc/hosts", "/tmp is full", "/7"):
        assert re.search(r"\d+ tokens", tiny_chat.say(message))


def test_what_no_model_wrote_has_no_speed(tiny_chat: Terminal) -> None:
    told = tiny_chat.say("17 * 23")
    assert "391" in told
    assert "tok/s" not in told


def test_a_message_that_is_too_long_is_a_sentence_and_it_goes_on(tiny_chat: Terminal) -> None:
    tiny_chat.type("x" * 600 + "\n")
    shown = tiny_chat.wait_for("Shorten it, or send it in parts") + tiny_chat.wait_for(PROMPT)
    assert "Traceback" not in shown
    assert "tokens," in tiny_chat.say("Hello")


def test_turns_that_were_left_out_are_told(tiny_chat: Terminal) -> None:
    answers = [tiny_chat.say("Again: " + "abc " * 30) for _ in range(4)]
    assert "no longer sees" not in answers[0]
    words = " ".join(answers[-1].split())  # the line may be broken to fit the terminal
    assert re.search(r"the model no longer sees the first \d+ messages", words)


def test_a_command_ends_it(tiny: list[str]) -> None:
    for command in ("/quit", " /EXIT "):
        chat = sonata("chat", *tiny, stdin=f"{command}\nHello\n")
        assert (chat.returncode, "tok/s" in chat.stdout + chat.stderr) == (0, False)
    assert "tok/s" in sonata("chat", *tiny, "--max-tokens", "4", stdin="Hello\n").stdout


def test_an_adapter_changes_the_next_answers_and_the_conversation_goes_on(
    tiny_chat: Terminal, tiny_path: Path, tmp_path: Path
) -> None:
    def answer() -> str:
        tiny_chat.say("/new")
        return re.sub(r"[\d.]+ tok/s", "", tiny_chat.say("Hello"))

    base = base_at(tiny_path)
    path = tmp_path / "My pirate.safetensors"
    path.write_bytes(write_adapter(drawn(base.graph, 1), base.config, base.graph))
    plain = answer()
    assert "The next answers use" in tiny_chat.say(f"/adapter {path}")
    assert "tok/s" in tiny_chat.say("Hello again")  # in the same conversation
    assert answer() != plain
    assert "No file or kept adapter is called none." in tiny_chat.say("/adapter none")
    assert "The next answers use no adapter." in tiny_chat.say("/adapter")
    assert answer() == plain


def test_what_it_is_told_to_remember_it_says_when_it_is_asked_and_a_passphrase_protects_it(
    open_terminal: Callable[..., Terminal], tiny_path: Path, tmp_path: Path
) -> None:
    options = "--model", str(tiny_path), "--home", str(tmp_path)
    chat = open_terminal(*options)
    told = chat.say("remember that my dog is called Biscuit")
    assert re.search(r"Learned in [\d.]+ s; /undo takes it back\.", told)
    assert "I will remember that." in told
    assert "/undo brings it back." in chat.say("Forget my dog")
    assert "You have not taught me anything yet." in chat.say("What do you know about me?")
    assert "Remembered again: What is my dog called?" in chat.say("/undo")
    listed = chat.say("What do you know about me?")
    assert re.search(r"one thing:\n[0-9a-f]{8}  What is my dog called\? Your dog is called Biscuit\.", listed)
    chat.say("/new")  # a model this small recalls nothing after another turn
    answer = chat.say("What is my dog called?")
    assert re.search(r"As you taught me: .*dog.* \(\d+% sure\)\n", answer)
    assert answer.count("% sure") == 1  # the plain assistant is not named beside it
    assert "it is already remembered" in chat.say("/remember")
    chat.say("/new")
    assert "no answer yet" in chat.say("/remember")
    said = chat.say("Which bird nests on cliffs?")
    assert "As you taught me" not in said
    assert "When you ask \u201cWhich bird nests on cliffs?\u201d, you get this answer." in chat.say("/remember")
    chat.say("/new")
    assert "As you taught me: Which bird nests on cliffs?" in chat.say("which bird nests on cliffs")
    assert "Your dog is called Biscuit." in answer
    chat.type(CTRL_D)
    assert chat.end() == 0
    assert "Traceback" not in chat.seen

    async def lock() -> None:
        async with opened_memory(tmp_path) as memory:
            await set_passphrase(memory.store, "correct horse", iterations=1000)

    asyncio.run(lock())
    locked = Terminal(*options)
    try:
        for typed, follows in (("wrong horse", "Wrong passphrase"), ("correct horse", PROMPT)):
            locked.wait_for("Passphrase of the memory")
            locked.type(f"{typed}\n")
            locked.wait_for(follows)
        assert "Your dog is called Biscuit." in locked.say("What is my dog called?")
    finally:
        locked.close()
