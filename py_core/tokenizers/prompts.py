"""Adds BOS and EOS to a prompt, like llama.cpp. Only this module decides it."""

from __future__ import annotations

from collections.abc import Sequence

from py_core.tokenizers.base import Tokenizer


def framed(tokenizer: Tokenizer, ids: Sequence[int], *, bos: bool = True, by_template: bool = False) -> list[int]:
    """`ids` with BOS before and EOS after them, if the model's file says so.

    bos: False leaves BOS out, whatever the file says. by_template: the ids come from a chat template, which may have
    written BOS or EOS itself; then they are not doubled. (If a template writes a BOS that the file does not ask for, it
    is part of the format, as in ChatML, where BOS begins each message.)
    """
    out = list(ids)
    if tokenizer.add_bos and tokenizer.bos_id is not None:
        if by_template and out[:1] == [tokenizer.bos_id]:
            del out[0]
        if bos:
            out.insert(0, tokenizer.bos_id)
    if tokenizer.add_eos and tokenizer.eos_id is not None and not (by_template and out[-1:] == [tokenizer.eos_id]):
        out.append(tokenizer.eos_id)
    return out


def encode_text(tokenizer: Tokenizer, text: str, *, special: bool = False, bos: bool = True) -> list[int]:
    """The prompt for a text without a chat template. special: parse its control tokens."""
    return framed(tokenizer, tokenizer.encode(text, special=special), bos=bos)
