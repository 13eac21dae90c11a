//! The options in hop-by-hop and destination extension headers (RFC 8200 §4.2).
//!
//! Left out: acting on them, beyond what their type says to do when nobody knows it.

use crate::malformed::FormatError;

/// One byte of padding, without a length.
pub const PAD_1: u8 = 0;
/// Padding of two bytes and more.
pub const PAD_N: u8 = 1;
/// Routers shall look at the packet (RFC 2711).
pub const ROUTER_ALERT: u8 = 5;
/// The payload's length in 32 bits (RFC 2675).
pub const JUMBO: u8 = 0xc2;

/// What to do with a packet that carries an option nobody here knows: its type's high two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownOptionAction {
    /// 00: pass over the option.
    Skip,
    /// 01: drop the packet.
    Drop,
    /// 10: drop it and report a parameter problem.
    Report,
    /// 11: drop it, and report a parameter problem unless it was sent to a group.
    ReportUnlessMulticast,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Its type.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
    /// Where its type is, in bytes from the first of the IPv6 header.
    pub at: usize,
}

impl Ipv6Option<'_> {
    /// Whether it is padding.
    #[inline]
    pub const fn is_padding(&self) -> bool {
        matches!(self.kind, PAD_1 | PAD_N)
    }

    /// What to do when nobody knows it.
    #[inline]
    pub const fn action(&self) -> UnknownOptionAction {
        match self.kind >> 6 {
            0 => UnknownOptionAction::Skip,
            1 => UnknownOptionAction::Drop,
            2 => UnknownOptionAction::Report,
            _ => UnknownOptionAction::ReportUnlessMulticast,
        }
    }
}

/// The options of one extension header, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Options<'a> {
    pub(super) bytes: &'a [u8],
    /// Where `bytes` begin, from the first of the IPv6 header.
    pub(super) at: usize,
}

impl<'a> Ipv6Options<'a> {
    /// Options to be emitted: `bytes` as from [`write()`], a multiple of 8 with the two bytes that
    /// stand before them.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The options as they came.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One by one. After an error there are no more.
    #[inline]
    pub fn items(
        &self,
    ) -> impl Iterator<Item = Result<Ipv6Option<'a>, FormatError>> + Clone + use<'a> {
        Ipv6OptionIter { rest: self.bytes, at: self.at }
    }
}

#[derive(Clone)]
struct Ipv6OptionIter<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Ipv6OptionIter<'a> {
    fn pull(&mut self) -> Result<Option<Ipv6Option<'a>>, FormatError> {
        let (rest, at) = (std::mem::take(&mut self.rest), self.at);
        let Some((&kind, tail)) = rest.split_first() else { return Ok(None) };
        let (data, len): (&[u8], _) = if kind == PAD_1 {
            (&[], 1)
        } else {
            let (&len, tail) = tail.split_first().ok_or(FormatError::OptionLength)?;
            (tail.get(..usize::from(len)).ok_or(FormatError::OptionLength)?, 2 + usize::from(len))
        };
        self.rest = &rest[len..];
        self.at += len;
        Ok(Some(Ipv6Option { kind, data, at }))
    }
}

impl<'a> Iterator for Ipv6OptionIter<'a> {
    type Item = Result<Ipv6Option<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// Writes options of these types and data to `out`, and padding until they and the two bytes
/// before them are a multiple of 8 long.
///
/// Returns the bytes written; `None` when `out` is too short or data longer than 255 bytes.
pub fn write<'a>(
    options: impl IntoIterator<Item = (u8, &'a [u8])>,
    out: &mut [u8],
) -> Option<usize> {
    let mut len = 0;
    for (kind, data) in options {
        len += write_one(kind, data, out.get_mut(len..)?)?;
    }
    let padding = (len + 2).next_multiple_of(8) - 2 - len;
    len += match padding {
        0 => 0,
        1 => write_one(PAD_1, &[], out.get_mut(len..)?)?,
        more => write_one(PAD_N, &[0; 8][..more - 2], out.get_mut(len..)?)?,
    };
    Some(len)
}

fn write_one(kind: u8, data: &[u8], out: &mut [u8]) -> Option<usize> {
    if kind == PAD_1 {
        *out.first_mut()? = PAD_1;
        return Some(1);
    }
    let out = out.get_mut(..2 + data.len())?;
    out[0] = kind;
    out[1] = u8::try_from(data.len()).ok()?;
    out[2..].copy_from_slice(data);
    Some(out.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_router_alert_of_rfc_2711_is_read_with_its_padding() {
        let bytes = [5, 2, 0, 0, 1, 0];
        let items: Result<Vec<_>, _> = Ipv6Options { bytes: &bytes, at: 42 }.items().collect();
        let alert = Ipv6Option { kind: ROUTER_ALERT, data: &[0, 0], at: 42 };
        let padding = Ipv6Option { kind: PAD_N, data: &[], at: 46 };
        assert_eq!(items, Ok(vec![alert, padding]));
        assert!(padding.is_padding() && !alert.is_padding());
        let mut written = [0xee; 6];
        assert_eq!(write([(ROUTER_ALERT, &[0, 0][..])], &mut written), Some(6));
        assert_eq!(written, bytes);
    }

    #[test]
    fn the_type_of_an_unknown_option_says_what_to_do() {
        let action = |kind| Ipv6Option { kind, data: &[], at: 0 }.action();
        assert_eq!(action(0x1e), UnknownOptionAction::Skip);
        assert_eq!(action(0x5e), UnknownOptionAction::Drop);
        assert_eq!(action(0x9e), UnknownOptionAction::Report);
        assert_eq!(action(JUMBO), UnknownOptionAction::ReportUnlessMulticast);
    }

    #[test]
    fn a_length_that_leaves_the_header_is_refused() {
        for bytes in [&[5][..], &[5, 1], &[0, 1, 2, 9]] {
            let last = Ipv6Options::new(bytes).items().last();
            assert_eq!(last, Some(Err(FormatError::OptionLength)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            options in proptest::collection::vec(
                (2..=255_u8, proptest::collection::vec(any::<u8>(), 0..20)), 0..5),
        ) {
            let mut bytes = [0; 256];
            let each = options.iter().map(|(kind, data)| (*kind, data.as_slice()));
            let len = write(each, &mut bytes).unwrap();
            prop_assert_eq!((len + 2) % 8, 0);
            let read: Result<Vec<_>, _> = Ipv6Options::new(&bytes[..len]).items().collect();
            let read: Vec<_> = read.unwrap().into_iter().filter(|item| !item.is_padding())
                .map(|item| (item.kind, item.data.to_vec())).collect();
            prop_assert_eq!(read, options);
        }

        #[test]
        fn bytes_read_are_written_again(bytes in proptest::collection::vec(0..6_u8, 14)) {
            let read: Result<Vec<_>, _> = Ipv6Options::new(&bytes).items().collect();
            // Bytes that end in the middle of an option are the other test's.
            if let Ok(items) = read {
                let mut again = [0; 14];
                let items = items.iter().map(|item| (item.kind, item.data));
                prop_assert_eq!(write(items, &mut again), Some(14));
                prop_assert_eq!(&again[..], &bytes);
            }
        }
    }
}
