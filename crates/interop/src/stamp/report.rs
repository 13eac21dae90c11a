//! The result of a STAMP session: round trips, both ways apart, and in which direction packets were lost.

use plumb_net::measure::clock_offset::{
    self, ClockOffsetEstimate, ClockRelation, TimestampExchange,
};
use plumb_net::measure::datagram::sequence_tracker::SequenceCounts;
use plumb_result::stamp::{ClockStep, StampClock, StampDistribution, StampSession};

use super::packet::{ErrorEstimate, StampAnswer};

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

/// A session by what came; what the replies do not tell is counted already.
pub(super) fn summarize(
    counted: &StampSession,
    sent: u64,
    tally: &SequenceCounts,
    replies: &[StampReply],
    here: ErrorEstimate,
) -> StampSession {
    let exchanges: Vec<TimestampExchange> = replies.iter().map(exchange).collect();
    let dwells: Vec<f64> = exchanges
        .iter()
        .map(|e| e.far_sent_ns.wrapping_sub(e.far_received_ns).cast_signed() as f64)
        .collect();
    let trips: Vec<f64> =
        replies.iter().zip(&dwells).map(|(reply, dwell)| reply.elapsed_ns as f64 - dwell).collect();
    let clock = ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart);
    let ways = clock.as_ref().and_then(|clock| clock_offset::one_way(clock, &exchanges));
    let far = replies.last().map(|reply| ErrorEstimate::read(reply.answer.error));
    let losses = losses(sent, tally, replies);
    StampSession {
        sent,
        answered: tally.unique,
        lost: tally.lost,
        lost_forward: losses.map(|losses| losses.forward),
        lost_backward: losses.map(|losses| losses.backward),
        lost_last: losses.map(|losses| losses.last),
        duplicates: tally.duplicates,
        reordered: tally.reordered,
        round_trip: StampDistribution::of(&trips),
        dwell: StampDistribution::of(&dwells),
        forward: ways.map(|ways| ways.0),
        backward: ways.map(|ways| ways.1),
        clock: clock.as_ref().map(clock_summary),
        reflector_synchronised: far.map(|far| far.synchronised),
        reflector_error_ns: far.map(ErrorEstimate::ns),
        reflector_format: far.map(|far| far.format),
        sender_synchronised: here.synchronised,
        sender_error_ns: here.ns(),
        ttl_forward: replies.last().map(|reply| reply.answer.ttl).filter(|&ttl| ttl > 0),
        ttl_backward: replies.last().and_then(|reply| reply.ttl),
        ..*counted
    }
}

fn clock_summary(estimate: &ClockOffsetEstimate) -> StampClock {
    let first = &estimate.segments[0];
    let since = |moment: u64| moment.saturating_sub(first.from_ns);
    let step = |step: &ClockStep| ClockStep {
        after_ns: since(step.after_ns),
        before_ns: since(step.before_ns),
        ..*step
    };
    StampClock {
        offset_ns: first.offset_ns,
        bound_ns: estimate.bound_ns(),
        drift_ppm: first.drift_ppm,
        drift_ppm_min: first.drift_ppm_min,
        drift_ppm_max: first.drift_ppm_max,
        steps: estimate.steps.iter().map(step).collect(),
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

/// Where questions without an answer were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StampLosses {
    /// Questions that did not arrive.
    forward: u64,
    /// Answers that did not.
    backward: u64,
    /// Those after the last answer, of which nothing is known.
    last: u64,
}

/// By the greatest number that came back: so many questions had arrived by then, of those asked by then. `None` where
/// the reflector copies the questions' numbers, or all were lost on the way back, which look the same.
fn losses(sent: u64, tally: &SequenceCounts, replies: &[StampReply]) -> Option<StampLosses> {
    if tally.lost == 0 {
        return Some(StampLosses::default());
    }
    let differs = |reply: &StampReply| reply.answer.sequence != reply.answer.sender.sequence;
    if !replies.iter().any(differs) {
        return None;
    }
    let greatest = replies.iter().map(|reply| reply.answer.sender.sequence).max();
    let asked = greatest.map_or(0, |number| u64::from(number) + 1);
    let answers = replies.iter().map(|reply| u64::from(reply.answer.sequence) + 1).max();
    let last = sent.saturating_sub(asked);
    let forward = asked.saturating_sub(answers.unwrap_or(0)).min(tally.lost.saturating_sub(last));
    Some(StampLosses { forward, backward: tally.lost.saturating_sub(last + forward), last })
}

#[cfg(test)]
mod tests {
    use plumb_result::stamp::TimestampFormat;

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
        let report = summarize(&StampSession::default(), 10, &tally(0), &replies, here);
        assert!((report.round_trip.unwrap().p50_ns - 5e6).abs() < 1.0);
        assert!((report.dwell.unwrap().p50_ns - 1e6).abs() < 1.0);
        let (there, back) = (report.forward.unwrap(), report.backward.unwrap());
        // 3 ms and 2 ms, told apart only by clocks that agree: each half of 5 ms, give or take as much.
        assert!((there.least_ns - 2.5e6).abs() < 10.0 && (back.least_ns - 2.5e6).abs() < 10.0);
        // A little more, as ten of them leave the drift open.
        assert!((2.499e6..2.52e6).contains(&there.bound_ns), "{there:?}");
        assert_eq!(
            (report.lost_forward, report.lost_backward, report.lost_last),
            (Some(0), Some(0), Some(0))
        );
        assert_eq!((report.ttl_forward, report.ttl_backward), (Some(60), Some(61)));
    }

    #[test]
    fn a_reflector_that_numbers_its_answers_tells_where_the_others_went() {
        // Ten asked: 2 and 3 never arrived, the answer to 5 was lost, and nothing is known about 9.
        let replies = [(0, 0), (1, 1), (4, 2), (6, 4), (7, 5), (8, 6)].map(|(q, a)| reply(q, a));
        let told = StampLosses { forward: 2, backward: 1, last: 1 };
        assert_eq!(losses(10, &tally(4), &replies), Some(told));
        let copied = [(0, 0), (4, 4)].map(|(q, a)| reply(q, a));
        assert_eq!(losses(5, &tally(3), &copied), None);
    }
}
