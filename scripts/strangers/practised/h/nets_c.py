from base import *

@case("https://github.com/tqjxlm/Simple-DQN-Pytorch/issues/1", "dueling head subtracts val.mean() over the batch, not adv.mean(1)", "value head")
def dueling_mean(bug):
    W = T(4, 6, 4)
    def data(s): x = T(s, 64, 6); return x, torch.tanh(x @ W) + 5 + x[:, :1]
    def f(m, x):
        h = m.body(x); v, a = m.val(h), m.adv(h); return v + a - (v.mean() if bug else a.mean(1, keepdim=True))
    return dict(model=lambda: M(f, body=nn.Sequential(nn.Linear(6, 64), nn.ReLU()), val=nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)), adv=nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))), data=data, loss=mse, diag=MSE)

@case("https://github.com/munshisanowarraihan/nerf-meta/issues/3", "ReLU on the density: unlucky init emits zero sigma everywhere, no gradient", "sigma head / ReLU")
def nerf_relu(bug):
    def pts(s): o = torch.rand(64, 1, 3, generator=gen(s)) * 2 - 1; d = F.normalize(T(s + 1, 64, 1, 3), dim=-1); return o * .5 + d * torch.linspace(-1, 1, 12)[None, :, None]
    def render(sig, col): a = 1 - torch.exp(-sig * .17); tr = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]; w = a * tr; return (w[..., None] * col).sum(1) + 1 - w.sum(1, keepdim=True)
    def data(s):
        p = pts(s); sig = 12 * (p.norm(dim=-1) < .6).float(); return p, render(sig, torch.sigmoid(3 * p))
    def enc(p): return torch.cat([p] + [g(p * 2 ** k * 1.5) for k in range(3) for g in (torch.sin, torch.cos)], -1)
    def mk():
        for k in range(200):
            torch.manual_seed(k); n = nn.Sequential(nn.Linear(21, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); sg, rgb = nn.Linear(64, 1), nn.Linear(64, 3)
            if sg(n(enc(pts(0)))).max() < 0: break
        def f(m, p): h = m.net(enc(p)); return render((F.relu(m.sigma(h)) if bug else F.softplus(m.sigma(h))).squeeze(-1), torch.sigmoid(m.rgb(h)))
        return M(f, net=n, sigma=sg, rgb=rgb)
    return dict(model=mk, data=data, loss=mse, diag=MSE)

@case("https://github.com/InseeFrLab/torchTextClassifiers/pull/92", "attention mask inverted for scaled_dot_product_attention: only padding is attended", "label attention / mask")
def labelattn_mask(bug):
    V = 30
    def data(s):
        x = R(s, V - 6, (32, 16)) + 6; k = R(s + 1, 5, (32,)) + 1; n = R(s + 2, 8, (32,)) + 6; p = (torch.rand(32, generator=gen(s + 3)) * n).long(); x[torch.arange(32), p] = k
        x[torch.arange(16)[None] >= n[:, None]] = 0; return x, k - 1
    def f(m, x):
        e = m.emb(x); keep = x != 0; q = m.label.expand(len(x), -1, -1); mask = (~keep if bug else keep)[:, None, :].expand(-1, 5, -1)
        return m.out(F.scaled_dot_product_attention(q, m.k(e), m.v(e), attn_mask=mask)).squeeze(-1)
    return dict(model=lambda: M(f, emb=nn.Embedding(V, 32), label=nn.Parameter(torch.randn(1, 5, 32) * .5), k=nn.Linear(32, 32), v=nn.Linear(32, 32), out=nn.Linear(32, 1)), data=data, loss=ce, diag=CE)

@case("https://github.com/showlab/Olaf-World/issues/8", "VQ codebook loss computed on the straight-through output: codebook gets no gradient", "codebook")
def olaf_vq(bug):
    P = T(5, 8, 16) * 1.5
    def data(s): x = P[R(s, 8, (64,))] + T(s + 1, 64, 16, k=.1); return x, x
    def f(m, x):
        e = m.enc(x); i = torch.cdist(e, m.codebook.weight).argmin(1); z = m.codebook(i); return m.dec(e + (z - e).detach()), e, z, e + (z - e).detach()
    def loss(o, t): y, e, z, zq = o; return F.mse_loss(y, t) + F.mse_loss(zq if bug else z, e.detach()) + .25 * F.mse_loss(e, (zq if bug else z).detach())
    def cb():
        c = nn.Embedding(32, 8); nn.init.uniform_(c.weight, -.6, .6); return c
    return dict(model=lambda: M(f, enc=nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), codebook=cb(), dec=nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))), data=data, loss=loss)

