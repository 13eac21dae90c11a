//! AF_XDP: sockets whose packets lie in memory that the process and the kernel share
//! (Documentation/networking/af_xdp.rst).
//! The program that steers packets to a socket is made in [`crate::bpf`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::check;

mod ring;

use ring::{ConsumerRing, ProducerRing, XdpRing};
pub use ring::{Umem, UmemHandle};

/// How a socket is bound to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpCopyMode {
    /// XDP_ZEROCOPY: the device reads and writes the shared memory itself.
    Zero,
    /// XDP_COPY: the kernel copies.
    Copy,
}

/// Entries of the four rings of a socket; each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Frames that wait for packets.
    pub fill: u32,
    /// Packets received.
    pub rx: u32,
    /// Packets to be sent, and those that have been.
    pub tx: u32,
}

/// A range of the shared memory: a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemRange {
    /// From the memory's first byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// One AF_XDP socket with its rings; not bound yet.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
    umem: UmemHandle,
    fill: ProducerRing<u64>,
    completion: ConsumerRing<u64>,
    rx: ConsumerRing<libc::xdp_desc>,
    tx: ProducerRing<libc::xdp_desc>,
    tx_lent: u32,
}

impl XdpSocket {
    /// socket(2) AF_XDP with its rings mapped. The first socket of a memory registers it; the others
    /// share the first one's.
    ///
    /// # Errors
    /// EAFNOSUPPORT in a kernel without AF_XDP; EPERM without CAP_NET_RAW; ENOBUFS where memory may not
    /// be locked; EINVAL for frames of a size that the kernel does not take.
    pub fn new(umem: UmemHandle, sizes: RingSizes, is_first: bool) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(AddressFamily::XDP, kind, flags, None)?;
        if is_first {
            set(fd.as_fd(), libc::XDP_UMEM_REG, &umem.registration())?;
        }
        // A socket that shares the memory has rings of its own for its queue (since Linux 5.10).
        set(fd.as_fd(), libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
        set(fd.as_fd(), libc::XDP_UMEM_COMPLETION_RING, &sizes.tx)?;
        set(fd.as_fd(), libc::XDP_RX_RING, &sizes.rx)?;
        set(fd.as_fd(), libc::XDP_TX_RING, &sizes.tx)?;
        let offsets = offsets(fd.as_fd())?;
        let (fill_page, completion_page) =
            (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let map = fd.as_fd();
        Ok(Self {
            fill: ProducerRing::new(XdpRing::new(map, &offsets.fr, sizes.fill, fill_page)?),
            completion: ConsumerRing::new(XdpRing::new(
                map,
                &offsets.cr,
                sizes.tx,
                completion_page,
            )?),
            rx: ConsumerRing::new(XdpRing::new(map, &offsets.rx, sizes.rx, RX_PAGE)?),
            tx: ProducerRing::new(XdpRing::new(map, &offsets.tx, sizes.tx, TX_PAGE)?),
            umem,
            fd,
            tx_lent: 0,
        })
    }

    /// The memory that it is on.
    pub fn umem(&self) -> UmemHandle {
        self.umem.clone()
    }

    /// bind(2) to one queue of an interface; `first` is the socket that registered the memory, for
    /// the others.
    ///
    /// # Errors
    /// EBUSY when the queue has a socket; EOPNOTSUPP for zero-copy where the driver has none; EINVAL
    /// for a queue that does not exist.
    pub fn bind(
        &self,
        index: u32,
        queue: u32,
        copying: XdpCopyMode,
        first: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let flags = match (first, copying) {
            // The others take the mode of the first.
            (Some(_), _) => libc::XDP_SHARED_UMEM,
            (None, XdpCopyMode::Zero) => libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP,
            (None, XdpCopyMode::Copy) => libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: AF_XDP,
            sxdp_flags: flags,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: first.map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
        };
        let len = libc::socklen_t::try_from(size_of_val(&address)).expect("an address is short");
        // SAFETY: `address` is readable for its size.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(())
    }

    /// Room for this many frames in the fill ring.
    #[inline]
    pub fn fill_room(&mut self) -> u32 {
        self.fill.room()
    }

    /// Lends the frame around `offset` to the kernel, which will write a packet there. The caller
    /// holds no reference into it.
    ///
    /// Panics when there is no room, or the frame is lent already.
    #[inline]
    pub fn lend_for_receive(&mut self, offset: usize) {
        self.umem.lend(offset);
        self.fill.push(offset as u64);
    }

    /// Publishes what was lent since the last time.
    #[inline]
    pub fn submit_fill(&mut self) {
        self.fill.submit();
    }

    /// Whether a packet has been received: loads only.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.rx.is_ready()
    }

