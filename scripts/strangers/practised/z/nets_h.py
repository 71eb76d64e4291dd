from base import *

def markov(s, B, L, V, k=3.0):
    P = torch.softmax(T(5, V, V, k=k), -1); g = gen(s); x = [torch.randint(0, V, (B,), generator=g)]
    for _ in range(L): x.append(torch.multinomial(P[x[-1]], 1, generator=g)[:, 0])
    return torch.stack(x, 1)

@case("https://github.com/NX-AI/xlstm/issues/83", "tied in the wrong direction: the lm_head takes the N(0,1) of the embedding, loss 400 instead of 10", "lm_head.weight / token_embedding tying")
def xlstm_tie(planted):
    V, D = 64, 256
    class mLSTMBlock(nn.Module):
        def __init__(s):
            super().__init__(); s.norm = nn.LayerNorm(D); s.cell = nn.LSTM(D, D // 2, batch_first=True); s.proj = nn.Linear(D // 2, D)
        def forward(s, x): return x + s.proj(s.cell(s.norm(x))[0])
    class xLSTMLMModel(nn.Module):
        def __init__(s):
            super().__init__(); s.token_embedding = nn.Embedding(V, D); s.block = mLSTMBlock(); s.post_norm = nn.LayerNorm(D); s.lm_head = nn.Linear(D, V, bias=False)
            nn.init.normal_(s.lm_head.weight, std=math.sqrt(2 / (5 * D)))
            if planted: s.lm_head.weight = s.token_embedding.weight
            else: s.token_embedding.weight = s.lm_head.weight
        def forward(s, x): return s.lm_head(s.post_norm(s.block(s.token_embedding(x))))
    def data(seed): x = markov(seed, 32, 16, V, 4.0); return x[:, :-1], x[:, 1:]
    return dict(model=xLSTMLMModel, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/Modalities/modalities/pull/456", "Llama3Initializer: tied wte initialised with std=1 instead of 1/sqrt(n_embd)", "transformer.wte / lm_head weight init")
def modalities_tie(planted):
    V, D = 48, 128
    class Block(nn.Module):
        def __init__(s):
            super().__init__(); s.attention_norm, s.ffn_norm = nn.RMSNorm(D), nn.RMSNorm(D); s.qkv, s.c_proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False); s.W, s.V, s.W_2 = nn.Linear(D, 256, bias=False), nn.Linear(D, 256, bias=False), nn.Linear(256, D, bias=False)
        def forward(s, x):
            B, L, _ = x.shape; q, k, v = (y.view(B, L, 4, D // 4).transpose(1, 2) for y in s.qkv(s.attention_norm(x)).split(D, -1))
            x = x + s.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D)); h = s.ffn_norm(x); return x + s.W_2(F.silu(s.W(h)) * s.V(h))
    class GPT2LLM(nn.Module):
        def __init__(s):
            super().__init__(); s.wte = nn.Embedding(V, D); s.h = nn.ModuleList([Block(), Block()]); s.lm_head_norm = nn.RMSNorm(D); s.lm_head = nn.Linear(D, V, bias=False); s.lm_head.weight = s.wte.weight
            for n, p in s.named_parameters():
                if p.dim() == 2: nn.init.trunc_normal_(p, std=.02)
            std = 1.0 if planted else D ** -.5; nn.init.trunc_normal_(s.wte.weight, std=std, a=-3 * std, b=3 * std)
        def forward(s, x):
            x = s.wte(x)
            for b in s.h: x = b(x)
            return s.lm_head(s.lm_head_norm(x))
    def data(seed): x = markov(seed, 32, 16, V, 4.0); return x[:, :-1], x[:, 1:]
    return dict(model=GPT2LLM, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/strutive07/transformer-tensorflow2.0/issues/14", "feed forward residual adds the block's inputs instead of the attention output", "layer_norm_2(inputs + output)")
def ffn_residual(planted):
    D = 32
    class EncoderLayer(nn.Module):
        def __init__(s):
            super().__init__(); s.multi_head_attention = nn.MultiheadAttention(D, 4, batch_first=True); s.layer_norm_1, s.layer_norm_2 = nn.LayerNorm(D), nn.LayerNorm(D); s.ffn = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, D))
        def forward(s, inputs):
            o = s.layer_norm_1(inputs + s.multi_head_attention(inputs, inputs, inputs, need_weights=False)[0]); f = s.ffn(o); return s.layer_norm_2((inputs if planted else o) + f)
    class Encoder(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(30, D); s.pos = nn.Parameter(T(1, 12, D, k=.3)); s.layers = nn.Sequential(*[EncoderLayer() for _ in range(3)]); s.fc = nn.Linear(D, 10)
        def forward(s, x): return s.fc(s.layers(s.embedding(x) + s.pos))
    def data(seed): x = R(seed, 30, (32, 12)); return x, (T(4, 30, 10)[x] + T(5, 30, 10, k=2.)[x].mean(1, keepdim=True)).argmax(-1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/maruya24/pytorch_robotics_transformer/issues/3", "transformer layers kept in a python list, not registered, never trained", "Transformer.layers")
def robotics_list(planted):
    D = 32
    class _TransformerLayer(nn.Module):
        def __init__(s):
            super().__init__(); s.layernorm_1, s.layernorm_2 = nn.LayerNorm(D), nn.LayerNorm(D); s.mha1 = nn.MultiheadAttention(D, 4, batch_first=True); s.ff = nn.Linear(D, D)
        def forward(s, x, m): h = s.layernorm_1(x); x = x + s.mha1(h, h, h, attn_mask=m, need_weights=False)[0]; return x + s.ff(s.layernorm_2(x))
    class Transformer(nn.Module):
        def __init__(s):
            super().__init__(); l = [_TransformerLayer() for _ in range(3)]; s.layers = l if planted else nn.ModuleList(l); s.token_emb = nn.Linear(10, D); s.position_emb = nn.Embedding(12, D); s.output_tokens = nn.Linear(D, 8)
        def forward(s, x):
            m = torch.triu(torch.ones(12, 12, dtype=torch.bool), 1); x = s.token_emb(x) + s.position_emb(torch.arange(12))
            for l in s.layers: x = l(x, m)
            return s.output_tokens(x)
    def data(seed):
        x = T(seed, 32, 12, 10); c = x.cumsum(1) / torch.arange(1, 13.)[:, None]; return x, (torch.tanh(x @ T(6, 10, 40)) @ T(7, 40, 8) + 3 * c @ T(8, 10, 8)).argmax(-1)
    return dict(model=Transformer, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/linkedin/Liger-Kernel/pull/269", "[ResBlock(h)] * n repeats one instance: layers of each Medusa head share weights", "medusa_head Sequential of one ResBlock")
def medusa_share(planted):
    V, D, n = 24, 32, 3
    class ResBlock(nn.Module):
        def __init__(s): super().__init__(); s.linear = nn.Linear(D, D); nn.init.zeros_(s.linear.weight); s.act = nn.SiLU()
        def forward(s, x): return x + s.act(s.linear(x))
    class MedusaModel(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(V, D); s.rnn = nn.GRU(D, D, batch_first=True)
            mk = (lambda: [ResBlock()] * n) if planted else (lambda: [ResBlock() for _ in range(n)]); s.medusa_head = nn.ModuleList([nn.Sequential(*mk(), nn.Linear(D, V, bias=False)) for _ in range(2)])
        def forward(s, x): h, _ = s.rnn(s.embed(x)); return torch.stack([m(h) for m in s.medusa_head], 2)
    def data(seed): x = markov(seed, 32, 14, V, 4.0); return x[:, :-2], torch.stack([x[:, 1:-1], x[:, 2:]], 2)
    return dict(model=MedusaModel, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/alinlab/CSI/issues/49", "Supervised NT-Xent: the pair (i, i) stays among the positives", "Mask without (1 - eye) in Supervised_NT_xent")
def csi_supcon(planted):
    class SimclrLayer(nn.Module):
        def __init__(s):
            super().__init__(); s.backbone = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()); s.simclr_layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
        def forward(s, x): return F.normalize(s.simclr_layer(s.backbone(x)), dim=1)
    def data(seed): y = R(seed, 6, (64,)); return T(8, 6, 20)[y] * .7 + T(seed + 1, 64, 20), y
    def mk(bad):
        def loss(z, t):
            eye = torch.eye(len(z)); sim = torch.exp(z @ z.T / .5) * (1 - eye); den = sim.sum(1, keepdim=True); sim = -torch.log(sim / (den + 1e-8) + 1e-8)
            M_ = (t[:, None] == t[None]).float(); M_ = M_ if bad else M_ * (1 - eye); M_ = M_ / (M_.sum(1, keepdim=True) + 1e-8); return (M_ * sim).sum() / len(z)
        return loss
    return dict(model=SimclrLayer, data=data, loss=mk(planted), lr=1e-3, diag={})

@case("https://github.com/keras-team/keras-io/pull/2261", "BatchNorm + Dense(1, sigmoid) on the distance before a margin contrastive loss", "output layer Dense(1, sigmoid)")
def keras_siamese(planted):
    class Siamese(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding_network = nn.Sequential(nn.BatchNorm1d(24), nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.BatchNorm1d(32), nn.Linear(32, 10), nn.Tanh()); s.normal_layer = nn.BatchNorm1d(1); s.output_layer = nn.Linear(1, 1)
        def forward(s, a, b):
            d = torch.sqrt((s.embedding_network(a) - s.embedding_network(b)).pow(2).sum(1, keepdim=True).clamp_min(1e-7))
            return (torch.sigmoid(s.output_layer(s.normal_layer(d))) if planted else d)[:, 0]
    def data(seed):
        C = T(8, 5, 24); ya, yb = R(seed, 5, (64,)), R(seed + 1, 5, (64,)); same = R(seed + 2, 2, (64,)); yb = torch.where(same == 1, ya, yb); return (C[ya] + T(seed + 3, 64, 24, k=.6), C[yb] + T(seed + 4, 64, 24, k=.6)), (ya != yb).float()
    return dict(model=Siamese, data=data, loss=lambda d, t: ((1 - t) * d ** 2 + t * (1 - d).clamp_min(0) ** 2).mean(), lr=2e-3, diag={})

@case("https://github.com/tensorflow/recommenders/issues/219", "sampling probability correction adds log(p) to the logits instead of subtracting it", "logits + log(candidate_sampling_probability) in the loss")
def tfrs_sampling(planted):
    NU, NI = 60, 80
    pop = torch.softmax(T(3, NI, k=1.5), 0); pref = T(4, NU, 6, k=1.0) @ T(5, 6, NI, k=1.0)
    class TwoTower(nn.Module):
        def __init__(s):
            super().__init__(); s.user_model, s.movie_model = nn.Sequential(nn.Embedding(NU, 32), nn.Linear(32, 32)), nn.Sequential(nn.Embedding(NI, 32), nn.Linear(32, 32))
        def forward(s, u, i, p): return s.user_model(u) @ s.movie_model(i).T, p
    def data(seed):
        g = gen(seed); u = torch.randint(0, NU, (64,), generator=g); q = torch.softmax(pref[u] + pop.log(), -1); i = torch.multinomial(q, 1, generator=g)[:, 0]; return (u, i, torch.softmax(pref + pop.log(), -1).mean(0)[i]), torch.arange(64)
    def mk(sign): return lambda o, t: F.cross_entropy(o[0] + sign * o[1].clamp_min(1e-6).log(), t)
    return dict(model=TwoTower, data=data, loss=mk(1. if planted else -1.), lr=1e-2, diag={})

@case("https://github.com/huggingface/trl/issues/1627", "DPO with beta = 0.0: loss stays at 0.6931", "beta factor in the DPO loss")
def dpo_beta(planted):
    V, D = 20, 32
    class LM(nn.Module):
        def __init__(s): super().__init__(); s.embed = nn.Embedding(V, D); s.rnn = nn.LSTM(D, D, batch_first=True); s.lm_head = nn.Linear(D, V)
        def forward(s, x): return F.log_softmax(s.lm_head(s.rnn(s.embed(x[:, :-1]))[0]), -1).gather(2, x[:, 1:, None])[..., 0].sum(1)
    class DPO(nn.Module):
        def __init__(s):
            super().__init__(); s.policy, s.ref = LM(), LM(); s.ref.load_state_dict(s.policy.state_dict()); s.ref.requires_grad_(False)
        def forward(s, c, r): return s.policy(c) - s.policy(r) - (s.ref(c) - s.ref(r))
    def data(seed): c, r = R(seed, V, (32, 8)), R(seed + 1, V, (32, 8)); w = T(2, V)[c].sum(1) > T(2, V)[r].sum(1); w = w[:, None]; return (torch.where(w, c, r), torch.where(w, r, c)), torch.ones(32)
    beta = 0. if planted else .1
    return dict(model=DPO, data=data, loss=lambda o, t: -F.logsigmoid(beta * o).mean(), lr=5e-3, diag={})

@case("https://github.com/kmkurn/pytorch-crf/issues/81", "crf returns the log likelihood and it is minimised without the minus", "sign of the crf loss")
def crf_sign(planted):
    V, K, L = 30, 5, 10
    class BiLSTM_CRF(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(V, 16); s.lstm = nn.LSTM(16, 16, batch_first=True, bidirectional=True); s.fc = nn.Linear(32, K); s.transitions = nn.Parameter(torch.empty(K, K).uniform_(-.1, .1))
        def forward(s, x): return s.fc(s.lstm(s.embed(x))[0]), s.transitions
    def llh(o, y):
        e, A = o; sc = e.gather(2, y[..., None])[..., 0].sum(1) + A[y[:, :-1], y[:, 1:]].sum(1); a = e[:, 0]
        for t in range(1, L): a = torch.logsumexp(a[:, :, None] + A[None], 1) + e[:, t]
        return (sc - torch.logsumexp(a, 1)).mean()
    def data(seed): x = R(seed, V, (32, L)); p = torch.cat([x[:, :1], x[:, :-1]], 1); return x, (x + p // 10) % K
    return dict(model=BiLSTM_CRF, data=data, loss=(lambda o, t: llh(o, t)) if planted else (lambda o, t: -llh(o, t)), lr=1e-2, diag={})

@case("https://github.com/pgniewko/gt-pyg/issues/110", "LayerNorm right after sum pooling removes the molecule size", "readout_norm after global sum pool")
def gtpyg_sumnorm(planted):
    N, D = 16, 32
    class GraphTransformerNet(nn.Module):
        def __init__(s):
            super().__init__(); s.node_emb = nn.Linear(8, D); s.gt = nn.ModuleList([nn.MultiheadAttention(D, 4, batch_first=True) for _ in range(2)]); s.norms = nn.ModuleList([nn.LayerNorm(D) for _ in range(2)]); s.readout_norm = nn.LayerNorm(D) if planted else nn.Identity(); s.mu_mlp = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, 1))
        def forward(s, x, mask):
            h = s.node_emb(x)
            for a, n in zip(s.gt, s.norms): z = n(h); h = h + a(z, z, z, key_padding_mask=~mask, need_weights=False)[0]
            return s.mu_mlp(s.readout_norm((h * mask[..., None]).sum(1)))[:, 0]
    def data(seed):
        n = R(seed, N - 3, (64,)) + 3; mask = torch.arange(N)[None] < n[:, None]; x = T(seed + 1, 64, N, 8) * mask[..., None]; w = T(3, 8, k=.12); return (x, mask), (n - 9.) / 4 + (torch.tanh(x @ w) * mask).sum(1) * .5
    return dict(model=GraphTransformerNet, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/flyingdoog/PGExplainer/issues/6", "graph readout pools over axis -1 (features) instead of the nodes", "pooling axis in the readout")
def pgexplainer_pool(planted):
    N, D = 20, 20
    class GNN(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2, s.conv3 = nn.Linear(10, D), nn.Linear(D, D), nn.Linear(D, D); s.pred = nn.Linear(2 * D, 3)
        def forward(s, x, adj):
            for c in (s.conv1, s.conv2, s.conv3): x = F.relu(c(adj @ x))
            d = -1 if planted else 1; return s.pred(torch.cat([x.max(d).values, x.sum(d) * .1], 1))
    def data(seed):
        A = (torch.rand(64, N, N, generator=gen(seed)) < .12).float(); A = ((A + A.transpose(1, 2)) > 0).float() + torch.eye(N); A = (A > 0).float(); A = A / A.sum(-1, keepdim=True); x = T(seed + 1, 64, N, 10) + T(seed + 2, 64, 1, 10); return (x, A), (x.mean(1) @ T(4, 10, 3)).argmax(1)
    return dict(model=GNN, data=data, loss=ce, lr=5e-3, diag={})
