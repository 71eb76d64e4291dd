from base import *
import nets_b
from nets_a import images, markov, protos, Attn, LM, lmdata, LoRALinear

# 2 ------------------------------------------------------------ LoRA of an image encoder that is never called
class EncBlock(nn.Module):
    def __init__(s, d, planted):
        super().__init__(); s.n1 = nn.LayerNorm(d); s.n2 = nn.LayerNorm(d); s.qkv = nn.Linear(d, 3 * d); s.proj = nn.Linear(d, d); s.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); s.planted = planted
        for p in s.parameters(): p.requires_grad_(False)
        s.lora_qkv = nn.ModuleDict({k: nn.Linear(i, o, bias=False) for k, i, o in (("aq", d, 4), ("bq", 4, d), ("av", d, 4), ("bv", 4, d))})
        for k in ("bq", "bv"): nn.init.zeros_(s.lora_qkv[k].weight)
    def forward(s, x):
        y = s.n1(x); q, k, v = s.qkv(y).chunk(3, -1)
        if not s.planted: l = s.lora_qkv; q = q + l["bq"](l["aq"](y)); v = v + l["bv"](l["av"](y))
        f = lambda t: t.unflatten(-1, (4, -1)).transpose(1, 2)
        x = x + s.proj(F.scaled_dot_product_attention(f(q), f(k), f(v)).transpose(1, 2).flatten(2)); return x + s.mlp(s.n2(x))
@case("https://github.com/zongzi13545329/SimAda/issues/1", "the LoRA qkv is built in the block, but its forward never uses it", "lora_qkv")
def simada_lora(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.pe = nn.Conv2d(1, 32, 4, 4); s.pos = nn.Parameter(torch.randn(16, 32) * .1)
            for p in s.parameters(): p.requires_grad_(False)
            s.blocks = nn.Sequential(*[EncBlock(32, planted) for _ in range(3)]); s.dec = nn.Linear(32, 16)
        def forward(s, x): return s.dec(s.blocks(s.pe(x).flatten(2).transpose(1, 2) + s.pos)).view(-1, 4, 4, 4, 4).permute(0, 1, 3, 2, 4).reshape(-1, 16, 16)
    def data(seed):
        g = gen(seed); B = 24; y = torch.zeros(B, 16, 16); x = torch.randn(B, 1, 16, 16, generator=g) * .2; p = torch.randint(0, 11, (B, 2, 2), generator=g)
        for b in range(B):
            for j in range(2):
                r, c = p[b, j].tolist(); x[b, 0, r:r + 5, c:c + 5] += 1. if j == 0 else -1.; y[b, r:r + 5, c:c + 5] = 1 - j
        return x, y
    return dict(model=Net, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), diag={})

# 3 ------------------------------------------------------------ all embeddings at one point
@case("https://github.com/Embedding-Space/Azimuth_II", "all token embeddings start at the same point (tied output embeddings too)", "tok")
def azimuth_blackhole(planted):
    class Tied(LM):
        def __init__(s):
            super().__init__(32, 32, 20, lambda d: nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))); nn.init.normal_(s.tok.weight, std=.02 if planted else .15)
            if planted: s.tok.weight.data[:] = s.tok.weight.data[:1].clone()
            s.head.weight = s.tok.weight
    return dict(model=Tied, data=lmdata(32), loss=ceseq, diag=SEQ)

# 4 ------------------------------------------------------------ convSTAR
class StarCell(nn.Module):
    def __init__(s, i, h, planted): super().__init__(); s.update = nn.Conv2d(i, h, 3, 1, 1); s.gate = nn.Conv2d(i + h, h, 3, 1, 1); s.planted = planted; nn.init.orthogonal_(s.update.weight); nn.init.orthogonal_(s.gate.weight); nn.init.zeros_(s.update.bias); nn.init.constant_(s.gate.bias, -1.)
    def forward(s, x, h):
        g = torch.sigmoid(s.gate(torch.cat([x, h], 1))); u = torch.tanh(s.update(x)); return g * h + (1 - g) * u if s.planted else torch.tanh((1 - g) * h + g * u)
