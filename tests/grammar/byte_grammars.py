"""Grammars over a vocabulary whose tokens are bytes, for tiny models."""

from __future__ import annotations

from collections.abc import Collection

from app.building.kernels import grammar_kernel_path
from py_core.engine.engine import Engine
from py_core.grammar.constraint import Constraint, TokenGrammar
from py_core.grammar.expressions import Choice, Grammar, Literal
from py_core.grammar.kernel import GrammarKernel
from py_core.grammar.wasmtime_kernel import WasmtimeGrammarHost
from tests.tiny.models import ALL_BYTES

DIGIT = Choice(tuple(Literal(b"%d" % digit) for digit in range(10)))


def byte_kernel(silent: Collection[int]) -> GrammarKernel:
    """silent: tokens without a text, besides those behind the bytes."""
    tokens = [b"" if byte in silent else bytes([byte]) for byte in range(256)]
    return GrammarKernel(WasmtimeGrammarHost(grammar_kernel_path()), tokens + [b""] * (ALL_BYTES - len(tokens)))


def follows(engine: Engine, kernel: GrammarKernel, end: int) -> Engine:
    """Let an engine's answers follow grammars. end: the token that ends them."""

    async def constraint(grammar: Grammar) -> Constraint:
        followed = TokenGrammar(kernel.open(grammar), lambda text: list(text.encode()), [end])
        return Constraint(followed, lambda _: followed.close())

    engine.constraint_of = constraint
    return engine
