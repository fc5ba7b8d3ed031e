# make.py - writes schedules.def: learning rates and betas as DeepSpeed's own classes give them.
# python make.py   (needs torch and DeepSpeed)
# SPDX-License-Identifier: Apache-2.0
import json
import logging
import os

import torch
from deepspeed.runtime import lr_schedules
from deepspeed.utils import logger

logger.setLevel(logging.ERROR)

T = {"total_num_steps": 10}
CYCLE = {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1}
# name, class, lr of the optimizer, parameters, steps
ROWS = [
    ("the logarithm", "WarmupLR", 1e-3, {"warmup_max_lr": 1e-3, "warmup_num_steps": 4}, 8),
    ("a line", "WarmupLR", 1e-3, {"warmup_num_steps": 4, "warmup_type": "linear"}, 8),
    ("a warm-up from above 0", "WarmupLR", 3e-4, {"warmup_min_lr": 1e-5, "warmup_num_steps": 7}, 10),
    ("a warm-up of one step", "WarmupLR", 1e-3, {"warmup_num_steps": 1}, 6),
    ("of two", "WarmupLR", 1e-3, {"warmup_num_steps": 2, "warmup_type": "linear"}, 6),
    ("of a thousand, by default", "WarmupLR", 1e-3, {}, 5),
    ("decay", "WarmupDecayLR", 1e-2, {**T, "warmup_num_steps": 4, "warmup_type": "linear"}, 14),
    ("decay to a least rate", "WarmupDecayLR", 1e-2,
     {**T, "warmup_num_steps": 3, "warmup_min_lr": 2e-4, "warmup_max_lr": 5e-3}, 13),
    ("decay that ends within the warm-up", "WarmupDecayLR", 1e-2, {"total_num_steps": 3, "warmup_num_steps": 5}, 9),
    ("decay after a warm-up of one", "WarmupDecayLR", 1e-2, {"total_num_steps": 5, "warmup_num_steps": 1}, 8),
    ("a cosine", "WarmupCosineLR", 0.1, {**T, "warmup_num_steps": 4, "warmup_type": "linear"}, 13),
    ("a cosine with ratios", "WarmupCosineLR", 3e-4,
     {**T, "warmup_num_steps": 3, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.05}, 13),
    ("a cosine shorter than its warm-up", "WarmupCosineLR", 0.1, {"total_num_steps": 3, "warmup_num_steps": 4}, 8),
    ("a cosine after a warm-up of one", "WarmupCosineLR", 0.1, {"total_num_steps": 4, "warmup_num_steps": 1}, 7),
    ("one cycle", "OneCycle", 1e-3,
     {**CYCLE, "cycle_first_step_size": 3, "decay_step_size": 2, "decay_lr_rate": 0.5}, 13),
    ("one cycle without decay", "OneCycle", 1e-3, {**CYCLE, "cycle_first_step_size": 4, "cycle_second_step_size": 2}, 10),
    ("stairs", "OneCycle", 1e-3,
     {**CYCLE, "cycle_first_step_size": 7, "cycle_second_step_size": 5, "cycle_first_stair_count": 3}, 15),
    ("stairs of two kinds", "OneCycle", 1e-3,
     {**CYCLE, "cycle_first_step_size": 6, "cycle_second_step_size": 9, "cycle_first_stair_count": 2,
      "cycle_second_stair_count": 4}, 17),
    ("nothing comes down", "OneCycle", 1e-3, {**CYCLE, "cycle_first_step_size": 3, "cycle_second_step_size": 0}, 6),
    ("momentum that decays alone", "OneCycle", 1e-3,
     {**CYCLE, "cycle_first_step_size": 2, "decay_step_size": 3, "decay_mom_rate": 0.01, "cycle_min_mom": 0.7,
      "cycle_max_mom": 0.95}, 9),
    ("momentum that stays", "OneCycle", 1e-3, {**CYCLE, "cycle_first_step_size": 2, "cycle_momentum": False}, 7),
    ("a range test", "LRRangeTest", 1e-3, {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 3}, 8),
    ("a range test in stairs", "LRRangeTest", 1e-3,
     {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 3, "lr_range_test_step_rate": 2.5,
      "lr_range_test_staircase": True}, 10),
]

out = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schedules.def"), "w")


def put(line):
    out.write(line + "\n")


put("// schedules.def - learning rates and beta1 of the first steps, by DeepSpeed's own classes: made by make.py.")
put("// Columns: what it shows; config; steps; rates; betas.")
put("// SPDX-License-Identifier: Apache-2.0")
for name, kind, lr, params, steps in ROWS:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=(0.9, 0.999))
    schedule = getattr(lr_schedules, kind)(optimizer, **params)
    rates, betas = [], []
    for _ in range(steps):
        group = optimizer.param_groups[0]
        rates.append(group["lr"])
        betas.append(group["betas"])
        schedule.step()
    config = {"optimizer": {"type": "AdamW", "params": {"lr": lr}}, "scheduler": {"type": kind, "params": params}}
    text = json.dumps(config).replace('"', '\\"')
    put(f'ROW("{kind}: {name}", "{text}", {steps},')
    put("    LIST(" + ", ".join(repr(r) for r in rates) + "),")
    put("    LIST(" + ", ".join(f"{{{b[0]!r}, {b[1]!r}}}" for b in betas) + "))")
