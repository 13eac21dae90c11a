//! From the two sides' accounts of paced datagrams to what the document says about them.
//!
//! The receiver's count is the truth, the sender's says out of how many.

use plumb_net::measure::clock_offset::ClockOffsetEstimate;
use plumb_net::measure::datagram;
use plumb_net::measure::datagram::endpoint::DatagramsReport;
use plumb_net::measure::datagram::receiver::ReceiverReport;
use plumb_net::measure::datagram::sender::SenderReport;
use plumb_net::measure::report::{TestPartReport, TestReport};
use plumb_net::measure::test_spec::{DatagramsSpec, PartSpec, TestSpec};
use plumb_result::net::{
    Direction, NetDatagramReceiver, NetDatagramSender, NetDatagrams, PhaseName, ReceiveEnding,
};

use crate::net::counted_time::{CountedTime, each, intervals, seconds};

/// Every stream of datagrams of a phase.
pub(super) fn summarize(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
    estimate: Option<&ClockOffsetEstimate>,
) -> Vec<NetDatagrams> {
    let streams = spec.parts.iter().enumerate().filter_map(|(index, part)| match part {
        PartSpec::Datagrams(datagrams) => Some((index, datagrams)),
        _ => None,
    });
    let is_alone = streams.clone().count() == 1;
    let stream = |(index, datagrams): (usize, &DatagramsSpec)| {
        let end = |report| DatagramEnd::of(report, spec, index);
        let (here, there) = (end(here), there.and_then(end));
        let (from, to) = if datagrams.is_up { (here, there) } else { (there, here) };
        let mut summary = stream(datagrams, from.as_ref(), to.as_ref(), estimate);
        if !is_alone {
            summary.costs.sender_softirq_ns_per_byte = None;
            summary.costs.receiver_softirq_ns_per_byte = None;
        }
        summary
    };
    streams.map(stream).collect()
}

/// One end of a stream.
struct DatagramEnd<'a> {
    report: &'a TestReport,
    account: &'a DatagramsReport,
    counted: Option<CountedTime<'a>>,
}

impl<'a> DatagramEnd<'a> {
    fn of(report: &'a TestReport, spec: &TestSpec, index: usize) -> Option<Self> {
        let TestPartReport::Datagrams(account) = report.parts.get(index)? else { return None };
        Some(Self { report, account, counted: CountedTime::of(report, spec) })
    }

    /// What it used in the time that counts: of its thread for each byte that it sent or received and for each
    /// datagram, and of the whole host in softirqs for each byte.
    fn costs(&self) -> Option<[Option<f64>; 3]> {
        let time = self.counted?;
        let (first, last) =
            (self.account.samples.get(time.from)?, self.account.samples.get(time.to)?);
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns);
        let cpu = |count: u64| each(cpu_ns, count).filter(|&cost| cost > 0.0);
        let bytes = last.bytes.saturating_sub(first.bytes);
        Some([
            cpu(bytes),
            cpu(last.datagrams.saturating_sub(first.datagrams)),
            each(time.used().host_softirq_ns, bytes),
        ])
    }
}

fn stream(
    spec: &DatagramsSpec,
    from: Option<&DatagramEnd<'_>>,
    to: Option<&DatagramEnd<'_>>,
    estimate: Option<&ClockOffsetEstimate>,
) -> NetDatagrams {
    let sent = from.and_then(|end| end.account.sender.as_ref());
    let arrivals = to.and_then(|end| end.account.receiver.as_ref());
    let mut summary = NetDatagrams {
        direction: Direction::of(spec.is_up),
        datagram_bytes: u32::from(spec.datagram_bytes),
        asked_bytes_per_second: spec.rate_bits_per_second as f64 / 8.0,
        lost_at: sent.zip(arrivals).map(|(sent, arrivals)| datagram::locate(sent, arrivals)),
        ..NetDatagrams::default()
    };
    if let Some(sent) = sent {
        add_sender(sent, &mut summary);
    }
    if let Some(arrivals) = arrivals {
        add_receiver(arrivals, &mut summary);
        summary.one_way =
            estimate.and_then(|estimate| estimate.one_way(&arrivals.trace, spec.is_up));
        summary.sent = summary.sent.or(arrivals.count);
    }
    if let (Some(sent), Some(received)) = (summary.sent, summary.received) {
        let lost = sent.saturating_sub(received);
        summary.lost = Some(lost);
        summary.loss = Some(lost as f64 / sent.max(1) as f64);
    }
    if let Some(to) = to {
        summary.intervals = intervals(to.report, to.counted, |at| {
            to.account.samples.get(at).map(|sample| sample.bytes)
        });
    }
    [
        summary.costs.sender_cpu_ns_per_byte,
        summary.sender_cpu_ns_per_datagram,
        summary.costs.sender_softirq_ns_per_byte,
    ] = from.and_then(DatagramEnd::costs).unwrap_or_default();
    [
        summary.costs.receiver_cpu_ns_per_byte,
        summary.receiver_cpu_ns_per_datagram,
        summary.costs.receiver_softirq_ns_per_byte,
    ] = to.and_then(DatagramEnd::costs).unwrap_or_default();
    summary
}

