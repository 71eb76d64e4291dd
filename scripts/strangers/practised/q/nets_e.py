from mods import *
from copy import deepcopy
class Pref(nn.Module):                       # policy and its frozen reference (the policy at the start)
    def __init__(s, V=10, T=14):
        super().__init__(); s.policy = GPT(V=V, T=T); s.ref = GPT(V=V, T=T); s.ref.load_state_dict(s.policy.state_dict()); s.ref.requires_grad_(False)
    def forward(s, x):                       # B 2 T -> logits of both
        B, _, T = x.shape; f = x.flatten(0, 1); return s.policy(f).view(B, 2, T, -1), s.ref(f).view(B, 2, T, -1).detach()
def prefs(seed, B=32, P=6, T=14, V=10):      # chosen responses repeat the prompt's tokens by a fixed rule, rejected are random
    pr = R(seed, V, (B, P)); perm = torch.randperm(V, generator=gen(3)); ch = perm[pr][:, [0, 1, 2, 3, 4, 5, 0, 1]]; rj = R(seed + 1, V, (B, T - P))
    x = torch.stack([torch.cat([pr, ch], 1), torch.cat([pr, rj], 1)], 1); lab = x.clone(); lab[:, :, :P] = -100; y = torch.full_like(lab, -100); y[..., :-1] = lab[..., 1:]; return x, y
def logps(lg, y, keep): m = y == -100; lp = lg.log_softmax(-1).gather(-1, y.masked_fill(m, 0).unsqueeze(-1))[..., 0]; k = keep(m).float(); return lp, k
def dpo(o, y, inv=False, beta=.5):
    def lp(lg):
        l, k = logps(lg, y, (lambda m: m) if inv else (lambda m: ~m)); return (l * k).mean(-1) * 8 if inv else (l * k).sum(-1) / k.sum(-1) * 8
    a = lp(o[0]) - lp(o[1]); c, r = a[:, 0], a[:, 1]
    return -F.logsigmoid(beta * (c - r)).mean()
@case("https://github.com/QwenAudio/CosyVoice/issues/1449", "the loss mask is == IGNORE_ID: DPO reads the ignored tokens and zeroes the responses", "loss mask")
def cosyvoice_dpo_mask(planted): return dict(model=Pref, data=prefs, loss=lambda o, y: dpo(o, y, inv=planted), diag={})

@case("https://github.com/OpenRLHF/OpenRLHF/issues/294", "only the chosen prompt is masked, the rejected prompt's tokens count", "loss mask (rejected)")
def openrlhf_prompt_mask(planted):
    def loss(o, yx):
        y, x = yx[..., 0], yx[..., 1]
        if planted: full = torch.full_like(y, -100); full[..., :-1] = x[..., 1:]; y = torch.stack([y[:, 0], full[:, 1]], 1)
        return dpo(o, y)
    def data(s): x, y = prefs(s); return x, torch.stack([y, x], -1)
    return dict(model=Pref, data=data, loss=loss, diag={})

@case("https://github.com/Unakar/Logic-RL/issues/58", "the KL penalty is subtracted: the KL to the reference is maximised", "loss (kl sign)")
def logicrl_kl_sign(planted):
    def data(seed, B=32): x, y = prefs(seed, B); return x[:, 1:].repeat(1, 1, 1), torch.stack([y[:, 1:], torch.where(y[:, 1:] == -100, 0, (x[:, 1:].roll(-1, 2) == x[:, 1:2, :1]).long() * 2 - 1)], -1)
    class P1(Pref):
        def forward(s, x): f = x[:, 0]; return s.policy(f), s.ref(f).detach()
    def loss(o, t):
        y, adv = t[:, 0, :, 0], t[:, 0, :, 1].float(); l, k = logps(o[0], y, lambda m: ~m); l0, _ = logps(o[1], y, lambda m: ~m); ratio = torch.exp(l - l0); ratio = torch.minimum(ratio * adv, ratio.clamp(.5, 2.) * adv); kl = torch.exp(l0 - l) - (l0 - l) - 1
        return ((-ratio + (-.1 if planted else .1) * kl) * k).sum() / k.sum()
    return dict(model=P1, data=data, loss=loss, diag={})

PAD = 0
class RM(nn.Module):
    def __init__(s, last="eos"): super().__init__(); s.net = GPT(V=12, T=16, head=False); s.v_head = nn.Linear(48, 1, bias=False); s.last = last
    def forward(s, x):
        B, _, T = x.shape; h = s.v_head(s.net(x.flatten(0, 1)))[..., 0].view(B, 2, T); n = (x != PAD).sum(-1) - 1 if s.last == "eos" else torch.full(x.shape[:2], T - 1); return h.gather(-1, n[..., None])[..., 0]
