//! Payload that stays in a connection's send buffer when its packet leaves, for a device that gathers.
//!
//! It lies there until the host is given something again: a driver sends what it polled before that.

use plumb_wire::packet::Packet;

use crate::tcp::seq::SeqNum;

/// Where the payload of a packet lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadTail {
    /// Slot of its connection.
    pub connection: u32,
    pub seq: SeqNum,
    pub len: usize,
}

/// The payloads of the packets that were polled last.
#[derive(Debug, Default)]
pub(super) struct PayloadTails {
    /// Whose turn it is to send.
    pub connection: u32,
    tails: Vec<PayloadTail>,
}

impl PayloadTails {
    #[inline]
    pub fn clear(&mut self) {
        self.tails.clear();
    }

    /// Keeps where a payload lies; what its packet's metadata say about it.
    pub fn push(&mut self, seq: SeqNum, len: usize) -> u32 {
        self.tails.push(PayloadTail { connection: self.connection, seq, len });
        u32::try_from(self.tails.len()).expect("as many as packets are polled at once")
    }

    /// Where the payload of a packet lies, if it is not in its frame.
    pub fn get(&self, packet: &Packet) -> Option<PayloadTail> {
        let index = packet.tail.checked_sub(1)?;
        self.tails.get(index as usize).copied()
    }
}
