//! From the two sides' accounts of paced datagrams to what the document says of them.
//!
//! The receiver's count is the truth, the sender's says of how many. Left out: which datagram was lost where
//! (`plumb_net::measure::datagram::loss`), and words.

use std::collections::BTreeMap;

use plumb_analysis::document::net::{
    NetDatagramReceiver, NetDatagramSender, NetDatagrams, NetInterval, NetLossLocations,
};
use plumb_net::measure::clock_offset::ClockOffsetEstimate;
use plumb_net::measure::datagram::drops::KernelDrops;
use plumb_net::measure::datagram::drops::LossByLocation;
use plumb_net::measure::datagram::receiver::{ReceiveEnding, ReceiverReport};
use plumb_net::measure::datagram::sender::SenderReport;
use plumb_net::measure::report::{DatagramsReport, TestPartReport, TestReport};
use plumb_net::measure::test_spec::{DatagramsSpec, PartSpec, TestSpec};

use super::clocks;
use super::phase_summary::{seconds, window};

/// Every stream of datagrams of a phase.
pub fn summarize(
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
    streams
        .map(|(index, datagrams)| {
            let (here, there) = (account(here, index), there.and_then(|r| account(r, index)));
            let (from, to) = if datagrams.is_up { (here, there) } else { (there, here) };
            let mut said = stream(datagrams, from, to, estimate);
            said.intervals = to.map(|to| intervals(spec, to)).unwrap_or_default();
            let cost = from.map(|from| DatagramCpuCost::of(spec, from)).unwrap_or_default();
            said.sender_cpu_ns_per_byte = cost.cpu_ns_per_byte;
            said.sender_cpu_ns_per_datagram = cost.cpu_ns_per_datagram;
            said.sender_softirq_ns_per_byte = cost.softirq_ns_per_byte.filter(|_| is_alone);
            let cost = to.map(|to| DatagramCpuCost::of(spec, to)).unwrap_or_default();
            said.receiver_cpu_ns_per_byte = cost.cpu_ns_per_byte;
            said.receiver_cpu_ns_per_datagram = cost.cpu_ns_per_datagram;
            said.receiver_softirq_ns_per_byte = cost.softirq_ns_per_byte.filter(|_| is_alone);
            said
        })
        .collect()
}

/// The moments of a side and its account of one stream.
type DatagramStreamSide<'a> = (&'a TestReport, &'a DatagramsReport);

fn account(report: &TestReport, index: usize) -> Option<DatagramStreamSide<'_>> {
    match report.parts.get(index)? {
        TestPartReport::Datagrams(datagrams) => Some((report, datagrams)),
        _ => None,
    }
}

fn stream(
    spec: &DatagramsSpec,
    from: Option<DatagramStreamSide<'_>>,
    to: Option<DatagramStreamSide<'_>>,
    estimate: Option<&ClockOffsetEstimate>,
) -> NetDatagrams {
    let sent = from.and_then(|(_, account)| account.sender.as_ref());
    let came = to.and_then(|(_, account)| account.receiver.as_ref());
    let mut said = NetDatagrams {
        direction: if spec.is_up { "up" } else { "down" }.to_owned(),
        datagram_bytes: u32::from(spec.datagram_bytes),
        asked_bytes_per_second: spec.rate_bits_per_second as f64 / 8.0,
        ..NetDatagrams::default()
    };
    if let Some(sent) = sent {
        describe_sender(sent, &mut said);
    }
    if let Some(came) = came {
        describe_receiver(came, &mut said);
        let delays = estimate.and_then(|estimate| estimate.one_way(&came.trace, spec.is_up));
        said.one_way = delays.map(|delays| clocks::one_way_summary(&delays));
    }
    said.sent = said.sent.or_else(|| came.and_then(|came| came.count));
    if let (Some(sent), Some(received)) = (said.sent, said.received) {
        let lost = sent.saturating_sub(received);
        said.lost = Some(lost);
        said.loss = Some(if sent > 0 { lost as f64 / sent as f64 } else { 0.0 });
    }
    said.lost_at = sent.zip(came).map(|(sent, came)| {
        let mut places = loss_places(&LossByLocation::new(sent, came));
        let dropped = sent.queue_dropped.filter(|&count| count > 0);
        places.sender_host.extend(dropped.map(|count| ("queue".to_owned(), count)));
        places
    });
    said
}

