#!/usr/bin/env python3
"""What `plumb chatty` predicts beside what happens: captures of real clients over a link with a round trip of 40 ms.

Each task is run one request after the other and captured; chatty predicts what sending all requests at once, without stalls, saves.
Then the same work is done at once and captured too: the difference of both is what it saved. Tasks: a page with twelve images by curl, 50 keys by
redis-cli (at once by --pipe), 50 rows by psql (at once by COPY). What is not installed is left out and named. Exit code 1 if a
prediction is off by more than 20 %.

Needs root, tshark, and of the tasks curl, redis-server and redis-cli, postgresql.

usage: tools/chatty_check.py [PLUMB] [curl] [redis] [psql]
"""

import glob
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

NEAR_DEVICE, FAR = "plumb0", "10.77.0.2"
COUNT = 50
OBJECTS = ["index.html"] + [f"image{number}.png" for number in range(12)]
SIZE = 8_000


class PageHandler(http.server.BaseHTTPRequestHandler):
    """A page and its images, on connections that stay."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        self.wfile.write(bytes(SIZE))

    def log_message(self, *_):
        pass


def far(*words, **options):
    """Starts a command on the far side."""
    return subprocess.Popen(["nsenter", "--net=" + os.environ["PLUMB_LINK_FAR"], *words], **options)


def await_server(port):
    for _ in range(100):
        try:
            return socket.create_connection((FAR, port), 1).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no server at {FAR}, port {port}")


def all_at_once(port, requests, done):
    """Sends everything, and reads until `done` says that the bytes suffice."""
    with socket.create_connection((FAR, port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(requests)
        seen = b""
        while not done(seen):
            seen += peer.recv(1 << 16)


def curl(_folder):
    far(sys.executable, os.path.abspath(__file__), "--serve")
    await_server(8000)
    urls = [f"http://{FAR}:8000/{name}" for name in OBJECTS]
    sinks = [word for url in urls for word in ("-o", "/dev/null", url)]
    requests = "".join(f"GET /{name} HTTP/1.1\r\nHost: {FAR}\r\n\r\n" for name in OBJECTS).encode()
    return (
        lambda: subprocess.run(["curl", "-s", *sinks], check=True),
        lambda: all_at_once(8000, requests, lambda seen: len(seen) >= len(OBJECTS) * SIZE + 100 and seen.count(b"\r\n\r\n") == len(OBJECTS)),
    )


def redis(folder):
    far("redis-server", "--bind", FAR, "--port", "6379", "--save", "", "--protected-mode", "no", "--dir", folder, stdout=subprocess.DEVNULL)
    await_server(6379)
    client = ["redis-cli", "-h", FAR]
    keys = "".join(f"SET key{number} value\r\n" for number in range(COUNT)).encode()
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    return (
        lambda: subprocess.run([*client, "-r", str(COUNT), "SET", "key", "value"], **quiet),
        lambda: subprocess.run([*client, "--pipe"], input=keys, **quiet),
    )


def psql(folder):
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    data = os.path.join(folder, "data")
    os.makedirs(data)
    os.chmod(folder, 0o755)
    shutil.chown(data, "postgres")
    as_user = ["runuser", "-u", "postgres", "--"]
    subprocess.run([*as_user, f"{programs}/initdb", "-A", "trust", "-D", data], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(data, "pg_hba.conf"), "a") as rules:
        rules.write("host all all 10.77.0.0/16 trust\n")
    options = ["-c", f"listen_addresses={FAR}", "-c", "fsync=off", "-k", "/tmp"]
    far(*as_user, f"{programs}/postgres", "-D", data, *options, stderr=subprocess.DEVNULL, cwd="/")
    await_server(5432)
    client = ["psql", "-q", "-h", FAR, "-U", "postgres", "postgres"]
    subprocess.run([*client, "-c", "CREATE TABLE item (number int)"], check=True)
    rows = "".join(f"INSERT INTO item VALUES ({number});\n" for number in range(COUNT))
    copy = "COPY item FROM STDIN;\n" + "".join(f"{number}\n" for number in range(COUNT)) + "\\.\n"
    return (
        lambda: subprocess.run(client, input=rows.encode(), check=True),
        lambda: subprocess.run(client, input=copy.encode(), check=True),
    )


TASKS = {"curl": (curl, "curl"), "redis": (redis, "redis-server"), "psql": (psql, "psql")}


def captured(plumb, work, file):
    """Does the work, and has chatty read what passed; the connection with the most round trips."""
    words = ["tshark", "-q", "-i", NEAR_DEVICE, "-f", "tcp", "-w", file]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as capture:
        while "Capturing" not in capture.stderr.readline():
            pass
        time.sleep(1)  # tshark says so before its filter is in place
        work()
        time.sleep(1)
        capture.terminate()
    found = subprocess.run([plumb, "chatty", file, "--json"], capture_output=True, text=True, check=True)
    return max(json.loads(found.stdout)["connections"], key=lambda one: one["round_trips"])


def inside(plumb, name):
    with tempfile.TemporaryDirectory() as folder:
        one_by_one, at_once = TASKS[name][0](folder)
        slow = captured(plumb, one_by_one, f"{folder}/slow.pcapng")
        fast = captured(plumb, at_once, f"{folder}/fast.pcapng")
        predicted = sum(one["saved_ns"] for one in slow["savings"] if one["change"] in ("pipelining", "no-delay"))
        print(json.dumps([slow["round_trips"], predicted, slow["duration_ns"] - fast["duration_ns"]]))


def main():
    plumb = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/release/plumb")
    is_off = False
    print("task   round trips  predicted   measured  error")
    for name in sys.argv[2:] or TASKS:
        if not shutil.which(TASKS[name][1]):
            print(f"{name}: left out: {TASKS[name][1]} is not installed")
            continue
        words = [plumb, "link", "--delay", "20ms", "--", sys.executable, os.path.abspath(__file__), "--inside", plumb, name]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        try:
            trips, predicted, measured = json.loads(done.stdout.splitlines()[0])
        except (IndexError, ValueError):
            sys.exit(f"{' '.join(words)} failed: {done.stdout}{done.stderr}")
        error = predicted / measured - 1
        is_off |= abs(error) > 0.2
        print(f"{name:<6} {trips:>11} {predicted * 1e-6:>7.0f} ms {measured * 1e-6:>7.0f} ms {error:>+6.1%}", flush=True)
    return int(is_off)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        server = http.server.ThreadingHTTPServer((FAR, 8000), PageHandler)
        # A default of bbr would pace, and what a sender paces is no wait for its peer.
        server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        server.serve_forever()
    elif sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
    else:
        sys.exit(main())
