"""The official client of OpenAI, over real connections to a server with a random model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import numpy as np
import openai
import pytest
import pytest_asyncio

from app.api.embeddings import NAME
from app.api.server import ApiOptions, ApiServer
from app.cli.loading import native_grammar_host
from app.generation.grammars import VocabularyGrammars
from py_core.loading import Model
from py_core.routing.embedder import SentenceEmbedder
from tests.api.served import served, until

alone = pytest.mark.asyncio(loop_scope="module")
KEY = "a key"
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Bern", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,  # a random model would go on with others
}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": CITY}}
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(write_model, open_model) -> AsyncIterator[Model]:
    model = await open_model(write_model(tied=False, context=2048))
    model.engine.constraint_of = VocabularyGrammars(
        model.tokenizer, model.config.vocab_size, native_grammar_host
    ).constraint
    yield model
    model.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(model: Model) -> AsyncIterator[str]:
    options = ApiOptions(keys=[KEY], origins=["https://friend.test"], body_bytes=100_000)
    async with served(ApiServer(model, options)) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(address: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def name(model: Model) -> str:
    return model.config.name or "sonata"


@alone
async def test_an_answer_is_the_same_whole_and_in_a_stream(client: openai.AsyncOpenAI, name: str) -> None:
    asked: dict[str, Any] = {"model": name, "messages": HELLO, "max_tokens": 12, "temperature": 1, "seed": 5}
    whole = await client.chat.completions.create(**asked)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage
    assert (whole.usage.completion_tokens, whole.usage.prompt_tokens > 0) == (12, True)
    stream = await client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    text, usage, reasons = "", None, []
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert (text, reasons) == (whole.choices[0].message.content, ["length"])
    assert usage
    assert usage.completion_tokens == 12
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    again = await client.chat.completions.create(**{**asked, "seed": 6})
    assert again.choices[0].message.content != text


@alone
async def test_several_answers_and_texts_that_end_them(client: openai.AsyncOpenAI, name: str) -> None:
    asked: dict[str, Any] = {"model": name, "messages": HELLO, "max_tokens": 30, "temperature": 1, "seed": 1}
    three = await client.chat.completions.create(**asked, n=3)
    texts = [choice.message.content or "" for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    alone = [
        (await client.chat.completions.create(**{**asked, "seed": 1 + at})).choices[0].message.content
        for at in range(3)
    ]
    assert texts == alone
    stop = texts[0][8:11]
    stopped = await client.chat.completions.create(**asked, stop=[stop, "not there"])
    assert stopped.choices[0].message.content == texts[0][: texts[0].index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


@alone
async def test_answers_have_the_form_that_was_asked_for(client: openai.AsyncOpenAI, name: str) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY, "strict": True}}
    made = await client.chat.completions.create(model=name, messages=HELLO, response_format=form, temperature=1, seed=2)
    jsonschema.validate(json.loads(made.choices[0].message.content or ""), CITY)
    called = await client.chat.completions.create(
        model=name, messages=HELLO, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=300
    )
    (call,) = called.choices[0].message.tool_calls or []
    assert (call.function.name, called.choices[0].finish_reason) == ("weather", "tool_calls")
    jsonschema.validate(json.loads(call.function.arguments), CITY)
    answered: Any = [
        *HELLO, called.choices[0].message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "Sun"},
    ]  # fmt: skip
    made = await client.chat.completions.create(
        model=name, messages=answered, tools=[WEATHER], tool_choice="none", max_tokens=4
    )
    assert made.choices[0].message.tool_calls is None


@alone
async def test_texts_are_continued_and_models_are_listed(client: openai.AsyncOpenAI, name: str) -> None:
    assert [one.id async for one in client.models.list()] == [name]
    made = await client.completions.create(model=name, prompt="Once", max_tokens=5, echo=True)
    assert made.choices[0].text.startswith("Once")
    assert made.usage
    assert made.usage.completion_tokens == 5
    parts = [
        part async for part in await client.completions.create(model=name, prompt="Once", max_tokens=5, stream=True)
    ]
    assert "Once" + "".join(part.choices[0].text for part in parts) == made.choices[0].text
    with pytest.raises(openai.BadRequestError, match="80,000 characters"):
        await client.completions.create(model=name, prompt="a " * 40_000)


@alone
async def test_texts_become_tokens_and_back(address: str, name: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=address, headers=headers) as http:
        tokens = (await http.post("/tokenize", json={"content": "Once upon a time"})).json()["tokens"]
        begun = (await http.post("/tokenize", json={"content": "Once upon a time", "add_special": True})).json()[
            "tokens"
        ]
        back = (await http.post("/detokenize", json={"tokens": tokens})).json()["content"]
        asked = {"model": name, "max_tokens": 4}
        made = [
            (await http.post("/v1/completions", json={**asked, "prompt": prompt})).json()["choices"][0]["text"]
            for prompt in (begun, "Once upon a time")
        ]
        assert (await http.post("/detokenize", json={"tokens": [10**6]})).status_code == 400
    assert back.strip() == "Once upon a time"
    assert begun[-len(tokens) :] == tokens
    assert made[0] == made[1]


@alone
async def test_a_request_may_have_other_forms(client: openai.AsyncOpenAI, name: str) -> None:
    asked: dict[str, Any] = {"model": name, "max_tokens": 6, "temperature": 1, "seed": 3}

    async def said(system: str, content: Any, **more: Any) -> str | None:
        given: Any = [{"role": system, "content": "Be short."}, {"role": "user", "content": content, "name": "Ann"}]
        return (await client.chat.completions.create(messages=given, **asked, **more)).choices[0].message.content

    usual = await said("system", "One\ntwo")
    parts = [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]
    assert await said("developer", parts) == usual
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert await said("system", "One\ntwo", extra_body={"unknown": [1]}, extra_headers=form) == usual
    lenient = {"stream_options": {"include_obfuscation": False}}
    stream = await client.chat.completions.create(messages=HELLO, stream=True, **asked, extra_body=lenient)
    assert all([chunk.usage is None async for chunk in stream])
    for prompt in ("", [], [10**6], [-1], ["a", "b"]):
        with pytest.raises(openai.BadRequestError):
            await client.completions.create(model=name, prompt=prompt)


@alone
async def test_responses_are_the_same_answers_with_their_events(client: openai.AsyncOpenAI, name: str) -> None:
    chat = await client.chat.completions.create(model=name, messages=HELLO, max_tokens=12, temperature=1, seed=5)
    asked: dict[str, Any] = {"model": name, "temperature": 1, "extra_body": {"seed": 5}, "max_output_tokens": 12}
    whole = await client.responses.create(**asked, input="Hello")
    assert (whole.output_text, whole.status) == (chat.choices[0].message.content, "incomplete")
    async with client.responses.stream(**asked, input=HELLO) as stream:
        events = [event async for event in stream]
    assert (events[0].type, events[-1].type) == ("response.created", "response.incomplete")
    assert events[-1].response.output_text == whole.output_text
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text

    tool: Any = {"type": "function", **WEATHER["function"]}
    called = await client.responses.create(
        model=name, input="Hello", tools=[tool], tool_choice="required", parallel_tool_calls=False
    )
    (call,) = called.output
    assert (call.type, call.name) == ("function_call", "weather")
    jsonschema.validate(json.loads(call.arguments), CITY)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sun"}
    given: Any = [*HELLO, call.to_dict(), result]
    form: Any = {"format": {"type": "json_schema", "name": "place", "schema": CITY, "strict": True}}
    shaped = await client.responses.create(model=name, input=given, text=form, temperature=1)
    jsonschema.validate(json.loads(shaped.output_text), CITY)
    for wrong in ({"input": [{"type": "image"}]}, {"input": "a", "previous_response_id": "resp_1"}):
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=name, **wrong)  # type: ignore[call-overload]


@alone
async def test_tokens_have_probabilities_and_biases(client: openai.AsyncOpenAI, name: str, model: Model) -> None:
    asked: dict[str, Any] = {"model": name, "messages": HELLO, "max_tokens": 8, "logprobs": True, "top_logprobs": 20}

    async def entries(**more: Any) -> list[Any]:
        made = await client.chat.completions.create(**asked, **more)
        assert made.choices[0].logprobs
        return made.choices[0].logprobs.content or []

    greedy = await entries()
    for one in greedy:
        assert (one.top_logprobs[0].bytes, len(one.top_logprobs)) == (one.bytes, 20)
        assert sum(np.exp([other.logprob for other in one.top_logprobs])) < 1
    stream = await client.chat.completions.create(**asked, stream=True)
    streamed = [choice.logprobs.content or [] async for chunk in stream for choice in chunk.choices if choice.logprobs]
    assert [one for piece in streamed for one in piece] == greedy
    ids = {model.tokenizer.token_bytes(id): id for id in range(model.config.vocab_size)}
    first = bytes(greedy[0].bytes or [])
    banned = await entries(logit_bias={str(ids[first]): -100})
    assert first not in [bytes(one.bytes) for one in banned]
    assert banned[0].top_logprobs == greedy[0].top_logprobs  # the model's own
    forced = await entries(logit_bias={str(ids[b"x"]): 100}, temperature=1)
    assert [one.token for one in forced] == ["x"] * 8
    hot = await entries(temperature=2, seed=1)
    assert [one.bytes for one in hot] != [one.bytes for one in greedy]
    made = await client.completions.create(model=name, prompt="Once", max_tokens=5, logprobs=2)
    told = made.choices[0].logprobs
    assert told
    assert told.tokens
    assert told.top_logprobs
    assert [max(one, key=lambda name, one=one: one[name]) for one in told.top_logprobs] == told.tokens
    with pytest.raises(openai.BadRequestError, match="leave `echo` or `logprobs` out"):
        await client.completions.create(model=name, prompt="Once", logprobs=2, echo=True)


@alone
async def test_a_long_text_is_encoded_beside_the_answers(model: Model) -> None:
    async with (
        served(ApiServer(model, ApiOptions())) as address,
        httpx.AsyncClient(base_url=address, timeout=60) as http,
    ):
        text = "".join(f"w{number} " for number in range(100_000))
        encoding = asyncio.ensure_future(http.post("/tokenize", json={"content": text}))
        others = 0
        while not encoding.done():
            await http.get("/health")
            others += 1
        assert len((await encoding).json()["tokens"]) == len(text)
        assert others > 3
        refused = await http.post("/tokenize", json={"content": "a" * 1_000_001})
        assert (refused.status_code, "in parts" in refused.text) == (413, True)


@alone
async def test_texts_get_vectors(client: openai.AsyncOpenAI, embedder: SentenceEmbedder) -> None:
    made = await client.embeddings.create(model=NAME, input=["a cat", "a kitten", "the tax office"])  # in base64
    vectors = np.array([one.embedding for one in made.data])
    assert np.allclose(vectors, await embedder.embed(["a cat", "a kitten", "the tax office"]))
    assert made.usage.prompt_tokens > 6
    (plain,) = (await client.embeddings.create(model=NAME, input="a cat", encoding_format="float")).data
    assert np.allclose(plain.embedding, vectors[0])
    with pytest.raises(openai.NotFoundError):
        await client.embeddings.create(model="text-embedding-3-small", input="a")


@alone
@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "There is no model gpt-9"),
        ({"messages": []}, openai.BadRequestError, "no messages"),
        ({"messages": "hi"}, openai.BadRequestError, "The field messages must be a list"),
        ({"messages": [{"role": "king", "content": "a"}]}, openai.BadRequestError, "messages[0].role is"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, openai.BadRequestError, "reads text"),
        ({"messages": [{"role": "user", "content": "a " * 4000}]}, openai.BadRequestError, "tokens"),
        ({"temperature": -1}, openai.BadRequestError, "temperature is -1"),
        ({"max_tokens": 0}, openai.BadRequestError, "`max_tokens` is 0"),
        ({"n": 99}, openai.BadRequestError, "`n` is 99"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, openai.BadRequestError, "'a b'"),
        ({"response_format": {"type": "xml"}}, openai.BadRequestError, "response_format has the type"),
        ({"top_logprobs": 3}, openai.BadRequestError, "set `logprobs` to true"),
        ({"logprobs": True, "top_logprobs": 21}, openai.BadRequestError, "from 0 to 20"),
        ({"logit_bias": {"a": 1}}, openai.BadRequestError, "ids of tokens, below 259"),
        ({"logit_bias": {"259": 1}}, openai.BadRequestError, "ids of tokens, below 259"),
        ({"logit_bias": {"1": 101}}, openai.BadRequestError, "from -100 to 100"),
        ({"logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, openai.BadRequestError, "at most 1,024"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_an_error_of_the_client(
    client: openai.AsyncOpenAI, name: str, changes: dict[str, Any], kind: type[openai.APIStatusError], said: str
) -> None:
    with pytest.raises(kind) as raised:
        await client.chat.completions.create(**{"model": name, "messages": HELLO, "max_tokens": 3, **changes})
    assert said in str(raised.value)


@alone
async def test_only_those_who_may_are_let_in(address: str, name: str) -> None:
    body = {"model": name, "messages": HELLO, "max_tokens": 2}
    async with httpx.AsyncClient(base_url=address) as http:

        def post(data: Any = body, key: str = KEY, **headers: str) -> Any:
            named = {"Authorization": f"Bearer {key}", **headers}
            return http.post(
                "/v1/chat/completions", headers=named, content=data if isinstance(data, bytes) else json.dumps(data)
            )

        assert (await post()).status_code == 200
        assert (await post(key="another")).status_code == 401
        assert (await post(Origin="https://stranger.test")).status_code == 403
        friend = await post(Origin="https://friend.test")
        assert (friend.status_code, friend.headers["access-control-allow-origin"]) == (200, "https://friend.test")
        assert (await post(Host="stranger.test")).status_code == 421
        for broken in (b"{", b"[" * 90_000, b'{"n": NaN}', b"\xff", b"[]"):
            assert (await post(broken)).status_code == 400
        assert (await post(b" " * 200_000)).status_code == 413
        assert (await http.get("/v1/nothing")).status_code == 404
        assert (await http.get("/health")).json() == {"status": "ok", "running": 0, "waiting": 0}


@alone
async def test_each_of_many_gets_what_it_would_get_alone_and_who_leaves_ends_the_work(model: Model, name: str) -> None:
    async with (
        served(ApiServer(model, ApiOptions(answers=4, queue=8))) as address,
        openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):

        async def ask(seed: int) -> str:
            made = await client.chat.completions.create(
                model=name, messages=HELLO, max_tokens=16, temperature=1, seed=seed
            )
            return made.choices[0].message.content or ""

        alone = [await ask(seed) for seed in range(6)]
        assert await asyncio.gather(*map(ask, range(6))) == alone
        async with httpx.AsyncClient(base_url=address) as http:
            body = {"messages": HELLO, "max_tokens": 1500, "stream": True}
            leaving = [asyncio.ensure_future(http.post("/v1/chat/completions", json=body)) for _ in range(12)]

            async def has(running: int, waiting: int) -> bool:
                return (await http.get("/health")).json() == {"status": "ok", "running": running, "waiting": waiting}

            await until(lambda: has(4, 8))
            with pytest.raises(openai.RateLimitError):
                await ask(0)
            for several, state in ((leaving[4:], (4, 0)), (leaving[:4], (0, 0))):
                for one in several:
                    one.cancel()
                await asyncio.gather(*several, return_exceptions=True)
                await until(lambda state=state: has(*state))
        assert await ask(0) == alone[0]
