from base import *
from nets_a import blobs, masks, chain, CausalBlock
from nets_b import ctx_perm, ceign

@case("https://github.com/voxelmorph/voxelmorph/pull/652", "identity grid in [Y, X] order while grid_sample expects [X, Y]", "SpatialTransformer (identity grid / axis order)")
def voxelmorph_grid_axes(planted):
    class SpatialTransformer(nn.Module):
        def __init__(self, size):
            super().__init__(); g = torch.stack(torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij"), -1)
            self.register_buffer("grid", g if planted else g.flip(-1))
        def forward(self, src, flow): return F.grid_sample(src, self.grid[None] + flow.permute(0, 2, 3, 1), align_corners=True, padding_mode="border")
    class VxmDense(nn.Module):
        def __init__(self):
            super().__init__(); self.enc1, self.enc2, self.dec = nn.Conv2d(2, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(48, 32, 3, padding=1)
            self.glob = nn.Linear(32 * 64, 32); self.flow = nn.Conv2d(32, 2, 3, padding=1); nn.init.normal_(self.flow.weight, std=1e-5); nn.init.zeros_(self.flow.bias); self.transformer = SpatialTransformer(16)
        def forward(self, src, tgt):
            a = F.leaky_relu(self.enc1(torch.cat([src, tgt], 1)), .2); b = F.leaky_relu(self.enc2(a), .2); b = b + self.glob(b.flatten(1))[:, :, None, None]
            return self.transformer(src, self.flow(F.leaky_relu(self.dec(torch.cat([F.interpolate(b, scale_factor=2), a], 1)), .2)))
    def blob(c): i = torch.arange(16.); return torch.exp(-((i[None, :, None] - c[:, 0, None, None]) ** 2 / 18 + (i[None, None] - c[:, 1, None, None]) ** 2 / 6))[:, None]
    def data(seed):
        g = gen(seed); c = torch.rand(24, 2, generator=g) * torch.tensor([4., 4.]) + torch.tensor([3., 9.]); d = torch.rand(24, 2, generator=g) * 3 - 1.5; return (blob(c), blob(c + d)), blob(c + d)
    return dict(model=VxmDense, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/keras-team/keras/issues/9097", "sqrt of a zero squared distance when both inputs of a pair are identical", "euclidean_distance (K.sqrt without epsilon)")
def siamese_sqrt_nan(planted):
    P = T(3, 8, 20)
    class Siamese(nn.Module):
        def __init__(self): super().__init__(); self.base_network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        def forward(self, a, b):
            d = ((self.base_network(a) - self.base_network(b)) ** 2).sum(1); return torch.sqrt(d) if planted else torch.sqrt(d + 1e-7)
    def data(seed):
        y, z = R(seed, 8, (64,)), R(seed + 1, 8, (64,)); z[:32] = y[:32]; a, b = P[y] + .4 * T(seed + 2, 64, 20), P[z] + .4 * T(seed + 3, 64, 20); b[:3] = a[:3]; return (a, b), (y == z).float()
    def loss(d, t): return (t * d ** 2 + (1 - t) * F.relu(1 - d) ** 2).mean()
    return dict(model=Siamese, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/rish-16/tokenlearner-pytorch/issues/1", "view instead of transpose to put tokens in front of the batch for attention", "y.view(tokens, batch, dim) before mhsa")
def tokenlearner_view(planted):
    class TokenLearner(nn.Module):
        def __init__(self, S=6, c=24): super().__init__(); self.att = nn.Conv2d(c, S, 3, padding=1)
        def forward(self, x): a = torch.sigmoid(self.att(x)).flatten(2); return torch.einsum("bsn,bcn->bsc", a, x.flatten(2)) / a.shape[-1]
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.stem = nn.Sequential(nn.Conv2d(1, 24, 5, 2, 2), nn.ReLU()); self.tokens = TokenLearner(); self.mhsa = nn.MultiheadAttention(24, 2); self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)
        def forward(self, x):
            y = self.tokens(self.stem(x)); B, S, C = y.shape
            y = y.view(S, B, C) if planted else y.transpose(0, 1)
            y, _ = self.mhsa(y, y, y); y = y.view(B, S, C) if planted else y.transpose(0, 1)
            return self.head(self.norm(y).mean(1))
    return dict(model=Net, data=blobs, loss=ce, lr=5e-3, diag={})

@case("https://github.com/649453932/Chinese-Text-Classification-Pytorch/issues/10", "heads split and merged with view only, tokens and heads get mixed", "Multi_Head_Attention view without transpose")
def chinese_text_view(planted):
    class Multi_Head_Attention(nn.Module):
        def __init__(self, d, h): super().__init__(); self.h, self.dk = h, d // h; self.fc_Q, self.fc_K, self.fc_V, self.fc = (nn.Linear(d, d) for _ in range(4)); self.layer_norm = nn.LayerNorm(d)
        def forward(self, x):
            B, L, D = x.shape
            sp = (lambda t: t.view(B * self.h, -1, self.dk)) if planted else (lambda t: t.view(B, L, self.h, self.dk).transpose(1, 2).reshape(B * self.h, L, self.dk))
            q, k, v = sp(self.fc_Q(x)), sp(self.fc_K(x)), sp(self.fc_V(x)); c = (q @ k.transpose(1, 2) * self.dk ** -.5).softmax(-1) @ v
            c = c.view(B, -1, D) if planted else c.view(B, self.h, L, self.dk).transpose(1, 2).reshape(B, L, D)
            return self.layer_norm(self.fc(c) + x)
    class Model(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding, self.att = nn.Embedding(18, 48), nn.ModuleList([Multi_Head_Attention(48, 4) for _ in range(2)])
            self.ff = nn.ModuleList([nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 48)) for _ in range(2)]); self.fc1 = nn.Linear(48, 12)
        def forward(self, x):
            x = self.embedding(x)
            for a, f in zip(self.att, self.ff): x = a(x); x = x + f(x)
            return self.fc1(x)
    return dict(model=Model, data=ctx_perm, loss=ceign, lr=5e-3, diag={})

@case("https://github.com/Trusted-AI/adversarial-robustness-toolbox/issues/2101", "images brought from HxWxC to CxHxW with reshape", "data feeding (np.reshape instead of transpose)")
def art_reshape(planted):
    P = F.interpolate(T(5, 10, 3, 4, 4), 12, mode="bilinear").permute(0, 2, 3, 1)
    class PTClassifier(nn.Module):
        def __init__(self): super().__init__(); self.conv1, self.conv2, self.fc = nn.Conv2d(3, 16, 5), nn.Conv2d(16, 32, 3), nn.Linear(32, 10)
        def forward(self, x): x = F.max_pool2d(F.relu(self.conv1(x)), 2); return self.fc(F.relu(self.conv2(x)).amax((2, 3)))
    def data(seed):
        y = R(seed, 10, (32,)); x = P[y] + .5 * T(seed + 1, 32, 12, 12, 3)
        return x.reshape(-1, 3, 12, 12) if planted else x.permute(0, 3, 1, 2).contiguous(), y
    return dict(model=PTClassifier, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/yjh0410/CenterNet-Lite/pull/14", "heatmap head bias starts at zero instead of the prior -log((1-pi)/pi)", "cls_pred bias initialisation")
def centernet_bias(planted):
    class CenterNet(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o, s: nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())
            self.backbone, self.cls_pred = nn.Sequential(b(1, 16, 1), b(16, 32, 2), b(32, 32, 1)), nn.Sequential(b(32, 32, 1), nn.Conv2d(32, 1, 1))
            if not planted: nn.init.constant_(self.cls_pred[-1].bias, -math.log(.99 / .01))
        def forward(self, x): return self.cls_pred(self.backbone(x))
    def data(seed):
        g = gen(seed); c = torch.randint(3, 13, (16, 2), generator=g); x = .3 * torch.randn(16, 1, 32, 32, generator=g); i = torch.arange(16.)
        for k in range(16): x[k, 0, 2 * c[k, 0] - 2:2 * c[k, 0] + 3, 2 * c[k, 1] - 2:2 * c[k, 1] + 3] += 1
        return x, torch.exp(-((i[None, :, None] - c[:, 0, None, None]) ** 2 + (i[None, None] - c[:, 1, None, None]) ** 2) / 1.)[:, None]
    def loss(o, t):
        p = torch.sigmoid(o).clamp(1e-4, 1 - 1e-4); pos = (t == 1).float()
        return -(pos * (1 - p) ** 2 * p.log() + (1 - pos) * (1 - t) ** 4 * p ** 2 * (1 - p).log()).sum() / pos.sum()
    return dict(model=CenterNet, data=data, loss=loss, lr=1e-3, diag={})

@case("https://github.com/aipixel/AEMatter/issues/3", "sequences prepared batch first but nn.MultiheadAttention left at batch_first=False", "MultiheadAttention (batch_first)")
def aematter_batch_first(planted):
    class AEALblock(nn.Module):
        def __init__(self, d): super().__init__(); self.attn = nn.MultiheadAttention(d, 4, batch_first=not planted); self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d); self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        def forward(self, x): n = self.n1(x); x = x + self.attn(n, n, n, need_weights=False)[0]; return x + self.ff(self.n2(x))
    class AEMatter(nn.Module):
        def __init__(self): super().__init__(); self.emb, self.blocks, self.out = nn.Embedding(18, 48), nn.Sequential(AEALblock(48), AEALblock(48)), nn.Linear(48, 12)
        def forward(self, x): return self.out(self.blocks(self.emb(x)))
    return dict(model=AEMatter, data=ctx_perm, loss=ceign, lr=5e-3, diag={})

@case("https://github.com/Confusezius/Revisiting_Deep_Metric_Learning_PyTorch/issues/12", "additive angular margin applied to all classes instead of the target class", "ArcFace logits (margin on every entry)")
def arcface_all_margin(planted):
    P = T(3, 12, 24)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 32)); self.class_map = nn.Parameter(torch.empty(12, 32)); nn.init.xavier_uniform_(self.class_map)
        def forward(self, x): return F.normalize(self.body(x)) @ F.normalize(self.class_map).T
    def data(seed): y = R(seed, 12, (48,)); return P[y] + 1.2 * T(seed + 1, 48, 24), y
    def loss(c, y, m=.5, s=16):
        phi = torch.cos(torch.acos(c.clamp(-1 + 1e-6, 1 - 1e-6)) + m); hot = F.one_hot(y, 12).float()
        return F.cross_entropy(s * (phi if planted else hot * phi + (1 - hot) * c), y)
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/KichangKim/DeepDanbooru/issues/55", "every layer of the squeeze-excitation works on x, pooling result is overwritten", "squeeze_excitation block (s unused)")
def danbooru_se(planted):
    class SE(nn.Module):
        def __init__(self, c, r=4): super().__init__(); self.d1 = nn.Linear(c, c // r); self.d2 = nn.Linear(c if planted else c // r, c)
        def forward(self, x):
            x = x.permute(0, 2, 3, 1); s = x.mean((1, 2), keepdim=True)
            s = F.relu(self.d1(x if planted else s)); s = torch.sigmoid(self.d2(x if planted else s)); return (x * s).permute(0, 3, 1, 2)
    class ResNet(nn.Module):
        def __init__(self):
            super().__init__(); self.c0 = nn.Conv2d(1, 24, 3, padding=1); self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), SE(24)) for _ in range(2)]); self.fc = nn.Linear(24 * 9, 10)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.c0(x)), 2)
            for b in self.blocks: x = F.relu(x + b(x))
            return self.fc(F.avg_pool2d(x, 2).flatten(1))
    return dict(model=ResNet, data=lambda s: blobs(s, noise=1.2), loss=ce, lr=1e-3, diag={})