@case("https://github.com/bonlime/keras-deeplab-v3-plus/issues/4", "Dropout(0.9): TensorFlow's keep_prob taken as drop rate", "dropout")
def deeplab_dropout(bug):
    def data(s):
        t = torch.zeros(16, 16, 16, dtype=torch.long)
        for b in range(16): r = R(s * 31 + b, 10, (4,)); t[b, r[0]:r[0] + 5, r[1]:r[1] + 5] = 1; t[b, r[2]:r[2] + 4, r[3]:r[3] + 4] = 2
        return torch.stack([(t == 1).float(), (t == 2).float(), t * 0.], 1) * 1.5 + T(s + 1, 16, 3, 16, 16, k=.7), t
    c = lambda i, o, d=1: nn.Sequential(nn.Conv2d(i, o, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(o), nn.ReLU())
    def f(m, x): h = m.stem(x); return m.logits(m.drop(m.cat(torch.cat([m.a1(h), m.a2(h)], 1))))
    return dict(model=lambda: M(f, stem=c(3, 16), a1=c(16, 16), a2=c(16, 16, 3), cat=c(32, 32), drop=nn.Dropout(.9 if bug else .1), logits=nn.Conv2d(32, 3, 1)), data=data, loss=ce, diag=CE)

@case("https://github.com/keras-team/keras/issues/9498", "triplet loss averages the squared difference over the embedding instead of summing: margin never reachable", "loss")
def triplet_mean(bug):
    P = T(5, 6, 16)
    def data(s):
        k = R(s, 6, (64,)); j = (k + 1 + R(s + 1, 5, (64,))) % 6; return tuple(P[q] + T(s + 2 + i, 64, 16, k=.6) for i, q in enumerate((k, k, j))), torch.zeros(64)
    def f(m, a, p, n): return torch.stack([F.normalize(m.net(v), dim=1) for v in (a, p, n)], 1)
    def loss(o, t):
        r = (lambda v: v.mean(-1)) if bug else (lambda v: v.sum(-1)); return (1 + r((o[:, 0] - o[:, 1]) ** 2) - r((o[:, 0] - o[:, 2]) ** 2)).relu().mean()
    return dict(model=lambda: M(f, net=nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))), data=data, loss=loss)

A = None
def graph():
    g = gen(11); lab = torch.arange(60) % 3; p = torch.where(lab[:, None] == lab[None], .5, .04); a = (torch.rand(60, 60, generator=g) < p).float().triu(1); a = a + a.T; return a, lab
class GAL(nn.Module):
    def __init__(s, i, o, concat, bug, leaky=True): super().__init__(); s.W = nn.Parameter(torch.empty(i, o)); s.a = nn.Parameter(torch.empty(2 * o, 1)); nn.init.xavier_uniform_(s.W, 1.414); nn.init.xavier_uniform_(s.a, 1.414); s.o, s.concat, s.bug, s.leaky = o, concat, bug, leaky
    def forward(s, x, adj):
        h = x @ s.W; e = h @ s.a[:s.o] + (h @ s.a[s.o:]).T; e = F.leaky_relu(e, .2) if s.leaky else e
        hp = e.masked_fill(adj == 0, -9e15).softmax(1) @ h
        return F.elu(hp) if s.concat else (h if s.bug else hp)
@case("https://github.com/recolyce/HistoCell/issues/3", "GraphAttentionLayer(concat=False) returns h instead of h_prime: attention unused", "gat.a")
def histocell_h(bug):
    a, lab = graph(); adj = a + torch.eye(60)
    def data(s): return (F.one_hot(lab, 3).float() * 1.2 + T(s, 60, 3, k=1.2)), lab
    return dict(model=lambda: M(lambda m, x: m.g2(m.g1(x, m.adj), m.adj), g1=GAL(3, 16, False, bug), g2=GAL(16, 3, False, bug), adj=adj), data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))
