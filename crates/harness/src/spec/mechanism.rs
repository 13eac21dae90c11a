//! The local mechanisms by name: what each is, and what it can carry.
//!
//! Left out: how they work; each has its own file beside this one.

use plumb_base::units::format_bytes;
use serde::{Deserialize, Serialize};

/// A way for one process to talk to another on the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mechanism {
    /// pipe(2), one each way.
    Pipe,
    /// mkfifo(3), one each way, unlinked as soon as both ends are open.
    Fifo,
    /// socketpair(2), SOCK_STREAM.
    SocketpairStream,
    /// socketpair(2), SOCK_DGRAM.
    SocketpairDgram,
    /// socketpair(2), SOCK_SEQPACKET.
    SocketpairSeqpacket,
    /// unix(7) stream socket bound to a path.
    UnixStream,
    /// unix(7) stream socket with an abstract name.
    UnixStreamAbstract,
    /// unix(7) datagram sockets bound to paths.
    UnixDgram,
    /// unix(7) datagram sockets with abstract names.
    UnixDgramAbstract,
    /// TCP over IPv4 loopback.
    Tcp4,
    /// TCP over IPv6 loopback.
    Tcp6,
    /// UDP over IPv4 loopback.
    Udp4,
    /// UDP over IPv6 loopback.
    Udp6,
    /// POSIX message queues, mq_overview(7).
    MqPosix,
    /// System V message queues, msgget(2).
    MqSysv,
    /// eventfd(2): an eight-byte counter each way.
    Eventfd,
    /// futex(2) on a word in shared memory: a wake-up without data.
    Futex,
    /// Real-time signals, sigqueue(3) and sigwaitinfo(2).
    Signal,
    /// Ring in shared memory, both sides spinning.
    ShmSpin,
    /// Ring in shared memory, futex wake-ups.
    ShmFutex,
    /// Ring in shared memory, eventfd wake-ups.
    ShmEventfd,
    /// process_vm_writev(2) into the peer's memory, futex wake-ups.
    VmWritev,
    /// Pipe whose reader moves the bytes to its memory through splice(2) and a second pipe.
    Splice,
    /// Pipe filled by vmsplice(2): the writer's pages are lent, not copied.
    Vmsplice,
    /// sendfile(2) from a memory file to a TCP socket.
    Sendfile,
    /// TCP with MSG_ZEROCOPY sends.
    TcpZerocopy,
    /// TCP through io_uring(7) send and receive.
    Uring,
}

/// What shape of message a mechanism carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageShape {
    /// Bytes without boundaries, any size.
    Stream,
    /// Whole messages up to a limit of the kernel's; longer ones are sent in parts.
    Messages,
    /// A fixed number of bytes and nothing else.
    Fixed(u64),
}

impl Mechanism {
    /// Every mechanism, cheapest idea first.
    pub const ALL: [Self; 27] = [
        Self::Eventfd,
        Self::Futex,
        Self::Signal,
        Self::ShmSpin,
        Self::ShmFutex,
        Self::ShmEventfd,
        Self::VmWritev,
        Self::Pipe,
        Self::Fifo,
        Self::Splice,
        Self::Vmsplice,
        Self::SocketpairStream,
        Self::SocketpairDgram,
        Self::SocketpairSeqpacket,
        Self::UnixStream,
        Self::UnixStreamAbstract,
        Self::UnixDgram,
        Self::UnixDgramAbstract,
        Self::MqPosix,
        Self::MqSysv,
        Self::Udp4,
        Self::Udp6,
        Self::Tcp4,
        Self::Tcp6,
        Self::Sendfile,
        Self::TcpZerocopy,
        Self::Uring,
    ];

