//! The size of segments: what the peer takes, what the path carries, and what probing finds out about it.
//!
//! ICMP tells a smaller path MTU (RFC 1191, RFC 8201). Where it does not, and only full segments are lost, they
//! are made smaller until they arrive (RFC 4821 §7.7). A larger size is used again once a probe of it was delivered:
//! ordinary data in a segment larger than the others (RFC 4821 §10.1, not overlapping). Only with SACK, which tells at
//! once that a probe alone was lost.

use plumb_base::time::{Instant, Span};

use super::recovery::{RecoveryContext, RecoveryPhase};
use super::sender::{SegmentPlan, Sender};
use super::seq::SeqNum;

/// Timeouts in a row of full segments after which the path is taken for a black hole (Linux's `tcp_retries1`).
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// MTUs that are tried, largest first, where full segments vanish (RFC 1191 §7.1, shortened).
const PLATEAUS: [u32; 5] = [4_352, 1_492, 1_280, 1_024, 576];
/// The search is over when it has less to gain, in bytes (Linux's `tcp_probe_threshold`).
const CONVERGED: u32 = 8;
/// How long after that it begins anew, as the path may have changed (RFC 4821 §7.3, RFC 8899 §5.1.1).
const RAISE_AFTER: Span = Span::from_secs(600);

/// Sizes of segments of a connection.
#[derive(Debug)]
pub(super) struct SegmentSize {
    /// Bytes of IP and TCP header without options.
    headers: u32,
    /// Bytes of options that every segment has.
    options: u16,
    /// Largest segment that the peer takes (its MSS option), or that we are told to send.
    peer: u16,
    /// MTU of the path as it is known from routing and ICMP.
    path: u32,
    /// Present while segments are smaller than `path` allows, and a larger size is looked for.
    search: Option<Box<MtuSearch>>,
    timeouts: u8,
    payload: u16,
}

/// The search for the largest packet that the path carries (RFC 4821 §7.1).
#[derive(Clone, Copy, Debug)]
struct MtuSearch {
    /// Packets of this size arrive; it is in use.
    low: u32,
    /// Packets of more than this do not; unlimited while that has not been tried.
    high: u32,
    /// No probe before.
    next_at: Instant,
    probe: Option<MtuProbe>,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MtuProbe {
    /// Its first sequence number.
    pub seq: SeqNum,
    /// Behind its last.
    pub end: SeqNum,
    mtu: u32,
}

/// What happened to a probe that was not delivered (RFC 4821 §7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeFailure {
    /// It alone was lost: it was too large.
    Lost,
    /// The retransmission timer expired.
    TimedOut,
    /// Other segments were lost too: it may have been congestion.
    Inconclusive,
}

impl SegmentSize {
    /// Sizes for a path of `mtu` bytes, and a peer that takes segments of `peer`.
    pub fn new(mtu: u32, is_v6: bool, peer: u16, options: u16) -> Self {
        let headers = if is_v6 { 60 } else { 40 };
        let mut size =
            Self { headers, options, peer, path: mtu, search: None, timeouts: 0, payload: 0 };
        size.settle();
        size
    }

    fn settle(&mut self) {
        let fits = self.mtu().saturating_sub(self.headers).min(self.peer.into());
        let payload = fits.saturating_sub(self.options.into()).max(8);
        self.payload = u16::try_from(payload).unwrap_or(u16::MAX);
    }

    /// Most payload of a segment with the usual options.
    #[inline]
    pub const fn payload(&self) -> u16 {
        self.payload
    }

    /// The MTU in use.
    pub fn mtu(&self) -> u32 {
        self.search.as_ref().map_or(self.path, |search| search.low.min(self.path))
    }

    /// The largest packet that can be of use.
    fn ceiling(&self) -> u32 {
        self.path.min(u32::from(self.peer) + self.headers)
    }

