from harness import *
import torch.nn as nn, torch.nn.functional as F
def G(seed): return torch.Generator().manual_seed(seed)

# ---------------------------------------------------------------- VQ-VAE
@net(st="straight-through forgotten: decoder gets quantized without z + (q - z).detach()", perm="z.view(-1, D) of (B,C,H,W) without permute(0,2,3,1)", near="distance with the wrong sign: argmax instead of argmin", beta="codebook loss detaches the wrong side: both terms are the commitment loss (codebook gets no gradient)")
def vqvae2(s):
    K, D = 32, 8
    class VQ(nn.Module):
        def __init__(self): super().__init__(); self.embedding = nn.Embedding(K, D); nn.init.normal_(self.embedding.weight)
        def forward(self, z):
            zz = z if s == "perm" else z.permute(0, 2, 3, 1).contiguous(); f = zz.view(-1, D); d = f.pow(2).sum(1, keepdim=True) + self.embedding.weight.pow(2).sum(1) - 2*f @ self.embedding.weight.t()
            i = d.argmax(1) if s == "near" else d.argmin(1); q = self.embedding(i).view(zz.shape); loss = .25*F.mse_loss(q.detach(), zz) + (F.mse_loss(q.detach(), zz) if s == "beta" else F.mse_loss(q, zz.detach()))
            if s != "st": q = zz + (q - zz).detach()
            return (q if s == "perm" else q.permute(0, 3, 1, 2).contiguous()), loss
    class VQVAE(nn.Module):
        def __init__(self):
            super().__init__(); self.enc = nn.Sequential(nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU()); self.pre = nn.Sequential(nn.Conv2d(32, D, 1), nn.BatchNorm2d(D, affine=False)); self.vq = VQ()
            self.dec = nn.Sequential(nn.Conv2d(D, 32, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(32, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1))
        def forward(self, x): q, l = self.vq(self.pre(self.enc(x))); return self.dec(q), l
    def data(seed):
        g = G(seed); k = torch.randint(8, (32, 4, 4), generator=g); p = torch.randn(8, 4, 4, generator=G(4)); x = p[k].permute(0, 1, 3, 2, 4).reshape(32, 1, 16, 16) + .05*torch.randn(32, 1, 16, 16, generator=g); return x, x
    return dict(model=VQVAE, data=data, loss=lambda o, t: F.mse_loss(o[0], t)/1. + o[1])

