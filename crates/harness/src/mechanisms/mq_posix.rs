//! POSIX message queues, one each way, as large as the host's limits let an ordinary user have.

use std::ffi::CString;
use std::fs;

use plumb_sys::ipc;

use super::message_queue::{MessageEnd, PosixQueues};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover};

/// Two POSIX message queues.
#[derive(Debug)]
pub(crate) struct MqPosix;

impl ChannelMechanism for MqPosix {
    type Local = MessageEnd<PosixQueues>;
    type Peer = MessageEnd<PosixQueues>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let message_size = limit("msgsize_max", 8192);
        let messages = limit("msg_max", 10);
        let queue = |end: &str| {
            let name = format!("/plumb-{}-{:016x}-{end}", std::process::id(), setup.seed);
            let name = CString::new(name).map_err(std::io::Error::other)?;
            ipc::posix_queue(&name, messages, message_size)
        };
        let there = queue("out").attempt("make a POSIX message queue (see RLIMIT_MSGQUEUE)")?;
        let here = queue("in").attempt("make a POSIX message queue (see RLIMIT_MSGQUEUE)")?;
        let duplicate = |fd: &std::os::fd::OwnedFd| fd.try_clone().attempt("duplicate a queue");
        let mut handover = PeerHandover::of([duplicate(&there)?, duplicate(&here)?]);
        handover.numbers.push(message_size);
        handover.facts.push(("part_max", message_size.to_string()));
        handover.facts.push(("queue_messages", messages.to_string()));
        let part_max = usize::try_from(message_size).unwrap_or(1);
        let local = MessageEnd::new(setup, PosixQueues { rx: here, tx: there }, part_max)?;
        Ok((local, handover))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let part_max = handover.numbers.first().and_then(|&n| usize::try_from(n).ok()).unwrap_or(1);
        let [rx, tx] = handover.take()?;
        MessageEnd::new(setup, PosixQueues { rx, tx }, part_max)
    }
}

/// A limit of mq_overview(7), or its documented default; at most what receive buffers have room for.
fn limit(name: &str, default: i64) -> i64 {
    let text = fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(default).clamp(1, 65_536)
}
