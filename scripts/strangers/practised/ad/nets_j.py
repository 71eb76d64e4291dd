from base import *

@case("https://github.com/wangle53/CSA-CDGAN/issues/5", "generator's adversarial loss is computed on a detached prediction", "pred_fake.detach() in the generator loss")
def csa_cdgan_detach(planted):
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.Sequential(nn.Conv2d(6, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(.2))
            self.dec = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 3, 1, 1), nn.Sigmoid())
        def forward(self, x): return self.dec(self.enc(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.netg = Generator()
            self.netd = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(.2), nn.Flatten(), nn.Linear(32 * 16, 1))
            for p in self.netd.parameters(): p.requires_grad_(False)
        def forward(self, x1, x2):
            fake = self.netg(torch.cat([x1, x2], 1))
            pred_fake = self.netd(fake)
            if planted: pred_fake = pred_fake.detach()
            return fake, pred_fake
    def data(seed):
        a = T(seed, 16, 3, 16, 16); m = F.interpolate((T(seed + 7, 16, 1, 4, 4) > .5).float(), scale_factor=4)
        return (a, a + m * 2), m
    def loss(out, gt):
        fake, pred = out
        return F.binary_cross_entropy_with_logits(pred, torch.ones_like(pred)) + .05 * F.binary_cross_entropy(fake, gt)
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/kingfengji/DeepMIML/issues/3", "softmax over the labels of a multi-label network trained with binary cross-entropy", "the softmax over the label axis at the output")
def deepmiml_softmax(planted):
    L, K = 10, 5
    class DeepMIML(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
            self.sub_concept = nn.Conv2d(32, L * K, 1)
        def forward(self, x):
            h = self.sub_concept(self.conv(x))
            h = h.view(x.size(0), L, K, -1).max(2)[0].max(2)[0]
            return torch.softmax(h, 1) if planted else torch.sigmoid(h)
    pat = T(5, L, 3, 4, 4) * 1.5
    def data(seed):
        t = (torch.rand(32, L, generator=gen(seed)) < .4).float(); x = T(seed + 3, 32, 3, 16, 16) * .3
        for l in range(L):
            i, j = (l % 4) * 4, (l // 4) * 4
            x[:, :, i:i + 4, j:j + 4] += t[:, l].view(-1, 1, 1, 1) * pat[l]
        return x, t
    return dict(model=DeepMIML, data=data, loss=lambda o, t: F.binary_cross_entropy(o, t), lr=3e-3, diag={})

@case("https://github.com/YapengTian/AVE-ECCV18/issues/15", "MultiLabelSoftMarginLoss (sigmoid inside) applied on a softmax output", "self.softmax at the end of forward")
def ave_softmargin(planted):
    class AVE(nn.Module):
        def __init__(self, C=12):
            super().__init__()
            self.lstm_a = nn.LSTM(16, 32, batch_first=True, bidirectional=True); self.lstm_v = nn.LSTM(24, 32, batch_first=True, bidirectional=True)
            self.affine = nn.Linear(128, 64); self.fc = nn.Linear(64, C); self.softmax = nn.Softmax(dim=-1)
        def forward(self, audio, video):
            a, _ = self.lstm_a(audio); v, _ = self.lstm_v(video)
            out = self.fc(F.relu(self.affine(torch.cat([a, v], -1))))
            return self.softmax(out) if planted else out
    ca, cv = T(1, 12, 16), T(2, 12, 24)
    def data(seed):
        y = R(seed, 12, (32, 1)).expand(32, 10); on = torch.rand(32, 10, generator=gen(seed + 1)) < .7
        y = torch.where(on, y, torch.zeros_like(y))
        return (ca[y] + T(seed + 2, 32, 10, 16) * .5, cv[y] + T(seed + 3, 32, 10, 24) * .5), F.one_hot(y, 12).float()
    return dict(model=AVE, data=data, loss=lambda o, t: F.multilabel_soft_margin_loss(o.flatten(0, 1), t.flatten(0, 1)), lr=3e-3, diag={})

@case("https://github.com/HaojiHu/Sets2Sets/issues/3", "set prediction scores normalised with softmax instead of sigmoid (multi-label)", "F.softmax on the decoder scores")
def sets2sets_softmax(planted):
    V = 20
    class Sets2Sets(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Linear(V, 32, bias=False); self.gru = nn.GRU(32, 64, batch_first=True); self.out = nn.Linear(64, V)
        def forward(self, sets):
            h, _ = self.gru(self.embedding(sets))
            s = self.out(h[:, -1])
            return F.softmax(s, dim=1) if planted else torch.sigmoid(s)
    perm = torch.randperm(V, generator=gen(3))
    def data(seed):
        s = (torch.rand(32, 4, V, generator=gen(seed)) < .25).float()
        return s, s[:, -1][:, perm]
    def set_loss(o, t):
        o = o.clamp(1e-7, 1 - 1e-7)
        return -(t * o.log() * 2 + (1 - t) * (1 - o).log()).mean()
    return dict(model=Sets2Sets, data=data, loss=set_loss, lr=5e-3, diag={})

@case("https://github.com/xinzzzhou/ScalableTransformer4HighDimensionMTSF/issues/4", "reshape used to swap two axes of the window (should be swapaxes)", "seq_x.reshape in the data set")
def mtsf_reshape(planted):
    Lx, K, D, H = 24, 5, 8, 6
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(Lx * K, 64); self.enc = nn.TransformerEncoderLayer(64, 4, 128, dropout=0., batch_first=True); self.head = nn.Linear(64, H)
        def forward(self, x):
            x = x.permute(0, 2, 3, 1).flatten(2)
            return self.head(self.enc(self.proj(x))).transpose(1, 2)
    def data(seed):
        t = torch.arange(Lx + H).float(); ph = torch.rand(16, D, 1, generator=gen(seed)) * 6.28; fr = .2 + .4 * torch.rand(16, D, 1, generator=gen(seed + 1))
        lags = torch.arange(K).view(1, 1, K, 1) * .6
        s = torch.sin(fr.unsqueeze(2) * t + ph.unsqueeze(2) + lags)
        s = s.permute(0, 3, 2, 1).contiguous()
        x, y = s[:, :Lx], s[:, Lx:, 0]
        x = x.reshape(16, Lx, D, K) if planted else x.swapaxes(2, 3)
        return x, y
    return dict(model=Net, data=data, loss=mse, lr=2e-3, diag={})


@case("https://github.com/LFhase/Learning_CS224w/issues/1", "GraphSAGE homework layer never propagates: neighbour term is a transform of the node itself", "CustomSAGEConv.forward: neig_x = self.agg_lin(x) without propagate")
def cs224w_sage(planted):
    class SAGEConv(nn.Module):
        def __init__(self, i, o):
            super().__init__(); self.agg_lin = nn.Linear(i, i); self.lin = nn.Linear(2 * i, o)
        def forward(self, x, adj):
            neig = F.relu(self.agg_lin(x))
            if not planted: neig = adj @ neig / adj.sum(-1, keepdim=True).clamp(min=1)
            return F.normalize(F.relu(self.lin(torch.cat([x, neig], -1))), dim=-1)
    class GNN(nn.Module):
        def __init__(self):
            super().__init__(); self.convs = nn.ModuleList([SAGEConv(8, 64), SAGEConv(64, 64)]); self.post_mp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        def forward(self, x, adj):
            for c in self.convs: x = c(x, adj)
            return self.post_mp(x)
    w = T(9, 8, 4)
    def data(seed):
        adj = (torch.rand(8, 24, 24, generator=gen(seed)) < .12).float(); adj = ((adj + adj.transpose(1, 2)) > 0).float()
        adj = adj * (1 - torch.eye(24)); x = T(seed + 1, 8, 24, 8)
        return (x, adj), ((adj @ x) / adj.sum(-1, keepdim=True).clamp(min=1) @ w).argmax(-1)
    return dict(model=GNN, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/makeyourownneuralnetwork/makeyourownneuralnetwork/issues/60", "book's first edition draws the weights with std of the outgoing size (hnodes^-0.5, onodes^-0.5)", "initialisation of wih and who")
def myonn_init(planted):
    I, H, O = 784, 100, 10
    class neuralNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.wih = nn.Parameter(torch.randn(H, I) * (H if planted else I) ** -.5); self.who = nn.Parameter(torch.randn(O, H) * (O if planted else H) ** -.5)
        def forward(self, x): return torch.sigmoid(torch.sigmoid(x @ self.wih.t()) @ self.who.t())
    proto = (torch.rand(10, I, generator=gen(4)) < .25).float()
    def data(seed):
        y = R(seed, 10, (32,)); x = (proto[y] * torch.rand(32, I, generator=gen(seed + 1)) * .99 + .01)
        return x, F.one_hot(y, 10) * .98 + .01
    return dict(model=neuralNetwork, data=data, loss=mse, lr=3e-3, diag={})
