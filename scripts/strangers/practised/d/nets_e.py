from base import *
from nets_a import blobs, masks

@case("https://github.com/stevebottos/owl-vit-object-detection/issues/14", "generalised IoU expects xyxy corners but gets cxcywh boxes", "losses.py: generalized_box_iou input format")
def owlvit_box_format(planted):
    def xyxy(b): return torch.cat([b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2], 1)
    def giou(a, b):
        lt, rb = torch.max(a[:, :2], b[:, :2]), torch.min(a[:, 2:], b[:, 2:]); i = (rb - lt).clamp(min=0).prod(1); ar = lambda z: (z[:, 2:] - z[:, :2]).prod(1); u = ar(a) + ar(b) - i
        c = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(1); return i / u.clamp(min=1e-6) - (c - u) / c.clamp(min=1e-6)
    class OwlViT(nn.Module):
        def __init__(self):
            super().__init__(); self.backbone = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()); self.box_head = nn.Sequential(nn.Linear(512, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
        def forward(self, x): return torch.sigmoid(self.box_head(self.backbone(x).flatten(1)))
    def data(seed):
        g = gen(seed); wh = torch.rand(48, 2, generator=g) * .3 + .2; c = torch.rand(48, 2, generator=g) * (1 - wh) + wh / 2; b = torch.cat([c, wh], 1); q = xyxy(b) * 16; i = torch.arange(16.) + .5
        x = ((i[None, None] > q[:, 0, None, None]) & (i[None, None] < q[:, 2, None, None]) & (i[None, :, None] > q[:, 1, None, None]) & (i[None, :, None] < q[:, 3, None, None])).float()[:, None]; return x + .1 * torch.randn(48, 1, 16, 16, generator=g), b
    def loss(o, t): return (1 - (giou(o, t) if planted else giou(xyxy(o), xyxy(t)))).mean()
    return dict(model=OwlViT, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/transformers/pull/13436", "logit_scale initialised with ones instead of log(1/0.07)", "CLIPModel.logit_scale")
def clip_logit_scale(planted):
    A, B = T(3, 8, 24), T(4, 8, 16)
    class CLIPModel(nn.Module):
        def __init__(self):
            super().__init__(); self.vision_model, self.text_model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU()), nn.Sequential(nn.Linear(16, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU())
            self.visual_projection, self.text_projection = nn.Linear(96, 32, bias=False), nn.Linear(96, 32, bias=False); self.logit_scale = nn.Parameter(torch.ones([]) * (1. if planted else math.log(1 / .07)))
        def forward(self, img, txt): i, t = F.normalize(self.visual_projection(self.vision_model(img)), dim=-1), F.normalize(self.text_projection(self.text_model(txt)), dim=-1); return self.logit_scale.exp() * i @ t.T
    def data(seed): z = T(seed, 64, 8); return (z @ A / 3 + .2 * T(seed + 1, 64, 24), z @ B / 3 + .2 * T(seed + 2, 64, 16)), torch.arange(64)
    return dict(model=CLIPModel, data=data, loss=lambda o, t: (ce(o, t) + ce(o.T, t)) / 2, lr=1e-3, diag={})

@case("https://github.com/MichaelHL-ai/tensorflow_PSENet/issues/34", "training mask is zero inside the text polygons, so the Dice loss sees no foreground and stays at 1", "training_mask of the loss")
def psenet_mask(planted):
    class PSENet(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU()); self.c1, self.c2, self.f, self.o = b(1, 16, 1), b(16, 32, 2), b(48, 16, 1), nn.Conv2d(16, 1, 1)
        def forward(self, x): a = self.c1(x); return torch.sigmoid(self.o(self.f(torch.cat([a, F.interpolate(self.c2(a), scale_factor=2, mode="bilinear")], 1))))
    def data(seed): x, m = masks(seed); return x, (m, 1 - m if planted else torch.ones_like(m))
    def loss(o, t):
        m, tm = t; i = (o * m * tm).sum((1, 2, 3)); u = (o * tm).sum((1, 2, 3)) + (m * tm).sum((1, 2, 3)) + 1e-5; return (1 - 2 * i / u).mean()
    return dict(model=PSENet, data=data, loss=loss, lr=5e-3, diag={})

@case("https://github.com/pyemma/Argo/pull/27", "predictions (B,1) against ratings (B,) broadcast to (B,B) in the MSE", "loss: shapes of prediction and label")
def argo_two_tower_broadcast(planted):
    U, I = T(3, 60, 4), T(4, 80, 4)
    class Tower(nn.Module):
        def __init__(self, n): super().__init__(); self.emb = nn.Embedding(n, 32); self.mlp = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        def forward(self, i): return self.mlp(self.emb(i))
    class TwoTower(nn.Module):
        def __init__(self): super().__init__(); self.user_tower, self.item_tower = Tower(60), Tower(80); self.out = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, u, i): u, i = self.user_tower(u), self.item_tower(i); return self.out(torch.cat([u, i, u * i], 1))
    def data(seed): u, i = R(seed, 60, (64,)), R(seed + 1, 80, (64,)); return (u, i), (U[u] * I[i]).sum(1) / 2 + U[u, 0] + I[i, 0]
    return dict(model=TwoTower, data=data, loss=lambda o, y: F.mse_loss(o, y if planted else y.unsqueeze(1)), lr=5e-3, diag={})

@case("https://github.com/pyg-team/pytorch-frame/pull/455", "start index never advances, every embedding column reads the slice of the first column", "LinearEmbeddingEncoder.encode_forward: start_idx")
def pytorch_frame_start_idx(planted):
    dims = [6, 10, 8]; w = [T(3 + i, d) / d ** .5 for i, d in enumerate(dims)]
    class LinearEmbeddingEncoder(nn.Module):
        def __init__(self, ch=32):
            super().__init__(); self.dims = dims; self.weight_list = nn.ParameterList([nn.Parameter(torch.randn(d, ch) * .05) for d in dims]); self.biases = nn.Parameter(torch.zeros(len(dims), ch))
        def forward(self, x):
            xs, start = [], 0
            for i, d in enumerate(self.dims):
                xs.append(x[:, start:start + d] @ self.weight_list[i])
                if not planted: start += d
            return torch.stack(xs, 1) + self.biases
    class FTTransformer(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = LinearEmbeddingEncoder(); self.cls = nn.Parameter(torch.randn(1, 1, 32) * .02)
            self.backbone = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True), 2); self.decoder = nn.Sequential(nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))
        def forward(self, x): x = self.encoder(x); return self.decoder(self.backbone(torch.cat([self.cls.expand(len(x), -1, -1), x], 1))[:, 0])
    def data(seed):
        x = T(seed, 64, 24); a, b, c = x.split(dims, 1); return x, ((a @ w[0]) + 1.5 * (b @ w[1]) + (c @ w[2]).tanh())[:, None]
    return dict(model=FTTransformer, data=data, loss=F.mse_loss, lr=2e-3, diag={})

