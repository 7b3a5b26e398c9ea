"""A model file is opened whole, or refused with a sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.models.template_renderer import native_renderer
from py_core.backend_errors import BackendError
from py_core.backends.numpy.backend import load_numpy
from py_core.engine.engine import Timings
from py_core.formats.gguf import GGUFError
from py_core.formats.quantization import UnsupportedFormatError
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.sampling import SamplingParams
from py_core.tokenizers import chat_template
from py_core.tokenizers.byte_bpe import TokenizerError
from py_core.tokenizers.chat_template import ChatTemplateError

OpenModel = Callable[..., Awaitable[Model]]
WriteModel = Callable[..., Path]


class OnTheWay:
    """A file that arrives: its size is known late or never, and it may end early."""

    parts = ()

    def __init__(self, path: Path, size_known: bool = False, ends_at: int | None = None) -> None:
        whole = path.read_bytes()
        self.data, self.size = whole[:ends_at], len(whole) if size_known else None
        self.last = 0

    async def prefix(self, n: int) -> bytes:
        return self.data[:n]

    async def read(self, offset: int, nbytes: int) -> bytes:
        assert offset >= self.last, "reads go forward only"
        self.last = offset + nbytes
        if self.last > len(self.data):
            raise EOFError(f"the file ends at byte {len(self.data)}")
        return self.data[offset : self.last]


async def say(model: Model, text: str, n: int) -> list[int]:
    session = model.engine.new_sequence()
    await model.engine.prefill(session, await model.encode_chat([{"role": "user", "content": text}]), Timings())
    return [t async for ids in model.engine.generate(session, n, SamplingParams(), Timings()) for t in ids]


async def test_it_runs_on_the_backend_that_was_loaded(tiny_path: Path, open_model: OpenModel) -> None:
    model = await load_model(FileSource(tiny_path), load_numpy, native_renderer())
    assert model.backend.capabilities.backend == "numpy"
    assert model.backend.capabilities.software
    assert (model.config.name, model.backend.context_length) == ("tiny", 512)
    said = await say(model, "Hello", 12)
    assert said
    assert said == await say(await open_model(tiny_path), "Hello", 12)


async def test_the_models_own_end_token_ends_an_answer(tiny_path: Path, write_model: WriteModel) -> None:
    endless = await say(await load_model(FileSource(tiny_path), load_numpy, native_renderer()), "Hello", 12)
    assert len(endless) == 12
    last = endless[8]
    ending = await load_model(
        FileSource(write_model({"tokenizer.ggml.eos_token_id": last}, tied=False)), load_numpy, native_renderer()
    )
    assert await say(ending, "Hello", 12) == endless[: endless.index(last)]


async def test_the_context_may_be_limited(tiny_path: Path) -> None:
    assert (
        await load_model(FileSource(tiny_path), load_numpy, native_renderer(), context=33)
    ).backend.context_length == 33


async def test_progress_goes_up_to_the_whole_file(tiny_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    await load_model(
        FileSource(tiny_path), load_numpy, native_renderer(), progress=lambda done, total: seen.append((done, total))
    )
    assert seen == sorted(set(seen))
    done, total = seen[-1]
    assert done == total > 50_000


@pytest.mark.parametrize("known", [True, False], ids=["size known", "size unknown"])
async def test_a_file_may_come_as_a_stream(tiny_path: Path, known: bool) -> None:
    streamed = await load_model(OnTheWay(tiny_path, size_known=known), load_numpy, native_renderer())
    whole = await load_model(FileSource(tiny_path), load_numpy, native_renderer())
    assert await say(streamed, "Hello", 12) == await say(whole, "Hello", 12)


@pytest.mark.parametrize("ends_at", [0, 3, 700, 20_000, -33])
async def test_a_file_that_ends_early_is_called_truncated(tiny_path: Path, ends_at: int) -> None:
    with pytest.raises((GGUFError, EOFError), match=r"truncated|the file ends"):
        await load_model(OnTheWay(tiny_path, ends_at=ends_at), load_numpy, native_renderer())


async def test_the_files_own_template_writes_the_conversation(write_model: WriteModel) -> None:
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}{{ eos_token }}"
    model = await load_model(
        FileSource(write_model({"tokenizer.chat_template": template})), load_numpy, native_renderer()
    )
    ids = await model.encode_chat([{"role": "user", "content": "Hi <|im_end|>"}])
    assert model.tokenizer.decode(ids) == "<|im_start|>[user: Hi <|im_end|>]<|im_end|>"
    assert [token for token in ids if token < 3] == [1, 2]


async def test_a_model_without_a_template_gets_chatml(write_model: WriteModel) -> None:
    model = await load_model(FileSource(write_model({"tokenizer.chat_template": None})), load_numpy, native_renderer())
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    assert model.tokenizer.decode(await model.encode_chat(messages)) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_a_model_without_a_first_or_last_token_opens(write_model: WriteModel) -> None:
    missing = {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.eos_token_id": None}
    template = {"tokenizer.chat_template": "{{ bos_token }}{{ messages[-1].content }}{{ eos_token }}"}
    model = await load_model(FileSource(write_model(missing | template)), load_numpy, native_renderer())
    assert model.tokenizer.decode(await model.encode_chat([{"role": "user", "content": "Hi"}])) == "Hi"


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"general.architecture": "mamba"}, GGUFError, "architecture 'mamba'"),
        ({"llama.block_count": 3}, GGUFError, "no tensor 'blk.2.attn_norm.weight'"),
        ({"llama.feed_forward_length": 97}, GGUFError, "'blk.0.ffn_gate.weight' has the shape"),
        ({"tokenizer.ggml.model": "t5"}, TokenizerError, "of kind 't5'"),
        ({"tokenizer.ggml.tokens": None}, TokenizerError, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.pre": "unheard-of"}, TokenizerError, "'unheard-of'"),
        ({"tokenizer.ggml.eos_token_id": "</s>"}, TokenizerError, "eos_token_id is '</s>'"),
        ({"tokenizer.chat_template": "{% for %}"}, ChatTemplateError, "template is broken"),
        ({"tokenizer.chat_template": 7}, ChatTemplateError, "template"),
        ({"tokenizer.chat_template": ["a", "b"]}, ChatTemplateError, "template"),
    ],
    ids=str,
)
async def test_a_file_that_cannot_be_used_is_a_sentence(
    write_model: WriteModel, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await load_model(FileSource(write_model(changes)), load_numpy, native_renderer())


async def test_an_unknown_block_format_names_the_tensor(write_model: WriteModel, tmp_path: Path) -> None:
    data = bytearray(write_model().read_bytes())
    name = b"blk.1.attn_q.weight"
    # After the name: the number of dimensions, two of them, then the type.
    at = data.index(name) + len(name) + 4 + 16
    data[at : at + 4] = np.uint32(2000).tobytes()
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(UnsupportedFormatError, match=r"blk\.1\.attn_q\.weight"):
        await load_model(FileSource(tmp_path / "x.gguf"), load_numpy, native_renderer())


async def test_a_closed_model_says_so(tiny_path: Path) -> None:
    model = await load_model(FileSource(tiny_path), load_numpy, native_renderer())
    session = model.engine.new_sequence()
    await model.backend.prefill(session, [1, 2])
    model.close()
    with pytest.raises(BackendError, match="closed"):
        await model.backend.prefill(session, [3])


@pytest.mark.parametrize(
    "template",
    [
        "",
        " \n",
        "hello",
        "{{ messages[0].text }}{{ messages[0].content[0] }}",
        "{% if messages|length > 1 %}x{% endif %}",
        "{{ messages[0].content }}",
    ],
)
async def test_a_template_that_does_not_print_the_users_message_is_none(write_model: WriteModel, template: str) -> None:
    path = write_model({"tokenizer.chat_template": template})
    model = await load_model(FileSource(path), load_numpy, native_renderer())
    said = model.tokenizer.decode(await model.encode_chat([{"role": "user", "content": "What is my name?"}]))
    assert said == "<|im_start|>user\nWhat is my name?<|im_end|>\n<|im_start|>assistant\n"


async def test_a_template_that_refuses_a_message_is_no_obstacle(write_model: WriteModel) -> None:
    path = write_model({"tokenizer.chat_template": "{{ raise_exception('no') }}"})
    assert (await load_model(FileSource(path), load_numpy, native_renderer())).config.name == "tiny"


async def test_a_template_that_takes_for_ever_is_found_when_the_file_is_opened(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.2)
    endless = "{{ ('a' * 4000000 ~ 'b') in ('a' * 8000000) }}"
    path = write_model({"tokenizer.chat_template": endless})
    with pytest.raises(ChatTemplateError, match=r"it takes longer than 2 seconds\. Choose another file"):
        await load_model(FileSource(path), load_numpy, native_renderer())
