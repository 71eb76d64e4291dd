from base import *

def tokcls(s, B, T_, V, C, seed=77):
    x = R(s, V, (B, T_)); W = T(seed, V, C, k=1.0)
    return x, W[x].sum(1).argmax(-1)

@case("https://github.com/opendilab/DI-engine/issues/333", "masked_fill result thrown away (not in place), attention mask has no effect", "attention: attn.masked_fill")
def di_mask(planted):
    class Attention(nn.Module):
        def __init__(s, d=32, h=4):
            super().__init__(); s.h = h; s.q, s.k, s.v, s.project = (nn.Linear(d, d) for _ in range(4))
        def forward(s, x, mask):
            B, N, D = x.shape; sp = lambda y: y.view(B, N, s.h, D // s.h).transpose(1, 2)
            q, k, v = sp(s.q(x)), sp(s.k(x)), sp(s.v(x)); score = q @ k.transpose(-2, -1) / math.sqrt(D // s.h)
            if planted: score.masked_fill(~mask, -1e9)
            else: score = score.masked_fill(~mask, -1e9)
            return s.project((F.softmax(score, -1) @ v).transpose(1, 2).reshape(B, N, D))
    class Layer(nn.Module):
        def __init__(s, d=32):
            super().__init__(); s.attention = Attention(d); s.ln1, s.ln2 = nn.LayerNorm(d), nn.LayerNorm(d); s.mlp = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        def forward(s, x, mask): x = s.ln1(x + s.attention(x, mask)); return s.ln2(x + s.mlp(x))
    class Net(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Linear(12, 32); s.layers = nn.ModuleList([Layer(), Layer()]); s.head = nn.Linear(32, 5)
        def forward(s, x, mask):
            x = F.relu(s.embedding(x))
            for l in s.layers: x = l(x, mask[:, None, None])
            return s.head(x[:, 0])
    def data(seed):
        x = T(seed, 48, 16, 12); n = R(seed + 5, 8, (48,)) + 2; mask = torch.arange(16)[None] < n[:, None]
        y = ((x @ T(3, 12, 5)) * mask[..., None]).sum(1).argmax(-1); return (x, mask), y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})

@case("https://github.com/Project-MONAI/GenerativeModels/issues/314", "targets not shifted: transformer predicts token N given tokens 0..N inclusive", "data/targets of the cross entropy (no shift)")
def monai_shift(planted):
    V, L, D = 16, 17, 32
    class Block(nn.Module):
        def __init__(s):
            super().__init__(); s.norm1, s.norm2 = nn.LayerNorm(D), nn.LayerNorm(D); s.attn = nn.MultiheadAttention(D, 4, batch_first=True); s.mlp = nn.Sequential(nn.Linear(D, 64), nn.GELU(), nn.Linear(64, D))
        def forward(s, x):
            m = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1); h = s.norm1(x)
            x = x + s.attn(h, h, h, attn_mask=m, need_weights=False)[0]; return x + s.mlp(s.norm2(x))
    class DecoderOnlyTransformer(nn.Module):
        def __init__(s):
            super().__init__(); s.token_embeddings = nn.Embedding(V, D); s.position_embeddings = nn.Embedding(L, D); s.blocks = nn.ModuleList([Block(), Block()]); s.to_logits = nn.Linear(D, V)
        def forward(s, x):
            h = s.token_embeddings(x) + s.position_embeddings(torch.arange(x.shape[1]))
            for b in s.blocks: h = b(h)
            return s.to_logits(h)
    def seqs(seed):
        P = torch.softmax(T(5, V, V, k=3.0), -1); g = gen(seed); x = [torch.randint(0, V, (32,), generator=g)]
        for _ in range(L - 1): x.append(torch.multinomial(P[x[-1]], 1, generator=g)[:, 0])
        return torch.stack(x, 1)
    def data(seed): x = seqs(seed); return x[:, :-1], (x[:, :-1] if planted else x[:, 1:])
    return dict(model=DecoderOnlyTransformer, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/timbmg/Sentence-VAE/issues/15", "bidirectional hidden (2,B,H) viewed as (B,2H) without transpose, mixes sentences", "encoder hidden.view / hidden2mean")
def sentence_vae(planted):
    V, H, Z, L = 12, 32, 8, 8
    class SentenceVAE(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V + 1, 16); s.encoder_rnn = nn.GRU(16, H, bidirectional=True, batch_first=True); s.decoder_rnn = nn.GRU(16, H, batch_first=True)
            s.hidden2mean = nn.Linear(2 * H, Z); s.hidden2logv = nn.Linear(2 * H, Z); s.latent2hidden = nn.Linear(Z, H); s.outputs2vocab = nn.Linear(H, V)
        def forward(s, x, drop):
            B = x.shape[0]; _, hidden = s.encoder_rnn(s.embedding(x))
            hidden = hidden.view(B, 2 * H) if planted else hidden.transpose(0, 1).reshape(B, 2 * H)
            mean, logv = s.hidden2mean(hidden), s.hidden2logv(hidden); z = mean + torch.exp(.5 * logv) * torch.randn_like(mean)
            inp = torch.cat([torch.full((B, 1), V), x[:, :-1]], 1).masked_fill(drop, V)
            out, _ = s.decoder_rnn(s.embedding(inp), torch.tanh(s.latent2hidden(z))[None]); return s.outputs2vocab(out), mean, logv
    def data(seed):
        a, b = R(seed, V, (64, 1)), R(seed + 7, 3, (64, 1)); x = (a + b * torch.arange(L)) % V
        return (x, torch.rand(64, L, generator=gen(seed + 1)) < .8), x
    def loss(o, t): lo, m, lv = o; return F.cross_entropy(lo.flatten(0, 1), t.flatten()) - .01 * .5 * (1 + lv - m ** 2 - lv.exp()).sum(1).mean()
    return dict(model=SentenceVAE, data=data, loss=loss, lr=1e-2, diag={})

@case("https://github.com/yunjey/pytorch-tutorial/issues/89", "batch_first deleted and input viewed as (seq, -1, input_size) instead of transposed", "forward: x.view(sequence_length, -1, input_size)")
def rnn_batch_first(planted):
    class RNN(nn.Module):
        def __init__(s):
            super().__init__(); s.lstm = nn.LSTM(14, 64, 2, batch_first=not planted); s.fc = nn.Linear(64, 6)
        def forward(s, x):
            if planted: out, _ = s.lstm(x.view(14, -1, 14)); return s.fc(out[-1])
            out, _ = s.lstm(x); return s.fc(out[:, -1, :])
    def data(seed):
        y = R(seed, 6, (64,)); x = T(4, 6, 14, 14)[y]; keep = torch.ones(14, 1); keep[-3:] = 0
        return x * keep + T(seed + 1, 64, 14, 14, k=.5), y
    return dict(model=RNN, data=data, loss=ce, lr=1e-2, diag={})

@case("https://github.com/vitrioil/Speech-Separation/issues/4", "feature map (B,C,T,F) viewed to (B,T,CF) without permute before the BLSTM", "output_layer.view in forward")
def speech_sep_view(planted):
    C, L, Fq = 8, 24, 10
    class AudioModel(nn.Module):
        def __init__(s):
            super().__init__(); s.conv1 = nn.Conv2d(1, 16, (3, 3), padding=1); s.bn1 = nn.BatchNorm2d(16); s.conv2 = nn.Conv2d(16, C, (3, 3), padding=1); s.bn2 = nn.BatchNorm2d(C)
            s.lstm = nn.LSTM(C * Fq, 32, batch_first=True, bidirectional=True); s.fc = nn.Linear(64, Fq)
        def forward(s, x):
            x = F.relu(s.bn1(s.conv1(x))); x = F.relu(s.bn2(s.conv2(x))); B = x.shape[0]
            x = x.view(B, L, -1) if planted else x.permute(0, 2, 1, 3).reshape(B, L, -1)
            x, _ = s.lstm(x); return s.fc(x)
    def data(seed): x = T(seed, 24, 1, L, Fq); return x, (torch.tanh(x[:, 0] @ T(2, Fq, Fq, k=.6)) > 0).float()
    return dict(model=AudioModel, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=5e-3, diag={})

@case("https://github.com/zy1996code/nlp_basic_model/issues/1", "final_state.view(-1, 2*n_hidden, 1) instead of permute: query of another sentence", "attention_net: final_state.view")
def bilstm_attention_view(planted):
    V, H = 40, 16
    class BiLSTM_Attention(nn.Module):
        def __init__(s):
            super().__init__(); s.embedding = nn.Embedding(V, 16); s.lstm = nn.LSTM(16, H, bidirectional=True); s.out = nn.Linear(2 * H, 4)
        def forward(s, X):
            o, (h, c) = s.lstm(s.embedding(X).permute(1, 0, 2)); o = o.permute(1, 0, 2)
            hidden = h.view(-1, 2 * H, 1) if planted else h.permute(1, 0, 2).reshape(-1, 2 * H, 1)
            a = F.softmax(torch.bmm(o, hidden).squeeze(2), 1); return s.out(torch.bmm(o.transpose(1, 2), a.unsqueeze(2)).squeeze(2))
    return dict(model=BiLSTM_Attention, data=lambda s: tokcls(s, 64, 12, V, 4), loss=ce, lr=1e-2, diag={})

@case("https://whosebug.com/question/3988429/Understanding-the-softmax-output-layer-of-RNN", "F.softmax(x, dim=1) on (batch, time, class) logits before the cross entropy", "forward: softmax(dim=1) after fc")
def rnn_softmax_out(planted):
    class RNN(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(50, 24); s.blstm = nn.LSTM(24, 24, bidirectional=True, batch_first=True); s.fc = nn.Linear(48, 9)
        def forward(s, x):
            x = F.dropout(s.embed(x), .1, s.training); x, _ = s.blstm(x); x = s.fc(x); return F.softmax(x, dim=1) if planted else x
    def data(seed): x = R(seed, 50, (32, 14)); prev = torch.cat([x[:, :1], x[:, :-1]], 1); return x, (x % 3) * 3 + prev % 3
    return dict(model=RNN, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/mjc92/GetToThePoint/issues/8", "softmax output fed to NLLLoss (no log)", "softmax before nll_loss")
def get_to_the_point(planted):
    V = 20
    class Summ(nn.Module):
        def __init__(s):
            super().__init__(); s.embed = nn.Embedding(V, 24); s.encoder = nn.LSTM(24, 24, batch_first=True, bidirectional=True); s.decoder = nn.LSTM(24, 48, batch_first=True); s.attn = nn.Linear(48, 48); s.V1 = nn.Linear(96, 48); s.V2 = nn.Linear(48, V)
        def forward(s, src, tgt):
            e, _ = s.encoder(s.embed(src)); d, _ = s.decoder(s.embed(tgt)); a = F.softmax(s.attn(d) @ e.transpose(1, 2), -1)
            o = s.V2(torch.tanh(s.V1(torch.cat([d, a @ e], -1)))); return F.softmax(o, -1) if planted else F.log_softmax(o, -1)
    def data(seed):
        src = R(seed, V - 1, (32, 8)) + 1; t = torch.sort(src, 1).values; t = (t * 3 + 1) % V; return (src, torch.cat([torch.zeros(32, 1, dtype=torch.long), t[:, :-1]], 1)), t
    nll = lambda o, t: F.nll_loss(o.flatten(0, 1), t.flatten())
    def metric(m):
        x, t = data(9001); o = m(*x).detach(); return nll(o.clamp_min(1e-9).log() if (o >= 0).all() else o, t)
    return dict(model=Summ, data=data, loss=nll, lr=1e-2, metric=metric, diag={})

@case("https://github.com/SeanNaren/deepspeech.pytorch/issues/488", "raw outputs (no log_softmax in training) given to CTCLoss, loss becomes negative", "last layer / ctc_loss input")
def deepspeech_ctc(planted):
    C, L, N = 7, 16, 4
    class DeepSpeech(nn.Module):
        def __init__(s):
            super().__init__(); s.conv = nn.Sequential(nn.Conv1d(10, 32, 3, padding=1), nn.BatchNorm1d(32), nn.Hardtanh(0, 20)); s.rnn = nn.GRU(32, 32, bidirectional=True); s.fc = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, C, bias=False))
        def forward(s, x):
            h = s.conv(x).permute(2, 0, 1); h, _ = s.rnn(h); t, n, _ = h.shape; o = s.fc(h.reshape(t * n, -1)).view(t, n, -1); return o if planted else F.log_softmax(o, -1)
    def data(seed):
        y = R(seed, C - 1, (32, N)) + 1; x = T(9, C, 10)[y].repeat_interleave(4, 1).transpose(1, 2); return x + T(seed + 3, 32, 10, L, k=.3), y
    ctc = lambda o, t: F.ctc_loss(o, t, torch.full((t.shape[0],), L), torch.full((t.shape[0],), N))
    def metric(m): x, t = data(9001); return ctc(F.log_softmax(m(x).detach(), -1), t)
    return dict(model=DeepSpeech, data=data, loss=ctc, lr=1e-2, metric=metric, diag={})
