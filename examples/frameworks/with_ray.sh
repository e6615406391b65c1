#!/bin/sh
# Runs a command with a Ray of its job's own: sbatch --interleave-group=rl --gres=gpu:1 with_ray.sh python ray_loop.py OUT
set -eu
eval "$(interleave ray-env)"
# What NCCL needs where the driver saves the state, and its watchdog where a job waits (docs/frameworks.md).
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=86400 NCCL_NVLS_ENABLE=0 NCCL_CUMEM_ENABLE=0
# shellcheck disable=SC2086 # these are options
ray start $INTERLEAVE_RAY_HEAD --block >"$RAY_TMPDIR/start.log" 2>&1 &
# Ray gives up where it does not start within 30 s, and what it wrote is the reason.
trap '[ $? = 0 ] || cat "$RAY_TMPDIR/start.log" >&2; kill $! 2>/dev/null; wait; rm -rf "$RAY_TMPDIR"' EXIT
"$@"