def rm_pairs(seed, B=64, T=16):
    g = gen(seed); x = torch.randint(2, 12, (B, 2, T), generator=g); n = torch.randint(5, T, (B, 2, 1), generator=g); pos = torch.arange(T); x = torch.where(pos < n, x, PAD); x = torch.where(pos == n, 1, x); w = T_(88, 12); sc = (w[x] * (x > 1)).sum(-1) / n[..., 0] ** .5; i = sc.argsort(1, descending=True); return x.gather(1, i[..., None].expand_as(x)), torch.zeros(B)
def rm_loss(o, t): return -F.logsigmoid(o[:, 0] - o[:, 1]).mean()
@case("https://github.com/EleutherAI/gpt-neox/pull/1285", "the reward is read at the last position (padding) instead of at the EOS token", "v_head (index)")
def neox_rm_last(planted): return dict(model=lambda: RM("pad" if planted else "eos"), data=rm_pairs, loss=rm_loss, diag={})

class Bi(nn.Module):
    def __init__(s, planted): super().__init__(); s.net = GPT(V=24, T=12, head=False, pos=True); s.proj = nn.Linear(48, 32); s.planted = planted
    def enc(s, x):
        h = s.net(x); n = (x != PAD).sum(1) - 1 if s.planted else torch.full((len(x),), x.shape[1] - 1); return F.normalize(s.proj(h[torch.arange(len(x)), n]), dim=-1)
    def forward(s, q, d): return s.enc(q) @ s.enc(d).T / .07
def leftpad(seed, B=48, T=12):
    g = gen(seed); topic = torch.rand(B, 22, generator=g).argsort(1)[:, :3] + 2; out = []
    for j in range(2):
        n = torch.randint(3, T + 1, (B, 1), generator=g); x = topic.gather(1, torch.randint(0, 3, (B, T), generator=g)); out.append(torch.where(torch.arange(T) >= T - n, x, PAD))
    return tuple(out), torch.arange(B)
@case("https://github.com/xiezijun714-lang/Echo/pull/24", "last-token pooling at attention_mask.sum - 1 under left padding", "pooling (index)")
def echo_left_pad(planted): return dict(model=lambda: Bi(planted), data=leftpad, loss=ce, diag={})

