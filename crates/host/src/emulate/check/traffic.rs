//! A link seen from outside: datagrams of plain kernel sockets, sent and received by the same clock.
//!
//! Nothing of plumb's own stack or driver takes part: an independent sender notes when it sends, the
//! kernel when each datagram is received. Left out: what was to be expected, and what follows.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;

use plumb_base::time::Span;
use plumb_sys::clock::{Clock, read_ns};
use plumb_sys::datagram::{force_receive_buffer, receive_stamped, stamp_receptions};
use plumb_sys::socket::{IntOption, receive_drops, set_option};
use plumb_sys::timer::{set_slack_ns, sleep_ns};

use crate::lab::{LabError, TestBed};

/// Bytes of a datagram that are used: its number.
pub const PAYLOAD_MIN: usize = 8;
/// Bytes of Ethernet, IPv4 and UDP headers around the payload.
pub const HEADERS: usize = 14 + 20 + 8;

/// Room for datagrams that were received and not yet read.
const RECEIVE_BUFFER: i32 = 32 << 20;
/// The last stretch before a moment is spun, in nanoseconds.
const SPIN: u64 = 60_000;
/// No room in a device's queue.
const ENOBUFS: i32 = 105;

/// What one direction is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of payload of each datagram; at least [`PAYLOAD_MIN`].
    pub payload: usize,
    /// When each is sent, since the beginning; not decreasing.
    pub moments: Vec<Span>,
    /// Datagrams whose time has not come by then are not sent any more.
    pub until: Span,
    /// How long to wait for the last, after it was sent.
    pub patience: Span,
}

/// A datagram that was sent: the clock before and after, in nanoseconds of real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Before the call.
    pub begun: u64,
    /// After it.
    pub done: u64,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which of those sent, from 0.
    pub number: u32,
    /// When the kernel had it, in nanoseconds of real time.
    pub at: u64,
}

/// What was seen of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In the order of sending.
    pub sent: Vec<Sent>,
    /// In the order of reception.
    pub received: Vec<Received>,
    /// Datagrams that reached the receiving socket and found no room there.
    pub overrun: u32,
}

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The namespaces.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A socket.
    #[error("cannot {what} a socket of the check: {source}")]
    Socket {
        /// What was to be done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A thread died.
    #[error("a thread of the check ended early, which is a bug of plumb")]
    Thread,
}

/// Sends `up` from the near side to the far one, and `down` back, both at the same time, and waits
/// for what arrives.
///
/// # Errors
/// [`CheckError`].
pub fn exchange(
    bed: &TestBed,
    up: Option<&Traffic>,
    down: Option<&Traffic>,
) -> Result<[Seen; 2], CheckError> {
    let (near, far) = (bed.in_a(near_socket)??, bed.in_b(far_socket)??);
    let (to_far, to_near) = (address(&far)?, address(&near)?);
    thread::scope(|scope| {
        let receivers = [(up, &far), (down, &near)].map(|(traffic, socket)| {
            traffic.map(|traffic| scope.spawn(|| receive(socket, traffic)))
        });
        let senders = [(up, &near, to_far), (down, &far, to_near)].map(|(traffic, socket, to)| {
            traffic.map(|traffic| scope.spawn(move || send(socket, to, traffic)))
        });
        let mut seen = [Seen::default(), Seen::default()];
        for (seen, sender) in seen.iter_mut().zip(senders) {
            if let Some(sender) = sender {
                seen.sent = sender.join().map_err(|_| CheckError::Thread)??;
            }
        }
        for (seen, receiver) in seen.iter_mut().zip(receivers) {
            if let Some(receiver) = receiver {
                (seen.received, seen.overrun) =
                    receiver.join().map_err(|_| CheckError::Thread)??;
            }
        }
        Ok(seen)
    })
}

fn near_socket() -> Result<UdpSocket, CheckError> {
    socket(TestBed::NEAR_V4.into())
}

