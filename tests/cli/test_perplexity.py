"""`sonata perplexity`: the cost of a text in nats, by the log-probabilities of its tokens."""

from __future__ import annotations

import asyncio
import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.perplexity import MeasuredText, read_texts, score_texts, windows_of
from py_core.backend_errors import BackendError
from py_core.loading import Model
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.tiny.adapters import drawn, write_gguf_adapter

CODE = (
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n"
    "print([fibonacci(i) for i in range(10)])\n"
)
NATS_OF_CODE = 43.81222
"""The result of transformers 5.23 in float32 with SmolLM2's dequantized weights, for 54 tokens."""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "One two three."}\n\n{"text": "Vier\u2028fünf", "more": 1}\n', "utf-8")
    return path


async def test_a_text_costs_what_it_costs_transformers(real_model: Model) -> None:
    (score,) = await score_texts(real_model, [MeasuredText(1, CODE)])
    assert score.tokens == 54
    assert score.nats == pytest.approx(NATS_OF_CODE, rel=1e-5)
    assert score.perplexity == pytest.approx(math.exp(NATS_OF_CODE / 54), rel=1e-5)


def test_json_has_the_figures_of_all_texts_and_of_each(
    tiny: list[str], texts: Path, tiny_path: Path, open_model
) -> None:
    made = json.loads(printed(sonata("perplexity", texts, *tiny, "--json")))
    assert set(made) == {"model", "backend", "perplexity", "tokens", "nats", "texts"}
    assert [one["line"] for one in made["texts"]] == [1, 3]
    model = asyncio.run(open_model(tiny_path))
    for one, text in zip(made["texts"], ("One two three.", "Vier\u2028fünf"), strict=True):
        assert one["nats"] == pytest.approx(asyncio.run(nats_by_logits(model, text)), rel=1e-5)
        assert one["tokens"] == len(model.tokenizer.encode(text)) - 1
        assert one["perplexity"] == pytest.approx(math.exp(one["nats"] / one["tokens"]))
    assert made["nats"] == pytest.approx(sum(one["nats"] for one in made["texts"]))
    assert made["tokens"] == sum(one["tokens"] for one in made["texts"])
    assert made["perplexity"] == pytest.approx(math.exp(made["nats"] / made["tokens"]))


async def nats_by_logits(model: Model, text: str, bos: tuple[int, ...] = ()) -> float:
    """Computed from the logits after each token, on the host."""
    ids = [*bos, *model.tokenizer.encode(text)]
    sequence = model.backend.new_sequence()
    nats = 0.0
    for token, following in pairwise(ids):
        await model.backend.prefill(sequence, [token])
        logits = (await model.backend.logits(sequence)).astype(np.float64)
        nats += float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[following])
    model.backend.free(sequence)
    return nats


def test_a_table_tells_perplexity_tokens_and_nats(tiny: list[str], texts: Path) -> None:
    shown = printed(sonata("perplexity", texts, *tiny))
    made = json.loads(printed(sonata("perplexity", texts, *tiny, "--json")))
    assert f"{made['perplexity']:.4f}" in shown
    assert f"{made['tokens']} of 2 texts" in shown
    assert f"{made['nats']:.2f}" in shown


def test_where_the_model_begins_texts_with_a_token_the_first_is_scored_too(
    write_model, texts: Path, open_model
) -> None:
    path = write_model({"tokenizer.ggml.add_bos_token": True}, tied=False)
    options = ["--model", str(path), "--backend", "numpy", "--json"]
    model = asyncio.run(open_model(path))
    bos = model.tokenizer.bos_id
    (one, _) = json.loads(printed(sonata("perplexity", texts, *options)))["texts"]
    assert one["tokens"] == len(model.tokenizer.encode("One two three."))
    assert one["nats"] == pytest.approx(asyncio.run(nats_by_logits(model, "One two three.", (bos,))), rel=1e-5)
    (without, _) = json.loads(printed(sonata("perplexity", texts, *options, "--no-bos")))["texts"]
    assert without["tokens"] == one["tokens"] - 1


