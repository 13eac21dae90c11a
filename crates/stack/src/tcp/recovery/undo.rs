//! Undoing a reduction: timestamps (Eifel, RFC 3522) or D-SACK (RFC 3708) show that what was retransmitted had not been lost.

use super::{AckSummary, LossRecovery, RecoveryContext, RecoveryOutcome};
use crate::tcp::congestion::CongestionControl;
use crate::tcp::seq::SeqNum;

/// What a retransmission has to prove itself against.
#[derive(Clone, Copy, Debug)]
pub(super) struct UndoState {
    /// Window and threshold before the reduction.
    cwnd: u64,
    ssthresh: u64,
    /// `snd_una` then: a D-SACK must not be older.
    pub una: SeqNum,
    /// Retransmissions that D-SACK has not said to be unnecessary.
    pub retransmissions: u32,
    /// Our timestamp when the first of them was sent.
    pub first_timestamp: Option<u32>,
}

impl LossRecovery {
    pub(super) fn remember_window(&mut self, cx: &RecoveryContext<'_>) {
        let window = &cx.congestion.window;
        self.undo = Some(UndoState {
            cwnd: window.cwnd,
            ssthresh: window.ssthresh,
            una: cx.una,
            retransmissions: 0,
            first_timestamp: None,
        });
    }

    pub(super) fn on_dsack(&mut self, cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
        self.rack.on_dsack(cx.una, cx.nxt);
        let Some(undo) = &mut self.undo else { return };
        undo.retransmissions = undo.retransmissions.saturating_sub(1);
        if undo.retransmissions == 0 {
            self.undo(cx, outcome);
        }
    }

    /// Whether the timestamps say that the acknowledgement is of an original, not of its retransmission (RFC 3522).
    pub(super) fn is_echo_of_original(&self, ack: &AckSummary) -> bool {
        let first = self.undo.and_then(|undo| undo.first_timestamp);
        let Some((echo, first)) = ack.echo.zip(first).filter(|_| ack.acked > 0) else {
            return false;
        };
        echo != 0 && echo.wrapping_sub(first).cast_signed() < 0
    }

    /// Puts back what the last signal changed: nothing had been lost.
    pub(super) fn undo(&mut self, cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
        let Some(undo) = self.undo.take() else { return };
        let window = &mut cx.congestion.window;
        window.cwnd = window.cwnd.max(undo.cwnd);
        window.ssthresh = window.ssthresh.max(undo.ssthresh);
        cx.congestion.algorithm.on_spurious(&mut cx.congestion.window);
        cx.queue.forget_losses();
        self.rack.forget();
        self.rack.reordering_seen = true;
        outcome.undone = true;
        self.end_phase(cx, outcome);
    }
}
