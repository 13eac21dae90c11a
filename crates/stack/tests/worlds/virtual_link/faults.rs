//! Faults of a link: what happens to each packet.

use plumb_base::seed::RandomStream;
use plumb_base::time::Span;
use rand::RngExt;

/// How often which fault befalls a packet: probabilities between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkFaults {
    /// It is lost.
    pub loss: f64,
    /// A burst of losses begins; each ends with probability 1/4 a packet (Gilbert's model).
    pub burst: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// It is overtaken by others: up to 1 ms late.
    pub reorder: f64,
    /// Up to 15 neighboring bits of it are flipped: what the Internet checksum always finds, where
    /// it looks.
    pub corrupt: f64,
    /// It loses its end.
    pub truncate: f64,
}

impl LinkFaults {
    /// Every fault, each with a probability that is drawn.
    pub fn random(stream: &mut RandomStream) -> Self {
        let mut draw =
            |most: f64| if stream.random() { stream.random::<f64>() * most } else { 0.0 };
        Self {
            loss: draw(0.3),
            burst: draw(0.05),
            duplicate: draw(0.3),
            reorder: draw(0.5),
            corrupt: draw(0.2),
            truncate: draw(0.1),
        }
    }
}

/// What happened to packets on a link: `heard + duplicated = delivered + lost +` those in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Put on the link.
    pub sent: u64,
    /// Copies for each machine that hears them.
    pub heard: u64,
    /// Handed to machines.
    pub delivered: u64,
    /// Lost.
    pub lost: u64,
    /// Arrived twice.
    pub duplicated: u64,
    /// Were overtaken.
    pub delayed: u64,
    /// Had bits flipped.
    pub corrupted: u64,
    /// Lost their end.
    pub truncated: u64,
}

/// What shall become of one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketFate {
    pub is_lost: bool,
    pub is_duplicated: bool,
    pub copy_delay: Span,
    pub delay: Span,
    /// From which byte on, and which bits.
    pub corruption: Option<(usize, [u8; 3])>,
    /// To how many bytes.
    pub truncated: Option<usize>,
}

/// Draws fates.
#[derive(Debug)]
pub(super) struct FaultInjector {
    pub faults: LinkFaults,
    stream: RandomStream,
    in_burst: bool,
}

impl FaultInjector {
    pub fn new(stream: RandomStream) -> Self {
        Self { faults: LinkFaults::default(), stream, in_burst: false }
    }

    /// The fate of a packet of `len` bytes.
    pub fn decide(&mut self, len: usize) -> PacketFate {
        if self.faults == LinkFaults::default() {
            self.in_burst = false;
            return PacketFate::default();
        }
        let LinkFaults { loss, burst, duplicate, reorder, corrupt, truncate } = self.faults;
        let stream = &mut self.stream;
        self.in_burst =
            if self.in_burst { !stream.random_bool(0.25) } else { stream.random_bool(burst) };
        if self.in_burst || stream.random_bool(loss) {
            return PacketFate { is_lost: true, ..PacketFate::default() };
        }
        let mut late = |probability| {
            if stream.random_bool(probability) {
                Span::from_ns(stream.random_range(1..1_000_000))
            } else {
                Span::ZERO
            }
        };
        let (delay, copy_delay) = (late(reorder), late(0.5));
        let corruption = (len > 0 && stream.random_bool(corrupt)).then(|| {
            // A pattern of at most 15 bits, somewhere in the 16 behind a bit.
            let bits = stream.random_range(1..1_u32 << 15) << (9 - stream.random_range(0..8_u32));
            let [_, pattern @ ..] = bits.to_be_bytes();
            (stream.random_range(0..len), pattern)
        });
        let truncated = stream.random_bool(truncate).then(|| stream.random_range(0..=len));
        PacketFate {
            is_lost: false,
            is_duplicated: stream.random_bool(duplicate),
            copy_delay,
            delay,
            corruption,
            truncated,
        }
    }
}
