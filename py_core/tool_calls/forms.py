"""The forms in which families of models write calls of tools.

Sources: the chat templates of the families' own files, and their makers' documentation. Hermes and Qwen write an object
of JSON between tags, one for each call. Qwen 3 Coder and 3.5 write XML there. Llama 3 writes the object alone, maybe
after a tag, and its 3.2 and 4 also a list in Python. Mistral and Phi-4-mini write a list of objects after a tag, newer
Mistrals a name and its arguments. LFM2 writes a list in Python between tags. Gemma 4 and FunctionGemma write a name and
arguments with quotes that are tokens. Gemma 3 and others have no form of their own: they get ours, an object of JSON.

The small Qwen 2.5 Coder models are taught tags by their template, but write the object alone (1.5B) or in a code block
(0.5B). So an answer may begin with these in each form.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto


class Body(Enum):
    """How a call is written between the tags."""

    OBJECT = auto()
    """{"name": "f", "arguments": {"a": "x"}}"""
    LIST = auto()
    """A list of such objects, for all calls of the answer."""
    NAMED = auto()
    """f[ARGS]{"a": "x"}"""
    PYTHON = auto()
    """[f(a="x"), g()], for all calls of the answer"""
    QUOTED = auto()
    """call:f{a:<|"|>x<|"|>}, with the quotes of the form"""
    XML = auto()
    """<function=f><parameter=a>x</parameter></function>, with line feeds"""


@dataclass(frozen=True)
class CallForm:
    """begin, end: the tags around a call, or around all of a LIST or PYTHON; "" for none. line: the white space inside
    the tags. between: what separates calls. key: the name of the arguments in an object. quote: of QUOTED."""

    name: str
    body: Body = Body.OBJECT
    begin: str = ""
    end: str = ""
    line: str = ""
    between: str = "\n"
    key: str = "arguments"
    quote: str = ""

    @property
    def is_bare(self) -> bool:
        """True if an answer that begins with a call has no tag before it."""
        return not self.begin or self is LLAMA

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that may be special tokens, which whoever decodes an answer must show."""
        named = ("[ARGS]", "[CALL_ID]") if self.body is Body.NAMED else ()
        return tuple(filter(None, (self.begin, self.end, self.quote, *named)))


HERMES = CallForm("hermes", begin="<tool_call>", end="</tool_call>", line="\n")
XML = CallForm("xml", Body.XML, "<tool_call>", "</tool_call>", "\n")
JSON = CallForm("json")
"""An object alone or in a code block, as a model likes it."""
LLAMA = CallForm("llama", begin="<|python_tag|>", between="; ", key="parameters")
PYTHON = CallForm("python", Body.PYTHON)
MISTRAL = CallForm("mistral", Body.LIST, "[TOOL_CALLS]", between=", ")
MISTRAL_NAMED = CallForm("mistral-named", Body.NAMED, "[TOOL_CALLS]", between="")
PHI = CallForm("phi", Body.LIST, "<|tool_call|>", "<|/tool_call|>", between=", ")
SMOLLM2 = CallForm("smollm2", Body.LIST, "<tool_call>", "</tool_call>", between=", ")
LFM2 = CallForm("lfm2", Body.PYTHON, "<|tool_call_start|>", "<|tool_call_end|>")
GEMMA4 = CallForm("gemma4", Body.QUOTED, "<|tool_call>", "<tool_call|>", between="", quote='<|"|>')
FUNCTION_GEMMA = CallForm(
    "function-gemma", Body.QUOTED, "<start_function_call>", "<end_function_call>", between="", quote="<escape>"
)
FORMS = {
    form.name: form
    for form in (
        HERMES, XML, JSON, LLAMA, PYTHON, MISTRAL, MISTRAL_NAMED, PHI, SMOLLM2, LFM2, GEMMA4, FUNCTION_GEMMA,
    )
}  # fmt: skip


def form_of(template: str, special_tokens: Collection[str] = (), name: str = "") -> CallForm:
    """Return the form that a chat template teaches; JSON if it teaches none. special_tokens: of the vocabulary, by
    which Phi-4-mini and LFM2 are known if their template does not say it. name: of the model."""
    if "<|tool_call>" in template:
        return GEMMA4
    if "<start_function_call>" in template:
        return FUNCTION_GEMMA
    if "<|tool_call_start|>" in template or "<|tool_call_start|>" in special_tokens:
        return LFM2
    if "[TOOL_CALLS]" in template:
        return MISTRAL_NAMED if "[ARGS]" in template else MISTRAL
    if "<|tool_call|>" in template or ("<|tool|>" in template and "<|tool_call|>" in special_tokens):
        return PHI
    if "<function=" in template:
        return XML
    if "<tool_call>" in template:
        plain = name.lower().replace("-", "").replace(" ", "")
        return JSON if "qwen2.5coder" in plain else HERMES
    if "(params_name1=" in template or "func_name1(" in template:
        return PYTHON
    if "ipython" in template or "<|python_tag|>" in template:
        return LLAMA
    return JSON
