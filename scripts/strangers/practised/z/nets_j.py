from base import *

@case("https://github.com/keras-team/keras/issues/4994", "Dense(1) + sigmoid squeezed in before the softmax layer", "Dense(1)/sigmoid bottleneck")
def newsgroup_bottleneck(planted):
    class LSTMText(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding_layer = nn.Embedding(60, 32); s.lstm = nn.LSTM(32, 64, batch_first=True); s.dropout = nn.Dropout(.2); s.dense_1 = nn.Linear(64, 1 if planted else 20); s.dense_2 = nn.Linear(1 if planted else 20, 10)
        def forward(s, x): h, _ = s.lstm(s.dropout(s.embedding_layer(x))); h = s.dense_1(h[:, -1]); return s.dense_2(torch.sigmoid(h) if planted else torch.relu(h))
    def data(seed):
        y = R(seed, 10, (64,)); x = R(seed + 1, 60, (64, 12)); topic = y[:, None] * 6 + R(seed + 2, 6, (64, 12)); return torch.where(torch.rand(64, 12, generator=gen(seed + 3)) < .6, topic, x), y
    return dict(model=LSTMText, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/LuEE-C/PPO-Keras/issues/13", "tanh on the critic output, returns are far outside [-1, 1]", "critic out_value activation")
def ppo_keras_critic(planted):
    class Critic(nn.Module):
        def __init__(s): super().__init__(); s.dense_1, s.dense_2, s.out_value = nn.Linear(8, 128), nn.Linear(128, 128), nn.Linear(128, 1)
        def forward(s, x): x = torch.tanh(s.dense_2(torch.tanh(s.dense_1(x)))); v = s.out_value(x); return torch.tanh(v) if planted else v
    def data(seed): x = T(seed, 64, 8); return x, 6 * torch.tanh(x @ T(3, 8, 1, k=.5)) + 2
    return dict(model=Critic, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/dennybritz/reinforcement-learning/issues/186", "relu on the Q output layer (contrib fully_connected default)", "predictions: output activation relu")
def dqn_relu_out(planted):
    class Estimator(nn.Module):
        def __init__(s): super().__init__(); s.conv1, s.conv2 = nn.Conv2d(4, 16, 4, 2), nn.Conv2d(16, 32, 3, 1); s.fc1 = nn.Linear(32 * 9, 64); s.predictions = nn.Linear(64, 4)
        def forward(s, x, a):
            x = F.relu(s.conv2(F.relu(s.conv1(x)))); q = s.predictions(F.relu(s.fc1(x.flatten(1)))); return (F.relu(q) if planted else q).gather(1, a[:, None])[:, 0]
    def data(seed): x, a = T(seed, 64, 4, 12, 12), R(seed + 1, 4, (64,)); m = F.avg_pool2d(x, 6).flatten(1) * 4; return (x, a), (torch.tanh(m @ T(4, 16, 4, k=.3)) - .9).gather(1, a[:, None])[:, 0]
    return dict(model=Estimator, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/dmlc/dgl/issues/5802", "teacher forcing feeds the current target, decoder learns to copy it", "decoder input teacher_states[i]")
def dgl_teacher(planted):
    N, Lh = 8, 12
    class GraphRNN(nn.Module):
        def __init__(s): super().__init__(); s.encoder, s.decoder = nn.GRUCell(2, 32), nn.GRUCell(2, 32); s.out = nn.Linear(32, 1)
        def forward(s, x, teach, adj):
            B = x.shape[0]; mix = lambda z: torch.stack([z, z @ adj.T], -1).reshape(B * N, 2); h = x.new_zeros(B * N, 32)
            for t in range(Lh): h = s.encoder(mix(x[:, t]), h)
            o = []
            for i in range(Lh): h = s.decoder(mix(teach[:, i]), h); o.append(s.out(h).view(B, N))
            return torch.stack(o, 1)
    A = torch.softmax(T(2, N, N, k=1.5), -1); Q = torch.linalg.qr(T(7, N, N))[0]
    def data(seed):
        z = [T(seed, 32, N)]
        for t in range(2 * Lh - 1): z.append(.75 * z[-1] @ A.T + .2 * z[-1] + .6 * T(seed + 100 + t, 32, N))
        z = torch.stack(z, 1); f = z[:, Lh:]; prev = torch.cat([z[:, Lh - 1:Lh], f[:, :-1]], 1); return (z[:, :Lh], f if planted else prev, A), f
    return dict(model=GraphRNN, data=data, loss=mse, lr=5e-3, diag={})

@case("https://github.com/deeplearning4j/deeplearning4j/issues/8663", "Xavier with fanIn = vocabSize makes the embedding values tiny", "embedding init")
def dl4j_embedding(planted):
    V, D = 5000, 32
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, D); s.lstm = nn.LSTM(D, 32, batch_first=True); s.output = nn.Linear(32, 4)
            nn.init.normal_(s.embedding.weight, 0, math.sqrt(2 / (V + D)) if planted else 1.)
        def forward(s, x): return s.output(s.lstm(s.embedding(x))[0][:, -1])
    def data(seed): x = (R(seed, 40, (64, 8)) * 117) % V; return x, T(2, V, 4)[x].sum(1).argmax(1)
    return dict(model=Net, data=data, loss=ce, lr=2e-3, diag={})

@case("https://github.com/vukrosic/leo-optimizer/pull/2", "rotary applied along the heads axis instead of the sequence axis (q, k as B,H,T,D)", "rotary on (B, H, T, D)")
def leo_rope(planted):
    V, D, H = 16, 32, 4
    class Rotary(nn.Module):
        def __init__(s, dim, n=64): super().__init__(); f = torch.arange(n).float()[:, None] * (1 / 1024) ** torch.linspace(0, 1, dim // 2); s.register_buffer("cos", f.cos()); s.register_buffer("sin", f.sin())
        def forward(s, x): c, sn = s.cos[None, :x.size(-3), None], s.sin[None, :x.size(-3), None]; a, b = x.chunk(2, -1); return torch.cat((a * c + b * sn, -a * sn + b * c), -1)
    class Block(nn.Module):
        def __init__(s): super().__init__(); s.norm1, s.norm2 = nn.RMSNorm(D), nn.RMSNorm(D); s.qkv, s.w_o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False); s.rotary = Rotary(D // H); s.ff = nn.Sequential(nn.Linear(D, 64, bias=False), nn.SiLU(), nn.Linear(64, D, bias=False))
        def forward(s, x):
            B, L, _ = x.shape; q, k, v = s.qkv(s.norm1(x)).view(B, L, 3, H, D // H).permute(2, 0, 3, 1, 4)
            if planted: q, k = s.rotary(q), s.rotary(k)
            else: q, k = s.rotary(q.transpose(1, 2)).transpose(1, 2), s.rotary(k.transpose(1, 2)).transpose(1, 2)
            x = x + s.w_o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, L, D)); return x + s.ff(s.norm2(x))
    class MinimalLLM(nn.Module):
        def __init__(s):
            super().__init__(); s.token_embedding = nn.Embedding(V, D); s.transformer_blocks = nn.Sequential(Block(), Block()); s.norm = nn.RMSNorm(D); s.lm_head = nn.Linear(D, V, bias=False)
        def forward(s, x): return s.lm_head(s.norm(s.transformer_blocks(s.token_embedding(x) * math.sqrt(D))))
    def data(seed):
        P = torch.softmax(T(5, V, V, k=3.0), -1); g = gen(seed); x = [torch.randint(0, V, (32,), generator=g) for _ in range(2)]
        for _ in range(14): x.append(torch.multinomial(P[x[-2]], 1, generator=g)[:, 0])
        x = torch.stack(x, 1); return x[:, :-1], x[:, 1:]
    return dict(model=MinimalLLM, data=data, loss=ceseq, lr=5e-3, diag={})

@case("https://github.com/Alexander-H-Liu/End-to-end-ASR-Pytorch/issues/6", "Speller RNN without batch_first: (B,1,D) steps recur over the batch", "Speller layer batch_first")
def las_spell(planted):
    V, L = 10, 6
    class Speller(nn.Module):
        def __init__(s): super().__init__(); s.layer = nn.LSTM(16 + 32, 32, 1, batch_first=not planted); s.phi, s.psi = nn.Linear(32, 32), nn.Linear(32, 32)
        def step(s, inp, ctx, st, enc):
            o, st = s.layer(torch.cat([inp, ctx], -1), st); a = F.softmax(s.phi(o) @ s.psi(enc).transpose(1, 2), -1); return o, a @ enc, st
    class Seq2Seq(nn.Module):
        def __init__(s): super().__init__(); s.listener = nn.LSTM(8, 16, batch_first=True, bidirectional=True); s.embed = nn.Embedding(V + 1, 16); s.decoder = Speller(); s.char_trans = nn.Linear(64, V)
        def forward(s, x, y):
            enc, _ = s.listener(x); B = len(x); y = s.embed(torch.cat([torch.full((B, 1), V), y[:, :-1]], 1)); ctx, st, out = enc[:, :1], None, []
            for t in range(L): o, ctx, st = s.decoder.step(y[:, t:t + 1], ctx, st, enc); out.append(s.char_trans(torch.cat([o, ctx], -1)))
            return torch.cat(out, 1)
    def data(seed): a, b = R(seed, V, (32, 1)), R(seed + 1, 3, (32, 1)) + 1; y = (a + b * torch.arange(L) ** 2) % V; x = T(3, V, 8)[y[:, :2]].repeat_interleave(4, 1) + T(seed + 2, 32, 8, 8, k=.3); return (x, y), y
    return dict(model=Seq2Seq, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/mflux-community/mflux/issues/739", "both LoRA factors drawn from U(-1/sqrt(in), 1/sqrt(in)): training does not start from the base model", "lora_B init")
def mflux_lora(planted):
    class LoRALinear(nn.Module):
        def __init__(s, i, o, r=8):
            super().__init__(); s.linear = nn.Linear(i, o); s.linear.requires_grad_(False); b = i ** -.5; s.lora_A = nn.Parameter(torch.empty(i, r).uniform_(-b, b)); s.lora_B = nn.Parameter(torch.empty(r, o).uniform_(-b, b) if planted else torch.zeros(r, o)); s.scale = 1.
        def forward(s, x): return s.linear(x) + s.scale * (x @ s.lora_A @ s.lora_B)
    class Block(nn.Module):
        def __init__(s, d=32): super().__init__(); s.norm = nn.LayerNorm(d); s.ff_in, s.ff_out = LoRALinear(d, 64), LoRALinear(64, d)
        def forward(s, x): return x + s.ff_out(F.gelu(s.ff_in(s.norm(x))))
    class Transformer(nn.Module):
        def __init__(s): super().__init__(); s.x_embedder = LoRALinear(16, 32); s.blocks = nn.Sequential(Block(), Block()); s.proj_out = LoRALinear(32, 16)
        def forward(s, x): return s.proj_out(s.blocks(s.x_embedder(x)))
    def data(seed): x = T(seed, 64, 16); return x, x - torch.tanh(x @ T(2, 16, 16, k=.3))
    return dict(model=Transformer, data=data, loss=mse, lr=3e-3, diag={})
