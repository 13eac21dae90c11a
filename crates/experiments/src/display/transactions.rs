//! Message transactions between a display and a client, as between kernels of V: Send, Receive and Reply over datagrams.
//!
//! After Lantz, Nowicki & Theimer (1985, §6) and Cheriton's V kernel. A client sends a packet of up to 1 KiB and blocks until its reply,
//! which carries what the display has to say. A packet that is not answered is sent again; the display answers a duplicate from memory
//! and does not carry it out twice. The display replies before it has carried a packet out, or after.
//!
//! ```text
//!  0        4      5          8
//! +--------+------+----------+------------------+
//! | number | end  | reserved | up to 1024 bytes |
//! +--------+------+----------+------------------+
//! ```
//! `end` is 1 in the last packet of a client. What a reply has no room for, or what there was to say only after it, the client asks for by
//! an empty packet.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::DisplayTransport;

use super::connection::{datagram_pair, display_thread};

const HEADER: usize = 8;
/// Payload of a packet, as of V's.
const PAYLOAD: usize = 1_024;
/// After this a packet is sent again.
const AGAIN: Duration = Duration::from_millis(50);
/// After so many times, and after as long, the other end is given up.
const ATTEMPTS: u32 = 600;
const PATIENCE: Duration = Duration::from_secs(30);

/// When a display replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyTime {
    /// Before the packet is carried out.
    Early,
    /// After that.
    Late,
}

/// A client's side.
#[derive(Debug)]
pub struct MessageTransactions {
    socket: UdpSocket,
    number: u32,
    /// What the display has said and nobody has taken.
    said: Vec<u8>,
}

fn packet(number: u32, is_end: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER + payload.len());
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[u8::from(is_end), 0, 0, 0]);
    packet.extend_from_slice(payload);
    packet
}

/// Number, flag and payload; none of what is too short.
fn parts(packet: &[u8]) -> Option<(u32, bool, &[u8])> {
    let (header, payload) = packet.split_at_checked(HEADER)?;
    let number = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    Some((number, header[4] == 1, payload))
}

impl MessageTransactions {
    /// To a display of its own over loopback, in a thread on that CPU, if one is named, that ends with the connection.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(limits: DisplayLimits, reply: ReplyTime, cpu: Option<u32>) -> io::Result<Self> {
        let (near, far) = datagram_pair()?;
        near.set_read_timeout(Some(AGAIN))?;
        far.set_read_timeout(Some(PATIENCE))?;
        display_thread(cpu, move || serve(&far, limits, reply))?;
        Ok(Self { socket: near, number: 0, said: Vec::new() })
    }

    /// Sends a packet until it is answered.
    fn transact(&mut self, payload: &[u8]) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        let request = packet(self.number, false, payload);
        let mut left = ATTEMPTS;
        let mut buffer = [0; HEADER + PAYLOAD];
        self.socket.send(&request)?;
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(len) => {
                    // The answer to a duplicate that came late is none to this.
                    if let Some((number, _, said)) = parts(&buffer[..len])
                        && number == self.number
                    {
                        self.said.extend_from_slice(said);
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    left -= 1;
                    if left == 0 {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.socket.send(&request)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl DisplayTransport for MessageTransactions {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(PAYLOAD) {
            self.transact(chunk)?;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if self.said.is_empty() {
            self.transact(&[])?;
        }
        if self.said.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.append(&mut self.said);
        Ok(())
    }
}

impl Drop for MessageTransactions {
    fn drop(&mut self) {
        self.socket.send(&packet(self.number.wrapping_add(1), true, &[])).ok();
    }
}

/// Answers a client until it goes.
fn serve(socket: &UdpSocket, limits: DisplayLimits, when: ReplyTime) -> io::Result<()> {
    let mut server = DisplayServer::new(limits);
    let (mut buffer, mut last) = ([0; HEADER + PAYLOAD], None);
    // Steps still to be sent, and the last reply.
    let (mut pending, mut answered) = (Vec::new(), Vec::new());
    loop {
        let len = match socket.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            received => received?,
        };
        let Some((number, is_end, payload)) = parts(&buffer[..len]) else { continue };
        if is_end {
            return Ok(());
        }
        if last == Some(number) {
            socket.send(&answered)?;
            continue;
        }
        last = Some(number);
        let mut carry_out = |pending: &mut Vec<u8>| {
            server.handle(payload);
            pending.extend_from_slice(server.output());
            server.clear_output();
        };
        if when == ReplyTime::Late {
            carry_out(&mut pending);
        }
        let room = pending.len().min(PAYLOAD);
        answered = packet(number, false, &pending[..room]);
        pending.drain(..room);
        socket.send(&answered)?;
        if when == ReplyTime::Early {
            carry_out(&mut pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_is_answered_and_not_carried_out_again() {
        let (client, display) = datagram_pair().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let served =
            std::thread::spawn(move || serve(&display, DisplayLimits::default(), ReplyTime::Late));
        let mut greeting =
            plumb_display::client::DisplayClient::new(plumb_display::client::ClientMode::BATCHED);
        let greeting = {
            greeting.finish();
            greeting.output().to_vec()
        };
        let mut answers = Vec::new();
        let mut buffer = [0; HEADER + PAYLOAD];
        for bytes in [
            packet(1, false, &greeting),
            packet(1, false, &greeting),
            vec![0; 3],
            packet(2, false, &[]),
        ] {
            client.send(&bytes).unwrap();
            if bytes.len() >= HEADER {
                let len = client.recv(&mut buffer).unwrap();
                answers.push(buffer[..len].to_vec());
            }
        }
        assert!(answers[0].len() > HEADER, "{answers:?}");
        assert_eq!(answers[0], answers[1]);
        assert_eq!(answers[2].len(), HEADER, "a second greeting would have been answered");
        client.send(&packet(3, true, &[])).unwrap();
        served.join().unwrap().unwrap();
    }
}
