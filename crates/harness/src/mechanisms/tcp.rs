//! TCP over loopback, between two namespaces or to another host, IPv4 and IPv6.
//!
//! Congestion control is set on every socket and recorded, because the host's default shapes the
//! result; so is TCP_NODELAY.

use std::io;
use std::marker::PhantomData;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use plumb_net::measure::connect::connect_tcp;
use plumb_remote::token_listener::CONNECT_TIMEOUT;
use plumb_sys::socket::{self, InetSocketKind, IntOption};

use super::stream::{SocketCalls, StreamEnd};
use super::unix::set_buffers;
use crate::channel::{
    ChannelEnd, ChannelMechanism, ChannelSetup, EndpointLocation, IoResultExt, PeerHandover,
};
use crate::report::LaunchFault;
use crate::spec::SocketOptions;

/// TCP over IPv4 or IPv6.
pub(crate) struct TcpChannel<const IPV6: bool>;

impl<const IPV6: bool> ChannelMechanism for TcpChannel<IPV6> {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (here, handover) = match setup.location {
            EndpointLocation::RemoteHost(host) => {
                let here = host.open(setup, IPV6)?;
                let facts = socket_facts(&here)?;
                (here, PeerHandover { facts, ..PeerHandover::default() })
            }
            _ => connected_pair(setup, IPV6)?,
        };
        let local = StreamEnd::new(setup, here, None)?;
        Ok((local.with_options(&setup.channel.options), handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [fd] = handover.take()?;
        Ok(StreamEnd::new(setup, fd, None)?.with_options(&setup.channel.options))
    }
}

/// An end that needs nothing but its socket.
pub(crate) trait OverTcp: ChannelEnd + Sized {
    /// Over a connected socket.
    fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, LaunchFault>;
}

/// TCP over 127.0.0.1 with ends of another kind.
pub(crate) struct Tcp4Variant<E>(PhantomData<E>);

impl<E: OverTcp> ChannelMechanism for Tcp4Variant<E> {
    type Local = E;
    type Peer = E;

    fn open(setup: &ChannelSetup<'_>) -> Result<(E, PeerHandover), LaunchFault> {
        let (here, handover) = connected_pair(setup, false)?;
        Ok((E::over(setup, here)?, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<E, LaunchFault> {
        let [fd] = handover.take()?;
        E::over(setup, fd)
    }
}

/// A connection from the near to the far side, with the launch's options on both sockets.
pub(crate) fn connected_pair(
    setup: &ChannelSetup<'_>,
    ipv6: bool,
) -> Result<(OwnedFd, PeerHandover), LaunchFault> {
    let (here, there) = connect(setup.location, ipv6, setup.channel.options.congestion.as_deref())?;
    let (here, there) = (OwnedFd::from(here), OwnedFd::from(there));
    for fd in [&here, &there] {
        set_options(&setup.channel.options, fd)?;
    }
    let facts = socket_facts(&here)?;
    Ok((here, PeerHandover { fds: vec![there], numbers: Vec::new(), facts }))
}

/// Both ends of a connection from the near to the far side.
pub(crate) fn connect(
    location: &EndpointLocation,
    ipv6: bool,
    congestion: Option<&str>,
) -> Result<(TcpStream, TcpStream), LaunchFault> {
    let at = location.far_address(ipv6)?;
    let listener = location.in_far(|| TcpListener::bind(at))?.attempt("listen")?;
    set_congestion(congestion, listener.as_fd())?;
    let address = listener.local_addr().attempt("read the listener's address")?;
    let near = location.in_near(|| socket::open(ipv6, InetSocketKind::Stream))?;
    let near = near.attempt("open a socket")?;
    set_congestion(congestion, near.as_fd())?;
    let near = connect_tcp(near, address, CONNECT_TIMEOUT.into(), &|| false).attempt("connect")?;
    let (far, _) = listener.accept().attempt("accept")?;
    Ok((near, far))
}

/// Sets a launch's congestion control on a socket that is not connected yet, or listens: a connection that began with
/// bbr stays paced under any other.
pub(crate) fn set_congestion(name: Option<&str>, fd: BorrowedFd<'_>) -> Result<(), LaunchFault> {
    let Some(name) = name else { return Ok(()) };
    socket::set_congestion(fd, name).map_err(|error| congestion_refused(name, &error))
}

/// Sets a launch's options on a connected socket.
pub(crate) fn set_options(options: &SocketOptions, fd: &OwnedFd) -> Result<(), LaunchFault> {
    set_buffers(options, [fd])?;
    socket::set_option(fd.as_fd(), IntOption::NoDelay, i32::from(options.nodelay))
        .attempt("set TCP_NODELAY")?;
    if let Some(us) = options.busy_poll_us {
        let us = i32::try_from(us).unwrap_or(i32::MAX);
        socket::set_option(fd.as_fd(), IntOption::BusyPoll, us).attempt("set SO_BUSY_POLL")?;
    }
    // It has it already where the kernel allows it; where not, here is said why.
    set_congestion(options.congestion.as_deref(), fd.as_fd())?;
    options.window.map_or(Ok(()), |window| set_window(fd, window))
}

/// Bounds the window that a socket offers, and gives it a buffer that never bounds it first.
fn set_window(fd: &OwnedFd, window: u64) -> Result<(), LaunchFault> {
    let clamp = i32::try_from(window).unwrap_or(i32::MAX);
    // Linux doubles what is asked for, and counts what holds the bytes too: four times is plenty.
    let buffer = clamp.saturating_mul(2).max(1 << 16);
    let forced = socket::set_option(fd.as_fd(), IntOption::ReceiveBufferForce, buffer);
    if forced.is_err() {
        socket::set_option(fd.as_fd(), IntOption::ReceiveBuffer, buffer)
            .attempt("set a socket buffer")?;
    }
    let got = socket::option(fd.as_fd(), IntOption::ReceiveBuffer).attempt("read SO_RCVBUF")?;
    if got < clamp.saturating_mul(2) {
        return Err(LaunchFault::Unavailable(format!(
            "this host allows a receive buffer of {got} bytes, too small for a window of {window}: \
             run as root, or raise net.core.rmem_max"
        )));
    }
    socket::set_option(fd.as_fd(), IntOption::WindowClamp, clamp).attempt("set TCP_WINDOW_CLAMP")
}

fn congestion_refused(name: &str, error: &io::Error) -> LaunchFault {
    if error.kind() == io::ErrorKind::PermissionDenied {
        return LaunchFault::Unavailable(format!(
            "this user may not choose the congestion control '{name}' ({error}); run plumb as root, or \
             add it: sudo sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno … {name}\""
        ));
    }
    LaunchFault::Unavailable(format!(
        "this kernel does not offer the congestion control '{name}' ({error}); \
         see net.ipv4.tcp_available_congestion_control"
    ))
}

/// What the kernel made of a socket's options.
pub(crate) fn socket_facts(fd: &OwnedFd) -> Result<Vec<(&'static str, String)>, LaunchFault> {
    let read = || {
        Ok(vec![
            ("congestion", socket::congestion(fd.as_fd())?),
            ("sndbuf", socket::option(fd.as_fd(), IntOption::SendBuffer)?.to_string()),
            ("rcvbuf", socket::option(fd.as_fd(), IntOption::ReceiveBuffer)?.to_string()),
        ])
    };
    read().attempt("read the socket's options")
}