fn describe_sender(sent: &SenderReport, said: &mut NetDatagrams) {
    said.planned = sent.planned;
    said.sent = Some(sent.count);
    said.late_p99_ns = Some(sent.late_p99_ns as f64);
    said.late_max_ns = Some(sent.late_max_ns as f64);
    said.sender_waits = Some(sent.waits);
    said.cut_short = sent.cut_short;
    said.sender = Some(NetDatagramSender {
        late_p50_ns: sent.late_p50_ns as f64,
        batch: sent.batch,
        calls: sent.calls,
        segmentation: sent.segmentation,
        queued_bytes_max: sent.queued_bytes_max,
        unreachable: sent.unreachable,
        end_heard: sent.end_heard,
    });
}

fn describe_receiver(came: &ReceiverReport, said: &mut NetDatagrams) {
    let tally = &came.tally;
    said.received = Some(tally.unique);
    let both = came.last_ns.zip(came.first_ns);
    let span_ns = both.map_or(0, |(last, first)| last.saturating_sub(first));
    said.seconds = seconds(span_ns);
    said.bytes_per_second = came.rate_bits_per_second / 8.0;
    (said.loss_runs, said.loss_run_max) = (tally.loss_runs, tally.loss_run_max);
    (said.reordered, said.reordered_extent_max) = (tally.reordered, tally.extent_max);
    (said.duplicated, said.too_old) = (tally.duplicates, tally.beyond_window);
    said.jitter_ns = came.jitter_ns;
    let ending = match came.ending {
        ReceiveEnding::Complete => "complete",
        ReceiveEnding::Grace => "grace",
        ReceiveEnding::Idle => "idle",
        ReceiveEnding::Deadline => "deadline",
        ReceiveEnding::Stopped => "stopped",
    };
    ending.clone_into(&mut said.ending);
    said.receiver = Some(NetDatagramReceiver {
        buffer_bytes: came.buffer_bytes,
        buffer_asked_bytes: came.buffer_asked_bytes,
        calls: came.calls,
        joined: came.joined,
        overflowed: came.overflow,
        foreign: came.foreign,
        impossible: tally.impossible,
        reordered_extents: tally.extents.clone(),
    });
}

/// What one end used in the time that counts, for what it sent or received in it.
#[derive(Clone, Copy, Debug, Default)]
struct DatagramCpuCost {
    cpu_ns_per_byte: Option<f64>,
    cpu_ns_per_datagram: Option<f64>,
    softirq_ns_per_byte: Option<f64>,
}

impl DatagramCpuCost {
    fn of(spec: &TestSpec, (report, account): DatagramStreamSide<'_>) -> Self {
        let Some((from, to)) = window(report, spec) else { return Self::default() };
        let sample = |at: usize| account.samples.get(at).copied();
        let Some((first, last)) = sample(from).zip(sample(to)) else { return Self::default() };
        let each = |ns: u64, count: u64| (count > 0).then(|| ns as f64 / count as f64);
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns);
        let of_cpu = |count: u64| each(cpu_ns, count).filter(|&cost| cost > 0.0);
        let bytes = last.bytes.saturating_sub(first.bytes);
        let host = report.moments[to].host.since(&report.moments[from].host);
        Self {
            cpu_ns_per_byte: of_cpu(bytes),
            cpu_ns_per_datagram: of_cpu(last.datagrams.saturating_sub(first.datagrams)),
            softirq_ns_per_byte: each(host.host_softirq_ns, bytes),
        }
    }
}

fn loss_places(located: &LossByLocation) -> NetLossLocations {
    NetLossLocations {
        sender_queue: located.sender_queue,
        path: located.path,
        receiver_buffer: located.receiver_buffer,
        receiver_buffer_at_least: located.receiver_buffer_at_least,
        sender_host: nonzero_drops(&located.sender_host),
        receiver_host: nonzero_drops(&located.receiver_host),
    }
}

