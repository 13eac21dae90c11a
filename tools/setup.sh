#!/usr/bin/env bash
# Installs the Debian packages that tests and races use, when it may (root, or sudo without a
# password). Quick when everything is there. What it cannot install it names, and the tests that
# need it print `skipped: …`; under CI=true that is a failure. Arguments name more: mn=mininet.
set -euo pipefail

# A reader of iperf3's JSON from PyPI, that ours is given to; in the build directory, for nobody else.
consumers=target/consumers
if ! PYTHONPATH=$consumers python3 -c 'import iperf3' 2>/dev/null; then
    python3 -m pip install -q --disable-pip-version-check --no-deps --target "$consumers" iperf3==0.1.11 2>/dev/null ||
        echo "skipped: no Python package iperf3: pip cannot install it here"
fi

# command=package
needs=(
    cc=gcc git=git chromium=chromium sockperf=sockperf iperf3=iperf3 qperf=qperf taskset=util-linux
    ip=iproute2 /usr/sbin/nft=nftables ping=iputils-ping strace=strace tshark=tshark
    /usr/sbin/sshd=openssh-server ssh=openssh-client script=bsdutils
    /usr/sbin/apache2=apache2-bin /usr/sbin/nginx=nginx curl=curl openssl=openssl python3=python3
    "$@"
)

missing() {
    local need
    for need in "${needs[@]}"; do
        command -v "${need%%=*}" >/dev/null || echo "${need#*=}"
    done
}

give_up() {
    echo "skipped: $(missing | paste -sd' ') not installed: $1"
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
}

mapfile -t packages < <(missing)
if [ "${#packages[@]}" -eq 0 ]; then exit 0; fi

command -v apt-get >/dev/null || give_up "no apt-get here; install them by this system's own means"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || give_up "needs root; run: sudo apt-get install ${packages[*]}"
    as_root=(sudo -n)
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

# Lists may be missing (a fresh image) or too old to name a file that still exists.
install() { apt install --no-install-recommends "${packages[@]}" </dev/null; }
if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; then
    apt update || give_up "apt-get update failed"
fi
install || { apt update && install; } || give_up "apt-get install failed"
