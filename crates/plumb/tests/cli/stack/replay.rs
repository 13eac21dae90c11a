//! Captures and single frames through the stack.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_wire::capture::LinkType;
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::EtherType;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::{pcap, pcapng};

use super::test_bed::{assert_error, document};

fn frames() -> Vec<Vec<u8>> {
    let link = LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let v4 = PacketTemplate::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let v6 = PacketTemplate::new(address(1), address(2));
    vec![
        link.frame(EtherType::IPV4, &v4.udp(5_000, 7, &[1; 18])),
        link.frame(EtherType::IPV6, &v6.udp(5_000, 9_000, &[2; 100])),
        link.frame(EtherType::IPV4, &v4.udp(5_001, 7, &[3; 1_472])),
    ]
}

fn capture() -> Vec<u8> {
    let mut file = Vec::new();
    pcap::begin(&mut file, LinkType::ETHERNET);
    for frame in frames() {
        pcap::packet(&mut file, 0, &frame);
    }
    file
}

#[test]
fn every_datagram_of_a_capture_is_mirrored_and_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let (input, out) = (directory.path().join("in.pcap"), directory.path().join("out.pcapng"));
    std::fs::write(&input, capture()).unwrap();
    let out = out.to_str().unwrap();
    let words = ["replay", input.to_str().unwrap(), "--times", "100", "--pcap", out];
    let result = document(&words);
    assert_eq!(result["replay"]["frames"], 3);
    assert_eq!(result["replay"]["received"], 300);
    let answered: u64 = result["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|service| service["answered"].as_u64().unwrap())
        .sum();
    assert_eq!(answered, 300, "{result}");
    assert_eq!(result["drop_counters"], serde_json::json!({}), "{result}");
    let file = std::fs::read(out).unwrap();
    let records = plumb_wire::capture::CaptureReader::new(&file).unwrap();
    // 300 each way, and an address resolution for each family.
    assert_eq!(records.map(Result::unwrap).count(), 604);
}

#[test]
fn one_frame_is_replayed_for_a_duration() {
    let digits: Vec<String> = frames()[0].iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = digits.join(" ");
    let result = document(&["replay", "--frame", &hex, "--duration", "50ms"]);
    assert_eq!(result["ended"], "duration");
    let rate = &result["replay"];
    assert!(rate["packets_per_second"].as_f64().unwrap() > 0.0);
    assert!(rate["device_ns_per_packet"].as_f64().unwrap() > 0.0, "{rate}");
}

#[test]
fn invalid_captures_are_rejected_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let whole = capture();
    let mut bare = Vec::new();
    pcapng::begin(&mut bare, "test");
    for (content, name) in [
        (&whole[..whole.len() - 1], "after 2 whole packets"),
        (b"these are words, and no packets at all", "text"),
        (b"", "empty"),
        (&bare, "no packets"),
    ] {
        let path = directory.path().join("capture");
        std::fs::write(&path, content).unwrap();
        let path = path.display();
        assert_error(&format!("replay {path}"), 2, name);
        assert_error(&format!("serve --addr=10.0.0.2/24 --device pcap:{path}"), 2, name);
    }
    assert_error("replay /nowhere/at.all", 2, "/nowhere/at.all");
    assert_error("replay --frame 0g", 2, "'g'");
    assert_error("replay", 2, "FILE");
}

#[test]
fn a_replay_without_output_is_flagged() {
    let result = document("replay --frame 00 --times 10");
    assert_eq!(result["replay"]["sent"], 0);
    assert_eq!(result["flags"].as_array().unwrap().len(), 1, "{result}");
}

#[test]
fn frames_that_no_packet_holds_are_counted_and_the_rest_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.pcap");
    let mut file = Vec::new();
    pcap::begin(&mut file, LinkType::ETHERNET);
    // More than are read at a time.
    for frame in std::iter::repeat_n(vec![0; 66_000], 70).chain(frames()) {
        pcap::packet(&mut file, 0, &frame);
    }
    std::fs::write(&input, file).unwrap();
    let result = document(&["replay", input.to_str().unwrap()]);
    assert_eq!(result["replay"]["received"], 3, "{result}");
    let flags = result["flags"].to_string();
    assert!(flags.contains("70 frames are longer than 65553 bytes"), "{flags}");
}

#[test]
fn a_capture_is_not_recorded_over() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.pcap");
    std::fs::write(&input, capture()).unwrap();
    let path = input.to_str().unwrap();
    assert_error(&["replay", path, "--pcap", path], 2, path);
    let serve = format!("serve --device=pcap:{path} --addr=192.0.2.2/24 --pcap {path}");
    assert_error(&serve, 2, path);
    assert_eq!(std::fs::read(&input).unwrap(), capture(), "it is as it was");
}
