//! Capture files: what is common to pcap and pcapng, and which of them a file is.

use thiserror::Error;

use crate::machine::Medium;

pub mod pcap;
pub mod pcapng;

/// What the frames of a capture begin with (the LINKTYPE_ registry of tcpdump.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet, without its check sequence.
    pub const ETHERNET: Self = Self(1);
    /// IP of either version, without anything before it.
    pub const RAW: Self = Self(101);
    /// IPv4 alone.
    pub const IPV4: Self = Self(228);
    /// IPv6 alone.
    pub const IPV6: Self = Self(229);

    /// Bytes of the header before an IP packet in captures of several interfaces, as by `tcpdump -i any` on Linux
    /// (LINUX_SLL, LINUX_SLL2), and of the loopback of BSD and macOS (NULL, LOOP).
    pub const fn cooked_header_len(self) -> Option<usize> {
        match self.0 {
            113 => Some(16),
            276 => Some(20),
            0 | 108 => Some(4),
            _ => None,
        }
    }

    /// The medium whose packets they are, if a host here can be on it.
    pub const fn medium(self) -> Option<Medium> {
        match self {
            Self::ETHERNET => Some(Medium::Ethernet),
            Self::RAW | Self::IPV4 | Self::IPV6 => Some(Medium::Ip),
            _ => None,
        }
    }
}

impl From<Medium> for LinkType {
    fn from(medium: Medium) -> Self {
        match medium {
            Medium::Ethernet => Self::ETHERNET,
            Medium::Ip => Self::RAW,
        }
    }
}

/// Which way a recorded packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDirection {
    /// In at the interface.
    Inbound,
    /// Out of it.
    Outbound,
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Nanoseconds since 1970, UTC; 0 where the format has no time for it (simple packets).
    pub time_ns: u64,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
    /// How long the packet was.
    pub original_len: u32,
    /// What it begins with.
    pub link_type: LinkType,
    /// Which way it went, where the file says.
    pub direction: Option<CaptureDirection>,
}

/// Why a capture cannot be read, or not on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// Some other kind of file.
    #[error("not a pcap or pcapng file: {0}")]
    Foreign(&'static str),
    /// A version of the format that is not known.
    #[error("this is {format} of version {major}.{minor}, which is not known here")]
    Version {
        /// Which format.
        format: &'static str,
        /// The version's first part.
        major: u16,
        /// Its second.
        minor: u16,
    },
    /// The file ends within something.
    #[error(
        "the file is cut off within {what} at byte {offset}, {missing} bytes too early; all before \
         it is whole"
    )]
    Truncated {
        /// The part that is cut off.
        what: &'static str,
        /// Where it begins.
        offset: usize,
        /// Bytes that are missing, at least.
        missing: usize,
    },
    /// A field says what cannot be.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where that begins.
        offset: usize,
    },
}

/// Reads the packets of a capture of either format, in the order of the file.
///
/// After the first error there is nothing more.
#[derive(Clone, Debug)]
pub enum CaptureReader<'a> {
    /// The classic format.
    Pcap(pcap::PcapReader<'a>),
    /// The next generation.
    Pcapng(pcapng::PcapngReader<'a>),
}

impl<'a> CaptureReader<'a> {
    /// A reader of this file.
    ///
    /// # Errors
    /// When it is not a capture, or its header is not whole: see [`CaptureError`].
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        if pcapng::is_pcapng(file) {
            return pcapng::PcapngReader::new(file).map(Self::Pcapng);
        }
        if pcap::is_pcap(file) {
            return pcap::PcapReader::new(file).map(Self::Pcap);
        }
        Err(CaptureError::Foreign(kind_of(file)))
    }
}

impl<'a> Iterator for CaptureReader<'a> {
    type Item = Result<CapturedPacket<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Pcap(reader) => reader.next(),
            Self::Pcapng(reader) => reader.next(),
        }
    }
}

/// The kind of a file that is no capture, as far as its first bytes tell.
fn kind_of(file: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"", "an empty file"),
        (&[0x1f, 0x8b], "compressed by gzip: decompress it first"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "compressed by zstd: decompress it first"),
        (&[0xfd, b'7', b'z', b'X', b'Z'], "compressed by xz: decompress it first"),
        (&[0x04, 0x22, 0x4d, 0x18], "compressed by lz4: decompress it first"),
        (b"snoop\0\0\0", "a snoop capture: convert it with `editcap -F pcapng`"),
        (b"TRSNIFF data", "a Sniffer capture: convert it with `editcap -F pcapng`"),
        (b"GMBU", "a Network Monitor capture: convert it with `editcap -F pcapng`"),
        (b"\x7fELF", "a program"),
    ];
    if file.is_empty() {
        return KNOWN[0].1;
    }
    let known = KNOWN[1..].iter().find(|(magic, _)| file.starts_with(magic));
    let text = file.iter().take(256).all(|&b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e));
    match known {
        Some((_, name)) => name,
        None if text => "text",
        None => "something that begins with unknown bytes",
    }
}

/// The byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The 16-bit number at `at`; 0 where there is none.
    pub fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        match self {
            Self::Little => u16::from_le_bytes(field),
            Self::Big => u16::from_be_bytes(field),
        }
    }

    /// The 32-bit number at `at`; 0 where there is none.
    pub fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        match self {
            Self::Little => u32::from_le_bytes(field),
            Self::Big => u32::from_be_bytes(field),
        }
    }

    /// The same as an index.
    pub fn len(self, bytes: &[u8], at: usize) -> usize {
        usize::try_from(self.u32(bytes, at)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_file_is_named() {
        let said = |file: &[u8]| CaptureReader::new(file).unwrap_err().to_string();
        assert_eq!(said(b""), "not a pcap or pcapng file: an empty file");
        assert!(said(&[0x1f, 0x8b, 8, 0]).contains("gzip"));
        assert!(said(b"10:00:01 IP host > host\n").ends_with("text"));
        assert!(said(&[0xff; 40]).contains("unknown bytes"));
        assert!(said(b"snoop\0\0\0").contains("editcap"));
    }
}
