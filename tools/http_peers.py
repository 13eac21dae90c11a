#!/usr/bin/env python3
"""The page over every version of HTTP between plumb and other people's servers and clients, behind a link.

A lab of two hosts is made behind `plumb link`. On the one nginx, caddy and plumb serve plumb's page with its twelve
images; plumb fetches it from each of them in every way that they speak. Then curl and aioquic fetch it from plumb's
server. All of it has to arrive, to the byte, and no visit may be quicker than its round trips and its bytes at the
rate of the link allow. The table has the median, the quickest visit, the least that is possible, and the quickest in
percent above that. Under HTTP/3 plumb's server takes a round trip more: it makes a client show its address first.

What is not installed is left out and named: nginx (1.22 or newer), caddy (2.6), curl, openssl, and aioquic of
PyPI for the Python that this runs with.

usage: tools/http_peers.py [PLUMB] [RATE,DELAY] [VISITS]      10mbit,10ms each way, and 5 visits
       tools/http_peers.py --http3 ADDRESS PORT               only the fetching by aioquic: seconds, and the objects
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SPANS = {"us": 1e-6, "ms": 1e-3}
NAME = "peers"
# nginx speaks HTTP/2 in the clear only at a port of its own.
NGINX, NGINX_H2C, NGINX_TLS, CADDY, CADDY_TLS, PLUMB = 8001, 8002, 8003, 8101, 8103, 8480
OVER_TCP1 = ["one-each", "keep-alive", "pipelined"]
PATIENCE = 60


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Served:
    """A program that goes on until the end of a block."""

    def __init__(self, words, **more):
        self.words, self.more = words, more

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.more)
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def copy_page(plumb, folder):
    """The page of plumb's server in a folder: {path: bytes}, the page first."""
    with Served([plumb, "agent", "--http", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE) as process:
        head = b""
        while not head.rstrip().endswith(b"}"):
            head += os.read(process.stdout.fileno(), 4096) or sys.exit("plumb's server does not start")
        base = f"http://{json.loads(head)['address']}"
        page = urllib.request.urlopen(base + "/", timeout=PATIENCE).read()
        objects = {"/": page}
        for path in re.findall(r'<img[^>]*src="(/[^"]+)"', page.decode()):
            objects[path] = urllib.request.urlopen(base + path, timeout=PATIENCE).read()
    for path, data in objects.items():
        place = os.path.join(folder, "index.html" if path == "/" else path[1:])
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)
    return objects


def nginx(folder):
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(f"""
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 256; }}
http {{
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5; access_log off; root {folder}/pages;
  types {{ text/html html; image/png png; }}
  ssl_certificate {folder}/certificate.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.3;
  server {{ listen {NGINX}; }}
  server {{ listen {NGINX_H2C} http2; }}
  server {{ listen {NGINX_TLS} ssl http2; }}
}}""")
    return ["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"]


def caddy(folder):
    with open(f"{folder}/Caddyfile", "w") as file:
        file.write(f"""{{
	admin off
	auto_https off
	storage file_system {folder}/caddy
	servers :{CADDY} {{
		protocols h1 h2c
	}}
}}
http://:{CADDY} {{
	root * {folder}/pages
	file_server
}}
https://:{CADDY_TLS} {{
	tls {folder}/certificate.pem {folder}/key.pem
	root * {folder}/pages
	file_server
}}
""")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


class Lab:
    """Two hosts behind a link, and the least that anything takes between them."""

    def __init__(self, plumb, rate, delay):
        self.plumb, self.shape = plumb, ["--rate", rate, "--delay", delay]
        self.bits_per_second = float(rate[:-4]) * UNITS[rate[-4:]]
        self.round_trip = 2 * float(delay[:-2]) * SPANS[delay[-2:]]

    def __enter__(self):
        run(self.plumb, "link", "up", NAME, "--hosts", "a,b", *self.shape)
        self.address = run(*self.on("a", "getent", "ahostsv4", "b")).split()[0]
        return self

    def __exit__(self, *_):
        run(self.plumb, "link", "down", NAME)

    def on(self, host, *words):
        return [self.plumb, "link", "exec", NAME, host, "--", *words]

    def least(self, round_trips, size):
        return round_trips * self.round_trip + size * 8 / self.bits_per_second

    def wait_for(self, port):
        """Until somebody takes connections there."""
        script = f"import socket; socket.create_connection(('{self.address}', {port}), 5)"
        for _ in range(100):
            if subprocess.run(self.on("a", sys.executable, "-c", script), stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.1)
        sys.exit(f"nobody listens at port {port}")


