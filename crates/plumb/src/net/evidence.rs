//! The readings of connections, of streams of datagrams and of hosts, as the document says them.
//!
//! Left out: what they explain.

use std::collections::BTreeMap;

use plumb_analysis::document::net::{NetConnectionSample, NetDatagramSample, NetHostSample};
use plumb_net::evidence::TcpSample;
use plumb_net::measure::report::{TestPartReport, TestReport};
use serde_json::Value;

use super::phase_summary::seconds;

/// Every reading of every connection of one side.
pub fn connection_samples(report: &TestReport, side: &str) -> Vec<NetConnectionSample> {
    let mut readings = Vec::new();
    for part in &report.parts {
        let TestPartReport::Streams(streams) = part else { continue };
        for stream in &streams.streams {
            for (moment, sample) in report.moments.iter().zip(&stream.samples) {
                readings.push(NetConnectionSample {
                    side: side.to_owned(),
                    stream: u32::from(stream.index),
                    at_seconds: seconds(moment.at_ns),
                    bytes: sample.bytes,
                    cpu_ns: Some(sample.cpu_ns),
                    tcp: tcp_fields(&sample.tcp),
                });
            }
        }
    }
    readings
}

/// Every reading of every stream of datagrams of one side.
pub fn datagram_samples(report: &TestReport, side: &str) -> Vec<NetDatagramSample> {
    let mut readings = Vec::new();
    for part in &report.parts {
        let TestPartReport::Datagrams(stream) = part else { continue };
        let direction = if stream.is_up { "up" } else { "down" };
        for (moment, sample) in report.moments.iter().zip(&stream.samples) {
            readings.push(NetDatagramSample {
                side: side.to_owned(),
                direction: direction.to_owned(),
                at_ns: moment.at_ns,
                datagrams: sample.datagrams,
                bytes: sample.bytes,
                cpu_ns: sample.cpu_ns,
            });
        }
    }
    readings
}

/// Every reading of the host of one side.
pub fn host_samples(report: &TestReport, side: &str) -> Vec<NetHostSample> {
    let readings = report.moments.iter().map(|moment| NetHostSample {
        side: side.to_owned(),
        at_ns: moment.at_ns,
        process_ns: moment.host.process_ns,
        user_ns: moment.host.user_ns,
        system_ns: moment.host.system_ns,
        switches_voluntary: moment.host.switches_voluntary,
        switches_involuntary: moment.host.switches_involuntary,
        host_busy_ns: moment.host.host_busy_ns,
        host_softirq_ns: moment.host.host_softirq_ns,
        host_irq_ns: moment.host.host_irq_ns,
        host_steal_ns: moment.host.host_steal_ns,
    });
    readings.collect()
}

/// A reading by the names of its fields.
fn tcp_fields(sample: &TcpSample) -> BTreeMap<String, f64> {
    let Ok(Value::Object(fields)) = serde_json::to_value(sample) else { return BTreeMap::new() };
    fields
        .into_iter()
        .filter_map(|(name, value)| {
            let number = match value {
                Value::Bool(yes) => Some(f64::from(u8::from(yes))),
                value => value.as_f64(),
            };
            Some((name, number?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plumb_net::evidence::HostReading;
    use plumb_net::measure::report::{
        DatagramSample, DatagramsReport, HostSample, StreamReport, StreamSample, StreamsReport,
    };

    use super::*;

    #[test]
    fn every_interval_has_what_was_sent_and_what_it_cost_on_its_side() {
        let host = HostReading { host_softirq_ns: 5, process_ns: 9, ..HostReading::default() };
        let moment = |at_ns| HostSample { at_ns, host, ..HostSample::default() };
        let sample = |datagrams| DatagramSample { datagrams, bytes: 100 * datagrams, cpu_ns: 7 };
        let datagrams = DatagramsReport {
            is_up: true,
            samples: vec![sample(1), sample(2)],
            ..DatagramsReport::default()
        };
        let stream = StreamReport {
            samples: vec![StreamSample { cpu_ns: 11, ..StreamSample::default() }],
            ..StreamReport::default()
        };
        let report = TestReport {
            moments: vec![moment(0), moment(1_000)],
            parts: vec![
                TestPartReport::Datagrams(Box::new(datagrams)),
                TestPartReport::Streams(StreamsReport { streams: vec![stream] }),
            ],
            ..TestReport::default()
        };
        let read = datagram_samples(&report, "there");
        assert_eq!(read.len(), 2);
        let last = &read[1];
        assert_eq!(
            (last.side.as_str(), last.direction.as_str(), last.at_ns),
            ("there", "up", 1_000)
        );
        assert_eq!((last.datagrams, last.bytes, last.cpu_ns), (2, 200, 7));
        let hosts = host_samples(&report, "here");
        assert_eq!(hosts.len(), 2);
        assert_eq!((hosts[1].host_softirq_ns, hosts[1].process_ns), (5, 9));
        assert_eq!(connection_samples(&report, "here")[0].cpu_ns, Some(11));
    }

    #[test]
    fn every_field_of_a_reading_has_its_number() {
        let sample =
            TcpSample { cwnd_segments: 10, is_delivery_app_limited: true, ..TcpSample::default() };
        let numbers = tcp_fields(&sample);
        assert!((numbers["cwnd_segments"] - 10.0).abs() < f64::EPSILON);
        assert!((numbers["is_delivery_app_limited"] - 1.0).abs() < f64::EPSILON);
        assert!(numbers.len() > 25);
    }
}
