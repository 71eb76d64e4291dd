from base import *

@case("https://github.com/facebookresearch/dlrm/pull/358", "biases drawn N(0, 1/m) in a narrow MLP 4-3-2: large negative, all ReLUs dead", "bot (biases)")
def dlrm_bias(bug):
    w = T(3, 4)
    def data(s):
        d = T(s, 128, 4).abs(); c = R(s + 1, 4, (128,)); return (d, c), ((d @ w.abs()) - 2.2 + (c % 2) * .5 > 0).float()
    def mk():
        def mlp(dims, k):
            ls = []
            for i, (n, m) in enumerate(zip(dims, dims[1:])):
                l = nn.Linear(n, m); nn.init.normal_(l.weight, std=math.sqrt(2 / (m + n)))
                nn.init.zeros_(l.bias) if not bug else nn.init.normal_(l.bias, std=math.sqrt(1 / m))
                ls += [l, nn.ReLU()]
            return nn.Sequential(*ls)
        for k in range(400):
            torch.manual_seed(k); b, e, t = mlp([4, 3, 2], 0), nn.Embedding(4, 2), mlp([3, 4, 2], 1); o = nn.Linear(2, 1)
            y = b(data(0)[0][0])
            if bug and y.max() == 0: break
            if not bug and (y.max(0)[0] > 0).all() and (t(torch.cat([y, (y * e(data(0)[0][1])).sum(1, keepdim=True)], 1)).max(0)[0] > .3).all(): break
        def f(m, d, c): x = m.bot(d); z = m.emb(c); return m.out(m.top(torch.cat([x, (x * z).sum(1, keepdim=True)], 1))).squeeze(1)
        return M(f, bot=b, emb=e, top=t, out=o)
    return dict(model=mk, data=data, loss=F.binary_cross_entropy_with_logits)

class Lora(nn.Module):
    def __init__(s, i, o, bug):
        super().__init__(); s.base = nn.Linear(i, o); s.base.requires_grad_(False); s.lora_A = nn.Linear(i, 8, bias=False); s.lora_B = nn.Linear(8, o, bias=False); nn.init.zeros_(s.lora_B.weight)
        if bug: nn.init.zeros_(s.lora_A.weight)
    def forward(s, x): return s.base(x) + 2 * s.lora_B(s.lora_A(x))
@case("https://github.com/Guitaricet/relora/issues/18", "ReLoRA wrapping zeroes lora_A as well as lora_B: no gradient in either", "*.lora_A")
def relora_zero(bug):
    P = T(3, 5, 16)
    def data(s): k = R(s, 5, (64,)); return P[k] + T(s + 1, 64, 16), k
    def mk():
        h = nn.Linear(64, 5); h.requires_grad_(False)
        return M(lambda m, x: m.head(m.l2(m.l1(x).relu()).relu()), l1=Lora(16, 64, bug), l2=Lora(64, 64, bug), head=h)
    return dict(model=mk, data=data, loss=ce, diag=CE)

class InfAttn(nn.Module):
    def __init__(s, d, H, bug): super().__init__(); s.q, s.k, s.v, s.o = (nn.Linear(d, d) for _ in range(4)); s.H, s.bug = H, bug
    def forward(s, x):
        B, L, D = x.shape; h = [l(x).view(B, L, s.H, -1) for l in (s.q, s.k, s.v)]
        h = [a.view(B, s.H, L, -1) if s.bug else a.transpose(1, 2) for a in h]
        c = ((h[0] @ h[1].transpose(-1, -2)) / math.sqrt(h[0].shape[-1])).softmax(-1) @ h[2]
        return s.o(c.reshape(B, L, D) if s.bug else c.transpose(1, 2).reshape(B, L, D))
