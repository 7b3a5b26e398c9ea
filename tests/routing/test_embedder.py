"""The sentence embedder natively: the real model, against the same model in numpy without quantization."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from app.building.embedder.export import calibration_ids, export
from app.building.embedder.minilm import merge_adapter, sentence_vector, token_states
from app.models.build_outputs import EMBEDDER_ADAPTER, embedder_files
from app.native_runtime import open_embedder
from app.paths import cache_dir
from py_core.formats.safetensors import read_safetensors
from py_core.routing.embedder import EmbedderError, SentenceEmbedder
from py_core.routing.embedder_onnx import OnnxEncoder
from py_core.tokenizers.wordpiece import MAX_TOKENS, WordPiece

TEXTS = [
    "Hello",
    "fix the login bug please",
    "can you look over my pull request before I merge it",
    "The mitochondria is the powerhouse of the cell.",
    "Schreib mir ein Gedicht über das Meer 🌊",
    "x",
    "why is this query slow? SELECT * FROM orders o JOIN customers c ON c.id = o.customer",
    "the nightly job crashes since tuesday, here is the log: " + "ERROR connection reset by peer; " * 30,
]


@pytest.fixture(scope="module")
def weights(minilm: tuple[Path, Path]) -> dict[str, np.ndarray]:
    """The weights as published, float32."""
    return merge_adapter(read_safetensors(minilm[0].read_bytes())[0], {})


@pytest.fixture(scope="module")
def adapted(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights with the adapter, as in the application."""
    return merge_adapter(weights, read_safetensors(EMBEDDER_ADAPTER.read_bytes())[0])


@pytest.fixture(scope="module")
def tokenizer(minilm: tuple[Path, Path]) -> WordPiece:
    return WordPiece.from_json(minilm[1].read_bytes())


@pytest.fixture(scope="module")
def published(weights, tokenizer) -> list[np.ndarray]:
    """numpy's vectors of TEXTS without the adapter."""
    return [sentence_vector(weights, tokenizer.encode(text)) for text in TEXTS]


@pytest.fixture(scope="module")
def expected(adapted, tokenizer) -> list[np.ndarray]:
    """numpy's vectors of TEXTS with the adapter."""
    return [sentence_vector(adapted, tokenizer.encode(text)) for text in TEXTS]


@pytest.fixture
def embedder(dist: Path) -> SentenceEmbedder:
    """The embedder as the application opens it, with an empty cache."""
    return open_embedder()


class CountingEncoder:
    """The real encoder; records the number of texts in each call."""

    def __init__(self) -> None:
        files = embedder_files(cache_dir())
        self._encoder = OnnxEncoder(files.model, files.fingerprint, files.meaning_fingerprint)
        self.fingerprint, self.meaning_fingerprint = files.fingerprint, files.meaning_fingerprint
        self.counts: list[int] = []

    async def encode(self, texts):
        self.counts.append(len(texts))
        return await self._encoder.encode(texts)

    async def states(self, texts):
        self.counts.append(len(texts))
        return await self._encoder.states(texts)


async def test_vectors_are_those_of_the_adapted_model_in_float32(embedder, expected) -> None:
    vectors = await embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text, wanted, vector in zip(TEXTS, expected, vectors, strict=True):
        assert wanted @ vector > 0.985, text


async def test_the_adapter_is_in_the_vectors_and_not_in_the_meanings(embedder, expected, published) -> None:
    vectors, meanings = await embedder.embed(TEXTS), await embedder.meanings(TEXTS)

    def likeness(wanted, found) -> float:
        return float(np.mean([one @ other for one, other in zip(wanted, found, strict=True)]))

    assert likeness(expected, vectors) > 0.99
    assert likeness(published, vectors) < 0.97
    assert likeness(published, [meaning.vector for meaning in meanings]) > 0.99
    assert likeness(expected, [meaning.vector for meaning in meanings]) < 0.97


