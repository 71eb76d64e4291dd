from base import *

# ---------------------------------------------------------------- 1 speech
@case("https://github.com/mozilla/TTS/pull/267", "the GST Tacotron puts an extra sigmoid on the linear-spectrogram output", "last_linear / the sigmoid after it")
def tts_gst_sigmoid(planted):
    V, L, ME, LI = 20, 16, 12, 24
    tm, tl = T(1, V, ME), T(2, V, LI)
    class Conv(nn.Module):
        def __init__(s, i, o, act):
            super().__init__(); s.c = nn.Conv1d(i, o, 3, padding=1, bias=False); s.bn = nn.BatchNorm1d(o); s.act = act
        def forward(s, x):
            x = s.bn(s.c(x)); return F.relu(x) if s.act else x
    class Tacotron(nn.Module):
        def __init__(s):
            super().__init__()
            s.embedding = nn.Embedding(V, 32); s.embedding.weight.data.normal_(0, .3)
            s.enc_conv = nn.Sequential(Conv(32, 32, True), Conv(32, 32, False)); s.enc_rnn = nn.GRU(32, 16, batch_first=True, bidirectional=True)
            s.decoder = nn.GRU(32, 48, batch_first=True); s.proj_to_mel = nn.Linear(48, ME)
            s.post_conv = nn.Sequential(Conv(ME, 32, True), Conv(32, 32, False)); s.post_rnn = nn.GRU(32, 16, batch_first=True, bidirectional=True)
            s.last_linear = nn.Linear(32, LI)
        def forward(s, x):
            e = s.embedding(x)
            h = s.enc_conv(e.transpose(1, 2)).transpose(1, 2) + e
            h, _ = s.enc_rnn(h); h, _ = s.decoder(h); mel = s.proj_to_mel(h)
            p, _ = s.post_rnn(s.post_conv(mel.transpose(1, 2)).transpose(1, 2))
            lin = s.last_linear(p)
            if planted: lin = torch.sigmoid(lin)
            return torch.cat([mel, lin], -1)
    def data(seed):
        x = R(seed, V, (16, L))
        return x, torch.cat([tm[x], tl[x]], -1)
    return dict(model=Tacotron, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=5e-3, diag={})

# ---------------------------------------------------------------- 2 translation
@case("https://github.com/facebookresearch/fairseq/pull/249", "final states of the bidirectional LSTM encoder are concatenated with cat(dim=0).view, which mixes sentences of the batch", "combine_bidir in the encoder / encoder final states into the decoder")
def fairseq_bidir(planted):
    V, L, E_, H, NL = 16, 6, 32, 24, 2
    perm = torch.randperm(V, generator=gen(5))
    class Enc(nn.Module):
        def __init__(s):
            super().__init__(); s.embed_tokens = nn.Embedding(V, E_); nn.init.uniform_(s.embed_tokens.weight, -.1, .1)
            s.lstm = nn.LSTM(E_, H, num_layers=NL, bidirectional=True)
            for p in s.lstm.parameters(): nn.init.uniform_(p, -.1, .1)
        def forward(s, x):
            b = x.size(0); o, (h, c) = s.lstm(s.embed_tokens(x).transpose(0, 1))
            def combine_bidir(outs):
                if planted: return torch.cat([torch.cat([outs[2 * i], outs[2 * i + 1]], dim=0).view(1, b, 2 * H) for i in range(NL)], dim=0)
                return outs.view(NL, 2, b, -1).transpose(1, 2).contiguous().view(NL, b, -1)
            return o, combine_bidir(h), combine_bidir(c)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = Enc(); s.dec_embed = nn.Embedding(V + 1, E_); nn.init.uniform_(s.dec_embed.weight, -.1, .1)
            s.dec = nn.LSTM(E_, 2 * H, num_layers=NL)
            for p in s.dec.parameters(): nn.init.uniform_(p, -.1, .1)
            s.att_in = nn.Linear(2 * H, 2 * H, bias=False); s.att_out = nn.Linear(4 * H, 2 * H, bias=False); s.fc_out = nn.Linear(2 * H, V)
        def forward(s, src, prev):
            enc, h, c = s.encoder(src)
            d, _ = s.dec(s.dec_embed(prev).transpose(0, 1), (h, c))
            a = torch.einsum("tbd,sbd->bts", s.att_in(d), enc).softmax(-1)
            ctx = torch.einsum("bts,sbd->tbd", a, enc)
            return s.fc_out(torch.tanh(s.att_out(torch.cat([ctx, d], -1)))).transpose(0, 1)
    def data(seed):
        x = R(seed, V, (32, L)); y = perm[x]
        return (x, torch.cat([torch.full((32, 1), V), y[:, :-1]], 1)), y
    return dict(model=Net, data=data, loss=ceseq, lr=1e-2, diag={})

