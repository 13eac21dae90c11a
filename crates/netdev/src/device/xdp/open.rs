//! Opening AF_XDP sockets, and what can stand in the way.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use plumb_sys::bpf::{self, BpfInstruction, XdpAttachMode};
use plumb_sys::xdp::{RingSizes, Umem, UmemHandle, XdpCopyMode, XdpSocket};
use plumb_sys::{fd, interface};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::{Pool, PoolConfig, PoolMemory};

use crate::device::xdp::{DeviceCounters, DeviceInfo, DeviceWait, XdpDevice, XdpQueue};
use crate::device::{DeviceOpenError, DeviceOpenFailure};

/// How to open an AF_XDP device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// How it waits.
    pub wait: DeviceWait,
    /// The first queue to take.
    pub queue: u32,
    /// How many queues to take, one socket each; all from the first when absent.
    pub queues: Option<u32>,
    /// Where the program runs: in the driver if it can, when absent.
    pub mode: Option<XdpAttachMode>,
    /// Whether the kernel may copy: not where the driver can do without, when absent.
    pub copying: Option<XdpCopyMode>,
    /// Frames of the pool: half of them are lent to the kernel for receiving.
    pub frames: u32,
    /// How many frames are lent to the kernel for receiving; half of all when absent.
    pub rx_frames: Option<u32>,
    /// Large frames of the pool, which the kernel never sees.
    pub large: u32,
}

impl Default for XdpOptions {
    /// Blocking, every queue, the best that there is, 4,096 frames and 16 large ones.
    fn default() -> Self {
        Self {
            wait: DeviceWait::Block,
            queue: 0,
            queues: None,
            mode: None,
            copying: None,
            frames: 4_096,
            rx_frames: None,
            large: 16,
        }
    }
}

/// What the kernel keeps free before a received packet (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: u32 = 256;
/// Ethernet with one tag.
const LINK_HEADER: u32 = 18;
/// The kernel takes frames of 2,048 bytes and of a page.
const FRAME_SIZES: [u32; 2] = [2_048, 4_096];

/// What an interface is.
struct XdpInterface<'a> {
    name: &'a str,
    index: u32,
    mtu: u32,
    mac: MacAddr,
    queues: u32,
}

impl XdpDevice {
    /// AF_XDP sockets on an interface of this thread's network namespace, and the pool in whose
    /// memory their packets lie: packets of another must not be sent here.
    ///
    /// # Errors
    /// There is no such interface, it is down or in use, or AF_XDP is not to be had for it.
    pub fn open(name: &str, options: &XdpOptions) -> Result<(Self, Pool), DeviceOpenError> {
        let found = XdpInterface::find(name)?;
        let size = frame_size(found.mtu).ok_or_else(|| found.too_large())?;
        let frames = PoolConfig { count: options.frames.max(64), size, large: options.large };
        let umem =
            Umem::new(frames.count, size).map_err(|e| io_error("map memory for", name, e))?;
        let memory = UmemRegistration { umem: umem.handle(), bytes: umem.len(), owner: None };
        let unsteered = BoundXdpSockets::new(found, options, frames.count, &memory)?;
        let mut pool = Pool::in_memory(Box::new(SharedFrames(umem)), frames);
        let device = unsteered.steer(options, &mut pool)?;
        Ok((device, pool))
    }

    /// AF_XDP sockets on another interface, whose packets lie in the memory of `first` and its pool:
    /// what comes in at one can go out at the other without a copy of plumb's.
    ///
    /// # Errors
    /// As [`XdpDevice::open`].
    pub fn open_sharing_umem(
        first: &Self,
        pool: &mut Pool,
        name: &str,
        options: &XdpOptions,
    ) -> Result<Self, DeviceOpenError> {
        let found = XdpInterface::find(name)?;
        let frames = pool.frames();
        if frame_size(found.mtu).is_none_or(|size| size > frames.size) {
            return Err(found.too_large());
        }
        let socket = &first.queues[0].socket;
        let bytes = frames.count as usize * frames.size as usize;
        let memory = UmemRegistration { umem: socket.umem(), bytes, owner: Some(socket.as_fd()) };
        BoundXdpSockets::new(found, options, frames.count, &memory)?.steer(options, pool)
    }
}

/// The memory that sockets are on, and the socket that registered it, where that is another's.
struct UmemRegistration<'a> {
    umem: UmemHandle,
    bytes: usize,
    owner: Option<BorrowedFd<'a>>,
}

/// Bound sockets that no packet is steered to yet.
struct BoundXdpSockets<'a> {
    found: XdpInterface<'a>,
    sockets: Vec<XdpSocket>,
    copying: XdpCopyMode,
    mode: XdpAttachMode,
    link: OwnedFd,
    map: OwnedFd,
    fill: u32,
}

