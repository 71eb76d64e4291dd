from base import *
def cbr(i, o, s=1, k=3): return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.ReLU())
def imgs(seed, n=32, k=6, c=3, s=16, key=7, noise=.4):
    """class templates at random places on noise"""
    g = gen(seed); tp = T(key, k, c, 6, 6); y = torch.randint(0, k, (n,), generator=g); x = torch.randn(n, c, s, s, generator=g) * noise
    p = torch.randint(0, s - 5, (n, 2), generator=g)
    for i in range(n): a, b = int(p[i, 0]), int(p[i, 1]); x[i, :, a:a + 6, b:b + 6] += tp[y[i]]
    return x, y
def smooth(seed, n=16, c=3, s=16, m=5): return F.interpolate(torch.randn(n, c, m, m, generator=gen(seed)), size=s, mode="bicubic")
def bce(o, t): return F.binary_cross_entropy_with_logits(o, t)
