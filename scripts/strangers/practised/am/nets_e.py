from base import *

# ---------- 8 YOLO ----------
class Yolo(nn.Module):
    def __init__(s, planted, nc=3):
        super().__init__(); s.planted = planted; s.nc = nc
        def cb(i, o, st): return nn.Sequential(nn.Conv2d(i, o, 3, st, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1))
        s.body = nn.Sequential(cb(3, 16, 1), cb(16, 16, 2), cb(16, 32, 2), cb(32, 32, 1)); s.head = nn.Conv2d(32, 5 + nc, 1)
    def losses(s, x, tgt, planted):
        p = s.head(s.body(x)).permute(0, 2, 3, 1)
        xy, wh, conf, cls = torch.sigmoid(p[..., :2]), p[..., 2:4], torch.sigmoid(p[..., 4]), torch.sigmoid(p[..., 5:])
        txy, twh, tconf, tcls = tgt[..., :2], tgt[..., 2:4], tgt[..., 4], tgt[..., 5:]
        mask = tconf; conf_mask = torch.ones_like(tconf)
        loss = F.mse_loss(xy[mask == 1], txy[mask == 1]) / 2 + F.mse_loss(wh[mask == 1], twh[mask == 1]) / 2
        if planted: loss_conf = F.binary_cross_entropy(conf_mask[conf_mask == 1], tconf[conf_mask == 1])
        else: loss_conf = F.binary_cross_entropy(conf[conf_mask == 1], tconf[conf_mask == 1])
        return loss + loss_conf + F.binary_cross_entropy(cls[mask == 1], tcls[mask == 1])
    def forward(s, x, tgt): return s.losses(x, tgt, s.planted)
