//! What all of a test may cost its agent: both directions, every part, and the time until its report.
//!
//! Pure. What a part cannot do at another rate (datagrams and probes) is taken off first; parts that go as fast as they
//! are let share what is left. Left out: keeping to it, which is the parts' own.

use crate::measure::probe::datagram_bytes;
use crate::measure::test_spec::{MtuSearchSpec, PartSpec, ProbesSpec, TestSpec};
use plumb_remote::message::TaskRefusal;
use plumb_remote::service::AgentLimits;

const SECOND_NS: u64 = 1_000_000_000;
/// How long a test may drain beyond the longest that it may last.
const DRAIN_MAX_S: u64 = 60;

/// Whether a test is within the limits, and the most that each part which goes as fast as it is let may send or
/// have taken each way, in bytes a second; none is no limit.
pub(super) fn admit_test(
    spec: &TestSpec,
    limits: &AgentLimits,
) -> Result<Option<u64>, TaskRefusal> {
    let longest_s = limits.duration_max.as_ns() / SECOND_NS;
    check_limit("a length in seconds", spec.planned_ns().div_ceil(SECOND_NS), longest_s)?;
    let drained_s = spec.planned_ns().saturating_add(spec.drain_ns).div_ceil(SECOND_NS);
    let drained_s_max = longest_s.saturating_add(DRAIN_MAX_S);
    check_limit("a length with its drain in seconds", drained_s, drained_s_max)?;
    let (mut streams, mut probes) = (0, 0);
    for part in &spec.parts {
        match part {
            PartSpec::Streams(part) => streams += u64::from(part.streams),
            PartSpec::Probes(part) => probes += u64::from(part.per_second),
            PartSpec::Mtu(_) => probes += u64::from(MtuSearchSpec::PER_SECOND_MAX),
            PartSpec::Exchange(_) | PartSpec::Datagrams(_) => {}
        }
    }
    check_limit("a number of streams", streams, u64::from(limits.streams_max))?;
    check_limit("a number of probes a second", probes, u64::from(limits.probes_max))?;
    let Some(rate_max) = limits.rate_max else { return Ok(None) };
    let mut share = rate_max;
    for is_up in [true, false] {
        let way = DirectionDemand::of(spec, is_up, rate_max);
        let what = "a rate of datagrams and probes in bits a second";
        check_limit(what, way.requested().saturating_mul(8), rate_max.saturating_mul(8))?;
        share = share.min(way.share(rate_max));
    }
    Ok(Some(share))
}

fn check_limit(what: &str, asked: u64, allowed: u64) -> Result<(), TaskRefusal> {
    if asked <= allowed {
        return Ok(());
    }
    Err(TaskRefusal::Limit { what: what.to_owned(), asked, allowed })
}

/// What a test does in one direction.
struct DirectionDemand {
    /// Bytes a second of datagrams, which have one rate only.
    datagrams: u64,
    /// The same of probes.
    probes: u64,
    /// Bytes a second that streams beside datagrams ask for, as these would not have what was asked otherwise.
    streams: u64,
    /// Parts that take what they are let.
    elastic: u64,
}

impl DirectionDemand {
    fn of(spec: &TestSpec, is_up: bool, rate_max: u64) -> Self {
        let mut way = Self { datagrams: 0, probes: 0, streams: 0, elastic: 0 };
        for part in &spec.parts {
            match part {
                PartSpec::Datagrams(datagrams) if datagrams.is_up == is_up => {
                    way.datagrams = way.datagrams.saturating_add(datagrams.bytes_per_second());
                }
                PartSpec::Probes(probes) => {
                    way.probes = way.probes.saturating_add(bytes_per_second(probes));
                }
                PartSpec::Streams(streams)
                    if (0..streams.connections()).any(|n| streams.client_sends(n) == is_up) =>
                {
                    let asked = streams.rate_bytes_per_second.map_or(rate_max, |r| r.min(rate_max));
                    way.streams = way.streams.saturating_add(asked);
                    way.elastic += 1;
                }
                // The answers to a search are smaller than its probes.
                PartSpec::Exchange(_) | PartSpec::Mtu(_) => way.elastic += 1,
                PartSpec::Datagrams(_) | PartSpec::Streams(_) => {}
            }
        }
        way
    }

    /// Bytes a second that have to be allowed for the test to be what was asked.
    fn requested(&self) -> u64 {
        let streams = if self.datagrams > 0 { self.streams } else { 0 };
        let paced = self.datagrams.saturating_add(self.probes).saturating_add(streams);
        // Elastic traffic needs a share of at least one.
        paced.saturating_add(u64::from(self.elastic > 0 && streams == 0))
    }

    /// What is left for each part that takes what it is let; all, where there is none.
    fn share(&self, rate_max: u64) -> u64 {
        if self.elastic == 0 {
            return rate_max;
        }
        let paced = self.datagrams.saturating_add(self.probes);
        (rate_max.saturating_sub(paced) / self.elastic).max(1)
    }
}

