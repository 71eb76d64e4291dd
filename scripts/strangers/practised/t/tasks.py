from base import *
def imgs(s, B=32, C=3, H=16, K=5, noise=1.0):
    tpl = F.interpolate(T(4242, K, C, 4, 4), size=(H, H), mode="bilinear") * 1.5
    y = R(s, K, (B,)); return tpl[y] + noise * T(s + 1, B, C, H, H), y
def vecs(s, B=64, D=16, K=5):
    x = T(s, B, D); W1 = T(11, D, 32) / D ** .5 * 2; W2 = T(12, 32, K)
    return x, (torch.tanh(x @ W1) @ W2).argmax(1)
def sincos(n, d):
    pe = torch.zeros(n, d); p = torch.arange(n).unsqueeze(1).float(); div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
    pe[:, 0::2] = torch.sin(p * div); pe[:, 1::2] = torch.cos(p * div); return pe
class SelfAttention(nn.Module):
    def __init__(s, d, h, causal=0, bug=""):
        super().__init__(); s.h, s.causal, s.bug = h, causal, bug
        s.query = nn.Linear(d, d); s.key = nn.Linear(d, d); s.value = nn.Linear(d, d); s.proj = nn.Linear(d, d)
    def forward(s, x):
        B, N, C = x.shape; hd = C // s.h
        q, k, v = (f(x).view(B, N, s.h, hd).transpose(1, 2) for f in (s.query, s.key, s.value))
        scale = {"noscale": 1.0, "emb": C ** -.5}.get(s.bug, hd ** -.5)
        att = (q @ k.transpose(-2, -1)) * scale
        if s.causal: att = att.masked_fill(torch.ones(N, N).triu(1).bool(), float("-inf"))
        att = F.softmax(att, dim=-2 if s.bug == "softdim" else -1)
        y = att @ v
        y = y.reshape(B, N, C) if s.bug == "nomerge" else y.transpose(1, 2).reshape(B, N, C)
        return y if s.bug == "noscale" else s.proj(y)
class Block(nn.Module):
    def __init__(s, d, h, causal=0, bug=""):
        super().__init__(); s.ln1 = nn.LayerNorm(d); s.attn = SelfAttention(d, h, causal, bug); s.ln2 = nn.LayerNorm(d)
        s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(s, x): x = x + s.attn(s.ln1(x)); return x + s.mlp(s.ln2(x))
