"""Steps in persistent kernels: they give the same tokens, and are used only as long as they do.

lavapipe runs few workgroups side by side, and ends loops early instead of waiting. So here one workgroup does all work.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.models.autotune_cache import AutotuneCache
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_shapes import KernelShapes, PersistentShape
from py_core.backends.webgpu.shaders import Phase
from py_core.backends.webgpu.shape_tuning import ShapeTuning
from py_core.backends.webgpu.values import PassContext
from py_core.paging.page_table import PAGE
from tests.backends.backend_pairs import MODELS, NO_PAUSE, Pair, collect, open_pair, prompt
from tests.backends.webgpu.gpu_shapes import HARDWARE, INTEGERS, SUBGROUPS
from tests.backends.webgpu.test_autotune import Order
from tests.models.architectures.variants import VARIANTS
from tests.tiny.llama import TinyLlama
from tests.tiny.models import Variant

ALONE = PersistentShape(1, 64)


@pytest.fixture(autouse=True)
def usual_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shapes of other kernels are measured elsewhere."""

    async def measure_none(*given: object) -> bool:
        return False

    monkeypatch.setattr(ShapeTuning, "tune", measure_none)


async def tried(
    path: Path, host: WgpuHost, store: AutotuneCache, shapes: KernelShapes = SUBGROUPS, shape: PersistentShape = ALONE
) -> tuple[Pair, WebGPUBackend]:
    """A pair whose GPU has tried this shape, which is the fastest if it works."""
    settings = replace(NO_PAUSE, measure=Order(), persistent=(shape,))
    pair = await open_pair(path, host, tuning=store, shapes=shapes, settings=settings)
    assert isinstance(pair.other, WebGPUBackend)
    assert await pair.other.tune(lambda: False)
    return pair, pair.other


def dispatches(backend: WebGPUBackend) -> int:
    return len(backend.device.launches("step", 1, 100))


def phases_of(backend: WebGPUBackend) -> list[Phase]:
    context = PassContext("one", False, single_row=True, persistent=ALONE)
    lowering = backend.device._lowering
    return [kernel.phase for kernel in lowering._lower(lowering._body, context) if kernel.phase]


async def results(store: AutotuneCache) -> list[list[int]]:
    kept = json.loads(await store.read() or "{}").values()
    return [numbers for one in kept for name, numbers in one.items() if name.startswith("persistent")]


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (MODELS["q4_1"], SUBGROUPS),
        (TinyLlama(hidden=96, heads=6, kv_heads=3, ffn=160, layers=1, formats=("Q8_0",)), INTEGERS),
        (VARIANTS["qwen2"], HARDWARE),
    ],
    ids=["subgroups", "integers", "biases"],
)
async def test_a_step_in_fewer_dispatches_gives_the_same_tokens(
    tmp_path: Path, host: WgpuHost, model: Variant, shapes: KernelShapes
) -> None:
    path, store = model.write(tmp_path / "tiny.gguf"), AutotuneCache(tmp_path / "tuning.json")
    for _ in range(2):  # tried, then kept
        pair, backend = await tried(path, host, store, shapes)
        assert dispatches(backend) == 3, "the embedding, all blocks, the logits"
        ours, reference = await pair.prefilled(list(range(20)))
        assert await collect(backend, ours, 12) == await collect(pair.numpy, reference, 12)
    assert await results(store) == [[1, 64]]


async def test_an_x_longer_than_workgroup_memory_arrives_in_chunks(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "adapter", replace(host.adapter, max_workgroup_storage=16384))
    path = TinyLlama(ffn=3072, layers=1).write(tmp_path / "tiny.gguf")
    pair, backend = await tried(path, host, AutotuneCache(tmp_path / "tuning.json"))
    assert dispatches(backend) == 3
    matvecs = [phase for phase in phases_of(backend) if "CHUNK" in phase.constants]
    chunks = {phase.constants["K"]: phase.constants["CHUNK"] for phase in matvecs}
    assert chunks[3072] < 3072 // 32
    ours, reference = await pair.prefilled(prompt(5))
    assert await collect(backend, ours, 4) == await collect(pair.numpy, reference, 4)


async def test_attention_of_a_sequence_that_gets_long_has_dispatches_of_its_own(tmp_path: Path, host: WgpuHost) -> None:
    path = TinyLlama(context=1088, layers=1).write(tmp_path / "tiny.gguf")
    pair, backend = await tried(path, host, AutotuneCache(tmp_path / "tuning.json"), HARDWARE)
    ours, reference = await pair.prefilled(prompt(SHORT - 3))
    assert await collect(backend, ours, 8) == await collect(pair.numpy, reference, 8)
    # The linears before attention, its parts, the merge of their results, and the linears behind it.
    assert [len(backend.device.launches("step", 1, length)) for length in (SHORT, SHORT + 1)] == [3, 2 + 4]


async def test_pages_that_take_more_than_a_kernel_can_bind_are_read_by_the_usual_kernels(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TinyLlama()
    config = model.config
    page = 2 * 4 * PAGE * config["num_key_value_heads"] * config["hidden_size"] // config["num_attention_heads"]
    monkeypatch.setattr(host, "adapter", replace(host.adapter, max_binding_size=40 * page))
    pair, backend = await tried(model.write(tmp_path / "tiny.gguf"), host, AutotuneCache(tmp_path / "tuning.json"))
    ours, reference = await pair.prefilled(prompt(20))
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)
    assert dispatches(backend) == 3
    for seed in (1, 2):  # of the first 16 pages, each takes eight
        await pair.prefilled(prompt(480, seed=seed))
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)
    assert dispatches(backend) == 5 * 2 + 2


async def test_kernels_that_give_wrong_logits_are_not_used(tmp_path: Path, host: WgpuHost) -> None:
    path = TinyLlama(ffn=1024, layers=1).write(tmp_path / "tiny.gguf")
    store = AutotuneCache(tmp_path / "tuning.json")
    # More workgroups than lavapipe has threads: the first ones wait for others in vain.
    pair, backend = await tried(path, host, store, shape=PersistentShape(64, 64))
    assert await results(store) == [[0, 0]]
    assert dispatches(backend) == 5 + 2
    ours, reference = await pair.prefilled(prompt(20))
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)


async def test_after_a_workgroup_gave_up_everything_is_made_again_without_persistent_kernels(
    tmp_path: Path,
) -> None:
    path, store = MODELS["q4_1"].write(tmp_path / "tiny.gguf"), AutotuneCache(tmp_path / "tuning.json")
    host = WgpuHost()
    pair, backend = await tried(path, host, store)
    ours, reference = await pair.prefilled(prompt(20))
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)
    handed = next(
        binding
        for launch in backend.device.launches("step", 1, 100)
        if " > " in launch.kernel.name
        for binding in launch.kernel.bindings()[-1:]
    )
    host.write(handed.buffer, handed.offset, b"\1\0\0\0")  # as a workgroup does
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)
    assert (backend.recovery.rebuilds, dispatches(backend)) == (1, 5 * 2 + 2)
    assert await results(store) == [[0, 0]]


async def test_kernels_that_cannot_be_joined_stay_apart(tmp_path: Path, host: WgpuHost) -> None:
    path, store = MODELS["mixed"].write(tmp_path / "tiny.gguf"), AutotuneCache(tmp_path / "tuning.json")
    pair, backend = await tried(path, host, store, INTEGERS)
    ours, reference = await pair.prefilled(prompt(9))
    assert await collect(backend, ours, 6) == await collect(pair.numpy, reference, 6)
    assert await results(store) == []
