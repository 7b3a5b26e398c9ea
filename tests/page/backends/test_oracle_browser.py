"""SmolLM2 in Chromium against llama.cpp in float32 (tests/oracle), and the memory that Python takes beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.formats.source import FileSource
from py_core.loading import load_model
from tests.page.backends.browser_variants import KernelVariant, kernel_variants
from tests.page.chat_page import ChatPage

pytestmark = pytest.mark.asyncio(loop_scope="session")

STEPS = 4
QUESTION = "What is the capital of France? The capital of France is"
"""12 tokens, more than a pass of few rows has, so that the prefill kernels run."""

SLOW = frozenset(
    {
        *(
            "attention_gradient_keys",
            "attention_gradient_rows",
            "attention_merge",
            "attention_split",
            "attention_tiles",
        ),
        *("demote", "low_rank_down", "low_rank_gradient", "matmul", "matmul_gradient", "matmul_integer"),
        "packed_attention",
    }
)
"""Kernels whose compilation for a software GPU takes a second and more. Kernels that a prompt needs are compiled
when the tiny model answers."""

GENERATE = "([prompt, maxTokens]) => sonata.engine.developer.generate({ prompt, raw: true, maxTokens })"
LOGITS = """async (prompt) => {
  const bytes = await sonata.engine.developer.logits({ prompt, raw: true });
  return Array.from(new Float32Array(bytes.buffer));
}"""


async def logits_equal(chat: ChatPage, prompt: str, reference: np.ndarray) -> None:
    got = np.array(await chat.page.evaluate(LOGITS, prompt), np.float32)
    assert got @ reference / (np.linalg.norm(got) * np.linalg.norm(reference)) > 0.99999
    assert np.abs(got - reference).max() < 0.02


@pytest.mark.all
async def test_logits_and_greedy_tokens_equal_numpy(chat: ChatPage, model_path: Path) -> None:
    """The tiny model continues longer: without a GPU a prompt is read in passes of seconds. numpy equals llama.cpp."""
    model = await load_model(FileSource(model_path), load_numpy, native_renderer())
    question, answered = (model.backend.new_sequence() for _ in range(2))
    await chat.open_ready("?backend=webgpu&routing=off")
    await model.backend.prefill(question, model.tokenizer.encode(QUESTION))
    await logits_equal(chat, QUESTION, await model.backend.logits(question))

    answer = await chat.page.evaluate(GENERATE, ["The capital of France is", STEPS])
    assert answer["backend"] == "webgpu"
    assert answer["promptTokens"] == model.tokenizer.encode("The capital of France is")
    await model.backend.prefill(answered, answer["promptTokens"])
    assert len(answer["tokens"]) == STEPS
    for token in answer["tokens"]:
        logits = await model.backend.logits(answered)
        assert logits[token] > logits.max() - 0.02
        await model.backend.prefill(answered, [token])
    assert chat.errors == []
    # The weights bypassed Python: its heap holds the interpreter, numpy and the tokenizer.
    assert await chat.page.evaluate("sonata.engine.pythonHeapBytes()") < 150e6


@pytest.mark.all
@pytest.mark.parametrize("name", ["p0", "p1", "p3"])
async def test_logits_and_greedy_tokens_equal_llama_cpp(chat: ChatPage, oracle, name: str) -> None:
    await chat.open_ready("?backend=webgpu&routing=off")
    expected = oracle(name)
    await logits_equal(chat, expected.prompt, expected.logits.ravel())
    # Rounding may decide the first token of p1 and p3: they continue after the oracle's first word.
    first = expected.first_certain()
    certain = expected.certain_ids(first=first)[:STEPS]
    begun = expected.text[: {"p0": 0, "p1": 3, "p3": 1}[name]]
    assert begun == ("The" if name == "p1" else "A" if name == "p3" else "")
    answer = await chat.page.evaluate(GENERATE, [expected.prompt + begun, len(certain)])
    assert answer["backend"] == "webgpu"
    assert answer["promptTokens"] == expected.prompt_ids + expected.greedy_ids[:first]
    assert answer["tokens"] == certain
    assert chat.errors == []


@pytest.mark.all  # tests/backends/wasm/test_oracle_wasm.py has the same kernels
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
        assert answer["promptTokens"] == expected.prompt_ids + expected.greedy_ids[:first]
        assert answer["tokens"] == certain
    assert chat.errors == []
    assert await chat.page.evaluate("sonata.engine.pythonHeapBytes()") < 150e6


REFUSED = """async ([variants, checked]) => {
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
}"""


async def test_the_browser_takes_every_variant_of_every_kernel_and_compiles_most_kernels(chat: ChatPage) -> None:
    """Chromium is stricter than wgpu-py. It parses and validates each variant, and compiles most kernels once."""
    variants = kernel_variants()
    one_of_each = {one.kernel: one for one in variants if one.whole and one.kernel not in SLOW}
    assert len(one_of_each) > 25
    await takes(chat, list(one_of_each.values()), variants)


@pytest.mark.all
async def test_the_browser_compiles_every_variant_of_every_kernel(chat: ChatPage) -> None:
    """Its adapter here never chooses the shapes of a real GPU."""
    variants = kernel_variants()
    await takes(chat, [one for one in variants if one.whole], [one for one in variants if not one.whole])


async def takes(chat: ChatPage, whole: list[KernelVariant], checked: list[KernelVariant]) -> None:
    await chat.page.goto(f"{chat.site}/THIRD_PARTY.txt")
    given = [[[one.label, one.wgsl, one.access] for one in part] for part in (whole, checked)]
    refused = await chat.page.evaluate(REFUSED, given)
    # The broken kernel shows both times that a refusal is noticed, and forgotten at the next check.
    assert [message.split(":")[0] for message in refused] == ["broken"] * 2, refused
