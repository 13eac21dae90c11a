//! A byte stream over datagrams, as PUP's RTP/BSP: small packets, acknowledged when the sender asks for it.
//!
//! After Lantz, Nowicki & Theimer (1985, §6.1) and Boggs, Shoch, Taft & Metcalfe (1980). A packet carries up to 532 bytes, as PUP's do; the
//! sender asks for an acknowledgement with the last of what it has, or of what its window allows. What is not acknowledged is sent again
//! from there on, and what comes out of order is not kept.
//!
//! ```text
//!  0      1      4          8
//! +------+------+----------+-----------------+
//! | kind | zero | sequence | up to 532 bytes |
//! +------+------+----------+-----------------+
//! ```
//! The sequence number is that of the first byte, or in an acknowledgement that of the next one expected.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::DisplayTransport;

use super::connection::{datagram_pair, display_thread};

const HEADER: usize = 8;
const PAYLOAD: usize = 532;
/// Packets that may be unacknowledged.
const WINDOW: usize = 8;
/// Bytes that have arrived and are not read, at most.
const UNREAD_MAX: usize = 1 << 20;
/// After this what is not acknowledged is sent again, and after so many times the other end is given up.
const AGAIN: Duration = Duration::from_millis(50);
const ATTEMPTS: u32 = 600;

const DATA: u8 = 0;
/// Data whose sender asks for an acknowledgement.
const ASKING: u8 = 1;
const ACK: u8 = 2;
const END: u8 = 3;

/// One end of a stream.
#[derive(Debug)]
pub struct ByteStream {
    socket: UdpSocket,
    next: u32,
    unacknowledged: VecDeque<(u32, Vec<u8>)>,
    expected: u32,
    unread: Vec<u8>,
    is_ended: bool,
    silences: u32,
}

impl ByteStream {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_read_timeout(Some(AGAIN))?;
        let (unacknowledged, unread) = (VecDeque::new(), Vec::new());
        let (next, expected, is_ended, silences) = (0, 0, false, 0);
        Ok(Self { socket, next, unacknowledged, expected, unread, is_ended, silences })
    }

    /// To a display of its own over loopback, in a thread on that CPU, if one is named, that ends with the connection.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(limits: DisplayLimits, cpu: Option<u32>) -> io::Result<Self> {
        let (near, far) = datagram_pair()?;
        let far = Self::new(far)?;
        display_thread(cpu, move || serve(far, limits))?;
        Self::new(near)
    }

    fn transmit(&self, kind: u8, sequence: u32, payload: &[u8]) -> io::Result<()> {
        let mut packet = Vec::with_capacity(HEADER + payload.len());
        packet.extend_from_slice(&[kind, 0, 0, 0]);
        packet.extend_from_slice(&sequence.to_be_bytes());
        packet.extend_from_slice(payload);
        self.socket.send(&packet).map(drop)
    }

    /// Sends again what is not acknowledged, and asks for it.
    fn repeat(&self) -> io::Result<()> {
        for (index, (sequence, payload)) in (1..).zip(&self.unacknowledged) {
            let kind = if index == self.unacknowledged.len() { ASKING } else { DATA };
            self.transmit(kind, *sequence, payload)?;
        }
        Ok(())
    }

    /// Waits for a packet, and does what it asks for.
    fn step(&mut self) -> io::Result<()> {
        let mut packet = [0; HEADER + PAYLOAD];
        let len = match self.socket.recv(&mut packet) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.silences += 1;
                if self.silences == ATTEMPTS {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                return self.repeat();
            }
            Err(error) => return Err(error),
        };
        self.silences = 0;
        let Some((header, payload)) = packet[..len].split_at_checked(HEADER) else { return Ok(()) };
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        match header[0] {
            DATA | ASKING => {
                if sequence == self.expected && self.unread.len() < UNREAD_MAX {
                    self.unread.extend_from_slice(payload);
                    self.expected = end_of(sequence, payload);
                }
                if header[0] == ASKING {
                    self.transmit(ACK, self.expected, &[])?;
                }
            }
            ACK => {
                // Ranges that end at or before it: differences wrap.
                let is_there = |(start, payload): &(u32, Vec<u8>)| {
                    sequence.wrapping_sub(end_of(*start, payload)) < 1 << 31
                };
                while self.unacknowledged.pop_front_if(|first| is_there(first)).is_some() {}
            }
            END => self.is_ended = true,
            _ => {}
        }
        Ok(())
    }
}

