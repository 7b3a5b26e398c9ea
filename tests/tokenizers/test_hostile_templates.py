"""Templates that would exhaust time or memory, crash, or reach foreign data: a sentence, and nothing else.

They run with a fifth of a second instead of two, so that the tests are short.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from app.models.template_renderer import native_renderer
from py_core.tokenizers import chat_template, template_renderer_wasmtime
from py_core.tokenizers.byte_bpe import BYTE_TO_CHAR, ByteBPE
from py_core.tokenizers.chat_template import ChatTemplateCostlyError, ChatTemplateError
from py_core.tokenizers.template_renderer import TemplateRenderer
from py_core.tokenizers.vocabulary import NORMAL, Vocabulary
from tests.tokenizers.templates import encode_chat, render, template_of

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x"}]


@pytest.fixture(autouse=True)
def short_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.2)


FOR_EVER = "{% set r = range(1000) %}" + "{% for a in r %}" * 5 + "x" + "{% endfor %}" * 5
DOUBLING = (
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x | length }}"
)
COSTLY = {
    "nested loops": FOR_EVER,
    "nested loops over a list": FOR_EVER.replace("range(1000)", "range(1000) | list"),
    "a huge range": "{% for i in range(10**15) %}x{% endfor %}",
    "a recursive macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a branching macro": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "a recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a multiplied text": "{{ 'x' * 10000000000 }}",
    "a multiplied list": "{{ [0] * 10000000000 }}",
    "a power": "{{ 10 ** 1000000000 }}",
    "growing numbers": DOUBLING.replace("'ab'", "9").replace("STEP", "ns.x * ns.x"),
    "doubling by +": DOUBLING.replace("STEP", "ns.x + ns.x"),
    "doubling by ~": DOUBLING.replace("STEP", "ns.x ~ ns.x"),
    "doubling by join": DOUBLING.replace("STEP", "[ns.x, ns.x] | join"),
    "doubling by str.join": DOUBLING.replace("STEP", "ns.x.join(['a', 'b', 'c'])"),
    "growing by replace": DOUBLING.replace("STEP", "ns.x | replace('a', ns.x)"),
    "growing by str.replace": DOUBLING.replace("STEP", "ns.x.replace('a', ns.x)"),
    "doubling by a macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + DOUBLING.replace("STEP", "m(ns.x)"),
    "doubling by a block": DOUBLING.replace("{% set ns.x = STEP %}", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
    "doubling lists": DOUBLING.replace("STEP", "[ns.x, ns.x]").replace(" | length", ""),
    "doubling lists as JSON": DOUBLING.replace("STEP", "[ns.x, ns.x]").replace("length", "tojson"),
    "doubling lists as text": DOUBLING.replace("STEP", "[ns.x, ns.x]").replace("length", "string"),
    "doubling lists by ~": DOUBLING.replace("STEP", "[ns.x, ns.x]").replace("ns.x | length", "ns.x ~ ''"),
    "long output": "{% set x = 'x' * 1000000 %}{% for i in range(10000) %}{{ x }}{% endfor %}",
    "padding": "{{ 'x'.center(10000000000) }}",
    "zfill": "{{ 'x'.zfill(10000000000) }}",
    "the center filter": "{{ 'x' | center(10000000000) }}",
    "indent": "{{ 'a\nb' | indent(10000000000) }}",
    "round": "{{ 1.5 | round(1000000000) }}",
    "a format with %": "{{ '%2000000000d' % 1 }}",
    "str.format": "{{ '{:10000000000}'.format(1) }}",
    "indented JSON": "{{ [1] | tojson(indent=10000000000) }}",
    "lorem ipsum": "{{ lipsum(1000000000) }}",
    "a nest of brackets": "{{ " + "(" * 30000 + "1" + ")" * 30000 + " }}",
    "a nest of ifs": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "a long source": "x" * 200_000,
}
ESCAPES = {
    "class": "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}x{{ raise_exception.__globals__['json'] }}",
    "init": "{{ messages.__init__.__globals__['os'] }}",
    "mutation": "{{ messages.append(1) }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "format": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "attr filter": "{{ (messages | attr('__class__')).__mro__ }}",
}


# Takes time only: compared at four million places, four million letters each.
ENDLESS = "{{ ('a' * 4000000 ~ 'b') in ('a' * 8000000) }}"
LONG_LIST = "{% set x = [0] * 16000000 %}"
LONG_TEXT = "{% set x = 'b' * 16000000 %}"
# Found by fuzzing: each crashed the process or the page, hung for ever or took gigabytes while only steps were counted.
COSTLY |= {
    "nested tuples": "{% set ns = namespace(x=(1,)) %}{% for i in range(30000) %}{% set ns.x = (ns.x,) %}{% endfor %}"
    "{{ ns.x }}",
    "nested tuples that are compared": "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(99999) %}"
    "{% set ns.x = (ns.x,) %}{% set ns.y = (ns.y,) %}{% endfor %}{{ ns.x == ns.y }}",
    "nested tuples as a key": "{% set ns = namespace(x=(1,)) %}{% for i in range(60000) %}"
    "{% set ns.x = " + "(" * 16 + "ns.x" + ",)" * 16 + " %}{% endfor %}{{ {ns.x: 1} == {ns.x: 1} }}",
    "nested tuples in the source": "{{ " + "(" * 20000 + "1" + ",)" * 20000 + " }}",
    "searching in a text": ENDLESS,
    "comparing long lists": LONG_LIST + "{{ x == x + [] }}" * 50,
    "searching a long list": LONG_LIST + "{{ 1 in x }}" * 50,
    "counting in a long list": LONG_LIST + "{{ x.count(1) }}" * 50,
    "sorting a long list": LONG_LIST + "{{ x | sort | length }}",
    "unique items of a long list": "{% set x = range(99999) | list %}{{ x | unique | list | length }}",
    "a list that doubles, as a key": DOUBLING.replace("'ab'", "(1, 2)")
    .replace("STEP", "(ns.x, ns.x)")
    .replace("ns.x | length", "{ns.x: 1} == {ns.x: 1}"),
    "stripping by a long text": LONG_TEXT + "{{ x.strip('a' * 16000000 + 'b') | length }}",
    "bytes of a number": "{{ (1).to_bytes(4000000000, 'big') }}",
    "joining long texts": LONG_TEXT + "{{ [x, x, x, x, x, x, x, x, x, x] | join(x) | length }}",
    "indenting by a long text": LONG_TEXT + "{{ ('a\n' * 1000) | indent(x) | length }}",
    "keeping long texts": "{% set ns = namespace(l=[]) %}{% for i in range(999) %}"
    "{% set ns.l = ns.l + ['x' * (1000000 + i)] %}{% endfor %}{{ ns.l | length }}",
    "a test over and over": FOR_EVER.replace("x", "{{ a is even }}"),
    "capital letters beyond ASCII": "{% set x = 'é' * 9000000 %}" + "{{ x | upper | length }}" * 99,
    "a deep macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100000) }}",
    "deep JSON": "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}"
    "{{ ns.x | tojson }}",
    "a chain of operators": "{{ 1" + " + 1" * 30000 + " }}",
    "a chain of signs": "{{ " + "-" * 60000 + "1 }}",
    "a chain of nots": "{{ " + "not " * 30000 + "1 }}",
    "a chain of attributes": "{{ messages" + ".a" * 50000 + " }}",
    "a chain of filters": "{{ 'x'" + " | upper" * 12000 + " }}",
}


TO_THE_LIMIT = (
    *("stripping by a long text", "doubling lists", "doubling lists as JSON", "doubling lists as text"),
    *("doubling lists by ~", "indented JSON", "a branching macro", "nested loops over a list"),
    *("indenting by a long text", "a test over and over", "unique items of a long list", "joining long texts"),
    *("capital letters beyond ASCII", "a list that doubles, as a key", "growing by replace", "growing by str.replace"),
    "nested tuples as a key",
)
"""They end by the limit of time, as "nested loops", "searching in a text" and "keeping long texts" do."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.all] if case in TO_THE_LIMIT else []) for case in COSTLY]
)
@pytest.mark.no_cover
def test_a_costly_template_is_ended(case: str) -> None:
    with pytest.raises(ChatTemplateError) as error:
        render(template_of(COSTLY[case]), MESSAGES)
    assert str(error.value).startswith("The model's chat template")
    assert len(str(error.value)) < 500


