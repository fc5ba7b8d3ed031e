# steps.sh - tests/device.sh: its steps, and how what they find becomes a table and JSON.
# SPDX-License-Identifier: Apache-2.0
sizes=(124m 124m-bf16 1.5b 1.5b-bf16) # a GPT-2, and what it is trained in where that isn't float32
bad=0
NONE='stand-in: proves logic, not speed'

# ---- rows: group, key, value, unit ----------------------------------------------------------------
put() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" >>"$out/rows"; }
# The same of what a GPU took.
figure() { if [ -n "$standin" ]; then put "$1" "$2" "$NONE"; else put "$@"; fi; }

# NAME COMMAND... - its output is NAME.log; what fails is said, and the rest goes on.
step() {
    local name=$1 left=$((limit - SECONDS + started)) begin=$SECONDS
    shift
    if [ $left -lt 15 ]; then
        put "$name" result "left out: of $limit s none are left"
    elif (deadline=$((SECONDS + left - 10)) && "$@") >"$out/$name.log" 2>&1 </dev/null; then
        put "$name" result ok
    else
        put "$name" result FAILED
        echo "$name failed:" >&2 && tail -n 20 "$out/$name.log" >&2
        bad=1
    fi
    [ -n "$standin" ] || put "$name" seconds $((SECONDS - begin)) s
    awk -F '\t' -v group="$name" '$1 == group { printf "%-10s %-34s %s %s\n", $1, $2, $3, $4 }' "$out/rows" | tee -a "$out/table.txt"
    [ "$name:$bad" != build:1 ] || finish # there is nothing to run
}

# At most the seconds that are left, of which SECONDS at the most.
within() {
    local most=$1 left=$((deadline - SECONDS))
    shift
    [ "$left" -gt 0 ] || { echo "no time left for: $*" && return 1; }
    timeout -k 5 $((left < most ? left : most)) "$@"
}

