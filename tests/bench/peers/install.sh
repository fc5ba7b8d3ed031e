#!/usr/bin/env bash
# install.sh FOLDER - a virtual environment with the peers: PyTorch for the CPU (eager and FSDP2) and
# DeepSpeed. Where PEERS_VENV names one that has them, nothing is installed.
# SPDX-License-Identifier: Apache-2.0
set -eu
venv=${PEERS_VENV:-$1}
if [ -n "${PEERS_VENV:-}" ] && "$venv/bin/python" -c 'import torch, deepspeed, onnxscript' 2>/dev/null; then
    echo "$venv has them"
    exit 0
fi
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
# PyPI's wheel brings gigabytes of CUDA that aren't used: only where PyTorch's own index can't be reached
"$venv/bin/pip" install --quiet --retries 1 torch --index-url https://download.pytorch.org/whl/cpu || "$venv/bin/pip" install --quiet torch
"$venv/bin/pip" install --quiet deepspeed numpy onnx onnxscript ninja
"$venv/bin/python" -c 'import torch, deepspeed; print(torch.__version__, deepspeed.__version__)'
