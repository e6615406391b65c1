#!/bin/sh
# Prolog: tells this node's agent that an interleaved job is about to start.
set -u

# What begins with SPANK_ was chosen by the user: it is passed on as one argument, never as part of a command.
# The second name is for clients without our plugin, such as slurmrestd's.
group=${SPANK_INTERLEAVE_GROUP:-${SPANK__SLURM_SPANK_OPTION_interleave_interleave_group:-}}
case "$group, ${SLURM_JOB_COMMENT:-} " in
,*[\ ,\;]interleave=[Nn][Oo][Nn][Ee][\ ,\;]*) exit 0 ;;
,*[\ ,\;]interleave=[!\ ,\;]*) ;; # asked by comment; its group is known to our daemons
,* | [Nn][Oo][Nn][Ee],*) exit 0 ;; # this job did not ask for us
esac

here=${0%/*}
[ -r "$here/common.sh" ] || exit 0
. "$here/common.sh"
read_settings "$here"

set -- job-start --socket="$run_dir/agent.sock" --job="${SLURM_JOB_ID:-}" --uid="${SLURM_JOB_UID:-}" \
    --gid="${SLURM_JOB_GID:-}" --user="${SLURM_JOB_USER:-}" --account="${SLURM_JOB_ACCOUNT:-}" \
    --partition="${SLURM_JOB_PARTITION:-}" --restarts="${SLURM_JOB_RESTART_COUNT:-}" --group="$group"
[ -z "${SPANK_INTERLEAVE_ROLE:-}" ] || set -- "$@" --role="$SPANK_INTERLEAVE_ROLE"
[ -z "${SPANK_INTERLEAVE_BACKEND:-}" ] || set -- "$@" --backend="$SPANK_INTERLEAVE_BACKEND"
[ -z "${SPANK_INTERLEAVE_MAX_WAIT:-}" ] || set -- "$@" --max-wait="$SPANK_INTERLEAVE_MAX_WAIT"
[ -z "${SPANK_INTERLEAVE_PROFILE:-}" ] || set -- "$@" --profile="$SPANK_INTERLEAVE_PROFILE"
[ -z "${SPANK_INTERLEAVE_MAX_SLOWDOWN:-}" ] || set -- "$@" --max-slowdown="$SPANK_INTERLEAVE_MAX_SLOWDOWN"
# Empty in lane and token mode: the agent then takes the devices that the orchestrator assigned.
[ -z "${SLURM_JOB_GPUS:-}" ] || set -- "$@" --devices="$SLURM_JOB_GPUS"
hook "$@" || log "prolog: job ${SLURM_JOB_ID:-}: not registered; its first acquire will say so"
exit 0
