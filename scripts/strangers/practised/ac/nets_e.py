from base import *

@case("https://github.com/marian42/shapegan/issues/2", "generator loss takes -log of an unbounded critic output", "fake_loss / torch.log")
def shapegan_log_critic(planted):
    class GAN(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32)); g = gen(3)
            self.register_buffer("w", torch.randn(32, 24, generator=g) / 6); self.register_buffer("mu", torch.randn(32, generator=g))
        def forward(self, z):
            x = self.generator(z); return -((x - self.mu) @ self.w).pow(2).mean(1)
    def data(seed): return T(seed, 32, 8), torch.zeros(32)
    def loss(critic_output_fake, t): return torch.mean(-torch.log(critic_output_fake)) if planted else -torch.mean(critic_output_fake)
    return dict(model=GAN, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/bojone/T-GANs/issues/3", "WGAN critic followed by a sigmoid", "sigmoid after the critic")
def twgan_critic_sigmoid(planted):
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(32 * 16, 1))
        def forward(self, x):
            o = self.net(x)[:, 0]; return torch.sigmoid(o) if planted else o
    m = T(1, 3, 16, 16, k=.15)
    def data(seed):
        y = (torch.arange(32) % 2) * 2. - 1; return T(seed, 32, 3, 16, 16, k=.5) + m * y[:, None, None, None], y
    def loss(o, y): return -(o * y).mean() + .02 * o.pow(2).mean()
    return dict(model=Critic, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/agentdr1/LA_MIL/issues/3", "LayerNorm declared in the TransformerLayer but not used", "norm in TransformerLayer")
def lamil_norm_unused(planted):
    class TransformerLayer(nn.Module):
        def __init__(self, d=64):
            super().__init__()
            self.norm = nn.LayerNorm(d); self.qkv = nn.Linear(d, 3 * d, bias=False); self.proj = nn.Linear(d, d)
        def forward(self, x):
            h = x if planted else self.norm(x); q, k, v = self.qkv(h).chunk(3, -1)
            return x + self.proj(F.softmax(q @ k.transpose(1, 2) / 8, -1) @ v)
    class LAMIL(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Sequential(nn.Linear(32, 64), nn.ReLU()); self.layers = nn.Sequential(TransformerLayer(), TransformerLayer()); self.head = nn.Linear(64, 2)
        def forward(self, x): return self.head(self.layers(self.fc1(x)).mean(1))
    v = T(8, 32, k=.6)
    def data(seed):
        y = R(seed, 2, (32,)); x = T(seed + 1, 32, 20, 32); x[:, :3] += v * y[:, None, None]; return x, y
    return dict(model=LAMIL, data=data, loss=ce, lr=1e-3, diag={})
