"""The kernel that follows a text on the GPU and guesses its next tokens, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from py_core.backends.sampling_state import RING, STATE_HEADER, ring_of, state_bytes
from py_core.sampling import SamplingParams
from py_core.speculation.guesses import MOST_MATCH

HEADER, RECORD, ROWS, MAX_ROWS, SLOT = 12, 33, 8, 9, 1
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
        "guess", [state, history, words, bytes(4 * RECORD * 4)], (1, 1, 1),
        MAX_ROWS=MAX_ROWS, RING=RING, ROWS=ROWS, RECORD=RECORD, MOST_MATCH=MOST_MATCH, WORKGROUP=64,
    )  # fmt: skip
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
    assert state[STATE_HEADER:][: 64 * ROWS] == state_bytes(expected, RULES, rows)[STATE_HEADER:]
    found = np.frombuffer(history_after, np.uint32).reshape(2, RING)
    assert not found[0].any()
    assert found[SLOT, np.arange(position, position + ROWS) % RING].tolist() == guesses
