"""Long chats and long texts: the parts that are left out or refused, and the cost of deciding that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.generation.assistant import SYSTEM_PROMPT, Assistant
from app.generation.completion import complete, last_logits
from app.generation.prompt_window import LEFT_OUT_FOR_LATER, PromptWindow
from app.protocol import Done
from py_core.backend_errors import ContextFullError
from py_core.loading import Model
from py_core.sampling import SamplingParams
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.chat_template import Message
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tests.tiny.tokenizers import bpe
from tests.tokenizers.texts import any_text

OpenModel = Callable[..., Awaitable[Model]]
LIMIT = 448


class Work:
    """Counts the cost of a model's prompts."""

    def __init__(self, model: Model, patch: pytest.MonkeyPatch) -> None:
        self.prompts: list[int] = []
        """Messages of each prompt that was rendered and encoded."""
        self.characters = 0
        """That were encoded, in prompts or alone."""
        encode_chat, encode_parts = model.encode_chat, model.tokenizer.encode_parts

        async def counting_chat(messages: Sequence[Message], begun: Sequence[tuple[str, bool]] = ()) -> list[int]:
            self.prompts.append(len(messages))
            return await encode_chat(messages, begun)

        def counting_parts(parts: Iterable[tuple[str, bool]], *rest: Iterable[str], **more: bool) -> list[int]:
            given = list(parts)
            self.characters += sum(len(text) for text, _ in given)
            return encode_parts(given, *rest, **more)

        patch.setattr(model, "encode_chat", counting_chat)
        patch.setattr(model.tokenizer, "encode_parts", counting_parts)


@pytest.fixture
async def model(tiny_path: Path, open_model: OpenModel) -> Model:
    """A TinyLlama with 512 tokens of context, a byte each; an answer needs 64."""
    return await open_model(tiny_path)


