//! The next generation of capture files, both ways: sections of blocks (draft-ietf-opsawg-pcapng).
//!
//! Read: section headers in both byte orders, interfaces with their unit and offset of time,
//! enhanced, simple and the old packet blocks; other blocks are passed over. Written: one
//! little-endian section, times in nanoseconds, the direction of each packet. Left out: files,
//! names, statistics, secrets and comments.

use super::pcap::RECORD_MAX;
use super::{ByteOrder, CaptureDirection, CaptureError, CapturedPacket, LinkType};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET_OLD: u32 = 2;
const PACKET_SIMPLE: u32 = 3;
const PACKET_ENHANCED: u32 = 6;
const MAGIC: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TIME_UNIT: u16 = 9;
const INTERFACE_TIME_OFFSET: u16 = 14;
const PACKET_FLAGS: u16 = 2;

/// Whether a file begins as this format does.
pub fn is_pcapng(file: &[u8]) -> bool {
    // The same in both byte orders.
    file.starts_with(&SECTION.to_be_bytes())
}

/// An interface of a section.
#[derive(Clone, Copy, Debug)]
struct PcapngInterface {
    link_type: LinkType,
    snap_len: u32,
    /// Units of time a second.
    units: u64,
    /// Seconds to be added to each time.
    offset_s: u64,
}

/// Reads the packets of a file in their order; after an error there is nothing more.
#[derive(Clone, Debug)]
pub struct PcapngReader<'a> {
    file: &'a [u8],
    at: usize,
    order: ByteOrder,
    interfaces: Vec<PcapngInterface>,
    failed: bool,
}

/// A block's type, body and where it begins.
struct PcapngBlock<'a> {
    kind: u32,
    body: &'a [u8],
    offset: usize,
}

impl<'a> PcapngReader<'a> {
    /// A reader of this file.
    ///
    /// # Errors
    /// When it is not of this format, or the header of its first section is not whole.
    pub fn new(file: &'a [u8]) -> Result<Self, CaptureError> {
        if !is_pcapng(file) {
            return Err(CaptureError::Foreign("another format"));
        }
        let order = ByteOrder::Little;
        let mut reader = Self { file, at: 0, order, interfaces: Vec::new(), failed: false };
        let section = reader.block()?;
        reader.section(&section)?;
        Ok(reader)
    }