    /// Begins to look for a size larger than `low`, which arrives; nothing is left to be looked for at the ceiling.
    fn search_above(&mut self, low: u32, next_at: Instant) {
        let search = MtuSearch { low, high: u32::MAX, next_at, probe: None };
        self.search = (low < self.ceiling()).then(|| Box::new(search));
        self.settle();
    }

    /// Routing or ICMP told the path's MTU; whether segments become smaller. They become larger at once, or by probes where these
    /// are possible (RFC 4821 §7.2).
    pub fn on_path_mtu(&mut self, mtu: u32, by_probes: bool) -> bool {
        let before = self.payload;
        let (used, has_grown) = (self.mtu(), mtu > self.path);
        self.path = mtu;
        if has_grown && by_probes {
            self.search_above(used, Instant::ORIGIN);
        } else if self.search.as_ref().is_some_and(|search| search.low >= self.ceiling()) {
            self.search = None;
        }
        self.settle();
        self.payload < before
    }

    /// The retransmission timer expired while a segment of `len` bytes was unacknowledged; whether segments become smaller.
    pub fn on_timeout(&mut self, now: Instant, len: u64, least_mtu: u32) -> bool {
        let overhead = self.headers + u32::from(self.options);
        let lost = u32::try_from(len).unwrap_or(u32::MAX).saturating_add(overhead).min(self.mtu());
        let smaller = PLATEAUS.into_iter().find(|mtu| *mtu < lost && *mtu >= least_mtu);
        let Some(smaller) = smaller else { return false };
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts < BLACK_HOLE_TIMEOUTS {
            return false;
        }
        self.search_above(smaller, now);
        true
    }

    /// Something was delivered: the path is no black hole.
    #[inline]
    pub const fn on_delivered(&mut self) {
        self.timeouts = 0;
    }

    /// Most payload of a probe, if one is due.
    #[inline]
    pub fn due_probe(&self, now: Instant) -> Option<u16> {
        let search = self.search.as_ref()?;
        let is_due = search.probe.is_none() && now >= search.next_at;
        let payload = |mtu: u32| mtu - self.headers - u32::from(self.options);
        is_due.then(|| u16::try_from(payload(self.next_mtu(search))).unwrap_or(u16::MAX))
    }

    /// The next size to be tried: all that may be gained, then halfway (RFC 4821 §7.3).
    fn next_mtu(&self, search: &MtuSearch) -> u32 {
        let ceiling = self.ceiling();
        if search.high >= ceiling { ceiling } else { u32::midpoint(search.low, search.high + 1) }
    }

    /// A probe leaves, of the size that was due.
    pub fn on_probe_sent(&mut self, seq: SeqNum, end: SeqNum) {
        let mtu = self.search.as_ref().map_or(0, |search| self.next_mtu(search));
        if let Some(search) = &mut self.search {
            search.probe = Some(MtuProbe { seq, end, mtu });
        }
    }

    /// The probe on its way.
    #[inline]
    pub fn probe(&self) -> Option<MtuProbe> {
        self.search.as_ref()?.probe
    }

    /// The probe arrived: segments are as large from now on (RFC 4821 §7.6.1).
    pub fn on_probe_delivered(&mut self, now: Instant) {
        let Some(search) = &mut self.search else { return };
        let Some(probe) = search.probe.take() else { return };
        search.low = search.low.max(probe.mtu);
        if search.low >= self.ceiling() {
            self.search = None;
        } else {
            self.check_converged(now);
        }
        self.settle();
    }

    /// The probe did not arrive; the next one waits for at least `interval`, the expected time between two losses by congestion
    /// (RFC 4821 §7.6.2).
    pub fn on_probe_failed(&mut self, now: Instant, why: ProbeFailure, interval: Span) {
        let Some(search) = &mut self.search else { return };
        let Some(probe) = search.probe.take() else { return };
        match why {
            ProbeFailure::Lost => search.next_at = now + interval,
            ProbeFailure::TimedOut => search.next_at = now + interval * 5,
            ProbeFailure::Inconclusive => return,
        }
        search.high = probe.mtu - 1;
        self.check_converged(now);
    }

