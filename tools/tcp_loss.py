#!/usr/bin/env python3
"""plumb's TCP beside Linux's at the same losses.

Both send to Linux through `plumb link`, in turn, each launch of a pair with the same seed, so that the link loses the same frames by
number. plumb sends by a packet socket on the near device, from an address of its own. The receiver counts for some seconds from the
first byte on. The table has medians and the ratio of each pair: median, least and most.

usage: tools/tcp_loss.py [PLUMB] [LAUNCHES] [PLUMB'S-CONTROL:LINUX'S-CONTROL ...]
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time

CONTROLS = ["reno:reno", "newreno:reno", "cubic:cubic"]
LINKS = [("20mbit", "10ms", "0.1%"), ("20mbit", "10ms", "1%")]
LIMIT = "64packets"
SECONDS = 5
FAR = ("10.77.0.2", 5201)
OWN = "10.77.0.7/24"


def receive():
    """On the far side: bytes a second of the first connection."""
    listener = socket.create_server(FAR)
    print("ready", flush=True)
    peer, _ = listener.accept()
    peer.settimeout(10)
    begun, count = None, 0
    while True:
        piece = len(peer.recv(1 << 16))
        begun = begun or time.monotonic()
        passed = time.monotonic() - begun
        if piece == 0 or passed >= SECONDS:
            break
        count += piece
    print(count / passed, flush=True)


def send(control):
    """On the near side, by Linux."""
    with socket.socket() as near:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        near.connect(FAR)
        try:
            while True:
                near.send(bytes(1 << 16))
        except OSError:
            pass  # the receiver has seen enough


def inside(plumb, side, control):
    """Behind the link: one launch."""
    far = ["nsenter", "--net=" + os.environ["PLUMB_LINK_FAR"], sys.executable, __file__, "--receive"]
    sink = subprocess.Popen(far, stdout=subprocess.PIPE, text=True)
    sink.stdout.readline()
    if side == "linux":
        send(control)
    else:
        words = [plumb, "stack", "transfer", f"{FAR[0]}:{FAR[1]}", "--device", "packet:plumb0", "--addr", OWN]
        words += ["--congestion", control, "--duration", f"{SECONDS + 2}s", "--quiet"]
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(json.dumps(float(sink.stdout.readline())))


def launch(plumb, side, control, link, seed):
    rate, delay, loss = link
    words = [plumb, "link", "--rate", rate, "--delay", delay, "--loss", loss, "--limit", LIMIT, "--seed", str(seed)]
    words += ["--", sys.executable, os.path.abspath(__file__), "--inside", plumb, side, control]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    try:
        return json.loads(done.stdout.splitlines()[0])
    except (IndexError, ValueError):
        sys.exit(f"{' '.join(words)} failed: {done.stdout}{done.stderr}")


def main():
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    launches = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    print(f"{launches} pairs of launches, {SECONDS} s each, {LIMIT} of queue; Mb/s of payload")
    print(f"{'congestion':<16} {'link':<20} {'plumb':>7} {'Linux':>7}  plumb/Linux")
    for controls in sys.argv[3:] or CONTROLS:
        for link in LINKS:
            ours, theirs = [], []
            for seed in range(launches):
                sides = [("plumb", controls.split(":")[0], ours), ("linux", controls.split(":")[1], theirs)]
                for side, control, rates in sides if seed % 2 else reversed(sides):
                    rates.append(launch(plumb, side, control, link, seed) * 8e-6)
            ratios = [a / b for a, b in zip(ours, theirs)]
            middle = [statistics.median(values) for values in (ours, theirs, ratios)]
            print(
                f"{controls:<16} {' '.join(link):<20} {middle[0]:7.2f} {middle[1]:7.2f}  {middle[2]:.3f} [{min(ratios):.3f}, {max(ratios):.3f}]",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--receive"]:
        receive()
    elif sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
    else:
        main()
