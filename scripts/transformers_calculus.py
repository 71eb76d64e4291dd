"""Predicted against measured γ and σ²: small transformers from transformers' configurations, MLPs, CNNs.

    python scripts/transformers_calculus.py [seeds] [name ...]     # on random tokens
    TEXT=FILE python scripts/transformers_calculus.py [seeds]      # on the bytes of a text
    python scripts/transformers_calculus.py moments DRAWS          # one attention on a grid: percentiles of errors
    python scripts/transformers_calculus.py feedforward DRAWS      # MLPs and CNNs

The networks of `APART` took no part in the making of the rules of γ.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

import torch
import torch.nn.functional as F
import transformers as tf
from torch import nn

import hessdiag
from hessdiag.calculus import predict

TOKENS, BATCH = 512, 6
IMAGES = {"image_size": 32, "patch_size": 4, "num_labels": 10}


def _sizes(width: int, depth: int, heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads}
    return {**sizes, "intermediate_size": 4 * width, "vocab_size": TOKENS, "max_position_embeddings": 130, **more}


def _gpt(width: int, depth: int, heads: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": depth, "n_head": heads, "vocab_size": TOKENS, "n_positions": 130}


OPT = {"ffn_dim": 512, "word_embed_proj_dim": 128}
SWIN = {"embed_dim": 48, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
WHISPER = {"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 512, "num_labels": 10,
           "num_mel_bins": 20, "max_source_positions": 32, "pad_token_id": 0, "vocab_size": TOKENS}  # fmt: skip
GLOBAL = {"attention_types": [[["global"], 2]], "num_layers": 2, "num_heads": 4}

# name: (class, configuration, its options, positions or pixels)
NETWORKS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", _gpt(128, 3, 4), 64),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _sizes(128, 2, 4), 64),
    "GPT-Neo": ("GPTNeoForCausalLM", "GPTNeoConfig", _sizes(128, 2, 4) | GLOBAL, 64),
    "OPT": ("OPTForCausalLM", "OPTConfig", _sizes(128, 2, 4) | OPT, 64),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", _sizes(128, 3, 4), 64),
    "Mistral": ("MistralForCausalLM", "MistralConfig", _sizes(128, 2, 8, num_key_value_heads=2), 64),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _sizes(192, 2, 6, num_key_value_heads=2), 48),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _sizes(128, 2, 4, num_key_value_heads=2, head_dim=32), 64),
    "Gemma": ("GemmaForCausalLM", "GemmaConfig", _sizes(128, 2, 4, num_key_value_heads=1, head_dim=32), 64),
    "Phi": ("PhiForCausalLM", "PhiConfig", _sizes(128, 2, 4), 64),
    "StableLM": ("StableLmForCausalLM", "StableLmConfig", _sizes(128, 2, 4, num_key_value_heads=4), 64),
    "BERT": ("BertForMaskedLM", "BertConfig", _sizes(128, 3, 4), 64),
    "RoBERTa": ("RobertaForMaskedLM", "RobertaConfig", _sizes(128, 2, 4), 64),
    "ELECTRA": ("ElectraForMaskedLM", "ElectraConfig", _sizes(128, 2, 4, embedding_size=64), 64),
    "T5 encoder": ("T5EncoderModel", "T5Config",
                   {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 4, "vocab_size": TOKENS},
                   64),
    "ViT": ("ViTForImageClassification", "ViTConfig", _sizes(128, 3, 4) | IMAGES, -32),
    "DeiT": ("DeiTForImageClassification", "DeiTConfig", _sizes(128, 2, 4) | IMAGES, -32),
    "CLIP image tower": ("CLIPVisionModelWithProjection", "CLIPVisionConfig", _sizes(128, 2, 4) | IMAGES, -32),
    "Swin": ("SwinForImageClassification", "SwinConfig", IMAGES | SWIN, -32),
    "Whisper encoder": ("WhisperForAudioClassification", "WhisperConfig", WHISPER, 64),
}  # fmt: skip
APART: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "OLMo": ("OlmoForCausalLM", "OlmoConfig", _sizes(96, 4, 4), 96),
    "StarCoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", _sizes(128, 2, 4, num_key_value_heads=2), 32),
    "Phi-3": ("Phi3ForCausalLM", "Phi3Config", _sizes(128, 3, 4, pad_token_id=0), 64),
    "Granite": ("GraniteForCausalLM", "GraniteConfig", _sizes(64, 4, 4), 128),
    "GPT-J": ("GPTJForCausalLM", "GPTJConfig", _gpt(128, 2, 4) | {"rotary_dim": 16}, 64),
    "BERT, deeper": ("BertForMaskedLM", "BertConfig", _sizes(192, 4, 6), 32),
    "DINOv2": ("Dinov2Model", "Dinov2Config", _sizes(128, 2, 4) | IMAGES, -32),
    "SigLIP image tower": ("SiglipVisionModel", "SiglipVisionConfig", _sizes(128, 2, 4) | IMAGES, -32),
    "CLIP text tower": ("CLIPTextModelWithProjection", "CLIPTextConfig", _sizes(128, 2, 4, eos_token_id=2), 64),
    "GPT-2, 12 layers": ("GPT2LMHeadModel", "GPT2Config", _gpt(256, 12, 8), 128),
    "Llama, 512 wide": ("LlamaForCausalLM", "LlamaConfig", _sizes(512, 4, 8) | {"max_position_embeddings": 256}, 256),
    "BERT, 12 layers": ("BertForMaskedLM", "BertConfig", _sizes(256, 12, 4), 64),
    "ViT, 12 layers": ("ViTForImageClassification", "ViTConfig", _sizes(192, 12, 3) | IMAGES, -32),
}


def build(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """One network as initialised, and random inputs."""
    kind, config, options, size = (NETWORKS | APART)[name]
    settings = getattr(tf, config)(**options)
    settings.use_cache = False
    model = getattr(tf, kind)(settings).eval()
    if kind.startswith("Whisper"):
        return model, {"input_features": torch.randn(BATCH, options["num_mel_bins"], size)}
    if size < 0:
        return model, {"pixel_values": torch.randn(BATCH, 3, -size, -size)}
    if "TEXT" in os.environ:
        ids = torch.tensor(list(Path(os.environ["TEXT"]).read_bytes()))
        return model, {
            "input_ids": torch.stack([ids[at : at + size] for at in torch.randint(len(ids) - size, (BATCH,))])
        }
    return model, {"input_ids": torch.randint(3, TOKENS, (BATCH, size))}


KEYS = ("gamma", "avg_sq_singular_value")
Ratios = dict[str, tuple[float, ...]]


def ratios(name: str, seeds: int) -> Ratios:
    """log2 of predicted over measured γ and σ² by weight, of geometric means over seeds; NaN where there is none."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        torch.manual_seed(seed)
        model, inputs = build(name)
        outputs = model(**inputs)
        first, y = next(iter(outputs.items()))
        if first == "logits":
            loss, targets = "cross-entropy", torch.randint(y.shape[-1], y.shape[:-1])
        else:
            loss, targets = "mse", torch.randn(y.shape)
        how: dict[str, Any] = {"loss": loss, "class_dim": -1 if loss == "cross-entropy" else None}
        report = hessdiag.diagnose(model, inputs, targets, signals=False, mode="eval", output=first, seed=seed, **how)
        for block in predict(model, inputs, **how).weights:
            measured = next((each for each in report.weights if each.name == block.name), None)
            if measured is not None and measured.gamma > 0:
                pairs = [(getattr(block, key), getattr(measured, key)) for key in KEYS]
                found.setdefault(block.name, []).append([math.log2(p / m) if m > 0 else math.nan for p, m in pairs])
    return {name: tuple(map(mean, zip(*each, strict=True))) for name, each in found.items()}