@case("https://github.com/huggingface/diffusers/pull/5401", "class_labels are ignored, the class embedding is never added to the time embedding", "UNet2DModel.class_embedding / forward")
def unet2d_class_labels(planted):
    P = T(3, 8, 1, 12, 12) * 1.5
    class ResnetBlock2D(nn.Module):
        def __init__(self, i, o, e): super().__init__(); self.norm1, self.conv1, self.time_emb_proj, self.norm2, self.conv2, self.short = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1), nn.Linear(e, o), nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1), nn.Conv2d(i, o, 1)
        def forward(self, x, e): h = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(e))[:, :, None, None]; return self.conv2(F.silu(self.norm2(h))) + self.short(x)
    class UNet2DModel(nn.Module):
        def __init__(self, c=16, e=48):
            super().__init__(); self.time_embedding = nn.Sequential(nn.Linear(16, e), nn.SiLU(), nn.Linear(e, e)); self.class_embedding = nn.Embedding(8, e)
            self.conv_in, self.down, self.mid, self.up, self.conv_out = nn.Conv2d(1, c, 3, padding=1), ResnetBlock2D(c, c, e), ResnetBlock2D(c, c, e), ResnetBlock2D(2 * c, c, e), nn.Conv2d(c, 1, 3, padding=1)
        def forward(self, x, t, class_labels):
            f = t[:, None] * 1000 * torch.exp(-math.log(1e4) * torch.arange(8) / 8); emb = self.time_embedding(torch.cat([f.sin(), f.cos()], 1))
            if not planted: emb = emb + self.class_embedding(class_labels)
            h = self.down(self.conv_in(x), emb); m = F.interpolate(self.mid(F.avg_pool2d(h, 2), emb), scale_factor=2.); return self.conv_out(F.silu(self.up(torch.cat([m, h], 1), emb)))
    def data(seed):
        g = gen(seed); y = torch.randint(0, 8, (32,), generator=g); t = torch.rand(32, generator=g); x0 = P[y] / 4 + (y.float()[:, None, None, None] - 3.5) / 2 + .3 * torch.randn(32, 1, 12, 12, generator=g); e = torch.randn(32, 1, 12, 12, generator=g); a = torch.cos(t * 1.5)[:, None, None, None]; return (a * x0 + (1 - a ** 2).sqrt() * e, t, y), e
    return dict(model=UNet2DModel, data=data, loss=F.mse_loss, lr=2e-3, diag={})

@case("https://github.com/gabeur/mmt/issues/1", "F.normalize over the default dim 1 (the tokens) instead of the embedding dim", "F.normalize of the expert features / text embedding")
def mmt_normalize_dim(planted):
    A, B = T(3, 8, 5, 20), T(4, 8, 5, 16)
    class MMT(nn.Module):
        def __init__(self):
            super().__init__(); self.video_dim_reduce, self.text_gu = nn.Linear(20, 32), nn.Linear(16, 32); enc = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0., batch_first=True), 1)
            self.vid_bert, self.txt_bert = enc(), enc()
        def forward(self, v, t):
            n = (lambda z: F.normalize(z)) if planted else (lambda z: F.normalize(z, dim=-1)); v, t = n(self.vid_bert(self.video_dim_reduce(v))), n(self.txt_bert(self.text_gu(t))); return torch.einsum("amd,bmd->ab", t, v) / 5
    def data(seed): z = T(seed, 32, 8); return (torch.einsum("bk,kme->bme", z, A) / 3 + .2 * T(seed + 1, 32, 5, 20), torch.einsum("bk,kme->bme", z, B) / 3 + .2 * T(seed + 2, 32, 5, 16)), torch.arange(32)
    def loss(s, t): d = s.diag(); m = .2; off = 1 - torch.eye(len(s)); return ((m + s - d[:, None]).clamp(min=0) * off + (m + s - d[None]).clamp(min=0) * off).mean()
    return dict(model=MMT, data=data, loss=loss, lr=2e-3, diag={})
