//! From the two sides' accounts of paced datagrams to what the document says of them.
//!
//! The receiver's count is the truth, the sender's says of how many. Left out: which datagram was lost where
//! (`plumb_net::measure::datagram::loss`), and words.

use std::collections::BTreeMap;

use plumb_analysis::document::net::{NetDatagrams, NetInterval, NetLossPlaces, NetOneWay};
use plumb_net::measure::datagram::drops::Drops;
use plumb_net::measure::datagram::loss::Located;
use plumb_net::measure::datagram::receiver::{Ending, ReceiverReport};
use plumb_net::measure::datagram::sender::SenderReport;
use plumb_net::measure::datagram::trace::Trace;
use plumb_net::measure::delay::{Estimate, OneWay};
use plumb_net::measure::report::{DatagramsReport, PartReport, TestReport};
use plumb_net::measure::spec::{DatagramsSpec, PartSpec, TestSpec};

use super::clocks;
use super::digest::seconds;

/// Every stream of datagrams of a phase.
pub fn of(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
    estimate: Option<&Estimate>,
) -> Vec<NetDatagrams> {
    let streams = spec.parts.iter().enumerate().filter_map(|(index, part)| match part {
        PartSpec::Datagrams(datagrams) => Some((index, datagrams)),
        _ => None,
    });
    streams
        .map(|(index, datagrams)| {
            let (here, there) = (account(here, index), there.and_then(|r| account(r, index)));
            let (from, to) = if datagrams.is_up { (here, there) } else { (there, here) };
            stream(datagrams, from, to, estimate)
        })
        .collect()
}

/// The moments of a side and its account of one stream.
type Account<'a> = (&'a TestReport, &'a DatagramsReport);

fn account(report: &TestReport, index: usize) -> Option<Account<'_>> {
    match report.parts.get(index)? {
        PartReport::Datagrams(datagrams) => Some((report, datagrams)),
        _ => None,
    }
}

fn stream(
    spec: &DatagramsSpec,
    from: Option<Account<'_>>,
    to: Option<Account<'_>>,
    estimate: Option<&Estimate>,
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
        said.one_way = estimate.and_then(|estimate| one_way(estimate, &came.trace, spec.is_up));
    }
    said.intervals = to.map(intervals).unwrap_or_default();
    said.sent = said.sent.or_else(|| came.and_then(|came| came.count));
    if let (Some(sent), Some(received)) = (said.sent, said.received) {
        let lost = sent.saturating_sub(received);
        said.lost = Some(lost);
        said.loss = Some(if sent > 0 { lost as f64 / sent as f64 } else { 0.0 });
    }
    said.lost_at = sent.zip(came).map(|(sent, came)| places(&Located::new(sent, came)));
    said
}

fn describe_sender(sent: &SenderReport, said: &mut NetDatagrams) {
    said.planned = sent.planned;
    said.sent = Some(sent.count);
    said.late_p99_ns = Some(sent.late_p99_ns as f64);
    said.late_max_ns = Some(sent.late_max_ns as f64);
    said.sender_waits = Some(sent.waits);
    said.cut_short = sent.cut_short;
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
        Ending::Complete => "complete",
        Ending::Grace => "grace",
        Ending::Idle => "idle",
        Ending::Deadline => "deadline",
        Ending::Stopped => "stopped",
    };
    ending.clone_into(&mut said.ending);
}

fn places(located: &Located) -> NetLossPlaces {
    NetLossPlaces {
        sender_queue: located.sender_queue,
        path: located.path,
        receiver_buffer: located.receiver_buffer,
        receiver_buffer_at_least: located.receiver_buffer_at_least,
        sender_host: drops(&located.sender_host),
        receiver_host: drops(&located.receiver_host),
    }
}

/// Those of a host's counters that grew.
fn drops(drops: &Drops) -> BTreeMap<String, u64> {
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

/// The delays of those that were sampled, and the least and the greatest of all.
fn one_way(estimate: &Estimate, trace: &Trace, is_up: bool) -> Option<NetOneWay> {
    let samples = trace.samples.iter().chain(&trace.least).chain(&trace.greatest);
    let delays: Vec<f64> = samples
        .map(|sample| {
            if is_up {
                estimate.forward_delay_ns(sample)
            } else {
                estimate.backward_delay_ns(sample)
            }
        })
        .collect();
    OneWay::of(&delays, estimate.bound_ns()).map(|delays| clocks::said(&delays))
}

fn intervals((report, account): Account<'_>) -> Vec<NetInterval> {
    let readings = report.moments.iter().zip(&account.samples);
    let readings: Vec<_> = readings.map(|(moment, sample)| (moment.at_ns, sample.bytes)).collect();
    readings
        .windows(2)
        .filter(|pair| pair[1].0 > pair[0].0)
        .map(|pair| {
            let bytes = pair[1].1.saturating_sub(pair[0].1) as f64;
            NetInterval {
                from_seconds: seconds(pair[0].0),
                to_seconds: seconds(pair[1].0),
                bytes_per_second: bytes / seconds(pair[1].0 - pair[0].0),
                counts: true,
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
    use super::*;

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