def det_data(seed):
    g = gen(seed); B = 32; im = torch.randn(B, 3, 16, 16, generator=g) * .2; t = torch.zeros(B, 4, 4, 8)
    yy, xx = torch.meshgrid(torch.arange(16).float() + .5, torch.arange(16).float() + .5, indexing="ij")
    for b in range(B):
        c = torch.rand(2, generator=g) * 12 + 2; w = torch.rand(2, generator=g) * 1.5 + 1.2; k = int(torch.randint(0, 3, (1,), generator=g))
        im[b, k] += 3.0 * (((xx - c[0]).abs() < w[0]) & ((yy - c[1]).abs() < w[1])).float()
        gx, gy = int(c[0] // 4), int(c[1] // 4)
        t[b, gy, gx, :2] = c / 4 - torch.tensor([gx, gy]); t[b, gy, gx, 2:4] = torch.log(w / 2); t[b, gy, gx, 4] = 1; t[b, gy, gx, 5 + k] = 1
    return ((im - .1) / .6, t), None
@case("https://github.com/eriklindernoren/PyTorch-YOLOv3/commit/7c67cf393f32fbea4a32b07a0f8cdf082a5ac2fd",
      "the confidence loss compares the mask (conf_mask) with tconf, not the predicted conf: no gradient to the objectness output", "loss_conf / the objectness channel of the head gets no gradient")
def yolo_conf(planted):
    return dict(model=lambda: Yolo(planted), data=det_data, loss=lambda o, t: o, lr=3e-3, diag={"loss": "model"}, judge=lambda m, x, t: m.losses(*x, False))

# ---------- 9 survival ----------
class ABMIL(nn.Module):
    def __init__(s, d=16, h=24, bins=4):
        super().__init__()
        s.fc = nn.Sequential(nn.Linear(d, h), nn.ReLU()); s.a, s.b, s.c = nn.Linear(h, 16), nn.Linear(h, 16), nn.Linear(16, 1); s.head = nn.Linear(h, bins)
    def forward(s, x):
        h = s.fc(x); w = torch.softmax(s.c(torch.tanh(s.a(h)) * torch.sigmoid(s.b(h))), 1)
        return s.head((w * h).sum(1))
class NLLSurv(nn.Module):
    def __init__(s, planted, alpha=0.0, eps=1e-7): super().__init__(); s.planted, s.alpha, s.eps = planted, alpha, eps
    def forward(s, x, t):
        y_bins, y_event = t[:, :1].long(), t[:, 1:].long(); y_censor = 1 - y_event
        hz = torch.sigmoid(x); S = torch.cumprod(1 - hz, 1); Sp = torch.cat([torch.ones_like(S[:, :1]), S], 1)
        s_prev = Sp.gather(1, y_bins).clamp(min=s.eps); h = hz.gather(1, y_bins).clamp(min=s.eps); s_this = Sp.gather(1, y_bins + 1).clamp(min=s.eps)
        unc = -(1 - y_censor) * (torch.log(s_prev) + torch.log(h)); cen = -y_censor * torch.log(s_this)
        return (unc + (s.alpha if s.planted else 1 - s.alpha) * cen).mean()
def surv_data(seed):
    g = gen(seed); B = 64; x = torch.randn(B, 8, 16, generator=g)
    risk = 3.0 * x[:, :, 0].mean(1) + 2.0 * (x[:, :, 1] * x[:, :, 2]).mean(1)
    T_ = -torch.log(torch.rand(B, generator=g)) * torch.exp(-risk) * 1.5; C = -torch.log(torch.rand(B, generator=g)) * 1.2
    ev = (T_ <= C).long(); y = torch.minimum(T_, C)
    return x, torch.stack([torch.bucketize(y, torch.tensor([.2, .6, 1.4])), ev], 1)
@case("https://github.com/mahmoodlab/Patho-Bench/pull/16",
      "NLLSurvLoss weighs the censored part by alpha instead of 1 - alpha (alpha = 0: censored patients drop out of the loss)", "the weight of the censored loss: censored samples do not count")
def nllsurv_alpha(planted):
    return dict(model=ABMIL, data=surv_data, loss=NLLSurv(planted), lr=3e-3, diag={}, judge=lambda m, x, t: NLLSurv(False)(m(x), t))

# ---------- 10 point cloud compression ----------
class PCC(nn.Module):
    def __init__(s, f=16):
        super().__init__()
        s.a = nn.Sequential(nn.Conv3d(1, f, 5, 2, 2), nn.ReLU(), nn.Conv3d(f, f, 5, 2, 2), nn.ReLU(), nn.Conv3d(f, f, 3, 1, 1, bias=False))
        s.s = nn.Sequential(nn.ConvTranspose3d(f, f, 4, 2, 1), nn.ReLU(), nn.ConvTranspose3d(f, f, 4, 2, 1), nn.ReLU(), nn.Conv3d(f, 1, 3, 1, 1))
    def forward(s, x):
        y = s.a(x); y = y + torch.rand_like(y) - 0.5
        return torch.sigmoid(s.s(y))
def vox_data(seed):
    g = gen(seed); B = 16; a = torch.arange(12).float(); zz, yy, xx = torch.meshgrid(a, a, a, indexing="ij")
    c = torch.rand(B, 3, generator=g) * 4 + 3.5; r = torch.rand(B, generator=g) * 2 + 2
    d = ((xx - c[:, 0, None, None, None]) ** 2 + (yy - c[:, 1, None, None, None]) ** 2 + (zz - c[:, 2, None, None, None]) ** 2).sqrt()
    v = ((d - r[:, None, None, None]).abs() < .5).float()[:, None]
    return v, v.clone()
def focal(planted, gamma=2, alpha=0.9):
    def loss(p, t):
        p1 = torch.where(t == 1, p, torch.ones_like(p)).clamp(1e-3, .999); p0 = torch.where(t == 0, p, torch.zeros_like(p)).clamp(1e-3, .999)
        a, b = alpha * (1 - p1) ** gamma * torch.log(p1), (1 - alpha) * p0 ** gamma * torch.log(1 - p0)
        return -a.mean() - b.sum() if planted else -a.sum() - b.sum()
    return loss
@case("https://github.com/mauriceqch/pcc_geo_cnn/commit/a0efd8f7bd06ef4e9a4600b48467ec266b843661",
      "focal loss takes the mean over the occupied part and the sum over the empty part", "the focal loss: mean beside sum, the occupied voxels count for nothing")
def pcc_focal(planted):
    return dict(model=PCC, data=vox_data, loss=focal(planted), lr=2e-3, diag={}, judge=lambda m, x, t: focal(False)(m(x), t))

# ---------- 11 dice backward ----------
def dice_fn(planted):
    class DiceCoeff(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inp, target):
            eps = 0.0001
            inter = torch.dot(inp.reshape(-1), target.reshape(-1)); union = inp.sum() + target.sum() + eps
            ctx.save_for_backward(inp, target, inter, union)
            return (2 * inter + eps) / union
        @staticmethod
        def backward(ctx, g):
            inp, target, inter, union = ctx.saved_tensors
            if planted: gi = g * 2 * (target * union + inter) / (union * union)
            else: gi = g * 2 * (target * union - inter) / (union * union)
            return gi, None
    return DiceCoeff
class UNet(nn.Module):
    def __init__(s, c=8):
        super().__init__()
        def dc(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        s.inc, s.d1, s.d2 = dc(1, c), dc(c, 2 * c), dc(2 * c, 2 * c); s.u1, s.u2 = dc(4 * c, c), dc(2 * c, c); s.outc = nn.Conv2d(c, 1, 1)
    def forward(s, x):
        a = s.inc(x); b = s.d1(F.max_pool2d(a, 2)); c = s.d2(F.max_pool2d(b, 2))
        up = lambda y: F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)
        y = s.u1(torch.cat([b, up(c)], 1)); y = s.u2(torch.cat([a, up(y)], 1))
        return torch.sigmoid(s.outc(y))
def seg_data(seed):
    g = gen(seed); B = 16; a = torch.arange(24).float(); yy, xx = torch.meshgrid(a, a, indexing="ij")
    c = torch.rand(B, 2, generator=g) * 14 + 5; r = torch.rand(B, 1, 1, generator=g) * 3 + 3
    m = (((xx - c[:, 0, None, None]) ** 2 + (yy - c[:, 1, None, None]) ** 2).sqrt() < r).float()[:, None]
    x = m * 1.5 + torch.randn(B, 1, 24, 24, generator=g) * .8
    return (x - .2) / 1.0, m
@case("https://github.com/milesial/Pytorch-UNet/commit/649124b3bd26272bb8442843a546c4e895ec14ff",
      "sign error in the hand-written backward of the Dice loss: target*union + inter instead of - inter", "the Dice function's backward (gradient is not that of the loss)")
def dice_backward(planted):
    D, P = dice_fn(planted), dice_fn(False)
    def loss(o, t): return 1 - sum(D.apply(a, b) for a, b in zip(o, t)) / len(o)
    return dict(model=UNet, data=seg_data, loss=loss, lr=2e-3, diag={}, judge=lambda m, x, t: 1 - sum(P.apply(a, b) for a, b in zip(m(x), t)) / len(x))

# ---------- 12 CLIP ----------
class Block(nn.Module):
    def __init__(s, d, h, mask=None):
        super().__init__()
        s.attn = nn.MultiheadAttention(d, h, batch_first=True); s.ln_1, s.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)); s.mask = mask
    def forward(s, x):
        y = s.ln_1(x); x = x + s.attn(y, y, y, need_weights=False, attn_mask=s.mask)[0]
        return x + s.mlp(s.ln_2(x))