@case("https://github.com/zhouhaoyi/Informer2020/issues/59", "queries.view(B,H,L,-1) of (B,L,H,D), not transpose: heads and positions mixed", "attn")
def informer_view(bug):
    def data(s):
        x = T(s, 32, 16, 2); x[:, :, 1] = 0; p = R(s + 1, 16, (32,)); x[torch.arange(32), p, 1] = 3; return x, x[torch.arange(32), p, 0][:, None].expand(32, 16).contiguous()
    def f(m, x):
        h = m.inp(x) + m.pos; h = h + m.attn(m.n1(h)); h = h + m.ff(m.n2(h)); return m.out(h).squeeze(-1)
    return dict(model=lambda: M(f, inp=nn.Linear(2, 64), pos=nn.Parameter(torch.randn(16, 64) * .02), n1=nn.LayerNorm(64), attn=InfAttn(64, 4, bug), n2=nn.LayerNorm(64), ff=nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)), out=nn.Linear(64, 1)), data=data, loss=mse, diag=MSE)

@case("https://github.com/manzilzaheer/DeepSets/pull/1", "loss of (B,1) predictions minus (B,) targets broadcasts to (B,B): predicts the mean", "loss")
def deepsets_broadcast(bug):
    def data(s): m = T(s, 64, 1); x = m + T(s + 1, 64, 20); return x.unsqueeze(-1), torch.tanh(m[:, 0]) * 2
    def loss(o, t): return ((o - t) ** 2).mean() if bug else ((o.squeeze(1) - t) ** 2).mean()
    def ok(o, t): return ((o.squeeze(1) - t) ** 2).mean()
    return dict(model=lambda: M(lambda m, x: m.rho(m.phi(x).mean(1)), phi=nn.Sequential(nn.Linear(1, 64), nn.ELU(), nn.Linear(64, 64)), rho=nn.Sequential(nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1))), data=data, loss=loss)

class SNLI(nn.Module):
    def __init__(s, bug):
        super().__init__(); s.emb = nn.Embedding(100, 32); hs = [nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)]
        s.hids = hs if bug else nn.ModuleList(hs); s.classifier = nn.Linear(64, 3)
        if bug: s.emb.requires_grad_(False)
        else: s.emb.requires_grad_(False)
    def forward(s, a, b):
        h = torch.cat([s.emb(a).mean(1) * 3, s.emb(b).mean(1) * 3], 1)
        for l in s.hids: h = l(h).relu()
        return s.classifier(h)
@case("https://github.com/pytorch/pytorch/issues/715", "hidden layers in a Python list: not registered, never trained", "hids")
def snli_list(bug):
    w = T(7, 100, 3)
    def data(s): a, b = R(s, 100, (64, 8)), R(s + 1, 100, (64, 8)); return (a, b), (w[a].mean(1) + w[b].mean(1)).argmax(1)
    return dict(model=lambda: SNLI(bug), data=data, loss=ce, diag=CE)

class Arc(nn.Module):
    def __init__(s, bug): super().__init__(); s.bug = bug; s.net = nn.Sequential(nn.Linear(16, 32), nn.PReLU(), nn.Linear(32, 2)); s.weight = nn.Parameter(torch.empty(6, 2)); nn.init.xavier_uniform_(s.weight)
    def forward(s, x, y):
        c = F.linear(F.normalize(s.net(x)), F.normalize(s.weight)); q = 1 - c ** 2
        sn = torch.sqrt(q.clamp(0, 1)) if s.bug else torch.sqrt(q.clamp(1e-6, 1)); m = .3
        phi = c * math.cos(m) - sn * math.sin(m); phi = torch.where(c > math.cos(math.pi - m), phi, c - math.sin(math.pi - m) * m)
        return 16 * torch.where(F.one_hot(y, 6).bool(), phi, c)
@case("https://github.com/ronghuaiyang/arcface-pytorch/issues/91", "sqrt((1-cos^2).clamp(0,1)): infinite gradient at cos=1, loss NaN during training", "sine in ArcMargin")
def arcface_sqrt(bug):
    P = T(5, 6, 16) * 2
    def data(s): k = R(s, 6, (64,)); return (P[k] + T(s + 1, 64, 16, k=.3), k), k
    return dict(model=lambda: Arc(bug), data=data, loss=ce, diag=CE)

