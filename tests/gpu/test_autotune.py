"""The shapes of a matvec are measured once, kept, and give the same tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.autotune_cache import AutotuneCache
from py_core.backends.webgpu import kernel_builder
from py_core.backends.webgpu.autotune import candidates
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.tuning import GPU_ROWS, KernelShapes, MatmulShape, RowColumns
from py_core.fit import memory_need
from py_core.formats.gguf import read_header
from py_core.formats.quantization import FORMATS
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.backend_pairs import Pair, collect, open_pair, prompt
from tests.tiny_llama import TinyLlama

# As on a GPU; the subgroups of lavapipe are 4 wide.
SHAPES = KernelShapes(32, 64, "reduce_workgroup", 4, 1, True, True, 64, True, False)
SUBGROUPS = KernelShapes(4, 64, "reduce_subgroup", 4, 1, True, True, 64, True, True)


class Kept(AutotuneCache):
    writes = 0

    async def write(self, text: str) -> None:
        self.writes += 1
        await super().write(text)


class LateHost(WgpuHost):
    """Its kernels are there after a `check` only, as a browser's are."""

    def __init__(self) -> None:
        super().__init__()
        self.late: set[int] = set()

    def pipeline(self, wgsl: str, access: str, label: str) -> int:
        made = super().pipeline(wgsl, access, label)
        self.late.add(made)
        return made

    async def check(self) -> None:
        await super().check()
        self.late.clear()

    async def upload(self, *what: Any) -> None:
        late, self.late = self.late, set()
        await super().upload(*what)
        self.late = late

    def submit(self, recorded: Sequence[int]) -> None:
        pipelines = {id(step[0]) for one in recorded for step in self._recorded[one]}
        assert not pipelines & {id(self._pipelines[made][0]) for made in self.late}
        super().submit(recorded)


async def load(tmp_path: Path, host: WgpuHost, store: Kept, shapes: KernelShapes | None = SHAPES) -> Pair:
    model = TinyLlama(hidden=512, heads=8, kv_heads=2, ffn=1024, layers=1)
    return await open_pair(model.write(tmp_path / "tiny.gguf"), host, tuning=store, shapes=shapes)


@pytest.mark.parametrize("shapes", [SHAPES, SUBGROUPS], ids=["workgroup", "subgroups"])
async def test_what_is_measured_once_is_kept_and_changes_no_token(tmp_path: Path, host: WgpuHost, shapes) -> None:
    store = Kept(tmp_path / "cache" / "tuning.json")
    pair = await load(tmp_path, host, store, shapes)
    ours, reference = await pair.prefilled(prompt(20))
    assert await collect(pair.other, ours, 12) == await collect(pair.numpy, reference, 12)
    (kept,) = json.loads(await store.read()).values()
    assert {name.split()[0] for name in kept} == {"qkv", "linear"}
    of_few = {name.removesuffix(", few rows"): shape for name, shape in kept.items() if name.endswith(", few rows")}
    kept = {name: shape for name, shape in kept.items() if not name.endswith(", few rows")}
    assert len(kept) == 5
    assert set(of_few) == (set(kept) if shapes.integer_dot else set())
    assert all(RowColumns(shape[5]) != RowColumns.FLOATS for shape in of_few.values())
    for name, shape in kept.items():
        columns = int(name.split()[1].split("x")[0])
        assert shape in [one.as_list() for one in candidates(shapes, host.adapter, columns)]

    await load(tmp_path, host, store, shapes)
    assert store.writes == 1


@pytest.mark.parametrize("formats", [("F32",), ("Q4_1",)])
async def test_no_kernel_runs_before_it_is_compiled(tmp_path: Path, formats: tuple[str, ...]) -> None:
    path = TinyLlama(formats=formats, layers=1).write(tmp_path / "tiny.gguf")
    store = Kept(tmp_path / "tuning.json")
    for _ in range(2):  # measured, then kept
        pair = await open_pair(path, LateHost(), tuning=store, shapes=SHAPES)
        ours, reference = await pair.prefilled(prompt(9))
        assert await collect(pair.other, ours, 3) == await collect(pair.numpy, reference, 3)
        await pair.other.profile(20)
        pair.other.close()


