from common import *
# ---------------------------------------------------------------- recommender systems
def ctr_batch(cards, seed, nd=13, B=48):
    g0 = G(seed); tabs = [torch.randn(c, generator=g0)*0.9 for c in cards]; w = torch.randn(nd, generator=g0)*0.5
    def batch(g):
        dense = torch.log1p(torch.rand(B, nd, generator=g).mul(4).exp())
        cats = torch.stack([(torch.rand(B, generator=g)**2*c).long() for c in cards], 1)
        z = sum(t[cats[:, i]] for i, t in enumerate(tabs)) + (dense-2)@w
        y = (torch.rand(B, generator=g) < torch.sigmoid(2*z)).float()
        return dense, cats, y
    return batch

class DLRM(nn.Module):
    def __init__(self, cards, nd=13, m=16, ln_bot=(64, 16), ln_top=(64, 1), sig=False):
        super().__init__()
        self.emb_l = nn.ModuleList()
        for n in cards:
            E = nn.EmbeddingBag(n, m, mode='sum')
            nn.init.uniform_(E.weight, -math.sqrt(1/n), math.sqrt(1/n)); self.emb_l.append(E)
        self.bot_l = self.create_mlp([nd, *ln_bot], False)
        k = len(cards)+1
        self.top_l = self.create_mlp([ln_bot[-1]+k*(k-1)//2, *ln_top], sig)
        self.register_buffer('tri', torch.tril_indices(k, k, -1))
    def create_mlp(self, ln, sigmoid):
        L = []
        for i in range(len(ln)-1):
            n, m = ln[i], ln[i+1]; l = nn.Linear(n, m)
            l.weight.data.normal_(0, math.sqrt(2/(m+n))); l.bias.data.normal_(0, math.sqrt(1/m)); L.append(l)
            if i < len(ln)-2: L.append(nn.ReLU())
        if sigmoid: L.append(nn.Sigmoid())
        elif ln[-1] != 1: L.append(nn.ReLU())
        return nn.Sequential(*L)
    def interact_features(self, x, ly):
        T = torch.stack([x]+ly, 1); Z = torch.bmm(T, T.transpose(1, 2))
        return torch.cat([x, Z[:, self.tri[0], self.tri[1]]], 1)
    def forward(self, dense_x, sparse):
        x = self.bot_l(dense_x); ly = [E(sparse[:, i:i+1]) for i, E in enumerate(self.emb_l)]
        return self.top_l(self.interact_features(x, ly)).squeeze(1)
@case('dlrm', 'sigmoid at the end of top MLP, then BCEWithLogits', ['top_l'])
def _(bug):
    cards = [50, 20, 100, 8, 30, 12]; b0 = ctr_batch(cards, 1)
    def batch(g):
        d, c, y = b0(g); return {'dense_x': d, 'sparse': c}, y
    crit = nn.BCEWithLogitsLoss()
    ev = (lambda o, y: F.binary_cross_entropy(o, y)) if bug else None
    return dict(model=DLRM(cards, sig=bug), batch=batch, loss=lambda o, y: crit(o, y), ev=ev)

class TwoTower(nn.Module):
    def __init__(self, nu=200, ni=150, d=32, temperature=0.05, bug=False):
        super().__init__()
        self.user_id = nn.Embedding(nu, d); self.item_id = nn.Embedding(ni, d)
        self.user_net = nn.Sequential(nn.Linear(d+6, 64), nn.ReLU(), nn.Linear(64, d))
        self.item_net = nn.Sequential(nn.Linear(d+6, 64), nn.ReLU(), nn.Linear(64, d))
        self.temperature = temperature; self.bug = bug
    def encode_user(self, uid, uf): return F.normalize(self.user_net(torch.cat([self.user_id(uid), uf], -1)), dim=-1)
    def encode_item(self, iid, f): return F.normalize(self.item_net(torch.cat([self.item_id(iid), f], -1)), dim=-1)
    def forward(self, batch):
        u = self.encode_user(batch['user_id'], batch['user_feats']); i = self.encode_item(batch['item_id'], batch['item_feats'])
        s = u @ i.t()
        return s*self.temperature if self.bug else s/self.temperature
@case('two_tower', 'similarity multiplied by the temperature instead of divided', ['user_net', 'item_net'], per='batch')
def _(bug):
    g0 = G(2); U = torch.randn(200, 6, generator=g0); I = torch.randn(150, 6, generator=g0)
    def batch(g):
        u = torch.randint(200, (48,), generator=g)
        i = (U[u]@I.t()*2 + torch.randn(48, 150, generator=g)).argmax(1)
        return ({'user_id': u, 'item_id': i, 'user_feats': U[u], 'item_feats': I[i]},), torch.arange(48)
    ev = (lambda o, t: F.cross_entropy(o/0.0025, t)) if bug else None
    return dict(model=TwoTower(bug=bug), batch=batch, loss=lambda s, t: F.cross_entropy(s, t), ev=ev)

class PointWiseFeedForward(nn.Module):
    def __init__(self, h, p=0.2):
        super().__init__()
        self.conv1 = nn.Conv1d(h, h, 1); self.dropout1 = nn.Dropout(p); self.relu = nn.ReLU(); self.conv2 = nn.Conv1d(h, h, 1); self.dropout2 = nn.Dropout(p)
    def forward(self, x):
        return x + self.dropout2(self.conv2(self.relu(self.dropout1(self.conv1(x.transpose(-1, -2)))))).transpose(-1, -2)
class SASRec(nn.Module):
    def __init__(self, n_items=60, h=32, L=20, blocks=2, bug=False):
        super().__init__()
        self.item_emb = nn.Embedding(n_items+1, h, padding_idx=0); self.pos_emb = nn.Embedding(L, h); self.emb_dropout = nn.Dropout(0.2)
        self.ln1, self.att, self.ln2, self.ff = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for _ in range(blocks):
            self.ln1.append(nn.LayerNorm(h, 1e-8)); self.att.append(nn.MultiheadAttention(h, 1, 0.2, batch_first=not bug))
            self.ln2.append(nn.LayerNorm(h, 1e-8)); self.ff.append(PointWiseFeedForward(h))
        self.last = nn.LayerNorm(h, 1e-8); self.L = L
        self.bug = bug
        for p in self.parameters():
            if p.dim() > 1: nn.init.xavier_normal_(p)
        self.item_emb.weight.data[0] = 0
    def log2feats(self, seq):
        x = self.item_emb(seq)*self.item_emb.embedding_dim**0.5
        x = x + self.pos_emb(torch.arange(seq.shape[1], device=seq.device)[None])
        x = self.emb_dropout(x); keep = (seq != 0).unsqueeze(-1)
        x = x*keep
        n = x.shape[0] if self.bug else x.shape[1]
        mask = ~torch.tril(torch.ones(n, n, dtype=torch.bool))
        for a, l1, l2, f in zip(self.att, self.ln1, self.ln2, self.ff):
            q = l1(x); x = q + a(q, x, x, attn_mask=mask, need_weights=False)[0]
            x = f(l2(x))*keep
        return self.last(x)
    def forward(self, seq, pos, neg):
        h = self.log2feats(seq)
        return (h*self.item_emb(pos)).sum(-1), (h*self.item_emb(neg)).sum(-1)
def seq_batch(L=20, n=60, B=32, lag=3):
    perm = torch.randperm(n, generator=G(3))
    def seqs(g):
        s = torch.randint(n, (B, L+1), generator=g)
        for t in range(lag, L+1):
            follow = torch.rand(B, generator=g) < 0.9
            s[:, t] = torch.where(follow, perm[s[:, t-lag]], s[:, t])
        s = s+1
        ln = torch.randint(L//2, L+1, (B,), generator=g)
        s[torch.arange(L+1)[None] < (L-ln)[:, None]] = 0
        return s
    return seqs
@case('sasrec', 'nn.MultiheadAttention without batch_first on (B, T, D): attends over the batch', ['att'])
def _(bug):
    seqs = seq_batch()
    def batch(g):
        s = seqs(g); neg = torch.randint(1, 61, s[:, 1:].shape, generator=g)
        return {'seq': s[:, :-1], 'pos': s[:, 1:], 'neg': neg}, s[:, 1:]
    def loss(o, pos):
        p, n = o; idx = (pos != 0).float()
        l = F.binary_cross_entropy_with_logits(p, torch.ones_like(p), reduction='none') + F.binary_cross_entropy_with_logits(n, torch.zeros_like(n), reduction='none')
        return (l*idx).sum()/idx.sum()
    return dict(model=SASRec(bug=bug), batch=batch, loss=loss)

class DeepFM(nn.Module):
    def __init__(self, field_dims, k=10, mlp=(64, 32), bug=False):
        super().__init__()
        n = sum(field_dims); self.embedding = nn.Embedding(n, k); self.fc = nn.Embedding(n, 1); self.bias = nn.Parameter(torch.zeros(1))
        nn.init.xavier_uniform_(self.embedding.weight)
        off = [0]
        for f in field_dims[:-1]: off.append(off[-1]+f)
        self.offsets = torch.tensor(off)*(0 if bug else 1)
        layers, d = [], len(field_dims)*k
        for w in mlp: layers += [nn.Linear(d, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Dropout(0.2)]; d = w
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 1))
    def forward(self, x):
        x = x + self.offsets[None]
        e = self.embedding(x); fm = 0.5*(e.sum(1)**2 - (e**2).sum(1)).sum(1, keepdim=True)
        return (self.fc(x).sum(1) + self.bias + fm + self.mlp(e.flatten(1))).squeeze(1)
@case('deepfm', 'field offsets missing: all fields share the first rows of the embedding', ['embedding', 'fc'])
def _(bug):
    cards = [40, 20, 60, 8, 30, 12]; b0 = ctr_batch(cards, 4)
    def batch(g):
        _, c, y = b0(g); return c, y
    return dict(model=DeepFM(cards, bug=bug), batch=batch, loss=nn.BCEWithLogitsLoss())

class NeuMF(nn.Module):
    def __init__(self, nu=60, ni=60, k=16, bug=False):
        super().__init__()
        self.embed_user_GMF = nn.Embedding(nu, k); self.embed_item_GMF = nn.Embedding(ni, k)
        self.embed_user_MLP = nn.Embedding(nu, 2*k); self.embed_item_MLP = nn.Embedding(ni, 2*k)
        self.MLP_layers = nn.Sequential(nn.Dropout(0.1), nn.Linear(4*k, 2*k), nn.ReLU(), nn.Dropout(0.1), nn.Linear(2*k, k), nn.ReLU())
        self.predict_layer = nn.Linear(2*k, 1); self._init_weight_(); self.bug = bug
    def _init_weight_(self):
        for e in (self.embed_user_GMF, self.embed_user_MLP, self.embed_item_GMF, self.embed_item_MLP): nn.init.normal_(e.weight, std=0.01)
        for m in self.MLP_layers:
            if isinstance(m, nn.Linear): nn.init.xavier_uniform_(m.weight)
        nn.init.kaiming_uniform_(self.predict_layer.weight, a=1, nonlinearity='sigmoid')
        for m in self.modules():
            if isinstance(m, nn.Linear) and m.bias is not None: m.bias.data.zero_()
    def forward(self, user, item):
        if self.bug: user = item
        gmf = self.embed_user_GMF(user)*self.embed_item_GMF(item)
        mlp = self.MLP_layers(torch.cat((self.embed_user_MLP(user), self.embed_item_MLP(item)), -1))
        return self.predict_layer(torch.cat((gmf, mlp), -1)).view(-1)
@case('neumf', 'user tables looked up with the item ids', ['embed_user'])
def _(bug):
    g0 = G(5); bu = torch.randn(60, generator=g0)*2; bi = torch.randn(60, generator=g0)
    def batch(g):
        u, i = torch.randint(60, (64,), generator=g), torch.randint(60, (64,), generator=g)
        return {'user': u, 'item': i}, (torch.rand(64, generator=g) < torch.sigmoid(bu[u]+bi[i])).float()
    return dict(model=NeuMF(bug=bug), batch=batch, loss=nn.BCEWithLogitsLoss())

class BERT4Rec(nn.Module):
    def __init__(self, n=60, h=32, L=20):
        super().__init__()
        self.token = nn.Embedding(n+2, h, padding_idx=0); self.position = nn.Parameter(torch.randn(1, L, h)*0.02); self.norm = nn.LayerNorm(h)
        layer = nn.TransformerEncoderLayer(h, 2, 4*h, 0.1, 'gelu', batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False); self.out = nn.Linear(h, n+1)
        self.apply(self._init)
    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)): nn.init.trunc_normal_(m.weight, std=0.02)
    def forward(self, x):
        pad = x == 0
        return self.out(self.enc(self.norm(self.token(x)+self.position), src_key_padding_mask=pad))
