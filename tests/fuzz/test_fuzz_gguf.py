"""Model files with damaged settings or bytes are opened, or refused with an error of ours that names the place."""

from __future__ import annotations

import asyncio
import json
import math
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import strategies as st

from app.models.template_renderer import native_renderer
from py_core.formats.gguf import GGUFError, parse_header, read_header
from py_core.formats.quantization import UnsupportedFormatError
from py_core.formats.source import FileSource
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model
from py_core.tokenizers.base import TokenizerError
from py_core.tokenizers.chat_template import ChatTemplate, ChatTemplateError, encode_chat
from py_core.tokenizers.registry import tokenizer_from_gguf
from tests.formats.gguf_fields import small_gguf
from tests.fuzz.harness import found_before, fuzzed, hostile, read_or_refused
from tests.models.architectures.variants import QUANTIZED
from tests.tiny.models import metadata

OURS = (GGUFError, UnsupportedFormatError, TokenizerError, ChatTemplateError)

SMALL = small_gguf()
SMALL_HEADER = parse_header(SMALL).data_offset

MORE_KEYS = (
    *("split.count", "split.no", "split.tensors.count", "general.license"),
    *(f"tokenizer.ggml.{key}" for key in ("scores", "add_bos_token", "add_space_prefix", "eot_token_id")),
)
MORE_SETTINGS = (
    *("expert_count", "attention.causal", "attention.scale", "hidden_activation", "logit_scale"),
    *("attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length_swa"),
    *("attn_logit_softcapping", "final_logit_softcapping", "rope.dimension_sections", "rope.freq_base_swa"),
    *(f"rope.scaling.{key}" for key in ("type", "factor", "attn_factor", "original_context_length", "yarn_beta_fast")),
)

models = st.sampled_from(sorted(QUANTIZED))
bytes_ = st.integers(0, 255)


def opened(path: Path) -> None:
    """Everything that happens to a file before its weights are read."""

    async def run() -> None:
        source = FileSource(path)
        header = await read_header(source)
        tokenizer = tokenizer_from_gguf(header.metadata)
        describe_model(header, None, await read_rope_factors(source, header))
        template = ChatTemplate.from_gguf(header.metadata, tokenizer, native_renderer())
        await encode_chat(tokenizer, template, [{"role": "user", "content": "Hello <|im_end|>"}])

    with read_or_refused(*OURS):
        asyncio.run(run())


def opened_with(model: str, changes: Mapping[str, object]) -> None:
    """The tiny model of this kind, with other metadata; None leaves a key out."""
    with tempfile.TemporaryDirectory() as folder:
        opened(QUANTIZED[model].write(Path(folder) / "tiny.gguf", changes))


@found_before("settings")
def test_settings_that_were_found_before(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    opened_with(found["model"], found["changes"])


@found_before("gguf")
def test_files_that_were_found_before(path: Path) -> None:
    headers_of(path.read_bytes())


@fuzzed(models, st.dictionaries(st.integers(0, 80), hostile, min_size=1, max_size=3))
def test_hostile_settings_are_read_or_refused(model: str, changes: Mapping[int, object]) -> None:
    """By the number of a key, in the order of their names, the file's own keys first."""
    architecture = QUANTIZED[model].architecture
    keys = [*sorted(metadata(QUANTIZED[model])), *MORE_KEYS, *(f"{architecture}.{key}" for key in MORE_SETTINGS)]
    opened_with(model, {keys[number % len(keys)]: value for number, value in changes.items()})


@fuzzed(models, st.dictionaries(st.integers(0, 1 << 13), st.integers(0, 255), min_size=1, max_size=6))
def test_damaged_bytes_are_read_or_refused(model: str, changes: Mapping[int, int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = QUANTIZED[model].write(Path(folder) / "tiny.gguf")
        data = bytearray(path.read_bytes())
        for at, byte in changes.items():
            data[at % (1 << 13)] = byte
        path.write_bytes(data)
        opened(path)


@fuzzed(st.dictionaries(st.integers(0, 1 << 13), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | bytes_, max_size=8))
def test_a_damaged_header_is_read_or_refused_whatever_is_known_of_its_size(changes: Mapping[int, int]) -> None:
    damaged = bytearray(SMALL[:SMALL_HEADER])
    for at, byte in changes.items():
        damaged[at % SMALL_HEADER] = byte
    headers_of(bytes(damaged))
    headers_of(bytes(damaged) + SMALL[SMALL_HEADER:])


@fuzzed(st.binary(max_size=200))
def test_any_bytes_after_a_valid_beginning_are_read_or_refused(tail: bytes) -> None:
    headers_of(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + tail)
    headers_of(tail)


def headers_of(file: bytes) -> None:
    """The header, if the file has this size, if its size is not known, and if far more of it is to come."""
    for size in (len(file), None, 1 << 40):
        with read_or_refused(*OURS):
            header = parse_header(file, size)
            assert all(math.prod(info.shape) > 0 for info in header.tensors.values())


@pytest.mark.no_cover
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.all)])
def test_every_truncation_is_refused(step: int) -> None:
    for cut in range(0, parse_header(SMALL).end_offset, step):
        with pytest.raises(GGUFError):
            parse_header(SMALL[:cut], cut)
