"""A model with another vocabulary, or one that is not smaller, is refused as a draft, and the error names the
difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from py_core.draft_loading import DraftError, DraftFile, check_draft, read_draft
from py_core.formats.source import FileSource
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.tiny.llama import TinyLlama


async def files(folder: Path) -> tuple[DraftFile, DraftFile]:
    """A model, and a smaller one of the same vocabulary."""
    made = [TinyLlama(layers=layers).write(folder / f"{layers}.gguf") for layers in (3, 1)]
    return await read_draft(FileSource(made[0])), await read_draft(FileSource(made[1]))


def changed(draft: DraftFile, **metadata: Any) -> DraftFile:
    named = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return replace(draft, header=replace(draft.header, metadata={**draft.header.metadata, **named}))


async def test_a_smaller_model_of_the_same_vocabulary_is_taken(tmp_path: Path) -> None:
    model, draft = await files(tmp_path)
    check_draft(model.header, model.config, draft)


async def test_what_differs_is_named(tmp_path: Path) -> None:
    model, draft = await files(tmp_path)
    tokens = list(draft.header.metadata["tokenizer.ggml.tokens"])
    tokens[70] = "another"
    for other, words in (
        (changed(draft, tokens=tokens), "its token 70 is 'another'"),
        (replace(draft, config=replace(draft.config, vocab_size=999)), "its vocabulary has 999 tokens"),
        (changed(draft, eos_token_id=5), "its token that ends a text is"),
    ):
        with pytest.raises(DraftError, match=words):
            check_draft(model.header, model.config, other)


async def test_a_model_that_is_no_smaller_is_refused(tmp_path: Path) -> None:
    model, draft = await files(tmp_path)
    for other in (model, draft):
        with pytest.raises(DraftError, match="would not be faster"):
            check_draft(draft.header, draft.config, other)


def test_in_the_terminal_a_draft_changes_no_word_and_its_memory_is_told(tmp_path: Path) -> None:
    model, draft = (TinyLlama(layers=layers).write(tmp_path / f"{layers}.gguf") for layers in (3, 1))
    command = ("generate", "abc", "--raw", "--json", "--model", model, "--backend", "wasm", "--max-tokens", "24")
    alone, drafted = (json.loads(printed(sonata(*command, *more))) for more in ((), ("--draft", draft)))
    assert drafted["text"] == alone["text"]
    assert_sentence(sonata(*command, "--draft", model), "would not be faster")

    command = ("bench", "memory", "--json", "--model", model, "--backend", "wasm", "--tokens", "64")
    alone, drafted = (json.loads(printed(sonata(*command, *more))) for more in ((), ("--draft", draft)))
    assert alone["draft"] == 0 < drafted["draft"]
    assert drafted["total"] == alone["total"] + drafted["draft"]
