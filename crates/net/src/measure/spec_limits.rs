//! What any test may ask for, whoever asks: so that reports stay bounded, and nothing is cut down without a word.

use plumb_base::time::Span;

use super::probe::PROBES_MAX;
use super::test_spec::{BulkTcpSpec, DatagramsSpec, PartSpec, ProbesSpec, TestSpec};
use plumb_remote::datagram_header::HEADER_BYTES;

/// Most parts of a test.
const PARTS_MAX: usize = 8;
/// Shortest time between two readings.
const INTERVAL_MIN_NS: u64 = 10_000_000;
/// Most readings of one test.
const MOMENTS_MAX: u64 = 20_000;
/// Most readings of connections in one report.
const SAMPLES_MAX: u64 = 200_000;
/// Most connections a direction, whatever an agent allows.
const STREAMS_MAX: u16 = 256;
/// Longest block of a stream.
const BLOCK_MAX: u32 = 16 << 20;
/// The most that Linux takes for a socket's buffer, because it keeps twice as much in an int.
const WINDOW_MAX: u32 = (1 << 30) - 1;
/// Most probes a second.
const PROBE_RATE_MAX: u32 = 100_000;

/// A test that cannot be done, and which option to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SpecLimitError(String);

fn require(is_within: bool, why: impl FnOnce() -> String) -> Result<(), SpecLimitError> {
    if is_within { Ok(()) } else { Err(SpecLimitError(why())) }
}

/// Whether a test can be done at all.
///
/// # Errors
/// The first limit that it is beyond.
pub fn check(spec: &TestSpec) -> Result<(), SpecLimitError> {
    require((1..=PARTS_MAX).contains(&spec.parts.len()), || {
        format!("a test has 1 to {PARTS_MAX} parts; ask for another")
    })?;
    require(spec.duration_ns > 0, || {
        "a phase that lasts no time measures nothing; give a longer --time".to_owned()
    })?;
    require(spec.interval_ns >= INTERVAL_MIN_NS, || {
        "readings are at least 10 ms apart; give --interval 10ms or more".to_owned()
    })?;
    let connections: usize = spec.parts.iter().map(PartSpec::connections).sum();
    let connections = u64::try_from(connections).unwrap_or(u64::MAX);
    let readings = spec.longest_ns() / spec.interval_ns;
    // The first whole millisecond at which one reading more than that does not fit.
    let least_ms = |most: u64| spec.longest_ns() / (most + 1) / 1_000_000 + 1;
    require(readings <= MOMENTS_MAX, || {
        let least_ms = least_ms(MOMENTS_MAX);
        format!(
            "a phase has at most {MOMENTS_MAX} readings of everything, and this one has more; give --interval \
             {least_ms}ms or more, or a shorter --time"
        )
    })?;
    require(connections.saturating_mul(readings) <= SAMPLES_MAX, || {
        let least_ms = least_ms(SAMPLES_MAX / connections);
        format!(
            "a phase has at most {SAMPLES_MAX} readings of its connections, and this one has more; give --interval \
             {least_ms}ms or more, fewer --streams, or a shorter --time"
        )
    })?;
    spec.parts.iter().try_for_each(|part| match part {
        PartSpec::Streams(streams) => check_streams(streams),
        PartSpec::Probes(probes) => check_probes(spec, probes),
        PartSpec::Exchange(part) => {
            part.check(spec).map_err(|error| SpecLimitError(error.to_string()))
        }
        PartSpec::Datagrams(datagrams) => check_datagrams(datagrams),
        // A search may not outlast its test.
        PartSpec::Mtu(search) => require(search.patience_ns <= spec.planned_ns(), || {
            let test = Span::from_ns(spec.planned_ns());
            format!(
                "the search for the path MTU takes no longer than its test, which lasts {test}; give a shorter --mtu"
            )
        }),
    })
}

fn check_streams(streams: &BulkTcpSpec) -> Result<(), SpecLimitError> {
    require((1..=STREAMS_MAX).contains(&streams.streams), || {
        format!("a direction has 1 to {STREAMS_MAX} streams; change --streams")
    })?;
    require((1..=BLOCK_MAX).contains(&streams.block_bytes), || {
        "one write has 1 B to 16 MiB; give a --length of up to 16Mi".to_owned()
    })?;
    require(streams.window_bytes.is_none_or(|bytes| bytes <= WINDOW_MAX), || {
        format!(
            "no socket of Linux has buffers of that size; give a --window of up to {WINDOW_MAX}"
        )
    })
}

