from base import *

def adding(seed, B=32, L=20):
    x = torch.rand(B, L, 2, generator=gen(seed)); m = torch.zeros(B, L); i = R(seed + 1, L // 2, (B, 2)) + torch.tensor([0, L // 2])
    m.scatter_(1, i, 1.); x[..., 1] = m; return x, (x[..., 0] * m).sum(1, keepdim=True)

class Recurrent(nn.Module):
    def __init__(self, cell, lstm=False):
        super().__init__(); self.cell, self.lstm, self.dense = cell, lstm, nn.Linear(cell.units, cell.n_out)
    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.cell.units)
        for t in range(x.shape[1]):
            if self.lstm: h, c = self.cell(x[:, t], h, c)
            else: h = self.cell(x[:, t], h)
        return self.dense(h)

def running_class(seed, L=12, n=12):
    x = T(seed, 32, L, 6); return x, x[:, :n, :4].sum(1).argmax(-1)

@case("https://github.com/farizrahman4u/recurrentshop/pull/104", "GRUCell: the reset gate has no recurrent activation (sigmoid)", "GRUCell reset gate r")
def recurrentshop_gru(planted):
    class GRUCell(nn.Module):
        def __init__(self, d=6, units=64, n_out=4):
            super().__init__(); self.units, self.n_out = units, n_out; self.kernel = nn.Linear(d, 3 * units)
            self.recurrent_kernel_1, self.recurrent_kernel_2 = nn.Linear(units, 2 * units, bias=False), nn.Linear(units, units, bias=False)
            nn.init.xavier_uniform_(self.kernel.weight); nn.init.zeros_(self.kernel.bias)
            nn.init.orthogonal_(self.recurrent_kernel_1.weight); nn.init.orthogonal_(self.recurrent_kernel_2.weight)
        def forward(self, x, h_tm1):
            x0, x1, x2 = self.kernel(x).chunk(3, -1); r0, r1 = self.recurrent_kernel_1(h_tm1).chunk(2, -1)
            z = torch.sigmoid(x0 + r0); r = x1 + r1
            if not planted: r = torch.sigmoid(r)
            h_prime = torch.tanh(self.recurrent_kernel_2(r * h_tm1) + x2)
            return z * h_prime + (1. - z) * h_tm1
    return dict(model=lambda: Recurrent(GRUCell()), data=lambda s: running_class(s, 16, 10), loss=ce, lr=3e-3, diag={})

@case("https://github.com/farizrahman4u/recurrentshop/pull/104", "LSTMCell: the output gate has no recurrent activation (sigmoid)", "LSTMCell output gate o")
def recurrentshop_lstm(planted):
    class LSTMCell(nn.Module):
        def __init__(self, d=6, units=64, n_out=4):
            super().__init__(); self.units, self.n_out = units, n_out
            self.kernel, self.recurrent_kernel = nn.Linear(d, 4 * units), nn.Linear(units, 4 * units, bias=False)
            nn.init.xavier_uniform_(self.kernel.weight); nn.init.zeros_(self.kernel.bias); nn.init.orthogonal_(self.recurrent_kernel.weight)
        def forward(self, x, h_tm1, c_tm1):
            f, i, o, c_prime = (self.kernel(x) + self.recurrent_kernel(h_tm1)).chunk(4, -1)
            f, i, c_prime = torch.sigmoid(f), torch.sigmoid(i), torch.tanh(c_prime)
            if not planted: o = torch.sigmoid(o)
            c = torch.tanh(f * c_tm1 + i * c_prime); return o * c, c
    return dict(model=lambda: Recurrent(LSTMCell(), True), data=running_class, loss=ce, lr=3e-3, diag={})

@case("https://github.com/laubonghaudoi/CapsNet_guide_PyTorch/pull/7", "routing logits b are shared by the batch (agreement summed over the samples)", "DigitCaps routing b")
def capsnet_routing(planted):
    def squash(s): n = (s ** 2).sum(-1, keepdim=True); return n / (1 + n) * s / (n.sqrt() + 1e-8)
    class DigitCaps(nn.Module):
        def __init__(self, n=32, r=3):
            super().__init__(); self.r, self.W = r, nn.Parameter(torch.randn(n, 10, 8, 16))
        def forward(self, u):
            u_hat = torch.einsum("bni,njio->bnjo", u, self.W)
            b = u.new_zeros(*(u_hat.shape[1:3] if planted else u_hat.shape[:3]))
            for k in range(self.r):
                c = F.softmax(b, -1); v = squash((c.unsqueeze(-1) * u_hat).sum(1))
                a = (u_hat * v.unsqueeze(1)).sum(-1); b = b + (a.sum(0) if planted else a)
            return v
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.conv, self.primary, self.digits = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5, 2), DigitCaps()
        def forward(self, x):
            u = self.primary(F.relu(self.conv(x))); u = squash(u.view(x.shape[0], 8, -1).transpose(1, 2)); return self.digits(u).norm(dim=-1)
    def margin(v, t):
        y = F.one_hot(t, 10).float(); return (y * F.relu(.9 - v) ** 2 + .5 * (1 - y) * F.relu(v - .1) ** 2).sum(1).mean()
    tmpl = T(8, 10, 1, 11, 11)
    def data(seed):
        t = R(seed, 10, (32,)); return tmpl[t] + T(seed + 1, 32, 1, 11, 11), t
    return dict(model=Net, data=data, loss=margin, lr=2e-3, diag={})

