//! TCP over loopback, IPv4 and IPv6.
//!
//! Congestion control is set on every socket and recorded, because the host's default shapes the
//! result; so is TCP_NODELAY.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::socket::{self, IntOption};

use super::end::{Attempt, Channel, Handover, OpenError, Setup};
use super::socketpair::set_buffers;
use super::stream::{SocketCalls, StreamEnd};

/// TCP over 127.0.0.1.
#[derive(Debug)]
pub(crate) struct Tcp4;

impl Channel for Tcp4 {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        open(setup, Ipv4Addr::LOCALHOST.into())
    }

    fn attach(setup: &Setup<'_>, handover: Handover) -> Result<Self::Peer, OpenError> {
        attach(setup, handover)
    }
}

/// TCP over ::1.
#[derive(Debug)]
pub(crate) struct Tcp6;

impl Channel for Tcp6 {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &Setup<'_>) -> Result<(Self::Local, Handover), OpenError> {
        open(setup, Ipv6Addr::LOCALHOST.into())
    }

    fn attach(setup: &Setup<'_>, handover: Handover) -> Result<Self::Peer, OpenError> {
        attach(setup, handover)
    }
}

fn open(
    setup: &Setup<'_>,
    loopback: IpAddr,
) -> Result<(StreamEnd<SocketCalls>, Handover), OpenError> {
    let (here, handover) = connected_pair(setup, loopback)?;
    let local = StreamEnd::new(setup, here, None)?.with_quickack(setup.channel.options.quickack);
    Ok((local, handover))
}

fn attach(setup: &Setup<'_>, mut handover: Handover) -> Result<StreamEnd<SocketCalls>, OpenError> {
    let [fd] = handover.take()?;
    Ok(StreamEnd::new(setup, fd, None)?.with_quickack(setup.channel.options.quickack))
}

/// A connection of this process to itself, with the launch's options on both sockets.
pub(crate) fn connected_pair(
    setup: &Setup<'_>,
    loopback: IpAddr,
) -> Result<(OwnedFd, Handover), OpenError> {
    let listener = TcpListener::bind(SocketAddr::new(loopback, 0)).attempt("listen on loopback")?;
    let address = listener.local_addr().attempt("read the listener's address")?;
    let there = TcpStream::connect(address).attempt("connect over loopback")?;
    let (here, _) = listener.accept().attempt("accept over loopback")?;
    let (here, there) = (OwnedFd::from(here), OwnedFd::from(there));
    set_buffers(setup, [&here, &there])?;
    let options = &setup.channel.options;
    for fd in [&here, &there] {
        socket::set_option(fd.as_fd(), IntOption::NoDelay, i32::from(options.nodelay))
            .attempt("set TCP_NODELAY")?;
        if let Some(name) = &options.congestion {
            socket::set_congestion(fd.as_fd(), name).map_err(|error| refused(name, &error))?;
        }
    }
    let facts = facts(&here).attempt("read the socket's options")?;
    Ok((here, Handover { fds: vec![there], numbers: Vec::new(), facts }))
}

fn refused(name: &str, error: &io::Error) -> OpenError {
    OpenError::Unavailable(format!(
        "this kernel does not offer the congestion control '{name}' ({error}); \
         see net.ipv4.tcp_available_congestion_control"
    ))
}

fn facts(fd: &OwnedFd) -> io::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("congestion", socket::congestion(fd.as_fd())?),
        ("sndbuf", socket::option(fd.as_fd(), IntOption::SendBuffer)?.to_string()),
        ("rcvbuf", socket::option(fd.as_fd(), IntOption::ReceiveBuffer)?.to_string()),
    ])
}