impl<'a> BoundXdpSockets<'a> {
    fn new(
        found: XdpInterface<'a>,
        options: &XdpOptions,
        frames: u32,
        memory: &UmemRegistration<'_>,
    ) -> Result<Self, DeviceOpenError> {
        let (name, first) = (found.name, options.queue);
        let most = found.queues.saturating_sub(first);
        let count = options.queues.unwrap_or(most);
        if count == 0 || count > most {
            return Err(DeviceOpenError::refused(format!(
                "{name} has {} receiving queue(s), numbered from 0; queues {first} and up were asked \
                 for",
                found.queues
            )));
        }
        let sizes =
            ring_sizes(options.rx_frames.map_or(frames, |lent| lent.saturating_mul(2)), count);
        let map = bpf::xsk_map(first + count).map_err(|e| io_error("make a map for", name, e))?;
        let program = load(map.as_fd()).map_err(|e| io_error("load a program for", name, e))?;
        let (link, mode) = attach(program.as_fd(), &found, options.mode)?;
        let wanted = wanted_copying(options.copying, mode);
        let (sockets, copying) = found.sockets(memory, sizes, first..first + count, wanted)?;
        Ok(Self { found, sockets, copying, mode, link, map, fill: sizes.fill })
    }

    fn steer(self, options: &XdpOptions, pool: &mut Pool) -> Result<XdpDevice, DeviceOpenError> {
        let XdpInterface { name, mtu, mac, .. } = self.found;
        let queue = |socket| XdpQueue { socket, lent: 0, lent_target: self.fill, tx_unsent: 0 };
        let mut queues: Vec<XdpQueue> = self.sockets.into_iter().map(queue).collect();
        for (number, queue) in (options.queue..).zip(&mut queues) {
            // Frames first: the first packet shall find one.
            XdpDevice::fill(queue, pool);
            bpf::set_socket(self.map.as_fd(), number, queue.socket.as_fd())
                .map_err(|e| io_error("steer packets to", name, e))?;
        }
        let capabilities = DeviceCapabilities::plain(Medium::Ethernet, mtu);
        Ok(XdpDevice {
            _link: self.link,
            queues,
            next: 0,
            info: DeviceInfo { name: name.to_owned(), capabilities, mac: Some(mac) },
            wait: options.wait,
            mode: self.mode,
            copying: self.copying,
            counters: DeviceCounters::default(),
        })
    }
}

impl<'a> XdpInterface<'a> {
    fn find(name: &'a str) -> Result<Self, DeviceOpenError> {
        const ARPHRD_ETHER: u16 = 1;
        let ask = |error| io_error("inspect", name, error);
        let asked = std::net::UdpSocket::bind("0.0.0.0:0").map_err(ask)?;
        let socket = asked.as_fd();
        let index =
            interface::index(socket, name).map_err(|_| DeviceOpenError::no_interface(name))?;
        let hardware = interface::hardware_address(socket, name).map_err(ask)?;
        if hardware.kind != ARPHRD_ETHER {
            let kind = hardware.kind;
            return Err(DeviceOpenError::request(format!(
                "the interface {name} does not carry Ethernet (its ARPHRD type is {kind}); choose \
                 another"
            )));
        }
        if !interface::is_up(socket, name).map_err(ask)? {
            return Err(DeviceOpenError::interface_down(name));
        }
        Ok(Self {
            name,
            index,
            mtu: interface::mtu(socket, name).map_err(ask)?,
            mac: MacAddr(hardware.address),
            queues: interface::rx_queues(socket, name).unwrap_or(1),
        })
    }

    fn too_large(&self) -> DeviceOpenError {
        let (name, mtu, limit) = (self.name, self.mtu, mtu_limit(FRAME_SIZES[1]));
        DeviceOpenError::request(format!(
            "the interface {name} has MTU {mtu}, and a frame of AF_XDP holds {limit}; lower it: ip \
             link set {name} mtu {limit}"
        ))
    }

