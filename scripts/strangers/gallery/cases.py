"""The table of public bugs, each before and after its repair."""

from strangers.gallery.case import Case
from strangers.gallery.convolutional import conv_xavier, depthwise_fan_out, zero_module
from strangers.gallery.data import images, pairs, pixels, points, text
from strangers.gallery.language import gpt2_cproj, lora_zero, t5_head, trunc_normal
from strangers.gallery.plain import linear_default, selu_gain, siren_first

GITHUB, CONV, DEPTHWISE = "https://github.com", (32, 48, 64), (32, 40, 48)
CASES: tuple[Case, ...] = (
    Case("gpt2-cproj", gpt2_cproj, text, ("*.attn.c_proj.weight", "*.mlp.c_proj.weight"),
         f"{GITHUB}/huggingface/transformers/issues/47458"),
    Case("trunc-normal", trunc_normal, text, ("*.2.attn.c_attn.weight", "*.5.mlp.c_fc.weight"),
         f"{GITHUB}/pytorch/pytorch/issues/155588"),
    Case("t5-head", t5_head, pairs, ("*lm_head.weight",), f"{GITHUB}/huggingface/transformers/pull/26441"),
    Case("depthwise-fan-out", depthwise_fan_out, images, ("*.depthwise.0.weight",),
         f"{GITHUB}/pytorch/pytorch/issues/23854", widths=DEPTHWISE),
    Case("conv-xavier", conv_xavier, images, ("tower.*.weight",),
         f"{GITHUB}/LeelaChessZero/lczero-training/pull/43", widths=CONV),
    Case("siren-first", siren_first, pixels, ("0.weight",), f"{GITHUB}/lucidrains/siren-pytorch/issues/1", loss="mse"),
    Case("lora-zero", lora_zero, text, ("*.lora_A", "*.lora_B"), f"{GITHUB}/Guitaricet/relora/issues/18"),
    Case("selu-gain", selu_gain, points, ("*.weight",), f"{GITHUB}/pytorch/pytorch/issues/54055"),
    Case("linear-default", linear_default, points, ("*.weight",), f"{GITHUB}/pytorch/pytorch/issues/15314"),
    Case("zero-module", zero_module, images, ("tower.*.conv2.weight",),
         f"{GITHUB}/huggingface/diffusers/issues/639", widths=CONV),
)  # fmt: skip
