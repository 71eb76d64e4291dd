"""The table of public bugs, each before and after its repair."""

from __future__ import annotations

from tests.gallery.case import Case
from tests.gallery.convolutional import conv_xavier, depthwise_fan_out, zero_module
from tests.gallery.data import images, pairs, pixels, points, text
from tests.gallery.language import gpt2_cproj, lora_zero, t5_head, trunc_normal
from tests.gallery.plain import linear_default, selu_gain, siren_first

GITHUB = "https://github.com/"

CASES: tuple[Case, ...] = (
    Case(
        name="gpt2-cproj",
        source=GITHUB + "huggingface/transformers/issues/47458",
        story="The projections that end residual branches drew N(0, 0.02²), without GPT-2's factor 1/√(2L).",
        make=gpt2_cproj,
        draw=text,
        guilty=("*.attn.c_proj.weight", "*.mlp.c_proj.weight"),
    ),
    Case(
        name="trunc-normal",
        source=GITHUB + "pytorch/pytorch/issues/155588",
        story="A truncated normal with std 0.02 and absolute bounds ±2 put a few entries at the bounds.",
        make=trunc_normal,
        draw=text,
        guilty=("*.2.attn.c_attn.weight", "*.5.mlp.c_fc.weight"),
    ),
    Case(
        name="t5-head",
        source=GITHUB + "huggingface/transformers/pull/26441",
        story="The head that is not tied to the embedding drew N(0, 1); its logits are d times too large.",
        make=t5_head,
        draw=pairs,
        guilty=("*lm_head.weight",),
    ),
    Case(
        name="depthwise-fan-out",
        source=GITHUB + "pytorch/pytorch/issues/23854",
        story="The fan-out of depthwise convolutions was k²·out, not divided by the groups.",
        make=depthwise_fan_out,
        draw=images,
        guilty=("*.depthwise.0.weight",),
        widths=(32, 40, 48),
    ),
    Case(
        name="conv-xavier",
        source=GITHUB + "LeelaChessZero/lczero-training/pull/43",
        story="Xavier's formula summed all four dimensions of a kernel, where k² multiplies the channels.",
        make=conv_xavier,
        draw=images,
        guilty=("tower.*.weight",),
        widths=(32, 48, 64),
    ),
    Case(
        name="siren-first",
        source=GITHUB + "lucidrains/siren-pytorch/issues/1",
        story="The first layer drew like the hidden ones, so that its sines spanned a fraction of a period.",
        make=siren_first,
        draw=pixels,
        guilty=("0.weight",),
        loss="mse",
    ),
    Case(
        name="lora-zero",
        source=GITHUB + "Guitaricet/relora/issues/18",
        story="Both factors of the low-rank updates started at zero, where both gradients vanish.",
        make=lora_zero,
        draw=text,
        guilty=("*.lora_A", "*.lora_B"),
    ),
    Case(
        name="selu-gain",
        source=GITHUB + "pytorch/pytorch/issues/54055",
        story="torch's gain for SELU is 3/4, where self-normalisation needs 1.",
        make=selu_gain,
        draw=points,
        guilty=("*.weight",),
    ),
    Case(
        name="linear-default",
        source=GITHUB + "pytorch/pytorch/issues/15314",
        story="PyTorch's default, kaiming_uniform(a=√5), leaves a third of the variance in every layer.",
        make=linear_default,
        draw=points,
        guilty=("*.weight",),
    ),
    Case(
        name="zero-module",
        source=GITHUB + "huggingface/diffusers/issues/639",
        story="The zero-initialised last convolutions of residual branches were overwritten by Kaiming's.",
        make=zero_module,
        draw=images,
        guilty=("tower.*.conv2.weight",),
        widths=(32, 48, 64),
    ),
)
