//! System V message queues, one each way.
//!
//! Such a queue outlives its users, so the launch moves into an IPC namespace of its own where
//! that is allowed: it vanishes with the processes, whatever kills them. Elsewhere the queues'
//! keys tell whose they were, and [`sweep`] removes them at the next start.

use std::{fs, io};

use plumb_sys::ipc::SysvMessage;
use plumb_sys::{ipc, namespace, process};

use super::message_queue::{MessageEnd, MessageQueue};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover};
use crate::spec::WakeMode;

/// Two System V message queues.
#[derive(Debug)]
pub(crate) struct MqSysv;

impl ChannelMechanism for MqSysv {
    type Local = MessageEnd<SysvQueues>;
    type Peer = MessageEnd<SysvQueues>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
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

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
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

    fn rx(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
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
