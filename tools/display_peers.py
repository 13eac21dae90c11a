#!/usr/bin/env python3
"""The tasks of `plumb display bench --session` beside X11, VNC and a canvas that is sent JSON over a WebSocket, over one `plumb link`.

The application runs on one host and what shows its pictures on the other: plumb's display, Xvfb, a viewer of Xtigervnc (ZRLE), and
Chromium. All draw the same rectangles in the same order in a frame of 400 x 400, and a task ends when its last picture is known to be
there: by the frame's checksum, by XSync, when the viewer has the mark that is drawn last, and when the page answers after reading a pixel.
A pan of X11, VNC and the canvas copies what stays in view. What is drawn anew as it was is nothing to VNC. The canvas' first task begins with
the page's request, when the browser runs. Bytes are those of TCP's payload both ways. Medians of ROUNDS rounds.

Needs root, cc, libx11-dev, Xvfb, Xtigervnc (tigervnc-standalone-server) and chromium; some minutes, and nothing else may run.

usage: tools/display_peers.py [PLUMB [RATE [DELAY [ROUNDS]]]]
"""

import base64
import hashlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

PLUMB, RATE, DELAY, ROUNDS = (sys.argv[1:] + ["target/release/plumb", "10mbit", "25ms", "3"][len(sys.argv) - 1 :])[:4]
PLUMB, ROUNDS = os.path.abspath(PLUMB), int(ROUNDS)
HERE = os.path.dirname(os.path.abspath(__file__))
LAB = "peers"
TASKS = ["cold-start", "picture", "edits", "million", "zoom", "pan"]

# An inverter as crates/display/src/workload.rs has it: layer, x, y, width, height; and two contacts.
OWN = """0 0 4 78 12|0 0 48 78 12|2 28 6 8 52|2 24 12 16 8|2 24 44 16 8|3 22 16 20 14|1 20 18 24 8|1 40 18 6 16|2 36 28 10 6
1 4 38 40 4|1 4 30 4 12|1 0 30 8 4|2 36 30 20 4|0 52 26 8 12|0 56 30 22 4|1 54 28 4 8|1 60 28 6 8|3 64 6 8 8|3 64 50 8 8
2 66 8 4 4""".replace("\n", "|")
CONTACT = [(0, 0, 0, 8, 8), (2, 0, 0, 8, 8), (1, 2, 2, 4, 4)]
FRAME, CELL, SIDE, PAN, ZOOMED_X, WHOLE = 400, (80, 66), 197, 40, 3940, 1660 / 65536


def inverter():
    rects = [tuple(map(int, rect.split())) for rect in OWN.split("|")]
    rects += [(layer, x + dx, y + dy, w, h) for dx, dy in ((28, 6), (28, 50)) for layer, x, y, w, h in CONTACT]
    return [(layer, x, y, x + w, y + h) for layer, x, y, w, h in rects]


def on(host, *command, **how):
    return subprocess.Popen([PLUMB, "link", "exec", LAB, host, "--", *map(str, command)], **how)


def address(host):
    shown = on(host, "ip", "-j", "-4", "address", stdout=subprocess.PIPE, text=True).communicate()[0]
    return next(a["local"] for link in json.loads(shown) for a in link["addr_info"] if a["scope"] == "global")


