//! The mechanisms: ways for one process to talk to another, one a file.
//!
//! To add one: a file with a type that implements [`ChannelMechanism`], a name in [`Mechanism`], and a line in
//! [`visit_channel`].

mod eventfd;
mod fifo;
mod futex;
mod message_queue;
mod mq_posix;
mod mq_sysv;
mod pipe;
mod scratch_directory;
mod sendfile;
mod shm;
mod signal;
mod socketpair;
mod splice;
mod stream;
mod tcp;
mod udp;
mod unix;
mod uring;
mod vm_writev;
mod vmsplice;
mod zerocopy;

use crate::channel::ChannelMechanism;
// For the modules of streams and supervisor.
pub(crate) use crate::channel::{ChannelSetup, IoResultExt, OpenError, PeerHandover, PeerWatchdog};
use crate::spec::Mechanism;
pub(crate) use tcp::{connected_pair, set_options, socket_facts};
pub(crate) use udp::{UdpEnd, set_datagram_options};

/// Something to do with a channel whose type is known at compile time, so that no call between
/// two clock reads goes through a table.
pub(crate) trait ChannelVisitor {
    /// What it gives.
    type Output;
    /// Does it.
    fn visit<C: ChannelMechanism>(self) -> Self::Output;
}

/// Visits the channel of a mechanism.
pub(crate) fn visit_channel<V: ChannelVisitor>(mechanism: Mechanism, visitor: V) -> V::Output {
    match mechanism {
        Mechanism::Pipe => visitor.visit::<pipe::PipeChannel>(),
        Mechanism::Fifo => visitor.visit::<fifo::FifoChannel>(),
        Mechanism::SocketpairStream => visitor.visit::<socketpair::SocketpairStream>(),
        Mechanism::SocketpairDgram => visitor.visit::<socketpair::SocketpairDgram>(),
        Mechanism::SocketpairSeqpacket => visitor.visit::<socketpair::SocketpairSeqpacket>(),
        Mechanism::UnixStream => visitor.visit::<unix::UnixStreamPath>(),
        Mechanism::UnixStreamAbstract => visitor.visit::<unix::UnixStreamAbstract>(),
        Mechanism::UnixDgram => visitor.visit::<unix::UnixDgramPath>(),
        Mechanism::UnixDgramAbstract => visitor.visit::<unix::UnixDgramAbstract>(),
        Mechanism::Tcp4 => visitor.visit::<tcp::Tcp4Channel>(),
        Mechanism::Tcp6 => visitor.visit::<tcp::Tcp6Channel>(),
        Mechanism::Udp4 => visitor.visit::<udp::Udp4Channel>(),
        Mechanism::Udp6 => visitor.visit::<udp::Udp6Channel>(),
        Mechanism::MqPosix => visitor.visit::<mq_posix::MqPosix>(),
        Mechanism::MqSysv => visitor.visit::<mq_sysv::MqSysv>(),
        Mechanism::Eventfd => visitor.visit::<eventfd::EventfdChannel>(),
        Mechanism::Futex => visitor.visit::<futex::FutexChannel>(),
        Mechanism::Signal => visitor.visit::<signal::SignalChannel>(),
        Mechanism::ShmSpin => visitor.visit::<shm::ShmChannel<shm::SpinNotifier>>(),
        Mechanism::ShmFutex => visitor.visit::<shm::ShmChannel<shm::FutexNotifier>>(),
        Mechanism::ShmEventfd => visitor.visit::<shm::ShmChannel<shm::EventfdNotifier>>(),
        Mechanism::VmWritev => visitor.visit::<vm_writev::VmWritev>(),
        Mechanism::Splice => visitor.visit::<splice::SpliceChannel>(),
        Mechanism::Vmsplice => visitor.visit::<vmsplice::VmspliceChannel>(),
        Mechanism::Sendfile => visitor.visit::<sendfile::SendfileChannel>(),
        Mechanism::TcpZerocopy => visitor.visit::<zerocopy::TcpZerocopy>(),
        Mechanism::Uring => visitor.visit::<uring::UringChannel>(),
    }
}

/// Removes what killed processes left behind: directories and System V queues.
///
/// Returns how many things were removed.
pub fn sweep_leftovers() -> usize {
    scratch_directory::sweep() + mq_sysv::sweep()
}
