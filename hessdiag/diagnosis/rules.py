"""All rules: what each measures, where its threshold stands and why, and how findings are ordered.

The healthy ranges are those of 399 runs of 55 networks that train well and of repaired twins of bugs, at several
seeds and widths; `scripts/gallery.py` measures them anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill

from hessdiag.diagnosis import signal_rules, weight_rules
from hessdiag.diagnosis.network_view import Net
from hessdiag.results.comparison import COMPARISON_RULES
from hessdiag.results.findings import GRAVITY, Finding
from hessdiag.results.report import BlockReport
from hessdiag.results.signals import Signals

WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One rule, as `hessdiag explain` tells it.

    Attributes:
        title: in a few words.
        measures: the number, and who is named.
        threshold: where it stands and why, with the healthy range.
        case: a public bug that it finds, with its source, or one that was built for it.
        exceptions: what looks like it on purpose, and what the rule cannot see.
        repair: what to do.
    """

    title: str
    measures: str
    threshold: str
    case: str
    exceptions: str
    repair: str

    @property
    def parts(self) -> Mapping[str, str]:
        """What is told of the rule, by headings."""
        return {
            "What it measures": self.measures,
            "Threshold": self.threshold,
            "A real case": self.case,
            "Exceptions": self.exceptions,
            "What to do": self.repair,
        }


def explain(rule: str, *, width: int = WIDTH) -> str:
    """Tell one rule as text, in lines of at most `width`."""
    entry = CATALOGUE[rule]
    lines = [fill(f"{rule}: {entry.title}", width, subsequent_indent="  ", break_on_hyphens=False), ""]
    for title, text in entry.parts.items():
        lines += [title, _indented(text, width), ""]
    if shown := [f"docs/gallery.md#{case}" for case in GALLERY.get(rule, ())]:
        lines += ["Before and after the repair", _indented(" and ".join(shown), width), ""]
    return "\n".join(lines).rstrip()


