"""
The layers
==========

One row a layer, the first on top, and three numbers in it: what the theory expects (γ), what is measured (σ²), and the
weight-gradient ratio (ν). This is the figure of ``hessdiag diagnose --plots`` and of the HTML page.
"""

import torch

import hessdiag
from hessdiag import init
from hessdiag.models import StridedLeNet

# %%
# A good one
# ----------
# Each colour runs straight down. Where blue (γ) lies beside green (σ²), the theory explains the
# curvature, so that changing E[W²] by its formula works.

torch.manual_seed(2)
images = torch.randn(64, 3, 32, 32)
model = init.apply(StridedLeNet(), "geometric")
good = hessdiag.plots.draw_layers(hessdiag.diagnose(model, images))

# %%
# A bad one
# ---------
# The colours zigzag together: γ, σ² and ν all say that the same layers are far out. The legend
# has the largest over the smallest value among the weights.

bad = hessdiag.plots.draw_layers(hessdiag.diagnose(init.apply(model, "fan-out"), images))

# %%
# Known exceptions
# ----------------
# With a loss that is trained with, γ and σ² run in parallel but far apart: the factor between
# them is the loss's own, the same for all layers. Read the shape, or compare the column *γ curv.*
# of the table.

labels = torch.randint(10, (64,))
report = hessdiag.diagnose(init.apply(model, "geometric"), images, labels, loss="cross-entropy")
parallel = hessdiag.plots.draw_layers(report)

# %%
# Further:
#
# * **Biases** are hollow, and far from the weights where inputs or activations are far from unit
#   scale. They do not count in the spread.
# * **Residual branches**: σ² lies below γ by the squared weight of the branch, see
#   :doc:`/paper`.
# * **Long bars** on σ² are sampling errors (± 1.96 standard errors): measure again with a smaller
#   ``rtol`` before you read anything into the difference.