@case('bert4rec', 'unmasked positions labelled 0 and not ignored (ignore_index -100 left at default)', ['loss', 'out'])
def _(bug):
    seqs = seq_batch(L=20, lag=1)
    def batch(g):
        s = seqs(g)[:, 1:]; m = (torch.rand(s.shape, generator=g) < 0.2) & (s != 0)
        return s.masked_fill(m, 61), torch.where(m, s, torch.zeros_like(s))
    ce = nn.CrossEntropyLoss() if bug else nn.CrossEntropyLoss(ignore_index=0)
    return dict(model=BERT4Rec(), batch=batch, loss=lambda o, t: ce(o.view(-1, o.size(-1)), t.reshape(-1)))

class BiasedMF(nn.Module):
    def __init__(self, nu, ni, k=12, mu=3.5):
        super().__init__()
        self.P = nn.Embedding(nu, k); self.Q = nn.Embedding(ni, k); self.bu = nn.Embedding(nu, 1); self.bi = nn.Embedding(ni, 1)
        self.P.weight.data.normal_(0, 0.1); self.Q.weight.data.normal_(0, 0.1); self.bu.weight.data.zero_(); self.bi.weight.data.zero_()
        self.mu = mu
    def forward(self, ui):
        u, i = ui[:, 0], ui[:, 1]
        return (self.P(u)*self.Q(i)).sum(1, keepdim=True) + self.bu(u) + self.bi(i) + self.mu
