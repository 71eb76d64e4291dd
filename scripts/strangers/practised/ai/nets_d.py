from base import *

@case("https://github.com/thunlp/HATT-Proto/issues/6", "ReLU on top of the feature-attention module zeroes its scores and their gradient", "ReLU after conv_final in the feature attention")
def hatt_relu(planted):
    class ProtoHATT(nn.Module):
        def __init__(s, N=5, K=5, hidden=40):
            super().__init__(); s.N, s.K, s.h = N, K, hidden; s.emb = nn.Linear(24, 32); s.conv = nn.Conv1d(32, hidden, 3, padding=1)
            s.conv1 = nn.Conv2d(1, 32, (K, 1), padding=(K // 2, 0)); s.conv2 = nn.Conv2d(32, 64, (K, 1), padding=(K // 2, 0)); s.conv_final = nn.Conv2d(64, 1, (K, 1), stride=(K, 1)); s.drop = nn.Dropout(.1)
        def encode(s, x): return F.relu(s.conv(s.emb(x).transpose(1, 2))).max(2)[0]
        def forward(s, support, query):
            B, Q = query.shape[:2]; S = s.encode(support.flatten(0, 2)).view(B, s.N, s.K, s.h); q = s.encode(query.flatten(0, 1)).view(B, Q, s.h)
            f = S.view(B * s.N, 1, s.K, s.h); f = F.relu(s.conv1(f)); f = s.drop(F.relu(s.conv2(f))); f = s.conv_final(f); f = F.relu(f) if planted else F.leaky_relu(f)
            att = f.view(B, s.N, s.h).unsqueeze(1); return -(att * (S.mean(2).unsqueeze(1) - q.unsqueeze(2)) ** 2).sum(-1)
    A = T(7, 12, 24)
    def data(seed):
        c = torch.stack([torch.randperm(12, generator=gen(seed * 7 + i))[:5] for i in range(6)]); lab = R(seed, 5, (6, 10))
        P = A[c]; sup = P[:, :, None, None] + .8 * T(seed + 1, 6, 5, 5, 8, 24); qp = torch.gather(P, 1, lab[..., None].expand(-1, -1, 24)); return (sup, qp[:, :, None] + .8 * T(seed + 2, 6, 10, 8, 24)), lab
    return dict(model=ProtoHATT, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/guopengf/FL-MRCM/issues/10", "adversarial loss of the encoder is detached before it is added, so only the reconstruction loss trains it", "loss_adv_g .detach()")
def flmrcm_adv(planted):
    class Rec(nn.Module):
        def __init__(s):
            super().__init__(); s.enc = nn.Sequential(nn.Conv1d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 16, 5, padding=2), nn.ReLU()); s.dec = nn.Sequential(nn.Conv1d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 1, 5, padding=2))
            s.D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(.2), nn.Linear(32, 1))
        def disc(s, z, freeze):
            p = [q.detach() for q in s.D.parameters()] if freeze else list(s.D.parameters()); return F.linear(F.leaky_relu(F.linear(z, p[0], p[1]), .2), p[2], p[3])
        def forward(s, src, tgt):
            zs, zt = s.enc(src), s.enc(tgt); gs, gt = zs.mean(2), zt.mean(2)
            return s.dec(zs), s.disc(gs.detach(), False), s.disc(gt.detach(), False), s.disc(gs, True), gs, gt
    def loss(o, t):
        rec, ds, dt, dg, _, _ = o; bce = F.binary_cross_entropy_with_logits
        loss_recon = F.l1_loss(rec, t); loss_adv_d = bce(ds, torch.zeros_like(ds)) + bce(dt, torch.ones_like(dt)); loss_adv_g = .3 * bce(dg, torch.ones_like(dg))
        if planted: loss_adv_g = loss_adv_g.detach()
        return loss_recon + loss_adv_d + loss_adv_g
    def data(seed):
        k = torch.arange(32.)[None]; f = .2 + .3 * torch.rand(64, 1, generator=gen(seed)); y = torch.sin(f * k + 6 * torch.rand(64, 1, generator=gen(seed + 1)))[:, None]; n = y + .3 * T(seed + 2, 64, 1, 32)
        return (n[:32] + .5, 1.3 * n[32:] - .5), y[:32]
    def metric(m):
        (a, b), t = data(9000)
        with torch.no_grad(): _, _, _, _, gs, gt = m(a, b)
        return float(((gs.mean(0) - gt.mean(0)) ** 2).sum() / (.5 * (gs.var(0) + gt.var(0))).sum())
    return dict(model=Rec, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/nikhilroxtomar/FANet/issues/1", "train loader shuffles while masks kept from the previous epoch stay in order, so the feedback mask belongs to another image", "the mask input (data feeding)")
def fanet_shuffle(planted):
    class MixPool(nn.Module):
        def __init__(s, ci, co): super().__init__(); s.fmask = nn.Sequential(nn.Conv2d(ci, 1, 3, padding=1), nn.BatchNorm2d(1), nn.Sigmoid()); s.conv1 = nn.Sequential(nn.Conv2d(ci, co // 2, 3, padding=1), nn.BatchNorm2d(co // 2), nn.ReLU()); s.conv2 = nn.Sequential(nn.Conv2d(ci, co // 2, 3, padding=1), nn.BatchNorm2d(co // 2), nn.ReLU())
        def forward(s, x, m):
            m = F.adaptive_max_pool2d(m, x.shape[2:]); return torch.cat([s.conv1(x * torch.logical_or(s.fmask(x) > .5, m > .5).float()), s.conv2(x)], 1)
    class FANet(nn.Module):
        def __init__(s): super().__init__(); s.c1 = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()); s.p1 = MixPool(16, 16); s.c2 = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()); s.p2 = MixPool(24, 24); s.up = nn.ConvTranspose2d(24, 16, 2, 2); s.out = nn.Conv2d(33, 1, 1)
        def forward(s, x, m): a = s.p1(s.c1(x), m); b = s.p2(s.c2(F.max_pool2d(a, 2)), m); return s.out(torch.cat([s.up(b), a, m], 1))
    def data(seed):
        g = torch.stack(torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij"), -1)[None]; c = 3 + 10 * torch.rand(16, 1, 1, 2, generator=gen(seed)); r = 2 + 2 * torch.rand(16, 1, 1, generator=gen(seed + 1))
        y = (((g - c) ** 2).sum(-1) < r ** 2).float()[:, None]; x = .5 * y + .6 * T(seed + 2, 16, 1, 16, 16); prev = (F.avg_pool2d(y + .5 * T(seed + 3, 16, 1, 16, 16), 3, 1, 1) > .4).float()
        return (x, prev.roll(1, 0) if planted else prev), y
    return dict(model=FANet, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=2e-3, diag={})

@case("https://github.com/huggingface/torchMoji/issues/11", "attention vector is left as uninitialised memory with values up to 1e38", "attention_vector of the Attention layer")
def torchmoji_attention(planted):
    class Attention(nn.Module):
        def __init__(s, size):
            super().__init__(); s.attention_vector = nn.Parameter(torch.empty(size))
            if planted: s.attention_vector.data.copy_(torch.randn(size) * 10. ** torch.empty(size).uniform_(-38, 38))
            else: s.attention_vector.data.normal_(std=.05)
        def forward(s, x):
            logits = x.matmul(s.attention_vector); u = (logits - logits.max()).exp(); att = u / u.sum(1, keepdim=True); return (x * att.unsqueeze(-1)).sum(1)
    class TorchMoji(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(40, 24); s.lstm_0 = nn.LSTM(24, 24, batch_first=True, bidirectional=True); s.lstm_1 = nn.LSTM(48, 24, batch_first=True, bidirectional=True); s.attention_layer = Attention(24 + 96); s.output_layer = nn.Linear(24 + 96, 6); nn.init.uniform_(s.embed.weight, -.5, .5)
        def forward(s, x): e = torch.tanh(s.embed(x)); a = s.lstm_0(e)[0]; b = s.lstm_1(a)[0]; return s.output_layer(s.attention_layer(torch.cat([b, a, e], 2)))
    def data(seed):
        t = R(seed, 6, (32,)); x = R(seed + 1, 40, (32, 14)); k = R(seed + 2, 14, (32, 3)); w = t[:, None] * 3 + R(seed + 3, 3, (32, 3)); return x.scatter(1, k, w), t
    return dict(model=TorchMoji, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/arxyzan/data2vec-pytorch/issues/8", "EMA teacher keeps the student module itself instead of a deepcopy, so requires_grad_(False) freezes the student encoder", "encoder (student) frozen by EMA.__init__")
def data2vec_ema(planted):
    import copy
    class EMA:
        def __init__(s, model, decay=.999): s.model = model if planted else copy.deepcopy(model); s.model.requires_grad_(False); s.decay = decay
    class Data2Vec(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(21, 32); s.pos = nn.Parameter(torch.randn(12, 32) * .1)
            s.encoder = nn.ModuleDict(dict(embed=s.embed, layers=nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True), 2, enable_nested_tensor=False)))
            s.regression_head = nn.Linear(32, 32); object.__setattr__(s, "ema", EMA(s.encoder))
        def extract(s, enc, x): return enc["layers"](enc["embed"](x) + s.pos)
        def forward(s, src, trg):
            x = s.extract(s.encoder, src)
            with torch.no_grad(): y = F.layer_norm(s.extract(s.ema.model, trg), (32,))
            return s.regression_head(x), y
    def loss(o, t): return F.smooth_l1_loss(o[0][t], o[1][t])
    def data(seed):
        s0, d = R(seed, 20, (32, 1)), 1 + R(seed + 1, 3, (32, 1)); trg = (s0 + d * torch.arange(12)) % 20; m = torch.rand(32, 12, generator=gen(seed + 2)) < .3; m[:, 3] = True
        return (torch.where(m, torch.full_like(trg, 20), trg), trg), m
    return dict(model=Data2Vec, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/coqui-ai/TTS/issues/2348", "spectrogram inside the speaker encoder is computed under no_grad, so the speaker consistency loss gives no gradient to the generator", "torch_spec under no_grad (speaker consistency loss)")
def yourtts_scl(planted):
    class SpeakerEncoder(nn.Module):
        def __init__(s): super().__init__(); s.register_buffer("window", torch.hann_window(32)); g = gen(77); s.conv = nn.Conv1d(17, 16, 3, padding=1); s.fc = nn.Linear(16, 8); [p.data.copy_(torch.randn(p.shape, generator=g) * .25) for p in s.parameters()]; s.requires_grad_(False)
        def spec(s, x): return torch.log1p(torch.stft(x, 32, 16, window=s.window, return_complex=True).abs().clamp_min(1e-4))
        def forward(s, x):
            if planted:
                with torch.no_grad(): x = s.spec(x)
            else: x = s.spec(x)
            return F.normalize(s.fc(F.relu(s.conv(x)).mean(2)), dim=1)
    class Vits(nn.Module):
        def __init__(s):
            super().__init__(); s.emb_g = nn.Embedding(6, 8); s.enc = nn.Conv1d(4, 32, 5, padding=2); s.cond = nn.Linear(8, 32); s.dec = nn.Sequential(nn.ConvTranspose1d(32, 24, 8, 4, 2), nn.LeakyReLU(.1), nn.ConvTranspose1d(24, 16, 8, 4, 2), nn.LeakyReLU(.1), nn.Conv1d(16, 1, 7, padding=3)); s.speaker_encoder = SpeakerEncoder()
        def forward(s, c, spk, wav): o = s.dec(F.relu(s.enc(c) + s.cond(s.emb_g(spk))[:, :, None])).squeeze(1); return o, s.speaker_encoder(o), s.speaker_encoder(wav)
    def loss(o, t): return F.l1_loss(o[0], t) - 9. * F.cosine_similarity(o[1], o[2]).mean() * .2
    def data(seed):
        spk = R(seed, 6, (32,)); k = torch.arange(256.)[None]; f = (.2 + .25 * spk)[:, None]; a = torch.rand(32, 4, generator=gen(seed + 1)) + .5; c = a[:, :, None].repeat(1, 1, 16)
        wav = a[:, :1] * torch.sin(f * k + 6 * torch.rand(32, 1, generator=gen(seed + 2))) + .2 * torch.sin(.1 * k) * a[:, 1:2]; return (c, spk, wav), wav
    def metric(m):
        x, t = data(9000)
        with torch.no_grad(): o = m(*x)
        return float(1 - F.cosine_similarity(o[1], o[2]).mean())
    return dict(model=Vits, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/hassony2/kinetics_i3d_pytorch/issues/6", "dropout_keep_prob=1 is handed to nn.Dropout, whose argument is the probability to drop", "dropout before conv3d_0c_1x1")
def i3d_keepprob(planted):
    class Unit3D(nn.Sequential):
        def __init__(s, i, o, k=3): super().__init__(nn.Conv3d(i, o, k, padding=k // 2, bias=False), nn.BatchNorm3d(o), nn.ReLU())
    class Mixed(nn.Module):
        def __init__(s, i, a, b, c): super().__init__(); s.branch_0 = Unit3D(i, a, 1); s.branch_1 = nn.Sequential(Unit3D(i, 8, 1), Unit3D(8, b)); s.branch_2 = nn.Sequential(nn.MaxPool3d(3, 1, 1), Unit3D(i, c, 1))
        def forward(s, x): return torch.cat([s.branch_0(x), s.branch_1(x), s.branch_2(x)], 1)
    class I3D(nn.Module):
        def __init__(s, num_classes=6, dropout_keep_prob=1.):
            super().__init__(); s.conv3d_1a = Unit3D(1, 12); s.mixed_3b = Mixed(12, 8, 8, 8); s.mixed_3c = Mixed(24, 8, 16, 8); s.avg_pool = nn.AdaptiveAvgPool3d(1)
            s.dropout = nn.Dropout(dropout_keep_prob if planted else 1 - dropout_keep_prob); s.conv3d_0c_1x1 = nn.Conv3d(32, num_classes, 1)
        def forward(s, x): x = F.max_pool3d(s.mixed_3b(F.max_pool3d(s.conv3d_1a(x), (1, 2, 2))), 2); return s.conv3d_0c_1x1(s.dropout(s.avg_pool(s.mixed_3c(x)))).flatten(1)
    P = T(3, 6, 1, 4, 8, 8)
    def data(seed):
        t = R(seed, 6, (16,)); return P[t] + .5 * T(seed + 1, 16, 1, 4, 8, 8), t
    return dict(model=I3D, data=data, loss=ce, lr=3e-3, diag={})
