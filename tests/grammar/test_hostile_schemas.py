"""Hostile schemas are refused with a sentence, or their kernel stays small. `tests.bench hostile_schemas` has times."""

from __future__ import annotations

import pytest

from tests.grammar.hostile_schemas import HOSTILE, MOST_BYTES, refusal_of
from tests.grammar.test_kernel import open_kernel


@pytest.mark.all
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_followed(name: str) -> None:
    kernel = open_kernel([bytes([byte]) for byte in range(256)])
    assert len(refusal_of(kernel, HOSTILE[name])) < 5000
    assert kernel.memory_bytes < MOST_BYTES
