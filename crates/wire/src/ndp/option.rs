//! The options of neighbour discovery messages (RFC 4861 §4.6).
//!
//! Left out: acting on them; those of other RFCs, which are [`NdpOption::Other`].

use std::net::Ipv6Addr;

use crate::mac::MacAddr;
use crate::malformed::FormatError;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const PREFIX: u8 = 3;
const REDIRECTED: u8 = 4;
const MTU: u8 = 5;

/// A prefix that a router announces (RFC 4861 §4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// Its address; what lies beyond its length means nothing.
    pub address: Ipv6Addr,
    /// How many bits of the address count.
    pub len: u8,
    /// On link (0x80), autonomous (0x40), and reserved bits.
    pub flags: u8,
    /// How long it may be used, in seconds; all ones for ever.
    pub valid_s: u32,
    /// How long addresses made from it are preferred, in seconds; all ones for ever.
    pub preferred_s: u32,
}

impl PrefixInformation {
    /// Whether addresses of it are on the link.
    pub const fn is_on_link(&self) -> bool {
        self.flags & 0x80 != 0
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The Ethernet address of who sends the message.
    SourceLink(MacAddr),
    /// The Ethernet address of whom the message is about.
    TargetLink(MacAddr),
    /// A prefix.
    Prefix(PrefixInformation),
    /// The packet that was redirected, as much as fits; padded to a multiple of 8.
    Redirected(&'a [u8]),
    /// The link's MTU.
    Mtu(u32),
    /// Any other, or one of an unusual length.
    Other {
        /// Its type.
        kind: u8,
        /// What follows type and length: 8n + 6 bytes.
        data: &'a [u8],
    },
}

impl<'a> NdpOption<'a> {
    fn read(kind: u8, data: &'a [u8]) -> Self {
        match (kind, data) {
            (SOURCE_LINK, &[a, b, c, d, e, f]) => Self::SourceLink(MacAddr([a, b, c, d, e, f])),
            (TARGET_LINK, &[a, b, c, d, e, f]) => Self::TargetLink(MacAddr([a, b, c, d, e, f])),
            (MTU, &[_, _, a, b, c, d]) => Self::Mtu(u32::from_be_bytes([a, b, c, d])),
            (REDIRECTED, [_, _, _, _, _, _, packet @ ..]) => Self::Redirected(packet),
            (PREFIX, _) => prefix(data).map_or(Self::Other { kind, data }, Self::Prefix),
            _ => Self::Other { kind, data },
        }
    }

    /// Bytes of it, type and length included.
    pub fn len(&self) -> usize {
        match self {
            Self::SourceLink(_) | Self::TargetLink(_) | Self::Mtu(_) => 8,
            Self::Prefix(_) => 32,
            Self::Redirected(packet) => 8 + packet.len(),
            Self::Other { data, .. } => 2 + data.len(),
        }
    }

    /// Never: every option has a type and a length.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes it to the first [`NdpOption::len`] bytes of `out`.
    ///
    /// Panics when `out` is shorter, or its length is not a multiple of 8 below 2,048.
    pub fn emit(&self, out: &mut [u8]) {
        let len = self.len();
        assert!(len.is_multiple_of(8), "an option is a multiple of 8 bytes long");
        let out = &mut out[..len];
        out.fill(0);
        out[1] = u8::try_from(len / 8).expect("an option is shorter than 2,048 bytes");
        match self {
            Self::SourceLink(mac) => {
                out[0] = SOURCE_LINK;
                out[2..].copy_from_slice(&mac.0);
            }
            Self::TargetLink(mac) => {
                out[0] = TARGET_LINK;
                out[2..].copy_from_slice(&mac.0);
            }
            Self::Mtu(mtu) => {
                out[0] = MTU;
                out[4..].copy_from_slice(&mtu.to_be_bytes());
            }
            Self::Prefix(prefix) => {
                (out[0], out[2], out[3]) = (PREFIX, prefix.len, prefix.flags);
                out[4..8].copy_from_slice(&prefix.valid_s.to_be_bytes());
                out[8..12].copy_from_slice(&prefix.preferred_s.to_be_bytes());
                out[16..].copy_from_slice(&prefix.address.octets());
            }
            Self::Redirected(packet) => {
                out[0] = REDIRECTED;
                out[8..].copy_from_slice(packet);
            }
            Self::Other { kind, data } => {
                out[0] = *kind;
                out[2..].copy_from_slice(data);
            }
        }
    }
}

fn prefix(data: &[u8]) -> Option<PrefixInformation> {
    let data: &[u8; 30] = data.try_into().ok()?;
    let [len, flags, a, b, c, d, e, f, g, h, ..] = *data;
    let address: [u8; 16] = *data.last_chunk()?;
    Some(PrefixInformation {
        address: address.into(),
        len,
        flags,
        valid_s: u32::from_be_bytes([a, b, c, d]),
        preferred_s: u32::from_be_bytes([e, f, g, h]),
    })
}

/// The options of one message: every length is known to be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdpOptions<'a>(&'a [u8]);

impl<'a> NdpOptions<'a> {
    /// Those that `bytes` hold.
    ///
    /// # Errors
    /// [`FormatError::OptionLength`] when a length is zero or leaves the message (RFC 4861 §6.1, §7.1:
    /// the whole message is dropped).
    pub fn new(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = split(rest).ok_or(FormatError::OptionLength)?.1;
        }
        Ok(Self(bytes))
    }

    /// The options as they came.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// One by one.
    pub fn items(&self) -> impl Iterator<Item = NdpOption<'a>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (item, behind) = split(rest)?;
            rest = behind;
            Some(NdpOption::read(item[0], &item[2..]))
        })
    }

    /// The Ethernet address that the sender says is its own.
    pub fn source_link(&self) -> Option<MacAddr> {
        self.items().find_map(|item| match item {
            NdpOption::SourceLink(mac) => Some(mac),
            _ => None,
        })
    }

    /// The Ethernet address that the sender says is the target's.
    pub fn target_link(&self) -> Option<MacAddr> {
        self.items().find_map(|item| match item {
            NdpOption::TargetLink(mac) => Some(mac),
            _ => None,
        })
    }
}

