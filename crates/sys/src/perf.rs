//! Tracepoints read through perf: events, the rings they write into, and a tracefs of one's own.
//!
//! Left out: what a record means beyond its header (that is in each tracepoint's `format` file),
//! and counters, of which [`crate::probe`] only asks whether they exist.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::check;
use crate::probe::owned;

mod ring;

pub use ring::{Record, Ring};

/// Which tasks and CPUs an event sees: the `pid` and `cpu` of perf_event_open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every task on one CPU.
    Cpu(u32),
    /// One thread while it is on one CPU.
    ThreadOnCpu(u32, u32),
}

/// One tracepoint switched on for one scope; off again when dropped.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// Opens a tracepoint by the number in its `id` file, disabled, every hit a sample of its time
    /// on CLOCK_MONOTONIC_RAW and its raw record.
    ///
    /// `leader` makes it a member of that event's group, so that both are enabled by one call.
    ///
    /// # Errors
    /// perf_event_open(2): `EACCES` or `EPERM` without CAP_PERFMON where kernel.perf_event_paranoid
    /// is above −1, `ENOENT` without such a tracepoint, `EMFILE` at the limit of descriptors,
    /// `ENODEV` for a CPU that is offline.
    pub fn tracepoint(id: u64, scope: Scope, leader: Option<&Self>) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_TRACEPOINT,
            size: ATTRIBUTES_SIZE,
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
            ..Attributes::default()
        };
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let (pid, cpu) = match scope {
            Scope::Cpu(cpu) => (-1, cpu),
            Scope::ThreadOnCpu(thread, cpu) => {
                (libc::pid_t::try_from(thread).map_err(invalid)?, cpu)
            }
        };
        let cpu = libc::c_int::try_from(cpu).map_err(invalid)?;
        let group = leader.map_or(-1, |leader| leader.fd.as_raw_fd());
        // SAFETY: `attributes` is as long as its `size` says and outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                cpu,
                group,
                FLAG_CLOSE_ON_EXEC,
            )
        };
        let fd = owned(fd)?;
        Ok(Self { fd })
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
    pub fn write_into(&self, other: &Self) -> io::Result<()> {
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

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A tracefs attached to no directory, gone when its descriptor is closed: fsopen(2), fsmount(2).
///
/// Its files are found below `/proc/self/fd/N`.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, `ENODEV` where the kernel is built without tracing, `ENOSYS`
/// before Linux 5.2.
pub fn detached_tracefs() -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    // SAFETY: the name is nul-terminated.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let (no_key, no_value) = (std::ptr::null::<u8>(), std::ptr::null::<u8>());
    // SAFETY: this command takes neither key nor value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            no_key,
            no_value,
            0,
        )
    };
    if created != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes plain numbers.
    let mount =
        unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) };
    owned(mount)
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
const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_DISABLED: u64 = 1;
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
/// PERF_ATTR_SIZE_VER4, the first with `clockid` (Linux 4.1).
const ATTRIBUTES_SIZE: u32 = 104;

/// struct perf_event_attr up to PERF_ATTR_SIZE_VER4.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_registers_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_registers_interrupted: u64,
}

const _: () = assert!(size_of::<Attributes>() == 104, "PERF_ATTR_SIZE_VER4 is 104 bytes");