def chat_of(lengths: Sequence[int]) -> list[Message]:
    """Questions and answers in turn, of these lengths in characters; the last is a question."""
    roles = ["user", "assistant"] * (len(lengths) // 2 + 1)
    return [
        {"role": role, "content": f"{number}".rjust(length, "a")}
        for number, (role, length) in enumerate(zip(roles, lengths, strict=False))
    ]


async def left_out_two_by_two(model: Model, messages: Sequence[Message], first: int) -> int:
    """The number of messages that are left out, the plain way: prompts are made until one fits."""
    room: float = LIMIT
    last = len(messages) - 1
    first = min(first, last)
    while first < last:
        if len(await model.encode_chat([{"role": "system", "content": SYSTEM_PROMPT}, *messages[first:]])) <= room:
            break
        room = (1 - LEFT_OUT_FOR_LATER) * LIMIT
        first = min(first + 2, last)
    return first


# --- long chats -----------------------------------------------------------------------------------------------------


async def test_a_chat_of_1000_messages_is_answered_by_a_few_prompts_no_longer_than_the_context(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assistant = Assistant(model, max_tokens=64)
    messages = chat_of([20, 30] * 500)
    assistant.reset(messages)
    expected = await left_out_two_by_two(model, [*messages, {"role": "user", "content": "And now?"}], 970)
    work = Work(model, monkeypatch)
    events = [event async for event in assistant.respond("And now?")]
    assert isinstance(events[-1], Done)
    assert events[-1].forgotten_turns == expected
    # Turns of 50 characters and their frames: at most nine of them fit.
    assert len(work.prompts) <= 5
    assert max(work.prompts) < 30
    assert work.characters < 10 * 512


async def test_the_next_message_of_a_long_chat_takes_one_prompt(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assistant = Assistant(model, max_tokens=8)
    assistant.reset(chat_of([20, 30] * 500))
    [event async for event in assistant.respond("And now?")]
    work = Work(model, monkeypatch)
    [event async for event in assistant.respond("And then?")]
    assert len(work.prompts) == 1


lengths = st.integers(3, 200) | st.integers(3, 20)


@given(pairs=st.lists(st.tuples(lengths, lengths), max_size=30), last=lengths, first=st.sampled_from([0, 0, 2, 6, 100]))
@settings(max_examples=60, deadline=None)
def test_a_search_finds_the_turns_that_leaving_out_two_by_two_finds(
    shared_model: Model, pairs: list[tuple[int, int]], last: int, first: int
) -> None:
    messages = chat_of([*(length for pair in pairs for length in pair), last])
    prompt, left_out = asyncio.run(PromptWindow(shared_model, SYSTEM_PROMPT, LIMIT).fit(messages, first))
    assert left_out == asyncio.run(left_out_two_by_two(shared_model, messages, first))
    shown: list[Message] = [{"role": "system", "content": SYSTEM_PROMPT}, *messages[left_out:]]
    assert prompt == asyncio.run(shared_model.encode_chat(shown))


@pytest.fixture(scope="module")
def shared_model(tiny_path: Path, open_model: OpenModel) -> Model:
    return asyncio.run(open_model(tiny_path))


async def test_an_old_message_of_10_million_characters_is_left_out_unread(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = chat_of([20, 30, 20, 10_000_000, 20, 30, 20])
    work = Work(model, monkeypatch)
    _, left_out = await PromptWindow(model, SYSTEM_PROMPT, LIMIT).fit(messages, 0)
    assert left_out == 4
    assert work.characters < 10_000


# --- texts that are too long by their length alone -------------------------------------------------------------------


async def say(model: Model, text: str) -> None:
    async for _ in Assistant(model).respond(text):
        pass


REFUSING = {
    "message": say,
    "chat prompt": partial(complete, raw=False, max_tokens=1, sampling=SamplingParams()),
    "raw prompt": partial(complete, raw=True, max_tokens=1, sampling=SamplingParams()),
    "logits": partial(last_logits, raw=True),
}


@pytest.mark.parametrize("what", REFUSING)
async def test_10_million_characters_are_refused_unread(
    model: Model, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    work = Work(model, monkeypatch)
    with pytest.raises(ContextFullError, match=r"10,000,000 characters, and the model reads at most \d+ tokens\. Sho"):
        await REFUSING[what](model, "x" * 10_000_000)
    assert work.prompts == []
    assert work.characters == 0


def pieces(*special: str) -> Tokenizer:
    """SentencePiece whose vocabulary has a run of spaces, and no bytes."""
    types = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, **dict.fromkeys(special, USER_DEFINED)}
    types |= {"\u2581" * 16: NORMAL, "\u2581": NORMAL, "ab": NORMAL, "a": NORMAL}
    return tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": list(types),
            "tokenizer.ggml.token_type": list(types.values()),
        }
    )


def with_bytes() -> Tokenizer:
    types = {"<unk>": UNKNOWN, "<s>": CONTROL} | {f"<0x{byte:02X}>": BYTE for byte in range(256)} | {"the": NORMAL}
    return tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": list(types),
            "tokenizer.ggml.token_type": list(types.values()),
        }
    )


def swallowing() -> Tokenizer:
    """Phi-3's special tokens absorb the white space after them."""
    return tokenizer_from_gguf(bpe({"<|a|>": USER_DEFINED, "<|end|>": CONTROL}) | {"general.name": "Phi-3 mini"})


TOKENIZERS = {"pieces": pieces, "bytes": with_bytes, "swallowing": swallowing}


@pytest.mark.parametrize("name", [*TOKENIZERS, "real"])
@given(
    text=any_text | st.text(alphabet=" \n\x06a\u2581\ufffd\U00040000<|>", max_size=60), times=st.sampled_from([1, 40])
)
@settings(max_examples=60, deadline=None)
def test_no_text_that_would_fit_is_refused(real_model: Model, name: str, text: str, times: int) -> None:
    tokenizer = real_model.tokenizer if name == "real" else TOKENIZERS[name]()
    text = text * times
    for special in (False, True):
        assert not tokenizer.exceeds(text, len(tokenizer.encode(text, special=special)))


@pytest.mark.parametrize("text", ["#" * 80, "\u20ac" * 30, "a" * 200])
def test_the_longest_token_decides(real_model: Model, text: str) -> None:
    tokenizer = real_model.tokenizer
    assert tokenizer.longest_token == max(len(tokenizer.decode_bytes([i]).strip()) for i in range(tokenizer.vocab_size))
    assert tokenizer.exceeds(text * 1000, len(text) * 1000 // 80 - 1)


def test_a_vocabulary_that_drops_letters_has_no_bound() -> None:
    tokenizer = tokenizer_from_gguf(
        {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.merges": []}
    )
    assert tokenizer.encode("c" * 1000) == []
    assert not tokenizer.exceeds("c" * 1000, 1)