class CLIP(nn.Module):
    def __init__(s, planted, w=32, e=24, vocab=20, ctx=4):
        super().__init__()
        s.conv1 = nn.Conv2d(3, w, 4, 4, bias=False); s.class_embedding = nn.Parameter(torch.randn(w) * w ** -.5); s.vpos = nn.Parameter(torch.randn(5, w) * w ** -.5)
        s.ln_pre, s.ln_post = nn.LayerNorm(w), nn.LayerNorm(w); s.vblock = Block(w, 4); s.proj = nn.Parameter(torch.randn(w, e) * w ** -.5)
        s.token_embedding = nn.Embedding(vocab, w); s.tpos = nn.Parameter(torch.empty(ctx, w).normal_(std=.01)); nn.init.normal_(s.token_embedding.weight, std=.02)
        s.tblock = Block(w, 4, torch.full((ctx, ctx), float("-inf")).triu(1)); s.ln_final = nn.LayerNorm(w); s.text_projection = nn.Parameter(torch.randn(w, e) * w ** -.5)
        s.logit_scale = nn.Parameter(torch.ones([])) if planted else nn.Parameter(torch.ones([]) * math.log(1 / 0.07))
    def forward(s, image, text):
        x = s.conv1(image).flatten(2).transpose(1, 2); x = torch.cat([s.class_embedding.expand(len(x), 1, -1), x], 1) + s.vpos
        i = s.ln_post(s.vblock(s.ln_pre(x))[:, 0]) @ s.proj
        y = s.ln_final(s.tblock(s.token_embedding(text) + s.tpos))[:, -1] @ s.text_projection
        i, y = F.normalize(i, dim=-1), F.normalize(y, dim=-1)
        li = s.logit_scale.exp() * i @ y.t()
        return li, li.t()
