"""A model's thoughts are separated from its answer, however the text arrives."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.thinking import ThoughtSplitter, opens_thought, split_thought
from tests.random_examples import examples
from tests.tiny.tokenizers import bpe

WHOLE = {
    # text, whether the template opened the thought -> thought, answer
    ("Hello", False): ("", "Hello"),
    (" \n Hello ", False): ("", " \n Hello "),
    ("<think>\nHm. So.\n</think>\n\nHello ", False): ("Hm. So.", "Hello "),
    ("\n<think>Hm</think>Hello", False): ("Hm", "Hello"),
    ("Hm.\n</think>\n\nHello", True): ("Hm.", "Hello"),
    ("\n\nHm.\n</think>\n\nHello", True): ("Hm.", "Hello"),
    ("<think>\nHm.\n</think>\nHello", True): ("Hm.", "Hello"),
    ("<think>\n\n</think>\n\nHello", False): ("", "Hello"),
    ("\n</think>\n\nHello", True): ("", "Hello"),
    ("<think>a < b </thin </think >\n</think>c", False): ("a < b </thin </think >", "c"),
    # A later tag is text: the user may ask about it.
    ("The tag <think> opens, </think> closes.", False): ("", "The tag <think> opens, </think> closes."),
    ("<think>a</think>b <think>c</think>", False): ("a", "b <think>c</think>"),
    # The answer was stopped, or the model found no end.
    ("<thi", False): ("", "<thi"),
    (" ", False): ("", " "),
    ("<think>", False): ("", ""),
    ("<think> so far ", False): ("so far ", ""),
    ("so far", True): ("so far", ""),
    ("so far </thi", True): ("so far </thi", ""),
    ("", True): ("", ""),
    ("", False): ("", ""),
    ("<think>a</think> ", False): ("a", ""),
}


@pytest.mark.parametrize(("text", "opened"), list(WHOLE))
def test_the_thought_is_what_stands_between_the_tags_at_the_beginning(text: str, opened: bool) -> None:
    assert split_thought(text, opened) == WHOLE[text, opened]


@given(
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", "<", "</", "<thi", "nk>", " ", "\n", "a", "b c"]), max_size=12
    ),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    opened=st.booleans(),
)
@examples(500)
def test_any_pieces_of_a_text_give_what_the_whole_gives(parts: list[str], cuts: list[int], opened: bool) -> None:
    text = "".join(parts)
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    splitter = ThoughtSplitter(opened)
    pieces = []
    begin = 0
    for end in ends:
        pieces += splitter.push(text[begin:end])
        begin = end
    pieces += splitter.flush()
    assert all(piece.text for piece in pieces)
    thoughts = [piece.is_thought for piece in pieces]
    assert thoughts == sorted(thoughts, reverse=True)  # the thought precedes the answer
    thought = "".join(piece.text for piece in pieces if piece.is_thought)
    assert (thought, "".join(piece.text for piece in pieces if not piece.is_thought)) == split_thought(text, opened)


def test_text_is_not_kept_back_longer_than_needed() -> None:
    splitter = ThoughtSplitter()
    assert [piece.text for piece in splitter.push("<b>")] == ["<b>"]
    assert [piece.text for piece in splitter.push("<think>")] == ["<think>"]
    splitter = ThoughtSplitter()
    assert splitter.push("<think>") == []
    assert [piece.text for piece in splitter.push("one ")] == ["one"]
    assert [piece.text for piece in splitter.push("two <")] == [" two"]
    assert [piece.text for piece in splitter.push("3")] == [" <3"]


def test_a_prompt_that_ends_with_an_open_tag_opens_the_thought() -> None:
    tokenizer = tokenizer_from_gguf(bpe({"<think>": 4, "</think>": 4}))
    for prompt, opened in (
        ("hi\n<think>\n", True),
        ("hi<think>", True),
        ("<think>\n\n</think>\n\n", False),
        ("<think> hi", False),
        ("", False),
    ):
        assert opens_thought(tokenizer, tokenizer.encode(prompt)) == opened, prompt


@pytest.mark.parametrize(("text", "opened"), list(WHOLE))
def test_a_text_that_goes_on_after_it_was_shown_gives_what_the_whole_gives(text: str, opened: bool) -> None:
    """If it was cut within a tag, or in white space before one, the shown part of that is removed."""
    tags = [range(tag.start() + 1, tag.end()) for tag in re.finditer(r"\s*</?think>\s*|<thi$|</thi$|^\s+", text)]
    for cut in (cut for cut in range(len(text) + 1) if not any(cut in tag for tag in tags)):
        splitter = ThoughtSplitter(opened)
        splitter.go_on(text[:cut])
        rest = [*splitter.push(text[cut:]), *splitter.flush()]
        found = tuple(
            shown + "".join(piece.text for piece in rest if piece.is_thought is is_thought)
            for is_thought, shown in zip((True, False), split_thought(text[:cut], opened), strict=True)
        )
        assert found == WHOLE[text, opened], cut