    /// The next packet received; its frame is the caller's again.
    #[inline]
    pub fn receive(&mut self) -> Option<UmemRange> {
        let packet = self.rx.pop()?;
        let offset = narrow(packet.addr);
        self.umem.reclaim(offset);
        Some(UmemRange { offset, len: packet.len as usize })
    }

    /// Tells the kernel that what [`Self::receive`] returned has been read out of the ring.
    #[inline]
    pub fn release_rx(&mut self) {
        self.rx.release();
    }

    /// Room for this many packets in the transmit ring.
    #[inline]
    pub fn tx_room(&mut self) -> u32 {
        self.tx.room()
    }

    /// Packets submitted that the kernel has not taken yet.
    #[inline]
    pub fn tx_pending(&mut self) -> u32 {
        self.tx.pending()
    }

    /// Packets lent to be sent that have not come back.
    #[inline]
    pub fn tx_in_flight(&self) -> u32 {
        self.tx_lent
    }

    /// Lends a packet to the kernel to be sent. The caller holds no reference into its frame.
    ///
    /// Panics when there is no room, or the frame is lent already.
    #[inline]
    pub fn lend_for_transmit(&mut self, packet: UmemRange) {
        self.umem.lend(packet.offset);
        self.tx_lent += 1;
        self.tx.push(libc::xdp_desc {
            addr: packet.offset as u64,
            len: u32::try_from(packet.len).expect("a packet is short"),
            options: 0,
        });
    }

    /// Publishes what was lent since the last time.
    #[inline]
    pub fn submit_tx(&mut self) {
        self.tx.submit();
    }

    /// The next packet that has been sent: the offset it was lent with; its frame is the caller's
    /// again.
    #[inline]
    pub fn complete(&mut self) -> Option<usize> {
        let offset = narrow(self.completion.pop()?);
        self.umem.reclaim(offset);
        self.tx_lent -= 1;
        Some(offset)
    }

    /// Tells the kernel that what [`Self::complete`] returned has been read out of the ring.
    #[inline]
    pub fn release_completion(&mut self) {
        self.completion.release();
    }

    /// Whether the kernel wants a call before it sends what was submitted.
    #[inline]
    pub fn tx_needs_wakeup(&self) -> bool {
        self.tx.needs_wakeup()
    }

    /// Whether the kernel wants a call before it fills frames again.
    #[inline]
    pub fn fill_needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// sendto(2) of nothing: sends what was submitted; in copy mode up to 32 packets a call.
    ///
    /// # Errors
    /// EAGAIN when there is more, or the driver is full; EBUSY; ENOBUFS; ENETDOWN.
    #[inline]
    pub fn wake_tx(&self) -> io::Result<()> {
        // SAFETY: no data and no address.
        let result = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        crate::check_len(result).map(drop)
    }

    /// recvfrom(2) of nothing: makes the driver look for packets.
    #[inline]
    pub fn wake_rx(&self) -> io::Result<()> {
        // SAFETY: no data and no address.
        let result = unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        crate::check_len(result).map(drop)
    }

    /// XDP_OPTIONS: whether the device reads and writes the shared memory itself.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let mut flags = 0_u32;
        let len = query(self.fd.as_fd(), libc::XDP_OPTIONS, &mut flags)?;
        Ok(len == 4 && flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// XDP_STATISTICS: packets lost for want of a frame or of room in the ring, since it was opened.
    pub fn drops(&self) -> io::Result<u64> {
        // dropped, bad rx, bad tx, ring full, no frames, nothing to send.
        let mut words = [0_u64; 6];
        query(self.fd.as_fd(), libc::XDP_STATISTICS, &mut words)?;
        let [dropped, bad_rx, _, ring_full, _, _] = words;
        Ok(dropped + bad_rx + ring_full)
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const AF_XDP: u16 = 44;
const _: () = assert!(libc::AF_XDP == 44);
const RX_PAGE: u64 = 0;
const TX_PAGE: u64 = 0x8000_0000;

fn narrow(offset: u64) -> usize {
    usize::try_from(offset).expect("the kernel returns what it was lent")
}

fn set<T: Copy>(fd: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    crate::set_option(fd, (libc::SOL_XDP, name), value)
}

fn query<T: Copy>(fd: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<usize> {
    crate::read_option(fd, (libc::SOL_XDP, name), value)
}

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: an xdp_mmap_offsets is plain data.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let len = query(fd, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    // Kernels before 5.4 know no flags, and answer more briefly.
    if len == size_of::<libc::xdp_mmap_offsets>() {
        Ok(offsets)
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}
