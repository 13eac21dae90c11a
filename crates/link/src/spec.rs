//! The description of a link, as a command line, a preset or a schedule gives it.
//!
//! Its text form is the one form in which it is given, stored and sent: `Display` and `FromStr` are
//! inverse to each other.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::Rate;

pub use check::SpecError;

mod check;

/// A whole link: hops from the near side to the far side.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// At least one; a router stands between one and the next.
    pub hops: Vec<HopSpec>,
    /// What every random draw comes from.
    pub seed: Seed,
}

/// One hop, both ways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopSpec {
    /// From the near side to the far side.
    pub up: DirectionSpec,
    /// Back.
    pub down: DirectionSpec,
}

/// One direction of one hop. Its default is a wire that does nothing to a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectionSpec {
    /// What is sent at once, and how fast.
    pub rate: RateSpec,
    /// Bytes that each frame costs beyond its own: preamble, gap and check sequence of Ethernet are 24.
    pub overhead: u32,
    /// What waits for the rate.
    pub queue: QueueSpec,
    /// What is refused before the queue.
    pub policer: Option<BucketSpec>,
    /// Faults of the wire, in the order in which they strike.
    pub faults: Vec<FaultSpec>,
    /// How long a frame travels.
    pub delay: DelaySpec,
    /// Largest IP packet, and what is done about a longer one.
    pub mtu: Option<HopMtuSpec>,
}

/// How fast frames are sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RateSpec {
    /// At once.
    #[default]
    Unlimited,
    /// Bit after bit.
    Constant(Rate),
    /// A token bucket: up to `burst` bytes at once, then at the rate.
    Bucket(BucketSpec),
    /// Sending for `on`, silent for `off`, and so on.
    OnOff {
        /// The rate while on.
        rate: Rate,
        /// How long it sends.
        on: Span,
        /// How long it does not.
        off: Span,
    },
    /// Delivery opportunities from a file, repeated for ever.
    Trace(RateTrace),
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// How fast it fills.
    pub rate: Rate,
    /// Bytes it holds.
    pub burst: u64,
}

/// Delivery opportunities: moments since the beginning, and the bytes that may leave at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    /// The file it came from, which is its name in text form.
    pub file: String,
    /// In order of time; not empty.
    pub opportunities: std::sync::Arc<[SendOpportunity]>,
    /// After how long it begins again; not before the last opportunity.
    pub period: Span,
    /// Whether a frame costs what mahimahi counts of it: its IP packet and the four bytes that a TUN device puts before
    /// one, instead of the frame.
    pub counts_ip_packets: bool,
}

/// One opportunity to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOpportunity {
    /// When, since the beginning of the trace.
    pub at: Span,
    /// Bytes that may leave.
    pub bytes: u64,
}

/// What waits, and what is dropped or marked when too much does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSpec {
    /// First in, first out, up to a limit.
    DropTail {
        /// How much.
        limit: LimitSpec,
    },
    /// Random early detection, gentle (Floyd & Jacobson 1993; Floyd 2000).
    Red {
        /// Average queue below which nothing is dropped, in bytes.
        min: u64,
        /// Average queue at which `p_max` is reached, in bytes.
        max: u64,
        /// Largest probability before the gentle slope.
        p_max: f64,
        /// Whether frames capable of ECN are marked instead of dropped.
        ecn: bool,
        /// How much at most.
        limit: LimitSpec,
    },
    /// Controlled delay (RFC 8289).
    CoDel {
        /// Acceptable standing queue delay.
        target: Span,
        /// Over which it is judged.
        interval: Span,
        /// Whether frames capable of ECN are marked instead of dropped.
        ecn: bool,
        /// How much at most.
        limit: LimitSpec,
    },
    /// Flow queueing with controlled delay (RFC 8290).
    FqCoDel {
        /// Queues that flows are hashed to.
        flows: u32,
        /// Bytes a queue may send in a turn.
        quantum: u32,
        /// As of CoDel.
        target: Span,
        /// As of CoDel.
        interval: Span,
        /// Whether frames capable of ECN are marked instead of dropped.
        ecn: bool,
        /// How much at most, in all queues together.
        limit: LimitSpec,
    },
    /// Proportional integral controller, enhanced (RFC 8033).
    Pie {
        /// The queue delay aimed at.
        target: Span,
        /// How often the probability is computed.
        update: Span,
        /// Whether frames capable of ECN are marked instead of dropped.
        ecn: bool,
        /// How much at most.
        limit: LimitSpec,
    },
    /// Deficit round robin (Shreedhar & Varghese 1995).
    Drr {
        /// Queues that flows are hashed to.
        flows: u32,
        /// Bytes a queue may send in a turn.
        quantum: u32,
        /// How much at most, in all queues together.
        limit: LimitSpec,
    },
    /// Core-stateless fair queueing (Stoica, Shenker & Zhang 1998), edge and core in one.
    Csfq {
        /// Estimates of rates that flows are hashed to.
        flows: u32,
        /// What the rate of a flow is averaged over; the fair share over twice that.
        average: Span,
        /// How much at most.
        limit: LimitSpec,
    },
    /// RED with preferential dropping, a penalty box (Mahajan, Floyd & Wetherall 2001).
    RedPd {
        /// As of RED.
        min: u64,
        /// As of RED.
        max: u64,
        /// As of RED.
        p_max: f64,
        /// As of RED.
        ecn: bool,
        /// The round trip of a TCP whose rate is the most that is not penalised.
        rtt: Span,
        /// How much at most.
        limit: LimitSpec,
    },
    /// Strict priority by the class of the IP header (DSCP): three bands, as Linux's pfifo_fast.
    Priority {
        /// How much at most, in each band.
        limit: LimitSpec,
    },
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSpec {
    /// So many frames.
    Frames(u64),
    /// So many bytes.
    Bytes(u64),
    /// So many thousandths of the product of this direction's rate and the whole link's delay, both ways:
    /// resolved when the link is made.
    Bdp(u64),
}

