//! A stream of bytes, a call at a time: one end sends blocks, the other receives.
//!
//! Left out: connecting, everything that is set on the socket before, and whose turn it is (`plumb_net::connection_pool`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::{fd, socket};

use super::{BitratePacer, ByteBudget, Iperf3StreamSocket, StopFlag, StreamMeter, is_timeout};
use crate::iperf3::now;
use crate::iperf3::parameters::Iperf3Parameters;
use plumb_net::alignment;
use plumb_net::connection_pool::{NextCall, PooledConnection};

/// What all streams of a test share.
#[derive(Clone, Debug)]
pub struct Iperf3StreamContext {
    /// What is to be done.
    pub parameters: Arc<Iperf3Parameters>,
    /// Whether to go on.
    pub stop_flag: Arc<StopFlag>,
    /// How much is left.
    pub budget: Arc<ByteBudget>,
}

/// Bytes of a thread's buffer: a sender's block, or what a receiver has room for.
pub fn buffer(parameters: &Iperf3Parameters, sends: bool) -> PageAlignedBuffer {
    let block = parameters.length as usize;
    if sends {
        super::payload(block, parameters.repeating)
    } else {
        alignment::buffer(block.max(128 << 10))
    }
}

/// The rest of a sender's block, and when the next is due.
#[derive(Debug)]
struct Iperf3SendState {
    /// What the kernel sends from without copying it.
    pages: Option<OwnedFd>,
    pace: Option<BitratePacer>,
    blocks: u32,
    rest: usize,
}

/// One end of a stream at work.
#[derive(Debug)]
pub struct Iperf3TcpWorker {
    socket: Arc<Iperf3StreamSocket>,
    meter: Arc<StreamMeter>,
    shared: Iperf3StreamContext,
    outgoing: Option<Iperf3SendState>,
    is_over: bool,
}

impl Iperf3TcpWorker {
    /// A worker that has not begun; its pace, if it has one, begins now.
    ///
    /// # Errors
    /// The kernel's: there is no memory that it can send from.
    pub fn new(
        socket: Arc<Iperf3StreamSocket>,
        meter: Arc<StreamMeter>,
        sends: bool,
        shared: Iperf3StreamContext,
    ) -> io::Result<Self> {
        let parameters = &shared.parameters;
        let outgoing = || -> io::Result<Iperf3SendState> {
            let block = || buffer(parameters, true);
            let pages = parameters.zerocopy.then(|| zerocopy_file(&block())).transpose()?;
            let pace = BitratePacer::new(parameters.bitrate, now());
            Ok(Iperf3SendState { pages, pace, blocks: 0, rest: 0 })
        };
        let outgoing = sends.then(outgoing).transpose()?;
        Ok(Self { socket, meter, shared, outgoing, is_over: false })
    }

    /// Sends until it is told to stop, the goal is reached, or the other side is gone.
    fn send(&mut self, block: &[u8]) -> io::Result<NextCall> {
        let Iperf3StreamContext { parameters, stop_flag: switch, budget: goal } = &self.shared;
        let Some(outgoing) = &mut self.outgoing else { return Ok(NextCall::Done) };
        if switch.is_stopping() {
            return Ok(NextCall::Done);
        }
        if outgoing.rest == 0 {
            if let Some(pace) = &outgoing.pace
                && outgoing.blocks.is_multiple_of(parameters.burst.max(1))
                && let Some(due_ns) = pace.due_ns()
            {
                return Ok(NextCall::At(due_ns));
            }
            outgoing.rest = goal.claim(block.len());
            if outgoing.rest == 0 {
                return Ok(NextCall::Done);
            }
            outgoing.blocks = outgoing.blocks.wrapping_add(1);
        }
        let (to, gone) = (self.socket.as_fd(), block.len() - outgoing.rest);
        let sent = match &outgoing.pages {
            None => socket::send(to, &block[gone..]),
            Some(pages) => fd::sendfile(to, pages.as_fd(), gone as u64, outgoing.rest),
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
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(NextCall::Socket)
    }

    /// Receives until the other side has ended, or everybody is told to stop.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<NextCall> {
        let Iperf3StreamContext { parameters, stop_flag: switch, budget: goal } = &self.shared;
        let place = alignment::receive_slot(self.meter.bytes(), buffer);
        match receive_once(self.socket.as_fd(), place, parameters.skip_copy) {
            Ok(0) => return Ok(NextCall::Done),
            Ok(received) => {
                self.meter.add_bytes(received);
                goal.received(received);
                if switch.is_stopping() {
                    self.meter.set_last(now());
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(if switch.is_stopped() { NextCall::Done } else { NextCall::Socket })
    }
}

impl PooledConnection for Iperf3TcpWorker {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_reading(&self) -> bool {
        self.outgoing.is_none()
    }

    #[inline]
    fn call(&mut self, buffer: &mut [u8]) -> NextCall {
        let next = if self.outgoing.is_some() { self.send(buffer) } else { self.receive(buffer) };
        match next {
            Ok(NextCall::Done) => self.end(Ok(())),
            Ok(next) => return next,
            Err(error) => self.end(Err(&error)),
        }
        NextCall::Done
    }

    fn fail(&mut self, error: &io::Error) {
        self.end(Err(error));
    }
}

impl Iperf3TcpWorker {
    fn end(&mut self, result: Result<(), &io::Error>) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.meter.end(result, &self.shared.stop_flag, &self.shared.budget);
        }
    }
}

/// Memory that the kernel can send from without copying it.
fn zerocopy_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = fd::memory_file(c"plumb-iperf3", bytes.len() as u64)?;
    fd::write_at(file.as_fd(), bytes, 0)?;
    Ok(file)
}

#[inline]
fn receive_once(from: BorrowedFd<'_>, buffer: &mut [u8], skip: bool) -> io::Result<usize> {
    if skip { socket::discard(from, buffer.len()) } else { socket::receive(from, buffer, true) }
}
