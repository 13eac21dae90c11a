//! Traces from files: when how much may be sent, and how long frames travel.
//!
//! Two forms of the first: mahimahi's, a line of whole milliseconds for each opportunity to send 1,504 bytes
//! (Netravali et al. 2015), which are an IP packet of 1,500 as a TUN device gives it; and plumb's own, lines of
//! `SECONDS BYTES` of frames. Blank lines and what follows a `#` are
//! passed over.

use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;

use crate::spec::{RateTrace, SendOpportunity};

/// Bytes of one of mahimahi's opportunities: `LinkQueue::PACKET_SIZE`, a packet of 1,500 bytes and [`TUN_HEADER_LEN`].
const MAHIMAHI_BYTES: u64 = 1_504;

/// Bytes that a TUN device puts before a packet (`struct tun_pi`), which mahimahi counts with it.
pub(crate) const TUN_HEADER_LEN: u64 = 4;

impl RateTrace {
    /// The trace that a file of this name contains. It repeats when its last moment is reached.
    ///
    /// # Errors
    /// What is wrong with which line.
    pub fn parse(file: &str, content: &str) -> Result<Self, String> {
        let mut opportunities: Vec<SendOpportunity> = Vec::new();
        let mut fields_before = None;
        for (line, text) in lines(content) {
            let fields = text.split_whitespace().count();
            let read =
                opportunity(text).filter(|_| fields_before.is_none_or(|before| before == fields));
            fields_before = Some(fields);
            let Some(here) = read else {
                let text: String = text.chars().take(40).collect();
                return Err(format!(
                    "line {line} of the trace '{file}' is '{text}'; write MILLISECONDS on every line, \
                     as mahimahi does, or SECONDS BYTES"
                ));
            };
            match opportunities.last_mut() {
                Some(last) if here.at < last.at => {
                    return Err(format!(
                        "line {line} of the trace '{file}' goes back in time; sort the lines by their \
                         moments"
                    ));
                }
                Some(last) if here.at == last.at => {
                    last.bytes = last.bytes.saturating_add(here.bytes);
                }
                _ => opportunities.push(here),
            }
        }
        let Some(period) = opportunities.last().map(|last| last.at) else {
            return Err(empty(file));
        };
        if period == Span::ZERO {
            return Err(format!(
                "the trace '{file}' ends at 0; its last line must lie after the beginning"
            ));
        }
        if opportunities.iter().all(|here| here.bytes == 0) {
            return Err(format!(
                "the trace '{file}' never lets a byte through; give an opportunity of more than 0 \
                 bytes"
            ));
        }
        Ok(Self {
            file: file.to_owned(),
            opportunities: opportunities.into(),
            period,
            counts_ip_packets: fields_before == Some(1),
        })
    }
}

/// The delays that a file of this name contains: one a line, as `25ms` or as seconds.
///
/// # Errors
/// What is wrong with which line.
pub fn parse_delays(file: &str, content: &str) -> Result<std::sync::Arc<[Span]>, String> {
    let mut delays = Vec::new();
    for (line, text) in lines(content) {
        let with_unit = parse_span(text).or_else(|error| {
            let bare = text.ends_with(|c: char| c.is_ascii_digit());
            if bare { parse_span(&format!("{text}s")) } else { Err(error) }
        });
        let wrong = |error| format!("line {line} of the delays '{file}': {error}");
        delays.push(with_unit.map_err(wrong)?);
    }
    if delays.is_empty() { Err(empty(file)) } else { Ok(delays.into()) }
}

fn empty(file: &str) -> String {
    format!(
        "the trace '{file}' is empty; it needs a line for each opportunity: MILLISECONDS, or SECONDS \
         BYTES"
    )
}

/// Numbered lines that say something.
fn lines(content: &str) -> impl Iterator<Item = (usize, &str)> {
    content.lines().enumerate().filter_map(|(index, line)| {
        let said = line.split('#').next().unwrap_or_default().trim();
        (!said.is_empty()).then_some((index + 1, said))
    })
}

fn opportunity(text: &str) -> Option<SendOpportunity> {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [ms] => {
            let at = Span::from_ps(ms.parse::<u64>().ok()?.checked_mul(1_000_000_000)?);
            Some(SendOpportunity { at, bytes: MAHIMAHI_BYTES })
        }
        [seconds, bytes] if seconds.ends_with(|c: char| c.is_ascii_digit()) => {
            let at = parse_span(&format!("{seconds}s")).ok()?;
            Some(SendOpportunity { at, bytes: bytes.parse().ok()? })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn opportunities(content: &str) -> Vec<(u64, u64)> {
        let trace = RateTrace::parse("t", content).unwrap();
        trace.opportunities.iter().map(|here| (here.at.as_ns(), here.bytes)).collect()
    }

    #[test]
    fn both_forms_are_read_and_equal_moments_are_one_opportunity() {
        assert_eq!(
            opportunities("0\n2\n2\n5\n"),
            [(0, 1_504), (2_000_000, 3_008), (5_000_000, 1_504)]
        );
        assert!(RateTrace::parse("t", "5\n").unwrap().counts_ip_packets);
        let own = "# seconds bytes\n0.000001 64\n\n0.5 1500 # and on\n";
        assert_eq!(opportunities(own), [(1_000, 64), (500_000_000, 1_500)]);
        assert!(!RateTrace::parse("t", own).unwrap().counts_ip_packets);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let error = |content| RateTrace::parse("cell.trace", content).unwrap_err();
        assert!(error("\n# nothing\n").contains("'cell.trace' is empty"));
        assert!(error("1\n5\n4\n").contains("line 3 of the trace 'cell.trace' goes back"));
        assert!(error("1\n2 1500\n").contains("line 2"));
        assert!(error("one\n").contains("line 1"));
        assert!(error("-1\n").contains("line 1"));
        assert!(error("0\n0\n").contains("ends at 0"));
        assert!(error("0.5 0\n1 0\n").contains("never lets a byte through"));
    }

    #[test]
    fn delays_are_read_with_and_without_unit() {
        let delays = parse_delays("d", "25ms\n0.001\n0\n").unwrap();
        assert_eq!(delays[..], [Span::from_ms(25), Span::from_ms(1), Span::ZERO]);
        assert!(parse_delays("d", "5ms\nsoon\n").unwrap_err().contains("line 2"));
        assert!(parse_delays("d", "").is_err());
    }

    proptest! {
        #[test]
        fn no_content_panics(content in "[0-9 .#a\n-]{0,60}") {
            let _ = (RateTrace::parse("t", &content), parse_delays("t", &content));
        }
    }
}