    /// One bound socket a queue, all on one memory.
    fn sockets(
        &self,
        memory: &UmemRegistration<'_>,
        sizes: RingSizes,
        queues: Range<u32>,
        wanted: &[XdpCopyMode],
    ) -> Result<(Vec<XdpSocket>, XdpCopyMode), DeviceOpenError> {
        let open = |is_first| {
            XdpSocket::new(memory.umem.clone(), sizes, is_first)
                .map_err(|error| not_opened(self.name, error, memory.bytes))
        };
        let mut sockets: Vec<XdpSocket> = Vec::new();
        let mut copying = XdpCopyMode::Copy;
        for queue in queues {
            let first = memory.owner.or_else(|| sockets.first().map(XdpSocket::as_fd));
            let refused = |error| not_bound(self.name, error, queue);
            let socket = if first.is_some() {
                let socket = open(false)?;
                bind(&socket, self.index, queue, copying, first).map_err(refused)?;
                socket
            } else {
                // The one that registers the memory is bound in the best way that its device has.
                let mut ways = wanted.iter();
                loop {
                    copying = *ways.next().expect("the last way is returned from");
                    let socket = open(true)?;
                    match bind(&socket, self.index, queue, copying, None) {
                        Ok(()) => break socket,
                        Err(error) if is_busy(&error) || ways.len() == 0 => {
                            return Err(refused(error));
                        }
                        Err(_) => {}
                    }
                }
            };
            sockets.push(socket);
        }
        let zero = sockets[0].is_zero_copy().map_err(|e| io_error("inspect", self.name, e))?;
        Ok((sockets, if zero { XdpCopyMode::Zero } else { XdpCopyMode::Copy }))
    }
}

/// The smallest frame that holds a packet of the MTU.
fn frame_size(mtu: u32) -> Option<u32> {
    FRAME_SIZES.into_iter().find(|&size| mtu <= mtu_limit(size))
}

const fn mtu_limit(frame_size: u32) -> u32 {
    frame_size - KERNEL_HEADROOM - LINK_HEADER
}

/// Half of the frames wait for packets, shared among the queues; at most a quarter is being sent.
fn ring_sizes(frames: u32, queues: u32) -> RingSizes {
    let share = |part: u32| (part / queues).max(16);
    // The largest power of two that is not more.
    let round = |n: u32| 1 << n.ilog2();
    let fill = round(share(frames / 2));
    RingSizes { fill, rx: fill, tx: round(share(frames / 4)) }
}

