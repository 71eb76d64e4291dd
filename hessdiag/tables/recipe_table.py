"""A recipe as text."""

from __future__ import annotations

from hessdiag.diagnosis.recipe import BlockRecipe, Recipe
from hessdiag.results.numbers import short
from hessdiag.tables.text_table import listed, make_table, plain_text, size

COLUMNS = ("rms now", "rms then", "weight ×", "reads ×", "or lr ×")
SYMBOLS = {"avg_sq_singular_value": "σ²", "gamma": "γ", "nu": "ν"}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
ROUNDING = 1e-4  # of the outputs, relative
BALANCED = {"sigma": ("σ²", "curvature"), "gamma": ("γ", "gamma")}


def render(recipe: Recipe) -> str:
    """Show what to change, weight by weight, with the numbers before and after, and the code that does it."""
    symbol, _ = BALANCED[recipe.balance]
    optimizer = OPTIMIZERS[recipe.optimizer]
    columns = (
        "weight",
        "shape",
        f"{symbol} now",
        f"{symbol} then",
        "rms now",
        "rms then",
        "weight ×",
        "reads ×",
        "or lr ×",
    )
    parts = [
        f"{recipe.model}, init {recipe.init}: what to change before training with {optimizer}; nothing was changed",
        f"loss {recipe.loss}, batch {recipe.batch_size} ({recipe.data}), seed {recipe.seed};"
        f" balances {symbol}, measured before and after",
        "",
        make_table(columns, [_row(block, recipe.balance) for block in recipe.blocks], left=2, fit=True),
        "",
        *_spreads(recipe),
        *_explained(recipe, optimizer),
        *listed("left as they are:", recipe.left_out),
        *_repairs(recipe),
        "",
        "as code:",
        recipe.to_code(),
    ]
    return plain_text(parts)


def _row(block: BlockRecipe, balance: str) -> list[str]:
    key = BALANCED[balance][1]
    numbers = (
        getattr(block, f"{key}_before"),
        getattr(block, key),
        block.weight_sq_before**0.5,
        block.weight_sq**0.5,
        block.weight_factor,
        block.multiplier,
        block.rate_factor,
    )
    return [block.name, size(block.shape), *map(short, numbers)]


def _spreads(recipe: Recipe) -> list[str]:
    then = "   ".join(
        f"{symbol} {short(recipe.spread_before[key])} → {short(recipe.spread[key])}" for key, symbol in SYMBOLS.items()
    )
    lines = [f"spread over these weights, max/min, now → then:  {then}"]
    if recipe.left_out:
        symbol, _ = BALANCED[recipe.balance]
        before, after = short(recipe.spread_of_all_before), short(recipe.spread_of_all)
        lines.append(f"with the {len(recipe.left_out)} that are left out:  {symbol} {before} → {after}")
    return lines


def _explained(recipe: Recipe, optimizer: str) -> list[str]:
    if not recipe.changed:
        return [f"The spread is within {short(recipe.target)} already: no weight needs another scale."]
    same = "the same" if recipe.output_change < ROUNDING else f"the same within {recipe.output_change:.0e}"
    return [
        "Each weight is multiplied by one number and what its layer reads by the inverse: the network computes"
        f" {same}.",
        f"Without any scale, {optimizer} trains alike with each learning rate multiplied by the last column:"
        " recipe.parameter_groups(model, lr).",
    ]


def _repairs(recipe: Recipe) -> list[str]:
    rows = [(f"{f.severity} {f.rule}", f"{f.blocks[0] if f.blocks else ''}: {f.advice}") for f in recipe.repairs]
    return listed("repairs that hessdiag.surgery.apply_finding would make (not included above):", rows)
