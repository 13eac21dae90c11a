//! The readings of connections, as the document says them.
//!
//! Left out: what they explain.

use std::collections::BTreeMap;

use plumb_analysis::document::net::NetEvidence;
use plumb_net::evidence::tcp::TcpSample;
use plumb_net::measure::report::{PartReport, TestReport};
use serde_json::Value;

use super::digest::seconds;

/// Every reading of every connection of one side.
pub fn of(report: &TestReport, side: &str) -> Vec<NetEvidence> {
    let mut readings = Vec::new();
    for part in &report.parts {
        let PartReport::Streams(streams) = part else { continue };
        for stream in &streams.streams {
            for (moment, sample) in report.moments.iter().zip(&stream.samples) {
                readings.push(NetEvidence {
                    side: side.to_owned(),
                    stream: u32::from(stream.index),
                    at_seconds: seconds(moment.at_ns),
                    bytes: sample.bytes,
                    tcp: numbers(&sample.tcp),
                });
            }
        }
    }
    readings
}

/// A reading by the names of its fields.
fn numbers(sample: &TcpSample) -> BTreeMap<String, f64> {
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
    use super::*;

    #[test]
    fn every_field_of_a_reading_has_its_number() {
        let sample =
            TcpSample { cwnd_segments: 10, is_delivery_app_limited: true, ..TcpSample::default() };
        let numbers = numbers(&sample);
        assert!((numbers["cwnd_segments"] - 10.0).abs() < f64::EPSILON);
        assert!((numbers["is_delivery_app_limited"] - 1.0).abs() < f64::EPSILON);
        assert!(numbers.len() > 25);
    }
}
