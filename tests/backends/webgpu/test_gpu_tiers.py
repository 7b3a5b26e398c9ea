"""Tiers of the GPU's pages alone: passes of each kind, a lost device, buffers that may not grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from py_core.backend_errors import BackendError
from py_core.backends.webgpu.attention import SHORT
from py_core.backends.webgpu.backend import WebGPUBackend
from py_core.backends.webgpu.host_wgpu import WgpuHost
from py_core.paging.page_table import PAGE, tier_of
from py_core.paging.tiers import Tier, TierPolicy
from tests.backends.backend_pairs import GREEDY, Pair, open_pair, prompt
from tests.backends.variants import gated
from tests.backends.webgpu.gpu_shapes import HARDWARE, SHAPES
from tests.backends.webgpu.test_lost_device import FragileHost
from tests.tiny.llama import TinyLlama

CONTEXT = 20 * PAGE
POLICY = TierPolicy(hot=2, warm=1, least=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tiny = TinyLlama(formats=("Q8_0",), embedding_format="F32", tied=False, context=CONTEXT)
    return tiny.write(tmp_path / "tiny.gguf")


def tiers_of(pair: Pair, slot: int) -> list[Tier]:
    assert isinstance(pair.other, WebGPUBackend)
    table = pair.other.pages.table
    assert table
    return [tier_of(page) for page in table.held(slot)]


def assert_near(got: np.ndarray, expected: np.ndarray, off: float = 0.01) -> None:
    assert np.abs(got - expected).max() < off * np.abs(expected).max()


@pytest.mark.parametrize("shapes", gated(["software", "hardware", "some"], lambda shapes: shapes == "hardware"))
async def test_passes_of_one_row_of_few_and_of_many_read_all_tiers(path: Path, shapes: str) -> None:
    """Tested behind a text that several workgroups share, and behind a shorter one."""
    own = SHAPES[shapes]
    pair = await open_pair(path, WgpuHost(), shapes=replace(own, max_rows=64) if own else None, tiers=POLICY)
    texts = [prompt(SHORT + PAGE + 9, seed=1), prompt(5 * PAGE + 20, seed=2)]
    several = [await pair.prefilled(text) for text in texts]
    for ours, _ in several:
        assert tiers_of(pair, ours.slot)[-4:-2] == [Tier.WARM, Tier.HOT]
    for (ours, reference), rows in zip(several, (8, 4), strict=True):
        await pair.numpy.prefill(
            reference, said := [token async for ids in pair.other.decode(ours, 5, GREEDY) for token in ids]
        )
        assert len(said) == 5
        assert_near(await pair.other.logits(ours), await pair.numpy.logits(reference), 0.03)
        assert_near(await pair.other.last_logits(ours, rows), await pair.numpy.last_logits(reference, rows), 0.03)
    ours, references = zip(*several, strict=True)
    async for batch in pair.other.decode_together(ours, 4, [GREEDY] * 2):
        for reference, ids in zip(references, batch, strict=True):
            await pair.numpy.prefill(reference, ids)
    for one, reference in several:
        assert_near(await pair.other.logits(one), await pair.numpy.logits(reference), 0.03)
    pair.other.close()


@pytest.mark.parametrize(
    ("breaks", "waited_for"),
    gated([(breaks, waits) for breaks in (3, 4, 5, 6, 8) for waits in (False, True)], lambda case: case == (5, False)),
)
async def test_a_device_that_is_lost_while_pages_are_demoted_costs_time_only(
    path: Path, breaks: int, waited_for: bool
) -> None:
    host = FragileHost(breaks, waited_for=waited_for)
    pair = await open_pair(path, host, shapes=HARDWARE, tiers=POLICY)
    host.submits, host.armed = 0, True
    ours, reference = await pair.prefilled(prompt(6 * PAGE + 5, seed=1))
    assert host.reopened == 1
    assert tiers_of(pair, ours.slot) == [Tier.COLD] * 3 + [Tier.WARM] + [Tier.HOT] * 3
    assert_near(await pair.other.logits(ours), await pair.numpy.logits(reference))
    pair.other.close()


async def test_where_the_gpu_gives_no_more_memory_nothing_is_lost(path: Path) -> None:
    pair = await open_pair(path, WgpuHost(), shapes=HARDWARE, tiers=POLICY)
    assert isinstance(pair.other, WebGPUBackend)
    host = pair.other.device.host
    text, roomy = prompt(10 * PAGE + 5, seed=1), host.adapter
    ours, reference = pair.other.new_sequence(), pair.numpy.new_sequence()
    host.adapter = replace(roomy, max_binding_size=pair.other.pages.store.page_bytes)
    with pytest.raises(BackendError, match="more memory than is free on this GPU"):
        await pair.other.prefill(ours, text)
    table = pair.other.pages.table
    assert table
    assert ours.stored == 3 * PAGE
    assert table.demoted_capacity == {Tier.WARM: 0, Tier.COLD: 0}
    host.adapter = roomy
    await pair.other.logits(ours)
    await pair.numpy.prefill(reference, text)
    assert tiers_of(pair, ours.slot) == [Tier.COLD] * 7 + [Tier.WARM] + [Tier.HOT] * 3
    assert_near(await pair.other.logits(ours), await pair.numpy.logits(reference))
    pair.other.free(ours)
    assert sum(table.references(page) for page in table._references) == len(pair.other.pages.prefixes.tree)
    pair.other.close()
