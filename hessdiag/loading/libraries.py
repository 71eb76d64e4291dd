"""Names of networks that people know from other libraries, and how they are written here."""

from __future__ import annotations

import re

TEXT = (
    "albert", "bart", "bert", "bloom", "camembert", "clip", "deberta", "distilbert", "distilgpt2", "electra", "falcon",
    "gemma", "gpt", "gpt2", "gptj", "llama", "longformer", "mbart", "mistral", "mixtral", "mpnet", "opt", "phi",
    "pythia", "qwen", "qwen2", "roberta", "t5", "wav2vec2", "whisper", "xlnet",
)  # fmt: skip
VISION = (
    "beit", "cait", "coatnet", "convnext", "deit", "densenet", "efficientnet", "googlenet", "inception", "maxvit",
    "mixer", "mnasnet", "mobilenet", "regnet", "resnet", "resnext", "shufflenet", "squeezenet", "swin", "vgg", "vit",
    "wide",
)  # fmt: skip


def library_form(name: str) -> str:
    """What to write for a network of transformers, torchvision or timm; empty for any other name.

    >>> library_form("resnet18")
    'write torchvision:resnet18, or timm:resnet18'
    >>> library_form("lenett")
    ''
    """
    first = re.split(r"[-_.\d/]", name.lower())[0]
    whole = re.split(r"[-_./]", name.lower())[0]
    if "/" in name or first in TEXT or whole in TEXT:
        return (
            f"write hf:FOLDER after saving its configuration there, AutoConfig.from_pretrained({name!r})"
            ".save_pretrained(FOLDER) in Python with transformers; hessdiag downloads nothing"
        )
    if first in VISION and name != first:  # a family is no name of a network
        return f"write torchvision:{name}, or timm:{name}"
    return ""
