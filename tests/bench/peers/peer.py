# peer.py - trains one model with one peer on this rank and prints a line of JSON: seconds of each step,
# peak resident bytes. compare.py starts it.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import resource
import time

import torch

import models

a = argparse.ArgumentParser()
a.add_argument("model", choices=models.SHAPES)
a.add_argument("kind", choices=["torch", "deepspeed", "fsdp2"])
a.add_argument("--steps", type=int, default=6)
a.add_argument("--threads", type=int, default=2)
a.add_argument("--bucket", type=float, default=0, help="elements of a bucket; 0: the default")
a.add_argument("--fused", action="store_true", help="PyTorch's fused AdamW in place of its default")
a.add_argument("--bf16", action="store_true", help="autocast: float32 parameters, products in bf16")
o = a.parse_args()
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.set_num_threads(o.threads)
model = models.make(o.model).train()
OPTIM = dict(lr=3e-4, weight_decay=0.01)
BATCH = models.SHAPES[o.model]["batch"]


def plain():  # eager, also with FSDP around it
    optim = torch.optim.AdamW(model.parameters(), fused=True if o.fused else None, **OPTIM)

    def step(x, y):
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.bf16):
            loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        return loss
    return step


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    each = models.blocks(model)
    # Its buckets are what is wrapped: every block by default, two blocks together where large.
    group = max(1, int(o.bucket // 7e6)) if o.bucket else 1
    for i in range(0, len(each), group):
        fully_shard(each[i:i + group] if group > 1 else each[i], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return plain()


def deepspeed():
    import deepspeed as ds
    zero = {"stage": 3}
    if o.bucket:
        zero.update(reduce_bucket_size=int(o.bucket), stage3_prefetch_bucket_size=int(o.bucket),
                    stage3_param_persistence_threshold=1000, stage3_max_live_parameters=int(8 * o.bucket),
                    stage3_max_reuse_distance=int(8 * o.bucket))
    config = {"train_micro_batch_size_per_gpu": BATCH, "gradient_clipping": 1.0, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    ds.init_distributed(dist_backend="gloo")
    optim = torch.optim.AdamW(model.parameters(), fused=True if o.fused else None, **OPTIM)
    engine = ds.initialize(model=model, optimizer=optim, config=config)[0]

    def step(x, y):
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        return loss
    return step


step = {"torch": plain, "deepspeed": deepspeed, "fsdp2": fsdp2}[o.kind]()
generator = torch.Generator().manual_seed(rank)
seconds = []
for _ in range(o.steps):
    x, y = models.batch(o.model, generator)
    if ranks > 1:
        torch.distributed.barrier()
    start = time.perf_counter()
    loss = float(step(x, y))
    seconds.append(time.perf_counter() - start)
if rank == 0:
    print("PEER " + json.dumps({"seconds": seconds, "loss": loss,
                                "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)
os._exit(0)  # libraries' threads may wait for each other at the end
