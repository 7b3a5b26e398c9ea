"""Writes expected.json: the output of llama.cpp's own converter for the folders of folders.py.

python -m tests.models.converting.make_expected LLAMA_CPP, a checkout of llama.cpp, with torch, transformers and
sentencepiece.

Tensors and lists are represented by their sha256, and keys also by their types. The pre-tokenizer is given:
llama.cpp recognizes it by the ids that published tokenizers give for a text. If it needs a file of SentencePiece,
which these folders lack, it writes no vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.models.converting.folders import FOLDERS, Folder

EXPECTED = Path(__file__).with_name("expected.json")
WITHOUT_VOCABULARY = ("Phi3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")


def convert(case: Folder, rule: str, folder: Path, out: Path) -> None:
    import conversion
    import gguf
    import torch
    from conversion import base

    settings = base.ModelBase.load_hparams(folder, False)
    kind = conversion.get_model_class(base.get_model_architecture(settings, base.ModelType.TEXT))

    class Converter(kind):
        model_arch = kind.model_arch
        no_mtp = True  # blocks that guess further tokens stay out

        def get_vocab_base_pre(self, tokenizer: object) -> str:
            return rule

        def set_vocab(self) -> None:
            if rule != "default" or case.config["architectures"][0] not in WITHOUT_VOCABULARY:
                super().set_vocab()

    types = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16"}
    with torch.inference_mode():
        Converter(folder, gguf.LlamaFileType[types[case.dtype]], out).write()


def described(path: Path) -> dict[str, Any]:
    import gguf

    file = gguf.GGUFReader(path)
    keys = {
        name: [kind.name for kind in field.types] + [short(field.contents())]
        for name, field in file.fields.items()
        if not name.startswith(("GGUF.", "general."))
    }
    tensors = {
        tensor.name: [tensor.tensor_type.name, [int(size) for size in tensor.shape[::-1]],
                      hashlib.sha256(tensor.data.tobytes()).hexdigest()]
        for tensor in file.tensors
    }  # fmt: skip
    return {"keys": keys, "tensors": tensors}


def short(value: Any) -> Any:
    """Replaces a long list by its sha256."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest() if isinstance(value, list) else value


def main() -> None:
    llama_cpp = Path(sys.argv[1])
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    expected = {}
    with tempfile.TemporaryDirectory() as temporary:
        for case in FOLDERS:
            folder, out = case.write(Path(temporary)), Path(temporary) / f"{case.name}.gguf"
            convert(case, case.rule, folder, out)
            expected[case.name] = described(out)
    EXPECTED.write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
