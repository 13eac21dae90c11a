//! Ten million frames that are almost right, to whole hosts.

use plumb_base::seed::Seed;
use plumb_stack::fuzz::{Kind, Subject, host_fed};
use plumb_wire::fuzz::Mutator;
use plumb_wire::packet::Frames;
use rand::Rng;

const FRAMES: Frames = Frames { count: 512, size: 2_048, large: 12 };

/// Lets mutated frames arrive at a host, and looks after it now and then.
fn feed(kind: Kind, seed: u64, count: u64) {
    let mut mutator = Mutator::new(Seed(seed));
    let mut subject = Subject::new(kind, FRAMES, Seed(seed));
    let mut frame = Vec::new();
    let mut before = 0;
    for n in 0..count {
        mutator.next_frame(&mut frame);
        subject.feed(&frame);
        if n % 100_000 == 99_999 {
            subject.check();
            if n + 1 == count / 2 {
                before = resident();
            }
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(before > 0 && grown < 16 << 20, "{grown} bytes more after {count} frames");
    let (fed, sent) = subject.counts();
    assert_eq!(fed, count);
    assert!(sent > count / 100, "frames reach what lies behind the first header");
    subject.finish();
}

/// Bytes of memory in use by the whole process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_usize) * 4_096
}

#[test]
fn five_million_mutated_frames_leave_a_host_on_ethernet_alive() {
    println!("seed 1");
    feed(Kind::Ethernet, 1, 5_000_000);
}

#[test]
fn three_million_mutated_packets_leave_a_host_without_a_link_layer_alive() {
    println!("seed 2");
    feed(Kind::Ip, 2, 3_000_000);
}

#[test]
fn two_million_mutated_frames_with_descriptions_that_lie_leave_a_host_alive() {
    println!("seed 3");
    feed(Kind::Offloading, 3, 2_000_000);
}

#[test]
fn random_bytes_leave_a_host_alive() {
    let mut stream = Seed(4).stream("bytes");
    for round in 0..300_u16 {
        let mut bytes = vec![0; usize::from(round) * 16];
        stream.fill_bytes(&mut bytes);
        host_fed(&bytes);
    }
}
