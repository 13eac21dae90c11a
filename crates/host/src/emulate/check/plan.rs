//! The traffic that shows what a link does: sparse datagrams for delay and loss, then a sender that keeps the
//! slowest hop busy without filling its queue.
//!
//! Left out: sending it.

use plumb_base::time::Span;
use plumb_link::queue::Limit;
use plumb_link::spec::{DelayDistribution, DirectionSpec, FaultSpec, LinkSpec, RateSpec};

use super::expect::{Bottleneck, Way, sending, wire_len};
use super::traffic::{PAYLOAD_MIN, Traffic};

/// Payload of a sparse datagram: with it the frame is the shortest of Ethernet.
pub const PROBE: usize = 18;
/// Longest standing queue that the busy sender makes, which no management of queues minds.
const STANDING: Span = Span::from_ms(3);
/// How often the busy sender sends what has become due, where the queue has room for as much.
const STEP: Span = Span::from_us(250);
/// Frames of the busy sender at the least, where the time allows it, and at the most.
const FRAMES: (u64, u64) = (40, 60_000);
/// Beyond the time that a frame needs: for drivers, receivers, and a machine that is busy.
const MARGIN: Span = Span::from_ms(150);
/// Below this rate both ways are kept busy at the same time, so that each has longer.
const SLOW: u64 = 2_000_000;

/// Frames beside those of the check: what devices and the driver have in hand, and what the kernel says of itself.
const IN_HAND: usize = 16_384;

/// By what part of the time between them sparse datagrams may come closer.
const CLOSER: u64 = 16;

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

/// Whether both ways are kept busy at once.
pub fn are_together(plans: &[Plan; 2]) -> bool {
    plans.iter().all(|plan| plan.busy.as_ref().ok().is_none_or(|busy| busy.is_slow))
}

/// How long a check takes at most, its last datagrams waited for as where they are lost.
pub fn needed(plans: &[Plan; 2]) -> Span {
    let longest =
        |traffic: &Traffic| traffic.moments.last().copied().unwrap_or_default() + traffic.patience;
    let sparse = plans.each_ref().map(|plan| longest(&plan.sparse));
    let busy = plans
        .each_ref()
        .map(|plan| plan.busy.as_ref().map_or(Span::ZERO, |busy| longest(&busy.traffic)));
    let [up, down] = busy;
    sparse[0].max(sparse[1]) + if are_together(plans) { up.max(down) } else { up + down }
}

/// How long it may take that shall take about `time`: a few frames of the slowest links need more.
pub fn allowed(time: Span) -> Span {
    time * 3 + Span::from_secs(10)
}

/// Frames that may be inside the link at once: no more than are sent, those that it doubles, and some in hand.
pub fn frames(spec: &LinkSpec, plans: &[Plan; 2]) -> u32 {
    let copies = |way: usize| -> u32 {
        let faults = spec
            .hops
            .iter()
            .flat_map(|hop| if way == 0 { &hop.up.faults } else { &hop.down.faults });
        let copies = faults.filter(|fault| matches!(fault, FaultSpec::Duplicate(_))).count();
        u32::try_from(copies.min(3)).expect("at most 3")
    };
    let of = |traffic: fn(&Plan) -> usize| -> usize {
        plans.iter().enumerate().map(|(way, plan)| traffic(plan) << copies(way)).sum()
    };
    let sparse = of(|plan| plan.sparse.moments.len());
    let busy = of(|plan| plan.busy.as_ref().map_or(0, |busy| busy.traffic.moments.len()));
    u32::try_from(sparse.max(busy) + IN_HAND).unwrap_or(u32::MAX)
}

/// For one way, in about so much time for all of the check.
pub fn plan(way: &Way<'_>, time: Span) -> Plan {
    let (travel, around) = travel(way, PROBE);
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
        slack: apart / CLOSER,
        patience: travel + MARGIN,
        quiet: around + MARGIN,
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
    let (standing, step) = (standing(&bottleneck, len), step(&bottleneck, len));
    let count = (bytes / len).clamp(3, FRAMES.1);
    if skipped > FRAMES.1 {
        return Err("its burst is longer than the check");
    }
    let at_once = skipped + standing;
    let paced = (0..count).map(|number| {
        let due = (each * number).as_ps();
        Span::from_ps(due - due % step.as_ps())
    });
    let moments: Vec<Span> =
        std::iter::repeat_n(Span::ZERO, usize::try_from(at_once).expect("at most 60,000"))
            .chain(paced)
            .collect();
    let last = each * (count + standing);
    let (travel, around) = travel(way, payload);
    let waiting = each * (standing + 1);
    let traffic = Traffic {
        payload,
        moments,
        until: last + last / 2 + MARGIN,
        slack: each * standing,
        patience: travel + waiting + MARGIN,
        quiet: around + waiting + MARGIN,
    };
    let skipped = usize::try_from(skipped).expect("at most 60,000");
    Ok(Busy { traffic, bottleneck, skipped, is_slow })
}

