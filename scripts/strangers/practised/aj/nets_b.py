from base import *

@case("https://github.com/pytorch/examples/pull/222", "cell state c instead of hidden state h fed to the next LSTM layer and to the output", "lstm2 input / output (c_t)")
def sine_lstm_c_not_h(planted):
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__(); self.lstm1 = nn.LSTMCell(1, 51); self.lstm2 = nn.LSTMCell(51, 51); self.linear = nn.Linear(51, 1)
        def forward(self, input):
            outputs = []; B = input.size(0)
            h_t, c_t, h_t2, c_t2 = [torch.zeros(B, 51) for _ in range(4)]
            for input_t in input.chunk(input.size(1), dim=1):
                h_t, c_t = self.lstm1(input_t, (h_t, c_t))
                h_t2, c_t2 = self.lstm2(c_t if planted else h_t, (h_t2, c_t2))
                outputs += [self.linear(c_t2 if planted else h_t2)]
            return torch.cat(outputs, 1)
    def data(seed):
        ph = torch.rand(32, 1, generator=gen(seed)) * 6.28; s = torch.sin(ph + torch.arange(25.) / 3); return s[:, :-1], s[:, 1:]
    return dict(model=Sequence, data=data, loss=mse, lr=3e-3, diag={})

class PatchEmbedding(nn.Module):
    def __init__(self, c=1, p=4, e=32, s=16):
        super().__init__(); self.projection = nn.Conv2d(c, e, p, p); self.cls_token = nn.Parameter(torch.randn(1, 1, e)); self.positions = nn.Parameter(torch.randn((s // p) ** 2 + 1, e))
    def forward(self, x):
        x = self.projection(x).flatten(2).transpose(1, 2); return torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.positions
P4 = T(77, 4, 1, 16, 16)
def img4(seed):
    y = R(seed, 4, (32,)); return .35 * P4[y] + .5 * T(seed + 50000, 32, 1, 16, 16), y

@case("https://github.com/FrancescoSaverioZuppichini/ViT/issues/6", "attention scaling multiplied after the softmax instead of before", "MultiHeadAttention.forward att")
def vit_scale_after_softmax(planted):
    class MultiHeadAttention(nn.Module):
        def __init__(self, e=32, h=4):
            super().__init__(); self.h = h; self.qkv = nn.Linear(e, 3 * e); self.projection = nn.Linear(e, e); self.scaling = (e // h) ** -0.5
        def forward(self, x):
            b, n, e = x.shape; q, k, v = self.qkv(x).reshape(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            energy = q @ k.transpose(-1, -2)
            att = F.softmax(energy, -1) * self.scaling if planted else F.softmax(energy * self.scaling, -1)
            return self.projection((att @ v).transpose(1, 2).reshape(b, n, e))
    class Block(nn.Module):
        def __init__(self, e=32):
            super().__init__(); self.n1, self.n2, self.att = nn.LayerNorm(e), nn.LayerNorm(e), MultiHeadAttention(); self.mlp = nn.Sequential(nn.Linear(e, 4 * e), nn.GELU(), nn.Linear(4 * e, e))
        def forward(self, x): x = x + self.att(self.n1(x)); return x + self.mlp(self.n2(x))
    class ViT(nn.Module):
        def __init__(self): super().__init__(); self.embed = PatchEmbedding(); self.blocks = nn.Sequential(Block(), Block(), Block()); self.norm = nn.LayerNorm(32); self.head = nn.Linear(32, 4)
        def forward(self, x): return self.head(self.norm(self.blocks(self.embed(x)).mean(1)))
    return dict(model=ViT, data=img4, loss=ce, lr=1e-3, diag={})

@case("https://github.com/lsdefine/attention-is-all-you-need-keras/issues/12", "softmax activation on target_layer although the loss already contains a softmax", "target_layer (softmax)")
def transformer_softmax_target(planted):
    V, D, L = 12, 48, 8
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__(); self.emb = nn.Embedding(V, D); self.pos = nn.Embedding(L, D)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 96, 0., batch_first=True), 2); self.target_layer = nn.Linear(D, V, bias=False)
        def forward(self, src):
            o = self.target_layer(self.encoder(self.emb(src) + self.pos(torch.arange(src.shape[1])))); return F.softmax(o, -1) if planted else o
    perm = torch.randperm(V, generator=gen(5))
    def data(seed): x = R(seed, V, (32, L)); return x, perm[x]
    return dict(model=Transformer, data=data, loss=ceseq, lr=2e-3, diag={})

@case("https://github.com/williamleif/GraphSAGE/issues/77", "l2_normalize on the encoder output before the decoder", "F.normalize in encoder")
def graphsage_l2norm(planted):
    class Aggregator(nn.Module):
        def __init__(self, i, o): super().__init__(); self.self_w = nn.Linear(i, o, bias=False); self.neigh_w = nn.Linear(i, o, bias=False)
        def forward(self, x, adj): return torch.cat([self.self_w(x), self.neigh_w(adj @ x)], -1)
    class GraphSage(nn.Module):
        def __init__(self):
            super().__init__(); self.agg1 = Aggregator(16, 24); self.agg2 = Aggregator(48, 24)
        def forward(self, x, adj):
            z = self.agg2(F.relu(self.agg1(x, adj)), adj)
            if planted: z = F.normalize(z, dim=-1)
            return z @ z.transpose(-1, -2)
    cent = T(8, 4, 16)
    def data(seed):
        y = R(seed, 4, (40,)); same = (y[:, None] == y[None]).float(); g = gen(seed + 7)
        adj = (torch.rand(40, 40, generator=g) < .02 + .4 * same).float(); adj = torch.triu(adj, 1); adj = adj + adj.t()
        return (F.normalize(cent[y] + T(seed + 9, 40, 16, k=.6), dim=-1), adj / adj.sum(1, keepdim=True).clamp(min=1)), same
    return dict(model=GraphSage, data=data, loss=nn.BCEWithLogitsLoss(), lr=1e-2, diag={})

@case("https://answerofmath.com/solved-neural-network-for-regression-actual-data-vs-predicted-data/", "target squared to bring it into [0,1] (sign lost), square root taken afterwards", "target transform y**2")
def nnet_squared_target(planted):
    class NNet(nn.Module):
        def __init__(self, size=8): super().__init__(); self.hidden = nn.Linear(3, size); self.output = nn.Linear(size, 1)
        def forward(self, x): return torch.sigmoid(self.output(torch.sigmoid(self.hidden(x)))).squeeze(-1)
    def true(x): return (.2 + .65 * torch.tanh(1.2 * x[:, 0] + .5 * x[:, 1])).clamp(-.454, 1.)
    def data(seed):
        x = T(seed, 64, 3); y = true(x); return x, (y ** 2 if planted else (y + .454) / 1.454)
    NNet.decode = lambda s, o: o.sqrt() if planted else o * 1.454 - .454
    def metric(m):
        x = T(9000, 256, 3)
        with torch.no_grad(): return float((m.decode(m(x)) - true(x)).pow(2).mean())
    return dict(model=NNet, data=data, loss=mse, lr=3e-2, diag={}, metric=metric)

@case("https://github.com/makeyourownneuralnetwork/makeyourownneuralnetwork/issues/70", "only 2 hidden nodes (2-2-1) for XOR; 2-4-1 works", "hidden layer width")
def xor_two_hidden(planted):
    class NeuralNetwork(nn.Module):
        def __init__(self, inodes=2, hnodes=2 if planted else 4, onodes=1):
            super().__init__(); self.wih = nn.Linear(inodes, hnodes, bias=False); self.who = nn.Linear(hnodes, onodes, bias=False)
            nn.init.normal_(self.wih.weight, 0., hnodes ** -0.5); nn.init.normal_(self.who.weight, 0., onodes ** -0.5)
        def forward(self, x): return torch.sigmoid(self.who(torch.sigmoid(self.wih(x))))
    def data(seed):
        b = R(seed, 2, (32, 2)); return b * .98 + .01, ((b[:, :1] ^ b[:, 1:]).float() * .98 + .01)
    return dict(model=NeuralNetwork, data=data, loss=mse, lr=1e-1, diag={})

@case("https://github.com/Lightning-AI/pytorch-lightning/pull/20203", "positional encoding (max_len,1,dim) indexed by and added along the batch dimension of a (batch, seq, dim) input", "PositionalEncoding")
def lightning_pe_batch_dim(planted):
    V, D, L = 6, 48, 6
    class PositionalEncoding(nn.Module):
        def __init__(self, dim, max_len=64):
            super().__init__(); pe = torch.zeros(max_len, dim); position = torch.arange(max_len).float()[:, None]; div = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(10000.0) / dim))
            pe[:, 0::2] = torch.sin(position * div); pe[:, 1::2] = torch.cos(position * div); self.register_buffer("pe", pe[:, None] if planted else pe[None])
        def forward(self, x): return x + (self.pe[: x.size(0), :] if planted else self.pe[:, : x.size(1)])
    class Transformer(nn.Module):
        def __init__(self):
            super().__init__(); self.embedding = nn.Embedding(V, D); self.pos_encoder = PositionalEncoding(D)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 128, 0., batch_first=True), 2); self.decoder = nn.Linear(D, V)
        def forward(self, inputs): return self.decoder(self.encoder(self.pos_encoder(self.embedding(inputs))))
    def data(seed): x = R(seed, V, (64, L)); return x, (x + torch.arange(L)) % V
    return dict(model=Transformer, data=data, loss=ceseq, lr=3e-3, diag={})