/// How much may wait, on a link whose rate and delay are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many frames.
    Frames(u64),
    /// So many bytes.
    Bytes(u64),
}

impl Default for QueueSpec {
    /// Drop-tail at one product of rate and delay, which is what a limit that nobody chose should
    /// be: netem's 1,000 packets are none at a high product.
    fn default() -> Self {
        Self::DropTail { limit: LimitSpec::Bdp(1_000) }
    }
}

/// One fault of the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultSpec {
    /// Each frame is lost with this probability, independently.
    Loss(f64),
    /// Two states, good and bad (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// From good to bad, at each frame.
        p: f64,
        /// From bad to good, at each frame.
        r: f64,
        /// Share of frames that are lost while good.
        loss_good: f64,
        /// Share of frames that are lost while bad.
        loss_bad: f64,
    },
    /// Every n-th frame is lost.
    Periodic(u64),
    /// The frames of these numbers are lost, counted from 1 in the order of arrival.
    Listed(std::sync::Arc<[u64]>),
    /// Each bit is wrong with this probability; a frame with a wrong bit is not delivered.
    BitErrors(f64),
    /// A frame with this probability goes `by` later than it should, and others overtake it.
    Reorder {
        /// How many.
        share: f64,
        /// By how much.
        by: Span,
    },
    /// A frame with this probability arrives twice.
    Duplicate(f64),
    /// A frame with this probability has one bit changed, and is delivered.
    Corrupt(f64),
    /// A frame with this probability is cut short, and is delivered.
    Truncate(f64),
    /// Every `every`, for `lasting`, frames are held, and then go at once.
    Clog {
        /// From the beginning of one to the next.
        every: Span,
        /// How long.
        lasting: Span,
    },
    /// Every `every`, for `lasting`, frames are lost.
    Blackout {
        /// From the beginning of one to the next.
        every: Span,
        /// How long.
        lasting: Span,
    },
    /// Nothing gets through in this direction.
    Partition,
}

/// How long a frame travels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelaySpec {
    /// The distribution.
    pub distribution: DelayDistribution,
    /// Whether a frame may overtake another that travels longer.
    pub may_overtake: bool,
}

/// A distribution of delays.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayDistribution {
    /// Always the same.
    Constant(Span),
    /// Anything between two spans, equally likely.
    Uniform {
        /// The least.
        min: Span,
        /// The most.
        max: Span,
    },
    /// Normal around a mean; what would be negative is zero.
    Normal {
        /// The mean.
        mean: Span,
        /// The standard deviation.
        deviation: Span,
    },
    /// Pareto: never less than `scale`; heavy-tailed.
    Pareto {
        /// The least.
        scale: Span,
        /// Shape, in thousandths; above 1,000, or it has no mean.
        shape_thousandths: u64,
    },
    /// One after the other from a file, repeated for ever.
    Replayed {
        /// The file it came from, which is its name in text form.
        file: String,
        /// Not empty.
        delays: std::sync::Arc<[Span]>,
    },
}

impl Default for DelayDistribution {
    fn default() -> Self {
        Self::Constant(Span::ZERO)
    }
}

/// The largest IP packet of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopMtuSpec {
    /// Bytes of an IP packet, without the link header.
    pub bytes: u32,
    /// Whether the sender of a longer one is told (ICMP "fragmentation needed", "packet too big"), or it
    /// vanishes: a black hole. IPv4 packets that may be fragmented are, where the sender would be told.
    pub sends_icmp: bool,
}

