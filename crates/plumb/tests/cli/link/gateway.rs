//! The way out of a link: TCP, UDP and names, through the gateway.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, UdpSocket};

use super::test_home::LinkTestHome;
use crate::home::text;
use crate::support::{PLUMB, skip};

/// A server of this machine that gives back, the other way round, what it is sent, once per connection.
fn reverser() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                bytes.reverse();
                stream.write_all(&bytes).unwrap();
                stream.shutdown(Shutdown::Write).ok();
            });
        }
    });
    port
}

/// The port of this machine's loopback at which datagrams are answered with themselves.
fn udp_echo() -> u16 {
    echo(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
}

/// Answers datagrams with themselves from now on, at which port.
fn echo(socket: UdpSocket) -> u16 {
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..len], from).unwrap();
        }
    });
    port
}

#[test]
fn tcp_crosses_unchanged_to_the_hosts_loopback() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let port = reverser();
    let script = format!(
        "import socket,hashlib,os,sys,threading
def one(size):
    data = os.urandom(size)
    s = socket.create_connection(('10.77.0.2', {port}))
    def send():
        s.sendall(data); s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send); t.start()
    back = b''
    while True:
        part = s.recv(65536)
        if not part: break
        back += part
    t.join()
    assert back == data[::-1], (size, len(back))
threads = [threading.Thread(target=one, args=(size,)) for size in (0, 1, 70000, 3000000, 5, 200000)]
[t.start() for t in threads]; [t.join() for t in threads]
print('done')"
    );
    let words = ["--delay", "2ms", "--loss", "1%", "--seed", "7", "--", "python3", "-c", &script];
    assert_eq!(bench.stdout_of(&words), "done\n");
}

#[test]
fn a_connection_that_one_side_resets_is_reset_on_the_other() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // The first ends by a reset from outside, as it has not read what it was sent; the second by one
    // from inside.
    let is_done = bench.path("reset");
    let done = is_done.clone();
    let outside = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        first.read_exact(&mut [0; 1]).unwrap();
        drop(first);
        let (mut second, _) = listener.accept().unwrap();
        second.write_all(b"x").unwrap();
        let kind = second.read(&mut [0; 1]).unwrap_err().kind();
        std::fs::write(done, "").unwrap();
        kind
    });
    let script = format!(
        "import os, socket, struct, time
s = socket.create_connection(('10.77.0.2', {port}), timeout=20)
s.sendall(b'x' * 1000)
try:
    print('end' if s.recv(1) == b'' else 'bytes')
except ConnectionResetError:
    print('reset')
s = socket.create_connection(('10.77.0.2', {port}), timeout=20)
s.recv(1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close()
# The link ends with this command.
while not os.path.exists('{}'): time.sleep(0.01)",
        is_done.display()
    );
    let words = ["--delay", "1ms", "--", "python3", "-c", &script];
    assert_eq!(bench.stdout_of(&words), "reset\n");
    assert_eq!(outside.join().unwrap(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn flows_beyond_the_limit_evict_idle_ones_that_may_return() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let port = udp_echo();
    // Descriptors for some forty flows, and one after the other, so that no queue is too short.
    let script = format!(
        "import socket
def ask(s):
    s.settimeout(1)
    for _ in range(60):
        try:
            s.send(b'?'); return s.recv(9) == b'?'
        except TimeoutError: pass
    return False
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(70)]
for s in sockets: s.connect(('10.77.0.2', {port}))
answered = [ask(s) for s in sockets]
first = sockets[0]; first.settimeout(20); first.send(b'again')
print(answered.count(True), first.recv(9))"
    );
    let report = bench.path("report.json");
    let words = ["--stats", "--report", report.to_str().unwrap(), "--", "python3", "-c", &script];
    let words: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let limited = format!("ulimit -n 256; exec '{}' link {}", PLUMB, words.join(" "));
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .env("XDG_RUNTIME_DIR", bench.home())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "70 b'again'\n", "{said}");
    assert!(said.contains("flows made room for new ones"), "{said}");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let flows = document["gateway"]["datagram_flows"].as_u64().unwrap();
    let evicted = document["gateway"]["evicted"]["idle"].as_u64().unwrap();
    // The first one was silent for longest, and has come back.
    assert!(flows >= 71, "{document}");
    assert_eq!(flows - evicted, (256 - 128) / 3, "{document}");
}

#[test]
fn datagrams_cross_in_order_from_the_asked_address() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let port = udp_echo();
    let script = format!(
        "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)
for n in range(50): s.sendto(b'%d' % n, ('10.77.0.2', {port}))
got = [s.recvfrom(2048) for n in range(50)]
assert all(peer == ('10.77.0.2', {port}) for _, peer in got), got
print([int(data) for data, _ in got] == list(range(50)))"
    );
    assert_eq!(bench.stdout_of(&["--delay", "5ms", "--", "python3", "-c", &script]), "True\n");
}