@case('biased_mf', 'prediction (B,1) against ratings (B,): broadcasts to (B,B)', ['loss', 'bu', 'bi'])
def _(bug):
    g0 = G(6); bu = torch.randn(50, generator=g0)*.7; bi = torch.randn(40, generator=g0)*.7
    def batch(g):
        u, i = torch.randint(50, (64,), generator=g), torch.randint(40, (64,), generator=g)
        return torch.stack([u, i], 1), (3.5+bu[u]+bi[i]+.3*torch.randn(64, generator=g)).clamp(1, 5)
    good = lambda o, t: F.mse_loss(o.squeeze(1), t)
    return dict(model=BiasedMF(50, 40), batch=batch, loss=nn.MSELoss() if bug else good)

class GRU4Rec(nn.Module):
    def __init__(self, n=60, h=48, bug=False):
        super().__init__()
        self.emb = nn.Embedding(n+1, h, padding_idx=0); self.gru = nn.GRU(h, h, batch_first=True); self.h2o = nn.Linear(h, n+1); self.bug = bug
    def forward(self, x):
        o, _ = self.gru(self.emb(x))
        return self.h2o(o[:, 0] if self.bug else o[:, -1])
@case('gru4rec', 'takes the output of the first step instead of the last', ['gru'])
def _(bug):
    perm = torch.randperm(60, generator=G(7))
    def batch(g):
        s = torch.randint(60, (48, 12), generator=g); return s+1, perm[s[:, -1]]+1
    return dict(model=GRU4Rec(bug=bug), batch=batch, loss=nn.CrossEntropyLoss())