/// Attaches the program, in the driver if that can be.
fn attach(
    program: BorrowedFd<'_>,
    found: &XdpInterface<'_>,
    wanted: Option<XdpAttachMode>,
) -> Result<(OwnedFd, XdpAttachMode), DeviceOpenError> {
    const EBUSY: i32 = 16;
    const EEXIST: i32 = 17;
    let name = found.name;
    let both = [XdpAttachMode::Native, XdpAttachMode::Generic];
    let mut last = None;
    for mode in both.into_iter().filter(|mode| wanted.is_none_or(|wanted| wanted == *mode)) {
        match bpf::attach_xdp(program, found.index, mode) {
            Ok(link) => return Ok((link, mode)),
            Err(error) if matches!(error.raw_os_error(), Some(EBUSY | EEXIST)) => {
                return Err(DeviceOpenError::refused(format!(
                    "another XDP program is attached to {name}; `ip link show {name}` names it, and \
                     `ip link set {name} xdp off` removes one that no process holds"
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(io_error("attach a program for", name, error));
            }
            Err(error) => last = Some(error),
        }
    }
    let source = last.expect("at least one mode was tried");
    Err(driver_lacks("XDP of the mode asked for at this MTU", name, &source))
}

fn wanted_copying(wanted: Option<XdpCopyMode>, mode: XdpAttachMode) -> &'static [XdpCopyMode] {
    match (wanted, mode) {
        (Some(XdpCopyMode::Zero), _) => &[XdpCopyMode::Zero],
        (None, XdpAttachMode::Native) => &[XdpCopyMode::Zero, XdpCopyMode::Copy],
        (Some(XdpCopyMode::Copy), _) | (None, XdpAttachMode::Generic) => &[XdpCopyMode::Copy],
    }
}

/// Binds, and again for some seconds while the queue is busy: the kernel lets go of a closed socket's
/// queue in its own time, which is long on a machine with much to do.
fn bind(
    socket: &XdpSocket,
    index: u32,
    queue: u32,
    copying: XdpCopyMode,
    first: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    const TRIES: u32 = 2_000;
    const PAUSE_NS: u64 = 1_000_000;
    for _ in 1..TRIES {
        match socket.bind(index, queue, copying, first) {
            Err(error) if is_busy(&error) => {}
            result => return result,
        }
        // A wait for nothing; a signal may shorten it.
        let _ = fd::wait_readable(&[], &mut [], Some(PAUSE_NS));
    }
    socket.bind(index, queue, copying, first)
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

fn io_error(what: &str, name: &str, source: io::Error) -> DeviceOpenError {
    let message = match source.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "AF_XDP needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and not those of \
             a user namespace; run as root, or use packet:{name} instead"
        ),
        io::ErrorKind::Unsupported => return unsupported(name, source),
        _ => {
            return DeviceOpenError::refused(format!("cannot {what} AF_XDP on {name}: {source}"));
        }
    };
    DeviceOpenError::new(DeviceOpenFailure::Lacking, message, Some(source))
}

fn unsupported(name: &str, source: io::Error) -> DeviceOpenError {
    let message = format!(
        "this kernel has no AF_XDP as plumb uses it (CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, \
         Linux 5.10); use packet:{name} instead"
    );
    DeviceOpenError::new(DeviceOpenFailure::Lacking, message, Some(source))
}

fn driver_lacks(what: &str, name: &str, source: &io::Error) -> DeviceOpenError {
    DeviceOpenError::refused(format!(
        "the driver of {name} has no {what}; leave the choice open or ask for the other: {source}"
    ))
}

fn not_opened(name: &str, source: io::Error, bytes: usize) -> DeviceOpenError {
    const EAFNOSUPPORT: i32 = 97;
    const ENOBUFS: i32 = 105;
    match source.raw_os_error() {
        Some(EAFNOSUPPORT) => unsupported(name, source),
        Some(ENOBUFS) => DeviceOpenError::refused(format!(
            "the kernel may not lock {bytes} bytes for packets; raise the limit (ulimit -l) or ask \
             for fewer frames: {source}"
        )),
        _ => io_error("open", name, source),
    }
}

fn not_bound(name: &str, source: io::Error, queue: u32) -> DeviceOpenError {
    match source.kind() {
        io::ErrorKind::ResourceBusy => DeviceOpenError::refused(format!(
            "queue {queue} of {name} has an AF_XDP socket already; end the process that holds it"
        )),
        io::ErrorKind::Unsupported => driver_lacks("zero-copy AF_XDP", name, &source),
        _ => io_error("bind", name, source),
    }
}

/// Frames shared with a kernel.
#[derive(Debug)]
pub(super) struct SharedFrames(pub(super) Umem);

impl PoolMemory for SharedFrames {
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.0.bytes(range)
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.0.bytes_mut(range)
    }

    #[inline]
    fn lend(&mut self, offset: usize) {
        self.0.lend(offset);
    }
}

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`.
///
/// What arrives at a queue without a socket goes to the kernel's stack.
pub(super) fn load(sockets: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    bpf::load_xdp(&redirect(sockets.as_fd().as_raw_fd()))
}

/// RFC 9669's encoding, and the numbers of linux/bpf.h.
const fn redirect(map: i32) -> [BpfInstruction; 6] {
    /// Offset of rx_queue_index in struct xdp_md.
    const QUEUE: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    const fn op(operation: u8, registers: u8, offset: i16, immediate: i32) -> BpfInstruction {
        BpfInstruction { operation, registers, offset, immediate }
    }
    [
        // r2 = *(u32 *)(r1 + 16)
        op(0x61, 0x12, QUEUE, 0),
        // r1 = map: two slots; source register 1 says that the constant is a map's descriptor
        op(0x18, 0x11, 0, map),
        op(0, 0, 0, 0),
        // r3 = XDP_PASS: the verdict where the map has no socket
        op(0xb7, 0x03, 0, XDP_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        op(0x85, 0, 0, REDIRECT_MAP),
        // return r0
        op(0x95, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_powers_of_two_and_never_hold_more_frames_than_there_are() {
        for frames in [64, 100, 1_024, 4_096, 5_000] {
            for queues in 1..=4 {
                let sizes = ring_sizes(frames, queues);
                assert!(sizes.fill.is_power_of_two() && sizes.tx.is_power_of_two());
                assert!((sizes.fill + sizes.tx) * queues <= frames.max(128), "{frames}, {queues}");
            }
        }
    }

    #[test]
    fn a_frame_is_no_larger_than_the_mtu_needs() {
        assert_eq!(frame_size(1_500), Some(2_048));
        assert_eq!(frame_size(1_774), Some(2_048));
        assert_eq!(frame_size(1_775), Some(4_096));
        assert_eq!(frame_size(9_000), None);
    }

    #[test]
    fn a_kernel_without_af_xdp_is_told_from_a_forbidden_one_and_both_name_the_way_round() {
        let of =
            |number| not_opened("eth9", io::Error::from_raw_os_error(number), 4_096).to_string();
        let (absent, forbidden, locked) = (of(97), of(1), of(105));
        assert!(absent.contains("CONFIG_XDP_SOCKETS"), "{absent}");
        assert!(absent.contains("use packet:eth9 instead"), "{absent}");
        assert!(forbidden.contains("CAP_NET_RAW") && forbidden.contains("packet:eth9"));
        assert!(locked.contains("4096 bytes") && locked.contains("ulimit -l"), "{locked}");
    }
}
