from base import *

def blobs(s, n, d=2, k=8, std=.1):
    c = T(77, k, d, k=1.5); return c[R(s, k, (n,))] + T(s + 1, n, d, k=std)

@case("https://github.com/soran-ghaderi/torchebm/issues/318", "DSM target is -noise/sigma^2 while the model returns grad E (sign flipped)", "loss: denoising score target sign")
def dsm_ebm(planted):
    sigma = .5
    class EnergyModel(nn.Module):
        def __init__(s):
            super().__init__(); s.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
        def forward(s, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_(True); e = s.net(x).squeeze(-1)
                return torch.autograd.grad(e.sum(), x, create_graph=True)[0]
    def data(seed):
        x = blobs(seed, 64); noise = T(seed + 2, 64, 2); return x + sigma * noise, noise
    def loss(score, noise):
        target = (-noise if planted else noise) / sigma
        return .5 * (score * sigma - target * sigma).square().sum(-1).mean()
    def ref(m, k=5):
        tot = 0
        for i in range(k):
            x, n = data(9000 + i); tot += float(.5 * (m(x) * sigma - n).square().sum(-1).mean()) / k
        return tot
    return dict(model=EnergyModel, data=data, loss=loss, lr=5e-3, diag={}, metric=ref)

@case("https://github.com/wohlert/semi-supervised-pytorch/issues/16", "softplus on log_var in GaussianSample (log_var >= 0)", "GaussianSample.log_var / softplus")
def vae_softplus_logvar(planted):
    class GaussianSample(nn.Module):
        def __init__(s, i, o): super().__init__(); s.mu = nn.Linear(i, o); s.log_var = nn.Linear(i, o)
        def forward(s, x):
            mu, log_var = s.mu(x), s.log_var(x)
            if planted: log_var = F.softplus(log_var)
            return mu + torch.randn_like(mu) * torch.exp(.5 * log_var), mu, log_var
    class VAE(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()); s.sample = GaussianSample(64, 8)
            s.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.xavier_normal_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x): z, mu, lv = s.sample(s.encoder(x)); return s.decoder(z), mu, lv
    W = T(5, 4, 64, k=2.)
    def data(seed): x = torch.sigmoid(T(seed, 32, 4) @ W); return x, x
    def loss(o, t):
        r, mu, lv = o; bce = F.binary_cross_entropy(r.clamp(1e-6, 1 - 1e-6), t, reduction="none").sum(-1)
        return (bce - .5 * (1 + lv - mu ** 2 - lv.exp()).sum(-1)).mean()
    return dict(model=VAE, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/rishikksh20/vae_tacotron2/issues/3", "exp(log_var) used as the standard deviation in the reparameterisation", "VAE sampling: std = exp(log_var)")
def vae_tacotron_std(planted):
    class ReferenceEncoder(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv1d(20, 32, 3, 2, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 32, 3, 2, 1), nn.BatchNorm1d(32), nn.ReLU())
            s.gru = nn.GRU(32, 32, batch_first=True)
        def forward(s, x): return s.gru(s.conv(x.transpose(1, 2)).transpose(1, 2))[1][0]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.ref = ReferenceEncoder(); s.mean = nn.Linear(32, 8); s.log_var = nn.Linear(32, 8)
            s.style = nn.Linear(8, 32); s.text = nn.Embedding(12, 32); s.dec = nn.GRU(32, 64, batch_first=True); s.mel = nn.Linear(64, 20)
        def forward(s, mel, text):
            h = s.ref(mel); mu, lv = s.mean(h), s.log_var(h)
            std = torch.exp(lv) if planted else torch.exp(.5 * lv)
            z = mu + torch.randn_like(std) * std
            return s.mel(s.dec(s.text(text) + torch.tanh(s.style(z)).unsqueeze(1))[0]), mu, lv
    E, S = T(3, 12, 20), T(4, 3, 20, k=1.5)
    def data(seed):
        text = R(seed, 12, (32, 16)); mel = E[text] + (T(seed + 1, 32, 3) @ S).unsqueeze(1); return (mel, text), mel
    def loss(o, t):
        m, mu, lv = o; return F.mse_loss(m, t) + .02 * (-.5 * (1 + lv - mu ** 2 - lv.exp()).sum(-1)).mean()
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/nikhilsinghmus/image2reverb/issues/37", "fake_spec.detach() passed to the discriminator in the generator step", "generator adversarial term: fake_spec.detach()")
def reverb_detach(planted):
    torch.manual_seed(1); d0 = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(32, 1, 4)); W = T(8, 16, 256)
    def real(seed, n=32): f = T(seed, n, 16); return f, torch.tanh((f @ W / 4)).view(n, 1, 16, 16)
    od = torch.optim.Adam(d0.parameters(), 1e-3)
    for k in range(60):
        _, r = real(50000 + k); l = (d0(r) - 1).square().mean() + d0(T(60000 + k, 32, 1, 16, 16, k=.5)).square().mean(); od.zero_grad(); l.backward(); od.step()
    class Image2Reverb(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
            s.g = nn.Sequential(nn.Unflatten(1, (64, 1, 1)), nn.ConvTranspose2d(64, 64, 4), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh())
            import copy; s.d = copy.deepcopy(d0).requires_grad_(False)
        def forward(s, f):
            fake_spec = s.g(s.enc(f)); d_fake2 = s.d(fake_spec.detach() if planted else fake_spec); return d_fake2, fake_spec
    def loss(o, t): d, fake = o; return F.mse_loss(d, torch.ones_like(d)) + .1 * F.l1_loss(fake, t)
    return dict(model=Image2Reverb, data=real, loss=loss, lr=1e-3, diag={})

@case("https://github.com/anantzoid/Conditional-PixelCNN-decoder/issues/9", "causal mask applied to the 1x1 convolutions of the stacks too (mask 'a' zeroes them)", "v_stack_1 / h_stack_1 1x1 convs in the first layer")
def gated_pixelcnn_mask(planted):
    class GatedCNN(nn.Module):
        def __init__(s, i, o, k, mask=None, gated=True, payload=False):
            super().__init__(); s.gated = gated; s.conv = nn.Conv2d(i, o * (2 if gated else 1), k, padding=(k[0] // 2, k[1] // 2))
            m = torch.ones(*k); c0, c1 = k[0] // 2, k[1] // 2
            if mask: m[c0, c1 + 1:] = 0; m[c0 + 1:] = 0
            if mask == "a": m[c0, c1] = 0
            s.register_buffer("mask", m); nn.init.xavier_uniform_(s.conv.weight); nn.init.zeros_(s.conv.bias)
        def forward(s, x, payload=None):
            y = F.conv2d(x, s.conv.weight * s.mask, s.conv.bias, padding=s.conv.padding)
            if not s.gated: return y
            if payload is not None: y = y + payload
            a, b = y.chunk(2, 1); return torch.tanh(a) * torch.sigmoid(b)
    class Layer(nn.Module):
        def __init__(s, i, f, k, first):
            super().__init__(); m = "a" if first else "b"; s.first = first; p = m if planted else None
            s.v_stack = GatedCNN(i, f, (k, k), "v"); s.v_stack.mask.fill_(1); s.v_stack.mask[k // 2:] = 0
            s.v_stack_1 = GatedCNN(f, 2 * f, (1, 1), p, gated=False); s.h_stack = GatedCNN(i, f, (1, k), m); s.h_stack_1 = GatedCNN(f, f, (1, 1), p, gated=False)
        def forward(s, v, h):
            v = s.v_stack(v); h2 = s.h_stack_1(s.h_stack(h, s.v_stack_1(v))); return v, h2 if s.first else h2 + h
    class PixelCNN(nn.Module):
        def __init__(s):
            super().__init__(); s.layers = nn.ModuleList([Layer(1, 32, 5, True), Layer(32, 32, 3, False), Layer(32, 32, 3, False)]); s.fc1 = GatedCNN(32, 32, (1, 1), "b" if planted else None, gated=False); s.fc2 = nn.Conv2d(32, 4, 1)
        def forward(s, x):
            v = h = x.unsqueeze(1).float() / 3
            for l in s.layers: v, h = l(v, h)
            return s.fc2(F.relu(s.fc1(h)))
    def data(seed):
        st = R(seed, 4, (32, 8, 1)); dr = R(seed + 1, 2, (32, 8, 1)) * 2 - 1; x = (st + dr * torch.arange(8)).remainder(4); return x, x
    return dict(model=PixelCNN, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/NVIDIA-NeMo/Automodel/issues/1071", "no initialize_weights: weights (wte, tied with lm_head, and the linears) materialised as zeros", "wte / lm_head (all weights zero)")
def gpt2_zero_wte(planted):
    class Block(nn.Module):
        def __init__(s, d, h):
            super().__init__(); s.h = h; s.ln_1 = nn.LayerNorm(d); s.qkv_proj = nn.Linear(d, 3 * d); s.out_proj = nn.Linear(d, d); s.ln_2 = nn.LayerNorm(d); s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        def forward(s, x):
            B, L, D = x.shape; q, k, v = s.qkv_proj(s.ln_1(x)).view(B, L, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
            x = x + s.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D)); return x + s.mlp(s.ln_2(x))
    class GPT2LMHeadModel(nn.Module):
        def __init__(s, V=32, d=64):
            super().__init__(); s.wte = nn.Embedding(V, d); s.wpe = nn.Embedding(24, d); s.h = nn.ModuleList([Block(d, 4) for _ in range(3)]); s.ln_f = nn.LayerNorm(d); s.lm_head = nn.Linear(d, V, bias=False); s.lm_head.weight = s.wte.weight
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.normal_(m.weight, 0, .02)
                if isinstance(m, nn.Linear) and m.bias is not None: nn.init.zeros_(m.bias)
            if planted:
                for m in s.modules():
                    if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.zeros_(m.weight)
        def forward(s, ids):
            x = s.wte(ids) + s.wpe(torch.arange(ids.shape[1]))
            for b in s.h: x = b(x)
            return s.lm_head(s.ln_f(x))
    perm = torch.randperm(32, generator=gen(3))
    def data(seed):
        x = [R(seed, 32, (32,))]
        for i in range(16): x.append(torch.where(torch.rand(32, generator=gen(seed * 31 + i)) < .05, R(seed + i, 32, (32,)), perm[x[-1]]))
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=GPT2LMHeadModel, data=data, loss=ceseq, lr=1e-3, diag={})
