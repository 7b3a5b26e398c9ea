"""The WASM backend in wasmtime against the numpy reference, in both builds and both precisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError, WorkersRestartedError
from py_core.backends.protocols import Progress
from py_core.backends.wasm.host import Placed, RepackJob
from py_core.backends.wasm.host_wasmtime import ABORT, WasmtimeHost
from py_core.backends.wasm.kv_pages import KVPages
from py_core.backends.wasm.layout import MATRIX_KINDS, Arena, Mode
from py_core.engine.engine import Engine, Timings
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource, WeightSource
from py_core.models.registry import describe_model
from tests.backends.backend_pairs import MODELS, Pair, alone, collect, cosine, open_pair, prompt
from tests.backends.dying_host import WorkersDie
from tests.backends.wasm.builds import in_turn
from tests.models.architectures.variants import QUANTIZED, VARIANTS
from tests.tiny.llama import TinyLlama


@in_turn(MODELS)
async def test_precise_logits_equal_numpy_for_passes_of_every_size(
    tmp_path: Path, kernel_wasm, name: str, build: str
) -> None:
    pair = await open_pair(MODELS[name].write(tmp_path / "tiny.gguf"), WasmtimeHost(kernel_wasm(build)))
    async for got, expected in logits_of_both(pair):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=2e-3 * np.abs(expected).max())
        assert cosine(got, expected) > 0.99999


@in_turn(MODELS, first=1)
async def test_fast_logits_are_close_to_numpy_for_passes_of_every_size(
    tmp_path: Path, kernel_wasm, name: str, build: str
) -> None:
    host = WasmtimeHost(kernel_wasm(build))
    pair = await open_pair(MODELS[name].write(tmp_path / "tiny.gguf"), host, precision="fast")
    async for got, expected in logits_of_both(pair):
        assert cosine(got, expected) > 0.99


async def logits_of_both(pair: Pair) -> AsyncIterator[tuple[np.ndarray, np.ndarray]]:
    """Logits after each of several passes: the kernels' and numpy's."""
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    for length in (1, 2, 5, 70, 3, 131):
        for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
            await backend.prefill(sequence, prompt(length, seed=length))
        yield await pair.other.logits(ours), await pair.numpy.logits(reference)


async def test_fast_is_coarser_than_precise(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    errors = {}
    for precision in ("precise", "fast"):
        pair = await open_pair(path, WasmtimeHost(kernel_wasm()), precision=precision)
        ours, reference = await pair.prefilled(prompt(40))
        errors[precision] = np.abs(await pair.other.logits(ours) - await pair.numpy.logits(reference)).max()
    assert 0 < errors["precise"] < errors["fast"] / 20


async def test_the_pool_of_pages_grows_and_keeps_what_it_held(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama(context=2048, layers=1, formats=("F32",), embedding_format="F32").write(tmp_path / "tiny.gguf")
    pair = await open_pair(path, WasmtimeHost(kernel_wasm()))
    ours, reference = await pair.prefilled(prompt(900))  # the pool starts with room for 1024 tokens
    for backend, sequence in ((pair.other, ours), (pair.numpy, reference)):
        await backend.prefill(sequence, prompt(600, seed=1))
    expected = await pair.numpy.logits(reference)
    np.testing.assert_allclose(await pair.other.logits(ours), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert await collect(pair.other, ours, 8) == await collect(pair.numpy, reference, 8)


async def test_the_pages_of_layers_with_windows_lie_side_by_side(tmp_path: Path, kernel_wasm) -> None:
    source = FileSource(VARIANTS["gemma3"].write(tmp_path / "tiny.gguf"))
    config, graph = describe_model(await read_header(source), 4096)
    arena = Arena()
    pages = KVPages(WasmtimeHost(kernel_wasm()), config, graph, Mode.PRECISE, 2, arena, arena.take(64))
    for slot, length in ((0, 700), (1, 1400), (0, 2600)):
        await pages.reserve(slot, length - 1, length)
    parts = [
        pages.base(layer) + begin * pages.part_bytes
        for group in pages._groups
        for layer in group.layers
        for begin in group.extents
    ]
    assert len(parts) > 8 * 4
    assert sorted(parts) == list(range(arena.end, pages.end, pages.part_bytes))


class RestartingHost(WasmtimeHost):
    """Loses every third run, and the writes since the last answer, like a pool whose worker died."""

    runs = 0
    restarts = 0

    def run(self, program: int, steps: int) -> Awaitable[list[int]]:
        self.runs += 1
        if self.runs % 3:
            return super().run(program, steps)

        async def lost() -> list[int]:
            raise WorkersRestartedError

        self.restarts += 1
        return lost()


async def test_an_answer_goes_on_after_workers_were_restarted(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama(tied=False, formats=("F32",), embedding_format="F32").write(tmp_path / "tiny.gguf")
    host = RestartingHost(kernel_wasm())
    pair = await open_pair(path, host)
    ours, reference = await pair.prefilled(prompt(200))
    assert await collect(pair.other, ours, 50) == await collect(pair.numpy, reference, 50)
    assert host.restarts >= 3


async def test_workers_that_die_in_a_reading_that_is_given_up_harm_nobody(tmp_path: Path, kernel_wasm) -> None:
    """The failed call goes unnoticed, and the writes before it are lost, such as the place of the reader's page."""
    path = TinyLlama(tied=False, formats=("F32",), embedding_format="F32").write(tmp_path / "tiny.gguf")
    host = WorkersDie(kernel_wasm())
    pair = await open_pair(path, host)
    engine, shared = Engine(pair.other, ()), prompt(64, seed=1)
    first, second, third = (engine.new_sequence() for _ in range(3))
    await engine.prefill(first, text := prompt(70), Timings())
    await engine.prefill(third, shared, Timings())
    host.lose(2)  # once the page with which both begin was copied
    reading = asyncio.ensure_future(engine.prefill(second, shared[:30] + prompt(20, seed=2), Timings()))
    for _ in range(2):
        await asyncio.sleep(0)
    engine.truncate(second, 30)
    with pytest.raises(BackendError, match="changed"):
        await reading
    assert host.lost == 1
    other = shared[:30] + prompt(30, seed=3)
    await engine.prefill(second, other, Timings())
    for sequence, read in ((second, other), (first, text)):
        assert await collect(pair.other, sequence, 9) == await alone(pair.numpy, read, 9)


