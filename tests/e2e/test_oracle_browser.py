"""SmolLM2 in Chromium against llama.cpp in float32 (tests/oracle), and how much memory Python takes beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chat_page import ChatPage
from small_site import MODEL, SmallSite

from app.template_renderer import native_renderer
from py_core.backends.numpy import load_numpy
from py_core.backends.webgpu.attention import lane_group_shape
from py_core.backends.webgpu.host import AdapterInfo
from py_core.backends.webgpu.layout import LAYOUTS
from py_core.backends.webgpu.repack import repack_shader
from py_core.backends.webgpu.shaders import binding_access, compose, compose_pair
from py_core.formats.quantization import FORMATS
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.training_variants import training_variants

pytestmark = pytest.mark.asyncio(loop_scope="session")

STEPS = 4
QUESTION = "What is the capital of France? The capital of France is"
"""12 tokens, more than a pass of few rows has: they go through the kernels of a prefill."""

GENERATE = "([prompt, maxTokens]) => sonata.engine.generate(prompt, { raw: true, maxTokens })"
LOGITS = "async (prompt) => Array.from(await sonata.engine.logits(prompt, { raw: true }))"


async def logits_equal(chat: ChatPage, prompt: str, reference: np.ndarray) -> None:
    got = np.array(await chat.page.evaluate(LOGITS, prompt), np.float32)
    assert got @ reference / (np.linalg.norm(got) * np.linalg.norm(reference)) > 0.99999
    assert np.abs(got - reference).max() < 0.02


async def test_logits_and_greedy_tokens_equal_numpy(chat: ChatPage, model_path: Path) -> None:
    """The tiny model goes on longer: a prompt is read in passes of seconds without a GPU. numpy equals llama.cpp."""
    model = await load_model(FileSource(model_path), load_numpy, native_renderer())
    question, answered = (model.backend.new_sequence() for _ in range(2))
    await chat.open_ready("?backend=webgpu&routing=off")
    await model.backend.prefill(question, model.tokenizer.encode(QUESTION))
    await logits_equal(chat, QUESTION, await model.backend.logits(question))

    answer = await chat.page.evaluate(GENERATE, ["The capital of France is", STEPS])
    assert answer["backend"] == "webgpu"
    assert answer["prompt_tokens"] == model.tokenizer.encode("The capital of France is")
    await model.backend.prefill(answered, answer["prompt_tokens"])
    assert len(answer["tokens"]) == STEPS
    for token in answer["tokens"]:
        logits = await model.backend.logits(answered)
        assert logits[token] > logits.max() - 0.02
        await model.backend.prefill(answered, [token])
    assert chat.errors == []
    # The weights went past Python: its heap holds the interpreter, numpy and the tokenizer.
    assert await chat.page.evaluate("sonata.engine.pythonHeapBytes()") < 150e6


@pytest.mark.all
@pytest.mark.parametrize("name", ["p0", "p1", "p3"])
async def test_logits_and_greedy_tokens_equal_llama_cpp(chat: ChatPage, oracle, name: str) -> None:
    await chat.open_ready("?backend=webgpu&routing=off")
    expected = oracle(name)
    await logits_equal(chat, expected.prompt, expected.logits.ravel())
    # Rounding may decide the first token of p1 and p3: they go on after the oracle's first word.
    first = expected.first_certain()
    certain = expected.certain_ids(first=first)[:STEPS]
    begun = expected.text[: {"p0": 0, "p1": 3, "p3": 1}[name]]
    assert begun == ("The" if name == "p1" else "A" if name == "p3" else "")
    answer = await chat.page.evaluate(GENERATE, [expected.prompt + begun, len(certain)])
    assert answer["backend"] == "webgpu"
    assert answer["prompt_tokens"] == expected.prompt_ids + expected.greedy_ids[:first]
    assert answer["tokens"] == certain
    assert chat.errors == []


async def test_on_webgpu_a_tiny_model_says_what_numpy_says(tiny_chat: ChatPage, tiny_files: SmallSite) -> None:
    """Over passes of many rows and pages of keys and values."""
    model = await load_model(FileSource(tiny_files.folder / MODEL), load_numpy, native_renderer())
    await tiny_chat.open_ready("?backend=webgpu&routing=off")
    for prompt, count in (("Once upon a time", 60), ("Tell me a very long story about a lighthouse. " * 5, 20)):
        answer = await tiny_chat.page.evaluate(GENERATE, [prompt, count])
        assert len(answer["tokens"]) == count
        sequence = model.backend.new_sequence()
        await model.backend.prefill(sequence, answer["prompt_tokens"])
        expected = await model.backend.logits(sequence)
        got = np.array(await tiny_chat.page.evaluate(LOGITS, prompt), np.float32)
        np.testing.assert_allclose(got, expected, atol=0.01)
        for token in answer["tokens"]:
            logits = await model.backend.logits(sequence)
            assert logits[token] > logits.max() - 0.02
            await model.backend.prefill(sequence, [token])
        model.backend.free(sequence)


async def test_the_cpu_agrees_with_llama_cpp_where_the_next_token_is_certain(chat: ChatPage, oracle) -> None:
    await chat.open_ready("?backend=wasm&precision=precise&routing=off")
    for name in ("p0", "p1", "p3"):
        expected = oracle(name)
        got = np.array(await chat.page.evaluate(LOGITS, expected.prompt), np.float32)
        reference = expected.logits.ravel()
        assert got @ reference / (np.linalg.norm(got) * np.linalg.norm(reference)) > 0.9999
        first = expected.first_certain(0.05)
        certain = expected.certain_ids(0.05, first)
        begun = expected.text[: {"p0": 0, "p1": 3, "p3": 1}[name]]
        answer = await chat.page.evaluate(GENERATE, [expected.prompt + begun, len(certain)])
        assert answer["backend"] == "wasm"
        assert answer["prompt_tokens"] == expected.prompt_ids + expected.greedy_ids[:first]
        assert answer["tokens"] == certain
    assert chat.errors == []
    assert await chat.page.evaluate("sonata.engine.pythonHeapBytes()") < 150e6


async def test_the_browser_compiles_every_variant_of_every_kernel(chat: ChatPage) -> None:
    """Chromium is stricter than wgpu-py, and its adapter here never chooses the shapes of a real GPU."""
    sizes = {"HEADS": 9, "KV_HEADS": 3, "HEAD_DIM": 64, "PAGE": 64, "MAX_PAGES": 128}
    vocabulary = {"VOCAB": 49152, "RING": 1024, "WORKGROUP": 256}
    reductions = [("reduce_single", 1), ("reduce_workgroup", 32), ("reduce_subgroup", 4)]
    variants, checked = [], []
    least = AdapterInfo("least", "", False, 4, 128 << 20, 256 << 20, 16 << 10, 256, 8, True)

    def add(name: str, snippets: dict[str, str], whole: bool = True, **constants) -> None:
        """`whole` has it compiled for the adapter as well, which takes long: once for each shape and snippet is enough.

        What follows the product (EPILOGUE) changes neither the workgroup nor its memory, which the adapter limits.
        """
        wgsl = compose(name, {"MAX_ROWS": 256, **constants}, snippets)
        (variants if whole else checked).append([f"{name} {snippets}", wgsl, binding_access(wgsl)])

    for form in FORMATS.values():
        if LAYOUTS[form.name].repack:
            wgsl = repack_shader(form)
            variants.append([f"repack {form.name}", wgsl, binding_access(wgsl)])
        dequantize = {"dequantize": f"dequantize_{form.name.lower()}"}
        add("embedding", dequantize, K=768, N=100, BLOCKS=2400, FIRST_ROW=0, SCALE=1.0, WORKGROUP=64)
        # What reads a format is the same code in each shape: all shapes are compiled for one format.
        every = form.name == "Q4_1"
        matrix = {"K": 768, "N": 100, "BLOCKS": 4800}
        shape = {"EPS": 1e-5, "ROWS": 2, "M_TILE": 4, "CHUNK": 8, "WORKGROUP": 64, "SUBGROUPS": 1, "ROW_TILES": 1}
        for reduce, lanes in reductions if every else reductions[-1:]:
            staged = lanes > 1
            snippets = {**dequantize, "reduce": reduce, "columns": "x_staged" if staged else "x_direct"}
            shape |= {"LANES": lanes, "NORM": staged, "SINGLE_ROW": not staged}
            rotation = {"PAIRS": 24 if staged else 0, "INTERLEAVED": False}
            rows = {"FIRST_ROW": 0, "ADD_BIAS": staged, "BIAS_AT": 768}
            add("qkv", snippets, every, **matrix, **shape, FIRST_HEAD=0, **rotation, **rows, **sizes)
            for epilogue in (0, 1, 2) if every else (0,):
                linear = {**matrix, **rows, "Y_STRIDE": 100, "Y_OFFSET": 0, "EPILOGUE": epilogue, "GELU": staged}
                whole = every and epilogue == 0
                add("matvec", snippets, whole, **linear, **shape, LOGITS=False, CAP=0.0 if staged else 30.0)
                if staged and LAYOUTS[form.name].quantized:
                    # A lane group of two subgroups has three row tiles over columns that it keeps.
                    row_tiles = {**shape, "SUBGROUPS": 2, "ROW_TILES": 3, "CHUNK": 24, "M_TILE": 1}
                    kept = {**snippets, "halves": "halves_unpacked"}
                    for columns in ("x_staged", "x_limbs"):
                        kept |= {"columns": columns}
                        add("matvec", kept, whole, **linear, **row_tiles, LOGITS=False, CAP=0.0)
                    several = {**shape, "M_TILE": 8, "CHUNK": 24}
                    made = {**snippets, "columns": "x_limbs_rows"}
                    add("matvec", made, whole, **linear, **several, LOGITS=True, CAP=0.0)
                    several |= {"CHUNK": lanes, "NORM": False}
                    read = {**snippets, "columns": "x_limbs_read", "x_binding": "x_binding_limbs"}
                    add("matvec", read, whole, **linear, **several, LOGITS=True, CAP=0.0)
        for epilogue in (0, 1, 2) if every else (0,):
            for slices, wide in ((2, 1), (1, 2)):
                linear = {**matrix, "FIRST_ROW": 0, "Y_STRIDE": 100, "Y_OFFSET": 0, "EPILOGUE": epilogue}
                linear |= {"ADD_BIAS": wide == 2, "BIAS_AT": 0, "GELU": wide == 2}
                add("matmul", dequantize, every and epilogue == 0, **linear, SLICES=slices, WIDE=wide)
                if LAYOUTS[form.name].quantized:
                    whole = every and epilogue == 0 and slices == 2
                    add("matmul_integer", dequantize, whole, **linear, SLICES=slices, WIDE=4 * wide)
    # With a set of LoRA matrices, in the ways that kernels add it: for one row of x, and for many.
    lora = {
        "RANK": 16,
        "LINEARS": 3,
        "LORA_A": 768,
        "LORA_B": 9600,
        "LORA_SECOND": 40,
        "LORA_THIRD": 80,
        "LORA_FIRST": 0,
    }
    leaves = {"NEXT_LINEARS": 2, "NEXT_K": 320, "NEXT_TILE": 8, "NEXT_SHARES": 2, "NEXT_A": 768}
    q4_1 = {"dequantize": "dequantize_q4_1"}
    linear = {**matrix, **rows, "Y_STRIDE": 100, "Y_OFFSET": 0, "GELU": False}
    for reduce, lanes, columns in (("reduce_single", 1, "x_direct"), ("reduce_subgroup", 4, "x_limbs")):
        alone = lanes == 1
        adds = {"lora": "lora_read" if alone else "lora_parts", "reduce": reduce, "columns": columns, **q4_1}
        shape |= {"LANES": lanes, "NORM": not alone, "SINGLE_ROW": not alone, "M_TILE": 4 if alone else 1}
        with_lora = {**shape, **lora, "LORA_PARTS": 9}
        heads = {"FIRST_HEAD": 0, "PAIRS": 24, "INTERLEAVED": False, **sizes}
        nine = {**adds, "lora_binding": "lora_binding_9"}
        add("qkv", nine, False, **matrix, **with_lora, **heads, **rows, LORA_GATED=False)
        kept = {**adds, "lora_binding": "lora_binding_6"}
        if not alone:
            kept |= {"lora_next": "lora_next_part", "lora_next_binding": "lora_next_binding_7"}
        gated = {"EPILOGUE": 2, "LORA_GATED": True, "LOGITS": False, "CAP": 0.0}
        add("matvec", kept, not alone, **linear, **with_lora, **({} if alone else leaves), **gated)
        down = {"reduce": reduce, **({} if alone else {"limbs_of_rows": "limbs_beside"})}
        add("lora_down", down, not alone, K=768, M_TILE=4, WORKGROUP=128, LANES=16, LORA_LANES=16, **lora)
    tile = {"lora_tile_none": "lora_tile", "lora_binding": "lora_binding_6", **q4_1}
    for name, wide in (("matmul", 1), ("matmul_integer", 4)):
        add(name, tile, False, **linear, **lora, EPILOGUE=2, SLICES=2, WIDE=wide)
    beside = {"lora_next": "lora_next_part", "lora_next_binding": "lora_next_binding_5", "reduce": "reduce_subgroup"}
    attention = {**sizes, "SCALE": 0.125, "SOFTCAP": 0.0, "WINDOW": 0, **leaves, "RANK": 16}
    split = {"LANES": 8, "WORKGROUP": 128, "SPLIT": 256, "HEADS_EACH": 1, "DIRECT": True, "SINGLE_ROW": True}
    add("attention_split", beside, False, **attention, **split)
    beside |= {"lora_next_binding": "lora_next_binding_3"}
    add("attention_merge", beside, False, **attention, SPLIT=128, WORKGROUP=256)
    all_tiers, tier_bits = {"kv_quads": "kv_quads_demoted"}, {"TIER_SHIFT": 24}
    beside |= {"lora_next_binding": "lora_next_binding_6", **all_tiers}
    add("attention_split", beside, False, **attention, **split, **tier_bits)
    halves = {"reduce": "reduce_subgroup", "columns": "x_limbs", "halves": "halves"}
    once = {**matrix, **shape, "M_TILE": 1, **rotation, **rows, **sizes, "QUANTS_AT": 0, "SCALES_AT": 9}
    pair = [
        ({"MAX_ROWS": 256, **once, "FIRST_HEAD": first}, {"dequantize": f"dequantize_{name}", **halves})
        for first, name in ((0, "q4_k"), (12, "q6_k"))
    ]
    wgsl = compose_pair("qkv", pair, 5)
    variants.append(["qkv of two formats", wgsl, binding_access(wgsl)])
    add("limbs", {}, K=768, WORKGROUP=64)
    lanes_of_rows = {"LANES": 4, "WORKGROUP": 128, "NORM": True, "EPS": 1e-5}
    add("row_limbs", {"reduce": "reduce_subgroup"}, True, K=768, LOGITS=True, **lanes_of_rows)
    for pairs, interleaved in ((24, False), (32, True), (30, False), (0, False)):
        rotation = {"PAIRS": pairs, "INTERLEAVED": interleaved}
        add("rope_append", {}, pairs == 24, **sizes, WORKGROUP=64, **rotation, HEAD_NORM=pairs == 24, EPS=1e-5)
        add("rope", {}, pairs == 24, HEADS=9, HEAD_DIM=64, WORKGROUP=64, **rotation)
    add("append", {}, KV_HEADS=3, HEAD_DIM=64, PAGE=64, MAX_PAGES=128, WORKGROUP=64)
    plain = {"SCALE": 0.125, "SOFTCAP": 0.0, "WINDOW": 0}
    narrow = {"SCALE": 0.0625, "SOFTCAP": 50.0, "WINDOW": 512}
    add("attention", {}, **sizes, **narrow, WORKGROUP=4)
    for head_dim in (64, 72, 80, 256):
        shape = {**sizes, **(plain if head_dim == 72 else narrow), "HEAD_DIM": head_dim}
        for reduce, most_lanes in (("reduce_workgroup", 32), ("reduce_subgroup", 8)):
            lanes, workgroup = lane_group_shape(head_dim, most_lanes, 256, least)
            split = {**shape, "LANES": lanes, "WORKGROUP": workgroup}
            add(
                "attention_split",
                {"reduce": reduce},
                head_dim == 64,
                **split,
                SPLIT=256,
                HEADS_EACH=1,
                DIRECT=True,
                SINGLE_ROW=True,
            )
            add(
                "attention_split",
                {"reduce": reduce},
                head_dim == 64,
                **split,
                SPLIT=128,
                HEADS_EACH=2,
                DIRECT=False,
                SINGLE_ROW=False,
            )
            add(
                "attention_split",
                {"reduce": reduce, **all_tiers},
                head_dim == 64,
                **split,
                SPLIT=128,
                HEADS_EACH=2,
                DIRECT=False,
                SINGLE_ROW=True,
                **tier_bits,
            )
        add("attention_merge", {}, head_dim == 64, **shape, SPLIT=128, WORKGROUP=256)
        for slices in (1, 2):
            add("attention_tiles", {}, head_dim == 64 and slices == 1, **shape, SLICES=slices)
            add("attention_tiles", all_tiers, head_dim == 64 and slices == 1, **shape, SLICES=slices, **tier_bits)
        pages = {"KV_HEADS": 3, "HEAD_DIM": head_dim, "PAGE": 64, "WORKGROUP": 256, **tier_bits}
        add("demote", {"halves": "halves_unpacked"}, head_dim == 64, **pages)
    for reduce, lanes in reductions:
        norm = {"K": 576, "HEADS": 1, "EPS": 1e-5, "LANES": lanes, "WORKGROUP": lanes}
        add("rms_norm", {"reduce": reduce}, **norm, LOGITS=True, ADD=False)
        changed = {"K": 576, "EPS": 1e-5, "LANES": lanes, "WORKGROUP": 256}
        add("head_adapt", {"reduce": reduce}, False, **changed, SCORED=lanes > 1)
    add("rms_norm", {"reduce": "reduce_workgroup"}, **{**norm, "LANES": 256, "WORKGROUP": 256}, LOGITS=False, ADD=True)
    for name in ("argmax", "penalties", "sample"):
        add(name, {}, **vocabulary)
    add("head_mix", {}, False, K=576, VOCAB=49152, WORKGROUP=256)
    add("token_scores", {}, False, K=576, VOCAB=49152, CAP=30.0, WORKGROUP=256)
    for gelu in (False, True):
        add("glu", {}, N=100, GELU=gelu, WORKGROUP=64)
    add("add", {}, N=100, WORKGROUP=64)
    add("soft_cap", {}, N=100, CAP=30.0, WORKGROUP=64)
    add("copy_rows", {}, K=576, WORKGROUP=64)
    for name, read, whole, constants in training_variants():
        add(name, dict(read), whole, **constants)
    add("unpack_halves", {})
    add("read_bandwidth", {}, LOADS=8, WORKGROUP=256)
    add("multiply_add", {}, CHAINS=8, STEPS=256, WORKGROUP=64)

    await chat.page.goto(f"{chat.site}/THIRD_PARTY.txt")
    refused = await chat.page.evaluate(
        """async ([variants, checked]) => {
          const { createExecutor } = await import('./backends/webgpu/executor.js');
          const { findAdapter, openDevice } = await import('./backends/webgpu/adapter.js');
          const executor = await createExecutor();
          const refused = [];
          const broken = ['broken', 'fn main() { nonsense }', ''];
          for (const together of [[broken], variants]) {
            for (const [name, wgsl, access] of together) executor.pipeline(wgsl, access, name);
            const message = await executor.check();
            if (message) refused.push(message);
          }
          const device = await openDevice(await findAdapter());
          for (const [name, code] of [broken, ...checked]) {
            const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
            const error = messages.find(({ type }) => type === 'error');
            if (error) refused.push(`${name}: ${error.message}`);
          }
          return refused;
        }""",
        [variants, checked],
    )
    # The broken one shows both times that a refusal is noticed, and forgotten with the next check.
    assert [message.split(":")[0] for message in refused] == ["broken"] * 2, refused
