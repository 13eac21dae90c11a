#!/usr/bin/env python3
"""plumb net against what the link itself counted, at twelve settings.

For each setting a lab of two hosts is made behind `plumb link`; plumb net measures from one to the other, first idle,
then down under load, then paced datagrams down at half the rate; and the link's own accounts say what passed, how
long it took and what was dropped. How long each probe was in the link comes from what the link recorded at both
of its ends (--pcap, --pcap-far); under load above 100 Mb/s, where recording would slow it, a frame's time is its
delay, its bits at the rate, its wait in the queue and how late the driver sent it: the medians of what the link
counted in the same seconds, the difference of two of its accounts. The table has what plumb said and in percent
its ratio to the link's less 1; of losses both counts.

usage: tools/net_settings.py [PLUMB] [SETTING ...]
"""

import atexit
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

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
UDP_OVERHEAD = 14 + 20 + 8
PROBE_FRAME = 64 + UDP_OVERHEAD
DATAGRAM = 1400
# What announces a stream of datagrams and ends it.
TALK_FRAME = 40 + UDP_OVERHEAD
# Seconds before those that count, and these.
WARM_UP = 3
LOADED = 8
IDLE = 5
PROBES = 200  # a second
RECORDED_MOST = 100e6
UDP_SHARE = 0.5
UDP_MOST = 200e6
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def run(plumb, *words, parse=False):
    done = subprocess.run([plumb, *words], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 4):
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout) if parse else done.stdout


def counted(plumb, name):
    document = run(plumb, "link", "show", name, "--json", parse=True)
    shown = {d["name"].split()[-1]: d for d in document["directions"]}
    return shown | {"driver": document["driver"]}, document


def net(plumb, name, address, *words):
    via = f"{plumb} link exec {name} b -- {plumb} agent --stdio"
    return run(plumb, "link", "exec", name, "a", "--", plumb, "net", "--via", via, address,
               "--no-store", "--quiet", "--json", *words, parse=True)


def off(measured, truth):
    return 100 * (measured / truth - 1) if truth else 0.0 if measured == truth else float("inf")


def bits(rate):
    return float(rate[:-4]) * UNITS[rate[-4:]]


def median(way):
    return way["least_ns"] + way["above_p50_ns"] if way else 0.0


def median_between(before, after):
    """The median of what was counted between two accounts: pairs of microseconds and frames."""
    counts = dict(map(tuple, after))
    for us, frames in before:
        counts[us] -= frames
    left = sum(counts.values()) / 2
    for us, frames in sorted(counts.items()):
        left -= frames
        if left <= 0:
            return us
    return 0.0


def of_link(before, after, way, delay, rate, frame=PROBE_FRAME):
    """Nanoseconds that a frame took one way between two accounts."""
    waited = median_between(before[way]["sojourns_us"], after[way]["sojourns_us"])
    late = median_between(before["driver"]["lateness_us"], after["driver"]["lateness_us"])
    return float(delay[:-2]) * 1e6 + frame * 8 / bits(rate) * 1e9 + (waited + late) * 1e3


class Accounts:
    """The link's account, ten times a second, while something else happens."""

    def __init__(self, plumb, name):
        self.shown, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.work, args=(plumb, name))

    def work(self, plumb, name):
        while not self.over.wait(0.1):
            self.shown.append((time.monotonic(), counted(plumb, name)[0]))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def of_load(self, skip, seconds):
        """The two around the time that counts: it begins `skip` after the first bulk data."""
        quiet = self.shown[0][1]["down"]["frames_in"]
        busy = next(at for at, shown in self.shown if shown["down"]["frames_in"] > quiet + 30)
        nearest = lambda due: min(self.shown, key=lambda entry: abs(entry[0] - due))[1]
        return nearest(busy + skip), nearest(busy + skip + seconds)


def dropped(after, before, ways):
    return sum(sum(after[w]["discarded"].values()) - sum(before[w]["discarded"].values()) for w in ways)


