"""Measure models of timm and transformers as they come: figures/public_models.json, for docs/evidence.md.

    pip install timm transformers
    python scripts/strangers/libraries.py [timm | transformers]

Of timm the smallest model of every module, on images of random numbers; of transformers one class for each type of
model and task, of a few layers of width 64 where its configuration has such sizes, on random tokens, images or sound.
None took part when rules were written; "first" is what was said of them before anything was mended for them, where it
was something else. What does not build so, or is large or slow, is left out.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from public import RESULTS, measure
from torch import Tensor, nn

LARGEST, SECONDS, EXAMPLES = 8e7, 150, 8
Job = tuple[str, Callable[[], Any]]
WHOLE = ("vit", "swin", "mixer", "coat", "tnt", "volo", "former")  # images of the usual size alone

# --- timm ------------------------------------------------------------------------------------------------------------


def smallest(module: str) -> str:
    """The model of a module of timm with fewest parameters, or nothing."""
    import timm

    sizes = {}
    for name in timm.list_models(module=module):
        with torch.device("meta"):
            try:
                model = timm.create_model(name)
            except Exception:
                continue
        sizes[name] = sum(p.numel() for p in model.parameters())
    name = min(sizes, key=sizes.__getitem__, default="")
    return name if name and sizes[name] < LARGEST else ""


def of_timm(name: str) -> Any:
    import timm

    model = timm.create_model(name, num_classes=1000)
    _, height, _ = size = model.default_cfg["input_size"]
    fixed = model.default_cfg.get("fixed_input_size") or any(part in name for part in WHOLE)
    if height > 128 and not fixed:
        size = (3, 128, 128)  # of those that take any
    return name, lambda: model, torch.randn(EXAMPLES, *size), torch.randint(1000, (EXAMPLES,)), {}


def timm_jobs() -> Iterator[Job]:
    import timm

    for module in timm.list_modules():
        if name := smallest(module):
            yield name, partial(of_timm, name)


# --- transformers ----------------------------------------------------------------------------------------------------

TASKS = {
    "CAUSAL_LM": "causal", "MASKED_LM": "masked", "SEQUENCE_CLASSIFICATION": "labels", "SEQ_TO_SEQ_CAUSAL_LM": "pairs",
    "IMAGE_CLASSIFICATION": "images", "AUDIO_CLASSIFICATION": "sound",
}  # fmt: skip
WIDE = "hidden_size d_model n_embd dim embed_dim embedding_size"
DEEP = "num_hidden_layers n_layer n_layers encoder_layers decoder_layers num_layers num_decoder_layers"
HEADS = "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads"
INNER = "intermediate_size n_inner d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim"
FOURS = "num_experts num_local_experts n_routed_experts num_key_value_heads"
SIZES = {name: value for names, value in ((WIDE, 64), (DEEP, 3), (HEADS, 4), (INNER, 128), (FOURS, 4))
         for name in names.split()}  # fmt: skip
SIZES |= {"vocab_size": 500, "max_position_embeddings": 128, "n_positions": 128, "head_dim": 16, "d_kv": 16}
SIZES |= {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
SIZES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Decoders whose class compares each token with its own label, not with the one after it.
UNSHIFTED = re.compile("(MBart|PLBart|Bart|(BigBird)?Pegasus|Blenderbot(Small)?|Marian|Mvp|TrOCR|Whisper)For")


def small_config(kind: str) -> Any:
    """A configuration with those of its sizes small that are whole numbers."""
    from transformers import CONFIG_MAPPING

    usual = CONFIG_MAPPING[kind]()
    whole = {k: v for k, v in SIZES.items() if isinstance(getattr(usual, k, ""), int | None)}
    return CONFIG_MAPPING[kind](**whole)


def of_transformers(kind: str, task: str, name: str) -> Any:
    """A case; or nothing for what is large."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.CONFIG_MAPPING[kind]() if task in ("images", "sound") else small_config(kind)
    if task == "causal" and hasattr(config, "is_decoder"):
        config.is_decoder = True
    if task == "pairs" and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 1
    build = getattr(transformers, name)
    with torch.device("meta"):
        if sum(p.numel() for p in build(deepcopy(config)).parameters()) > LARGEST:
            return None
    return name, lambda: build(config), _inputs(config, task, name), None, {}


def _inputs(config: Any, task: str, name: str) -> Mapping[str, Tensor]:
    words = getattr(config, "vocab_size", None) or 500
    tokens = torch.randint(3, words, (EXAMPLES, 32))
    if task == "causal":
        last = torch.full_like(tokens[:, :1], -100)
        return {"input_ids": tokens, "labels": torch.cat([tokens[:, 1:], last], 1) if UNSHIFTED.match(name) else tokens}
    if task == "masked":
        hidden = torch.rand(tokens.shape) < 0.15
        return {"input_ids": tokens.masked_fill(hidden, 3), "labels": tokens.masked_fill(~hidden, -100)}
    if task == "pairs":
        return {"input_ids": tokens[:, :24], "labels": torch.randint(3, words, (EXAMPLES, 20))}
    labels = torch.randint(config.num_labels, (EXAMPLES,))
    if task == "labels":
        tokens[:, -1] = getattr(config, "eos_token_id", None) or 2
        return {"input_ids": tokens, "labels": labels}
    if task == "sound":
        return {"input_values": torch.randn(EXAMPLES, 16000), "labels": labels}
    size = getattr(config, "image_size", None) or 224
    side = size if isinstance(size, int) else size[0]
    return {"pixel_values": torch.randn(EXAMPLES, getattr(config, "num_channels", 3), side, side), "labels": labels}


def transformers_jobs() -> Iterator[Job]:
    from transformers.models.auto import modeling_auto

    done = set()
    for mapping, task in TASKS.items():
        for kind, names in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items():
            name = names if isinstance(names, str) else names[0]
            if name not in done:
                done.add(name)
                yield name, partial(of_transformers, kind, task, name)


# --- Both ------------------------------------------------------------------------------------------------------------


def in_a_process(job: Job, answer: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    name, make = job
    try:
        case = make()
        model: nn.Module | None = None if case is None else case[1]().train()
        if model is None:
            return answer.put(None)
        inputs = case[2]
        _ = model(**inputs) if isinstance(inputs, dict) else model(inputs)  # what does not run is none of this size
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}"[:150], file=sys.stderr)
        return answer.put(None)
    answer.put(measure(case))


def main() -> None:
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    jobs = {"timm": timm_jobs, "transformers": transformers_jobs}
    for library in sys.argv[1:] or jobs:
        before, found = held.get(library, {}), {}
        for job in jobs[library]():
            answer: Any = multiprocessing.Queue()
            process = multiprocessing.Process(target=in_a_process, args=(job, answer))
            process.start()
            try:
                told = answer.get(timeout=SECONDS)
            except queue.Empty:
                told = None
            process.kill()
            process.join()
            if told is not None:
                first = before.get(job[0], {}).get("first", before.get(job[0], {}).get("verdict", told["verdict"]))
                found[job[0]] = told | ({"first": first} if first != told["verdict"] else {})
                print(f"{library} {job[0]}: {told['verdict']}", *told.get("findings", [told.get("said")]), flush=True)
                held[library] = found
                RESULTS.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
