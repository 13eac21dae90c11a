//! The classic capture format, both ways: a header, then records (draft-ietf-opsawg-pcap).
//!
//! Read in both byte orders and with times in microseconds or nanoseconds; written little-endian
//! with nanoseconds. Left out: files and compression.

use super::{ByteOrder, CaptureError, CapturedPacket, LinkType};

const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const VERSION: (u16, u16) = (2, 4);
/// Written as the longest packet kept: that of tcpdump.
const SNAP_LEN: u32 = 262_144;
/// Longer records are taken for damage: that of Wireshark.
pub(crate) const RECORD_MAX: usize = 256 << 20;

/// Whether a file begins as this format does.
pub fn is_pcap(file: &[u8]) -> bool {
    magic(file).is_some()
}

/// Byte order, and nanoseconds a unit of the time's second part.
fn magic(file: &[u8]) -> Option<(ByteOrder, u32)> {
    let bytes = *file.first_chunk()?;
    let orders = [
        (ByteOrder::Little, u32::from_le_bytes(bytes)),
        (ByteOrder::Big, u32::from_be_bytes(bytes)),
    ];
    orders.into_iter().find_map(|(order, magic)| match magic {
        MAGIC_US => Some((order, 1_000)),
        MAGIC_NS => Some((order, 1)),
        _ => None,
    })
}

/// Reads the records of a file in their order; after an error there is nothing more.
#[derive(Clone, Debug)]
pub struct PcapReader<'a> {
    file: &'a [u8],
    at: usize,
    order: ByteOrder,
    unit_ns: u32,
    link_type: LinkType,
    failed: bool,
}

impl<'a> PcapReader<'a> {
    /// A reader of this file.
    ///
    /// # Errors
    /// When it is not of this format, or not of version 2, or its header is not whole.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        let Some((order, unit_ns)) = magic(file) else {
            return Err(CaptureError::Foreign("another format"));
        };
        if file.len() < HEADER_LEN {
            let missing = HEADER_LEN - file.len();
            return Err(CaptureError::Truncated { what: "the file's header", offset: 0, missing });
        }
        let (major, minor) = (order.u16(file, 4), order.u16(file, 6));
        if major != VERSION.0 {
            return Err(CaptureError::Version { format: "pcap", major, minor });
        }
        // The upper half of the field holds flags about the frame check sequence.
        let link_type = LinkType(u16::try_from(order.u32(file, 20) & 0xffff).unwrap_or(0));
        Ok(Self { file, at: HEADER_LEN, order, unit_ns, link_type, failed: false })
    }

    /// What the frames begin with.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    fn record(&mut self) -> Result<CapturedPacket<'a>, CaptureError> {
        let offset = self.at;
        let rest = &self.file[offset..];
        let truncated = |what, missing| Err(CaptureError::Truncated { what, offset, missing });
        if rest.len() < RECORD_HEADER_LEN {
            return truncated("a record's header", RECORD_HEADER_LEN - rest.len());
        }
        let len = self.order.len(rest, 8);
        if len > RECORD_MAX {
            return Err(CaptureError::Damaged { what: "a record of more than 256 MiB", offset });
        }
        let body = &rest[RECORD_HEADER_LEN..];
        let Some(bytes) = body.get(..len) else {
            return truncated("a record", len - body.len());
        };
        self.at += RECORD_HEADER_LEN + len;
        let seconds = u64::from(self.order.u32(rest, 0));
        let fraction = u64::from(self.order.u32(rest, 4)) * u64::from(self.unit_ns);
        Ok(CapturedPacket {
            time_ns: seconds * 1_000_000_000 + fraction,
            bytes,
            original_len: self.order.u32(rest, 12),
            link_type: self.link_type,
            direction: None,
        })
    }
}

impl<'a> Iterator for PcapReader<'a> {
    type Item = Result<CapturedPacket<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.at == self.file.len() {
            return None;
        }
        let record = self.record();
        self.failed = record.is_err();
        Some(record)
    }
}

