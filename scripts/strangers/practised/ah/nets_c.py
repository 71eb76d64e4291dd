from base import *

@case("https://github.com/keitakurita/practical-torchtext/issues/5", "hdn[-1] of a right-padded batch is the state after up to 36 pad tokens, not the last word", "feature = hdn[-1, :, :]")
def torchtext_last_step(planted):
    class SimpleLSTMBaseline(nn.Module):
        def __init__(self, vocab=30, emb=24, hidden=32):
            super().__init__(); self.embedding = nn.Embedding(vocab, emb); self.encoder = nn.LSTM(emb, hidden); self.linear_layers = nn.ModuleList([nn.Linear(hidden, hidden)]); self.predictor = nn.Linear(hidden, 3)
        def forward(self, seq, lengths):
            hdn, _ = self.encoder(self.embedding(seq))
            feature = hdn[-1, :, :] if planted else hdn[lengths - 1, torch.arange(seq.size(1))]
            for layer in self.linear_layers: feature = layer(feature)
            return self.predictor(feature)
    def data(seed):
        n = 4 + R(seed, 5, (32,)); n[:2] = 60; y = R(seed + 1, 2, (32, 3)); seq = 5 + R(seed + 2, 25, (60, 32)); b = torch.arange(32)
        for k in range(3): seq[n - 1 - k, b] = torch.where(y[:, k] > 0, k + 1, seq[n - 1 - k, b])
        return (seq * (torch.arange(60)[:, None] < n), n), y.float()
    return dict(model=SimpleLSTMBaseline, data=data, loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t), lr=1e-2, diag={})

@case("https://github.com/HHTseng/video-classification/issues/39", "after pad_packed_sequence the last frame RNN_out[:, -1, :] is zeros for every clip shorter than the longest", "x = RNN_out[:, -1, :]")
def crnn_varlen_zeros(planted):
    class DecoderRNN_varlen(nn.Module):
        def __init__(self, feat=16, h=32, num_classes=5):
            super().__init__(); self.LSTM = nn.LSTM(feat, h, 2, batch_first=True); self.fc1 = nn.Linear(h, 32); self.fc2 = nn.Linear(32, num_classes)
        def forward(self, x_RNN, x_lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x_RNN, x_lengths, batch_first=True, enforce_sorted=False)
            RNN_out, _ = nn.utils.rnn.pad_packed_sequence(self.LSTM(packed)[0], batch_first=True)
            x = RNN_out[:, -1, :] if planted else RNN_out[torch.arange(len(x_lengths)), x_lengths - 1]
            return self.fc2(F.relu(self.fc1(x)))
    C = T(2, 5, 16)
    def data(seed):
        n = 8 + R(seed, 9, (32,)); y = R(seed + 1, 5, (32,)); x = C[y][:, None] * .8 + T(seed + 2, 32, 16, 16)
        return (x * (torch.arange(16)[None] < n[:, None])[..., None], n), y
    return dict(model=DecoderRNN_varlen, data=data, loss=ce, lr=5e-3, diag={})

