"""The kernel of web/kernels/grammar: which tokens of a vocabulary a grammar allows.

A host (wasmtime_kernel.py, or the page) gives it a memory and calls it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from py_core.grammar.expressions import Automaton, Grammar, GrammarError
from py_core.grammar.program import program_of

_NONE = 0xFFFFFFFF
_LONGEST_FORCED = 4096
_MOST_TOKENS = 512
"""Tokens that one call of the kernel follows."""
_MOST_AUTOMATA = 1000
"""If there are more, those that no open grammar has are dropped."""
_MOST_CLOSING = 1 << 14
_TOO_LARGE = "The grammar leaves too many ways open here, or takes too much memory: make it simpler."


class KernelHost(Protocol):
    """An instance of the kernel, with a memory of its own."""

    exports: Any
    """Its functions of numbers."""

    def write(self, address: int, data: bytes | memoryview) -> None: ...

    def read(self, address: int, nbytes: int) -> bytes: ...


@dataclass
class _Brought:
    """An automaton in the kernel. While it is here, its id belongs to no other."""

    automaton: Automaton
    number: int
    is_common: bool
    """True if many grammars have it: it stays when none has it, with what is known of its places."""
    users: int = 0
    """The open grammars that have it."""


class GrammarKernel:
    """The grammars of one vocabulary."""

    def __init__(self, host: KernelHost, tokens: Sequence[bytes]) -> None:
        """tokens: the bytes of each token; b"" for those that no grammar allows, such as special tokens."""
        self.tokens, self._host, self._calls = tokens, host, host.exports
        self._words = (len(tokens) + 31) // 32
        offsets = np.zeros(len(tokens) + 1, np.uint32)
        np.cumsum([len(token) for token in tokens], out=offsets[1:])
        if not self._calls.set_vocabulary(self._put(b"".join(tokens)), self._put(offsets.tobytes()), len(tokens)):
            raise MemoryError("The vocabulary does not fit into the memory of the grammars' kernel.")
        self._bits, self._keeps = self._put(bytes(4 * self._words)), self._put(bytes(4 * self._words))
        self._scratch = self._put(bytes(4 * _MOST_CLOSING))
        self._automata: dict[int, _Brought] = {}

    def _put(self, data: bytes) -> int:
        address = int(self._calls.allocate(max(1, len(data))))
        if not address:
            raise MemoryError("The memory of the grammars' kernel is full.")
        self._host.write(address, data)
        return address

    @property
    def memory_bytes(self) -> int:
        """The kernel's memory, in use or free again."""
        return int(self._calls.memory_pages()) << 16

    def _bring(self, automaton: Automaton) -> int:
        runs = array("I", [number for moves in automaton.moves for move in moves for number in move])
        counts = array("I", [len(moves) for moves in automaton.moves])
        accepts = bytearray(len(automaton.moves))
        for state in automaton.accepting:
            accepts[state] = 1
        places = [self._put(bytes(runs)), self._put(bytes(counts)), self._put(bytes(accepts))]
        number = int(self._calls.add_automaton(*places, len(accepts))) & _NONE
        for place in places:
            self._calls.give(place)
        if number == _NONE:
            raise GrammarError(_TOO_LARGE)
        return number

    def open(self, grammar: Grammar) -> OpenGrammar:
        """Raises GrammarError if the grammar is too large, or no text fits it."""
        own: set[int] = set()

        def number_of(automaton: Automaton, is_common: bool) -> int:
            key = id(automaton)
            if key not in self._automata:
                self._automata[key] = _Brought(automaton, self._bring(automaton), is_common)
            if key not in own:
                own.add(key)
                self._automata[key].users += 1
            return self._automata[key].number

        try:
            program = program_of(grammar, number_of)
            places = [self._put(bytes(part)) for part in (program.nodes, program.targets, program.texts)]
            counts = len(program.nodes) // 5, len(program.targets), len(program.texts)
            numbers = [number for pair in zip(places, counts, strict=True) for number in pair]
            handle = int(self._calls.open_grammar(*numbers))
            for place in places:
                self._calls.give(place)
            if not handle:
                raise GrammarError(_TOO_LARGE)
            try:
                return OpenGrammar(self, handle, program.first, own)
            except BaseException:
                self._calls.close_grammar(handle)
                raise
        except BaseException:
            self._let_go(own)
            raise

    def _let_go(self, automata: Collection[int]) -> None:
        for key in automata:
            self._automata[key].users -= 1
        is_full = len(self._automata) > _MOST_AUTOMATA
        for key in [*self._automata] if is_full else automata:
            brought = self._automata[key]
            if not brought.users and (is_full or not brought.is_common):
                self._calls.drop_automaton(brought.number)
                del self._automata[key]

    # ---- for OpenGrammar ----

    def mask(self, handle: int, state: int) -> np.ndarray:
        if not self._calls.mask(handle, state, self._bits):
            raise GrammarError(_TOO_LARGE)
        return np.frombuffer(self._host.read(self._bits, 4 * self._words), np.uint32)

    def moves(self, handle: int, state: int, most: int) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        count = int(self._calls.moves(handle, state, self._bits, self._keeps, self._scratch, most)) & _NONE
        if count == _NONE:
            raise GrammarError(_TOO_LARGE)
        mask, keeps = (
            np.frombuffer(self._host.read(place, 4 * self._words), np.uint32) for place in (self._bits, self._keeps)
        )
        exits = struct.iter_unpack("<II", self._host.read(self._scratch, 8 * count))
        return mask, keeps, [(token, after) for token, after in exits]

    def after_bytes(self, handle: int, state: int, data: bytes) -> tuple[int | None, int]:
        place, done = self._put(data), self._scratch
        after = int(self._calls.after_bytes(handle, state, place, len(data), done)) & _NONE
        self._calls.give(place)
        (count,) = struct.unpack("<I", self._host.read(done, 4))
        return self._checked(handle, after), count

    def along(self, handle: int, state: int, tokens: Sequence[int]) -> list[int]:
        found, behind = [state], self._scratch + 4 * _MOST_TOKENS
        for first in range(0, len(tokens), _MOST_TOKENS):
            some = array("I", tokens[first : first + _MOST_TOKENS])
            self._host.write(self._scratch, some.tobytes())
            count = int(self._calls.after_tokens(handle, found[-1], self._scratch, len(some), behind))
            found += array("I", self._host.read(behind, 4 * count))
            if count < len(some):
                self._checked(handle, _NONE)
                break
        return found

    def forced(self, handle: int, state: int) -> bytes:
        count = int(self._calls.forced(handle, state, self._scratch, _LONGEST_FORCED))
        return self._host.read(self._scratch, count)

    def closing(self, handle: int, state: int) -> list[int] | None:
        count = int(self._calls.closing(handle, state, self._scratch)) & _NONE
        return None if count == _NONE else list(array("I", self._host.read(self._scratch, 4 * count)))

    def begin(self, handle: int, first: int) -> int | None:
        return self._checked(handle, int(self._calls.begin(handle, first)) & _NONE)

    def may_end(self, handle: int, state: int) -> bool:
        return bool(self._calls.may_end(handle, state))

    def state_count(self, handle: int) -> int:
        return int(self._calls.state_count(handle))

    def close(self, handle: int, automata: Collection[int]) -> None:
        self._calls.close_grammar(handle)
        self._let_go(automata)

    def _checked(self, handle: int, state: int) -> int | None:
        if state != _NONE:
            return state
        if self._calls.has_failed(handle):
            raise GrammarError(_TOO_LARGE)
        return None


