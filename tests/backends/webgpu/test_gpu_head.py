"""Adapters at the head's input and scores in the WebGPU backend: in a GPU's shapes, in chunks, and after a loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.settings import DeviceSettings
from py_core.token_sequence import TokenSequence
from tests.backends.backend_pairs import Pair, collect, open_pair, prompt
from tests.backends.head_adapters import drawn_adapters
from tests.backends.webgpu.gpu_shapes import HARDWARE
from tests.models.architectures.variants import QUANTIZED


async def use(pair: Pair, adapter, ours: TokenSequence, reference: TokenSequence) -> None:
    for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
        backend.use_head_adapter(sequence, await backend.put_head_adapter(adapter))


async def alike(pair: Pair, ours: TokenSequence, reference: TokenSequence) -> None:
    for expected, found in (
        (await pair.numpy.last_logits(reference, 3), await pair.other.last_logits(ours, 3)),
        (await pair.numpy.token_logprobs(reference, 2), await pair.other.token_logprobs(ours, 2)),
    ):
        np.testing.assert_allclose(found, expected, atol=3e-3 * np.abs(expected).max())


async def test_kernels_of_a_gpu_make_logits_scores_and_tokens_with_adapters(tmp_path: Path, host: WgpuHost) -> None:
    few_at_a_time = DeviceSettings(logit_bytes=0)  # 32 rows are scored at a time
    path = QUANTIZED["gemma2"].write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, host, shapes=HARDWARE, settings=few_at_a_time)
    tokens = prompt(70)
    sequences = await pair.prefilled(tokens)
    await alike(pair, *sequences)
    states = (await pair.numpy.hidden(sequences[1], ["final_norm"]))["final_norm"]
    await use(pair, drawn_adapters(np.random.default_rng(2), states, 200)[1], *sequences)
    await alike(pair, *sequences)
    assert await collect(pair.other, sequences[0], 5) == await collect(pair.numpy, sequences[1], 5)
