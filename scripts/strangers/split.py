"""Which cases rules may be written on, and which are only scored: by the source, once and for all.

A source goes to the half for writing where the first byte of its name's SHA-256 is below 128. All cases of a source go
together. The split was fixed before a rule was changed for any of these cases. On the gallery rules had been written
before.

Cases apart, whose source is the address of a report or a repository, were written without sight of the rules and of
what they say of any network. They are held out whatever their hash, and counted as they were first scored. So are
those of later such sets: the second is called blind, the third blind3, and so on up to blind53. Authors
of the others were asked for faults of new kinds; blind13 to blind16 are samples: every report that a list of searches
brings up and that can be rebuilt, as blind21 to blind53 are; blind17 to blind20 are of commits that mend a model, in
lists of repositories.
"""

from __future__ import annotations

import hashlib
from typing import Literal

Blind = Literal[
    "blind", "blind3", "blind4", "blind5", "blind6", "blind7", "blind8", "blind9", "blind10", "blind11", "blind12",
    "blind13", "blind14", "blind15", "blind16", "blind17", "blind18", "blind19", "blind20",
    "blind21", "blind22", "blind23", "blind24", "blind25", "blind26", "blind27", "blind28", "blind29", "blind30",
    "blind31", "blind32", "blind33", "blind34", "blind35", "blind36", "blind37", "blind38",
    "blind39", "blind40", "blind41", "blind42",
    "blind43", "blind44", "blind45", "blind46", "blind47", "blind48", "blind49", "blind50", "blind51",
    "blind52", "blind53",
]  # fmt: skip
Part = Literal["writing", "held out", "apart"] | Blind

SOURCES = {
    "MNIST example": "pytorch/examples", "VAE": "pytorch/examples", "Siamese network": "pytorch/examples",
    "LSTM language model": "pytorch/examples", "Quickstart MLP": "pytorch/tutorials", "First CNN": "pytorch/tutorials",
    "Seq2seq with attention": "pytorch/tutorials", "DQN": "pytorch/tutorials", "VGG-11-BN": "kuangliu/pytorch-cifar",
    "ResNet-18": "kuangliu/pytorch-cifar", "MobileNetV2": "kuangliu/pytorch-cifar",
    "DenseNet": "kuangliu/pytorch-cifar", "EfficientNet": "kuangliu/pytorch-cifar",
    "GroupNorm CNN": "kuangliu/pytorch-cifar", "ConvNeXt": "facebookresearch/ConvNeXt",
    "nanoGPT": "karpathy/nanoGPT", "minGPT": "karpathy/minGPT", "Llama": "meta-llama/llama",
    "Mamba, scanned": "johnma2006/mamba-minimal", "Mamba, parallel": "alxndrTL/mamba.py",
    "Text classifier": "huggingface/transformers", "transformers BERT": "huggingface/transformers",
    "transformers GPT-2": "huggingface/transformers", "GCN": "tkipf/pygcn", "GAT": "Diego999/pyGAT",
    "DeepSets": "manzilzaheer/DeepSets", "PointNet": "fxia22/pointnet.pytorch",
    "Actor-critic": "ikostrikov/pytorch-a2c-ppo-acktr-gail", "WaveNet": "vincentherrmann/pytorch-wavenet",
    "TCN": "locuslab/TCN", "DLRM": "facebookresearch/dlrm", "ViT": "lucidrains/vit-pytorch",
    "MAE": "facebookresearch/mae", "U-Net": "milesial/Pytorch-UNet", "CLIP": "openai/CLIP",
    "SimCLR": "sthalles/SimCLR", "Diffusion U-Net": "lucidrains/denoising-diffusion-pytorch",
    "SIREN": "vsitzmann/siren", "NeRF": "yenchenlin/nerf-pytorch",
}  # fmt: skip


def half(source: str) -> Part:
    """The half of a source; cases apart are a part of their own."""
    if source.startswith("https://"):
        return "apart"
    return "writing" if source == "gallery" or hashlib.sha256(source.encode()).digest()[0] < 128 else "held out"
