//! The mechanisms: ways for one process to talk to another, a file for each kind.
//!
//! To add one: a type that implements [`ChannelMechanism`], a name in [`Mechanism`], and a line in
//! [`visit_channel`].

mod http1;
mod http2;
mod message_queue;
mod pipe;
mod quic;
mod scratch_directory;
mod sendfile;
mod shm;
mod splice;
mod stream;
mod stream_protocol;
mod tcp;
mod tls;
mod udp;
mod unix;
mod uring;
mod vm_writev;
mod wakeup;
mod zerocopy;

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use plumb_sys::fd;
use plumb_sys::memory::SharedMap;

use crate::channel::ChannelMechanism;
// For the modules of streams and supervisor.
pub(crate) use crate::channel::{ChannelSetup, IoResultExt, PeerHandover, PeerWatchdog};
use crate::report::LaunchFault;
use crate::spec::Mechanism;
pub(crate) use stream::{SocketCalls, StreamEnd};
use stream_protocol::ProtocolChannel;
use tcp::Tcp4Variant;
pub(crate) use tcp::{connect, connected_pair, set_congestion, set_options, socket_facts};
pub(crate) use udp::{UdpEnd, connect_datagrams, set_datagram_options};

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
        Mechanism::Pipe | Mechanism::Fifo => visitor.visit::<pipe::PipeChannel>(),
        Mechanism::SocketpairStream | Mechanism::UnixStream | Mechanism::UnixStreamAbstract => {
            visitor.visit::<unix::UnixStreamChannel>()
        }
        Mechanism::SocketpairDgram
        | Mechanism::SocketpairSeqpacket
        | Mechanism::UnixDgram
        | Mechanism::UnixDgramAbstract => visitor.visit::<unix::UnixMessageChannel>(),
        Mechanism::Tcp4 => visitor.visit::<tcp::TcpChannel<false>>(),
        Mechanism::Tcp6 => visitor.visit::<tcp::TcpChannel<true>>(),
        Mechanism::Udp4 => visitor.visit::<udp::UdpChannel<false>>(),
        Mechanism::Udp6 => visitor.visit::<udp::UdpChannel<true>>(),
        Mechanism::MqPosix => visitor.visit::<message_queue::MqPosix>(),
        Mechanism::MqSysv => visitor.visit::<message_queue::MqSysv>(),
        Mechanism::Eventfd => visitor.visit::<wakeup::EventfdChannel>(),
        Mechanism::Futex => visitor.visit::<wakeup::FutexChannel>(),
        Mechanism::Signal => visitor.visit::<wakeup::SignalChannel>(),
        Mechanism::ShmSpin => visitor.visit::<shm::ShmChannel<shm::SpinNotifier>>(),
        Mechanism::ShmFutex => visitor.visit::<shm::ShmChannel<shm::FutexNotifier>>(),
        Mechanism::ShmEventfd => visitor.visit::<shm::ShmChannel<shm::EventfdNotifier>>(),
        Mechanism::VmWritev => visitor.visit::<vm_writev::VmWritev>(),
        Mechanism::Splice => visitor.visit::<splice::SpliceChannel>(),
        Mechanism::Vmsplice => visitor.visit::<splice::VmspliceChannel>(),
        Mechanism::Sendfile => visitor.visit::<Tcp4Variant<sendfile::SendfileEnd>>(),
        Mechanism::TcpZerocopy => visitor.visit::<Tcp4Variant<zerocopy::ZerocopyEnd>>(),
        Mechanism::Uring => visitor.visit::<Tcp4Variant<uring::UringEnd>>(),
        Mechanism::TlsTcp4 | Mechanism::TlsUnix => visitor.visit::<ProtocolChannel<tls::Tls>>(),
        Mechanism::Http1Tcp4 | Mechanism::Http1Unix => {
            visitor.visit::<ProtocolChannel<http1::Http1>>()
        }
        Mechanism::Http2Tcp4 | Mechanism::Http2Unix => {
            visitor.visit::<ProtocolChannel<http2::Http2>>()
        }
        Mechanism::Quic4 => visitor.visit::<quic::QuicChannel>(),
    }
}

/// Removes what killed processes left behind: directories and System V queues.
///
/// Returns how many things were removed.
pub fn sweep_leftovers() -> usize {
    scratch_directory::sweep() + message_queue::sweep()
}

/// Memory to share with the peer, and the file behind it to hand over.
fn shared_memory(name: &CStr, len: usize) -> Result<(SharedMap, OwnedFd), LaunchFault> {
    let file = fd::memory_file(name, len as u64).attempt("make shared memory")?;
    Ok((map_memory(&file, len)?, file))
}

/// The memory behind a file that was handed over.
fn map_memory(file: &OwnedFd, len: usize) -> Result<SharedMap, LaunchFault> {
    SharedMap::new(file.as_fd(), len).attempt("map shared memory")
}
