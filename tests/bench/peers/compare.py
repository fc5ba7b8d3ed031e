# compare.py - steps of zerox beside those of its peers on the same shapes, in turn (A B A B ...): least
# and median seconds of each, and ratios. See README.md.
# SPDX-License-Identifier: Apache-2.0
import argparse
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import models

HERE = os.path.dirname(os.path.abspath(__file__))
a = argparse.ArgumentParser()
a.add_argument("program", help="zerox")
a.add_argument("--models", default="gpt2,llama,bert,resnet,long")
a.add_argument("--peers", default="", help="of those below; default: all that fit the ranks")
a.add_argument("--ranks", type=int, default=1)
a.add_argument("--threads", type=int, default=2)
a.add_argument("--rounds", type=int, default=3)
a.add_argument("--steps", type=int, default=6, help="of a round; the first two don't count")
a.add_argument("--bf16", action="store_true", help="zerox's bf16 beside PyTorch's autocast: torch and torch-tuned")
a.add_argument("--timeout", type=int, default=600, help="seconds a peer may take for a round")
o = a.parse_args()


def malloc_env():  # the best that is there; and waiting threads sleep soon, as zerox's do
    return {"GOMP_SPINCOUNT": "2000", **best_malloc()}


def best_malloc():
    for word in ("tcmalloc", "jemalloc"):
        found = sorted(glob.glob("/usr/lib/*/lib%s*.so*" % word) + glob.glob("/usr/local/lib/lib%s*.so*" % word))
        if found:
            return {"LD_PRELOAD": found[0]}
    return {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000",
            "MALLOC_TOP_PAD_": "268435456"}


# name: kind of peer.py, its options, environment; whether it wants one rank or several
PEERS = {
    "torch": ("torch", [], {}, False),
    "torch-tuned": ("torch", ["--fused"], malloc_env(), False),
    "deepspeed": ("deepspeed", ["--fused"], malloc_env(), True),
    "deepspeed-small": ("deepspeed", ["--fused", "--bucket", "5e6"], malloc_env(), True),
    "fsdp2": ("fsdp2", ["--fused"], malloc_env(), True),
    "fsdp2-large": ("fsdp2", ["--fused", "--bucket", "28e6"], malloc_env(), True),
}


def zerox_files(name, folder):
    path = os.path.join(folder, name + ".onnx")
    s = models.SHAPES[name]
    if s["new"] is None:
        names = models.export(name, path)
        data = [x for n in names for x in ("--data", "%s=%s" % (n, path.replace(".onnx", "." + n + ".npy")))]
    else:
        subprocess.run([o.program, "new", *s["new"].split(), "--force", "-o", path], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        data = ["--data", "input_ids=synthetic", "--data", "labels=synthetic"]
    return path, data


def run_zerox(name, files, stage, folder):
    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": models.SHAPES[name]["batch"], "gradient_clipping": 1.0,
                   "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.01}},
                   "zero_optimization": {"stage": stage}, "bf16": {"enabled": o.bf16}}, f)
    out = os.path.join(folder, "run")
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run([o.program, "train", files[0], "--config", config, *files[1], "--steps", str(o.steps),
                           "--no-save", "--ranks", str(o.ranks), "--threads", str(o.threads), "--out", out],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        return done.stdout.strip().splitlines()[-1][:200]
    rows = [json.loads(line) for line in open(os.path.join(out, "log.jsonl"))]
    return {"seconds": [r["step_seconds"] for r in rows], "bytes": max(r["resident_bytes"] for r in rows)}


def run_peer(name, peer):
    kind, options, more, _ = PEERS[peer]
    command = [sys.executable, os.path.join(HERE, "peer.py"), name, kind, "--steps", str(o.steps), "--threads",
               str(o.threads), *options, *(["--bf16"] if o.bf16 else [])]
    ranks = []
    for r in range(o.ranks):
        env = dict(os.environ, OMP_NUM_THREADS=str(o.threads), RANK=str(r), LOCAL_RANK=str(r),
                   WORLD_SIZE=str(o.ranks), LOCAL_SIZE=str(o.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29517",
                   **more)
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        said = ranks[0].communicate(timeout=o.timeout)[0]
    except subprocess.TimeoutExpired:
        said = "took more than %d s" % o.timeout
    for p in ranks:
        p.kill()
        p.wait()
    found = re.search(r"^PEER (.*)$", said, re.M)
    return json.loads(found.group(1)) if found else (said.strip().splitlines() or ["said nothing"])[-1][:200]


def table(name, found):
    own = next(iter(found))
    print("\n%s%s, %d x %d: seconds of a step, least and median; against %s"
          % (name, " in bf16" if o.bf16 else "", o.ranks, o.threads, own))
    base = found[own]["seconds"] if isinstance(found[own], dict) else []
    for word, x in found.items():
        if not isinstance(x, dict):
            print("  %-18s left out: %s" % (word, x))
            continue
        s = x["seconds"]
        line = "  %-18s %8.4f %8.4f   first %8.4f   %6.2f GB a rank" % (word, min(s), statistics.median(s),
                                                                    x["first"], x["bytes"] / 1e9)
        if base and word != own:
            line += "   %5.2f x least, %5.2f x median" % (min(s) / min(base), statistics.median(s) / statistics.median(base))
        print(line, flush=True)


def compare(name, folder):
    peers = [p for p in (o.peers.split(",") if o.peers else PEERS) if PEERS[p][3] == (o.ranks > 1)
             and not (o.bf16 and PEERS[p][0] != "torch")]
    stages = {"zerox": 3} if o.ranks == 1 else {"zerox stage 3": 3, "zerox stage 0": 0}
    files = zerox_files(name, folder)
    found = {}
    for _ in range(o.rounds):
        for word in [*stages, *peers]:
            if isinstance(found.get(word), str):
                continue  # it failed before
            one = run_zerox(name, files, stages[word], folder) if word in stages else run_peer(name, word)
            if isinstance(one, dict):
                last = found.get(word, {"seconds": [], "first": one["seconds"][0], "bytes": 0})
                one = {"seconds": last["seconds"] + one["seconds"][2:], "first": min(last["first"], one["seconds"][0]),
                       "bytes": max(last["bytes"], one["bytes"])}
            found[word] = one
    table(name, found)


with tempfile.TemporaryDirectory() as folder:
    for name in o.models.split(","):
        try:
            compare(name, folder)
        except Exception as e:  # the other models are worth having
            print("\n%s: left out: %s" % (name, str(e).strip().splitlines()[-1][:300]))
