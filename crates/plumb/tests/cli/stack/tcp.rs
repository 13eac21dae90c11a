//! plumb's TCP with Linux's, curl, nginx and Python's web server as peers, over TAP, packet sockets and AF_XDP.
//!
//! `PLUMB_TCP_BYTES=1000000000` moves as much instead of 64 MB.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use plumb_netdev::lab::TestBed;
use serde_json::Value;

use super::peers::{FAR, far_addresses, serve, sites};
use super::test_bed::{WAIT_MAX, assert_error, assert_valid, document, plumb, tap};
use crate::home::installed;
use crate::support::wait_for;

/// Bytes moved at a time.
const PIECE: usize = 1 << 18;

fn bytes() -> usize {
    let asked = std::env::var("PLUMB_TCP_BYTES").ok();
    asked.map_or(64_000_000, |bytes| bytes.parse().expect("a number of bytes"))
}

/// Bytes that repeat late: xorshift64.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut words = Vec::with_capacity(len + 8);
    while words.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend_from_slice(&state.to_le_bytes());
    }
    words.truncate(len);
    words
}

/// Sends `data` to an echo service, under a congestion control of Linux's, and compares what comes back.
fn echo(bed: &TestBed, remote: SocketAddr, congestion: &str, data: &[u8]) {
    let mut stream = bed.in_near(|| TcpStream::connect(remote)).unwrap().unwrap();
    rustix::net::sockopt::set_tcp_congestion(&stream, congestion).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.set_write_timeout(Some(WAIT_MAX)).unwrap();
    let mut sender = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(data).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        compare(&mut stream, data, &format!("{remote}, {congestion}"));
    });
}

pub(super) fn stream_count<'a>(result: &'a Value, name: &str) -> &'a Value {
    let services = result["stream_services"].as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap()
}

#[test]
fn linux_gets_back_whole_streams_by_each_of_its_congestion_controls() {
    let data = noise(bytes());
    for (bed, device) in sites() {
        let running = serve(&bed, device, &[]);
        let mut streams = 0;
        for name in congestion_controls() {
            for (_, far) in far_addresses(&bed).into_iter().take(2) {
                echo(&bed, SocketAddr::new(far, 7), &name, &data);
                streams += 1;
            }
        }
        let result = running.stop();
        assert_valid(&result);
        let echo = stream_count(&result, "echo");
        assert_eq!(echo["connections"], streams, "{device}: {result}");
        assert_eq!(echo["sent_bytes"], streams * data.len(), "{device}: {result}");
        assert_eq!(echo["failed"], 0, "{device}: {result}");
    }
}

/// Compares what arrives with `data`, to its end.
fn compare(stream: &mut TcpStream, data: &[u8], what: &str) {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let len = stream.read(&mut piece).unwrap();
        if len == 0 {
            break;
        }
        assert!(piece[..len] == data[at..at + len], "{what}: differs after {at} bytes");
        at += len;
    }
    assert_eq!(at, data.len(), "{what}");
}

/// What this Linux can control congestion by.
fn congestion_controls() -> Vec<String> {
    let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    all.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn linux_receives_whole_files_by_every_congestion_control() {
    let place = tempfile::tempdir().unwrap();
    let data = Arc::new(noise(bytes()));
    let file = place.path().join("data");
    fs::write(&file, &*data).unwrap();
    for (bed, device) in sites() {
        for congestion in ["reno", "newreno", "vegas", "cubic", "bbr", "fixed:65536"] {
            let (near, _) = far_addresses(&bed)[0];
            let listener = bed.in_near(|| TcpListener::bind((near, 0))).unwrap().unwrap();
            let remote = listener.local_addr().unwrap().to_string();
            let path = file.to_str().unwrap();
            let words = [
                &["transfer", &remote, "--file", path, "--congestion", congestion][..],
                &["--device", device],
                &FAR,
            ]
            .concat();
            let (expected, what) = (Arc::clone(&data), format!("{device}, {congestion}"));
            let reader = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
                compare(&mut stream, &expected, &what);
            });
            let result = bed.in_far(|| document(&words)).unwrap();
            reader.join().unwrap();
            let connection = &result["connections"][0];
            assert_eq!(connection["bytes"], data.len(), "{result}");
            assert!(connection["series"].as_array().unwrap().len() > 5, "{result}");
        }
    }
}

/// A web server at the near side, ended with the test.
struct WebServer(Child);

