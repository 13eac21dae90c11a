//! The traffic that shows what a link does: sparse datagrams for delay and loss, then a sender that keeps the
//! slowest hop busy without filling its queue.

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_link::spec::{
    DelayDistribution, DirectionSpec, FaultSpec, LinkSpec, QueueLimit, QueueSpec, RateSpec,
};

use crate::emulator::check::traffic::{HEADERS, PAYLOAD_MIN, ProbeTraffic};

/// Payload of a sparse datagram: with it the frame is the shortest of Ethernet.
pub const PROBE_PAYLOAD: usize = 18;
/// Longest standing queue that the busy sender makes, which no management of queues minds.
const STANDING: Span = Span::from_ms(3);
/// How often the busy sender sends what has become due, where the queue has room for as much.
const STEP: Span = Span::from_us(250);
/// Frames of the busy sender at the least, where the time allows it, and at the most.
const FRAME_COUNT_RANGE: (u64, u64) = (40, 60_000);
/// Beyond the time that a frame needs: for drivers, receivers, and a machine that is busy.
const MARGIN: Span = Span::from_ms(150);
/// Below this rate both ways are kept busy at the same time, so that each has longer.
const SLOW_RATE_BPS: u64 = 2_000_000;

/// Frames beside those of the check: what devices and the driver have in hand, and what the kernel says about itself.
const SPARE_FRAMES: usize = 16_384;

/// By what part of the time between them sparse datagrams may come closer.
const SLACK_DIVISOR: u64 = 16;

/// What is sent one way.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// Datagrams far apart.
    pub sparse: ProbeTraffic,
    /// Time between two of them.
    pub interval: Span,
    /// Datagrams that keep the slowest hop busy; else why there are none.
    pub busy: Result<BusyTraffic, &'static str>,
}

/// A sender that keeps a hop busy.
#[derive(Clone, Debug)]
pub struct BusyTraffic {
    /// What it sends.
    pub traffic: ProbeTraffic,
    /// The hop that it keeps busy.
    pub bottleneck: BottleneckHop,
    /// Frames at the beginning that a token bucket lets pass at once.
    pub skipped: usize,
    /// Whether it is so slow that both ways are kept busy at once.
    pub is_slow: bool,
}

/// Whether both ways are kept busy at once.
pub fn are_simultaneous(plans: &[CheckPlan; 2]) -> bool {
    plans.iter().all(|plan| plan.busy.as_ref().ok().is_none_or(|busy| busy.is_slow))
}

/// How long a check takes at most, its last datagrams waited for as where they are lost.
pub fn duration_max(plans: &[CheckPlan; 2]) -> Span {
    let longest = |traffic: &ProbeTraffic| {
        traffic.send_times.last().copied().unwrap_or_default() + traffic.last_wait
    };
    let sparse = plans.each_ref().map(|plan| longest(&plan.sparse));
    let busy = plans
        .each_ref()
        .map(|plan| plan.busy.as_ref().map_or(Span::ZERO, |busy| longest(&busy.traffic)));
    let [up, down] = busy;
    sparse[0].max(sparse[1]) + if are_simultaneous(plans) { up.max(down) } else { up + down }
}

/// How long it may take that shall take about `time`: a few frames of the slowest links need more.
pub fn duration_allowed(time: Span) -> Span {
    time * 3 + Span::from_secs(10)
}

/// Frames that may be inside the link at once: no more than are sent, those that it doubles, and some in hand.
pub fn frames(spec: &LinkSpec, plans: &[CheckPlan; 2]) -> u32 {
    let copies = |way: usize| -> u32 {
        let faults = spec
            .hops
            .iter()
            .flat_map(|hop| if way == 0 { &hop.up.faults } else { &hop.down.faults });
        let copies = faults.filter(|fault| matches!(fault, FaultSpec::Duplicate(_))).count();
        u32::try_from(copies.min(3)).expect("at most 3")
    };
    let of = |traffic: fn(&CheckPlan) -> usize| -> usize {
        plans.iter().enumerate().map(|(way, plan)| traffic(plan) << copies(way)).sum()
    };
    let sparse = of(|plan| plan.sparse.send_times.len());
    let busy = of(|plan| plan.busy.as_ref().map_or(0, |busy| busy.traffic.send_times.len()));
    u32::try_from(sparse.max(busy) + SPARE_FRAMES).unwrap_or(u32::MAX)
}

