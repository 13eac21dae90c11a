//! One set of questions for every transport: how long a connection takes to stand, how long an
//! exchange, how much goes through each way, and at what cost to the processor.
//!
//! Each connection begins with an [`Order`]: the session's token, and what the connection is for.
//! Left out: the transports ([`super::tls`], [`super::quic`]).

use std::io::{self, Read, Write};

use plumb_sys::clock::{Clock, read_ns};
use serde::{Deserialize, Serialize};

use super::exchange::turns::Progress;
use super::exchange::{self, Bounds, ExchangeError, ExchangeReport, ExchangeSpec, Pacing};
use crate::clock::steady_ns;

/// Bytes of an order on the wire: what is not used is zero.
pub const ORDER_BYTES: usize = 64;
/// Bytes of a count on the wire.
pub const COUNT_BYTES: usize = 24;
/// Bytes of one write and of one read of bulk data.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Longest bulk transfer that a server takes or gives.
pub const BULK_NS_MAX: u64 = 60_000_000_000;

/// Which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// TCP as it is.
    Tcp,
    /// TLS 1.3 over TCP.
    Tls,
    /// QUIC.
    Quic,
    /// UDP as it is: requests and responses only.
    Udp,
}

impl Transport {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS 1.3",
            Self::Quic => "QUIC",
            Self::Udp => "UDP",
        }
    }

    /// Its word on a command line: `tcp`, `tls`, `quic` or `udp`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Udp => "udp",
        }
    }
}

/// What is asked of each transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportSpec {
    /// The session's token, which every connection shows.
    pub token: [u8; 16],
    /// Connections whose standing is timed.
    pub connections: u16,
    /// The exchange, at closed loop.
    pub exchange: ExchangeSpec,
    /// Time of bulk data each way.
    pub bulk_ns: u64,
}

impl TransportSpec {
    /// Some seconds in all.
    pub fn with_token(token: [u8; 16]) -> Self {
        let exchange = ExchangeSpec {
            request_bytes: 64,
            response_bytes: 64,
            pacing: Pacing::Closed,
            warm_up_ns: 100_000_000,
            duration_ns: 1_000_000_000,
        };
        Self { token, connections: 20, exchange, bulk_ns: 2_000_000_000 }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportReport {
    /// Over what.
    pub transport: Transport,
    /// Each connection's standing.
    pub standing: Vec<Standing>,
    /// The exchange.
    pub exchange: ExchangeReport,
    /// From the client to the server.
    pub up: Bulk,
    /// From the server to the client.
    pub down: Bulk,
}

/// How long a connection took until it could be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The transport's own round trip: connect(2); zero where there is none apart.
    pub connect_ns: u64,
    /// The handshake of the encryption; zero where there is none.
    pub handshake_ns: u64,
    /// Processor time of the client for both.
    pub cpu_ns: u64,
}

/// Bulk data one way, by the receiver's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bulk {
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the first byte to the last, at the receiver.
    pub duration_ns: u64,
    /// Processor time of the client's thread.
    pub cpu_client_ns: u64,
    /// Processor time of the server's thread.
    pub cpu_server_ns: u64,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Nothing: it was to stand.
    Nothing,
    /// Requests and responses of these sizes.
    Exchange {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
    /// The client sends and the server counts.
    Up,
    /// The server sends for so long, and the client counts.
    Down {
        /// How long.
        duration_ns: u64,
    },
    /// The client is done: no more connections come.
    Over,
}

impl Order {
    /// Its bytes, with the token before it.
    pub fn encode(self, token: &[u8; 16]) -> [u8; ORDER_BYTES] {
        let mut bytes = [0; ORDER_BYTES];
        bytes[..16].copy_from_slice(token);
        postcard::to_slice(&self, &mut bytes[16..]).expect("an order is shorter than its room");
        bytes
    }

    /// Reads one with the right token.
    ///
    /// # Errors
    /// Another token, or no order.
    pub fn decode(bytes: &[u8; ORDER_BYTES], token: &[u8; 16]) -> io::Result<Self> {
        let refuse = |why| io::Error::new(io::ErrorKind::PermissionDenied, why);
        // Compared whole, so that the time it takes says nothing of where it differs.
        let differ = bytes[..16].iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differ != 0 {
            return Err(refuse("the connection does not show this session's token"));
        }
        let order: Self = postcard::from_bytes(&bytes[16..])
            .map_err(|_| refuse("what the connection is for makes no sense"))?;
        match order {
            Self::Down { duration_ns } if duration_ns > BULK_NS_MAX => {
                Err(refuse("bulk data for longer than a minute is more than is given"))
            }
            order => Ok(order),
        }
    }
}

/// What a receiver counted, as it is sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the first to the last.
    pub duration_ns: u64,
    /// Processor time of the thread.
    pub cpu_ns: u64,
}

