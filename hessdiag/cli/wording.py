"""Messages of the library in the words of the command line: what is an argument there is an option here."""

from __future__ import annotations

import re

OPTIONS = (
    "balance",
    "batch_size",
    "device",
    "dtype",
    "in_channels",
    "input_size",
    "loss",
    "matrix",
    "max_memory",
    "max_products",
    "method",
    "optimizer",
    "per",
    "rounds",
    "rtol",
    "seed",
    "setups",
    "target",
)
PHRASES = {
    "call model.eval() first": "pass --eval",
    "model.eval()": "--eval",
    "load weights into the network with load_state_dict": "load weights with --weights FILE",
    "pass inputs and targets apart, diagnose(model, inputs, targets)": "return (inputs, targets)",
    "pass it as targets, diagnose(model, inputs, targets), or in batches as (inputs, targets)": (
        "return (inputs, targets)"
    ),
    "pass it as targets": "return (inputs, targets)",
}
NAMES = "|".join(OPTIONS)
TUPLE = r"\((?P<sizes>\d+(?:, \d+)*),?\)"
VALUE = rf"(?:{TUPLE}|'(?P<text>[^']*)'|(?P<plain>[\w.+-]+))"
ASSIGNED = re.compile(rf"(?<![\w.'])(?P<name>{NAMES})={VALUE}")
LEADING = re.compile(rf"^(?P<name>{NAMES}) (?:{TUPLE}(?=:))?(?=\S|$)")
ARGUMENTS = re.compile(r"\barguments=\{(?P<entries>[^{}]*)\}")
ENTRY = re.compile(r"'(?P<key>\w+)': (?P<value>[^,]+)")


def as_typed(message: str) -> str:
    """A message with options in place of arguments.

    >>> as_typed("'net' does not say what it reads: pass input_size=(3, 32, 32)")
    "'net' does not say what it reads: pass --input-size 3,32,32"
    >>> as_typed("max_products 1: pass at least 2")
    '--max-products 1: pass at least 2'
    >>> as_typed("model 'net' needs arguments: pass arguments={'width': VALUE}")
    "model 'net' needs arguments: pass --arg width=VALUE"
    """
    for ours, theirs in PHRASES.items():
        message = message.replace(ours, theirs)
    message = LEADING.sub(_leading, message)
    message = ARGUMENTS.sub(
        lambda found: ENTRY.sub(r"--arg \g<key>=\g<value>", found["entries"]).replace(",", ""), message
    )
    return ASSIGNED.sub(lambda found: f"{_option(found['name'])} {_value(found)}", message)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _leading(found: re.Match[str]) -> str:
    sizes = found["sizes"]
    return f"{_option(found['name'])} " + (sizes.replace(" ", "") if sizes else "")


def _value(found: re.Match[str]) -> str:
    if found["sizes"]:
        return found["sizes"].replace(" ", "")
    return found["text"] if found["text"] is not None else str(found["plain"])
