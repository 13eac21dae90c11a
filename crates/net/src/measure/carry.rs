//! One connection of bulk TCP at work: it sends or takes as much as goes, a call at a time.
//!
//! After the end of the time that counts the sender closes its direction, and the receiver reads on to the end of the
//! stream. Left out: whose turn it is (`crate::crew`).

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd};

use plumb_sys::inet;
use plumb_sys::pages::Pages;
use plumb_sys::socket::{self, IntOption};

use super::seat::{Seat, Seating};
use super::stream::{Lane, Outcome, Plan, is_pause};
use crate::alignment;
use crate::clock::steady_ns;
use crate::crew::{self, Member, Next};

/// How much before its planned end a sender may end, whose beginning may have been earlier.
const EARLY_NS: u64 = 2_000_000_000;
/// How long to wait for the word that a test was stopped, and how often to look for it.
const WORD_NS: u64 = 1_000_000_000;
const WORD_LOOK_NS: u64 = 20_000_000;
/// How long after its beginning a connection is seated: its flow's packets come by then.
const SEAT_NS: u64 = 50_000_000;

/// Carries these connections on this thread until all have ended: senders, or receivers.
pub(super) fn carry(lanes: &[&Lane], plan: &Plan) {
    let served = lanes.len();
    // A thread of several is in no place that were right for all of them.
    let seating = if served > 1 { Seating::Free } else { plan.seating };
    let plan = &Plan { seating, ..plan.clone() };
    for lane in lanes {
        lane.worker.begin(served);
    }
    let mut carriers: Vec<Carrier<'_>> =
        lanes.iter().map(|lane| Carrier { lane, plan, total: 0, phase: Phase::Moving }).collect();
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
    crew::serve(&mut carriers, &mut buffer);
    // Until all have ended, the thread works for all.
    for lane in lanes {
        lane.worker.end();
    }
}

/// Bytes that nothing on the way can make fewer: xorshift64*, always the same.
fn incompressible(len: usize) -> Pages {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Pages::filled(1, len);
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
enum Phase {
    /// Bytes are sent, or taken.
    Moving,
    /// All is sent, and the receiver closes when it has read everything.
    Closing,
    /// The stream ended early: until then, word may come that the test was stopped.
    Listening(u64),
    Over,
}

/// One connection and how far it has come.
struct Carrier<'a> {
    lane: &'a Lane,
    plan: &'a Plan,
    total: u64,
    phase: Phase,
}

