"""The shapes of a matvec are measured once, stored, and give the same tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models.autotune_cache import AutotuneCache
from py_core.backends.webgpu import kernel_builder
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host import Host
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.backends.webgpu.kernel_builder import KernelBuilder
from py_core.backends.webgpu.kernel_shapes import GPU_ROWS, KernelShapes, MatmulShape, RowColumns
from py_core.backends.webgpu.profiling import measure_lists
from py_core.backends.webgpu.settings import DeviceSettings, Measure
from py_core.fit import memory_need
from py_core.formats.gguf import read_header
from py_core.formats.quantization import FORMATS
from py_core.formats.source import FileSource
from py_core.models.registry import describe_model
from tests.backends.backend_pairs import Pair, collect, open_pair, prompt
from tests.tiny.llama import TinyLlama

# As on a GPU; the subgroups of lavapipe are 4 wide.
SHAPES = KernelShapes(32, 64, "reduce_workgroup", 4, 1, True, True, 64, True, False)
SUBGROUPS = KernelShapes(4, 64, "reduce_subgroup", 4, 1, True, True, 64, True, True)


class Kept(AutotuneCache):
    writes = 0

    async def write(self, text: str) -> None:
        self.writes += 1
        await super().write(text)


class LateHost(WgpuHost):
    """Its kernels exist only after a `check`, as in a browser."""

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
        self.assert_compiled(recorded)
        super().submit(recorded)

    def assert_compiled(self, recorded: Sequence[int]) -> None:
        pipelines = {id(step[0]) for one in recorded for step in self._recorded[one]}
        assert not pipelines & {id(self._pipelines[made][0]) for made in self.late}


class Order:
    """Replaces the clock: the later a list was recorded, the faster it is, or the other way round. Runs one of them."""

    def __init__(self, later_is_faster: bool = True) -> None:
        self.later_is_faster = later_is_faster
        self.calls = 0

    async def __call__(self, host: Host, recorded: Sequence[int], prepare: Callable[[], None], /) -> list[float]:
        self.calls += 1
        prepare()
        if isinstance(host, LateHost):
            host.assert_compiled(recorded)
        host.submit(recorded[:1])
        seconds = [float(at) for at in range(len(recorded))]
        return seconds[::-1] if self.later_is_faster else seconds


async def load(
    tmp_path: Path, host: WgpuHost, store: Kept, shapes: KernelShapes | None = SHAPES, order: Order | None = None
) -> Pair:
    settings = DeviceSettings(measure=order or Order(), persistent=())
    path = TinyLlama(layers=1).write(tmp_path / "tiny.gguf")
    return await tuned(await open_pair(path, host, tuning=store, shapes=shapes, settings=settings))


async def tuned(pair: Pair) -> Pair:
    assert isinstance(pair.other, WebGPUBackend)
    assert await pair.other.tune(lambda: False)
    return pair


def builder_of(pair: Pair) -> KernelBuilder:
    assert isinstance(pair.other, WebGPUBackend)
    return pair.other.device._lowering._builder


def possible_shapes(pair: Pair) -> dict[str, list[list[int]]]:
    """The possible shapes of each kernel, by the name under which its shape is stored."""
    builder = builder_of(pair)
    few_rows = {f"{name}, few rows": few for name, few in builder.few.possible.items()}
    return {name: [shape.as_list() for shape in found] for name, found in (builder.one.possible | few_rows).items()}


async def says_the_same(pair: Pair, text: list[int], count: int) -> None:
    ours, reference = await pair.prefilled(text)
    assert await collect(pair.other, ours, count) == await collect(pair.numpy, reference, count)


@pytest.mark.parametrize("shapes", [SHAPES, SUBGROUPS], ids=["workgroup", "subgroups"])
async def test_the_fastest_shapes_are_measured_once_kept_and_change_no_token(
    tmp_path: Path, host: WgpuHost, shapes: KernelShapes
) -> None:
    store, order = Kept(tmp_path / "cache" / "tuning.json"), Order()
    pair = await load(tmp_path, host, store, shapes, order)
    assert order.calls == (2 if shapes.integer_dot else 1)
    await says_the_same(pair, prompt(20), 12)
    (kept,) = json.loads(await store.read()).values()
    possible = possible_shapes(pair)
    assert {name.split()[0] for name in kept} == {"qkv", "linear"}
    assert len([name for name in kept if not name.endswith(", few rows")]) == 5
    assert {name: shapes[-1] for name, shapes in possible.items()} == kept
    of_few = {name.removesuffix(", few rows"): shape for name, shape in kept.items() if name.endswith(", few rows")}
    assert len(of_few) == (5 if shapes.integer_dot else 0)
    assert all(RowColumns(shape[5]) != RowColumns.FLOATS for shape in of_few.values())

    again = await load(tmp_path, host, store, shapes, order)
    assert order.calls == (2 if shapes.integer_dot else 1)
    assert store.writes == order.calls
    assert builder_of(again).one.chosen == builder_of(pair).one.chosen
    assert builder_of(again).few.chosen == builder_of(pair).few.chosen


async def test_a_measurement_ends_early_for_others_and_no_conversation_notices(tmp_path: Path, host: WgpuHost) -> None:
    store, order = Kept(tmp_path / "tuning.json"), Order()
    settings = DeviceSettings(measure=order, persistent=())
    path = TinyLlama(layers=1).write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, host, tuning=store, shapes=SUBGROUPS, settings=settings)
    assert isinstance(pair.other, WebGPUBackend)
    ours, reference = await pair.prefilled(prompt(70))
    expected = await collect(pair.numpy, reference, 6)
    said, grids = await collect(pair.other, ours, 2), []
    for looks in (0, 3, 100):  # it ends at once, soon, and once all is measured
        grids.append([launch.dispatch().groups for launch in pair.other.device.launches("step", 1, 1)])
        asked = iter(range(looks))
        assert await pair.other.tune(lambda asked=asked: next(asked, None) is None) == (looks == 100)
        said += await collect(pair.other, ours, 1)
    assert said + await collect(pair.other, ours, 1) == expected
    grids.append([launch.dispatch().groups for launch in pair.other.device.launches("step", 1, 1)])
    assert grids[0] == grids[1] == grids[2] != grids[3]
    assert json.loads(await store.read())


@pytest.mark.parametrize(
    ("form", "measure"),
    [("Q4_1", Order()), pytest.param("F32", measure_lists, marks=pytest.mark.all, id="F32-by the GPU's clock")],
    ids=lambda value: value if isinstance(value, str) else "in order",
)
async def test_no_kernel_runs_before_it_is_compiled(tmp_path: Path, form: str, measure: Measure) -> None:
    path, settings = (
        TinyLlama(formats=(form,), layers=1).write(tmp_path / "tiny.gguf"),
        DeviceSettings(measure=measure, persistent=()),
    )
    store = Kept(tmp_path / "tuning.json")
    for _ in range(2):  # measured, then stored
        pair = await tuned(await open_pair(path, LateHost(), tuning=store, shapes=SHAPES, settings=settings))
        await says_the_same(pair, prompt(9), 3)
        await pair.other.profile(20)
        pair.other.close()


async def test_the_shape_that_is_kept_is_the_one_that_runs(tmp_path: Path, host: WgpuHost) -> None:
    grids = set()
    for order in (Order(later_is_faster=True), Order(later_is_faster=False)):
        store = Kept(tmp_path / f"{order.later_is_faster}.json")
        for _ in range(2):
            pair = await load(tmp_path, host, store, order=order)
            assert isinstance(pair.other, WebGPUBackend)
            grids.add(tuple(launch.dispatch().groups for launch in pair.other.device.launches("step", 1, 1)))
        assert order.calls == 1, "what is kept is not measured again"
    assert len(grids) == 2


@pytest.mark.all
async def test_a_prefill_runs_in_the_tiles_that_were_kept(
    tmp_path: Path, host: WgpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its integers take the memory that was stated before."""
    # Each shape that is tried takes seconds to compile here.
    monkeypatch.setattr(kernel_builder, "_INTEGER_TILES", [MatmulShape(True, 2, 4)])
    taken = {}
    create_buffer = host.create_buffer
    monkeypatch.setattr(
        host, "create_buffer", lambda size, label: taken.update({label: size}) or create_buffer(size, label)
    )
    store, shapes = Kept(tmp_path / "tuning.json"), replace(SHAPES, max_rows=128, integer_dot=True)
    model = TinyLlama(layers=1, formats=("Q4_1",)).write(tmp_path / "tiny.gguf")
    order = Order(later_is_faster=False)
    await tuned(
        await open_pair(model, host, tuning=store, shapes=shapes, settings=DeviceSettings(measure=order, persistent=()))
    )
    assert order.calls == 3  # passes of one row, of few rows, and of 128
    kept = json.loads(await store.read())
    (of_adapter,) = kept.values()
    many = [name for name in of_adapter if name.endswith("many rows")]
    assert many
    for tiles in ([0, 4, 1], [1, 2, 4]):
        of_adapter.update(dict.fromkeys(many, tiles))
        await store.write(json.dumps(kept))
        pair = await open_pair(
            model, host, tuning=store, shapes=shapes, settings=DeviceSettings(measure=order, persistent=())
        )
        assert isinstance(pair.other, WebGPUBackend)
        made = [launch.kernel.name for launch in pair.other.device.launches("body", 100, 100)]
        assert any(name.startswith("limbs") for name in made) == bool(tiles[0])
        builder = pair.other.device._lowering._builder
        assert builder.tiles("of the head, made later", FORMATS["Q8_0"], 259).as_list() == tiles
        ours, reference = await pair.prefilled(prompt(100))
        found, expected = await pair.other.logits(ours), await pair.numpy.logits(reference)
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    assert order.calls == 3
    header = await read_header(FileSource(model))
    told = {}
    for integers in (False, True):
        adapter = replace(host.adapter, software=False, integer_dot=integers)
        told[integers] = memory_need(header.tensors, *describe_model(header), "webgpu", adapter=adapter).scratch
    limbs = sum(size for label, size in taken.items() if label.startswith("limbs"))
    assert (told[True] - told[False]) / GPU_ROWS == limbs / shapes.max_rows > 0