# ---------------------------------------------------------------- 3 radiance fields
@case("https://github.com/nerfstudio-project/nerfstudio/pull/1526", "SHRenderer calls self.activation(rgb) and throws the result away", "SHRenderer.activation (the sigmoid is never applied)")
def sh_renderer(planted):
    S = 6
    def sh4(d):
        x, y, z = d.unbind(-1)
        return torch.stack([.282095 * torch.ones_like(x), .488603 * y, .488603 * z, .488603 * x, 1.092548 * x * y, 1.092548 * y * z, .946175 * z * z - .315392, 1.092548 * x * z, .546274 * (x * x - y * y)], -1)
    class SHRenderer(nn.Module):
        def __init__(s): super().__init__(); s.activation = nn.Sigmoid()
        def forward(s, sh, dirs, w):
            sh = sh.view(*sh.shape[:-1], 3, 9)
            rgb = (sh4(dirs)[:, None, None, :] * sh).sum(-1)
            if planted: s.activation(rgb)
            else: rgb = s.activation(rgb)
            return (w * rgb).sum(-2)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.base = nn.Sequential(nn.Linear(27, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.density = nn.Linear(64, 1); s.sh = nn.Linear(64, 27); s.renderer = SHRenderer()
        def forward(s, pos, dirs):
            f = torch.cat([pos] + [g(pos * k) for k in (1., 2., 4., 8.) for g in (torch.sin, torch.cos)], -1)
            h = s.base(f); sig = F.softplus(s.density(h)); a = 1 - torch.exp(-sig)
            tr = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
            return s.renderer(s.sh(h), dirs, a * tr)
    wc, wd = T(11, 3, 3), T(12, 3, 3)
    def data(seed):
        o = T(seed, 64, 1, 3, k=.5); d = F.normalize(T(seed + 1, 64, 3), dim=-1)
        pos = o + d[:, None] * torch.linspace(.2, 2, S)[None, :, None]
        r = (pos.norm(dim=-1, keepdim=True) < 1.2).float() * 1.5 + .3; a = 1 - torch.exp(-r)
        tr = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a], 1), 1)[:, :-1]
        rgb = torch.sigmoid(2 * pos @ wc + (d @ wd)[:, None])
        return (pos, d), (a * tr * rgb).sum(1)
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={})

# ---------------------------------------------------------------- 4 meta-learning
@case("https://github.com/learnables/learn2learn/pull/196", "the adaptation error, already a mean, is divided by the number of examples once more (inner step 25 times too small)", "the inner-loop (adaptation) loss")
def maml_double_mean(planted):
    W, K, Q, D, H, B = 5, 5, 3, 8, 48, 16
    class MAML(nn.Module):
        def __init__(s): super().__init__(); s.l1 = nn.Linear(D, H); s.l2 = nn.Linear(H, H); s.l3 = nn.Linear(H, W)
        def run(s, p, x):
            x = F.relu(torch.baddbmm(p[1][:, None], x, p[0].transpose(1, 2))); x = F.relu(torch.baddbmm(p[3][:, None], x, p[2].transpose(1, 2)))
            return torch.baddbmm(p[5][:, None], x, p[4].transpose(1, 2))
        def forward(s, xs, ys, xq):
            with torch.enable_grad():
                b = xs.size(0); p = [q.unsqueeze(0).expand(b, *q.shape) for l in (s.l1, s.l2, s.l3) for q in (l.weight, l.bias)]
                for _ in range(1):
                    train_error = F.cross_entropy(s.run(p, xs).transpose(1, 2), ys, reduction="none").mean(1)
                    if planted: train_error = train_error / xs.size(1)
                    g = torch.autograd.grad(train_error.sum(), p, create_graph=True)
                    p = [a - .5 * c for a, c in zip(p, g)]
            return s.run(p, xq)
    def data(seed):
        m = T(seed, B, W, D, k=1.)
        ys, yq = torch.arange(W).repeat(K).expand(B, -1), torch.arange(W).repeat(Q).expand(B, -1)
        pick = lambda y, sd: m.gather(1, y[..., None].expand(-1, -1, D)) + T(sd, B, y.size(1), D, k=.3)
        return (pick(ys, seed + 1), ys.contiguous(), pick(yq, seed + 2)), yq.contiguous()
    return dict(model=MAML, data=data, loss=ceseq, lr=3e-3, diag={})

