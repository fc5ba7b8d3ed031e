#!/usr/bin/env bash
# bench_compare.sh PROGRAM - predicted against executed steps of every policy on a GPT-2-class model,
# at three bandwidths of the emulated link. Means something on a machine that does nothing else.
#
# PRESET (124m), SEQUENCE (256), RANKS (2), BANDWIDTHS, LATENCY (0.2ms), POLICIES (all), BUDGET
# (none asked for) and STEPS (until medians are known) are taken from the environment.
# SPDX-License-Identifier: Apache-2.0
set -eu
zerox=$(readlink -f "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$zerox" new gpt2 --preset "${PRESET:-124m}" --set "sequence=${SEQUENCE:-256}" -o model.onnx >/dev/null
printf '%s' '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}' >config.json

# "NAME predicted measured error interval", of each policy that was executed.
rows() {
    awk '
        /^ *\{"policy": / {
            name = $0; sub(/.*"name": "/, "", name); sub(/".*/, "", name)
            predicted = $0; sub(/.*"predicted_seconds": /, "", predicted); sub(/[,}].*/, "", predicted)
        }
        /"measured": \{/ {
            median = $0; sub(/.*"median_seconds": /, "", median); sub(/,.*/, "", median)
            from = $0; sub(/.*"interval_seconds": \[/, "", from); sub(/\].*/, "", from)
            split(from, ends, ", *")
            printf "%-28s %9.1f ms %9.1f ms %+7.1f %%   %.1f to %.1f ms\n", name, 1000 * predicted,
                1000 * median, 100 * (predicted / median - 1), 1000 * ends[1], 1000 * ends[2]
        }' "$1"
}

for bandwidth in ${BANDWIDTHS:-0.25GB/s 0.5GB/s 1GB/s}; do
    "$zerox" compare model.onnx --config config.json --ranks "${RANKS:-2}" --data input_ids=synthetic --data labels=synthetic \
        --bandwidth "$bandwidth" --latency "${LATENCY:-0.2ms}" --execute ${STEPS:+--steps "$STEPS"} \
        ${POLICIES:+--policies "$POLICIES"} ${BUDGET:+--budget "$BUDGET"} --json >found.json
    printf '\n%s, %-14s %12s %12s %9s   %s\n' "$bandwidth" "${LATENCY:-0.2ms}" predicted measured error \
        'median, 95 % interval'
    rows found.json
    grep -o '"losses_identical": [a-z]*' found.json
done
