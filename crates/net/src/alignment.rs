//! Bytes of a stream keep their place in a page, wherever they are copied.
//!
//! AMD's Zen 3, by whose `rep movsb` the kernel copies, moves 3 GB/s instead of 53 where the destination begins 8 to 24
//! bytes behind the source in their pages. A sender's bytes lie in the kernel as they lay in its block, as long as it
//! sends block after block and goes on where a call ended; a receiver has them copied to a place like that. Left out:
//! what a call is.

use plumb_sys::memory::PageAlignedBuffer;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A receiver's buffer with room for so many bytes at any place of a page.
pub fn buffer(bytes: usize) -> PageAlignedBuffer {
    PageAlignedBuffer::filled(1, bytes.saturating_add(PAGE))
}

/// Where in it the next bytes go, after so many of the stream.
#[inline]
pub fn receive_slot(taken: u64, buffer: &mut [u8]) -> &mut [u8] {
    let room = buffer.len().saturating_sub(PAGE);
    let from = usize::try_from(taken % PAGE as u64).unwrap_or(0);
    buffer.get_mut(from..from + room).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_stream_goes_to_its_own_place_of_a_page_and_there_is_always_the_same_room() {
        let mut buffer = buffer(10_000);
        let start = buffer.as_ptr() as usize;
        assert_eq!(start % PAGE, 0);
        for taken in [0, 1, 4_095, 4_096, 65_160, u64::MAX] {
            let place = receive_slot(taken, &mut buffer);
            assert_eq!(place.len(), 10_000, "{taken}");
            assert_eq!((place.as_ptr() as usize - start) as u64, taken % 4_096, "{taken}");
        }
    }
}