class Table:
    def __init__(self):
        self.is_sound = True
        print(f"{'fetched by':<10} {'from':<6} {'how':<24} {'median ms':>10} {'quickest':>9} {'least':>8} {'above %':>8}")

    def row(self, client, server, how, seconds, least):
        quickest = min(seconds)
        wrong = "  QUICKER THAN CAN BE" if quickest < least else ""
        self.is_sound &= not wrong
        print(f"{client:<10} {server:<6} {how:<24} {1e3 * statistics.median(seconds):10.1f} {1e3 * quickest:9.1f}"
              f" {1e3 * least:8.1f} {100 * (quickest / least - 1):+8.1f}{wrong}", flush=True)

    def wrong(self, client, server, how, what):
        self.is_sound = False
        print(f"{client:<10} {server:<6} {how:<24} FAILED: {what}", flush=True)


def round_trips(way, is_encrypted, objects, is_plumb):
    """Those that a way cannot do without: connecting, TLS 1.3, the page, and the images that it names."""
    connect = 2 if is_encrypted else 1
    if way == "http3":
        return (2 if is_plumb else 1) + 2
    return {"one-each": objects * (connect + 1), "keep-alive": connect + objects}.get(way, connect + 2)


def plumb_fetches(lab, table, server, port, is_encrypted, ways, visits, objects):
    scheme = "https" if is_encrypted else "http"
    lab.wait_for(port)
    report = json.loads(run(*lab.on("a", lab.plumb, "net", "--http", f"{scheme}://{lab.address}:{port}/", "--insecure",
                                    "--visits", str(visits), "--http-modes", ",".join(ways), "--json")))
    size = sum(map(len, objects.values()))
    for way in report["ways"]:
        name = way["way"] + (" TLS" if is_encrypted and way["way"] != "http3" else "")
        found = {(visit["objects"], visit["bytes"]) for visit in way["visits"]}
        if way["error"] or found != {(len(objects), size)}:
            table.wrong("plumb", server, name, way["error"] or f"objects and bytes: {found}")
            continue
        least = lab.least(round_trips(way["way"], is_encrypted, len(objects), server == "plumb"), size)
        table.row("plumb", server, name, [visit["total_ns"] / 1e9 for visit in way["visits"]], least)


def curl_fetches(lab, table, folder, visits, objects):
    """Over one connection, one object after another; in the clear HTTP/2 over a connection each, because curl 7.88 cannot
    use such a connection again, whoever serves."""
    for scheme, version, is_each in (("http", "1.1", False), ("https", "1.1", False), ("https", "2", False),
                                     ("http", "2-prior-knowledge", True)):
        how = f"HTTP/{version.split('-')[0]}" + (" TLS" if scheme == "https" else "")
        words = ["curl", "-sSfk", f"--http{version}", "-m", str(PATIENCE)]
        requests = [[f"{scheme}://{lab.address}:{PLUMB}{path}", "-o", f"{folder}/got{index}"]
                    for index, path in enumerate(objects)]
        groups = requests if is_each else [sum(requests, [])]
        times, is_whole = [], True
        for _ in range(visits):
            began = time.monotonic()
            for group in groups:
                run(*lab.on("a", *words, *group))
            times.append(time.monotonic() - began)
            for index, data in enumerate(objects.values()):
                with open(f"{folder}/got{index}", "rb") as file:
                    is_whole &= file.read() == data
        way = "one-each" if is_each else "keep-alive"
        least = lab.least(round_trips(way, scheme == "https", len(objects), True), sum(map(len, objects.values())))
        if is_whole:
            table.row("curl", "plumb", how, times, least)
        else:
            table.wrong("curl", "plumb", how, "other bytes")


def aioquic_fetches(lab, table, visits, objects):
    times = []
    for _ in range(visits):
        seconds, got = json.loads(run(*lab.on("a", sys.executable, os.path.abspath(__file__), "--http3", lab.address,
                                              str(PLUMB))))
        times.append(seconds)
        if got != {path: digest(data) for path, data in objects.items()}:
            return table.wrong("aioquic", "plumb", "HTTP/3", f"other bytes: {list(got)}")
    least = lab.least(round_trips("http3", True, len(objects), True), sum(map(len, objects.values())))
    return table.row("aioquic", "plumb", "HTTP/3", times, least)