# {"group": {"key": value}}: a figure is a number, or null where no GPU gave it.
finish() {
    awk -F '\t' -v none="$NONE" '
        function text(s) { gsub(/[\\"]/, "\\\\&", s); return "\"" s "\"" }
        { value = $3 ~ /^-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?$/ ? $3 : $3 == none ? "null" : text($3)
          key = $4 != "" ? $2 " [" $4 "]" : $2
          printf "%s", $1 == last ? ",\n  " : (NR > 1 ? "\n },\n " : "{\n ") text($1) ": {\n  "
          printf "%s: %s", text(key), value
          last = $1 }
        END { print "\n }\n}" }' "$out/rows" >"$out/result.json"
    echo "result: $out/result.json"
    [ -z "$standin" ] || echo "$NONE"
    exit $bad
}

# ---- what is there --------------------------------------------------------------------------------

build_all() { build; }

# The first GPU, and what plans take it for.
look() {
    "$zerox" machine --backend cuda --format json --ranks 1 >"$out/machine.json" && "$zerox" machine --backend cuda --ranks 1 || return 1
    put device name "$("$zerox" machine --backend cuda --ranks 1 2>/dev/null | sed -n 's/^GPU 0 *//p')"
    put device "planned for as" "$(sed -n 's/^.*"name": "\([^"]*\)".*/\1/p' "$out/machine.json")"
    [ -n "$standin" ] || put device driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0 2>/dev/null)"
}

# ---- the same as elsewhere ------------------------------------------------------------------------

# GROUP NAME PROGRAM - runs a test program, keeps how many of its rows passed and says which didn't.
rows_of() {
    local log="$out/$1, $2.rows" code passed
    within 150 "$program$3" >"$log" 2>&1
    code=$?
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    put "$1" "$2" "${passed:-0}" "rows passed"
    [ $code = 0 ] && [ "${passed:-0}" -gt 0 ] && return
    grep -E 'FAILED|ERROR|^\[   LINE|off by' "$log" | head -n 40
    tail -n 5 "$log"
    return 1
}

kernel_rows() {
    local ok=0
    rows_of kernels "beside operators" kernels || ok=1
    if [ -n "$standin" ]; then
        put kernels "operators against the CPU" "left to the test cuda_standin.ops"
    else
        rows_of kernels "operators against the CPU" ops || ok=1
    fi
    return $ok
}

# Real exports against PyTorch in float64: one rank, and two and three that share the device.
reference_cases() {
    local ranks ok=0 of='*'
    [ -z "$standin" ] || of=mlp
    for ranks in "1 rank" "2 ranks" "3 ranks"; do
        ZX_CASES_OPTIONS="--comm shm" ZX_ROWS="$of $ranks*" rows_of cases "$ranks" cases || ok=1
    done
    of='*?16*' # bf16 and fp16, on as many ranks as each row says
    [ -z "$standin" ] || of='gpt2 bf16'
    ZX_CASES_OPTIONS="--comm shm" ZX_ROWS="$of" rows_of cases "16 bits" cases || ok=1
    return $ok
}

# ---- speed ----------------------------------------------------------------------------------------

copy_overlap() {
    within 60 $overlap >"$out/overlap.txt" || return 1
    cat "$out/overlap.txt"
    eval "$(awk '{ t[$1] = $2 }
        END { sum = t["to"] + t["from"] + t["kernel"]; most = t["to"] > t["from"] ? t["to"] : t["from"]
              if (t["kernel"] > most) most = t["kernel"]
              if (most <= 0 || sum <= most) exit 1
              printf "to=%.1f from=%.1f share=%.3f\n", t["bytes"] / t["to"] / 1e9, t["bytes"] / t["from"] / 1e9,
                  (sum - t["together"]) / (sum - most) }' "$out/overlap.txt")"
    figure overlap "copies to the device" "$to" GB/s
    figure overlap "copies from the device" "$from" GB/s
    figure overlap "both beside a kernel" "$share" "of what can be hidden"
}

configure() { # BATCH [bf16]
    printf '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": %d, "gradient_clipping": 1.0,
        "bf16": {"enabled": %s}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}\n' \
        "$1" "$([ "${2:-}" = bf16 ] && echo true || echo false)" >"$out/config.json"
}

# MODEL OPTIONS... - trains synthetic tokens on the GPU.
train() {
    local model=$1
    shift
    within 150 "$zerox" train "$model" --config "$out/config.json" --backend cuda --data input_ids=synthetic \
        --data labels=synthetic --no-save --force --out "$out/run" "$@"
}

# Events of a trace: begin, microseconds, stream, instruction, operator; in order.
events() {
    sed -n 's/.*"ph":"X",.*"tid":\([0-9]*\),"cat":"\([a-z]*\)","ts":\([0-9.]*\),"dur":\([0-9.]*\),/\3 \4 \1 \2 &/p' "$1" |
        awk '{ op = match($0, /"op":"[^"]*"/) ? substr($0, RSTART + 6, RLENGTH - 7) : $4; print $1, $2, $3, $4, op }' | sort -n
}

# FILE - microseconds of a step; in which no stream had anything to do; of copies and collectives, and of these beside compute.
timeline() {
    events "$1" | awk '$4 != "wait" && $4 != "hook" && $2 > 0 {
            from = $1; to = $1 + $2
            if (to > end) end = to
            if (from > reached) idle += from - reached
            if (to > reached) reached = to
            if ($3 == 0) { n++; a[n] = from; b[n] = to } else { m++; c[m] = from; d[m] = to; moved += $2 } }
        END { for (i = 1; i <= m; i++) {
                  while (k < n && b[k + 1] <= c[i]) k++
                  for (j = k + 1; j <= n && a[j] < d[i]; j++)
                      beside += (b[j] < d[i] ? b[j] : d[i]) - (a[j] > c[i] ? a[j] : c[i]) }
              printf "%.3f %.3f %.3f %.3f\n", end, idle, moved, beside }'
}

# Of each operator what was predicted and what was measured, the longest first.
operators() {
    { events "$1" | sed 's/^/p /' && events "$2" | sed 's/^/m /'; } | awk '$5 != "wait" && $5 != "hook" { t[$1, $6] += $3; seen[$6] }
        END { for (op in seen) printf "%s %.3f %.3f\n", op, t["p", op] / 1000, t["m", op] / 1000 }' | sort -k 3,3nr -k 1,1
}

# SIZE[-bf16] - steps of a GPT-2: tokens a second, what of the data sheet's products, idle time, predicted against measured.
gpt2() {
    local size=${1%-bf16} name=gpt2-$1 type=float32 key=peak batch=8 sequence=1024 steps=12 set=() layers=12 width=768 params peak median
    [ "$size" = 124m ] || { batch=2 steps=6 layers=48 width=1600; }
    [ "$size" = "$1" ] || type=bf16 key=peak_16
    if [ -n "$standin" ]; then
        batch=2 sequence=16 steps=3 layers=2 width=16
        set=(--set layers=2 --set width=16 --set heads=2 --set vocab=64 --set context=16)
    fi
    local model=$out/$name.onnx
    "$zerox" new gpt2 --preset "$size" "${set[@]}" --set "sequence=$sequence" --force -o "$model" || return 1
    configure "$batch" "$type"
    within 60 "$zerox" plan "$model" --config "$out/config.json" --backend cuda --ranks 1 --budget 80% --format trace \
        -o "$out/$name.predicted.json"
    case $? in
    0) ;;
    4) put "$name" "left out" "it doesn't fit this GPU" && return ;;
    *) return 1 ;;
    esac
    # Without it first: times of every instruction take some themselves.
    if [ "$size" = 124m ]; then
        train "$model" --ranks 1 --budget 80% --steps "$steps" --log "$out/$name.jsonl" || return 1
        train "$model" --ranks 1 --budget 80% --steps 4 --profile "$out/$name.measured.json" || return 1
    else
        train "$model" --ranks 1 --budget 80% --steps "$steps" --log "$out/$name.jsonl" --profile "$out/$name.measured.json" || return 1
    fi
    params=$(sed -n 's/.*"parameters": \([0-9]*\).*/\1/p' "$out/run/config.json" | head -n 1)
    peak=$(sed -n 's/.*"'$key'": \([0-9.e+]*\).*/\1/p' "$out/machine.json" | head -n 1)
    median=$(sed -n 's/.*"step_seconds": \([0-9.e+-]*\).*/\1/p' "$out/$name.jsonl" | tail -n +3 | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
    local flops=$(awk -v n="$params" -v l="$layers" -v d="$width" -v t="$sequence" -v b="$batch" \
        'BEGIN { printf "%.6g", b * t * (6 * n + 12 * l * d * t) }')
    put "$name" "a step" "$batch x $sequence tokens, $params parameters, $type"
    figure "$name" "step, median" "$(awk -v s="$median" 'BEGIN { printf "%.2f", 1000 * s }')" ms
    figure "$name" "tokens/s" "$(awk -v s="$median" -v n=$((batch * sequence)) 'BEGIN { printf "%.0f", n / s }')"
    figure "$name" "MFU of $type's data sheet" "$(awk -v f="$flops" -v s="$median" -v p="$peak" 'BEGIN { printf "%.3f", f / s / p }')"
    compare_timelines "$name"
}

