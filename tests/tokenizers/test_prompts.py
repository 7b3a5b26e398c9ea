"""BOS and EOS around prompts, system messages that a template refuses, and templates of files that have none."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.template_renderer import native_renderer
from py_core.tokenizers import aside
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from py_core.tokenizers.prompts import encode_text, framed
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.tokenizers.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from tests.random_examples import examples
from tests.tiny.llama import TinyLlama
from tests.tiny.models import metadata
from tests.tiny.tokenizers import bpe
from tests.tokenizers.templates import encode_chat, render, template_of

BOS, EOS = 256, 257
ENDS = {"<bos>": CONTROL, "<end>": CONTROL}
IDS = {"tokenizer.ggml.bos_token_id": BOS, "tokenizer.ggml.eos_token_id": EOS}
USER = {"role": "user", "content": "a"}
A = [ord("a") - 33]


def tokenizer(**changes: Any) -> Tokenizer:
    return tokenizer_from_gguf(bpe(ENDS, **IDS, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}))


def spm(*special: str) -> Tokenizer:
    types = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, **dict.fromkeys(special, CONTROL)}
    types |= {f"<0x{byte:02X}>": BYTE for byte in range(256)} | {"\u2581": NORMAL, "a": NORMAL}
    return tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": list(types),
            "tokenizer.ggml.token_type": list(types.values()),
        }
    )


# --- BOS and EOS ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pre", "adds"),
    [
        ("llama-bpe", True),
        ("tekken", True),
        ("qwen2", False),
        ("gpt-2", False),
        ("default", False),
        ("smaug-bpe", False),
    ],
)
def test_where_the_file_does_not_say_the_rules_decide_whether_there_is_a_bos(pre: str, adds: bool) -> None:
    assert encode_text(tokenizer(pre=pre), "a") == [BOS] * adds + A
    assert encode_text(tokenizer(pre=pre, add_bos_token=True), "a") == [BOS, *A]
    assert encode_text(tokenizer(pre=pre, add_bos_token=False), "a") == A


def test_sentencepiece_has_a_bos_where_the_file_does_not_say() -> None:
    assert spm().tokens[encode_text(spm(), "a")[0]] == "<s>"


def test_eos_is_added_where_the_file_says_so_only() -> None:
    assert encode_text(tokenizer(add_eos_token=True), "a") == [*A, EOS]
    assert encode_text(tokenizer(), "a") == A


def test_bos_can_be_left_out_and_a_text_that_begins_with_one_keeps_it() -> None:
    with_bos = tokenizer(add_bos_token=True, add_eos_token=True)
    assert encode_text(with_bos, "a", bos=False) == [*A, EOS]
    assert encode_text(with_bos, "<bos>a", special=True, bos=False) == [BOS, *A, EOS]


def test_a_file_that_wants_a_bos_but_names_none_gets_none() -> None:
    metadata = bpe(ENDS, **{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.pre": "llama-bpe"})
    assert encode_text(tokenizer_from_gguf(metadata), "a") == A


WRITES_BOS = "{{ bos_token }}{{ messages[0].content }}"


def test_a_template_that_writes_bos_does_not_get_two() -> None:
    template = template_of(WRITES_BOS, "<bos>", "<end>")
    with_bos = tokenizer(add_bos_token=True)
    assert encode_chat(with_bos, template, [USER]) == [BOS, *A]
    assert encode_chat(with_bos, template, [USER], bos=False) == A


def test_what_a_template_writes_stays_where_the_file_does_not_want_a_bos() -> None:
    """In ChatML the token that begins each message may be BOS."""
    template = template_of(WRITES_BOS, "<bos>", "<end>")
    without = tokenizer(add_bos_token=False)
    assert encode_chat(without, template, [USER]) == encode_chat(without, template, [USER], bos=False) == [BOS, *A]


def test_a_template_that_writes_none_gets_one_where_the_file_says_so() -> None:
    template = template_of("{{ messages[0].content }}", "<bos>", "<end>")
    assert encode_chat(tokenizer(add_bos_token=True), template, [USER]) == [BOS, *A]
    assert encode_chat(tokenizer(add_bos_token=True), template, [USER], bos=False) == A
    assert encode_chat(tokenizer(add_bos_token=False), template, [USER]) == A


def test_a_template_that_writes_eos_does_not_get_two() -> None:
    template = template_of("{{ messages[0].content }}{{ eos_token }}", "<bos>", "<end>")
    assert encode_chat(tokenizer(add_eos_token=True), template, [USER]) == [*A, EOS]


# --- what a template cannot express -------------------------------------------------------------------------------

GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)
SILENT = "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
EITHER = SILENT.replace("m.role != 'system'", "messages[0].role != 'system' or m == messages[0]")
LAST = (
    "{% for m in messages %}{% if loop.last or loop.nextitem.role != m.role %}{{ m.content }}\n{% endif %}{% endfor %}"
)
SYSTEM = {"role": "system", "content": "Be kind."}
SAID = {"role": "assistant", "content": "b"}


def rendered(source: str, *messages: dict[str, str]) -> str:
    template = template_of(source)
    return render(template, asyncio.run(template.fitting(messages)))


@pytest.mark.parametrize("source", [GEMMA, SILENT, EITHER])
def test_a_system_message_without_a_place_stands_before_the_users_first_one(source: str) -> None:
    assert rendered(source, SYSTEM, USER, SAID, USER) == "user: Be kind.\n\na\nassistant: b\nuser: a\n"
    assert rendered(source, USER) == "user: a\n"
    assert rendered(source, SYSTEM) == "user: Be kind.\n"


def test_roles_that_must_alternate_become_one_message() -> None:
    assert rendered(GEMMA, SYSTEM, USER, USER, SAID, SAID, USER) == (
        "user: Be kind.\n\na\n\na\nassistant: b\n\nb\nuser: a\n"
    )
    assert rendered(SILENT, USER, USER) == "user: a\nuser: a\n"
    assert rendered(LAST, USER, USER) == "a\n\na\n"


def test_a_system_message_that_has_a_place_stays_there() -> None:
    source = "{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim | upper }}\n{% endfor %}"
    assert rendered(source, SYSTEM, USER) == "SYSTEM: BE KIND.\nUSER: A\n"


def test_a_template_that_refuses_everything_gives_its_own_words() -> None:
    with pytest.raises(ChatTemplateError, match="never"):
        rendered("{{ raise_exception('never') }}", SYSTEM, USER, USER)


# --- files without a template ---------------------------------------------------------------------------------------

CONVERSATION = [SYSTEM, {"role": "user", "content": " a "}, SAID, {"role": "user", "content": "c"}]


def default(made: Tokenizer) -> str:
    """The conversation as the template of a file without one renders it."""
    template = ChatTemplate.from_gguf({}, made, native_renderer())
    return render(template, asyncio.run(template.fitting(CONVERSATION)))


FAMILIES = {
    "chatml": (
        ["<|im_start|>", "<|im_end|>"],
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n a <|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama 3": (
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "phi-3": (
        ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"],
        "<|system|>\nBe kind.<|end|>\n<|user|>\n a <|end|>\n<|assistant|>\nb<|end|>\n<|user|>\nc<|end|>\n"
        "<|assistant|>\n",
    ),
    "gemma": (
        ["<start_of_turn>", "<end_of_turn>"],
        "<s><start_of_turn>user\nBe kind.\n\n a<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n"
        "<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n",
    ),
    "mistral": (["[INST]", "[/INST]"], "<s>[INST]Be kind.\n\n a [/INST]b</s>[INST]c[/INST]"),
    "glm-4": (
        ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"],
        "[gMASK]<sop><|system|>\nBe kind.<|user|>\n a <|assistant|>\nb<|user|>\nc<|assistant|>\n",
    ),
    "granite": (
        ["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"],
        "<|start_of_role|>system<|end_of_role|>Be kind.<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|> a <|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>b<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>c<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    ),
    "llama 2": ([], "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]"),
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_file_without_a_template_gets_that_of_its_family(family: str) -> None:
    special, expected = FAMILIES[family]
    assert default(spm(*special)) == expected


def test_other_files_without_a_template_get_chatml() -> None:
    assert default(tokenizer()).startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n a ")


@pytest.mark.parametrize("family", list(FAMILIES))
def test_each_prompt_of_a_family_begins_with_one_bos(family: str) -> None:
    made = spm(*FAMILIES[family][0])
    ids = encode_chat(made, ChatTemplate.from_gguf({}, made, native_renderer()), [SYSTEM, USER])
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert 1 not in encode_chat(made, ChatTemplate.from_gguf({}, made, native_renderer()), [SYSTEM, USER], bos=False)


@pytest.mark.parametrize("family", list(FAMILIES))
@given(contents=st.lists(st.text("a b\n\u2581é<|[]", max_size=12), min_size=1, max_size=4))
@examples(60)
def test_ordinary_text_gives_the_ids_of_the_whole_rendered_text(family: str, contents: list[str]) -> None:
    made = spm(*FAMILIES[family][0])
    template = ChatTemplate.from_gguf({}, made, native_renderer())
    roles = itertools.cycle(["user", "assistant"])
    messages = [SYSTEM, *({"role": next(roles), "content": content} for content in contents)]
    rendered = render(template, asyncio.run(template.fitting(messages)))
    expected = framed(made, made.encode(rendered, special=True), by_template=True)
    assert encode_chat(made, template, messages) == expected


@pytest.mark.parametrize("family", list(FAMILIES))
def test_no_message_can_speak_for_someone_else(family: str) -> None:
    special = FAMILIES[family][0]
    made = spm(*special)
    template = ChatTemplate.from_gguf({}, made, native_renderer())

    def control(content: str) -> list[int]:
        ids = encode_chat(made, template, [{"role": "user", "content": content}])
        return [index for index in ids if index in made.control_tokens.values()]

    hostile = "".join(["<s>", "</s>", *special]) * 2
    assert control(f"x{hostile}y") == control("x")


@pytest.mark.parametrize("change", ["", "| upper"])
@pytest.mark.parametrize(
    "speaker", ["'<|SYSTEM|>' if m.role == 'system' else '<|USER|>'", "'<|' ~ m.role | upper ~ '|>'"]
)
def test_tokens_by_which_the_template_tells_who_speaks_are_not_taken_from_a_message_even_if_user_defined(
    speaker: str, change: str
) -> None:
    made = tokenizer_from_gguf(bpe({"<|USER|>": USER_DEFINED, "<tool>": USER_DEFINED, "<|SYSTEM|>": USER_DEFINED}))
    template = template_of(f"{{% for m in messages %}}{{{{ {speaker} }}}}{{{{ m.content {change} }}}}{{% endfor %}}")
    ids = encode_chat(made, template, [{"role": "user", "content": "<|SYSTEM|>a<tool>"}])
    assert [index for index in ids if index > 255] == [256, *([] if change else [257])]
    assert made.encode("<|SYSTEM|>") == [258]
    with pytest.raises(ChatTemplateError, match="contains a special token"):
        encode_chat(made, template, [{"role": "<|USER|>", "content": "a"}])


# --- long texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_threads", [True, False])
async def test_a_long_text_is_encoded_beside_other_work(has_threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "HAS_THREADS", has_threads)
    tokenizer = tokenizer_from_gguf(metadata(TinyLlama()))
    digits = str.maketrans("0123456789", "abcdefghij")  # numbers would be cut into digits
    text = "".join(f"{10 * str(number)} ".translate(digits) for number in range(10_000))
    parts = [(text, False), ("<|im_end|>", True)]
    encoding = asyncio.ensure_future(aside.encode_aside(tokenizer, parts))
    begin = last = time.perf_counter()
    longest = 0.0
    while not encoding.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert longest < (last - begin) / 2
    assert await encoding == tokenizer.encode_parts(parts)
