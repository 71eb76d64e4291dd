import math, torch, torch.nn as nn, torch.nn.functional as F
CASES = {}
def case(src, mistake, guilty):
    def deco(f): CASES[f.__name__] = (f, src, mistake, guilty); return f
    return deco
def gen(s): return torch.Generator().manual_seed(s)
def T(s, *shape, k=1.0): return torch.randn(*shape, generator=gen(s)) * k
def R(s, hi, shape): return torch.randint(0, hi, shape, generator=gen(s))
class M(nn.Module):
    def __init__(s, f, **mods):
        super().__init__(); s.f = f
        for k, v in mods.items():
            if isinstance(v, (nn.Module, nn.Parameter)): setattr(s, k, v)
            elif torch.is_tensor(v): s.register_buffer(k, v)
            else: setattr(s, k, v)
    def forward(s, *a): return s.f(s, *a)
def ce(o, t): return F.cross_entropy(o, t)
def ceseq(o, t): return F.cross_entropy(o.flatten(0, -2), t.flatten())
def mse(o, t): return F.mse_loss(o, t)
CE = dict(loss="cross-entropy"); SEQ = dict(loss="cross-entropy", class_dim=-1); MSE = dict(loss="mse")
