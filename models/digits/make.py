# make.py - writes model.onnx, a small residual network for 8x8 digits, and x.npy, labels.npy from the UCI data set
# "Optical Recognition of Handwritten Digits" as scikit-learn ships it (1797 images, 16 grey levels).
# Run from this folder with PyTorch, onnx, onnxscript and scikit-learn installed.
# SPDX-License-Identifier: Apache-2.0
import sys
import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from torch import nn
sys.path.insert(0, "..")
from export_torch import WithLoss, export


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                                  nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32))
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(32 * 16, 10)

    def forward(self, x):
        x = self.stem(x)
        return self.fc(self.pool(torch.relu(x + self.body(x))).flatten(1))


torch.manual_seed(1)
data = load_digits()
order = np.random.default_rng(1).permutation(len(data.target))
np.save("x.npy", (data.images[order] / 16).astype(np.float32)[:, None])
np.save("labels.npy", data.target[order].astype(np.int64))
export(WithLoss(Digits()), (torch.rand(32, 1, 8, 8), torch.zeros(32, dtype=torch.int64)), "model.onnx")

m = onnx.load("model.onnx")  # the exporter notes where on this machine each line of code was: not for others
for n in m.graph.node:
    for x in [x for x in n.metadata_props if x.key in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")]:
        n.metadata_props.remove(x)
onnx.save(m, "model.onnx")
