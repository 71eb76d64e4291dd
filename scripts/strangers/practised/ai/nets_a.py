from base import *

@case("https://github.com/wilkinghoff/ssl4asd/issues/1", "second batch norm of the residual block is called on x instead of xr, the first conv is thrown away", "blocks.*.bn2 input / blocks.*.conv1 unused")
def asd_resblock(planted):
    class Block(nn.Module):
        def __init__(s, c):
            super().__init__(); s.bn1 = nn.BatchNorm2d(c); s.conv1 = nn.Conv2d(c, c, 3, padding=1); s.bn2 = nn.BatchNorm2d(c); s.conv2 = nn.Conv2d(c, c, 3, padding=1)
        def forward(s, x):
            xr = F.leaky_relu(s.bn1(x), .1); xr = s.conv1(xr); xr = s.bn2(x if planted else xr); xr = F.leaky_relu(xr, .1)
            return x + s.conv2(xr)
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.stem = nn.Conv2d(1, 16, 5, stride=2, padding=2); s.blocks = nn.ModuleList([Block(16), Block(16)]); s.pool = nn.MaxPool2d(2); s.emb = nn.Linear(16 * 16, 32); s.out = nn.Linear(32, 6)
        def forward(s, x):
            x = F.leaky_relu(s.stem(x), .1)
            for b in s.blocks: x = s.pool(b(x))
            return s.out(F.relu(s.emb(x.flatten(1))))
    P = T(3, 6, 1, 32, 32)
    def data(seed):
        t = R(seed, 6, (32,)); return .5 * P[t] + T(seed + 1, 32, 1, 32, 32), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/jindongwang/Pytorch-CapsuleNet/issues/21", "squash sums squares over the trailing singleton dim, so each element is squashed on its own", "squash(), sum over dim -1 of (B,1,10,16,1)")