def _indented(text: str, width: int) -> str:
    return fill(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def overview() -> str:
    """List all rules, one a line."""
    return "\n".join(f"{rule}  {entry.title}" for rule, entry in CATALOGUE.items())


GALLERY: Mapping[str, tuple[str, ...]] = {  # cases of docs/gallery.md that a rule names as its real ones
    "HD101": ("t5-head",),
    "HD102": ("depthwise-fan-out",),
    "HD103": ("linear-default", "selu-gain"),
    "HD104": ("zero-module",),
    "HD107": ("siren-first",),
    "HD108": ("gpt2-cproj",),
    "HD201": ("trunc-normal",),
    "HD204": ("depthwise-fan-out", "conv-xavier"),
    "HD401": ("lora-zero",),
    "HD601": ("gpt2-cproj",),
    "HD603": ("lora-zero",),
}
GITHUB = "https://github.com/"
CATALOGUE: Mapping[str, Entry] = {
    "HD101": Entry(
        title="The initial loss is far above that of a constant guess",
        measures="The mean loss over the loss of the best constant guess: ln C or, where better, each label"
        " guessed from"
        " the counts of all others; for mse zero or the targets' mean. Named are the layers behind the last"
        " normalisation that enlarge what they read most, beyond what their nonlinearity takes back.",
        threshold="Note above 2 (cross-entropy) or 3 (mse) if two standard errors leave half of that, warning if they"
        " leave 3 (5), fault 5 (10). Healthy: 95 % below 1.45, at most 3.2 (LeNet on 16 images); mse at most 1.9.",
        case="T5's untied head drew N(0, 1): 9.7 to 13 times; now d^-1/2. "
        + GITHUB + "huggingface/transformers/pull/26441",
        exceptions="Silent without targets and for other losses. Rare classes are judged by their frequency, and named"
        " is then the output's bias. Pixels from 0 to 255 are HD105.",
        repair="Multiply the named weights by the factor in the advice, or start the head at zero.",
    ),
    "HD102": Entry(
        title="Hardly anything of the inputs reaches the last layer",
        measures="The part of E[x²] at the head that varies between examples. Named is the third of the hidden layers"
        " that shrink what they read most.",
        threshold="1e-7. Healthy: 4.9e-5 at least, 95 % above 4e-4. A warning in place of a fault where batch"
        " normalisations run on fixed statistics.",
        case="Depthwise convolutions drawn with fan-out k² n', not divided by the groups, in evaluation mode: 2e-7 to"
        " 2e-8. " + GITHUB + "pytorch/pytorch/issues/23854",
        exceptions="A head that starts at zero; a single example.",
        repair="Initialise by fan-in, or normalise.",
    ),
    "HD103": Entry(
        title="The signal grows or decays with depth in a plain chain",
        measures="Only without active normalisation and skips, with four hidden layers or more: E[x²] of the last layer"
        " over the first, the sum of squared gradients of the first over the last, and the product of n k² E[W²] over"
        " what each nonlinearity needs (2 for ReLU, 1 for SELU and tanh).",
        threshold="1e4 in any of the three, or less than a thousandth of E[x²] varying at the head; silent if forward"
        " and backward stay within 5. Fault beyond 1e6. Healthy: 10^3.1 at most (LeNet as PyTorch initialises it).",
        case="PyTorch's default, kaiming_uniform(a=√5), in a 13-layer ReLU MLP: 2e9. "
        + GITHUB + "pytorch/pytorch/issues/15314;"
        " its gain 3/4 for SELU: 5e4. " + GITHUB + "pytorch/pytorch/issues/54055",
        exceptions="Saturating networks hold their own scale. With batch normalisation in evaluation mode it is"
        " a note.",
        repair="hessdiag.init.apply(model, 'fan-in'), or the factor for each layer.",
    ),
    "HD104": Entry(
        title="Residual branches without normalisation multiply the signal",
        measures="Without active normalisation, with residual branches and six hidden layers or more: E[x²] at the head"
        " over that of the first layer, or its gradient the other way. Named are the layers that end branches.",
        threshold="30, fault beyond 1e4 or with an initial loss of 4 constant guesses. Healthy: .17 to 7.1 (branches"
        " scaled by L^-1/2 are bounded by e² = 7.4). 1e4 and a note for batch normalisation in evaluation mode.",
        case="Zero-initialised last convolutions of residual branches overwritten by Kaiming's: 61 to 2700. "
        + GITHUB + "huggingface/diffusers/issues/639; "
        + GITHUB + "Janspiry/Palette-Image-to-Image-Diffusion-Models/issues/71; Fixup, arXiv 1901.09321",
        exceptions="Networks that normalise inside the branches grow by addition only.",
        repair="Start the last layer of every branch at zero, or multiply it by L^-1/2.",
    ),
    "HD105": Entry(
        title="The inputs are far from unit scale",
        measures="E[x²] of floating-point inputs. Named is the first layer that reads them.",
        threshold="100; fault if the initial loss is four constant guesses, note if a normalisation follows the layer."
        " Healthy: .33 to 1.08.",
        case="Pixels from 0 to 255 (1.8e4), built for this rule; the bug is in every forum.",
        exceptions="Integers, such as tokens, are not judged.",
        repair="Subtract the mean and divide by the standard deviation.",
    ),
    "HD106": Entry(
        title="A tanh or sigmoid is saturated",
        measures="The share of units beyond .99 of the range. Named are the layers in front, the most saturated first.",
        threshold="Half of them; fault from 90 %. Healthy: 1.3 % at most.",
        case="Sigmoids behind weights of standard deviation 1, built for this rule: 86 %.",
        exceptions="The gates inside fused LSTM and GRU kernels cannot be seen; see HD203 and HD206.",
        repair="Make the weights of the layer in front smaller.",
    ),
    "HD107": Entry(
        title="The first sines of a coordinate network are nearly linear",
        measures="The rms of ω W x in the first layer of a network with two layers of sines and at most 8 inputs.",
        threshold="π/2, half a period; this is theory with one family of networks behind it. Before .79 to .85, after"
        " repair 7.",
        case="SIREN's first layer drawn like the hidden ones. " + GITHUB + "lucidrains/siren-pytorch/issues/1",
        exceptions="Hidden sines spread by about 1 rad, which is right.",
        repair="U(±1/n) for the first layer.",
    ),
    "HD108": Entry(
        title="A residual branch is larger than the stream that it is added to",
        measures="Behind a normalisation of the stream: E[x²] of what ends a branch (times a LayerScale) over E[x²] of"
        " the stream, the largest of four branches or more.",
        threshold="3, and never more than a note: GPT-2 .6 to 1.9, ViT .2, but healthy LLaMA 3 to 7, OPT 8 to 13, a"
        " trained nanoGPT 74 to 235.",
        case="GPT-2's projections without 1/√(2L): 4.4 to 9.2. " + GITHUB + "huggingface/transformers/issues/47458",
        exceptions="Only branches whose sum's other half is read by a normalisation are seen.",
        repair="Multiply the last layers of the branches by 1/√(number of branches).",
    ),
    "HD109": Entry(
        title="A normalisation reads a signal below its ε",
        measures="E[y²] behind an active normalisation over E[gain²], where it reads E[x²] below 1e-4. Named is the"
        " layer before, then the gain.",
        threshold=".3. Healthy: .974 at least.",
        case="Embeddings of standard deviation 1e-4, built for this rule: .01.",
        exceptions="A standard deviation of .002 gives .29 at ε = 1e-5, but .8 at 1e-6.",
        repair="Larger embeddings, .02 is usual, or a smaller ε.",
    ),
    "HD110": Entry(
        title="A layer reads nearly the same for every example",
        measures="The share of E[x²] that varies between examples, at the first layer where it is low. Named is what is"
        " constant before it, the largest first.",
        threshold=".003 note, .001 warning, 1e-5 fault. Healthy: .0067 at least (a trained nanoGPT), 95 % above .047.",
        case="Position embeddings N(0, 1) beside token embeddings of .02, built for this rule: 4e-4.",
        exceptions="Needs four examples that differ.",
        repair="Bring the two to about the same second moment.",
    ),
    "HD111": Entry(
        title="Fan-out in a chain that changes its width",
        measures="Without normalisations and skips, where 80 % of the weights follow fan-out and no other scheme: the"
        " largest fan-in over fan-out, or the inverse.",
        threshold="1.5; a note. Fan-out keeps the gradients' scale, fan-in that of the signals, and both train.",
        case="Fans of a transposed weight, built for this rule.",
        exceptions="Where all layers are of one width, the two are the same.",
        repair="hessdiag.init.apply(model, 'fan-in') or 'geometric'.",
    ),
    "HD112": Entry(
        title="Attention puts nearly all of its weight on one key",
        measures="The share of rows, over examples, heads and queries, in which one key has more than .99 of the"
        " weight. Named are the weights of queries and keys.",
        threshold="Note above .1, warning above .5. Healthy (43 runs of 17 networks): .022 at most, mostly the first"
        " row of a causal mask.",
        case="Logits without the factor 1/√d, built for this rule: .23 to .38. A public one is attention from memory"
        " that nobody filled. " + GITHUB + "TransformerLensOrg/TransformerLens/issues/518",
        exceptions="Needs 32 keys, and a softmax that autograd shows. Language models trained for long have heads that"
        " look at one token only; that is not measured beyond 120 steps. Silent where the weights' scale is named.",
        repair="Smaller weights of queries and keys, 1/√d, or normalised queries and keys.",
    ),
    "HD201": Entry(
        title="A few entries are far outside the rest of their tensor",
        measures="Kurtosis, and the largest entry over the rms, of tensors with 64 entries or more.",
        threshold="Kurtosis above 10, three times the network's median, and an entry of 8 rms; or above 30 with"
        " an entry"
        " of 30 rms. Fault above 50. Healthy: at most 4.2, and 6.2 rms (the largest of a million normals is 5).",
        case="A truncated normal with std .02 and bounds of ±2: 1300. " + GITHUB + "pytorch/pytorch/issues/155588",
        exceptions="Tensors with 20 % exact zeros. Language models trained for long do have outliers; that is not"
        " measured beyond 120 steps.",
        repair="Draw the outliers anew; give bounds in standard deviations.",
    ),
    "HD202": Entry(
        title="A tensor is scaled differently from the same layer at other depths",
        measures="E[W²] over the median of its siblings: three or more of the same shape, the same name but for"
        " one number.",
        threshold="4, and six times the siblings' own median deviation, for at most a quarter of them. Fault above 25."
        " Healthy: 1.04 fresh, 1.24 after training.",
        case="One gate drawn with std .002 in place of .02, built for this rule: 100.",
        exceptions="All-zero tensors. Half of the siblings apart are two populations, and on purpose.",
        repair="Initialise it as its siblings are.",
    ),
    "HD203": Entry(
        title="One part of a fused tensor differs from the others",
        measures="E[W²] of the gates of an LSTM or GRU, or of query, key and value in a matrix of three times"
        " its width,"
        " over the usual part; against siblings where there are some.",
        threshold="6, fault above 25. Healthy: 1.28 at most.",
        case="One of three packed projections scaled by 6, built for this rule: 36.",
        exceptions="A matrix whose width is three times the other by chance is taken for a fused one.",
        repair="Initialise the parts one by one, with fans of their own.",
    ),
    "HD204": Entry(
        title="A known misreading of a formula",
        measures="Depthwise convolutions that miss the scheme of the dense ones by the number of their groups; or"
        " kernels with E[W²] = 2 / (k + k + n + n'), Xavier's fans summed over all four dimensions.",
        threshold="Within 2.5 of the groups (8 or more) for 60 % of them; within four standard errors of the"
        " sum, for two"
        " or more. A note behind a normalisation. No hit in the 399 healthy runs.",
        case="MobileNet's depthwise fan-out. " + GITHUB + "pytorch/pytorch/issues/23854; lczero's kernels. "
        + GITHUB + "LeelaChessZero/lczero-training/pull/43",
        exceptions="torchvision's MobileNetV2 does it, and trains with its batch normalisations.",
        repair="Divide by the groups; multiply the channels by k².",
    ),
    "HD205": Entry(
        title="A bias drowns what its layer computes",
        measures="E[b²] of hidden layers, where it is 80 % of what the layer writes.",
        threshold="4. Healthy: .18 at most; an LSTM's forget bias of 1 counts .25.",
        case="A bias N(0, 10²), built for this rule: 100.",
        exceptions="Heads are left out: a detector's bias is large on purpose.",
        repair="Start it at zero.",
    ),
    "HD206": Entry(
        title="A layer is much larger than the scheme that the others follow",
        measures="E[W²] in units of the scheme (constant, fan-in, fan-out or Xavier) that most weights follow; of"
        " several that tie the nearest. Head and embeddings are left out.",
        threshold="Note above 4; warning above 20 (first layer 100) for two layers or a sixth of them, if 60 % follow."
        " Healthy: 1.0 but for SIREN's first layer (81), DeepNorm's q and k (6.9) and a generator's stem.",
        case="A patch embedding drawn 30 times too large (900), and an LSTM's recurrent weights N(0, 1), built for this"
        " rule.",
        exceptions="Smaller is not reported: q, residual ends, LayerScale, LoRA and policy heads are so on purpose.",
        repair="Draw it by the scheme of the others.",
    ),
    "HD207": Entry(
        title="A normalisation's gain is far from one",
        measures="E[gain²], as it acts (Gemma's is 1 + weight), of gains that are not zero and end no residual branch.",
        threshold="Outside 1/50 to 50. Healthy: .98 to 1.01.",
        case="Gains N(0, .02²) in place of N(1, .02²), built for this rule: 3000 too small.",
        exceptions="Gains of zero at the end of a branch are on purpose; elsewhere HD402.",
        repair="Start gains at one.",
    ),
    "HD208": Entry(
        title="All units of a layer have the same weights",
        measures="The variance of W between output units over E[W²], of trainable weights that are not zero.",
        threshold="1e-9; a fault. No hit among healthy networks.",
        case="A constant initialisation, built for this rule.",
        exceptions="Weights that are all zero.",
        repair="Draw random weights.",
    ),
    "HD209": Entry(
        title="Layers with the same input and shape are scaled differently",
        measures="Largest over smallest E[W²] among layers that read the same tensor and have the same shape.",
        threshold="4; a note, for T5's q against k and v (64) and DeepNorm's v (6.9) are so on purpose. Healthy"
        " else 1.03.",
        case="w3 scaled in place of w2. " + GITHUB + "pytorch/torchtitan/issues/3334",
        exceptions="See above.",
        repair="Check that it is meant.",
    ),
    "HD301": Entry(
        title="A weight without any curvature",
        measures="Weight blocks whose σ² is exactly 0 although a gradient reaches them.",
        threshold="Exactly zero; a note. There is no rule on how far σ² is apart: 30 of 32 healthy networks are beyond"
        " a factor of 200, up to 6e32, and embeddings, query and key or LayerScale are small on purpose.",
        case="A loss that is linear in what the weight changes.",
        exceptions="Weights behind another that starts at zero, as LoRA's A; losses without curvature altogether.",
        repair="Check that it is meant.",
    ),
    "HD401": Entry(
        title="A gradient is exactly zero, and nothing will change that",
        measures="Trainable parameters whose gradient is zero (below the smallest normal number). Not named is what"
        " waits for a matrix, gain or scale behind or beside it that starts at zero and has a gradient: once that has"
        " moved, the gradient comes.",
        threshold="Exactly zero. Fault if one of them is zero itself. Healthy: none; LoRA with B = 0, Fixup, zero gains"
        " and zero heads are explained.",
        case="LoRA with A = B = 0. " + GITHUB + "Guitaricet/relora/issues/18",
        exceptions="Biases of zero are named beside a weight of their layer, never alone.",
        repair="Draw one factor of the product at random: as the other weights, where four in ten follow one scheme,"
        " else by Kaiming's.",
    ),
    "HD402": Entry(
        title="Dead units",
        measures="The share of ReLUs behind a layer that are 0 on every sample, or a normalisation with a gain of zero;"
        " the first such place.",
        threshold=".8, fault above .95. Healthy: .35 at most.",
        case="A bias of -10 in front of ReLUs, built for this rule: 1.",
        exceptions="Needs 16 samples of a unit. Zero gains at the end of residual branches are on purpose.",
        repair="Start the bias at zero.",
    ),
    "HD403": Entry(
        title="Parameters that are not used, or frozen unlike their siblings",
        measures="Parameters that the outputs do not depend on; frozen ones whose siblings learn.",
        threshold="Any. A warning if a sibling is used, else a note: DINOv2's mask token, the decoder's bias of BERT.",
        case="A layer that the forward pass forgot, built for this rule.",
        exceptions="Modules of another mode of the model; experts, to which nothing of a batch may be sent.",
        repair="Call the layer, or remove it.",
    ),
    **{rule: Entry(**texts) for rule, texts in COMPARISON_RULES.items()},
}  # fmt: skip


# At equal gravity the likelier cause comes first.
ORDER = (
    "HD105", "HD402", "HD208", "HD401", "HD201", "HD203", "HD202", "HD205", "HD204", "HD207", "HD206", "HD106",
    "HD107", "HD109", "HD104", "HD110", "HD112", "HD103", "HD102", "HD101", "HD209", "HD108", "HD111", "HD301", "HD403",
)  # fmt: skip
CAUSES = {
    "HD105", "HD402", "HD201", "HD202", "HD203", "HD204", "HD205", "HD106", "HD206", "HD207", "HD208", "HD109",
}  # fmt: skip
EFFECTS = {"HD101", "HD102", "HD103", "HD104", "HD110", "HD112", "HD401", "HD108", "HD209", "HD111"}
DEPTH = {"HD103", "HD104"}  # themselves the cause of these:
OF_DEPTH = {"HD101", "HD102", "HD110"}
RULES = (*signal_rules.RULES, *weight_rules.RULES)


def find(signals: Signals, blocks: Sequence[BlockReport] = ()) -> tuple[Finding, ...]:
    """Apply every rule, and order what it found, gravest first.

    Args:
        signals: of the network.
        blocks: what was measured of its blocks.
    """
    net = Net(signals, blocks)
    found = [finding for rule in RULES for finding in rule(net)]
    return tuple(sorted(without_effects(found), key=_place))


def _gravity(finding: Finding) -> int:
    return GRAVITY.index(finding.severity)


def _place(finding: Finding) -> tuple[int, int]:
    return _gravity(finding), ORDER.index(finding.rule)


def without_effects(found: Sequence[Finding]) -> list[Finding]:
    """Leave out what a cause already explains, and lend the cause the gravity of its effect."""
    rules = {f.rule for f in found}
    if "HD202" in rules:
        found = [f for f in found if f.rule != "HD206"]
    strong = [f for f in found if f.rule in CAUSES and f.severity != "note"]
    if strong:
        top = min(strong, key=_place)
        grave = min([f for f in found if f.rule in EFFECTS or f in strong], key=_gravity).severity
        return [replace(f, severity=grave) if f is top else f for f in found if f.rule not in EFFECTS]
    if rules & DEPTH:
        effects = [f for f in found if f.rule in OF_DEPTH]
        kept = [f for f in found if f.rule not in OF_DEPTH | {"HD206"}]
        return [_as_grave(f, effects) if f.rule in DEPTH else f for f in kept]
    return list(found)


def _as_grave(finding: Finding, effects: Sequence[Finding]) -> Finding:
    return replace(finding, severity=min([finding, *effects], key=_gravity).severity)