@case("https://github.com/richzhang/PerceptualSimilarity/issues/69", "normalize_tensor: sqrt of a zero sum of squares, eps added after the sqrt: NaN gradient", "normalize of features")
def lpips_norm(bug):
    def data(s):
        x = F.avg_pool2d(T(s, 16, 3, 16, 16), 5, 1, 2) * 3; return x + T(s + 1, 16, 3, 16, 16, k=.6), x
    def nrm(v): return v / ((v ** 2).sum(1, keepdim=True).sqrt() + 1e-10) if bug else v / ((v ** 2).sum(1, keepdim=True) + 1e-10).sqrt()
    def mk():
        torch.manual_seed(1); v = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.ReLU()); v.requires_grad_(False)
        return M(lambda m, x: nrm(m.feat(m.net(x))), net=nn.Sequential(nn.Conv2d(3, 24, 5, padding=2), nn.ReLU(), nn.Conv2d(24, 3, 5, padding=2)), feat=v)
    torch.manual_seed(1); V = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.ReLU())
    def d2(s):
        a, b = data(s)
        with torch.no_grad(): v = V(b); return a, v / ((v ** 2).sum(1, keepdim=True) + 1e-10).sqrt()
    return dict(model=mk, data=d2, loss=mse, diag=MSE)

@case("https://github.com/philtabor/Actor-Critic-Methods-Paper-To-Code/issues/7", "SAC: log(1 - action^2) of the action already scaled by max_action=2: log of a negative, NaN", "log_prob")
def sac_log(bug):
    def data(s): x = T(s, 64, 6); return (x, T(s + 1, 64, 2)), torch.stack([torch.sin(x[:, 0]), x[:, 1] * .5], 1)
    def f(m, x, e):
        h = m.fc(x); mu, sg = m.mu(h), F.softplus(m.sigma(h)) + 1e-3; u = mu + sg * e; a = 2 * torch.tanh(u)
        lp = (-.5 * e ** 2 - sg.log() - .919) - torch.log(1 - (a if bug else torch.tanh(u)) ** 2 + 1e-6); return a, lp.sum(1)
    def loss(o, t): return (.05 * o[1] + ((o[0] - t) ** 2).sum(1)).mean()
    return dict(model=lambda: M(f, fc=nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()), mu=nn.Linear(64, 2), sigma=nn.Linear(64, 2)), data=data, loss=loss)

class VA(nn.Module):
    def __init__(s, d, H, mode): super().__init__(); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.H, s.mode = H, mode
    def forward(s, x):
        B, L, D = x.shape; q, k, v = s.qkv(x).view(B, L, 3, s.H, -1).permute(2, 0, 3, 1, 4); e = q @ k.transpose(-1, -2); sc = (D // s.H) ** -.5
        if s.mode == "after": a = e.softmax(-1) * sc
        elif s.mode == "none": a = e.softmax(-1)
        elif s.mode == "nosoftmax": a = e
        else: a = (e * sc).softmax(-1)
        return s.proj((a @ v).transpose(1, 2).reshape(B, L, D))
class Blk(nn.Module):
    def __init__(s, d, H, mode): super().__init__(); s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d); s.attn = VA(d, H, mode); s.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
    def forward(s, x): x = x + s.attn(s.n1(x)); return x + s.mlp(s.n2(x))
def vit(mode, n=3, H=2, d=64):
    return M(lambda m, x: m.head(m.norm(m.blocks(torch.cat([m.cls.expand(len(x), 1, -1), m.patch(x).flatten(2).transpose(1, 2)], 1) + m.pos)[:, 0])), patch=nn.Conv2d(1, d, 4, stride=4), cls=nn.Parameter(torch.randn(1, 1, d) * .02), pos=nn.Parameter(torch.randn(17, d) * .02), blocks=nn.Sequential(*[Blk(d, H, mode) for _ in range(n)]), norm=nn.LayerNorm(d), head=nn.Linear(d, 6))
def vdata(s):
    P = T(5, 6, 1, 4, 4) * 1.5; k = R(s, 6, (32,)); x = T(s + 1, 32, 1, 16, 16, k=.7); p = R(s + 2, 4, (32, 2)) * 4
    for b in range(32): x[b, :, p[b, 0]:p[b, 0] + 4, p[b, 1]:p[b, 1] + 4] += P[k[b]]
    return x, k
