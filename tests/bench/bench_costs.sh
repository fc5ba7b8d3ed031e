#!/usr/bin/env bash
# bench_costs.sh PROGRAM [FILE.svg] - what a training step costs against depth, width, sequence,
# vocabulary and ranks: one size doubled at a time from a small GPT-2, all points run in turn, the
# least step of each. FILE.svg draws them. Means something on a machine that does nothing else.
#
# TURNS (3) runs of every point, STEPS (8) steps each of which the first 3 don't count, BATCH (4).
# SPDX-License-Identifier: Apache-2.0
set -eu
zerox=$(readlink -f "$1")
picture=${2:+$(realpath -m "$2")}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
batch=${BATCH:-4}
printf '%s' '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": '"$batch"',
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_clipping": 1.0}' >config.json

# what, its value, ranks, layers, width, sequence, vocabulary
points() {
    for n in 2 4 8 16; do echo "depth $n 1 $n 256 128 4096"; done
    for n in 128 256 512 1024; do echo "width $n 1 4 $n 128 4096"; done
    for n in 32 64 128 256 512 1024 2048; do echo "sequence $n 1 4 256 $n 4096"; done
    for n in 256 1024 4096 16384 65536; do echo "vocabulary $n 1 4 256 128 $n"; done
    for n in 1 2 3 4; do echo "ranks $n $n 4 256 128 4096"; done
}

turn() {
    points | while read -r what value ranks layers width sequence vocab; do
        "$zerox" new gpt2 --preset small --set "layers=$layers" --set "width=$width" --set heads=4 \
            --set "vocab=$vocab" --set "context=$sequence" --set "sequence=$sequence" --force -o model.onnx >/dev/null 2>&1
        rm -rf runs
        "$zerox" train model.onnx --config config.json --ranks "$ranks" --threads 1 --data input_ids=synthetic \
            --data labels=synthetic --steps "${STEPS:-8}" --no-save >/dev/null 2>said.txt || { cat said.txt >&2; exit 1; }
        awk -v what="$what" -v value="$value" -v tokens=$((batch * sequence * ranks)) '
            function member(name,  x) { x = $0; sub(".*\"" name "\": ", "", x); sub(/[,}].*/, "", x); return x }
            NR > 3 { s = member("step_seconds"); if (least == "" || s + 0 < least) least = s + 0; peak = member("peak_bytes") }
            END { print what, value, least, peak, tokens }' runs/latest/log.jsonl
    done
}

for ((i = 0; i < ${TURNS:-3}; i++)); do turn; done | awk '
    { key = $1 " " $2; if (!(key in least)) { order[++n] = key; least[key] = $3 } if ($3 < least[key]) least[key] = $3
      peak[key] = $4; tokens[key] = $5 }
    END { for (i = 1; i <= n; i++) print order[i], least[order[i]], peak[order[i]], tokens[order[i]] }' >found.txt

awk '
    BEGIN { printf "%-11s %8s %10s %12s %10s %14s\n", "", "", "step", "peak a rank", "tokens/s", "by the last" }
    { printf "%-11s %8d %7.1f ms %8.1f MiB %10.0f", $1, $2, 1000 * $3, $4 / 1048576, $5 / $3
      if ($1 == what) printf " %9.2f x for %.3g x", $3 / step, $2 / value
      printf "\n"; what = $1; value = $2; step = $3 }' found.txt
[ -n "$picture" ] || exit 0

# A panel a size; both axes by powers of two, so that a straight line is a power: its slope the exponent.
awk '
    function log2(x) { return log(x) / log(2) }
    { if ($1 != last) { panels++; name[panels] = $1; last = $1 }
      n[panels]++; x[panels, n[panels]] = $2; y[panels, n[panels]] = 1000 * $3
      v = log2(1000 * $3); if (NR == 1 || v < low) low = v; if (NR == 1 || v > high) high = v }
    END {
        low = int(low); high = int(high) + 1; w = 150; h = 150; left = 54; top = 24; gap = 22
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"10\">\n",
            left + panels * (w + gap), top + h + 34
        print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
        for (k = low; k <= high; k++) {
            yy = top + h - (k - low) * h / (high - low)
            printf "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g ms</text>\n", left - 4, yy + 3, 2 ^ k
            printf "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", left, yy, left + panels * (w + gap) - gap
        }
        for (p = 1; p <= panels; p++) {
            x0 = left + (p - 1) * (w + gap); a = log2(x[p, 1]); b = log2(x[p, n[p]]); line = ""
            printf "<text x=\"%.1f\" y=\"14\" text-anchor=\"middle\" font-weight=\"bold\">%s</text>\n", x0 + w / 2, name[p]
            for (i = 1; i <= n[p]; i++) {
                xx = x0 + 8 + (log2(x[p, i]) - a) * (w - 16) / (b - a)
                yy = top + h - (log2(y[p, i]) - low) * h / (high - low)
                line = line (i > 1 ? "L" : "M") sprintf("%.1f %.1f", xx, yy)
                printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#06c\"/>\n", xx, yy
                printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" font-size=\"8\">%d</text>\n", xx, top + h + 14, x[p, i]
            }
            printf "<path d=\"%s\" fill=\"none\" stroke=\"#06c\"/>\n", line
        }
        print "</svg>"
    }' found.txt >"$picture"
echo "drawn: $picture"
