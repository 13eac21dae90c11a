//! Linux's `ping` and UDP sockets against `plumb stack serve`, and plumb's own clients against
//! Linux.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

use plumb_netdev::lab::TestBed;
use serde_json::Value;

use super::test_bed::{RunningStack, WAIT_MAX, assert_valid, document, tap, veth, wire};
use crate::home::installed;

/// The far side's addresses as plumb is given them.
pub(super) const FAR: [&str; 4] = ["--addr", "10.77.0.2/24", "--addr", "fd77::2/64"];

/// Where plumb is, the word for its device, and whether it has a link address of its own.
pub(super) fn sites() -> Vec<(TestBed, &'static str)> {
    let tap = tap().map(|bed| (bed, "tap:plumb0"));
    let packet = veth().map(|bed| (bed, "packet:plumb1"));
    let xdp = wire().map(|bed| (bed, "xdp:plumb1"));
    tap.into_iter().chain(packet).chain(xdp).collect()
}

pub(super) fn serve(bed: &TestBed, device: &str, more: &[&str]) -> RunningStack {
    let words = [&["serve", "--device", device][..], &FAR, more].concat();
    bed.in_far(|| RunningStack::start(&words)).unwrap()
}

pub(super) fn far_addresses(bed: &TestBed) -> Vec<(IpAddr, IpAddr)> {
    bed.addresses().map(|(near, far, _)| (near, far)).collect()
}

fn exchange(bed: &TestBed, near: IpAddr, far: SocketAddr, payloads: &[Vec<u8>]) {
    let socket = bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    socket.connect(far).unwrap();
    let mut buffer = vec![0; 65_536];
    for payload in payloads {
        socket.send(payload).unwrap();
        let len = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{far}: {error}"));
        assert_eq!(&buffer[..len], &payload[..], "{far}");
    }
}

/// Payloads of every length that has an edge: empty, short, odd, a frame's, and cut into fragments.
fn payloads() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 17, 18, 1_471, 1_472, 1_473, 4_001, 9_000];
    lengths.map(|len| (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()).to_vec()
}

#[test]
fn linux_reaches_every_service_over_every_device() {
    let ping = installed("ping");
    for (bed, device) in sites() {
        let running = serve(&bed, device, &[]);
        for (near, far) in far_addresses(&bed) {
            if ping {
                let words = ["-c", "1", "-W", "30", "-s", "1000"];
                let run = || Command::new("ping").args(words).arg(far.to_string()).output();
                let output = bed.in_near(run).unwrap().unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(text.contains("1 received"), "{device}: {text}");
            }
            for port in [7, 1_997] {
                exchange(&bed, near, SocketAddr::new(far, port), &payloads());
            }
        }
        let result = running.stop();
        assert_valid(&result);
        assert_eq!(result["ended"], "interrupted");
        let families = far_addresses(&bed).len();
        for (service, answered) in [("echo", 9), ("mirror", 9), ("discard", 0)] {
            let count = service_count(&result, service);
            assert_eq!(count["answered"], answered * families, "{device}: {result}");
        }
        assert_eq!(result["stack_counters"]["udp_no_socket"], Value::Null, "{result}");
    }
}

fn service_count<'a>(result: &'a Value, name: &str) -> &'a Value {
    let services = result["services"].as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap()
}

#[test]
fn one_datagram_gets_one_answer_and_no_loop() {
    let Some(bed) = tap() else { return };
    let running = serve(&bed, "tap:plumb0", &[]);
    let (near, far) = (TestBed::NEAR_V4, TestBed::FAR_V4);
    let from = |port| bed.in_near(|| UdpSocket::bind((near, port)).unwrap()).unwrap();
    // From chargen's port, and to all of the network: neither is answered.
    from(19).send_to(b"to a service", (far, 7)).unwrap();
    let broadcast = from(0);
    broadcast.set_broadcast(true).unwrap();
    broadcast.send_to(b"to everybody", ("10.77.0.255", 7)).unwrap();
    broadcast.send_to(b"dropped", (far, 9)).unwrap();
    exchange(&bed, near.into(), SocketAddr::new(far.into(), 7), &[b"answered".to_vec()]);
    let result = running.stop();
    let echo = service_count(&result, "echo");
    assert_eq!(echo["received"], 3, "{result}");
    assert_eq!((&echo["answered"], &echo["from_service"]), (&1.into(), &1.into()));
    assert_eq!(echo["to_group"], 1);
    assert_eq!(service_count(&result, "discard")["received"], 1);
}