@case("https://github.com/Project-MONAI/MONAI/issues/369", "class weights of the generalised Dice cancel in the element-wise division", "GeneralizedDiceLoss (f = num * w / (den * w))")
def monai_gdl(planted):
    class UNet(nn.Module):
        def __init__(self):
            super().__init__(); b = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.InstanceNorm2d(o, affine=True), nn.PReLU())
            self.a, self.b, self.c, self.o = b(1, 16), b(16, 32), b(48, 16), nn.Conv2d(16, 2, 1)
        def forward(self, x): a = self.a(x); return self.o(self.c(torch.cat([F.interpolate(self.b(F.max_pool2d(a, 2)), scale_factor=2), a], 1)))
    def data(seed): x, m = masks(seed); return x + .5 * T(seed + 3, *x.shape), torch.cat([1 - m, m], 1)
    def loss(o, t):
        p = o.softmax(1).flatten(2); t = t.flatten(2); w = 1 / t.sum(2).clamp(min=1) ** 2; i, u = (p * t).sum(2), p.sum(2) + t.sum(2)
        return (1 - 2 * (i * w + 1e-5) / (u * w + 1e-5)).mean() if planted else (1 - 2 * ((i * w).sum(1) + 1e-5) / ((u * w).sum(1) + 1e-5)).mean()
    return dict(model=UNet, data=data, loss=loss, lr=2e-3, diag={})