def test_a_template_without_an_end_says_what_to_do() -> None:
    words = "it takes longer than 2 seconds. Choose another file of this model"
    with pytest.raises(ChatTemplateCostlyError, match=words):
        render(template_of(ENDLESS), MESSAGES)


def test_the_renderer_works_on_after_a_template_was_ended() -> None:
    with pytest.raises(ChatTemplateCostlyError):
        render(template_of(ENDLESS), MESSAGES)
    assert render(template_of("{{ messages[0].content }}"), MESSAGES) == "x"


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="the system does not tell a thread's time")
def test_only_the_time_of_the_processor_is_counted() -> None:
    ended = threading.Event()
    watchdog = template_renderer_wasmtime._Watchdog(ended.set)
    with watchdog.watching(0.05) as spent:
        time.sleep(0.3)  # as on an overloaded machine
        assert not ended.is_set()
        while not ended.is_set():
            assert spent() < 10.0
    with watchdog.watching(0.05):  # the watchdog continues
        ended.clear()
        while not ended.is_set():
            pass


def test_renderings_of_one_prompt_share_the_time() -> None:
    class Slow(Counting):
        async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
            given.append(seconds)
            self.spent = 0.15
            return b"x"

    given: list[float] = []
    template = chat_template.ChatTemplate("x", Slow())

    async def twice() -> None:
        with template.bounded():
            for _ in range(3):
                await template.render(MESSAGES)

    with pytest.raises(ChatTemplateCostlyError):
        asyncio.run(twice())
    assert given == pytest.approx([0.2, 0.05])
    asyncio.run(template.render(MESSAGES))  # elsewhere each gets all of it
    assert given[2:] == [0.2]


