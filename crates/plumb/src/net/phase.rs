//! What the document says about a phase, from both sides' reports of it.

use std::collections::BTreeMap;

use plumb_net::evidence::TcpSample;
use plumb_net::measure::clock_offset::ClockOffsetEstimate;
use plumb_net::measure::report::{TestEnding, TestPartReport, TestReport};
use plumb_net::measure::test_spec::TestSpec;
use plumb_result::net::{
    Direction, NetConnectionSample, NetCpu, NetDatagramSample, NetEnding, NetHostSample, NetPhase,
    Side,
};
use serde_json::Value;

use super::counted_time::{CountedTime, seconds};
use super::test_run::MeasuredPhase;
use super::{datagrams, round_trips, tcp_flow};

/// What the document says about a phase, by what is known about the clocks.
pub(super) fn summarize(phase: &MeasuredPhase, estimate: Option<&ClockOffsetEstimate>) -> NetPhase {
    let (spec, here) = (&phase.spec, &phase.outcome.here);
    let there = phase.outcome.there.as_ref().ok();
    let overlap = there.map(|report| report.overlap).unwrap_or_default();
    let mut summary = NetPhase {
        name: phase.name,
        round: phase.round,
        seconds: seconds(spec.duration_ns),
        warm_up_seconds: seconds(spec.warm_up_ns),
        ended: match (&here.ended, there.map(|report| &report.ended)) {
            (TestEnding::Stopped, _) => NetEnding::Stopped,
            (TestEnding::Complete, Some(TestEnding::Complete)) => NetEnding::Complete,
            _ => NetEnding::Partial,
        },
        flows: tcp_flow::summarize(spec, here, there),
        datagrams: datagrams::summarize(spec, here, there, estimate),
        probes: round_trips::probes(spec, here, there, estimate),
        exchange: round_trips::exchange(spec, here, there),
        cpu_here: cpu(here, spec),
        cpu_there: there.and_then(|report| cpu(report, spec)),
        counters_here: here.counters.clone(),
        counters_there: there.map(|report| report.counters.clone()).unwrap_or_default(),
        overlapping_tests: overlap.tests,
        overlapping_seconds: seconds(overlap.during_ns),
        ..NetPhase::default()
    };
    add_evidence(here, Side::Here, &mut summary);
    if let Some(there) = there {
        add_evidence(there, Side::There, &mut summary);
    }
    summary
}

/// Every reading of one side.
fn add_evidence(report: &TestReport, side: Side, summary: &mut NetPhase) {
    let moments = &report.moments;
    summary.host_evidence.extend(moments.iter().map(|moment| NetHostSample {
        side,
        at_ns: moment.at_ns,
        used: moment.host,
    }));
    for part in &report.parts {
        match part {
            TestPartReport::Streams(streams) => {
                for stream in &streams.streams {
                    let readings = moments.iter().zip(&stream.samples);
                    summary.evidence.extend(readings.map(|(moment, sample)| NetConnectionSample {
                        side,
                        stream: u32::from(stream.index),
                        at_seconds: seconds(moment.at_ns),
                        bytes: sample.bytes,
                        cpu_ns: Some(sample.cpu_ns),
                        tcp: tcp_fields(&sample.tcp),
                    }));
                }
            }
            TestPartReport::Datagrams(stream) => {
                let direction = Direction::of(stream.is_up);
                let readings = moments.iter().zip(&stream.samples);
                summary.datagram_evidence.extend(readings.map(|(moment, &count)| {
                    NetDatagramSample { side, direction, at_ns: moment.at_ns, count }
                }));
            }
            _ => {}
        }
    }
}

/// A reading by the names of its fields.
fn tcp_fields(sample: &TcpSample) -> BTreeMap<String, f64> {
    let Ok(Value::Object(fields)) = serde_json::to_value(sample) else { return BTreeMap::new() };
    let number = |value: &Value| match value {
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        value => value.as_f64(),
    };
    fields.iter().filter_map(|(name, value)| Some((name.clone(), number(value)?))).collect()
}

fn cpu(report: &TestReport, spec: &TestSpec) -> Option<NetCpu> {
    let counted = CountedTime::of(report, spec)?;
    let used = counted.used();
    Some(NetCpu {
        wall_seconds: seconds(counted.ns()),
        process_seconds: seconds(used.process_ns),
        user_seconds: seconds(used.user_ns),
        system_seconds: seconds(used.system_ns),
        host_busy_seconds: seconds(used.host_busy_ns),
        host_softirq_seconds: seconds(used.host_softirq_ns),
        host_irq_seconds: seconds(used.host_irq_ns),
        host_steal_seconds: seconds(used.host_steal_ns),
    })
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::datagram::endpoint::DatagramsReport;
    use plumb_net::measure::report::{HostSample, StreamReport, StreamSample, StreamsReport};
    use plumb_result::net::{DatagramSample, HostReading};

    use super::*;

    #[test]
    fn every_reading_has_its_side_and_what_it_cost() {
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
        let mut summary = NetPhase::default();
        add_evidence(&report, Side::There, &mut summary);
        let (side, direction) = (Side::There, Direction::Up);
        let read = |at_ns, count| NetDatagramSample { side, direction, at_ns, count };
        assert_eq!(summary.datagram_evidence, [read(0, sample(1)), read(1_000, sample(2))]);
        let host = |at_ns| NetHostSample { side, at_ns, used: host };
        assert_eq!(summary.host_evidence, [host(0), host(1_000)]);
        assert_eq!(summary.evidence[0].cpu_ns, Some(11));
    }

    #[test]
    fn every_field_of_a_reading_has_its_number() {
        let sample =
            TcpSample { cwnd_segments: 10, is_delivery_app_limited: true, ..TcpSample::default() };
        let numbers = tcp_fields(&sample);
        assert_eq!((numbers["cwnd_segments"], numbers["is_delivery_app_limited"]), (10.0, 1.0));
        assert!(numbers.len() > 25);
    }
}
