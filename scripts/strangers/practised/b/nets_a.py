from base import *
def up(p, hw): return F.interpolate(p, size=(hw, hw), mode="bilinear")
def imgs(s, n=32, c=3, hw=16, k=8, noise=.7):
    y = R(s, k, (n,)); return up(T(7, k, c, 4, 4), hw)[y] + T(s + 500000, n, c, hw, hw) * noise, y

@case("https://github.com/xmu-xiaoma666/External-Attention-pytorch/issues/18", "SKAttention softmax over the batch dimension (dim=1) instead of over the branches (dim=0)", "SKAttention.softmax")
def sk_attention(planted):
    class SKAttention(nn.Module):
        def __init__(self, channel=32, kernels=(1, 3, 5), reduction=4):
            super().__init__(); self.d = max(8, channel // reduction)
            self.convs = nn.ModuleList([nn.Sequential(nn.Conv2d(channel, channel, k, padding=k // 2), nn.BatchNorm2d(channel), nn.ReLU()) for k in kernels])
            self.fc = nn.Linear(channel, self.d); self.fcs = nn.ModuleList([nn.Linear(self.d, channel) for _ in kernels])
            self.softmax = nn.Softmax(dim=1 if planted else 0)
        def forward(self, x):
            bs, c, _, _ = x.size(); feats = torch.stack([conv(x) for conv in self.convs], 0)
            Z = self.fc(feats.sum(0).mean(-1).mean(-1))
            w = torch.stack([fc(Z).view(bs, c, 1, 1) for fc in self.fcs], 0)
            return (self.softmax(w) * feats).sum(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()); self.sk = SKAttention(); self.fc = nn.Linear(32, 8)
        def forward(self, x): return self.fc(self.sk(self.stem(x)).mean((2, 3)))
    return dict(model=Net, data=lambda s: imgs(s), loss=ce, lr=1e-3, diag={})

@case("https://github.com/znxlwm/UGATIT-pytorch/issues/32", "ResnetBlock returns out without adding the skip", "ResnetBlock.forward")
def ugatit_resblock(planted):
    class ResnetBlock(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.conv_block = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3, bias=False), nn.InstanceNorm2d(dim), nn.ReLU(True), nn.ReflectionPad2d(1), nn.Conv2d(dim, dim, 3, bias=False), nn.InstanceNorm2d(dim))
        def forward(self, x):
            out = self.conv_block(x)
            return out if planted else out + x
    class Generator(nn.Module):
        def __init__(self, ngf=16):
            super().__init__()
            self.down = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, ngf, 3, bias=False), nn.InstanceNorm2d(ngf), nn.ReLU(True))
            self.blocks = nn.Sequential(*[ResnetBlock(ngf) for _ in range(4)])
            self.up = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(ngf, 3, 3, bias=False), nn.Tanh())
        def forward(self, x): return self.up(self.blocks(self.down(x)))
    def data(s):
        x = up(T(s, 16, 3, 6, 6), 16).clamp(-1, 1); return x, torch.tanh(torch.einsum("bchw,dc->bdhw", x, T(3, 3, 3)))
    return dict(model=Generator, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=2e-3, diag={})

@case("https://github.com/speechbrain/speechbrain/issues/1124", "ConvBlock with residual returns drop(x), discarding the convolution branch", "ConvBlock.forward: out = self.drop(x)")
def speechbrain_convblock(planted):
    class ConvBlock(nn.Module):
        def __init__(self, ch_in, ch, layers=2):
            super().__init__()
            self.convs = nn.Sequential(*[m for i in range(layers) for m in (nn.Conv1d(ch_in if i == 0 else ch, ch, 3, padding=1), nn.BatchNorm1d(ch), nn.LeakyReLU())])
            self.reduce_conv = nn.Sequential(nn.Conv1d(ch_in, ch, 1), nn.BatchNorm1d(ch)); self.drop = nn.Dropout(.1); self.reduce = nn.AvgPool1d(2)
        def forward(self, x):
            out = self.convs(x)
            if self.reduce_conv:
                out = out + self.reduce_conv(x)
                if planted: out = self.drop(x)
                else: out = self.drop(out)
            return self.reduce(out)
    class FrontEnd(nn.Module):
        def __init__(self): super().__init__(); self.block1 = ConvBlock(24, 24); self.block2 = ConvBlock(24, 24); self.out = nn.Linear(24, 6)
        def forward(self, feats): return self.out(self.block2(self.block1(feats)).mean(-1))
    def data(s):
        y = R(s, 6, (32,)); t = torch.arange(32.); fr = torch.tensor([.2, .45, .7, .95, 1.2, 1.45])[y]
        return torch.sin(fr[:, None, None] * t + 6.28 * torch.rand(32, 24, 1, generator=gen(s + 1))) + .3 * T(s + 2, 32, 24, 32), y
    return dict(model=FrontEnd, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/shaohua0116/Multiview2Novelview/issues/11", "second conv of the residual block reads the block's input instead of the first conv's output", "residual_block res2")
def novelview_resblock(planted):
    class ResidualBlock(nn.Module):
        def __init__(self, ch):
            super().__init__(); self.res1 = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.LeakyReLU(.2)); self.res2 = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch))
        def forward(self, input):
            _ = self.res1(input)
            _ = self.res2(input if planted else _)
            return F.leaky_relu(_ + input, .2)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.stem = nn.Conv2d(3, 32, 3, 2, 1); self.blocks = nn.Sequential(*[ResidualBlock(32) for _ in range(4)]); self.fc = nn.Linear(32, 8)
        def forward(self, x): return self.fc(self.blocks(self.stem(x)).mean((2, 3)))
    return dict(model=Net, data=lambda s: imgs(s), loss=ce, lr=1e-3, diag={})