def test_an_adapter_changes_the_figures(
    tiny: list[str], texts: Path, tiny_path: Path, open_model, tmp_path: Path
) -> None:
    model = asyncio.run(open_model(tiny_path))
    adapter = drawn(model.graph, 1)
    file = write_gguf_adapter(adapter, tmp_path / "adapter.gguf")

    async def score() -> list[float]:
        number = await model.engine.add_adapter(adapter)
        return [one.nats for one in await score_texts(model, read_texts(texts), number)]

    plain = json.loads(printed(sonata("perplexity", texts, *tiny, "--json")))
    made = json.loads(printed(sonata("perplexity", texts, *tiny, "--json", "--adapter", file)))
    assert [one["nats"] for one in made["texts"]] == pytest.approx(asyncio.run(score()), rel=1e-4)
    assert abs(made["nats"] - plain["nats"]) > 0.1


@given(length=st.integers(2, 300), most=st.integers(4, 80), with_bos=st.booleans())
def test_windows_score_each_token_once_after_half_a_window(length: int, most: int, with_bos: bool) -> None:
    ids = [1000, *range(1, length)] if with_bos else list(range(length))
    scored: list[int] = []
    for number, window in enumerate(windows_of(ids, most, 1000)):
        assert len(window.tokens) <= most
        assert 1 <= window.start < len(window.tokens)
        assert (window.tokens[0] == 1000) == with_bos
        own = window.tokens[with_bos:]
        assert own == list(range(own[0], own[0] + len(own)))
        if number:
            assert window.start >= (most - with_bos) // 2
        scored += window.tokens[window.start :]
    assert scored == ids[1:]


async def test_a_text_longer_than_the_context_is_scored_in_windows(tiny_path: Path, open_model) -> None:
    model = await open_model(tiny_path, context=20)
    text = "All happy families are alike; each unhappy family is unhappy in its own way."
    ids = model.tokenizer.encode(text)
    steps: list[tuple[int, int]] = []
    (score,) = await score_texts(model, [MeasuredText(1, text)], 0, lambda done, total: steps.append((done, total)))
    assert score.tokens == len(ids) - 1
    expected = 0.0
    for window in windows_of(ids, 20, None):
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, window.tokens)
        expected -= float((await model.backend.token_logprobs(sequence, window.start)).sum())
        model.backend.free(sequence)
    assert score.nats == pytest.approx(expected, rel=1e-5)
    total = sum(len(window.tokens) for window in windows_of(ids, 20, None))
    assert all(of == total for _, of in steps)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] in (total - 1, total)


def test_a_context_without_room_for_windows_is_a_sentence(tiny: list[str], texts: Path) -> None:
    result = sonata("perplexity", texts, *tiny, "--context", "1")
    assert (result.returncode, result.stdout) == (1, "")
    assert "A context of 1 is too short to read a text." in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["has no texts", '{"text": "Once upon a time"}']),
        ("\n \n", ["has no texts"]),
        ('{"text": "good"}\n{"text": ', ["Line 2", "should be JSON like"]),
        ('{"text": 3}', ["Line 1", '{"text": 3}']),
        ('["text"]', ["Line 1", "should be JSON like"]),
        ('{"text": "good text"}\n\n{"text": ""}', ["line 3", "is empty", "Leave the line out"]),
        ('{"text": "good text"}\n{"text": "a"}', ["line 2", "has one token", "nothing comes before it"]),
        ("[" * 100_000, ["Line 1", "should be JSON like"]),
        (b'{"text": "good text"}\n{"text": "\xff\xfe"}', ["Line 2", "is not text in UTF-8"]),
        (b'\xef\xbb\xbf{"text": "good text"}\n{"text": "\x00"}', ["Line 2", "at character 11"]),
        (b'{"text": "good text \\ud800"}', ["line 1", "half a character"]),
    ],
)
def test_what_cannot_be_scored_is_a_sentence(tiny: list[str], tmp_path: Path, content: str | bytes, words) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_sentence(sonata("perplexity", path, *tiny), *words)


def test_a_file_that_is_not_there_is_a_sentence(tiny: list[str], tmp_path: Path) -> None:
    assert_sentence(sonata("perplexity", tmp_path / "none.jsonl", *tiny), "none.jsonl", "No such file")


async def test_a_model_of_numbers_that_are_none_is_a_sentence(tiny_path: Path, open_model) -> None:
    model = await open_model(tiny_path)
    model.backend._weights["output_norm.weight"][:] = np.nan
    with pytest.raises(BackendError, match="no probabilities for the text in line 7"):
        await score_texts(model, [MeasuredText(7, "some text")])
