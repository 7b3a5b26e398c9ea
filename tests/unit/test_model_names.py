"""A model's title for people, from the name of its file or from its metadata."""

from __future__ import annotations

import pytest

from py_core.models.names import title_of


@pytest.mark.parametrize(
    ("own", "stem", "title"),
    [
        ("Qwen2.5 Coder 0.5B Instruct AWQ", "qwen2.5-coder-0.5b-instruct-q4_k_m", "Qwen2.5 Coder 0.5B Instruct"),
        ("Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2-135M-Instruct.Q4_1", "SmolLM2 135M Instruct"),
        ("", "gemma-3-1b-it-UD-IQ4_XS", "Gemma 3 1B It"),
        ("", "Llama-3.2-1B-BF16", "Llama 3.2 1B"),
        ("Mine", "My Model", "My Model"),
        ("Mine", "ggml-model-Q8_0", "Mine"),
        ("", "model", "model"),
        ("Mine", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Mine"),
        ("Mine", "sha256-b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Mine"),
        ("Mine", "evil\x1b[31m-1b", "Evil\u241b[31m 1B"),
    ],
)
def test_a_model_is_called_by_its_file_and_else_what_it_calls_itself(own: str, stem: str, title: str) -> None:
    assert title_of(own, stem) == title
