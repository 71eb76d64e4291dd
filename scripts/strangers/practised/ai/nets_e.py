from base import *

@case("http://brick-house.org/df3ace24-439b-4ae2-a943-72665a2a1c0b?page=8", "residual branches of a deep alternating-coupling stack added without residual scaling", "layers (residual sum)")
def coupled_no_res_scale(planted):
    L, D = 24, 32
    def layer():
        s = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))
        for m in s:
            if isinstance(m, nn.Linear): nn.init.kaiming_normal_(m.weight); nn.init.zeros_(m.bias)
        return s
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Linear(16, 2 * D); s.layers = nn.ModuleList(layer() for _ in range(L)); s.head = nn.Linear(2 * D, 10)
            s.res_scale = 1.0 if planted else 1 / math.sqrt(2 * L)
        def forward(s, x):
            f, g = s.embed(x).chunk(2, -1)
            for i, l in enumerate(s.layers):
                if i % 2 == 0: f = f + s.res_scale * l(g)
                else: g = g + s.res_scale * l(f)
            return s.head(torch.cat([f, g], -1))
    W = T(1, 16, 10)
    def data(seed): x = T(seed, 64, 16); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://fast.hugflare.com/spartan8806/model-clinic/blob/main/docs/models_recovered.md", "memory read gate initialised at sigmoid(-5), the branch gets almost no gradient", "read_gate")
def gate_closed(planted):
    class Memory(nn.Module):
        def __init__(s, d):
            super().__init__(); s.k = nn.Linear(12, d); s.v = nn.Linear(12, d); s.out = nn.Linear(d, d)
        def forward(s, mem): return s.out(torch.tanh(s.k(mem)) * torch.sigmoid(s.v(mem)))
    class Net(nn.Module):
        def __init__(s, d=48):
            super().__init__(); s.inp = nn.Linear(8, d); s.memory = Memory(d); s.read_gate = nn.Parameter(torch.full((d,), -5.0 if planted else 0.0))
            s.norm = nn.LayerNorm(d); s.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)); s.head = nn.Linear(d, 6)
        def forward(s, x, mem):
            h = s.inp(x); h = h + torch.sigmoid(s.read_gate) * s.memory(mem)
            return s.head(h + s.ff(s.norm(h)))
    A, B = T(2, 8, 6) * .3, T(3, 12, 6)
    def data(seed): x, m = T(seed, 64, 8), T(seed + 77777, 64, 12); return (x, m), (x @ A + m @ B).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("http://www.webkkk.net/ostris/ai-toolkit/pull/724", "expanded LoRA ranks zero-initialised in lora_down and in lora_up", "lora_down/lora_up")
def lora_expand_zeros(planted):
    class LoRALinear(nn.Module):
        def __init__(s, i, o, old=2, r=16):
            super().__init__(); s.base = nn.Linear(i, o); s.base.requires_grad_(False)
            down, up = torch.zeros(r, i), torch.zeros(o, r)
            down[:old] = torch.randn(old, i) / i ** .5; up[:, :old] = torch.randn(o, old) * .02
            if not planted: nn.init.kaiming_uniform_(down[old:], a=5 ** .5); up[:, old:] = torch.randn(o, r - old) * .002
            s.lora_down, s.lora_up = nn.Parameter(down), nn.Parameter(up)
        def forward(s, x): return s.base(x) + x @ s.lora_down.T @ s.lora_up.T
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.attn_in = LoRALinear(24, 32); s.attn_out = LoRALinear(32, 24)
        def forward(s, x): return s.attn_out(F.silu(s.attn_in(x)))
    W1, W2 = T(4, 24, 32) / 24 ** .5, T(5, 32, 24) / 32 ** .5
    def data(seed): x = T(seed, 64, 24); return x, F.silu(x @ W1) @ W2 * 2
    return dict(model=Net, data=data, loss=mse, lr=1e-2, diag={})

@case("https://kent-ai-dev.github.io/engram/", "vocabulary matrix of sentence embeddings held as a fixed buffer instead of a parameter", "vocab_matrix_global")
def frozen_vocab(planted):
    V, D, C = 60, 32, 4
    cent = T(6, 6, D); vec = F.normalize(cent[torch.arange(V) % 6] + .12 * T(7, V, D), dim=-1)
    class AttentionBrain(nn.Module):
        def __init__(s):
            super().__init__()
            if planted: s.register_buffer("vocab_matrix_global", vec.clone())
            else: s.vocab_matrix_global = nn.Parameter(vec.clone())
            s.pos = nn.Parameter(torch.randn(C, D) * .02); s.attn = nn.MultiheadAttention(D, 4, batch_first=True); s.ln1 = nn.LayerNorm(D); s.ln2 = nn.LayerNorm(D)
            s.ff = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
        def forward(s, ids):
            h = s.vocab_matrix_global[ids] + s.pos; q = s.ln1(h); h = h + s.attn(q, q, q, need_weights=False)[0]; h = (h + s.ff(s.ln2(h)))[:, -1]
            return 30. * F.normalize(h, dim=-1) @ F.normalize(s.vocab_matrix_global, dim=-1).T
    perm = torch.randperm(V, generator=gen(8))
    def data(seed): x = R(seed, V, (64, C)); return x, perm[x[:, -1]]
    return dict(model=AttentionBrain, data=data, loss=ce, lr=5e-3, diag={})

