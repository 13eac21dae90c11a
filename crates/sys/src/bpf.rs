//! bpf(2): the maps, programs and links that an AF_XDP socket needs, made from bytes.
//!
//! Everything made here is a descriptor and ends with its last holder.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::{check, owned};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_XSK: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;

/// One instruction: operation, registers (destination in the low four bits), offset, immediate.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInstruction {
    /// Class, size and mode, or source and operation.
    pub operation: u8,
    /// Destination register, and source register times 16.
    pub registers: u8,
    /// Offset of a memory access or a jump.
    pub offset: i16,
    /// A constant.
    pub immediate: i32,
}

/// bpf(2) itself; the answer is a descriptor or zero.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: each command below is called with the attributes it reads, which point to memory that
    // lives as long as the call.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    check(libc::c_int::try_from(answer).unwrap_or(-1))
}

fn bpf_fd<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    owned(bpf(command, attributes)?.into())
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// BPF_MAP_CREATE of an XSKMAP: AF_XDP sockets by queue.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN, as in a user namespace; EINVAL in a kernel without AF_XDP.
pub fn xsk_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct MapCreateAttributes {
        kind: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    bpf_fd(
        MAP_CREATE,
        &MapCreateAttributes { kind: MAP_XSK, key_size: 4, value_size: 4, max_entries: entries },
    )
}

/// BPF_MAP_UPDATE_ELEM: the socket of a queue.
pub fn set_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct MapUpdateAttributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = raw(socket);
    let attributes = MapUpdateAttributes {
        map: raw(map),
        padding: 0,
        key: std::ptr::from_ref(&queue).addr() as u64,
        value: std::ptr::from_ref(&value).addr() as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE, &attributes)?;
    Ok(())
}

/// How often a program is loaded whose verification a signal ended; libbpf does as many.
const LOAD_ATTEMPTS: u32 = 5;

/// BPF_PROG_LOAD of an XDP program.
///
/// # Errors
/// EACCES when the kernel's verifier refuses it; EPERM without CAP_BPF and CAP_NET_ADMIN.
pub fn load_xdp(instructions: &[BpfInstruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct ProgramLoadAttributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        expected_attach: u32,
    }
    let license = c"Dual MIT/GPL";
    let attributes = ProgramLoadAttributes {
        kind: PROGRAM_XDP,
        count: u32::try_from(instructions.len())
            .map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        instructions: instructions.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"plumb_redirect\0\0",
        interface: 0,
        expected_attach: ATTACH_XDP,
    };
    let mut attempts = 1;
    loop {
        match bpf_fd(PROGRAM_LOAD, &attributes) {
            // A signal was pending while the kernel verified it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < LOAD_ATTEMPTS => {
                attempts += 1;
            }
            loaded => return loaded,
        }
    }
}

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttachMode {
    /// XDP_FLAGS_DRV_MODE: in the driver.
    Native,
    /// XDP_FLAGS_SKB_MODE: where the stack takes packets from any driver.
    Generic,
}

/// BPF_LINK_CREATE: attaches an XDP program to an interface of this thread's network namespace for
/// as long as the answer is open. Since Linux 5.9.
///
/// # Errors
/// EBUSY or EEXIST when another program is attached; EOPNOTSUPP or ERANGE when the driver cannot, or
/// not at this MTU.
pub fn attach_xdp(program: BorrowedFd<'_>, index: u32, mode: XdpAttachMode) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct LinkCreateAttributes {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let flags = match mode {
        XdpAttachMode::Generic => 1 << 1,
        XdpAttachMode::Native => 1 << 2,
    };
    bpf_fd(
        LINK_CREATE,
        &LinkCreateAttributes {
            program: raw(program),
            interface: index,
            attach_type: ATTACH_XDP,
            flags,
        },
    )
}