def caps_squash(planted):
    def squash(x, last):
        sq = (x ** 2).sum(last, keepdim=True); return sq * x / ((1. + sq) * torch.sqrt(sq + 1e-8))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Conv2d(1, 32, 5); s.prim = nn.Conv2d(32, 32, 5, stride=2); s.W = nn.Parameter(.1 * torch.randn(1, 64, 5, 8, 8))
        def forward(s, x):
            u = s.prim(F.relu(s.conv(x))).view(x.size(0), 8, -1).transpose(1, 2)
            u = squash(u, -1); u_hat = torch.matmul(s.W, u[:, :, None, :, None]); b = torch.zeros(1, 64, 5, 1)
            for it in range(3):
                c = F.softmax(b, 2).unsqueeze(4); s_j = (c * u_hat).sum(1, keepdim=True); v = squash(s_j, -1 if planted else -2)
                if it < 2: b = b + torch.matmul(u_hat.transpose(3, 4), v).squeeze(4).mean(0, keepdim=True)
            return torch.sqrt((v ** 2).sum(3).squeeze(-1).squeeze(1) + 1e-8)
    def margin(o, t):
        y = F.one_hot(t, 5).float(); return (y * F.relu(.9 - o) ** 2 + .5 * (1 - y) * F.relu(o - .1) ** 2).sum(1).mean()
    P = T(4, 5, 1, 16, 16)
    def data(seed):
        t = R(seed, 5, (32,)); return P[t] + .7 * T(seed + 1, 32, 1, 16, 16), t
    return dict(model=Net, data=data, loss=margin, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/112", "softmax over the single output unit with categorical crossentropy: probability always 1", "final Softmax over 1 unit")
def xor_softmax(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.dense1 = nn.Linear(2, 8); s.dense2 = nn.Linear(8, 1); s.act = nn.Softmax(dim=-1) if planted else nn.Sigmoid()
        def forward(s, x): return s.act(s.dense2(torch.sigmoid(s.dense1(x))))
    def loss(o, t):
        if planted: return -(t * torch.log(o.clamp(1e-7, 1))).sum(-1).mean()
        return F.binary_cross_entropy(o, t)
    def data(seed):
        b = R(seed, 2, (64, 2)); return b.float() + .1 * T(seed + 1, 64, 2), (b[:, :1] ^ b[:, 1:]).float()
    return dict(model=Net, data=data, loss=loss, lr=5e-2, diag={})

@case("https://github.com/Verg-Avesta/CounTR/issues/40", "density map regression without the factor 60: targets and loss so small that the net learns the all-zero map", "target density map scale")
def countr_density(planted):
    factor = 1. if planted else 60.
    g = torch.arange(-8, 9).float(); k = torch.exp(-(g[:, None] ** 2 + g[None] ** 2) / (2 * 16.)); k = (k / k.sum())[None, None]
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.density_factor = factor
            s.enc = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU()); s.dec = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
        def forward(s, x): return s.dec(s.enc(x))
    def make(seed):
        dots = (torch.rand(16, 1, 32, 32, generator=gen(seed)) < .0012).float(); den = F.conv2d(dots, k, padding=8)
        img = F.conv2d(dots, k / k.max(), padding=8) + .1 * T(seed + 1, 16, 1, 32, 32); return img, den
    def data(seed):
        img, den = make(seed); return img, den * factor
    def metric(m):
        with torch.no_grad(): return sum(float((m(make(s)[0]).sum((1, 2, 3)) / m.density_factor - make(s)[1].sum((1, 2, 3))).abs().mean()) for s in range(9000, 9005)) / 5
    return dict(model=Net, data=data, loss=mse, lr=1e-3, diag={}, metric=metric)

@case("https://github.com/facebookresearch/LASER/issues/138", "combine_bidir concatenates directions on dim 0 and views: hidden states of different sentences are mixed", "combine_bidir (cat dim=0 + view) before the classifier")
def laser_bidir(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embed_tokens = nn.Embedding(20, 32); s.lstm = nn.LSTM(32, 32, num_layers=2, bidirectional=True); s.num_layers = 2; s.output_units = 64; s.fc = nn.Linear(64, 4)
        def forward(s, tok):
            bsz = tok.size(0); x = s.embed_tokens(tok).transpose(0, 1); _, (h, c) = s.lstm(x)
            def combine_bidir(outs):
                return torch.cat([torch.cat([outs[2 * i], outs[2 * i + 1]], dim=0 if planted else -1).view(1, bsz, s.output_units) for i in range(s.num_layers)], dim=0)
            return s.fc(combine_bidir(h)[-1])
    def data(seed):
        x = R(seed, 20, (32, 8)); return x, (x[:, 0] // 5)
    return dict(model=Net, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/graykode/nlp-tutorial/issues/38", "final state (2, B, H) is viewed as (B, 2H, 1) instead of permuted: queries of other samples", "hidden = final_state.view(-1, n_hidden*2, 1)")
def bilstm_attention(planted):
    H = 16
    class BiLSTM_Attention(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(24, 24); s.lstm = nn.LSTM(24, H, bidirectional=True); s.out = nn.Linear(H * 2, 3)
        def attention_net(s, lstm_output, final_state):
            hidden = final_state.view(-1, H * 2, 1) if planted else final_state.permute(1, 0, 2).reshape(-1, H * 2, 1)
            w = F.softmax(torch.bmm(lstm_output, hidden).squeeze(2), 1)
            return torch.bmm(lstm_output.transpose(1, 2), w.unsqueeze(2)).squeeze(2)
        def forward(s, X):
            output, (h, c) = s.lstm(s.embedding(X).permute(1, 0, 2)); return s.out(s.attention_net(output.permute(1, 0, 2), h))
    def data(seed):
        x = R(seed, 24, (32, 7)); return x, ((x // 8) == 1).sum(1).clamp(1, 3) - 1
    return dict(model=BiLSTM_Attention, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/Bowen1911/ML_practice/issues/2", "ReLU on the logits before the softmax of the policy net", "F.relu(fc2) before softmax")
def policy_relu(planted):
    class PolicyNet(nn.Module):
        def __init__(s): super().__init__(); s.fc1 = nn.Linear(4, 32); s.fc2 = nn.Linear(32, 2)
        def forward(s, x):
            x = F.relu(s.fc1(x)); x = F.relu(s.fc2(x)) if planted else s.fc2(x); return F.softmax(x, dim=1)
    w = T(9, 4)
    def data(seed):
        x = T(seed, 64, 4) * torch.tensor([.3, .3, .1, .3]); a = R(seed + 1, 2, (64,)); good = ((x @ w) > 0).long()
        G = torch.where(a == good, 1., -1.) + .1 * T(seed + 2, 64); return x, torch.stack([a.float(), G], 1)
    def loss(p, t):
        logp = torch.log(p.gather(1, t[:, :1].long()) + 1e-8).squeeze(1).clamp(min=-4); return (-logp * t[:, 1]).mean()
    return dict(model=PolicyNet, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/automan000/Convolutional_LSTM_PyTorch/issues/15", "the same frame is fed at every time step of the ConvLSTM instead of input[step]", "x = input in the step loop")
def convlstm_static(planted):
    class Cell(nn.Module):
        def __init__(s, i, h): super().__init__(); s.h = h; s.conv = nn.Conv2d(i + h, 4 * h, 3, padding=1)
        def forward(s, x, h, c):
            i, f, g, o = s.conv(torch.cat([x, h], 1)).chunk(4, 1); c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g); return torch.sigmoid(o) * torch.tanh(c), c
    class ConvLSTM(nn.Module):
        def __init__(s): super().__init__(); s.cell = Cell(1, 16); s.out = nn.Conv2d(16, 1, 3, padding=1)
        def forward(s, input):
            B, L, _, a, b = input.shape; h = input.new_zeros(B, 16, a, b); c = h
            for step in range(L):
                x = input[:, 0] if planted else input[:, step]; h, c = s.cell(x, h, c)
            return s.out(h)
    def data(seed):
        p = R(seed, 12, (16, 2)); v = R(seed + 1, 3, (16, 2)) - 1; g = torch.arange(12)
        fr = [torch.exp(-(((g[None, :, None] - (p[:, 0] + k * v[:, 0])[:, None, None]) % 12 - 6) ** 2 + ((g[None, None] - (p[:, 1] + k * v[:, 1])[:, None, None]) % 12 - 6) ** 2).float() / 3) for k in range(5)]
        x = torch.stack(fr, 1)[:, :, None]; return x[:, :4], x[:, 4]
    return dict(model=ConvLSTM, data=data, loss=mse, lr=5e-3, diag={})
