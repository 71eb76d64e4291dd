import math, torch, torch.nn as nn, torch.nn.functional as F
NETS = {}
def net(**mist):
    def deco(f): NETS[f.__name__] = (f, mist); return f
    return deco
def gen(s): return torch.Generator().manual_seed(s)
def N(g, *sh): return torch.randn(*sh, generator=g)
def I(g, hi, *sh): return torch.randint(0, hi, sh, generator=g)
def U(g, *sh): return torch.rand(*sh, generator=g)
