//! Messages between the processes of a launch: a length, then postcard.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message: a block report with all its samples is far below.
const LEN_MAX: u32 = 64 << 20;

/// Writes one message.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    // One write, so that the other side wakes once.
    let mut framed = len.to_le_bytes().to_vec();
    framed.extend_from_slice(&bytes);
    to.write_all(&framed)?;
    to.flush()
}

/// Reads one message; `None` when the other side has closed between messages.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let len = u32::from_le_bytes(len);
    if len > LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message too long"));
    }
    let mut bytes = vec![0; len as usize];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_a_closed_stream_is_no_error() {
        let mut bytes = Vec::new();
        write(&mut bytes, &("pipe".to_owned(), 64_u64)).unwrap();
        let mut stream = &bytes[..];
        assert_eq!(read(&mut stream).unwrap(), Some(("pipe".to_owned(), 64_u64)));
        assert_eq!(read::<(String, u64)>(&mut stream).unwrap(), None);
    }

    #[test]
    fn a_length_that_lies_is_refused_before_memory_is_taken() {
        let mut stream = &[0xFF, 0xFF, 0xFF, 0xFF, 0][..];
        assert!(read::<String>(&mut stream).is_err());
        let mut short = &[9, 0, 0, 0, 1][..];
        assert!(read::<String>(&mut short).is_err());
    }
}
