//! What routers of a link send and cut, read by another program: tshark, where it is installed.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its frames has failed")]

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use plumb_base::time::{Instant, Span};
use plumb_link::link::{FAR, Link, NEAR};
use plumb_link::report::Network;
use plumb_wire::capture::LinkType;
use plumb_wire::checksum::updated;
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{Machine, Medium};
use plumb_wire::packet::{Pool, PoolConfig};
use plumb_wire::{pcap, tcp};

/// Packets that routers must answer or cut.
fn questions() -> Vec<Vec<u8>> {
    let link = LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let v4 = PacketTemplate::new(Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2));
    let host = |n| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n);
    let v6 = PacketTemplate::new(host(1), host(2));
    let mut packets = Vec::new();
    for path in [v4, v6] {
        let path = PacketTemplate { link: Some(link), ..path };
        for hop_limit in [1, 2, 64] {
            for len in [100, 1_450] {
                let path = PacketTemplate { hop_limit, ..path };
                packets.push(path.udp(9, 9, &vec![7; len]));
                let header = tcp::TcpHeader {
                    source_port: 9,
                    destination_port: 9,
                    ..tcp::TcpHeader::default()
                };
                packets.push(path.tcp(header, &vec![7; len]));
            }
        }
    }
    // The last of IPv4 once more, without "don't fragment".
    let mut cuttable = PacketTemplate { link: Some(link), ..v4 }.udp(9, 9, &[7; 1_450]);
    cuttable[20] = 0;
    let checksum = updated(u16::from_be_bytes([cuttable[24], cuttable[25]]), 0x4000, 0);
    cuttable[24..26].copy_from_slice(&checksum.to_be_bytes());
    packets.push(cuttable);
    packets
}

/// The lines that tshark prints of packets that a filter lets through; `None` where there is no tshark.
fn tshark(recording: &[u8], filter: &str) -> Option<Vec<String>> {
    let mut child = Command::new("tshark")
        .args(["-r", "-", "-n", "-Y", filter, "-o", "ip.check_checksum:TRUE"])
        .args(["-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"])
        .args(["-o", "ip.defragment:TRUE"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(recording).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "tshark reads the recording");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn tshark_finds_nothing_wrong_with_errors_and_fragments() {
    let spec = "delay=1ms;delay=1ms,mtu=1400".parse().unwrap();
    let mut link = Link::new(&spec, Medium::Ethernet, Instant::ORIGIN).unwrap();
    let mut pool = Pool::new(PoolConfig::default());
    let mut batch: Vec<_> =
        questions().iter().map(|bytes| pool.packet_of(bytes).unwrap()).collect();
    link.handle_packets(Instant::ORIGIN, NEAR, &mut batch, &mut pool);
    let later = Instant::ORIGIN + Span::from_secs(1);
    let mut recording = Vec::new();
    pcap::begin(&mut recording, LinkType::ETHERNET);
    for port in [NEAR, FAR] {
        let mut due = Vec::new();
        link.poll_due(later, port, &mut due, usize::MAX, &mut pool);
        for due in due {
            pcap::packet(&mut recording, due.at.since_origin().as_ns(), pool.bytes(&due.packet));
            pool.free(due.packet);
        }
    }
    // Of a TCP segment that is quoted and cut, tshark takes the checksum for wrong.
    let Some(wrong) = tshark(
        &recording,
        "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 \
         || (tcp.checksum.status == 0 && !icmp && !icmpv6) \
         || icmp.checksum.status == 0 || icmpv6.checksum.status == 0",
    ) else {
        return;
    };
    assert_eq!(wrong, [""; 0]);
    let count = |filter| tshark(&recording, filter).unwrap().len();
    // Both transports and lengths with a hop limit of 1 in both families; longer ones too big for the second hop.
    assert_eq!(count("icmp.type == 11 && icmp.checksum.status == 1"), 4);
    assert_eq!(count("icmpv6.type == 3 && icmpv6.checksum.status == 1"), 4);
    assert_eq!(count("icmp.type == 3 && icmp.code == 4 && icmp.mtu == 1400"), 4);
    assert_eq!(count("icmpv6.type == 2 && icmpv6.mtu == 1400"), 4);
    assert_eq!(count("!icmp && ip.reassembled.length == 1458"), 1);
}
