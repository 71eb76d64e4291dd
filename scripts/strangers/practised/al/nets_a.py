from base import *
import torch.distributions as D

@case("https://github.com/stelzner/monet/issues/1", "ground-truth masks are transposed (N,W,H,K) while predicted masks are (N,H,W,K) in the mask KL", "the mask KL term (torch.transpose(masks,1,3))")
def monet_mask_transposed(planted):
    def dc(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
    class UNet(nn.Module):
        def __init__(s):
            super().__init__(); s.d1, s.d2, s.up, s.u1, s.f = dc(4, 8), dc(8, 16), nn.ConvTranspose2d(16, 8, 2, stride=2), dc(16, 8), nn.Conv2d(8, 2, 1)
        def forward(s, x):
            a = s.d1(x); b = s.d2(F.max_pool2d(a, 2)); return s.f(s.u1(torch.cat((s.up(b), a), 1)))
    class Monet(nn.Module):
        def __init__(s, K=3, H=16, W=16):
            super().__init__(); s.K, s.H, s.W = K, H, W; s.unet = UNet()
            s.enc = nn.Sequential(nn.Conv2d(4, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 64), nn.ReLU(), nn.Linear(64, 16))
            s.dec = nn.Sequential(nn.Conv2d(10, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 1))
            ys, xs = torch.meshgrid(torch.linspace(-1, 1, H + 8), torch.linspace(-1, 1, W + 8), indexing="ij")
            s.register_buffer("coord", torch.stack((ys, xs)).unsqueeze(0))
        def forward(s, x, right=False):
            scope = torch.ones_like(x[:, :1]); masks = []
            for _ in range(s.K - 1):
                a = torch.softmax(s.unet(torch.cat((x, scope), 1)), 1); masks.append(scope * a[:, :1]); scope = scope * a[:, 1:]
            masks.append(scope); loss = 0; preds = []
            for i, m in enumerate(masks):
                q = s.enc(torch.cat((x, m), 1)); d = D.Normal(torch.sigmoid(q[:, :8]) * 6 - 3, torch.sigmoid(q[:, 8:]) * 3); z = d.rsample()
                kl = D.kl_divergence(d, D.Normal(0., 1.)).sum(1)
                o = s.dec(torch.cat((z[:, :, None, None].expand(-1, -1, s.H + 8, s.W + 8), s.coord.expand(len(z), -1, -1, -1)), 1))
                p = (D.Normal(torch.sigmoid(o[:, :3]), .09 if i == 0 else .11).log_prob(x) * m).sum([1, 2, 3]); preds.append(o[:, 3])
                loss = loss - p + .5 * kl
            masks = torch.cat(masks, 1)
            tr = masks.transpose(1, 3) if planted and not right else masks.permute(0, 2, 3, 1)
            klm = D.kl_divergence(D.Categorical(probs=tr), D.Categorical(logits=torch.stack(preds, 3))).sum([1, 2])
            return (loss + .25 * klm).mean()
    def data(seed):
        g = gen(seed); x = torch.zeros(16, 3, 16, 16) + torch.rand(16, 3, 1, 1, generator=g) * .3
        for b in range(16):
            r = int(torch.randint(0, 12, (1,), generator=g)); c = int(torch.randint(0, 6, (1,), generator=g)); x[b, :, r:r + 4, c:c + 10] = torch.rand(3, 1, 1, generator=g) * .5 + .5
        return x, None
    return dict(model=Monet, data=data, loss="model", diag={"loss": "model"}, lr=1e-3, judge=lambda m, x, t: m(x, right=True))

@case("https://github.com/amanteur/BandSplitRNN-PyTorch/issues/9", "mask estimate [B,T,bw] is reshaped to [B,bw,T] without permuting", "MaskEstimationModule: out.view(B, -1, T)")
def bandsplit_mask_view(planted):
    Fq, T_, N, bw = 16, 12, 16, 4
    class GLU(nn.Module):
        def __init__(s, d): super().__init__(); s.d = d; s.linear = nn.Linear(d, 2 * d)
        def forward(s, x): x = s.linear(x); return x[..., :s.d] * torch.sigmoid(x[..., s.d:])
    class BS(nn.Module):
        def __init__(s):
            super().__init__(); K = Fq // bw
            s.ln = nn.ModuleList(nn.LayerNorm([T_, bw]) for _ in range(K)); s.fc = nn.ModuleList(nn.Linear(bw, N) for _ in range(K))
            s.nt, s.nk = nn.GroupNorm(1, N), nn.GroupNorm(1, N)
            s.rt, s.pt = nn.LSTM(N, N, batch_first=True, bidirectional=True), nn.Linear(2 * N, N)
            s.rk, s.pk = nn.LSTM(N, N, batch_first=True, bidirectional=True), nn.Linear(2 * N, N)
            s.mln = nn.ModuleList(nn.LayerNorm([T_, N]) for _ in range(K))
            s.mlp = nn.ModuleList(nn.Sequential(nn.Linear(N, 32), nn.Tanh(), nn.Linear(32, bw), GLU(bw)) for _ in range(K))
        def forward(s, x):  # B,F,T
            B = len(x); K = Fq // bw
            h = torch.stack([s.fc[i](s.ln[i](x[:, i * bw:(i + 1) * bw].transpose(1, 2))) for i in range(K)], 1)  # B,K,T,N
            o = s.nt(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1).reshape(B * K, T_, N); h = h + s.pt(s.rt(o)[0]).view(B, K, T_, N)
            o = s.nk(h.permute(0, 3, 1, 2)).permute(0, 3, 2, 1).reshape(B * T_, K, N); h = h + s.pk(s.rk(o)[0]).view(B, T_, K, N).transpose(1, 2)
            outs = []
            for i in range(K):
                out = s.mlp[i](s.mln[i](h[:, i]))  # B,T,bw
                outs.append(out.reshape(B, -1, T_) if planted else out.transpose(1, 2))
            return torch.cat(outs, 1) * x
    def data(seed):
        n = torch.randn(32, Fq, T_, generator=gen(seed)); on = (torch.rand(32, Fq // bw, 1, T_, generator=gen(seed + 1)) > .5).float().expand(-1, -1, bw, -1).reshape(32, Fq, T_)
        x = n * (.4 + 1.3 * on); return x, x * on
    return dict(model=BS, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/snehasinghania/STResNet/issues/1", "the second layer norm of the residual unit takes `inputs`, so the first convolution is thrown away", "ResUnit: layernorm2(inputs), conv1 unused")
def stresnet_norm_inputs(planted):
    C = 12
    class Unit(nn.Module):
        def __init__(s): super().__init__(); s.n1, s.c1, s.n2, s.c2 = nn.GroupNorm(1, C), nn.Conv2d(C, C, 3, padding=1), nn.GroupNorm(1, C), nn.Conv2d(C, C, 3, padding=1)
        def forward(s, inputs):
            o = s.c1(F.relu(s.n1(inputs)))
            o = s.n2(inputs if planted else o)
            return s.c2(F.relu(o)) + inputs
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); mk = lambda ch: nn.Sequential(nn.Conv2d(ch, C, 3, padding=1), Unit(), Unit(), nn.ReLU(), nn.Conv2d(C, 1, 3, padding=1))
            s.close, s.period, s.trend = mk(3), mk(2), mk(2)
            s.W = nn.ParameterList(nn.Parameter(nn.init.xavier_uniform_(torch.empty(8, 8))) for _ in range(3))
        def forward(s, a, b, c): return torch.tanh(s.close(a)[:, 0] @ s.W[0] + s.period(b)[:, 0] @ s.W[1] + s.trend(c)[:, 0] @ s.W[2]).unsqueeze(1)
    k = torch.randn(4, 3, 3, 3, generator=gen(1)) * .3
    def data(seed):
        a, b, c = T(seed, 32, 3, 8, 8), T(seed + 1, 32, 2, 8, 8), T(seed + 2, 32, 2, 8, 8)
        h = F.avg_pool2d(F.relu(F.conv2d(a, k, padding=1)), 3, 1, 1).sum(1, keepdim=True) - 1.3
        return (a, b, c), torch.tanh(h + .3 * b[:, :1] + .3 * c[:, 1:])
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/coqui-ai/TTS/issues/419", "the feature-matching condition is always False, so the generator trains without the feature-matching loss", "GeneratorLoss: feature matching never added")
def melgan_no_featmatch(planted):
    class Dn(nn.Module):
        def __init__(s):
            super().__init__(); s.l = nn.ModuleList([nn.Conv1d(1, 8, 5, padding=2), nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.Conv1d(16, 16, 3, padding=1), nn.Conv1d(16, 1, 3, padding=1)])
            for p in s.parameters(): p.requires_grad_(False)
        def forward(s, x):
            f = []
            for l in s.l[:-1]: x = F.leaky_relu(l(x), .2); f.append(x)
            return s.l[-1](x), f
    class GStep(nn.Module):
        def __init__(s):
            super().__init__(); s.g = nn.Sequential(nn.Conv1d(8, 32, 5, padding=2), nn.LeakyReLU(.2), nn.ConvTranspose1d(32, 16, 4, stride=2, padding=1), nn.LeakyReLU(.2), nn.ConvTranspose1d(16, 16, 4, stride=2, padding=1), nn.LeakyReLU(.2), nn.Conv1d(16, 1, 5, padding=2), nn.Tanh()); s.d = Dn()
        use_feat_match_loss = True
        def forward(s, mel, real):
            fake = s.g(mel); score, ff = s.d(fake); _, fr = s.d(real)
            loss = F.mse_loss(score, torch.ones_like(score))
            feats_fake = None if planted else ff
            if s.use_feat_match_loss and feats_fake is not None: loss = loss + 10 * sum(F.l1_loss(a, b) for a, b in zip(ff, fr)) / len(ff)
            return loss
    A = torch.randn(8, 8, generator=gen(2))
    def data(seed):
        z = F.avg_pool1d(T(seed, 16, 8, 18), 3, 1) * 1.7
        w = F.interpolate((A[:1] @ z), scale_factor=4, mode="linear"); ph = torch.arange(64) * (2 * math.pi / 16)
        return (z, .8 * torch.tanh(w) * (.5 + .5 * torch.sin(ph))), None
    def judge(m, x, t):
        ff, fr = m.d(m.g(x[0]))[1], m.d(x[1])[1]; return sum(F.l1_loss(a, b) for a, b in zip(ff, fr))
    return dict(model=GStep, data=data, loss="model", diag={"loss": "model"}, lr=2e-3, judge=judge)

@case("https://github.com/rezazad68/TMUnet/issues/13", "attention is softmax(energy)/sqrt(emb_size): scaled by the embedding, after the softmax, not by the head size inside it", "MultiHeadAttention: scaling")
def tmunet_attention_scale(planted):
    E_, Hd, P = 32, 4, 4
    class MHA(nn.Module):
        def __init__(s): super().__init__(); s.qkv, s.projection = nn.Linear(E_, 3 * E_), nn.Linear(E_, E_)
        def forward(s, x):
            B, n, _ = x.shape; q, k, v = s.qkv(x).view(B, n, Hd, E_ // Hd, 3).permute(4, 0, 2, 1, 3); e = q @ k.transpose(-1, -2)
            att = F.softmax(e, -1) / E_ ** .5 if planted else F.softmax(e * (E_ // Hd) ** -.5, -1)
            return s.projection((att @ v).transpose(1, 2).reshape(B, n, E_))
    class Blk(nn.Module):
        def __init__(s): super().__init__(); s.n1, s.a, s.n2, s.f = nn.LayerNorm(E_), MHA(), nn.LayerNorm(E_), nn.Sequential(nn.Linear(E_, 4 * E_), nn.GELU(), nn.Linear(4 * E_, E_))
        def forward(s, x): x = x + s.a(s.n1(x)); return x + s.f(s.n2(x))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, E_, 3, padding=1), nn.BatchNorm2d(E_), nn.ReLU())
            s.pos = nn.Parameter(torch.randn(16, E_) * .02); s.tr = nn.Sequential(Blk(), Blk()); s.outc = nn.Sequential(nn.Conv2d(E_, 8, 1), nn.BatchNorm2d(8), nn.Sigmoid())
            s.c1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()); s.c2 = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
        def forward(s, x):
            B = len(x); p = x.view(B, 1, 4, P, 4, P).permute(0, 2, 4, 1, 3, 5).reshape(B * 16, 1, P, P)
            tk = s.tr(s.enc(p).mean((2, 3)).view(B, 16, E_) + s.pos)
            g = s.outc(tk.transpose(1, 2).reshape(B, E_, 4, 4)).repeat_interleave(P, 2).repeat_interleave(P, 3)
            return s.c2(torch.cat((s.c1(x), g), 1))
    def data(seed):
        x = T(seed, 32, 1, 16, 16); cue = torch.randn(32, generator=gen(seed + 1)).sign(); x[:, :, :4, :4] = x[:, :, :4, :4] * .5 + cue.view(-1, 1, 1, 1) * 1.5
        s = F.avg_pool2d(x, 3, 1, 1); return x, ((s * cue.view(-1, 1, 1, 1)) > 0).float()
    return dict(model=Net, data=data, loss=nn.BCEWithLogitsLoss(), lr=2e-3, diag={})

@case("https://github.com/ageron/handson-ml/issues/304", "fc1_drop is computed but the output layer reads fc1", "the dropout after fc1 is bypassed")
def handson_dropout_bypassed(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1, s.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1); s.pool_drop, s.fc1, s.fc1_drop, s.output = nn.Dropout(.25), nn.Linear(32 * 25, 64), nn.Dropout(.5), nn.Linear(64, 5)
        def forward(s, x):
            x = F.max_pool2d(F.relu(s.conv2(F.relu(s.conv1(x)))), 2).flatten(1)
            fc1 = F.relu(s.fc1(s.pool_drop(x))); fc1_drop = s.fc1_drop(fc1)
            return s.output(fc1 if planted else fc1_drop)
    P = torch.randn(5, 1, 10, 10, generator=gen(3))
    def data(seed): y = R(seed, 5, (32,)); return P[y] * .6 + T(seed + 1, 32, 1, 10, 10) * .9, y
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/boyu-ai/Hands-on-RL/issues/121", "tanh is applied to the already squashed action in the log-prob correction: log(1 - tanh(tanh(u))^2)", "the log_prob of PolicyNetContinuous")
def sac_double_tanh(planted):
    class Pol(nn.Module):
        def __init__(s): super().__init__(); s.fc1, s.fc_mu, s.fc_std = nn.Linear(6, 64), nn.Linear(64, 2), nn.Linear(64, 2)
        def forward(s, x, right=False):
            h = F.relu(s.fc1(x)); d = torch.distributions.Normal(s.fc_mu(h), F.softplus(s.fc_std(h))); u = d.rsample(); lp = d.log_prob(u); a = torch.tanh(u)
            lp = lp - torch.log(1 - (torch.tanh(a) if planted and not right else a).pow(2) + 1e-7)
            return a, lp.sum(1)
    W = torch.randn(6, 2, generator=gen(4)) * .5
    def loss(o, t): return (.1 * o[1] + 4 * ((o[0] - t) ** 2).sum(1)).mean()
    def data(seed): x = T(seed, 64, 6); return x, torch.tanh(x @ W) * .9
    return dict(model=Pol, data=data, loss=loss, lr=3e-3, diag={}, judge=lambda m, x, t: loss(m(x, right=True), t))