class CrossNetV2(nn.Module):
    def __init__(self, d, n, bug): 
        super().__init__(); self.w = nn.ModuleList(nn.Linear(d, d) for _ in range(n)); self.bug = bug
    def forward(self, x0):
        x = x0
        for w in self.w: x = x*w(x) if self.bug else x0*w(x)+x
        return x
class DCNv2(nn.Module):
    def __init__(self, cards, nd=13, k=8, bug=False):
        super().__init__()
        self.embs = nn.ModuleDict({f'C{i}': nn.Embedding(c, k) for i, c in enumerate(cards)}); d = nd+k*len(cards)
        for e in self.embs.values(): nn.init.normal_(e.weight, std=0.1)
        self.cross = CrossNetV2(d, 4, bug); self.final = nn.Linear(d, 1)
        self.bn = nn.BatchNorm1d(nd)
    def forward(self, dense, cats):
        x = torch.cat([self.bn(dense)]+[e(cats[:, i]) for i, e in enumerate(self.embs.values())], 1)
        return self.final(self.cross(x))[:, 0]
@case('dcnv2', 'cross layer without residual and with x instead of x0: products of products vanish', ['cross'])
def _(bug):
    cards = [50, 20, 100, 8]; b0 = ctr_batch(cards, 8)
    def batch(g):
        d, c, y = b0(g); return (d, c), y
    return dict(model=DCNv2(cards, bug=bug), batch=batch, loss=F.binary_cross_entropy_with_logits)

