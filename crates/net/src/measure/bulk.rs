//! The bytes of one TCP connection in one direction, a call at a time: of `plumb net`, of iperf3's protocol and of
//! the streams of experiments.
//!
//! Bytes keep their place in a page wherever they are copied: AMD's Zen 3, by whose `rep movsb` the kernel copies,
//! moves 3 GB/s instead of 53 where the destination begins 8 to 24 bytes behind the source in their pages. A sender's
//! bytes lie in the kernel as they lay in its block, as it sends block after block and goes on where a call ended; a
//! receiver has them copied to a place like that.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_sys::errno::is_transient;
use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::socket;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A count that one thread sets and others read, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

impl Counter {
    /// Sets it; one thread alone does.
    #[inline]
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// One more, where several count.
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// What it was set to last.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How far one direction of a connection has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct BulkFlow {
    /// Bytes sent or received.
    pub bytes: u64,
    /// Of the block, message or page under way, those that have gone or come; 0 between two.
    pub offset: usize,
}

impl BulkFlow {
    /// Sends `most` bytes of what is left of a block; how many went, none where the socket has no room.
    #[inline]
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        block: &[u8],
        most: usize,
    ) -> io::Result<Option<usize>> {
        let rest = block.get(self.offset..).unwrap_or_default();
        let sent = socket::send(socket, rest.get(..most).unwrap_or(rest));
        self.record(sent, block.len())
    }

    /// Sends a whole message, however often the socket has no room meanwhile.
    #[inline]
    pub fn send_message(&mut self, socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
        loop {
            let sent = self.send(socket, message, usize::MAX)?;
            if sent.is_some() && self.offset == 0 {
                return Ok(());
            }
        }
    }

    /// The place in a buffer of [`receive_buffer`] that the next bytes go to.
    #[inline]
    pub fn place<'a>(&self, buffer: &'a mut [u8]) -> &'a mut [u8] {
        let room = buffer.len().saturating_sub(PAGE);
        buffer.get_mut(self.offset..self.offset + room).unwrap_or_default()
    }

    /// Receives up to `most` bytes; how many came, which at the end of the stream is 0; none where there are none yet.
    #[inline]
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        most: usize,
    ) -> io::Result<Option<usize>> {
        let place = self.place(buffer);
        let most = most.min(place.len());
        let received = socket::receive(socket, &mut place[..most], true);
        self.record(received, PAGE)
    }

    /// Receives a whole message, and has `counter` follow.
    ///
    /// # Errors
    /// The kernel's, and UnexpectedEof where the stream ends before.
    #[inline]
    pub fn receive_message(
        &mut self,
        socket: BorrowedFd<'_>,
        message: &mut [u8],
        counter: &Counter,
    ) -> io::Result<()> {
        loop {
            let received = socket::receive(socket, &mut message[self.offset..], true);
            match self.record(received, message.len())? {
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => counter.set(self.bytes),
                None => continue,
            }
            if self.offset == 0 {
                return Ok(());
            }
        }
    }

    /// Takes in what a call moved of a block of so many bytes; none where it came back with nothing for now.
    #[inline]
    pub fn record(
        &mut self,
        moved: io::Result<usize>,
        block_bytes: usize,
    ) -> io::Result<Option<usize>> {
        match moved {
            Ok(moved) => {
                self.bytes += moved as u64;
                self.offset += moved;
                if self.offset >= block_bytes {
                    self.offset %= block_bytes.max(1);
                }
                Ok(Some(moved))
            }
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A receiver's buffer with room for so many bytes at any place of a page.
pub fn receive_buffer(bytes: usize) -> PageAlignedBuffer {
    PageAlignedBuffer::filled(1, bytes.saturating_add(PAGE))
}

/// A sender's block that nothing on the way can make smaller: xorshift64*, always the same.
pub fn incompressible_block(bytes: usize) -> PageAlignedBuffer {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = PageAlignedBuffer::filled(1, bytes);
    for word in block.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    block
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn received_bytes_keep_their_place_in_a_page() {
        let (near, far) = UnixStream::pair().unwrap();
        let block = incompressible_block(3 * PAGE + 1_000);
        let (mut sender, mut receiver) = (BulkFlow::default(), BulkFlow::default());
        let mut buffer = receive_buffer(2 * PAGE);
        let mut came = Vec::new();
        for most in [1, PAGE - 1, 5_000, usize::MAX, 777, usize::MAX] {
            let sent = sender.send(near.as_fd(), &block, most).unwrap().unwrap();
            let mut left = sent;
            while left > 0 {
                let at = receiver.offset;
                assert_eq!(at as u64, receiver.bytes % PAGE as u64);
                let received = receiver.receive(far.as_fd(), &mut buffer, 3_000).unwrap().unwrap();
                came.extend_from_slice(&buffer[at..at + received]);
                left -= received;
            }
        }
        assert_eq!(came.len() as u64, sender.bytes);
        assert!(came.iter().zip(block.iter().cycle()).all(|(came, sent)| came == sent));
        drop(near);
        assert_eq!(receiver.receive(far.as_fd(), &mut buffer, 9).unwrap(), Some(0));
    }

    #[test]
    fn a_message_is_whole_however_often_nothing_moves() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let message = incompressible_block(1 << 20).to_vec();
        let counter = Counter::default();
        let received = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let (mut flow, mut received) = (BulkFlow::default(), vec![0; message.len()]);
                flow.receive_message(far.as_fd(), &mut received, &counter).unwrap();
                received
            });
            // The receiver finds nothing, and then the sender no room.
            std::thread::yield_now();
            BulkFlow::default().send_message(near.as_fd(), &message).unwrap();
            receiving.join().unwrap()
        });
        assert!(received == message && counter.get() == message.len() as u64);
    }
}
