#!/bin/sh
#SBATCH --job-name=async
# A trainer whose device is shared, and a sampler with a device of its own that goes on meanwhile. In examples:
#   for seed in 1 2; do
#       sbatch --interleave-group=trainers --interleave-role=trainer --gres=gpu:1 : \
#              --interleave-group=none --gres=gpu:1 jobs/async.sh $seed /tmp/async-$seed
#   done
set -eu
seed=$1 out=$2
shift 2
mkdir -p "$out"
srun --het-group=0 python -m jobs.split trainer "$out" --seed "$seed" --ahead 1 "$@" &
# Steps of a component without a group see the variables of the first one. SAMPLER_ENV is for simulated devices.
# shellcheck disable=SC2086 # these are several
srun --het-group=1 env -u INTERLEAVE_GROUP -u INTERLEAVE_JOB_ID ${SAMPLER_ENV-} \
    python -m jobs.split sampler "$out" --seed "$seed" --ahead 1 "$@" &
wait %1
wait %2