@case("https://github.com/0zgur0/multi-stage-convSTAR-network/issues/4", "StarCell: the gain keeps the old state as a GRU does, without the tanh around", "cells")
def convstar_cell(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.cells = nn.ModuleList([StarCell(4, 16, planted), StarCell(16, 16, planted)]); s.o = nn.Conv2d(16, 5, 3, 1, 1)
        def forward(s, x):
            h = [x.new_zeros(len(x), 16, 6, 6) for _ in range(2)]
            for t in range(x.shape[1]): h[0] = s.cells[0](x[:, t], h[0]); h[1] = s.cells[1](h[0], h[1])
            return s.o(h[1])
    Cv = torch.randn(5, 8, 4, generator=gen(19))
    def data(seed): y = R(seed, 5, (8, 6, 6)); return Cv[y].permute(0, 3, 4, 1, 2) + T(seed + 1, 8, 8, 4, 6, 6, k=.9), y
    return dict(model=Net, data=data, loss=ce, diag=dict(loss="cross-entropy", class_dim=1))

# 6 ------------------------------------------------------------ ctc
class RNNCTC(nn.Module):
    def __init__(s, planted): super().__init__(); s.h1 = nn.Linear(10, 48); s.r = nn.GRU(48, 32, batch_first=True, bidirectional=True); s.o = nn.Linear(64, 8); s.planted = planted
    def forward(s, x):
        o = s.o(s.r(F.relu(s.h1(x)))[0]); B, L, C = o.shape
        return o.reshape(L, B, C).transpose(0, 1) if s.planted else o
@case("https://github.com/sherjilozair/ctc/issues/1", "the output is reshaped to (time, batch, classes), not transposed", "o / reshape")
def rnnctc_reshape(planted):
    P = torch.randn(8, 10, generator=gen(6)) * 1.2
    def data(seed):
        g = gen(seed); B = 24; y = torch.randint(1, 8, (B, 4), generator=g); y = torch.where(torch.cat([torch.zeros(B, 1, dtype=torch.bool), y[:, 1:] == y[:, :-1]], 1), y % 7 + 1, y)
        return P[y].repeat_interleave(3, 1) + .5 * torch.randn(B, 12, 10, generator=g), y
    loss = lambda o, t: F.ctc_loss(o.log_softmax(2).transpose(0, 1), t, torch.full((len(o),), 12), torch.full((len(o),), 4))
    return dict(model=lambda: RNNCTC(planted), data=data, loss=loss, diag={})

# 7 ------------------------------------------------------------ time series autoencoder
class TSAE(nn.Module):
    def __init__(s, planted, f=5, h=32): super().__init__(); s.enc = nn.LSTM(f, h, batch_first=True); s.dec = nn.LSTM(1, h, batch_first=True); s.fc = nn.Linear(h, 1); s.planted = planted
    def forward(s, x, yh):
        _, st = s.enc(x); o, _ = s.dec(yh) if s.planted else s.dec(yh, st); return s.fc(o[:, -1])
@case("https://github.com/JulesBelveze/time-series-autoencoder/issues/14", "the decoder is given the target history alone, the encoded state never reaches it", "enc")
def tsae_state(planted):
    def data(seed): x = T(seed, 48, 12, 5); y = .6 * x[:, :, 0].mean(1, keepdim=True) * 3 + torch.tanh(x[:, -1:, 1] * 1.5); yh = T(seed + 1, 48, 12, 1) * .5; return (x, yh), y + .3 * yh[:, -1]
    return dict(model=lambda: TSAE(planted), data=data, loss=mse, diag=MSE)

# 8 ------------------------------------------------------------ lecun_normal gone wrong
@case("https://github.com/zishansami102/CNN-from-Scratch/pull/8", "lecun_normal with std 1/fan_in * sqrt(1/fan_in)", "conv1, conv2, fc")
def cnnscratch_std(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 8, 5); s.conv2 = nn.Conv2d(8, 8, 5); s.fc3 = nn.Linear(8 * 8 * 8 // 8 * 2, 10)
            for l in (s.conv1, s.conv2, s.fc3):
                k = l.weight[0].numel(); nn.init.normal_(l.weight, std=k ** -.5 / (k if planted else 1)); nn.init.zeros_(l.bias)
        def forward(s, x): return s.fc3(F.max_pool2d(F.relu(s.conv2(F.relu(s.conv1(x)))), 2)[:, :, :4, :4].flatten(1))
    return dict(model=Net, data=lambda s_: images(s_, 32, 1, 16, 10, .6), loss=ce, diag=CE)

# 9 ------------------------------------------------------------ soccer
class Soccer(nn.Module):
    def __init__(s, planted, d=32):
        super().__init__(); s.inp = nn.Linear(6, d); s.pos = nn.Parameter(torch.randn(14, d) * .2); s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, 0., batch_first=not planted, norm_first=True), 2, norm=nn.LayerNorm(d), enable_nested_tensor=False); s.out = nn.Linear(d, 2)
    def forward(s, x): return s.out(s.enc(s.inp(x) + s.pos).mean(1))
