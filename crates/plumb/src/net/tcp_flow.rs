//! Bulk TCP in one direction: from the two sides' reports to what the document says of it.
//!
//! The receiver's count is the rate; where its report was lost, the sender's acknowledged bytes stand in and are
//! marked. What ended before the time that counts has no rate, but keeps its totals. What a byte cost is the time of the
//! threads of this direction only. Left out: words.

use plumb_analysis::document::net::{
    NetBulkFlow, NetInterval, NetPhase, NetSenderLimits, NetThreadPlacement,
};
use plumb_net::measure::progress::SenderLimitedShares;
use plumb_net::measure::report::{StreamReport, TestPartReport, TestReport};
use plumb_net::measure::test_spec::{PartSpec, TestSpec};

use super::phase_summary::{seconds, window};

/// The directions of a test.
pub(super) fn summarize(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
) -> Vec<NetBulkFlow> {
    let has = |is_up: bool| {
        spec.parts.iter().any(|part| match part {
            PartSpec::Streams(streams) => {
                (0..streams.connections()).any(|index| streams.client_sends(index) == is_up)
            }
            _ => false,
        })
    };
    let is_alone = has(true) != has(false);
    [true, false]
        .into_iter()
        .filter(|is_up| has(*is_up))
        .map(|is_up| flow(spec, is_up, is_alone, here, there))
        .collect()
}

/// What a reader must know before believing the numbers of a direction.
pub(super) fn flag(phase: &NetPhase, flow: &NetBulkFlow) -> Option<String> {
    let (name, direction) = (&phase.name, &flow.direction);
    match flow.counted_by.as_str() {
        "receiver" if flow.drained || phase.ended != "complete" => None,
        "receiver" => Some(format!(
            "{name}: some of what was sent had not arrived when the time for draining was over"
        )),
        "sender" => Some(format!(
            "{name}: the receiver's count of {direction} is lost; what the sender saw acknowledged stands in \
             for it"
        )),
        _ => Some(format!(
            "{name}: {direction} ended before the time that counts, so it has no rate; {}",
            totals(flow)
        )),
    }
}

/// Buffers that are not as they were asked for.
pub(super) fn window_flags(phase: &NetPhase, flow: &NetBulkFlow) -> Vec<String> {
    let Some(asked) = flow.window_bytes else { return Vec::new() };
    let (name, direction) = (&phase.name, &flow.direction);
    let sides = if direction == "up" { ["here", "there"] } else { ["there", "here"] };
    let buffers = [
        ("send", sides[0], flow.send_buffer_bytes, "net.core.wmem_max"),
        ("receive", sides[1], flow.receive_buffer_bytes, "net.core.rmem_max"),
    ];
    let is_other = |found: u64| found > 0 && found != 2 * asked;
    buffers
        .into_iter()
        .filter_map(|(which, side, found, setting)| {
            let got = found.filter(|&found| is_other(found))? / 2;
            let why = if got < asked {
                format!("the kernel allows no more: raise {setting}")
            } else {
                "the kernel allows no less".to_owned()
            };
            Some(format!(
                "{name}: a window of {asked} B was asked for, and the {which} buffer {side} has {got} B; {why}"
            ))
        })
        .collect()
}

/// What is known of a direction without a rate.
fn totals(flow: &NetBulkFlow) -> String {
    match (flow.sent_bytes_total, flow.received_bytes_total) {
        (0, 0) => "nothing is known of what came".to_owned(),
        (sent, 0) => format!("its sender had sent {sent} B"),
        (_, received) => format!("its receiver had taken {received} B"),
    }
}

fn streams(report: &TestReport) -> impl Iterator<Item = &StreamReport> {
    report.parts.iter().flat_map(|part| match part {
        TestPartReport::Streams(streams) => streams.streams.as_slice(),
        _ => &[],
    })
}