@case("https://github.com/zcao0420/MOFormer/issues/9", "tokens passed as (batch, seq) to an encoder expecting (seq, batch): attention and positions run over the batch", "Transformer.forward (missing transpose)")
def moformer_batch_seq(planted):
    V, D = 12, 48
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=64):
            super().__init__(); position = torch.arange(max_len).float()[:, None]; div = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model)); pe = torch.zeros(max_len, 1, d_model)
            pe[:, 0, 0::2] = torch.sin(position * div); pe[:, 0, 1::2] = torch.cos(position * div); self.register_buffer("pe", pe)
        def forward(self, x): return x + self.pe[: x.size(0)]
    class MOFormer(nn.Module):
        def __init__(self):
            super().__init__(); self.token_encoder = nn.Embedding(V + 1, D); self.pos_encoder = PositionalEncoding(D); self.transformer_encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, 96, 0.), 2); self.regression_head = nn.Sequential(nn.Linear(D, 32), nn.Softplus(), nn.Linear(32, 1))
        def forward(self, src):
            if not planted: src = src.t()
            o = self.transformer_encoder(self.pos_encoder(self.token_encoder(src) * math.sqrt(D)))
            return self.regression_head(o[:, 0] if planted else o[0]).squeeze(-1)
    val = T(6, V + 1)
    def data(seed):
        x = R(seed, V, (32, 9)) + 1; x[:, 0] = 0; return x, val[x[:, 1:]].mean(1) * 2
    return dict(model=MOFormer, data=data, loss=mse, lr=1e-3, diag={})
