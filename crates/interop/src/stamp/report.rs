//! What came of a STAMP session: round trips, both ways apart, and in which direction was lost.

use plumb_base::stats::quantile;
use serde::{Deserialize, Serialize};

use super::packet::StampAnswer;
use super::timestamp::{ErrorEstimate, TimestampFormat};
use super::tlv::TlvFlagCounts;
use plumb_net::measure::clock_offset::{
    self, ClockOffsetEstimate, ClockRelation, OneWayDelay, TimestampExchange,
};
use plumb_net::measure::datagram::sequence_tracker::SequenceCounts;

/// One question that was answered.
#[derive(Clone, Copy, Debug)]
pub struct StampReply {
    /// What came back.
    pub answer: StampAnswer,
    /// T1 and T4 by the real-time clock of this side, in nanoseconds since 1970.
    pub sent_unix_ns: u64,
    /// T4.
    pub received_unix_ns: u64,
    /// T4 less T1 by a clock that is never set.
    pub elapsed_ns: u64,
    /// The answer's time to live or hop limit.
    pub ttl: Option<u8>,
}

/// A few figures of many times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StampDelaySummary {
    /// The least.
    pub min_ns: f64,
    /// Half are no greater.
    pub p50_ns: f64,
    /// Nine in ten.
    pub p90_ns: f64,
    /// Ninety-nine in a hundred.
    pub p99_ns: f64,
    /// The greatest.
    pub max_ns: f64,
}

impl StampDelaySummary {
    /// Of times; `None` without any.
    pub fn of(times_ns: &[f64]) -> Option<Self> {
        let sorted = quantile::sorted(times_ns);
        if sorted.is_empty() {
            return None;
        }
        let of = |p: f64| quantile::of_sorted(&sorted, p);
        Some(Self {
            min_ns: of(0.0),
            p50_ns: of(0.5),
            p90_ns: of(0.9),
            p99_ns: of(0.99),
            max_ns: of(1.0),
        })
    }
}

/// What a reflector's numbers tell about where questions without an answer were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "known")]
pub enum StampLossDirection {
    /// Nothing was lost.
    NothingLost,
    /// The reflector numbers its answers.
    Told {
        /// Questions that did not arrive.
        forward: u64,
        /// Answers that did not.
        backward: u64,
        /// Those after the last answer, of which nothing is known.
        unknown: u64,
    },
    /// It copies the questions' numbers, or all were lost on the way back, which look the same.
    NotTold,
}

/// What came of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StampReport {
    /// Questions asked.
    pub sent: u64,
    /// Answered, lost, late and answered twice.
    pub tally: SequenceCounts,
    /// Where the lost ones were lost.
    pub lost_where: StampLossDirection,
    /// Answers not sealed with the key.
    pub unsealed: u64,
    /// Datagrams that were no answer of this session.
    pub foreign: u64,
    /// Answers without a session, as of a reflector that knows none (RFC 8762; RFC 8972 §3).
    pub sessionless: u64,
    /// Round trips without the reflector's stay.
    pub round_trip: Option<StampDelaySummary>,
    /// How long the reflector kept each.
    pub dwell: Option<StampDelaySummary>,
    /// The ways there.
    pub forward: Option<OneWayDelay>,
    /// The ways back.
    pub backward: Option<OneWayDelay>,
    /// The reflector's clock against this one.
    pub clock: Option<ClockOffsetEstimate>,
    /// Whether the reflector says that its clock is synchronised.
    pub reflector_synchronised: Option<bool>,
    /// The error of its clock that it states.
    pub reflector_error_ns: Option<f64>,
    /// How it writes times.
    pub reflector_format: Option<TimestampFormat>,
    /// Whether this side's clock is synchronised.
    pub sender_synchronised: bool,
    /// The error of it that the kernel states.
    pub sender_error_ns: f64,
    /// What was left of 255 hops when a question arrived.
    pub ttl_forward: Option<u8>,
    /// What was left of the answer's hops.
    pub ttl_backward: Option<u8>,
    /// TLVs that the reflector did not take.
    pub flagged_tlvs: TlvFlagCounts,
    /// Whether it was told to stop before all were asked.
    pub cut_short: bool,
}

impl StampReport {
    /// From what came; the counts that are not told by the replies are the caller's.
    pub fn new(
        sent: u64,
        tally: SequenceCounts,
        replies: &[StampReply],
        here: ErrorEstimate,
    ) -> Self {
        let exchanges: Vec<TimestampExchange> = replies.iter().map(exchange).collect();
        let dwells: Vec<f64> = exchanges
            .iter()
            .map(|e| e.far_sent_ns.wrapping_sub(e.far_received_ns).cast_signed() as f64)
            .collect();
        let trips: Vec<f64> = replies
            .iter()
            .zip(&dwells)
            .map(|(reply, dwell)| reply.elapsed_ns as f64 - dwell)
            .collect();
        let clock = ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart);
        let ways = clock.as_ref().and_then(|clock| clock_offset::one_way(clock, &exchanges));
        let far = replies.last().map(|reply| ErrorEstimate::read(reply.answer.error));
        Self {
            sent,
            lost_where: direction(sent, &tally, replies),
            tally,
            unsealed: 0,
            foreign: 0,
            sessionless: 0,
            round_trip: StampDelaySummary::of(&trips),
            dwell: StampDelaySummary::of(&dwells),
            forward: ways.map(|ways| ways.0),
            backward: ways.map(|ways| ways.1),
            clock,
            reflector_synchronised: far.map(|far| far.synchronised),
            reflector_error_ns: far.map(ErrorEstimate::ns),
            reflector_format: far.map(|far| far.format),
            sender_synchronised: here.synchronised,
            sender_error_ns: here.ns(),
            ttl_forward: replies.last().map(|reply| reply.answer.ttl).filter(|&ttl| ttl > 0),
            ttl_backward: replies.last().and_then(|reply| reply.ttl),
            flagged_tlvs: TlvFlagCounts::default(),
            cut_short: false,
        }
    }
}

