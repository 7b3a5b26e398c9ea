"""Writes expected/NAME.npz: losses, gradients and optimized parameters by `torch`, for each model of cases.py.

python -m venv /tmp/expected && /tmp/expected/bin/pip install ".[expected]"
/tmp/expected/bin/python -m tests.training.make_expected

Each file has `losses` float32 (2 packs, cross-entropy and divergence), for each tensor the gradients of a and b over
both packs ("NAME.a", "NAME.b"), and both after ten steps ("NAME.a.after", "NAME.b.after"), rows as the file has
them. `torch` computes in float64, each sequence by itself behind its own copy of the prefix.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
import transformers

from py_core.training.session import Pack
from tests.tiny.models import Variant, weights
from tests.training.cases import CASES, SCALE, STEPS, in_file_order, micro_batches, packs, pairs, rule

EXPECTED = Path(__file__).parent / "expected"
DROPPED = 1 << 10
"""To keep files small, the last 10 of a mantissa's 23 bits are rounded away, 0.00003 of a number."""


class WithPair(torch.nn.Module):
    """A linear, plus a pair's product if it is in `on`."""

    def __init__(self, linear: torch.nn.Module, a: np.ndarray, b: np.ndarray, on: list[bool]) -> None:
        super().__init__()
        self.linear, self.on = linear, on
        self.a = torch.nn.Parameter(torch.from_numpy(a).double())
        self.b = torch.nn.Parameter(torch.from_numpy(b).double())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y + SCALE * (x @ self.a.T) @ self.b.T if self.on[0] else y


class Case:
    def __init__(self, variant: Variant) -> None:
        special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
        settings = copy.deepcopy({**special, **variant.config})
        config = getattr(transformers, f"{variant.transformers}Config")(**settings, attn_implementation="eager")
        self.variant, self.on = variant, [True]
        self.model = getattr(transformers, f"{variant.transformers}ForCausalLM")(config).double().eval()
        state = {name: torch.from_numpy(rows.astype(np.float64)) for name, rows in weights(variant).items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        if not set(missing) <= {"lm_head.weight"} or unexpected:
            raise ValueError(f"{variant.name}: missing {missing}, unexpected {unexpected}")
        self.model.requires_grad_(False)
        self.adapted: dict[str, WithPair] = {}
        for pair in pairs(variant):
            module = pair.name.removesuffix(".weight")
            self.adapted[pair.gguf_name] = WithPair(self.model.get_submodule(module), pair.a, pair.b, self.on)
            self.model.set_submodule(module, self.adapted[pair.gguf_name])

    def parameters(self) -> list[torch.nn.Parameter]:
        return [one for pair in self.adapted.values() for one in (pair.a, pair.b)]

    def by_name(self, gradients: bool = False) -> dict[str, np.ndarray]:
        found = {}
        for name, pair in self.adapted.items():
            a, b = (one.grad if gradients else one.data for one in (pair.a, pair.b))
            found[f"{name}.a"] = a.numpy()
            found[f"{name}.b"] = in_file_order(self.variant, name, b.numpy())
        return found

    def log_shares(self, pack: Pack, on: bool) -> torch.Tensor:
        """Log-probabilities of the tokens after each of the pack's rows: (rows, vocabulary)."""
        self.on[0] = on
        tokens = torch.from_numpy(pack.tokens.astype(np.int64))
        rows = []
        for start in np.unique(pack.starts):
            before = pack.prefix if start else 0
            text = torch.cat([tokens[:before], tokens[pack.starts == start]])[None]
            rows.append(self.model(text, use_cache=False).logits[0, before:])
        return torch.log_softmax(torch.cat(rows), dim=-1)

    def losses(self, pack: Pack) -> list[torch.Tensor]:
        """The cross-entropy and the divergence, summed with their weights."""
        rows, targets = (torch.from_numpy(one.astype(np.int64)) for one in (pack.loss_rows, pack.targets))
        ours = self.log_shares(pack, on=True)[rows]
        with torch.no_grad():
            base = self.log_shares(pack, on=False)[rows]
        weight, kl_weight = (torch.from_numpy(one.astype(np.float64)) for one in (pack.weights, pack.kl_weights))
        divergence = torch.nn.functional.kl_div(ours, base, reduction="none", log_target=True).sum(-1)
        return [-(weight * ours[torch.arange(len(rows)), targets]).sum(), (kl_weight * divergence).sum()]

    def step(self, optimizer: torch.optim.AdamW, number: int) -> float:
        """The gradient's norm before it was clipped."""
        optimizer.zero_grad()
        for index in micro_batches(number):
            sum(self.losses(packs()[index])).backward()
        wanted = rule(number)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), wanted.clip)
        for group in optimizer.param_groups:
            # torch multiplies the decay by the rate, too.
            group.update(lr=wanted.rate, weight_decay=wanted.decay, eps=wanted.eps, betas=(wanted.beta1, wanted.beta2))
        optimizer.step()
        return float(norm)


def rounded(numbers: np.ndarray) -> np.ndarray:
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(DROPPED // 2)) & ~np.uint32(DROPPED - 1)).view(np.float32)


def make(name: str, variant: Variant) -> None:
    case = Case(variant)
    losses = [case.losses(pack) for pack in packs()]
    sum(one for pack in losses for one in pack).backward()
    found = {key: rounded(rows) for key, rows in case.by_name(gradients=True).items()}
    optimizer = torch.optim.AdamW(case.parameters())
    norms = [case.step(optimizer, number) for number in range(STEPS)]
    found |= {f"{key}.after": rounded(rows) for key, rows in case.by_name().items()}
    found["losses"] = np.array([[one.item() for one in pack] for pack in losses], np.float32)
    path = EXPECTED / f"{name}.npz"
    np.savez_compressed(path, **found)
    print(f"{name:8} {path.stat().st_size} bytes, losses {found['losses'].tolist()}")
    print(f"{'':8} norms {[round(norm, 2) for norm in norms]}")


def main() -> None:
    EXPECTED.mkdir(exist_ok=True)
    for name, variant in CASES.items():
        make(name, variant)


if __name__ == "__main__":
    main()
