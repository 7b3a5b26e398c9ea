"""The JSON-Schema-Test-Suite, as the package `jsonschema` has it in its source, walked through masks."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.building.common import one_build_at_a_time
from app.building.download import Download, Downloader, Source
from app.building.python_env import pypi_address
from app.cli.grammar import follow
from app.cli.loading import native_grammar_host
from app.generation.grammars import token_bytes
from app.paths import cache_dir
from py_core.formats.gguf import read_header
from py_core.formats.source import open_source
from py_core.grammar.expressions import GrammarError
from py_core.grammar.kernel import GrammarKernel
from py_core.grammar.schema import canonical, schema_grammar
from py_core.tokenizers.base import Tokenizer
from py_core.tokenizers.registry import tokenizer_from_gguf

PACKAGE = "jsonschema==4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DIALECTS = {
    "draft2020-12": None,
    "draft2019-09": None,
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
"""The drafts, and the `$schema` of those whose cases do not name it."""
NO_VALUE = "no value is valid by the schema"
ON_PURPOSE = {
    ("draft2020-12", "format.json"): "formats are kept, as validators do if they are told to",
    ("draft7", "optional/content.json"): "the contents of strings are not checked, as since draft 2019-09",
    ("draft4", "optional/zeroTerminatedFloats.json"): "1.0 is an integer, as since draft 6",
}
"""Files whose cases may come out otherwise, and why. What each format lets through is in optional/format."""


@dataclass(frozen=True)
class Verdict:
    """A case: the file, the group of cases that share a schema, the case, and what came of it: "right", "wrong", "on
    purpose" or "refused", with its sentence."""

    file: str
    group: str
    case: str
    came: str
    why: str = ""


def open_vocabulary(path: Path) -> tuple[GrammarKernel, Tokenizer]:
    """The tokens of a model's file, and a kernel for them."""
    tokenizer = tokenizer_from_gguf(asyncio.run(read_header(open_source(path))).metadata)
    return GrammarKernel(asyncio.run(native_grammar_host()), token_bytes(tokenizer)), tokenizer


def suite_archive() -> Path:
    """The package's source in the cache. It is downloaded if it is not there. Raises BuildError."""
    cache, name = cache_dir(), f"{PACKAGE.replace('==', '-')}.tar.gz"
    source = Source(pypi=PACKAGE, pip=("--no-binary=jsonschema",))
    with one_build_at_a_time(cache):
        return Downloader(cache, pypi_address).ensure(Download(cache / "bench" / name, SHA256, (source,)))


def groups_of(draft: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each file's name and each of its groups: {description, schema, tests: [{description, data, valid}]}."""
    with tarfile.open(suite_archive()) as archive:
        for member in archive:
            folder, found, file = member.name.partition(f"/json/tests/{draft}/")
            if not found or not file.endswith(".json"):
                continue
            opened = archive.extractfile(member)
            assert opened is not None, folder
            for group in json.load(opened):
                if DIALECTS[draft] and isinstance(group["schema"], dict):
                    group["schema"].setdefault("$schema", DIALECTS[draft])
                yield file, group


def verdicts(kernel: GrammarKernel, tokenizer: Tokenizer, draft: str) -> Iterator[Verdict]:
    """Walk the values of all cases through the masks, in the tokens of a vocabulary."""
    for file, group in groups_of(draft):
        opened, refused = None, ""
        try:
            opened = kernel.open(schema_grammar(group["schema"]))
        except GrammarError as error:
            refused = str(error)
        for case in group["tests"]:
            named = (file, group["description"], case["description"])
            if refused and refused != NO_VALUE:
                yield Verdict(*named, "refused", refused)
                continue
            text = canonical(group["schema"], case["data"])
            passes = opened is not None and follow(opened, tokenizer, text).passes
            if passes == case["valid"]:
                yield Verdict(*named, "right")
            elif (draft, file) in ON_PURPOSE:
                yield Verdict(*named, "on purpose", ON_PURPOSE[draft, file])
            else:
                yield Verdict(*named, "wrong", f"{text[:80]} {'passes' if passes else 'does not pass'}")
        if opened:
            opened.close()