def lines(names: list[str], seeds: int) -> Iterator[str]:
    """A line a network, and one for all."""
    everything: list[tuple[float, ...]] = []
    for name in names:
        try:
            found = ratios(name, seeds)
        except Exception as error:  # listed, and the others go on
            yield f"| {name} | {type(error).__name__}: {str(error)[:80]} | | | | |"
            continue
        told = {weight: each for weight, each in found.items() if all(map(math.isfinite, each))}
        everything += told.values()
        cells = []
        for of in range(len(KEYS)):
            worst = max(told, key=lambda weight: abs(told[weight][of]), default="")
            cells += (
                [f"{median(abs(each[of]) for each in told.values()):.2f}", f"{told[worst][of]:+.2f} {worst}"]
                if told
                else ["–", "none"]
            )
        yield f"| {name} | {len(told)} of {len(found)} | {' | '.join(cells)} |"
    sizes = [sorted(abs(each[of]) for each in everything) for of in range(len(KEYS))]
    if everything:
        at = [math.ceil(share * len(everything)) - 1 for share in (0.9, 0.95)]
        cells = [f"{median(each):.2f} | 90 % within {each[at[0]]:.2f}, 95 % {each[at[1]]:.2f}" for each in sizes]
        yield f"| all | {len(everything)} | {' | '.join(cells)} |"


