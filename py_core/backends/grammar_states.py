"""The states of grammars that kernels follow by themselves, so that several steps are in flight.

A state has a mask of the tokens that may come next, and says where they lead: back to it, as most characters of a
string, or by an *exit* to another state. A row that samples any other token waits: the host goes on with its grammar.
web/kernels/kernels.h and wgsl_shaders/sampling/masks.wgsl read the same words.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from py_core.grammar.expressions import GrammarError
from py_core.sampling import mask_words

if TYPE_CHECKING:
    from py_core.backends.device import Device
    from py_core.grammar.constraint import TokenGrammar

MOST_EXITS = 63
"""Exits of a state. Rarer ones wait for the host."""

_HEADER = 2
_MASKS = 192
"""Pairs of masks for which there is room, each with a state of most exits. Small states take almost no room."""

MASK_STATE = 1
"""The number of the state that `mask_state` makes."""

Place = tuple["TokenGrammar", int]
"""A state of a grammar."""


def grammar_bytes(vocab_size: int) -> int:
    """Return the size of the memory of all states.

    The words of a state are the number of its exits, the place of its masks plus one, and the exits: a token, and the
    number of the next state, 0 if the host has to tell it. The masks are one of the tokens that may come next, and one
    of those that lead back to the state. States share them. If the place is 0, only the exits may come. A state's
    number is the place of its first word plus one.
    """
    return 4 * _MASKS * (_HEADER + 2 * MOST_EXITS + 2 * mask_words(vocab_size))


def mask_state(mask: np.ndarray) -> bytes:
    """Return the words of a state that has a mask alone, and is the first one. mask: as `TokenGrammar.mask`."""
    return array("I", (0, _HEADER + 1)).tobytes() + mask.tobytes()


@dataclass
class _Exits:
    """The words of a state up to its masks."""

    begin: int
    """The place of the first one."""
    words: list[int]


class GrammarStates:
    """The states that one device has."""

    def __init__(self, device: Device, least_forced: int) -> None:
        """least_forced: rows wait before this number of forced tokens, which the host has run in one pass."""
        self._device, self._least_forced = device, least_forced
        self._words = grammar_bytes(device.config.vocab_size) // 4
        self._used = 0
        self._numbers: dict[Place, int] = {}
        self._masks: dict[bytes, int] = {}
        """The place of each pair of masks, plus one."""
        self._lead: dict[Place, list[tuple[_Exits, int]]] = {}
        """Exits that have to name the state once it is there, each as the place among the words."""
        self._new = bytearray()
        """The words of states that are yet to be written, behind all others."""
        self._changed: dict[int, _Exits] = {}
        """Exits that are there, and name more states now."""
        self._next = deque[Place]()
        """States to which exits lead, those that may be reached first in front."""

    def forget(self) -> None:
        """Forget all states. Call it while no step is in flight."""
        self._used = 0
        self._numbers.clear()
        self._masks.clear()
        self._lead.clear()
        self._new.clear()
        self._changed.clear()
        self._next.clear()

    def keep_to(self, grammars: Collection[TokenGrammar]) -> None:
        """Look ahead only in these grammars. Others may be closed."""
        self._next = deque(place for place in self._next if place[0] in grammars)

    @property
    def knows_all(self) -> bool:
        """True if it has all states to which likely tokens lead."""
        return not self._next

    def numbers(self, places: Sequence[Place | None]) -> list[int]:
        """Return the numbers of states, 0 for None. States that the device lacks are brought there. Call it while no
        step is in flight. Raises GrammarError."""
        wanted = dict.fromkeys(place for place in places if place)
        if not wanted.keys() <= self._numbers.keys():
            self._next.clear()
        if not all(self._bring(place) for place in wanted):
            self.forget()  # there is not room for all
            for place in wanted:
                self._bring(place)
        self._write()
        return [self._numbers[place] if place else 0 for place in places]

    def look_ahead(self, count: int) -> None:
        """Bring up to `count` more states that may be reached, if there is room."""
        while count and self._next:
            grammar, state = self._next.popleft()
            if (grammar, state) in self._numbers or len(grammar.forced(state)) >= self._least_forced:
                continue
            count -= 1
            with contextlib.suppress(GrammarError):  # it is told if an answer comes there
                if not self._bring((grammar, state)):
                    break
        self._write()

    def _write(self) -> None:
        """Write what was made. Exits name a state only once it is there."""
        if self._new:
            self._device.write_grammar_state(4 * self._used - len(self._new), bytes(self._new))
        for exits in self._changed.values():
            self._device.write_grammar_state(4 * exits.begin, array("I", exits.words).tobytes())
        self._new.clear()
        self._changed.clear()

    def _bring(self, place: Place) -> bool:
        """Bring a state to the device, and the states behind it as long as one token is forced. Returns False if there
        is no room."""
        if place in self._numbers:
            return True
        grammar, state = place
        forced = grammar.forced(state)
        along = grammar.along(state, forced)
        # The last token that is forced is left to the model.
        chain = list(
            itertools.takewhile(lambda one: (grammar, one) not in self._numbers, along[: max(0, len(forced) - 1)])
        )
        behind = along[len(chain)]
        numbers = {(grammar, one): self._used + (_HEADER + 2) * at + 1 for at, one in enumerate(chain)}
        begin = self._used + (_HEADER + 2) * len(chain)
        exits: list[tuple[int, int]] = []
        masks = b""
        if (grammar, behind) not in self._numbers:
            numbers[grammar, behind] = begin + 1
            exits, masks = self._moves(grammar, behind)
        new_masks = masks if masks not in self._masks else b""
        if 4 * (begin + (_HEADER + 2 * len(exits))) + len(new_masks) > 4 * self._words:
            return False
        self._numbers |= numbers
        words = [
            number for token, after in zip(forced, along[1 : len(chain) + 1], strict=False)
            for number in (1, 0, token, self._numbers[grammar, after])
        ]  # fmt: skip
        if (grammar, behind) in numbers:
            wide = _Exits(begin, [len(exits), 0])
            if new_masks:
                self._masks[masks] = begin + _HEADER + 2 * len(exits) + 1
            wide.words[1] = self._masks.get(masks, 0)
            for token, after in exits:
                there = (grammar, after)
                number = self._numbers.get(there, 0)
                wide.words += token, number
                if not number:
                    self._lead.setdefault(there, []).append((wide, len(wide.words) - 1))
                    if grammar.is_likely(token):
                        self._next.append(there)
            words += wide.words
        first = self._used - len(self._new) // 4
        self._new += array("I", words).tobytes() + new_masks
        self._used = first + len(self._new) // 4
        for there, number in numbers.items():
            for lead, at in self._lead.pop(there, []):
                lead.words[at] = number
                self._changed[lead.begin] = lead
        return True

    def _moves(self, grammar: TokenGrammar, state: int) -> tuple[list[tuple[int, int]], bytes]:
        """Return the exits of a state, each as a token and the state that it leads to, and its masks: none if only the
        exits may come."""
        mask, keeps, exits = grammar.moves(state, MOST_EXITS)
        if forced := grammar.forced(state):
            exits.sort(key=lambda move: move[0] not in forced)
        has_masks = keeps.any() or len(exits) < int(np.bitwise_count(mask).sum())
        return exits, mask.tobytes() + keeps.tobytes() if has_masks else b""