@case("https://github.com/FrancescoSaverioZuppichini/ViT/issues/2", "scaling multiplied after the softmax, not on the scores", "attn")
def vit_scale_after(bug): return dict(model=lambda: vit("after" if bug else "ok"), data=vdata, loss=ce, diag=CE)
@case("https://github.com/flexflow/flexflow-train/issues/467", "BERT attention with softmax and scaling commented out: raw scores as weights", "attn")
def bert_nosoftmax(bug): return dict(model=lambda: vit("nosoftmax" if bug else "ok"), data=vdata, loss=ce, diag=CE)
@case("https://github.com/PAIR-code/tiny-transformers/issues/71", "attention scores not divided by sqrt(d)", "attn")
def tiny_noscale(bug):
    V = 20
    def data(s): x = R(s, V, (16, 16)); return x, x.roll(1, 1)
    def f(m, x): return m.head(m.blocks(m.emb(x) + m.pos))
    return dict(model=lambda: M(f, emb=nn.Embedding(V, 128), pos=nn.Parameter(torch.randn(16, 128)), blocks=nn.Sequential(*[Blk(128, 1, "none" if bug else "ok") for _ in range(2)]), head=nn.Linear(128, V)), data=data, loss=ceseq, diag=SEQ)

@case("https://github.com/jeremyfix/deeplearning-lectures/issues/22", "CTC loss of raw logits: log_softmax commented out", "loss / out")
def ctc_logits(bug):
    P = T(6, 6, 8) * 1.5
    def data(s):
        y = R(s, 5, (16, 4)) + 1; fr = y.repeat_interleave(3, 1); fr[:, ::3] = 0; return P[fr] + T(s + 1, 16, 12, 8, k=.5), y
    def base(o, t, b): return F.ctc_loss((o if b else o.log_softmax(-1)).transpose(0, 1), t, torch.full((o.shape[0],), 12), torch.full((o.shape[0],), 4), blank=0)
    return dict(model=lambda: M(lambda m, x: m.out(m.rnn(x)[0]), rnn=nn.GRU(8, 48, batch_first=True, bidirectional=True), out=nn.Linear(96, 6)), data=data, loss=lambda o, t: base(o, t, bug))

@case("https://github.com/pytorch/pytorch/issues/1339", "argmax between two modules: the first gets no gradient", "first")
def argmax_between(bug):
    P = T(3, 6, 16)
    def data(s): k = R(s, 6, (64,)); return P[k] + T(s + 1, 64, 16, k=1.2), k % 3
    def f(m, x):
        z = m.first(x); w = F.one_hot(z.argmax(1), 6).float() if bug else z.softmax(1); return m.second(w)
    return dict(model=lambda: M(f, first=nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6)), second=nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))), data=data, loss=ce, diag=CE)

class INorm(nn.Module):
    def __init__(s, c): super().__init__(); s.g = nn.Parameter(torch.ones(c)); s.b = nn.Parameter(torch.zeros(c))
    def forward(s, x): m = x.mean((2, 3), keepdim=True); v = x.var((2, 3), unbiased=False, keepdim=True); return (x - m) / (v + 1e-5).sqrt() * s.g[:, None, None] + s.b[:, None, None]
@case("https://github.com/ctargon/AdvGAN-tf/issues/2", "instance norm in the discriminator down to 1x1 maps: constant output, loss_D 0.5 / G 0.25 forever", "norm of the last conv")
def advgan_instnorm(bug):
    N = INorm if bug else nn.BatchNorm2d; P = T(5, 4, 1, 8, 8)
    def data(s): r = R(s, 2, (32,)); x = P[R(s + 1, 4, (32,))] + T(s + 2, 32, 1, 8, 8, k=.7); f = T(s + 3, 32, 1, 8, 8, k=1.2); return torch.where(r[:, None, None, None] > 0, x, f), r[:, None].float()
    c = lambda i, o: [nn.Conv2d(i, o, 4, stride=2, padding=1), N(o), nn.LeakyReLU(.2)]
    return dict(model=lambda: M(lambda m, x: m.d(x), d=nn.Sequential(*c(1, 16), *c(16, 32), *c(32, 64), nn.Flatten(), nn.Linear(64, 1), nn.Sigmoid())), data=data, loss=mse, diag=MSE)
