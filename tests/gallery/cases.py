"""The table of public bugs, each before and after its repair."""

from __future__ import annotations

from tests.gallery.case import Case
from tests.gallery.convolutional import conv_xavier, depthwise_fan_out, zero_module
from tests.gallery.data import images, pairs, pixels, points, text
from tests.gallery.language import gpt2_cproj, lora_zero, t5_head, trunc_normal
from tests.gallery.plain import linear_default, selu_gain, siren_first

GITHUB = "https://github.com/"
CONV, DEPTHWISE = (32, 48, 64), (32, 40, 48)

CASES: tuple[Case, ...] = (
    Case("gpt2-cproj", GITHUB + "huggingface/transformers/issues/47458",
         "The projections that end residual branches drew N(0, 0.02²), without GPT-2's factor 1/√(2L).",
         gpt2_cproj, text, ("*.attn.c_proj.weight", "*.mlp.c_proj.weight")),
    Case("trunc-normal", GITHUB + "pytorch/pytorch/issues/155588",
         "A truncated normal with std 0.02 and absolute bounds ±2 put a few entries at the bounds.",
         trunc_normal, text, ("*.2.attn.c_attn.weight", "*.5.mlp.c_fc.weight")),
    Case("t5-head", GITHUB + "huggingface/transformers/pull/26441",
         "The head that is not tied to the embedding drew N(0, 1); its logits are d times too large.",
         t5_head, pairs, ("*lm_head.weight",)),
    Case("depthwise-fan-out", GITHUB + "pytorch/pytorch/issues/23854",
         "The fan-out of depthwise convolutions was k²·out, not divided by the groups.",
         depthwise_fan_out, images, ("*.depthwise.0.weight",), widths=DEPTHWISE),
    Case("conv-xavier", GITHUB + "LeelaChessZero/lczero-training/pull/43",
         "Xavier's formula summed all four dimensions of a kernel, where k² multiplies the channels.",
         conv_xavier, images, ("tower.*.weight",), widths=CONV),
    Case("siren-first", GITHUB + "lucidrains/siren-pytorch/issues/1",
         "The first layer drew like the hidden ones, so that its sines spanned a fraction of a period.",
         siren_first, pixels, ("0.weight",), loss="mse"),
    Case("lora-zero", GITHUB + "Guitaricet/relora/issues/18",
         "Both factors of the low-rank updates started at zero, where both gradients vanish.",
         lora_zero, text, ("*.lora_A", "*.lora_B")),
    Case("selu-gain", GITHUB + "pytorch/pytorch/issues/54055",
         "torch's gain for SELU is 3/4, where self-normalisation needs 1.",
         selu_gain, points, ("*.weight",)),
    Case("linear-default", GITHUB + "pytorch/pytorch/issues/15314",
         "PyTorch's default, kaiming_uniform(a=√5), leaves a third of the variance in every layer.",
         linear_default, points, ("*.weight",)),
    Case("zero-module", GITHUB + "huggingface/diffusers/issues/639",
         "The zero-initialised last convolutions of residual branches were overwritten by Kaiming's.",
         zero_module, images, ("tower.*.conv2.weight",), widths=CONV),
)  # fmt: skip
