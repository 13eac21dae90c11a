//! What messages contain: a number in front, then bytes that both sides can make for themselves.

use plumb_base::seed::Seed;
use plumb_sys::memory::PageAlignedBuffer;
use rand::Rng as _;

/// The pattern of a launch: the same in worker and peer.
pub(crate) fn pattern(seed: u64, size: usize) -> PageAlignedBuffer {
    let mut bytes = PageAlignedBuffer::filled(1, size);
    Seed(seed).stream("payload").fill_bytes(&mut bytes);
    bytes
}

/// Bytes of a message that hold its number.
pub(crate) fn stamp_len(size: usize) -> usize {
    size.min(8)
}

/// Writes a number into the front of a message.
#[inline]
pub(crate) fn stamp(message: &mut [u8], len: usize, number: u64) {
    message[..len].copy_from_slice(&number.to_le_bytes()[..len]);
}

/// Reads the number from the front of a message.
#[inline]
pub(crate) fn number(message: &[u8], len: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..len].copy_from_slice(&message[..len]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_in_the_bytes_of_its_message() {
        let mut message = pattern(3, 5);
        let len = stamp_len(message.len());
        stamp(&mut message, len, 0x01_0203_0405);
        assert_eq!(number(&message, len), 0x01_0203_0405);
        assert_eq!(pattern(3, 5)[..], pattern(3, 9)[..5]);
        assert_ne!(pattern(3, 64)[..], pattern(4, 64)[..]);
    }
}
