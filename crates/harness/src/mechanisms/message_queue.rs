//! Message queues that lose nothing: messages over a queue's limit are sent in parts. POSIX's, as large as the host's
//! limits let an ordinary user have, and System V's, one each way.
//!
//! A System V queue outlives its users, so the launch moves into an IPC namespace of its own where that is allowed: it
//! vanishes with the processes, whatever kills them. Elsewhere the queues' keys tell whose they were, and [`sweep`] removes
//! them at the next start.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fs, io};

use plumb_sys::ipc::{self, SysvMessage};
use plumb_sys::{fd, namespace, process};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover,
    PeerWatchdog, ReadinessWaiter,
};
use crate::report::LaunchFault;
use crate::spec::WakeMode;

/// The calls of one kind of queue.
pub(crate) trait MessageQueue {
    /// Sends one part.
    fn send(&mut self, part: &[u8]) -> io::Result<()>;
    /// Receives one part; `sleep` says whether the call may wait for it.
    fn receive(&mut self, buffer: &mut [u8], sleep: bool) -> io::Result<usize>;
    /// The descriptor to wait for, where there is one.
    fn rx(&self) -> Option<BorrowedFd<'_>>;
    /// Makes the receiving side fit for spinning.
    fn make_nonblocking(&self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of a message queue.
#[derive(Debug)]
pub(crate) struct MessageEnd<Q> {
    queue: Q,
    part_max: usize,
    waiter: ReadinessWaiter,
    watch: PeerWatchdog,
    parts: u64,
}

impl<Q: MessageQueue> MessageEnd<Q> {
    /// An end over a queue whose parts have at most `part_max` bytes.
    pub(crate) fn new(
        setup: &ChannelSetup<'_>,
        queue: Q,
        part_max: usize,
    ) -> Result<Self, LaunchFault> {
        if setup.wake() == WakeMode::Spin {
            queue.make_nonblocking().attempt("make the queue non-blocking")?;
        }
        let waiter = match (setup.wake(), queue.rx()) {
            (WakeMode::Spin, _) => ReadinessWaiter::Spin,
            (wake, Some(rx)) => {
                ReadinessWaiter::new(wake, rx).attempt("watch the queue with epoll")?
            }
            (_, None) => ReadinessWaiter::Block,
        };
        Ok(Self { queue, part_max, waiter, watch: setup.watchdog.clone(), parts: 0 })
    }
}

impl<Q: MessageQueue> ChannelEnd for MessageEnd<Q> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.watch.begin();
        for part in message.chunks(self.part_max) {
            while let Err(error) = self.queue.send(part) {
                self.watch.retry_or_fail(error)?;
            }
            self.parts += 1;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        let mut filled = 0;
        while filled < len {
            if let Some(rx) = self.queue.rx() {
                self.waiter.ready(rx, &mut self.watch)?;
            }
            match self.queue.receive(&mut buffer[filled..], self.waiter.may_sleep()) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => filled += n,
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("parts", std::mem::take(&mut self.parts))]
    }
}

/// Two POSIX message queues.
pub(crate) struct MqPosix;

impl ChannelMechanism for MqPosix {
    type Local = MessageEnd<PosixQueues>;
    type Peer = MessageEnd<PosixQueues>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let message_size = posix_limit("msgsize_max", 8192);
        let messages = posix_limit("msg_max", 10);
        let queue = |end: &str| {
            let name = format!("/plumb-{}-{:016x}-{end}", std::process::id(), setup.seed);
            let name = CString::new(name).map_err(io::Error::other)?;
            ipc::posix_queue(&name, messages, message_size)
        };
        let there = queue("out").attempt("make a POSIX message queue (see RLIMIT_MSGQUEUE)")?;
        let here = queue("in").attempt("make a POSIX message queue (see RLIMIT_MSGQUEUE)")?;
        let duplicate = |fd: &OwnedFd| fd.try_clone().attempt("duplicate a queue");
        let mut handover = PeerHandover::of([duplicate(&there)?, duplicate(&here)?]);
        handover.numbers.push(message_size);
        handover.facts.push(("part_max", message_size.to_string()));
        handover.facts.push(("queue_messages", messages.to_string()));
        let part_max = usize::try_from(message_size).unwrap_or(1);
        let local = MessageEnd::new(setup, PosixQueues { rx: here, tx: there }, part_max)?;
        Ok((local, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let part_max = handover.numbers.first().and_then(|&n| usize::try_from(n).ok()).unwrap_or(1);
        let [rx, tx] = handover.take()?;
        MessageEnd::new(setup, PosixQueues { rx, tx }, part_max)
    }
}

/// A limit of mq_overview(7), or its documented default; at most what receive buffers have room for.
fn posix_limit(name: &str, default: i64) -> i64 {
    let text = fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(default).clamp(1, 65_536)
}

/// A pair of POSIX queues.
#[derive(Debug)]
pub(crate) struct PosixQueues {
    rx: OwnedFd,
    tx: OwnedFd,
}

impl MessageQueue for PosixQueues {
    #[inline]
    fn send(&mut self, part: &[u8]) -> io::Result<()> {
        ipc::posix_send(self.tx.as_fd(), part)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], _sleep: bool) -> io::Result<usize> {
        ipc::posix_receive(self.rx.as_fd(), buffer)
    }