def probes_in(path):
    """When each probe passed one end of the link: {token: {(source, number): nanoseconds}}, in the order of tokens."""
    with open(path, "rb") as file:
        data = file.read()
    tests, at = {}, 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 1:
            options, unit = at + 16, 1000
            while options < at + length - 4:
                code, size = struct.unpack_from("<HH", data, options)
                if code == 9:
                    unit = 10 ** (9 - data[options + 4])
                options += 4 + (size + 3) // 4 * 4
        if kind == 6:
            high, low, kept = struct.unpack_from("<III", data, at + 12)
            frame = data[at + 28:at + 28 + kept]
            udp = 14 + (frame[14] & 15) * 4 if kept > 42 and frame[12:14] == b"\x08\x00" else 0
            if udp and frame[23] == 17 and struct.unpack_from("!H", frame, udp + 4)[0] == 8 + PROBE_FRAME - UDP_OVERHEAD:
                token, number = frame[udp + 8:udp + 24], struct.unpack_from("<Q", frame, udp + 24)[0]
                test = tests.setdefault(token, {})
                test.setdefault((frame[26:30], number), ((high << 32) + low) * unit)
        at += length
    return tests


def recorded(files, address, warm_up):
    """Of each test, medians of the nanoseconds that counted probes were in the link: both ways, up, down."""
    near, far = map(probes_in, files)
    there = bytes(map(int, address.split(".")))
    medians = []
    for token, passed in near.items():
        opposite, ways = far.get(token, {}), []
        here = next((source for source, _ in passed if source != there), b"")
        for number in {number for _, number in passed if number >= warm_up * PROBES}:
            asked, answered = (here, number), (there, number)
            if all(key in end for key in (asked, answered) for end in (passed, opposite)):
                ways.append((opposite[asked] - passed[asked], passed[answered] - opposite[answered]))
        if ways:
            up, down = zip(*ways)
            medians.append([statistics.median(map(sum, ways)), statistics.median(up), statistics.median(down)])
    return medians


class Lab:
    """Two hosts behind a link; with the files that the link records at its ends, if it does."""

    def __init__(self, plumb, name, shape, folder=None):
        self.plumb, self.name, self.shape = plumb, name, shape
        self.files = [os.path.join(folder, end) for end in ("near", "far")] if folder else []

    def __enter__(self):
        pcap = ["--pcap", self.files[0], "--pcap-far", self.files[1]] if self.files else []
        run(self.plumb, "link", "up", self.name, "--hosts", "a,b", *self.shape, *pcap)
        inside = run(self.plumb, "link", "exec", self.name, "a", "--", "getent", "ahostsv4", "b")
        self.address = inside.split()[0]
        return self

    def __exit__(self, *_):
        run(self.plumb, "link", "down", self.name)

    def counted(self):
        return counted(self.plumb, self.name)

    def net(self, *words):
        return net(self.plumb, self.name, self.address, "--probes", str(PROBES), "--mtu=0s", *words)


def idle(lab, losses):
    before, _ = lab.counted()
    probes = lab.net("--only", "idle", "--warm-up", f"{WARM_UP}s", "--idle", f"{IDLE}s")["phases"][0]["probes"]
    after, _ = lab.counted()
    losses.append(("probes", probes["lost"], dropped(after, before, ("up", "down"))))
    return [probes["path"]["p50_ns"], median(probes["one_way_up"]), median(probes["one_way_down"])]


def loaded(lab, delay, rate, figures):
    """The bytes of TCP against the link's; the round trip under load, and by the link's accounts; bytes a second."""
    before, _ = lab.counted()
    with Accounts(lab.plumb, lab.name) as accounts:
        document = lab.net("--only", "down", "--warm-up", f"{WARM_UP}s", "-t", f"{LOADED}s", "--drain-timeout", "30s")
    after, _ = lab.counted()
    began, ended = accounts.of_load(WARM_UP, LOADED)
    flow, probes = document["phases"][0]["flows"][0], document["phases"][0]["probes"]
    grew = {k: after["down"][k] - before["down"][k] for k in ("bytes_out", "frames_out")}
    came = probes["answered"] + (probes["lost_down"] or 0)
    payload = grew["bytes_out"] - FRAME_OVERHEAD * grew["frames_out"] - came * 40
    figures.append(("tcp", flow["received_bytes_total"], payload))
    each = [of_link(began, ended, way, delay, rate) for way in ("up", "down")]
    return probes["path"]["p50_ns"], sum(each), flow["bytes_per_second"]


