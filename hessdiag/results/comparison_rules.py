"""What each rule of a comparison measures, where its threshold stands and why: the texts of `hessdiag explain`."""

from __future__ import annotations

from collections.abc import Mapping

GITHUB = "https://github.com/"
SEEDS = "Between two seeds of healthy and repaired networks of the gallery, on one batch, 224 pairs:"

COMPARISON_RULES: Mapping[str, Mapping[str, str]] = {
    "HD600": {
        "title": "Two networks differ by no more than two seeds of one initialisation do",
        "measures": "E[W²], ν and σ² of every block, after over before.",
        "threshold": "A note from 0.1 % on, which rounding does not explain; nothing below.",
        "case": "The same network built from another seed.",
        "exceptions": "E[W²] alone tells weights apart: another distribution of the same variance is not seen.",
        "repair": "Nothing is to be done.",
    },
    "HD601": {
        "title": "Weights of a block differ from those before",
        "measures": "E[W²] after over before, for each role of blocks (names that differ in numbers alone).",
        "threshold": "A warning beyond 5 standard errors of the difference between two draws of P Gaussians, 2/√P in"
        f" ln E[W²], and beyond a factor 1.1. {SEEDS} 99.9 % of blocks stay within 2.9 standard errors, all within"
        " 3.5.",
        "case": "GPT-2's residual projections without the factor 1/√(2L): 4× too large in 8 layers. "
        + GITHUB + "huggingface/transformers/issues/47458",
        "exceptions": "Training changes weights too: between checkpoints it is no fault. Heavy tails vary more. Weights"
        " that a finding was about which is gone are a note.",
        "repair": "Restore how these weights were initialised or loaded, unless the change was meant. What else"
        " differs follows from it most of the time.",
    },
    "HD602": {
        "title": "Gradients differ from those before, where the weights agree",
        "measures": "ν = E[ΔW²]/E[W²] after over before, over that of the median block; E[ΔW²] must differ likewise."
        " Where no block stands out, the median itself.",
        "threshold": f"A warning beyond a factor 5, a note where other weights differ (HD601). {SEEDS} 99.9 % of blocks"
        " stay within 2.8, all within 3.4; the median within 3.4.",
        "case": "A layer that the forward pass forgets: its gradients are zero (built for it).",
        "exceptions": "Other data, another batch size or seed of the loss change gradients as well: the comparison"
        " says so where they differ.",
        "repair": "Look at what lies between these blocks and the loss; for all blocks alike at the inputs, the"
        " outputs, the loss and its scale.",
    },
    "HD603": {
        "title": "Curvature differs from before, where weights and gradients agree",
        "measures": "σ² after over before, over that of the median block, less what sampling leaves open at 95 %."
        " Where no block stands out, the median itself.",
        "threshold": f"A warning beyond a factor 25, a note where other weights differ (HD601). {SEEDS} 99.9 % of"
        " blocks stay within 9.4, all within 17; the median within 17.",
        "case": "LoRA with A = B = 0, repaired: B has curvature again. " + GITHUB + "Guitaricet/relora/issues/18",
        "exceptions": "σ² goes with the fourth power of a scale; a sampled one counts as far as its error lets it.",
        "repair": "Look at what curves the loss here: nonlinearities, the outputs, the loss.",
    },
    "HD604": {
        "title": "Blocks of one of the two networks alone",
        "measures": "Names and shapes of the blocks.",
        "threshold": "A note from 1 block on that has no counterpart of its name and shape.",
        "case": "A layer that was renamed, added or widened.",
        "exceptions": "A parameter that was frozen and one that is not measured are no blocks.",
        "repair": "Rename what was renamed, to compare it too.",
    },
}  # fmt: skip
