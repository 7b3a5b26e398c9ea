"""The fit of a model is computed from its header, in numbers, and with suggestions that would fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.models import fit_check
from app.models.build_outputs import kernel_path
from app.models.fit_check import available_memory
from app.models.template_renderer import native_renderer
from py_core.backends.numpy.backend import load_numpy
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.fit import (
    MOST_WASM_MEMORY,
    DoesNotFitError,
    Need,
    Room,
    SpeedSample,
    memory_need,
    problem,
    tokens_per_second,
)
from py_core.formats.gguf import read_header
from py_core.formats.source import FileSource
from py_core.loading import load_model
from py_core.models.config import read_rope_factors
from py_core.models.registry import describe_model
from py_core.paging.page_table import REWIND, STATES
from py_core.paging.tiers import Tier
from py_core.token_sequence import TokenSequence
from tests.cli.command_line import assert_sentence, printed, sonata
from tests.models.architectures.variants import CONVOLUTIONS, DELTA_RULES, HEADS_DIFFER, VARIANTS
from tests.models.large_model import write_large

GB = 10**9


async def need_of(path: Path, backend: str, context: int | None = None) -> Need:
    header = await read_header(source := FileSource(path))
    config, graph = describe_model(header, context, await read_rope_factors(source, header))
    return memory_need(header.tensors, config, graph, backend)


@pytest.fixture
async def real(model_path: Path) -> Need:
    return await need_of(model_path, "wasm")


class Measuring(WasmtimeHost):
    """Records the requested memory."""

    reserved = 0

    async def reserve(self, nbytes: int) -> None:
        self.reserved = max(self.reserved, nbytes)
        await super().reserve(nbytes)


@pytest.mark.parametrize("tokens", [10, pytest.param(1500, marks=pytest.mark.all)])
async def test_the_kernels_take_as_much_memory_as_was_told(model_path: Path, real: Need, tokens: int) -> None:
    host = Measuring(kernel_path())
    model = await load_model(FileSource(model_path), partial(load_wasm, host), native_renderer(), context=tokens)
    model.backend.pages.take_slot(sequence := model.backend.new_sequence())
    await model.backend.pages.reserve(sequence.slot, 0, tokens)
    assert real.at(tokens).total == pytest.approx(host.reserved, rel=0.02)
    model.close()


async def test_rows_of_convolutions_are_part_of_the_pages(tmp_path: Path) -> None:
    path, context = CONVOLUTIONS.write(tmp_path / "tiny.gguf"), CONVOLUTIONS.config["max_position_embeddings"]
    need = await need_of(path, "wasm")
    model = await load_model(FileSource(path), partial(load_wasm, WasmtimeHost(kernel_path())), native_renderer())
    model.backend.pages.take_slot(sequence := model.backend.new_sequence())
    await model.backend.pages.reserve(sequence.slot, 0, context)
    assert need.at(context).pages == model.backend.pages.store.there(Tier.HOT)
    assert need.rows_page >= 2 * (REWIND + 2) * CONVOLUTIONS.config["hidden_size"] * 4
    model.close()


async def test_states_of_delta_rules_are_memory_from_the_beginning(tmp_path: Path) -> None:
    path, host = DELTA_RULES.write(tmp_path / "tiny.gguf"), Measuring(kernel_path())
    need = await need_of(path, "wasm")
    model = await load_model(FileSource(path), partial(load_wasm, host), native_renderer())
    model.backend.pages.take_slot(sequence := model.backend.new_sequence())
    await model.backend.pages.reserve(sequence.slot, 0, 64)
    states = model.backend.pages.store.bytes_of_states
    assert states >= STATES * 2 * 4 * 4 * (16 * 16 + 2 * 64 * 16 + 64)
    assert need.rows_page == 0
    assert states < need.scratch < model.backend.memory().scratch * 1.2
    model.close()


async def test_a_token_reads_the_weights_of_its_experts_only(tmp_path: Path) -> None:
    like = VARIANTS["granitemoe"]
    few, all_ = [
        await need_of(like.changed(num_experts_per_tok=used).write(tmp_path / f"{used}.gguf"), "wasm")
        for used in (2, 8)
    ]
    c = like.config
    experts = 3 * c["hidden_size"] * c["intermediate_size"] * c["num_hidden_layers"] * 8
    assert few.weights == all_.weights
    # Q8_0 takes 8 bits a weight and two float32 for 32 of them.
    assert all_.read - few.read == experts * 6 // 8 * 40 // 32
    host = Measuring(kernel_path())
    model = await load_model(FileSource(tmp_path / "8.gguf"), partial(load_wasm, host), native_renderer())
    model.backend.pages.take_slot(sequence := model.backend.new_sequence())
    await model.backend.pages.reserve(sequence.slot, 0, 64)
    assert host.reserved < 1.2 * all_.at(256).total
    model.close()


async def test_layers_that_read_the_pages_of_others_take_none_and_heads_may_differ(tmp_path: Path) -> None:
    path = HEADS_DIFFER.write(tmp_path / "tiny.gguf")
    need = await need_of(path, "wasm")
    model = await load_model(FileSource(path), partial(load_wasm, WasmtimeHost(kernel_path())), native_renderer())
    model.backend.pages.take_slot(sequence := model.backend.new_sequence())
    await model.backend.pages.reserve(sequence.slot, 0, 512)
    assert need.at(512).pages == model.backend.pages.store.there(Tier.HOT)
    small, large = (await need_of(path, "numpy")).layer_pages
    assert (2 * small, need.readers) == (large, (2, 2))
    # All layers read, also those without keys of their own; of the embeddings of layers a step reads a row only.
    assert need.read_at(15) - need.read == 2 * sum(need.layer_pages) * 16 // 64
    model.close()


async def test_embeddings_of_layers_are_memory_but_a_step_does_not_read_them(tmp_path: Path) -> None:
    wide = HEADS_DIFFER.changed(hidden_size_per_layer_input=64)
    (less, more) = [await need_of(one.write(tmp_path / "tiny.gguf"), "numpy") for one in (HEADS_DIFFER, wide)]
    c = HEADS_DIFFER.config
    hidden, layers = c["hidden_size"], c["num_hidden_layers"]
    linears = 32 * layers * 3 * hidden * 4
    assert more.read - less.read == linears
    assert more.weights - less.weights == linears + (layers * c["vocab_size"] + 1) * 32 * 4


async def test_numbers_add_up(real: Need) -> None:
    parts = real.at(4096)
    assert parts.total == parts.weights + parts.pages + parts.scratch
    assert real.at(8192).pages == 2 * parts.pages
    assert real.read_at(100) - real.read == pytest.approx(101 * 30 * real.layer_page / 64, rel=1e-6)


async def test_a_window_bounds_what_a_token_reads(real: Need) -> None:
    local = replace(real, windows=(512,) * (len(real.windows) - 1) + (0,))
    assert local.read_at(100) == real.read_at(100)
    assert local.read_at(8000) < (real.read + real.read_at(8000)) / 2


async def test_a_layer_with_a_window_takes_memory_for_no_more_than_that(real: Need) -> None:
    windows = ((512,) * 5 + (0,)) * 4 + (512, 512)
    gemma = replace(real, backend="numpy", windows=windows, layer_pages=real.layer_pages[:26])
    # 512 tokens, 1,024 more that can be truncated, and a page, because these may begin in the middle of one.
    assert gemma.at(32768).pages == (22 * 25 + 4 * 512) * real.layer_page
    assert gemma.at(1024).pages == 26 * 16 * real.layer_page


async def test_a_window_makes_room_for_a_longer_context(real: Need) -> None:
    room = Room(binding=64 * real.layer_page)
    whole = replace(real, backend="webgpu")
    assert whole.largest_context(room) == 4096
    assert replace(whole, windows=(512,) * len(real.windows)).largest_context(room) == 8192


async def test_what_fits_has_no_problem(real: Need) -> None:
    assert problem(real, 8192, Room(GB)) is None
    assert problem(real, 8192, Room()) is None


async def test_a_context_that_is_too_long_gets_the_one_that_fits(real: Need) -> None:
    room = Room(memory=200_000_000)
    said = str(problem(real, 8192, room))
    assert said
    assert "needs 0.32 GB for 8192 tokens of context: weights 0.12 GB, keys and values 0.20 GB" in said
    assert "0.20 GB are available." in said
    most = int(re.search(r"--context (\d+)", said)[1])
    assert problem(real, most, room) is None
    assert problem(real, most + 64, room)


async def test_weights_that_are_too_large_get_a_quantization_that_fits(
    write_model: Callable[..., Path],
) -> None:
    need = await need_of(write_model(hidden=256, ffn=2048, layers=8, formats=("F16",), context=1024), "webgpu")
    parts = need.at(512)
    room = Room(memory=need.smaller["Q8_0"] + parts.pages + parts.scratch)
    said = str(problem(need, 512, room))
    assert said
    assert "A Q8_0 file of this model fits" in said
    assert str(problem(need, 512, Room(memory=1000))).endswith("Choose a smaller model.")


async def test_a_gpu_binds_the_pages_of_a_layer(model_path: Path) -> None:
    need = await need_of(model_path, "webgpu")
    room = Room(binding=8 << 20)
    said = str(problem(need, 8192, room))
    assert said
    assert "This GPU can bind 8.4 MB at once." in said
    assert need.at(need.largest_context(room)).pages // len(need.windows) <= 8 << 20


async def test_the_kernels_memory_ends_at_4_gb(real: Need) -> None:
    large = replace(real, weights=MOST_WASM_MEMORY)
    assert "The CPU kernels can use at most 4.29 GB of memory" in str(problem(large, 512, Room(memory=64 * GB)))
    assert "context: weights 4.29 GB" in str(problem(large, 512, Room(memory=64 * GB)))
    assert "2.00 GB are available." in str(problem(large, 512, Room(memory=2 * GB)))


async def test_what_the_user_chose_comes_before_what_the_machine_has(real: Need) -> None:
    assert fit_check.room_of(load_numpy, GB, 2 * GB) == Room(2 * GB, chosen=True)
    assert fit_check.room_of(load_numpy, GB) == Room(GB)
    said = str(problem(real, 8192, Room(200_000_000, chosen=True)))
    assert "The limit that you chose is 0.20 GB. A context of" in said
    large = replace(real, weights=MOST_WASM_MEMORY)
    assert "use at most 4.29 GB of memory" in str(problem(large, 512, Room(64 * GB, chosen=True)))
    assert "The limit that you chose is 2.00 GB." in str(problem(large, 512, Room(2 * GB, chosen=True)))


@pytest.mark.parametrize(
    ("form", "layers", "advice"),
    [
        ("Q4_K", 56, r"A context of \d{4} tokens fits \(--context \d{4}; in the page \?context=\d{4}\)"),
        ("Q8_0", 48, "A Q5_K_M file of this model fits, with 4608 tokens of context"),
        ("Q8_0", 96, "Choose a smaller model"),
    ],
)
def test_a_model_beyond_4_gb_is_refused_by_its_header_and_told_what_would_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, layers: int, advice: str
) -> None:
    monkeypatch.setattr("app.cli.loading.available_memory", lambda: 64 * GB)
    path = write_large(tmp_path / "large.gguf", form, layers)
    refused = sonata("generate", "Hello", "--model", path, "--backend", "wasm")
    assert_sentence(
        refused, "large needs", "The CPU kernels can use at most 4.29 GB of memory, however much the machine has."
    )
    assert re.search(rf"however much the machine has\. {advice}\. A GPU may hold more\.$", refused.stderr.strip())


async def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(tiny_path: Path) -> None:
    loaded = []

    async def load(*arguments: object) -> TokenSequence:
        loaded.append(arguments)
        raise AssertionError("loaded")

    check = fit_check.fit_check(load_numpy, 1000)
    with pytest.raises(DoesNotFitError, match=r"tiny needs .* 0\.0 MB are available\."):
        await load_model(FileSource(tiny_path), load, native_renderer(), before_loading=check)
    assert not loaded


async def test_the_lengths_of_a_context_that_fit_are_told_with_what_they_take(tiny_path: Path) -> None:
    told: list[fit_check.Fitting] = []
    check = fit_check.fit_check(load_numpy, None, lambda need, room: told.append(fit_check.Fitting(need, room)))
    model = await load_model(FileSource(tiny_path), load_numpy, native_renderer(), before_loading=check)
    model.close()
    facts = fit_check.fit_facts(told[0], 512)
    need = told[0].need
    assert facts["trained"] == need.trained
    assert facts["weights"] + facts["pages"] + facts["scratch"] == need.at(512).total
    lengths = [length for length, _ in facts["contexts"]]
    assert lengths == sorted({*(length for length in (1024, 2048, 4096, 8192) if length < need.trained), need.trained})
    assert facts["contexts"][-1] == [need.trained, need.at(need.trained).total]

    tight = replace(told[0], room=Room(need.at(need.trained).total - 1))
    assert [length for length, _ in fit_check.fit_facts(tight, 512)["contexts"]] == lengths[:-1]


def test_the_speed_of_another_model_follows_from_what_was_measured() -> None:
    small = SpeedSample(tok_s=100, read=100_000_000, operations=500)
    assert tokens_per_second(200_000_000, 500, small) == pytest.approx(50)
    # 10 ms a token, of which 1 ms was reading at 100 GB/s: the rest stays unchanged.
    assert tokens_per_second(1_000_000_000, 500, small, 100e9) == pytest.approx(1 / 0.019)
    assert tokens_per_second(100_000_000, 1000, small, 100e9) == pytest.approx(1 / 0.019)


def test_this_machine_says_how_much_memory_it_has() -> None:
    assert (available_memory() or 0) > 100_000_000


# ---- in the terminal ----


def test_info_tells_what_a_model_needs(tiny_path: Path) -> None:
    report = json.loads(printed(sonata("models", "info", tiny_path, "--context", "300", "--json")))
    (wasm,) = (need for name, need in report["backends"].items() if name != "webgpu")
    assert (wasm["context"], wasm["problem"], wasm["tok_s"]) == (300, None, None)
    assert wasm["total"] == wasm["weights"] + wasm["pages"] + wasm["scratch"]
    assert "fits:" in printed(sonata("models", "info", tiny_path))


def test_a_context_that_is_asked_for_is_told_in_memory(tiny_path: Path) -> None:
    command = ("generate", "x", "--model", tiny_path, "--backend", "numpy", "--max-tokens", "2")
    asked = sonata(*command, "--context", "2048")
    assert printed(asked)
    # Two layers, keys and values of 32 float32 for each token.
    assert re.match(r"tiny needs .* for 2048 tokens of context: .*, keys and values 1\.0 MB, .*\n", asked.stderr)
    assert "keys and values" not in sonata(*command).stderr


def test_a_context_that_does_not_fit_is_a_sentence_before_loading(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.loading.available_memory", lambda: 3_000_000)
    command = ("generate", "x", "--model", tiny_path, "--backend", "numpy", "--max-tokens", "2")
    printed(sonata(*command, "--context", "100"))
    assert_sentence(sonata(*command, "--context", "30000"), "for 30000 tokens", "A context of")


def test_the_memory_that_a_model_may_take_is_chosen(tiny_path: Path) -> None:
    command = ("bench", "memory", "--model", tiny_path, "--backend", "wasm", "--tokens", "100")
    use = json.loads(printed(sonata(*command, "--json", "--max-memory", "4000")))
    assert use["limit"] == 4_000_000_000
    table = printed(sonata(*command, "--max-memory", "4000"))
    assert "4.00 GB at most" in " ".join(table.split())
    assert_sentence(sonata(*command, "--max-memory", "1"), "The limit that you chose is 1.0 MB.")
    assert sonata(*command, "--max-memory", "0").returncode == 2
