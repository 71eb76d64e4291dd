"""Architectures of timm, torchvision, transformers and torch, as small as they go, by name.

Each is how to build it and what it reads. Random weights, few classes, small inputs, no download. Weights are moved off
their initial values, because those that start at zero hide what is behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

EXAMPLES = 3
CLASSES = 4


@dataclass(frozen=True)
class Architecture:
    """One line of the table.

    Attributes:
        library: where it comes from.
        make: builds it.
        inputs: a batch of what it reads.
        hessian: its Hessian is affordable, too.
    """

    library: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor | Mapping[str, Tensor]]
    hessian: bool = False

    def build(self) -> tuple[nn.Module, Tensor | Mapping[str, Tensor]]:
        """The model in float64 and in eval mode, and a batch."""
        torch.manual_seed(0)
        model = self.make().double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        return model, self.inputs()


def images(size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(EXAMPLES, 3, size, size, dtype=torch.float64)


def _timm(name: str, size: int, **options: Any) -> Architecture:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)

    return Architecture("timm", make, images(size))


def _timm_class(module: str, name: str, size: int, **options: Any) -> Architecture:
    """One whose factory has no option for its size."""

    def make() -> nn.Module:
        import timm.models

        return getattr(getattr(timm.models, module), name)(num_classes=CLASSES, **options)

    return Architecture("timm", make, images(size))


def _torchvision(make: Callable[[Any], nn.Module], size: int) -> Architecture:
    def built() -> nn.Module:
        import torchvision.models

        return make(torchvision.models)

    return Architecture("torchvision", built, images(size))


def tokens() -> dict[str, Tensor]:
    """Sentences, one of them padded."""
    mask = torch.ones(EXAMPLES, 5, dtype=torch.int64)
    mask[1, 3:] = 0
    return {"input_ids": torch.randint(2, 20, (EXAMPLES, 5)) * mask, "attention_mask": mask}


def ids(length: int = 5) -> dict[str, Tensor]:
    """Sentences without padding, the last word of each an end of text."""
    words = torch.randint(3, 20, (EXAMPLES, length))
    words[:, -1] = 2
    return {"input_ids": words}


TEXT = {
    **{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12},
    **{"max_position_embeddings": 16, "num_labels": 3, "pad_token_id": 0},
}
IMAGE = {
    **{"image_size": 16, "patch_size": 8, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 12, "num_labels": 3},
}


def _transformers(
    kind: str, task: str, inputs: Callable[[], Any], options: Mapping[str, Any], *, hessian: bool = False
) -> Architecture:
    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**options)
        return getattr(transformers, f"{kind}For{task}")(config)

    return Architecture("transformers", make, inputs, hessian)


def _text(kind: str, *, inputs: Callable[[], Any] = tokens, hessian: bool = False, **options: Any) -> Architecture:
    return _transformers(kind, "SequenceClassification", inputs, TEXT | options, hessian=hessian)


def _bare(kind: str, inputs: Callable[[], Any] = tokens, **options: Any) -> Architecture:
    """One with names of its own for the sizes."""
    return _transformers(kind, "SequenceClassification", inputs, {"vocab_size": 20, "num_labels": 3} | options)


def pixels(size: int) -> Callable[[], dict[str, Tensor]]:
    return lambda: {"pixel_values": images(size)()}


def _image(kind: str, size: int = 16, **options: Any) -> Architecture:
    return _transformers(kind, "ImageClassification", pixels(size), IMAGE | options)


class TimeFirst(nn.Module):
    """`nn.TransformerEncoderLayer` in its default layout, inside a model whose batch is first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x).transpose(0, 1)).mean(0))


class Siamese(nn.Module):
    """Both members of a pair behind one another in one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.encoder(torch.cat([x[:, 0], x[:, 1]])).chunk(2)
        return self.head((one - other).abs())


class Hypernetwork(nn.Module):
    """A network whose weights another one makes, of a code for each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(2, 3))
        self.make = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 16))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.make(self.codes).view(2, 4, 4):
            x = F.linear(x, weight).tanh()
        return self.head(x)


