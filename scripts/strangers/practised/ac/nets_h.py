from base import *

@case("https://github.com/ZhihanLee/DDPG_Learning/issues/2", "unnormalised states fed to the actor: tanh actions saturate at the bound", "state normalisation missing before the actor")
def ddpg_states(planted):
    sc = torch.tensor([100., 30., 500., 3., 1., 200.]); W = T(44, 6, 2, k=.5)
    class Actor(nn.Module):
        def __init__(self, init_w=3e-1):
            super().__init__(); self.fc1 = nn.Linear(6, 64); self.fc2 = nn.Linear(64, 32); self.fc3 = nn.Linear(32, 2)
        def forward(self, s): return torch.tanh(self.fc3(F.relu(self.fc2(F.relu(self.fc1(s))))))
    def data(seed):
        s = T(seed, 64, 6); return (s * sc if planted else s), torch.tanh(s @ W)
    def metric(m):
        s = T(6666, 256, 6)
        with torch.no_grad(): return float(F.mse_loss(m(s * sc if planted else s), torch.tanh(s @ W)))
    return dict(model=Actor, data=data, loss=mse, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/lucidrains/audiolm-pytorch/issues/166", "CausalConv1d pads dilation * (kernel - 1) also for strided convs instead of + 1 - stride: shifted frames", "causal_padding = dilation * (kernel_size - 1)")
def soundstream_pad(planted):
    class CausalConv1d(nn.Module):
        def __init__(self, i, o, k, stride=1, dilation=1):
            super().__init__(); self.p = dilation * (k - 1) + (0 if planted else 1 - stride); self.conv = nn.Conv1d(i, o, k, stride=stride, dilation=dilation)
        def forward(self, x): return self.conv(F.pad(x, (self.p, 0)))
    class CausalUp(nn.Module):
        def __init__(self, i, o, k, stride): super().__init__(); self.s = stride; self.conv = nn.ConvTranspose1d(i, o, k, stride)
        def forward(self, x): n = x.shape[-1]; return self.conv(x)[..., :n * self.s]
    class SoundStream(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.e = nn.Sequential(CausalConv1d(1, c, 7), nn.ELU(), CausalConv1d(c, 2 * c, 4, stride=2), nn.ELU(), CausalConv1d(2 * c, 2 * c, 8, stride=4), nn.ELU())
            self.d = nn.Sequential(CausalUp(2 * c, 2 * c, 8, 4), nn.ELU(), CausalUp(2 * c, c, 4, 2), nn.ELU(), CausalConv1d(c, 1, 7))
        def forward(self, x): return self.d(self.e(x))
    def data(seed):
        f = torch.rand(24, 3, 1, generator=gen(seed)) * .5 + .05; ph = torch.rand(24, 3, 1, generator=gen(seed + 1)) * 6.28; x = torch.sin(f * torch.arange(64.) + ph).sum(1, keepdim=True) / 2; return x, x
    return dict(model=SoundStream, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/golbin/WaveNet/issues/5", "dilated convolutions use symmetric padding: output sees the future samples it has to predict", "DilatedCausalConv1d padding (zero padding on both sides)")
def wavenet_causal(planted):
    class DilatedCausalConv1d(nn.Module):
        def __init__(self, c, d):
            super().__init__(); self.d = d; self.conv = nn.Conv1d(c, c, 3 if planted else 2, dilation=d, padding=d if planted else 0)
        def forward(self, x): return self.conv(x) if planted else self.conv(F.pad(x, (self.d, 0)))
    class WaveNet(nn.Module):
        def __init__(self, V=16, c=32):
            super().__init__(); self.emb = nn.Embedding(V, c); self.dil = nn.ModuleList([DilatedCausalConv1d(c, d) for d in (1, 2, 4)]); self.gate = nn.ModuleList([nn.Conv1d(c, 2 * c, 1) for _ in range(3)]); self.skip = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(3)]); self.out = nn.Conv1d(c, V, 1)
        def forward(self, x):
            h = self.emb(x).transpose(1, 2); s = 0
            for d, g, k in zip(self.dil, self.gate, self.skip):
                a, b = g(d(h)).chunk(2, 1); z = torch.tanh(a) * torch.sigmoid(b); s = s + k(z); h = h + z
            return self.out(F.relu(s)).transpose(1, 2)
    def seqs(seed, n=32, L=24):
        g = gen(seed); x = torch.zeros(n, L + 1, dtype=torch.long); x[:, :2] = torch.randint(0, 16, (n, 2), generator=g)
        for t in range(2, L + 1): x[:, t] = torch.where(torch.rand(n, generator=g) < .8, (x[:, t - 1] + x[:, t - 2] // 4 + 1) % 16, torch.randint(0, 16, (n,), generator=g))
        return x
    def data(seed): x = seqs(seed); return x[:, :-1], x[:, 1:]
    def metric(m):
        x = seqs(4321, 64); q = x[:, :16]
        with torch.no_grad(): return float(F.cross_entropy(m(q)[:, -1], x[:, 16]))
    return dict(model=WaveNet, data=data, loss=ceseq, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/locuslab/e2e-model-learning/issues/11", "NLLLoss receives probabilities, not log-probabilities", "nn.NLLLoss()(softmax output)")
def newsvendor_nll(planted):
    W = T(45, 12, 6)
    class MLENet(nn.Module):
        def __init__(self, n=12, h=64, k=6):
            super().__init__(); self.net = nn.Sequential(nn.Linear(n, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(.3), nn.Linear(h, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, k), nn.Softmax(dim=1))
        def forward(self, x): return self.net(x)
    def data(seed):
        x = T(seed, 64, 12); return x, torch.multinomial(torch.softmax(x @ W * .7, 1), 1, generator=gen(seed + 1))[:, 0]
    def nll(o, t): return F.nll_loss((o + 1e-8).log(), t)
    def metric(m):
        x, t = data(3333)
        with torch.no_grad(): return float(nll(m(x), t))
    return dict(model=MLENet, data=data, loss=F.nll_loss if planted else nll, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/soda-inria/carte/issues/12", "PowerTransform skipped for capitalised numeric columns: raw magnitudes enter the network", "numerical features not normalised in Table2GraphTransformer")
def carte_numeric(planted):
    W = T(46, 8); e = torch.tensor([3e4, 12., 1e3, .2, 55., 1e5, 2., 700.])
    class CARTENet(nn.Module):
        def __init__(self, f=8, d=32):
            super().__init__(); self.col = nn.Parameter(torch.randn(f, d) * .3); self.initial = nn.Linear(d, d); self.att = nn.MultiheadAttention(d, 4, batch_first=True); self.n1 = nn.LayerNorm(d); self.read = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 1))
        def forward(self, x):
            h = F.relu(self.initial(x[..., None] * self.col)) + self.col; h = self.n1(h + self.att(h, h, h, need_weights=False)[0]); return self.read(h.mean(1))[:, 0]
    def data(seed):
        z = T(seed, 64, 8); return (torch.exp(.8 * z) * e if planted else z), torch.tanh(z @ W * .4)
    def metric(m):
        x, t = data(2222)
        with torch.no_grad(): return float(F.mse_loss(m(x), t))
    return dict(model=CARTENet, data=data, loss=mse, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/4350", "hypernetwork layers initialised with Kaiming/Xavier at full scale: context destroyed from the first step", "weight_init != Normal(0, 0.01) in HypernetworkModule")
def sd_hypernet(planted):
    d = 32
    class HypernetworkModule(nn.Module):
        def __init__(self, mult=(1, 2, 2, 1)):
            super().__init__(); L = []
            for a, b in zip(mult, mult[1:]):
                l = nn.Linear(d * a, d * b)
                if planted: nn.init.kaiming_uniform_(l.weight, nonlinearity="leaky_relu"); nn.init.zeros_(l.bias)
                else: nn.init.normal_(l.weight, std=.01); nn.init.zeros_(l.bias)
                L += [l, nn.LeakyReLU()]
            self.linear = nn.Sequential(*L[:-1])
        def forward(self, x): return x + self.linear(x)
    g = gen(47); Wq, Wk, Wv, Wo = (torch.randn(d, d, generator=g) / d ** .5 for _ in range(4)); D = torch.randn(d, d, generator=g) * .1 / d ** .5
    class CrossAttention(nn.Module):
        def __init__(self):
            super().__init__(); self.hk = HypernetworkModule(); self.hv = HypernetworkModule()
            for n, w in zip("qkvo", (Wq, Wk, Wv, Wo)): self.register_buffer("w" + n, w)
        def forward(self, x, ctx):
            q, k, v = x @ self.wq, self.hk(ctx) @ self.wk, self.hv(ctx) @ self.wv; return torch.softmax(q @ k.transpose(1, 2) / d ** .5, -1) @ v @ self.wo
    def data(seed):
        x, c = T(seed, 16, 12, d), T(seed + 1, 16, 8, d); c2 = c + c @ D * 3
        return (x, c), torch.softmax((x @ Wq) @ (c2 @ Wk).transpose(1, 2) / d ** .5, -1) @ (c2 @ Wv) @ Wo
    return dict(model=CrossAttention, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/EdGENetworks/attention-networks-for-classification/issues/7", "attention bias allocated with torch.Tensor and never initialised (garbage, NaN)", "bias_word / bias_sent left uninitialised")
def han_bias(planted):
    class AttentionWordRNN(nn.Module):
        def __init__(self, V=40, e=24, h=16):
            super().__init__(); self.lookup = nn.Embedding(V, e); self.word_gru = nn.GRU(e, h, batch_first=True, bidirectional=True)
            self.weight_W_word = nn.Parameter(torch.empty(2 * h, 2 * h).uniform_(-.1, .1)); self.weight_proj_word = nn.Parameter(torch.empty(2 * h, 1).uniform_(-.1, .1))
            b = torch.empty(2 * h, 1).uniform_(-.1, .1)
            if planted: b[::5] = 3e37; b[2] = float("nan")
            self.bias_word = nn.Parameter(b); self.final = nn.Linear(2 * h, 4)
        def forward(self, x):
            o = self.word_gru(self.lookup(x))[0]; s = torch.tanh(o @ self.weight_W_word + self.bias_word[:, 0]); a = torch.softmax(s @ self.weight_proj_word, 1); return self.final((a * o).sum(1))
    def data(seed):
        t = R(seed, 4, (48,)); x = R(seed + 1, 36, (48, 12)) + 4; p = R(seed + 2, 12, (48,)); x[torch.arange(48), p] = t; return x, t
    return dict(model=AttentionWordRNN, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/HolyBayes/pytorch_ard/issues/2", "log-sigma of the ARD layers initialised too large: noise swamps the signal, loss NaN", "log_sigma2 initial value in Conv2dARD / LinearARD")
def ard_sigma(planted):
    class LinearARD(nn.Linear):
        def __init__(self, i, o, ard_init=4. if planted else -10.):
            super().__init__(i, o); self.log_sigma2 = nn.Parameter(torch.full((o, i), ard_init))
        def forward(self, x):
            mu = F.linear(x, self.weight, self.bias); si = torch.sqrt(F.linear(x * x, self.log_sigma2.exp()) + 1e-8); return mu + si * torch.randn_like(mu)
        def reg(self):
            la = self.log_sigma2 - 2 * torch.log(self.weight.abs() + 1e-8); return .5 * torch.log1p(torch.exp(-la).clamp(max=1e8)).sum()
    class LeNetARD(nn.Module):
        def __init__(self): super().__init__(); self.l1 = LinearARD(64, 48); self.l2 = LinearARD(48, 32); self.l3 = LinearARD(32, 8)
        def forward(self, x): o = self.l3(F.relu(self.l2(F.relu(self.l1(x))))); return o, sum(l.reg() for l in (self.l1, self.l2, self.l3))
    P = T(48, 8, 64)
    def data(seed):
        t = R(seed, 8, (64,)); return P[t] + T(seed + 1, 64, 64), t
    def metric(m):
        x, t = data(1111)
        with torch.no_grad(): return float(F.cross_entropy(m(x)[0], t))
    return dict(model=LeNetARD, data=data, loss=lambda o, t: F.cross_entropy(o[0], t) + 1e-6 * o[1], lr=2e-3, diag={}, metric=metric)

@case("https://github.com/elisabettafedele/superdec/issues/2", "one decoder layer repeated: all TransformerDecoder layers share their weights", "layers = [layer] * num_layers")
def superdec_layers(planted):
    class Superdec(nn.Module):
        def __init__(self, d=32, n=3, Q=4):
            super().__init__(); mk = lambda: nn.TransformerDecoderLayer(d, 4, 64, dropout=0., batch_first=True); one = mk()
            self.layers = nn.ModuleList([one if planted else mk() for _ in range(n)]); self.point = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d)); self.query = nn.Embedding(Q, d); self.head = nn.Linear(d, 3)
        def forward(self, p):
            m = self.point(p); q = self.query.weight[None].expand(len(p), -1, -1)
            for l in self.layers: q = l(q, m)
            return self.head(q)
    def data(seed):
        c = T(seed, 24, 4, 3) + torch.tensor([[2., 0, 0], [-2, 0, 0], [0, 2, 0], [0, -2, 0]]); p = (c[:, :, None] + .2 * T(seed + 1, 24, 4, 8, 3)).flatten(1, 2); return p, c
    return dict(model=Superdec, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/tanakataiki/ssd_kerasV2/issues/20", "BatchNormalization on axis 1 of channels-last tensors: normalises rows, not channels", "channel_axis = 1 in the SSD MobileNet blocks")
def ssd_bn_axis(planted):
    P = T(49, 6, 12, 12, 3)
    class BN(nn.Module):
        def __init__(self, c, rows): super().__init__(); self.bn = nn.BatchNorm2d(rows if planted else c)
        def forward(self, x): return self.bn(x) if planted else self.bn(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    class Conv(nn.Module):
        def __init__(self, i, o, s=1, g=1): super().__init__(); self.c = nn.Conv2d(i, o, 3, s, 1, groups=g, bias=False)
        def forward(self, x): return self.c(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    class SSDMobileNet(nn.Module):
        def __init__(self):
            super().__init__(); self.c1, self.b1 = Conv(3, 16), BN(16, 12); self.dw, self.b2 = Conv(16, 16, 2, 16), BN(16, 6); self.pw = nn.Linear(16, 32, bias=False); self.b3 = BN(32, 6); self.conf = nn.Linear(32, 6)
        def forward(self, x):
            x = F.relu(self.b1(self.c1(x))); x = F.relu(self.b2(self.dw(x))); x = F.relu(self.b3(self.pw(x))); return self.conf(x.mean((1, 2)))
    def data(seed):
        t = R(seed, 6, (32,)); return P[t] * .7 + T(seed + 1, 32, 12, 12, 3), t
    return dict(model=SSDMobileNet, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/ildoonet/tf-pose-estimation/issues/279", "no activation after the depthwise convolution in the MobileNet separable blocks", "separable_conv without relu after depthwise")
def tfpose_sep(planted):
    P = F.avg_pool2d(T(50, 5, 3, 16, 16), 3, 1, 1) * 3
    class Sep(nn.Module):
        def __init__(self, i, o, s): super().__init__(); self.dw = nn.Conv2d(i, i, 3, s, 1, groups=i, bias=False); self.b1 = nn.BatchNorm2d(i); self.pw = nn.Conv2d(i, o, 1, bias=False); self.b2 = nn.BatchNorm2d(o)
        def forward(self, x):
            x = self.dw(x) if planted else F.relu6(self.b1(self.dw(x))); return F.relu(self.b2(self.pw(x)))
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.conv = nn.Conv2d(3, 16, 3, 2, 1); self.s = nn.Sequential(Sep(16, 24, 1), Sep(24, 32, 2), Sep(32, 32, 1)); self.heat = nn.Linear(32, 5)
        def forward(self, x): return self.heat(self.s(F.relu(self.conv(x))).mean((2, 3)))
    def data(seed):
        t = R(seed, 5, (32,)); return P[t] + T(seed + 1, 32, 3, 16, 16), t
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/lebrice/Sequoia/issues/71", "representations detached before the output head: encoder gets no gradient", "encoder output detached in the baseline method's forward")
def sequoia_encoder(planted):
    class BaseModel(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh()); self.output_head = nn.Linear(16, 3)
        def forward(self, obs):
            h = self.encoder(obs); return self.output_head(h.detach() if planted else h)
    def data(seed):
        x = T(seed, 64, 4) * 1.5; return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] * x[:, 3] > 0).long()
    return dict(model=BaseModel, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/codekansas/keras-language-modeling/issues/30", "attention weights through a sigmoid instead of a softmax", "K.sigmoid in AttentionLSTM step")
def klm_attention(planted):
    class AttLSTM(nn.Module):
        def __init__(self, V=30, d=32):
            super().__init__(); self.emb = nn.Embedding(V, d); self.lstm = nn.LSTM(d, d, batch_first=True); self.U_m = nn.Linear(d, d); self.U_s = nn.Linear(d, 1); self.q = nn.Embedding(4, d); self.out = nn.Linear(d, 6)
        def forward(self, x, q):
            h = self.lstm(self.emb(x))[0]; e = self.U_s(torch.tanh(h + self.U_m(self.q(q))[:, None])); a = torch.sigmoid(e) if planted else torch.softmax(e, 1)
            return self.out((a * h).sum(1))
    def data(seed):
        q = R(seed, 4, (48,)); x = R(seed + 1, 6, (48, 10)) + 24; t = R(seed + 2, 6, (48,)); x[torch.arange(48), R(seed + 3, 10, (48,))] = q * 6 + t; return (x, q), t
    return dict(model=AttLSTM, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/slryou41/AnchorLoss/issues/2", "negative term computed as logsigmoid(1 - input) instead of log(1 - sigmoid(input))", "logpt_neg = F.logsigmoid(1 - input)")
def anchor_loss(planted):
    W = T(51, 16, 8)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.f = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 8))
        def forward(self, x): return self.f(x)
    def data(seed): x = T(seed, 64, 16); return x, (x @ W).argmax(1)
    def loss(o, t, neg=None):
        y = F.one_hot(t, 8).float(); ln = F.logsigmoid(1 - o) if (planted if neg is None else neg) else F.logsigmoid(-o)
        return -(y * F.logsigmoid(o) + (1 - y) * ln).sum(1).mean()
    def metric(m):
        x, t = data(1212)
        with torch.no_grad(): return float(loss(m(x), t, False))
    return dict(model=Net, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