/// Those of a host's counters that grew.
fn nonzero_drops(drops: &KernelDrops) -> BTreeMap<String, u64> {
    let counters = [
        ("receive_buffer", drops.receive_buffer),
        ("send_buffer", drops.send_buffer),
        ("checksum", drops.checksum),
        ("no_port", drops.no_port),
        ("device_receive", drops.device_receive),
        ("device_transmit", drops.device_transmit),
        ("backlog", drops.backlog),
    ];
    let grew = counters.into_iter().filter(|(_, count)| *count > 0);
    grew.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Between every two readings: those of the time that counts are as for bulk TCP, each by the reading that ends it.
fn intervals(spec: &TestSpec, (report, account): DatagramStreamSide<'_>) -> Vec<NetInterval> {
    let counted = window(report, spec);
    let counts = |at: usize| counted.is_some_and(|(first, last)| first < at && at <= last);
    let readings = report.moments.iter().zip(&account.samples);
    let readings: Vec<_> = readings.map(|(moment, sample)| (moment.at_ns, sample.bytes)).collect();
    readings
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[1].0 > pair[0].0)
        .map(|(index, pair)| {
            let bytes = pair[1].1.saturating_sub(pair[0].1) as f64;
            NetInterval {
                from_seconds: seconds(pair[0].0),
                to_seconds: seconds(pair[1].0),
                bytes_per_second: bytes / seconds(pair[1].0 - pair[0].0),
                counts: counts(index + 1),
            }
        })
        .collect()
}

/// What a reader must know of them.
pub fn flags(phase: &str, datagrams: &[NetDatagrams]) -> Vec<String> {
    let mut flags = Vec::new();
    for stream in datagrams {
        let direction = &stream.direction;
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
        let ending = match stream.ending.as_str() {
            "idle" => Some(format!(
                "{phase}: nothing came to the receiver of {direction} any more, nor the sender's word that it had \
                 ended, so all that it heard nothing of counts as lost: the path was cut, or the sender is gone; \
                 check both and measure again"
            )),
            "deadline" => Some(format!(
                "{phase}: the receiver of {direction} ran out of time before it knew that all had come, so what \
                 came later counts as lost; measure again, with fewer datagrams a second or a longer time"
            )),
            _ => None,
        };
        flags.extend(ending);
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
    use plumb_net::evidence::HostReading;
    use plumb_net::measure::report::{DatagramSample, HostSample};

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
        let said = &streams[0];
        let is = |found: Option<f64>, wanted: f64| {
            assert!(found.is_some_and(|found| (found - wanted).abs() < 1e-9), "{found:?} {wanted}");
        };
        is(said.sender_cpu_ns_per_datagram, 5_000.0);
        is(said.sender_cpu_ns_per_byte, 5.0);
        is(said.receiver_cpu_ns_per_datagram, 5_000.0);
        is(said.receiver_cpu_ns_per_byte, 5.0);
        is(said.sender_softirq_ns_per_byte, 200.0);
        is(said.receiver_softirq_ns_per_byte, 200.0);
        // A side whose report is lost has no cost, and two directions no softirqs of their own.
        let said = &summarize(&spec(), &here, None, None)[0];
        assert_eq!(
            (said.receiver_cpu_ns_per_byte, said.receiver_softirq_ns_per_byte),
            (None, None)
        );
        let mut both = spec();
        both.parts.push(both.parts[0].clone());
        let (mut here, mut there) = (end(), end());
        for report in [&mut here, &mut there] {
            report.parts.push(report.parts[0].clone());
        }
        for said in summarize(&both, &here, Some(&there), None) {
            is(said.sender_cpu_ns_per_byte, 5.0);
            assert_eq!(said.sender_softirq_ns_per_byte.or(said.receiver_softirq_ns_per_byte), None);
        }
    }

    #[test]
    fn a_receiver_that_did_not_hear_the_end_is_flagged() {
        let of = |ending: &str| {
            let stream = NetDatagrams {
                direction: "up".to_owned(),
                planned: Some(10),
                sent: Some(10),
                received: Some(5),
                ending: ending.to_owned(),
                ..NetDatagrams::default()
            };
            flags("udp-up", &[stream])
        };
        for ending in ["complete", "grace", "stopped", ""] {
            assert_eq!(of(ending), [""; 0], "{ending}");
        }
        assert!(of("idle")[0].contains("the path was cut"), "{:?}", of("idle"));
        assert!(of("deadline")[0].contains("ran out of time"), "{:?}", of("deadline"));
    }
}
