# What the three hook scripts share; read by them, not run.
# shellcheck shell=sh

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm-interleave/bin
# Slurm drains a node whose prolog or epilog fails; an outage of ours must not be one.
trap 'exit 0' EXIT

bin_dir=
run_dir=/run/interleave
socket=

log() {
    logger -t interleave -- "$1" 2>/dev/null
    echo "interleave: $1" >&2
}

# Settings: lines KEY=VALUE in interleave-hooks.conf beside the scripts. Read as text, never run.
# shellcheck disable=SC2034 # socket is for slurmctld_epilog.sh
read_settings() {
    [ -r "$1/interleave-hooks.conf" ] || return 0
    while IFS='=' read -r key value || [ -n "$key" ]; do
        case $key in
        '' | '#'*) ;;
        bin_dir) bin_dir=$value ;;
        run_dir) run_dir=$value ;;
        socket) socket=$value ;;
        *) log "$1/interleave-hooks.conf: unknown key $key; known are bin_dir, run_dir, socket" ;;
        esac
    done <"$1/interleave-hooks.conf"
    export PATH="${bin_dir:+$bin_dir:}$PATH"
    # %n: the node's name, where several slurmd share a host.
    case $run_dir in
    *%n*) run_dir=${run_dir%%"%n"*}${SLURMD_NODENAME:-}${run_dir#*"%n"} ;;
    esac
}

# The hook has a limit of its own; this one is for a host too slow to start it.
hook() {
    timeout -k 1 5 interleave-hook "$@" </dev/null
}
