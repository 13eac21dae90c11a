//! Real-time signals: sigqueue(3) with a value, sigwaitinfo(2) to receive it.

use plumb_sys::{process, signal};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover,
    PeerWatchdog,
};

/// A queued signal each way.
#[derive(Debug)]
pub(crate) struct SignalChannel;

impl ChannelMechanism for SignalChannel {
    type Local = SignalEnd;
    type Peer = SignalEnd;

    /// The mask is set before the peer is started, which inherits it: no signal can come too soon.
    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        signal::block_message_signal().attempt("block a real-time signal")?;
        Ok((SignalEnd { other: None, watch: setup.watchdog.clone() }, PeerHandover::default()))
    }

    fn attach(setup: &ChannelSetup<'_>, _handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        signal::block_message_signal().attempt("block a real-time signal")?;
        Ok(SignalEnd { other: Some(process::parent_id()), watch: setup.watchdog.clone() })
    }
}

/// One end: who to signal.
#[derive(Debug)]
pub(crate) struct SignalEnd {
    other: Option<u32>,
    watch: PeerWatchdog,
}

impl ChannelEnd for SignalEnd {
    fn set_peer_pid(&mut self, other: u32) {
        self.other = Some(other);
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        let value = message.try_into().map_or(1, u64::from_le_bytes);
        let other = self.other.ok_or(ChannelError::Closed)?;
        // EAGAIN means that the receiver's queue is full (RLIMIT_SIGPENDING).
        while let Err(error) = signal::queue_message(other, value) {
            self.watch.retry_or_fail(error)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        loop {
            match signal::wait_message() {
                Ok(value) => {
                    buffer[..len].copy_from_slice(&value.to_le_bytes()[..len]);
                    return Ok(());
                }
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }
}