/// The first option, of at least 8 bytes, and what is behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(*bytes.get(1)?) * 8;
    if len == 0 { None } else { bytes.split_at_checked(len) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item() -> impl Strategy<Value = NdpOption<'static>> {
        const BYTES: [u8; 64] = [9; 64];
        prop_oneof![
            any::<[u8; 6]>().prop_map(|mac| NdpOption::SourceLink(MacAddr(mac))),
            any::<[u8; 6]>().prop_map(|mac| NdpOption::TargetLink(MacAddr(mac))),
            any::<u32>().prop_map(NdpOption::Mtu),
            (any::<Ipv6Addr>(), any::<(u8, u8)>(), any::<(u32, u32)>()).prop_map(
                |(address, (len, flags), (valid_s, preferred_s))| {
                    NdpOption::Prefix(PrefixInformation {
                        address,
                        len,
                        flags,
                        valid_s,
                        preferred_s,
                    })
                }
            ),
            (0..8_usize).prop_map(|n| NdpOption::Redirected(&BYTES[..n * 8])),
            (6..=255_u8, 0..7_usize)
                .prop_map(|(kind, n)| NdpOption::Other { kind, data: &BYTES[..n * 8 + 6] }),
        ]
    }

    #[test]
    fn a_length_of_zero_or_beyond_the_message_is_refused() {
        for bytes in [&[1][..], &[1, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(NdpOptions::new(bytes), Err(FormatError::OptionLength), "{bytes:?}");
        }
    }

    #[test]
    fn an_address_of_another_link_is_not_taken_for_ethernets() {
        let bytes = [[1, 2, 7, 7, 7, 7, 7, 7], [7; 8]].concat();
        let options = NdpOptions::new(&bytes).unwrap();
        assert_eq!(options.source_link(), None);
        let data = &bytes[2..];
        assert_eq!(options.items().next(), Some(NdpOption::Other { kind: 1, data }));
    }

    proptest! {
        #[test]
        fn options_emitted_are_read_back(items in proptest::collection::vec(item(), 0..6)) {
            let mut bytes = vec![];
            for item in &items {
                let from = bytes.len();
                bytes.resize(from + item.len(), 0xee);
                item.emit(&mut bytes[from..]);
            }
            let options = NdpOptions::new(&bytes).unwrap();
            prop_assert_eq!(options.items().collect::<Vec<_>>(), items);
        }
    }
}
