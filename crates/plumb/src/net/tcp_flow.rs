//! Bulk TCP in one direction: from the two sides' reports to what the document says about it.
//!
//! The receiver's count is the rate; where its report was lost, the sender's acknowledged bytes stand in and are
//! marked. What ended before the time that counts has no rate, but keeps its totals. What a byte cost is the time of the
//! threads of this direction only.

use plumb_net::measure::progress::SenderLimitedTime;
use plumb_net::measure::report::{StreamReport, StreamSample, TestPartReport, TestReport};
use plumb_net::measure::test_spec::{PartSpec, TestSpec};
use plumb_result::net::{CountedBy, Direction, NetBulkFlow, NetEnding, NetPhase, ThreadPlacement};

use crate::net::counted_time::{CountedTime, each, intervals, seconds};

/// For how long nothing came through where a path is held to be cut.
const CUT_SECONDS: f64 = 1.0;

/// The directions of a test.
pub(super) fn summarize(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
) -> Vec<NetBulkFlow> {
    let streams = spec.parts.iter().find_map(|part| match part {
        PartSpec::Streams(streams) => Some(streams),
        _ => None,
    });
    let Some(streams) = streams else { return Vec::new() };
    let directions = streams.direction.each();
    let flow = |&direction: &Direction| {
        let end = |report| FlowEnd::of(report, spec, direction);
        let (here, there) = (end(here), there.and_then(end));
        let mut flow = match direction {
            Direction::Up => flow(direction, here, there),
            Direction::Down => flow(direction, there, here),
        };
        flow.window_bytes = streams.window_bytes.map(u64::from);
        if directions.len() > 1 {
            // Whose softirqs they were nobody knows.
            flow.costs.sender_softirq_ns_per_byte = None;
            flow.costs.receiver_softirq_ns_per_byte = None;
        }
        flow
    };
    directions.iter().map(flow).collect()
}

/// One end of the connections of a direction.
struct FlowEnd<'a> {
    report: &'a TestReport,
    streams: Vec<&'a StreamReport>,
    counted: Option<CountedTime<'a>>,
}

/// What a connection had carried at a reading.
type Count = fn(&StreamSample) -> u64;

fn count_at(stream: &StreamReport, at: usize, count: Count) -> u64 {
    stream.samples.get(at).map_or(0, count)
}

impl<'a> FlowEnd<'a> {
    fn of(report: &'a TestReport, spec: &TestSpec, direction: Direction) -> Option<Self> {
        let streams: Vec<_> = report
            .parts
            .iter()
            .flat_map(|part| match part {
                TestPartReport::Streams(streams) => streams.streams.as_slice(),
                _ => &[],
            })
            .filter(|stream| Direction::of(stream.is_up) == direction)
            .collect();
        let counted = CountedTime::of(report, spec);
        (!streams.is_empty()).then_some(Self { report, streams, counted })
    }

    /// By how much something of one connection grew in the time that counts.
    fn stream_growth(&self, stream: &StreamReport, count: Count) -> u64 {
        self.counted.map_or(0, |time| {
            count_at(stream, time.to, count).saturating_sub(count_at(stream, time.from, count))
        })
    }

    fn growth(&self, count: Count) -> u64 {
        self.streams.iter().map(|stream| self.stream_growth(stream, count)).sum()
    }

    /// Time of the connections' own threads for each byte.
    fn cpu_ns_per_byte(&self, bytes: u64) -> Option<f64> {
        each(self.growth(|sample| sample.cpu_ns), bytes).filter(|&cost| cost > 0.0)
    }

    /// Time of the whole host in softirqs for each byte.
    fn softirq_ns_per_byte(&self, bytes: u64) -> Option<f64> {
        each(self.counted?.used().host_softirq_ns, bytes)
    }

    fn placements(&self) -> Vec<ThreadPlacement> {
        self.streams.iter().map(|stream| stream.placement.clone()).collect()
    }

    fn bytes_total(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes_total).sum()
    }
}

