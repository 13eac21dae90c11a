//! Where the lost datagrams of a stream were lost, from what its two sides saw.
//!
//! Exact where a kernel says it of this socket: refused by the queue of the sender's device, and dropped for want of
//! room in the receiver's buffer. What that queue took and dropped later is counted with everybody's packets: as many of
//! the rest were lost there as its count grew. What neither kernel knows of was lost between them; what the counters of both
//! hosts say about everybody's packets is beside it, and bounds how much of that was on the hosts after all.

use serde::{Deserialize, Serialize};

use super::kernel_drops::KernelDrops;
use super::receiver::ReceiverReport;
use super::sender::SenderReport;

/// The lost datagrams of one stream by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossByLocation {
    /// Numbered datagrams that never arrived, in all.
    pub lost: u64,
    /// Refused by the queue of the sender's own device, or dropped by it later.
    pub sender_queue: u64,
    /// Without room in the receiver's socket.
    pub receiver_buffer: u64,
    /// Whether the receiver's kernel joined datagrams and each drop there was of one or more: some of what is
    /// counted for the path may then have been lost there.
    pub receiver_buffer_at_least: bool,
    /// Neither: between the two sockets.
    pub path: u64,
    /// What the sender's host dropped of all its packets meanwhile.
    pub sender_host: KernelDrops,
    /// What the receiver's host dropped of all its packets meanwhile.
    pub receiver_host: KernelDrops,
}

impl LossByLocation {
    /// Divides what was lost.
    pub fn new(sender: &SenderReport, receiver: &ReceiverReport) -> Self {
        let lost = sender.count.saturating_sub(receiver.tally.unique);
        let refused = sender.refused.min(lost);
        // A copy that found no room lost nothing, so there may be more such drops than losses.
        let receiver_buffer = receiver.overflow.min(lost - refused);
        let dropped_later = sender.queue_dropped.unwrap_or(0).saturating_sub(sender.refused);
        let sender_queue = refused + dropped_later.min(lost - refused - receiver_buffer);
        Self {
            lost,
            sender_queue,
            receiver_buffer,
            receiver_buffer_at_least: receiver.joined && receiver.overflow > 0,
            path: lost - sender_queue - receiver_buffer,
            sender_host: sender.drops,
            receiver_host: receiver.drops,
        }
    }
}