@case("https://github.com/AntixK/PyTorch-VAE/issues/48", "tanh as output activation although images are in [0, 1]", "final_layer (nn.Tanh)")
def pytorch_vae_tanh(planted):
    P = (F.interpolate(T(6, 12, 1, 3, 3), 12, mode="bilinear") > 0).float()
    class VanillaVAE(nn.Module):
        def __init__(self):
            super().__init__(); self.encoder = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU()); self.fc_mu, self.fc_var = nn.Linear(288, 8), nn.Linear(288, 8)
            self.decoder_input = nn.Linear(8, 288); self.final_layer = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh() if planted else nn.Sigmoid())
        def forward(self, x):
            h = self.encoder(x).flatten(1); mu, lv = self.fc_mu(h), self.fc_var(h); z = mu + torch.exp(.5 * lv) * torch.randn_like(mu)
            return self.final_layer(self.decoder_input(z).view(-1, 32, 3, 3)), mu, lv
    def data(seed): x = (P[R(seed, 12, (32,))] + .1 * T(seed + 1, 32, 1, 12, 12)).clamp(0, 1); return x, x
    def loss(o, t): return F.mse_loss(o[0], t) + .0025 * (-.5 * (1 + o[2] - o[1] ** 2 - o[2].exp()).sum(1)).mean()
    return dict(model=VanillaVAE, data=data, loss=loss, lr=3e-3, diag={})

