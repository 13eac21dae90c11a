//! One connection of bulk TCP at work: it sends or takes as much as goes, a call at a time.
//!
//! After the end of the time that counts the sender closes its direction, and the receiver reads on to the end of the
//! stream. Left out: whose turn it is (`crate::connection_pool`).

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};

use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::socket;
use plumb_sys::socket::IntOption;

use super::bulk_connection::{BulkConnection, TransferOutcome, TransferPlan};
use super::thread_placement::{ThreadPlacement, ThreadPlacementPolicy};
use crate::alignment;
use crate::connection_pool::{self, NextCall, PooledConnection};
use plumb_clock::monotonic_ns;
use plumb_remote::token_listener::is_retryable;

/// How much before its planned end a sender may end, whose beginning may have been earlier.
const START_SKEW_NS: u64 = 2_000_000_000;
/// How long to wait for the word that a test was stopped, and how often to look for it.
const STOP_WAIT_NS: u64 = 1_000_000_000;
const STOP_POLL_NS: u64 = 20_000_000;
/// How long after its beginning a connection is seated: its flow's packets come by then.
const PLACEMENT_DELAY_NS: u64 = 50_000_000;

/// Carries these connections on this thread until all have ended: senders, or receivers.
pub(super) fn run_transfers(lanes: &[&BulkConnection], plan: &TransferPlan) {
    let served = lanes.len();
    // A thread of several is in no place that were right for all of them.
    let seating = if served > 1 { ThreadPlacementPolicy::Free } else { plan.placement };
    let plan = &TransferPlan { placement: seating, ..plan.clone() };
    for lane in lanes {
        lane.cpu_clock.begin(served);
    }
    let mut carriers: Vec<BulkTransfer<'_>> = lanes
        .iter()
        .map(|lane| BulkTransfer {
            connection: lane,
            plan,
            total: 0,
            phase: TransferPhase::Transferring,
        })
        .collect();
    let sends = lanes.first().is_some_and(|lane| lane.sends());
    if !sends {
        for lane in lanes {
            // To the kernel, who answered a preamble is in a conversation, and holds acknowledgements back. Where it
            // cannot be told, the test is slower, and still one.
            socket::set_option(lane.stream.as_fd(), IntOption::QuickAck, 1).ok();
        }
    }
    let mut buffer =
        if sends { incompressible(plan.block_bytes) } else { alignment::buffer(plan.block_bytes) };
    connection_pool::serve(&mut carriers, &mut buffer);
    // Until all have ended, the thread works for all.
    for lane in lanes {
        lane.cpu_clock.end();
    }
}

/// Bytes that nothing on the way can make fewer: xorshift64*, always the same.
fn incompressible(len: usize) -> PageAlignedBuffer {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = PageAlignedBuffer::filled(1, len);
    for word in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    bytes
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferPhase {
    /// Bytes are sent, or taken.
    Transferring,
    /// All is sent, and the receiver closes when it has read everything.
    Closing,
    /// The stream ended early: until then, word may come that the test was stopped.
    AwaitingStop(u64),
    Done,
}

/// One connection and how far it has come.
struct BulkTransfer<'a> {
    connection: &'a BulkConnection,
    plan: &'a TransferPlan,
    total: u64,
    phase: TransferPhase,
}

