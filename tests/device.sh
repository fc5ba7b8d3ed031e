#!/usr/bin/env bash
# device.sh - what only a GPU can show, in 8 minutes at most: builds zerox for the GPU at hand, compares
# kernels with the CPU's and training with PyTorch's, times GPT-2's steps, and what runs beside what.
#
#   device.sh prepare           on a machine with zerox's packages: build-device/kit, to be carried along
#   device.sh [run]             on a machine with a GPU, nvcc and that kit: all of it
#   device.sh build             the first part alone; ARCH=sm_90 where there is no GPU to ask
#   device.sh --standin BUILD   the same steps over the stand-in for CUDA of a build's folder, with tiny sizes
#
# --out DIR (build-device/out) gets result.json, the table and all logs; --seconds N (480) is the time there
# is: what doesn't fit any more is left out, and said to be. A figure stands here only if a GPU gave it.
# SPDX-License-Identifier: Apache-2.0
set -u
started=$SECONDS
cd "$(dirname "$0")/.." || exit 1
root=$PWD mode=run standin='' out=$root/build-device/out limit=480
while [ $# -gt 0 ]; do
    case $1 in
    prepare | run | build) mode=$1 ;;
    --standin | --out | --seconds)
        [ $# -gt 1 ] || { echo "device.sh: $1 needs a word" >&2 && exit 2; }
        case $1 in
        --standin) standin=$(readlink -f "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        --seconds) limit=$2 ;;
        esac
        shift
        ;;
    *) sed -n '2,/^# SPDX/{/SPDX/d;s/^# \{0,1\}//p}' tests/device.sh && exit 2 ;;
    esac
    shift
done
kit=build-device/kit bin=$root/build-device/bin
. tests/device/build.sh
. tests/device/steps.sh

if [ "$mode" != run ]; then
    "$mode"
    exit
fi
mkdir -p "$out" && rm -f "$out/table.txt" "$out/result.json" && : >"$out/rows" || exit 1
if [ -n "$standin" ]; then
    export ZX_STANDIN_DEVICES=1 ZX_NO_CALIBRATE=1
    zerox=$standin/standin/zerox program=$standin/tests/cuda_standin/cuda_standin.
    overlap="$standin/standin/overlap 1 1"
else
    zerox=$bin/zerox program=$bin/
    overlap=$bin/overlap
    step build build_all
fi
step device look
step kernels kernel_rows
step cases reference_cases
step overlap copy_overlap
[ -z "$standin" ] || sizes=(124m 124m-bf16 1.5b) # two of its are alike there
for size in "${sizes[@]}"; do step "gpt2-$size" gpt2 "$size"; done
step two-ranks two_ranks
finish
