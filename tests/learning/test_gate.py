"""The gate of lessons: it opens if a message asks for a taught answer, also in other words, and otherwise stays
shut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.lessons.facts import InventedFact, facts, generic_prompts
from app.lessons.shipped_gate import shipped_gate
from app.native_runtime import open_embedder
from app.training.gate import fit, gradients, in_other_styles
from app.training.gate_worlds import NEUTRAL, Compared, Decisions, World, open_world, prompts_of
from py_core.formats.safetensors import write_safetensors
from py_core.learning.gate.features import FEATURES, Taught, pair_features
from py_core.learning.gate.gate import SHUT, Gate, GateError
from py_core.learning.gate.words import word_features
from py_core.routing.embedder import Meaning, SentenceEmbedder
from tests.random_examples import examples

BOAT = InventedFact("What is the call sign of our sailing boat?", "The boat's call sign is Delta Nine Pelican.")
CAT = InventedFact("What is my cat called?", "Your cat is called Mr. Biscotti.")
DENTIST = InventedFact("Who is my dentist?", "Your dentist is Dr. Yusuf Kolbe.")


@pytest.fixture(scope="module")
def embedder(made_files: dict[str, Path]) -> SentenceEmbedder:
    return open_embedder()


@pytest.fixture(scope="module")
def gate() -> Gate:
    return shipped_gate()


@pytest.fixture(scope="module")
def taught(embedder: SentenceEmbedder) -> list[tuple[Taught, Taught]]:
    return [(meant(embedder, f.question), meant(embedder, f"{f.question} {f.answer}")) for f in (BOAT, CAT, DENTIST)]


@pytest.fixture(scope="module")
def world(embedder: SentenceEmbedder) -> World:
    """24 facts that the gate was not trained on, with prompts about them and beside them."""
    own = facts("dev")[:24]
    beside = [row for row in generic_prompts("dev") if row.kind in NEUTRAL | {"personal"}]
    return asyncio.run(open_world(embedder, own, prompts_of(own, beside)))


def meant(embedder: SentenceEmbedder, text: str) -> Taught:
    (meaning,) = asyncio.run(embedder.meanings([text]))
    return text, meaning


def test_lessons_answer_their_questions_and_others_in_other_words_but_nothing_else(gate, world):
    shares = Decisions.of(Compared.of(world, [np.arange(24)]), gate.of_features, SHUT).shares(gate.threshold)
    assert shares["taught"] == 1
    assert shares["paraphrase"] >= 0.9
    assert shares["generic"] <= 0.03
    assert shares["near"] <= 0.3


def test_the_only_lesson_answers_its_question_in_other_words_and_nothing_else(gate, world):
    only = [np.array([number]) for number in range(0, 24, 2)]
    shares = Decisions.of(Compared.of(world, only), gate.of_features, SHUT).shares(gate.threshold)
    assert shares["taught"] == 1
    assert shares["paraphrase"] >= 0.95
    assert shares["generic"] <= 0.01
    assert shares["other"] <= 0.03


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("What is my cat called?", 1), ("what is my cat called", 1), ("How did I name my kitty?", 1), ("cat name?", 1),
        ("boat call sign?", 0), ("Under which call sign does our boat radio?", 0), ("Which dentist do I go to?", 2),
        ("What is my name?", None), ("Who is my boss?", None), ("What is my dog called?", None), ("Hello!", None),
        ("What is your cat called?", None),
        ("Write a poem about a sailing boat.", None), ("How do I find a good dentist?", None), ("", None),
        ("Wie heißt mein Hund?", None), ("¿Quién es mi jefe?", None), ("Как меня зовут?", None), ("🐈?", None),
    ],
)  # fmt: skip
def test_a_message_opens_the_lesson_that_it_asks_for(gate, embedder, taught, asked, wanted):
    scores = gate.scores(meant(embedder, asked), taught)
    opened = [at for at, score in enumerate(scores) if score > gate.threshold]
    assert opened == ([] if wanted is None else [wanted])


def test_scores_follow_their_candidates_in_whatever_order_they_come(gate, embedder, taught):
    asked = meant(embedder, "Under which call sign does our boat radio?")
    scores = gate.scores(asked, taught)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(gate.scores(asked, taught[::-1]), scores[::-1], rtol=1e-4, atol=1e-4)


def test_what_is_compared_does_not_depend_on_how_long_other_candidates_are(embedder, taught):
    """All but the last 11 features, which say how far a candidate stands out from the others."""
    asked = meant(embedder, "Which dentist do I go to?")
    together, alone = pair_features(asked, taught), pair_features(asked, taught[2:])
    assert together.shape == (3, FEATURES)
    np.testing.assert_allclose(together[2, :-11], alone[0, :-11], rtol=1e-4, atol=1e-5)
    assert (together[2, -11:] != alone[0, -11:]).any()


def test_what_was_taught_in_an_alphabet_that_the_gate_cannot_read_is_opened_by_the_same_words(gate, embedder, taught):
    lesson = (meant(embedder, "Как меня зовут?"), meant(embedder, "Как меня зовут? Тебя зовут Нина."))
    scores = gate.scores(meant(embedder, "как меня зовут"), [*taught, lesson])
    assert scores.argmax() == 3
    assert (scores > gate.threshold).tolist() == [False, False, False, True]
    assert (gate.scores(meant(embedder, "Сколько мне лет?"), [*taught, lesson]) == SHUT).all()


def test_without_candidates_there_are_no_scores(gate, embedder):
    assert gate.scores(meant(embedder, "Who is my boss?"), []).shape == (0,)


@examples(40)
@given(st.text(alphabet=st.characters(exclude_categories=["L", "Cs"]), max_size=80))
def test_texts_without_letters_open_nothing(gate, embedder, taught, text):
    scores = gate.scores(meant(embedder, text), taught)
    assert np.isfinite(scores).all()
    assert (scores <= gate.threshold).all()


@examples(40)
@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from([1, 400]))
def test_every_text_and_lesson_has_a_finite_score(gate, embedder, text, lesson, repeats):
    asked, other = meant(embedder, text * repeats), meant(embedder, lesson)
    assert np.isfinite(gate.scores(asked, [(other, other), (asked, asked), (asked, other)])).all()


def test_a_gate_is_what_its_file_says(gate):
    again = Gate.from_bytes(write_safetensors(gate.arrays()))
    assert again.threshold == gate.threshold
    x = np.random.default_rng(0).standard_normal((5, FEATURES)).astype(np.float32)
    np.testing.assert_array_equal(again.of_features(x), gate.of_features(x))


def test_a_damaged_file_of_the_gate_is_refused(gate):
    data = write_safetensors(gate.arrays())
    with pytest.raises(GateError, match="damaged"):
        Gate.from_bytes(data[:100])


@pytest.mark.parametrize("name", ["mean", "w1", "b2", "threshold"])
def test_a_gate_of_another_shape_is_refused(gate, name):
    arrays = gate.arrays()
    for changed in ({**arrays, name: arrays[name][..., :0]}, {k: v for k, v in arrays.items() if k != name}):
        with pytest.raises(GateError, match="another version"):
            Gate.from_bytes(write_safetensors(changed))


def test_the_gradient_that_trains_the_gate_is_that_of_its_loss():
    rng = np.random.default_rng(1)
    parameters = [rng.standard_normal(shape) for shape in ((5, 4), (4,), (4,), (1,))]
    x, right = rng.standard_normal((7, 5)), rng.integers(0, 2, 7).astype(float)

    def loss() -> float:
        w1, b1, w2, b2 = parameters
        out = np.tanh(x @ w1 + b1) @ w2 + b2
        return float((np.logaddexp(0, out) - right * out).mean())

    for parameter, slope in zip(parameters, gradients(parameters, x, right), strict=True):
        for place in np.ndindex(parameter.shape):
            kept = parameter[place]
            parameter[place] = kept + 1e-5
            above = loss()
            parameter[place] = kept - 1e-5
            below = loss()
            parameter[place] = kept
            assert slope[place] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-8)


def test_the_same_data_train_the_same_gate_which_tells_apart_what_it_learned_from():
    rng = np.random.default_rng(2)
    features = rng.standard_normal((4096, FEATURES)).astype(np.float32)
    right = (features[:, 3] > features[:, 8] + 1).astype(np.float32)
    gate, again = (fit(features, right, networks=2, epochs=20) for _ in range(2))
    for name, array in gate.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name])
    assert ((gate.of_features(features) > 0) == (right > 0)).mean() > 0.9


def test_other_styles_keep_what_answers_a_prompt():
    prompts = prompts_of(facts("common_dev"))
    made = in_other_styles(prompts, 1)
    assert made[: len(prompts)] == prompts
    assert len(made) > 1.5 * len(prompts)
    assert made == in_other_styles(prompts, 1) != in_other_styles(prompts, 2)
    assert all(prompt.lesson >= 0 and prompt.text.strip() for prompt in made)


def test_a_lesson_without_words_does_not_move_the_scores_of_others(gate, embedder, taught):
    asked, empty = meant(embedder, "What is my cat called?"), meant(embedder, "?!")
    scores = gate.scores(asked, [(empty, empty), *taught])
    np.testing.assert_allclose(scores, [SHUT, *gate.scores(asked, taught)], rtol=1e-5)


def test_a_match_worse_than_none_counts_as_it_is_in_a_shorter_text():
    """If all cosines are negative, the additional places of a longer text are not better matches."""

    def text(words: str, seed: int, sign: float) -> Taught:
        count = len(words.split())
        rng = np.random.default_rng(seed)
        states = np.concatenate([sign * np.ones((count, 192)), 0.1 * rng.standard_normal((count, 192))], 1)
        ids = np.arange(5000, 5000 + count, dtype=np.int32) + 100 * seed
        return words, Meaning(ids, states.astype(np.float32), states.mean(0) / np.linalg.norm(states.mean(0)))

    asked, short, long = text("red sea", 1, 1), text("old oak", 2, -1), text("a very long lesson about ships", 3, -1)
    together, alone = pair_features(asked, [(short, short), (long, long)]), pair_features(asked, [(short, short)])
    assert alone[0, 2] < -0.5
    np.testing.assert_allclose(together[0, :-11], alone[0, :-11], rtol=1e-5, atol=1e-6)


def test_a_mistyped_word_is_like_the_word_that_was_meant():
    def unlike(asked: str) -> float:
        """The distance of the least similar word of the message from the lesson's words."""
        return float(word_features(asked, [("Who is my dentist?", "Who is my dentist? Dr. Kolbe.")])[0, 27])

    assert unlike("who is my dentist") == 0
    assert 0 < unlike("who is my denitst") < unlike("who is my plumber") <= 1
