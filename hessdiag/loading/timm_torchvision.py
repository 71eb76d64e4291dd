"""Networks of timm and torchvision by their names there; never pretrained, so that nothing is downloaded.

They are measured in evaluation mode: batch normalisation in training mode couples the examples of a batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.extras import import_extra
from hessdiag.loading.factory import as_size, factory_source
from hessdiag.loading.model_source import ModelSource
from hessdiag.suggestions import did_you_mean
from hessdiag.user_code.named_function import NamedFunction

DOWNLOADING = ("pretrained", "pretrained_cfg", "pretrained_backbone", "checkpoint_path", "weights", "weights_backbone")
TORCHVISION_SIDE = {"inception_v3": 299}


def timm_source(specification: str, *, arguments: Mapping[str, Any], input_size: tuple[int, ...] | None) -> ModelSource:
    """`timm:NAME`: `timm.create_model(NAME, pretrained=False, **arguments)`, with the input size of its configuration.

    Raises:
        HessdiagError: timm is not installed, has no such model, or an argument would download weights.
    """
    timm = import_extra("timm", specification=specification)
    name = _checked_name(specification, timm.list_models(), arguments)

    def build(**options: Any) -> Any:
        module: nn.Module = timm.create_model(name, pretrained=False, **options).eval()
        settings = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
        size = as_size(settings.get("input_size"))
        return (module, size) if size else module

    return factory_source(NamedFunction("model", specification, build), arguments=arguments, input_size=input_size)


def torchvision_source(
    specification: str, *, arguments: Mapping[str, Any], input_size: tuple[int, ...] | None
) -> ModelSource:
    """`torchvision:NAME`: the builder of that name without weights, for images (3, 224, 224) unless it needs others.

    Raises:
        HessdiagError: torchvision is not installed, has no such model, or an argument would download weights.
    """
    models = import_extra("torchvision", specification=specification).models
    name = _checked_name(specification, models.list_models(), arguments)
    builder = models.get_model_builder(name)
    fixed: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        fixed["weights_backbone"] = None  # segmentation and detection fetch a backbone otherwise
    side = TORCHVISION_SIDE.get(name, 224)

    def build(**options: Any) -> Any:
        return builder(**fixed, **options).eval(), (3, side, side)

    return factory_source(NamedFunction("model", specification, build), arguments=arguments, input_size=input_size)


def _checked_name(specification: str, known: list[str], arguments: Mapping[str, Any]) -> str:
    library, _, name = specification.partition(":")
    for key in arguments:
        if key in DOWNLOADING:
            raise HessdiagError(
                f"arguments={{{key!r}: …}}: hessdiag downloads nothing,"
                " load weights into the network with load_state_dict"
            )
    if name not in known:
        hint = did_you_mean(name, known, otherwise=f"{library}.list_models() lists them")
        raise HessdiagError(f"model {specification!r}: {library} has no model {name!r}; {hint}")
    return name