class Packed(nn.Module):
    """Sentences of several lengths, packed; a layer reads the packed positions of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Linear(4, 5), nn.LSTM(5, 6, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        lengths = 1 + (x[:, 1:, 0] > 0).sum(1)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        embedded = packed._replace(data=self.embed(packed.data).tanh())
        return self.head(self.cell(embedded)[1][0][-1])


class Experts(nn.Module):
    """Every position goes to the expert that a router picks."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4)) for _ in range(3)])
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights = self.router(rows).softmax(1)
        chosen, out = weights.argmax(1), torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            index = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, index, expert(rows[index]) * weights[index, number : number + 1])
        return self.head((rows + out).view_as(x).mean(1))


def _torch(make: Callable[[], nn.Module], *size: int) -> Architecture:
    return Architecture("torch", make, lambda: torch.randn(EXAMPLES, *size, dtype=torch.float64), hessian=True)


VIT = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
SWIN = {"img_size": 16, "patch_size": 2, "window_size": 2, "embed_dim": 8, "depths": (2, 2), "num_heads": (2, 2)}
SWIN_TORCHVISION = {
    **{"patch_size": [2, 2], "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": [2, 2]},
    **{"num_classes": CLASSES},
}
SWIN_TRANSFORMERS = {
    **{"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 2},
    "num_labels": 3,
}
STAGES = {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 16)}
MAXVIT = {"img_size": 64, "embed_dim": (32, 32), "depths": (1, 1), "stem_width": 8}

