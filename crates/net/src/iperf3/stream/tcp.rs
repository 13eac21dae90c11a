//! A stream of bytes, a call at a time: one end sends blocks, the other receives.
//!
//! Left out: connecting, everything that is set on the socket before, and whose turn it is (`crate::crew`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use plumb_sys::pages::Pages;
use plumb_sys::{fd, socket, splice, transport};

use super::{Goal, Meter, Pace, Socket, Switch, is_pause};
use crate::alignment;
use crate::crew::{Member, Next};
use crate::iperf3::now;
use crate::iperf3::parameters::Parameters;

/// What all streams of a test share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// What is to be done.
    pub parameters: Arc<Parameters>,
    /// Whether to go on.
    pub switch: Arc<Switch>,
    /// How much is left.
    pub goal: Arc<Goal>,
}

/// Bytes of a thread's buffer: a sender's block, or what a receiver has room for.
pub fn buffer(parameters: &Parameters, sends: bool) -> Pages {
    let block = parameters.length as usize;
    if sends {
        super::block(block, parameters.repeating)
    } else {
        alignment::buffer(block.max(128 << 10))
    }
}

/// The rest of a sender's block, and when the next is due.
#[derive(Debug)]
struct Outgoing {
    /// What the kernel sends from without copying it.
    pages: Option<OwnedFd>,
    pace: Option<Pace>,
    blocks: u32,
    rest: usize,
}

/// One end of a stream at work.
#[derive(Debug)]
pub struct Worker {
    socket: Arc<Socket>,
    meter: Arc<Meter>,
    shared: Shared,
    outgoing: Option<Outgoing>,
    is_over: bool,
}

impl Worker {
    /// A worker that has not begun; its pace, if it has one, begins now.
    ///
    /// # Errors
    /// The kernel's: there is no memory that it can send from.
    pub fn new(
        socket: Arc<Socket>,
        meter: Arc<Meter>,
        sends: bool,
        shared: Shared,
    ) -> io::Result<Self> {
        let parameters = &shared.parameters;
        let outgoing = || -> io::Result<Outgoing> {
            let block = || buffer(parameters, true);
            let pages = parameters.zerocopy.then(|| pages(&block())).transpose()?;
            let pace = Pace::new(parameters.bitrate, now());
            Ok(Outgoing { pages, pace, blocks: 0, rest: 0 })
        };
        let outgoing = sends.then(outgoing).transpose()?;
        Ok(Self { socket, meter, shared, outgoing, is_over: false })
    }

    /// Sends until it is told to stop, the goal is reached, or the other side is gone.
    fn send(&mut self, block: &[u8]) -> io::Result<Next> {
        let Shared { parameters, switch, goal } = &self.shared;
        let Some(outgoing) = &mut self.outgoing else { return Ok(Next::Over) };
        if switch.is_stopping() {
            return Ok(Next::Over);
        }
        if outgoing.rest == 0 {
            if let Some(pace) = &outgoing.pace
                && outgoing.blocks.is_multiple_of(parameters.burst.max(1))
                && let Some(due_ns) = pace.due_ns()
            {
                return Ok(Next::At(due_ns));
            }
            outgoing.rest = goal.take(block.len());
            if outgoing.rest == 0 {
                return Ok(Next::Over);
            }
            outgoing.blocks = outgoing.blocks.wrapping_add(1);
        }
        let (to, gone) = (self.socket.as_fd(), block.len() - outgoing.rest);
        let sent = match &outgoing.pages {
            None => socket::send(to, &block[gone..]),
            Some(pages) => splice::sendfile(to, pages.as_fd(), gone as u64, outgoing.rest),
        };
        match sent {
            Ok(sent) => {
                outgoing.rest -= sent;
                self.meter.add_bytes(sent);
                goal.sent(sent);
                if let Some(pace) = &mut outgoing.pace {
                    pace.sent(sent);
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Socket)
    }

    /// Receives until the other side has ended, or everybody is told to stop.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Next> {
        let Shared { parameters, switch, goal } = &self.shared;
        let place = alignment::place(self.meter.bytes(), buffer);
        match one(self.socket.as_fd(), place, parameters.skip_copy) {
            Ok(0) => return Ok(Next::Over),
            Ok(received) => {
                self.meter.add_bytes(received);
                goal.received(received);
                if switch.is_stopping() {
                    self.meter.set_last(now());
                }
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(if switch.is_off() { Next::Over } else { Next::Socket })
    }
}

impl Member for Worker {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn reads(&self) -> bool {
        self.outgoing.is_none()
    }

    #[inline]
    fn turn(&mut self, buffer: &mut [u8]) -> Next {
        let next = if self.outgoing.is_some() { self.send(buffer) } else { self.receive(buffer) };
        match next {
            Ok(Next::Over) => self.end(Ok(())),
            Ok(next) => return next,
            Err(error) => self.end(Err(&error)),
        }
        Next::Over
    }

    fn give_up(&mut self, error: &io::Error) {
        self.end(Err(error));
    }
}

impl Worker {
    fn end(&mut self, result: Result<(), &io::Error>) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.meter.end(result, &self.shared.switch, &self.shared.goal);
        }
    }
}

/// Memory that the kernel can send from without copying it.
fn pages(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = fd::memory_file(c"plumb-iperf3", bytes.len() as u64)?;
    fd::write_at(file.as_fd(), bytes, 0)?;
    Ok(file)
}

#[inline]
fn one(from: BorrowedFd<'_>, buffer: &mut [u8], skip: bool) -> io::Result<usize> {
    if skip { transport::discard(from, buffer.len()) } else { socket::receive(from, buffer, true) }
}
