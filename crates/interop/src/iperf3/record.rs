//! What one side of a test recorded: plain figures, interval by interval and as totals.
//!
//! Left out: how reports spell them ([`super::report`]), and how they came about ([`super::transfer`]).

use std::net::SocketAddr;

use plumb_base::time::Span;
use plumb_sys::clock;
use plumb_sys::clock::ClockId;
use plumb_sys::socket::TcpInfo;

use super::message::Iperf3Cookie;
use super::parameters::Iperf3Parameters;
use super::results::{Iperf3Results, Iperf3Totals};
use super::stream::Iperf3Count;

/// Which side of a test this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Iperf3Role {
    /// It asked for the test.
    Client {
        /// The name that it was given.
        host: String,
    },
    /// It was asked.
    Server,
}

/// Other tests that ran on this server while one did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Iperf3ConcurrentTests {
    /// How many there were.
    pub tests: usize,
    /// How long they ran beside it, all together.
    pub duration: Span,
}

/// A test from one side: all that a report is made of.
#[derive(Clone, Debug)]
pub struct Iperf3Test {
    /// Which side this is.
    pub role: Iperf3Role,
    /// This side's address of the control connection.
    pub local: SocketAddr,
    /// The other side's.
    pub remote: SocketAddr,
    /// The cookie of its connections.
    pub cookie: String,
    /// When it began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What was agreed on.
    pub parameters: Iperf3Parameters,
    /// How often it was looked at.
    pub interval: Span,
    /// The control connection's largest segment.
    pub segment: u32,
    /// Bytes of the send and of the receive buffer of the first stream, as the kernel has them.
    pub buffers: [u32; 2],
    /// What this side saw; absent where it never began.
    pub record: Option<Iperf3TestRecord>,
    /// What the other side said it saw.
    pub remote_results: Option<Iperf3Results>,
    /// Tests beside it, where this is the server.
    pub overlap: Iperf3ConcurrentTests,
    /// Why it ended early.
    pub error: Option<String>,
}

impl Iperf3Test {
    /// Its streams; none where it never began.
    pub fn streams(&self) -> &[Iperf3Stream] {
        self.record.as_ref().map_or(&[], |record| &record.streams)
    }

    /// One that begins now, between a side's own address and the other's.
    pub fn begin(
        role: Iperf3Role,
        (local, remote): (SocketAddr, SocketAddr),
        cookie: Iperf3Cookie,
        parameters: Iperf3Parameters,
        interval: Span,
        segment: u32,
    ) -> Self {
        Self {
            role,
            local,
            remote,
            cookie: cookie.to_string(),
            unix_ms: clock::read_ns(ClockId::Realtime) / 1_000_000,
            parameters,
            interval,
            segment,
            buffers: [0; 2],
            record: None,
            remote_results: None,
            overlap: Iperf3ConcurrentTests::default(),
            error: None,
        }
    }
}

/// One stream during one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iperf3Interval {
    /// From when, since the beginning of what is counted, or of what is omitted.
    pub start: Span,
    /// Until when.
    pub end: Span,
    /// What was added.
    pub count: Iperf3Count,
    /// Segments sent again, of a TCP sender.
    pub retransmits: Option<u64>,
    /// What the connection said at the end, of a TCP sender.
    pub tcp_info: Option<TcpInfo>,
    /// Whether it is not counted.
    pub omitted: bool,
}

/// The least, the most and the mean of something that was looked at now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinMaxMean {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
    sum: u64,
    samples: u64,
}

impl MinMaxMean {
    /// One more look.
    pub const fn add(&mut self, value: u64) {
        self.min = if self.samples == 0 || value < self.min { value } else { self.min };
        self.max = if value > self.max { value } else { self.max };
        self.sum += value;
        self.samples += 1;
    }

    /// The mean, rounded down.
    pub const fn mean(&self) -> u64 {
        match self.sum.checked_div(self.samples) {
            Some(mean) => mean,
            None => 0,
        }
    }
}

/// One stream, as this side saw it.
#[derive(Clone, Debug)]
pub struct Iperf3Stream {
    /// Its number in the protocol.
    pub id: u32,
    /// The number of its socket in this process.
    pub socket: u32,
    /// Whether this side sent.
    pub sends: bool,
    /// This side's address.
    pub local: SocketAddr,
    /// The other side's.
    pub remote: SocketAddr,
    /// What was counted, without what was omitted.
    pub count: Iperf3Count,
    /// Segments sent again, of a TCP sender.
    pub retransmits: Option<u64>,
    /// From the beginning of what is counted to its last byte.
    pub duration: Span,
    /// The congestion window in bytes.
    pub congestion_window: MinMaxMean,
    /// The window that was offered, in bytes.
    pub send_window: MinMaxMean,
    /// Round-trip times in microseconds.
    pub rtt_us: MinMaxMean,
    /// By how many segments packets were found out of order, at the end.
    pub reordering: u32,
    /// Whether all that the other side sent was received.
    pub drained: bool,
    /// Why it ended early.
    pub error: Option<String>,
    /// One by one.
    pub intervals: Vec<Iperf3Interval>,
}