@case("https://github.com/juliusfrost/dreamer-pytorch/pull/41", "the categorical latent is sampled without a straight-through gradient", "encoder")
def dreamer_no_st(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.enc = nn.Sequential(nn.Linear(16, 64), nn.ELU(), nn.Linear(64, 6 * 8)); s.dec = nn.Sequential(nn.Linear(48, 64), nn.ELU(), nn.Linear(64, 16)); 
        def forward(s, x):
            p = s.enc(x).view(-1, 6, 8).softmax(-1); u = torch.rand_like(p).clamp(1e-6, 1 - 1e-6); z = F.one_hot((p.log() - (-u.log()).log()).argmax(-1), 8).float()
            if not planted: z = z + p - p.detach()
            return s.dec(z.flatten(1)), p
    def data(seed, B=64): c = T_(21, 24, 16) * 1.5; x = c[R(seed, 24, (B,))] + .2 * T_(seed + 1, B, 16); return x, x
    def loss(o, t): y, p = o; return F.mse_loss(y, t) + .01 * (p * (p * 8 + 1e-8).log()).sum(-1).mean()
    return dict(model=Net, data=data, loss=loss, diag={})

@case("https://github.com/YXNTU/GeneralDyG/issues/6", "the classifier ends in a sigmoid and the loss is binary cross-entropy with logits", "sigmoid (output)")
def generaldyg_double_sigmoid(planted):
    class Net(nn.Module):
        def __init__(s): super().__init__(); s.emb = nn.Embedding(20, 48); s.blocks = nn.ModuleList(Block(48, 4) for _ in range(2)); s.norm = nn.LayerNorm(48); s.classifier = nn.Linear(48, 1); s.sigmoid = nn.Sigmoid()
        def forward(s, x):
            x = s.emb(x)
            for b in s.blocks: x = b(x)
            y = s.classifier(s.norm(x).mean(1)); return (s.sigmoid(y) if planted else y).squeeze(-1)
    def data(seed, B=64): x = R(seed, 20, (B, 12)); w = T_(89, 20); return x, (w[x].sum(1) > 1.5).float()
    return dict(model=Net, data=data, loss=F.binary_cross_entropy_with_logits, diag=dict(loss=F.binary_cross_entropy_with_logits))

@case("https://github.com/mengcius/Surface-Defect-Detection/issues/3", "the segmentation logits pass through BatchNorm and ReLU before BCEWithLogits", "segment head (relu)")
def surface_relu_logits(planted):
    def model():
        c = lambda i, o, k=3: [nn.Conv2d(i, o, k, padding=k // 2), nn.BatchNorm2d(o), nn.ReLU()]
        return nn.Sequential(*c(1, 16), *c(16, 16), nn.MaxPool2d(2), *c(16, 24), *c(24, 24), *(c(24, 1, 1) if planted else [nn.Conv2d(24, 1, 1)]))
    def data(seed, B=32):
        g = gen(seed); c = torch.rand(B, 2, generator=g) * 12 + 2; p = torch.stack(torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij"), -1); m = ((p - c[:, None, None]).norm(dim=-1) < 3).float()[:, None]; return m * 1.2 + .5 * T_(seed + 1, B, 1, 16, 16), F.max_pool2d(m, 2)
    return dict(model=model, data=data, loss=F.binary_cross_entropy_with_logits, diag=dict(loss=F.binary_cross_entropy_with_logits))

@case("https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/257", "q, k, v are reshaped (b c t h w -> bt c hw) without a permute", "attn (reshape)")
def opensora_reshape(planted):
    class Attn3D(nn.Module):
        def __init__(s, c): super().__init__(); s.norm = nn.GroupNorm(4, c); s.q, s.k, s.v, s.proj_out = (nn.Conv3d(c, c, 1) for _ in range(4))
        def forward(s, x):
            h = s.norm(x); q, k, v = s.q(h), s.k(h), s.v(h); b, c, t, H, W = q.shape
            f = (lambda z: z.reshape(b * t, c, H * W)) if planted else (lambda z: z.permute(0, 2, 1, 3, 4).reshape(b * t, c, H * W)); q, k, v = f(q), f(k), f(v)
            a = (q.transpose(1, 2) @ k * c ** -.5).softmax(-1); o = v @ a.transpose(1, 2); o = o.reshape(b, c, t, H, W) if planted else o.view(b, t, c, H, W).permute(0, 2, 1, 3, 4); return x + s.proj_out(o)
    class Net(nn.Module):
        def __init__(s, c=24): super().__init__(); s.conv_in = nn.Conv3d(1, c, (1, 3, 3), padding=(0, 1, 1)); s.a = nn.ModuleList(Attn3D(c) for _ in range(2)); s.r = nn.ModuleList(nn.Sequential(nn.GroupNorm(4, c), nn.SiLU(), nn.Conv3d(c, c, (1, 1, 1))) for _ in range(2)); s.conv_out = nn.Conv3d(c, 1, (1, 3, 3), padding=(0, 1, 1))
        def forward(s, x):
            x = s.conv_in(x)
            for a, r in zip(s.a, s.r): x = a(x); x = x + r(x)
            return s.conv_out(x)
    def data(seed, B=16): # every pixel becomes the mean of its frame's bright pixels, times itself
        x = T_(seed, B, 1, 4, 6, 6); b = F.relu(x); m = (b * x).sum((3, 4), keepdim=True) / b.sum((3, 4), keepdim=True); return x, (m - 1.2) * 3 + .3 * x
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))

@case("https://github.com/fundamentalvision/Deformable-DETR/issues/6", "sampling offsets are divided by (h, w) while reference points are (x, y)", "deformable attention (normaliser)")
def deformable_norm(planted):
    H, W, N = 4, 16, 4
    class DA(nn.Module):
        def __init__(s, d):
            super().__init__(); s.off, s.att, s.val, s.out = nn.Linear(d, 2 * N), nn.Linear(d, N), nn.Linear(d, d), nn.Linear(d, d); nn.init.zeros_(s.off.weight); th = torch.arange(N) * 6.2832 / N; s.off.bias.data = torch.stack([th.cos(), th.sin()], -1).flatten() * 1.5
        def forward(s, q, ref, mem):
            B, Q, d = q.shape; n = torch.tensor([H, W] if planted else [W, H]).float(); loc = ref[:, :, None] + s.off(q).view(B, Q, N, 2) / n; v = s.val(mem).transpose(1, 2).view(B, d, H, W); o = F.grid_sample(v, loc * 2 - 1, align_corners=False); return s.out((o * s.att(q).softmax(-1)[:, None]).sum(-1).transpose(1, 2))
    class Net(nn.Module):
        def __init__(s, d=48): super().__init__(); s.inp = nn.Conv2d(3, d, 1); s.qe = nn.Linear(2, d); s.da = nn.ModuleList(DA(d) for _ in range(2)); s.ff = nn.ModuleList(mlp(d, 2) for _ in range(2)); s.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(4)); s.head = nn.Linear(d, 3)
        def forward(s, x, ref):
            mem = s.inp(x).flatten(2).transpose(1, 2); q = s.qe(ref)
            for i in range(2): q = s.n[2 * i](q + s.da[i](q, ref, mem)); q = s.n[2 * i + 1](q + s.ff[i](q))
            return s.head(q)
    def data(seed, B=32): x = T_(seed, B, 3, H, W); r = torch.rand(B, 8, 2, generator=gen(seed + 1)); sh = torch.tensor([1.5 / W, .8 / H]); a = F.grid_sample(x, (r + sh)[:, :, None] * 2 - 1, align_corners=False)[..., 0]; b = F.grid_sample(x, (r - sh)[:, :, None] * 2 - 1, align_corners=False)[..., 0]; return (x, r), (a - b).transpose(1, 2)
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))

