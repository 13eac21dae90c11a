//! Segments that a script expects.

use plumb_base::time::{Instant, Span};
use plumb_wire::tcp::TcpFlags;

use super::{ScriptRunner, StepResult, UnderTest, failed};
use crate::outcome::{ScriptOutcome, ScriptPosition};
use crate::packets::{ObservedSegment, describe_options, read_options};
use crate::script::{OptionSpec, PacketBody, PacketSpec, ScriptEvent, TcpSpec};

/// How long after its time a segment is waited for, so that a late one can be shown.
const LATENESS: Span = Span::from_secs(2);

impl ScriptRunner {
    /// Waits for a segment and compares it with what the script expects between two moments.
    pub(super) fn expect(
        &mut self,
        event: &ScriptEvent,
        packet: &PacketSpec,
        (from, to): (Instant, Instant),
    ) -> StepResult {
        let PacketBody::Tcp(expected) = &packet.body else {
            let what = "ICMP messages that the stack sends".to_owned();
            return Err(ScriptOutcome::Unsupported { at: event.at, what });
        };
        let mut segment = self.next_segment(event.at, expected, to + LATENESS)?;
        let first = segment.at;
        while segment.len < u32::from(expected.len) && !self.settings.strict_segments {
            let next = self.next_segment(event.at, expected, to + LATENESS)?;
            let total = segment.len;
            if let Err(reason) = segment.join(&next, (total, expected.len.into())) {
                let text = next.describe(true);
                return failed(event.at, format!("{reason}: {text} came within the segment"));
            }
        }
        let shown = segment.describe(true);
        let compared = segment
            .compare(packet, expected)
            .and_then(|()| self.compare_options(expected, &segment, from));
        if let Err(reason) = compared {
            return failed(event.at, format!("{reason} in {shown}"));
        }
        self.check_time(event.at, first, (from, to), &shown)
    }

    fn check_time(
        &self,
        at: ScriptPosition,
        found: Instant,
        (from, to): (Instant, Instant),
        shown: &str,
    ) -> StepResult {
        let tolerance = self.tolerance(from);
        let is_early = found + tolerance < from;
        if !is_early && found <= to + tolerance {
            return Ok(());
        }
        let expected = if from == to {
            self.time(from)
        } else {
            format!("{} to {}", self.time(from), self.time(to))
        };
        failed(at, format!("{shown} was sent at {} instead of {expected}", self.time(found)))
    }

    /// The next segment of the connection, its numbers as in the script.
    fn next_segment(
        &mut self,
        at: ScriptPosition,
        expected: &TcpSpec,
        until: Instant,
    ) -> Result<ObservedSegment, ScriptOutcome> {
        loop {
            self.try_pending()?;
            while let Some(segment) = self.world.sent.pop_front() {
                if let Some(segment) = self.belonging(segment, expected) {
                    return Ok(segment);
                }
            }
            if !self.step(until) {
                break;
            }
        }
        let flags = if expected.flags == TcpFlags::NONE {
            "-".to_owned()
        } else {
            format!("{:?}", expected.flags)
        };
        let (seq, len) = (expected.seq, expected.len);
        let until = self.time(until);
        failed(at, format!("no segment was sent until {until}: {flags} {seq}:…({len}) is expected"))
    }

    /// The segment in the script's numbers, if it is of the connection under test.
    fn belonging(
        &mut self,
        segment: ObservedSegment,
        expected: &TcpSpec,
    ) -> Option<ObservedSegment> {
        let flags = segment.header.flags;
        let (is_syn, has_ack) = (flags.contains(TcpFlags::SYN), flags.contains(TcpFlags::ACK));
        if self.under_test == UnderTest::Connecting
            && is_syn
            && !has_ack
            && segment.destination == self.settings.remote
        {
            self.map = super::ConnectionMap::new(segment.source, segment.destination);
            self.map.local_isn = (expected.seq, segment.header.seq);
            self.under_test = UnderTest::Connection;
        }
        if segment.source != self.map.local || segment.destination != self.map.remote {
            return None;
        }
        // The SYN-ACK to a SYN of the script tells the stack's number.
        if is_syn && has_ack && self.map.local_isn == (0, 0) {
            self.map.local_isn = (expected.seq, segment.header.seq);
        }
        if expected.absolute {
            return Some(segment);
        }
        Some(segment.in_script(&self.map))
    }

    /// Compares options, those of the segment in the script's numbers.
    fn compare_options(
        &mut self,
        expected: &TcpSpec,
        segment: &ObservedSegment,
        from: Instant,
    ) -> Result<(), String> {
        let mut found = read_options(&segment.header);
        let is_syn = segment.header.flags.contains(TcpFlags::SYN);
        let offset = self.map.remote_offset(is_syn);
        let scripted = expected.options.as_deref().unwrap_or_default();
        let stamp = scripted.iter().find_map(|option| match option {
            OptionSpec::Timestamps { value, .. } => Some(*value),
            _ => None,
        });
        for option in &mut found {
            match option {
                OptionSpec::Sack(blocks) => {
                    for (left, right) in blocks {
                        (*left, *right) = (left.wrapping_sub(offset), right.wrapping_sub(offset));
                    }
                }
                OptionSpec::Timestamps { value, .. } => {
                    if let Some(stamp) = stamp {
                        let mapped = self.map.on_timestamp(stamp, *value);
                        *value = self.timestamp(stamp, mapped, from);
                    }
                }
                _ => {}
            }
        }
        let Some(expected) = &expected.options else { return Ok(()) };
        if found == *expected {
            return Ok(());
        }
        let [found, expected] = [&found, expected].map(|options| describe_options(options));
        Err(format!("the options are <{found}> instead of <{expected}>"))
    }

    /// The timestamp to compare with `scripted`: that itself, unless its value is checked and beyond what the tolerance allows.
    fn timestamp(&self, scripted: u32, mapped: u32, from: Instant) -> u32 {
        let Some(tick) = self.settings.timestamp_tick else { return scripted };
        let passed = from.saturating_since(self.start).as_secs_f64();
        let part = Span::from_secs_f64(passed * self.settings.tolerance_ratio);
        let tolerance = self.settings.tolerance.max(part);
        let ticks = mapped.wrapping_sub(scripted).cast_signed().unsigned_abs();
        if tick * u64::from(ticks) <= tolerance { scripted } else { mapped }
    }
}