@case("https://github.com/Rocketknight1/minimal_lczero/issues/1", "no nonlinearity between fc1 and fc_out of the value head", "ValueHead.fc1 / fc_out")
def lczero_value_head(planted):
    class ValueHead(nn.Module):
        def __init__(self, ch, nf=8, fc=64):
            super().__init__(); self.conv = nn.Conv2d(ch, nf, 1); self.fc1 = nn.Linear(nf * 64, fc); self.fc_out = nn.Linear(fc, 3)
        def forward(self, x):
            x = F.relu(self.conv(x)).flatten(1); x = self.fc1(x)
            return self.fc_out(x if planted else F.relu(x))
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.body = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()); self.value = ValueHead(32)
        def forward(self, x): return self.value(self.body(x))
    def data(s):
        x = T(s, 64, 4, 8, 8); m = x[:, 0].mean((1, 2)) * 8; n = x[:, 1].mean((1, 2)) * 8; v = m * 1.2 + n; return x, (v > -.6).long() + (v > .6).long()
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://github.com/Nota-NetsPresso/netspresso-trainer/issues/320", "FC head: no activation after the intermediate nn.Linear layers", "FC.intermediate layers")
def netspresso_fc(planted):
    class FC(nn.Module):
        def __init__(self, feature_dim, num_classes, intermediate_channels=64, num_layers=3):
            super().__init__(); prev, layers = feature_dim, []
            for _ in range(num_layers - 1):
                layers.append(nn.Linear(prev, intermediate_channels)); prev = intermediate_channels
                if not planted: layers.append(nn.ReLU())
            self.layers = nn.Sequential(*layers); self.classifier = nn.Linear(prev, num_classes)
        def forward(self, x): return self.classifier(self.layers(x))
    class Model(nn.Module):
        def __init__(self): super().__init__(); self.head = FC(4, 2)
        def forward(self, x): return self.head(x)
    def data(s):
        x = T(s, 64, 4); return x, (x[:, 0] * x[:, 1] > 0).long()
    return dict(model=Model, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/stanfordnlp/stanza/pull/1610", "the last two output layers have no nonlinearity between them", "output_layers[-2:]")
def stanza_output(planted):
    class ConstituencyHead(nn.Module):
        def __init__(self, vocab=30, hidden=48):
            super().__init__(); self.embedding = nn.Embedding(vocab, 32); self.word_lstm = nn.LSTM(32, hidden, batch_first=True, bidirectional=True)
            self.output_layers = nn.ModuleList([nn.Linear(2 * hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 6)]); self.nonlinearity = nn.ReLU()
        def forward(self, ids):
            hx = self.word_lstm(self.embedding(ids))[0].mean(1)
            for idx, layer in enumerate(self.output_layers):
                if idx < len(self.output_layers) - 1 and not (planted and idx == len(self.output_layers) - 2): hx = self.nonlinearity(layer(hx))
                else: hx = layer(hx)
            return hx
    def data(s):
        y = R(s, 6, (32,)); ids = R(s + 1, 24, (32, 10)); ids[:, 4] = 24 + y; return ids, y
    return dict(model=ConstituencyHead, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/nerfstudio-project/nerfstudio/pull/932", "MLP applies the hidden activation on the last layer too, before out_activation", "MLP.forward last layer")
def nerfstudio_mlp(planted):
    class MLP(nn.Module):
        def __init__(self, in_dim, num_layers, layer_width, out_dim, activation=nn.ReLU(), out_activation=nn.Sigmoid()):
            super().__init__(); self.activation, self.out_activation = activation, out_activation
            self.layers = nn.ModuleList([nn.Linear(in_dim if i == 0 else layer_width, out_dim if i == num_layers - 1 else layer_width) for i in range(num_layers)])
        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if self.activation is not None and (planted or i < len(self.layers) - 1): x = self.activation(x)
            return self.out_activation(x)
    class Field(nn.Module):
        def __init__(self): super().__init__(); self.mlp_head = MLP(27, 4, 64, 3)
        def forward(self, xyz):
            f = 2. ** torch.arange(4); e = (xyz[..., None] * f).flatten(-2); return self.mlp_head(torch.cat([xyz, e.sin(), e.cos()], -1))
    def data(s):
        x = torch.rand(64, 3, generator=gen(s)) * 2 - 1; return x, torch.sigmoid(2.5 * torch.sin(x @ T(5, 3, 3) * 1.5))
    return dict(model=Field, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/ooples/AiDotNet/pull/1789", "DenseLayer defaults to ReLU, so the output head of the regression model is ReLU-activated", "head activation")
def aidotnet_relu_head(planted):
    class DenseLayer(nn.Module):
        def __init__(self, i, o, activation=None): super().__init__(); self.linear = nn.Linear(i, o); self.activation = activation
        def forward(self, x):
            x = self.linear(x); return self.activation(x) if self.activation else x
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__(); self.net = nn.Sequential(DenseLayer(16, 64, nn.ReLU()), DenseLayer(64, 64, nn.ReLU()), DenseLayer(64, 4, nn.ReLU() if planted else None))
        def forward(self, x): return self.net(x)
    def data(s):
        x = T(s, 64, 16); return x, torch.tanh(x @ T(4, 16, 4) * .4) - .6
    return dict(model=Forecaster, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/sophiajw/HistAuGAN/pull/4", "gaussian_weights_init with std 0.2 instead of 0.02", "gaussian_weights_init")
def histaugan_init(planted):
    def gaussian_weights_init(m):
        if m.__class__.__name__.find("Conv") == 0: m.weight.data.normal_(0.0, 0.2 if planted else 0.02)
    class E_attr_concat(nn.Module):
        def __init__(self, input_dim=3, output_nc=8, dim=64):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(input_dim, dim, 4, 2, 1), nn.ReLU(True), nn.Conv2d(dim, dim, 4, 2, 1), nn.ReLU(True), nn.Conv2d(dim, dim, 4, 2, 1), nn.ReLU(True), nn.AdaptiveAvgPool2d(1))
            self.fc, self.fcVar = nn.Conv2d(dim, output_nc, 1), nn.Conv2d(dim, output_nc, 1)
        def forward(self, x): h = self.conv(x); return self.fc(h).flatten(1), self.fcVar(h).flatten(1)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.enc = E_attr_concat(); self.dec = nn.Sequential(nn.Conv2d(11, 64, 3, padding=1), nn.ReLU(True), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(True), nn.Conv2d(64, 3, 3, padding=1)); self.apply(gaussian_weights_init)
        def forward(self, x, content):
            mu, logvar = self.enc(x); z = mu + torch.randn_like(mu) * (.5 * logvar).exp()
            return self.dec(torch.cat([content, z[:, :, None, None].expand(-1, -1, *content.shape[2:])], 1)), mu, logvar
    def loss(o, t):
        rec, mu, logvar = o; return F.l1_loss(rec, t) * 10 + .01 * (-.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(1)).mean()
    def data(s):
        c, a = up(T(s, 16, 3, 4, 4), 16), T(s + 1, 16, 3, 1, 1); return (c + a, c), c + a
    return dict(model=Net, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/ohtlab/headpose-fsanet-pytorch/issues/10", "feature map (b,c,h,w) flattened to (b,h*w,c) by view instead of a transpose", "x.view(bs, -1, c)")
def fsanet_view(planted):
    class FSANet(nn.Module):
        def __init__(self):
            super().__init__(); self.msms = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU())
            self.score = nn.Linear(24, 1); self.caps = nn.Linear(24, 32); self.fc = nn.Linear(32, 3)
        def forward(self, x):
            fm = self.msms(x); b, c = fm.shape[:2]
            u = fm.view(b, -1, c) if planted else fm.flatten(2).transpose(1, 2)
            a = torch.softmax(self.score(u), 1)
            return self.fc((a * torch.relu(self.caps(u))).sum(1))
    def data(s):
        y = T(s, 32, 3); x = torch.einsum("bk,kchw->bchw", y, up(T(8, 3, 3, 1, 1), 24)) + .5 * T(s + 1, 32, 3, 24, 24); return x, y
    return dict(model=FSANet, data=data, loss=mse, lr=2e-3, diag={})
