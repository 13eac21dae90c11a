//! PACKET_RX_RING, TPACKET_V2: slots that the kernel fills and the process gives back, with no call
//! between them (Documentation/networking/packet_mmap.rst).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{PacketOption, VlanTag, set, set_option, vlan_tag};

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingShape {
    /// Bytes of a slot: a power of two, header included.
    pub slot_size: u32,
    /// Slots of a block: a block is whole pages.
    pub block_slots: u32,
    /// Blocks.
    pub blocks: u32,
}

/// The mapped slots of one packet socket, and which is next.
#[derive(Debug)]
pub struct ReceiveRing {
    base: NonNull<u8>,
    shape: RingShape,
    next: usize,
}

// SAFETY: the mapping belongs to the process; only the owner of the ring touches it.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Makes the ring of an unbound socket and maps it.
    ///
    /// # Errors
    /// EINVAL for a shape that the kernel does not take; EBUSY when there is a ring already.
    pub fn new(fd: BorrowedFd<'_>, shape: RingShape) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let block = shape.slot_size.checked_mul(shape.block_slots).ok_or_else(invalid)?;
        let slots = shape.block_slots.checked_mul(shape.blocks).ok_or_else(invalid)?;
        if slots == 0 || (shape.slot_size as usize) < SLOT_HEADER {
            return Err(invalid());
        }
        set_option(fd, PacketOption::Version, TPACKET_V2)?;
        let request = libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: shape.blocks,
            tp_frame_size: shape.slot_size,
            tp_frame_nr: slots,
        };
        set(fd, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address the kernel chooses; the result is checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                block as usize * shape.blocks as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, shape, next: 0 })
    }

    /// Slots in all.
    pub fn slots(&self) -> usize {
        self.shape.block_slots as usize * self.shape.blocks as usize
    }

    /// Whether the next slot is filled: one load, no call.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The next slot, if it is filled; it goes back to the kernel when dropped.
    #[inline]
    pub fn next_slot(&mut self) -> Option<Slot<'_>> {
        let status = self.status(self.next).load(Ordering::Acquire);
        (status & libc::TP_STATUS_USER != 0).then(|| Slot { ring: self, status })
    }

    #[inline]
    fn slot(&self, index: usize) -> *mut u8 {
        // SAFETY: `index` is below the number of slots, so the address lies in the mapping; slots
        // of power-of-two size leave no gap at a block's end.
        unsafe { self.base.as_ptr().add(index * self.shape.slot_size as usize) }
    }

    #[inline]
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: tp_status is the first word of a slot, aligned, and mapped as long as `self`; the
        // process only accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.slot(index).cast()) }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        let len = self.shape.slot_size as usize * self.slots();
        // SAFETY: exactly the range that `new` mapped; no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

const TPACKET_V2: i32 = 1;
const SLOT_HEADER: usize = size_of::<libc::tpacket2_hdr>();

/// What the kernel says of a filled slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStatus {
    /// The frame was too long: the whole of it waits for a receiving call.
    pub is_queued: bool,
    /// Frames have been lost since the statistics were last asked.
    pub is_losing: bool,
}

/// A filled slot: the process's own until it is dropped.
#[derive(Debug)]
pub struct Slot<'a> {
    ring: &'a mut ReceiveRing,
    status: u32,
}

impl Slot<'_> {
    /// What the kernel says of it.
    #[inline]
    pub fn status(&self) -> SlotStatus {
        SlotStatus {
            is_queued: self.status & libc::TP_STATUS_COPY != 0,
            is_losing: self.status & libc::TP_STATUS_LOSING != 0,
        }
    }

    #[inline]
    fn header(&self) -> libc::tpacket2_hdr {
        // SAFETY: the slot begins with its header, which the kernel does not write while the slot
        // is ours.
        unsafe { std::ptr::read(self.ring.slot(self.ring.next).cast()) }
    }

    /// Bytes of the whole frame, of which the slot may hold fewer.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.header().tp_len as usize
    }

    /// A tag that was taken out of the frame.
    #[inline]
    pub fn vlan(&self) -> Option<VlanTag> {
        let header = self.header();
        vlan_tag(self.status, header.tp_vlan_tpid, header.tp_vlan_tci)
    }

    /// `before` bytes before the frame (a virtio header, where one is asked for) and as much of the
    /// frame as there is.
    #[inline]
    pub fn bytes(&self, before: usize) -> &[u8] {
        let header = self.header();
        let size = self.ring.shape.slot_size as usize;
        let start = (header.tp_mac as usize).saturating_sub(before).min(size);
        let len = (header.tp_snaplen as usize + before).min(size - start);
        // SAFETY: `start` is at most the slot's size.
        let data = unsafe { self.ring.slot(self.ring.next).add(start) };
        // SAFETY: the range lies in the slot, which the kernel does not write while it is ours.
        unsafe { std::slice::from_raw_parts(data, len) }
    }
}

impl Drop for Slot<'_> {
    #[inline]
    fn drop(&mut self) {
        let index = self.ring.next;
        self.ring.status(index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.ring.next = if index + 1 == self.ring.slots() { 0 } else { index + 1 };
    }
}