/// Frames that shall always wait: short of any early drop, and far from the limit.
fn standing(bottleneck: &Bottleneck, len: u64) -> u64 {
    let each = sending(bottleneck.rate, len).as_ps().max(1);
    let room = room(bottleneck, len);
    let early = bottleneck.early.map_or(u64::MAX, |bytes| bytes / len / 2);
    // Two, for one to wait while the other is sent; or one, where there is no room for more.
    let least = room.saturating_sub(1).clamp(1, 2);
    (STANDING.as_ps() / each).min(room / 4).min(early).max(least)
}

/// Time for which the busy sender sends at once: no more than a part of what the queue has room for.
fn step(bottleneck: &Bottleneck, len: u64) -> Span {
    let each = sending(bottleneck.rate, len);
    let early = bottleneck.early.map_or(u64::MAX, |bytes| bytes / len);
    let frames = (room(bottleneck, len).min(early) / 4).clamp(1, FRAMES.1);
    STEP.min(each * frames).max(Span::from_ps(1))
}

/// Frames that may wait before a hop.
fn room(bottleneck: &Bottleneck, len: u64) -> u64 {
    match bottleneck.limit {
        Limit::Frames(frames) => frames,
        Limit::Bytes(bytes) => bytes / len,
    }
}

/// How long a datagram may travel when nothing else is sent, and how much of that may vary: with delays, with
/// what is held back for others to overtake it, and with pauses of a rate.
fn travel(way: &Way<'_>, payload: usize) -> (Span, Span) {
    let one = way.serialisation(payload).unwrap_or(Span::from_ms(100));
    let flight = |hop: &&DirectionSpec| hop.longest_flight() + longest_pause(&hop.rate);
    let constant = |hop: &&DirectionSpec| match hop.delay.distribution {
        DelayDistribution::Constant(delay) => delay,
        _ => Span::ZERO,
    };
    let sum = |spans: &dyn Fn(&&DirectionSpec) -> Span| {
        way.hops.iter().map(spans).fold(one, |sum, span| sum + span)
    };
    let travel = sum(&flight);
    (travel, travel.saturating_sub(sum(&constant)))
}

