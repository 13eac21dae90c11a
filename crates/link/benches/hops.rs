//! How many frames a second a link carries in virtual time on one core: `cargo bench -p plumb-link`.
#![expect(clippy::print_stdout, reason = "a benchmark says what it found")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures in real time what passes in virtual time"
)]

use plumb_base::time::{Instant, Span};
use plumb_link::link::{FAR, Link, NEAR};
use plumb_link::report::Network;
use plumb_link::spec::LinkSpec;
use plumb_wire::machine::{Machine, Medium};
use plumb_wire::packet::{Pool, PoolConfig};

const LINKS: [&str; 6] = [
    "plain",
    "rate=10gbit,delay=10us",
    "rate=10gbit,delay=10us,queue=fq-codel",
    "rate=10gbit,delay=8us..12us",
    "rate=10gbit,delay=10us,loss=0.1%",
    "rate=10gbit,delay=10us;rate=10gbit,delay=10us;rate=10gbit,delay=10us;rate=10gbit,delay=10us",
];
const FRAMES: u64 = 2_000_000;
/// Frames that a driver hands in at once.
const BATCH: u64 = 32;

fn main() {
    println!("{:<42} {:>12} {:>10}", "link", "frames/s", "ns/frame");
    for text in LINKS {
        let best = (0..3).map(|_| nanoseconds(text)).fold(f64::INFINITY, f64::min);
        let name: String = text.chars().take(42).collect();
        println!("{name:<42} {:>12.0} {best:>10.0}", 1e9 / best);
    }
}

/// Real nanoseconds for one frame of 1,250 bytes, a new one each microsecond of virtual time.
fn nanoseconds(text: &str) -> f64 {
    let spec: LinkSpec = text.parse().expect("a link");
    let mut link = Link::new(&spec, Medium::Ethernet, Instant::ORIGIN).expect("a link");
    let mut pool = Pool::new(PoolConfig { count: 1_024, size: 2_048, large: 0 });
    let mut batch = Vec::new();
    let mut due = Vec::new();
    let mut now = Instant::ORIGIN;
    let begun = std::time::Instant::now();
    for _ in 0..FRAMES / BATCH {
        now += Span::from_us(BATCH);
        for _ in 0..BATCH {
            let mut packet = pool.allocate().expect("memory");
            pool.append(&mut packet, 1_250);
            batch.push(packet);
        }
        link.handle_packets(now, NEAR, &mut batch, &mut pool);
        link.poll_due(now, FAR, &mut due, usize::MAX, &mut pool);
        for due in due.drain(..) {
            pool.free(due.packet);
        }
    }
    let spent = begun.elapsed().as_nanos() as f64;
    assert!(link.report(now).violations.is_empty(), "every frame is accounted for");
    spent / FRAMES as f64
}