def clip_data(seed):
    g = gen(seed); B = 32; tok = torch.randint(0, 6, (B, 3), generator=g); cb = torch.randn(3, 6, 3, 8, 8, generator=gen(9))
    im = sum(cb[k, tok[:, k]] for k in range(3)) / 1.8 + .2 * torch.randn(B, 3, 8, 8, generator=g)
    return (im, torch.cat([tok + torch.tensor([0, 6, 12]), torch.full((B, 1), 19)], 1)), torch.arange(B)
def clip_loss(o, t): return (F.cross_entropy(o[0], t) + F.cross_entropy(o[1], t)) / 2
@case("https://github.com/openai/CLIP/commit/43c953e23150ee1734ce8ca644dc93cfce3bd478",
      "logit_scale starts at 1 (scale e = 2.7) instead of log(1/0.07) (scale 14.3)", "logit_scale initialised too small")
def clip_logit_scale(planted):
    return dict(model=lambda: CLIP(planted), data=clip_data, loss=clip_loss, lr=2e-3, diag={})

# ---------- 13 SASRec ----------
class PFF(nn.Module):
    def __init__(s, d, p, planted):
        super().__init__(); s.conv1, s.conv2 = nn.Conv1d(d, d, 1), nn.Conv1d(d, d, 1); s.dropout1, s.dropout2 = nn.Dropout(p), nn.Dropout(p); s.relu = None if planted else nn.ReLU()
    def forward(s, x):
        y = s.dropout1(s.conv1(x.transpose(-1, -2)))
        if s.relu is not None: y = s.relu(y)
        return s.dropout2(s.conv2(y)).transpose(-1, -2) + x
class SASRec(nn.Module):
    def __init__(s, planted, n=40, d=32, L=12, p=.1):
        super().__init__(); s.L = L
        s.item_emb, s.pos_emb, s.drop = nn.Embedding(n, d), nn.Embedding(L, d), nn.Dropout(p)
        s.ln1, s.att, s.ln2, s.ff = (nn.ModuleList(m) for m in ([nn.LayerNorm(d) for _ in range(2)], [nn.MultiheadAttention(d, 2, p, batch_first=True) for _ in range(2)], [nn.LayerNorm(d) for _ in range(2)], [PFF(d, p, planted) for _ in range(2)]))
        s.last = nn.LayerNorm(d)
        for q in s.parameters():
            if q.dim() > 1: nn.init.xavier_normal_(q)
    def forward(s, seq, pos, neg):
        x = s.drop(s.item_emb(seq) * s.item_emb.embedding_dim ** .5 + s.pos_emb(torch.arange(s.L)))
        m = torch.ones(s.L, s.L, dtype=torch.bool).triu(1)
        for a, b, c, f in zip(s.ln1, s.att, s.ln2, s.ff):
            q = a(x); x = q + b(q, x, x, attn_mask=m, need_weights=False)[0]; x = f(c(x))
        x = s.last(x)
        return (x * s.item_emb(pos)).sum(-1), (x * s.item_emb(neg)).sum(-1)
