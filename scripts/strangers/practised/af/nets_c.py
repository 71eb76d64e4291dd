from base import *

@case("https://github.com/thedatumorg/TSB-AD/pull/79", "zscore(X, axis=1) standardises every time step across the channels: the amplitude is erased", "the z-scored input (axis=1)")
def tsbad_zscore_axis(planted):
    class CNN(nn.Module):
        def __init__(s, n=3):
            super().__init__(); s.conv1 = nn.Conv1d(n, 32, 5, padding=2); s.conv2 = nn.Conv1d(32, 32, 5, padding=2); s.fc1 = nn.Linear(32 * 8, 64); s.fc2 = nn.Linear(64, n)
        def forward(s, x):
            h = F.max_pool1d(F.relu(s.conv1(x.transpose(1, 2))), 2); h = F.max_pool1d(F.relu(s.conv2(h)), 2); return s.fc2(F.relu(s.fc1(h.flatten(1))))
    def zscore(x, axis):
        if axis == 0: return x / torch.tensor([3., 1., .3]) / .9
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + 1e-8)
    def data(seed):
        g = gen(seed); u = torch.arange(33.)[None, :, None]; f = torch.rand(48, 1, 1, generator=g) * .3 + .2; ph = torch.rand(48, 1, 3, generator=g) * 6.28; a = torch.rand(48, 1, 3, generator=g) * 1.5 + .3
        x = torch.sin(f * u + ph) * a * torch.tensor([3., 1., .3]); y = zscore(x, 0)[:, -1]; return zscore(x, 1 if planted else 0)[:, :-1], y
    return dict(model=CNN, data=data, loss=mse, lr=3e-3, diag={}, metric=lambda m: float(sum(mse(m(x), t) for x, t in map(data, range(9000, 9005))) / 5))

@case("https://github.com/google-research/timesfm/issues/522", "revin: forward divides by where(sigma<tol, 1, sigma), reverse multiplies by the raw sigma: the forecast of quiescent series is wiped out", "reverse branch of revin (x * sigma + mu)")
def timesfm_revin(planted):
    TOL = 1e-6
    def revin(x, mu, sigma, reverse=False):
        mu, safe = mu[:, None], torch.where(sigma < TOL, torch.ones_like(sigma), sigma)[:, None]
        if reverse: return x * (sigma[:, None] if planted else safe) + mu
        return (x - mu) / safe
    class Patched(nn.Module):
        def __init__(s, L=32, H=8, d=48):
            super().__init__(); s.tokenizer = nn.Sequential(nn.Linear(8, d), nn.SiLU(), nn.Linear(d, d)); s.cov = nn.Linear(4, d); s.pos = nn.Parameter(torch.randn(1, L // 8 + 1, d) * .02)
            s.stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 96, dropout=0., batch_first=True, norm_first=True), 2); s.out = nn.Linear(d, H)
        def forward(s, x, cov):
            mu, sigma = x.mean(1), x.std(1); p = revin(x, mu, sigma).view(x.size(0), -1, 8)
            h = s.stack(torch.cat([s.tokenizer(p), s.cov(cov)[:, None]], 1) + s.pos); return revin(s.out(h[:, -1]), mu, sigma, reverse=True)
    w = T(3, 4, 8)
    def data(seed):
        c = T(seed, 32, 4); level = T(seed + 1, 32, 1); x = level.expand(32, 32).clone(); x[:8] += T(seed + 2, 8, 32); return (x, c), level + torch.tanh(c @ w)
    return dict(model=Patched, data=data, loss=mse, lr=2e-3, diag={})
