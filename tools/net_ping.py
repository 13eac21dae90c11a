#!/usr/bin/env python3
"""Latency under load as plumb net finds it against ping(8) at 1 kHz, through the same link at the same time.

A lab of two hosts is made behind `plumb link`; plumb net fills it down with one TCP stream and sends a thousand probes
a second, and ping sends as many echo requests of the same length beside it. Both see the same queue. The table has
the median and the 99th percentile of both in milliseconds, and in percent plumb's over ping's less 1.
ping starts when the warm-up is over and is told to end with the test.

usage: tools/net_ping.py [PLUMB] [RATE,DELAY ...]      as root: nobody else may ping as often
"""

import json
import os
import re
import subprocess
import sys
import tempfile
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


def measure(plumb, name):
    """Milliseconds that plumb and ping found: two lists of median and 99th percentile."""
    address = run(plumb, "link", "exec", name, "a", "--", "getent", "ahostsv4", "b").split()[0]
    inside = [plumb, "link", "exec", name, "a", "--"]
    via = f"{plumb} link exec {name} b -- {plumb} agent --stdio"
    words = ["net", "--via", via, address, "--no-store", "--quiet", "--json", "--only", "down", "--mtu=0s",
             "--probes", "1000", "--probe-size", str(DATA), "--warm-up", f"{WARM_UP}s", "-t", f"{COUNTED}s"]
    net = subprocess.Popen(inside + [plumb] + words, stdout=subprocess.PIPE, text=True)
    # The agent starts, and the search for nothing is over, within a fraction of a second.
    time.sleep(WARM_UP)
    ping = subprocess.Popen(inside + ["ping", "-n", "-i", "0.001", "-s", str(DATA), "-w", str(COUNTED), address],
                            stdout=subprocess.PIPE, text=True)
    echoes = [float(ms) for ms in re.findall(r"time=([0-9.]+) ms", ping.communicate(timeout=120)[0])]
    probes = json.loads(net.communicate(timeout=120)[0])["phases"][0]["probes"]
    path = probes["path"]
    return [path["p50_ns"] / 1e6, path["p99_ns"] / 1e6], [quantile(echoes, 0.5), quantile(echoes, 0.99)], len(echoes)


def main():
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="plumb-ping-")
    print("link                | p50 ms: plumb     ping       % | p99 ms: plumb     ping       % | echoes")
    for number, link in enumerate(sys.argv[2:] or LINKS):
        rate, delay = link.split(",")
        name = f"ping{number}"
        run(plumb, "link", "up", name, "--hosts", "a,b", "--rate", rate, "--delay", delay)
        try:
            ours, theirs, echoes = measure(plumb, name)
            cells = " | ".join(f"{a:14.3f} {b:8.3f} {100 * (a / b - 1):+7.2f}" for a, b in zip(ours, theirs))
            print(f"{link:19} | {cells} | {echoes}", flush=True)
        finally:
            run(plumb, "link", "down", name)


if __name__ == "__main__":
    main()