@case("https://github.com/pytorch/pytorch/issues/19250", "GroupNorm with one element per group (num_groups == channels on a 1x1 map) outputs zeros", "GroupNorm / InstanceNorm layer after global pooling")
def groupnorm_single(planted):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.conv1, self.n1, self.conv2, self.n2 = nn.Conv2d(1, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.Conv2d(16, 32, 3, 2, 1), nn.GroupNorm(4, 32)
            self.conv3, self.n3, self.fc = nn.Conv2d(32, 64, 3), nn.GroupNorm(64 if planted else 4, 64), nn.Linear(64, 10)
        def forward(self, x):
            x = F.relu(self.n1(self.conv1(x))); x = F.relu(self.n2(self.conv2(x))); x = F.relu(self.n3(self.conv3(x))); return self.fc(x.flatten(1))
    return dict(model=Encoder, data=blobs, loss=ce, lr=1e-3, diag={})

@case("https://github.com/Project-MONAI/MONAI/pull/8578", "output layer is created anew in every forward pass", "DiffusionModelEncoder.out (set in forward)")
def monai_out_in_forward(planted):
    class DiffusionModelEncoder(nn.Module):
        def __init__(self):
            super().__init__(); self.conv_in = nn.Conv2d(1, 16, 3, padding=1); self.down = nn.ModuleList([nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, 2, 1)) for _ in range(2)])
            self.out = None if planted else self.mk()
        def mk(self): return nn.Sequential(nn.Linear(144, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 10))
        def forward(self, x):
            h = self.conv_in(x)
            for d in self.down: h = d(h)
            h = h.flatten(1)
            if planted: self.out = self.mk()
            return self.out(h)
    return dict(model=DiffusionModelEncoder, data=blobs, loss=ce, lr=2e-3, diag={})

