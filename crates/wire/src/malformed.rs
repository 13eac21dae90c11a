//! What can be wrong with bytes that should be a packet: names that drops are counted by.
//!
//! Left out: packets that are well formed but unwelcome, which is for a host to judge.

use thiserror::Error;

/// Why bytes are not the packet that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum FormatError {
    /// Fewer bytes than the header, or than the header's length field announces.
    #[error("truncated: fewer bytes than the header announces")]
    Truncated,
    /// The IP version is not that of the protocol.
    #[error("wrong IP version")]
    Version,
    /// The header says that it is shorter than a header is.
    #[error("impossible header length")]
    HeaderLength,
    /// A length field contradicts the header, or the packet.
    #[error("impossible length field")]
    Length,
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// The checksum is absent where it is required: UDP over IPv6 (RFC 8200 §8.1).
    #[error("checksum absent where it is required")]
    ChecksumAbsent,
    /// An option's length does not fit into the options, or is not one that the option can have.
    #[error("impossible option length")]
    OptionLength,
    /// More extension headers than [`crate::ipv6::EXTENSIONS_MAX`].
    #[error("too many extension headers")]
    Extensions,
    /// Hardware or protocol addresses of another kind than Ethernet and IPv4 (RFC 826).
    #[error("addresses of an unknown kind")]
    AddressKind,
    /// A code that the type of message does not have.
    #[error("impossible code for the type of message")]
    Code,
    /// A type of message that the format does not have.
    #[error("type of message that the format does not have")]
    Kind,
    /// A fragment that is not a multiple of 8 bytes, is empty, or ends beyond the largest packet.
    #[error("impossible fragment")]
    Fragment,
}

impl FormatError {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 12] = [
        Self::Truncated,
        Self::Version,
        Self::HeaderLength,
        Self::Length,
        Self::Checksum,
        Self::ChecksumAbsent,
        Self::OptionLength,
        Self::Extensions,
        Self::AddressKind,
        Self::Code,
        Self::Kind,
        Self::Fragment,
    ];

    /// The reason's name in counters: lower case, words joined by `_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Version => "version",
            Self::HeaderLength => "header_length",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::ChecksumAbsent => "checksum_absent",
            Self::OptionLength => "option_length",
            Self::Extensions => "extensions",
            Self::AddressKind => "address_kind",
            Self::Code => "code",
            Self::Kind => "kind",
            Self::Fragment => "fragment",
        }
    }

    /// Its place in [`FormatError::ALL`], for an array of counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_stands_at_its_index_under_a_name_of_its_own() {
        for (index, reason) in FormatError::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
        let names: BTreeSet<_> = FormatError::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), FormatError::ALL.len());
    }
}