fn far_socket() -> Result<UdpSocket, CheckError> {
    socket(TestBed::FAR_V4.into())
}

fn socket(address: IpAddr) -> Result<UdpSocket, CheckError> {
    let fault = |what| move |source| CheckError::Socket { what, source };
    let socket = UdpSocket::bind((address, 0)).map_err(fault("open"))?;
    stamp_receptions(socket.as_fd()).map_err(fault("time"))?;
    if force_receive_buffer(socket.as_fd(), RECEIVE_BUFFER).is_err() {
        // Without the rights of the machine's own root there is less room, and the kernel counts
        // what finds none.
        let option = IntOption::ReceiveBuffer;
        set_option(socket.as_fd(), option, RECEIVE_BUFFER).map_err(fault("make room in"))?;
    }
    let patience = Some(std::time::Duration::from_millis(20));
    socket.set_read_timeout(patience).map_err(fault("set up"))?;
    Ok(socket)
}

fn address(socket: &UdpSocket) -> Result<SocketAddr, CheckError> {
    socket.local_addr().map_err(|source| CheckError::Socket { what: "name", source })
}

fn send(socket: &UdpSocket, to: SocketAddr, traffic: &Traffic) -> Result<Vec<Sent>, CheckError> {
    let fault = |source| CheckError::Socket { what: "send through", source };
    // Sleeps that end late are spun through, so without this only precision is lost.
    set_slack_ns(1).ok();
    socket.connect(to).map_err(fault)?;
    let mut payload = vec![0; traffic.payload.max(PAYLOAD_MIN)];
    let mut sent = Vec::with_capacity(traffic.moments.len());
    let start = read_ns(Clock::Realtime);
    for (number, moment) in (0_u32..).zip(&traffic.moments) {
        let due = start + moment.as_ns();
        let begun = wait_until(due);
        if begun > start + traffic.until.as_ns() {
            break;
        }
        payload[..4].copy_from_slice(&number.to_be_bytes());
        match socket.send(&payload) {
            Ok(_) => {}
            // A device's queue is full: as lost as if the link had lost it, and its driver counts it.
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
            Err(error) => return Err(fault(error)),
        }
        sent.push(Sent { begun, done: read_ns(Clock::Realtime) });
    }
    Ok(sent)
}

/// Waits, asleep and then spinning; the time it then is.
fn wait_until(due: u64) -> u64 {
    loop {
        let now = read_ns(Clock::Realtime);
        match due.saturating_sub(now) {
            0 => return now,
            left if left > SPIN => {
                sleep_ns(left - SPIN);
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// What comes, and how much found no room.
fn receive(socket: &UdpSocket, traffic: &Traffic) -> Result<(Vec<Received>, u32), CheckError> {
    let last = traffic.moments.last().copied().unwrap_or_default().min(traffic.until);
    let end = read_ns(Clock::Realtime) + (last + traffic.patience).as_ns();
    let mut received = Vec::with_capacity(traffic.moments.len());
    let mut missing: std::collections::BTreeSet<u32> =
        (0_u32..).zip(&traffic.moments).map(|(number, _)| number).collect();
    let mut buffer = vec![0; traffic.payload.max(PAYLOAD_MIN)];
    while !missing.is_empty() && read_ns(Clock::Realtime) < end {
        match receive_stamped(socket.as_fd(), &mut buffer) {
            Ok((len, at)) => {
                if let Some(number) = buffer[..len].first_chunk() {
                    let number = u32::from_be_bytes(*number);
                    let at = at.unwrap_or_else(|| read_ns(Clock::Realtime));
                    received.push(Received { number, at });
                    missing.remove(&number);
                }
            }
            Err(error) if is_patience(&error) => {}
            Err(source) => return Err(CheckError::Socket { what: "receive through", source }),
        }
    }
    let fault = |source| CheckError::Socket { what: "ask", source };
    Ok((received, receive_drops(socket.as_fd()).map_err(fault)?))
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
