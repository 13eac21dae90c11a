//! Tracepoints read through perf: events and the rings they write into.
//! What a record means beyond its header is in each tracepoint's `format` file.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::memory::SharedMap;
use crate::{check, owned};

/// Which tasks and CPUs an event sees: the `pid` and `cpu` of perf_event_open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfScope {
    /// Every task on one CPU.
    Cpu(u32),
    /// One thread while it is on one CPU.
    ThreadOnCpu(u32, u32),
}

/// One tracepoint switched on for one scope; off again when dropped.
#[derive(Debug)]
pub struct TracepointEvent {
    fd: OwnedFd,
}

impl TracepointEvent {
    /// Opens a tracepoint by the number in its `id` file, disabled, every hit a sample of its time
    /// on CLOCK_MONOTONIC_RAW and its raw record.
    ///
    /// `leader` makes it a member of that event's group, so that both are enabled by one call.
    ///
    /// # Errors
    /// perf_event_open(2): `EACCES` or `EPERM` without CAP_PERFMON where kernel.perf_event_paranoid
    /// is above −1, `ENOENT` without such a tracepoint, `EMFILE` at the limit of descriptors,
    /// `ENODEV` for a CPU that is offline.
    pub fn tracepoint(id: u64, scope: PerfScope, leader: Option<&Self>) -> io::Result<Self> {
        let attributes = PerfEventAttributes {
            kind: TYPE_TRACEPOINT,
            config: id,
            sample_period: 1,
            sample_type: SAMPLE_TIME | SAMPLE_RAW,
            // Only a leader starts disabled: members follow it.
            flags: FLAG_SAMPLE_ID_ALL
                | FLAG_USE_CLOCK_ID
                | FLAG_WATERMARK
                | if leader.is_none() { FLAG_DISABLED } else { 0 },
            // Never reached: nobody waits for the ring, and a wake-up would cost an interrupt.
            wakeup_watermark: u32::MAX,
            clock_id: libc::CLOCK_MONOTONIC_RAW,
            ..PerfEventAttributes::default()
        };
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let (pid, cpu) = match scope {
            PerfScope::Cpu(cpu) => (-1, cpu),
            PerfScope::ThreadOnCpu(thread, cpu) => {
                (libc::pid_t::try_from(thread).map_err(invalid)?, cpu)
            }
        };
        let cpu = libc::c_int::try_from(cpu).map_err(invalid)?;
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        Ok(Self { fd: attributes.open(pid, cpu, group)? })
    }

    /// Keeps only hits whose fields satisfy an expression like `prev_pid == 7 || next_pid == 7`.
    ///
    /// # Errors
    /// `EINVAL` for an expression that names no field of this tracepoint.
    pub fn set_filter(&self, expression: &CStr) -> io::Result<()> {
        // SAFETY: the kernel copies the nul-terminated expression before it returns.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_FILTER, expression.as_ptr()) })?;
        Ok(())
    }

    /// Writes into the ring of another event of the same CPU.
    pub fn redirect_output(&self, other: &Self) -> io::Result<()> {
        // SAFETY: takes a descriptor by number.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_OUTPUT, other.fd.as_raw_fd()) })?;
        Ok(())
    }

    /// Switches this event and its whole group on.
    #[inline]
    pub fn enable_group(&self) -> io::Result<()> {
        // SAFETY: takes a plain number.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE, IOC_FLAG_GROUP) })?;
        Ok(())
    }

    /// Switches this event and its whole group off.
    #[inline]
    pub fn disable_group(&self) -> io::Result<()> {
        // SAFETY: takes a plain number.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_DISABLE, IOC_FLAG_GROUP) })?;
        Ok(())
    }
}

impl AsFd for TracepointEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The numbers of the system calls by which messages go and come, as tracepoints report them.
pub mod call {
    /// Calls that can send a message.
    pub const SENDS: [i64; 8] = [
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
        libc::SYS_vmsplice,
        libc::SYS_mq_timedsend,
        libc::SYS_msgsnd,
    ];
    /// Calls that can receive one.
    pub const RECEIVES: [i64; 7] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_mq_timedreceive,
        libc::SYS_msgrcv,
    ];
}