    /// The next block; moves behind it.
    fn block(&mut self) -> Result<PcapngBlock<'a>, CaptureError> {
        let offset = self.at;
        let rest = &self.file[offset..];
        let truncated = |missing| Err(CaptureError::Truncated { what: "a block", offset, missing });
        let damaged = |what| Err(CaptureError::Damaged { what, offset });
        if rest.len() < 12 {
            return truncated(12 - rest.len());
        }
        if is_pcapng(rest) {
            self.order = match *rest[8..].first_chunk().expect("twelve bytes") {
                magic if u32::from_le_bytes(magic) == MAGIC => ByteOrder::Little,
                magic if u32::from_be_bytes(magic) == MAGIC => ByteOrder::Big,
                _ => return damaged("a section of no known byte order"),
            };
        }
        let len = self.order.len(rest, 4);
        if len < 12 || !len.is_multiple_of(4) {
            return damaged("a block of impossible length");
        }
        if len > RECORD_MAX {
            return damaged("a block of more than 256 MiB");
        }
        if len > rest.len() {
            return truncated(len - rest.len());
        }
        if self.order.len(rest, len - 4) != len {
            return damaged("a block whose two lengths differ");
        }
        self.at += len;
        Ok(PcapngBlock { kind: self.order.u32(rest, 0), body: &rest[8..len - 4], offset })
    }

    fn section(&mut self, block: &PcapngBlock<'_>) -> Result<(), CaptureError> {
        let (major, minor) = (self.order.u16(block.body, 4), self.order.u16(block.body, 6));
        if block.body.len() < 16 {
            return Err(CaptureError::Damaged {
                what: "a section header that is too short",
                offset: block.offset,
            });
        }
        // Version 1.2 was written by mistake for 1.0, says the draft.
        if major != 1 {
            return Err(CaptureError::Version { format: "pcapng", major, minor });
        }
        self.interfaces.clear();
        Ok(())
    }

    fn interface(&mut self, block: &PcapngBlock<'_>) -> Result<(), CaptureError> {
        let damaged = |what| CaptureError::Damaged { what, offset: block.offset };
        if block.body.len() < 8 {
            return Err(damaged("an interface that is too short"));
        }
        let mut interface = PcapngInterface {
            link_type: LinkType(self.order.u16(block.body, 0)),
            snap_len: self.order.u32(block.body, 4),
            units: 1_000_000,
            offset_s: 0,
        };
        for (code, value) in options(self.order, &block.body[8..]) {
            match (code, value) {
                (INTERFACE_TIME_UNIT, &[unit, ..]) => {
                    interface.units =
                        units(unit).ok_or_else(|| damaged("an impossible unit of time"))?;
                }
                // Before 1970 is before there were captures.
                (INTERFACE_TIME_OFFSET, value) if value.len() >= 8 => {
                    let (low, high) = (self.order.u32(value, 0), self.order.u32(value, 4));
                    interface.offset_s = match self.order {
                        ByteOrder::Little => u64::from(high) << 32 | u64::from(low),
                        ByteOrder::Big => u64::from(low) << 32 | u64::from(high),
                    };
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet(&self, block: &PcapngBlock<'a>) -> Result<CapturedPacket<'a>, CaptureError> {
        let damaged = |what| CaptureError::Damaged { what, offset: block.offset };
        let order = self.order;
        let body = block.body;
        let header_len = if block.kind == PACKET_SIMPLE { 4 } else { 20 };
        if body.len() < header_len {
            return Err(damaged("a packet block that is too short"));
        }
        let index = match block.kind {
            PACKET_SIMPLE => 0,
            PACKET_OLD => usize::from(order.u16(body, 0)),
            _ => order.len(body, 0),
        };
        let interface =
            self.interfaces.get(index).ok_or_else(|| damaged("a packet of no known interface"))?;
        if block.kind == PACKET_SIMPLE {
            let original_len = order.u32(body, 0);
            let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
            let kept = usize::try_from(original_len.min(snap_len)).unwrap_or(usize::MAX);
            let bytes = body
                .get(4..)
                .and_then(|data| data.get(..kept))
                .ok_or_else(|| damaged("a packet that is longer than its block"))?;
            let link_type = interface.link_type;
            return Ok(CapturedPacket {
                time_ns: 0,
                bytes,
                original_len,
                link_type,
                direction: None,
            });
        }
        let kept = order.len(body, 12);
        let data = &body[20..];
        let bytes =
            data.get(..kept).ok_or_else(|| damaged("a packet that is longer than its block"))?;
        let time = u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8));
        let behind = data.get(kept.next_multiple_of(4)..).unwrap_or_default();
        let flags = options(order, behind).find(|(code, _)| *code == PACKET_FLAGS);
        let direction = flags.and_then(|(_, value)| match order.u32(value, 0) & 0b11 {
            1 => Some(CaptureDirection::Inbound),
            2 => Some(CaptureDirection::Outbound),
            _ => None,
        });
        Ok(CapturedPacket {
            time_ns: nanoseconds(time, interface),
            bytes,
            original_len: order.u32(body, 16),
            link_type: interface.link_type,
            direction,
        })
    }
}

impl<'a> Iterator for PcapngReader<'a> {
    type Item = Result<CapturedPacket<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed && self.at < self.file.len() {
            let record = self.block().and_then(|block| match block.kind {
                SECTION => self.section(&block).map(|()| None),
                INTERFACE => self.interface(&block).map(|()| None),
                PACKET_OLD | PACKET_SIMPLE | PACKET_ENHANCED => self.packet(&block).map(Some),
                _ => Ok(None),
            });
            self.failed = record.is_err();
            if let Some(record) = record.transpose() {
                return Some(record);
            }
        }
        None
    }
}

/// The options at the end of a block: code and value; ends at the first that is not whole.
fn options(order: ByteOrder, mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        if bytes.len() < 4 {
            return None;
        }
        let (code, len) = (order.u16(bytes, 0), usize::from(order.u16(bytes, 2)));
        let value = bytes.get(4..4 + len)?;
        bytes = bytes.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        (code != OPTION_END).then_some((code, value))
    })
}

