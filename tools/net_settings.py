#!/usr/bin/env python3
"""plumb net against what the link itself counted, at twelve settings.

For each setting a lab of two hosts is made behind `plumb link`; plumb net measures from one to the other, first idle,
then down under load; and the link's own accounts say what passed, how long it took and what was dropped.

usage: tools/net_settings.py [PLUMB] [SETTING ...]
"""

import json
import os
import subprocess
import sys
import tempfile

# rate, one-way delay, loss of each direction
SETTINGS = [
    ("1mbit", "20ms", "0%"),
    ("1mbit", "200ms", "0%"),
    ("10mbit", "5ms", "0%"),
    ("10mbit", "20ms", "1%"),
    ("10mbit", "100ms", "0%"),
    ("100mbit", "0.05ms", "0%"),
    ("100mbit", "10ms", "0%"),
    ("100mbit", "10ms", "2%"),
    ("1gbit", "0.05ms", "0%"),
    ("1gbit", "5ms", "0.1%"),
    ("1gbit", "50ms", "0%"),
    ("10gbit", "0.05ms", "0%"),
]
FRAME_OVERHEAD = 14 + 20 + 32  # Ethernet, IPv4, TCP with time stamps


def run(plumb, *words, parse=False):
    done = subprocess.run([plumb, *words], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 4):
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout) if parse else done.stdout


def counted(plumb, name):
    document = run(plumb, "link", "show", name, "--json", parse=True)
    return {d["name"].split()[-1]: d for d in document["directions"]}, document


def net(plumb, name, address, *words):
    via = f"{plumb} link exec {name} b -- {plumb} agent --stdio"
    return run(plumb, "link", "exec", name, "a", "--", plumb, "net", "--via", via, address,
               "--no-store", "--quiet", "--json", *words, parse=True)


def off(measured, truth):
    return 100 * (measured - truth) / truth if truth else 0.0 if measured == truth else float("inf")


def main():
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    chosen = [int(n) for n in sys.argv[2:]] or range(1, len(SETTINGS) + 1)
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="plumb-net-")
    print("setting                     rate  off | idle p50  off | way up off | lost link | loaded  off")
    for number in chosen:
        rate, delay, loss = SETTINGS[number - 1]
        name = f"set{number}"
        shape = ["--rate", rate, "--delay", delay] + (["--loss", loss] if loss != "0%" else [])
        run(plumb, "link", "up", name, "--hosts", "a,b", *shape)
        try:
            address = run(plumb, "link", "exec", name, "a", "--", "getent", "ahostsv4", "b").split()[0]
            before, _ = counted(plumb, name)
            idle = net(plumb, name, address, "--only", "idle", "--idle", "5s")["phases"][0]["probes"]
            after, _ = counted(plumb, name)
            dropped = sum(sum(after[w]["discarded"].values()) - sum(before[w]["discarded"].values())
                          for w in ("up", "down"))
            wire = 2 * float(delay[:-2]) * 1e6
            truth_idle = wire + sum(after[w]["sojourn_us_p50"] for w in ("up", "down")) * 1e3
            before = after
            document = net(plumb, name, address, "--only", "down", "-t", "8s", "--drain", "30s")
            after, shown = counted(plumb, name)
            phase = document["phases"][0]
            flow, loaded = phase["flows"][0], phase["probes"]
            grew = {k: after["down"][k] - before["down"][k] for k in ("bytes_out", "frames_out")}
            probes = loaded["answered"] + (loaded["lost_down"] or 0)
            payload = grew["bytes_out"] - FRAME_OVERHEAD * grew["frames_out"] - probes * 40
            way = (idle["one_way_up"] or {}).get("least_ns", 0) + (idle["one_way_up"] or {}).get("above_p50_ns", 0)
            truth_way = float(delay[:-2]) * 1e6 + after["up"]["sojourn_us_p50"] * 1e3
            truth_loaded = wire + (after["up"]["sojourn_us_p50"] + after["down"]["sojourn_us_p50"]) * 1e3
            print(f"{number:2} {rate:>7} {delay:>7} {loss:>5}"
                  f" {flow['bytes_per_second'] * 8 / 1e6:9.2f} {off(flow['received_bytes_total'], payload):+5.1f}%"
                  f" | {idle['path']['p50_ns'] / 1e6:7.2f} {off(idle['path']['p50_ns'], truth_idle):+5.1f}%"
                  f" | {way / 1e6:6.2f} {off(way, truth_way):+5.1f}%"
                  f" | {idle['lost']:4} {dropped:4}"
                  f" | {loaded['path']['p50_ns'] / 1e6:7.2f} {off(loaded['path']['p50_ns'], truth_loaded):+5.1f}%"
                  f"{'' if shown['faithful'] else '  (the link was late)'}", flush=True)
        finally:
            run(plumb, "link", "down", name)


if __name__ == "__main__":
    main()