/// Appends the header of a file.
pub fn begin(file: &mut Vec<u8>, link_type: LinkType) {
    file.extend_from_slice(&MAGIC_NS.to_le_bytes());
    file.extend_from_slice(&VERSION.0.to_le_bytes());
    file.extend_from_slice(&VERSION.1.to_le_bytes());
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&SNAP_LEN.to_le_bytes());
    file.extend_from_slice(&u32::from(link_type.0).to_le_bytes());
}

/// Appends a whole packet; `time_ns` is nanoseconds since 1970, UTC.
///
/// Panics when the packet is longer than 4 GiB. Times end with the year 2106.
pub fn packet(file: &mut Vec<u8>, time_ns: u64, bytes: &[u8]) {
    let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
    let fraction = u32::try_from(time_ns % 1_000_000_000).expect("less than 1e9");
    let len = u32::try_from(bytes.len()).expect("a packet is shorter than 4 GiB");
    for field in [seconds, fraction, len, len] {
        file.extend_from_slice(&field.to_le_bytes());
    }
    file.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            packets in prop::collection::vec(
                (0..u64::from(u32::MAX) * 1_000_000_000, prop::collection::vec(any::<u8>(), 0..80)),
                0..10,
            ),
        ) {
            let mut file = Vec::new();
            begin(&mut file, LinkType::RAW);
            for (time_ns, bytes) in &packets {
                packet(&mut file, *time_ns, bytes);
            }
            let records: Result<Vec<_>, _> = PcapReader::new(&file).unwrap().collect();
            let records = records.unwrap();
            prop_assert_eq!(records.len(), packets.len());
            for (record, (time_ns, bytes)) in records.iter().zip(&packets) {
                prop_assert_eq!(record.time_ns, *time_ns);
                prop_assert_eq!(record.bytes, &bytes[..]);
                prop_assert_eq!(record.link_type, LinkType::RAW);
            }
        }
    }

    /// A file as a big-endian machine with microseconds writes it.
    fn big_endian() -> Vec<u8> {
        let mut file = vec![0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4];
        file.extend_from_slice(&[0; 8]);
        file.extend_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0, 1]);
        file.extend_from_slice(&[0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 60, 0xab, 0xcd]);
        file
    }

    #[test]
    fn files_of_the_other_byte_order_and_unit_are_read() {
        let file = big_endian();
        let records: Result<Vec<_>, _> = PcapReader::new(&file).unwrap().collect();
        let record = records.unwrap()[0];
        assert_eq!(record.time_ns, 7_000_005_000);
        assert_eq!((record.bytes, record.original_len), (&[0xab, 0xcd][..], 60));
        assert_eq!(record.link_type, LinkType::ETHERNET);
    }

    #[test]
    fn a_file_that_is_cut_off_gives_what_is_whole_and_says_where_it_ends() {
        let mut file = big_endian();
        file.extend_from_slice(&file.clone()[24..]);
        file.pop();
        let read: Vec<_> = PcapReader::new(&file).unwrap().collect();
        assert_eq!(read.len(), 2);
        assert!(read[0].is_ok());
        let error = read[1].as_ref().unwrap_err();
        assert_eq!(*error, CaptureError::Truncated { what: "a record", offset: 42, missing: 1 });
        let error = PcapReader::new(&file[..20]).unwrap_err();
        assert!(error.to_string().contains("within the file's header at byte 0"), "{error}");
    }

    #[test]
    fn an_old_version_and_an_impossible_length_are_named() {
        let mut file = big_endian();
        file[32] = 0x70;
        let error = PcapReader::new(&file).unwrap().next().unwrap().unwrap_err();
        assert!(error.to_string().contains("256 MiB"), "{error}");
        file[5] = 1;
        let error = PcapReader::new(&file).unwrap_err();
        assert!(error.to_string().contains("pcap of version 1.4"), "{error}");
    }
}
