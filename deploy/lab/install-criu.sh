#!/bin/sh
# Makes DIR/criu: a criu that runs on new kernels, for hosts whose distribution has an older one. It is Debian's own
# package, with its libraries, in a folder; nothing is installed on the host but debootstrap.
# 4.1 (trixie) cannot save sockets on Linux 6.16 and later, so it is taken from the release after that.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH DEBIAN_FRONTEND=noninteractive

[ $# -eq 1 ] || {
    echo "usage: ${0##*/} DIR" >&2
    exit 2
}
mkdir -p "$1"
root=$(cd "$1" && pwd)/root
command -v debootstrap >/dev/null || apt-get install -qq -y debootstrap >/dev/null
[ -x "$root/usr/sbin/criu" ] ||
    debootstrap --variant=minbase --include=criu forky "$root" http://deb.debian.org/debian sid >"$1/debootstrap.log"
cat >"$1/criu" <<END
#!/bin/sh
exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/sbin/criu" "\$@"
END
chmod 755 "$1/criu"
"$1/criu" --version