/// One end of the connections of a direction.
struct FlowEnd<'a> {
    report: &'a TestReport,
    streams: Vec<&'a StreamReport>,
    /// Where it came to the time that counts.
    counted: Option<(usize, usize)>,
}

impl<'a> FlowEnd<'a> {
    fn of(report: &'a TestReport, spec: &TestSpec, is_up: bool) -> Option<Self> {
        let streams: Vec<_> = streams(report).filter(|stream| stream.is_up == is_up).collect();
        let counted = window(report, spec);
        (!streams.is_empty()).then_some(Self { report, streams, counted })
    }

    fn counted(&self) -> Option<FlowWindow<'_>> {
        self.counted.map(|(from, to)| FlowWindow { end: self, from, to })
    }
}

/// One end in the time that counts.
#[derive(Clone, Copy)]
struct FlowWindow<'a> {
    end: &'a FlowEnd<'a>,
    from: usize,
    to: usize,
}

/// What a stream had carried at a sample.
type SampleCounter<'a> = dyn Fn(&StreamReport, usize) -> u64 + 'a;

impl FlowWindow<'_> {
    fn seconds(self) -> f64 {
        let moments = &self.end.report.moments;
        seconds(moments[self.to].at_ns.saturating_sub(moments[self.from].at_ns))
    }

    /// By how much something of one connection grew.
    fn growth(self, stream: &StreamReport, count: &SampleCounter<'_>) -> u64 {
        count(stream, self.to).saturating_sub(count(stream, self.from))
    }

    fn total(self, count: &SampleCounter<'_>) -> u64 {
        self.end.streams.iter().map(|stream| self.growth(stream, count)).sum()
    }

    /// Time of the connections' own threads for each byte.
    fn cpu_per_byte(self, bytes: u64) -> Option<f64> {
        per_byte(self.total(&|stream, at| stream.samples.get(at).map_or(0, |s| s.cpu_ns)), bytes)
            .filter(|&cost| cost > 0.0)
    }

    /// Time of the whole host in softirqs for each byte.
    fn softirq_per_byte(self, bytes: u64) -> Option<f64> {
        let moments = &self.end.report.moments;
        let used = moments[self.to].host.since(&moments[self.from].host);
        per_byte(used.host_softirq_ns, bytes)
    }
}

fn per_byte(ns: u64, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| ns as f64 / bytes as f64)
}

