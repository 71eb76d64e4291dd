from base import *
def mlp(i, h, o, act=nn.ReLU): return nn.Sequential(nn.Linear(i, h), act(), nn.Linear(h, o))
def sym(s, K): W = T(s, K, K); return (W + W.T) / 2
def mols(seed, B=32, N=8, K=5, scale=1.2):     # atoms with pair energies decaying in distance
    t = R(seed, K, (B, N)); p = T(seed + 1, B, N, 3) * scale; d = torch.cdist(p, p) / scale * 1.2; W = sym(3, K)
    e = W[t[:, :, None], t[:, None]] * (-d ** 2 / 2).exp(); y = (e.sum((1, 2)) - e.diagonal(dim1=1, dim2=2).sum(1)) / 2; return (t, p), y[:, None] / 2
def graphs(seed, B=32, N=10, K=5):             # graphs with bond energies
    t = R(seed, K, (B, N)); a = (torch.rand(B, N, N, generator=gen(seed + 1)) < .3).float().triu(1); a = a + a.transpose(1, 2); W = sym(4, K)
    return (t, a), ((W[t[:, :, None], t[:, None]] * a).sum((1, 2)) / 6)[:, None]
class GCN(nn.Module):
    def __init__(s, i, o): super().__init__(); s.lin = nn.Linear(i, o)
    def forward(s, x, a):
        a = a + torch.eye(a.shape[1]); d = a.sum(-1).rsqrt(); return s.lin((d[:, :, None] * a * d[:, None]) @ x)
class BN(nn.BatchNorm1d):                      # over nodes of all graphs
    def forward(s, x): return super().forward(x.transpose(1, 2)).transpose(1, 2)
def rbf(d, hi, n=16): c = torch.linspace(0, hi, n); return (-.5 * ((d[..., None] - c) / (hi / (n - 1))) ** 2).exp()
class SchNet(nn.Module):
    def __init__(s, d=32, L=2, cutoff=5.0, K=5):
        super().__init__(); s.emb = nn.Embedding(K, d); s.cutoff = cutoff
        s.filt = nn.ModuleList(mlp(16, d, d, nn.SiLU) for _ in range(L)); s.inl = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(L)); s.out = nn.ModuleList(mlp(d, d, d, nn.SiLU) for _ in range(L)); s.head = mlp(d, d, 1, nn.SiLU)
    def forward(s, t, p):
        d = (((p[:, :, None] - p[:, None]) ** 2).sum(-1) + 1e-12).sqrt(); N = d.shape[1]; off = 1 - torch.eye(N); x = s.emb(t)
        fc = .5 * ((d / s.cutoff).clamp(max=1) * math.pi).cos() + .5
        for f, i, o in zip(s.filt, s.inl, s.out): x = x + o((f(rbf(d, s.cutoff)) * (fc * off)[..., None] * i(x)[:, None]).sum(2) / (N - 1) ** .5)
        return s.head(x).sum(1) / N ** .5
def kg(seed, B=64, N=40, Rn=4, neg=8):         # t = h + shift_r mod N, on a ring
    h, r = R(seed, N, (B,)), R(seed + 1, Rn, (B,)); sh = torch.tensor([1, 3, 7, 12]); return (h, r, (h + sh[r]) % N, R(seed + 2, N, (B, neg))), torch.zeros(B)
def kgloss(o, t): p, n = o; return -(F.logsigmoid(p).mean() + F.logsigmoid(-n).mean()) / 2
def ctr(seed, B=64, Fd=6, V=12):
    x = R(seed, V, (B, Fd)); e = T(11, Fd, V, 4); v = torch.stack([e[f][x[:, f]] for f in range(Fd)], 1); s = v.sum(1); z = .5 * (s ** 2 - (v ** 2).sum(1)).sum(1) / 4; return x, (z > 0).float()
def bce(o, t): return F.binary_cross_entropy_with_logits(o.squeeze(-1), t)