class Attention(nn.Module):
    """One attention of several heads, with scores of variance `u_sq` and inputs of which positions share `c`."""

    def __init__(self, d: int, heads: int, u_sq: float, c: float, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.c = heads, causal, c
        for name in "qkvo":
            self.add_module(name, nn.Linear(d, d, bias=False))
            size = (u_sq / (1 - c)) ** 0.25 if name in "qk" else 1.0
            nn.init.normal_(getattr(self, name).weight, std=size / math.sqrt(d))
        self.shift = nn.Parameter(F.normalize(torch.randn(d), dim=0) * math.sqrt(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = math.sqrt(self.c) * self.shift + math.sqrt(1 - self.c) * x
        self.seen = [getattr(self, name)(x) for name in "qkv"]
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.seen)
        self.out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        return self.o(self.out)


def moments(draws: int) -> Iterator[str]:
    """Percentiles of |predicted / simulated - 1| of second moments: of the result, and of gradients of q, k and v.

    Those of the simulation's own standard errors stand below.
    """
    names = ("o", "Δq", "Δk", "Δv")
    off: dict[str, list[float]] = {name: [] for name in (*names, *(f"noise of {name}" for name in names))}
    grid = itertools.product((64, 128, 256), (64, 256), (16, 64), (0.01, 0.3, 1.0, 2.0), (0.0, 0.3, 0.6), (False, True))
    for number, (T, d, n, u_sq, c, causal) in enumerate(grid):
        drawn = []
        for draw in range(draws):
            torch.manual_seed(100 * number + draw)
            model = Attention(d, d // n, u_sq, c, causal=causal)
            y = model(torch.randn(6, T, d))
            g = torch.randn_like(y)
            gradients = torch.autograd.grad(y, model.seen, g)
            drawn.append(torch.stack([each.detach().double().square().mean() for each in (model.out, *gradients)]))
        blocks = {block.name[0]: block for block in predict(model, (T, d)).weights}
        predicted = [blocks["o"].x_sq, *(blocks[x].out_gradient_sq / blocks["o"].out_gradient_sq for x in "qkv")]
        simulated = torch.stack(drawn)  # (draws, 4)
        noise = simulated.std(0) / simulated.mean(0) / math.sqrt(draws)
        for name, p, m, stderr in zip(names, predicted, simulated.mean(0).tolist(), noise.tolist(), strict=True):
            off[name].append(abs(p / m - 1))
            off[f"noise of {name}"].append(stderr)
    yield f"| percentile of {number + 1} | 50 | 90 | 95 | 99 |\n|---|---|---|---|---|"
    for name, each in off.items():
        each.sort()
        cells = [f"{100 * each[math.ceil(share * len(each)) - 1]:.1f} %" for share in (0.5, 0.9, 0.95, 0.99)]
        yield f"| {name} | {' | '.join(cells)} |"


class Residual(nn.Module):
    """Two convolutions beside a skip connection, without normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.b(torch.relu(self.a(x))))


POOLS = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


def feedforward(plan: str) -> nn.Sequential:
    """Layers by their names: 16 a convolution, 16/2 one with stride 2, a pooling, a block, widths behind a bar."""
    layers: list[nn.Module] = []
    before, _, widths = plan.partition("|")
    channels, size = 3, 32
    for word in before.split():
        if word in POOLS:
            layers, size = [*layers, POOLS[word](2)], size // 2
        elif word == "global":
            layers, size = [*layers, nn.AdaptiveAvgPool2d(1)], 1
        elif word == "residual":
            layers.append(Residual(channels))
        else:
            width, _, stride = word.partition("/")
            layers += [nn.Conv2d(channels, int(width), 3, int(stride or 1), padding=1), nn.ReLU()]
            channels, size = int(width), size // int(stride or 1)
    layers, inputs = ([*layers, nn.Flatten()], channels * size**2) if before.strip() else (layers, 64)
    for width in map(int, widths.split()):
        layers, inputs = [*layers, nn.Linear(inputs, width), nn.ReLU()], width
    return nn.Sequential(*layers[:-1])


PLANS = {
    "MLP": "|128 128 10",
    "MLP of 8 layers": "|64 64 64 64 64 64 64 10",
    "strides": "16/2 32/2 32/2 |10",
    "average pooling, perceptron": "8 average 16 average |120 84 10",
    "max pooling, perceptron": "8 max 16 max |120 84 10",
    "VGG": "16 16 max 32 32 max 64 64 max |128 10",
    "strides, global pooling": "16 32/2 32 64/2 global |10",
    "max and global pooling": "16 max 32 max 64 global |10",
    "residual, without normalisation": "16 residual residual average |10",
}


def errors(plan: str, init: str | None, loss: str, draws: int) -> Iterator[list[float]]:
    """Of every weight |log2(predicted/measured)| of γ and σ², of geometric means over draws, and of σ² of means."""
    found: dict[str, list[list[float]]] = {}
    size = (3, 32, 32) if plan.partition("|")[0] else (64,)
    for seed in range(draws):
        torch.manual_seed(seed)
        model = feedforward(plan)
        if init:
            hessdiag.init.apply(model, init)
        targets = torch.randint(10, (16,)) if loss == "cross-entropy" else None
        report = hessdiag.diagnose(model, torch.randn(16, *size), targets, loss=loss, seed=seed, signals=False)
        for block in report.weights:
            found.setdefault(block.name, []).append([getattr(block, key) for key in KEYS])
    for block in predict(feedforward(plan).to("meta"), size, init=init, loss=loss).weights:
        columns = list(zip(*found[block.name], strict=True))
        sizes = [*map(geometric_mean, columns), mean(columns[1])]
        predicted = [getattr(block, key) for key in (*KEYS, KEYS[1])]
        yield [abs(math.log2(p / m)) for p, m in zip(predicted, sizes, strict=True)]


def of_feedforward(draws: int) -> Iterator[str]:
    """A line a network: median and 90th percentile of its errors, with PyTorch's initialisation and He's."""
    every: list[list[float]] = []
    yield "| network | weights | γ | 90 % in | σ² | 90 % in | mean σ² | 90 % in |\n|---|---|---|---|---|---|---|---|"
    for title, plan in [*PLANS.items(), ("all", "")]:
        cases = itertools.product((None, "fan-in"), ("cross-entropy", "random-quadratic")) if plan else ()
        off = [each for case in cases for each in errors(plan, *case, draws)] or every
        every = [*every, *off]
        columns = [sorted(each) for each in zip(*off, strict=True)]
        cells = [f"{median(each):.2f} | {each[math.ceil(0.9 * len(each)) - 1]:.2f}" for each in columns]
        yield f"| {title} | {len(off)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1:2] in (["moments"], ["feedforward"]):
        for line in (moments if sys.argv[1] == "moments" else of_feedforward)(int(sys.argv[2])):
            print(line, flush=True)
        raise SystemExit
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = sys.argv[2:]
    for title, names in (("networks", list(NETWORKS)), ("kept apart", list(APART))):
        print(f"| {title} | weights | γ: median abs log2 | largest | σ²: median abs log2 | largest |")
        print("|---|---|---|---|---|---|")
        for line in lines([name for name in names if not chosen or name in chosen], seeds):
            print(line, flush=True)
