"""
An initialisation among others
==============================

``hessdiag check-init`` ranks an initialisation on the same random networks as others.
"""

import torch

import hessdiag


def mine(weight):
    """Xavier's variance with the gain of a ReLU."""
    fans = weight[0].numel() + weight[:, 0].numel()
    torch.nn.init.normal_(weight, std=(2 / fans) ** 0.5)


# %%
# Good and bad in one figure
# --------------------------
# The map in one colour belongs to the balanced initialisation, the chequered one to the unbalanced.
# Each map is over its own level, so that colours speak of balance alone.

check = hessdiag.check_init(mine, model="lenet", against=["geometric", "fan-in"], setups=5)
ranking = hessdiag.plots.draw_init_check(check)