    fn rx(&self) -> Option<BorrowedFd<'_>> {
        Some(self.rx.as_fd())
    }

    fn make_nonblocking(&self) -> io::Result<()> {
        fd::set_nonblocking(self.rx.as_fd(), true)
    }
}

/// Two System V message queues.
pub(crate) struct MqSysv;

impl ChannelMechanism for MqSysv {
    type Local = MessageEnd<SysvQueues>;
    type Peer = MessageEnd<SysvQueues>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let isolated =
            namespace::unshare_ipc().or_else(|_| namespace::unshare_user_and_ipc()).is_ok();
        let part_max = part_max();
        let there = OwnedSysvQueue(create().attempt("make a System V message queue")?);
        let here = OwnedSysvQueue(create().attempt("make a System V message queue")?);
        let handover = PeerHandover {
            fds: Vec::new(),
            numbers: vec![there.0.into(), here.0.into()],
            facts: vec![
                ("part_max", part_max.to_string()),
                ("ipc_namespace", if isolated { "own" } else { "shared" }.to_owned()),
            ],
        };
        let queues = SysvQueues::new(setup, here.0, there.0, vec![here, there]);
        Ok((MessageEnd::new(setup, queues, part_max)?, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let id = |index: usize| {
            handover
                .numbers
                .get(index)
                .and_then(|&n| i32::try_from(n).ok())
                .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
                .attempt("take over the queue's number")
        };
        let queues = SysvQueues::new(setup, id(0)?, id(1)?, Vec::new());
        MessageEnd::new(setup, queues, part_max())
    }
}

/// A pair of queues, and those that this side must remove.
#[derive(Debug)]
pub(crate) struct SysvQueues {
    rx: i32,
    tx: i32,
    message: SysvMessage,
    sleep: bool,
    _owned: Vec<OwnedSysvQueue>,
}

impl SysvQueues {
    fn new(setup: &ChannelSetup<'_>, rx: i32, tx: i32, owned: Vec<OwnedSysvQueue>) -> Self {
        let message = SysvMessage::new(part_max());
        Self { rx, tx, message, sleep: setup.wake() != WakeMode::Spin, _owned: owned }
    }
}

impl MessageQueue for SysvQueues {
    #[inline]
    fn send(&mut self, part: &[u8]) -> io::Result<()> {
        self.message.send(self.tx, part)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], _sleep: bool) -> io::Result<usize> {
        const ENOMSG: i32 = 42;
        self.message.receive(self.rx, buffer, self.sleep).map_err(|error| {
            if error.raw_os_error() == Some(ENOMSG) {
                io::Error::from(io::ErrorKind::WouldBlock)
            } else {
                error
            }
        })
    }

    fn rx(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A queue that is removed when dropped.
#[derive(Debug)]
struct OwnedSysvQueue(i32);

impl Drop for OwnedSysvQueue {
    fn drop(&mut self) {
        // Already gone is as good as removed.
        drop(ipc::sysv_remove(self.0));
    }
}

/// The longest message, kernel.msgmax, at most what receive buffers have room for.
fn part_max() -> usize {
    let text = fs::read_to_string("/proc/sys/kernel/msgmax").unwrap_or_default();
    text.trim().parse().unwrap_or(8192).clamp(1, 65_536)
}

/// The upper half of every key that plumb uses: "PL".
const KEY_PREFIX: i32 = 0x504C_0000;

/// Makes a queue under the first free key of plumb's.
fn create() -> io::Result<i32> {
    let first = std::process::id() & 0x7FFF;
    for step in 0..0x100_u32 {
        let low = i32::try_from((first + step) & 0xFFFF).unwrap_or(0);
        match ipc::sysv_create(KEY_PREFIX | low) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// Removes plumb's queues whose last users are all dead; returns how many.
pub fn sweep() -> usize {
    let table = fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
    table.lines().skip(1).filter_map(stale_queue).filter(|&id| ipc::sysv_remove(id).is_ok()).count()
}

/// The queue of a line of /proc/sysvipc/msg (key msqid perms cbytes qnum lspid lrpid …), when it
/// is plumb's and whoever last sent and received is gone.
fn stale_queue(line: &str) -> Option<i32> {
    let fields: Vec<i64> = line.split_whitespace().map_while(|f| f.parse().ok()).collect();
    let [key, id, _, _, _, sender, receiver, ..] = fields[..] else { return None };
    let ours = key & 0xFFFF_0000 == i64::from(KEY_PREFIX);
    let dead = |pid: i64| u32::try_from(pid).is_ok_and(|pid| pid != 0 && !process::exists(pid));
    // A queue that was never used tells nothing about its maker: it is left alone.
    if ours && dead(sender) && (receiver == 0 || dead(receiver)) {
        i32::try_from(id).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queues_of_the_dead_are_stale() {
        let alive = std::process::id();
        let line =
            |key: i64, sender: u32| format!("{key} 7 600 0 0 {sender} {sender} 0 0 0 0 0 0 0");
        let key = i64::from(KEY_PREFIX) + 5;
        assert_eq!(stale_queue(&line(key, 4_194_999)), Some(7));
        assert_eq!(stale_queue(&line(key, alive)), None);
        assert_eq!(stale_queue(&line(12, 4_194_999)), None);
        assert_eq!(stale_queue("       key      msqid perms"), None);
    }
}