/// Of probes as they are sent, each way.
fn bytes_per_second(probes: &ProbesSpec) -> u64 {
    (datagram_bytes(probes) as u64).saturating_mul(u64::from(probes.per_second))
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Span;

    use super::*;
    use crate::measure::test_spec::{BulkTcpSpec, DatagramsSpec, TransferDirection};

    fn limits(rate_max: u64) -> AgentLimits {
        AgentLimits { rate_max: Some(rate_max), ..AgentLimits::default() }
    }

    fn spec(parts: Vec<PartSpec>) -> TestSpec {
        let second = SECOND_NS;
        TestSpec {
            warm_up_ns: 0,
            duration_ns: second,
            interval_ns: second,
            drain_ns: second,
            parts,
        }
    }

    fn streams(direction: TransferDirection, streams: u16) -> PartSpec {
        PartSpec::Streams(BulkTcpSpec { streams, ..BulkTcpSpec::one(direction) })
    }

    fn probes(per_second: u32, datagram_bytes: u16) -> PartSpec {
        PartSpec::Probes(ProbesSpec { per_second, datagram_bytes })
    }

    fn refusal(parts: Vec<PartSpec>, limits: &AgentLimits) -> String {
        admit_test(&spec(parts), limits).expect_err("beyond the limits").to_string()
    }

    #[test]
    fn probes_count_towards_the_rate_by_the_bytes_that_are_sent() {
        let told = refusal(vec![probes(2_000, 9_000)], &limits(125_000));
        assert!(told.contains("1000000 at most, and 144000000 was asked for"), "{told}");
        // The shortest are longer than none.
        refusal(vec![probes(10_000, 0)], &limits(125_000));
        assert_eq!(
            admit_test(&spec(vec![probes(1_000, 100)]), &limits(100_000)),
            Ok(Some(100_000))
        );
        refusal(vec![probes(1_000, 100); 2], &limits(100_000));
    }

    #[test]
    fn parts_share_what_probes_and_datagrams_leave_of_a_direction() {
        let share = |parts: Vec<PartSpec>| admit_test(&spec(parts), &limits(1_000_000));
        assert_eq!(share(vec![streams(TransferDirection::Up, 4); 8]), Ok(Some(125_000)));
        let both = vec![streams(TransferDirection::Up, 1), streams(TransferDirection::Down, 1)];
        assert_eq!(share(both), Ok(Some(1_000_000)));
        let probed = vec![streams(TransferDirection::Both, 1), probes(1_000, 200)];
        assert_eq!(share(probed), Ok(Some(800_000)));
        let full = vec![streams(TransferDirection::Both, 1), probes(5_000, 200)];
        assert!(share(full).is_err(), "nothing is left for the streams");
        let datagrams =
            DatagramsSpec { is_up: true, rate_bits_per_second: 800_000, datagram_bytes: 100 };
        let beside = vec![PartSpec::Datagrams(datagrams), streams(TransferDirection::Down, 1)];
        assert_eq!(share(beside), Ok(Some(1_000_000)), "they go the other way");
        let datagrams = || {
            let (rate_bits_per_second, datagram_bytes) = (5_000_000, 100);
            let part = DatagramsSpec { is_up: true, rate_bits_per_second, datagram_bytes };
            PartSpec::Datagrams(part)
        };
        let told = refusal(vec![datagrams(), datagrams()], &limits(1_000_000));
        assert!(told.contains("8000000 at most, and 10000000 was asked for"), "{told}");
        let beside = vec![streams(TransferDirection::Both, 1), datagrams()];
        assert!(share(beside).is_err(), "what streams may send counts as well");
        let unlimited = admit_test(&spec(vec![probes(9_000, 9_000)]), &AgentLimits::default());
        assert_eq!(unlimited, Ok(None));
    }

    #[test]
    fn streams_and_probes_count_over_all_parts() {
        let limits = AgentLimits { streams_max: 5, probes_max: 1_000, ..AgentLimits::default() };
        let told = refusal(
            vec![streams(TransferDirection::Up, 3), streams(TransferDirection::Down, 3)],
            &limits,
        );
        assert!(told.contains("streams of 5 at most, and 6"), "{told}");
        let told = refusal(vec![probes(600, 64); 2], &limits);
        assert!(told.contains("1000 at most, and 1200"), "{told}");
    }

    #[test]
    fn a_search_for_the_longest_packet_counts_as_probes_and_shares_the_rate() {
        let search = || PartSpec::Mtu(MtuSearchSpec { patience_ns: SECOND_NS });
        let few = AgentLimits { probes_max: MtuSearchSpec::PER_SECOND_MAX, ..limits(1_000_000) };
        assert_eq!(admit_test(&spec(vec![search()]), &few), Ok(Some(1_000_000)));
        let told = refusal(vec![search(), probes(1, 64)], &few);
        assert!(told.contains("probes a second of 200 at most, and 201"), "{told}");
        let beside = vec![search(), streams(TransferDirection::Up, 1), probes(1_000, 200)];
        assert_eq!(admit_test(&spec(beside), &limits(1_000_000)), Ok(Some(400_000)));
        let short =
            AgentLimits { duration_max: Span::from_ns(SECOND_NS / 2), ..AgentLimits::default() };
        let told = refusal(vec![search()], &short);
        assert!(told.contains("length in seconds"), "{told}");
    }

    #[test]
    fn a_test_may_not_drain_for_as_long_as_it_likes() {
        let limits = AgentLimits { duration_max: Span::from_secs(2), ..AgentLimits::default() };
        let mut spec = spec(vec![probes(1, 64)]);
        assert_eq!(admit_test(&spec, &limits), Ok(None));
        spec.drain_ns = 3_600 * SECOND_NS;
        let told = admit_test(&spec, &limits).expect_err("an hour").to_string();
        assert!(told.contains("62 at most, and 3601"), "{told}");
    }
}
