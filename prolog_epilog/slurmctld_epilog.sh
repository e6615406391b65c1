#!/bin/sh
# EpilogSlurmctld: tells the orchestrator that a job is over on all nodes, dead ones included.
set -u

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

set -- job-over --job="${SLURM_JOB_ID:-}"
# Slurm says so from 23.02 on. It may be late: the job may run again by now.
[ -z "${SLURM_JOB_END_TIME:-}" ] || set -- "$@" --ended="$SLURM_JOB_END_TIME"
[ -z "$socket" ] || set -- "$@" --socket="$socket"
hook "$@" || log "slurmctld epilog: job ${SLURM_JOB_ID:-}: the orchestrator was not told; it finds out by itself"
exit 0
