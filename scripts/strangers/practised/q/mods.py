from base import *
NEG = float("-inf")
class Rope(nn.Module):
    def __init__(s, hd, inv=None):
        super().__init__()
        s.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, hd, 2).float() / hd)) if inv is None else inv)
    def forward(s, x):                      # B H T hd
        ang = torch.arange(x.shape[-2]).float()[:, None] * s.inv_freq
        c, n = ang.cos(), ang.sin(); a, b = x.chunk(2, -1)
        return torch.cat([a * c - b * n, b * c + a * n], -1)
class MHA(nn.Module):
    def __init__(s, d, h, causal=False, rope=None, scale=None, out=True):
        super().__init__(); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.h, s.causal, s.rope = h, causal, rope
        s.scale = (d // h) ** -.5 if scale is None else scale
    def forward(s, x, bias=None):
        B, T, D = x.shape; q, k, v = s.qkv(x).view(B, T, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        if s.rope is not None: q, k = s.rope(q), s.rope(k)
        a = q @ k.transpose(-2, -1) * s.scale
        if s.causal: a = a.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), NEG)
        if bias is not None: a = a + bias
        return s.proj((a.softmax(-1) @ v).transpose(1, 2).reshape(B, T, D))
def mlp(d, m=4, act=nn.GELU): return nn.Sequential(nn.Linear(d, m * d), act(), nn.Linear(m * d, d))
class Block(nn.Module):
    def __init__(s, d, h, ff=None, **k):
        super().__init__(); s.norm1 = nn.LayerNorm(d); s.attn = MHA(d, h, **k); s.norm2 = nn.LayerNorm(d); s.mlp = ff or mlp(d)
    def forward(s, x, bias=None):
        x = x + s.attn(s.norm1(x), bias); return x + s.mlp(s.norm2(x))
class GPT(nn.Module):
    def __init__(s, V=12, T=16, d=48, L=2, pos=True, block=None, head=True, h=4, causal=True):
        super().__init__(); s.wte = nn.Embedding(V, d); nn.init.normal_(s.wte.weight, std=.02)
        s.wpe = nn.Parameter(torch.randn(T, d) * .02) if pos else None
        s.blocks = nn.ModuleList((block(i) if block else Block(d, h, causal=causal)) for i in range(L)); s.norm = nn.LayerNorm(d)
        s.head = nn.Linear(d, V, bias=False) if head else None
    def forward(s, x):
        x = s.wte(x)
        if s.wpe is not None: x = x + s.wpe[:x.shape[1]]
        for b in s.blocks: x = b(x)
        x = s.norm(x); return s.head(x) if s.head is not None else x
def copy(seed, B=32, T=16, V=12, k=1):      # y_t = perm[x_{t-k}]
    x = R(seed, V, (B, T)); perm = torch.randperm(V, generator=gen(7)); y = perm[torch.cat([x[:, :k], x[:, :-k]], 1)]; return x, y
def markov(seed, B=32, T=17, V=12):
    P = (T_(3, V, V) * 2.5).softmax(-1); g = gen(seed); x = [torch.randint(0, V, (B,), generator=g)]
    for _ in range(T - 1): x.append(torch.multinomial(P[x[-1]], 1, generator=g)[:, 0])
    x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
def T_(s, *shape): return torch.randn(*shape, generator=gen(s))
def images(seed, B=32, C=3, S=16, K=8, noise=.7):
    y = R(seed, K, (B,)); t = F.interpolate(T_(5, K, C, 4, 4), size=(S, S), mode="bilinear"); x = t[y] + noise * T_(seed + 1, B, C, S, S); return x, y
class ViT(nn.Module):
    def __init__(s, d=48, L=2, K=8, P=4, S=16, h=4, block=None):
        super().__init__(); s.patch = nn.Conv2d(3, d, P, P); N = (S // P) ** 2; s.cls = nn.Parameter(torch.zeros(1, 1, d)); nn.init.normal_(s.cls, std=.02)
        s.pos = nn.Parameter(torch.randn(1, N + 1, d) * .02); s.blocks = nn.ModuleList((block(i) if block else Block(d, h)) for i in range(L)); s.norm = nn.LayerNorm(d); s.head = nn.Linear(d, K)
    def forward(s, x):
        x = s.patch(x).flatten(2).transpose(1, 2); x = torch.cat([s.cls.expand(len(x), -1, -1), x], 1) + s.pos
        for b in s.blocks: x = b(x)
        return s.head(s.norm(x)[:, 0])
