from base import *

@case("https://github.com/SciML/ModelingToolkitNeuralNets.jl/issues/6", "loss sqrt(abs2(pred-ref)): at the initial point pred equals ref exactly, gradient of sqrt(0) is NaN", "sqrt in loss")
def mtk_sqrt(planted):
    class UDE(nn.Module):
        def __init__(self):
            super().__init__(); self.nn = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
        def forward(self, u0):
            ts = torch.linspace(0, 1.2, 13).view(1, 13, 1).expand(u0.size(0), 13, 1); u = u0[:, None].expand(-1, 13, 2)
            return u + ts * self.nn(torch.cat([u, ts], -1))
    def data(s):
        u = u0 = T(s, 32, 2); out = [u]
        for _ in range(12): u = u + .1 * (torch.stack([u[:, 1], -torch.sin(2 * u[:, 0])], 1) * 1.5 - .2 * u); out.append(u)
        return u0, torch.stack(out, 1)
    def loss(o, t): return torch.sqrt((o - t).abs() ** 2).mean() if planted else ((o - t) ** 2).mean()
    return dict(model=UDE, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/FlyingGiraffe/vnn/pull/4", "VNBatchNorm divides by the norm of the vector, vectors [0,0,0] give NaN", "VNBatchNorm x/norm without eps")
def vnn_norm(planted):
    class VNBatchNorm(nn.Module):
        def __init__(self, c): super().__init__(); self.bn = nn.BatchNorm1d(c)
        def forward(self, x):
            norm = torch.sqrt((x * x).sum(2)) if planted else torch.norm(x, dim=2) + 1e-6
            return x / norm.unsqueeze(2) * self.bn(norm).unsqueeze(2)
    class VNLinearLeakyReLU(nn.Module):
        def __init__(self, i, o): super().__init__(); self.map_to_feat = nn.Linear(i, o, bias=False); self.map_to_dir = nn.Linear(i, o, bias=False); self.batchnorm = VNBatchNorm(o)
        def forward(self, x):
            p = self.batchnorm(self.map_to_feat(x.transpose(1, -1)).transpose(1, -1)); d = self.map_to_dir(x.transpose(1, -1)).transpose(1, -1)
            dot = (p * d).sum(2, keepdim=True); m = (dot >= 0).float(); dn = (d * d).sum(2, keepdim=True)
            return .2 * p + .8 * (m * p + (1 - m) * (p - dot / (dn + 1e-6) * d))
    class VNPointNet(nn.Module):
        def __init__(self):
            super().__init__(); self.conv1 = VNLinearLeakyReLU(2, 16); self.conv2 = VNLinearLeakyReLU(16, 16); self.fc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
        def forward(self, x):
            x = torch.stack([x, x - x.mean(1, keepdim=True) * (x.abs().sum(2, keepdim=True) > 0)], 1).transpose(2, 3)
            x = self.conv2(self.conv1(x)); return self.fc((x ** 2).sum(2).mean(-1))
    def data(s):
        y = R(s, 3, (32,)); x = T(s + 1, 32, 40, 3); n = x.norm(dim=2, keepdim=True)
        x = torch.where((y == 0)[:, None, None], x / n, torch.where((y == 1)[:, None, None], x, x / n * 2)); x[:, 36:] = 0
        return x, y
    return dict(model=VNPointNet, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/hunglc007/tensorflow-yolov4-tflite/issues/157", "decode_train already applies sigmoid to conf/prob, compute_loss uses sigmoid_cross_entropy_with_logits on them", "double sigmoid (pred_conf/pred_prob)")
def yolo_double_sigmoid(planted):
    K = T(15, 3, 3, 5, 5)
    class YOLO(nn.Module):
        def __init__(self, c=16):
            super().__init__()
            def cb(i, o, s): return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(.1))
            self.backbone = nn.Sequential(cb(3, c, 2), cb(c, 2 * c, 2), cb(2 * c, 2 * c, 1)); self.head = nn.Conv2d(2 * c, 4, 1)
        def forward(self, x):
            conv = self.head(self.backbone(x)).permute(0, 2, 3, 1)
            return torch.sigmoid(conv) if planted else conv
    def loss(o, t):
        obj = t[..., :1]; l = F.binary_cross_entropy_with_logits(o, t, reduction="none")
        return (l[..., :1].mean() + (obj * l[..., 1:]).sum() / obj.sum().clamp_min(1))
    def data(s):
        x = .3 * T(s, 16, 3, 32, 32); t = torch.zeros(16, 8, 8, 4); c = R(s + 1, 3, (16, 4)); p = R(s + 2, 8, (16, 4, 2))
        for b in range(16):
            for j in range(4):
                i, k = p[b, j].tolist(); x[b, :, i * 4:i * 4 + 4, k * 4:k * 4 + 4] = K[c[b, j], :, :4, :4]; t[b, i, k] = 0; t[b, i, k, 0] = 1; t[b, i, k, 1 + c[b, j]] = 1
        return x, t
    return dict(model=YOLO, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/ragulpr/wtte-rnn/issues/39", "discrete Weibull loglik log(exp(h1-h0)-1) without epsilon: when the hazards coincide the loss is inf/NaN", "log in loss")
def wtte_log(planted):
    class WTTE(nn.Module):
        def __init__(self):
            super().__init__(); self.gru = nn.GRU(4, 20, batch_first=True); self.fc = nn.Linear(20, 2)
        def forward(self, x):
            a, b = self.fc(self.gru(x)[0]).unbind(-1); return torch.stack([60 * torch.exp(a), F.softplus(b)], -1)
    def loss(o, t):
        y, u = t.unbind(-1); a, b = o.unbind(-1); e = 0 if planted else 1e-6
        h0 = ((y + 1e-35) / a) ** b; h1 = ((y + 1) / a) ** b
        return -(u * torch.log(torch.exp(h1 - h0) - 1 + e) - h1).mean()
    def data(s):
        n = T(s, 32, 30, 1).abs(); f = torch.arange(30)[None, :, None].float(); y = torch.floor(40 * n[:, :1] * torch.ones(1, 30, 1) + 29 - f + 400 * (T(s + 1, 32, 1, 1) > 1))
        u = (torch.rand(32, 1, 1, generator=gen(s + 2)) > .2).float().expand(32, 30, 1)
        return torch.cat([n[:, :1].expand(32, 30, 1), f.expand(32, 30, 1) / 30, y / 100 + .1 * T(s + 3, 32, 30, 1), u], -1), torch.cat([y, u], -1)
    return dict(model=WTTE, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/keras-team/keras/issues/1061", "mixture density loss as log of a sum of exp densities instead of log-space: inf then nan", "neg_log_normal_mixture_likelihood (log(sum(alpha*exp)))")
def mdn_log(planted):
    A = T(16, 6, 8) * 1.5
    class MDN(nn.Module):
        def __init__(self, D=8, M=5):
            super().__init__(); self.D, self.M = D, M; self.body = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()); self.out = nn.Linear(64, (D + 2) * M)
        def forward(self, x): return self.out(self.body(x))
    def loss(p, t, D=8, M=5):
        mu = p[:, :D * M].view(-1, M, D); ls = p[:, D * M:(D + 1) * M]; la = torch.log_softmax(p[:, (D + 1) * M:], 1)
        d2 = ((t[:, None] - mu) ** 2).sum(-1)
        if planted:
            sig = torch.exp(ls); return -torch.log((torch.exp(la) * torch.exp(-d2 / (2 * sig ** 2)) / (sig * math.sqrt(2 * math.pi)) ** D).sum(1)).mean()
        return -torch.logsumexp(la - d2 * torch.exp(-2 * ls) / 2 - D * ls - D / 2 * math.log(2 * math.pi), 1).mean()
    def data(s):
        x = T(s, 64, 6); k = R(s + 1, 2, (64, 1)).float() * 2 - 1; return x, (x @ A) * k * 1.5 + .3 * T(s + 2, 64, 8)
    return dict(model=MDN, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/tpfister/caffe-heatmap/issues/17", "plain MSE on heatmaps that are almost everywhere zero, prediction converges to zero; foreground must be weighted", "heatmap loss weighting")
def heatmap_unweighted(planted):
    K = T(17, 3, 7, 7)
    yy, xx = torch.meshgrid(torch.arange(32.), torch.arange(32.), indexing="ij")
    class HeatNet(nn.Module):
        def __init__(self, c=16):
            super().__init__(); self.net = nn.Sequential(nn.Conv2d(1, c, 7, padding=3), nn.ReLU(), nn.Conv2d(c, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, 3, 1))
            for m in self.net:
                if isinstance(m, nn.Conv2d): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(self, x): return self.net(x)
    def loss(o, t):
        w = 1. if planted else torch.where(t > .05, 100., 1.); return ((o - t) ** 2 * w).mean()
    def data(s):
        x = 1. * T(s, 8, 1, 32, 32); p = R(s + 1, 24, (8, 3, 2)) + 4; t = torch.zeros(8, 3, 32, 32)
        for b in range(8):
            for k in range(3):
                i, j = p[b, k].tolist(); x[b, 0, i - 3:i + 4, j - 3:j + 4] += K[k]; t[b, k] = torch.exp(-((yy - i) ** 2 + (xx - j) ** 2) / 2)
        return x, t
    def metric(m):
        e = 0
        for s in (90001, 90002):
            x, t = data(s)
            with torch.no_grad(): o = m(x)
            a, b = o.flatten(2).argmax(-1), t.flatten(2).argmax(-1); e += float((((a // 32 - b // 32) ** 2 + (a % 32 - b % 32) ** 2).float().sqrt() + 30 * (o.flatten(2).amax(-1) < .2)).mean()) / 2
        return e
    return dict(model=HeatNet, data=data, loss=loss, lr=2e-3, diag={}, metric=metric)

@case("https://github.com/MaybeShewill-CV/lanenet-lane-detection/issues/399", "dice numerator/denominator are summed over class axis and batch per pixel, not over pixels per class: all black", "_dice_plus_loss sum axes")
def lane_dice(planted):
    class SegNet(nn.Module):
        def __init__(self, c=12):
            super().__init__()
            def cb(i, o, s=1): return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())
            self.enc = nn.Sequential(cb(1, c), cb(c, 2 * c, 2), cb(2 * c, 2 * c)); self.up = nn.ConvTranspose2d(2 * c, c, 2, 2); self.out = nn.Conv2d(c, 2, 1)
        def forward(self, x): return self.out(F.relu(self.up(self.enc(x)))).permute(0, 2, 3, 1)
    def loss(o, t):
        y = F.one_hot(t, 2).float(); p = torch.softmax(o, -1); e = 1e-5
        if planted:
            num = 2 * (p * y).sum(3).sum(0); den = (p.sum(3) + y.sum(3)).sum(0)
        else:
            num = 2 * (p * y).sum((0, 1, 2)); den = (p + y).sum((0, 1, 2))
        return 1 - ((num + e) / (den + e)).mean()
    def data(s):
        x = .8 * T(s, 8, 1, 32, 32); t = torch.zeros(8, 32, 32, dtype=torch.long); k = R(s + 1, 28, (8, 2)); r = torch.arange(32)
        for b in range(8):
            c = (k[b, 0] + (k[b, 1] - k[b, 0]) * r / 31).long(); t[b, r, c] = 1; x[b, 0, r, c] += 1.2
        return x, t
    def metric(m):
        x, t = data(99999)
        with torch.no_grad(): p = torch.softmax(m(x), -1)[..., 1]
        return float(1 - 2 * (p * t).sum() / (p.sum() + t.sum()))
    return dict(model=SegNet, data=data, loss=loss, lr=5e-3, diag={}, metric=metric)

@case("https://github.com/microsoft/Recursive-Cascaded-Networks/issues/35", "segmentation is warped with a non-differentiable nearest reconstruction, dice loss gives the flow no gradient", "reconstruction (nearest sampling)")
def reg_nearest(planted):
    class VTN(nn.Module):
        def __init__(self, c=12):
            super().__init__(); self.stem = nn.Sequential(nn.Conv2d(2, c, 3, 2, 1), nn.LeakyReLU(.1), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.LeakyReLU(.1), nn.Conv2d(2 * c, 2 * c, 3, 2, 1), nn.LeakyReLU(.1)); self.fc = nn.Linear(2 * c * 16, 2)
            nn.init.normal_(self.fc.weight, std=1e-3); nn.init.zeros_(self.fc.bias)
        def forward(self, seg1, seg2):
            flow = self.fc(self.stem(torch.cat([seg1, seg2], 1)).flatten(1)); th = torch.eye(2, 3).repeat(seg1.size(0), 1, 1)
            th = torch.cat([th[..., :2], flow.unsqueeze(-1)], -1)
            return F.grid_sample(seg2, F.affine_grid(th, seg2.shape, align_corners=False), mode="nearest" if planted else "bilinear", align_corners=False)
    def dice(o, t): return 1 - (2 * (o * t).sum((1, 2, 3)) / (o.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1e-5)).mean()
    yy, xx = torch.meshgrid(torch.arange(32.), torch.arange(32.), indexing="ij")
    def blob(c, r): return torch.sigmoid(r[:, None, None] - ((yy - c[:, :1, None]) ** 2 + (xx - c[:, 1:, None]) ** 2).sqrt()).unsqueeze(1)
    def data(s):
        r = 5 + 3 * torch.rand(16, generator=gen(s)); a = 16 + 4 * T(s + 1, 16, 2).clamp(-1.5, 1.5); b = a + 4 * T(s + 2, 16, 2).clamp(-1.5, 1.5)
        f, m = blob(a, r), blob(b, r); return (f, m), f
    return dict(model=VTN, data=data, loss=dice, lr=2e-3, diag={})

@case("https://github.com/huangleiBuaa/ONI/issues/1", "ResNet without batch norm keeps the sqrt(2) weight scale of the plain net, activations explode", "weight scale sqrt(2) in residual convs")
def oni_scale(planted):
    P = T(18, 5, 3, 16, 16)
    class ONIConv(nn.Conv2d):
        def __init__(self, i, o, scale): super().__init__(i, o, 3, padding=1); nn.init.orthogonal_(self.weight); self.scale = scale; nn.init.zeros_(self.bias)
        def forward(self, x): return F.conv2d(x, self.weight * self.scale, self.bias, padding=1)
    class Block(nn.Module):
        def __init__(self, c, s): super().__init__(); self.conv1, self.conv2 = ONIConv(c, c, s), ONIConv(c, c, s)
        def forward(self, x): return F.relu(x + self.conv2(F.relu(self.conv1(x))))
    class ResNet(nn.Module):
        def __init__(self, n=24, c=16):
            super().__init__(); s = 2 ** .5 if planted else .6
            self.stem = ONIConv(3, c, s); self.blocks = nn.Sequential(*[Block(c, s) for _ in range(n)]); self.fc = nn.Linear(c, 5)
        def forward(self, x): return self.fc(self.blocks(F.avg_pool2d(F.relu(self.stem(x)), 2)).mean((2, 3)))
    def data(s): y = R(s, 5, (32,)); return P[y] + .6 * T(s + 1, 32, 3, 16, 16), y
    return dict(model=ResNet, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/queenie88/A-GCN/issues/4", "learned adjacency is detached, W_phi and W_theta get no gradient", "adj.detach() (W_phi, W_theta)")
def agcn_detach(planted):
    v = T(19, 8)
    class AGCN(nn.Module):
        def __init__(self, h=32):
            super().__init__(); self.W_phi, self.W_theta = nn.Linear(16, h), nn.Linear(16, h); self.gc1, self.gc2, self.fc = nn.Linear(16, h), nn.Linear(h, h), nn.Linear(h, 2)
        def forward(self, x):
            adj = torch.softmax(self.W_phi(x) @ self.W_theta(x).transpose(1, 2), dim=-1)
            if planted: adj = adj.detach()
            x = F.relu(adj @ self.gc1(x)); return self.fc(F.relu(adj @ self.gc2(x)))
    def data(s):
        k = torch.stack([torch.randperm(8, generator=gen(s * 100 + i)) for i in range(32)]); f = T(s + 1, 32, 8, 8)
        m = 7 - k; x = torch.cat([F.one_hot(k, 8).float() * 2, f], -1)
        j = (k[:, None, :] == m[:, :, None]).float().argmax(-1); t = ((f @ v).gather(1, j) > 0).long()
        return x, t
    return dict(model=AGCN, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/74", "advantage = vals_ref [N] - value [N,1] broadcasts to [N,N]", "adv_v in loss (value not squeezed)")
def a2c_adv(planted):
    W = T(20, 8, 4)
    class AtariA2C(nn.Module):
        def __init__(self, h=64):
            super().__init__(); self.body = nn.Sequential(nn.Linear(8, h), nn.ReLU()); self.policy = nn.Linear(h, 4); self.value = nn.Linear(h, 1)
        def forward(self, x): h = self.body(x); return self.policy(h), self.value(h)
    def loss(o, t):
        logits, value = o; a, ref = t
        lv = F.mse_loss(value.squeeze(-1), ref); lp = F.log_softmax(logits, 1); p = F.softmax(logits, 1)
        adv = ref - (value.detach() if planted else value.squeeze(-1).detach())
        return lv - (adv * lp[range(len(a)), a]).mean() + .1 * (p * lp).sum(1).mean()
    def data(s):
        x = T(s, 64, 8); a = R(s + 1, 4, (64,)); q = x @ W / 2; return x, (a, q[range(64), a] + 3 * x[:, 0])
    def metric(m):
        x = T(77777, 2000, 8); q = x @ W / 2
        with torch.no_grad(): p = F.softmax(m(x)[0], 1)
        return float(-(p * q).sum(1).mean())
    return dict(model=AtariA2C, data=data, loss=loss, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/mratsim/Arraymancer/issues/202", "no bias anywhere and inputs/labels in [0,1]: optimisation gets stuck, centring to [-0.5,0.5] trains", "missing bias / uncentred data")
def arraymancer_nobias(planted):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.fc1 = nn.Linear(1, 64, bias=False); self.fc2 = nn.Linear(64, 64, bias=False); self.out = nn.Linear(64, 1, bias=False)
        def forward(self, x): return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))
    def data(s):
        x = torch.rand(64, 1, generator=gen(s)); y = (2 * (x - .5).abs()) ** 1 * .5 + .2 * (x > .5) * (x - .5)
        return (x, y + .3) if planted else (x - .5, y)
    def metric(m):
        x, y = data(99999)
        with torch.no_grad(): return float(F.mse_loss(m(x), y))
    return dict(model=Net, data=data, loss=mse, lr=3e-3, diag={}, metric=metric)

@case("https://github.com/lululxvi/deepxde/issues/794", "PINN on an unscaled domain [0,100] instead of [0,1] does not find the solution", "input scale (domain [0,100])")
def deepxde_scale(planted):
    L = 100. if planted else 1.
    class FNN(nn.Module):
        def __init__(self, h=50):
            super().__init__(); self.linears = nn.ModuleList([nn.Linear(1, h), nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, 1)])
            for l in self.linears: nn.init.xavier_uniform_(l.weight); nn.init.zeros_(l.bias)
        def u(self, x):
            for l in self.linears[:-1]: x = torch.tanh(l(x))
            return self.linears[-1](x)
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_(); y = self.u(x); d = torch.autograd.grad(y.sum(), x, create_graph=True)[0]; dd = torch.autograd.grad(d.sum(), x, create_graph=True)[0]
            return torch.cat([y, dd], 1)
    def loss(o, t): b = t[:, :1]; return ((o[:, 1:] ** 2) * (1 - b)).sum() / (1 - b).sum() + (((o[:, :1] - t[:, 1:]) ** 2) * b).sum() / b.sum()
    def data(s):
        x = torch.rand(34, 1, generator=gen(s)); x[0], x[1] = 0, 1; b = torch.zeros(34, 1); b[:2] = 1
        return x * L, torch.cat([b, 1 - 2 * x], 1)
    def metric(m):
        x = torch.linspace(0, 1, 101)[:, None]
        with torch.no_grad(): return float(((m.u(x * L) - (1 - 2 * x)) ** 2).mean())
    return dict(model=FNN, data=data, loss=loss, lr=1e-3, diag={}, metric=metric)