compare_timelines() {
    local name=$1 op predicted measured p m
    p=$(timeline "$out/$name.predicted.json") m=$(timeline "$out/$name.measured.json")
    echo "predicted: $p; measured: $m (us: step, idle, copies and collectives, of these beside compute)"
    set -- $p $m
    [ $# = 8 ] && awk -v p="$1" -v m="$5" 'BEGIN { exit !(p > 0 && m > 0) }' || { echo "a timeline is empty" && return 1; }
    figure "$name" "GPU idle in a step" "$(awk -v i="$6" -v s="$5" 'BEGIN { printf "%.4f", i / s }')" "of it"
    figure "$name" "timeline predicted" "$(awk -v s="$1" 'BEGIN { printf "%.2f", s / 1000 }')" ms
    figure "$name" "timeline measured" "$(awk -v s="$5" 'BEGIN { printf "%.2f", s / 1000 }')" ms
    operators "$out/$name.predicted.json" "$out/$name.measured.json" >"$out/$name.operators" || return 1
    head -n 8 "$out/$name.operators" | while read -r op predicted measured; do
        figure "$name" "$op, predicted" "$predicted" ms
        figure "$name" "$op, measured" "$measured" ms
    done
}

# Two ranks on the one GPU: what they exchange, beside their kernels.
two_ranks() {
    local set=(--preset 124m --set layers=4) batch=2 sequence=1024
    [ -z "$standin" ] || { set=(--preset tiny --set layers=2 --set width=16 --set heads=2 --set vocab=64) sequence=16; }
    "$zerox" new gpt2 "${set[@]}" --set "sequence=$sequence" --force -o "$out/two.onnx" || return 1
    configure "$batch"
    train "$out/two.onnx" --ranks 2 --comm shm --budget 40% --steps 4 --profile "$out/two.measured.json" || return 1
    set -- $(timeline "$out/two.measured.json")
    [ $# = 4 ] && awk -v moved="$3" 'BEGIN { exit !(moved > 0) }' || { echo "nothing was exchanged" && return 1; }
    figure two-ranks "exchanges beside kernels" "$(awk -v b="$4" -v m="$3" 'BEGIN { printf "%.3f", b / m }')" "of their time"
}