/// The least that a limit in products of rate and delay comes to: ten full frames, which is an
/// initial window (RFC 6928).
pub const BDP_LIMIT_MIN: u64 = 10 * 1_514;

impl LinkSpec {
    /// Mean delay there and back, without any serialisation or queue.
    pub fn round_trip(&self) -> Span {
        self.hops
            .iter()
            .fold(Span::ZERO, |sum, hop| sum + hop.up.delay.mean() + hop.down.delay.mean())
    }

    /// The names of the files that it came from: its traces, and the delays that it replays.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.hops.iter().flat_map(|hop| [&hop.up, &hop.down]).flat_map(|direction| {
            let rate = match &direction.rate {
                RateSpec::Trace(trace) => Some(trace.file.as_str()),
                _ => None,
            };
            let delay = match &direction.delay.distribution {
                DelayDistribution::Replayed { file, .. } => Some(file.as_str()),
                _ => None,
            };
            rate.into_iter().chain(delay)
        })
    }
}

impl DirectionSpec {
    /// Whether a limit in products of rate and delay, other than the default, comes to less than [`BDP_LIMIT_MIN`],
    /// so that this is the limit.
    pub fn is_limit_raised(&self, round_trip: Span) -> bool {
        matches!(self.queue.limit(), LimitSpec::Bdp(thousandths) if thousandths != 1_000)
            && self.limit(round_trip) == QueueLimit::Bytes(BDP_LIMIT_MIN)
    }

    /// How much may wait, on a link of this delay there and back.
    ///
    /// Where the rate is not limited nothing waits, and a limit in products of rate and delay is none.
    pub fn limit(&self, round_trip: Span) -> QueueLimit {
        match (self.queue.limit(), self.rate.mean()) {
            (LimitSpec::Frames(frames), _) => QueueLimit::Frames(frames),
            (LimitSpec::Bytes(bytes), _) => QueueLimit::Bytes(bytes),
            (LimitSpec::Bdp(_), None) => QueueLimit::Bytes(u64::MAX),
            (LimitSpec::Bdp(thousandths), Some(rate)) => {
                let product = u128::from(rate.bits_per_second()) * u128::from(round_trip.as_ps());
                let bytes =
                    product.saturating_mul(thousandths.into()) / 8 / 1_000 / 1_000_000_000_000;
                QueueLimit::Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).max(BDP_LIMIT_MIN))
            }
        }
    }
}

impl RateSpec {
    /// Bits a second in the long run; `None` where it is not limited.
    pub fn mean(&self) -> Option<Rate> {
        let share = |bits: u128, period: Span| {
            let rate = bits * 1_000_000_000_000 / u128::from(period.as_ps().max(1));
            Rate::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
        };
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Bucket(bucket) => Some(bucket.rate),
            Self::OnOff { rate, on, off } => {
                let bits = u128::from(rate.bits_per_second()) * u128::from(on.as_ps());
                share(bits / 1_000_000_000_000, *on + *off)
            }
            Self::Trace(trace) => {
                let bytes =
                    trace.opportunities.iter().map(|here| u128::from(here.bytes)).sum::<u128>();
                share(bytes * 8, trace.period)
            }
        }
    }
}

impl QueueSpec {
    /// Whether it treats flows differently.
    pub fn tells_flows_apart(&self) -> bool {
        matches!(
            self,
            Self::FqCoDel { .. } | Self::Drr { .. } | Self::Csfq { .. } | Self::RedPd { .. }
        )
    }

    /// How much may wait.
    pub fn limit(mut self) -> LimitSpec {
        *self.limit_mut()
    }

    pub(crate) fn limit_mut(&mut self) -> &mut LimitSpec {
        match self {
            Self::DropTail { limit }
            | Self::Red { limit, .. }
            | Self::CoDel { limit, .. }
            | Self::FqCoDel { limit, .. }
            | Self::Pie { limit, .. }
            | Self::Drr { limit, .. }
            | Self::Csfq { limit, .. }
            | Self::RedPd { limit, .. }
            | Self::Priority { limit } => limit,
        }
    }
}

impl DelaySpec {
    /// A delay that is always the same.
    pub const fn constant(delay: Span) -> Self {
        Self { distribution: DelayDistribution::Constant(delay), may_overtake: false }
    }

    /// The mean.
    pub fn mean(&self) -> Span {
        self.distribution.mean()
    }

    /// The least that is possible.
    pub fn least(&self) -> Span {
        match &self.distribution {
            DelayDistribution::Constant(delay) => *delay,
            DelayDistribution::Uniform { min, .. } => *min,
            DelayDistribution::Normal { .. } => Span::ZERO,
            DelayDistribution::Pareto { scale, .. } => *scale,
            DelayDistribution::Replayed { delays, .. } => {
                delays.iter().min().copied().unwrap_or_default()
            }
        }
    }
}