async def http3(address, port):
    """The page by aioquic: seconds, and what its objects come to."""
    from aioquic.asyncio.client import connect
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.h3.connection import H3_ALPN, H3Connection
    from aioquic.h3.events import DataReceived, HeadersReceived
    from aioquic.quic.configuration import QuicConfiguration

    class Fetching(QuicConnectionProtocol):
        def __init__(self, *words, **more):
            super().__init__(*words, **more)
            self.http, self.answers = H3Connection(self._quic), {}

        def quic_event_received(self, event):
            for found in self.http.handle_event(event):
                if isinstance(found, (DataReceived, HeadersReceived)) and found.stream_id in self.answers:
                    body, over = self.answers[found.stream_id]
                    if isinstance(found, DataReceived):
                        body += found.data
                    elif dict(found.headers)[b":status"] != b"200":
                        over.set_exception(ValueError(str(found.headers)))
                    if found.stream_ended and not over.done():
                        over.set_result(bytes(body))

        def ask(self, path):
            stream, over = self._quic.get_next_available_stream_id(), asyncio.get_running_loop().create_future()
            self.answers[stream] = (bytearray(), over)
            fields = {":method": "GET", ":scheme": "https", ":authority": f"{address}:{port}", ":path": path}
            self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in fields.items()], end_stream=True)
            self.transmit()
            return asyncio.wait_for(over, PATIENCE)

    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    began = time.monotonic()
    async with connect(address, port, configuration=configuration, create_protocol=Fetching) as fetching:
        page = await fetching.ask("/")
        paths = re.findall(r'<img[^>]*src="(/[^"]+)"', page.decode())
        images = await asyncio.gather(*(fetching.ask(path) for path in paths))
        seconds = time.monotonic() - began
    return seconds, {path: digest(data) for path, data in zip(["/", *paths], [page, *images])}


def has_aioquic():
    try:
        import aioquic.h3.connection  # noqa: F401
    except ImportError:
        return False
    return True


def main():
    if sys.argv[1:2] == ["--http3"]:
        return print(json.dumps(asyncio.run(http3(sys.argv[2], int(sys.argv[3])))))
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    rate, delay = (sys.argv[2] if len(sys.argv) > 2 else "10mbit,10ms").split(",")
    visits = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    os.environ["PATH"] += ":/usr/sbin"
    absent = [name for name in ("nginx", "caddy", "curl", "openssl") if not shutil.which(name)]
    absent += [] if has_aioquic() else ["aioquic"]
    if absent:
        print(f"skipped, for not being installed: {', '.join(absent)}")
    folder = tempfile.mkdtemp(prefix="plumb-http-")
    os.environ["XDG_RUNTIME_DIR"] = os.environ["HOME"] = folder
    try:
        objects = copy_page(plumb, f"{folder}/pages")
        with Lab(plumb, rate, delay) as lab:
            table = Table()
            if "openssl" not in absent:
                run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=b", "-addext", f"subjectAltName=DNS:b,IP:{lab.address}",
                    "-keyout", f"{folder}/key.pem", "-out", f"{folder}/certificate.pem")
            fetch = lambda *words: plumb_fetches(lab, table, *words, visits, objects)
            if {"nginx", "openssl"}.isdisjoint(absent):
                with Served(lab.on("b", *nginx(folder))):
                    fetch("nginx", NGINX, False, OVER_TCP1)
                    fetch("nginx", NGINX_H2C, False, ["http2"])
                    fetch("nginx", NGINX_TLS, True, [*OVER_TCP1, "http2"])
            if {"caddy", "openssl"}.isdisjoint(absent):
                with Served(lab.on("b", *caddy(folder))):
                    fetch("caddy", CADDY, False, [*OVER_TCP1, "http2"])
                    fetch("caddy", CADDY_TLS, True, [*OVER_TCP1, "http2", "http3"])
            with Served(lab.on("b", plumb, "agent", "--http", f"{lab.address}:{PLUMB}"), stdout=subprocess.DEVNULL):
                fetch("plumb", PLUMB, False, [*OVER_TCP1, "http2"])
                fetch("plumb", PLUMB, True, [*OVER_TCP1, "http2", "http3"])
                if "curl" not in absent:
                    curl_fetches(lab, table, folder, visits, objects)
                if "aioquic" not in absent:
                    aioquic_fetches(lab, table, visits, objects)
    finally:
        shutil.rmtree(folder)
    return 0 if table.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
