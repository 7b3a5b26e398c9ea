"""Grammars of the JSON texts that are valid by a schema.

The schemas are those of draft 2020-12, and the spellings of older drafts. What cannot be kept whole is refused with the
path of the keyword.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from py_core.grammar.expressions import Grammar
from py_core.grammar.schema.document import Document
from py_core.grammar.schema.reader import Reader
from py_core.grammar.schema.texts import Texts
from py_core.grammar.schema.writer import Writer

Schema = dict[str, Any] | bool | str
"""A schema as `json.loads` gives it, or its text."""


def schema_grammar(
    schema: Schema, *, indent: int | None = None, loose: bool = False, allow: Collection[str] = ()
) -> Grammar:
    """The grammar of the texts of the values that are valid by a JSON Schema.

    Properties come in the schema's order and after them those that it does not list. Texts are compact, or with the
    spaces of `indent`, as `json.dumps` writes them. loose: or with spaces and lines as the model likes, within bounds.
    allow: keywords that are left out if they cannot be kept.
    Raises GrammarError with the path of a keyword that cannot be kept, or if no value is valid.
    """
    document = Document(schema, allow)
    return Writer(document, Reader(document), indent, loose).grammar()


def canonical(schema: Schema, data: Any) -> str:
    """The text of a value, valid or not, in the schema's order of properties, and compact.

    Raises GrammarError if the schema cannot be read.
    """
    document = Document(schema)
    texts = Texts(document, Reader(document))
    return texts.loose(texts.root, data)