fn exchange(reply: &StampReply) -> TimestampExchange {
    let format = ErrorEstimate::read(reply.answer.error).format;
    TimestampExchange {
        sent_ns: reply.sent_unix_ns,
        far_received_ns: format.read(reply.answer.received),
        far_sent_ns: format.read(reply.answer.time),
        received_ns: reply.received_unix_ns,
    }
}

/// By the greatest number that came back: so many questions had arrived by then, of those asked by then.
fn direction(sent: u64, tally: &SequenceCounts, replies: &[StampReply]) -> StampLossDirection {
    if tally.lost == 0 {
        return StampLossDirection::NothingLost;
    }
    let differs = |reply: &StampReply| reply.answer.sequence != reply.answer.sender.sequence;
    if !replies.iter().any(differs) {
        return StampLossDirection::NotTold;
    }
    let greatest = replies.iter().map(|reply| reply.answer.sender.sequence).max();
    let asked = greatest.map_or(0, |number| u64::from(number) + 1);
    let answers = replies.iter().map(|reply| u64::from(reply.answer.sequence) + 1).max();
    let unknown = sent.saturating_sub(asked);
    let forward =
        asked.saturating_sub(answers.unwrap_or(0)).min(tally.lost.saturating_sub(unknown));
    StampLossDirection::Told {
        forward,
        backward: tally.lost.saturating_sub(unknown + forward),
        unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::StampQuestion;
    use super::*;

    fn reply(number: u32, answered: u32) -> StampReply {
        let sent = 1_000_000_000_000 + u64::from(number) * 1_000_000;
        let error = ErrorEstimate::of(true, TimestampFormat::Ptp, 1000).write();
        let question = StampQuestion { sequence: number, time: 0, error, session: 0 };
        // The far clock is 5 s ahead; 3 ms there, 1 ms kept, 2 ms back.
        let far = sent + 5_000_000_000;
        StampReply {
            answer: StampAnswer {
                sequence: answered,
                time: TimestampFormat::Ptp.write(far + 4_000_000),
                error,
                received: TimestampFormat::Ptp.write(far + 3_000_000),
                sender: question,
                ttl: 60,
            },
            sent_unix_ns: sent,
            received_unix_ns: sent + 6_000_000,
            elapsed_ns: 6_000_000,
            ttl: Some(61),
        }
    }

    fn tally(lost: u64) -> SequenceCounts {
        SequenceCounts { lost, ..SequenceCounts::default() }
    }

    #[test]
    fn a_round_trip_is_without_the_stay_and_its_halves_have_a_bound() {
        let replies: Vec<StampReply> = (0..10).map(|number| reply(number, number)).collect();
        let here = ErrorEstimate::of(false, TimestampFormat::Ntp, 0);
        let report = StampReport::new(10, tally(0), &replies, here);
        assert!((report.round_trip.unwrap().p50_ns - 5e6).abs() < 1.0);
        assert!((report.dwell.unwrap().p50_ns - 1e6).abs() < 1.0);
        let (there, back) = (report.forward.unwrap(), report.backward.unwrap());
        // 3 ms and 2 ms, told apart only by clocks that agree: each half of 5 ms, give or take as much.
        assert!((there.least_ns - 2.5e6).abs() < 10.0 && (back.least_ns - 2.5e6).abs() < 10.0);
        // A little more, as ten of them leave the drift open.
        assert!((2.499e6..2.52e6).contains(&there.bound_ns), "{there:?}");
        assert_eq!(report.lost_where, StampLossDirection::NothingLost);
        assert_eq!((report.ttl_forward, report.ttl_backward), (Some(60), Some(61)));
    }

    #[test]
    fn a_reflector_that_numbers_its_answers_tells_where_the_others_went() {
        // Ten asked: 2 and 3 never arrived, the answer to 5 was lost, and nothing is known of 9.
        let replies = [(0, 0), (1, 1), (4, 2), (6, 4), (7, 5), (8, 6)].map(|(q, a)| reply(q, a));
        let told = StampLossDirection::Told { forward: 2, backward: 1, unknown: 1 };
        assert_eq!(direction(10, &tally(4), &replies), told);
        let copied = [(0, 0), (4, 4)].map(|(q, a)| reply(q, a));
        assert_eq!(direction(5, &tally(3), &copied), StampLossDirection::NotTold);
    }
}
