from base import *
def blur(x, n=2):
    for _ in range(n): x = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    return x
def templates(k, c, hw, seed=77):
    t = blur(T(seed, k, c, hw, hw), 2); return t / t.flatten(1).std(1).view(-1, 1, 1, 1)
def digits(seed, n=32, c=1, hw=16, k=10, noise=.25):
    y = R(seed, k, (n,)); x = torch.sigmoid(1.5 * templates(k, c, hw)[y]) + T(seed + 1, n, c, hw, hw) * noise
    return x.clamp(0, 1), y
def blobs(seed, n=16, hw=16, r=2.5, noise=.3):
    g = gen(seed); p = torch.rand(n, 2, 2, generator=g) * (hw - 4) + 2
    yy, xx = torch.meshgrid(torch.arange(hw), torch.arange(hw), indexing="ij")
    d = ((yy[None, None] - p[:, :, 0, None, None]) ** 2 + (xx[None, None] - p[:, :, 1, None, None]) ** 2).sqrt()
    m = (d.min(1).values < r).float()[:, None]
    x = m * 1.0 + T(seed + 1, n, 1, hw, hw) * noise + .5 * blur(T(seed + 2, n, 1, hw, hw), 3)
    return torch.cat([x, x * .7 + .1 * T(seed + 3, n, 1, hw, hw), T(seed + 4, n, 1, hw, hw) * .3], 1), m
def faces(seed, n=32, hw=16):
    z = T(seed, n, 6); x = torch.einsum("nk,kchw->nchw", z, templates(6, 1, hw, 55)); return torch.sigmoid(x * 1.0)