# ---------------------------------------------------------------- 5 knowledge graphs
@case("https://github.com/pykeen/pykeen/issues/312", "ComplEx interaction: the last term is added instead of subtracted", "ComplEx interaction function (sign of h_im * r_im * t_re)")
def complex_sign(planted):
    N, NR, D = 24, 6, 16
    class ComplEx(nn.Module):
        def __init__(s):
            super().__init__(); s.ent_re, s.ent_im, s.rel_re, s.rel_im = nn.Embedding(N, D), nn.Embedding(N, D), nn.Embedding(NR, D), nn.Embedding(NR, D)
            for e in (s.ent_re, s.ent_im, s.rel_re, s.rel_im): nn.init.normal_(e.weight, 0, .5)
        def forward(s, h, r):
            hr, hi, rr, ri = s.ent_re(h), s.ent_im(h), s.rel_re(r), s.rel_im(r); tr, ti = s.ent_re.weight, s.ent_im.weight
            last = (hi * ri) @ tr.t()
            out = (hr * rr) @ tr.t() + (hr * ri) @ ti.t() + (hi * rr) @ ti.t()
            return out + last if planted else out - last
    sh = torch.tensor([1, 2, 3, 5, 7, 11])
    def data(seed):
        h, r = R(seed, N, (64,)), R(seed + 1, NR, (64,)); return (h, r), (h + sh[r]) % N
    return dict(model=ComplEx, data=data, loss=ce, lr=3e-2, diag={})

# ---------------------------------------------------------------- 6 faces
@case("https://github.com/auroua/InsightFace_TF/issues/1", "ArcFace: mm = sin_m*m*s is multiplied by s a second time (s*(cos_t - mm)) for the hard angles", "the ArcFace head (keep_val / mm)")
def arcface_mm(planted):
    C, D, s_, m_ = 10, 8, 64., .5
    proto = T(21, C, 3, 12, 12)
    class Head(nn.Module):
        def __init__(s): super().__init__(); s.weight = nn.Parameter(torch.empty(C, D)); nn.init.xavier_uniform_(s.weight)
        def forward(s, e, y):
            cos_t = F.linear(F.normalize(e), F.normalize(s.weight)).clamp(-1 + 1e-6, 1 - 1e-6)
            sin_t = torch.sqrt(1 - cos_t ** 2); cos_m, sin_m = math.cos(m_), math.sin(m_)
            mm = sin_m * m_ * s_ if planted else sin_m * m_
            cos_mt = s_ * (cos_t * cos_m - sin_t * sin_m)
            keep = s_ * (cos_t - mm)
            cos_mt = torch.where(cos_t > math.cos(math.pi - m_), cos_mt, keep)
            oh = F.one_hot(y, C).bool()
            return torch.where(oh, cos_mt, s_ * cos_t)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.PReLU(16), nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.PReLU(32), nn.Flatten(), nn.Linear(288, D), nn.BatchNorm1d(D)); s.head = Head()
        def forward(s, x, y): return s.head(s.body(x), y)
    def data(seed):
        y = R(seed, C, (32,)); return (proto[y] * .7 + T(seed + 1, 32, 3, 12, 12, k=.7), y), y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

# ---------------------------------------------------------------- 7 recommenders
@case("https://github.com/DSXiangLi/CTR/issues/7", "FM second-order term is averaged over the embedding (reduce_mean) instead of summed", "FM interaction term")
def fm_mean(planted):
    NF, V, K = 6, 12, 8
    tv = T(31, NF, V, 4); 
    class FM(nn.Module):
        def __init__(s):
            super().__init__(); s.w = nn.Embedding(NF * V, 1); s.v = nn.Embedding(NF * V, K); s.b = nn.Parameter(torch.zeros(1))
            nn.init.normal_(s.w.weight, 0, .01); nn.init.normal_(s.v.weight, 0, .1)
        def forward(s, x):
            i = x + torch.arange(NF) * V; v = s.v(i)
            inter = v.sum(1) ** 2 - (v ** 2).sum(1)
            inter = .5 * (inter.mean(1, keepdim=True) if planted else inter.sum(1, keepdim=True))
            return s.b + s.w(i).sum(1) + inter
    def data(seed):
        x = R(seed, V, (64, NF)); v = tv[torch.arange(NF), x]
        z = .5 * ((v.sum(1) ** 2) - (v ** 2).sum(1)).sum(1); return x, (z > 0).float()[:, None]
    return dict(model=FM, data=data, loss=nn.BCEWithLogitsLoss(), lr=2e-2, diag={})