fn add_sender(sent: &SenderReport, summary: &mut NetDatagrams) {
    summary.planned = sent.planned;
    summary.sent = Some(sent.count);
    summary.late_p99_ns = Some(sent.late_p99_ns as f64);
    summary.late_max_ns = Some(sent.late_max_ns as f64);
    summary.sender_waits = Some(sent.waits);
    summary.cut_short = sent.cut_short;
    summary.sender = Some(NetDatagramSender {
        late_p50_ns: sent.late_p50_ns as f64,
        batch: sent.batch,
        calls: sent.calls,
        segmentation: sent.segmentation,
        queued_bytes_max: sent.queued_bytes_max,
        unreachable: sent.unreachable,
        end_heard: sent.end_heard,
    });
}

fn add_receiver(arrivals: &ReceiverReport, summary: &mut NetDatagrams) {
    let tally = &arrivals.tally;
    summary.received = Some(tally.unique);
    let both = arrivals.last_ns.zip(arrivals.first_ns);
    summary.seconds = seconds(both.map_or(0, |(last, first)| last.saturating_sub(first)));
    summary.bytes_per_second = arrivals.rate_bits_per_second / 8.0;
    (summary.loss_runs, summary.loss_run_max) = (tally.loss_runs, tally.loss_run_max);
    (summary.reordered, summary.reordered_extent_max) = (tally.reordered, tally.extent_max);
    (summary.duplicated, summary.too_old) = (tally.duplicates, tally.beyond_window);
    summary.jitter_ns = arrivals.jitter_ns;
    summary.ending = arrivals.ending;
    summary.receiver = Some(NetDatagramReceiver {
        buffer_bytes: arrivals.buffer_bytes,
        buffer_asked_bytes: arrivals.buffer_asked_bytes,
        calls: arrivals.calls,
        joined: arrivals.joined,
        overflowed: arrivals.overflow,
        foreign: arrivals.foreign,
        impossible: tally.impossible,
        reordered_extents: tally.extents.clone(),
    });
}