async def test_what_is_damaged_is_measured_again(tmp_path: Path, host: WgpuHost) -> None:
    store, order = Kept(tmp_path / "tuning.json"), Order()
    await load(tmp_path, host, store, order=order)
    good = json.loads(await store.read())
    (adapter,) = good
    # Also shapes that no kernel of this adapter supports: its lanes could not add up.
    impossible = {adapter: {name: [64, 64, 1, 1, 1, 0, 8] for name in good[adapter]}}
    for damaged in ("", "{", "[]", '{"a": 3}', '{"a": {"qkv": [3, 5]}}', json.dumps(impossible)):
        calls, order.calls = order.calls, 0
        await store.write(damaged)
        pair = await load(tmp_path, host, store, order=order)
        assert order.calls == calls == 1, damaged
        assert json.loads(await store.read())[adapter] == good[adapter], damaged
    await says_the_same(pair, prompt(9), 3)


async def test_where_nothing_can_be_kept_the_model_loads(tmp_path: Path, host: WgpuHost) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = Kept(tmp_path / "file" / "tuning.json")
    assert (await load(tmp_path, host, store)).other.context_length
    assert store.writes == 1


async def test_a_software_adapter_is_not_measured(tmp_path: Path, host: WgpuHost) -> None:
    store, order = Kept(tmp_path / "tuning.json"), Order()
    await load(tmp_path, host, store, shapes=None, order=order)
    assert store.writes == order.calls == 0
