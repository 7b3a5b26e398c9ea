"""The reference backend: runs a model's graph with numpy, one operation after the other, in float32.

Every kernel is tested against it, and it is the fallback in a page without WebGPU. Weights are dequantized once. It has
no pages, so the sharing and the limits of other backends can be compared with it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np

from py_core.adapters.head import NeighbourAdapter, logsumexp
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import ParameterLayout
from py_core.backend_errors import BackendError
from py_core.backends.adapters import Adapters
from py_core.backends.checks import (
    MAX_LOGIT_ROWS,
    check_canvas,
    check_hidden,
    check_last_rows,
    check_not_empty,
    check_prefill,
    check_scored,
    check_scored_states,
    check_together,
)
from py_core.backends.memory_use import HOT, MemoryUse, PageBytes
from py_core.backends.numpy.rows import (
    attention,
    delta_rule,
    expert_linear,
    glu,
    half,
    mix,
    rms_norm,
    rope,
    route,
    short_conv,
    soft_cap,
)
from py_core.backends.pass_blocks import block_begin, least_rows, pass_end, seen_ahead
from py_core.backends.protocols import AfterPass, Capabilities, KeepGoing, Progress
from py_core.formats.gguf import GGUFHeader
from py_core.formats.quantization import dequantize
from py_core.formats.source import WeightSource
from py_core.models import graph as ops
from py_core.models.config import ModelConfig
from py_core.models.graph import Graph, Value
from py_core.paging.page_table import PAGE, first_kept, kept_window, most_pages
from py_core.paging.tiers import Tier, TierPolicy, demoted
from py_core.sampling import SamplingParams, Unmasked, biased, masked, probability_of, sample, unmasked
from py_core.token_sequence import TokenSequence
from py_core.training.session import Training

# Tokens in one pass. The browser has no BLAS: small passes let messages (Stop) in between.
CHUNK = 8 if sys.platform == "emscripten" else 64


async def load_weights(
    source: WeightSource, header: GGUFHeader, graph: Graph, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """Return the graph's weights as float32 arrays, read in the file's order."""
    infos = sorted((header.tensors[name] for name in graph.weights), key=lambda info: info.offset)
    weights = {}
    for info in infos:
        data = await source.read(info.offset, info.nbytes)
        weights[info.name] = dequantize(data, info.format, info.shape)
        if info.name in graph.factors:
            weights[info.name] = weights[info.name] * np.float32(graph.factors[info.name])
        if progress:
            progress(info.offset + info.nbytes, header.end_offset)
        await asyncio.sleep(0)
    return weights


async def load_numpy(
    source: WeightSource, header: GGUFHeader, config: ModelConfig, graph: Graph, progress: Progress | None = None,
    tiers: TierPolicy | None = None,
) -> NumpyBackend:  # fmt: skip
    """Dequantize the weights and open the backend. tiers: None keeps all pages hot. Raises GGUFError, EOFError."""
    return NumpyBackend(config, graph, await load_weights(source, header, graph, progress), tiers)


class NumpyBackend:
    """See `Backend` for the contract of each method."""

    def __init__(
        self, config: ModelConfig, graph: Graph, weights: dict[str, np.ndarray], tiers: TierPolicy | None = None
    ) -> None:
        self.capabilities = Capabilities(backend="numpy", adapter=f"numpy {np.__version__}", software=True)
        self.context_length = config.context_length
        self.graph, self._config, self._weights = graph, config, weights
        rotations = {op.rotation for op in graph.ops if isinstance(op, ops.Rope)}
        self._rotations = {rotation: rotation.table(self.context_length) for rotation in rotations}
        self._windows = {layer: kept_window(op.window, self.context_length) for layer, op in graph.caches.items()}
        self._sequences: dict[int, TokenSequence] = {}
        self._states: dict[int, _SequenceState] = {}
        self._numbered = 0
        self.adapters = Adapters(graph, self._sequences, self._rewind)
        # As on the other backends: layers with windows keep few pages, and keep them hot. A block runs again and again.
        self._tiers = tiers if not (any(self._windows.values()) or graph.stays_hot or config.block != 1) else None
        self._chunk = max(CHUNK, least_rows(config))
        """Tokens in one pass."""

    def memory(self) -> MemoryUse:
        weights = sum(weight.nbytes for weight in self._weights.values())
        pairs = [pair for one in self.adapters.sets.values() for pair in one.pairs.values()]
        adapters = sum(pair.a.nbytes + pair.b.nbytes for pair in pairs)
        logits = sum(state.logits.nbytes for state in self._states.values())
        states = self._states.values()
        pages = sum(cache.kv.nbytes for state in states for cache in state.all_caches)
        return MemoryUse(weights, adapters, logits, {HOT: PageBytes(pages, 0, 0)})

    def new_sequence(self) -> TokenSequence:
        self._numbered += 1
        self._states[self._numbered] = _SequenceState(self._config, self.graph, self._windows)
        self._sequences[self._numbered] = TokenSequence(self._numbered)
        return self._sequences[self._numbered]

    def append(self, sequence: TokenSequence, tokens: Sequence[int]) -> None:
        check_prefill(sequence, tokens, self._config.vocab_size, self.context_length)
        sequence.tokens.extend(tokens)

    async def prefill(
        self, sequence: TokenSequence, tokens: Sequence[int], after_pass: AfterPass | None = None
    ) -> None:
        self.append(sequence, tokens)
        await self._run_pending(sequence, after_pass=after_pass)

    async def decode(
        self, sequence: TokenSequence, n: int, sampling: SamplingParams, keep_going: KeepGoing = lambda: True
    ) -> AsyncIterator[list[int]]:
        async with aclosing(self.decode_together([sequence], n, [sampling], keep_going)) as steps:
            async for (ids,) in steps:
                yield ids

    def rows_that_pay(self, count: int) -> int:
        return min(count, MAX_LOGIT_ROWS)

    async def decode_together(
        self, sequences: Sequence[TokenSequence], n: int, sampling: Sequence[SamplingParams],
        keep_going: KeepGoing = lambda: True,
    ) -> AsyncGenerator[list[list[int]], None]:  # fmt: skip
        for _ in range(check_together(sequences, n, sampling, self.context_length, self._config.vocab_size)):
            if not keep_going():
                return
            for sequence in sequences:
                await self._run_pending(sequence)
            found = []
            for sequence, rules in zip(sequences, sampling, strict=True):
                logits = biased(raw := self._state(sequence).logits[-1], rules)
                if sequence.constraint:
                    logits = masked(logits, sequence.constraint.mask())
                token = sample(logits, sequence.tokens, sequence.length, rules)
                if rules.likeliest is not None:
                    sequence.probabilities[sequence.length] = probability_of(raw, token, rules.likeliest)
                found.append([token])
            for sequence, ids in zip(sequences, found, strict=True):
                sequence.tokens.extend(ids)
                if sequence.constraint:
                    sequence.constraint.extend(ids)
            yield found

    async def logits(self, sequence: TokenSequence) -> np.ndarray:
        check_not_empty(sequence)
        await self._run_pending(sequence)
        return self._state(sequence).logits[-1].copy()

    async def last_logits(self, sequence: TokenSequence, rows: int) -> np.ndarray:
        check_last_rows(sequence, rows)
        self._rewind(sequence, sequence.length - rows)
        await self._run_pending(sequence, rows)
        return self._state(sequence).logits.copy()

    async def hidden(
        self, sequence: TokenSequence, names: Sequence[str], start: int = 0, after_pass: AfterPass | None = None,
        end: int | None = None,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        check_hidden(sequence, names, start, end, self.graph.taps)
        found: dict[str, list[np.ndarray]] = {name: [] for name in names}
        tapped = {self.graph.taps[name] for name in names}
        async for _, values in self._read(sequence, start, end or sequence.length, after_pass):
            self._run_rows([op for op in self.graph.head if op.out in tapped], values)
            for name in names:
                found[name].append(values[self.graph.taps[name]])
        # No logits were made: the last token runs again when its logits are asked for.
        sequence.stored = min(sequence.stored, sequence.length - 1)
        return {name: np.concatenate(rows) for name, rows in found.items()}

    async def token_logprobs(
        self, sequence: TokenSequence, start: int, after_pass: AfterPass | None = None
    ) -> np.ndarray:
        check_scored(sequence, start)
        found: list[np.ndarray] = []
        async for first, values in self._read(sequence, start - 1, sequence.length - 1, after_pass):
            logits = self._run_head(sequence, values)
            targets = sequence.tokens[first + 1 : first + 1 + len(logits)]
            found.append(logits[np.arange(len(logits)), targets] - logsumexp(logits))
        return np.concatenate(found).astype(np.float32)

    async def score_states(self, sequence: TokenSequence, states: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
        residual = self.graph.head_residual
        check_scored_states(states, tokens, residual.width, self._config.vocab_size)
        logits = self._run_head(sequence, {residual: states})
        return (logits[np.arange(len(logits)), tokens] - logsumexp(logits)).astype(np.float32)

    async def denoise(
        self, sequence: TokenSequence, canvas: Sequence[int], sampling: SamplingParams,
        allowed: np.ndarray | None = None,
    ) -> Unmasked:  # fmt: skip
        diffusion = check_canvas(sequence, canvas, self._config)
        end, shift = sequence.length + len(canvas), int(diffusion.shifted)
        begin = block_begin(sequence.length - shift, diffusion.block)
        if sequence.stored < begin:
            await self._run_pending(sequence)
        self._rewind(sequence, begin)
        body = await self._run_body(sequence, sequence.length, canvas)
        self._rewind(sequence, begin)
        first = sequence.length - shift - begin
        values = {value: rows[first : end - shift - begin] for value, rows in body.items()}
        leftmost = None if allowed is None else (canvas.index(diffusion.mask), allowed)
        return unmasked(self._run_head(sequence, values), sequence.length, sampling, diffusion.mask, leftmost)

    async def _read(
        self, sequence: TokenSequence, start: int, end: int, after_pass: AfterPass | None
    ) -> AsyncIterator[tuple[int, dict[Value, np.ndarray]]]:
        """Run the tokens from `start` to `end` again. Yields the first position of each pass, and the values of the
        body."""
        self._rewind(sequence, start)
        while sequence.stored < end:
            first = sequence.stored
            values = await self._run_body(sequence, min(first + CHUNK, start if first < start else end))
            if first >= start:
                yield first, values
            if after_pass:
                await after_pass(sequence.stored)

    async def add_adapter(self, adapter: LoraAdapter) -> int:
        return self.adapters.add(adapter)

    def remove_adapter(self, number: int) -> None:
        self.adapters.remove(number)

    def use_adapter(self, sequence: TokenSequence, number: int) -> None:
        self.adapters.use(sequence, number)

    async def put_head_adapter(self, adapter: NeighbourAdapter) -> int:
        return self.adapters.put_head(adapter)

    def remove_head_adapter(self, number: int) -> None:
        self.adapters.remove_head(number)

    def use_head_adapter(self, sequence: TokenSequence, number: int) -> None:
        self.adapters.use_head(sequence, number)

    async def open_training(self, layout: ParameterLayout) -> Training:
        from py_core.backends.numpy.training import NumpyTraining  # a chat does not wait for this import
        from py_core.training.plan import training_plan

        return NumpyTraining(self._config, training_plan(self.graph, layout), self._weights, self._rotations)

    def truncate(self, sequence: TokenSequence, length: int) -> None:
        del sequence.tokens[length:]
        # The last token runs again: its logits are gone.
        self._rewind(sequence, max(length - 1, 0))

    def free(self, sequence: TokenSequence) -> None:
        self._states.pop(sequence.number, None)
        self._sequences.pop(sequence.number, None)

    def close(self) -> None:
        self._states.clear()
        self._sequences.clear()
        self.adapters.clear()
        self._weights = {}

    def _state(self, sequence: TokenSequence) -> _SequenceState:
        if sequence.number not in self._states:
            raise BackendError("engine.closed", "This conversation was closed. Start a new one.")
        return self._states[sequence.number]

    def _rewind(self, sequence: TokenSequence, stored: int) -> None:
        stored = min(sequence.stored, stored)
        state = self._states.get(sequence.number)
        sequence.stored = stored if state and all(cache.sees(stored) for cache in state.caches.values()) else 0
        if state and sequence.stored // PAGE < len(state.tiers):
            sequence.stored = sequence.stored // PAGE * PAGE  # demoted pages are never written
            del state.tiers[sequence.stored // PAGE :]

    async def _run_pending(
        self, sequence: TokenSequence, logit_rows: int = 1, after_pass: AfterPass | None = None
    ) -> None:
        """Run the tokens whose keys and values are not stored yet, and the head for the last `logit_rows` of them."""
        block = self._config.block
        if sequence.stored < sequence.length:
            self._rewind(sequence, block_begin(sequence.stored, block))
        while sequence.stored < sequence.length:
            stop = pass_end(sequence.stored, sequence.length, self._chunk, logit_rows, block)
            values = await self._run_body(sequence, stop)
            if sequence.stored == sequence.length:
                values = {value: rows[-logit_rows:] for value, rows in values.items()}
                self._state(sequence).logits = self._run_head(sequence, values)
            if after_pass:
                await after_pass(sequence.stored)

    async def _run_body(
        self, sequence: TokenSequence, stop: int, canvas: Sequence[int] = ()
    ) -> dict[Value, np.ndarray]:
        """Run the graph's body over the tokens that are not stored yet, up to `stop`, and a canvas behind the last one.
        Returns its values."""
        state, start = self._state(sequence), sequence.stored
        if self._tiers:
            state.demote(self._tiers.tiers(start // PAGE))
        tokens, positions = np.array([*sequence.tokens[start:stop], *canvas]), np.arange(start, stop + len(canvas))
        stop += len(canvas)
        ahead = seen_ahead(start, stop, self._config.block)
        values: dict[Value, np.ndarray] = {}
        for op in self.graph.body:
            match op:
                case ops.Embedding():
                    values[op.out] = self._weights[op.weight][tokens] * np.float32(op.scale)
                case ops.Rope():
                    values[op.out] = rope(
                        values[op.x], self._rotations[op.rotation][positions], op.num_heads, op.interleaved
                    )
                case ops.Attention():
                    cache = state.caches[op.layer]
                    if op.appends:
                        cache.append(start, values[op.k], values[op.v])
                    first, (keys, kept_values) = cache.first, cache.upto(stop)
                    values[op.out] = attention(
                        values[op.q],
                        keys,
                        kept_values,
                        positions - first,
                        op.num_attention_heads,
                        op.scale,
                        op.softcap,
                        op.window,
                        ahead,
                    )
                    await asyncio.sleep(0)
                case ops.ShortConv():
                    past = state.rows[op.layer].last(start, op.taps - 1)
                    values[op.out], z = short_conv(values[op.x], self._weights[op.weight], past, op.gated)
                    state.rows[op.layer].append(start, z)
                case ops.DeltaRule():
                    inputs = (values[op.x], values[op.alpha], values[op.beta])
                    weights = (self._weights[op.rate], self._weights[op.bias])
                    k, u, g = (cache.last(start, start) for cache in state.deltas[op.layer])
                    values[op.out], *rows = delta_rule(*inputs, *weights, op.key_heads, (k, u, g))
                    for cache, new in zip(state.deltas[op.layer], rows, strict=True):
                        cache.append(start, new)
                    await asyncio.sleep(0)
                case _:
                    self._run_rows([op], values, self.adapters.sets.get(sequence.adapter))
        sequence.stored = stop
        return values

    def _run_head(self, sequence: TokenSequence, values: dict[Value, np.ndarray]) -> np.ndarray:
        """Return the logits of rows, with the sequence's adapter at the head's input: (rows, vocab_size)."""
        self._run_rows(self.graph.head, values)
        adapter = self.adapters.heads.get(sequence.head_adapter)
        logits = values[self.graph.output]
        return adapter.changed(values[self.graph.head_input], logits) if adapter else logits

    def _run_rows(
        self, operations: Sequence[ops.Op], values: dict[Value, np.ndarray], adapter: LoraAdapter | None = None
    ) -> None:
        """Run operations that see one row at a time, at any place in a sequence."""
        for op in operations:
            match op:
                case ops.RMSNorm():
                    weight = self._weights[op.weight] if op.weight else np.ones(op.x.width // op.num_heads, np.float32)
                    values[op.out] = rms_norm(values[op.x], weight, op.eps)
                case ops.Linear():
                    rows = slice(op.first_row, op.first_row + op.out.width)
                    values[op.out] = values[op.x] @ self._weights[op.weight][rows].T
                    if op.bias:
                        values[op.out] += self._weights[op.bias][rows]
                    if adapter and (pair := adapter.pairs.get(op.weight)):
                        values[op.out] += np.float32(pair.scale) * (values[op.x] @ pair.a.T @ pair.b[rows].T)
                case ops.Half():
                    values[op.out] = half(values[op.x], op.size, op.second)
                case ops.GLU():
                    up = values[op.up][:, op.first : op.first + op.out.width]
                    values[op.out] = glu(values[op.gate], up, op.activation)
                case ops.Route():
                    values[op.out] = route(values[op.x], op.used, op.normalized)
                case ops.ExpertLinear():
                    values[op.out] = expert_linear(values[op.x], values[op.route], self._weights[op.weight], op.used)
                case ops.Mix():
                    values[op.out] = mix(values[op.x], values[op.route], op.used)
                case ops.SoftCap():
                    values[op.out] = soft_cap(values[op.x], op.cap)
                case ops.Scale():
                    values[op.out] = values[op.x] * self._weights[op.weight]
                case ops.Add():
                    values[op.out] = values[op.a] + values[op.b]


class _SequenceState:
    """One sequence: the logits of its last tokens, and its keys and values, with a cache for each layer."""

    def __init__(self, config: ModelConfig, graph: Graph, windows: dict[int, int]) -> None:
        self.logits = np.zeros((1, config.vocab_size), np.float32)
        context = config.context_length
        self.caches = {
            layer: _Cache((2, op.num_key_value_heads, op.head_dim), windows[layer], context)
            for layer, op in graph.caches.items()
        }
        self.rows = {layer: _Cache((1, 1, op.out.width), 0, context) for layer, op in graph.convolutions.items()}
        """The rows of each convolution, all of them."""
        self.deltas = {
            layer: [_Cache((1, 1, width), 0, context) for width in (op.key_heads * op.size, op.out.width, op.heads)]
            for layer, op in graph.delta_rules.items()
        }
        """The rows k, u and g of each delta rule, all of them."""
        self.tiers: list[Tier] = []
        """The tiers of the pages that were demoted."""

    @property
    def all_caches(self) -> list[_Cache]:
        deltas = [cache for caches in self.deltas.values() for cache in caches]
        return [*self.caches.values(), *self.rows.values(), *deltas]

    def demote(self, wanted: list[Tier]) -> None:
        """Bring the whole pages to the wanted tiers, but no page to a higher tier."""
        for place, tier in enumerate(wanted):
            if tier > (self.tiers[place] if place < len(self.tiers) else Tier.HOT):
                for cache in self.caches.values():
                    page = cache.kv[:, place * PAGE : (place + 1) * PAGE]
                    page[:] = demoted(page[0], page[1], tier)
                self.tiers[place:] = [tier, *self.tiers[place + 1 :]]


class _Cache:
    """A layer's keys and values from position `first` on: float32 (2, capacity, kv_heads, head_dim). A convolution or a
    part of a delta rule has one plane, of one head.

    The capacity doubles, up to the most that a sequence keeps. A `window` of 0 keeps everything.
    """

    def __init__(self, shape: tuple[int, int, int], window: int, context_length: int) -> None:
        planes, *head = shape
        self.first = 0
        self._window, self._most = window, PAGE * most_pages(window, context_length)
        self.kv = np.zeros((planes, 0, *head), np.float32)

    def sees(self, position: int) -> bool:
        """True if the cache has all that a row at `position` sees."""
        return not self._window or self.first <= max(0, position + 1 - self._window)

    def last(self, start: int, count: int) -> np.ndarray:
        """The rows of the `count` positions before `start` in the only plane, 0 before the sequence: (count, width)."""
        found = np.zeros((count, self.kv.shape[-1]), np.float32)
        if there := min(count, start):
            found[count - there :] = self.kv[0, start - there : start, 0]
        return found

    def upto(self, stop: int) -> np.ndarray:
        """The planes from the first position that is kept to `stop`, without it."""
        return self.kv[:, : stop - self.first]

    def append(self, start: int, *planes: np.ndarray) -> None:
        """Store rows of each plane, k and v (M, kv_heads * head_dim), at position `start`."""
        self.first, end = min(self.first, start), start + len(planes[0])
        if end - self.first > self.kv.shape[1]:
            self._make_room(start, end)
        at, stop = start - self.first, end - self.first
        for plane, rows in zip(self.kv, planes, strict=True):
            plane[at:stop] = rows.reshape(-1, *plane.shape[1:])

    def _make_room(self, start: int, end: int) -> None:
        """Drop what no position from `start` on sees, except some slack, and grow if that is not enough."""
        first = max(self.first, first_kept(self._window, start, end))
        kept = self.kv[:, first - self.first : start - self.first]
        capacity = self.kv.shape[1]
        if end - first > capacity:
            capacity = max(end - first, min(max(PAGE, 2 * end), self._most))
        self.kv = np.zeros((len(kept), capacity, *kept.shape[2:]), np.float32)
        self.kv[:, : kept.shape[1]] = kept
        self.first = first