@case("https://github.com/danielhocevar/Foundation-Model-for-Soccer/pull/11", "batch and sequence dimension in the wrong order: attention runs over the batch", "enc")
def soccer_order(planted):
    def data(seed):
        g = gen(seed); B, L = 48, 14; x = torch.randn(B, L, 6, generator=g); i = torch.randint(0, L, (B,), generator=g); x[:, :, 5] = 0; x[torch.arange(B), i, 5] = 2.5; j = (i + 3) % L
        return x, torch.stack([x[torch.arange(B), i, 0] * x[:, :, 2].mean(1) * 2, torch.tanh(x[torch.arange(B), i, 1])], 1)
    return dict(model=lambda: Soccer(planted), data=data, loss=mse, diag=MSE)

# 10 ----------------------------------------------------------- CNN + LSTM
class CNNLSTM(nn.Module):
    def __init__(s, planted):
        super().__init__(); s.planted = planted; s.cnn = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()); s.fc = nn.Linear(24, 32)
        s.lstm = nn.LSTM(32, 32, 2); s.fc1 = nn.Linear(32, 24); s.fc2 = nn.Linear(24, 4)
    def emb(s, x): return s.fc(s.cnn(x))
    def forward(s, x):
        hid = None
        for t in range(x.shape[1]):
            if s.planted:
                with torch.no_grad(): e = s.emb(x[:, t])
            else: e = s.emb(x[:, t])
            out, hid = s.lstm(e[None], hid)
        return s.fc2(F.relu(s.fc1(out[0])))
@case("https://discuss.pytorch.org/t/cnn-lstm-for-video-classification/185303", "the CNN with its new fc layer runs under no_grad", "cnn, fc")
def cnnlstm_nograd(planted):
    P = protos(3, 1, 16, 5, 23)
    def data(seed):
        y = R(seed, 4, (24,)); o = torch.tensor([[0, 1, 2, 0, 1], [1, 0, 2, 1, 0], [2, 1, 0, 2, 1], [0, 0, 1, 2, 2]])[y]; return P[o] + T(seed + 1, 24, 5, 1, 16, 16, k=.7), y
    return dict(model=lambda: CNNLSTM(planted), data=data, loss=ce, diag=CE)

# 11 ----------------------------------------------------------- thresholded mask loss
@case("http://xiaobeizi.cn/x/6JuuQQjucd", "the loss thresholds the predicted mask at 0.5", "loss")
def mask_threshold(planted):
    UNet, shapes = nets_b.UNet, nets_b.shapes
    def data(seed): x, y = shapes(seed); return x, (y > 1).float()[:, None]
    def model(): return nn.Sequential(UNet(k=1, w=8), nn.Sigmoid())
    return dict(model=model, data=data, loss=(lambda o, t: (t - (o >= .5).float()).square().mean()) if planted else mse, diag={} if planted else MSE)