@case("https://github.com/alxndrTL/mamba.py/issues/53", "softplus on delta forgotten after the projection", "delta (dt_proj) without softplus")
def mamba_no_softplus(planted):
    class MambaBlock(nn.Module):
        def __init__(self, d=32, ed=64, N=16, rank=4):
            super().__init__(); self.in_proj, self.conv1d = nn.Linear(d, 2 * ed, bias=False), nn.Conv1d(ed, ed, 4, groups=ed, padding=3)
            self.x_proj, self.dt_proj, self.out_proj = nn.Linear(ed, rank + 2 * N, bias=False), nn.Linear(rank, ed), nn.Linear(ed, d, bias=False); self.rank, self.N = rank, N
            nn.init.uniform_(self.dt_proj.weight, -rank ** -.5, rank ** -.5); dt = torch.exp(torch.rand(ed) * (math.log(.1) - math.log(1e-3)) + math.log(1e-3))
            with torch.no_grad(): self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
            self.A_log, self.D = nn.Parameter(torch.log(torch.arange(1., N + 1).repeat(ed, 1))), nn.Parameter(torch.ones(ed))
        def forward(self, x):
            x, z = self.in_proj(x).chunk(2, -1); x = F.silu(self.conv1d(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
            delta, B, C = self.x_proj(x).split([self.rank, self.N, self.N], -1); delta = self.dt_proj(delta)
            if not planted: delta = F.softplus(delta)
            deltaA = torch.exp(delta.unsqueeze(-1) * -torch.exp(self.A_log)); BX = delta.unsqueeze(-1) * B.unsqueeze(2) * x.unsqueeze(-1)
            h, ys = 0, []
            for t in range(x.shape[1]): h = deltaA[:, t] * h + BX[:, t]; ys.append((h * C[:, t, None]).sum(-1))
            return self.out_proj((torch.stack(ys, 1) + self.D * x) * F.silu(z))
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding, self.layers = nn.Embedding(32, 32), nn.ModuleList([MambaBlock(), MambaBlock()])
            self.norms, self.lm_head = nn.ModuleList([nn.LayerNorm(32) for _ in range(3)]), nn.Linear(32, 32, bias=False)
        def forward(self, ids):
            x = self.embedding(ids)
            for n, l in zip(self.norms, self.layers): x = x + l(n(x))
            return self.lm_head(self.norms[2](x))
    perm = torch.randperm(32, generator=gen(3))
    def data(seed):
        ids = [R(seed, 32, (16,))]; g = gen(seed + 5)
        for k in range(16): ids.append(torch.where(torch.rand(16, generator=g) < .9, perm[ids[-1]], torch.randint(0, 32, (16,), generator=g)))
        ids = torch.stack(ids, 1); return ids[:, :-1], ids[:, 1:]
    return dict(model=Net, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/neulab/xnmt/issues/132", "decoder LSTM is not initialized with the final encoder state", "decoder initial state")
def xnmt_decoder_init(planted):
    class Net(nn.Module):
        def __init__(self, V=12, d=64):
            super().__init__(); self.src_embedder, self.trg_embedder = nn.Embedding(V, 32), nn.Embedding(V + 1, 32)
            self.encoder, self.decoder = nn.LSTM(32, d, batch_first=True), nn.LSTMCell(32 + d, d)
            self.W, self.Vq, self.U, self.readout = nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False), nn.Linear(2 * d, V)
        def forward(self, src, trg):
            enc, (h, c) = self.encoder(self.src_embedder(src)); h, c = h[0], c[0]
            if planted: h, c = torch.zeros_like(h), torch.zeros_like(c)
            ctx, out, emb = torch.zeros_like(h), [], self.trg_embedder(trg)
            for t in range(trg.shape[1]):
                h, c = self.decoder(torch.cat([emb[:, t], ctx], -1), (h, c))
                a = F.softmax(self.U(torch.tanh(self.W(enc) + self.Vq(h).unsqueeze(1))), 1); ctx = (a * enc).sum(1)
                out.append(self.readout(torch.cat([h, ctx], -1)))
            return torch.stack(out, 1)
    def data(seed):
        s = R(seed, 12, (32, 4)); t = (s + 3) % 12; return (s, torch.cat([torch.full((32, 1), 12), t[:, :-1]], 1)), t
    return dict(model=Net, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/sfujim/BCQ/issues/6", "ReLU on the final logits of the imitation branch", "i3 followed by relu")
def bcq_relu_logits(planted):
    class FC_Q(nn.Module):
        def __init__(self, s=8, a=6, h=128):
            super().__init__(); self.q1, self.q2, self.q3 = nn.Linear(s, h), nn.Linear(h, h), nn.Linear(h, a); self.i1, self.i2, self.i3 = nn.Linear(s, h), nn.Linear(h, h), nn.Linear(h, a)
        def forward(self, state):
            q = F.relu(self.q2(F.relu(self.q1(state)))); i = F.relu(self.i2(F.relu(self.i1(state)))); i = self.i3(i)
            if planted: i = F.relu(i)
            return self.q3(q), F.log_softmax(i, 1), i
    def loss(out, target):
        q, imt, i = out; action, target_Q = target
        return F.smooth_l1_loss(q.gather(1, action), target_Q) + F.nll_loss(imt, action.reshape(-1)) + 1e-2 * i.pow(2).mean()
    W, V = T(41, 8, 6), T(42, 8, 6)
    def data(seed):
        s = T(seed, 64, 8); a = (s @ W).argmax(1, keepdim=True); return s, (a, (torch.tanh(s @ V)).gather(1, a))
    return dict(model=FC_Q, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/michaeltrs/DeepSatModels/issues/22", "patch predictions put together with one reshape to (B, H, W, C)", "final reshape of the patches")
def tsvit_reshape(planted):
    class TSViT(nn.Module):
        def __init__(self, H=16, p=4, dim=128, K=3):
            super().__init__(); self.H, self.p, self.K, self.n = H, p, K, H // p
            self.to_patch, self.pos = nn.Linear(3 * p * p, dim), nn.Parameter(torch.randn(1, self.n ** 2, dim) * .02)
            self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(dim, 4, 256, 0., batch_first=True, norm_first=True) for _ in range(2)])
            self.mlp_head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, K * p * p))
        def forward(self, x):
            B, n, p, K, H = x.shape[0], self.n, self.p, self.K, self.H
            x = x.view(B, 3, n, p, n, p).permute(0, 2, 4, 3, 5, 1).reshape(B, n * n, -1); x = self.to_patch(x) + self.pos
            for b in self.blocks: x = b(x)
            x = self.mlp_head(x)
            if planted: x = x.reshape(B, n * n, p * p, K).reshape(B, H, H, K)
            else: x = x.reshape(B, n, n, p, p, K).permute(0, 1, 3, 2, 4, 5).reshape(B, H, H, K)
            return x
    def data(seed):
        x = T(seed, 16, 3, 16, 16); x = F.interpolate(T(seed + 1, 16, 3, 4, 4), (16, 16), mode="bilinear") + .3 * x; return x, x.argmax(1)
    return dict(model=TSViT, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/jax-ml/jax/pull/443", "stax BatchNorm divides by the square of the variance instead of its square root", "BatchNorm normalization")
def stax_batchnorm_square(planted):
    class BatchNorm(nn.Module):
        def __init__(self, c, epsilon=1e-5):
            super().__init__(); self.beta, self.gamma, self.epsilon = nn.Parameter(torch.zeros(c)), nn.Parameter(torch.ones(c)), epsilon
        def forward(self, x):
            mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
            z = (x - mean) / ((var + self.epsilon) ** 2 if planted else torch.sqrt(var + self.epsilon))
            return self.gamma.view(1, -1, 1, 1) * z + self.beta.view(1, -1, 1, 1)
    class Block(nn.Module):
        def __init__(self, c):
            super().__init__(); self.main = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), BatchNorm(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), BatchNorm(c))
        def forward(self, x): return F.relu(x + self.main(x))
    def Net():
        net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), BatchNorm(16), nn.ReLU(), Block(16), nn.AvgPool2d(2), Block(16), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * 16, 10))
        for m in net.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)): nn.init.xavier_normal_(m.weight)
        return net
    tmpl = T(9, 10, 3, 16, 16)
    def data(seed):
        t = R(seed, 10, (32,)); return tmpl[t] + T(seed + 1, 32, 3, 16, 16, k=2.), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})
