"""Predicted against measured γ of small transformers built from transformers' configurations, on random tokens.

    python scripts/transformers_calculus.py [seeds] [name ...]

The networks of `APART` took no part in the making of the rules.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import torch
import transformers as tf

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
    "CLIP text tower": ("CLIPTextModelWithProjection", "CLIPTextConfig", _sizes(128, 2, 4), 64),
}


def build(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """One network as initialised, and random inputs."""
    kind, config, options, size = (NETWORKS | APART)[name]
    settings = getattr(tf, config)(**options)
    settings.use_cache = False
    model = getattr(tf, kind)(settings).eval()
    if size > 0:
        return model, {"input_ids": torch.randint(3, TOKENS, (BATCH, size))}
    return model, {"pixel_values": torch.randn(BATCH, 3, -size, -size)}


def ratios(name: str, seeds: int) -> dict[str, float]:
    """log2 of predicted over measured γ by weight, of geometric means over seeds; NaN where none is predicted."""
    found: dict[str, list[tuple[float, float]]] = {}
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
        report = hessdiag.diagnose(
            model, inputs, targets, quick=True, signals=False, mode="eval", output=first, seed=seed, **how
        )
        for block in predict(model, inputs, **how).weights:
            measured = next((each.gamma for each in report.weights if each.name == block.name), math.nan)
            if measured > 0:
                found.setdefault(block.name, []).append((block.gamma, measured))
    return {name: mean(math.log2(p / m) for p, m in each) for name, each in found.items()}


def lines(names: list[str], seeds: int) -> Iterator[str]:
    """A line a network, and one for all."""
    everything: list[float] = []
    for name in names:
        try:
            found = ratios(name, seeds)
        except Exception as error:  # listed, and the others go on
            yield f"| {name} | {type(error).__name__}: {str(error)[:80]} | | |"
            continue
        off = [abs(x) for x in found.values() if math.isfinite(x)]
        everything += off
        worst = max((x for x in found if math.isfinite(found[x])), key=lambda x: abs(found[x]), default="")
        middle = f"{median(off):.2f}" if off else "–"
        yield f"| {name} | {len(off)} of {len(found)} | {middle} | {found.get(worst, math.nan):+.2f} {worst} |"
    everything.sort()
    if everything:
        within = everything[math.ceil(0.95 * len(everything)) - 1]
        yield f"| all | {len(everything)} | {median(everything):.2f} | 95 % within {within:.2f} |"


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    chosen = sys.argv[2:]
    for title, names in (("networks", list(NETWORKS)), ("kept apart", list(APART))):
        print(f"| {title} | weights | median abs log2 | largest |\n|---|---|---|---|")
        for line in lines([name for name in names if not chosen or name in chosen], seeds):
            print(line, flush=True)
