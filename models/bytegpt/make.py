# make.py - writes model.onnx: a small GPT over bytes, 3 blocks of width 96, dropout 0.05, tied head.
# Run from this folder with PyTorch, onnx and onnxscript installed; seeded, so the weights are always the same.
# SPDX-License-Identifier: Apache-2.0
import math, sys
import onnx
import torch
from torch import nn
sys.path.insert(0, "..")
from export_torch import WithLoss, export

WIDTH, HEADS, BLOCKS, SEQUENCE, BATCH, DROP = 96, 4, 3, 64, 8, 0.05


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(DROP)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.ln_2(x)))))


class ByteGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.wte.weight
        for name, w in self.named_parameters():
            if w.dim() == 2:
                nn.init.normal_(w, std=0.02 / (math.sqrt(2 * BLOCKS) if "proj" in name or "down" in name else 1))
            elif "bias" in name:
                nn.init.zeros_(w)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


torch.manual_seed(1)
ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.int64)
export(WithLoss(ByteGPT()), (ids, ids), "model.onnx", ("input_ids", "labels"))

m = onnx.load("model.onnx")  # the exporter notes where on this machine each line of code was: not for others
for n in m.graph.node:
    for x in [x for x in n.metadata_props if x.key in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")]:
        n.metadata_props.remove(x)
onnx.save(m, "model.onnx")
