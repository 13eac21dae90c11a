#!/usr/bin/env python3
"""Whether `plumb index` ranks slowed machines as `7z b -mmt1` does, and how well it repeats.

Both run on one CPU, alone and beside loads that differ in kind: shares of the CPU, a low priority, a busy sibling, memory traffic, and a
thrashed cache. Prints both figures for each, Spearman's rank correlation (0.9 or more is wanted), and the spread of ten indices
measured alone without steal (1 % or less). Exit code 1 if either is missed. Some ten minutes; nothing else may run.

Needs 7z (p7zip-full).

usage: tools/index_rank.py [PLUMB]
"""

import json
import os
import re
import statistics
import subprocess
import sys

PLUMB = sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb"
CPUS = sorted(os.sched_getaffinity(0))
OWN, OTHER = CPUS[-1], CPUS[0]

BUSY = "while True: pass"
COPY = "b = bytearray({bytes})\nwhile True: c = b[:]"
MEMORY, CACHE = COPY.format(bytes=64 << 20), COPY.format(bytes=4 << 20)

# What runs beside it: programs with their CPU, and the nice value of what is measured.
SETTINGS = {
    "alone": ([], 0),
    "half of the CPU": ([(BUSY, OWN)], 0),
    "a third of the CPU": ([(BUSY, OWN)] * 2, 0),
    "low priority": ([(BUSY, OWN)], 5),
    "busy sibling": ([(BUSY, OTHER)], 0),
    "memory traffic beside": ([(MEMORY, OTHER)], 0),
    "cache thrashed by turns": ([(CACHE, OWN)], 0),
    "memory traffic by turns and beside": ([(MEMORY, OWN), (MEMORY, OTHER)], 0),
}


def on_cpu(cpu, nice=0):
    def prepare():
        os.sched_setaffinity(0, {cpu})
        os.nice(nice)

    return prepare


def run(command, nice=0):
    done = subprocess.run(command, preexec_fn=on_cpu(OWN, nice), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def index(nice=0):
    document = json.loads(run([PLUMB, "index", "--json", "--no-progress"], nice))
    return document["index"]


def rating(nice=0):
    # The last line: usage, rating for each percent of it, rating, of compressing and decompressing together.
    line = re.search(r"^Tot:\s+(\d+)\s+(\d+)\s+(\d+)", run(["7z", "b", "1", "-mmt1"], nice), re.M)
    return float(line.group(3))


def steal():
    with open("/proc/stat") as stat:
        return int(stat.readline().split()[8])


def ranks(values):
    ordered = sorted(values)
    return [(ordered.index(value) + len(ordered) - ordered[::-1].index(value)) / 2 for value in values]


def main():
    found = {}
    for name, (loads, nice) in SETTINGS.items():
        beside = [subprocess.Popen([sys.executable, "-c", text], preexec_fn=on_cpu(cpu)) for text, cpu in loads]
        try:
            found[name] = (index(nice), rating(nice))
        finally:
            for load in beside:
                load.kill()
                load.wait()
        print(f"{name:36} index {found[name][0]:8.3f}   7z {found[name][1]:7.0f}", flush=True)
    ours, theirs = zip(*found.values())
    correlation = statistics.correlation(ranks(ours), ranks(theirs))
    print(f"Spearman's rank correlation over {len(found)} settings: {correlation:.3f}")

    alone, stolen = [], 0
    while len(alone) < 10 and stolen < 20:
        before, value = steal(), index()
        if steal() == before:
            alone.append(value)
        else:
            stolen += 1
    if len(alone) < 10:
        sys.exit(f"only {len(alone)} of {len(alone) + stolen} indices were measured without steal")
    spread = statistics.stdev(alone) / statistics.mean(alone)
    print(f"spread of {len(alone)} indices alone, {stolen} more with steal left out: {spread:.2%}")
    return 0 if correlation >= 0.9 and spread <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
