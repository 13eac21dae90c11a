//! What is timed: one round trip, one transfer, one acknowledged message.
//!
//! Left out: the clock reads around them.

use std::num::NonZeroU64;

use super::{Bench, transfer_sample};
use crate::harness::payload;
use crate::local::{End, Fault, Mark, Received};

/// A mark is repeated this often.
const MARKS_MAX: u32 = 100;

/// What a transfer delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The counter when the last of it had arrived; of datagrams from another host, nanoseconds since the first had.
    pub(super) at: u64,
    /// How many messages it was.
    pub(super) messages: NonZeroU64,
}

impl<E: End> Bench<'_, E> {
    /// One round trip; a stale reply on a lossy channel is passed over.
    #[inline]
    pub(super) fn round_trip(&mut self, split: bool) -> Result<(), Fault> {
        self.number += 1;
        payload::stamp(&mut self.tx, self.stamp_len, self.number);
        if split {
            let (first, second) = self.tx.split_at(self.size / 2);
            self.end.send(first)?;
            self.end.send(second)?;
        } else {
            self.end.send(&self.tx[..self.size])?;
        }
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            if self.rx[..self.stamp_len] == self.tx[..self.stamp_len] {
                break;
            }
            if !E::LOSSY {
                self.corrupted += 1;
                break;
            }
        }
        self.done += 1;
        Ok(())
    }

    /// One transfer of `count` messages, which the peer has been told, and its acknowledgement: what arrived, if
    /// anything did.
    #[inline]
    pub(super) fn transfer(&mut self, count: u64) -> Result<Option<Arrived>, Fault> {
        if E::LOSSY {
            return self.transfer_lossy(count);
        }
        self.number += 1;
        payload::stamp(&mut self.tx, self.stamp_len, self.number);
        for _ in 0..count {
            self.end.send(&self.tx[..self.size])?;
        }
        self.end.receive(&mut self.rx, self.ack)?;
        let at = self.watch.end();
        self.done += 1;
        Ok(NonZeroU64::new(count).map(|messages| Arrived { at, messages }))
    }

    /// The same where anything may vanish, the acknowledgement too: a mark, repeated until it is
    /// answered, asks how much came and when the last of it did, by the counter both CPUs share.
    pub(super) fn transfer_lossy(&mut self, count: u64) -> Result<Option<Arrived>, Fault> {
        for _ in 0..count {
            self.end.send(&self.tx[..self.size])?;
        }
        self.done += 1;
        let number = self.done & 0xFFFF_FFFF;
        for _ in 0..MARKS_MAX {
            self.end.send_mark(Mark { value: number, at: 0 })?;
            while self.end.wait_readable(self.mark_wait_ms)? {
                let Received::Mark(answer) = self.end.receive_any(&mut self.rx, self.size)? else {
                    continue;
                };
                if answer.value >> 32 == number {
                    let delivered = answer.value & 0xFFFF_FFFF;
                    self.lost += count.saturating_sub(delivered);
                    return Ok(NonZeroU64::new(delivered)
                        .map(|messages| Arrived { at: answer.at, messages }));
                }
            }
        }
        self.lost += count;
        Err(Fault::TimedOut)
    }

    /// Whether transfers are timed by the peer alone, whose clock is another.
    pub(super) fn is_timed_there(&self) -> bool {
        E::LOSSY && self.peer.is_apart()
    }

    /// The ticks of a transfer and its messages; of one that the peer has timed, from its first message's arrival, the
    /// messages after that.
    pub(super) fn sample(&self, began: u64, arrived: Option<Arrived>) -> (u64, u64) {
        match arrived {
            Some(arrived) if self.is_timed_there() => {
                (self.watch.ticks(arrived.at as f64), arrived.messages.get() - 1)
            }
            arrived => transfer_sample(began, arrived),
        }
    }

    /// One message and its one-byte acknowledgement on a lossy channel.
    #[inline]
    pub(super) fn acked_message(&mut self) -> Result<(), Fault> {
        self.number += 1;
        payload::stamp(&mut self.tx, self.stamp_len, self.number);
        self.end.send(&self.tx[..self.size])?;
        loop {
            self.end.receive(&mut self.rx, 1)?;
            if self.rx[0] == self.tx[0] {
                self.done += 1;
                return Ok(());
            }
        }
    }
}