ARCHITECTURES: dict[str, Architecture] = {
    # timm: transformers of images
    "timm vit": _timm("vit_tiny_patch16_224", 16, **VIT),
    "timm deit distilled": _timm("deit_tiny_distilled_patch16_224", 16, **VIT),
    "timm vit_relpos": _timm("vit_relpos_small_patch16_224", 16, **VIT),
    "timm vit_relpos rpn": _timm("vit_relpos_medium_patch16_rpn_224", 16, **VIT),
    "timm vit_srelpos": _timm("vit_srelpos_small_patch16_224", 16, **VIT),
    "timm vit hybrid": _timm("vit_tiny_r_s16_p8_224", 32, img_size=32, embed_dim=16, depth=1, num_heads=2),
    "timm swin": _timm("swin_tiny_patch4_window7_224", 16, **SWIN),
    "timm swinv2": _timm("swinv2_tiny_window8_256", 16, **SWIN),
    "timm swinv2_cr": _timm("swinv2_cr_tiny_ns_224", 16, **SWIN),
    "timm xcit": _timm("xcit_nano_12_p16_224", 32, img_size=32, patch_size=16, embed_dim=16, depth=2, num_heads=2),
    "timm maxvit_rmlp": _timm("maxvit_rmlp_pico_rw_256", 64, **MAXVIT),
    "timm maxvit_tf": _timm("maxvit_tiny_tf_224", 64, **MAXVIT),
    "timm cait": _timm("cait_xxs24_224", 16, **VIT),
    "timm beit": _timm("beit_base_patch16_224", 16, **VIT),
    "timm eva02": _timm("eva02_tiny_patch14_224", 16, **VIT),
    "timm pit": _timm("pit_ti_224", 32, img_size=32, base_dims=(8, 8), depth=(1, 1), heads=(2, 2)),
    "timm levit": _timm(
        "levit_128s", 32, img_size=32, embed_dim=(16, 24, 32), depth=(1, 1, 1), num_heads=(2, 2, 2), key_dim=8
    ),
    "timm twins": _timm(
        *("twins_svt_small", 64),
        **{"img_size": 64, "embed_dims": (8, 16, 16, 16), "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2)},
        wss=(2, 2, 2, 2),
    ),
    "timm pvt_v2": _timm("pvt_v2_b0", 32, depths=(1, 1, 1, 1), embed_dims=(8, 8, 16, 16), num_heads=(1, 1, 2, 2)),
    "timm tiny_vit": _timm(
        "tiny_vit_5m_224", 64, depths=(1, 1, 1, 1), embed_dims=(8, 8, 16, 16), num_heads=(1, 1, 2, 2)
    ),
    "timm davit": _timm("davit_tiny", 32, depths=(1, 1), embed_dims=(8, 16), num_heads=(1, 2)),
    "timm convit": _timm("convit_tiny", 16, **VIT),
    "timm edgenext": _timm("edgenext_xx_small", 64, dims=(8, 8, 16, 16), depths=(1, 1, 1, 1)),
    "timm mobilevit": _timm("mobilevit_xxs", 64),
    "timm mixer": _timm_class("mlp_mixer", "MlpMixer", 16, img_size=16, patch_size=8, embed_dim=16, num_blocks=2),
    # timm: convolutions
    "timm tf_efficientnet_b0": _timm("tf_efficientnet_b0", 32),
    "timm tf_efficientnet_lite0": _timm("tf_efficientnet_lite0", 32),
    "timm test_efficientnet": _timm("test_efficientnet", 32),
    "timm mobilenetv3": _timm("mobilenetv3_small_050", 32),
    "timm mixnet": _timm("mixnet_s", 32),
    "timm ghostnet": _timm("ghostnet_050", 32),
    "timm convnext": _timm("convnext_atto", 32, **STAGES),
    "timm convnextv2": _timm("convnextv2_atto", 32, **STAGES),
    "timm resnet": _timm("resnet26", 32, channels=(8, 8, 16, 16), layers=(1, 1, 1, 1)),
    "timm skresnet": _timm("skresnet18", 32, channels=(16, 16, 16, 32), layers=(1, 1, 1, 1)),
    "timm resnest": _timm("resnest14d", 32, channels=(8, 8, 16, 16)),
    "timm nf_resnet": _timm("nf_resnet26", 32, width_factor=0.125),
    "timm test_nfnet": _timm("test_nfnet", 32),
    "timm tresnet": _timm("tresnet_m", 32, width_factor=0.25, layers=(1, 1, 1, 1)),
    "timm fastvit": _timm("fastvit_t8", 64, layers=(1, 1), embed_dims=(8, 16)),
    "timm densenet": _timm("densenet121", 32, block_config=(2, 2, 2, 2), growth_rate=4),
    "timm regnety": _timm("regnety_002", 32),
    # torchvision
    "torchvision swin": _torchvision(lambda tv: tv.SwinTransformer(**SWIN_TORCHVISION), 16),
    "torchvision swinv2": _torchvision(
        lambda tv: tv.SwinTransformer(
            **SWIN_TORCHVISION,
            block=tv.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=tv.swin_transformer.PatchMergingV2,
        ),
        16,
    ),
    "torchvision vit": _torchvision(
        lambda tv: tv.VisionTransformer(
            image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=CLASSES
        ),
        16,
    ),
    "torchvision maxvit": _torchvision(
        lambda tv: tv.MaxVit(*((32, 32), 8, 2, [8, 16], [1, 1], 8), stochastic_depth_prob=0.0, num_classes=CLASSES),
        32,
    ),
    "torchvision shufflenet": _torchvision(lambda tv: tv.shufflenet_v2_x0_5(num_classes=CLASSES), 32),
    "torchvision squeezenet": _torchvision(lambda tv: tv.squeezenet1_1(num_classes=CLASSES), 32),
    "torchvision mobilenet_v3": _torchvision(lambda tv: tv.mobilenet_v3_small(num_classes=CLASSES), 32),
    "torchvision mnasnet": _torchvision(lambda tv: tv.mnasnet0_5(num_classes=CLASSES), 32),
    # transformers: texts
    "transformers bert": _text("Bert", hessian=True),
    "transformers albert": _text("Albert", embedding_size=6, hessian=True),
    "transformers electra": _text("Electra", embedding_size=6),
    "transformers deberta": _text(
        "Deberta", relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=4
    ),
    "transformers deberta-v2": _text(
        "DebertaV2",
        **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4},
        **{"norm_rel_ebd": "layer_norm", "share_att_key": True},
    ),
    "transformers longformer": _text("Longformer", attention_window=4, sep_token_id=1, inputs=lambda: ids(8)),
    "transformers mpnet": _text("MPNet"),
    "transformers convbert": _text("ConvBert", embedding_size=8, conv_kernel_size=3),
    "transformers roformer": _text("RoFormer"),
    "transformers squeezebert": _text(
        "SqueezeBert",
        **{"embedding_size": 8, "q_groups": 2, "k_groups": 2, "v_groups": 2, "post_attention_groups": 1},
        **{"intermediate_groups": 2, "output_groups": 2},
    ),
    "transformers nystromformer": _text("Nystromformer"),
    "transformers big_bird": _text("BigBird", attention_type="original_full", sep_token_id=1),
    "transformers fnet": _text("FNet", inputs=ids),
    "transformers distilbert": _bare("DistilBert", dim=8, n_layers=2, n_heads=2, hidden_dim=12),
    "transformers xlnet": _bare("XLNet", d_model=8, n_layer=2, n_head=2, d_inner=12),
    "transformers funnel": _bare(
        "Funnel", d_model=8, block_sizes=[1, 1], num_decoder_layers=1, n_head=2, d_head=4, d_inner=12
    ),
    "transformers gpt2": _bare("GPT2", n_embd=8, n_layer=2, n_head=2, n_positions=16, pad_token_id=0),
    "transformers gpt_neo": _text(
        "GPTNeo", attention_types=[[["global", "local"], 1]], window_size=2, num_layers=2, num_heads=2
    ),
    "transformers llama": _text("Llama", num_key_value_heads=1),
    "transformers gemma2": _text("Gemma2", num_key_value_heads=1, head_dim=4),
    "transformers opt": _text("OPT", ffn_dim=12, word_embed_proj_dim=6),
    "transformers bloom": _text("Bloom", n_layer=2, n_head=2),
    "transformers falcon": _text("Falcon"),
    "transformers mamba": _transformers(
        "Mamba",
        "CausalLM",
        lambda: {"input_ids": torch.randint(5, (EXAMPLES, 3))},
        {"vocab_size": 5, "hidden_size": 8, "state_size": 3, "num_hidden_layers": 2, "use_mambapy": False},
    ),
    "transformers bart": _bare(
        "Bart",
        ids,
        **{"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2},
        **{"decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 16},
        **{"eos_token_id": 2, "pad_token_id": 1},
    ),
    # transformers: images and sound
    "transformers vit": _image("ViT"),
    "transformers beit": _image("Beit", use_relative_position_bias=True),
    "transformers swin": _transformers("Swin", "ImageClassification", pixels(16), SWIN_TRANSFORMERS),
    "transformers swinv2": _transformers("Swinv2", "ImageClassification", pixels(16), SWIN_TRANSFORMERS),
    "transformers convnext": _image("ConvNext", 32, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "transformers segformer": _image(
        *("Segformer", 32),
        **{"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16]},
        **{"patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
    ),
    "transformers focalnet": _image(
        *("FocalNet", 32),
        **{"embed_dim": 8, "depths": [1, 1], "patch_size": 4, "focal_levels": [2, 2], "focal_windows": [3, 3]},
        hidden_sizes=[8, 16],
    ),
    "transformers dinov2": _image("Dinov2"),
    "transformers wav2vec2": _transformers(
        "Wav2Vec2",
        "SequenceClassification",
        lambda: {"input_values": torch.randn(EXAMPLES, 60, dtype=torch.float64)},
        {
            **{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12},
            **{"conv_dim": [4, 4], "conv_stride": [2, 2], "conv_kernel": [3, 3], "num_feat_extract_layers": 2},
            **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 4},
            "num_labels": 3,
        },
    ),
    "transformers perceiver": _transformers(
        "Perceiver",
        "SequenceClassification",
        lambda: {"inputs": torch.randint(20, (EXAMPLES, 5))},
        {
            **{"num_latents": 3, "d_latents": 8, "d_model": 8, "num_blocks": 1, "num_self_attends_per_block": 1},
            **{"num_self_attention_heads": 2, "num_cross_attention_heads": 2, "vocab_size": 20},
            **{"max_position_embeddings": 8, "num_labels": 3},
        },
    ),
    # torch, in ways that users have
    "torch encoder layer, time first": _torch(TimeFirst, 3, 4),
    "torch siamese": _torch(Siamese, 2, 4),
    "torch hypernetwork": _torch(Hypernetwork, 4),
    "torch packed sequences": _torch(Packed, 4, 4),
    "torch mixture of experts": _torch(Experts, 4, 4),
}
