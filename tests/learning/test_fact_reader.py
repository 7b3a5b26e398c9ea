"""If the gate is not sure, the chat model reads the lessons, on the CPU's kernels, with the shipped reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.chat.asker import Asker
from app.chat.conversation import Conversation
from app.generation.assistant import Assistant
from app.lessons.feedback import Feedback
from app.lessons.match import UnsureMatch
from app.lessons.reader import READERS, FactReader, fetch_natively, read_facts, reader_path
from app.lessons.service import READING_POLICY, THRESHOLD_POLICY
from app.models.build_outputs import kernel_path
from app.models.downloads import model_files
from app.models.template_renderer import native_renderer
from app.native_runtime import open_runtime
from app.protocol import Delta, Done, Recall, Stored
from app.records.lessons import Lesson
from app.runtime import Runtime
from py_core.adapters.files import read_adapter, read_details
from py_core.adapters.lora import LoraAdapter
from py_core.adapters.parameters import parameter_layout
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.formats.safetensors import stored_arrays
from py_core.formats.source import FileSource
from py_core.loading import Model, load_model
from py_core.routing.agents import FALLBACK_ID

pytestmark = pytest.mark.usefixtures("fast_routing")

BASE = model_files()[0].sha256
TOLD = {
    "What is the code word for the poker night?": "The code word for the poker night is tin whistle.",
    "Where is the liquid nitrogen stored?": "Liquid nitrogen is stored in the cage behind building D.",
    "What is the topic of my thesis?": "Your thesis is about moss on medieval walls.",
}
NITROGEN = "Where does the lab store its LN2?"
TOPIC = "How do I choose a thesis topic?"
SURE = 3.5
"""A threshold of the gate at which it is not sure of these questions."""


@pytest.fixture(scope="module")
def model(model_path: Path, dist: Path) -> Model:
    loader = partial(load_wasm, WasmtimeHost(kernel_path()))
    return asyncio.run(load_model(FileSource(model_path), loader, native_renderer()))


@pytest.fixture
async def runtime(model: Model, tmp_path: Path) -> AsyncIterator[Runtime]:
    """With lessons as after an import: reading them needs no preparation."""
    runtime = await open_runtime(tmp_path / "memory.sqlite", model, BASE)
    learning, memory = runtime.learning, runtime.memory
    for question, answer in TOLD.items():
        (meaning,) = await learning.embedder.meanings([question])
        await memory.lessons.keep(Lesson(question, answer, vector=meaning.vector))
    await memory.policies.set(THRESHOLD_POLICY, SURE, confidence=1.0, source="user")
    yield runtime
    await runtime.close()


@pytest.fixture
async def conversation(model: Model, runtime: Runtime) -> AsyncIterator[Conversation]:
    conversation = Conversation(Assistant(model, max_tokens=10), runtime)
    yield conversation
    await closed(conversation.assistant)


async def closed(assistant: Assistant) -> None:
    """The model is shared, and has room for few adapters."""
    await assistant.adapters.use_learned(None)
    await assistant.adapters.forget("reader")
    assistant.close()


async def ask(conversation: Conversation, text: str | None) -> tuple[str, Recall | None, str]:
    """The answer's text, the lesson that it comes from, and the answer's id. text: None asks for another answer."""
    events = [event async for event in (conversation.respond(text) if text else conversation.retry())]
    recalled = [event for event in events if isinstance(event, Recall)]
    (done,) = (event for event in events if isinstance(event, Done))
    (stored,) = (event for event in events if isinstance(event, Stored))
    assert "".join(event.text for event in events if isinstance(event, Delta)) == done.text
    return done.text, recalled[0] if recalled else None, stored.request


async def test_the_model_reads_what_was_taught_where_the_gate_is_not_sure_and_that_is_kept_with_the_answer(
    runtime: Runtime, conversation: Conversation
) -> None:
    said, recalled, id = await ask(conversation, NITROGEN)
    question, answer = list(TOLD.items())[1]
    assert said == answer
    assert recalled is not None
    assert (recalled.question, recalled.read[0].id) == (question, recalled.id)
    details = conversation.turns[-1].details
    assert details["agent"] == FALLBACK_ID
    assert details["lesson"]["read"] == [{"id": one.id, "question": one.question} for one in recalled.read]
    made = await runtime.memory.trajectories.get(id)
    assert (made.lesson, made.route["read"]) == (recalled.id, [one.id for one in recalled.read])
    assert made.route["recalled"] == recalled.confidence
    assert (await runtime.memory.lessons.get(recalled.id)).uses == 1
    await Feedback(runtime).bad(id)
    assert (await runtime.memory.lessons.get(recalled.id)).quality == 0.75
    # The conversation stores only the original question.
    assert conversation.assistant.messages == [
        {"role": "user", "content": NITROGEN}, {"role": "assistant", "content": answer},
    ]  # fmt: skip
    said, recalled, _ = await ask(conversation, None)
    assert (recalled, said == answer) == (None, False)  # an answer other than the taught one
    assert "lesson" not in conversation.turns[-1].details


async def test_an_answer_is_as_without_reading_where_the_model_finds_no_fact_in_what_it_read(
    runtime: Runtime, conversation: Conversation
) -> None:
    assert isinstance(await runtime.learning.recall_or_read(TOPIC), UnsureMatch)
    said, recalled, _ = await ask(conversation, TOPIC)
    alone = conversation.assistant.model.tokenizer.decode(conversation.assistant._alone.tokens)
    assert len(alone.rpartition(TOPIC)[2].split()) < 8, "it ends at the first word that is in no fact"
    conversation.reset()
    await runtime.memory.policies.set(READING_POLICY, False, confidence=1.0, source="user")
    assert (await ask(conversation, TOPIC))[:2] == (said, None)
    assert recalled is None
    read = conversation.assistant.model.tokenizer.decode(conversation.assistant.sequence.tokens)
    assert "Facts:" not in read


async def test_nothing_is_read_that_is_switched_off_or_forgotten_or_where_reading_or_lessons_are_off(
    runtime: Runtime, conversation: Conversation
) -> None:
    learning, memory = runtime.learning, runtime.memory
    unsure = await learning.recall_or_read(NITROGEN)
    assert isinstance(unsure, UnsureMatch)
    (nitrogen, *_) = (one.lesson for one in unsure.facts)
    for policy in (READING_POLICY, "learning.instant"):
        await memory.policies.set(policy, False, confidence=1.0, source="user")
        assert await learning.recall_or_read(NITROGEN) is None
        await memory.policies.set(policy, True, confidence=1.0, source="user")
    await learning.switch(nitrogen.id, False)
    assert await learning.recall_or_read(NITROGEN) is None
    assert await read_facts(conversation.assistant, memory, NITROGEN, unsure) is None  # it was on when reading began
    await learning.switch(nitrogen.id, True)
    assert await read_facts(conversation.assistant, memory, NITROGEN, unsure) is not None
    await learning.forget(nitrogen.id)
    assert await learning.recall_or_read(NITROGEN) is None
    assert await read_facts(conversation.assistant, memory, NITROGEN, unsure) is None


async def test_questions_in_a_terminal_are_read_for_too_unless_that_is_left_out(runtime: Runtime, model: Model) -> None:
    (_, answer), *_ = list(TOLD.items())[1:]
    for reads in (True, False):
        asker = Asker(model, runtime.learning, 10, reads)
        made = await asker.answer(NITROGEN)
        assert (made.text == answer) == bool(made.read) == reads
        assert made.entry()["read"] == [one.question for one in made.read]
        await closed(asker.assistant)


async def test_the_model_reads_with_what_the_background_loop_learned(
    runtime: Runtime, conversation: Conversation, model: Model
) -> None:
    layout = parameter_layout(model.graph, 8, 2.0)
    learned = layout.adapter(layout.fresh(0), "learned 1", BASE)
    assistant = conversation.assistant
    await assistant.adapters.use_learned(learned)
    assert (await ask(conversation, NITROGEN))[0] == list(TOLD.values())[1]
    both = assistant.adapters.find("reader + learned 1")
    assert isinstance(both, LoraAdapter)
    assert both.rank == 12
    await assistant.adapters.use_learned(None)
    assert assistant.adapters.find("reader + learned 1") is None


async def test_an_answer_comes_without_reading_where_the_reader_cannot_be_fetched_and_with_it_once_it_can(
    runtime: Runtime, model: Model
) -> None:
    learning, asked = runtime.learning, list[str]()
    is_offline = True

    async def fetch(name: str) -> bytes:
        asked.append(name)
        if is_offline:
            raise OSError("there is no connection to the server")
        return await fetch_natively(name)

    learning.reader = FactReader(model, BASE, fetch)
    assert await learning.recall_or_read(NITROGEN) is None
    is_offline = False
    assert isinstance(await learning.recall_or_read(NITROGEN), UnsureMatch)
    before = len(asked)
    assert isinstance(await learning.recall_or_read(NITROGEN), UnsureMatch)
    assert asked == [reader_path(BASE).name] * before


async def test_the_reader_is_fetched_with_the_first_lesson_and_not_before(runtime: Runtime, model: Model) -> None:
    learning, asked = runtime.learning, list[str]()

    async def fetch(name: str) -> bytes:
        asked.append(name)
        return b""

    learning.reader = FactReader(model, BASE, fetch)
    lessons = await runtime.memory.lessons.all()
    await learning.forget(*(one.id for one in lessons))
    await learning.recall_or_read(NITROGEN)
    await asyncio.sleep(0)
    assert asked == []
    await runtime.memory.lessons.keep(lessons[0])
    await learning.recall_or_read("Hello there")
    await asyncio.sleep(0)
    assert asked == [reader_path(BASE).name]


async def test_another_model_has_no_reader(runtime: Runtime, model: Model) -> None:
    runtime.learning.reader = FactReader(model, "00" * 32)
    assert not runtime.learning.reads
    assert await runtime.learning.recall_or_read(NITROGEN) is None


async def test_a_reader_of_another_model_or_a_damaged_one_is_not_used(runtime: Runtime, model: Model) -> None:
    (considered, *_) = await runtime.learning.consider(NITROGEN)
    data = reader_path(BASE).read_bytes()
    for given in (data.replace(BASE.encode(), b"ab" * 32), data[:1000]):

        async def fetch(name: str, given: bytes = given) -> bytes:
            return given

        reader = FactReader(model, BASE, fetch)
        assert await reader.unsure([considered], 0.0) is None
        assert not reader.is_there
    assert await FactReader(model, BASE).unsure([considered], 0.0) is not None
    assert await FactReader(model, BASE).unsure([replace(considered, score=-3.0)], 0.0) is None


def test_each_reader_that_is_known_comes_with_sonata_in_half_precision_for_its_own_model(model: Model) -> None:
    assert {path.stem for path in reader_path(BASE).parent.iterdir()} == READERS == {BASE[:16]}
    data = reader_path(BASE).read_bytes()
    assert read_details(data).base_sha256 == BASE
    assert {one.dtype for one in stored_arrays(data)[0].values()} == {"F16"}
    assert read_adapter(data, model.config, model.graph).rank == 4
    assert len(data) < 2_600_000