/// The longest time for which nothing leaves, whatever waits.
fn longest_pause(rate: &RateSpec) -> Span {
    match rate {
        RateSpec::Unlimited | RateSpec::Constant(_) | RateSpec::Bucket(_) => Span::ZERO,
        RateSpec::OnOff { off, .. } => *off,
        RateSpec::Trace(trace) => {
            let moments = || trace.opportunities.iter().map(|opportunity| opportunity.at);
            let again = moments().next().map(|first| trace.period + first);
            let gaps = moments().zip(moments().skip(1).chain(again));
            gaps.map(|(one, next)| next.saturating_sub(one)).max().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_link::preset::PRESETS;

    use super::*;

    #[test]
    fn every_presets_check_ends_within_six_seconds() {
        let time = Span::from_secs(5);
        for preset in &PRESETS {
            let spec: LinkSpec = preset.spec();
            let plans = Way::both(&spec).map(|way| plan(&way, time));
            assert!(plans.iter().all(|plan| plan.busy.is_ok()));
            // The last datagrams are waited for only where they are lost.
            let needed = needed(&plans);
            assert!(needed < Span::from_secs(6), "{}: {needed}", preset.name);
            let shortest = Span::from_ms(500);
            let plans = Way::both(&spec).map(|way| plan(&way, shortest));
            assert!(super::needed(&plans) < allowed(shortest), "{}", preset.name);
        }
    }

    #[test]
    fn the_busy_sender_leaves_room_in_the_queue_at_every_step_and_sends_at_the_rate() {
        let presets = PRESETS.iter().map(|preset| preset.text);
        let others = [
            "rate=1gbit",
            "rate=10gbit",
            "rate=100mbit,limit=10packets",
            "rate=20mbit,delay=5ms,limit=4packets",
            "rate=1mbit,limit=2packets",
            "rate=1mbit,delay=1ms,limit=4KiB",
        ];
        for text in presets.chain(others) {
            let spec: LinkSpec = text.parse().unwrap();
            for way in Way::both(&spec) {
                let busy = plan(&way, Span::from_secs(5)).busy.unwrap();
                let len = wire_len(busy.traffic.payload, busy.bottleneck.overhead);
                let each = sending(busy.bottleneck.rate, len).as_ns_f64();
                let room = room(&busy.bottleneck, len) as f64;
                // Beside the one that is being sent; a bucket has those that it lets pass at once sent.
                let mut waiting = -1.0 - busy.skipped as f64;
                let (mut before, mut most) = (Span::ZERO, 0.0_f64);
                for moment in &busy.traffic.moments {
                    let gone = moment.saturating_sub(before).as_ns_f64() / each;
                    let floor = if *moment > Span::ZERO { -1.0 } else { waiting };
                    waiting = (waiting - gone).max(floor) + 1.0;
                    before = *moment;
                    most = most.max(waiting);
                }
                let (most, name) = (most.ceil(), way.name);
                assert!(most <= room / 2.0 + 1.0, "{text} {name}: {most} of {room}");
                assert!(most <= room.max(1.0), "{text} {name}: {most} of {room}");
                assert!(busy.traffic.moments.is_sorted());
                assert!(busy.traffic.moments.len() >= 5, "{text}");
            }
        }
    }

    #[test]
    fn a_datagram_is_waited_for_as_long_as_anything_may_hold_it_back() {
        for (text, held) in [
            ("delay=5ms,reorder=1%/5s", 5_005),
            ("delay=5ms,clog=10s/2s", 2_005),
            ("delay=10ms..700ms", 700),
            ("rate=1mbit,on=100ms,off=3s,delay=1ms", 3_001),
        ] {
            let spec: LinkSpec = text.parse().unwrap();
            let plan = plan(&Way::both(&spec)[0], Span::from_secs(5));
            assert!(
                plan.sparse.patience > Span::from_ms(held),
                "{text}: {:?}",
                plan.sparse.patience
            );
        }
        let spec: LinkSpec = "reorder=1%/1h".parse().unwrap();
        let time = Span::from_secs(5);
        let plans = Way::both(&spec).map(|way| plan(&way, time));
        assert!(needed(&plans) > allowed(time), "nobody waits for an hour");
    }

    #[test]
    fn there_is_room_for_every_datagram_that_may_be_inside_at_once() {
        let time = Span::from_secs(60);
        for text in [
            // 24,534 frames of 214 bytes each way are under way.
            "rate=3500kbit,mtu=200,delay=12s",
            "rate=100mbit,delay=2s,duplicate=100%",
            "rate=10gbit",
        ] {
            let spec: LinkSpec = text.parse().unwrap();
            let plans = Way::both(&spec).map(|way| plan(&way, time));
            let payload = plans[0].busy.as_ref().unwrap().traffic.payload;
            let flying = |way: usize| {
                let busy = plans[way].busy.as_ref().unwrap();
                let rate = busy.bottleneck.rate.bits_per_second();
                let len = wire_len(payload, busy.bottleneck.overhead);
                let delay = spec.hops[0].up.delay.mean();
                let product = u128::from(rate) * u128::from(delay.as_ps());
                let product = product / 8 / 1_000_000_000_000 / u128::from(len);
                product.min(busy.traffic.moments.len() as u128)
            };
            let copies = if text.contains("duplicate") { 2 } else { 1 };
            let inside = (flying(0) + flying(1)) * copies;
            let room = u128::from(frames(&spec, &plans));
            assert!(room > inside, "{text}: {room} for {inside}");
            assert!(room < 1 << 19, "{text}: {room}");
        }
    }

    #[test]
    fn a_check_that_takes_longer_than_one_may_wait_is_known_before_it_begins() {
        let longer = |text: &str, secs: u64| {
            let (spec, time): (LinkSpec, _) = (text.parse().unwrap(), Span::from_secs(secs));
            needed(&Way::both(&spec).map(|way| plan(&way, time))) > allowed(time)
        };
        assert!(longer("delay=1h", 1));
        assert!(longer("rate=1mbit,delay=30s", 5));
        assert!(!longer("rate=3500kbit,mtu=200,delay=12s", 60));
        assert!(!longer("rate=10mbit,delay=1s", 5));
    }
}