impl Count {
    /// Its bytes.
    pub fn encode(self) -> [u8; COUNT_BYTES] {
        let mut bytes = [0; COUNT_BYTES];
        for (place, number) in
            bytes.chunks_exact_mut(8).zip([self.bytes, self.duration_ns, self.cpu_ns])
        {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; COUNT_BYTES]) -> Self {
        let number = |at: usize| {
            bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Self { bytes: number(0), duration_ns: number(8), cpu_ns: number(16) }
    }
}

/// A stream that can say that nothing more will be written, and still be read.
pub trait HalfClose: Read + Write {
    /// Says so.
    ///
    /// # Errors
    /// The connection's.
    fn close_writing(&mut self) -> io::Result<()>;
}

/// The server's part of one connection.
///
/// # Errors
/// The connection's; a wrong token.
pub fn obey(stream: &mut impl HalfClose, token: &[u8; 16], deadline_ns: u64) -> io::Result<()> {
    let mut order = [0; ORDER_BYTES];
    stream.read_exact(&mut order)?;
    match Order::decode(&order, token)? {
        // One byte back: the client knows that its order, and with it the handshake, has arrived.
        Order::Nothing | Order::Over => {
            stream.write_all(&[1])?;
            stream.close_writing()
        }
        Order::Exchange { request_bytes, response_bytes } => {
            let spec = ExchangeSpec {
                request_bytes,
                response_bytes,
                pacing: Pacing::Closed,
                warm_up_ns: 0,
                duration_ns: 1,
            };
            exchange::answer_in_turn(stream, &spec, Bounds::until(deadline_ns), &mut 0)?;
            stream.close_writing()
        }
        Order::Up => {
            let count = drain(stream, deadline_ns)?;
            stream.write_all(&count.encode())?;
            stream.close_writing()
        }
        Order::Down { duration_ns } => {
            let cpu = read_ns(Clock::ThreadCpu);
            pour(stream, duration_ns)?;
            let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
            stream.write_all(&Count { cpu_ns, ..Count::default() }.encode())?;
            stream.close_writing()?;
            // Until the client has read everything and closed its side.
            stream.read(&mut [0]).map(drop)
        }
    }
}

/// Sends as much as goes for so long, rounded up to whole blocks.
fn pour(stream: &mut impl Write, duration_ns: u64) -> io::Result<()> {
    let block = vec![0x64_u8; BLOCK_BYTES];
    let end = steady_ns() + duration_ns;
    while steady_ns() < end {
        stream.write_all(&block)?;
    }
    stream.flush()
}

/// Counts until the end of the stream.
fn drain(stream: &mut impl Read, deadline_ns: u64) -> io::Result<Count> {
    let mut block = vec![0_u8; BLOCK_BYTES];
    let cpu = read_ns(Clock::ThreadCpu);
    let (mut bytes, mut first, mut last) = (0, None, 0);
    loop {
        let read = stream.read(&mut block)?;
        if read == 0 {
            break;
        }
        last = steady_ns();
        first.get_or_insert(last);
        bytes += u64::try_from(read).unwrap_or(0);
        if last > deadline_ns {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "bulk data beyond its deadline"));
        }
    }
    let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
    Ok(Count { bytes, duration_ns: last - first.unwrap_or(last), cpu_ns })
}

/// The client's part of [`Order::Nothing`].
pub(super) fn ask_nothing(stream: &mut impl HalfClose, token: &[u8; 16]) -> io::Result<()> {
    stream.write_all(&Order::Nothing.encode(token))?;
    stream.flush()?;
    stream.read_exact(&mut [0])
}

/// The client's part of [`Order::Exchange`].
pub(super) fn ask_exchange(
    stream: &mut impl HalfClose,
    spec: &TransportSpec,
) -> Result<ExchangeReport, ExchangeError> {
    let order = Order::Exchange {
        request_bytes: spec.exchange.request_bytes,
        response_bytes: spec.exchange.response_bytes,
    };
    stream.write_all(&order.encode(&spec.token)).map_err(ExchangeError::at_once)?;
    let report = exchange::ask_in_turn(stream, &spec.exchange, &Progress::default())?;
    stream.close_writing().map_err(ExchangeError::at_once)?;
    Ok(report)
}