/// Units a second: a power of ten, or of two where the top bit is set.
fn units(resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
}

fn nanoseconds(time: u64, interface: &PcapngInterface) -> u64 {
    let ns = u128::from(time) * 1_000_000_000 / u128::from(interface.units);
    let offset = u128::from(interface.offset_s) * 1_000_000_000;
    u64::try_from(ns + offset).unwrap_or(u64::MAX)
}

/// Appends the header of a section, written by `application`.
pub fn begin(file: &mut Vec<u8>, application: &str) {
    block(file, SECTION, |file| {
        file.extend_from_slice(&MAGIC.to_le_bytes());
        file.extend_from_slice(&[1, 0, 0, 0]);
        // Length of the section: not said.
        file.extend_from_slice(&[0xff; 8]);
        option(file, SECTION_APPLICATION, application.as_bytes());
        option(file, OPTION_END, &[]);
    });
}

/// Appends an interface; its number is how many the section had before. `snap_len` is the longest
/// packet kept, 0 for whole ones.
pub fn interface(file: &mut Vec<u8>, link_type: LinkType, name: &str, snap_len: u32) {
    block(file, INTERFACE, |file| {
        file.extend_from_slice(&link_type.0.to_le_bytes());
        file.extend_from_slice(&[0; 2]);
        file.extend_from_slice(&snap_len.to_le_bytes());
        option(file, INTERFACE_NAME, name.as_bytes());
        option(file, INTERFACE_TIME_UNIT, &[9]);
        option(file, OPTION_END, &[]);
    });
}

/// Appends a whole packet of the section's interface of this number; `time_ns` is nanoseconds since
/// 1970, UTC.
///
/// Panics when the packet is longer than 4 GiB.
pub fn packet(
    file: &mut Vec<u8>,
    interface: u32,
    time_ns: u64,
    direction: Option<CaptureDirection>,
    bytes: &[u8],
) {
    let len = u32::try_from(bytes.len()).expect("a packet is shorter than 4 GiB");
    let high = u32::try_from(time_ns >> 32).expect("the upper half");
    let low = u32::try_from(time_ns & 0xffff_ffff).expect("the lower half");
    block(file, PACKET_ENHANCED, |file| {
        for field in [interface, high, low, len, len] {
            file.extend_from_slice(&field.to_le_bytes());
        }
        file.extend_from_slice(bytes);
        pad(file, bytes.len());
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                CaptureDirection::Inbound => 1,
                CaptureDirection::Outbound => 2,
            };
            option(file, PACKET_FLAGS, &flags.to_le_bytes());
            option(file, OPTION_END, &[]);
        }
    });
}

/// A block of this type around what `body` appends.
fn block(file: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = file.len();
    file.extend_from_slice(&kind.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    body(file);
    let len = u32::try_from(file.len() - start + 4).expect("a block is shorter than 4 GiB");
    file[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    file.extend_from_slice(&len.to_le_bytes());
}

/// Appends an option. Values longer than a length field can say are cut.
fn option(file: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).unwrap_or(u16::MAX);
    file.extend_from_slice(&code.to_le_bytes());
    file.extend_from_slice(&len.to_le_bytes());
    file.extend_from_slice(&value[..usize::from(len)]);
    pad(file, usize::from(len));
}

fn pad(file: &mut Vec<u8>, len: usize) {
    file.resize(file.len() + (len.next_multiple_of(4) - len), 0);
}

#[cfg(test)]
mod tests;
