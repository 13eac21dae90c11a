//! `plumb stack serve` under attack and in want: floods, full queues, too many connections; and nginx and iperf3 as peers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plumb_netdev::device::Device as _;
use plumb_netdev::device::packet::{PacketDevice, PacketOptions};
use plumb_netdev::lab::TestBed;
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::packet::{Pool, PoolConfig};
use plumb_wire::tcp::{TcpFlags, TcpHeader};

use super::peers::{FAR, serve, sites};
use super::tcp::{noise, stream_count};
use super::test_bed::{WAIT_MAX, document, tap};
use crate::home::installed;
use crate::support::wait_for;

const FAR_MAC: &str = "02:00:00:00:77:02";
/// SYNs of a flood.
const FLOOD: u32 = 50_000;

fn connect(bed: &TestBed, port: u16) -> std::io::Result<TcpStream> {
    let to = SocketAddr::from((TestBed::FAR_V4, port));
    let stream = bed.in_near(|| TcpStream::connect_timeout(&to, WAIT_MAX)).unwrap()?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    Ok(stream)
}

/// Has a few bytes returned over a connection.
fn is_echoed(stream: &mut TcpStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"hello"
}

/// Resident memory of a process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn flood_of_syns_keeps_no_client_out() {
    let Some(bed) = tap() else { return };
    let running = serve(&bed, "tap:plumb0", &["--mac", FAR_MAC, "--gateway", "10.77.0.1"]);
    assert!(is_echoed(&mut connect(&bed, 7).unwrap()));
    let before = resident_kib(running.id());
    let mut pool = Pool::new(PoolConfig::default());
    let open = || PacketDevice::open(TestBed::NEAR_DEVICE, &PacketOptions::default());
    let mut attacker = bed.in_near(open).unwrap().unwrap();
    let link = Some(LinkTemplate::new(TestBed::NEAR_MAC, TestBed::FAR_MAC));
    let mut served = 0;
    for number in 0..FLOOD {
        // Addresses behind the gateway, where nobody is.
        let from = Ipv4Addr::from(0xc633_6400 | (number % 250 + 1));
        let header = TcpHeader {
            source_port: 1_024 + u16::try_from(number / 250).unwrap(),
            destination_port: 7,
            seq: number.wrapping_mul(2_654_435_761),
            flags: TcpFlags::SYN,
            window: 1_024,
            ..TcpHeader::default()
        };
        let frame =
            PacketTemplate { link, ..PacketTemplate::new(from, TestBed::FAR_V4) }.tcp(header, b"");
        let mut batch = vec![pool.packet_of(&frame).unwrap()];
        attacker.transmit(&mut batch, &mut pool).unwrap();
        if number % 5_000 == 0 {
            assert!(is_echoed(&mut connect(&bed, 7).unwrap()), "after {number} SYNs");
            served += 1;
        }
    }
    let more = resident_kib(running.id()).saturating_sub(before);
    println!("{FLOOD} SYNs: {served} of {served} clients served, {more} KiB more memory");
    assert!(more < 64 << 10, "{more} KiB");
    let result = running.stop();
    assert_eq!(stream_count(&result, "echo")["failed"], 0, "{result}");
}

/// Connections served at a time, and those that wait.
const SERVED: usize = 256;
const WAITING: usize = 128;

#[test]
fn connections_beyond_the_served_wait_and_are_served_in_turn() {
    let Some(bed) = tap() else { return };
    let running = serve(&bed, "tap:plumb0", &[]);
    let mut streams: Vec<TcpStream> =
        (0..SERVED + WAITING).map(|_| connect(&bed, 7).unwrap()).collect();
    assert!(is_echoed(&mut streams[0]) && is_echoed(&mut streams[SERVED - 1]));
    // The accept queue is full: one more does not open until there is room.
    let to = SocketAddr::from((TestBed::FAR_V4, 7));
    let short = Duration::from_millis(300);
    let refused = bed.in_near(|| TcpStream::connect_timeout(&to, short)).unwrap();
    assert!(refused.is_err(), "{refused:?}");
    let mut waiting = streams.split_off(SERVED);
    streams.clear();
    for stream in &mut waiting {
        assert!(is_echoed(stream));
    }
    assert!(is_echoed(&mut connect(&bed, 7).unwrap()));
    drop(waiting);
    let result = running.stop();
    let echo = stream_count(&result, "echo");
    assert_eq!(echo["failed"], 0, "{result}");
    assert!(result["stack_counters"]["tcp_accept_queue_full"].as_u64().unwrap() > 0, "{result}");
}

/// A program that ends with the test.
struct PeerProgram(Child);

impl PeerProgram {
    fn start(bed: &TestBed, command: &mut Command, port: u16) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = Self(bed.in_near(|| command.spawn()).unwrap().unwrap());
        let at = (IpAddr::from(TestBed::NEAR_V4), port);
        wait_for("the peer", || bed.in_near(|| TcpStream::connect(at).is_ok()).unwrap());
        program
    }
}

impl Drop for PeerProgram {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn plumb_gets_whole_files_from_nginx() {
    if !installed("nginx") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data = noise(20_000_000);
    fs::write(place.path().join("data"), &data).unwrap();
    let config = format!(
        "daemon off; master_process off; user root; pid {0}/pid; error_log {0}/error; events {{}}\n\
         http {{ access_log off; client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;\n\
         uwsgi_temp_path {0}/d; scgi_temp_path {0}/e; server {{ listen 8000; root {0}; }} }}",
        place.path().display()
    );
    let file = place.path().join("config");
    fs::write(&file, config).unwrap();
    let got = place.path().join("got");
    for (bed, device) in sites() {
        let _nginx = PeerProgram::start(&bed, Command::new("nginx").arg("-c").arg(&file), 8_000);
        let url = "http://10.77.0.1:8000/data";
        let words = ["get", url, "-o", got.to_str().unwrap(), "--device", device];
        let words = [&words[..], &FAR].concat();
        let result = bed.in_far(|| document(&words)).unwrap();
        assert!(fs::read(&got).unwrap() == data, "{device}");
        assert_eq!(result["connections"][0]["http"]["status"], 200, "{result}");
    }
}
