"""Norms of the query and value blocks of small transformers beside published ones: numbers that are not ours.

Ormaniec, Dangel and Singh (ICLR 2025, openreview.net/forum?id=3ddi7Uss2A) drew 20 networks each that add two numbers of
five digits, and saved square roots of ‖H‖_F² of the diagonal blocks of W_Q and W_V, by 20 products each. Their set-up
is built anew here; their results are read from a clone of github.com/dalab/transformer-hessian.

    python scripts/published_blocks.py CLONE/results --seeds 10
"""

from __future__ import annotations

import argparse
import io
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag

WIDTH, DIGITS, VOCABULARY, EXAMPLES, PRODUCTS = 128, 5, 12, 64, 8
SIGMAS = 10 ** np.linspace(-2, 1.0, 20)  # of the embeddings
CONFIGURATIONS = (("none", 1), ("none", 2), ("none", 3), ("pre", 1))
THEIRS = {"hessian": "", "ggn": "_outer"}


class Block(nn.Module):
    """One head of causal attention, and a layer of ReLUs."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = (nn.LayerNorm(WIDTH) if norm == "pre" else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        x = x + self.o(F.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h), is_causal=True))
        return x + self.down(F.relu(self.up(self.second(x))))


class Adder(nn.Module):
    """A transformer with weights N(0, 0.64 / width), biases 0, and embeddings N(0, sigma²)."""

    def __init__(self, layers: int, norm: str, sigma: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(3 * DIGITS + 3, WIDTH)
        self.blocks = nn.Sequential(*(Block(norm) for _ in range(layers)))
        self.last = nn.LayerNorm(WIDTH) if norm == "pre" else nn.Identity()
        self.logits = nn.Linear(WIDTH, VOCABULARY)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.8 / math.sqrt(WIDTH))
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=sigma)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.logits(self.last(self.blocks(x)))


def additions() -> tuple[Tensor, Tensor]:
    """Tokens "12345+67890=080235" (B, 18), and for each position the digit of the answer that follows, or -100."""
    torch.manual_seed(1234)
    x, y = (torch.randint(0, 10, (EXAMPLES, DIGITS)) for _ in range(2))
    powers = 10 ** torch.arange(DIGITS, -1, -1)
    total = (x * powers[1:]).sum(1) + (y * powers[1:]).sum(1)
    answer = total.unsqueeze(1) // powers % 10  # (B, 6)
    plus, equals = torch.full((EXAMPLES, 1), 10), torch.full((EXAMPLES, 1), 11)
    tokens = torch.cat([x, plus, y, equals, answer], dim=1)
    targets = torch.full_like(tokens, -100)
    targets[:, -DIGITS - 2 : -1] = answer
    return tokens, targets


def norm_of(model: nn.Module, block: str, matrix: str, seed: int) -> float:
    """‖H‖_F of one block, by a few products."""
    H = hessdiag.operator(model, *additions(), loss="cross-entropy", class_dim=-1, matrix=matrix, blocks=block)
    signs = torch.randint(0, 2, (H.shape[0], PRODUCTS), generator=torch.Generator().manual_seed(seed)).mul(2).sub(1)
    return float(H.torch_matmat(signs.float()).square().sum(dim=0).mean().sqrt())


class Plain(pickle.Unpickler):
    """Reads nothing but numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("scalar", "dtype"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no number")


def published(folder: Path, norm: str, layers: int, letter: str, matrix: str) -> Any:
    """{layer: (networks, sigmas)} of theirs."""
    settings = "scale=log_residual_scaling=1.0_linear_attention=False_loss=ce"
    file = folder / f"norm={norm}_num_layers={layers}_{settings}_frob_{letter}{THEIRS[matrix]}.pickle"
    held = Plain(io.BytesIO(file.read_bytes())).load()
    return {layer: np.array([each[r] for r in sorted(each)], dtype=float) for layer, each in held.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sigma", type=int, default=10, help="which of their 20")
    parser.add_argument("--out", type=Path, default=Path("figures/published_blocks.json"))
    arguments = parser.parse_args()
    ours: dict[tuple[str, int, str, int, str], list[float]] = {}
    for seed in range(arguments.seeds):
        for norm, layers in CONFIGURATIONS:
            torch.manual_seed(seed)
            model = Adder(layers, norm, float(SIGMAS[arguments.sigma]))
            for layer in range(layers):
                for letter in "qv":
                    for matrix in THEIRS:
                        found = norm_of(model, f"blocks.{layer}.{letter}.weight", matrix, seed)
                        ours.setdefault((norm, layers, letter, layer, matrix), []).append(found)
        print(f"network {seed + 1} of {arguments.seeds}", flush=True)
        if seed > 1:
            write(ours, arguments)


def write(ours: dict[tuple[str, int, str, int, str], list[float]], arguments: argparse.Namespace) -> None:
    """Save and print means over networks beside theirs, and z with both standard errors."""
    rows = []
    for (norm, layers, letter, layer, matrix), values in ours.items():
        theirs = published(arguments.results, norm, layers, letter, matrix)[layer][:, arguments.sigma]
        means = np.mean(values), theirs.mean()
        error = math.hypot(*(np.std(each, ddof=1) / math.sqrt(len(each)) for each in (values, theirs)))
        z = (means[0] - means[1]) / error
        row = {"norm": norm, "layers": layers, "block": letter, "layer": layer, "matrix": matrix}
        rows.append(row | {"ours": means[0], "theirs": means[1], "z": z, "networks": len(values)})
        print(f"{norm:5}{layers} {letter}{layer} {matrix:8} {means[0]:10.4g} {means[1]:10.4g}  z {z:+.2f}", flush=True)
    within = sum(abs(row["z"]) <= 3.5 for row in rows)
    print(f"{within} of {len(rows)} within 3.5 standard errors", flush=True)
    arguments.out.write_text(json.dumps({"sigma": float(SIGMAS[arguments.sigma]), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
