//! Tests of the exports: what comes out holds what went in.

use super::*;
use crate::record::CellStatus;
use crate::sqlite::fixture;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use plumb_base::stats::histogram::Histogram;

/// A run whose first block has a histogram and whose others have all their samples.
fn run() -> RunData {
    let mut data = fixture::run_data("a");
    for block in &mut data.blocks {
        block.histogram.clear();
        block.n = block.samples.len() as u64;
    }
    let mut histogram = Histogram::new();
    for ps in [2_500_000, 2_500_000, 3_100_000] {
        histogram.record(ps);
    }
    data.blocks[0].histogram = histogram.encode();
    data.blocks[0].n = 3;
    data
}

/// The bytes behind base64 (RFC 4648), enough of it for a test.
fn base64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut length) = (0_u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let digit = digits.iter().position(|d| *d == c).unwrap();
        bits = (bits << 6 | u32::try_from(digit).unwrap()) & 0xff_ffff;
        length += 6;
        if length >= 8 {
            length -= 8;
            bytes.push(u8::try_from((bits >> length) & 0xff).unwrap());
        }
    }
    bytes
}

#[test]
fn every_line_of_jsonl_is_a_block_with_its_cell_and_samples() {
    let data = run();
    let mut output = Vec::new();
    jsonl(&data, &mut output).unwrap();
    let lines: Vec<serde_json::Value> = String::from_utf8(output)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), data.blocks.len());
    for (line, block) in lines.iter().zip(&data.blocks) {
        assert_eq!(line["samples"], serde_json::json!(block.samples));
        assert_eq!(line["cell"], block.cell);
        assert_eq!(line["factors"]["size"], 64);
        assert_eq!(line["effort"]["wall_ns"], 5_000_000);
    }
    let counts = lines[0]["histogram"].as_array().unwrap();
    assert_eq!((counts[0][1].as_u64(), counts[1][1].as_u64()), (Some(2), Some(1)));
    let value = counts[0][0].as_f64().unwrap();
    assert!((value / 2500.0 - 1.0).abs() < 1e-3, "{value} ns");
    assert!(lines[1]["histogram"].is_null());
}

#[test]
fn an_interval_log_holds_every_sample_under_the_tag_of_its_cell() {
    let data = run();
    let mut output = Vec::new();
    hdr(&data, &mut output).unwrap();
    let mut blocks = data.blocks.iter();
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(&output) {
        let interval = match entry.unwrap() {
            LogEntry::Interval(interval) => interval,
            LogEntry::StartTime(time) | LogEntry::BaseTime(time) => {
                assert_eq!(time.as_millis(), 1_795_230_985_123);
                continue;
            }
        };
        let block = blocks.next().unwrap();
        let bytes = base64(interval.encoded_histogram());
        let histogram: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(histogram.len(), block.n);
        let median = histogram.value_at_quantile(0.5) as f64 * 0.001;
        assert!((median / 2502.0 - 1.0).abs() < 2e-3, "{median} ns");
        assert_eq!(interval.duration().as_millis(), 5);
        tags.push(interval.tag().unwrap().as_str().to_owned());
    }
    assert!(blocks.next().is_none());
    let first = "latency.local:latency:mechanism=unix-stream:placement=same-cpu:size=64@0.001ns";
    assert_eq!(tags[0], first);
    assert_eq!(tags.iter().filter(|tag| *tag == first).count(), 3);
}

#[test]
fn odd_words_and_numbers_cannot_break_an_interval_log() {
    let mut data = run();
    data.cells[0].factors = data.cells[0].factors.clone().with("note", "a, b\nTag=x,1,2,3,zz");
    data.blocks[1].samples = vec![f64::NAN, -1.0, 1e300, 0.0];
    data.launches[0].started_ns = -5;
    data.run.created_unix_ms = -1;
    let mut output = Vec::new();
    hdr(&data, &mut output).unwrap();
    let intervals = IntervalLogIterator::new(&output)
        .filter(|entry| matches!(entry, Ok(LogEntry::Interval(_))))
        .count();
    assert_eq!(intervals, data.blocks.len());
    assert!(IntervalLogIterator::new(&output).all(|entry| entry.is_ok()));
}

#[test]
fn a_run_without_blocks_says_why_there_is_nothing_to_export() {
    let mut data = run();
    data.blocks.clear();
    let message = hdr(&data, &mut Vec::new()).unwrap_err().to_string();
    assert!(message.contains("imported from a tool that prints only summaries"), "{message}");
    data.cells.iter_mut().for_each(|cell| cell.imported = None);
    data.cells[0].status = CellStatus::Failed("the peer died".to_owned());
    let message = jsonl(&data, &mut Vec::new()).unwrap_err().to_string();
    assert!(message.contains("nothing was measured"), "{message}");
}

#[test]
fn damaged_runs_are_refused_with_the_block_that_is_damaged() {
    let mut data = run();
    data.blocks[0].histogram[10] ^= 0xff;
    for error in
        [jsonl(&data, &mut Vec::new()).unwrap_err(), hdr(&data, &mut Vec::new()).unwrap_err()]
    {
        assert!(error.to_string().contains("of cell 2 in launch 1"), "{error}");
    }
    data.blocks[0].cell = 99;
    let error = jsonl(&data, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("a block names cell 99"), "{error}");
}
