from base import *

@case("https://github.com/phlippe/uvadlc_notebooks/issues/5", "GATLayer: flat edge indices built with edges[:,0] * batch_size instead of * num_nodes: rows of the wrong graph", "edge_indices_row/col")
def gat_edge_index(planted):
    class GATLayer(nn.Module):
        def __init__(self, c_in, c_out, num_heads=2, alpha=.2):
            super().__init__(); self.num_heads = num_heads; c = c_out // num_heads; self.projection = nn.Linear(c_in, c * num_heads); self.a = nn.Parameter(torch.empty(num_heads, 2 * c)); self.leakyrelu = nn.LeakyReLU(alpha)
            nn.init.xavier_uniform_(self.projection.weight, gain=1.414); nn.init.xavier_uniform_(self.a, gain=1.414)
        def forward(self, node_feats, adj):
            batch_size, num_nodes = node_feats.shape[:2]; node_feats = self.projection(node_feats).view(batch_size, num_nodes, self.num_heads, -1)
            edges = adj.nonzero(as_tuple=False); flat = node_feats.view(batch_size * num_nodes, self.num_heads, -1); n = batch_size if planted else num_nodes
            row, col = edges[:, 0] * n + edges[:, 1], edges[:, 0] * n + edges[:, 2]
            a_input = torch.cat([flat[row], flat[col]], dim=-1); attn_logits = self.leakyrelu(torch.einsum("bhc,hc->bh", a_input, self.a))
            attn_matrix = attn_logits.new_full(adj.shape + (self.num_heads,), -9e15); attn_matrix = attn_matrix.index_put((edges[:, 0], edges[:, 1], edges[:, 2]), attn_logits)
            return torch.einsum("bijh,bjhc->bihc", F.softmax(attn_matrix, dim=2), node_feats).reshape(batch_size, num_nodes, -1)
    class GAT(nn.Module):
        def __init__(self):
            super().__init__(); self.l1, self.l2 = GATLayer(8, 32), GATLayer(32, 32); self.head = nn.Linear(32, 4)
        def forward(self, x, adj): return self.head(F.elu(self.l2(F.elu(self.l1(x, adj)), adj)))
    W, s = T(3, 8, 4), T(4, 8)
    def data(seed):
        x = T(seed, 8, 24, 8); A = (torch.rand(8, 24, 24, generator=gen(seed + 1)) < .12).float(); adj = ((A + A.transpose(1, 2) + torch.eye(24)) > 0).float()
        att = ((x @ s)[:, None, :] * 1.5).expand(8, 24, 24).masked_fill(adj == 0, -1e9).softmax(-1)
        return (x, adj), (att @ x @ W).argmax(-1)
    return dict(model=GAT, data=data, loss=ceseq, lr=1e-2, diag={})

@case("https://github.com/keunwoochoi/kapre/issues/46", "amplitude_to_decibel subtracts the maximum of the whole batch instead of each clip's own", "log_spec - max(log_spec)")
def kapre_db_batch_max(planted):
    class Melspectrogram(nn.Module):
        def forward(self, x):
            S = torch.stft(x, 64, 32, window=torch.hann_window(64), return_complex=True).abs() ** 2; log_spec = 10 * torch.log10(S.clamp(min=1e-10))
            log_spec = log_spec - (log_spec.max() if planted else log_spec.amax((1, 2), keepdim=True)); return log_spec.clamp(min=-80)
    class Net(nn.Module):
        def __init__(self):
            super().__init__(); self.mel = Melspectrogram(); self.bn = nn.BatchNorm2d(1); self.c1, self.c2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1); self.fc = nn.Linear(16 * 8, 4)
        def forward(self, x):
            x = self.bn(self.mel(x)[:, None]); x = F.max_pool2d(F.relu(self.c1(x)), 2); x = F.max_pool2d(F.relu(self.c2(x)), 2)
            return self.fc(x.mean(-1).flatten(1))
    def data(seed):
        y = R(seed, 4, (16,)); t = torch.arange(1024.)[None]; f = (.15 + .35 * y[:, None].float() + .05 * torch.rand(16, 1, generator=gen(seed + 1)))
        g = 10 ** (-3 * torch.rand(16, 1, generator=gen(seed + 2))); return g * (torch.sin(f * t) + .3 * torch.sin(2 * f * t) + .5 * T(seed + 3, 16, 1024)), y
    return dict(model=Net, data=data, loss=ce, lr=3e-3, diag={})
