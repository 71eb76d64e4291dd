from base import *

@case("https://github.com/jeshraghian/snntorch/issues/219", "LIF threshold set to 0 in a deep convolutional SNN", "threshold=0 of the LIF neurons")
def snn_threshold0(planted):
    P = T(21, 5, 1, 12, 12)
    class ATan(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): ctx.save_for_backward(x); return (x > 0).float()
        @staticmethod
        def backward(ctx, g): x, = ctx.saved_tensors; return g / (1 + (math.pi * x) ** 2)
    class Leaky(nn.Module):
        def __init__(self, beta=.5, threshold=1.): super().__init__(); self.beta, self.threshold = beta, threshold
        def forward(self, cur, mem):
            mem = self.beta * mem + cur - (mem > self.threshold).float().detach() * self.threshold
            return ATan.apply(mem - self.threshold), mem
    class Net(nn.Module):
        def __init__(self, c=12, steps=8):
            super().__init__(); th = 0. if planted else .5; self.steps = steps
            self.convs = nn.ModuleList([nn.Conv2d(1 if i == 0 else c, c, 3, padding=1) for i in range(4)]); self.lifs = nn.ModuleList([Leaky(threshold=th) for _ in range(4)])
            for m in self.convs: nn.init.kaiming_normal_(m.weight)
            self.fc = nn.Linear(c * 9, 5); self.lif_out = Leaky(threshold=1.)
        def forward(self, x):
            mems = [0.] * 4; out = mo = 0.
            for _ in range(self.steps):
                h = x
                for i, (c, l) in enumerate(zip(self.convs, self.lifs)):
                    h = c(h); h = F.max_pool2d(h, 2) if i in (1, 3) else h
                    h, mems[i] = l(h, mems[i] if torch.is_tensor(mems[i]) else torch.zeros_like(h))
                mo = .5 * mo + self.fc(h.flatten(1)); out = out + mo / self.steps
            return out
    def data(s): y = R(s, 5, (16,)); return torch.sigmoid(P[y] * 1.5 + T(s + 1, 16, 1, 12, 12)), y
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/FudanNLP/fastNLP/issues/254", "DotAttention softmax over dim=2, wrong for 4-d (multi-head) scores: normalises over queries", "DotAttention softmax dim")
def dot_softmax_dim(planted):
    class MultiHead(nn.Module):
        def __init__(self, d=32, h=4):
            super().__init__(); self.q_in, self.k_in, self.v_in, self.out = [nn.Linear(d, d) for _ in range(4)]; self.h = h; self.softmax = nn.Softmax(dim=2 if planted else -1)
        def forward(self, x):
            b, n, d = x.shape; q, k, v = [l(x).view(b, n, self.h, -1).transpose(1, 2) for l in (self.q_in, self.k_in, self.v_in)]
            a = self.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // self.h))
            return self.out((a @ v).transpose(1, 2).reshape(b, n, d))
    class Encoder(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.emb = nn.Embedding(20, d); self.pos = nn.Embedding(12, d); self.atte, self.norm1 = nn.ModuleList([MultiHead(d) for _ in range(2)]), nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])
            self.ffn, self.norm2 = nn.ModuleList([nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)) for _ in range(2)]), nn.ModuleList([nn.LayerNorm(d) for _ in range(2)]); self.fc = nn.Linear(d, 20)
        def forward(self, t):
            x = self.emb(t) + self.pos.weight[:t.size(1)]
            for i in range(2): x = self.norm1[i](x + self.atte[i](x)); x = self.norm2[i](x + self.ffn[i](x))
            return self.fc(x)
    def data(s): t = R(s, 20, (64, 12)); return t, t.flip(1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/kjc6723/seq2seq_Pointer_Generator_Summarizer/issues/1", "attention decoder GRU is called without the previous state, steps are not connected", "decoder gru initial state (hidden not passed)")
def nmt_gru_state(planted):
    class Seq2Seq(nn.Module):
        def __init__(self, V=12, d=64):
            super().__init__(); self.embedding = nn.Embedding(V, d); self.encoder = nn.GRU(d, d, batch_first=True); self.dec_emb = nn.Embedding(V + 1, d)
            self.W1, self.W2, self.V = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1); self.gru = nn.GRU(2 * d, d, batch_first=True); self.fc = nn.Linear(d, V)
        def forward(self, src, tgt):
            enc, hidden = self.encoder(self.embedding(src)); out = []
            for i in range(tgt.size(1)):
                q = hidden[-1].unsqueeze(1); a = torch.softmax(self.V(torch.tanh(self.W1(q) + self.W2(enc))), dim=1)
                x = torch.cat([(a * enc).sum(1, keepdim=True), self.dec_emb(tgt[:, i:i + 1])], -1)
                o, hidden = self.gru(x) if planted else self.gru(x, hidden); out.append(self.fc(o))
            return torch.cat(out, 1)
    def data(s): t = R(s, 8, (64, 5)); return (t, torch.cat([torch.full((64, 1), 12), torch.zeros(64, 4, dtype=torch.long)], 1)), t
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/divamgupta/image-segmentation-keras/issues/41", "channels-last output reshaped to (nClasses, H*W) then permuted instead of reshaped to (H*W, nClasses)", "Reshape+Permute of the output")
def seg_reshape(planted):
    class Unet(nn.Module):
        def __init__(self, c=12):
            super().__init__(); self.net = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 4, 1))
        def forward(self, x):
            x = self.net(x).permute(0, 2, 3, 1).contiguous()
            return x.view(x.size(0), 4, -1).permute(0, 2, 1) if planted else x.view(x.size(0), -1, 4)
    K = T(22, 4, 3) * 1.5
    def data(s):
        t = F.interpolate(R(s, 4, (16, 1, 4, 4)).float(), scale_factor=4).long().squeeze(1); return K[t].permute(0, 3, 1, 2) + T(s + 1, 16, 3, 16, 16), t.flatten(1)
    return dict(model=Unet, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/Selen-Suyue/DensePolicy2D/issues/3", "camera images HWC are brought to CHW with reshape instead of permute", "image reshape (policy.py 53-54)")
def policy_reshape(planted):
    yy, xx = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing="ij")
    class Policy(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.obs_encoder = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * c, 2 * c, 3, 2, 1), nn.ReLU(), nn.Flatten()); self.head = nn.Sequential(nn.Linear(2 * c * 9, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(self, img):
            b, h, w, c = img.shape; img = img.reshape(b, c, h, w) if planted else img.permute(0, 3, 1, 2)
            return self.head(self.obs_encoder(img))
    def data(s):
        p = 4 + 16 * torch.rand(32, 2, 2, generator=gen(s)); img = .2 * T(s + 1, 32, 24, 24, 3)
        for k, ch in ((0, 0), (1, 2)): img[..., ch] += torch.exp(-((yy - p[:, k, :1, None]) ** 2 + (xx - p[:, k, 1:, None]) ** 2) / 8)
        return img, (p.flatten(1) - 12) / 8
    return dict(model=Policy, data=data, loss=mse, lr=3e-3, diag={})

@case("https://codewithsundeep.com/discussion/solution/38991327", "six conv/dense layers initialised with truncated_normal(stddev=0.05), signal vanishes for 900 steps", "weights stddev=0.05")
def trunc_005(planted):
    P = T(23, 6, 1, 16, 16)
    class CNN(nn.Module):
        def __init__(self):
            super().__init__(); ch = [1, 16, 16, 32, 32]
            self.convs = nn.ModuleList([nn.Conv2d(ch[i], ch[i + 1], 2, padding="same") for i in range(4)]); self.fc = nn.Linear(32, 32); self.out = nn.Linear(32, 6)
            for m in self.modules():
                if isinstance(m, (nn.Conv2d, nn.Linear)):
                    nn.init.zeros_(m.bias); nn.init.trunc_normal_(m.weight, std=.05, a=-.1, b=.1) if planted else nn.init.kaiming_normal_(m.weight)
        def forward(self, x):
            for i, c in enumerate(self.convs):
                x = F.leaky_relu(c(x), .1); x = F.max_pool2d(x, 2)
            return self.out(F.leaky_relu(self.fc(x.flatten(1)), .1))
    def data(s): y = R(s, 6, (32,)); return P[y] + .4 * T(s + 1, 32, 1, 16, 16), y
    return dict(model=CNN, data=data, loss=ce, lr=1e-3, diag={})

@case("https://math.techqa.club/are-relu-a-very-bad-choice-as-last-layer-for-regression-4483706", "ReLU as the last layer of a regression net, pre-activation always negative, gradient zero", "ReLU on output")
def relu_last(planted):
    w = T(24, 10)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.W = nn.Linear(10, 1); nn.init.normal_(self.W.weight, -.2, .05); nn.init.constant_(self.W.bias, -.5)
        def forward(self, x): a = self.W(x).squeeze(1); return F.relu(a) if planted else a
    def data(s): x = torch.rand(32, 10, generator=gen(s)); return x, x @ w.abs()
    return dict(model=Net, data=data, loss=mse, lr=5e-2, diag={})

@case("https://github.com/cpnota/autonomous-learning-library/issues/154", "GaussianPolicy applies tanh to the means and again in _squash", "double tanh")
def policy_double_tanh(planted):
    w = T(25, 8, 2)
    class GaussianPolicy(nn.Module):
        def __init__(self, h=64): super().__init__(); self.model = nn.Sequential(nn.Linear(8, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2))
        def _squash(self, x): return torch.tanh(x)
        def forward(self, s): means = self.model(s); return self._squash(torch.tanh(means)) if planted else self._squash(means)
    def data(s): x = T(s, 64, 8); return x, torch.tanh(3 * x @ w)
    return dict(model=GaussianPolicy, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/keras-team/keras/issues/13891", "a tiny ReLU layer (few neurons) before the output, dies: constant prediction; linear or tanh is fine", "2-unit relu layer")
def tiny_relu(planted):
    w = T(27, 6)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.dense1 = nn.Linear(6, 2); self.dense2 = nn.Linear(2, 1)
            for l in (self.dense1, self.dense2): nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def forward(self, x): x = self.dense1(x); return self.dense2(F.relu(x) if planted else x).squeeze(1)
    def data(s): x = 2 + torch.rand(64, 6, generator=gen(s)); return x, x @ w + .1 * T(s + 1, 64)
    return dict(model=Net, data=data, loss=mse, lr=2e-2, diag={})

@case("https://github.com/sukritshankar/Caffe-LMDBCreation-MultiLabel/issues/4", "bounding-box targets fed as raw pixel values (hundreds), must be scaled", "target scale")
def bbox_raw(planted):
    class Net(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.conv = nn.Sequential(nn.Conv2d(1, c, 5, 2, 2), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU(), nn.Flatten()); self.fc7 = nn.Linear(2 * c * 64, 64); self.fc8 = nn.Linear(64, 4)
        def forward(self, x): return self.fc8(F.relu(self.fc7(self.conv(x))))
    def data(s):
        a = 16 * torch.rand(32, 2, generator=gen(s)); wh = 6 + 10 * torch.rand(32, 2, generator=gen(s + 1)); r = torch.arange(32.)
        m = ((r[:, None] >= a[:, 1, None, None]) & (r[:, None] < (a + wh)[:, 1, None, None]) & (r >= a[:, 0, None, None]) & (r < (a + wh)[:, 0, None, None])).float()
        t = torch.cat([a, wh], 1) / 32; return m.unsqueeze(1) + .2 * T(s + 2, 32, 1, 32, 32), t * 500 if planted else t
    def metric(m):
        x, t = data(99999)
        k = 500. if m.raw else 1.
        with torch.no_grad(): return float((m(x) / k - t / (500 if planted else 1)).abs().mean())
    Net.raw = planted
    return dict(model=Net, data=data, loss=mse, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/HIPS/Kayak/issues/14", "MSELoss between predictions [n,1] and targets [n] broadcasts to [n,n]", "target shape")
def linreg_broadcast(planted):
    def data(s):
        x = T(s, 64, 2); y = 3 + 2 * x[:, 0] - 1.5 * x[:, 1] + .1 * T(s + 1, 64); return x, y if planted else y.reshape(-1, 1)
    class LinReg(nn.Module):
        def __init__(self): super().__init__(); self.linear = nn.Linear(2, 1)
        def forward(self, x): return self.linear(x)
    return dict(model=LinReg, data=data, loss=mse, lr=5e-2, diag={})

@case("https://github.com/pidahbus/deep-image-orientation-angle-detection/issues/4", "angular loss min(|p-t|, 360-|p-t|) with unbounded p goes to minus infinity", "angle loss (360-|p-t|)")
def angle_loss(planted):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 20), indexing="ij")
    class Net(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.net = nn.Sequential(nn.Conv2d(1, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * c * 25, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x): a = self.net(x).squeeze(1) * 180; return a if planted else torch.remainder(a, 360)
    def loss(p, t): d = (p - t).abs(); return torch.minimum(d, 360 - d).mean()
    def data(s):
        t = 360 * torch.rand(64, generator=gen(s)); r = t / 180 * math.pi
        z = torch.cos(r)[:, None, None] * xx + torch.sin(r)[:, None, None] * yy; return (torch.tanh(4 * z) + .1 * T(s + 1, 64, 20, 20)).unsqueeze(1), t
    def metric(m):
        x, t = data(99999)
        with torch.no_grad(): d = torch.remainder(m(x) - t, 360)
        return float(torch.minimum(d, 360 - d).mean())
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/aymericdamien/TensorFlow-Examples/pull/299", "no activation between the dense layers, network is linear", "missing relu after layer_1/layer_2")
def nn_linear(planted):
    W = T(33, 12, 3)
    class NeuralNet(nn.Module):
        def __init__(self): super().__init__(); self.fc1, self.fc2, self.out = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 3)
        def forward(self, x):
            x = self.fc1(x); x = x if planted else F.relu(x); x = self.fc2(x); x = x if planted else F.relu(x); return self.out(x)
    def data(s): x = T(s, 64, 12); return x, (x @ W).abs().argmax(1)
    return dict(model=NeuralNet, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/NVIDIA/apex/issues/358", "focal loss takes log(1-y_pred) of half-precision probabilities clamped with 1e-8, saturated ones give 0*inf", "log in loss (eps inside clamp)")
def apex_focal(planted):
    W = T(34, 20)
    class HalfCast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x.half().float()
        @staticmethod
        def backward(ctx, g): return g
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.fc1, self.fc2, self.out = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 1)
        def forward(self, x): return HalfCast.apply(torch.sigmoid(self.out(F.relu(self.fc2(F.relu(self.fc1(x))))).squeeze(1)))
    def loss(p, y, gamma=0.):
        e = 1e-8; p = torch.clamp(p, e, 1 - e); k = 0 if planted else 1e-6
        return -(y * (1 - p) ** gamma * torch.log(p + k) + (1 - y) * p ** gamma * torch.log(1 - p + k)).mean()
    def data(s): x = T(s, 64, 20); z = x @ W; return x + .15 * z.sign()[:, None] * W, (z > 0).float()
    return dict(model=Net, data=data, loss=loss, lr=5e-3, diag={})
