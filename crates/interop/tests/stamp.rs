//! STAMP against peers that were written from the documents in another language: both roles, both modes.
#![expect(clippy::unwrap_used, reason = "a test that cannot start its peer has failed")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use plumb_base::time::Span;
use plumb_interop::stamp::packet::StampKey;
use plumb_interop::stamp::reflector::{ReflectorOptions, serve};
use plumb_interop::stamp::sender::{SessionSenderOptions, run};
use plumb_result::stamp::TimestampFormat;

/// RFC 8762 §4.2 and §4.3 by `struct` and `hmac`: a stateless reflector without TLVs, which says its port, and a
/// sender, which asks a port five times and prints what it found.
const PEER: &str = r#"
import hmac, hashlib, socket, struct, sys, time
role, secret, where = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
def ntp():
    now = time.time_ns()
    return struct.pack(">II", now // 10**9 + 2208988800, (now % 10**9) * 2**32 // 10**9)
def seal(body):
    return body + hmac.new(secret, body, hashlib.sha256).digest()[:16] if secret else body
def sealed(packet):
    return not secret or hmac.compare_digest(seal(packet[:96])[96:112], packet[96:112])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(20)
error = struct.pack(">H", 0x8001)
if role == "reflector":
    s.bind(("127.0.0.1", 0))
    s.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
    print(s.getsockname()[1], flush=True)
    while True:
        packet, extra, _, source = s.recvmsg(2000, 100)
        received = ntp()
        ttl = bytes([struct.unpack("i", extra[0][2])[0]])
        if len(packet) < (112 if secret else 44) or not sealed(packet):
            continue
        number = packet[:4]
        if secret:
            assert packet[4:16] == bytes(12) and packet[28:96] == bytes(68)
            when, theirs, ssid = packet[16:24], packet[24:26], packet[26:28]
            body = number + bytes(12) + ntp() + error + ssid + bytes(4) + received + bytes(8)
            body += number + bytes(12) + when + theirs + bytes(6) + ttl + bytes(15)
        else:
            assert packet[16:44] == bytes(28)
            when, theirs, ssid = packet[4:12], packet[12:14], packet[14:16]
            body = number + ntp() + error + ssid + received + number + when + theirs + bytes(2) + ttl + bytes(3)
        answer = seal(body)
        s.sendto(answer + packet[len(answer):], source)
else:
    s.connect(("127.0.0.1", where))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 200)
    for number in range(7, 12):
        when = ntp()
        if secret:
            body = struct.pack(">I", number) + bytes(12) + when + error + b"\x12\x34" + bytes(68)
        else:
            body = struct.pack(">I", number) + when + error + b"\x12\x34" + bytes(28)
        question = seal(body) + b"\x80\xfe\x00\x02hi"
        s.send(question)
        answer = s.recv(2000)
        assert len(answer) == len(question) and sealed(answer)
        assert answer[-6:] == b"\x80\xfe\x00\x02hi" or secret and answer[-6:] == b"\x20\xfe\x00\x02hi", answer[-6:]
        if secret:
            mine, sent, est, ssid = struct.unpack(">I12xQHH", answer[:28])
            got, theirs, echoed, err, ttl = struct.unpack(">Q8xI12xQH6xB", answer[32:81])
        else:
            mine, sent, est, ssid, got, theirs, echoed, err, ttl = struct.unpack(">IQHHQIQH2xB", answer[:41])
        assert struct.pack(">Q", echoed) == when and err == 0x8001 and ssid == 0x1234
        assert theirs == number and ttl == 200 and est & 0xff, (theirs, ttl, est)
        assert mine == number - 7, "a stateful reflector numbers its answers"
        assert echoed <= got <= sent <= struct.unpack(">Q", ntp())[0], "the four times are in order"
    print("fine", flush=True)
"#;

/// A peer under way; `None`, visibly, where there is no Python.
fn peer(role: &str, secret: &str, port: u16) -> Option<Child> {
    let child = Command::new("python3")
        .args(["-c", PEER, role, secret, &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    if child.is_err() {
        assert!(std::env::var_os("CI").is_none(), "python3 is missing");
        eprintln!("skipped: python3 is not installed");
    }
    child.ok()
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_reflector_written_from_the_document_answers_this_sender_in_both_modes() {
    for secret in ["", "a shared secret"] {
        let Some(mut child) = peer("reflector", secret, 0) else { return };
        let port: u16 = line(&mut child).parse().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        let plan = SessionSenderOptions {
            count: 20,
            interval: Span::from_ms(1),
            key: (!secret.is_empty()).then(|| StampKey::new(secret.as_bytes())),
            session: 0x0102,
            padding: 64,
            reply_timeout: Span::from_secs(10),
            ..SessionSenderOptions::default()
        };
        let (report, _) = run(&socket, &plan, &|| false).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((report.sent, report.answered), (20, 20), "{report:?}");
        assert_eq!((report.unsealed, report.foreign), (0, 0));
        assert_eq!((report.lost_forward, report.lost_backward), (Some(0), Some(0)));
        assert_eq!(report.reflector_synchronised, Some(true));
        assert_eq!(report.reflector_format, Some(TimestampFormat::Ntp));
        assert_eq!(report.ttl_forward, Some(255));
        assert_eq!(report.unrecognised_tlvs, 20, "it sends the padding back as it came");
        // Both clocks are this machine's, so the truth of the offset is zero.
        let clock = report.clock.unwrap();
        assert!(clock.offset_ns.abs() <= clock.bound_ns + 1000.0, "{clock:?}");
    }
}

#[test]
fn a_sender_written_from_the_document_understands_this_reflector_in_both_modes() {
    for secret in ["", "a shared secret"] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let key = (!secret.is_empty()).then(|| StampKey::new(secret.as_bytes()));
        let conduct = ReflectorOptions { key, ..ReflectorOptions::default() };
        let stop = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&socket, conduct, &|| stop.load(Ordering::Relaxed)));
            let said = peer("sender", secret, port).map(|mut child| {
                let said = line(&mut child);
                (said, child.wait().unwrap().success())
            });
            stop.store(true, Ordering::Relaxed);
            let counts = serving.join().unwrap().unwrap();
            assert!(said.is_none() || counts.answered == 5, "{counts:?}");
            said
        });
        assert!(done.is_none_or(|(said, success)| said == "fine" && success));
    }
}
