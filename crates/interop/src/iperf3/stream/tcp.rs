//! A stream of bytes, a call at a time: one end sends blocks, the other receives.
//!
//! Left out: connecting, everything that is set on the socket before, and whose turn it is (`plumb_net::connection_pool`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::{fd, socket};

use super::{ByteBudget, Iperf3Socket, StopFlag, StreamMeter};
use crate::iperf3::parameters::Iperf3Parameters;
use plumb_clock::monotonic_ns;
use plumb_clock::now;
use plumb_net::connection_pool::{NextCall, PooledConnection};
use plumb_net::measure::bulk::{BulkFlow, receive_buffer};
use plumb_net::measure::pacer::Pacer;

/// What all streams of a test share.
#[derive(Clone, Debug)]
pub struct Iperf3Context {
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
        receive_buffer(block.max(128 << 10))
    }
}

/// One end of a stream at work.
#[derive(Debug)]
pub struct Iperf3TcpWorker {
    socket: Arc<Iperf3Socket>,
    meter: Arc<StreamMeter>,
    shared: Iperf3Context,
    sends: bool,
    flow: BulkFlow,
    pace: Option<Pacer>,
    /// What the kernel sends from without copying it.
    pages: Option<OwnedFd>,
    blocks: u32,
    /// Bytes of the block under way that were claimed and have not gone.
    claimed: usize,
    is_over: bool,
}

impl Iperf3TcpWorker {
    /// A worker that has not begun; its pace, if it has one, begins now.
    ///
    /// # Errors
    /// The kernel's: there is no memory that it can send from.
    pub fn new(
        socket: Arc<Iperf3Socket>,
        meter: Arc<StreamMeter>,
        sends: bool,
        shared: Iperf3Context,
    ) -> io::Result<Self> {
        let parameters = &shared.parameters;
        let pages = (sends && parameters.zerocopy)
            .then(|| zerocopy_file(&buffer(parameters, true)))
            .transpose()?;
        let pace = parameters.bitrate.map(|rate| Pacer::of_bytes(monotonic_ns(), 1, rate));
        let flow = BulkFlow::default();
        let (blocks, claimed, is_over) = (0, 0, false);
        Ok(Self { socket, meter, shared, sends, flow, pace, pages, blocks, claimed, is_over })
    }

    /// Sends until it is told to stop, the goal is reached, or the other side is gone.
    fn send(&mut self, block: &[u8]) -> io::Result<NextCall> {
        let Iperf3Context { parameters, stop_flag, budget } = &self.shared;
        if stop_flag.is_stopping() {
            return Ok(NextCall::Done);
        }
        if self.claimed == 0 {
            if let Some(pace) = &self.pace
                && self.blocks.is_multiple_of(parameters.burst.max(1))
            {
                let due_ns = pace.due_ns(self.flow.bytes);
                if due_ns > monotonic_ns() {
                    return Ok(NextCall::At(due_ns));
                }
            }
            self.claimed = budget.claim(block.len());
            if self.claimed == 0 {
                return Ok(NextCall::Done);
            }
            self.flow.offset = block.len() - self.claimed;
            self.blocks = self.blocks.wrapping_add(1);
        }
        let (to, from) = (self.socket.as_fd(), self.flow.offset);
        let sent = match &self.pages {
            None => self.flow.send(to, block, usize::MAX)?,
            Some(pages) => {
                let sent = fd::sendfile(to, pages.as_fd(), from as u64, block.len() - from);
                self.flow.record(sent, block.len())?
            }
        };
        if let Some(sent) = sent {
            self.claimed -= sent;
            self.meter.set_bytes(self.flow.bytes);
            budget.sent(sent);
        }
        Ok(NextCall::Socket)
    }

    /// Receives until the other side has ended, or everybody is told to stop.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<NextCall> {
        let Iperf3Context { parameters, stop_flag, budget } = &self.shared;
        let from = self.socket.as_fd();
        let received = if parameters.skip_copy {
            let room = self.flow.place(buffer).len();
            self.flow.record(socket::discard(from, room), 1)?
        } else {
            self.flow.receive(from, buffer, usize::MAX)?
        };
        match received {
            Some(0) => return Ok(NextCall::Done),
            Some(received) => {
                self.meter.set_bytes(self.flow.bytes);
                budget.received(received);
                if stop_flag.is_stopping() {
                    self.meter.set_last(now());
                }
            }
            None => {}
        }
        Ok(if stop_flag.is_stopped() { NextCall::Done } else { NextCall::Socket })
    }

    fn end(&mut self, result: Result<(), &io::Error>) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.meter.end(result, &self.shared.stop_flag, &self.shared.budget);
        }
    }
}

impl PooledConnection for Iperf3TcpWorker {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn is_reading(&self) -> bool {
        !self.sends
    }

    #[inline]
    fn call(&mut self, buffer: &mut [u8]) -> NextCall {
        let next = if self.sends { self.send(buffer) } else { self.receive(buffer) };
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

/// Memory that the kernel can send from without copying it.
fn zerocopy_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = fd::memory_file(c"plumb-iperf3", bytes.len() as u64)?;
    fd::write_at(file.as_fd(), bytes, 0)?;
    Ok(file)
}
