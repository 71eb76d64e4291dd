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
# The map in one colour and the marker at 1 belong to the balanced initialisation, the chequered
# map and the marker on the right to the unbalanced one. Dashed lines are where the words change
# from balanced to uneven to unbalanced.

check = hessdiag.check_init(mine, model="lenet", against=["geometric", "fan-in"], setups=5)
ranking = hessdiag.plots.draw_init_check(check)