/// For one way, in about so much time for all of the check.
pub fn plan(way: &OneWayPath<'_>, time: Span) -> CheckPlan {
    let (travel, around) = travel_times(way, PROBE_PAYLOAD);
    let one = way.serialization_time(PROBE_PAYLOAD).unwrap_or(Span::from_ms(10));
    // Neither does one wait for the other in a queue, nor is one held up by another's longer delay.
    let held_up = if way.may_overtake() { Span::ZERO } else { way.spread() };
    let apart = (one + one / 8).max(held_up).max(Span::from_ms(2));
    let lasting = time * 4 / 10;
    let count = (lasting.as_ps() / apart.as_ps().max(1)).clamp(4, 2_000);
    let sparse = ProbeTraffic {
        payload: PROBE_PAYLOAD,
        send_times: (0..count).map(|number| apart * number).collect(),
        until: apart * count + MARGIN,
        slack: apart / SLACK_DIVISOR,
        last_wait: travel + MARGIN,
        silence_max: around + MARGIN,
    };
    CheckPlan { sparse, interval: apart, busy: busy(way, time) }
}

fn busy(way: &OneWayPath<'_>, time: Span) -> Result<BusyTraffic, &'static str> {
    let rate = way.bottleneck(PROBE_PAYLOAD)?.rate;
    let is_slow = rate.bits_per_second() < SLOW_RATE_BPS;
    let lasting = if is_slow { time * 4 / 10 } else { time * 2 / 10 };
    let bits = u128::from(rate.bits_per_second()) * u128::from(lasting.as_ps()) / 1_000_000_000_000;
    let bytes = u64::try_from(bits / 8).unwrap_or(u64::MAX);
    let payload =
        usize::try_from(bytes / FRAME_COUNT_RANGE.0).unwrap_or(usize::MAX).saturating_sub(42);
    let payload = payload.clamp(PROBE_PAYLOAD.max(PAYLOAD_MIN), way.longest_payload());
    let bottleneck = way.bottleneck(payload)?;
    let len = wire_len(payload, bottleneck.overhead);
    let skipped = bottleneck.burst.div_ceil(len);
    let each = transmission_time(bottleneck.rate, len);
    let (standing, step) = (standing_queue(&bottleneck, len), step(&bottleneck, len));
    let count = (bytes / len).clamp(3, FRAME_COUNT_RANGE.1);
    if skipped > FRAME_COUNT_RANGE.1 {
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
    let (travel, around) = travel_times(way, payload);
    let waiting = each * (standing + 1);
    let traffic = ProbeTraffic {
        payload,
        send_times: moments,
        until: last + last / 2 + MARGIN,
        slack: each * standing,
        last_wait: travel + waiting + MARGIN,
        silence_max: around + waiting + MARGIN,
    };
    let skipped = usize::try_from(skipped).expect("at most 60,000");
    Ok(BusyTraffic { traffic, bottleneck, skipped, is_slow })
}

/// Frames that shall always wait: short of any early drop, and far from the limit.
fn standing_queue(bottleneck: &BottleneckHop, len: u64) -> u64 {
    let each = transmission_time(bottleneck.rate, len).as_ps().max(1);
    let room = queue_headroom(bottleneck, len);
    let early = bottleneck.early.map_or(u64::MAX, |bytes| bytes / len / 2);
    // Two, for one to wait while the other is sent; or one, where there is no room for more.
    let least = room.saturating_sub(1).clamp(1, 2);
    (STANDING.as_ps() / each).min(room / 4).min(early).max(least)
}

/// Time for which the busy sender sends at once: no more than a part of what the queue has room for.
fn step(bottleneck: &BottleneckHop, len: u64) -> Span {
    let each = transmission_time(bottleneck.rate, len);
    let early = bottleneck.early.map_or(u64::MAX, |bytes| bytes / len);
    let frames = (queue_headroom(bottleneck, len).min(early) / 4).clamp(1, FRAME_COUNT_RANGE.1);
    STEP.min(each * frames).max(Span::from_ps(1))
}

/// Frames that may wait before a hop.
fn queue_headroom(bottleneck: &BottleneckHop, len: u64) -> u64 {
    match bottleneck.limit {
        QueueLimit::Frames(frames) => frames,
        QueueLimit::Bytes(bytes) => bytes / len,
    }
}

/// How long a datagram may travel when nothing else is sent, and how much of that may vary: with delays, with
/// what is held back for others to overtake it, and with pauses of a rate.
fn travel_times(way: &OneWayPath<'_>, payload: usize) -> (Span, Span) {
    let one = way.serialization_time(payload).unwrap_or(Span::from_ms(100));
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

/// One way: the directions of its hops.
#[derive(Clone, Debug)]
pub struct OneWayPath<'a> {
    /// `up` or `down`.
    pub name: &'static str,
    /// In the order in which they are passed.
    pub hops: Vec<&'a DirectionSpec>,
    round_trip: Span,
}

/// The hop that is slowest for a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BottleneckHop {
    /// Its rate in the long run.
    pub rate: Rate,
    /// Bytes that it sends at once, before the rate shows.
    pub burst: u64,
    /// What a frame costs it beyond its bytes.
    pub overhead: u32,
    /// How much may wait before it.
    pub limit: QueueLimit,
    /// Bytes from which on its queue drops early, if it does so by length.
    pub early: Option<u64>,
}

/// The share of frames of one length that is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedLoss {
    /// The share.
    pub share: f64,
    /// By how much more the count varies than if each were lost independently.
    pub inflation: f64,
}

