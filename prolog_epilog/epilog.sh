#!/bin/sh
# Epilog: tells this node's agent that a job is over. Slurm may run it late, twice, or without the SPANK variables
# of the job, so what counts is whether the agent knows the job.
set -u

here=${0%/*}
[ -r "$here/common.sh" ] || exit 0
. "$here/common.sh"
read_settings "$here"

case ${SLURM_JOB_ID:-} in
'' | *[!0-9]*) exit 0 ;;
esac
[ -d "$run_dir/jobs/$SLURM_JOB_ID" ] || exit 0 # not ours
hook job-end --socket="$run_dir/agent.sock" --job="$SLURM_JOB_ID" ||
    log "epilog: job $SLURM_JOB_ID: the agent was not told; it sees by itself that the job is gone"
exit 0