@case("https://github.com/shenwzh3/RGAT-ABSA/issues/3", "self.leakyrelu defined but unused in LinearAttention: attention ignores the query", "attention")
def rgat_leaky(bug):
    # query-dependent selection
    def data(s):
        f = T(s, 32, 10, 8); f[:, :, :4] = F.one_hot(R(s + 1, 4, (32, 10)), 4).float() * 2; q = R(s + 2, 4, (32,)); Q = F.one_hot(q, 8).float() * 2
        w = (f[:, :, :4].argmax(-1) == q[:, None]).float(); t = (w * f[:, :, 7]).sum(1) / w.sum(1).clamp(min=1); return (f, Q), t
    def f(m, x, q):
        Q = m.linear(q)[:, None].expand(-1, 10, -1); h = m.linear(x); z = m.fc(torch.cat([h, Q], 2)) if bug else m.fc2(F.leaky_relu(m.fc1(torch.cat([h, Q], 2)), .01))
        return m.out((z.softmax(1) * h).sum(1)).squeeze(1)
    return dict(model=lambda: M(f, linear=nn.Linear(8, 32), fc1=nn.Linear(64, 32), fc2=nn.Linear(32, 1), out=nn.Linear(32, 1)) if not bug else M(f, linear=nn.Linear(8, 32), fc=nn.Linear(64, 1), leakyrelu=nn.LeakyReLU(.01), out=nn.Linear(32, 1)), data=data, loss=mse, diag=MSE)

@case("https://github.com/keras-team/keras-io/pull/2304", "graph conv sums over neighbours without degree normalisation or self-loops: features explode", "aggregation")
def gnn_sum(bug):
    g = gen(3); lab = torch.arange(200) % 4; p = torch.where(lab[:, None] == lab[None], .6, .15); a = (torch.rand(200, 200, generator=g) < p).float().triu(1); a = a + a.T
    A = a if bug else (a + torch.eye(200)) / (a.sum(1, keepdim=True) + 1)
    def data(s): return F.one_hot(lab, 4).float() * .5 + T(s, 200, 4), lab
    def f(m, x):
        h = m.pre(x)
        for l in m.convs: h = F.gelu(l(torch.cat([h, m.A @ h], 1)))
        return m.out(h)
    return dict(model=lambda: M(f, pre=nn.Linear(4, 32), convs=nn.ModuleList([nn.Linear(64, 32) for _ in range(3)]), out=nn.Linear(32, 4), A=A), data=data, loss=ce, diag=dict(loss="cross-entropy", examples="one"))

@case("https://github.com/AndersonJo/dqn-pytorch/issues/1", "LSTM gets (batch, seq, feat) without batch_first: recurrence runs over the examples", "lstm")
def dqn_batchfirst(bug):
    def data(s): x = T(s, 32, 8, 3); t = (x[:, :, 0].cumsum(1)[:, -1] > 0).long(); x[:, :-1, 1] *= .1; return x, t
    def f(m, x): h, _ = m.lstm(x); return m.out(h[:, -1])
    return dict(model=lambda: M(f, lstm=nn.LSTM(3, 48, batch_first=not bug), out=nn.Linear(48, 2)), data=data, loss=ce, diag=CE)

@case("https://github.com/llSourcell/Pokemon_GAN/issues/11", "bn1 computed but lrelu(conv1) used: batch norm without effect", "bn1")
def pokemon_bn(bug):
    P = T(5, 4, 3, 16, 16)
    def data(s): k = R(s, 2, (32,)); x = torch.where(k[:, None, None, None] > 0, P[R(s + 1, 4, (32,))], torch.zeros(1)) + T(s + 2, 32, 3, 16, 16, k=1.2); return x * 2, k[:, None].float()
    def f(m, x):
        c = m.conv1(x); b = m.bn1(c); h = F.leaky_relu(c if bug else b, .2); h = F.leaky_relu(m.bn2(m.conv2(h)), .2); return m.fc(h.flatten(1))
    return dict(model=lambda: M(f, conv1=nn.Conv2d(3, 16, 5, 2, 2), bn1=nn.BatchNorm2d(16), conv2=nn.Conv2d(16, 32, 5, 2, 2), bn2=nn.BatchNorm2d(32), fc=nn.Linear(512, 1)), data=data, loss=F.binary_cross_entropy_with_logits)