impl<'a> OneWayPath<'a> {
    /// Both ways of a link: up, down.
    pub fn both(spec: &'a LinkSpec) -> [Self; 2] {
        let round_trip = spec.round_trip();
        let up = spec.hops.iter().map(|hop| &hop.up).collect();
        let down = spec.hops.iter().rev().map(|hop| &hop.down).collect();
        [("up", up), ("down", down)].map(|(name, hops)| Self { name, hops, round_trip })
    }

    /// Bytes of the longest payload that is not cut.
    pub fn longest_payload(&self) -> usize {
        let mtu = self.hops.iter().filter_map(|hop| hop.mtu).map(|mtu| mtu.bytes).min();
        let mtu = usize::try_from(mtu.unwrap_or(1_500).min(1_500)).expect("at most 1,500");
        mtu - (HEADERS - 14)
    }

    /// How long a frame is being sent, at all hops together.
    ///
    /// # Errors
    /// What makes that vary.
    pub fn serialization_time(&self, payload: usize) -> Result<Span, &'static str> {
        let each = |hop: &&DirectionSpec| match &hop.rate {
            RateSpec::Unlimited | RateSpec::Bucket(_) => Ok(Span::ZERO),
            RateSpec::Constant(rate) => {
                Ok(transmission_time(*rate, wire_len(payload, hop.overhead)))
            }
            RateSpec::OnOff { .. } => Err("its rate has pauses"),
            RateSpec::Trace(_) => Err("its rate follows a trace"),
        };
        self.hops.iter().map(each).try_fold(Span::ZERO, |sum, each| Ok(sum + each?))
    }

    /// The hop that limits how many such frames pass in a second.
    ///
    /// # Errors
    /// There is none, or none that a steady sender could see.
    pub fn bottleneck(&self, payload: usize) -> Result<BottleneckHop, &'static str> {
        if self.hops.iter().any(|hop| hop.policer.is_some()) {
            return Err("a policer drops what a queue would need to be kept busy");
        }
        self.serialization_time(payload)?;
        let limited = |hop: &&&DirectionSpec| hop.rate.mean().is_some();
        let time = |hop: &&&DirectionSpec| {
            hop.rate.mean().map(|rate| transmission_time(rate, wire_len(payload, hop.overhead)))
        };
        let slowest = self.hops.iter().filter(limited).max_by_key(time);
        let hop = slowest.ok_or("its rate is not limited")?;
        Ok(BottleneckHop {
            rate: hop.rate.mean().expect("only such hops were looked at"),
            burst: if let RateSpec::Bucket(bucket) = &hop.rate { bucket.burst } else { 0 },
            overhead: hop.overhead,
            limit: hop.limit(self.round_trip),
            early: match hop.queue {
                QueueSpec::Red { min, .. } | QueueSpec::RedPd { min, .. } => Some(min),
                _ => None,
            },
        })
    }

    /// The delays that are always the same, together, and the one that varies, if one does.
    ///
    /// # Errors
    /// The part of the link that makes it more than that.
    pub fn delay(&self) -> Result<(Span, Option<&'a DelayDistribution>), &'static str> {
        let (mut constant, mut varying) = (Span::ZERO, None);
        for hop in &self.hops {
            match &hop.delay.distribution {
                DelayDistribution::Constant(delay) => constant += *delay,
                other if varying.is_none() => varying = Some(other),
                _ => return Err("the delays of several hops vary"),
            }
        }
        let clogs = |fault: &FaultSpec| matches!(fault, FaultSpec::Clog { .. });
        if self.faults().any(clogs) {
            return Err("it is clogged at times (clog=)");
        }
        Ok((constant, varying))
    }

    /// How far delays lie apart, about: frames that are sent farther apart than that do not hold
    /// each other up.
    pub fn spread(&self) -> Span {
        let spread = |hop: &&DirectionSpec| match &hop.delay.distribution {
            DelayDistribution::Constant(_) => Span::ZERO,
            DelayDistribution::Uniform { min, max } => max.saturating_sub(*min),
            DelayDistribution::Normal { deviation, .. } => *deviation * 5,
            other => other.mean() * 3,
        };
        self.hops.iter().map(spread).fold(Span::ZERO, |sum, spread| sum + spread)
    }

    /// Whether a delay that varies lets frames overtake each other.
    pub fn may_overtake(&self) -> bool {
        let overtakes = |hop: &&DirectionSpec| {
            hop.delay.may_overtake
                && !matches!(hop.delay.distribution, DelayDistribution::Constant(_))
        };
        self.hops.iter().any(overtakes)
    }

    /// The share of frames that go late by more than `apart`, for others to overtake them.
    pub fn reordered(&self, apart: Span) -> f64 {
        let stays = |fault: &FaultSpec| match fault {
            FaultSpec::Reorder { share, by } if *by > apart => 1.0 - share,
            _ => 1.0,
        };
        1.0 - self.faults().map(stays).product::<f64>()
    }

    /// What is lost of datagrams of this payload: what is damaged is, as its receiver does not take it.
    ///
    /// # Errors
    /// What makes that depend on the time or on the number of a frame.
    pub fn loss(&self, payload: usize) -> Result<ExpectedLoss, &'static str> {
        let (mut kept, mut inflation) = (1.0, 1.0_f64);
        for fault in self.faults() {
            kept *= 1.0
                - match *fault {
                    FaultSpec::Loss(share)
                    | FaultSpec::Corrupt(share)
                    | FaultSpec::Truncate(share) => share,
                    FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
                        // The chain forgets by 1 − p − r a frame.
                        let memory = (1.0 - p - r).clamp(0.0, 0.999);
                        inflation = inflation.max((1.0 + memory) / (1.0 - memory));
                        if p + r <= 0.0 {
                            loss_good
                        } else {
                            (r * loss_good + p * loss_bad) / (p + r)
                        }
                    }
                    FaultSpec::Periodic(every) => 1.0 / every.max(1) as f64,
                    FaultSpec::BitErrors(rate) => {
                        let bits = 8.0 * (payload + HEADERS) as f64;
                        -f64::exp_m1(bits * f64::ln_1p(-rate))
                    }
                    FaultSpec::Partition => 1.0,
                    FaultSpec::Listed(_) => return Err("frames of certain numbers are lost"),
                    FaultSpec::Blackout { .. } => return Err("it has blackouts (blackout=)"),
                    FaultSpec::Reorder { .. }
                    | FaultSpec::Duplicate(_)
                    | FaultSpec::Clog { .. } => 0.0,
                };
        }
        Ok(ExpectedLoss { share: 1.0 - kept, inflation })
    }

    fn faults(&self) -> impl Iterator<Item = &'a FaultSpec> + '_ {
        self.hops.iter().flat_map(|hop| &hop.faults)
    }
}