@case("https://github.com/lsdefine/attention-is-all-you-need-keras/issues/36", "heads are put before the batch axis but the padding mask is repeated per sample: masks of other samples are applied", "reshape1 transpose [2, 0, 1, 3] vs repeat_elements(mask)")
def mha_mask_order(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, d=32, n_head=4):
            super().__init__(); self.h = n_head; self.qs_layer, self.ks_layer, self.vs_layer, self.w_o = (nn.Linear(d, d, bias=False) for _ in range(4)); self.layer_norm = nn.LayerNorm(d)
        def forward(self, x, mask):
            B, L, D = x.shape; h = self.h
            r1 = lambda t: t.view(B, L, h, D // h).permute(2, 0, 1, 3).reshape(-1, L, D // h)
            q, k, v = r1(self.qs_layer(x)), r1(self.ks_layer(x)), r1(self.vs_layer(x))
            m = mask.repeat_interleave(h, 0) if planted else mask.repeat(h, 1)
            attn = (q @ k.transpose(1, 2) / math.sqrt(D // h) + (1 - m[:, None]) * -1e10).softmax(-1)
            o = (attn @ v).view(h, B, L, -1).permute(1, 2, 0, 3).reshape(B, L, D)
            return self.layer_norm(x + self.w_o(o))
    class Encoder(nn.Module):
        def __init__(self, vocab=24, d=32):
            super().__init__(); self.emb = nn.Embedding(vocab, d); self.pos = nn.Embedding(40, d); nn.init.normal_(self.pos.weight, std=.1); self.a1, self.a2 = MultiHeadAttention(d), MultiHeadAttention(d); self.ff = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)); self.norm = nn.LayerNorm(d); self.target_layer = nn.Linear(d, 1)
        def forward(self, src):
            mask = (src > 0).float(); x = self.emb(src) + self.pos(torch.arange(src.size(1)))
            x = self.a1(x, mask); x = self.norm(x + self.ff(x)); return self.target_layer(self.a2(x, mask)[:, 0]).squeeze(-1)
    val = T(3, 24)
    def data(seed):
        n = 2 + (torch.rand(32, 1, generator=gen(seed)) ** 3 * 38).long(); src = (1 + R(seed + 1, 23, (32, 40))) * (torch.arange(40)[None] < n)
        return src, (val[src] * (src > 0)).sum(1) / n.squeeze(1).float() * 1.5
    return dict(model=Encoder, data=data, loss=mse, lr=2e-3, diag={})

@case("https://github.com/allenai/allennlp/issues/1713", "simple_seq2seq takes encoder_outputs[:, -1]: for shorter sources that is zero padding, the decoder starts from nothing", "final_encoder_output")
def simple_seq2seq_final(planted):
    class SimpleSeq2Seq(nn.Module):
        def __init__(self, vocab=20, d=32):
            super().__init__(); self.source_embedder = nn.Embedding(vocab, d); self.encoder = nn.LSTM(d, d, batch_first=True); self.target_embedder = nn.Embedding(vocab, d); self.decoder_cell = nn.LSTMCell(d, d); self.output_projection_layer = nn.Linear(d, vocab)
        def forward(self, src, lengths, tgt):
            packed = nn.utils.rnn.pack_padded_sequence(self.source_embedder(src), lengths, batch_first=True, enforce_sorted=False)
            encoder_outputs, _ = nn.utils.rnn.pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
            h = encoder_outputs[:, -1] if planted else encoder_outputs[torch.arange(len(src)), lengths - 1]
            c = torch.zeros_like(h); logits = []
            for t in range(tgt.size(1)):
                h, c = self.decoder_cell(self.target_embedder(tgt[:, t]), (h, c)); logits.append(self.output_projection_layer(h))
            return torch.stack(logits, 1)
    tab = torch.stack([R(40 + j, 3, (20,)) + 3 * j for j in range(4)], 1) + 3
    def data(seed):
        n = 3 + R(seed, 10, (32,)); src = (1 + R(seed + 1, 19, (32, 12))) * (torch.arange(12)[None] < n[:, None])
        y = tab[src[torch.arange(32), n - 1]]; return (src, n, torch.cat([torch.ones(32, 1).long(), y[:, :-1]], 1)), y
    return dict(model=SimpleSeq2Seq, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/ts-kim/RevIN/issues/2", "RevIN also norm's the decoder input (half zeros): its statistics overwrite those used to denormalise the forecast", "x_dec = revin_layer(x_dec, 'norm')")
def revin_decoder_norm(planted):
    class RevIN(nn.Module):
        def __init__(self, c):
            super().__init__(); self.affine_weight, self.affine_bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        def forward(self, x, mode):
            if mode == "norm":
                self.mean, self.stdev = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
                return (x - self.mean) / self.stdev * self.affine_weight + self.affine_bias
            return (x - self.affine_bias) / (self.affine_weight + 1e-10) * self.stdev + self.mean
    class Informer(nn.Module):
        def __init__(self, d=32):
            super().__init__(); self.revin_layer = RevIN(1); self.enc_embedding, self.dec_embedding = nn.Linear(1, d), nn.Linear(1, d); self.encoder = nn.GRU(d, d, batch_first=True); self.pos = nn.Parameter(torch.randn(1, 16, d) * .1); self.decoder = nn.TransformerDecoderLayer(d, 4, 64, dropout=0., batch_first=True); self.projection = nn.Linear(d, 1)
        def forward(self, x_enc, x_dec):
            x_enc = self.revin_layer(x_enc, "norm")
            if planted: x_dec = self.revin_layer(x_dec, "norm")
            enc_out, _ = self.encoder(self.enc_embedding(x_enc)); dec_out = self.decoder(self.dec_embedding(x_dec) + self.pos, enc_out)
            return self.revin_layer(self.projection(dec_out), "denorm")[:, -8:]
    def data(seed):
        t = torch.arange(32.)[None]; ph = 6.28 * torch.rand(32, 1, generator=gen(seed)); lv = 1.5 * T(seed + 1, 32, 1); am = .2 + .6 * torch.rand(32, 1, generator=gen(seed + 2))
        s = (lv + am * torch.sin(.5 * t + ph))[..., None]; x = s[:, :24]; return (x, torch.cat([x[:, -8:], torch.zeros(32, 8, 1)], 1)), s[:, 24:]
    return dict(model=Informer, data=data, loss=mse, lr=3e-3, diag={})

@case("https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/7", "outputs of shape (n_head*mb) x len_q x d_v viewed as mb x len_q x (n_head*d_v): mixes samples, positions and heads", "outputs.view(mb_size, len_q, -1)")
def mha_view_back(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, n_head=4, d_model=32):
            super().__init__(); self.n_head, d_k = n_head, d_model // n_head; p = lambda: nn.Parameter(nn.init.xavier_normal_(torch.empty(n_head, d_model, d_k)))
            self.w_qs, self.w_ks, self.w_vs = p(), p(), p(); self.layer_norm = nn.LayerNorm(d_model); self.proj = nn.Linear(d_model, d_model)
        def forward(self, q):
            mb, L, D = q.shape; h = self.n_head; s = q.repeat(h, 1, 1).view(h, -1, D)
            qs, ks, vs = (torch.bmm(s, w).view(-1, L, D // h) for w in (self.w_qs, self.w_ks, self.w_vs))
            outputs = (torch.bmm(qs, ks.transpose(1, 2)) / math.sqrt(D // h)).softmax(-1) @ vs
            outputs = outputs.view(mb, L, -1) if planted else torch.cat(torch.split(outputs, mb, dim=0), dim=-1)
            return self.layer_norm(self.proj(outputs) + q)
    class Encoder(nn.Module):
        def __init__(self, vocab=24, d=32):
            super().__init__(); self.src_word_emb, self.position_enc = nn.Embedding(vocab, d), nn.Embedding(12, d); self.a1, self.a2 = MultiHeadAttention(), MultiHeadAttention(); self.ff = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)); self.norm = nn.LayerNorm(d); self.tgt_word_proj = nn.Linear(d, 4)
        def forward(self, src):
            x = self.a1(self.src_word_emb(src) + self.position_enc(torch.arange(12))); x = self.norm(x + self.ff(x)); return self.tgt_word_proj(self.a2(x)[:, 0])
    W = T(3, 24, 4)
    def data(seed):
        src = R(seed, 24, (32, 12)); return src, W[src].sum(1).argmax(-1)
    return dict(model=Encoder, data=data, loss=ce, lr=3e-3, diag={})

@case("http://forums.fast.ai/t/please-help-with-collaborative-filtering-lesson-4/3859", "Dense(1, activation='softmax') trained with binary_crossentropy: output is always 1", "last Dense: softmax over one unit")
def collab_softmax_one(planted):
    class Collab(nn.Module):
        def __init__(self, n_users=40, n_targets=40, n_factors=16):
            super().__init__(); self.user_emb, self.target_emb = nn.Embedding(n_users, n_factors), nn.Embedding(n_targets, n_factors)
            for e in (self.user_emb, self.target_emb): nn.init.uniform_(e.weight, -.3, .3)
            d = lambda i: nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.BatchNorm1d(64)); self.hidden = nn.Sequential(d(1), d(64)); self.out = nn.Linear(64, 1)
        def forward(self, user_in, target_in):
            x = self.out(self.hidden((self.user_emb(user_in) * self.target_emb(target_in)).sum(1, keepdim=True)))
            return (F.softmax(x, dim=-1) if planted else torch.sigmoid(x)).squeeze(-1)
    U, V = T(1, 40, 2), T(2, 40, 2)
    def data(seed):
        u, v = R(seed, 40, (128,)), R(seed + 1, 40, (128,)); return (u, v), ((U[u] * V[v]).sum(1) > -.3).float()
    def loss(o, t): return F.binary_cross_entropy(o.clamp(1e-7, 1 - 1e-7), t)
    return dict(model=Collab, data=data, loss=loss, lr=1e-2, diag={})