class OpenGrammar:
    """One grammar in the kernel. A state is a number; equal states allow the same."""

    def __init__(self, kernel: GrammarKernel, handle: int, first: int, automata: Collection[int]) -> None:
        self._kernel, self._handle, self._automata = kernel, handle, automata
        begins = kernel.begin(handle, first)
        if begins is None:
            raise GrammarError("No text fits this grammar.")
        self.begins = begins
        """The state before the first token."""

    def mask(self, state: int) -> np.ndarray:
        """Return the tokens that may come next: uint32 (tokens / 32,), the first token in the lowest bit. Raises
        GrammarError."""
        return self._kernel.mask(self._handle, state)

    def moves(self, state: int, most: int) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
        """Return the mask of a state, and where its tokens lead: those that lead back to the state, as in a mask, and
        at most `most` others, each with the state that it leads to. There may be more of either. Raises
        GrammarError."""
        return self._kernel.moves(self._handle, state, most)

    def may_end(self, state: int) -> bool:
        """Return True if the text may end here."""
        return self._kernel.may_end(self._handle, state)

    def after_token(self, state: int, token: int) -> int | None:
        """Return the state after a token, None if it is not allowed. Raises GrammarError."""
        states = self.along(state, [token])
        return states[1] if len(states) > 1 else None

    def along(self, state: int, tokens: Sequence[int]) -> list[int]:
        """Return the state before each of these tokens, as far as they may follow one another behind a state, and the
        one behind them. Raises GrammarError."""
        return self._kernel.along(self._handle, state, tokens)

    def after_bytes(self, state: int, data: bytes) -> tuple[int | None, int]:
        """Return the state after some bytes, None if they are not allowed; and how many are. Raises GrammarError."""
        return self._kernel.after_bytes(self._handle, state, data)

    def forced(self, state: int) -> bytes:
        """Return the bytes that must come next."""
        return self._kernel.forced(self._handle, state)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes by which the grammar allows a token."""
        return self._kernel.tokens[token]

    @property
    def states(self) -> int:
        """The number of states that were made so far. They take memory until it is closed."""
        return self._kernel.state_count(self._handle)

    def closing(self, state: int) -> list[int] | None:
        """Return tokens that end the text with the fewest bytes; None if those are more than 16,384."""
        return self._kernel.closing(self._handle, state)

    def close(self) -> None:
        self._kernel.close(self._handle, self._automata)