/// A schedule that were cut would stop in the middle of what it is measured beside.
fn check_probes(spec: &TestSpec, probes: &ProbesSpec) -> Result<(), SpecLimitError> {
    require((1..=PROBE_RATE_MAX).contains(&probes.per_second), || {
        format!("there are 1 to {PROBE_RATE_MAX} probes a second; change --probes")
    })?;
    let period_ns = 1_000_000_000 / u64::from(probes.per_second);
    require(spec.planned_ns() / period_ns <= PROBES_MAX, || {
        let most = PROBES_MAX / spec.planned_ns().div_ceil(1_000_000_000).max(1);
        format!(
            "a phase has at most {PROBES_MAX} probes, and this one has more; give --probes {most} or fewer, or a \
             shorter time"
        )
    })
}

fn check_datagrams(datagrams: &DatagramsSpec) -> Result<(), SpecLimitError> {
    let rates = DatagramsSpec::RATE_MIN..=DatagramsSpec::RATE_MAX;
    let lengths = HEADER_BYTES..=65_507;
    let is_sendable = rates.contains(&datagrams.rate_bits_per_second)
        && lengths.contains(&usize::from(datagrams.datagram_bytes));
    require(is_sendable, || {
        "paced datagrams go at 1 kb/s to 400 Gb/s and have 40 to 65,507 bytes; change --udp or --udp-size"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::test_spec::{MtuSearchSpec, TransferDirection};

    const SECOND: u64 = 1_000_000_000;

    fn streams() -> BulkTcpSpec {
        BulkTcpSpec::one(TransferDirection::Both)
    }

    fn spec(seconds: u64, parts: Vec<PartSpec>) -> TestSpec {
        TestSpec {
            warm_up_ns: SECOND,
            duration_ns: seconds * SECOND,
            interval_ns: SECOND / 5,
            drain_ns: SECOND,
            parts,
        }
    }

    fn said(spec: &TestSpec) -> String {
        check(spec).expect_err("it is beyond a limit").to_string()
    }

    fn probes(per_second: u32) -> PartSpec {
        PartSpec::Probes(ProbesSpec { per_second, datagram_bytes: 64 })
    }

    #[test]
    fn what_is_beyond_a_limit_is_told_with_the_option_to_change() {
        let with = |change: fn(&mut BulkTcpSpec)| {
            let mut streams = streams();
            change(&mut streams);
            said(&spec(4, vec![PartSpec::Streams(streams)]))
        };
        assert!(with(|streams| streams.block_bytes = 32 << 20).contains("--length"));
        assert!(with(|streams| streams.window_bytes = Some(1 << 30)).contains("--window"));
        assert!(with(|streams| streams.streams = 257).contains("--streams"));
        let dense = TestSpec { interval_ns: 1_000_000, ..spec(4, vec![probes(200)]) };
        assert!(said(&dense).contains("--interval 10ms"), "{}", said(&dense));
        assert!(said(&spec(0, vec![probes(200)])).contains("--time"));
        let slow = DatagramsSpec { is_up: true, rate_bits_per_second: 10, datagram_bytes: 1_000 };
        assert!(said(&spec(4, vec![PartSpec::Datagrams(slow)])).contains("1 kb/s"));
    }

    #[test]
    fn a_search_for_the_longest_packet_that_outlasts_its_test_is_refused() {
        // A second of warm-up and four that count.
        let search = |patience_ns| spec(4, vec![PartSpec::Mtu(MtuSearchSpec { patience_ns })]);
        assert!(check(&search(5 * SECOND)).is_ok());
        let told = said(&search(5 * SECOND + 1));
        assert!(told.contains("--mtu") && told.contains("5.00 s"), "{told}");
    }

    /// The number that stands before a word's unit.
    fn number_after(text: &str, word: &str) -> u64 {
        let rest = text.split_once(word).expect("the word").1.trim_start();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    }

    #[test]
    fn the_interval_that_is_advised_would_do_and_a_shorter_one_not() {
        let many = BulkTcpSpec { streams: 128, ..streams() };
        for mut spec in [spec(7_200, vec![probes(100)]), spec(600, vec![PartSpec::Streams(many)])] {
            let least_ms = number_after(&said(&spec), "--interval");
            spec.interval_ns = (least_ms - 1) * 1_000_000;
            assert!(check(&spec).is_err(), "{least_ms}");
            spec.interval_ns = least_ms * 1_000_000;
            assert!(check(&spec).is_ok(), "{least_ms}");
        }
    }

    #[test]
    fn a_schedule_of_probes_is_whole_or_refused() {
        let text = said(&spec(600, vec![probes(10_000)]));
        let most = u32::try_from(number_after(&text, "--probes")).expect("small");
        assert!(check(&spec(600, vec![probes(most)])).is_ok(), "{text}");
        assert!(check(&spec(90, vec![probes(10_000)])).is_ok());
    }
}
