//! Windows: the one that the peer offers, and the one that we offer.

use super::seq::SeqNum;

/// What the peer offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow {
    /// Behind the last sequence number that it allows.
    edge: SeqNum,
    /// Largest that it ever was (RFC 9293 §3.8.6.2.1, Max(SND.WND)).
    pub largest: u64,
    /// Sequence and acknowledgement number of the segment that told it (SND.WL1 and SND.WL2).
    told_by: (SeqNum, SeqNum),
    shift: u8,
}

impl SendWindow {
    /// The window of a SYN, which is never scaled; `told_by` are its sequence number and what it acknowledges.
    pub fn new(size: u16, shift: u8, told_by: (SeqNum, SeqNum)) -> Self {
        Self { edge: told_by.1 + u64::from(size), largest: size.into(), told_by, shift }
    }

    /// Behind the last sequence number that it allows.
    #[inline]
    pub const fn end(&self) -> SeqNum {
        self.edge
    }

    /// Takes the window of a segment, unless that is older than the one that told the current window (RFC 9293
    /// §3.10.7.4); whether the edge moved.
    #[inline]
    pub fn update(&mut self, seq: SeqNum, ack: SeqNum, field: u16) -> bool {
        if (seq, ack) < self.told_by {
            return false;
        }
        self.told_by = (seq, ack);
        let size = u64::from(field) << self.shift;
        self.largest = self.largest.max(size);
        std::mem::replace(&mut self.edge, ack + size) != self.edge
    }
}

/// What we offer: the right edge only advances.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// Behind the last sequence number that was ever offered.
    edge: SeqNum,
    shift: u8,
}

impl ReceiveWindow {
    /// The window that a SYN of ours offered.
    pub fn new(edge: SeqNum, shift: u8) -> Self {
        Self { edge, shift }
    }

    /// Behind the last sequence number that was ever offered.
    #[inline]
    pub const fn edge(&self) -> SeqNum {
        self.edge
    }

    /// Bytes that may be offered beyond the edge now; less than a segment or half of the buffer is not worth it
    /// (RFC 9293 §3.8.6.2.2).
    #[inline]
    pub fn opening(&self, limit: SeqNum, capacity: usize, mss: u64, silly: bool) -> u64 {
        let more = limit.saturating_since(self.edge);
        let worth = mss.min(capacity as u64 / 2);
        if silly || more >= worth { more } else { 0 }
    }

    /// The window to write into a segment that acknowledges `nxt`, with `opening` more bytes offered.
    ///
    /// It is rounded up to what the scale can express where rounding down would take back what was offered (RFC 7323 §2.4).
    #[inline]
    pub fn offer(&mut self, nxt: SeqNum, opening: u64) -> u16 {
        let wanted = (self.edge + opening).saturating_since(nxt);
        let unit = 1_u64 << self.shift;
        let down = (wanted >> self.shift).min(0xffff);
        let field = if nxt + down * unit >= self.edge || nxt >= self.edge {
            down
        } else {
            wanted.div_ceil(unit).min(0xffff)
        };
        self.edge = self.edge.max(nxt + field * unit);
        u16::try_from(field).unwrap_or(u16::MAX)
    }

    /// Behind the largest window that can be written into a segment that acknowledges `nxt`.
    #[inline]
    pub fn largest(&self, nxt: SeqNum) -> SeqNum {
        nxt + (0xffff << self.shift)
    }

    /// The window as it would be written, without offering more.
    #[inline]
    pub fn current(&self, nxt: SeqNum) -> u64 {
        self.edge.saturating_since(nxt)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn right_edge_never_retracts(
            shift in 0_u8..=14, steps in prop::collection::vec((0_u64..5_000, 0_u64..50_000), 1..100)
        ) {
            let mut nxt = SeqNum::initial(9);
            let mut window = ReceiveWindow::new(nxt + 1_000, shift);
            for (received, opening) in steps {
                nxt += received.min(window.current(nxt));
                let before = window.edge();
                let field = window.offer(nxt, opening);
                let told = nxt + (u64::from(field) << shift);
                if before - nxt <= 0xffff << shift {
                    prop_assert!(told >= before, "{before:?} taken back to {told:?}");
                }
                prop_assert!(window.edge() >= told);
            }
        }
    }

    #[test]
    fn older_segment_does_not_change_the_window() {
        let (seq, ack) = (SeqNum::initial(100), SeqNum::initial(500));
        let mut window = SendWindow::new(1_000, 0, (seq, ack));
        assert!(window.update(seq + 10, ack, 2_000));
        assert!(!window.update(seq, ack, 50));
        assert_eq!(window.end(), ack + 2_000);
        assert!(window.update(seq + 10, ack + 5, 0), "closing it is believed");
    }
}
