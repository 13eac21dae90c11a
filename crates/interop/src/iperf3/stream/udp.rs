//! The loops of a stream of numbered datagrams, and what is said before the first.
//!
//! A datagram begins with the sender's clock in seconds and microseconds, from whatever origin, and its number from
//! 1, all with the highest byte first. Left out: what the numbers tell
//! (`plumb_net::measure::udp::account`).

use std::io;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::{socket, timer};

use super::{
    BitratePacer, ByteBudget, Iperf3StreamSocket, StopFlag, StreamMeter, is_timeout, payload,
};
use crate::iperf3::now;
use crate::iperf3::parameters::{DATAGRAM_MAX, Iperf3Parameters};
use plumb_net::measure::datagram::sequence_tracker::SequenceTracker;

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
pub struct Iperf3DatagramHeader {
    /// What the sender's clock showed: since it started, since 1970, or since anything else.
    pub sent_us: u64,
    /// The datagram's number; of a narrow one the lower 32 bits.
    pub number: u64,
}

impl Iperf3DatagramHeader {
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

/// The mean deviation of transit times (RFC 3550, appendix A.8), of two clocks that need not agree.
#[derive(Clone, Copy, Debug, Default)]
struct TransitJitter {
    transit_ns: Option<i64>,
    ns: f64,
}

impl TransitJitter {
    #[inline]
    fn add(&mut self, sent_us: u64, received_ns: u64) {
        // 32 bits of seconds are less than 63 bits of nanoseconds.
        let transit = received_ns.cast_signed().wrapping_sub((sent_us * 1_000).cast_signed());
        if let Some(before) = self.transit_ns.replace(transit) {
            let difference = transit.wrapping_sub(before).unsigned_abs() as f64;
            self.ns += (difference - self.ns) / 16.0;
        }
    }

    fn span(self) -> Span {
        Span::from_secs_f64(self.ns * 1e-9)
    }
}

/// Sends datagrams until it is told to stop, or the goal is reached.
///
/// # Errors
/// The kernel's; a refusal that came back is none, as the other side may only be slower.
pub fn send(
    socket: &Iperf3StreamSocket,
    parameters: &Iperf3Parameters,
    meter: &StreamMeter,
    switch: &StopFlag,
    goal: &ByteBudget,
) -> io::Result<()> {
    // A wait that is prolonged by the usual 50 µs makes bursts; where it cannot be changed it stays so.
    timer::set_timer_slack_ns(1_000).ok();
    let mut datagram = payload(parameters.length as usize, parameters.repeating);
    let wide = parameters.wide_counters;
    let mut pace = BitratePacer::new(parameters.bitrate, now());
    let burst = parameters.burst.max(1);
    let mut number = 0_u64;
    while !switch.is_stopping() {
        if let Some(pace) = &pace
            && number.is_multiple_of(burst.into())
            && !pace.wait()
        {
            continue;
        }
        if goal.claim(datagram.len()) == 0 {
            return Ok(());
        }
        number += 1;
        // The same number until it is sent: what never left is no loss of the path.
        loop {
            let sent_us = now().since_origin().as_ns() / 1_000;
            Iperf3DatagramHeader { sent_us, number }.write(&mut datagram, wide);
            match socket::send(socket.as_fd(), &datagram) {
                Ok(sent) => {
                    meter.add_bytes(sent);
                    meter.set_packets(number);
                    goal.sent(sent);
                    break;
                }
                Err(error) if is_timeout(&error) || is_transient(&error) => {
                    if switch.is_stopping() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(pace) = &mut pace {
            pace.sent(datagram.len());
        }
    }
    Ok(())
}

/// Whether trying again is all there is to do: a full device, or a refusal of an earlier datagram.
fn is_transient(error: &io::Error) -> bool {
    // ENOBUFS has no kind of its own.
    const ENOBUFS: i32 = 105;
    error.kind() == io::ErrorKind::ConnectionRefused || error.raw_os_error() == Some(ENOBUFS)
}

/// Receives datagrams until everybody is told to stop. `answers` is set on a server: a hello that
/// comes again, because its answer was lost, is answered again.
///
/// # Errors
/// The kernel's.
pub fn receive(
    socket: &Iperf3StreamSocket,
    parameters: &Iperf3Parameters,
    meter: &StreamMeter,
    switch: &StopFlag,
    goal: &ByteBudget,
    answers: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; DATAGRAM_MAX as usize + 1];
    let wide = parameters.wide_counters;
    let mut account = SequenceTracker::new(u64::MAX);
    let mut jitter = TransitJitter::default();
    while !switch.is_stopped() {
        let len = match socket::receive(socket.as_fd(), &mut buffer, true) {
            Ok(len) => len,
            Err(error) if is_timeout(&error) || is_transient(&error) => continue,
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
        let Some(header) = Iperf3DatagramHeader::read(datagram, wide) else { continue };
        // The first is number 1. How often the lower 32 bits have wrapped the account knows, at either width.
        account.record(low(header.number).wrapping_sub(1));
        jitter.add(header.sent_us, received.since_origin().as_ns());
        meter.add_bytes(len);
        meter.set_account(&account, jitter.span());
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
            Iperf3DatagramHeader { sent_us, number }.write(&mut bytes, wide);
            assert_eq!(
                Iperf3DatagramHeader::read(&bytes, wide),
                Some(Iperf3DatagramHeader { sent_us, number })
            );
            assert_eq!(bytes[..8], [0, 0, 0x04, 0xD2, 0, 0x08, 0xAA, 0x52]);
        }
        assert_eq!(Iperf3DatagramHeader::read(&[0; 11], false), None);
        assert_eq!(Iperf3DatagramHeader::read(&[0; 15], true), None);
    }

    #[test]
    fn an_answer_is_known_in_every_versions_spelling() {
        assert!(is_connect_reply(b"6789"));
        assert!(is_connect_reply(&[0xB1, 0x68, 0xDE, 0x3A]));
        assert!(is_connect_reply(&[0; 1448]), "data of a reverse test");
        assert!(!is_connect_reply(b"9876"));
    }

    #[test]
    fn a_steady_stream_has_no_jitter_however_the_clocks_disagree() {
        // A sender that started just now, one that has been up for a year, one that tells the time since 1970.
        for origin_s in [1_000, 31_536_000, 1_790_000_000_u64] {
            let mut jitter = TransitJitter::default();
            let mut add = |ms: u64, late_us: u64| {
                jitter
                    .add(origin_s * 1_000_000 + ms * 1_000, (5 + ms) * 1_000_000 + late_us * 1_000);
                jitter.span()
            };
            let steady = (0..100).map(|ms| add(ms, 0)).last();
            assert_eq!(steady, Some(Span::ZERO));
            // A transit that alternates by 160 µs comes near it (RFC 3550: gain of 1/16).
            let found = (100..300).map(|ms| add(ms, 160 * (ms % 2))).last().unwrap();
            assert!(
                found > Span::from_us(155) && found <= Span::from_us(160),
                "{origin_s}: {found}"
            );
        }
    }
}