    /// The name used in plans, results and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Fifo => "fifo",
            Self::SocketpairStream => "socketpair-stream",
            Self::SocketpairDgram => "socketpair-dgram",
            Self::SocketpairSeqpacket => "socketpair-seqpacket",
            Self::UnixStream => "unix-stream",
            Self::UnixStreamAbstract => "unix-stream-abstract",
            Self::UnixDgram => "unix-dgram",
            Self::UnixDgramAbstract => "unix-dgram-abstract",
            Self::Tcp4 => "tcp4",
            Self::Tcp6 => "tcp6",
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
            Self::MqPosix => "mq-posix",
            Self::MqSysv => "mq-sysv",
            Self::Eventfd => "eventfd",
            Self::Futex => "futex",
            Self::Signal => "signal",
            Self::ShmSpin => "shm-spin",
            Self::ShmFutex => "shm-futex",
            Self::ShmEventfd => "shm-eventfd",
            Self::VmWritev => "vm-writev",
            Self::Splice => "splice",
            Self::Vmsplice => "vmsplice",
            Self::Sendfile => "sendfile",
            Self::TcpZerocopy => "tcp-zerocopy",
            Self::Uring => "uring",
        }
    }

    /// The mechanism of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// One line for people.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Pipe => "pipe(2), one each way",
            Self::Fifo => "named pipe, one each way",
            Self::SocketpairStream => "socketpair(2), stream",
            Self::SocketpairDgram => "socketpair(2), datagrams",
            Self::SocketpairSeqpacket => "socketpair(2), sequenced packets",
            Self::UnixStream => "Unix stream socket, bound to a path",
            Self::UnixStreamAbstract => "Unix stream socket, abstract name",
            Self::UnixDgram => "Unix datagram sockets, bound to paths",
            Self::UnixDgramAbstract => "Unix datagram sockets, abstract names",
            Self::Tcp4 => "TCP over IPv4 loopback",
            Self::Tcp6 => "TCP over IPv6 loopback",
            Self::Udp4 => "UDP over IPv4 loopback",
            Self::Udp6 => "UDP over IPv6 loopback",
            Self::MqPosix => "POSIX message queues",
            Self::MqSysv => "System V message queues",
            Self::Eventfd => "eventfd counters",
            Self::Futex => "futex wake-ups on a shared word, no data",
            Self::Signal => "real-time signals with a value",
            Self::ShmSpin => "shared-memory ring, both sides spin",
            Self::ShmFutex => "shared-memory ring, futex wake-ups",
            Self::ShmEventfd => "shared-memory ring, eventfd wake-ups",
            Self::VmWritev => "process_vm_writev(2) into the peer, futex wake-ups",
            Self::Splice => "pipe read through splice(2)",
            Self::Vmsplice => "pipe filled by vmsplice(2)",
            Self::Sendfile => "sendfile(2) from a memory file to TCP",
            Self::TcpZerocopy => "TCP with MSG_ZEROCOPY",
            Self::Uring => "TCP through io_uring",
        }
    }

    /// What it can carry.
    pub const fn message_shape(self) -> MessageShape {
        match self {
            Self::Eventfd | Self::Signal => MessageShape::Fixed(8),
            Self::Futex => MessageShape::Fixed(4),
            Self::SocketpairDgram
            | Self::SocketpairSeqpacket
            | Self::UnixDgram
            | Self::UnixDgramAbstract
            | Self::MqPosix
            | Self::MqSysv
            | Self::Udp4
            | Self::Udp6 => MessageShape::Messages,
            _ => MessageShape::Stream,
        }
    }

    /// Whether it may lose messages without an error.
    pub const fn is_lossy(self) -> bool {
        matches!(self, Self::Udp4 | Self::Udp6)
    }

    /// The ways in which a receiver can wait for it.
    pub const fn wake_modes(self) -> &'static [WakeMode] {
        match self {
            Self::ShmSpin => &[WakeMode::Spin],
            Self::Futex | Self::Signal | Self::ShmFutex | Self::VmWritev => &[WakeMode::Block],
            Self::MqSysv | Self::Splice | Self::Uring => &[WakeMode::Block, WakeMode::Spin],
            _ => &[WakeMode::Block, WakeMode::Poll, WakeMode::Epoll, WakeMode::Spin],
        }
    }

    /// Checks a message size, saying what would do.
    pub fn check_size(self, size: u64) -> Result<(), MessageSizeError> {
        let fault = |limit: String| Err(MessageSizeError { mechanism: self.name(), size, limit });
        match self.message_shape() {
            MessageShape::Fixed(bytes) if size != bytes => {
                fault(format!("it carries exactly {bytes} bytes"))
            }
            _ if size == 0 => fault("a message has at least 1 byte".to_owned()),
            _ if self == Self::Splice && size > SPLICE_MESSAGE_MAX => fault(format!(
                "the far side gathers a message in a pipe, which holds {}",
                format_bytes(SPLICE_MESSAGE_MAX)
            )),
            _ if size > MESSAGE_SIZE_MAX => {
                fault(format!("plumb sends at most {} at once", format_bytes(MESSAGE_SIZE_MAX)))
            }
            _ => Ok(()),
        }
    }
}

/// The largest message plumb sends: its buffers are allocated before measuring.
pub const MESSAGE_SIZE_MAX: u64 = 64 << 20;

/// The largest message that a pipe of the largest usual size surely holds: its pages need not be
/// full.
const SPLICE_MESSAGE_MAX: u64 = 512 << 10;

/// A message size that a mechanism cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size {size} is not possible over {mechanism}: {limit}")]
pub struct MessageSizeError {
    mechanism: &'static str,
    size: u64,
    limit: String,
}

/// How a receiver waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WakeMode {
    /// Asleep in the receiving call itself.
    Block,
    /// Asleep in poll(2), then a receiving call.
    Poll,
    /// Asleep in epoll_wait(2), then a receiving call.
    Epoll,
    /// Never asleep: non-blocking calls, or loads, in a loop.
    Spin,
}

impl WakeMode {
    /// Every wake mode.
    pub const ALL: [Self; 4] = [Self::Block, Self::Poll, Self::Epoll, Self::Spin];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Poll => "poll",
            Self::Epoll => "epoll",
            Self::Spin => "spin",
        }
    }

    /// The wake mode of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wake| wake.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_is_found_by_its_name_and_listed_once() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(mechanism.name()), Some(mechanism));
        }
        let names: std::collections::BTreeSet<_> = Mechanism::ALL.map(Mechanism::name).into();
        assert_eq!(names.len(), Mechanism::ALL.len());
    }

    #[test]
    fn impossible_sizes_are_refused_with_what_would_do() {
        assert!(Mechanism::Pipe.check_size(0).is_err());
        assert!(Mechanism::Pipe.check_size(MESSAGE_SIZE_MAX + 1).is_err());
        assert_eq!(Mechanism::Eventfd.check_size(8), Ok(()));
        let message = Mechanism::Eventfd.check_size(64).unwrap_err().to_string();
        assert!(message.contains("exactly 8 bytes"), "{message}");
    }
}
