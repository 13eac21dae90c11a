//! The tables that netperf has printed since its first version.
//!
//! Units are read from the last line of the headings, the test from the banner. Left out: socket
//! buffer sizes, which are those asked for and not those in use.

use super::super::builder::ImportBuilder;
use super::super::{ImportError, excerpt, whole_number};
use super::{FORMAT, NetperfTest, NetperfTestKind, bytes_per_second};

/// Whether a line is the first of a table's headings.
pub(super) fn is_heading(words: &[&str]) -> bool {
    matches!(words, ["Recv", "Send", "Send", ..] | ["Socket", "Message", "Elapsed", ..])
        || matches!(words, ["Local", "/Remote"])
}

/// Which of the three tables it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NetperfTableKind {
    /// One row: buffers, message size, seconds, throughput.
    Stream,
    /// A row of the sender and one of the receiver.
    Datagrams,
    /// Sizes, seconds and rate; the other side's buffers in a second row.
    Transactions,
}

/// A table while it is read.
pub(super) struct NetperfTable<'a> {
    test: &'a NetperfTest,
    layout: NetperfTableKind,
    /// The words of the last line of headings and its number.
    units: (usize, Vec<String>),
    rows: Vec<(usize, Vec<f64>)>,
}

impl<'a> NetperfTable<'a> {
    /// The table that begins with this heading.
    pub(super) fn new(test: &'a NetperfTest, number: usize, heading: &str) -> Self {
        let layout = match heading.split_whitespace().next() {
            Some("Recv") => NetperfTableKind::Stream,
            Some("Socket") => NetperfTableKind::Datagrams,
            _ => NetperfTableKind::Transactions,
        };
        Self { test, layout, units: (number, Vec::new()), rows: Vec::new() }
    }

