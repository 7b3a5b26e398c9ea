"""Model files with damaged settings or bytes are opened, or refused with an error of ours that says where."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.formats.gguf import GGUFError, read_header
from py_core.formats.quantization import UnsupportedFormatError
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model
from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.chat_template import ChatTemplate, ChatTemplateError, encode_chat
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.architectures.variants import QUANTIZED
from tests.tiny_models import metadata

OURS = (GGUFError, UnsupportedFormatError, TokenizerError, ChatTemplateError)
ROOM = 32 << 20
"""Bytes that opening a file of some hundred kilobytes may take."""

hostile = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 7, 2**15, 2**20 + 1, 2**31 - 1, 2**32 - 1, 2**62]),
    st.floats(width=32),
    st.booleans(),
    st.text(max_size=40),
    st.lists(st.text(max_size=5), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    st.lists(st.floats(width=32), max_size=5),
)
EXAMPLES = pytest.mark.parametrize(
    "examples", [40, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
models = st.sampled_from(sorted(QUANTIZED))


def opened(path: Path) -> None:
    """Everything that happens to a file before its weights are read."""

    async def run() -> None:
        source = FileSource(path)
        header = await read_header(source)
        tokenizer = tokenizer_from_gguf(header.metadata)
        describe_model(header, None, await read_rope_factors(source, header))
        template = ChatTemplate.from_gguf(header.metadata, tokenizer)
        encode_chat(tokenizer, template, [{"role": "user", "content": "Hello <|im_end|>"}])

    tracemalloc.start()
    try:
        asyncio.run(run())
    except OURS as error:
        words = str(error)
        assert 10 < len(words) < 1000
        assert "\x00" not in words
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < ROOM


def with_settings(model: str, changes: Mapping[int, object]) -> None:
    """With other metadata: by the number of a key, in the order of their names; None leaves it out."""
    keys = sorted(metadata(QUANTIZED[model]))
    changed = {keys[number % len(keys)]: value for number, value in changes.items()}
    with tempfile.TemporaryDirectory() as folder:
        opened(QUANTIZED[model].write(Path(folder) / "tiny.gguf", changed))


def with_bytes(model: str, changes: Mapping[int, int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = QUANTIZED[model].write(Path(folder) / "tiny.gguf")
        data = bytearray(path.read_bytes())
        for at, byte in changes.items():
            data[at % (1 << 13)] = byte
        path.write_bytes(data)
        opened(path)


def check(examples: int, *arguments: st.SearchStrategy, opens: Callable[..., None]) -> None:
    """So many examples of the arguments with which `opens` makes a file and opens it."""
    patient = settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    patient(given(*arguments)(opens))()


@EXAMPLES
def test_hostile_settings_are_read_or_refused(examples: int) -> None:
    changes = st.dictionaries(st.integers(0, 40), hostile, min_size=1, max_size=3)
    check(examples, models, changes, opens=with_settings)


@EXAMPLES
def test_damaged_bytes_are_read_or_refused(examples: int) -> None:
    changes = st.dictionaries(st.integers(0, 1 << 13), st.integers(0, 255), min_size=1, max_size=6)
    check(examples, models, changes, opens=with_bytes)