# ---------------------------------------------------------------- tabular
def tab_batch(seed, B=64, raw=False, n=10):
    g0 = G(seed); W1 = torch.randn(n, 8, generator=g0); w2 = torch.randn(8, generator=g0)
    scale = torch.tensor([5e4, 40., 1., 0.01, 2e3, 12., 1., 300., 7., 1.])[:n]; mean = torch.tensor([6e4, 45., 0., 0.05, 8e3, 24., 0., 700., 10., 0.])[:n]
    def batch(g):
        z = torch.randn(B, n, generator=g); y = torch.tanh(z@W1/3)@w2
        return (z*scale*0.5+mean if raw else z), y
    return batch
def sparsemax(z, dim=-1):
    s, _ = z.sort(dim=dim, descending=True); k = torch.arange(1, z.size(dim)+1, dtype=z.dtype)
    shape = [1]*z.dim(); shape[dim] = -1; k = k.view(shape)
    cs = s.cumsum(dim)-1; sup = (k*s > cs).to(z.dtype).sum(dim, keepdim=True)
    tau = cs.gather(dim, sup.long()-1)/sup
    return (z-tau).clamp(min=0)
class GLUBlock(nn.Module):
    def __init__(self, i, o, shared=None):
        super().__init__(); self.fc = shared or nn.Linear(i, 2*o, bias=False); self.bn = nn.BatchNorm1d(2*o, momentum=0.02); self.o = o
    def forward(self, x):
        x = self.bn(self.fc(x)); return x[:, :self.o]*torch.sigmoid(x[:, self.o:])
class FeatTransformer(nn.Module):
    def __init__(self, i, o, sh):
        super().__init__(); self.b = nn.ModuleList([GLUBlock(i, o, sh[0]), GLUBlock(o, o, sh[1]), GLUBlock(o, o), GLUBlock(o, o)])
    def forward(self, x):
        x = self.b[0](x)
        for b in self.b[1:]: x = (x+b(x))*math.sqrt(0.5)
        return x