impl WebServer {
    /// `program` is python3 or nginx.
    fn start(bed: &TestBed, program: &str, directory: &Path) -> Self {
        let address = TestBed::NEAR_V4.to_string();
        let mut command = Command::new(program);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if program == "nginx" {
            let file = directory.join("nginx.conf");
            let place = directory.display();
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|what| format!("{what}_temp_path {place}/{what};\n"))
                .concat();
            let text = format!(
                "daemon off;\nuser root;\nworker_processes 1;\npid {place}/pid;\nerror_log /dev/null;\n\
                 events {{}}\nhttp {{\naccess_log off;\nsendfile on;\n{temporary}\
                 server {{ listen {address}:8000; root {place}; }}\n}}\n"
            );
            fs::write(&file, text).unwrap();
            command.arg("-p").arg(directory).arg("-c").arg(file);
        } else {
            command.args(["-m", "http.server", "8000", "--bind", &address, "-d"]).arg(directory);
        }
        let server = Self(bed.in_near(|| command.spawn()).unwrap().unwrap());
        wait_for("the web server", || {
            bed.in_near(|| TcpStream::connect((TestBed::NEAR_V4, 8_000)).is_ok()).unwrap()
        });
        server
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // nginx ends its worker. Either may have ended.
        if !crate::support::signal(self.0.id(), "TERM") {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

#[test]
fn plumb_gets_whole_files_from_other_web_servers() {
    let place = tempfile::tempdir().unwrap();
    let data = noise(bytes());
    fs::write(place.path().join("data"), &data).unwrap();
    let got = place.path().join("got");
    for program in ["python3", "nginx"] {
        if !installed(program) {
            continue;
        }
        for (bed, device) in sites() {
            let _server = WebServer::start(&bed, program, place.path());
            let host = [&["--device", device][..], &FAR].concat();
            let url = "http://10.77.0.1:8000/data";
            let words = [&["get", url, "-o", got.to_str().unwrap()][..], &host].concat();
            let result = bed.in_far(|| document(&words)).unwrap();
            assert!(fs::read(&got).unwrap() == data, "{program}, {device}");
            assert_eq!(result["connections"][0]["http"]["status"], 200, "{result}");
            let absent = format!("get http://10.77.0.1:8000/absent {}", host.join(" "));
            bed.in_far(|| assert_error(&absent, 4, "status 404")).unwrap();
        }
    }
}

#[test]
fn curl_gets_files_and_nothing_outside() {
    if !installed("curl") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let below = place.path().join("below");
    fs::create_dir(&below).unwrap();
    let data = noise(3_000_000);
    fs::write(below.join("data"), &data).unwrap();
    fs::write(below.join("empty"), "").unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", below.join("link")).unwrap();
    let curl = |bed: &TestBed, words: &[&str]| {
        let run = || Command::new("curl").args(["-s", "--max-time", "60"]).args(words).output();
        bed.in_near(run).unwrap().unwrap().stdout
    };
    for (bed, device) in sites() {
        let running = serve(&bed, device, &["--directory", below.to_str().unwrap()]);
        let base = "http://10.77.0.2";
        let url = |path: &str| format!("{base}{path}");
        assert!(curl(&bed, &[&url("/data")]) == data, "{device}");
        // Both over one connection.
        let twice = curl(&bed, &[&url("/data"), &url("/empty"), &url("/data")]);
        assert!(twice == [&data[..], &data].concat(), "{device}");
        let head = String::from_utf8(curl(&bed, &["-I", &url("/data")])).unwrap();
        assert!(head.contains("Content-Length: 3000000"), "{head}");
        for path in ["/link", "/../secret", "/%2e%2e/secret", "/..%2fsecret", "/absent"] {
            let code = curl(&bed, &["--path-as-is", "-w", "%{http_code}", &url(path)]);
            let text = String::from_utf8(code).unwrap();
            assert!(text.ends_with("400") || text.ends_with("404"), "{path}: {text}");
            assert!(!text.contains("secret"), "{path}: {text}");
        }
        let result = running.stop();
        let http = stream_count(&result, "http");
        assert_eq!((&http["requests"], &http["refused"]), (&5.into(), &5.into()), "{result}");
        assert_eq!(http["connections"], 8, "{result}");
    }
}

/// The packets of a recording that tshark finds to be so.
fn tshark(recording: &Path, filter: &str) -> String {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(recording)
        .args(["-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"])
        .args(["-d", "tcp.port==7,data", "-Y", filter])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tshark_finds_a_clean_link_clean() {
    if !installed("tshark") {
        return;
    }
    let data = noise(1_000_000);
    for (bed, device) in sites() {
        let place = tempfile::tempdir().unwrap();
        let mut runs = 0;
        let mut is_repeated = || {
            runs += 1;
            let recording = place.path().join(format!("{runs}.pcapng"));
            let running = serve(&bed, device, &["--pcap", recording.to_str().unwrap()]);
            for (_, far) in far_addresses(&bed).into_iter().take(2) {
                echo(&bed, SocketAddr::new(far, 7), "cubic", &data);
            }
            running.stop();
            // A checksum that is left to the device is that of the pseudo-header, which tshark knows. One of 0 that Linux
            // completes is sent as 0xffff, its equal (CSUM_MANGLED_0), which tshark marks.
            let broken = "_ws.malformed || ip.checksum.status == 0 || \
                          (tcp.checksum.status == 0 && tcp.checksum != 0xffff)";
            assert_eq!(tshark(&recording, broken), "", "{device}");
            assert!(tshark(&recording, "tcp").lines().count() > 40, "{device}");
            let again = "tcp.analysis.retransmission || tcp.analysis.out_of_order || \
                         tcp.analysis.lost_segment";
            tshark(&recording, again)
        };
        let mut repeated = is_repeated();
        // The kernel's queue of a socket is shorter than the window.
        if !device.starts_with("tap") {
            continue;
        }
        // Where a busy machine stops either side for some milliseconds, the other probes its tail.
        for _ in 0..4 {
            if repeated.is_empty() {
                break;
            }
            repeated = is_repeated();
        }
        assert_eq!(repeated, "", "{device}: in each of five runs");
    }
}

#[test]
fn transfers_in_memory_need_no_root() {
    let place = tempfile::tempdir().unwrap();
    let page = place.path().join("page.html");
    for (remote, more) in [
        ("10.0.0.2:9", "--congestion=bbr"),
        ("[fd00::2]:9", "--congestion=vegas"),
        ("10.0.0.2:19", "--receive"),
    ] {
        let line =
            format!("transfer {remote} --device=memory --bytes=20M {more} -o {}", page.display());
        let result = document(&line);
        assert_eq!(result["connections"][0]["bytes"], 20_000_000, "{result}");
        let html = fs::read_to_string(&page).unwrap();
        assert!(html.contains("<svg") && html.contains("Round-trip time"), "{remote}");
    }
    let line =
        "transfer 10.0.0.2:9 --device=memory --bytes=2M --faults=loss=2%,reorder=2% --seed=3";
    let result = document(line);
    assert_eq!(result["connections"][0]["bytes"], 2_000_000, "{result}");
    assert!(result["connections"][0]["retransmits"].as_u64().unwrap() > 5, "{result}");
    let output = plumb("get http://10.0.0.2/Cargo.toml --device=memory --quiet")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let file = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    assert!(output.stdout == file, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn failures_of_connections_are_named() {
    for (line, code, name) in [
        ("transfer 10.0.0.2:9 --device=memory --congestion=cubik", 2, "newreno"),
        ("transfer 10.0.0.2:9 --device=memory --file=/absent/file", 2, "/absent/file"),
        ("transfer 10.0.0.2:9 --device=memory --receive --file=/absent/file", 2, "/absent/file"),
        ("transfer 10.0.0.2 --device=memory", 2, "10.77.0.2:1997"),
        ("get https://10.0.0.2/ --device=memory", 2, "TLS"),
        ("get ftp://10.0.0.2/ --device=memory", 2, "http://HOST/PATH"),
        ("get http://10.0.0.2/absent --device=memory", 4, "status 404"),
        ("get http://10.0.0.2/absent --device=memory --json", 2, "-o FILE"),
        ("serve --service=http --device=tap:x --addr=10.0.0.2/24", 2, "--directory DIR"),
        ("serve --directory=/absent --device=tap:x --addr=10.0.0.2/24", 2, "/absent"),
        (
            "transfer 10.0.0.2:9 --device=memory --faults=loss=100% --timeout=200ms",
            4,
            "did not answer within",
        ),
    ] {
        assert_error(line, code, name);
    }
    let Some(bed) = tap() else { return };
    let host = "--device=tap:plumb0 --addr=10.77.0.2/24";
    for (line, code, name) in [
        ("transfer 10.77.0.1:4444", 4, "nothing listens there"),
        ("transfer 10.77.0.9:4444", 4, "does not answer ARP"),
        ("transfer 192.0.2.1:9", 2, "--gateway"),
        ("transfer 10.77.0.255:9", 2, "10.77.0.255"),
    ] {
        bed.in_near(|| assert_error(&format!("{line} {host}"), code, name)).unwrap();
    }
    // A listener of Linux's that nobody accepts from: two connections fill its queue.
    let listener = bed.in_near(|| TcpListener::bind((TestBed::NEAR_V4, 0))).unwrap().unwrap();
    let line =
        format!("transfer {} --bytes=100M --timeout=500ms {host}", listener.local_addr().unwrap());
    bed.in_near(|| assert_error(&line, 4, "made no progress for")).unwrap();
}
