from base import *

@case("https://github.com/catid/dora/pull/1", "lora_A and lora_B both start at zero: the low-rank update never gets a gradient", "DoRA lora_A / lora_B initialization")
def dora_zero_init(planted):
    W1, W2 = T(111, 32, 16, k=.25), T(112, 4, 32, k=.2); D1 = T(113, 32, 2, k=.5) @ T(114, 2, 16, k=.5)
    class DoRALayer(nn.Module):
        def __init__(self, weight, rank=4):
            super().__init__(); d_out, d_in = weight.shape; self.weight = nn.Parameter(weight.clone(), requires_grad=False)
            self.m = nn.Parameter(self.weight.norm(p=2, dim=0, keepdim=True)); std_dev = 1 / torch.sqrt(torch.tensor(rank).float())
            self.lora_A = nn.Parameter(torch.zeros(d_out, rank) if planted else torch.randn(d_out, rank) * std_dev)
            self.lora_B = nn.Parameter(torch.zeros(rank, d_in))
        def forward(self, x):
            adapted = self.weight + self.lora_A @ self.lora_B
            return F.linear(x, self.m * adapted / adapted.norm(p=2, dim=0, keepdim=True))
    class Model(nn.Module):
        def __init__(self): super().__init__(); self.layer1, self.layer2 = DoRALayer(W1), DoRALayer(W2)
        def forward(self, x): return self.layer2(F.relu(self.layer1(x)))
    def data(seed):
        x = T(seed, 64, 16); return x, F.relu(x @ (W1 + D1).T) @ W2.T
    return dict(model=Model, data=data, loss=mse, lr=5e-3, diag={})