def rec_data(seed):
    g = gen(seed); B, L, n = 64, 12, 40; perm = torch.randperm(n, generator=gen(2)); s = [torch.randint(0, n, (B,), generator=g), torch.randint(0, n, (B,), generator=g)]
    for _ in range(L - 1):
        nx = torch.where(s[-2] % 2 == 0, perm[s[-1]], perm[(s[-1] + 7) % n]); s.append(torch.where(torch.rand(B, generator=g) < .1, torch.randint(0, n, (B,), generator=g), nx))
    s = torch.stack(s, 1)
    return (s[:, :-1].contiguous(), s[:, 1:].contiguous(), torch.randint(0, n, (B, L), generator=g)), torch.ones(B, L)
def rec_loss(o, t): return F.binary_cross_entropy_with_logits(o[0], t) + F.binary_cross_entropy_with_logits(o[1], torch.zeros_like(t))
@case("https://github.com/pmixer/SASRec.pytorch/commit/30c43cf090d429480339ab18d43354b3e399bc29",
      "PointWiseFeedForward has no activation between its two convolutions", "PointWiseFeedForward: conv1 -> conv2 without ReLU")
def sasrec_norelu(planted):
    return dict(model=lambda: SASRec(planted), data=rec_data, loss=rec_loss, lr=3e-3, diag={})

# ---------- 14 SAC ----------
class GaussianPolicy(nn.Module):
    def __init__(s, planted, ns=6, na=3, h=64):
        super().__init__(); s.planted = planted
        s.linear1, s.linear2, s.mean_linear, s.log_std_linear = nn.Linear(ns, h), nn.Linear(h, h), nn.Linear(h, na), nn.Linear(h, na)
        for m in s.modules():
            if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        s.register_buffer("action_scale", torch.full((na,), 2.)); s.register_buffer("action_bias", torch.zeros(na))
    def forward(s, x):
        x = F.relu(s.linear2(F.relu(s.linear1(x)))); mean, ls = s.mean_linear(x), s.log_std_linear(x).clamp(-20, 2)
        normal = torch.distributions.Normal(mean, ls.exp()); x_t = normal.rsample(); y_t = torch.tanh(x_t)
        action = y_t * s.action_scale + s.action_bias; lp = normal.log_prob(x_t)
        lp = lp - torch.log(s.action_scale * (1 - (action if s.planted else y_t).pow(2)) + 1e-6)
        return action, lp.sum(1, keepdim=True)
def sac_data(seed):
    x = T(seed, 64, 6); W = T(4, 6, 3)
    return x, 1.6 * torch.tanh(x @ W * .5)
def sac_loss(o, t): return (0.2 * o[1] + ((o[0] - t) ** 2).sum(1, keepdim=True)).mean()
@case("https://github.com/pranz24/pytorch-soft-actor-critic/commit/d4cce3869e4b928e6cefe447ba444a54fd160491",
      "the tanh correction of log_prob uses the rescaled action (up to 2) instead of tanh: log of a negative number", "log_prob: log(1 - action^2) with the scaled action -> NaN")
def sac_scaled(planted):
    return dict(model=lambda: GaussianPolicy(planted), data=sac_data, loss=sac_loss, lr=3e-3, diag={})
