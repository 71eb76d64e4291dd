"""
The heatmap
===========

Each square is one block of the Gauss-Newton matrix: what a change of weight *j* does to the gradient of weight *i*, as
its mean squared singular value σ². On the diagonal stands what each weight's own curvature is. Yellow is large, dark
blue small, and a step in the colour scale is a factor.
"""

import hessdiag

# %%
# A good one
# ----------
# One colour. Under geometric-mean initialisation all diagonal blocks of a LeNet are about equally
# curved; the number above the map is the largest over the smallest of them. A single network
# scatters, so this is a mean over five.

balanced = hessdiag.measure_setups("lenet", init="geometric", setups=5)
unbalanced = hessdiag.measure_setups("lenet", init="fan-out", setups=5)
good = hessdiag.plots.draw_heatmaps([balanced])

# %%
# A bad one
# ---------
# A bright and a dark corner. Here they stand side by side, so that they share one scale: under
# fan-out initialisation the convolutions have hundreds of times the σ² of the linear layers.
# Curvature is the square root of σ², and a learning rate that suits the brightest block is too
# small for the darkest by about that square root.

both = hessdiag.plots.draw_heatmaps([balanced, unbalanced])

# %%
# Known exceptions
# ----------------
# * **The level says nothing.** A factor on the loss or on the outputs brightens all squares
#   alike. Compare squares with one another, never with those of another network or loss.
# * **A normalisation behind a weight** makes the network independent of that weight's scale, but
#   not its σ². The balance in words leaves such weights out; the map shows them.
# * **Dark lines** belong to weights without influence: a layer that starts at zero, on purpose or
#   not. ``hessdiag diagnose`` says which (HD401). Grey squares are exactly zero or undefined.
