#!/usr/bin/env python3
"""Latency under load as plumb net finds it against ICMP echoes at 1 kHz, through the same link at the same time.

A lab of two hosts is made behind `plumb link`; plumb net fills it down with one TCP stream and sends a thousand probes
a second, and as many echo requests of the same length go beside it, from a raw socket of this program: ping(8) holds
back where the round trip is longer than its interval. The host's kernel answers them, and stamps the answers when
they arrive. Both see the same queue. The table has the median and the 99th percentile of both in milliseconds, in
percent plumb's over the echoes' less 1, and the echoes that came a second.
The echoes start when the warm-up is over and end with the test.

usage: tools/net_ping.py [PLUMB] [RATE,DELAY ...]      as root, for the raw socket
       tools/net_ping.py --echo ADDRESS SECONDS         only the echoes: milliseconds, one a line
"""

import atexit
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

LINKS = ["10mbit,20ms", "100mbit,10ms", "1gbit,5ms"]
DATA = 64
WARM_UP = 3
COUNTED = 20


def run(plumb, *words):
    done = subprocess.run([plumb, *words], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def checksum(packet):
    total = sum(struct.unpack(f"!{len(packet) // 2}H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo(address, seconds, hertz=1000):
    """Sends echo requests at a steady rate whatever comes back; milliseconds of every answer."""
    SO_TIMESTAMPNS, me = 35, os.getpid() & 0xFFFF
    line = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    line.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    line.settimeout(2)
    line.connect((address, 0))
    sent, count = {}, seconds * hertz

    def send():
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / hertz - time.monotonic()))
            head = struct.pack("!BBHHH", 8, 0, 0, me, number & 0xFFFF) + bytes(DATA)
            packet = head[:2] + struct.pack("!H", checksum(head)) + head[4:]
            sent[number & 0xFFFF] = time.time_ns()
            line.send(packet)

    sender, times = threading.Thread(target=send), []
    sender.start()
    while len(times) < count:
        try:
            packet, notes, _, _ = line.recvmsg(2048, 256)
        except TimeoutError:
            break
        header = (packet[0] & 15) * 4
        kind, _, _, who, number = struct.unpack("!BBHHH", packet[header:header + 8])
        if (kind, who) == (0, me) and number in sent:
            stamp = struct.unpack("qq", next(data for _, what, data in notes if what == SO_TIMESTAMPNS))
            times.append((stamp[0] * 1_000_000_000 + stamp[1] - sent.pop(number)) / 1e6)
    sender.join()
    return times


def measure(plumb, name):
    """Milliseconds that plumb and the echoes found: two lists of median and 99th percentile; echoes a second."""
    address = run(plumb, "link", "exec", name, "a", "--", "getent", "ahostsv4", "b").split()[0]
    inside = [plumb, "link", "exec", name, "a", "--"]
    via = f"{plumb} link exec {name} b -- {plumb} agent --stdio"
    words = ["net", "--via", via, address, "--no-store", "--quiet", "--json", "--only", "down", "--mtu=0s",
             "--probes", "1000", "--probe-size", str(DATA), "--warm-up", f"{WARM_UP}s", "-t", f"{COUNTED}s"]
    net = subprocess.Popen(inside + [plumb] + words, stdout=subprocess.PIPE, text=True)
    # The agent starts, and the search for nothing is over, within a fraction of a second.
    time.sleep(WARM_UP)
    ping = subprocess.run(inside + [sys.executable, os.path.abspath(__file__), "--echo", address, str(COUNTED)],
                          stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    echoes = [float(line) for line in ping.stdout.split()]
    probes = json.loads(net.communicate(timeout=120)[0])["phases"][0]["probes"]
    path = probes["path"]
    return [path["p50_ns"] / 1e6, path["p99_ns"] / 1e6], [quantile(echoes, 0.5), quantile(echoes, 0.99)], len(echoes) / COUNTED


def main():
    if sys.argv[1:2] == ["--echo"]:
        print(*echo(sys.argv[2], int(sys.argv[3])), sep="\n")
        return
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="plumb-ping-")
    atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], True)
    print("link                | p50 ms: plumb     ICMP       % | p99 ms: plumb     ICMP       % | echoes/s")
    for number, link in enumerate(sys.argv[2:] or LINKS):
        rate, delay = link.split(",")
        name = f"ping{number}"
        run(plumb, "link", "up", name, "--hosts", "a,b", "--rate", rate, "--delay", delay)
        try:
            ours, theirs, echoes = measure(plumb, name)
            cells = " | ".join(f"{a:14.3f} {b:8.3f} {100 * (a / b - 1):+7.2f}" for a, b in zip(ours, theirs))
            print(f"{link:19} | {cells} | {echoes:.0f}", flush=True)
        finally:
            run(plumb, "link", "down", name)


if __name__ == "__main__":
    main()
