#!/usr/bin/env python3
"""How well `plumb predict --cpu` says what a slower processor does.

Slows both CPUs by a real-time process on each that takes part of every half millisecond, measures by how much with `plumb index`,
measures throughput again, and scores predictions by that factor against it: TLS, HTTP, TCP, Unix sockets and pipes at seven sizes on
one CPU. The index has no part in the models. The first score has intervals of the fit alone, later ones those of the errors before.
Some three minutes, as root (SCHED_FIFO); nothing else may run. Needs a C compiler.

usage: tools/whatif_check.py [PLUMB]
"""

import json
import os
import subprocess
import sys
import tempfile

PLUMB = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
CPUS = sorted(os.sched_getaffinity(0))
PERIOD_US = 500
TAKEN_US = [75, 125, 200, 250]

# It takes its part of each period on one CPU, whatever runs there.
TAKER = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
int main(int count, char **word) {
    long period = atol(word[2]) * 1000, taken = atol(word[3]) * 1000;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(atoi(word[1]), &cpus);
    struct sched_param priority = {.sched_priority = 10};
    if (sched_setaffinity(0, sizeof cpus, &cpus) || sched_setscheduler(0, SCHED_FIFO, &priority))
        return perror("cannot take a CPU"), 1;
    for (long next = now();;) {
        long from = now();
        while (now() - from < taken)
            ;
        next = next + period < now() ? now() : next + period;
        struct timespec t = {next / 1000000000L, next % 1000000000L};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
    }
}
"""

RUN = [
    "run", "throughput.local", "--quick", "--set", "placement=same-cpu", "--set", "size=64,1Ki,4Ki,16Ki,64Ki,256Ki,1Mi",
    "--set", "mechanism=pipe,tcp4,unix-stream,socketpair-stream,tls-tcp4,http1-tcp4",
]  # fmt: skip


def plumb(store, *words):
    done = subprocess.run([PLUMB, *words, "--json", "--no-progress", "--store", store], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"plumb {words[0]} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    with tempfile.TemporaryDirectory() as place:
        store, taker = f"{place}/plumb.db", f"{place}/taker"
        subprocess.run(["cc", "-O2", "-x", "c", "-o", taker, "-"], input=TAKER, text=True, check=True)
        whole = plumb(store, "index")["index"]
        base = plumb(store, *RUN)["run"]["id"]
        for taken in TAKEN_US:
            takers = [subprocess.Popen([taker, str(cpu), str(PERIOD_US), str(taken)]) for cpu in CPUS]
            try:
                factor = plumb(store, "index")["index"] / whole
                slow = plumb(store, *RUN)["run"]["id"]
            finally:
                for process in takers:
                    process.kill()
                    process.wait()
            change = ["--cpu", f"{factor:.4f}x", "--memory", f"{factor:.4f}x"]
            score = plumb(store, "predict", base, *change, "--response", "throughput", "--score", slow)["score"]
            print(
                f"a processor of {factor:.3f}: {score['predictions']} predictions, median error {score['error_median']:.1%},"
                f" 90th percentile {score['error_p90']:.1%}, {score['coverage']:.0%} in their intervals",
                flush=True,
            )


if __name__ == "__main__":
    main()