@case("https://github.com/KanishJebaMathewM/Truxify/issues/13118", "inner MAML update through param.data cuts the graph, query loss never reaches the meta parameters", "inner_update (param.data -=)")
def maml_param_data(planted):
    class MAML(nn.Module):
        def __init__(self): super().__init__(); self.model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)); self.inner_lr = .02
        def forward(self, sx, sy, qx):
            out = []
            for a, b, c in zip(sx, sy, qx):
                p = dict(self.model.named_parameters())
                with torch.enable_grad():
                    if planted:
                        p = {k: v.detach().clone().requires_grad_() for k, v in p.items()}; g = torch.autograd.grad(F.mse_loss(torch.func.functional_call(self.model, p, (a,)), b), list(p.values()))
                        for v, d in zip(p.values(), g): v.data -= self.inner_lr * d
                    else:
                        g = torch.autograd.grad(F.mse_loss(torch.func.functional_call(self.model, p, (a,)), b), list(p.values()), create_graph=True); p = {k: v - self.inner_lr * d for (k, v), d in zip(p.items(), g)}
                out.append(torch.func.functional_call(self.model, p, (c,)))
            return torch.stack(out)
    def data(seed):
        g = gen(seed); amp = 2 + torch.rand(8, 1, 1, generator=g); sx, qx = torch.rand(8, 10, 1, generator=g) * 4 - 2, torch.rand(8, 10, 1, generator=g) * 4 - 2; return (sx, amp * torch.sin(2 * sx), qx), amp * torch.sin(2 * qx)
    return dict(model=MAML, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/jadore801120/attention-is-all-you-need-pytorch/pull/168", "shared embedding / projection weights without the sqrt(d_model) scaling on either side", "scale_emb_or_prj (embedding scale missing)")
def jadore_emb_scale(planted):
    V, D = 18, 64
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__(); self.word_emb = nn.Embedding(V, D); self.pos = nn.Embedding(16, D); self.layers = nn.ModuleList([CausalBlock(D) for _ in range(2)]); self.ln, self.prj = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
            for p in self.parameters():
                if p.dim() > 1: nn.init.xavier_uniform_(p)
            self.prj.weight = self.word_emb.weight
        def forward(self, ids):
            x = self.word_emb(ids) * (1 if planted else D ** .5) + self.pos(torch.arange(ids.shape[1]))
            for l in self.layers: x = l(x)
            return self.prj(self.ln(x))
    return dict(model=Transformer, data=ctx_perm, loss=ceign, lr=2e-3, diag={})

@case("https://github.com/TreB1eN/InsightFace_Pytorch/issues/6", "condition of the ArcFace fallback inverted: cosface values replace the angular margin where it is valid", "Arcface cond_mask (cond_v > 0)")
def insightface_cond(planted):
    P = T(3, 12, 24)
    class Net(nn.Module):
        def __init__(self): super().__init__(); self.body = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.PReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32)); self.kernel = nn.Parameter(torch.empty(32, 12)); nn.init.normal_(self.kernel)
        def forward(self, x): return (F.normalize(self.body(x)) @ F.normalize(self.kernel, dim=0)).clamp(-1, 1)
    def data(seed): y = R(seed, 12, (48,)); return P[y] + 1.2 * T(seed + 1, 48, 24), y
    def loss(c, y, m=.5, s=16):
        sin = torch.sqrt((1 - c ** 2).clamp(min=1e-6)); ctm = c * math.cos(m) - sin * math.sin(m); mask = c - math.cos(math.pi - m); keep = c - math.sin(m) * m
        ctm = torch.where(mask > 0 if planted else mask <= 0, keep, ctm); hot = F.one_hot(y, 12).bool(); return F.cross_entropy(s * torch.where(hot, ctm, c), y)
    return dict(model=Net, data=data, loss=loss, lr=2e-3, diag={})
