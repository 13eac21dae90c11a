//! The bytes of rtnetlink messages: headers, attributes and nests, written and read.
//!
//! All numbers are in the byte order of the machine, and every part begins at a multiple of four
//! (netlink(7), rtnetlink(7)). A builder of a few dozen lines is enough for the dozen messages of a
//! test bed; the published crates for the whole family take longer to compile than all of plumb's
//! other crates for the real world. Left out: sending, and what the numbers mean.

/// Bytes of a struct nlmsghdr.
pub(super) const HEADER: usize = 16;

/// One request, in the making.
#[derive(Clone, Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of a kind with flags and its fixed part.
    pub(super) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        pad(&mut bytes);
        Self { bytes }
    }

    /// Appends an attribute.
    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nest(kind, |request| request.bytes.extend_from_slice(value))
    }

    /// Appends an attribute of text, with its end.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nest(kind, |request| {
            request.bytes.extend_from_slice(value.as_bytes());
            request.bytes.push(0);
        })
    }

    /// Appends an attribute that holds what `inside` appends.
    pub(super) fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        inside(self);
        let len = u16::try_from(self.bytes.len() - start).expect("no request is near 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        pad(&mut self.bytes);
        self
    }

    /// Appends bytes as they are: the fixed part of a message inside an attribute.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        pad(&mut self.bytes);
        self
    }

    /// The whole message under a sequence number.
    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("no request is near 4 GiB");
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// Everything after the header.
    pub(super) body: &'a [u8],
}

/// The messages of one datagram; one that is cut short ends them.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(number32(bytes, 0)?).ok()?;
        let message = Message {
            kind: number16(bytes, 4)?,
            flags: number16(bytes, 6)?,
            sequence: number32(bytes, 8)?,
            body: bytes.get(HEADER..len)?,
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in a run of bytes, as (kind without its flags, value); one that is cut short ends
/// them.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let len = usize::from(number16(bytes, 0)?);
        let kind = number16(bytes, 2)? & !FLAGS;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Two bytes at an offset.
pub(super) fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Four bytes at an offset.
pub(super) fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Eight bytes at an offset.
pub(super) fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Text up to its end mark.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_with_its_padding() {
        let mut request = Request::new(16, 5, &[1, 2, 3, 4]);
        request.text(3, "lo").nest(18, |nest| {
            nest.attribute(1, &[7; 5]);
            nest.attribute(2, &[]);
        });
        let bytes = request.finish(9);
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence), (16, 5, 9));
        let outer: Vec<_> = attributes(&all[0].body[4..]).collect();
        assert_eq!(outer[0], (3, b"lo\0".as_slice()));
        let inner: Vec<_> = attributes(outer[1].1).collect();
        assert_eq!(inner, vec![(1, [7_u8; 5].as_slice()), (2, [].as_slice())]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_fail_or_run_for_ever(
            bytes in proptest::collection::vec(any::<u8>(), 0..512),
        ) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }
    }
}
