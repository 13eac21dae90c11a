//! What one side found, as it tells the other at the end of a test.
//!
//! Figures are sent without what was omitted, so that readers who subtract and readers who do not
//! agree. Left out: what is made of both sides' results ([`super::report`]).

use serde_json::{Map, Value, json};

/// Most streams that results may speak of: 128 each way.
const STREAMS_MAX: usize = 256;

/// One stream's totals, without what was omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Iperf3Totals {
    /// Its number.
    pub id: u32,
    /// Bytes sent, or received.
    pub bytes: u64,
    /// Segments sent again; none where this side cannot know.
    pub retransmits: Option<u64>,
    /// Jitter in seconds, of a receiver of datagrams.
    pub jitter_s: f64,
    /// Datagrams lost, as the receiver counts; below zero where duplicates were taken for found.
    pub errors: i64,
    /// Datagrams sent; or, of a receiver, the highest number that came.
    pub packets: u64,
    /// Seconds from the beginning to the end of what was counted.
    pub seconds: f64,
}

/// What one side found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Iperf3Results {
    /// Processor time over wall time, in percent: all, user's, system's.
    pub cpu_percent: [f64; 3],
    /// Whether this side sent and knows what it sent again; `None` where it only received.
    pub has_retransmits: Option<bool>,
    /// The congestion control in use.
    pub congestion: Option<String>,
    /// One by one.
    pub streams: Vec<Iperf3Totals>,
    /// The server's own report, where it was asked for: as JSON or as text.
    pub report: Option<Value>,
    /// What only plumb says: exact counts, and the tests that ran at the same time.
    pub extra: Option<Value>,
}

/// Why results are not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Iperf3ResultsError(String);

fn missing(name: &str) -> Iperf3ResultsError {
    Iperf3ResultsError(format!("the results have no '{name}'"))
}

fn not_a_number(name: &str) -> Iperf3ResultsError {
    Iperf3ResultsError(format!("'{name}' in the results is not a possible value"))
}

/// The member that says what only plumb knows.
const EXTRA: &str = "plumb";

impl Iperf3Results {
    /// As they are sent.
    pub fn to_json(&self) -> Value {
        let [total, user, system] = self.cpu_percent;
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| {
            map.insert(name.to_owned(), value);
        };
        put("cpu_util_total", json!(total));
        put("cpu_util_user", json!(user));
        put("cpu_util_system", json!(system));
        put("sender_has_retransmits", json!(self.has_retransmits.map_or(-1, i32::from)));
        if let Some(congestion) = &self.congestion {
            put("congestion_used", json!(congestion));
        }
        if let Some(report) = &self.report {
            let text = if report.is_string() { "server_output_text" } else { "server_output_json" };
            put(text, report.clone());
        }
        if let Some(extra) = &self.extra {
            put(EXTRA, extra.clone());
        }
        let streams: Vec<Value> = self.streams.iter().map(stream_json).collect();
        put("streams", Value::Array(streams));
        Value::Object(map)
    }

    /// What the other side sent.
    ///
    /// # Errors
    /// Something that every version sends is absent or has the wrong type.
    pub fn of_json(value: &Value) -> Result<Self, Iperf3ResultsError> {
        let streams = value["streams"].as_array().ok_or_else(|| missing("streams"))?;
        if streams.len() > STREAMS_MAX {
            let count = streams.len();
            return Err(Iperf3ResultsError(format!(
                "the results have {count} streams, and a test has at most {STREAMS_MAX}"
            )));
        }
        let streams = streams.iter().map(stream_of_json).collect::<Result<_, _>>()?;
        let cpu = |name| real(value, name);
        let cpu_percent = [cpu("cpu_util_total")?, cpu("cpu_util_user")?, cpu("cpu_util_system")?];
        let has_retransmits = match real(value, "sender_has_retransmits")? {
            known if known >= 0.0 => Some(known > 0.5),
            _ => None,
        };
        let report = ["server_output_json", "server_output_text"];
        let report = report.iter().find_map(|name| value.get(*name)).cloned();
        Ok(Self {
            cpu_percent,
            has_retransmits,
            congestion: value["congestion_used"].as_str().map(str::to_owned),
            streams,
            report,
            extra: value.get(EXTRA).cloned(),
        })
    }

