//! Local mechanisms: ways for one process to talk to another on this machine, one a file.
//!
//! To add one: a file with a type that implements `end::Channel`, a name in
//! [`mechanism::Mechanism`], and a line in [`visit`].

mod end;
mod eventfd;
mod fifo;
mod futex;
pub(crate) mod ground;
pub mod mechanism;
mod message;
mod mq_posix;
mod mq_sysv;
mod pipe;
mod scratch;
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

pub(crate) use end::{
    Attempt, Channel, End, Fault, Handover, Mark, OpenError, PAGE_STOP, Received, SLACK, Setup,
    Watch,
};
pub(crate) use ground::Ground;
use mechanism::Mechanism;
pub(crate) use tcp::{connected_pair, facts_of, set_options};
pub(crate) use udp::{UdpEnd, set_datagram_options};

/// Something to do with a channel whose type is known at compile time, so that no call between
/// two clock reads goes through a table.
pub(crate) trait Visitor {
    /// What it gives.
    type Output;
    /// Does it.
    fn visit<C: Channel>(self) -> Self::Output;
}

/// Visits the channel of a mechanism.
pub(crate) fn visit<V: Visitor>(mechanism: Mechanism, visitor: V) -> V::Output {
    match mechanism {
        Mechanism::Pipe => visitor.visit::<pipe::Pipe>(),
        Mechanism::Fifo => visitor.visit::<fifo::Fifo>(),
        Mechanism::SocketpairStream => visitor.visit::<socketpair::SocketpairStream>(),
        Mechanism::SocketpairDgram => visitor.visit::<socketpair::SocketpairDgram>(),
        Mechanism::SocketpairSeqpacket => visitor.visit::<socketpair::SocketpairSeqpacket>(),
        Mechanism::UnixStream => visitor.visit::<unix::UnixStreamPath>(),
        Mechanism::UnixStreamAbstract => visitor.visit::<unix::UnixStreamAbstract>(),
        Mechanism::UnixDgram => visitor.visit::<unix::UnixDgramPath>(),
        Mechanism::UnixDgramAbstract => visitor.visit::<unix::UnixDgramAbstract>(),
        Mechanism::Tcp4 => visitor.visit::<tcp::Tcp4>(),
        Mechanism::Tcp6 => visitor.visit::<tcp::Tcp6>(),
        Mechanism::Udp4 => visitor.visit::<udp::Udp4>(),
        Mechanism::Udp6 => visitor.visit::<udp::Udp6>(),
        Mechanism::MqPosix => visitor.visit::<mq_posix::MqPosix>(),
        Mechanism::MqSysv => visitor.visit::<mq_sysv::MqSysv>(),
        Mechanism::Eventfd => visitor.visit::<eventfd::Eventfd>(),
        Mechanism::Futex => visitor.visit::<futex::Futex>(),
        Mechanism::Signal => visitor.visit::<signal::Signal>(),
        Mechanism::ShmSpin => visitor.visit::<shm::Shm<shm::Spin>>(),
        Mechanism::ShmFutex => visitor.visit::<shm::Shm<shm::FutexBell>>(),
        Mechanism::ShmEventfd => visitor.visit::<shm::Shm<shm::EventfdBell>>(),
        Mechanism::VmWritev => visitor.visit::<vm_writev::VmWritev>(),
        Mechanism::Splice => visitor.visit::<splice::Splice>(),
        Mechanism::Vmsplice => visitor.visit::<vmsplice::Vmsplice>(),
        Mechanism::Sendfile => visitor.visit::<sendfile::Sendfile>(),
        Mechanism::TcpZerocopy => visitor.visit::<zerocopy::TcpZerocopy>(),
        Mechanism::Uring => visitor.visit::<uring::Uring>(),
    }
}

/// Removes what killed processes left behind: directories and System V queues.
///
/// Returns how many things were removed.
pub fn sweep_leftovers() -> usize {
    scratch::sweep() + mq_sysv::sweep()
}
