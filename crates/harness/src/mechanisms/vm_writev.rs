//! process_vm_writev(2): the sender writes into the receiver's buffer, then wakes it by futex.
//!
//! One copy, made by the kernel, and no buffer between: the receiver says when its buffer may be
//! written again. Both sides must be allowed to trace each other.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use plumb_sys::memory::SharedMap;
use plumb_sys::{ipc, process};

use super::{map_memory, shared_memory};
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, PeerHandover, PeerWatchdog,
};
use crate::report::LaunchFault;

/// A page in which each side keeps its buffer's address and its counts.
pub(crate) struct VmWritev;

const PAGE: usize = 4096;
/// Offsets of the two sides' areas, and of the fields in each.
const LOCAL: usize = 0;
const PEER: usize = 2048;
const ADDRESS: usize = 0;
/// Messages sent by this side; a futex.
const SENT: usize = 128;
/// Messages of the other side that this side is done with; a futex.
const TAKEN: usize = 256;

impl ChannelMechanism for VmWritev {
    type Local = VmWritevEnd;
    type Peer = VmWritevEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (map, file) = shared_memory(c"plumb-vm", PAGE)?;
        // Without Yama this fails, and nothing needs allowing.
        drop(process::allow_tracing());
        Ok((VmWritevEnd::new(setup, map, LOCAL, PEER, None), PeerHandover::of([file])))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [file] = handover.take()?;
        let map = map_memory(&file, PAGE)?;
        drop(process::allow_tracing());
        Ok(VmWritevEnd::new(setup, map, PEER, LOCAL, Some(process::parent_id())))
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct VmWritevEnd {
    map: Arc<SharedMap>,
    own: usize,
    other: usize,
    other_pid: Option<u32>,
    sent: u32,
    received: u32,
    /// Whether the receive buffer holds a message that the caller may still be reading.
    buffer_in_use: bool,
    watch: PeerWatchdog,
}

impl VmWritevEnd {
    fn new(
        setup: &ChannelSetup<'_>,
        map: SharedMap,
        own: usize,
        other: usize,
        other_pid: Option<u32>,
    ) -> Self {
        Self {
            map: Arc::new(map),
            own,
            other,
            other_pid,
            sent: 0,
            received: 0,
            buffer_in_use: false,
            watch: setup.watchdog.clone(),
        }
    }

    /// Lets the other side write the buffer again.
    #[inline]
    fn release(&mut self) -> Result<(), ChannelError> {
        if std::mem::take(&mut self.buffer_in_use) {
            let word = self.map.word(self.own + TAKEN);
            word.store(self.received, SeqCst);
            // The other side sleeps here only when it sends faster than this side takes.
            ipc::futex_wake_one(word)?;
        }
        Ok(())
    }

    /// Sleeps until the word at `offset` holds another value than `old`.
    #[inline]
    fn wait_for_change(&mut self, offset: usize, old: u32) -> Result<u32, ChannelError> {
        loop {
            let word = self.map.word(offset);
            let value = word.load(Acquire);
            if value != old {
                return Ok(value);
            }
            if let Err(error) = ipc::futex_wait(word, old) {
                self.watch.retry_or_fail(error)?;
            }
        }
    }
}

impl ChannelEnd for VmWritevEnd {
    fn prepare(&mut self, _tx: &[u8], rx: &mut [u8]) -> Result<(), ChannelError> {
        self.buffer_in_use = false;
        let taken = self.map.word(self.own + TAKEN);
        taken.store(self.received, SeqCst);
        let address = rx.as_mut_ptr().expose_provenance() as u64;
        self.map.double_word(self.own + ADDRESS).store(address, Release);
        Ok(())
    }

    fn set_peer_pid(&mut self, other: u32) {
        self.other_pid = Some(other);
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        // The other side's buffer is free once it has taken everything sent so far.
        loop {
            let taken = self.map.word(self.other + TAKEN).load(Acquire);
            if taken == self.sent {
                break;
            }
            self.wait_for_change(self.other + TAKEN, taken)?;
        }
        let other = self.other_pid.ok_or(ChannelError::Closed)?;
        let address = self.map.double_word(self.other + ADDRESS).load(Relaxed);
        let write =
            |done: usize| process::write_memory(other, address + done as u64, &message[done..]);
        self.watch.move_all(message.len(), write)?;
        // The received message has been used by now; this message also says so.
        let holding = std::mem::take(&mut self.buffer_in_use);
        if holding {
            self.map.word(self.own + TAKEN).store(self.received, SeqCst);
        }
        self.sent = self.sent.wrapping_add(1);
        let word = self.map.word(self.own + SENT);
        word.store(self.sent, SeqCst);
        ipc::futex_wake_one(word)?;
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _buffer: &mut [u8], _len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        self.release()?;
        let received = self.received;
        self.wait_for_change(self.other + SENT, received)?;
        self.received = received.wrapping_add(1);
        self.buffer_in_use = true;
        Ok(())
    }
}