def wait_for(host, port):
    """Until something listens there; without a packet over the link."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        shown = on(host, "ss", "-Hltn", f"sport = :{port}", stdout=subprocess.PIPE, text=True).communicate()[0]
        if shown.strip():
            return
        time.sleep(0.1)
    sys.exit(f"nothing listens on port {port} of {host}")


def stop(*processes):
    for process in processes:
        process.terminate()
        process.wait()


def lines(process):
    return [json.loads(line) for line in process.communicate()[0].splitlines() if line.startswith("{")]


def of_plumb(_place):
    display = on("user", PLUMB, "display", "serve", f"{address('user')}:1985", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("user", 1985)
    bench = on("app", PLUMB, "display", "bench", "--connect", f"{address('user')}:1985", "--session", "--rounds", 1, "--json",
               "--no-progress", stdout=subprocess.PIPE, text=True)  # fmt: skip
    session = json.loads(bench.communicate()[0])["session"]
    stop(display)
    return {task["task"]: (task["ns"], task["bytes"]) for task in session}


def of_x11(place):
    server = on("user", "Xvfb", ":7", "-screen", 0, "800x600x24", "-listen", "tcp", "-ac", stderr=subprocess.DEVNULL)
    wait_for("user", 6007)
    client = on("app", f"{place}/x11", f"{address('user')}:7", f"{place}/inverter", stdout=subprocess.PIPE, text=True)
    found = {line["task"]: (line["ns"], line["bytes"]) for line in lines(client)}
    stop(server)
    return found


class Viewer:
    """A viewer of VNC (RFC 6143) that asks for ZRLE and looks at the pixel of the mark."""

    def __init__(self, host):
        self.socket, self.inflate, self.received, self.sent, self.mark = socket.create_connection((host, 5908)), zlib.decompressobj(), 0, 0, None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read(12)
        self.send(b"RFB 003.008\n")
        self.read(self.read(1)[0])
        self.send(b"\x01")
        self.read(4)
        self.send(b"\x01")
        _, _, _, name = struct.unpack("!HH16sI", self.read(24))
        self.read(name)
        pixels = struct.pack("!BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
        self.send(b"\0\0\0\0" + pixels + struct.pack("!BxHi", 2, 1, 16))

    def read(self, count):
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 16))
            if not part:
                sys.exit("the VNC server is gone")
            parts.append(part)
            count -= len(part)
            self.received += len(part)
        return b"".join(parts)

    def send(self, message):
        self.sent += len(message)
        self.socket.sendall(message)

    def ask(self, incremental=1):
        self.send(struct.pack("!BBHHHH", 3, incremental, 0, 0, FRAME, FRAME))

    def update(self):
        """Receives an update, asks for the next, and returns when it was there."""
        while (kind := self.read(1)[0]) != 0:
            if kind == 1:
                self.read(struct.unpack("!xHH", self.read(5))[1] * 6)
            elif kind == 3:
                self.read(struct.unpack("!3xI", self.read(7))[0])
        rects = []
        for _ in range(struct.unpack("!xH", self.read(3))[0]):
            x, y, _, _, encoding = struct.unpack("!HHHHi", self.read(12))
            if encoding != 16:
                sys.exit(f"encoding {encoding} was not asked for")
            rects.append((x, y, self.read(struct.unpack("!I", self.read(4))[0])))
        when = time.monotonic_ns()
        self.ask()
        for x, y, data in rects:
            tiles = self.inflate.decompress(data)
            if (x, y) == (0, 0):
                # The first pixel of the first tile: raw, a palette's first entry or its packed index, or a run.
                kind = tiles[0]
                first = tiles[1:4]
                if 2 <= kind <= 16:
                    bits = 1 if kind == 2 else 2 if kind <= 4 else 4
                    index = tiles[1 + 3 * kind] >> (8 - bits)
                    first = tiles[1 + 3 * index : 4 + 3 * index]
                elif kind >= 130:
                    index = tiles[1 + 3 * (kind - 128)] & 127
                    first = tiles[1 + 3 * index : 4 + 3 * index]
                self.mark = first
        return when


def of_vnc(place):
    server = on("app", "Xtigervnc", ":8", "-geometry", f"{FRAME}x{FRAME}", "-depth", 24, "-SecurityTypes", "None", "-rfbport", 5908,
                "-ac", "-localhost", 0, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    wait_for("app", 5908)
    client = on("app", f"{place}/x11", ":8", f"{place}/inverter", "keys")
    viewer = on("user", sys.executable, __file__, "--viewer", address("app"), stdout=subprocess.PIPE, text=True)
    found = {line["task"]: (line["ns"], line["bytes"]) for line in lines(viewer)}
    stop(client, server)
    return found


def view(host):
    time.sleep(1)
    for number, task in enumerate(TASKS):
        begun = time.monotonic_ns()
        if number == 0:
            viewer, before = Viewer(host), 0
            viewer.ask(incremental=0)
        for down in (1, 0):
            viewer.send(struct.pack("!BBxxI", 4, down, ord("0") + number))
        mark, ended = bytes([0x10 * (number + 1)] * 3), begun
        while viewer.mark != mark:
            ended = viewer.update()
        after = viewer.received + viewer.sent
        print(json.dumps({"task": task, "ns": ended - begun, "bytes": after - before}), flush=True)
        before = after
        time.sleep(1)


PAGE = """<canvas id=c width=400 height=400></canvas><script>
const context = document.getElementById('c').getContext('2d', {willReadFrequently: true});
const colors = ['#2060c0', '#c03030', '#208040', '#b09020'], white = '#fff', patterns = [];
const rows = [[0x11, 0x44], [0x55, 0xaa], [0x0f, 0xf0], [0x88, 0x22]];
for (let i = 0; i < 4; i++) { // A stipple of its colour on nothing.
  const tile = new OffscreenCanvas(8, 8), draw = tile.getContext('2d');
  draw.fillStyle = colors[i];
  for (let y = 0; y < 8; y++) for (let x = 0; x < 8; x++) if (rows[i][y % 2] >> x & 1) draw.fillRect(x, y, 1, 1);
  patterns.push(context.createPattern(tile, 'repeat'));
}
const socket = new WebSocket('ws://' + location.host + '/draw');
socket.onmessage = message => {
  const said = JSON.parse(message.data);
  if (said.copy) context.drawImage(context.canvas, said.copy, 0, 400 - said.copy, 400, 0, 0, 400 - said.copy, 400);
  for (const [layer, x, y, width, height] of said.rects || []) {
    context.fillStyle = layer < 0 ? white : patterns[layer];
    context.fillRect(x, y, width, height);
  }
  if (said.task !== undefined) { context.getImageData(0, 0, 1, 1); socket.send(JSON.stringify({done: said.task})); }
};
</script>"""


def drawn(columns, rows, x, scale, left, right):
    """The rectangles of so many inverters between columns of pixels, as the page takes them."""
    for row in range(rows):
        for column in range(columns):
            for layer, x0, y0, x1, y1 in INVERTER:
                x0, x1 = int((x0 + column * CELL[0] - x) * scale), int((x1 + column * CELL[0] - x) * scale)
                y0, y1 = int((y0 + row * CELL[1]) * scale), int((y1 + row * CELL[1]) * scale)
                if x1 >= left and x0 < right and y0 < FRAME:
                    yield [layer, x0, y0, max(x1 - x0, 1), max(y1 - y0, 1)]


def messages(task):
    """What the application sends for a task, made before its time begins."""
    white = [[-1, 0, 0, FRAME, FRAME]]
    if task == "edits":
        for i in range(1000):
            layer, x0, y0, x1, y1 = INVERTER[i % len(INVERTER)]
            x, y = i // len(INVERTER) % 5 * CELL[0] + x0, i // len(INVERTER) // 5 % 6 * CELL[1] + y0
            yield {"rects": [[-1, x, y, x1 - x0, y1 - y0], [layer, x + 1, y, x1 - x0, y1 - y0]]}
        return
    copy, rects = None, white
    if task in ("cold-start", "picture"):
        rects = white + list(drawn(5, 6, 0, 1, 0, FRAME))
    elif task == "million":
        rects = white + list(drawn(SIDE, SIDE, 0, WHOLE, 0, FRAME))
    elif task == "zoom":
        rects = white + list(drawn(SIDE, SIDE, ZOOMED_X, 2 * WHOLE, 0, FRAME))
    elif task == "pan":
        copy, strip = PAN, [[-1, FRAME - PAN, 0, PAN, FRAME]]
        rects = strip + list(drawn(SIDE, SIDE, ZOOMED_X + PAN / (2 * WHOLE), 2 * WHOLE, FRAME - PAN, FRAME))
    for at in range(0, len(rects), 20_000):
        yield {"copy": copy if at == 0 else None, "rects": rects[at : at + 20_000]}


def frame(text):
    data = text.encode()
    length = len(data)
    head = bytes([length]) if length < 126 else b"\x7e" + struct.pack("!H", length) if length < 65536 else b"\x7f" + struct.pack("!Q", length)
    return b"\x81" + head + data


def read_frame(stream):
    head = stream.read(2)
    length = head[1] & 127
    mask, data = stream.read(4), stream.read(length)
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)), 6 + length


def serve_canvas(host):
    """The application of the canvas: gives the page, then draws over its WebSocket and times each task."""
    everything = [b"".join(frame(json.dumps(m, separators=(",", ":"))) for m in messages(task)) for task in TASKS]
    listener = socket.create_server((host, 8000))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        request, key = stream.readline(), None
        asked = time.monotonic_ns() if request.startswith(b"GET / ") else None
        received = len(request)
        while (line := stream.readline()).strip():
            received += len(line)
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        if key is None:
            body = PAGE.encode() if asked else b""
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if asked:
                began, page = asked, len(body) + received
            connection.close()
            continue
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        connection.sendall(head)
        count = page + received + len(head)
        for number, (task, data) in enumerate(zip(TASKS, everything)):
            if number:
                began, count = time.monotonic_ns(), 0
            end = frame(json.dumps({"task": number}))
            connection.sendall(data + end)
            _, answered = read_frame(stream)
            took = time.monotonic_ns() - began
            print(json.dumps({"task": task, "ns": took, "bytes": count + len(data) + len(end) + answered}), flush=True)
        return


def of_canvas(place):
    server = on("app", sys.executable, __file__, "--canvas", address("app"), stdout=subprocess.PIPE, text=True)
    wait_for("app", 8000)
    browser = on("user", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={place}/chromium",
                 "--remote-debugging-port=0", f"http://{address('app')}:8000/", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    found = {line["task"]: (line["ns"], line["bytes"]) for line in lines(server)}
    stop(browser)
    return found


PEERS = {"plumb": of_plumb, "X11": of_x11, "VNC": of_vnc, "JSON canvas": of_canvas}


def main():
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cc", "-O2", "-o", f"{place}/x11", f"{HERE}/../benches/display/x11.c", "-lX11"], check=True)
        with open(f"{place}/inverter", "w") as file:
            file.writelines(" ".join(map(str, rect)) + "\n" for rect in INVERTER)
        subprocess.run([PLUMB, "link", "up", LAB, "--hosts", "app,user", "--rate", RATE, "--delay", DELAY], check=True, stdout=subprocess.DEVNULL)
        try:
            found = {name: [measure(place) for _ in range(ROUNDS)] for name, measure in PEERS.items()}
        finally:
            subprocess.run([PLUMB, "link", "down", LAB], check=True, stdout=subprocess.DEVNULL)
    print(f"{RATE}, {DELAY} each way: milliseconds and kilobytes, medians of {ROUNDS}\n")
    print("| task | " + " | ".join(PEERS) + " |\n" + "|---" * (len(PEERS) + 1) + "|")
    for task in TASKS:
        cells = []
        for rounds in found.values():
            ns, count = (statistics.median(run[task][part] for run in rounds) for part in (0, 1))
            cells.append(f"{ns / 1e6:,.0f} ms, {count / 1e3:,.1f} kB")
        print(f"| {task} | " + " | ".join(cells) + " |")


INVERTER = inverter()

if __name__ == "__main__":
    if sys.argv[1:2] == ["--viewer"]:
        view(sys.argv[2])
    elif sys.argv[1:2] == ["--canvas"]:
        serve_canvas(sys.argv[2])
    else:
        main()