fn flow(
    spec: &TestSpec,
    is_up: bool,
    is_alone: bool,
    here: &TestReport,
    there: Option<&TestReport>,
) -> NetBulkFlow {
    let here = FlowEnd::of(here, spec, is_up);
    let there = there.and_then(|report| FlowEnd::of(report, spec, is_up));
    let (sender, receiver) = if is_up { (here, there) } else { (there, here) };
    let taken =
        |stream: &StreamReport, at: usize| stream.samples.get(at).map_or(0, |sample| sample.bytes);
    let acked = |stream: &StreamReport, at: usize| {
        stream.samples.get(at).map_or(0, |sample| sample.tcp.acked_bytes)
    };
    let (counted_by, end, count): (_, _, &SampleCounter<'_>) = match (&receiver, &sender) {
        (Some(receiver), _) => ("receiver", Some(receiver), &taken),
        (None, Some(sender)) => ("sender", Some(sender), &acked),
        (None, None) => ("nobody", None, &taken),
    };
    let counted = end.and_then(FlowEnd::counted);
    let window_bytes = spec.parts.iter().find_map(|part| match part {
        PartSpec::Streams(streams) => streams.window_bytes.map(u64::from),
        _ => None,
    });
    let mut flow = NetBulkFlow {
        direction: if is_up { "up" } else { "down" }.to_owned(),
        counted_by: if counted.is_some() { counted_by } else { "nobody" }.to_owned(),
        streams: end.map_or(0, |end| u32::try_from(end.streams.len()).unwrap_or(u32::MAX)),
        intervals: end.map(|end| intervals(end, count)).unwrap_or_default(),
        window_bytes,
        send_buffer_bytes: smallest(sender.as_ref(), |stream| stream.send_buffer_bytes),
        receive_buffer_bytes: smallest(receiver.as_ref(), |stream| stream.receive_buffer_bytes),
        sender_seats: placements(sender.as_ref()),
        receiver_seats: placements(receiver.as_ref()),
        ..NetBulkFlow::default()
    };
    if let Some(counted) = counted {
        flow.bytes = counted.total(count);
        flow.seconds = counted.seconds();
        flow.bytes_per_second = flow.bytes as f64 / flow.seconds;
        flow.streams_bytes_per_second = counted
            .end
            .streams
            .iter()
            .map(|stream| counted.growth(stream, count) as f64 / flow.seconds)
            .collect();
    }
    if let Some(receiver) = &receiver {
        flow.received_bytes_total = receiver.streams.iter().map(|s| s.bytes_total).sum();
        flow.drained = receiver.streams.iter().all(|stream| stream.is_drained);
        if let Some(counted) = receiver.counted() {
            flow.receiver_cpu_ns_per_byte = counted.cpu_per_byte(flow.bytes);
            flow.receiver_softirq_ns_per_byte =
                counted.softirq_per_byte(flow.bytes).filter(|_| is_alone);
        }
    }
    if let Some(sender) = &sender {
        flow.sent_bytes_total = sender.streams.iter().map(|stream| stream.bytes_total).sum();
        if let Some(stream) = sender.streams.first() {
            flow.congestion.clone_from(&stream.congestion);
        }
        if let Some(counted) = sender.counted() {
            describe_sender(counted, &mut flow);
            flow.sender_softirq_ns_per_byte =
                counted.softirq_per_byte(flow.bytes).filter(|_| is_alone);
        }
    }
    flow
}

/// Where each connection's thread ran at one end.
fn placements(end: Option<&FlowEnd<'_>>) -> Vec<NetThreadPlacement> {
    let streams = end.iter().flat_map(|end| &end.streams);
    streams
        .map(|stream| NetThreadPlacement {
            served_by: stream.placement.incoming,
            queue: stream.placement.queue,
            bound_to: stream.placement.bound.clone(),
            served: stream.served_with.into(),
        })
        .collect()
}

fn smallest(end: Option<&FlowEnd<'_>>, bytes: impl Fn(&StreamReport) -> u64) -> Option<u64> {
    end?.streams.iter().map(|stream| bytes(stream)).min()
}

fn describe_sender(sender: FlowWindow<'_>, flow: &mut NetBulkFlow) {
    let tcp = |stream: &StreamReport, at: usize| {
        stream.samples.get(at).map(|sample| sample.tcp).unwrap_or_default()
    };
    flow.retransmitted_segments =
        sender.total(&|stream, at| u64::from(tcp(stream, at).retransmitted_segments));
    flow.retransmitted_bytes = sender.total(&|stream, at| tcp(stream, at).retransmitted_bytes);
    let streams = &sender.end.streams;
    let samples =
        || streams.iter().flat_map(|stream| (sender.from..=sender.to).map(|at| tcp(stream, at)));
    flow.mss_bytes = samples().map(|tcp| tcp.mss_bytes).max().unwrap_or(0);
    let least = samples().map(|tcp| tcp.rtt_min_us).filter(|&us| us > 0 && us < u32::MAX).min();
    flow.rtt_min_ns = least.map_or(0.0, |us| f64::from(us) * 1e3);
    let rtts: Vec<f64> =
        samples().filter(|tcp| tcp.rtt_us > 0).map(|tcp| f64::from(tcp.rtt_us) * 1e3).collect();
    if !rtts.is_empty() {
        flow.rtt_mean_ns = rtts.iter().sum::<f64>() / rtts.len() as f64;
    }
    flow.sender_cpu_ns_per_byte = sender.cpu_per_byte(flow.bytes);
    let all_us = sender.seconds() * 1e6 * streams.len() as f64;
    let share = |us: u64| us as f64 / all_us;
    let SenderLimitedShares { network, receive_window, send_buffer, application } =
        SenderLimitedShares::of(
            share(sender.total(&|stream, at| tcp(stream, at).busy_us)),
            share(sender.total(&|stream, at| tcp(stream, at).receive_window_us)),
            share(sender.total(&|stream, at| tcp(stream, at).send_buffer_us)),
        );
    flow.waits = Some(NetSenderLimits { network, receive_window, send_buffer, application });
}