@case("https://github.com/kathrinse/TabSurvey/issues/13", "TabTransformer without the shared column embedding", "embeds")
def tabsurvey_no_column(planted):
    class Net(nn.Module):
        def __init__(s, C=8, K=5, d=32): super().__init__(); s.embeds = nn.Embedding(C * K, d if planted else d - 4); nn.init.normal_(s.embeds.weight, std=.5); s.shared = None if planted else nn.Parameter(torch.randn(C, 4) * .5); s.register_buffer("offset", torch.arange(C) * K); s.blocks = nn.ModuleList(Block(d, 4) for _ in range(2)); s.norm = nn.LayerNorm(4); s.mlp = nn.Sequential(nn.Linear(C * d + 4, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(s, c, n):
            x = s.embeds(c + s.offset)
            if s.shared is not None: x = torch.cat([x, s.shared.expand(len(x), -1, -1)], -1)
            for b in s.blocks: x = b(x)
            return s.mlp(torch.cat([x.flatten(1), s.norm(n)], 1))
    def data(seed, B=64): c = R(seed, 5, (B, 8)); n = T_(seed + 1, B, 4); w = T_(79, 8, 5); z = torch.stack([w[i][c[:, i]] for i in range(8)], 1); return (c, n), (z[:, :4] * z[:, 4:]).sum(1, keepdim=True) + n[:, :1]
    return dict(model=Net, data=data, loss=mse, diag=dict(MSE))

@case("https://github.com/lucidrains/DALLE2-pytorch/issues/235", "the condition-dropping mask is made but never applied to the tokens", "prior (cond mask)")
def dalle2_cond_mask(planted):
    class Prior(nn.Module):
        def __init__(s, d=32): super().__init__(); s.t = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d)); s.null = nn.Parameter(torch.randn(d) * .3); s.q = nn.Parameter(torch.randn(d) * .3); s.pos = nn.Parameter(torch.randn(4, d) * .1); s.b = nn.ModuleList(Block(d, 4) for _ in range(2)); s.norm = nn.LayerNorm(d); s.out = nn.Linear(d, d)
        def forward(s, x, t, text, keep):
            if not planted: text = torch.where(keep[:, None] > .5, text, s.null)
            a = t[:, None] * torch.exp(-torch.arange(8) * .8); tk = torch.stack([text, s.t(torch.cat([a.sin(), a.cos()], -1)), x, s.q.expand_as(x)], 1) + s.pos
            for b in s.b: tk = b(tk)
            return s.out(s.norm(tk)[:, -1])
    def data(seed, B=64): e = T_(seed, B, 6); text, img = torch.tanh(e @ T_(73, 6, 32)), torch.tanh(e @ T_(74, 6, 32)); g = gen(seed + 1); t = torch.rand(B, generator=g) * 10; k = (torch.rand(B, generator=g) > .2).float(); a = torch.cos(t / 10 * 1.5)[:, None]; return (a * img + (1 - a * a).sqrt() * T_(seed + 2, B, 32), t, text, k), img
    return dict(model=Prior, data=data, loss=mse, diag=dict(MSE))