impl BulkTransfer<'_> {
    fn send(&mut self, block: &[u8]) -> io::Result<NextCall> {
        let (lane, plan) = (self.connection, self.plan);
        let now_ns = monotonic_ns();
        if now_ns >= plan.end_ns || plan.control.is_halted() {
            lane.stream.shutdown(Shutdown::Write)?;
            self.phase = TransferPhase::Closing;
            return Ok(NextCall::Socket);
        }
        self.place_thread(now_ns);
        let due_ns = self.due_ns(lane.send_rate_max).min(plan.end_ns);
        if due_ns > now_ns {
            return Ok(NextCall::At(due_ns));
        }
        match socket::send(lane.stream.as_fd(), call_buffer(self.rest(block), lane.send_rate_max)) {
            Ok(sent) => self.count_bytes(sent),
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(NextCall::Socket)
    }

    /// Waits for the end that says that everything has come.
    fn close(&mut self) -> io::Result<NextCall> {
        match socket::receive(self.connection.stream.as_fd(), &mut [0; 64], true) {
            Ok(0) => return Ok(self.end(true)),
            Ok(_) => {}
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(if self.is_late() { self.end(false) } else { NextCall::Socket })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<NextCall> {
        let (lane, plan) = (self.connection, self.plan);
        let place = alignment::receive_slot(self.total, buffer);
        let len = call_buffer(place, plan.receive_rate_max).len();
        match socket::receive(lane.stream.as_fd(), &mut place[..len], true) {
            Ok(0) => {
                self.phase = TransferPhase::AwaitingStop(monotonic_ns() + STOP_WAIT_NS);
                return self.await_stop();
            }
            Ok(taken) => self.count_bytes(taken),
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        let now_ns = monotonic_ns();
        if now_ns >= plan.deadline_ns || plan.control.is_halted() {
            return Ok(self.end(false));
        }
        self.place_thread(now_ns);
        let due_ns = self.due_ns(plan.receive_rate_max).min(plan.deadline_ns);
        Ok(if due_ns > now_ns { NextCall::At(due_ns) } else { NextCall::Socket })
    }

    /// What the end of a stream means: before its time, the sender was stopped, or is gone. Who stopped it says so
    /// over the control connection, which may be later.
    fn await_stop(&mut self) -> io::Result<NextCall> {
        let TransferPhase::AwaitingStop(until_ns) = self.phase else { return Ok(NextCall::Done) };
        let now_ns = monotonic_ns();
        let counted = self.plan.end_ns.saturating_sub(START_SKEW_NS);
        if now_ns >= counted || self.plan.control.is_halted() {
            return Ok(self.end(true));
        }
        if now_ns < until_ns {
            return Ok(NextCall::At(now_ns + STOP_POLL_NS));
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "its sender closed it before the time was over, as when it is killed",
        ))
    }

    /// What is left to send of the block under way.
    fn rest<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        let gone = self.total.checked_rem(block.len() as u64).unwrap_or(0);
        usize::try_from(gone).ok().and_then(|gone| block.get(gone..)).unwrap_or(block)
    }

    fn is_late(&self) -> bool {
        monotonic_ns() >= self.plan.deadline_ns || self.plan.control.is_halted()
    }

    #[inline]
    fn count_bytes(&mut self, bytes: usize) {
        self.total += bytes as u64;
        self.connection.bytes.set(self.total);
    }

    /// When the next byte is due at a rate, in bytes a second.
    fn due_ns(&self, rate: Option<u64>) -> u64 {
        let Some(rate) = rate else { return 0 };
        let due_ns = u128::from(self.total) * 1_000_000_000 / u128::from(rate.max(1));
        self.plan.began_ns.saturating_add(u64::try_from(due_ns).unwrap_or(u64::MAX))
    }

    /// Places this thread, once, when it is time.
    #[inline]
    fn place_thread(&self, now_ns: u64) {
        if now_ns >= self.plan.began_ns.saturating_add(PLACEMENT_DELAY_NS) {
            let socket = self.connection.stream.as_fd();
            self.connection
                .placement
                .get_or_init(|| ThreadPlacement::apply(socket, self.plan.placement));
        }
    }

    fn end(&mut self, is_drained: bool) -> NextCall {
        self.conclude(TransferOutcome { is_drained, error: None })
    }

    fn conclude(&mut self, outcome: TransferOutcome) -> NextCall {
        let stream = &self.connection.stream;
        if !outcome.is_drained {
            // What is under way is of no use to anybody; an end would promise that it was all.
            socket::reset_on_close(stream.as_fd()).ok();
        }
        stream.shutdown(Shutdown::Both).ok();
        self.connection.conclude(outcome);
        self.phase = TransferPhase::Done;
        NextCall::Done
    }
}

impl PooledConnection for BulkTransfer<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.connection.stream.as_fd()
    }

    fn is_reading(&self) -> bool {
        !(self.connection.sends() && self.phase == TransferPhase::Transferring)
    }

    #[inline]
    fn call(&mut self, buffer: &mut [u8]) -> NextCall {
        let next = match self.phase {
            TransferPhase::Transferring if self.connection.sends() => self.send(buffer),
            TransferPhase::Transferring => self.receive(buffer),
            TransferPhase::Closing => self.close(),
            TransferPhase::AwaitingStop(_) => self.await_stop(),
            TransferPhase::Done => return NextCall::Done,
        };
        next.unwrap_or_else(|error| {
            self.fail(&error);
            NextCall::Done
        })
    }

    fn fail(&mut self, error: &io::Error) {
        if self.phase != TransferPhase::Done {
            self.conclude(TransferOutcome { is_drained: false, error: Some(error.to_string()) });
        }
    }
}

/// As much of a buffer as one call is for at a rate: a fiftieth of a second's at most, so that a slow rate is no row of
/// bursts.
fn call_buffer(buffer: &[u8], rate: Option<u64>) -> &[u8] {
    let due = rate.map_or(u64::MAX, |rate| (rate / 50).max(1));
    let due = usize::try_from(due).unwrap_or(usize::MAX);
    buffer.get(..due).unwrap_or(buffer)
}
