from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- DETR
@net(pos="positional embedding not passed to the encoder/decoder keys (memory without pos)", flat="flatten by view(B,-1,C) instead of flatten(2).transpose(1,2)", query="decoder target zeros and query_embed initialised to zeros: all queries alike", boxsig="box head: sigmoid applied twice")
def detr2(s):
    C, Q = 48, 3
    class DecLayer(nn.Module):
        def __init__(self):
            super().__init__(); self.self_attn = nn.MultiheadAttention(C, 4, batch_first=True); self.multihead_attn = nn.MultiheadAttention(C, 4, batch_first=True)
            self.linear1 = nn.Linear(C, 96); self.linear2 = nn.Linear(96, C); self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(C) for _ in range(3))
        def forward(self, tgt, mem, pos, qpos):
            q = tgt + qpos; tgt = self.norm1(tgt + self.self_attn(q, q, tgt)[0])
            tgt = self.norm2(tgt + self.multihead_attn(tgt + qpos, mem if s == "pos" else mem + pos, mem)[0])
            return self.norm3(tgt + self.linear2(F.relu(self.linear1(tgt))))
    class EncLayer(nn.Module):
        def __init__(self):
            super().__init__(); self.self_attn = nn.MultiheadAttention(C, 4, batch_first=True); self.linear1 = nn.Linear(C, 96); self.linear2 = nn.Linear(96, C); self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        def forward(self, x, pos):
            q = x if s == "pos" else x + pos; x = self.norm1(x + self.self_attn(q, q, x)[0])
            return self.norm2(x + self.linear2(F.relu(self.linear1(x))))
    class DETR(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, C, 3, 2, 1), nn.BatchNorm2d(C), nn.ReLU())
            self.input_proj = nn.Conv2d(C, C, 1); self.query_embed = nn.Embedding(Q, C)
            if s == "query": nn.init.zeros_(self.query_embed.weight)
            a = torch.arange(1, 7.)/6*6.28; f = a[:, None]*torch.arange(1, C//4+1)[None]/4; e = torch.cat([f.sin(), f.cos()], -1); self.register_buffer('row', e); self.register_buffer('col', e.clone())
            self.encoder = nn.ModuleList([EncLayer()]); self.decoder = nn.ModuleList([DecLayer() for _ in range(2)])
            self.class_embed = nn.Linear(C, 4); self.bbox_embed = nn.Sequential(nn.Linear(C, C), nn.ReLU(), nn.Linear(C, 4))
        def forward(self, img):
            f = self.input_proj(self.backbone(img)); B, c, H, W = f.shape
            pos = torch.cat([self.col[:W].unsqueeze(0).repeat(H, 1, 1), self.row[:H].unsqueeze(1).repeat(1, W, 1)], -1).flatten(0, 1).unsqueeze(0)
            x = f.reshape(B, -1, c) if s == "flat" else f.flatten(2).transpose(1, 2)
            for l in self.encoder: x = l(x, pos)
            qp = self.query_embed.weight.unsqueeze(0).repeat(B, 1, 1); t = torch.zeros_like(qp)
            for l in self.decoder: t = l(t, x, pos, qp)
            box = self.bbox_embed(t).sigmoid()
            if s == "boxsig": box = box.sigmoid()
            return self.class_embed(t), box
    def data(seed):
        g = G(seed); B = 32; img = torch.rand(B, 3, 24, 24, generator=g)*.2; box = torch.zeros(B, Q, 4); cls = torch.randint(4, (B, Q), generator=g)
        for b in range(B):
            for q in range(Q):
                if cls[b, q] == 3: box[b, q] = .5; continue
                w = 4 + 2*int(cls[b, q]); y, x = (int(torch.randint(24-w, (1,), generator=g)) for _ in range(2))
                img[b, q, y:y+w, x:x+w] += 1; box[b, q] = torch.tensor([x+w/2, y+w/2, w, w])/24
        return img, {"labels": cls, "boxes": box}
    def loss(o, t):
        m = (t["labels"] != 3).float().unsqueeze(-1)
        return F.cross_entropy(o[0].flatten(0, 1), t["labels"].flatten()) + 5*((o[1]-t["boxes"]).abs()*m).sum()/m.sum()
    return dict(model=DETR, data=data, loss=loss)