impl Iperf3Stream {
    /// As the other side is told.
    pub fn totals(&self) -> Iperf3Totals {
        Iperf3Totals {
            id: self.id,
            bytes: self.count.bytes,
            retransmits: self.retransmits,
            jitter_s: self.count.jitter_s,
            errors: self.count.lost,
            packets: self.count.packets,
            seconds: self.duration.as_secs_f64(),
        }
    }
}

/// A whole test, as this side saw it.
#[derive(Clone, Debug)]
pub struct Iperf3TestRecord {
    /// In the order of their making.
    pub streams: Vec<Iperf3Stream>,
    /// Processor time of this process over wall time, in percent: all, user's, system's.
    pub cpu_percent: [f64; 3],
    /// Processor time of this process, in seconds: user's, system's.
    pub cpu_s: [f64; 2],
    /// The congestion control in use.
    pub congestion: Option<String>,
    /// How long what is counted lasted.
    pub duration: Span,
    /// Whether intervals were left out because there were too many.
    pub truncated: bool,
}

impl Iperf3TestRecord {
    /// Takes for lost what the other side sent behind the last datagram that came. Receivers have
    /// drained by then.
    pub fn count_trailing_loss(&mut self, theirs: &Iperf3Results) {
        for stream in self.streams.iter_mut().filter(|stream| !stream.sends) {
            let sent = theirs.stream(stream.id).map_or(0, |theirs| theirs.packets);
            // Of TCP nobody counts any. Where none has come, all were lost.
            if sent > stream.count.packets {
                let behind = i64::try_from(sent - stream.count.packets).unwrap_or(i64::MAX);
                stream.count.lost = stream.count.lost.saturating_add(behind);
                stream.count.packets = sent;
            }
        }
    }

    /// As the other side is told.
    pub fn results(&self) -> Iperf3Results {
        let sends = self.streams.iter().any(|stream| stream.sends);
        let knows = self.streams.iter().any(|stream| stream.retransmits.is_some());
        Iperf3Results {
            cpu_percent: self.cpu_percent,
            has_retransmits: sends.then_some(knows),
            congestion: self.congestion.clone(),
            streams: self.streams.iter().map(Iperf3Stream::totals).collect(),
            report: None,
            extra: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_datagram_came_all_that_were_sent_are_lost() {
        let stream = |id, packets, lost| Iperf3Stream {
            id,
            socket: 0,
            sends: false,
            local: SocketAddr::from(([127, 0, 0, 1], 1)),
            remote: SocketAddr::from(([127, 0, 0, 1], 2)),
            count: Iperf3Count { packets, lost, ..Iperf3Count::default() },
            retransmits: None,
            duration: Span::ZERO,
            congestion_window: MinMaxMean::default(),
            send_window: MinMaxMean::default(),
            rtt_us: MinMaxMean::default(),
            reordering: 0,
            drained: true,
            error: None,
            intervals: Vec::new(),
        };
        let mut record = Iperf3TestRecord {
            streams: vec![stream(1, 0, 0), stream(3, 10, 2)],
            cpu_percent: [0.0; 3],
            cpu_s: [0.0; 2],
            congestion: None,
            duration: Span::ZERO,
            truncated: false,
        };
        let sent = |id, packets| Iperf3Totals { id, packets, ..Iperf3Totals::default() };
        let theirs =
            Iperf3Results { streams: vec![sent(1, 40), sent(3, 12)], ..Iperf3Results::default() };
        record.count_trailing_loss(&theirs);
        let counts = record.streams.iter().map(|stream| (stream.count.packets, stream.count.lost));
        assert_eq!(counts.collect::<Vec<_>>(), [(40, 40), (12, 4)]);
    }

    #[test]
    fn an_extent_knows_its_least_most_and_mean() {
        let mut extent = MinMaxMean::default();
        assert_eq!(extent.mean(), 0);
        for value in [5, 9, 1] {
            extent.add(value);
        }
        assert_eq!((extent.min, extent.max, extent.mean()), (1, 9, 5));
    }
}
