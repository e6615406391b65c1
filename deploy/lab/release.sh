#!/bin/sh
# Runs a command in a Debian of another release, with this source tree in it as it is now, to meet another Slurm.
# It is made by debootstrap the first time and kept; nothing of this machine but /proc, /sys and /dev is seen from inside.
#   usage: release.sh trixie|forky COMMAND [ARGUMENT...]
# build/releases is the same folder inside and outside.
# INTERLEAVE_RELEASES: where they are kept; INTERLEAVE_MIRROR: a mirror of Debian.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

mirror=${INTERLEAVE_MIRROR:-http://deb.debian.org/debian}
kept=${INTERLEAVE_RELEASES:-/var/cache/slurm-interleave}
packages=ca-certificates,git,make,python3,python3-venv
inside=/srv/slurm-interleave

die() {
    echo "${0##*/}: $1" >&2
    exit 1
}

[ $# -ge 2 ] || die "usage: ${0##*/} trixie|forky COMMAND [ARGUMENT...]"
release=$1
shift
source=$(cd "$(dirname "$0")/../.." && pwd)
root=$kept/$release

[ "$(id -u)" = 0 ] || die "root is needed, to enter a Debian $release"
[ "$root" != "$source" ] || die "$root: is the source tree"

# The script of a release that this debootstrap does not know yet is that of the newest one.
make_root() {
    command -v debootstrap >/dev/null || apt-get install -qq -y debootstrap >/dev/null ||
        die "debootstrap is missing; install it: apt-get install debootstrap"
    script=/usr/share/debootstrap/scripts/$release
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    echo "making a Debian $release in $root"
    rm -rf "$root.new"
    debootstrap --variant=minbase --include="$packages" "$release" "$root.new" "$mirror" "$script" >"$root.log" 2>&1 ||
        die "debootstrap failed; the end of $root.log: $(tail -n 3 "$root.log")"
    mv "$root.new" "$root"
}

# What git knows here and what is new; what was built inside stays, and what is gone here goes there.
copy_source() {
    mkdir -p "$root$inside/build/releases" "$source/build/releases"
    git -C "$source" ls-files -z --cached --others --exclude-standard >"$root/files"
    find "$root$inside" -mindepth 1 -maxdepth 1 ! -name .venv ! -name build -exec rm -rf {} +
    tar -C "$source" --null --ignore-failed-read --files-from="$root/files" -cf - 2>/dev/null | tar -C "$root$inside" -xf -
}

copy_network() {
    for file in /etc/hosts /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || cp -L "$file" "$root$file"
    done
}

# Held as long as the command runs: a second run would change the source tree below the first.
mkdir -p "$kept"
exec 9>"$root.lock"
flock --nonblock 9 || {
    echo "waiting for another run in $root"
    flock 9
}
[ -d "$root" ] || make_root
copy_source
copy_network
# The mounts are in a namespace of their own: they end with the command, however it ends.
exec unshare --mount --propagation private sh -euc '
    root=$1 inside=$2 results=$3
    shift 3
    mount --bind "$root" "$root" # so that it can be the root of other namespaces
    for folder in proc sys dev; do
        mount --rbind "/$folder" "$root/$folder"
    done
    mount -t tmpfs tmpfs "$root/run"
    mount --bind "$results" "$root$inside/build/releases"
    exec chroot "$root" /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        CI="${CI:-}" ${PIP_CERT:+"PIP_CERT=$PIP_CERT"} ${SSL_CERT_FILE:+"SSL_CERT_FILE=$SSL_CERT_FILE"} \
        sh -euc "cd $inside; exec \"\$@\"" sh "$@"
' sh "$root" "$inside" "$source/build/releases" "$@"