/// Bytes that a rate is spent on for a datagram of this payload.
pub fn wire_len(payload: usize, overhead: u32) -> u64 {
    (payload + HEADERS) as u64 + u64::from(overhead)
}

/// How long so many bytes are being sent.
pub fn transmission_time(rate: Rate, bytes: u64) -> Span {
    let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate.bits_per_second());
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
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
            let plans = OneWayPath::both(&spec).map(|way| plan(&way, time));
            assert!(plans.iter().all(|plan| plan.busy.is_ok()));
            // The last datagrams are waited for only where they are lost.
            let needed = duration_max(&plans);
            assert!(needed < Span::from_secs(6), "{}: {needed}", preset.name);
            let shortest = Span::from_ms(500);
            let plans = OneWayPath::both(&spec).map(|way| plan(&way, shortest));
            assert!(duration_max(&plans) < duration_allowed(shortest), "{}", preset.name);
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
            for way in OneWayPath::both(&spec) {
                let busy = plan(&way, Span::from_secs(5)).busy.unwrap();
                let len = wire_len(busy.traffic.payload, busy.bottleneck.overhead);
                let each = transmission_time(busy.bottleneck.rate, len).as_ns_f64();
                let room = queue_headroom(&busy.bottleneck, len) as f64;
                // Beside the one that is being sent; a bucket has those that it lets pass at once sent.
                let mut waiting = -1.0 - busy.skipped as f64;
                let (mut before, mut most) = (Span::ZERO, 0.0_f64);
                for moment in &busy.traffic.send_times {
                    let gone = moment.saturating_sub(before).as_ns_f64() / each;
                    let floor = if *moment > Span::ZERO { -1.0 } else { waiting };
                    waiting = (waiting - gone).max(floor) + 1.0;
                    before = *moment;
                    most = most.max(waiting);
                }
                let (most, name) = (most.ceil(), way.name);
                assert!(most <= room / 2.0 + 1.0, "{text} {name}: {most} of {room}");
                assert!(most <= room.max(1.0), "{text} {name}: {most} of {room}");
                assert!(busy.traffic.send_times.is_sorted());
                assert!(busy.traffic.send_times.len() >= 5, "{text}");
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
            let plan = plan(&OneWayPath::both(&spec)[0], Span::from_secs(5));
            assert!(
                plan.sparse.last_wait > Span::from_ms(held),
                "{text}: {:?}",
                plan.sparse.last_wait
            );
        }
        let spec: LinkSpec = "reorder=1%/1h".parse().unwrap();
        let time = Span::from_secs(5);
        let plans = OneWayPath::both(&spec).map(|way| plan(&way, time));
        assert!(duration_max(&plans) > duration_allowed(time), "nobody waits for an hour");
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
            let plans = OneWayPath::both(&spec).map(|way| plan(&way, time));
            let payload = plans[0].busy.as_ref().unwrap().traffic.payload;
            let flying = |way: usize| {
                let busy = plans[way].busy.as_ref().unwrap();
                let rate = busy.bottleneck.rate.bits_per_second();
                let len = wire_len(payload, busy.bottleneck.overhead);
                let delay = spec.hops[0].up.delay.mean();
                let product = u128::from(rate) * u128::from(delay.as_ps());
                let product = product / 8 / 1_000_000_000_000 / u128::from(len);
                product.min(busy.traffic.send_times.len() as u128)
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
            duration_max(&OneWayPath::both(&spec).map(|way| plan(&way, time)))
                > duration_allowed(time)
        };
        assert!(longer("delay=1h", 1));
        assert!(longer("rate=1mbit,delay=30s", 5));
        assert!(!longer("rate=3500kbit,mtu=200,delay=12s", 60));
        assert!(!longer("rate=10mbit,delay=1s", 5));
    }

    fn spec(text: &str) -> LinkSpec {
        text.parse().unwrap()
    }

    #[test]
    fn serialisation_and_delay_add_up_over_the_hops_of_each_way() {
        let spec =
            spec("rate=1mbit,delay=10ms|rate=8mbit,delay=1ms;rate=2mbit,overhead=58,delay=5ms");
        let [up, down] = OneWayPath::both(&spec);
        // 42 bytes of headers and 58 of payload: 800 µs at 1 Mb/s, and with 58 more 632 µs at 2.
        assert_eq!(up.serialization_time(58), Ok(Span::from_us(800 + 632)));
        assert_eq!(down.serialization_time(58), Ok(Span::from_us(100 + 632)));
        assert_eq!(up.delay(), Ok((Span::from_ms(15), None)));
        assert_eq!(down.delay(), Ok((Span::from_ms(6), None)));
        assert_eq!(up.bottleneck(58).unwrap().rate.bits_per_second(), 1_000_000);
        assert_eq!(down.bottleneck(58).unwrap().rate.bits_per_second(), 2_000_000);
    }

    #[test]
    fn loss_of_several_faults_is_what_none_of_them_spares() {
        let spec = spec("loss=10%,bit-errors=1e-4;gilbert-elliott=1%/9%");
        let loss = OneWayPath::both(&spec)[0].loss(58).unwrap();
        let expected = 1.0 - 0.9 * (1.0 - 1e-4_f64).powi(800) * 0.9;
        assert!((loss.share - expected).abs() < 1e-9, "{loss:?}");
        assert!((loss.inflation - 19.0).abs() < 1e-9, "1.9 / 0.1");
    }

    #[test]
    fn what_has_no_closed_form_says_so() {
        assert!(OneWayPath::both(&spec("delay=1ms"))[0].bottleneck(58).is_err());
        assert!(OneWayPath::both(&spec("delay=1ms..2ms;delay=1ms..2ms"))[0].delay().is_err());
    }
}
