#!/usr/bin/env bash
# bench_executed.sh PROGRAM - executed steps of zerox against the other policies' at equal budgets, on
# two ranks of one thread: ratios of interleaved pairs beside those that are wanted, and how far
# predictions were off. Takes about an hour, and means something on a machine that does nothing else.
#
# A budget is given by what it leaves beside shards and activations:
#   budget = what stage 3 holds across steps (parameters, gradients, states, constants; of a rank)
#          + the most bytes that are neither parameters nor their gradients at any step of a
#            micro-batch, without recomputation ("held_bytes", "activation_bytes" of simulate)
#          + what is left: gathered parameters, whole gradients, buckets and scratch share it.
# (c) is at 1.05 times the least budget that every form of hooks-tuned and fsdp-tuned fits in, found
# by halving to 0.2 %.
#
# CASES ("a b c"), ROUNDS (11; at least 9), RATES, ACCUMULATE ("4 1"), POLICIES and, of (a) and (b),
# SIZES (zerox new --set) are taken from the environment; FOLDER keeps models and found.*.json.
# SPDX-License-Identifier: Apache-2.0
set -eu
zerox=$(readlink -f "$1")
folder=${FOLDER:-$(mktemp -d)}
[ -n "${FOLDER:-}" ] || trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"
cd "$folder"
policies=${POLICIES:-hooks-tuned,deepcompile,fsdp,fsdp-tuned,zerox}
sizes=${SIZES:-layers=12 width=768 heads=12 kv_heads=12 hidden=2048 vocab=512 context=256 sequence=256}
data=(--ranks 2 --threads 1 --data input_ids=synthetic --data labels=synthetic)
count=0

config() { # ACCUMULATION
    printf '%s' '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": '"$1"', "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}' >config.json
}

member() { # FILE NAME: a whole number
    grep -o "\"$2\": *[0-9]*" "$1" | head -1 | grep -o '[0-9]*$'
}

beside() { # MODEL: bytes of shards and activations
    "$zerox" simulate "$1" --config config.json --ranks 2 --machine host --policy fsdp --format json >beside.json
    echo $(($(member beside.json held_bytes) + $(member beside.json activation_bytes)))
}

