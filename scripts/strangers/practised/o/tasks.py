from base import *
DFD = "https://github.com/ArabelaTso/DeepFD "; DLZ = "https://github.com/Wardat-ISU/DeepLocalize "; SO = "https://stackoverflow.com/questions/"
TDC = "https://github.com/thedeepchecker/thedeepchecker "; D4M = "https://github.com/mohmehmo/defects4ml "
def proto(d, K, B=32, noise=.6, k=1., seed=7):
    P = T(seed, K, d)
    def data(s): y = R(s, K, (B,)); return k * (P[y] + noise * T(s + 1, B, d)), y
    return data
def binary(d, B=32, noise=.3, seed=5, shape=(-1, 1)):
    w = T(seed, d) / math.sqrt(d)
    def data(s): x = T(s, B, d); return x, ((x @ w * 2 + .5 * x[:, 0] * x[:, 1] + noise * T(s + 1, B)) > 0).float().view(*shape)
    return data
def digits(B=32, hw=28, C=1, K=10, scale=1., noise=.15, seed=11, flat=False):
    """bright strokes on black, in [0, 1] as MNIST /255 is, shifted by up to two pixels."""
    P = F.interpolate((torch.rand(K, C, 7, 7, generator=gen(seed)) > .6).float(), (hw, hw), mode="bilinear")
    def data(s):
        y = R(s, K, (B,)); x = P[y]; sh = torch.randint(-2, 3, (B, 2), generator=gen(s + 1))
        x = torch.stack([torch.roll(a, (int(i), int(j)), (1, 2)) for a, (i, j) in zip(x, sh)])
        x = (x + noise * torch.rand(x.shape, generator=gen(s + 2))).clamp(0, 1) * scale
        return (x.flatten(1) if flat else x), y
    return data
def mnistnorm(data, m=.3, sd=.35):
    def f(s): x, y = data(s); return (x - m) / sd, y
    return f
def bce(o, t): return F.binary_cross_entropy(o, t)
def bcel(o, t): return F.binary_cross_entropy_with_logits(o, t)
def text(V=200, L=24, K=2, B=32, seed=3, nkey=6):
    """bag of key words decides the class."""
    keys = torch.arange(10, 10 + nkey * K).view(K, nkey)
    def data(s):
        y = R(s, K, (B,)); x = R(s + 1, V - 80, (B, L)) + 80; k = keys[y].gather(1, R(s + 2, nkey, (B, 5))); p = R(s + 3, L, (B, 5))
        return x.scatter(1, p, k), y
    return data
class Destd(nn.Module):
    def __init__(s, m, sd): super().__init__(); s.register_buffer("m", torch.tensor(float(m))); s.register_buffer("sd", torch.tensor(float(sd)))
    def forward(s, z): return z * s.sd + s.m
def keras_init(m):
    for l in m.modules():
        if isinstance(l, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            nn.init.xavier_uniform_(l.weight)
            if l.bias is not None: nn.init.zeros_(l.bias)
    return m
def he(m):
    for l in m.modules():
        if isinstance(l, (nn.Linear, nn.Conv2d)): nn.init.kaiming_normal_(l.weight, nonlinearity="relu"); nn.init.zeros_(l.bias)
    return m
