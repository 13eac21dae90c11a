//! Frames: a length of four bytes, little-endian, and as many bytes.
//!
//! The longest frame depends on what may come next, so that an unauthenticated client cannot make us buffer more than a hello.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{REPORT_MAX, decode, encode};

/// Bytes of a frame's length.
pub const HEADER_BYTES: usize = 4;

/// What came is no frame that may come now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFrameError {
    /// Longer than anything that may come in this state.
    #[error("a frame of {len} bytes was announced where {limit} are the most")]
    TooLong {
        /// The announced length.
        len: usize,
        /// What is allowed.
        limit: usize,
    },
    /// No bytes at all.
    #[error("an empty frame was sent, which says nothing")]
    Empty,
}

/// `payload` as a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("no message is near 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Writes one message as a frame.
///
/// # Errors
/// The stream's.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    // One write, so that the other side wakes once.
    to.write_all(&frame(&encode(message)))?;
    to.flush()
}

/// Reads one message; `None` when the other side has closed between messages.
///
/// # Errors
/// The stream's, and `InvalidData` for a frame that is too long or holds no message.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut header = [0; HEADER_BYTES];
    match from.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if len > REPORT_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    let message = decode(&bytes);
    message.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a message"))
}

/// Cuts a stream of bytes into frames.
#[derive(Clone, Debug, Default)]
pub struct Deframer {
    pending: Vec<u8>,
    /// Bytes of `pending` that were handed out already.
    taken: usize,
}

impl Deframer {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.pending.drain(..self.taken);
            self.taken = 0;
        }
        self.pending.extend_from_slice(bytes);
    }

    /// The payload of the next whole frame, of at most `limit` bytes.
    ///
    /// # Errors
    /// As soon as the length is there and cannot be right; the stream is of no use afterwards.
    pub fn next_frame(&mut self, limit: usize) -> Result<Option<&[u8]>, ControlFrameError> {
        let rest = &self.pending[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if len > limit {
            return Err(ControlFrameError::TooLong { len, limit });
        }
        if len == 0 {
            return Err(ControlFrameError::Empty);
        }
        if rest.len() < len {
            return Ok(None);
        }
        let start = self.taken + HEADER_BYTES;
        self.taken = start + len;
        Ok(Some(&self.pending[start..start + len]))
    }

    /// Passes over what comes before a frame whose payload begins with `magic`. False while there is none.
    pub fn skip_to(&mut self, magic: &[u8]) -> bool {
        let rest = &self.pending[self.taken..];
        let begins = rest.windows(magic.len()).position(|bytes| bytes == magic);
        let Some(begins) = begins.and_then(|at| at.checked_sub(HEADER_BYTES)) else { return false };
        self.taken += begins;
        true
    }

    /// Bytes of the frame that has begun to come, once its length has.
    pub fn announced(&self) -> Option<usize> {
        let (header, _) = self.pending().split_first_chunk::<HEADER_BYTES>()?;
        usize::try_from(u32::from_le_bytes(*header)).ok()
    }

    /// Bytes that came and were not handed out.
    pub fn pending(&self) -> &[u8] {
        &self.pending[self.taken..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let payloads: Vec<Vec<u8>> = (1..40_u8).map(|n| vec![n; usize::from(n) * 7]).collect();
        let stream: Vec<u8> = payloads.iter().flat_map(|payload| frame(payload)).collect();
        for cut in [1, 2, 3, 5, 64, 1000, stream.len()] {
            let mut deframer = Deframer::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                deframer.push(piece);
                while let Some(payload) = deframer.next_frame(1 << 16).unwrap() {
                    seen.push(payload.to_vec());
                }
            }
            assert_eq!(seen, payloads, "cut every {cut}");
            assert!(deframer.pending().is_empty());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let mut deframer = Deframer::default();
        deframer.push(b"SSH-");
        let error = deframer.next_frame(256).unwrap_err();
        assert_eq!(error, ControlFrameError::TooLong { len: 0x2d48_5353, limit: 256 });
        let mut deframer = Deframer::default();
        deframer.push(&[0; 4]);
        assert_eq!(deframer.next_frame(256), Err(ControlFrameError::Empty));
        assert!(read::<String>(&mut &[0xff, 0xff, 0xff, 0xff, 0][..]).is_err());
        assert!(read::<String>(&mut &[9, 0, 0, 0, 1][..]).is_err());
    }

    #[test]
    fn messages_come_back_until_the_stream_closes() {
        let mut bytes = Vec::new();
        write(&mut bytes, &("pipe".to_owned(), 64_u64)).unwrap();
        let mut stream = &bytes[..];
        assert_eq!(read(&mut stream).unwrap(), Some(("pipe".to_owned(), 64_u64)));
        assert_eq!(read::<(String, u64)>(&mut stream).unwrap(), None);
    }
}
