"""The mistakes that `python -m tests.mistakes` puts into the code still fit it, and no known mistake is left out."""

from __future__ import annotations

from tests.mistakes.__main__ import read_mistakes
from tests.models.architectures.mistakes import mistakes
from tests.models.architectures.variants import VARIANTS


def test_every_mistake_fits_the_code_and_names_tests_whose_files_are_there() -> None:
    assert all(mistake.tests for mistake in read_mistakes())


def test_every_mistake_in_an_architecture_is_put_into_the_code_for_every_variant_that_shows_it() -> None:
    named = {(variant.name, mistake.what) for variant in VARIANTS.values() for mistake in mistakes(variant)}
    put_in = {
        (test.partition("[numpy-")[2].removesuffix("]"), mistake.what.partition(" (")[0])
        for mistake in read_mistakes()
        if mistake.room == "models"
        for test in mistake.tests
    }
    assert put_in == named