#[test]
fn plumb_pings_and_times_linux_over_every_device() {
    for (bed, device) in sites() {
        let station = [&["--device", device][..], &FAR].concat();
        for (near, _) in far_addresses(&bed) {
            let target = near.to_string();
            let words =
                [&["ping", &target, "--interval", "1ms", "--timeout=30s"][..], &station].concat();
            let result = bed.in_far(|| document(&words)).unwrap();
            let exchange = &result["exchanges"][0];
            assert_eq!((&exchange["sent"], &exchange["answered"]), (&10.into(), &10.into()));

            let mirror =
                bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
            let remote = mirror.local_addr().unwrap();
            mirror.set_read_timeout(Some(WAIT_MAX)).unwrap();
            let thread = std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                // Two greetings and two times ten round trips.
                for _ in 0..22 {
                    let (len, from) = mirror.recv_from(&mut buffer).unwrap();
                    mirror.send_to(&buffer[..len], from).unwrap();
                }
            });
            let to = remote.to_string();
            let words = [&["send", &to, "--count", "10", "--timeout=30s"][..], &station].concat();
            let result = bed.in_far(|| document(&words)).unwrap();
            thread.join().unwrap();
            assert_eq!(result["ended"], "complete");
            for exchange in result["exchanges"].as_array().unwrap() {
                assert_eq!(exchange["rtt"]["n"], 10, "{device}: {result}");
                assert_eq!((&exchange["lost"], &exchange["corrupt"]), (&0.into(), &0.into()));
            }
        }
    }
}

#[test]
fn the_kernels_stack_and_plumbs_are_timed_by_the_same_command() {
    let Some(bed) = tap() else { return };
    let running = serve(&bed, "tap:plumb0", &[]);
    for remote in ["10.77.0.2:1997", "[fd77::2]:1997"] {
        let words = ["send", remote, "--count", "500", "--timeout=30s"];
        let result = bed.in_near(|| document(&words)).unwrap();
        assert_eq!(result["stack"], "linux");
        for exchange in result["exchanges"].as_array().unwrap() {
            assert_eq!(exchange["answered"], 500);
            let rtt = |name: &str| exchange["rtt"][name].as_f64().unwrap();
            assert!(0.0 < rtt("min") && rtt("min") <= rtt("median") && rtt("median") <= rtt("max"));
        }
    }
    running.stop();
}

#[test]
fn tshark_finds_no_malformed_packet_or_bad_checksum() {
    if !installed("tshark") {
        return;
    }
    for (bed, device) in sites() {
        let directory = tempfile::tempdir().unwrap();
        let recording = directory.path().join("out.pcapng");
        let recording = recording.to_str().unwrap();
        let running = serve(&bed, device, &["--pcap", recording]);
        for (near, far) in far_addresses(&bed) {
            exchange(&bed, near, SocketAddr::new(far, 7), &payloads());
            // A port where nobody listens, for the ICMP error.
            let socket =
                bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
            socket.connect(SocketAddr::new(far, 4_444)).unwrap();
            socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
            socket.send(b"nobody").unwrap();
            let error = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{device}");
        }
        running.stop();
        let filter = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 \
                      || icmp.checksum.status == 0 || icmpv6.checksum.status == 0";
        // Of a socket's random port tshark may think that it is some program's.
        let ephemeral = "udp.port==32768-60999,data";
        let tshark = |words: &[&str]| {
            let output = Command::new("tshark")
                .args(["-r", recording, "-o", "ip.check_checksum:TRUE"])
                .args(["-d", ephemeral])
                .args(["-o", "udp.check_checksum:TRUE"])
                .args(words)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(tshark(&["-Y", filter]), "", "{device}");
        assert!(tshark(&["-Y", "udp"]).lines().count() >= 36, "{device}");
        let fine = "icmpv6.type == 1 && icmpv6.checksum.status == 1";
        let families = far_addresses(&bed).len();
        assert_eq!(tshark(&["-Y", fine]).lines().count(), families - 1, "{device}");
    }
}