// linux/perf_event.h.
pub(crate) const TYPE_HARDWARE: u32 = 0;
pub(crate) const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
pub(crate) const FLAG_DISABLED: u64 = 1;
pub(crate) const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCK_ID: u64 = 1 << 25;
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
const IOC_ENABLE: libc::Ioctl = 0x2400;
const IOC_DISABLE: libc::Ioctl = 0x2401;
const IOC_SET_OUTPUT: libc::Ioctl = 0x2405;
/// `_IOW('$', 6, char *)`.
const IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;
const IOC_FLAG_GROUP: libc::c_ulong = 1;

/// struct perf_event_attr up to PERF_ATTR_SIZE_VER4.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PerfEventAttributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_watermark: u32,
    pub breakpoint_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_registers_user: u64,
    pub sample_stack_user: u32,
    pub clock_id: i32,
    pub sample_registers_interrupted: u64,
}

/// PERF_ATTR_SIZE_VER4, the first with `clockid` (Linux 4.1).
const ATTRIBUTES_SIZE: u32 = 104;
const _: () = assert!(size_of::<PerfEventAttributes>() == 104, "PERF_ATTR_SIZE_VER4 is 104 bytes");

impl PerfEventAttributes {
    /// perf_event_open(2) with these and the right size, close-on-exec.
    pub fn open(
        self,
        pid: libc::pid_t,
        cpu: libc::c_int,
        group: libc::c_int,
    ) -> io::Result<OwnedFd> {
        let attributes = Self { size: ATTRIBUTES_SIZE, ..self };
        let attributes = &raw const attributes;
        let flags = FLAG_CLOSE_ON_EXEC;
        // SAFETY: the attributes are as long as their `size` says and outlive the call.
        owned(unsafe {
            libc::syscall(libc::SYS_perf_event_open, attributes, pid, cpu, group, flags)
        })
    }
}

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
pub enum PerfRecord<'a> {
    /// A hit of a tracepoint: nanoseconds of CLOCK_MONOTONIC_RAW, and the bytes that the
    /// tracepoint's `format` file describes.
    Sample(u64, &'a [u8]),
    /// Records that found no room: the time at which there was room again, and their number.
    Lost(u64, u64),
}

/// The mapped ring of one event, and of those that write into it.
#[derive(Debug)]
pub struct PerfRing {
    map: SharedMap,
    data_at: usize,
    /// A power of two.
    data_len: usize,
    scratch: Vec<u8>,
}

impl PerfRing {
    /// Maps a ring of `len` bytes (a power of two of whole pages) for an event.
    ///
    /// # Errors
    /// `EPERM` beyond kernel.perf_event_mlock_kb without CAP_IPC_LOCK, `EINVAL` for another length.
    pub fn new(event: &TracepointEvent, len: usize) -> io::Result<Self> {
        if !len.is_power_of_two() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let page = rustix::param::page_size();
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
    pub fn drain(&mut self, mut visit: impl FnMut(PerfRecord<'_>)) -> bool {
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

/// The record after its header, for the sample type that [`TracepointEvent::tracepoint`] asks for.
fn parse(kind: u32, bytes: &[u8]) -> Option<PerfRecord<'_>> {
    let word = |at: usize| {
        bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes)
    };
    match kind {
        RECORD_SAMPLE => {
            let len = bytes.get(8..12)?.try_into().ok().map(u32::from_ne_bytes)?;
            let end = usize::try_from(len).ok()?.checked_add(12)?;
            Some(PerfRecord::Sample(word(0)?, bytes.get(12..end)?))
        }
        // u64 id, u64 lost, then the sample's identity, which is its time alone.
        RECORD_LOST => Some(PerfRecord::Lost(word(16)?, word(8)?)),
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
        assert_eq!(parse(RECORD_SAMPLE, &sample), Some(PerfRecord::Sample(77, &[1, 2, 3, 4])));
        for len in 0..sample.len() {
            assert_eq!(parse(RECORD_SAMPLE, &sample[..len]), None, "{len}");
        }
        let lost: Vec<u8> = [5_u64, 9, 1234].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(parse(RECORD_LOST, &lost), Some(PerfRecord::Lost(1234, 9)));
        assert_eq!(parse(RECORD_LOST, &lost[..23]), None);
        assert_eq!(parse(14, &lost), None);
    }
}