fn flow(
    direction: Direction,
    sender: Option<FlowEnd<'_>>,
    receiver: Option<FlowEnd<'_>>,
) -> NetBulkFlow {
    let mut flow =
        NetBulkFlow { direction, counted_by: CountedBy::Nobody, ..NetBulkFlow::default() };
    let (counted_by, count): (_, Count) = match &receiver {
        Some(_) => (CountedBy::Receiver, |sample| sample.bytes),
        None => (CountedBy::Sender, |sample| sample.tcp.acked_bytes),
    };
    if let Some(end) = receiver.as_ref().or(sender.as_ref()) {
        flow.streams = u32::try_from(end.streams.len()).unwrap_or(u32::MAX);
        flow.intervals = intervals(end.report, end.counted, |at| {
            Some(end.streams.iter().map(|stream| count_at(stream, at, count)).sum())
        });
        if let Some(time) = end.counted {
            flow.counted_by = counted_by;
            flow.seconds = seconds(time.ns());
            flow.bytes = end.growth(count);
            flow.bytes_per_second = flow.bytes as f64 / flow.seconds;
            let rate =
                |stream: &&StreamReport| end.stream_growth(stream, count) as f64 / flow.seconds;
            flow.streams_bytes_per_second = end.streams.iter().map(rate).collect();
        }
    }
    if let Some(receiver) = receiver {
        flow.receive_buffer_bytes =
            receiver.streams.iter().map(|stream| stream.receive_buffer_bytes).min();
        flow.receiver_seats = receiver.placements();
        flow.received_bytes_total = receiver.bytes_total();
        flow.drained = receiver.streams.iter().all(|stream| stream.is_drained);
        flow.costs.receiver_cpu_ns_per_byte = receiver.cpu_ns_per_byte(flow.bytes);
        flow.costs.receiver_softirq_ns_per_byte = receiver.softirq_ns_per_byte(flow.bytes);
    }
    if let Some(sender) = sender {
        flow.send_buffer_bytes = sender.streams.iter().map(|stream| stream.send_buffer_bytes).min();
        flow.sender_seats = sender.placements();
        flow.sent_bytes_total = sender.bytes_total();
        flow.congestion.clone_from(&sender.streams[0].congestion);
        flow.costs.sender_cpu_ns_per_byte = sender.cpu_ns_per_byte(flow.bytes);
        flow.costs.sender_softirq_ns_per_byte = sender.softirq_ns_per_byte(flow.bytes);
        add_tcp_info(&sender, &mut flow);
    }
    flow
}

/// What the sender's kernel says about the connections in the time that counts.
fn add_tcp_info(sender: &FlowEnd<'_>, flow: &mut NetBulkFlow) {
    let Some(time) = sender.counted else { return };
    flow.retransmitted_segments =
        sender.growth(|sample| u64::from(sample.tcp.retransmitted_segments));
    flow.retransmitted_bytes = sender.growth(|sample| sample.tcp.retransmitted_bytes);
    let samples = || {
        let readings = |stream: &&'_ StreamReport| {
            let samples = stream.samples.iter().take(time.to + 1).skip(time.from);
            samples.map(|sample| sample.tcp).collect::<Vec<_>>()
        };
        sender.streams.iter().flat_map(readings)
    };
    flow.mss_bytes = samples().map(|tcp| tcp.mss_bytes).max().unwrap_or(0);
    let least = samples().map(|tcp| tcp.rtt_min_us).filter(|&us| us > 0 && us < u32::MAX).min();
    flow.rtt_min_ns = least.map_or(0.0, |us| f64::from(us) * 1e3);
    let rtts: Vec<f64> =
        samples().filter(|tcp| tcp.rtt_us > 0).map(|tcp| f64::from(tcp.rtt_us) * 1e3).collect();
    if !rtts.is_empty() {
        flow.rtt_mean_ns = rtts.iter().sum::<f64>() / rtts.len() as f64;
    }
    let waits = |at: usize| {
        let mut waits = SenderLimitedTime::default();
        sender.streams.iter().filter_map(|s| s.samples.get(at)).for_each(|s| waits.add(s));
        waits
    };
    flow.waits = waits(time.to).since(&waits(time.from), time.ns());
}

/// What a reader must know before believing the numbers of a direction.
pub(super) fn flag(phase: &NetPhase, flow: &NetBulkFlow) -> Option<String> {
    let (name, direction) = (phase.name, flow.direction);
    match flow.counted_by {
        CountedBy::Receiver if flow.drained || phase.ended != NetEnding::Complete => None,
        CountedBy::Receiver => Some(format!(
            "{name}: some of what was sent had not arrived when the time for draining was over"
        )),
        CountedBy::Sender => Some(format!(
            "{name}: the receiver's count of {direction} is lost; what the sender saw acknowledged stands in \
             for it"
        )),
        CountedBy::Nobody => {
            let totals = match (flow.sent_bytes_total, flow.received_bytes_total) {
                (0, 0) => "nothing is known of what came".to_owned(),
                (sent, 0) => format!("its sender had sent {sent} B"),
                (_, received) => format!("its receiver had taken {received} B"),
            };
            Some(format!(
                "{name}: {direction} ended before the time that counts, so it has no rate; {totals}"
            ))
        }
    }
}