#[test]
fn a_flow_may_begin_with_a_fragmented_datagram() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let mut places = vec![("AF_INET", "10.77.0.2", udp_echo())];
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(socket) => places.push(("AF_INET6", "fd77::2", echo(socket))),
        Err(error) => {
            skip(&format!("no IPv6 here: {error}"));
        }
    }
    for (family, address, port) in places {
        // Each list is a flow of its own; what follows at once may come first.
        let script = format!(
            "import socket, os
for sizes in ([4000], [4000, 100, 9000], [1473]):
    s = socket.socket(socket.{family}, socket.SOCK_DGRAM); s.settimeout(20)
    sent = [os.urandom(size) for size in sizes]
    for data in sent: s.sendto(data, ('{address}', {port}))
    assert sorted(s.recv(65536) for _ in sent) == sorted(sent), sizes
print('echoed')"
        );
        let words = ["--delay", "5ms", "--", "python3", "-c", &script];
        assert_eq!(bench.stdout_of(&words), "echoed\n", "{family}");
    }
}

#[test]
fn what_cannot_be_reached_is_refused_and_not_silent() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    // A port without a listener; and without a gateway the far end alone, of which nothing is the host's.
    for (option, port, places, expected) in [
        ("--delay=1ms", free, "'10.77.0.2'", "Connection refused\n"),
        (
            "--isolated",
            reverser(),
            "'10.77.0.2', '192.168.255.254'",
            "Connection refused\nNetwork is unreachable\n",
        ),
    ] {
        let script = format!(
            "import socket
for place in ({places},):
    try:
        socket.create_connection((place, {port}), timeout=20)
        print('connected')
    except OSError as error: print(error.strerror)"
        );
        assert_eq!(bench.stdout_of(&[option, "--", "python3", "-c", &script]), expected);
    }
}

#[test]
fn names_are_asked_through_the_link() {
    let Some(bench) = LinkTestHome::new() else { return };
    let script = "head -n 1 /etc/resolv.conf";
    assert_eq!(bench.stdout_of(&["--", "sh", "-c", script]), "nameserver 10.77.0.2\n");
    let outside = std::fs::read_to_string("/etc/resolv.conf").unwrap();
    assert!(!outside.contains("10.77.0.2"), "{outside}");
}

/// Runs a script behind a link in whose outer network two resolvers answer with addresses of their own:
/// 192.0.2.1 and 192.0.2.2, the first one only where it is not dead. What it prints; none where that
/// cannot be.
fn beside_two_resolvers(bench: &LinkTestHome, is_first_dead: bool, inside: &str) -> Option<String> {
    let conf = bench.path("resolv.conf");
    std::fs::write(&conf, "nameserver 127.0.0.1\nnameserver 127.0.0.2\n").unwrap();
    let ask = "import socket
def question(name):
    return b'\\x12\\x34\\1\\0\\0\\1' + bytes(6) + bytes([len(name)]) + name + b'\\0\\0\\1\\0\\1'
def flow(timeout):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(timeout)
    s.connect(('10.77.0.2', 53))
    return s
def ask(s, name):
    s.send(question(name))
    try: return socket.inet_ntoa(s.recv(512)[-4:])
    except TimeoutError: return None
";
    let script = bench.path("inside.py");
    std::fs::write(&script, format!("{ask}{inside}")).unwrap();
    let dead = if is_first_dead { "1" } else { "" };
    let outside = format!(
        "import socket, subprocess, threading
def serve(number):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.%d' % number, 53))
    def answer():
        while True:
            q, who = s.recvfrom(512)
            if '{dead}' == str(number): continue
            head = q[:2] + b'\\x81\\x80\\0\\1\\0\\1' + bytes(4)
            record = b'\\xc0\\x0c\\0\\1\\0\\1' + bytes(5) + b'\\4' + bytes([192, 0, 2, number])
            s.sendto(head + q[12:] + record, who)
    threading.Thread(target=answer, daemon=True).start()
serve(1); serve(2)
words = ['{PLUMB}', 'link', '--delay', '1ms', '--', 'python3', '{}']
raise SystemExit(subprocess.run(words).returncode)",
        script.display()
    );
    let setup = format!(
        "mount --bind '{}' /etc/resolv.conf && ip link set lo up && exec python3 -c \"$0\"",
        conf.display()
    );
    let output = bench.in_namespaces(&["--net", "--mount"], &setup, &outside)?;
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(text(&output.stdout))
}

#[test]
fn names_are_asked_of_the_first_resolver_however_often() {
    let Some(bench) = LinkTestHome::with(&["python3", "unshare"]) else { return };
    let inside = "one = flow(20)
print({ask(one, b'same%d' % n) for n in range(6)} | {ask(flow(20), b'own%d' % n) for n in range(6)})";
    let Some(said) = beside_two_resolvers(&bench, false, inside) else { return };
    assert_eq!(said, "{'192.0.2.1'}\n");
}

#[test]
fn a_silent_resolver_is_followed_by_the_next() {
    let Some(bench) = LinkTestHome::with(&["python3", "unshare"]) else { return };
    let inside = "one = flow(1)
print(ask(one, b'same'))
print(next(filter(None, (ask(one, b'same') for n in range(20)))))
print(ask(flow(1), b'own'))
print(next(filter(None, (ask(flow(1), b'own') for n in range(20)))))";
    let Some(said) = beside_two_resolvers(&bench, true, inside) else { return };
    assert_eq!(said, "None\n192.0.2.2\nNone\n192.0.2.2\n");
}
