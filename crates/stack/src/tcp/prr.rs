//! Proportional rate reduction (RFC 9937): how much may be sent for each acknowledgement while the window comes down.

/// State from the start of a reduction to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateReduction {
    /// In flight at the start.
    start: u64,
    delivered: u64,
    sent: u64,
}

impl RateReduction {
    /// Begins: `outstanding` bytes unacknowledged, `sacked` of them said to be delivered before this acknowledgement, which delivered
    /// `acked` in sequence.
    pub fn begin(outstanding: u64, sacked: u64, acked: u64) -> Self {
        Self { start: (outstanding.saturating_sub(sacked) + acked).max(1), delivered: 0, sent: 0 }
    }

    /// Bytes left to be sent after an acknowledgement that delivered `delivered`, with `pipe` in flight (RFC 9937 §6.2); `is_safe`:
    /// it advanced `snd_una` and told no new loss.
    pub fn on_ack(
        &mut self,
        delivered: u64,
        pipe: u64,
        ssthresh: u64,
        mss: u64,
        is_safe: bool,
    ) -> u64 {
        self.delivered += delivered;
        let allowed = if pipe > ssthresh {
            let proportional = u128::from(self.delivered) * u128::from(ssthresh);
            let proportional = proportional.div_ceil(u128::from(self.start));
            u64::try_from(proportional).unwrap_or(u64::MAX).saturating_sub(self.sent)
        } else {
            let banked = self.delivered.saturating_sub(self.sent).max(delivered);
            let safe = if is_safe { banked + mss } else { banked };
            safe.min(ssthresh - pipe)
        };
        // The first retransmission is always sent.
        if self.sent == 0 { allowed.max(mss) } else { allowed }
    }

    /// Bytes were sent.
    #[inline]
    pub fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_sends_in_proportion() {
        // RFC 9937 §7: 20 segments in flight, one lost, ssthresh 10: about one for every two delivered.
        let mut prr = RateReduction::begin(20, 0, 0);
        let mut pipe = 19;
        let mut sent = 0;
        for _ in 0..18 {
            pipe -= 1;
            let allowed = prr.on_ack(1, pipe, 10, 1, false);
            prr.on_sent(allowed);
            pipe += allowed;
            sent += allowed;
        }
        assert_eq!(sent, 9, "half of the 18 delivered");
        assert!(pipe.abs_diff(10) <= 1, "{pipe}");
    }

    #[test]
    fn burst_loss_grows_back_by_slow_start() {
        let mut prr = RateReduction::begin(20, 0, 0);
        let mut pipe = 4;
        for _ in 0..4 {
            pipe -= 1;
            let allowed = prr.on_ack(1, pipe, 10, 1, true);
            prr.on_sent(allowed);
            pipe += allowed;
        }
        assert_eq!(pipe, 8, "two for each delivered");
    }
}