    fn check_converged(&mut self, now: Instant) {
        if let Some(search) = self.search.as_mut().filter(|it| it.high < it.low + CONVERGED) {
            (search.high, search.next_at) = (u32::MAX, now + RAISE_AFTER);
        }
    }
}

/// Full segments that must be able to follow a probe, so that its loss is noticed at once (RFC 4821 §7.4).
const FOLLOWERS: u64 = 3;

impl Sender {
    /// Bytes of the probe that is to be sent next, if the conditions for one are met (RFC 4821 §7.4); `options` as for a plan.
    #[inline]
    pub fn due_size_probe(&self, now: Instant, options: u16) -> Option<u64> {
        let probe = self.size.due_probe(now)?;
        let is_quiet = self.recovery.phase() == RecoveryPhase::Open
            && self.queue.sacked() == 0
            && self.queue.lost() == 0
            && self.options.sack;
        let len = u64::from(probe.saturating_sub(options));
        let needed = len + FOLLOWERS * u64::from(self.size.payload());
        let waiting = self.record_stop().saturating_since(self.nxt);
        let window = self.window.end().saturating_since(self.nxt);
        let cwnd = self.congestion.window.cwnd;
        (is_quiet && waiting.min(window).min(cwnd) >= needed).then_some(len)
    }

    /// A probe of `len` bytes, once there is room for it: what is in flight drains until then, as RFC 4821 §7.4 permits.
    pub fn plan_size_probe(&mut self, now: Instant, len: u64) -> Option<SegmentPlan> {
        let flight = self.flight();
        if flight + len > self.congestion.window.cwnd || self.is_paced_out(now) {
            self.congestion.on_sent(now, self.una, self.nxt, flight, true);
            return None;
        }
        let (seq, end) = (self.nxt, self.nxt + len);
        self.size.on_probe_sent(seq, end);
        self.counts.size_probes += 1;
        let size = u16::try_from(len).expect("a segment");
        Some(SegmentPlan { seq, end, size, is_retransmission: false })
    }

    /// After what an acknowledgement delivered has been noted: whether the probe was among it.
    pub fn settle_size_probe(&mut self, now: Instant) {
        let Some(probe) = self.size.probe() else { return };
        let is_sacked = || {
            let entry = self.queue.get(self.queue.position(probe.seq));
            entry.is_some_and(|entry| entry.is_sacked)
        };
        if self.una >= probe.end || is_sacked() {
            self.size.on_probe_delivered(now);
            self.congestion.window.mss = self.size.payload().into();
        }
    }

    /// After losses have been looked for: whether the probe is among them.
    pub fn check_size_probe(&mut self, now: Instant, by_timeout: bool) {
        let Some(probe) = self.size.probe() else { return };
        let entry = self.queue.get(self.queue.position(probe.seq));
        let Some(lost) = entry.filter(|entry| entry.is_lost) else { return };
        let why = if by_timeout {
            ProbeFailure::TimedOut
        } else if self.recovery.phase() == RecoveryPhase::Recovery || self.queue.lost() > lost.len()
        {
            ProbeFailure::Inconclusive
        } else {
            ProbeFailure::Lost
        };
        self.counts.size_probes_lost += 1;
        // A lost probe is retransmitted at once even where no recovery began.
        self.recovery.force |= why == ProbeFailure::Lost;
        // RFC 4821 §7.6.2: as many round trips as the window has segments.
        let segments = self.congestion.window.cwnd / u64::from(self.congestion.window.mss);
        let interval = self.rtt.srtt().unwrap_or_default() * segments.max(1);
        self.size.on_probe_failed(now, why, interval);
    }
}