/// The client's part of [`Order::Up`].
pub(super) fn ask_up(stream: &mut impl HalfClose, spec: &TransportSpec) -> io::Result<Bulk> {
    stream.write_all(&Order::Up.encode(&spec.token))?;
    let cpu = read_ns(Clock::ThreadCpu);
    pour(stream, spec.bulk_ns)?;
    stream.close_writing()?;
    let cpu_client_ns = read_ns(Clock::ThreadCpu) - cpu;
    let mut count = [0; COUNT_BYTES];
    stream.read_exact(&mut count)?;
    let Count { bytes, duration_ns, cpu_ns } = Count::decode(&count);
    Ok(Bulk { bytes, duration_ns, cpu_client_ns, cpu_server_ns: cpu_ns })
}

/// The client's part of [`Order::Down`].
pub(super) fn ask_down(
    stream: &mut impl HalfClose,
    spec: &TransportSpec,
    deadline_ns: u64,
) -> io::Result<Bulk> {
    let order = Order::Down { duration_ns: spec.bulk_ns };
    stream.write_all(&order.encode(&spec.token))?;
    stream.flush()?;
    let mut tail = Tail { stream, last: Vec::with_capacity(COUNT_BYTES) };
    let count = drain(&mut tail, deadline_ns)?;
    let server = tail.count()?;
    stream.close_writing()?;
    let Count { bytes, duration_ns, cpu_ns } = count;
    let bytes = bytes.saturating_sub(u64::try_from(COUNT_BYTES).unwrap_or(0));
    Ok(Bulk { bytes, duration_ns, cpu_client_ns: cpu_ns, cpu_server_ns: server.cpu_ns })
}

/// Remembers the last bytes of a stream, which are the sender's count.
pub(super) struct Tail<'a, S> {
    stream: &'a mut S,
    last: Vec<u8>,
}

impl<S> Tail<'_, S> {
    fn count(&self) -> io::Result<Count> {
        last_count(&self.last)
    }
}

impl<S: Read> Read for Tail<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        keep_last(&mut self.last, &buffer[..read]);
        Ok(read)
    }
}

/// Keeps the last bytes that a count may be in.
pub(super) fn keep_last(last: &mut Vec<u8>, bytes: &[u8]) {
    let new = &bytes[bytes.len().saturating_sub(COUNT_BYTES)..];
    let surplus = (last.len() + new.len()).saturating_sub(COUNT_BYTES);
    last.drain(..surplus);
    last.extend_from_slice(new);
}

/// The count that a stream ended with.
pub(super) fn last_count(last: &[u8]) -> io::Result<Count> {
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the stream was cut off");
    Ok(Count::decode(last.try_into().map_err(|_| cut())?))
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    #[test]
    fn an_order_is_obeyed_with_the_token_only() {
        let token = [7; 16];
        for order in [
            Order::Nothing,
            Order::Exchange { request_bytes: u32::MAX, response_bytes: u32::MAX },
            Order::Up,
            Order::Down { duration_ns: BULK_NS_MAX },
        ] {
            assert_eq!(Order::decode(&order.encode(&token), &token).unwrap(), order);
            assert!(Order::decode(&order.encode(&token), &[8; 16]).is_err());
        }
        let endless = Order::Down { duration_ns: u64::MAX }.encode(&token);
        assert!(Order::decode(&endless, &token).is_err());
    }

    #[test]
    fn no_bytes_make_an_order_panic() {
        let seed = Seed(0x6f72_6465);
        println!("seed {seed:?}");
        let mut random = seed.stream("order");
        for _ in 0..100_000 {
            let mut bytes = [0; ORDER_BYTES];
            random.fill(&mut bytes[16..]);
            if random.random() {
                bytes[16] %= 5;
            }
            let _either = Order::decode(&bytes, &[0; 16]);
        }
    }

    #[test]
    fn a_count_survives_the_wire_in_any_pieces() {
        let count = Count { bytes: u64::MAX, duration_ns: 3, cpu_ns: 1 << 40 };
        let stream = [vec![9; 100], count.encode().to_vec()].concat();
        for piece in [1, 7, 23, 24, 25, 124] {
            let mut last = Vec::new();
            stream.chunks(piece).for_each(|bytes| keep_last(&mut last, bytes));
            assert_eq!(last_count(&last).unwrap(), count, "pieces of {piece}");
        }
        assert!(last_count(&[0; 23]).is_err());
    }
}
