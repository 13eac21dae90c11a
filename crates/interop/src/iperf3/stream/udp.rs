//! The loops of a stream of numbered datagrams, and what is said before the first.
//!
//! A datagram begins with the sender's clock in seconds and microseconds, from whatever origin, and its number from
//! 1, all with the highest byte first. Left out: what the numbers tell
//! (`plumb_net::measure::datagram::sequence_tracker`).

use std::io;
use std::os::fd::AsFd;

use plumb_sys::errno::{is_queue_full, is_transient};
use plumb_sys::{socket, timer};

use super::{ByteBudget, Iperf3Socket, StopFlag, StreamMeter, payload};
use crate::iperf3::parameters::{DATAGRAM_MAX, Iperf3Parameters};
use plumb_clock::{monotonic_ns, now};
use plumb_net::measure::datagram::InterarrivalJitter;
use plumb_net::measure::datagram::sequence_tracker::SequenceTracker;
use plumb_net::measure::pacer::{Pacer, wait_until};

/// What a client says first on each of its sockets.
pub const UDP_CONNECT_MESSAGE: [u8; 4] = *b"9876";
/// What the server answers.
pub const UDP_CONNECT_REPLY: [u8; 4] = *b"6789";
/// What servers before 3.6 or so answer, in either order of bytes: 987654321.
const UDP_CONNECT_REPLIES_LEGACY: [[u8; 4]; 2] =
    [987_654_321_u32.to_le_bytes(), 987_654_321_u32.to_be_bytes()];

/// Whether a datagram answers a hello: one that carries data does as well.
pub fn is_connect_reply(datagram: &[u8]) -> bool {
    datagram == UDP_CONNECT_REPLY
        || UDP_CONNECT_REPLIES_LEGACY.iter().any(|old| datagram == old)
        || datagram.len() >= crate::iperf3::parameters::DATAGRAM_MIN as usize
}

/// What stands before the filler of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iperf3Header {
    /// What the sender's clock showed: since it started, since 1970, or since anything else.
    pub sent_us: u64,
    /// The datagram's number; of a narrow one the lower 32 bits.
    pub number: u64,
}

impl Iperf3Header {
    /// Writes it, with a number of 64 bits where `wide`.
    #[inline]
    pub fn write(self, bytes: &mut [u8], wide: bool) {
        let us = self.sent_us;
        // Seconds, and less than a million.
        let part = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
        bytes[..4].copy_from_slice(&part(us / 1_000_000));
        bytes[4..8].copy_from_slice(&part(us % 1_000_000));
        let number = self.number.to_be_bytes();
        if wide {
            bytes[8..16].copy_from_slice(&number);
        } else {
            bytes[8..12].copy_from_slice(&number[4..]);
        }
    }

    /// Reads it; `None` of a datagram that is too short to have one.
    #[inline]
    pub fn read(bytes: &[u8], wide: bool) -> Option<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4)?;
            Some(u64::from(u32::from_be_bytes(*bytes.first_chunk()?)))
        };
        let us = word(0)? * 1_000_000 + word(4)?;
        let number = if wide { word(8)? << 32 | word(12)? } else { word(8)? };
        Some(Self { sent_us: us, number })
    }
}

