//! Bit errors: a frame of L bytes is whole with probability (1 − BER)^8L, and is else not delivered.
//!
//! L is the frame's own bytes, without preamble, gap and check sequence. Left out: errors that a check
//! sequence misses, which [`super::corrupt`] makes.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use super::Fault;
use crate::chance::Chance;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct BitErrors {
    rate: f64,
    stream: Stream,
    /// Of the length seen last: most frames of a flow have one.
    known: Option<(usize, Chance)>,
}

impl BitErrors {
    pub(super) fn new(rate: f64, stream: Stream) -> Self {
        Self { rate, stream, known: None }
    }

    fn of(&mut self, len: usize) -> Chance {
        match self.known {
            Some((known, chance)) if known == len => chance,
            _ => {
                let chance = Chance::new(frame_error_rate(self.rate, len));
                self.known = Some((len, chance));
                chance
            }
        }
    }
}

/// 1 − (1 − BER)^8L, exact where both are small.
fn frame_error_rate(bit_error_rate: f64, len: usize) -> f64 {
    if bit_error_rate >= 1.0 {
        return 1.0;
    }
    -f64::exp_m1(8.0 * len as f64 * f64::ln_1p(-bit_error_rate))
}

impl Fault for BitErrors {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        if self.of(frame.packet.len()).strikes(&mut self.stream) {
            context.discard(frame, Reason::BitError);
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::BitErrors(rate) = spec else { return false };
        (self.rate, self.known) = (*rate, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_error_rate_is_the_closed_form_also_where_it_is_tiny() {
        let close = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-9, "{got}");
        close(frame_error_rate(1e-5, 1_500), 1.0 - (1.0 - 1e-5_f64).powi(12_000));
        close(frame_error_rate(1e-12, 1_500), 1.2e-8 * (1.0 - 0.6e-8));
        close(frame_error_rate(0.5, 1), 1.0 - 0.5_f64.powi(8));
        assert!(frame_error_rate(0.0, 1_500).abs() < f64::MIN_POSITIVE);
        close(frame_error_rate(1.0, 1), 1.0);
    }
}