def datagrams(lab, rate, figures, losses):
    before, _ = lab.counted()
    asked = min(UDP_SHARE * bits(rate), UDP_MOST)
    document = net(lab.plumb, lab.name, lab.address, "--only", "down", "--udp", f"{asked / 1e3:.0f}kbit", "-t", "5s",
                   "--udp-size", str(DATAGRAM), "--probes", "0")
    after, shown = lab.counted()
    stream = document["phases"][0]["datagrams"][0]
    grew = {k: after["down"][k] - before["down"][k] for k in ("bytes_out", "frames_out")}
    came = (grew["bytes_out"] - TALK_FRAME * grew["frames_out"]) / (DATAGRAM + UDP_OVERHEAD - TALK_FRAME)
    figures.append(("udp", stream["received"], round(came)))
    losses.append(("udp", stream["lost"], dropped(after, before, ("down",))))
    return shown["faithful"]


def measure(plumb, name, rate, delay, shape):
    """The figures of one setting: name, what plumb said, what the link did."""
    figures, losses = [], []
    folder = tempfile.mkdtemp(prefix="plumb-net-")
    is_slow = bits(rate) <= RECORDED_MOST
    try:
        with Lab(plumb, name, shape, folder) as lab:
            rested = idle(lab, losses)
            if is_slow:
                load, _, bytes_per_second = loaded(lab, delay, rate, figures)
        truths = recorded(lab.files, lab.address, WARM_UP)
    finally:
        shutil.rmtree(folder)
    with Lab(plumb, name, shape) as lab:
        if not is_slow:
            load, truth, bytes_per_second = loaded(lab, delay, rate, figures)
            truths.append([truth])
        faithful = datagrams(lab, rate, figures, losses)
    figures += zip(("idle", "up", "down"), rested, truths[0])
    figures.append(("loaded", load, truths[1][0]))
    return figures, losses, bytes_per_second, faithful


def main():
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    chosen = [int(n) for n in sys.argv[2:]] or range(1, len(SETTINGS) + 1)
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="plumb-net-")
    atexit.register(shutil.rmtree, os.environ["XDG_RUNTIME_DIR"], True)
    print(" # setting               |  TCP Mb/s      % | idle ms      % |  up ms      % | down ms      %"
          " | loaded ms      % | UDP came      % | lost/dropped: probes    UDP")
    for number in chosen:
        rate, delay, loss = SETTINGS[number - 1]
        shape = ["--rate", rate, "--delay", delay] + (["--loss", loss] if loss != "0%" else [])
        figures, losses, bytes_per_second, faithful = measure(plumb, f"set{number}", rate, delay, shape)
        said = {what: (figure, off(figure, truth)) for what, figure, truth in figures}
        times = {what: (said[what][0] / 1e6, said[what][1]) for what in ("idle", "up", "down", "loaded")}
        lost = ["{}/{}".format(*pair) for _, *pair in losses]
        print(f"{number:2} {rate:>7} {delay:>7} {loss:>5} | {bytes_per_second * 8 / 1e6:9.2f} {said['tcp'][1]:+6.2f}"
              f" | {times['idle'][0]:7.2f} {times['idle'][1]:+6.2f} | {times['up'][0]:6.2f} {times['up'][1]:+6.2f}"
              f" | {times['down'][0]:7.2f} {times['down'][1]:+6.2f}"
              f" | {times['loaded'][0]:9.2f} {times['loaded'][1]:+6.2f}"
              f" | {said['udp'][0]:8} {said['udp'][1]:+6.2f} | {lost[0]:>20} {lost[1]:>6}"
              f"{'' if faithful else '  (the link was late)'}", flush=True)


if __name__ == "__main__":
    main()
