#!/usr/bin/env bash
# Builds and runs the GPU tests on a machine with an NVIDIA GPU: every CUDA kernel against the CPU. Exit code 0: all passed;
# 1: a failure, or nothing ran. Needs nvcc (on PATH or in /usr/local/cuda) and a driver. Takes GoogleTest arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
  echo "test gpu: no NVIDIA driver answers here" >&2
  exit 1
fi
cmake --preset gpu -DCHORUS_WERROR=ON
cmake --build --preset gpu --target test_gpu -j"${CHORUS_JOBS:-$(nproc)}"

log=build/gpu/test_gpu.log
status=0
build/gpu/tests/test_gpu "$@" 2>&1 | tee "$log" || status=$?
# A run that skipped its tests has shown nothing.
if grep -q '^\[  SKIPPED \] Gpu\.' "$log" || ! grep -q '^\[       OK \] Gpu\.' "$log"; then
  echo "test gpu: no test ran on a GPU" >&2
  exit 1
fi
exit "$status"