async def test_a_meaning_is_the_plain_models_last_layer(embedder, weights, tokenizer) -> None:
    for text, meaning in zip(TEXTS, await embedder.meanings(TEXTS), strict=True):
        assert meaning.ids.tolist() == tokenizer.encode(text)
        assert meaning.states.dtype == meaning.vector.dtype == np.float32
        wanted = token_states(weights, tokenizer.encode(text))
        assert meaning.states.shape == wanted.shape
        lengths = np.linalg.norm(meaning.states, axis=1) * np.linalg.norm(wanted, axis=1)
        assert ((meaning.states * wanted).sum(1) / lengths).min() > 0.98, text
        np.testing.assert_allclose(np.linalg.norm(meaning.vector), 1, atol=1e-5)
        np.testing.assert_allclose(
            meaning.vector * np.linalg.norm(meaning.states.mean(0)), meaning.states.mean(0), atol=1e-6
        )


async def test_a_meaning_depends_on_its_text_only(embedder) -> None:
    together = await embedder.meanings([*TEXTS, *reversed(TEXTS)])
    assert together[0] is together[-1]
    for text, meaning in zip(TEXTS, together, strict=False):
        other = open_embedder()
        await other.embed([text])
        (alone,) = await other.meanings([text])
        np.testing.assert_array_equal(alone.states, meaning.states)
        np.testing.assert_array_equal(alone.vector, meaning.vector)


async def test_no_text_an_empty_one_and_a_huge_one_have_meanings(embedder) -> None:
    assert await embedder.meanings([]) == []
    empty, huge = await embedder.meanings(["", "please review my code " * 50_000])
    assert len(empty.ids) == len(empty.states) == 2
    assert len(huge.ids) == len(huge.states) == MAX_TOKENS
    assert all(np.isfinite(meaning.states).all() for meaning in (empty, huge))


async def test_nobody_can_change_a_meaning_that_others_have(embedder) -> None:
    (meaning,) = await embedder.meanings(["hello"])
    for array in (meaning.ids, meaning.states, meaning.vector):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


async def test_meanings_are_kept_up_to_so_many_bytes(dist, tokenizer) -> None:
    encoder = CountingEncoder()
    (one,) = await SentenceEmbedder(tokenizer, CountingEncoder()).meanings(["a"])
    embedder = SentenceEmbedder(tokenizer, encoder, cached_meaning_bytes=2 * one.nbytes)
    await embedder.meanings(["a"])
    await embedder.meanings(["b"])
    await embedder.meanings(["a"])
    await embedder.meanings(["c"])  # b goes
    await embedder.meanings(["a", "c", "a"])
    assert encoder.counts == [1, 1, 1]
    await embedder.meanings(["a word or two more than there is room for"])  # all of them are deleted
    await embedder.meanings(["a", "c"])
    assert encoder.counts == [1, 1, 1, 1, 2]


async def test_what_was_forgotten_is_computed_again(dist, tokenizer) -> None:
    encoder = CountingEncoder()
    embedder = SentenceEmbedder(tokenizer, encoder)
    await asyncio.gather(embedder.embed(["a"]), embedder.meanings(["a"]))
    embedder.forget()
    await asyncio.gather(embedder.embed(["a"]), embedder.meanings(["a"]))
    assert encoder.counts == [1] * 4
    running = asyncio.gather(embedder.embed(["b"]), embedder.meanings(["b"]))
    await asyncio.sleep(0)  # both begin
    assert encoder.counts == [1] * 6
    embedder.forget()  # while they are computed: then they are not kept
    await running
    await asyncio.gather(embedder.embed(["b"]), embedder.meanings(["b"]))
    assert encoder.counts == [1] * 8


def test_numpy_computes_what_sentence_transformers_does(weights, tokenizer) -> None:
    """Cosines of the model's published example, as its authors' library gives them."""
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    vectors = np.array([sentence_vector(weights, tokenizer.encode(sentence)) for sentence in sentences])
    expected = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(vectors @ vectors.T, expected, atol=1e-3)


def test_the_file_without_an_adapter_is_the_published_model(weights, published, tokenizer, tmp_path) -> None:
    path = tmp_path / "plain.onnx"
    path.write_bytes(export(weights, {}, calibration_ids(tokenizer)))
    assert path.stat().st_size < 24_000_000
    encoder = OnnxEncoder(path, "plain", "plain")
    ids = [tokenizer.encode(text) for text in TEXTS]
    for wanted, vector in zip(published, encoder._encode(ids), strict=True):
        assert wanted @ vector > 0.985


async def test_a_vector_does_not_depend_on_its_neighbours(embedder) -> None:
    together = await embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal((await open_embedder().embed([text]))[0], vector)


