"""The kernel that follows a text on the GPU and guesses its next tokens, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import RING, ROW_BYTES, STATE_HEADER, WAITS, ring_of, state_bytes
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import MOST_MATCH

HEADER, RECORD, ROWS, MAX_ROWS, SLOT = 12, 34, 8, 9, 1
CONSTANTS = {
    "MAX_ROWS": MAX_ROWS, "RING": RING, "ROWS": ROWS, "RECORD": RECORD, "MOST_MATCH": MOST_MATCH, "WORDS": 1,
    "WORKGROUP": 64,
}  # fmt: skip
NONE = 0xFFFFFFFF
RULES = SamplingParams(temperature=0.5, top_k=7, seed=3)

some = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def guessed(text: list[int]) -> list[int]:
    """The token after the newest of the places that match the end best, repeatedly; the end if no place matches."""

    def alike(place: int) -> int:
        length = 0
        while length < min(MOST_MATCH, place + 1) and text[place - length] == text[-1 - length]:
            length += 1
        return length

    length, place = max(((alike(at), at) for at in range(len(text) - 1)), default=(0, 0))
    told = list(text)
    for at in range(ROWS - 1):
        told.append(told[place + 1 + at] if length else text[-1])
    return told[len(text) :]


@given(
    text=st.lists(st.integers(0, 2), min_size=1, max_size=200), new=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    fed=st.lists(st.integers(0, 2), min_size=8, max_size=8), rows=st.sampled_from([1, 2, 4, 8]),
    before=st.integers(0, 1500), record=st.integers(0, 3),
)  # fmt: skip
@some
def test_what_was_sampled_is_followed_and_what_comes_next_is_guessed(
    run_kernel, text: list[int], new: list[int], fed: list[int], rows: int, before: int, record: int
) -> None:
    position = len(text) - 1 + before
    ring = ring_of([9] * before + text)
    if rows == 1:  # any number of steps
        states = [(new[-1], position + len(new), SLOT)]
        sampled = new
    else:  # one step, whose row i ran fed[i] at the last token's position + i
        new = (new * 8)[:rows]
        states = [(token, position + 1 + at, SLOT) for at, token in enumerate(new)]
        right = next((at for at in range(rows - 1) if new[at] != fed[at + 1]), rows - 1)
        sampled = new[: right + 1]
    ring[np.arange(position + 1, position + 1 + len(new)) % RING] = new
    state = state_bytes(states, RULES, rows)
    state += state_bytes([(0, 0, 0)] * (MAX_ROWS - rows))[STATE_HEADER:]
    words = np.array([record, len(text), position, 0, *fed, *text, *[7] * 40], np.uint32)
    history = np.zeros((2, RING), np.uint32)
    history[SLOT] = ring
    state, history_after, after, records = run_kernel(
        "guess", [state, history, words, bytes(4 * RECORD * 4), bytes(16)], (1, 1, 1), **CONSTANTS
    )
    text = [*text, *sampled]
    position += len(sampled)
    told = np.frombuffer(records, np.uint32)[record * RECORD :]
    assert told[: 1 + len(sampled)].tolist() == [len(sampled), *sampled]
    guesses = [text[-1], *guessed(text)]
    after = np.frombuffer(after, np.uint32)
    assert after[:3].tolist() == [record + 1, len(text), position]
    assert after[4:HEADER].tolist() == guesses
    assert after[HEADER : HEADER + len(text)].tolist() == text
    expected = [(token, position + at, SLOT) for at, token in enumerate(guesses)]
    assert state[STATE_HEADER:][: ROW_BYTES * ROWS] == state_bytes(expected, RULES, rows)[STATE_HEADER:]
    found = np.frombuffer(history_after, np.uint32).reshape(2, RING)
    assert not found[0].any()
    assert found[SLOT, np.arange(position, position + ROWS) % RING].tolist() == guesses


# Exits of a state, and the tokens that lead back to it, None if only the exits may come. The host has to tell state 0.
STATES: dict[int, tuple[dict[int, int], list[int] | None]] = {
    1: ({0: 2}, None), 2: ({1: 3}, None), 3: ({0: 1, 2: 4}, [1]), 4: ({1: 0, 2: 5}, None), 5: ({}, [0, 1]),
}  # fmt: skip


def packed_states() -> tuple[list[int], dict[int, int]]:
    """The words of the states, and the number of each."""
    sizes = {state: 2 + 2 * len(exits) + (0 if keeps is None else 2) for state, (exits, keeps) in STATES.items()}
    numbers, used = {0: 0}, 0
    for state, size in sizes.items():
        numbers[state], used = used + 1, used + size
    words: list[int] = []
    for exits, keeps in STATES.values():
        words += len(exits), 0 if keeps is None else len(words) + 2 + 2 * len(exits) + 1
        words += [word for token, after in exits.items() for word in (token, numbers[after])]
        if keeps is not None:
            words += [sum(1 << token for token in [*exits, *keeps]), sum(1 << token for token in keeps)]
    return words, numbers


def kept(guesses: list[int], has_guesses: bool, state: int) -> tuple[list[int], list[int]]:
    """The guesses as far as the grammar goes, or what alone may come; and the states behind the text and each guess."""
    found, states = [], [state]
    for guess in guesses:
        exits, keeps = STATES.get(states[-1], ({}, None))
        if len(exits) == 1 and keeps is None:
            (alone,) = exits
            has_guesses, guess = has_guesses and guess == alone, alone
        elif not has_guesses:
            guess = NONE
        states.append(exits.get(guess, states[-1] if guess in (keeps or []) else 0))
        found.append(guess if states[-1] else NONE)
    return found, states


@given(
    text=st.lists(st.integers(0, 2), min_size=2, max_size=60), state=st.integers(0, 5),
    others=st.lists(st.integers(0, 5), min_size=ROWS, max_size=ROWS), count=st.integers(1, ROWS),
    is_plain=st.booleans(),
)  # fmt: skip
@some
def test_guesses_keep_to_the_grammar_and_what_alone_may_come_is_one(
    run_kernel, text: list[int], state: int, others: list[int], count: int, is_plain: bool
) -> None:
    *before, newest = text
    words, numbers = packed_states()
    # `count` plain steps, or a pass whose first `count` rows were right. The text came to the state, or it waits.
    fed, new = [9, *[3] * (count - 1), *[8] * (ROWS - count)], [*[3] * (count - 1), newest, *[7] * (ROWS - count)]
    position = len(before) - 1
    rows = [(token, position + 1 + at, SLOT) for at, token in enumerate(new)]
    numbered = [numbers[others[at] if at != count - 1 else state] for at in range(ROWS)]
    packed = np.frombuffer(state_bytes(rows, RULES, ROWS, grammar_states=numbered), np.uint32).copy()
    table = packed[STATE_HEADER // 4 :].reshape(ROWS, -1)
    table[:, 14] = table[:, 13] == 0
    if is_plain:
        packed[:2] = 1
        table[0] = table[count - 1]
    history = np.zeros((2, RING), np.uint32)
    history[SLOT] = ring_of([*before, *new])
    head = np.array([0, len(before), position, 0, *fed, *before, *[7] * 40], np.uint32)
    given_states = np.array(words, np.uint32)
    state_after, _, after, records = run_kernel(
        "guess",
        [packed.tobytes() + bytes(ROW_BYTES), history, head, bytes(4 * RECORD * 4), given_states],
        (1, 1, 1),
        **CONSTANTS,
    )
    said = [*before, *new[:count]]
    told = np.frombuffer(records, np.uint32)
    assert told[: 2 + count].tolist() == [count, *new[:count], 0 if state else WAITS]
    length = max(((1, at) for at in range(len(said) - 1) if said[at] == said[-1]), default=(0, 0))[0]
    guesses, states = kept(guessed(said), bool(length), state) if state else (guessed(said), [0] * ROWS)
    assert np.frombuffer(after, np.uint32)[5:HEADER].tolist() == guesses
    rows_after = state_after[STATE_HEADER : STATE_HEADER + ROWS * ROW_BYTES]
    found = np.frombuffer(rows_after, np.uint32).reshape(ROWS, -1)
    assert found[:, 0].tolist() == [said[-1] if token == NONE else token for token in (said[-1], *guesses)]
    assert found[:, 13].tolist() == [numbers[one] for one in states]
    assert found[:, 14].tolist() == [not state, *[0] * (ROWS - 1)]