def test_a_rendering_leaves_no_memory_behind() -> None:
    def stores() -> int:
        gc.collect()
        return sum(isinstance(thing, wasmtime.Store) for thing in gc.get_objects())

    template = template_of("{{ messages[0].content | upper }}{{ raise_exception('no') }}")
    before = stores()
    for _ in range(20):
        with pytest.raises(ChatTemplateError):
            render(template, MESSAGES)
    assert stores() == before


def test_an_error_that_is_kept_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 30.0)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before, kept = resident(), []
    for _ in range(4):
        with pytest.raises(ChatTemplateCostlyError, match="too much memory") as error:
            render(template_of(COSTLY["doubling by join"]), MESSAGES)
        kept.append(error)
    assert resident() - before < 100 << 20  # each had 64 MiB


class Counting:
    """The native renderer, with a counter of its calls."""

    def __init__(self) -> None:
        self.runs = 0
        self.spent = 0.0

    async def run(self, request: bytes, check: bool, seconds: float) -> bytes:
        self.runs += 1
        return await native_renderer().run(request, check, seconds)


def test_a_costly_template_is_not_tried_with_other_messages() -> None:
    """To encode a chat, a template is run up to eight times: each would take all of the time."""
    counting: TemplateRenderer = Counting()
    template = chat_template.ChatTemplate(ENDLESS, counting)
    tokenizer = ByteBPE(Vocabulary([*BYTE_TO_CHAR.values()], [NORMAL] * 256), [], "gpt-2")
    with pytest.raises(ChatTemplateCostlyError):
        encode_chat(tokenizer, template, [{"role": "system", "content": "s"}, *MESSAGES, *MESSAGES])
    assert isinstance(counting, Counting)
    assert counting.runs == 1


@pytest.mark.parametrize("case", list(ESCAPES))
def test_a_template_cannot_reach_python(case: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(template_of(ESCAPES[case]), MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ dict.update(messages[0], {'content': 'y'}) }}",
        "{{ messages[0].update({'content': 'y'}) }}",
        "{% set messages[0].content = 'y' %}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages[0].pop('content') }}",
    ],
)
def test_a_template_cannot_rewrite_the_conversation(source: str) -> None:
    messages = copy.deepcopy(MESSAGES)
    with pytest.raises(ChatTemplateError):
        render(template_of(source), messages)
    assert messages == MESSAGES


def test_what_one_rendering_sets_the_next_does_not_see() -> None:
    template = template_of("{{ seen is defined }}{% set seen = 1 %}{% set ns = namespace(a=1) %}{{ seen }}")
    assert [render(template, MESSAGES), render(template, MESSAGES)] == ["False1", "False1"]


def test_a_conversation_that_is_no_json_is_a_sentence() -> None:
    with pytest.raises(ChatTemplateError, match="cannot be given to it"):
        asyncio.run(template_of("x").render([{"role": "user", "content": object()}]))
