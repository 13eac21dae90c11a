//! How long one operation takes, before any is timed for the record.

use super::{Bench, Trouble, give_up_after};
use crate::harness::spec::BlockSpec;
use crate::local::{End, Fault};

/// The longest that a pilot runs before it knows, give or take its last step.
const PILOT_NS_MAX: f64 = 1_000_000.0;

/// The part of a block that its pilot may run for: a short block that waits for a long pilot would be
/// further from its neighbours in time than it is long.
const PILOT_SHARE: f64 = 0.1;

/// A transfer is long enough that its one acknowledgement weighs less than a thousandth, in
/// round trips.
const TRANSFER_ROUND_TRIPS: f64 = 1_000.0;
/// Transfers in a block, when the duration allows.
const TRANSFERS: f64 = 8.0;

impl<E: End> Bench<'_, E> {
    /// Runs an operation in growing numbers until it is known how long one takes; nanoseconds.
    pub(super) fn pilot(
        &mut self,
        spec: &BlockSpec,
        mut operation: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<f64, Trouble> {
        let enough_ns = PILOT_NS_MAX.min(PILOT_SHARE * spec.duration_ns as f64);
        let mut lost_in_a_row = 0;
        let mut count = 2_u32;
        loop {
            let start = self.watch.begin();
            let mut done = 0;
            while done < count {
                match operation(self) {
                    Ok(()) => {
                        done += 1;
                        lost_in_a_row = 0;
                    }
                    Err(Fault::TimedOut) if E::LOSSY => {
                        lost_in_a_row += 1;
                        give_up_after(lost_in_a_row, self.size as u64)?;
                    }
                    Err(fault) => return Err(fault.into()),
                }
            }
            let elapsed = self.watch.ns(self.watch.end().wrapping_sub(start));
            if elapsed >= enough_ns || count >= 1 << 20 {
                return Ok((elapsed / f64::from(count)).max(0.1));
            }
            count *= 4;
        }
    }

    /// Messages a transfer: long enough that its one acknowledgement weighs little, short enough
    /// that a block holds several.
    pub(super) fn messages_for(&mut self, spec: &BlockSpec, acked_ns: f64) -> Result<u64, Trouble> {
        let wanted_ns = spec.duration_ns as f64 / TRANSFERS;
        // No more at first than the whole block would take, where a message takes long.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates"
        )]
        let mut count = (spec.duration_ns as f64 / acked_ns).clamp(1.0, 16.0) as u64;
        loop {
            self.peer.set_count(count)?;
            let start = self.watch.begin();
            match self.transfer(count) {
                Err(Fault::TimedOut) if E::LOSSY => {}
                outcome => {
                    outcome?;
                }
            }
            let elapsed = self.watch.ns(self.watch.end().wrapping_sub(start));
            let per_message = elapsed / count as f64;
            if elapsed * 4.0 >= wanted_ns || count >= 1 << 24 {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a float cast saturates"
                )]
                let by_time = (wanted_ns / per_message) as u64;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a float cast saturates"
                )]
                let by_ack = (TRANSFER_ROUND_TRIPS * acked_ns / per_message) as u64;
                return Ok(by_time.min(by_ack.max(by_time / 4)).max(1));
            }
            count *= 4;
        }
    }
}