async def test_the_shape_that_is_kept_is_the_one_that_runs(tmp_path: Path, host: WgpuHost) -> None:
    store = Kept(tmp_path / "tuning.json")
    await load(tmp_path, host, store)
    kept = json.loads(await store.read())
    grids = set()
    for shape in ([8, 128, 2, 1, 1, 0], [32, 256, 1, 1, 1, 0]):
        for of_adapter in kept.values():
            of_adapter.update(dict.fromkeys(of_adapter, shape))
        await store.write(json.dumps(kept))
        backend = (await load(tmp_path, host, store)).other
        assert isinstance(backend, WebGPUBackend)
        grids.add(tuple(launch.dispatch().groups for launch in backend._launches("step", 1, 1)))
    assert len(grids) == 2


async def test_a_prefill_runs_in_the_tiles_that_were_kept(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its integers take the memory that was told before."""
    # Each shape that is tried takes seconds to compile here.
    monkeypatch.setattr(kernel_builder, "_INTEGER_TILES", [MatmulShape(True, 2, 4)])
    taken = {}
    create_buffer = host.create_buffer
    monkeypatch.setattr(
        host, "create_buffer", lambda size, label: taken.update({label: size}) or create_buffer(size, label)
    )
    store, shapes = Kept(tmp_path / "tuning.json"), replace(SHAPES, max_rows=128, integer_dot=True)
    model = TinyLlama(layers=1, formats=("Q4_1",)).write(tmp_path / "tiny.gguf")
    await open_pair(model, host, tuning=store, shapes=shapes)
    kept = json.loads(await store.read())
    (of_adapter,) = kept.values()
    many = [name for name in of_adapter if name.endswith("many rows")]
    assert many
    assert all(of_adapter[name][0] in (0, 1) for name in many)
    for tiles in ([0, 4, 1], [1, 2, 4]):
        of_adapter.update(dict.fromkeys(many, tiles))
        await store.write(json.dumps(kept))
        pair = await open_pair(model, host, tuning=store, shapes=shapes)
        assert isinstance(pair.other, WebGPUBackend)
        made = [launch.kernel.name for launch in pair.other._launches("body", 100, 100)]
        assert any(name.startswith("limbs") for name in made) == bool(tiles[0])
        builder = pair.other._lowering._builder
        assert builder.tiles("of the head, made later", FORMATS["Q8_0"], 259).as_list() == tiles
        ours, reference = await pair.prefilled(prompt(100))
        found, expected = await pair.other.logits(ours), await pair.numpy.logits(reference)
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    header = await read_header(FileSource(model))
    told = {}
    for integers in (False, True):
        adapter = replace(host.adapter, software=False, integer_dot=integers)
        told[integers] = memory_need(header.tensors, *describe_model(header), "webgpu", adapter=adapter).scratch
    limbs = sum(size for label, size in taken.items() if label.startswith("limbs"))
    assert (told[True] - told[False]) / GPU_ROWS == limbs / shapes.max_rows > 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": {"qkv": [3, 5]}}'])
async def test_what_is_damaged_is_measured_again(tmp_path: Path, host: WgpuHost, text: str) -> None:
    store = Kept(tmp_path / "tuning.json")
    await load(tmp_path, host, store)
    good = json.loads(await store.read())
    (adapter,) = good
    # Shapes that no kernel of this adapter has, too: its lanes could not add up.
    for damaged in (text, json.dumps({adapter: {name: [64, 64, 1, 1, 1] for name in good[adapter]}})):
        await store.write(damaged)
        pair = await load(tmp_path, host, store)
        ours, reference = await pair.prefilled(prompt(9))
        assert await collect(pair.other, ours, 3) == await collect(pair.numpy, reference, 3)
        assert json.loads(await store.read())[adapter].keys() == good[adapter].keys()


async def test_where_nothing_can_be_kept_the_model_loads(tmp_path: Path, host: WgpuHost) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = Kept(tmp_path / "file" / "tuning.json")
    assert (await load(tmp_path, host, store)).other.context_length
    assert store.writes == 1


async def test_a_software_adapter_is_not_measured(tmp_path: Path, host: WgpuHost) -> None:
    store = Kept(tmp_path / "tuning.json")
    await load(tmp_path, host, store, shapes=None)
    assert store.writes == 0
