"""Networks of the transformers library from a configuration file, with random weights; nothing is downloaded.

Three changes make them fit: attention is computed step by step (the fused kernels have no forward-mode derivative), the
network is in evaluation mode, and it returns its logits alone. For text, logits of a sequence (B, positions, classes)
become (B, classes, positions), as torch's cross-entropy wants them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hessdiag.data.outputs import pick_output
from hessdiag.errors import HessdiagError
from hessdiag.loading.extras import import_extra
from hessdiag.loading.factory import as_size
from hessdiag.loading.model_source import ModelSource, Network, NormalInputs, RandomInputs, TokenInputs, check_module
from hessdiag.suggestions import did_you_mean, few
from hessdiag.user_code.named_function import foreign_code, missing_file

USUAL_LENGTH = 64  # tokens of one example
USUAL_SIDE = 224  # pixels, where the configuration does not say
OUTPUTS = ("logits", "last_hidden_state")
PADDING_ADVICE = "warn_if_padding_and_no_attention_mask"


def huggingface_source(
    specification: str,
    *,
    arguments: Mapping[str, Any],
    input_size: tuple[int, ...] | None,
    output: str | int | None = None,
) -> ModelSource:
    """`hf:CONFIG.json`: the first of the configuration's `architectures`, or its base model where it names none.

    Args:
        specification: `hf:` and the path of a configuration file, or of a folder with a `config.json`.
        arguments: entries of the configuration to replace.
        input_size: shape of one image, or the number of tokens.
        output: name or position of the output to measure; the logits, if not said, or the last hidden state.

    Raises:
        HessdiagError: transformers is not installed, or the file does not describe a model that it knows.
    """
    record = _read(specification)
    transformers = import_extra("transformers", specification=specification)
    label = f"model {specification!r}"
    with foreign_code(label), _quiet(transformers):
        config = _config(transformers, record, arguments, label)
        architecture = _architecture(transformers, config, label)

    def build() -> Network:
        with foreign_code(label), _quiet(transformers):
            module = check_module(architecture(config), label).eval()
            inputs = _random_inputs(module, config, input_size, label)
            if getattr(config, "pad_token_id", None) is None:
                # Classifiers of sequences look for padding even where there is none; no token has this id.
                module.config.pad_token_id = -1  # type: ignore[union-attr]
            for part in module.modules():
                if hasattr(part, PADDING_ADVICE):  # looks into the tokens, which vectorised derivatives cannot
                    setattr(part, PADDING_ADVICE, _say_nothing)
            text = isinstance(inputs, TokenInputs)
            module.register_forward_hook(_OutputsAlone(label, text=text, which=output))
        return Network(module, inputs, class_dim=1 if text else None)

    return ModelSource(specification, build, output)


class _OutputsAlone:
    """A forward hook rather than a wrapping module, so that parameters keep their names, in tables and checkpoints."""

    def __init__(self, label: str, *, text: bool, which: str | int | None) -> None:
        self.label = label
        self.text = text
        self.which = which

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Tensor | dict[str | int, Tensor]:
        if self.which is not None:
            return {self.which: self._classes_first(pick_output(output, self.which))}
        found = [output[name] for name in OUTPUTS if isinstance(output, Mapping) and output.get(name) is not None]
        if not found or not isinstance(found[0], Tensor):
            held = few(output, 8) if isinstance(output, Mapping) else type(output).__name__
            raise HessdiagError(
                f"{self.label} returns no logits but {held}: name an architecture for one task in the configuration,"
                " or one of these with --output NAME"
            )
        return self._classes_first(found[0])

    def _classes_first(self, y: Tensor) -> Tensor:
        return y.movedim(-1, 1) if self.text and y.dim() > 2 else y


def _say_nothing(*args: Any) -> None:
    """In place of a method that only warns."""


def _read(specification: str) -> dict[str, Any]:
    """The configuration as a dict with a `model_type`."""
    text = specification.partition(":")[2]
    label = f"model {specification!r}"
    if not text:
        raise HessdiagError(f"{label}: name a configuration file, as in hf:config.json")
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        advice = "hessdiag downloads nothing: save the configuration with AutoConfig.from_pretrained(…).save_pretrained"
        raise HessdiagError(f"{label}: {missing_file(path, '*.json')} ({advice})")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HessdiagError(f"{label}: {str(path)!r} is not a readable JSON file ({error})") from error
    if not isinstance(record, dict) or not isinstance(record.get("model_type"), str):
        raise HessdiagError(f"{label}: {str(path)!r} has no 'model_type': pass a configuration of transformers")
    return record


def _config(transformers: Any, record: Mapping[str, Any], arguments: Mapping[str, Any], label: str) -> Any:
    kind = record["model_type"]
    known = list(transformers.CONFIG_MAPPING.keys())
    if kind not in known:
        hint = did_you_mean(kind, known, otherwise="the installed transformers may be too old for it")
        raise HessdiagError(f"{label}: transformers has no model type {kind!r}; {hint}")
    entries = {key: value for key, value in record.items() if key != "model_type"}
    fixed = {"attn_implementation": "eager", "use_cache": False, "return_dict": True}
    if arguments:
        plain = transformers.AutoConfig.for_model(kind, **entries)
        for key in arguments:
            if not hasattr(plain, key):
                hint = did_you_mean(key, plain.to_dict(), otherwise="it takes entries of the configuration")
                raise HessdiagError(f"{label} takes no argument {key!r}: {hint}")
    return transformers.AutoConfig.for_model(kind, **(entries | dict(arguments) | fixed))


def _architecture(transformers: Any, config: Any, label: str) -> Any:
    """A function from a configuration to a module."""
    names = config.architectures or []
    if not names:
        return transformers.AutoModel.from_config
    found = getattr(transformers, str(names[0]), None)
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        known = [name for name in dir(transformers) if name.endswith(("Model", "LMHeadModel")) or "For" in name]
        hint = did_you_mean(str(names[0]), known, otherwise="correct 'architectures' in the configuration")
        raise HessdiagError(f"{label}: transformers has no architecture {names[0]!r}; {hint}")
    return found


def _random_inputs(
    module: nn.Module, config: Any, input_size: tuple[int, ...] | None, label: str
) -> RandomInputs | None:
    """Token ids within the vocabulary, or pixels; None where the configuration does not say."""
    argument = str(getattr(module, "main_input_name", "input_ids"))
    if argument == "input_ids":
        if input_size and len(input_size) > 1:
            raise HessdiagError(f"input_size {input_size}: {label} reads tokens, pass their number as in input_size=16")
        inner = config.get_text_config()
        longest = getattr(inner, "max_position_embeddings", None) or USUAL_LENGTH
        keywords = ("input_ids", "decoder_input_ids") if config.is_encoder_decoder else ("input_ids",)
        length = input_size[0] if input_size else min(USUAL_LENGTH, longest)
        return TokenInputs(inner.vocab_size, length, keywords, getattr(config, "pad_token_id", None))
    if argument == "pixel_values" and not input_size:
        side = getattr(config, "image_size", None) or USUAL_SIDE
        sides = (side, side) if isinstance(side, int) else tuple(side)
        input_size = as_size((getattr(config, "num_channels", 3), *sides))
    return NormalInputs(input_size, argument) if input_size else None


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without the library's own messages: what matters is said in errors."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)
