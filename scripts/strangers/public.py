"""Measure public models as their authors wrote them: figures/public_models.json, for docs/evidence.md.

    git clone https://github.com/kuangliu/pytorch-cifar; git clone ...      # REPOSITORIES, into one folder
    python scripts/strangers/public.py FOLDER [REPOSITORY ...]

None of them took part when rules were written. Each is built with its own defaults, in small sizes where it takes
sizes, and diagnosed once with `quick=True`, as built, on random inputs.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import nn

import hessdiag

RESULTS = Path(__file__).resolve().parents[2] / "figures" / "public_models.json"
Case = tuple[str, Callable[[], nn.Module], Any, torch.Tensor, dict[str, Any]]

CIFAR = "LeNet ResNet18 PreActResNet18 GoogLeNet DenseNet121 ResNeXt29_2x64d MobileNet MobileNetV2 DPN26"
CIFAR += " SENet18 EfficientNetB0 RegNetX_200MF SimpleDLA PNASNetA"
CIFAR100 = "vgg:vgg11_bn googlenet:googlenet inceptionv3:inceptionv3 xception:xception resnet:resnet18"
CIFAR100 += " preactresnet:preactresnet18 resnext:resnext50 attention:attention56 squeezenet:squeezenet"
CIFAR100 += " mobilenet:mobilenet mobilenetv2:mobilenetv2 shufflenet:shufflenet shufflenetv2:shufflenetv2"
CIFAR100 += " wideresidual:wideresnet stochasticdepth:stochastic_depth_resnet18 senet:seresnet18 rir:resnet_in_resnet"
SERIES = "DLinear Transformer Informer Autoformer FEDformer PatchTST iTransformer TimesNet Nonstationary_Transformer"
SERIES += " LightTS TSMixer TiDE FreTS SegRNN Crossformer Pyraformer FiLM TimeMixer MSGNet TimeXer MambaSimple PAttn"
SERIES += " MultiPatchFormer"
SIZES = {"image_size": 64, "patch_size": 16, "num_classes": 10, "dim": 64, "depth": 3, "heads": 4, "mlp_dim": 128}
WIDE = SIZES | {"patch_size": 8, "depth": 2}
VITS: dict[str, dict[str, Any]] = {
    "vit:ViT": SIZES,
    "simple_vit:SimpleViT": SIZES,
    "simple_vit_with_qk_norm:SimpleViT": SIZES,
    "simple_vit_with_patch_dropout:SimpleViT": SIZES | {"patch_dropout": 0.25},
    "simple_vit_with_register_tokens:SimpleViT": SIZES,
    "deepvit:DeepViT": SIZES,
    "parallel_vit:ViT": SIZES | {"num_parallel_branches": 2},
    "learnable_memory_vit:ViT": SIZES,
    "vit_for_small_dataset:ViT": SIZES,
    "rvt:RvT": SIZES,
    "normalized_vit:nViT": SIZES,
    "cait:CaiT": SIZES | {"cls_depth": 2, "layer_dropout": 0.05},
    "xcit:XCiT": WIDE | {"cls_depth": 1, "layer_dropout": 0.05},
    "pit:PiT": WIDE | {"depth": (1, 1, 1)},
    "scalable_vit:ScalableViT": {"num_classes": 10, "dim": 16, "depth": (1, 1, 1, 1), "heads": (2, 2, 4, 4)}
    | {"ssa_dim_key": (8, 8, 8, 8), "reduction_factor": (4, 2, 2, 1), "window_size": (4, 4, 2, None)},
    "t2t:T2TViT": {key: value for key, value in SIZES.items() if key != "patch_size"}
    | {"t2t_layers": ((7, 4), (3, 2), (3, 2))},
    "levit:LeViT": {"image_size": 64, "num_classes": 10, "stages": 3, "dim": (64, 96, 128), "depth": 2, "heads": 2}
    | {"mlp_mult": 2},
    "cvt:CvT": {"num_classes": 10, "s1_emb_dim": 32, "s2_emb_dim": 48, "s3_emb_dim": 64, "s3_depth": 2},
    "max_vit:MaxViT": {"num_classes": 10, "dim_conv_stem": 16, "dim": 16, "dim_head": 8, "depth": (1, 1)}
    | {"window_size": 4},
    "nest:NesT": {"image_size": 64, "patch_size": 8, "dim": 32, "heads": 2, "num_hierarchies": 2, "num_classes": 10}
    | {"block_repeats": (1, 1)},
}


def image_cases(names: str, classes: int) -> Iterator[Case]:
    """Classifiers of images of 32², each a function without arguments, of a module of its own or of the package."""
    x, t = torch.randn(16, 3, 32, 32), torch.randint(classes, (16,))
    for name in names.split():
        module, colon, function = name.rpartition(":")
        build = getattr(importlib.import_module(f"models.{module}" if colon else "models"), function)
        yield function, build, x, t, {}


def vit_cases() -> Iterator[Case]:
    x, t = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
    for name, sizes in VITS.items():
        module, _, function = name.partition(":")
        build = getattr(importlib.import_module(f"vit_pytorch.{module}"), function)
        yield name, lambda build=build, sizes=sizes: build(**sizes), x, t, {}


def series_cases() -> Iterator[Case]:
    """Forecasts of 24 steps of seven random walks from 96, with the marks of time as features."""
    walk = torch.randn(8, 120, 7).cumsum(1)
    walk = (walk - walk.mean((0, 1))) / walk.std((0, 1))
    known = torch.cat([walk[:, 48:96], torch.zeros(8, 24, 7)], 1)
    inputs = (walk[:, :96], torch.rand(8, 96, 4) - 0.5, known, torch.rand(8, 72, 4) - 0.5)
    options = SimpleNamespace(
        task_name="long_term_forecast", seq_len=96, label_len=48, pred_len=24, e_layers=2, d_layers=1, factor=3,
        enc_in=7, dec_in=7, c_out=7, d_model=32, n_heads=4, d_ff=64, dropout=0.1, embed="timeF", freq="h", top_k=3,
        activation="gelu", distil=True, moving_avg=25, num_kernels=3, num_class=1, seg_len=24, patch_len=16, expand=2,
        d_conv=4, channel_independence=1, decomp_method="moving_avg", use_norm=1, down_sampling_layers=2, use_gpu=False,
        down_sampling_window=2, down_sampling_method="avg", p_hidden_dims=[32, 32], p_hidden_layers=2, device="cpu",
        version="Fourier", mode_select="random", modes=8, individual=False, batch_size=8, node_dim=10, gcn_depth=2,
        gcn_dropout=0.3, propalpha=0.3, conv_channel=32, skip_channel=32, subgraph_size=3, features="M", d_state=8,
    )  # fmt: skip
    for name in SERIES.split():
        build = importlib.import_module(f"models.{name}").Model
        yield name, lambda build=build: build(options), inputs, walk[:, -24:], {}


def gpt_cases() -> Iterator[Case]:
    from model import GPT, GPTConfig

    tokens, size = torch.randint(200, (4, 33)), {"n_layer": 4, "n_head": 4, "n_embd": 64}
    config = GPTConfig(block_size=32, vocab_size=200, **size)
    x, t = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    yield "GPT", lambda: GPT(config), (x, t), t, {"loss": "model"}


REPOSITORIES: dict[str, Callable[[], Iterator[Case]]] = {
    "kuangliu/pytorch-cifar": lambda: image_cases(CIFAR, 10),
    "weiaicunzai/pytorch-cifar100": lambda: image_cases(CIFAR100, 100),
    "lucidrains/vit-pytorch": vit_cases,
    "thuml/Time-Series-Library": series_cases,
    "karpathy/nanoGPT": gpt_cases,
}


def measure(case: Case) -> dict[str, Any]:
    """The verdict with warnings and faults, or the sentence in its place."""
    _, build, inputs, targets, options = case
    torch.manual_seed(0)
    model = build()
    try:
        report = hessdiag.diagnose(model, inputs, targets, quick=True, progress=False, **options)
    except hessdiag.HessdiagError as error:
        return {"verdict": "refused", "said": str(error)}
    grave = [f"{each.rule} {each.severity}: {each.message}" for each in report.findings if each.severity != "note"]
    return {"verdict": report.verdict.level, "findings": grave}


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for unused in ("torchvision", "torchvision.transforms", "torchvision.models", "reformer_pytorch", "patoolib"):
        sys.modules.setdefault(unused, MagicMock())  # imported beside the models, of which none needs it
    folder, *asked = sys.argv[1:]
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for repository in asked or REPOSITORIES:
        found[repository] = {}
        for name in [each for each in sys.modules if each.partition(".")[0] in ("models", "utils", "model", "layers")]:
            del sys.modules[name]
        sys.path[0] = str(Path(folder) / repository.partition("/")[2])  # a folder may be no regular package
        torch.manual_seed(1)
        for case in REPOSITORIES[repository]():
            found[repository][case[0]] = told = measure(case)
            print(f"{repository} {case[0]}: {told['verdict']}", *told.get("findings", [told.get("said")]), flush=True)
            RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