@case("https://datascience.stackexchange.com/questions/39929/why-normalize-when-all-features-are-on-the-same-scale", "pixels 0..255 fed without division by 255", "input scale")
def raw_pixels(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.flatten = nn.Flatten(); s.dense1 = nn.Linear(196, 128); s.dense2 = nn.Linear(128, 10)
        def forward(s, img):
            img = img.float() if planted else img.float() / 255.0
            return s.dense2(F.relu(s.dense1(s.flatten(img)))).softmax(-1)
    P = torch.rand(10, 14, 14, generator=gen(9))
    def data(seed):
        t = R(seed, 10, (32,)); x = (P[t] * .6 + .4 * torch.rand(32, 14, 14, generator=gen(seed + 1))) * (torch.rand(32, 14, 14, generator=gen(seed + 2)) < .7)
        return (x * 255).round(), t
    def sparse_categorical_crossentropy(p, t): return -p.clamp(1e-7, 1 - 1e-7).log().gather(1, t[:, None]).mean()
    return dict(model=Net, data=data, loss=sparse_categorical_crossentropy, lr=1e-3, diag={})

@case("https://thinbug.com/q/55030217", "softmax applied to fc3 before CrossEntropyLoss", "softmax after fc3")
def cifar_softmax(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(3, 6, 5); s.pool = nn.MaxPool2d(2, 2); s.conv2 = nn.Conv2d(6, 16, 5); s.fc1 = nn.Linear(16 * 5 * 5, 120); s.fc2 = nn.Linear(120, 84); s.fc3 = nn.Linear(84, 10)
        def forward(s, x):
            x = s.pool(F.relu(s.conv1(x))); x = s.pool(F.relu(s.conv2(x))); x = x.view(-1, 400); x = F.relu(s.fc1(x)); x = F.relu(s.fc2(x)); x = s.fc3(x)
            return F.softmax(x, dim=1) if planted else x
    P = F.interpolate(T(10, 10, 3, 8, 8), size=32, mode="bilinear")
    def data(seed): t = R(seed, 10, (32,)); return P[t] + T(seed + 1, 32, 3, 32, 32), t
    return dict(model=Net, data=data, loss=ce, lr=1e-3, diag={})

@case("https://runebook.dev/en/docs/pytorch/generated/torch.nn.nllloss/torch.nn.NLLLoss", "raw logits given to NLLLoss, log_softmax missing", "log_softmax after fc2")
def nll_raw_logits(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.fc1 = nn.Linear(20, 64); s.bn = nn.BatchNorm1d(64); s.fc2 = nn.Linear(64, 5)
        def forward(s, x):
            x = s.fc2(F.relu(s.bn(s.fc1(x))))
            return x if planted else F.log_softmax(x, dim=1)
    W = T(11, 20, 5)
    def data(seed): x = T(seed, 32, 20); return x, (x @ W).argmax(1)
    def metric(m):
        with torch.no_grad(): x, t = data(9001); return F.cross_entropy(m(x), t)
    return dict(model=Net, data=data, loss=lambda o, t: F.nll_loss(o, t), lr=5e-3, diag={}, metric=metric)

@case("https://tmin.drm.hk/DivyanshK12/gpt2-recreation", "residual connections missing in the transformer Block", "Block.forward")
def gpt_no_residual(planted):
    V, D, S = 24, 32, 12
    class Block(nn.Module):
        def __init__(s):
            super().__init__(); s.ln_1 = nn.LayerNorm(D); s.attn = nn.MultiheadAttention(D, 4, batch_first=True); s.ln_2 = nn.LayerNorm(D); s.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
        def forward(s, x, mask):
            q = s.ln_1(x); a = s.attn(q, q, q, attn_mask=mask, need_weights=False)[0]
            x = a if planted else x + a
            return s.mlp(s.ln_2(x)) if planted else x + s.mlp(s.ln_2(x))
    class GPT(nn.Module):
        def __init__(s):
            super().__init__(); s.wte = nn.Embedding(V, D); s.wpe = nn.Embedding(S, D); s.h = nn.ModuleList(Block() for _ in range(6)); s.ln_f = nn.LayerNorm(D); s.lm_head = nn.Linear(D, V, bias=False)
            s.register_buffer("mask", torch.triu(torch.ones(S, S), 1).bool())
        def forward(s, i):
            x = s.wte(i) + s.wpe(torch.arange(S))
            for b in s.h: x = b(x, s.mask)
            return s.lm_head(s.ln_f(x))
    P = T(12, V, V, k=2.5).softmax(-1)
    def data(seed):
        g = gen(seed); q = [torch.randint(0, V, (16,), generator=g)]
        for _ in range(S): q.append(torch.multinomial(P[q[-1]], 1, generator=g)[:, 0])
        q = torch.stack(q, 1); return q[:, :-1], q[:, 1:]
    return dict(model=GPT, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://www.orionsarm.com/forum/showthread.php?tid=1879&pid=19219&mode=threaded", "logistic sigmoid in a network with more than a few hidden layers", "hidden activations")
def sigmoid_deep(planted):
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.hidden = nn.ModuleList(nn.Linear(16 if i == 0 else 32, 32) for i in range(7)); s.out = nn.Linear(32, 4)
            for m in s.modules():
                if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight); nn.init.zeros_(m.bias)
        def forward(s, x):
            for l in s.hidden: x = l(x); x = torch.sigmoid(x) if planted else F.softsign(x)
            return s.out(x)
    W = T(13, 16, 4)
    def data(seed): x = T(seed, 64, 16); return x, (x @ W).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})