fn intervals(end: &FlowEnd<'_>, count: &SampleCounter<'_>) -> Vec<NetInterval> {
    let counts = |at: usize| end.counted.is_some_and(|(first, last)| first < at && at <= last);
    let sum = |at: usize| end.streams.iter().map(|stream| count(stream, at)).sum::<u64>();
    (1..end.report.moments.len())
        .map(|at| {
            let (from, to) = (end.report.moments[at - 1].at_ns, end.report.moments[at].at_ns);
            let bytes = sum(at).saturating_sub(sum(at - 1)) as f64;
            NetInterval {
                from_seconds: seconds(from),
                to_seconds: seconds(to),
                bytes_per_second: if to > from { bytes / seconds(to - from) } else { 0.0 },
                counts: counts(at),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::report::{HostSample, StreamSample, StreamsReport};
    use plumb_net::measure::test_spec::{BulkTcpSpec, TransferDirection};

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
            is_cost(up.sender_cpu_ns_per_byte, 0.5) && is_cost(up.receiver_cpu_ns_per_byte, 0.25)
        );
        assert!(is_cost(down.sender_cpu_ns_per_byte, 0.75));
        assert!(is_cost(down.receiver_cpu_ns_per_byte, 0.25));
        // Whose softirqs they were nobody knows.
        for flow in &flows {
            assert_eq!(flow.sender_softirq_ns_per_byte.or(flow.receiver_softirq_ns_per_byte), None);
        }
    }

    #[test]
    fn one_direction_alone_has_the_softirqs_of_both_hosts_beside_its_threads() {
        let here = side(3, &[(false, 4_000_000, 1_000_000)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, Some(&here));
        let [down] = flows.as_slice() else { panic!("{flows:?}") };
        assert!(is_cost(down.sender_softirq_ns_per_byte, 75.0), "{down:?}");
        assert!(is_cost(down.receiver_softirq_ns_per_byte, 75.0));
        // Clocks that could not be read are no cost of nothing.
        let there = side(3, &[(false, 4_000_000, 0)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, Some(&there));
        assert_eq!(flows[0].sender_cpu_ns_per_byte, None);
    }
    #[test]
    fn what_ended_before_the_time_that_counts_has_its_totals_and_no_rate() {
        // The agent is gone, and here there is one reading, of the beginning.
        let here = side(1, &[(false, 4_500_000, 1_000_000)]);
        let flows = summarize(&spec(TransferDirection::Down), &here, None);
        let [down] = flows.as_slice() else { panic!("{flows:?}") };
        assert_eq!((down.counted_by.as_str(), down.streams), ("nobody", 1));
        assert_eq!((down.received_bytes_total, down.bytes), (4_500_000, 0));
        assert!(down.bytes_per_second < 1.0 && down.receiver_cpu_ns_per_byte.is_none());
        assert!(!down.intervals.iter().any(|interval| interval.counts));
        let phase = NetPhase {
            name: "down".to_owned(),
            ended: "partial".to_owned(),
            ..NetPhase::default()
        };
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
        assert_eq!(flows[0].counted_by, "sender");
        let said = flag(&NetPhase::default(), &flows[0]).unwrap();
        assert!(said.contains("stands in"), "{said}");
    }
}
