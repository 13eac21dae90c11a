//! AF_XDP: sockets whose packets lie in memory that the process and the kernel share
//! (Documentation/networking/af_xdp.rst).
//! The program that steers packets to a socket is made in [`crate::bpf`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

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
            sockopt::set_xdp_umem_reg(&fd, umem.registration())?;
        }
        // A socket that shares the memory has rings of its own for its queue (since Linux 5.10).
        sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.fill)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.tx)?;
        sockopt::set_xdp_rx_ring_size(&fd, sizes.rx)?;
        sockopt::set_xdp_tx_ring_size(&fd, sizes.tx)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd)?;
        let map = fd.as_fd();
        let fill = XdpRing::new(map, &offsets.fr, sizes.fill, XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = XdpRing::new(map, &offsets.cr, sizes.tx, XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let rx = XdpRing::new(map, &offsets.rx, sizes.rx, XDP_PGOFF_RX_RING)?;
        let tx = XdpRing::new(map, &offsets.tx, sizes.tx, XDP_PGOFF_TX_RING)?;
        Ok(Self {
            fill: ProducerRing::new(fill),
            completion: ConsumerRing::new(completion),
            rx: ConsumerRing::new(rx),
            tx: ProducerRing::new(tx),
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
        let mode = match copying {
            XdpCopyMode::Zero => SocketAddrXdpFlags::XDP_ZEROCOPY,
            XdpCopyMode::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        let Some(shared_umem_fd) = first else {
            let flags = mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            return Ok(rustix::net::bind(&self.fd, &SocketAddrXdp::new(flags, index, queue))?);
        };
        // The others take the mode of the first.
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, index, queue);
        Ok(rustix::net::bind(&self.fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?)
    }

    /// Room for this many frames in the fill ring.
    #[inline]
    pub fn fill_room(&mut self) -> u32 {
        self.fill.room()
    }

    /// Gives the frame around `offset` to the kernel, which will write a packet there.
    ///
    /// Panics when there is no room, or [`Umem::lend`] has not set the frame aside.
    #[inline]
    pub fn lend_for_receive(&mut self, offset: usize) {
        self.umem.hand_over(offset);
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

    /// Gives a packet to the kernel to be sent.
    ///
    /// Panics when there is no room, or [`Umem::lend`] has not set its frame aside.
    #[inline]
    pub fn lend_for_transmit(&mut self, packet: UmemRange) {
        self.umem.hand_over(packet.offset);
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
        Ok(rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT).map(drop)?)
    }

    /// recvfrom(2) of nothing: makes the driver look for packets.
    #[inline]
    pub fn wake_rx(&self) -> io::Result<()> {
        let mut nothing: [u8; 0] = [];
        Ok(rustix::net::recv(&self.fd, &mut nothing, RecvFlags::DONTWAIT).map(drop)?)
    }

    /// XDP_OPTIONS: whether the device reads and writes the shared memory itself.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        Ok(sockopt::xdp_options(&self.fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// XDP_STATISTICS: packets lost for want of a frame or of room in the ring, since it was opened.
    pub fn drops(&self) -> io::Result<u64> {
        let lost = sockopt::xdp_statistics(&self.fd)?;
        Ok(lost.rx_dropped + lost.rx_invalid_descs + lost.rx_ring_full.unwrap_or(0))
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn narrow(offset: u64) -> usize {
    usize::try_from(offset).expect("the kernel returns what it was lent")
}
