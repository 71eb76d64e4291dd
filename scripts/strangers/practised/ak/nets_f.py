from base import *

# ---------------------------------------------------------------- 8 CTR
@case("https://github.com/shenweichen/DeepCTR-Torch/issues/63", "AutoInt InteractingLayer: softmax over dim=1 of (head,batch,field,field), i.e. over the batch, instead of the keys", "InteractingLayer softmax")
def autoint_softmax(planted):
    NF, V, E_, HN = 6, 12, 8, 2
    tv = T(41, NF, V)
    class Inter(nn.Module):
        def __init__(s):
            super().__init__(); s.W_Query, s.W_key, s.W_Value, s.W_Res = (nn.Parameter(torch.randn(E_, E_) * .2) for _ in range(4))
        def forward(s, x):
            q, k, v = (torch.stack(torch.split(x @ w, E_ // HN, dim=2)) for w in (s.W_Query, s.W_key, s.W_Value))
            a = F.softmax(torch.einsum("bnik,bnjk->bnij", q, k), dim=1 if planted else -1)
            r = torch.cat(torch.split(a @ v, 1), dim=-1).squeeze(0)
            return F.relu(r + x @ s.W_Res)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.emb = nn.Embedding(NF * V, E_); nn.init.normal_(s.emb.weight, 0, .3); s.int1, s.int2 = Inter(), Inter(); s.dnn = nn.Sequential(nn.Linear(NF * E_, 32), nn.ReLU()); s.out = nn.Linear(NF * E_ + 32, 1)
        def forward(s, x):
            e = s.emb(x + torch.arange(NF) * V); h = s.int2(s.int1(e))
            return s.out(torch.cat([h.flatten(1), s.dnn(e.flatten(1))], 1))
    def data(seed):
        x = R(seed, V, (64, NF)); v = tv[torch.arange(NF), x]
        return x, ((v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3] + v[:, 4] + v[:, 5]) > 0).float()[:, None]
    return dict(model=Net, data=data, loss=nn.BCEWithLogitsLoss(), lr=5e-3, diag={})

# ---------------------------------------------------------------- 9 vision (YOLO classifier)
@case("https://github.com/ultralytics/yolov3/pull/1588", "the Classify head's convolution has bias=False", "Classify.conv (missing bias)")
def yolo_classify_bias(planted):
    C = 8; proto = T(51, C, 3, 16, 16)
    class Conv(nn.Module):
        def __init__(s, i, o, k=3, st=2): super().__init__(); s.conv = nn.Conv2d(i, o, k, st, k // 2, bias=False); s.bn = nn.BatchNorm2d(o); s.act = nn.SiLU()
        def forward(s, x): return s.act(s.bn(s.conv(x)))
    class Classify(nn.Module):
        def __init__(s, i, o): super().__init__(); s.aap = nn.AdaptiveAvgPool2d(1); s.conv = nn.Conv2d(i, o, 1, 1, 0, bias=not planted); s.flat = nn.Flatten()
        def forward(s, x): return s.flat(s.conv(s.aap(x)))
    net = lambda: nn.Sequential(Conv(3, 16), Conv(16, 32), Conv(32, 48), Classify(48, C))
    def data(seed):
        y = R(seed, C, (32,)); return proto[y] * .7 + T(seed + 1, 32, 3, 16, 16, k=.7), y
    return dict(model=net, data=data, loss=ce, lr=3e-3, diag={})

# ---------------------------------------------------------------- 10 microscopy (ladder VAE)
@case("https://github.com/CAREamics/careamics/pull/277", "free bits are applied after the KL is rescaled by the image size, so every KL entry is clamped to the threshold (no KL gradient)", "KL loss / free_bits_kl clamp")
def lvae_freebits(planted):
    P = 8 * 8; basis = T(61, 6, 1, 8, 8)
    class LVAE(nn.Module):
        def __init__(s):
            super().__init__()
            s.b1 = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU()); s.b2 = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
            s.q2 = nn.Conv2d(32, 8, 1); s.t2 = nn.Sequential(nn.ConvTranspose2d(4, 16, 4, 2, 1), nn.ReLU()); s.p1 = nn.Conv2d(16, 8, 1); s.q1 = nn.Conv2d(32, 8, 1)
            s.t1 = nn.Sequential(nn.ConvTranspose2d(4 + 16, 16, 4, 2, 1), nn.ReLU()); s.out = nn.Conv2d(16, 1, 3, 1, 1)
        def forward(s, x):
            h1 = s.b1(x); h2 = s.b2(h1)
            m2, l2 = s.q2(h2).chunk(2, 1); z2 = m2 + torch.randn_like(m2) * (l2 / 2).exp()
            k2 = (.5 * (m2 ** 2 + l2.exp() - 1 - l2)).flatten(1).sum(1)
            d = s.t2(z2); pm, pl = s.p1(d).chunk(2, 1); m1, l1 = s.q1(torch.cat([h1, d], 1)).chunk(2, 1)
            z1 = m1 + torch.randn_like(m1) * (l1 / 2).exp()
            k1 = (.5 * ((m1 - pm) ** 2 / pl.exp() + (l1 - pl).exp() - 1 - l1 + pl)).flatten(1).sum(1)
            return s.out(s.t1(torch.cat([z1, d], 1))), torch.stack([k1, k2], 1)
    def free_bits(kl, fb): return kl.mean(0).clamp(min=fb)
    def right(o, t): return F.mse_loss(o[0], t) + (free_bits(o[1], 1.) / P).sum()
    def wrong(o, t): return F.mse_loss(o[0], t) + free_bits(o[1] / P, 1.).sum()
    def data(seed):
        x = (T(seed, 32, 6) @ basis.flatten(1)).view(32, 1, 8, 8) / math.sqrt(6); return x, x.clone()
    def judge(m, x, t): torch.manual_seed(7); return float(right(m(x), t))
    return dict(model=LVAE, data=data, loss=wrong if planted else right, judge=judge, lr=5e-3, diag={})

# ---------------------------------------------------------------- 11 generative (VQ-VAE)
@case("https://github.com/clementchadebec/benchmark_VAE/pull/125", "the VQ losses are averaged over every element while the reconstruction is summed over pixels, so the quantiser is hardly trained", "vq loss (commitment and embedding loss reduction)")
def vqvae_mean(planted):
    K, D = 16, 8; proto = T(71, 12, 1, 8, 8)
    class Quantizer(nn.Module):
        def __init__(s): super().__init__(); s.embeddings = nn.Embedding(K, D); s.embeddings.weight.data.uniform_(-1 / K, 1 / K)
        def forward(s, z):
            f = z.permute(0, 2, 3, 1).reshape(-1, D); i = torch.cdist(f, s.embeddings.weight).argmin(1)
            q = s.embeddings(i).view(z.size(0), z.size(2), z.size(3), D).permute(0, 3, 1, 2); return q
    class VQVAE(nn.Module):
        def __init__(s):
            super().__init__(); s.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, D, 4, 2, 1)); s.quantizer = Quantizer()
            s.decoder = nn.Sequential(nn.ConvTranspose2d(D, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))
        def forward(s, x):
            z = s.encoder(x); q = s.quantizer(z); return s.decoder(z + (q - z).detach()), z, q
    def rec(o, t): return F.mse_loss(o, t, reduction="none").flatten(1).sum(1)
    def loss(o, t):
        r, z, q = o
        red = (lambda a, b: F.mse_loss(a, b)) if planted else (lambda a, b: F.mse_loss(a, b, reduction="none").flatten(1).sum(1))
        return (rec(r, t) + .25 * red(z, q.detach()) + red(q, z.detach())).mean()
    def data(seed):
        x = proto[R(seed, 12, (32,))] + T(seed + 1, 32, 1, 8, 8, k=.1); return x, x.clone()
    return dict(model=VQVAE, data=data, loss=loss, judge=lambda m, x, t: float(rec(m(x)[0], t).mean()), lr=5e-3, diag={})

