from base import *
def imgs(seed, n=32, c=3, hw=32, k=10, noise=1.0, g=8):
    y = R(seed, k, (n,)); t = F.interpolate(T(7, k, c, g, g), size=(hw, hw), mode="nearest")
    return t[y] + noise * T(seed + 1, n, c, hw, hw), y
def cbr(i, o, k=3, s=1, g=1, act=nn.ReLU): return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), act())
class Enc(nn.Module):
    """pre-LN transformer block with a hook for the attention function"""
    def __init__(s, d=64, h=4, mult=2, attn=None, causal=False):
        super().__init__(); s.h = h; s.causal = causal; s.attn = attn
        s.ln1 = nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.ln2 = nn.LayerNorm(d)
        s.mlp = nn.Sequential(nn.Linear(d, mult * d), nn.GELU(), nn.Linear(mult * d, d))
    def forward(s, x):
        B, N, D = x.shape; q, k, v = s.qkv(s.ln1(x)).view(B, N, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        if s.attn is not None: o = s.attn(q, k, v)
        else:
            a = q @ k.transpose(-1, -2) / math.sqrt(D // s.h)
            if s.causal: a = a.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
            o = a.softmax(-1) @ v
        x = x + s.proj(o.transpose(1, 2).reshape(B, N, D)); return x + s.mlp(s.ln2(x))