async def test_no_text_and_empty_texts(embedder) -> None:
    assert (await embedder.embed([])).shape == (0, 384)
    vectors = await embedder.embed(["", " \n", "\u200b"])
    assert np.isfinite(vectors).all()
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])


async def test_a_huge_text_counts_as_far_as_the_model_reads(embedder, tokenizer) -> None:
    huge = "please review my code " * 50_000
    assert len(tokenizer.encode(huge)) == MAX_TOKENS
    as_read = " ".join(huge.split()[: MAX_TOKENS - 2])  # each word is one token
    vectors = await embedder.embed([huge, huge + "and then forget all of it", as_read, as_read[:-5]])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert (vectors[0] != vectors[3]).any()


async def test_texts_are_computed_once(dist, tokenizer) -> None:
    encoder = CountingEncoder()
    embedder = SentenceEmbedder(tokenizer, encoder)
    first = await embedder.embed(["a", "b", "a"])
    np.testing.assert_array_equal(first[0], first[2])
    again = await embedder.embed(["b", "c", "a"])
    assert encoder.counts == [2, 1]
    np.testing.assert_array_equal(again[0], first[1])
    np.testing.assert_array_equal(again[2], first[0])


async def test_what_was_asked_for_longest_ago_is_forgotten_first(dist, tokenizer) -> None:
    encoder = CountingEncoder()
    embedder = SentenceEmbedder(tokenizer, encoder, cached_texts=2)
    await embedder.embed(["a"])
    await embedder.embed(["b"])
    await embedder.embed(["a"])
    await embedder.embed(["c"])  # b goes
    await embedder.embed(["a", "c"])
    assert encoder.counts == [1, 1, 1]
    await embedder.embed(["b"])
    assert encoder.counts == [1, 1, 1, 1]
    vectors = await embedder.embed(["d", "e", "f", "g"])  # more than fit
    assert len({vector.tobytes() for vector in vectors}) == 4


async def test_what_the_caller_does_to_a_vector_stays_his(embedder) -> None:
    vectors = await embedder.embed(["hello"])
    before = vectors.copy()
    vectors[:] = 0
    np.testing.assert_array_equal(await embedder.embed(["hello"]), before)


async def test_many_texts_come_in_pieces_so_that_others_get_their_turn(dist, tokenizer) -> None:
    encoder = CountingEncoder()
    embedder = SentenceEmbedder(tokenizer, encoder)
    texts = [f"text number {index}" for index in range(70)]
    vectors = await embedder.embed(texts)
    assert encoder.counts == [32, 32, 6]
    np.testing.assert_array_equal(vectors[69], (await open_embedder().embed([texts[69]]))[0])


def test_a_damaged_or_missing_file_is_a_sentence(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\x08\x09nonsense")
    for path in (damaged, tmp_path / "nowhere.onnx"):
        with pytest.raises(EmbedderError, match=r"run `python build\.py site`"):
            OnnxEncoder(path, "x", "x")


def test_without_a_built_embedder_the_sentence_says_what_to_run(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SONATA_CACHE", str(tmp_path))
    with pytest.raises(EmbedderError, match=r"run `python build\.py site` once"):
        open_embedder()


def test_an_adapter_of_another_shape_is_refused(weights) -> None:
    name = "encoder.layer.0.attention.self.query"
    wrong = {f"{name}.lora_A": np.zeros((4, 100), np.float16), f"{name}.lora_B": np.zeros((384, 4), np.float16)}
    with pytest.raises(ValueError, match="does not fit the model"):
        merge_adapter(weights, wrong)
    with pytest.raises(ValueError, match="does not fit the model"):
        merge_adapter(weights, {f"{name}.lora_A": np.zeros((4, 384), np.float16)})


def test_the_fingerprint_follows_the_adapter(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.safetensors"
    without = embedder_files(cache_dir(), adapter)
    adapter.write_bytes(b"one")
    one = embedder_files(cache_dir(), adapter)
    adapter.write_bytes(b"two")
    two = embedder_files(cache_dir(), adapter)
    assert len({without.fingerprint, one.fingerprint, two.fingerprint}) == 3
    assert len({without.model, one.model, two.model}) == 3
    assert len({without.meaning_fingerprint, one.meaning_fingerprint, two.meaning_fingerprint}) == 1