async def test_memory_stays_near_the_files_size(model_path: Path, kernel_wasm) -> None:
    host = WasmtimeHost(kernel_wasm())
    pair = await open_pair(model_path, host)
    without_pages = pair.other.device.lowering.arena.end  # type: ignore[attr-defined]
    assert without_pages < 1.3 * 98_362_432
    host.close()


@pytest.mark.parametrize(
    "shape", [{"hidden": 34 * 8, "heads": 34, "kv_heads": 2}, {"hidden": 520, "heads": 1, "kv_heads": 1}]
)
async def test_heads_that_the_kernels_have_no_room_for_are_refused(tmp_path: Path, kernel_wasm, shape) -> None:
    path = TinyLlama(**shape, formats=("F32",), embedding_format="F32").write(tmp_path / "tiny.gguf")
    with pytest.raises(BackendError, match="the WASM kernels support up to 16"):
        await open_pair(path, WasmtimeHost(kernel_wasm()))


async def test_an_unknown_precision_is_refused(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    with pytest.raises(BackendError, match="choose precise or fast"):
        await open_pair(path, WasmtimeHost(kernel_wasm()), precision="exact")


async def test_a_format_without_a_kernel_is_named(tmp_path: Path, kernel_wasm, monkeypatch) -> None:
    monkeypatch.delitem(MATRIX_KINDS, "Q4_1")
    path = TinyLlama().write(tmp_path / "tiny.gguf")
    with pytest.raises(BackendError, match=r"blk\.0\.attn_q\.weight is in Q4_1; the WASM kernels read only"):
        await open_pair(path, WasmtimeHost(kernel_wasm()))


async def test_norms_in_another_format_are_named(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama(norm_format="F16").write(tmp_path / "tiny.gguf")
    with pytest.raises(BackendError, match=r"blk\.0\.attn_norm\.weight is in F16; the WASM kernels read .* F32"):
        await open_pair(path, WasmtimeHost(kernel_wasm()))


async def test_several_workers_give_to_the_bit_what_one_gives(tmp_path: Path, kernel_wasm) -> None:
    path = TinyLlama(layers=2).write(tmp_path / "tiny.gguf")
    given = []
    for workers in (1, 3):
        host = WasmtimeHost(kernel_wasm(), workers)
        pair = await open_pair(path, host)
        ours, _ = await pair.prefilled(prompt(90))
        logits = await pair.other.logits(ours)
        given.append((logits.tobytes(), await collect(pair.other, ours, 40)))
        host.close()
    assert given[0] == given[1]


async def test_a_worker_that_fails_ends_the_others(tmp_path: Path, kernel_wasm, monkeypatch) -> None:
    host = WasmtimeHost(kernel_wasm(), 3)
    pair = await open_pair(TinyLlama().write(tmp_path / "tiny.gguf"), host)

    def fail(*_: object) -> int:
        raise RuntimeError("its thread is gone")

    monkeypatch.setattr(host._first, "call", fail)
    try:
        with pytest.raises(RuntimeError, match="its thread is gone"):
            await pair.prefilled(prompt(20))
        assert any(host.peek(ABORT, 4)), "they are told to leave"
    finally:
        host.write(ABORT, bytes([1, 0, 0, 0]))  # otherwise a mistake hangs instead of failing
        host.close()


class KeptHost(WasmtimeHost):
    """Finds the weights in its memory as another host's load has left them."""

    def __init__(self, kernels: Path, before: WasmtimeHost) -> None:
        super().__init__(kernels)
        self._before = before

    async def upload(
        self, source: WeightSource, jobs: Sequence[RepackJob], placed: Placed, progress: Progress | None
    ) -> bool:
        for address, nbytes in placed.regions:
            self.write(address, await self._before.read(address, nbytes))
        return False


async def test_weights_that_were_kept_are_not_changed_again(tmp_path: Path, kernel_wasm) -> None:
    path = QUANTIZED["granite"].write(tmp_path / "tiny.gguf")
    before = WasmtimeHost(kernel_wasm())
    await open_pair(path, before)
    pair = await open_pair(path, KeptHost(kernel_wasm(), before))
    await pair.compare((20,), 2, 8e-3)