/// Buffers that are not as they were asked for.
pub(super) fn window_flags(phase: &NetPhase, flow: &NetBulkFlow) -> Vec<String> {
    let (name, Some(asked)) = (phase.name, flow.window_bytes) else { return Vec::new() };
    let [sender, receiver] = flow.direction.sides();
    let buffers = [
        ("send", sender, flow.send_buffer_bytes, "net.core.wmem_max"),
        ("receive", receiver, flow.receive_buffer_bytes, "net.core.rmem_max"),
    ];
    let flag = |(which, side, found, setting): (&str, _, Option<u64>, &str)| {
        let got = found.filter(|&found| found > 0 && found != 2 * asked)? / 2;
        let why = if got < asked {
            format!("the kernel allows no more: raise {setting}")
        } else {
            "the kernel allows no less".to_owned()
        };
        Some(format!(
            "{name}: a window of {asked} B was asked for, and the {which} buffer {side} has {got} B; {why}"
        ))
    };
    buffers.into_iter().filter_map(flag).collect()
}

/// A path over which nothing came any more before a phase was over.
pub(super) fn path_cut(phase: &NetPhase) -> Option<String> {
    phase.flows.iter().filter(|flow| !flow.drained).find_map(|flow| {
        let counted = flow.intervals.iter().filter(|interval| interval.counts);
        let end = counted.clone().next_back()?.to_seconds;
        let moved = counted.filter(|interval| interval.bytes_per_second > 0.0);
        let last = moved.map(|interval| interval.to_seconds).fold(0.0, f64::max);
        (end - last >= CUT_SECONDS).then(|| {
            format!(
                "{}: nothing came through {} from {last:.1} s to its end at {end:.1} s; the path was cut, or loses \
                 everything: check it and measure again",
                phase.name, flow.direction
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::report::{HostSample, StreamSample, StreamsReport};
    use plumb_net::measure::test_spec::{BulkTcpSpec, TransferDirection};
    use plumb_result::net::PhaseName;

    use super::*;

    fn spec(direction: TransferDirection) -> TestSpec {
        let streams = BulkTcpSpec::one(direction);
        TestSpec {
            warm_up_ns: 1_000_000_000,
            duration_ns: 1_000_000_000,
            interval_ns: 1_000_000_000,
            drain_ns: 0,
            parts: vec![PartSpec::Streams(streams)],
        }
    }

    /// A side that read everything once a second: what each connection (whether it goes up, its bytes a second, its
    /// thread's nanoseconds a second) did, and the process and the softirqs of the host much more.
    fn side(readings: u64, connections: &[(bool, u64, u64)]) -> TestReport {
        let moment = |second: u64| {
            let mut moment = HostSample { at_ns: second * 1_000_000_000, ..HostSample::default() };
            moment.host.process_ns = second * 900_000_000;
            moment.host.host_softirq_ns = second * 300_000_000;
            moment
        };
        let stream = |&(is_up, bytes, cpu_ns): &(bool, u64, u64)| StreamReport {
            is_up,
            samples: (0..readings)
                .map(|second| StreamSample {
                    bytes: second * bytes,
                    cpu_ns: second * cpu_ns,
                    ..StreamSample::default()
                })
                .collect(),
            bytes_total: readings * bytes,
            ..StreamReport::default()
        };
        let streams = connections.iter().map(stream).collect();
        TestReport {
            moments: (0..readings).map(moment).collect(),
            parts: vec![TestPartReport::Streams(StreamsReport { streams })],
            ..TestReport::default()
        }
    }

    fn is_cost(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() < 1e-9)
    }

    #[test]
    fn a_byte_costs_what_the_threads_of_its_direction_used_and_no_other_time_of_the_process() {
        let here = side(3, &[(true, 1_000_000, 500_000), (false, 4_000_000, 1_000_000)]);
        let there = side(3, &[(true, 1_000_000, 250_000), (false, 4_000_000, 3_000_000)]);
        let flows = summarize(&spec(TransferDirection::Both), &here, Some(&there));
        let [up, down] = flows.as_slice() else { panic!("{flows:?}") };
        assert!(
            is_cost(up.costs.sender_cpu_ns_per_byte, 0.5)
                && is_cost(up.costs.receiver_cpu_ns_per_byte, 0.25)
        );
        assert!(is_cost(down.costs.sender_cpu_ns_per_byte, 0.75));
        assert!(is_cost(down.costs.receiver_cpu_ns_per_byte, 0.25));
        // Whose softirqs they were nobody knows.
        for flow in &flows {
            assert_eq!(
                flow.costs.sender_softirq_ns_per_byte.or(flow.costs.receiver_softirq_ns_per_byte),
                None
            );
        }
    }

    #[test]
    fn one_direction_alone_has_the_softirqs_of_both_hosts_beside_its_threads() {
        let here = side(3, &[(false, 4_000_000, 1_000_000)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, Some(&here));
        let [down] = flows.as_slice() else { panic!("{flows:?}") };
        assert!(is_cost(down.costs.sender_softirq_ns_per_byte, 75.0), "{down:?}");
        assert!(is_cost(down.costs.receiver_softirq_ns_per_byte, 75.0));
        // Clocks that could not be read are no cost of nothing.
        let there = side(3, &[(false, 4_000_000, 0)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, Some(&there));
        assert_eq!(flows[0].costs.sender_cpu_ns_per_byte, None);
    }
    #[test]
    fn what_ended_before_the_time_that_counts_has_its_totals_and_no_rate() {
        // The agent is gone, and here there is one reading, of the beginning.
        let here = side(1, &[(false, 4_500_000, 1_000_000)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, None);
        let [down] = flows.as_slice() else { panic!("{flows:?}") };
        assert_eq!((down.counted_by, down.streams), (CountedBy::Nobody, 1));
        assert_eq!((down.received_bytes_total, down.bytes), (4_500_000, 0));
        assert!(down.bytes_per_second < 1.0 && down.costs.receiver_cpu_ns_per_byte.is_none());
        assert!(!down.intervals.iter().any(|interval| interval.counts));
        let phase =
            NetPhase { name: PhaseName::Down, ended: NetEnding::Partial, ..NetPhase::default() };
        let said = flag(&phase, down).unwrap();
        assert!(said.contains("no rate") && said.contains("taken 4500000 B"), "{said}");
        assert!(!said.contains("stands in"), "{said}");
        // The other way, what this side sent is all that is known.
        let here = side(1, &[(true, 4_500_000, 1_000_000)]);
        let flows = summarize(&spec(TransferDirection::Up), &here, None);
        let said = flag(&phase, &flows[0]).unwrap();
        assert!(said.contains("sent 4500000 B"), "{said}");
    }

    #[test]
    fn a_window_that_a_kernel_cut_down_is_named_with_its_side_and_the_setting() {
        let with = |direction, asked: u32, buffers: [u64; 2]| {
            let mut spec = spec(direction);
            if let PartSpec::Streams(streams) = &mut spec.parts[0] {
                streams.window_bytes = Some(asked);
            }
            let mut here = side(3, &[(direction == TransferDirection::Up, 1_000, 1_000)]);
            if let TestPartReport::Streams(streams) = &mut here.parts[0] {
                [streams.streams[0].send_buffer_bytes, streams.streams[0].receive_buffer_bytes] =
                    buffers;
            }
            let flows = summarize(&spec, &here, Some(&here));
            window_flags(&NetPhase::default(), &flows[0])
        };
        assert_eq!(with(TransferDirection::Up, 100_000, [200_000, 200_000]), [""; 0]);
        let said = with(TransferDirection::Up, 64 << 20, [425_984, 128 << 20]);
        assert_eq!(said.len(), 1, "{said:?}");
        for part in ["67108864 B", "send buffer here has 212992 B", "net.core.wmem_max"] {
            assert!(said[0].contains(part), "{said:?}");
        }
        let said = with(TransferDirection::Up, 64 << 20, [128 << 20, 425_984]);
        assert!(
            said[0].contains("receive buffer there") && said[0].contains("rmem_max"),
            "{said:?}"
        );
        let said = with(TransferDirection::Down, 1, [4_608, 2]);
        assert!(said[0].contains("send buffer there has 2304 B; the kernel allows no less"));
        // Nobody asked.
        let flows = summarize(&spec(TransferDirection::Up), &side(3, &[(true, 1, 1)]), None);
        assert_eq!(window_flags(&NetPhase::default(), &flows[0]), [""; 0]);
    }

    #[test]
    fn a_count_that_is_lost_is_the_senders_and_says_so() {
        let here = side(3, &[(true, 1_000_000, 500_000)]);
        let flows = summarize(&spec(TransferDirection::Up), &here, None);
        assert_eq!(flows[0].counted_by, CountedBy::Sender);
        let said = flag(&NetPhase::default(), &flows[0]).unwrap();
        assert!(said.contains("stands in"), "{said}");
    }
}
