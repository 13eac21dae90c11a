//! A ring that the kernel writes perf records into and this process reads: perf_event_open(2),
//! "MMAP layout".
//!
//! Left out: waiting for records; rings are read after the fact.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use super::Event;
use crate::map::SharedMap;

/// Offsets of `data_head`, `data_tail` and `data_offset` in struct perf_event_mmap_page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
/// struct perf_event_header: type, misc, size.
const HEADER: usize = 8;
/// No record of the tracepoints in use is longer; one that does not fit is not written.
const RECORD_USUAL: u64 = 256;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;

/// One record of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A hit of a tracepoint: nanoseconds of CLOCK_MONOTONIC_RAW, and the bytes that the
    /// tracepoint's `format` file describes.
    Sample(u64, &'a [u8]),
    /// Records that found no room: the time at which there was room again, and their number.
    Lost(u64, u64),
}

/// The mapped ring of one event, and of those that write into it.
#[derive(Debug)]
pub struct Ring {
    map: SharedMap,
    data_at: usize,
    /// A power of two.
    data_len: usize,
    scratch: Vec<u8>,
}

impl Ring {
    /// Maps a ring of `len` bytes (a power of two of whole pages) for an event.
    ///
    /// # Errors
    /// `EPERM` beyond kernel.perf_event_mlock_kb without CAP_IPC_LOCK, `EINVAL` for another length.
    pub fn new(event: &Event, len: usize) -> io::Result<Self> {
        if !len.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: takes a plain number and cannot fail.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).unwrap_or(4096);
        let map = SharedMap::new(event.as_fd(), page + len)?;
        // Since Linux 4.1 the kernel says where the data begins; before, after one page.
        let said = map.double_word(DATA_OFFSET).load(Ordering::Relaxed);
        let data_at = usize::try_from(said).ok().filter(|&at| at != 0).unwrap_or(page);
        Ok(Self { map, data_at, data_len: len, scratch: vec![0; 1 << 16] })
    }

    /// Hands every record that is in the ring to `visit`, oldest first, and gives the room back.
    ///
    /// A record that is cut short or of another kind is passed over. True when the ring was full:
    /// what came later is lost, and the next record will say how much that was.
    pub fn drain(&mut self, mut visit: impl FnMut(Record<'_>)) -> bool {
        // Acquire: the records up to here were written before the kernel moved the head.
        let head = self.map.double_word(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.map.double_word(DATA_TAIL).load(Ordering::Relaxed);
        let full = head.wrapping_sub(tail).saturating_add(RECORD_USUAL) > self.data_len as u64;
        while head.wrapping_sub(tail) >= HEADER as u64 {
            let mut header = [0; HEADER];
            self.copy_out(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = u16::from_ne_bytes([header[6], header[7]]);
            if usize::from(size) < HEADER || head.wrapping_sub(tail) < u64::from(size) {
                tail = head;
                break;
            }
            let mut body = std::mem::take(&mut self.scratch);
            let bytes = &mut body[..usize::from(size) - HEADER];
            self.copy_out(tail.wrapping_add(HEADER as u64), bytes);
            if let Some(record) = parse(kind, bytes) {
                visit(record);
            }
            self.scratch = body;
            tail = tail.wrapping_add(u64::from(size));
        }
        // Release: the records were read before the kernel may write over them.
        self.map.double_word(DATA_TAIL).store(tail, Ordering::Release);
        full
    }

    fn copy_out(&self, position: u64, bytes: &mut [u8]) {
        let mask = self.data_len as u64 - 1;
        // Below `data_len`, which is a usize.
        let at = usize::try_from(position & mask).unwrap_or(0);
        let first = bytes.len().min(self.data_len - at);
        let (front, back) = bytes.split_at_mut(first);
        self.map.copy_out(self.data_at + at, front);
        self.map.copy_out(self.data_at, back);
    }
}

/// The record after its header, for the sample type that [`Event::tracepoint`] asks for.
fn parse(kind: u32, bytes: &[u8]) -> Option<Record<'_>> {
    let word = |at: usize| {
        bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes)
    };
    match kind {
        RECORD_SAMPLE => {
            let len = bytes.get(8..12)?.try_into().ok().map(u32::from_ne_bytes)?;
            let end = usize::try_from(len).ok()?.checked_add(12)?;
            Some(Record::Sample(word(0)?, bytes.get(12..end)?))
        }
        // u64 id, u64 lost, then the sample's identity, which is its time alone.
        RECORD_LOST => Some(Record::Lost(word(16)?, word(8)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cut_short_is_none_at_every_length() {
        let mut sample = 77_u64.to_ne_bytes().to_vec();
        sample.extend(4_u32.to_ne_bytes());
        sample.extend([1, 2, 3, 4]);
        assert_eq!(parse(RECORD_SAMPLE, &sample), Some(Record::Sample(77, &[1, 2, 3, 4])));
        for len in 0..sample.len() {
            assert_eq!(parse(RECORD_SAMPLE, &sample[..len]), None, "{len}");
        }
        let lost: Vec<u8> = [5_u64, 9, 1234].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(parse(RECORD_LOST, &lost), Some(Record::Lost(1234, 9)));
        assert_eq!(parse(RECORD_LOST, &lost[..23]), None);
        assert_eq!(parse(14, &lost), None);
    }
}
