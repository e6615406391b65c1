#!/bin/sh
# Installs the Debian packages that a private Slurm cluster needs, and a compiler for the SPANK plugin, if they are
# missing. It starts no daemon, stops none, and leaves /etc/slurm alone.
# --databases: those of the database servers that tests run privately, instead.
# --browser: the one of the browser that tests look at our pages with, instead.
# --optional: where that cannot be done, say why and succeed.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH DEBIAN_FRONTEND=noninteractive

packages="slurmctld slurmd slurmrestd slurm-client slurm-wlm-basic-plugins libslurm-dev munge libmunge2 lua5.3 gcc libc6-dev make"
what="Slurm's packages"
policy=/usr/sbin/policy-rc.d
mark=slurm-interleave
log=
optional=no

for word; do
    case $word in
    --optional) optional=yes ;;
    --databases)
        packages="mariadb-server-core mariadb-client-core postgresql slurmdbd"
        what="database servers"
        ;;
    --browser)
        packages=chromium
        what="a browser"
        ;;
    *)
        echo "usage: ${0##*/} [--optional] [--databases | --browser]" >&2
        exit 2
        ;;
    esac
done

cannot() {
    echo "cannot install $what: $1" >&2
    [ -z "$log" ] || [ ! -s "$log" ] || tail -n 5 "$log" >&2
    [ "$optional" = no ] || exit 0
    echo "install them by hand: apt-get install $missing" >&2
    exit 1
}

# What of $packages is not installed.
find_missing() {
    missing=
    for package in $packages; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing="$missing $package"
    done
    missing=${missing# }
}

# Debian starts the daemons of new packages, unless this program says no.
forbid_starts() {
    # What a run that was killed left behind.
    ! grep -qs "^# $mark" "$policy" || rm -f "$policy"
    [ ! -e "$policy.$mark" ] || mv -f "$policy.$mark" "$policy"
    trap allow_starts EXIT
    trap 'exit 1' HUP INT TERM
    [ ! -e "$policy" ] || mv "$policy" "$policy.$mark"
    printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
}

allow_starts() {
    rm -f "$policy" "$log"
    [ ! -e "$policy.$mark" ] || mv -f "$policy.$mark" "$policy"
}

# Debian also enables them for the next boot. A machine that had none of them keeps it that way.
disable_new() {
    for package in $missing; do
        case $package in
        slurmctld | slurmd | slurmrestd | slurmdbd | munge | postgresql) update-rc.d "$package" disable >>"$log" 2>&1 || : ;;
        esac
    done
}

# shellcheck disable=SC2086 # a list of words
install() {
    apt-get -o DPkg::Lock::Timeout=120 install -qq -y --no-install-recommends $missing </dev/null >"$log" 2>&1
}

missing=$packages
{ dpkg-query --version && apt-get --version; } >/dev/null 2>&1 || cannot "this is no Debian"
find_missing
[ -n "$missing" ] || exit 0
[ "$(id -u)" = 0 ] || cannot "root is needed for: $missing"

echo "installing Debian packages: $missing"
log=$(mktemp)
forbid_starts
# The lists of packages may be missing or old.
install || { apt-get -o DPkg::Lock::Timeout=120 update -qq </dev/null >"$log" 2>&1 && install; } || cannot "apt-get failed"
disable_new
find_missing
[ -z "$missing" ] || cannot "not there after apt-get: $missing"
