"""
An initialisation among others
==============================

``hessdiag check-init`` ranks an initialisation on the same random networks as others, and asks
whether the balance holds as the network grows.
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

check = hessdiag.check_init(mine, model="lenet", against=["geometric", "fan-in"], setups=5, widths=[0.5, 1, 2])
ranking = hessdiag.plots.draw_init_check(check)

# %%
# Over widths
# -----------
# Level lines are good: the balance is a property of the rule, not of this size. Lines that fan
# out or cross say that the layers stand differently to one another at another width.

widths = hessdiag.plots.draw_widths(check.widths)

# %%
# Known exceptions
# ----------------
# The last layer writes ten numbers at every width, so that an initialisation by the fan-out moves
# it against the others, as here: that is what the figure is for, and no chance. What is chance is
# a kink in one line at the smallest width, where a layer has few weights; more ``setups`` take it
# away.