    /// The totals of a stream.
    pub fn stream(&self, id: u32) -> Option<&Iperf3Totals> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

fn stream_json(stream: &Iperf3Totals) -> Value {
    let retransmits = stream.retransmits.map_or(json!(-1), |count| json!(count));
    json!({
        "id": stream.id,
        "bytes": stream.bytes,
        "retransmits": retransmits,
        "jitter": stream.jitter_s,
        "errors": stream.errors,
        "omitted_errors": 0,
        "packets": stream.packets,
        "omitted_packets": 0,
        "start_time": 0,
        "end_time": stream.seconds,
    })
}

fn stream_of_json(value: &Value) -> Result<Iperf3Totals, Iperf3ResultsError> {
    let omitted = |name| if value.get(name).is_some() { real(value, name) } else { Ok(0.0) };
    let start = omitted("start_time")?;
    let end = if value.get("end_time").is_some() { real(value, "end_time")? } else { start };
    let retransmits = real(value, "retransmits")?;
    Ok(Iperf3Totals {
        id: u32::try_from(count(value, "id")?).map_err(|_| not_a_number("id"))?,
        bytes: count(value, "bytes")?,
        retransmits: (retransmits >= 0.0).then(|| whole(retransmits)),
        jitter_s: real(value, "jitter")?,
        errors: signed(real(value, "errors")? - omitted("omitted_errors")?),
        packets: whole(real(value, "packets")? - omitted("omitted_packets")?),
        seconds: (end - start).max(0.0),
    })
}

/// A finite number.
fn real(value: &Value, name: &'static str) -> Result<f64, Iperf3ResultsError> {
    let number = value.get(name).ok_or_else(|| missing(name))?;
    number.as_f64().filter(|real| real.is_finite()).ok_or_else(|| not_a_number(name))
}

/// A number that counts something.
fn count(value: &Value, name: &'static str) -> Result<u64, Iperf3ResultsError> {
    if let Some(count) = value.get(name).and_then(Value::as_u64) {
        return Ok(count);
    }
    let real = real(value, name)?;
    if real < 0.0 { Err(not_a_number(name)) } else { Ok(whole(real)) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, which is what a count beyond all counts should do"
)]
fn whole(real: f64) -> u64 {
    real.round() as u64
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
fn signed(real: f64) -> i64 {
    real.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Iperf3Results {
        let stream = Iperf3Totals {
            id: 3,
            bytes: 1 << 40,
            retransmits: Some(7),
            jitter_s: 0.000_125,
            errors: 2,
            packets: 1_000,
            seconds: 10.004,
        };
        Iperf3Results {
            cpu_percent: [50.0, 10.0, 40.0],
            has_retransmits: Some(true),
            congestion: Some("cubic".to_owned()),
            streams: vec![Iperf3Totals { id: 1, retransmits: None, ..stream }, stream],
            report: Some(json!("text")),
            extra: Some(json!({"duplicates": 1})),
        }
    }

    #[test]
    fn results_are_read_as_they_are_written() {
        let results = results();
        assert_eq!(Iperf3Results::of_json(&results.to_json()), Ok(results.clone()));
        assert_eq!(results.stream(3).unwrap().retransmits, Some(7));
        assert_eq!(results.stream(2), None);
    }

    #[test]
    fn results_of_the_first_versions_are_understood() {
        let old = json!({"cpu_util_total": 1, "cpu_util_user": 0, "cpu_util_system": 1,
            "sender_has_retransmits": -1,
            "streams": [{"id": 1, "bytes": 5, "retransmits": -1, "jitter": 0, "errors": 0, "packets": 0}]});
        let read = Iperf3Results::of_json(&old).unwrap();
        assert_eq!(read.has_retransmits, None);
        assert_eq!((read.streams[0].bytes, read.streams[0].retransmits), (5, None));
    }

    #[test]
    fn what_was_omitted_is_not_counted() {
        let mut json = results().to_json();
        json["streams"][1]["omitted_errors"] = json!(1);
        json["streams"][1]["omitted_packets"] = json!(100.0);
        let read = Iperf3Results::of_json(&json).unwrap();
        assert_eq!((read.streams[1].errors, read.streams[1].packets), (1, 900));
    }

    #[test]
    fn results_without_what_every_version_sends_are_refused() {
        for name in ["streams", "cpu_util_total", "sender_has_retransmits"] {
            let mut json = results().to_json();
            json.as_object_mut().unwrap().remove(name);
            assert!(Iperf3Results::of_json(&json).is_err(), "{name}");
        }
        let mut json = results().to_json();
        json["streams"][0]["bytes"] = json!(-1);
        assert_eq!(Iperf3Results::of_json(&json), Err(not_a_number("bytes")));
        json["streams"][0] = json!("1");
        assert!(Iperf3Results::of_json(&json).is_err());
    }
}