/// What a reader must know about them.
pub(super) fn flags(phase: PhaseName, datagrams: &[NetDatagrams]) -> Vec<String> {
    let mut flags = Vec::new();
    for stream in datagrams {
        let direction = stream.direction;
        if let (Some(planned), Some(sent)) = (stream.planned, stream.sent)
            && sent < planned
        {
            let why = if stream.sender_waits.is_some_and(|waits| waits > 0) {
                "its device took no more"
            } else {
                "it could not keep the pace or was stopped"
            };
            flags.push(format!(
                "{phase}: the sender of {direction} sent {sent} of {planned} datagrams, because {why}"
            ));
        }
        match stream.ending {
            ReceiveEnding::Idle => flags.push(format!(
                "{phase}: nothing came to the receiver of {direction} any more, nor the sender's word that it had \
                 ended, so all that it heard nothing of counts as lost: the path was cut, or the sender is gone; \
                 check both and measure again"
            )),
            ReceiveEnding::Deadline => flags.push(format!(
                "{phase}: the receiver of {direction} ran out of time before it knew that all had come, so what \
                 came later counts as lost; measure again, with fewer datagrams a second or a longer time"
            )),
            _ => {}
        }
        if stream.received.is_none() {
            flags.push(format!(
                "{phase}: the receiver's count of {direction} is lost, so what arrived is not known"
            ));
        } else if stream.sent.is_none() {
            flags.push(format!(
                "{phase}: the sender's count of {direction} is lost, so what it lost is not known"
            ));
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::report::HostSample;
    use plumb_result::net::{DatagramSample, HostReading};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spec() -> TestSpec {
        let datagrams =
            DatagramsSpec { is_up: true, rate_bits_per_second: 8_000_000, datagram_bytes: 1_000 };
        TestSpec {
            warm_up_ns: 0,
            duration_ns: SECOND,
            interval_ns: SECOND / 5,
            drain_ns: 10 * SECOND,
            parts: vec![PartSpec::Datagrams(datagrams)],
        }
    }

    /// An end that read everything five times a second for three: a thousand datagrams in the first, none after, and
    /// its thread and the host's softirqs went on.
    fn end() -> TestReport {
        let moments = (0..=15_u64).map(|number| {
            let host =
                HostReading { host_softirq_ns: number * 40_000_000, ..HostReading::default() };
            // A reading is a little late.
            let at_ns = number * SECOND / 5 + if number > 0 { 30_000 } else { 0 };
            HostSample { at_ns, host, ..HostSample::default() }
        });
        let samples = (0..=15_u64).map(|number| {
            let datagrams = number.min(5) * 200;
            DatagramSample { datagrams, bytes: datagrams * 1_000, cpu_ns: number * 1_000_000 }
        });
        let account = DatagramsReport {
            is_up: true,
            samples: samples.collect(),
            ..DatagramsReport::default()
        };
        TestReport {
            moments: moments.collect(),
            parts: vec![TestPartReport::Datagrams(Box::new(account))],
            ..TestReport::default()
        }
    }

    #[test]
    fn only_the_time_of_the_stream_counts_among_its_intervals() {
        let (here, there) = (end(), end());
        let streams = summarize(&spec(), &here, Some(&there), None);
        let counted: Vec<f64> = streams[0]
            .intervals
            .iter()
            .filter(|interval| interval.counts)
            .map(|interval| interval.bytes_per_second)
            .collect();
        assert_eq!((streams[0].intervals.len(), counted.len()), (15, 5));
        assert!(counted.iter().all(|rate| (rate - 1e6).abs() < 1e3), "{counted:?}");
    }

    #[test]
    fn a_datagram_costs_what_the_thread_of_its_side_used_in_the_time_that_counts() {
        let (here, there) = (end(), end());
        let streams = summarize(&spec(), &here, Some(&there), None);
        let summary = &streams[0];
        let is = |found: Option<f64>, wanted: f64| {
            assert!(found.is_some_and(|found| (found - wanted).abs() < 1e-9), "{found:?} {wanted}");
        };
        is(summary.sender_cpu_ns_per_datagram, 5_000.0);
        is(summary.costs.sender_cpu_ns_per_byte, 5.0);
        is(summary.receiver_cpu_ns_per_datagram, 5_000.0);
        is(summary.costs.receiver_cpu_ns_per_byte, 5.0);
        is(summary.costs.sender_softirq_ns_per_byte, 200.0);
        is(summary.costs.receiver_softirq_ns_per_byte, 200.0);
        // A side whose report is lost has no cost, and two directions no softirqs of their own.
        let summary = &summarize(&spec(), &here, None, None)[0];
        assert_eq!(
            (summary.costs.receiver_cpu_ns_per_byte, summary.costs.receiver_softirq_ns_per_byte),
            (None, None)
        );
        let mut both = spec();
        both.parts.push(both.parts[0].clone());
        let (mut here, mut there) = (end(), end());
        for report in [&mut here, &mut there] {
            report.parts.push(report.parts[0].clone());
        }
        for summary in summarize(&both, &here, Some(&there), None) {
            is(summary.costs.sender_cpu_ns_per_byte, 5.0);
            assert_eq!(
                summary
                    .costs
                    .sender_softirq_ns_per_byte
                    .or(summary.costs.receiver_softirq_ns_per_byte),
                None
            );
        }
    }

    #[test]
    fn a_receiver_that_did_not_hear_the_end_is_flagged() {
        let of = |ending| {
            let stream = NetDatagrams {
                planned: Some(10),
                sent: Some(10),
                received: Some(5),
                ending,
                ..NetDatagrams::default()
            };
            flags(PhaseName::UdpUp, &[stream])
        };
        for ending in ReceiveEnding::ALL {
            let is_flagged = matches!(ending, ReceiveEnding::Idle | ReceiveEnding::Deadline);
            assert_eq!(of(ending).len(), usize::from(is_flagged), "{ending}");
        }
    }
}
