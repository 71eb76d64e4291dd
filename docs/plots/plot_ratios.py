"""
The ratios
==========

How well the theory does, network by network: γ over σ² in many random networks, one panel a block. It is read before
γ is used to explain or to prescribe anything.
"""

import hessdiag

# %%
# A good one
# ----------
# Every panel sits near 1, within a factor of two. The last layer is the narrowest, since fewer
# random layers stand between it and the loss.

lenet = hessdiag.measure_setups("lenet", init="geometric", setups=30)
good = hessdiag.plots.draw_ratios(lenet)

# %%
# A bad one
# ---------
# Panels with medians far apart. In a residual network γ gives the whole gradient to a weight on a
# branch, which causes only a part of it: towards the end of this one the ratios are above 10, and
# at its stem below 1.

residual = hessdiag.measure_setups("preconditioned-resnet14", setups=3, batch_size=2)
bad = hessdiag.plots.draw_ratios(residual)

# %%
# Known exceptions
# ----------------
# A common factor in all panels is the constant of the loss, not an error of the theory: with
# cross-entropy ratios are in the thousands. What counts is whether the panels agree with one
# another.
