"""Trains the adapter that reads facts in the prompt (py_core/learning/reading.py), on invented facts (lessons/facts).

    python -m app.training.reader prepare EXAMPLES.json [--hard]        token ids of `train`, in some 20 (5) minutes
    python -m app.training.reader train EXAMPLES.json OUT.safetensors [--start ADAPTER.safetensors] [--steps N ...]
    python -m app.training.reader measure [OUT.safetensors] [--split dev|held] [--json]
    python -m app.training.reader measure --plain [--model FILE.gguf] [--split dev|held] [--json]

`prepare` needs the chat template and the model, for its answers without facts; `train` needs only the model, so that it
runs on a machine with a GPU and little else. Without --hard other facts are drawn at random: two of three examples have
the right one among at most two others, and the answer is the taught one; in the rest no fact helps, and the answer is
the model's answer without any. With --hard the others are the nearest ones, and half of the prompts are near misses and
generic prompts, which no fact in them answers. The shipped adapter was trained in three runs:

    train drawn.json 0.safetensors --backend webgpu                                    303,000 tokens, 55 s on an H200
    train hard.json 1.safetensors --start 0.safetensors --steps 30 --rate 1e-3         on WASM natively, one thread
    train hard.json 2.safetensors --start 1.safetensors --steps 40 --rate 8e-4 --seed 7

`measure` asks for the facts of a split that was not trained on, with one fact in the prompt and with three: an answer
is right if it is the taught one, word by word. Without a file it measures the shipped adapter, with --plain the model
alone, which then may be another one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from app.checksums import sha256_of
from app.generation.assistant import SYSTEM_PROMPT
from app.lessons.facts import VAGUE, InventedFact, Split, facts, generic_prompts
from app.lessons.reader import reader_path
from app.models.build_outputs import kernel_path
from app.models.downloads import default_model_path
from app.models.template_renderer import native_renderer
from app.native_runtime import open_embedder
from py_core.adapters.files import read_adapter, write_adapter
from py_core.adapters.parameters import parameter_layout
from py_core.backends.wasm.backend import load_wasm
from py_core.backends.wasm.host_wasmtime import WasmtimeHost
from py_core.engine.engine import Engine, Timings
from py_core.formats.source import FileSource
from py_core.learning.reading import fact_of, reading_message
from py_core.loading import BackendLoader, Model, load_model, read_description
from py_core.sampling import SamplingParams
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.registry import tokenizer_from_gguf
from py_core.training.batches import shuffled
from py_core.training.checkpoint import Checkpoint
from py_core.training.packing import answer_example
from py_core.training.schedule import Schedule
from py_core.training.session import TrainingState
from py_core.training.trainer import StepReport, Trainer, TrainerSettings, fresh_start

NAME = "reader"
SCALE = 2.0
OTHER_SHARE = 0.33
"""Share of the examples in which no fact helps."""
STATEMENT_SHARE = 0.3
"""Share of the facts that are in the prompt without their question."""
KEPT_TOKENS, HARD_TOKENS = 48, 12
"""Tokens that are learned of an answer without a fact."""
RIGHT_SHARE, NEAR, GENERIC = 0.25, 200, 100
"""For hard examples: the share of questions that are asked, and the numbers of near misses and generic prompts."""
ANSWERS = 0.85
"""A fact with at least this cosine to a prompt may answer it."""
GREEDY = SamplingParams(temperature=0.0)


class Examples:
    """Makes prompts from facts; every random choice is seeded."""

    def __init__(self, model: Model, seed: int) -> None:
        self._model = model
        self._draw = random.Random(seed)

    async def learned(self, given: Sequence[InventedFact], generic: Sequence[str]) -> list[dict[str, list[int]]]:
        """{prompt, answer}, token ids: questions with their facts, then prompts for which no fact helps."""
        made = []
        for fact in given:
            for asked in (fact.question, *fact.paraphrases):
                if self._draw.random() < OTHER_SHARE:
                    continue
                lines = [fact, *self._others(given, fact, self._draw.choice([0, 1, 2]))]
                self._draw.shuffle(lines)
                made.append({"prompt": await self._prompt(asked, lines), "answer": self._answer(fact.answer)})
        for _ in range(int(len(made) * OTHER_SHARE)):
            asked = self._draw.choice(generic)
            lines = self._others(given, None, self._draw.choice([1, 2, 3]))
            prompt = await self._prompt(asked, lines)
            said = await greedy(self._model.engine, await self._encoded(asked), KEPT_TOKENS)
            made.append({"prompt": prompt, "answer": said})
        return made

    async def asked(self, given: Sequence[InventedFact], fact: InventedFact, text: str, count: int) -> list[int]:
        """The prompt of a question whose fact is among this number."""
        lines = [fact, *self._others(given, fact, count - 1)]
        self._draw.shuffle(lines)
        return await self._encoded(reading_message(text, [fact_of(one.question, one.answer) for one in lines]))

    async def hard(self, given: Sequence[InventedFact], generic: Sequence[str]) -> list[dict[str, list[int]]]:
        """The same with the facts that a search finds: questions among the nearest other facts, and near misses and
        prompts that the nearest facts do not answer. Only HARD_TOKENS of the model's answers to the latter are learned:
        the beginning decides."""
        embedder, made = open_embedder(), []
        vectors = np.stack([each.vector for each in await embedder.meanings([fact.question for fact in given])])
        asked = {plain(text) for fact in given for text in (fact.question, *fact.paraphrases)}

        async def nearest(text: str, but: InventedFact | None, count: int) -> list[InventedFact] | None:
            """None if one of them may well answer it."""
            (meaning,) = await embedder.meanings([text])
            cosines = vectors @ meaning.vector
            order = [at for at in np.argsort(-cosines) if given[at] is not but]
            return None if but is None and cosines[order[0]] > ANSWERS else [given[at] for at in order[:count]]

        for fact in given:
            for text in (fact.question, *fact.paraphrases):
                if self._draw.random() < RIGHT_SHARE:
                    lines = [fact, *(await nearest(text, fact, self._draw.choice([0, 1, 2])) or [])]
                    self._draw.shuffle(lines)
                    made.append({"prompt": await self._prompt(text, lines), "answer": self._answer(fact.answer)})
        near_misses = [(text, fact) for fact in given for text in fact.near]
        wrong: list[tuple[str, InventedFact | None]] = [*self._draw.sample(near_misses, NEAR)]
        wrong += [(text, None) for text in self._draw.sample(generic, GENERIC)]
        for text, near in wrong:
            others = await nearest(text, None, self._draw.choice([1, 2, 3]))
            if others is None or plain(text) in asked:
                continue
            lines = list(dict.fromkeys([near, *others]))[: len(others)] if near else others
            self._draw.shuffle(lines)
            said = await greedy(self._model.engine, await self._encoded(text), HARD_TOKENS)
            made.append({"prompt": await self._prompt(text, lines), "answer": said})
        return made

    def _others(self, given: Sequence[InventedFact], fact: InventedFact | None, count: int) -> list[InventedFact]:
        return self._draw.sample([other for other in given if other is not fact], count)

    async def _prompt(self, asked: str, lines: Sequence[InventedFact]) -> list[int]:
        return await self._encoded(reading_message(asked, [self._line(fact) for fact in lines]))

    def _line(self, fact: InventedFact) -> str:
        """Sometimes only the statement is there, as after "remember that ..."."""
        is_statement = self._draw.random() < STATEMENT_SHARE
        return fact.answer if is_statement else fact_of(fact.question, fact.answer)

    async def _encoded(self, text: str) -> list[int]:
        messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]
        return await self._model.encode_chat(messages)

    def _answer(self, text: str) -> list[int]:
        tokenizer = self._model.tokenizer
        return [*tokenizer.encode(text), end_token(tokenizer)]


def plain(text: str) -> str:
    return " ".join(text.lower().split())


def end_token(tokenizer: Tokenizer) -> int:
    """The token that ends an answer."""
    (token,) = tokenizer.encode("<|im_end|>", special=True)
    return token


async def greedy(engine: Engine, prompt: list[int], most: int, adapter: int = 0) -> list[int]:
    """The likeliest tokens after a prompt, without the end token."""
    sequence = engine.new_sequence()
    try:
        engine.use_adapter(sequence, adapter)
        await engine.prefill(sequence, prompt, timings := Timings())
        return [token async for ids in engine.generate(sequence, most, GREEDY, timings) for token in ids]
    finally:
        engine.free(sequence)


async def prepare(options: argparse.Namespace) -> None:
    model = await load_model(FileSource(default_model_path()), loader_of(options.backend), native_renderer())
    examples, given = Examples(model, options.seed), facts("train")
    generic = [one.prompt for one in generic_prompts("train") if not options.hard or one.kind != VAGUE]
    made = await (examples.hard if options.hard else examples.learned)(given, generic)
    model.close()
    options.examples.write_text(json.dumps(made), encoding="utf-8")
    print(f"{len(made):,} examples")


async def train(options: argparse.Namespace) -> None:
    examples = [answer_example(**one) for one in json.loads(options.examples.read_text(encoding="utf-8"))]
    source = FileSource(default_model_path())
    header, config, graph = await read_description(source, None, lambda header, config, graph: None)
    backend = await loader_of(options.backend)(source, header, config, graph, None)
    engine = Engine(backend, tokenizer_from_gguf(header.metadata).eos_ids)
    layout = parameter_layout(graph, options.rank, SCALE)
    training = await engine.open_training(layout)
    settings = TrainerSettings(Schedule(options.rate, options.steps), divergence=0, save_every=options.steps)
    tokens, begin = 0, time.perf_counter()

    def report(step: StepReport) -> None:
        nonlocal tokens
        tokens += step.tokens
        print(json.dumps({"step": step.step, "loss": step.loss.cross_entropy, "tokens": tokens}), flush=True)

    batches = shuffled(examples, options.batch, options.seed)
    start = fresh_start(layout, options.seed)
    if options.start:
        before = read_adapter(options.start.read_bytes(), config, graph)
        start = Checkpoint(TrainingState.of(layout.flatten(before)))
    end = await Trainer(training, batches, settings, start, report).run()
    training.close()
    engine.close()
    print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - begin}))
    adapter = layout.adapter(end.state.parameters, NAME, sha256_of(default_model_path()))
    options.out.write_bytes(write_adapter(adapter, config, graph, half=True))


async def measure(options: argparse.Namespace) -> None:
    source = FileSource(options.model or default_model_path())
    model = await load_model(source, loader_of(options.backend), native_renderer())
    path = options.adapter or reader_path(sha256_of(default_model_path()))
    number = 0
    if not options.plain:
        number = await model.engine.add_adapter(read_adapter(path.read_bytes(), model.config, model.graph))
    found = await measured(model, number, options.split, options.seed)
    model.close()
    if options.json:
        print(json.dumps(found))
        return
    print(f"{model.config.name if options.plain else path.name} on {options.split}, answered word by word")
    for name, shares in found.items():
        print(f"{name:>12} in the prompt   " + "   ".join(f"{kind} {share:.3f}" for kind, share in shares.items()))


async def measured(model: Model, adapter: int, split: Split, seed: int) -> dict[str, dict[str, float]]:
    """The share of right answers to taught questions and to paraphrases, with one fact and with three."""
    given, examples = facts(split), Examples(model, seed)
    found: dict[str, dict[str, float]] = {}
    for count, name in ((1, "one fact"), (3, "three facts")):
        right: dict[str, list[bool]] = {"taught": [], "paraphrases": []}
        for fact in given:
            answer = model.tokenizer.encode(fact.answer)
            for text in (fact.question, *fact.paraphrases):
                prompt = await examples.asked(given, fact, text, count)
                said = await greedy(model.engine, prompt, len(answer) + 2, adapter)
                right["taught" if text == fact.question else "paraphrases"].append(said == answer)
        found[name] = {kind: round(sum(each) / len(each), 3) for kind, each in right.items()}
    return found


def loader_of(backend: str) -> BackendLoader:
    if backend == "wasm":
        return partial(load_wasm, WasmtimeHost(kernel_path()))
    from py_core.backends.webgpu.backend import load_webgpu
    from py_core.backends.webgpu.host_wgpu import WgpuHost

    return partial(load_webgpu, WgpuHost())


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    preparing, training, measuring = (commands.add_parser(name) for name in ("prepare", "train", "measure"))
    preparing.add_argument("examples", type=Path)
    preparing.add_argument("--hard", action="store_true")
    training.add_argument("examples", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--start", type=Path, metavar="ADAPTER.safetensors")
    training.add_argument("--steps", type=int, default=440)
    training.add_argument("--rate", type=float, default=2.5e-3)
    training.add_argument("--rank", type=int, default=4)
    training.add_argument("--batch", type=int, default=8)
    measuring.add_argument("adapter", type=Path, nargs="?")
    measuring.add_argument("--split", choices=["dev", "held"], default="dev")
    measuring.add_argument("--plain", action="store_true")
    measuring.add_argument("--model", type=Path, metavar="FILE.gguf")
    measuring.add_argument("--json", action="store_true")
    for command, run in ((preparing, prepare), (training, train), (measuring, measure)):
        command.set_defaults(run=run)
        command.add_argument("--backend", choices=["wasm", "webgpu"], default="wasm")
        command.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    asyncio.run(options.run(options))


if __name__ == "__main__":
    main(sys.argv[1:])