/// Sends datagrams until it is told to stop, or the goal is reached.
///
/// # Errors
/// The kernel's; a refusal that came back is none, as the other side may only be slower.
pub fn send(
    socket: &Iperf3Socket,
    parameters: &Iperf3Parameters,
    meter: &StreamMeter,
    switch: &StopFlag,
    goal: &ByteBudget,
) -> io::Result<()> {
    // A wait that is prolonged by the usual 50 µs makes bursts; where it cannot be changed it stays so.
    timer::set_timer_slack_ns(1_000).ok();
    let mut datagram = payload(parameters.length as usize, parameters.repeating);
    let wide = parameters.wide_counters;
    let rate = parameters.bitrate;
    let pace = rate.map(|rate| Pacer::of_bytes(monotonic_ns(), datagram.len(), rate));
    let burst = parameters.burst.max(1);
    let (mut number, mut bytes) = (0_u64, 0_u64);
    while !switch.is_stopping() {
        if let Some(pace) = &pace
            && number.is_multiple_of(burst.into())
            && wait_until(pace.due_ns(number), 0, |_| switch.is_stopping()).is_none()
        {
            return Ok(());
        }
        if goal.claim(datagram.len()) == 0 {
            return Ok(());
        }
        number += 1;
        // The same number until it is sent: what never left is no loss of the path.
        loop {
            let sent_us = now().since_origin().as_ns() / 1_000;
            Iperf3Header { sent_us, number }.write(&mut datagram, wide);
            match socket::send(socket.as_fd(), &datagram) {
                Ok(sent) => {
                    bytes += sent as u64;
                    meter.set_bytes(bytes);
                    meter.set_packets(number);
                    goal.sent(sent);
                    break;
                }
                Err(error) if may_pass(&error) => {
                    if switch.is_stopping() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether trying again is all there is to do: a full device, or a refusal of an earlier datagram.
fn may_pass(error: &io::Error) -> bool {
    is_transient(error) || is_queue_full(error) || error.kind() == io::ErrorKind::ConnectionRefused
}

/// Receives datagrams until everybody is told to stop. `answers` is set on a server: a hello that
/// comes again, because its answer was lost, is answered again.
///
/// # Errors
/// The kernel's.
pub fn receive(
    socket: &Iperf3Socket,
    parameters: &Iperf3Parameters,
    meter: &StreamMeter,
    switch: &StopFlag,
    goal: &ByteBudget,
    answers: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM_MAX as usize + 1];
    let wide = parameters.wide_counters;
    let mut account = SequenceTracker::new(u64::MAX);
    let (mut jitter, mut bytes) = (InterarrivalJitter::default(), 0);
    while !switch.is_stopped() {
        let len = match socket::receive(socket.as_fd(), &mut buffer, true) {
            Ok(len) => len,
            Err(error) if may_pass(&error) => continue,
            Err(error) => return Err(error),
        };
        let received = now();
        let datagram = &buffer[..len];
        if datagram == UDP_CONNECT_MESSAGE || is_handshake(datagram) {
            if answers {
                socket::send(socket.as_fd(), &UDP_CONNECT_REPLY).ok();
            }
            continue;
        }
        let Some(header) = Iperf3Header::read(datagram, wide) else { continue };
        // The first is number 1. How often the lower 32 bits have wrapped the account knows, at either width.
        account.record(low(header.number).wrapping_sub(1));
        let received_ns = received.since_origin().as_ns().cast_signed();
        // 32 bits of seconds are less than 63 bits of nanoseconds.
        jitter.record(received_ns.wrapping_sub((header.sent_us * 1_000).cast_signed()));
        bytes += len as u64;
        meter.set_bytes(bytes);
        meter.set_account(&account, jitter.estimate_ns());
        meter.set_last(received);
        goal.received(len);
    }
    Ok(())
}

/// Whether it is one side's word before the data: an answer that came late, too.
fn is_handshake(datagram: &[u8]) -> bool {
    datagram.len() == UDP_CONNECT_MESSAGE.len()
}

fn low(number: u64) -> u32 {
    let [.., a, b, c, d] = number.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_is_written_in_both_widths() {
        let sent_us = 1_234_567_890;
        for (wide, number) in [(false, 7), (true, 1 << 40)] {
            let mut bytes = [0xAA; 32];
            Iperf3Header { sent_us, number }.write(&mut bytes, wide);
            assert_eq!(Iperf3Header::read(&bytes, wide), Some(Iperf3Header { sent_us, number }));
            assert_eq!(bytes[..8], [0, 0, 0x04, 0xD2, 0, 0x08, 0xAA, 0x52]);
        }
        assert_eq!(Iperf3Header::read(&[0; 11], false), None);
        assert_eq!(Iperf3Header::read(&[0; 15], true), None);
    }

    #[test]
    fn an_answer_is_known_in_every_versions_spelling() {
        assert!(is_connect_reply(b"6789"));
        assert!(is_connect_reply(&[0xB1, 0x68, 0xDE, 0x3A]));
        assert!(is_connect_reply(&[0; 1448]), "data of a reverse test");
        assert!(!is_connect_reply(b"9876"));
    }
}