    /// Takes a line that is not blank; true when it was the last one.
    ///
    /// # Errors
    /// A row that is not of the table's numbers.
    pub(super) fn line(&mut self, number: usize, line: &str) -> Result<bool, ImportError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_row = words.first().is_some_and(|word| word.parse::<f64>().is_ok());
        if !is_row && self.rows.is_empty() && NetperfTest::from_banner(line).is_none() {
            self.units = (number, words.into_iter().map(str::to_owned).collect());
            return Ok(false);
        }
        let wanted = self.columns();
        if words.len() != wanted {
            let expected = format!("a row of {wanted} numbers");
            return Err(FORMAT.unexpected(number, expected, excerpt(line)));
        }
        let row = words
            .iter()
            .map(|word| FORMAT.number(number, word, "a number of the table"))
            .collect::<Result<Vec<f64>, _>>()?;
        self.rows.push((number, row));
        Ok(self.layout == NetperfTableKind::Stream || self.rows.len() == 2)
    }

    /// How many numbers the next row has, with the columns of CPU use or without.
    fn columns(&self) -> usize {
        let has_cpu = self.units.1.iter().any(|word| word == "%");
        match (self.layout, self.rows.len()) {
            (NetperfTableKind::Stream, _) => 5 + if has_cpu { 4 } else { 0 },
            (NetperfTableKind::Datagrams, 0) => 6 + if has_cpu { 2 } else { 0 },
            (NetperfTableKind::Datagrams, _) => 4 + if has_cpu { 2 } else { 0 },
            (NetperfTableKind::Transactions, 0) => 6 + if has_cpu { 4 } else { 0 },
            (NetperfTableKind::Transactions, _) => 2,
        }
    }

    /// Puts the figures of a whole table into the draft.
    ///
    /// # Errors
    /// Units that are not netperf's, or a table that is not of the test in the banner.
    pub(super) fn finish(&self, draft: &mut ImportBuilder) -> Result<(), ImportError> {
        let (number, row) = &self.rows[0];
        match (self.layout, self.test.kind) {
            (NetperfTableKind::Stream, Some(NetperfTestKind::Stream { .. })) => {
                let scale = self.scale(&["bytes", "bytes", "bytes", "secs."])?;
                let target = self.test.throughput("throughput", size(row[2]));
                draft.add_number(target, row[4] * scale, "mean");
                self.cpu(draft, &row[5..]);
            }
            (NetperfTableKind::Datagrams, Some(NetperfTestKind::Stream { .. })) => {
                let scale = self.scale(&["bytes", "bytes", "secs", "#", "#"])?;
                let (received_number, received) = &self.rows[1];
                if received[2] > row[3] {
                    let expected = "at most as many messages as were sent";
                    let found = received[2].to_string();
                    return Err(FORMAT.unexpected(*received_number, expected, found));
                }
                let size = size(row[1]);
                let target = self.test.throughput("throughput", size);
                draft.add_number(target, received[3] * scale, "mean");
                if row[3] > 0.0 {
                    let target = self.test.throughput("delivered", size);
                    draft.add_number(target, received[2] / row[3], "total");
                }
                draft.add_note("netperf.messages.sent", &row[3].to_string());
                draft.add_note("netperf.messages.not-sent", &row[4].to_string());
                let cpu: Vec<f64> =
                    row.get(6).into_iter().chain(received.get(4)).copied().collect();
                self.cpu(draft, &cpu);
            }
            (NetperfTableKind::Transactions, Some(kind))
                if !matches!(kind, NetperfTestKind::Stream { .. }) =>
            {
                self.check(&["bytes", "Bytes", "bytes", "bytes", "secs.", "per", "sec"])?;
                let rate = row[5];
                if rate <= 0.0 {
                    return Err(FORMAT.failed(format!("line {number} counts no transaction")));
                }
                let sizes = size(row[2]).zip(size(row[3]));
                let (target, scale) = self.test.transactions(sizes);
                draft.add_number(target, 1e9 * self.test.in_flight() / rate * scale, "mean");
                draft.add_note("netperf.transactions_per_s", &rate.to_string());
                self.cpu(draft, &row[6..]);
            }
            _ => {
                let expected = "the table of the test that the banner names";
                return Err(FORMAT.unexpected(self.units.0, expected, "the table of another"));
            }
        }
        Ok(())
    }

    fn check(&self, expected: &[&str]) -> Result<(), ImportError> {
        let found: Vec<&str> = self.units.1.iter().map(String::as_str).collect();
        // With columns of CPU use, "Bytes" is written "bytes".
        let is_same = |(found, expected): (&&str, &&str)| found.eq_ignore_ascii_case(expected);
        if found.len() >= expected.len() && found.iter().zip(expected).all(is_same) {
            return Ok(());
        }
        let expected = format!("the units '{}'", expected.join(" "));
        Err(FORMAT.unexpected(self.units.0, expected, excerpt(&found.join(" "))))
    }

    /// What the throughput's unit, which stands behind these, is in bytes a second.
    fn scale(&self, before: &[&str]) -> Result<f64, ImportError> {
        self.check(before)?;
        let unit = self.units.1.get(before.len()).map_or("", String::as_str);
        bytes_per_second(unit).ok_or_else(|| {
            let expected = "a throughput in bits, as 10^6bits/sec, or bytes, as MBytes/sec";
            FORMAT.unexpected(self.units.0, expected, excerpt(unit))
        })
    }

    /// Utilisation of both sides, then service demand of both sides, in the file's units.
    fn cpu(&self, draft: &mut ImportBuilder, figures: &[f64]) {
        let sides = ["local", "remote"];
        for (figure, side) in figures.iter().zip(sides) {
            draft.add_note(&format!("netperf.cpu.{side}_percent"), &figure.to_string());
        }
        let unit = self.units.1.last().map_or("", String::as_str);
        for (figure, side) in figures.iter().skip(2).zip(sides) {
            draft.add_note(&format!("netperf.cpu.{side}_demand"), &format!("{figure} {unit}"));
        }
    }
}

/// A size that is there.
fn size(value: f64) -> Option<u64> {
    whole_number(value).filter(|size| *size > 0)
}
