#!/usr/bin/env bash
# Shows that a static plumb works where there is nothing else: a folder with that one file and a
# resolv.conf as root directory, a network namespace as network. The client finds the agent by a name
# that only a name server knows. Needs root. Usage: tools/static_check.sh PLUMB
set -euo pipefail

if [ "${1:-}" != inside ]; then
    plumb=$(realpath "$1")
    if ldd "$plumb" 2>&1 | grep -q '=>'; then
        echo "$plumb is linked dynamically: ldd names its libraries" >&2
        exit 1
    fi
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    mkdir "$root/etc"
    cp "$plumb" "$root/plumb"
    echo "nameserver 127.0.0.1" >"$root/etc/resolv.conf"
    unshare --net --pid --fork --kill-child "$0" inside "$root"
    exit
fi

root=$2
ip link set lo up
python3 - <<'DNS' &
import socket
name = b"\5agent\4test\0"
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, client = server.recvfrom(512)
    end = query.index(0, 12) + 5
    found = query[12:end - 4] == name
    is_a = found and query[end - 4:end - 2] == b"\0\1"
    header = query[:2] + (b"\x84\0" if found else b"\x84\3") + b"\0\1" + (b"\0\1" if is_a else b"\0\0") + bytes(4)
    answer = b"\xc0\x0c\0\1\0\1" + (60).to_bytes(4, "big") + b"\0\4" + bytes([127, 0, 0, 1])
    server.sendto(header + query[12:end] + (answer if is_a else b""), client)
DNS
chroot "$root" /plumb agent --iperf3 127.0.0.1:5201 --store /agent.db >/dev/null 2>&1 &
until ss -Htln sport = :5201 | grep -q . && ss -Huln sport = :53 | grep -q .; do sleep 0.05; done
chroot "$root" /plumb net --iperf3 agent.test -t 1 --store /client.db