class TabNet(nn.Module):
    def __init__(self, n, out, nd=8, na=8, steps=3, gamma=1.3, bug=False):
        super().__init__()
        self.initial_bn = nn.BatchNorm1d(n, momentum=0.01); sh = [nn.Linear(n, 2*(nd+na), bias=False), nn.Linear(nd+na, 2*(nd+na), bias=False)]
        self.splitter = FeatTransformer(n, nd+na, sh)
        self.ft = nn.ModuleList(FeatTransformer(n, nd+na, sh) for _ in range(steps))
        self.att = nn.ModuleList(nn.Sequential(nn.Linear(na, n, bias=False), nn.BatchNorm1d(n, momentum=0.02)) for _ in range(steps))
        self.final_mapping = nn.Linear(nd, out, bias=False); self.nd, self.gamma, self.bug = nd, gamma, bug
    def forward(self, x):
        x = self.initial_bn(x); prior = torch.ones_like(x); M_loss = 0.; a = self.splitter(x)[:, self.nd:]; res = 0
        for ft, at in zip(self.ft, self.att):
            M = sparsemax(at(a)*prior, dim=0 if self.bug else -1)
            M_loss = M_loss + (M*torch.log(M+1e-10)).sum(1).mean(); prior = prior*(self.gamma-M)
            o = ft(M*x); res = res + F.relu(o[:, :self.nd]); a = o[:, self.nd:]
        return self.final_mapping(res), M_loss/len(self.ft)
@case('tabnet', 'sparsemax over dim 0 (the batch) instead of the features', ['att'])
def _(bug):
    b0 = tab_batch(11)
    def batch(g):
        x, y = b0(g); return x, (y > 0).long()
    return dict(model=TabNet(10, 2, bug=bug), batch=batch, loss=lambda o, y: F.cross_entropy(o[0], y) + 1e-3*o[1], ev=lambda o, y: F.cross_entropy(o[0], y))

class FeatureTokenizer(nn.Module):
    def __init__(self, n, cats, d):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, d)); self.bias = nn.Parameter(torch.empty(n+len(cats), d)); self.cls = nn.Parameter(torch.empty(d))
        self.register_buffer('category_offsets', torch.tensor([0]+cats[:-1]).cumsum(0)); self.category_embeddings = nn.Embedding(sum(cats), d)
        for p in (self.weight, self.bias, self.cls, self.category_embeddings.weight): nn.init.uniform_(p, -d**-.5, d**-.5)
    def forward(self, xn, xc):
        t = torch.cat([self.weight[None]*xn[..., None], self.category_embeddings(xc+self.category_offsets)], 1)+self.bias
        return torch.cat([self.cls.expand(len(xn), 1, -1), t], 1)
class ReGLUBlock(nn.Module):
    def __init__(self, d, first):
        super().__init__(); self.attn = nn.MultiheadAttention(d, 4, dropout=0.2, batch_first=True); self.n0 = None if first else nn.LayerNorm(d); self.n1 = nn.LayerNorm(d)
        self.lin0 = nn.Linear(d, 2*d); self.lin1 = nn.Linear(d, d)
    def forward(self, x):
        h = self.n0(x) if self.n0 is not None else x
        x = x + self.attn(h, h, h, need_weights=False)[0]
        a, b = self.lin0(self.n1(x)).chunk(2, -1); return x + self.lin1(a*F.relu(b))
class FTTransformer(nn.Module):
    def __init__(self, n=10, cats=(5, 9), d=32, L=2):
        super().__init__(); self.tokenizer = FeatureTokenizer(n, list(cats), d); self.blocks = nn.ModuleList(ReGLUBlock(d, i == 0) for i in range(L))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))
    def forward(self, x_num, x_cat):
        x = self.tokenizer(x_num, x_cat)
        for b in self.blocks: x = b(x)
        return self.head(x[:, 0]).squeeze(-1)
@case('ft_transformer', 'numerical columns fed raw (income 6e4 beside rate 0.05)', ['tokenizer', 'input'])
def _(bug):
    b0 = tab_batch(12, raw=bug)
    def batch(g):
        x, y = b0(g); c = torch.stack([torch.randint(5, (64,), generator=g), torch.randint(9, (64,), generator=g)], 1)
        return {'x_num': x, 'x_cat': c}, y + 0.2*c[:, 0] - 0.4
    return dict(model=FTTransformer(), batch=batch, loss=nn.MSELoss())