impl Carrier<'_> {
    fn send(&mut self, block: &[u8]) -> io::Result<Next> {
        let (lane, plan) = (self.lane, self.plan);
        let now_ns = steady_ns();
        if now_ns >= plan.end_ns || plan.control.is_halted() {
            lane.stream.shutdown(Shutdown::Write)?;
            self.phase = Phase::Closing;
            return Ok(Next::Socket);
        }
        self.sit(now_ns);
        let due_ns = self.due_ns(lane.send_max).min(plan.end_ns);
        if due_ns > now_ns {
            return Ok(Next::At(due_ns));
        }
        match socket::send(lane.stream.as_fd(), one_call(self.rest(block), lane.send_max)) {
            Ok(sent) => self.moved(sent),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Socket)
    }

    /// Waits for the end that says that everything has come.
    fn close(&mut self) -> io::Result<Next> {
        match socket::receive(self.lane.stream.as_fd(), &mut [0; 64], true) {
            Ok(0) => return Ok(self.end(true)),
            Ok(_) => {}
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(if self.is_late() { self.end(false) } else { Next::Socket })
    }

    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        let (lane, plan) = (self.lane, self.plan);
        let place = alignment::place(self.total, buffer);
        let len = one_call(place, plan.take_max).len();
        match socket::receive(lane.stream.as_fd(), &mut place[..len], true) {
            Ok(0) => {
                self.phase = Phase::Listening(steady_ns() + WORD_NS);
                return self.listen();
            }
            Ok(taken) => self.moved(taken),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        let now_ns = steady_ns();
        if now_ns >= plan.deadline_ns || plan.control.is_halted() {
            return Ok(self.end(false));
        }
        self.sit(now_ns);
        let due_ns = self.due_ns(plan.take_max).min(plan.deadline_ns);
        Ok(if due_ns > now_ns { Next::At(due_ns) } else { Next::Socket })
    }

    /// What the end of a stream means: before its time, the sender was stopped, or is gone. Who stopped it says so
    /// over the control connection, which may be later.
    fn listen(&mut self) -> io::Result<Next> {
        let Phase::Listening(until_ns) = self.phase else { return Ok(Next::Over) };
        let now_ns = steady_ns();
        let counted = self.plan.end_ns.saturating_sub(EARLY_NS);
        if now_ns >= counted || self.plan.control.is_halted() {
            return Ok(self.end(true));
        }
        if now_ns < until_ns {
            return Ok(Next::At(now_ns + WORD_LOOK_NS));
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
        steady_ns() >= self.plan.deadline_ns || self.plan.control.is_halted()
    }

    #[inline]
    fn moved(&mut self, bytes: usize) {
        self.total += bytes as u64;
        self.lane.bytes.set(self.total);
    }

    /// When the next byte is due at a rate, in bytes a second.
    fn due_ns(&self, rate: Option<u64>) -> u64 {
        let Some(rate) = rate else { return 0 };
        let due_ns = u128::from(self.total) * 1_000_000_000 / u128::from(rate.max(1));
        self.plan.began_ns.saturating_add(u64::try_from(due_ns).unwrap_or(u64::MAX))
    }

    /// Seats this thread, once, when it is time.
    #[inline]
    fn sit(&self, now_ns: u64) {
        if now_ns >= self.plan.began_ns.saturating_add(SEAT_NS) {
            let socket = self.lane.stream.as_fd();
            self.lane.seat.get_or_init(|| Seat::take(socket, self.plan.seating));
        }
    }

    fn end(&mut self, is_drained: bool) -> Next {
        self.conclude(Outcome { is_drained, error: None })
    }

    fn conclude(&mut self, outcome: Outcome) -> Next {
        let stream = &self.lane.stream;
        if !outcome.is_drained {
            // What is under way is of no use to anybody; an end would promise that it was all.
            inet::reset_on_close(stream.as_fd()).ok();
        }
        stream.shutdown(Shutdown::Both).ok();
        self.lane.conclude(outcome);
        self.phase = Phase::Over;
        Next::Over
    }
}

impl Member for Carrier<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.lane.stream.as_fd()
    }

    fn reads(&self) -> bool {
        !(self.lane.sends() && self.phase == Phase::Moving)
    }

    #[inline]
    fn turn(&mut self, buffer: &mut [u8]) -> Next {
        let next = match self.phase {
            Phase::Moving if self.lane.sends() => self.send(buffer),
            Phase::Moving => self.take(buffer),
            Phase::Closing => self.close(),
            Phase::Listening(_) => self.listen(),
            Phase::Over => return Next::Over,
        };
        next.unwrap_or_else(|error| {
            self.give_up(&error);
            Next::Over
        })
    }

    fn give_up(&mut self, error: &io::Error) {
        if self.phase != Phase::Over {
            self.conclude(Outcome { is_drained: false, error: Some(error.to_string()) });
        }
    }
}

/// As much of a buffer as one call is for at a rate: a fiftieth of a second's at most, so that a slow rate is no row of
/// bursts.
fn one_call(buffer: &[u8], rate: Option<u64>) -> &[u8] {
    let due = rate.map_or(u64::MAX, |rate| (rate / 50).max(1));
    let due = usize::try_from(due).unwrap_or(usize::MAX);
    buffer.get(..due).unwrap_or(buffer)
}
