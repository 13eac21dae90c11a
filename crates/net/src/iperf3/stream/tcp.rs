//! The loops of a stream of bytes: one that sends blocks, one that receives.
//!
//! Left out: connecting, and everything that is set on the socket before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use plumb_sys::pages::Pages;
use plumb_sys::{fd, socket, splice, transport};

use super::{Goal, Meter, Pace, Socket, Switch, block, is_pause};
use crate::iperf3::now;
use crate::iperf3::parameters::Parameters;

/// Sends until it is told to stop, the goal is reached, or the other side is gone.
///
/// # Errors
/// The kernel's, of the connection.
pub fn send(
    socket: &Socket,
    parameters: &Parameters,
    meter: &Meter,
    switch: &Switch,
    goal: &Goal,
) -> io::Result<()> {
    let bytes = block(parameters.length as usize, parameters.repeating);
    let pages = if parameters.zerocopy { Some(pages(&bytes)?) } else { None };
    let mut pace = Pace::new(parameters.bitrate, now());
    let burst = parameters.burst.max(1);
    let mut blocks = 0_u32;
    let mut rest = 0_usize;
    let to = socket.as_fd();
    while !switch.is_stopping() {
        if rest == 0 {
            if let Some(pace) = &pace
                && blocks.is_multiple_of(burst)
                && !pace.wait()
            {
                continue;
            }
            rest = goal.take(bytes.len());
            if rest == 0 {
                return Ok(());
            }
            blocks = blocks.wrapping_add(1);
        }
        let sent = match &pages {
            None => socket::send(to, &bytes[bytes.len() - rest..]),
            Some(pages) => splice::sendfile(to, pages.as_fd(), (bytes.len() - rest) as u64, rest),
        };
        match sent {
            Ok(sent) => {
                rest -= sent;
                meter.add_bytes(sent);
                if let Some(pace) = &mut pace {
                    pace.sent(sent);
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Memory that the kernel can send from without copying it.
fn pages(bytes: &[u8]) -> io::Result<std::os::fd::OwnedFd> {
    let file = fd::memory_file(c"plumb-iperf3", bytes.len() as u64)?;
    fd::write_at(file.as_fd(), bytes, 0)?;
    Ok(file)
}

/// Receives until the other side has ended, or everybody is told to stop.
///
/// # Errors
/// The kernel's, of the connection.
pub fn receive(
    socket: &Socket,
    parameters: &Parameters,
    meter: &Meter,
    switch: &Switch,
    goal: &Goal,
) -> io::Result<()> {
    let mut buffer = Pages::filled(1, (parameters.length as usize).max(128 << 10));
    let from = socket.as_fd();
    let skip = parameters.skip_copy;
    loop {
        match one(from, &mut buffer, skip) {
            Ok(0) => return Ok(()),
            Ok(received) => {
                meter.add_bytes(received);
                goal.received(received);
                if switch.is_stopping() {
                    meter.set_last(now());
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        if switch.is_off() {
            return Ok(());
        }
    }
}

#[inline]
fn one(from: BorrowedFd<'_>, buffer: &mut [u8], skip: bool) -> io::Result<usize> {
    if skip { transport::discard(from, buffer.len()) } else { socket::receive(from, buffer, true) }
}