# Every row against zerox: WANTED is "policy=ratio ...", 0.99 of those that aren't in it.
table() { # FILE WANTED
    awk -v wanted="$2" '
        function member(name,  x) {
            x = $0
            if (!sub(".*\"" name "\": ", "", x)) return ""
            sub(/[,}\]].*/, "", x)
            gsub(/"/, "", x)
            return x
        }
        function sort(x, n,  i, k, t) {
            for (i = 2; i <= n; i++)
                for (k = i; k > 1 && x[k] < x[k - 1]; k--) { t = x[k]; x[k] = x[k - 1]; x[k - 1] = t }
        }
        function middle(x, n) { return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2 }
        # The k-th least and the k-th greatest of n lie on both sides of the median, to 95 %.
        function rank(n,  k, all, below, ways) {
            all = 2 ^ n; ways = 1; below = 0
            for (k = 0; k < n / 2; k++) {
                below += ways
                if (below / all > 0.025) break
                ways = ways * (n - k) / (k + 1)
            }
            return k > 0 ? k : 1
        }
        /^ *\{"policy": / {
            word = member("policy")
            name = $0; sub(/.*"name": "/, "", name); sub(/".*/, "", name)
            predicted = member("predicted_seconds")
        }
        /"over_budget_bytes": / { over = member("over_budget_bytes"); knobs = $0
            sub(/.*"knobs": "/, "", knobs); sub(/", ".*/, "", knobs) }
        /"measured": \{/ {
            n++
            words[n] = word; names[n] = name; tells[n] = predicted; overs[n] = over; known[n] = knobs
            medians[n] = member("median_seconds"); least[n] = member("min_seconds")
            list = $0; sub(/.*"step_seconds": \[/, "", list); sub(/\].*/, "", list)
            m = split(list, one, /, /)
            for (i = 1; i <= m; i++) steps[n, i] = one[i]
            if (word == "zerox") own = n
        }
        END {
            split(wanted, pairs, / /)
            for (i in pairs) { split(pairs[i], pair, /=/); want[pair[1]] = pair[2] }
            printf "%-28s %10s %10s %8s   %6s %6s %15s  %s\n", "", "predicted", "measured", "error",
                "least", "median", "of the median", "wanted"
            for (r = 1; r <= n; r++) {
                error = 100 * (tells[r] / medians[r] - 1)
                printf "%-28s %7.1f ms %7.1f ms %+6.1f %%%s", names[r], 1000 * tells[r], 1000 * medians[r],
                    error, (error > 5 || error < -5 ? "!" : " ")
                if (r != own && own) {
                    for (i = 1; i <= m; i++) x[i] = steps[r, i] / steps[own, i]
                    sort(x, m)
                    k = rank(m)
                    w = (words[r] in want) ? want[words[r]] : 0.99
                    printf "  %6.3f %6.3f [%5.3f .. %5.3f]  %4.2f %s", x[1], middle(x, m), x[k],
                        x[m + 1 - k], w, (middle(x, m) >= w ? "ok" : "MISSED")
                }
                if (overs[r] > 0) printf "  OVER by %.1f MB", overs[r] / 1e6
                printf "%s\n", (known[r] != "" ? "  " known[r] : "")
            }
        }' "$1"
    printf 'losses identical: %s\n' "$(grep -o '"losses_identical": [a-z]*' "$1" | grep -o '[a-z]*$')"
}

execute() { # TITLE MODEL RATE LATENCY BUDGET WANTED
    count=$((count + 1))
    printf '\n%s: %s, %s, budget %s bytes a rank\n' "$1" "$3" "$4" "$5"
    "$zerox" compare "$2" --config config.json "${data[@]}" --bandwidth "$3" --latency "$4" --budget "$5" \
        --policies "$policies" --execute --steps "${ROUNDS:-11}" --json >"found.$count.json" 2>said.txt ||
        { cat said.txt; return 0; } # the other points are worth having
    table "found.$count.json" "$6"
}

case_a() {
    for accumulate in ${ACCUMULATE:-4 1}; do
        config "$accumulate"
        budget=$(($(beside swiglu.onnx) + 200000000))
        for rate in ${RATES:-0.25GB/s 0.5GB/s 1GB/s}; do
            wanted=
            if [ "$accumulate" = 4 ] && [ "$rate" = 0.25GB/s ]; then
                wanted="hooks-tuned=1.15 deepcompile=1.10 fsdp=1.40"
            fi
            execute "(a) accumulation $accumulate, 200 MB beside" swiglu.onnx "$rate" 0.2ms "$budget" "$wanted"
        done
    done
}

case_b() {
    config 1
    besides=$(beside swiglu.onnx)
    execute "(b) 90 MB beside" swiglu.onnx 0.46GB/s 16ms $((besides + 90000000)) "hooks-tuned=1.8 fsdp=1.08"
    execute "(b) 200 MB beside" swiglu.onnx 0.46GB/s 16ms $((besides + 200000000)) "hooks-tuned=1.45 fsdp-tuned=1.05"
}

fits() { # BUDGET: whether all forms of both do
    "$zerox" compare gpt2.onnx --config config.json "${data[@]}" --bandwidth 0.25GB/s --latency 0.2ms \
        --budget "$1" --policies hooks-tuned,fsdp-tuned --json >fits.json 2>said.txt || return 1
    [ "$(grep -c '"over_budget_bytes": 0,' fits.json)" = 3 ]
}

case_c() {
    config 1
    low=$(beside gpt2.onnx)
    high=$((2 * low))
    while ! fits "$high"; do
        low=$high
        high=$((2 * high))
    done
    while [ $((high - low)) -gt $((high / 500)) ]; do
        middle=$(((low + high) / 2))
        if fits "$middle"; then high=$middle; else low=$middle; fi
    done
    printf '\n(c) hooks-tuned and fsdp-tuned both fit from %s bytes on\n' "$high"
    budget=$((high * 105 / 100))
    for rate in ${RATES:-0.25GB/s 0.5GB/s 1GB/s}; do
        execute "(c) GPT-2 124M" gpt2.onnx "$rate" 0.2ms "$budget" ""
    done
    execute "(c) GPT-2 124M" gpt2.onnx 0.46GB/s 16ms "$budget" ""
}

set_sizes=()
for size in $sizes; do set_sizes+=(--set "$size"); done
"$zerox" new llama --preset medium "${set_sizes[@]}" --force -o swiglu.onnx 2>/dev/null
"$zerox" new gpt2 --preset "${GPT2:-124m}" --set "sequence=${SEQUENCE:-256}" --force -o gpt2.onnx 2>/dev/null
printf 'ratios: the step of a policy by the step of zerox in the same round; [ ]: 95 %% interval of the median\n'
printf '!: a prediction that is more than 5 %% off\n'
for which in ${CASES:-a b c}; do "case_$which"; done
