"""A recipe as text."""

from __future__ import annotations

from hessdiag.diagnosis.recipe import OPTIMIZERS, BlockRecipe, Recipe
from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.numbers import percent, short, with_error
from hessdiag.suggestions import few
from hessdiag.tables.text_table import Part, Verbatim, grouped, listed, make_table, plain_text, size

COLUMNS = ("weight ×", "reads ×", "or lr ×")
EXPENDABLE = ("rms now", "rms then", "lr now", "lr then", "shape")
SYMBOLS = {"avg_sq_singular_value": "σ²", "gamma": "γ", "nu": "ν"}
ROUNDING = 1e-4  # of the outputs, relative
BALANCED = {"sigma": ("σ²", "curvature"), "gamma": ("γ", "gamma"), "rate": ("σ²", "curvature")}
NAMED = BALANCED | {"rate": ("the learning rates of single weights", "rate")}


def render(recipe: Recipe) -> str:
    """Show what to change, weight by weight, with the numbers before and after, and the code that does it."""
    symbol, _ = BALANCED[recipe.balance]
    optimizer = OPTIMIZERS[recipe.optimizer]
    trained = recipe.learning_rate is not None
    second = "lr" if trained else "rms"
    columns = ("weight", "shape", f"{symbol} now", f"{symbol} then", f"{second} now", f"{second} then", *COLUMNS)
    parts: list[Part] = [
        f"{recipe.model}, init {recipe.init}: what to change before training with {optimizer}; nothing was changed",
        f"loss {recipe.loss}, batch {recipe.batch_size} ({recipe.data}), seed {recipe.seed};"
        f" makes {NAMED[recipe.balance][0]} equal",
        "",
        make_table(
            columns, [_row(block, recipe.balance, trained) for block in recipe.blocks], left=2, expendable=EXPENDABLE
        ),
        "",
        *_spreads(recipe),
        *_rates(recipe, optimizer),
        *_explained(recipe, optimizer),
        *grouped("left as they are:", recipe.left_out),
        *_repairs(recipe),
        "",
        "as code:",
        Verbatim(recipe.to_code()),
    ]
    return plain_text(parts)


def render_brief(recipe: Recipe) -> str:
    """The code that does it."""
    return recipe.to_code()


def _row(block: BlockRecipe, balance: str, trained: bool) -> list[str]:
    key = BALANCED[balance][1]
    rms = (block.weight_sq_before**0.5, block.weight_sq**0.5)
    numbers = (
        getattr(block, f"{key}_before"),
        getattr(block, key),
        *((block.rate_before, block.rate) if trained else rms),
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
        symbol = NAMED[recipe.balance][0]
        before, after = short(recipe.spread_of_all_before), short(recipe.spread_of_all)
        lines.append(f"with the {len(recipe.left_out)} that are left out:  {symbol} {before} → {after}")
    if recipe.sampling_error > 0:
        error = f"{percent(recipe.sampling_error)} %"
        lines.append(f"σ² is sampled: the scales follow it with its standard error, up to {error}, now and then alike")
    return lines


def _rates(recipe: Recipe, optimizer: str) -> list[str]:
    """The learning rate for the first step, and whether one suits all weights; nothing where none was measured."""
    before, after = recipe.learning_rate_before, recipe.learning_rate
    if before is None or after is None:
        return []
    apart = [short(spreads["learning_rate"]) for spreads in (recipe.spread_before, recipe.spread)]
    lines = _training_rates(recipe, optimizer)
    lines += [
        f"best learning rate of the first step of {optimizer}, now → then:  {_rate(before)} → {_rate(after)}",
        f"that of single weights (lr), max/min, now → then:  {apart[0]} → {apart[1]}",
    ]
    if len(recipe.groups) > 1:
        lines += listed(
            "parameter groups for what is still apart then:",
            ((f"lr {short(group.lr)}", few(group.names)) for group in recipe.groups),
        )
    return lines


def _training_rates(recipe: Recipe, optimizer: str) -> list[str]:
    now, then = recipe.training_rate_before, recipe.training_rate
    if now is None or then is None:
        return []
    return [
        f"learning rate for training with {optimizer}, along virtual steps, now → then:  {_rate(now)} → {_rate(then)}"
    ]


def _rate(rate: LearningRate) -> str:
    return with_error(rate.value, rate.stderr)


def _explained(recipe: Recipe, optimizer: str) -> list[str]:
    if not recipe.changed:
        return [f"The spread is within {short(recipe.target)} already: no weight needs another scale."]
    same = "the same" if recipe.output_change < ROUNDING else f"the same within {short(recipe.output_change)}"
    return [
        "Each weight is multiplied by one number and what its layer reads by the inverse: the network computes"
        f" {same}.",
        f"Without any scale, {optimizer} trains alike with each learning rate multiplied by the last column:"
        " recipe.parameter_groups(model, lr).",
    ]


def _repairs(recipe: Recipe) -> list[str]:
    rows = [(f"{f.severity} {f.rule}", f"{f.blocks[0] if f.blocks else ''}: {f.advice}") for f in recipe.repairs]
    return listed("repairs that hessdiag.surgery.apply_finding would make (not included above):", rows)