@case("https://github.com/mozilla/DeepSpeech/issues/138", "weights and biases at tf.random_normal's default stddev 1: loss infinite, never improves", "all layers")
def deepspeech_init(bug):
    P = T(6, 6, 26)
    def data(s):
        y = R(s, 5, (16, 4)) + 1; fr = y.repeat_interleave(3, 1); fr[:, ::3] = 0; return P[fr] + T(s + 1, 16, 12, 26, k=.5), y
    def loss(o, t): return F.ctc_loss(o.log_softmax(-1).transpose(0, 1), t, torch.full((o.shape[0],), 12), torch.full((o.shape[0],), 4), blank=0)
    def mk():
        n = dict(l1=nn.Linear(26, 64), l2=nn.Linear(64, 64), l3=nn.Linear(64, 64), l5=nn.Linear(64, 64), l6=nn.Linear(64, 6))
        for l in n.values(): nn.init.normal_(l.weight, std=1 if bug else .1); nn.init.normal_(l.bias, std=1 if bug else .1)
        cr = lambda v: v.relu().clamp(max=20)
        def f(m, x): h = cr(m.l3(cr(m.l2(cr(m.l1(x)))))); h, _ = m.rnn(h); return m.l6(cr(m.l5(h)))
        return M(f, rnn=nn.LSTM(64, 32, batch_first=True, bidirectional=True), **n)
    return dict(model=mk, data=data, loss=loss)

@case("https://community.deeplearning.ai/t/loss-values-do-not-change/324182", "ReLU on the output of a regression with negative targets (4-2-1 ReLU): loss sticks", "dense_3 ReLU")
def dlai_relu(bug):
    def data(s): x = torch.rand(64, 1, generator=gen(s)) * 6 - 1; return x, 2 * x - 6
    def mk():
        torch.manual_seed(3); l = [nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)]
        return nn.Sequential(*l, *([nn.ReLU()] if bug else []))
    return dict(model=mk, data=data, loss=mse, diag=MSE)

@case("https://github.com/HobbitLong/SupContrast/pull/142", "SupCon: anchors without positives divide by mask.sum = 0: NaN loss", "loss")
def supcon_nan(bug):
    P = T(5, 20, 16)
    def data(s): k = R(s, 20, (32,)); return P[k] + T(s + 1, 32, 16, k=.5), k
    def loss(o, t):
        sim = o @ o.T / .2; eye = torch.eye(len(o), dtype=torch.bool); mask = (t[:, None] == t[None]) & ~eye; lp = sim - torch.log((sim.exp() * ~eye).sum(1, keepdim=True))
        n = mask.sum(1); n = n if bug else torch.where(n < 1, 1, n); return -((mask * lp).sum(1) / n).mean()
    return dict(model=lambda: M(lambda m, x: F.normalize(m.net(x), dim=1), net=nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))), data=data, loss=loss, diag=dict(per="batch"))

@case("https://github.com/hyunwoongko/transformer/pull/40", "pad mask unsqueeze(1).unsqueeze(3): masks the padded queries, keys of padding are attended", "attention mask")
def padmask_query(bug):
    V = 30
    def data(s):
        x = R(s, V - 6, (32, 24)) + 6; k = R(s + 1, 5, (32,)) + 1; n = R(s + 2, 8, (32,)) + 2; x[:, 0] = 6; p = 1 + (torch.rand(32, generator=gen(s + 3)) * (n - 1)).long(); x[torch.arange(32), p] = k
        x[torch.arange(24)[None] >= n[:, None]] = 0; return x, k - 1
    def f(m, x):
        e = m.emb(x) ; q, k, v = m.qkv(e).chunk(3, -1); pad = x != 0; mk = pad[:, :, None] if bug else pad[:, None, :]
        a = (q @ k.transpose(1, 2) / 6).masked_fill(~mk, -10000).softmax(-1) @ v; h = m.n(e + a); return m.out((h + m.ff(h))[:, 0])
    return dict(model=lambda: M(f, emb=nn.Embedding(V, 32), qkv=nn.Linear(32, 96), n=nn.LayerNorm(32), ff=nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)), out=nn.Linear(32, 5)), data=data, loss=ce, diag=CE)
