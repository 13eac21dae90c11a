#!/usr/bin/env python3
"""What no program can take off: the time between the kernels' own stamps beside what the link counted.

Between two hosts behind `plumb link`, datagrams as long as plumb net's probes go to and fro. Both kernels stamp each
when it leaves for the device and when it arrives from it (SO_TIMESTAMPING, software), so neither a program's wake-up
nor its system calls are in between; the link records at both of its ends when it read and when it wrote each. The
table has the medians of both in microseconds, each way, and in percent the kernels' over the link's less 1: what the
way between a kernel and the link costs, whoever measures. Where that is more than 2 %, no probe of two programs can
agree with the link's own count within 2 %.

usage: tools/net_floor.py [PLUMB] [RATE,DELAY,PRECISION ...]
"""

import atexit
import json
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from net_settings import Lab, PROBES, PROBE_FRAME, UDP_OVERHEAD, probes_in

LINKS = [f"{rate},{delay},{how}" for rate, delay in (("100mbit", "0.05ms"), ("10gbit", "0.05ms"), ("100mbit", "10ms"))
         for how in ("hybrid", "busy")]
SIZE = PROBE_FRAME - UDP_OVERHEAD
TOKEN = b"tools/net_floor."
PORT = 7_007
COUNT = 5 * PROBES
SO_TIMESTAMPING = 37
# Software stamps of leaving and of arriving, with a number for each that left and nothing of the packet.
FLAGS = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 11
MSG_ERRQUEUE = 0x2000


def line():
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, FLAGS)
    return opened


def stamp_of(notes):
    """Nanoseconds of the software stamp in what came with a message."""
    for _, what, data in notes:
        if what == SO_TIMESTAMPING:
            seconds, nanoseconds = struct.unpack_from("qq", data)
            return seconds * 1_000_000_000 + nanoseconds
    return 0


def left(opened):
    """When what was sent last left: its stamp is there soon after."""
    for _ in range(1_000):
        try:
            _, notes, _, _ = opened.recvmsg(1, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            return stamp_of(notes)
        except BlockingIOError:
            time.sleep(0.000_1)
    return 0


def answer():
    """Returns each datagram; when each arrived and left, by its number."""
    opened, seen = line(), {}
    opened.bind(("0.0.0.0", PORT))
    opened.settimeout(5)
    while True:
        try:
            data, notes, _, asker = opened.recvmsg(2048, 512)
        except TimeoutError:
            return seen
        opened.sendto(data, asker)
        seen[struct.unpack_from("<Q", data, 16)[0]] = (stamp_of(notes), left(opened))


def ask(address):
    """Sends datagrams at a steady rate; when each left and its answer arrived."""
    opened, seen = line(), {}
    opened.connect((address, PORT))
    opened.settimeout(1)
    began = time.monotonic()
    for number in range(COUNT):
        time.sleep(max(0.0, began + number / PROBES - time.monotonic()))
        opened.send((TOKEN + struct.pack("<Q", number)).ljust(SIZE, b"\0"))
        departure = left(opened)
        try:
            _, notes, _, _ = opened.recvmsg(2048, 512)
            seen[number] = (departure, stamp_of(notes))
        except TimeoutError:
            pass
    return seen


def measure(plumb, name, shape):
    """Medians of the nanoseconds up and down: the kernels', and the link's."""
    folder = tempfile.mkdtemp(prefix="plumb-floor-")
    try:
        with Lab(plumb, name, shape, folder) as lab:
            inside = lambda host: [plumb, "link", "exec", name, host, "--", sys.executable, os.path.abspath(__file__)]
            answerer = subprocess.Popen(inside("b") + ["--answer"], stdout=subprocess.PIPE, text=True)
            time.sleep(1)
            asker = subprocess.run(inside("a") + ["--ask", lab.address], stdout=subprocess.PIPE, text=True, check=True)
            here, there = json.loads(asker.stdout), json.loads(answerer.communicate(timeout=60)[0])
        near, far = (probes_in(file)[TOKEN] for file in lab.files)
    finally:
        shutil.rmtree(folder)
    address = bytes(map(int, lab.address.split(".")))
    own = next(source for source, _ in near if source != address)
    rows = []
    for number, (sent, back) in ((int(n), stamps) for n, stamps in here.items()):
        came, returned = there.get(str(number), (0, 0))
        keys = (own, number), (address, number)
        if all((sent, back, came, returned)) and all(key in end for key in keys for end in (near, far)):
            asked, answered = keys
            rows.append((came - sent, back - returned, far[asked] - near[asked], near[answered] - far[answered]))
    return [statistics.median(column) for column in zip(*rows)], len(rows)


def main():
    if sys.argv[1:2] == ["--answer"]:
        print(json.dumps(answer()))
        return
    if sys.argv[1:2] == ["--ask"]:
        print(json.dumps(ask(sys.argv[2])))
        return
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="plumb-floor-")
    atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], True)
    print("link                    | up us: kernels     link      % | down us: kernels    link      % |  both %  datagrams")
    for index, link in enumerate(sys.argv[2:] or LINKS):
        rate, delay, precision = link.split(",")
        shape = ["--rate", rate, "--delay", delay, "--precision", precision]
        (up, down, link_up, link_down), count = measure(plumb, f"floor{index}", shape)
        off = lambda kernels, counted: 100 * (kernels / counted - 1)
        print(f"{link:23} | {up / 1e3:14.1f} {link_up / 1e3:8.1f} {off(up, link_up):+6.1f}"
              f" | {down / 1e3:16.1f} {link_down / 1e3:7.1f} {off(down, link_down):+6.1f}"
              f" | {off(up + down, link_up + link_down):+7.1f} {count:10}", flush=True)


if __name__ == "__main__":
    main()