fn end_of(start: u32, payload: &[u8]) -> u32 {
    start.wrapping_add(u32::try_from(payload.len()).unwrap_or(0))
}

impl DisplayTransport for ByteStream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut pieces = bytes.chunks(PAYLOAD).peekable();
        while let Some(piece) = pieces.next() {
            while self.unacknowledged.len() >= WINDOW {
                self.step()?;
            }
            let is_last = pieces.peek().is_none() || self.unacknowledged.len() + 1 == WINDOW;
            self.transmit(if is_last { ASKING } else { DATA }, self.next, piece)?;
            self.unacknowledged.push_back((self.next, piece.to_vec()));
            self.next = end_of(self.next, piece);
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        while self.unread.is_empty() {
            if self.is_ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.step()?;
        }
        bytes.append(&mut self.unread);
        Ok(())
    }
}

impl Drop for ByteStream {
    fn drop(&mut self) {
        self.transmit(END, self.next, &[]).ok();
    }
}

/// Answers a client until it goes.
fn serve(mut stream: ByteStream, limits: DisplayLimits) -> io::Result<()> {
    let mut server = DisplayServer::new(limits);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        stream.receive(&mut bytes)?;
        server.handle(&bytes);
        stream.send(server.output())?;
        server.clear_output();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use plumb_base::seed::Seed;
    use rand::Rng as _;

    use super::*;

    /// Passes packets on both ways, but some it loses or holds back, until one end says that it is over.
    fn lossy(near: &UdpSocket, far: &UdpSocket) {
        let mut random = Seed(1).stream("lossy");
        let (mut packet, mut held) = ([0; HEADER + PAYLOAD], [None, None]);
        for socket in [near, far] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        loop {
            for ((from, to), held) in [(near, far), (far, near)].into_iter().zip(&mut held) {
                let Ok(len) = from.recv(&mut packet) else { continue };
                match random.next_u64() % 8 {
                    0 => {}
                    1 if held.is_none() => *held = Some(packet[..len].to_vec()),
                    _ => {
                        to.send(&packet[..len]).ok();
                        if let Some(late) = held.take() {
                            to.send(&late).ok();
                        }
                    }
                }
                if packet[0] == END {
                    return;
                }
            }
        }
    }

    #[test]
    fn every_byte_arrives_once_and_in_order_over_a_path_that_loses_and_reorders() {
        let ((a, b), (c, d)) = (datagram_pair().unwrap(), datagram_pair().unwrap());
        let path = thread::spawn(move || lossy(&b, &c));
        let text: Vec<u8> = (0..8_000_u32).flat_map(u32::to_be_bytes).collect();
        let copy = text.clone();
        let sender = thread::spawn(move || {
            let mut stream = ByteStream::new(a).unwrap();
            stream.next = u32::MAX - 1_000;
            stream.send(&copy).unwrap();
            while !stream.unacknowledged.is_empty() {
                stream.step().unwrap();
            }
        });
        let mut stream = ByteStream::new(d).unwrap();
        stream.expected = u32::MAX - 1_000;
        let mut received = Vec::new();
        while received.len() < text.len() {
            stream.receive(&mut received).unwrap();
        }
        assert!(received == text, "bytes differ");
        // It answers until the sender knows.
        while !sender.is_finished() {
            stream.step().unwrap();
        }
        sender.join().unwrap();
        drop(stream);
        path.join().unwrap();
    }
}
