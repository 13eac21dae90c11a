//! Datagrams at a paced rate: who sent what, what came, what did not, and where it was lost.
//!
//! All times are nanoseconds of the CLOCK_MONOTONIC_RAW of the host that read them: no clock that is set enters
//! a difference, and [`super::clock_offset`] relates two hosts' clocks.

pub mod drops;
pub mod endpoint;
pub mod receiver;
pub mod sender;
pub mod sequence_tracker;
pub mod transit;

use plumb_result::net::NetLossLocations;

use receiver::ReceiverReport;
use sender::SenderReport;

/// Divides what was lost of one stream by place.
pub fn locate(sender: &SenderReport, receiver: &ReceiverReport) -> NetLossLocations {
    let lost = sender.count.saturating_sub(receiver.tally.unique);
    let refused = sender.refused.min(lost);
    // A copy that found no room lost nothing, so there may be more such drops than losses.
    let receiver_buffer = receiver.overflow.min(lost - refused);
    let dropped_later = sender.queue_dropped.unwrap_or(0).saturating_sub(sender.refused);
    let sender_queue = refused + dropped_later.min(lost - refused - receiver_buffer);
    let mut sender_host = sender.drops.grown();
    let dropped = sender.queue_dropped.filter(|&count| count > 0);
    sender_host.extend(dropped.map(|count| ("queue".to_owned(), count)));
    NetLossLocations {
        sender_queue,
        path: lost - sender_queue - receiver_buffer,
        receiver_buffer,
        receiver_buffer_at_least: receiver.joined && receiver.overflow > 0,
        sender_host,
        receiver_host: receiver.drops.grown(),
    }
}
