//! The traffic that shows what a link does: sparse datagrams for delay and loss, then a sender that keeps the
//! slowest hop busy without filling its queue.
//!
//! Left out: sending it.

use plumb_base::time::Span;
use plumb_link::queue::Limit;

use super::expect::{Bottleneck, Way, sending, wire_len};
use super::traffic::{PAYLOAD_MIN, Traffic};

/// Payload of a sparse datagram: with it the frame is the shortest of Ethernet.
pub const PROBE: usize = 18;
/// Longest standing queue that the busy sender makes, which no management of queues minds.
const STANDING: Span = Span::from_ms(3);
/// How often the busy sender sends what has become due.
const STEP: Span = Span::from_us(250);
/// Frames of the busy sender at the least, where the time allows it, and at the most.
const FRAMES: (u64, u64) = (40, 60_000);
/// Beyond the time that a frame needs: for drivers, receivers, and a machine that is busy.
const MARGIN: Span = Span::from_ms(150);
/// Below this rate both ways are kept busy at the same time, so that each has longer.
const SLOW: u64 = 2_000_000;

/// What is sent one way.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Datagrams far apart.
    pub sparse: Traffic,
    /// Time between two of them.
    pub apart: Span,
    /// Datagrams that keep the slowest hop busy; else why there are none.
    pub busy: Result<Busy, &'static str>,
}

/// A sender that keeps a hop busy.
#[derive(Clone, Debug)]
pub struct Busy {
    /// What it sends.
    pub traffic: Traffic,
    /// The hop that it keeps busy.
    pub bottleneck: Bottleneck,
    /// Frames at the beginning that a token bucket lets pass at once.
    pub skipped: usize,
    /// Whether it is so slow that both ways are kept busy at once.
    pub is_slow: bool,
}

/// For one way, in about so much time for all of the check.
pub fn plan(way: &Way<'_>, time: Span) -> Plan {
    let travel = travel(way, PROBE);
    let one = way.serialisation(PROBE).unwrap_or(Span::from_ms(10));
    // Neither does one wait for the other in a queue, nor is one held up by another's longer delay.
    let held_up = if way.may_overtake() { Span::ZERO } else { way.spread() };
    let apart = (one + one / 8).max(held_up).max(Span::from_ms(2));
    let lasting = time * 4 / 10;
    let count = (lasting.as_ps() / apart.as_ps().max(1)).clamp(4, 2_000);
    let sparse = Traffic {
        payload: PROBE,
        moments: (0..count).map(|number| apart * number).collect(),
        until: apart * count + MARGIN,
        patience: travel + MARGIN,
    };
    Plan { sparse, apart, busy: busy(way, time) }
}

fn busy(way: &Way<'_>, time: Span) -> Result<Busy, &'static str> {
    let rate = way.bottleneck(PROBE)?.rate;
    let is_slow = rate.bits_per_second() < SLOW;
    let lasting = if is_slow { time * 4 / 10 } else { time * 2 / 10 };
    let bits = u128::from(rate.bits_per_second()) * u128::from(lasting.as_ps()) / 1_000_000_000_000;
    let bytes = u64::try_from(bits / 8).unwrap_or(u64::MAX);
    let payload = usize::try_from(bytes / FRAMES.0).unwrap_or(usize::MAX).saturating_sub(42);
    let payload = payload.clamp(PROBE.max(PAYLOAD_MIN), way.longest_payload());
    let bottleneck = way.bottleneck(payload)?;
    let len = wire_len(payload, bottleneck.overhead);
    let skipped = bottleneck.burst.div_ceil(len);
    let each = sending(bottleneck.rate, len);
    let standing = standing(&bottleneck, len);
    let count = (bytes / len).clamp(3, FRAMES.1);
    if skipped > FRAMES.1 {
        return Err("its burst is longer than the check");
    }
    let at_once = skipped + standing;
    let paced = (0..count).map(|number| {
        let due = (each * number).as_ps();
        Span::from_ps(due - due % STEP.as_ps())
    });
    let moments: Vec<Span> =
        std::iter::repeat_n(Span::ZERO, usize::try_from(at_once).expect("at most 60,000"))
            .chain(paced)
            .collect();
    let last = each * (count + standing);
    let traffic = Traffic {
        payload,
        moments,
        until: last + last / 2 + MARGIN,
        patience: travel(way, payload) + each * (standing + 1) + MARGIN,
    };
    let skipped = usize::try_from(skipped).expect("at most 60,000");
    Ok(Busy { traffic, bottleneck, skipped, is_slow })
}

/// Frames that shall always wait: short of any early drop, and far from the limit.
fn standing(bottleneck: &Bottleneck, len: u64) -> u64 {
    let each = sending(bottleneck.rate, len).as_ps().max(1);
    let limit = match bottleneck.limit {
        Limit::Frames(frames) => frames / 4,
        Limit::Bytes(bytes) => bytes / len / 4,
    };
    let early = bottleneck.early.map_or(u64::MAX, |bytes| bytes / len / 2);
    (STANDING.as_ps() / each).min(limit).min(early).max(2)
}

/// How long a datagram may travel when nothing else is sent.
fn travel(way: &Way<'_>, payload: usize) -> Span {
    let one = way.serialisation(payload).unwrap_or(Span::from_ms(100));
    let delay: Span =
        way.hops.iter().map(|hop| hop.delay.mean()).fold(Span::ZERO, |sum, delay| sum + delay);
    one + delay + way.spread()
}

#[cfg(test)]
mod tests {
    use plumb_link::preset::PRESETS;
    use plumb_link::spec::LinkSpec;

    use super::*;

    #[test]
    fn every_presets_check_ends_within_six_seconds() {
        let time = Span::from_secs(5);
        for preset in &PRESETS {
            let spec: LinkSpec = preset.spec();
            let plans = Way::both(&spec).map(|way| plan(&way, time));
            let longest = |traffic: &Traffic| *traffic.moments.last().unwrap() + traffic.patience;
            let sparse = plans.iter().map(|plan| longest(&plan.sparse)).max().unwrap();
            let busy = plans.each_ref().map(|plan| plan.busy.as_ref().unwrap());
            let (up, down) = (longest(&busy[0].traffic), longest(&busy[1].traffic));
            let together = busy.iter().all(|busy| busy.is_slow);
            let busy = if together { up.max(down) } else { up + down };
            // The last datagrams are waited for only where they are lost.
            assert!(sparse + busy < Span::from_secs(6), "{}: {sparse} + {busy}", preset.name);
        }
    }

    #[test]
    fn the_busy_sender_leaves_room_in_the_queue_and_sends_at_the_rate() {
        for preset in &PRESETS {
            let spec: LinkSpec = preset.spec();
            for way in Way::both(&spec) {
                let busy = plan(&way, Span::from_secs(5)).busy.unwrap();
                let len = wire_len(busy.traffic.payload, busy.bottleneck.overhead);
                let at_once = busy.traffic.moments.iter().filter(|at| **at < STEP).count() as u64;
                let room = match busy.bottleneck.limit {
                    Limit::Frames(frames) => frames * len,
                    Limit::Bytes(bytes) => bytes,
                };
                assert!(at_once * len <= room || at_once <= 3, "{} {}", preset.name, way.name);
                assert!(busy.traffic.moments.is_sorted());
                assert!(busy.traffic.moments.len() >= 5, "{}", preset.name);
            }
        }
    }
}