# ---------------------------------------------------------------- 12 language (mixture of experts)
@case("https://github.com/huggingface/transformers/pull/28256", "Mixtral's load-balancing loss takes the max of the expert mask over all tokens, so the loss is a constant", "load_balancing_loss_func (router / gate gets no gradient from it)")
def mixtral_balance(planted):
    V, L, D, E_, TK = 16, 12, 32, 4, 2
    class MoE(nn.Module):
        def __init__(s): super().__init__(); s.gate = nn.Linear(D, E_, bias=False); s.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, 32, bias=False), nn.SiLU(), nn.Linear(32, D, bias=False)) for _ in range(E_))
        def forward(s, x):
            f = x.reshape(-1, D); g = s.gate(f); w, i = g.softmax(-1).topk(TK, -1); w = w / w.sum(-1, keepdim=True)
            out = torch.zeros_like(f)
            for e in range(E_):
                out = out + s.experts[e](f) * (w * (i == e)).sum(-1, keepdim=True)
            return out.view_as(x), g
    class Block(nn.Module):
        def __init__(s): super().__init__(); s.n1, s.n2 = nn.LayerNorm(D), nn.LayerNorm(D); s.qkv = nn.Linear(D, 3 * D, bias=False); s.o = nn.Linear(D, D, bias=False); s.moe = MoE()
        def forward(s, x):
            q, k, v = (t.view(*t.shape[:2], 2, D // 2).transpose(1, 2) for t in s.qkv(s.n1(x)).chunk(3, -1))
            x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            m, g = s.moe(s.n2(x)); return x + m, g
    class LM(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(V, D); s.pos = nn.Parameter(torch.randn(L, D) * .1); nn.init.normal_(s.emb.weight, 0, .3); s.b1, s.b2 = Block(), Block(); s.norm = nn.LayerNorm(D); s.head = nn.Linear(D, V, bias=False)
        def forward(s, x): h, g1 = s.b1(s.emb(x) + s.pos); h, g2 = s.b2(h); return s.head(s.norm(h)), torch.cat([g1, g2], 0)
    def aux(g, bad):
        w = g.softmax(-1); i = w.topk(TK, -1)[1]
        if bad:
            mask = F.one_hot(i.reshape(-1), E_).max(dim=-2).values
            return (mask.float().mean(0) * w.mean(0).unsqueeze(-1)).sum() * E_
        mask = F.one_hot(i, E_).float()
        return (mask.mean(0) * w.mean(0).unsqueeze(0)).sum() * E_
    loss = lambda o, t: ceseq(o[0], t) + .02 * aux(o[1], planted)
    nxt = torch.randperm(V * V, generator=gen(81)) % V
    def data(seed):
        s = [R(seed, V, (16,)), R(seed + 1, V, (16,))]
        for _ in range(L - 1): s.append(nxt[s[-1] * 1 + V * (s[-2] % 2)])
        s = torch.stack(s, 1); return s[:, :L], s[:, 1:]
    return dict(model=LM, data=data, loss=loss, judge=lambda m, x, t: float((lambda o: ceseq(o[0], t) + .02 * aux(o[1], False))(m(x))), lr=3e-3, diag={})

# ---------------------------------------------------------------- 13 vision (GoogLeNet)
@case("https://github.com/d2l-ai/d2l-en/pull/1732", "GoogLeNet block b2: no ReLU after the 3x3 convolution (conv -> max pool -> next convolutions)", "b2 (the 3x3 convolution without its ReLU)")
def googlenet_b2(planted):
    C = 8; proto = T(91, C, 1, 24, 24)
    class Inception(nn.Module):
        def __init__(s, i, c1, c2, c3, c4):
            super().__init__(); s.p1_1 = nn.Conv2d(i, c1, 1); s.p2_1 = nn.Conv2d(i, c2[0], 1); s.p2_2 = nn.Conv2d(c2[0], c2[1], 3, padding=1); s.p3_1 = nn.Conv2d(i, c3[0], 1); s.p3_2 = nn.Conv2d(c3[0], c3[1], 5, padding=2); s.p4_1 = nn.MaxPool2d(3, 1, 1); s.p4_2 = nn.Conv2d(i, c4, 1)
        def forward(s, x): return torch.cat([F.relu(s.p1_1(x)), F.relu(s.p2_2(F.relu(s.p2_1(x)))), F.relu(s.p3_2(F.relu(s.p3_1(x)))), F.relu(s.p4_2(s.p4_1(x)))], 1)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.b1 = nn.Sequential(nn.Conv2d(1, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            s.b2 = nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), *([] if planted else [nn.ReLU()]), nn.MaxPool2d(3, 2, 1))
            s.b3 = nn.Sequential(Inception(32, 12, (12, 16), (6, 8), 8), Inception(44, 16, (16, 24), (6, 12), 12), nn.AdaptiveAvgPool2d(1), nn.Flatten()); s.fc = nn.Linear(64, C)
            for m in s.modules():
                if isinstance(m, (nn.Linear, nn.Conv2d)): nn.init.xavier_uniform_(m.weight)
        def forward(s, x): return s.fc(s.b3(s.b2(s.b1(x))))
    def data(seed):
        y = R(seed, C, (32,)); return proto[y] * .8 + T(seed + 1, 32, 1, 24, 24, k=.6), y
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})