impl RecoveryContext<'_> {
    /// Whether the probe is all that is lost, `newly` bytes that were found to be so just now: that is no sign of congestion
    /// (RFC 4821 §7.6.2).
    pub fn is_size_probe(&self, newly: u64) -> bool {
        let Some(seq) = self.size_probe else { return false };
        let probe = self.queue.get(self.queue.position(seq));
        probe.is_some_and(|probe| {
            probe.is_lost && probe.len() == newly && newly == self.queue.lost()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::after_origin(Span::from_secs(1));
    const FIRST: SeqNum = SeqNum::initial(1);

    #[test]
    fn segments_shrink_when_full_ones_vanish() {
        let mut size = SegmentSize::new(1_500, false, 1_460, 12);
        assert_eq!(size.payload(), 1_448);
        assert!(!size.on_timeout(NOW, 100, 576), "a small segment proves nothing");
        let shrunk: Vec<bool> = (0..4).map(|_| size.on_timeout(NOW, 1_448, 576)).collect();
        assert_eq!(shrunk, [false, false, true, true]);
        assert_eq!(size.mtu(), 1_280);
        assert!(!size.on_timeout(NOW, 500, 576), "smaller ones were lost before");
    }

    /// Probes until nothing is due, over a path of `real` bytes; the sizes tried.
    fn search(size: &mut SegmentSize, now: &mut Instant, real: u32) -> Vec<u16> {
        let mut tried = Vec::new();
        while let Some(payload) = size.due_probe(*now) {
            tried.push(payload + 52);
            size.on_probe_sent(FIRST, FIRST + u64::from(payload));
            assert_eq!(size.due_probe(*now), None, "one at a time");
            if u32::from(payload) + 52 <= real {
                size.on_probe_delivered(*now);
            } else {
                size.on_probe_failed(*now, ProbeFailure::Lost, Span::from_secs(2));
                assert_eq!(size.due_probe(*now), None, "RFC 4821 §7.6.2");
                *now += Span::from_secs(2);
            }
        }
        tried
    }

    #[test]
    fn search_halves_what_is_left_and_begins_anew_after_ten_minutes() {
        let mut size = SegmentSize::new(1_500, false, 1_460, 12);
        size.on_path_mtu(1_280, true);
        assert_eq!(size.due_probe(NOW), None, "the path is known");
        size.on_path_mtu(1_500, true);
        assert_eq!(size.mtu(), 1_280, "not before a probe arrived");
        let mut now = NOW;
        assert_eq!(search(&mut size, &mut now, 1_400), [1_500, 1_390, 1_445, 1_417, 1_403, 1_396]);
        assert_eq!((size.mtu(), size.payload()), (1_396, 1_344));
        assert_eq!(size.due_probe(now + Span::from_secs(590)), None);
        now += Span::from_secs(600);
        assert_eq!(search(&mut size, &mut now, 1_500), [1_500]);
        assert_eq!(size.payload(), 1_448);
        assert_eq!(size.due_probe(now + Span::from_secs(600)), None, "nothing is left to gain");
    }

    #[test]
    fn only_a_probe_lost_alone_says_that_it_was_too_large() {
        let mut size = SegmentSize::new(9_000, false, 8_960, 12);
        for _ in 0..BLACK_HOLE_TIMEOUTS {
            size.on_timeout(NOW, 8_948, 576);
        }
        let interval = Span::from_secs(2);
        for (why, wait, next) in [
            (ProbeFailure::Inconclusive, 0, 9_000),
            (ProbeFailure::Lost, 2, 6_676),
            (ProbeFailure::TimedOut, 10, 5_514),
        ] {
            let due = size.due_probe(NOW + Span::from_secs(100)).unwrap();
            size.on_probe_sent(FIRST, FIRST + u64::from(due));
            size.on_probe_failed(NOW, why, interval);
            assert_eq!(size.due_probe(NOW).is_some(), wait == 0, "{why:?}");
            let due = size.due_probe(NOW + Span::from_secs(wait)).unwrap();
            assert_eq!(due + 52, next, "{why:?}");
        }
    }

    // MUST-16.
    #[test]
    fn peer_bounds_the_size_without_options() {
        assert_eq!(SegmentSize::new(9_000, false, 1_460, 12).payload(), 1_448);
        assert_eq!(SegmentSize::new(1_500, true, 9_000, 0).payload(), 1_440);
    }
}