class ODST(nn.Module):
    def __init__(self, i, trees=24, depth=4, bug=False):
        super().__init__(); self.depth = depth
        self.feature_selection_logits = nn.Parameter(torch.rand(i, trees, depth)); self.feature_thresholds = nn.Parameter(torch.randn(trees, depth)*0.7)
        self.log_temperatures = nn.Parameter(torch.full((trees, depth), -7. if bug else 0.)); self.response = nn.Parameter(torch.randn(trees, 3, 2**depth))
        ind = torch.arange(2**depth); codes = (ind[None] // 2**torch.arange(depth)[:, None]) % 2
        self.bin_codes_1hot = nn.Parameter(torch.stack([codes, 1-codes], -1).float(), requires_grad=False)
    def forward(self, x):
        fs = torch.softmax(self.feature_selection_logits*3, 0); fv = torch.einsum('bi,itd->btd', x, fs)
        tl = (fv-self.feature_thresholds)*torch.exp(-self.log_temperatures); tl = torch.stack([-tl, tl], -1)
        bins = torch.sigmoid(tl); bm = torch.einsum('btds,dcs->btdc', bins, self.bin_codes_1hot)
        return torch.einsum('btc,tuc->btu', bm.prod(2), self.response)
class NODE(nn.Module):
    def __init__(self, n, bug):
        super().__init__(); self.bn = nn.BatchNorm1d(n); self.l1 = ODST(n, bug=bug); self.l2 = ODST(n+72, bug=bug)
    def forward(self, x):
        x = self.bn(x); a = self.l1(x); b = self.l2(torch.cat([x, a.flatten(1)], 1)); return torch.cat([a, b], 1)[..., 0].mean(1)
@case('node', 'log temperatures initialised at -7: split sigmoids saturated', ['l1', 'l2', 'log_temperatures'])
def _(bug):
    b0 = tab_batch(13); return dict(model=NODE(10, bug), batch=b0, loss=F.mse_loss)

class EntityEmbeddings(nn.Module):
    def __init__(self, cards, nc, y_range=None):
        super().__init__(); self.embeds = nn.ModuleList(nn.Embedding(c, min(50, (c+1)//2)) for c in cards)
        for e in self.embeds: e.weight.data.normal_(0, 0.1)
        ne = sum(e.embedding_dim for e in self.embeds); self.bn_cont = nn.BatchNorm1d(nc)
        self.layers = nn.Sequential(nn.Dropout(0.04), nn.Linear(ne+nc, 100), nn.ReLU(), nn.BatchNorm1d(100), nn.Dropout(0.1), nn.Linear(100, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 1))
    def forward(self, x_cat, x_cont):
        return self.layers(torch.cat([e(x_cat[:, i]) for i, e in enumerate(self.embeds)]+[self.bn_cont(x_cont)], 1))
@case('entity_emb_sales', 'target raw sales (thousands) with MSE, not standardised log', ['layers.8', 'target', 'loss'])
def _(bug):
    g0 = G(14); cards = [30, 7, 12]; tabs = [torch.randn(c, generator=g0)*.35 for c in cards]
    def batch(g):
        c = torch.stack([torch.randint(k, (64,), generator=g) for k in cards], 1); x = torch.randn(64, 4, generator=g)*torch.tensor([10., 3, 500, 1])+torch.tensor([20., 5, 2000, 0])
        z = sum(t[c[:, i]] for i, t in enumerate(tabs)) + .03*(x[:, 0]-20)
        return (c, x), ((8.5+z).exp()[:, None] if bug else z[:, None]/.7)
    ev = (lambda o, t: F.mse_loss((o.clamp(min=50).log()-8.5)/.7, (t.log()-8.5)/.7)) if bug else None
    return dict(model=EntityEmbeddings(cards, 4), batch=batch, loss=nn.MSELoss(), ev=ev)

@case('mlp_raw_columns', 'no normalisation of raw numerical columns', ['net.0', 'net.1', 'input'])
def _(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.norm = nn.Identity() if bug else nn.BatchNorm1d(10); self.net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        def forward(self, x): return self.net(self.norm(x)).flatten()
    return dict(model=Net(), batch=tab_batch(15, raw=True), loss=nn.MSELoss())
