//! Whether there can be such a link: what is wrong, why, and what would not be.

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;
use plumb_base::units::rate::Rate;

use super::{
    BucketSpec, DelayDistribution, DirectionSpec, FaultSpec, LimitSpec, LinkSpec, QueueSpec,
    RateSpec,
};

/// The fastest link.
pub const RATE_MAX_BPS: u64 = 1_000_000_000_000;
/// The longest delay.
pub const DELAY_MAX: Span = Span::from_secs(86_400);
/// Most hops of a link: what its routers' addresses are enough for.
pub const HOPS_MAX: usize = 64;
/// A full frame of Ethernet without its check sequence.
pub const FULL_FRAME: u64 = 1_514;
/// The least MTU of IPv4 (RFC 791 §3.2).
const MTU_MIN: u32 = 68;
/// The least MTU of IPv6 (RFC 8200 §5).
const MTU_MIN_V6: u32 = 1_280;

/// Why there cannot be such a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Too few hops, or too many.
    #[error("a link has 1 to {HOPS_MAX} hops, not {0}")]
    HopCount(usize),
    /// Another number of hops than the link runs with.
    #[error("the link has {now} hops and cannot get {asked} while it runs; start a new link")]
    Hops {
        /// Hops it has.
        now: usize,
        /// Hops asked for.
        asked: usize,
    },
    /// Other random draws than the link runs with.
    #[error(
        "the link's random draws come from seed {now} for as long as it runs; start a new link for {asked}"
    )]
    Seed {
        /// The seed it has.
        now: u64,
        /// The one asked for.
        asked: u64,
    },
    /// A direction that cannot be.
    #[error("hop {hop} {direction}: {fault}")]
    Direction {
        /// From 1.
        hop: usize,
        /// `up` or `down`.
        direction: &'static str,
        /// What is wrong with it.
        fault: DirectionSpecError,
    },
    /// More memory than there may be.
    #[error(
        "frames in flight and waiting may need {needed} of memory and {allowed} is allowed; lower the queue's limit, the delay or the rate"
    )]
    Memory {
        /// For the link, in words.
        needed: String,
        /// In words.
        allowed: String,
    },
}

/// What is wrong with a direction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectionSpecError {
    /// A rate beyond belief.
    #[error(
        "a rate of {0} is more than any link's; the fastest here is 1tbit: leave rate= out for none"
    )]
    Rate(Rate),
    /// A bucket that no full frame fits in.
    #[error(
        "a burst of {0} bytes is shorter than a full frame, which would never pass; make it at least {FULL_FRAME} bytes"
    )]
    Burst(u64),
    /// Never sending.
    #[error("on= is zero, so that nothing is ever sent; give it a length")]
    Off,
    /// A trace without opportunities.
    #[error("the trace '{0}' has nothing in it that could be sent; give it opportunities")]
    Trace(String),
    /// A queue of nothing.
    #[error("a queue limited at zero drops everything; allow at least 1packet")]
    Limit,
    /// A queue where nothing ever waits.
    #[error(
        "the queue that is asked for would limit nothing: frames wait for a rate, and this direction has none; give it rate=, or leave queue= and limit= out"
    )]
    QueueWithoutRate,
    /// Parameters of a queue that contradict each other or are out of range.
    #[error("the queue's {0}")]
    Queue(&'static str),
    /// A probability that is none.
    #[error("{0} is not a share; give one between 0 and 1")]
    Share(String),
    /// A number that counts from one.
    #[error("frames are counted from 1; give numbers above 0")]
    Number,
    /// Windows without a gap.
    #[error("a window of {lasting} every {every} never ends; make it shorter than its distance")]
    Window {
        /// How long.
        lasting: String,
        /// From one to the next.
        every: String,
    },
    /// A distribution that is none.
    #[error("the delay's {0}")]
    Delay(&'static str),
    /// A delay beyond belief.
    #[error("a delay of {0} is longer than a day; shorten it")]
    DelayLong(String),
    /// An MTU that no IP packet, or no length field, allows.
    #[error(
        "an MTU of {0} is not possible; IPv4 needs 68 (RFC 791), IPv6 1280 (RFC 8200), and 65535 is the most"
    )]
    Mtu(u32),
    /// More overhead than frame.
    #[error("an overhead of {0} bytes a frame is more than a frame has; give at most 65535")]
    Overhead(u32),
}

impl LinkSpec {
    /// Whether there can be such a link.
    ///
    /// # Errors
    /// [`SpecError`] says what is wrong and what would not be.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=HOPS_MAX).contains(&self.hops.len()) {
            return Err(SpecError::HopCount(self.hops.len()));
        }
        for (direction, hop, name) in self.directions() {
            direction.check().map_err(|fault| SpecError::Direction {
                hop,
                direction: name,
                fault,
            })?;
        }
        Ok(())
    }

    /// What is possible but perhaps not meant: a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let small = |direction: &DirectionSpec| {
            direction.mtu.map(|mtu| mtu.bytes).filter(|bytes| *bytes < MTU_MIN_V6)
        };
        let told = |hop: usize, ways: &str, mtu: u32| {
            format!(
                "hop {hop} {ways}: an MTU of {mtu} is less than the {MTU_MIN_V6} that IPv6 needs (RFC 8200 §5): \
                 larger packets of IPv6 do not cross, and those who send them need not make them smaller"
            )
        };
        let mut remarks = Vec::new();
        for (number, hop) in (1..).zip(&self.hops) {
            match (small(&hop.up), small(&hop.down)) {
                (Some(up), Some(down)) if up == down => remarks.push(told(number, "both ways", up)),
                (up, down) => {
                    remarks.extend(up.map(|mtu| told(number, "up", mtu)));
                    remarks.extend(down.map(|mtu| told(number, "down", mtu)));
                }
            }
        }
        remarks
    }

    /// Whether a link that runs as this may become that one.
    ///
    /// # Errors
    /// [`SpecError::Hops`], [`SpecError::Seed`].
    pub fn check_reconfiguration(&self, that: &Self) -> Result<(), SpecError> {
        if that.hops.len() != self.hops.len() {
            return Err(SpecError::Hops { now: self.hops.len(), asked: that.hops.len() });
        }
        if that.seed != self.seed {
            return Err(SpecError::Seed { now: self.seed.0, asked: that.seed.0 });
        }
        Ok(())
    }

    /// Every direction with the number of its hop, from 1, and its name.
    pub fn directions(&self) -> impl Iterator<Item = (&DirectionSpec, usize, &'static str)> {
        self.hops
            .iter()
            .enumerate()
            .flat_map(|(index, hop)| [(&hop.up, index + 1, "up"), (&hop.down, index + 1, "down")])
    }
}

impl DirectionSpec {
    /// Whether there can be such a direction.
    ///
    /// # Errors
    /// What is wrong, and what would not be.
    pub fn check(&self) -> Result<(), DirectionSpecError> {
        check_rate(&self.rate)?;
        if let Some(bucket) = self.policer {
            check_bucket(bucket)?;
        }
        if self.overhead > 65_535 {
            return Err(DirectionSpecError::Overhead(self.overhead));
        }
        if matches!(
            self.queue.limit(),
            LimitSpec::Frames(0) | LimitSpec::Bytes(0) | LimitSpec::Bdp(0)
        ) {
            return Err(DirectionSpecError::Limit);
        }
        check_queue(&self.queue).map_err(DirectionSpecError::Queue)?;
        if self.rate == RateSpec::Unlimited && self.queue != QueueSpec::default() {
            return Err(DirectionSpecError::QueueWithoutRate);
        }
        self.faults.iter().try_for_each(check_fault)?;
        check_delay(&self.delay.distribution)?;
        match self.mtu {
            Some(mtu) if !(MTU_MIN..=65_535).contains(&mtu.bytes) => {
                Err(DirectionSpecError::Mtu(mtu.bytes))
            }
            _ => Ok(()),
        }
    }
}

fn check_rate(rate: &RateSpec) -> Result<(), DirectionSpecError> {
    let sane = |rate: Rate| {
        if rate.bits_per_second() > RATE_MAX_BPS {
            Err(DirectionSpecError::Rate(rate))
        } else {
            Ok(())
        }
    };
    match rate {
        RateSpec::Unlimited => Ok(()),
        RateSpec::Constant(rate) => sane(*rate),
        RateSpec::Bucket(bucket) => check_bucket(*bucket),
        RateSpec::OnOff { on, .. } if *on == Span::ZERO => Err(DirectionSpecError::Off),
        RateSpec::OnOff { rate, on, off } => {
            longest(*on)?;
            longest(*off)?;
            sane(*rate)
        }
        RateSpec::Trace(trace) => {
            let sends = trace.opportunities.iter().any(|here| here.bytes > 0);
            if sends && trace.period > Span::ZERO {
                Ok(())
            } else {
                Err(DirectionSpecError::Trace(trace.file.clone()))
            }
        }
    }
}

fn check_bucket(bucket: BucketSpec) -> Result<(), DirectionSpecError> {
    if bucket.burst < FULL_FRAME {
        return Err(DirectionSpecError::Burst(bucket.burst));
    }
    if bucket.rate.bits_per_second() > RATE_MAX_BPS {
        return Err(DirectionSpecError::Rate(bucket.rate));
    }
    Ok(())
}

fn check_queue(queue: &QueueSpec) -> Result<(), &'static str> {
    let positive = |span: Span, what| if span == Span::ZERO { Err(what) } else { Ok(()) };
    match *queue {
        QueueSpec::DropTail { .. } | QueueSpec::Priority { .. } => Ok(()),
        QueueSpec::Red { min, max, p_max, .. } => {
            if min == 0 || max <= min {
                return Err("min= must be above 0 and below max=");
            }
            if p_max > 0.0 && p_max <= 1.0 {
                Ok(())
            } else {
                Err("p-max= must be above 0 and at most 1")
            }
        }
        QueueSpec::CoDel { target, interval, .. } => {
            positive(target, "target= must be above 0")?;
            if interval > target { Ok(()) } else { Err("interval= must be longer than target=") }
        }
        QueueSpec::FqCoDel { flows, quantum, target, interval, .. } => {
            positive(target, "target= must be above 0")?;
            if interval <= target {
                return Err("interval= must be longer than target=");
            }
            check_flows(flows, quantum)
        }
        QueueSpec::Pie { target, update, .. } => {
            positive(target, "target= must be above 0")?;
            // Shorter, and updating is all that is done.
            let least = Span::from_us(100);
            if update >= least { Ok(()) } else { Err("update= must be at least 100us") }
        }
        QueueSpec::Drr { flows, quantum, .. } => check_flows(flows, quantum),
    }
}

fn check_flows(flows: u32, quantum: u32) -> Result<(), &'static str> {
    if !(1..=65_536).contains(&flows) {
        return Err("flows= must be from 1 to 65536");
    }
    // Below it, a full frame takes so many turns that turns are all that is done.
    if quantum < 64 { Err("quantum= must be at least 64 bytes") } else { Ok(()) }
}

fn check_fault(fault: &FaultSpec) -> Result<(), DirectionSpecError> {
    let share = |share: f64| {
        if (0.0..=1.0).contains(&share) {
            Ok(())
        } else {
            Err(DirectionSpecError::Share(share.to_string()))
        }
    };
    match fault {
        FaultSpec::Loss(p)
        | FaultSpec::BitErrors(p)
        | FaultSpec::Duplicate(p)
        | FaultSpec::Corrupt(p)
        | FaultSpec::Truncate(p) => share(*p),
        FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
            [*p, *r, *loss_good, *loss_bad].into_iter().try_for_each(share)
        }
        FaultSpec::Periodic(0) => Err(DirectionSpecError::Number),
        FaultSpec::Listed(numbers) if numbers.is_empty() || numbers.contains(&0) => {
            Err(DirectionSpecError::Number)
        }
        FaultSpec::Reorder { share: p, by } => {
            share(*p)?;
            longest(*by)
        }
        FaultSpec::Clog { every, lasting } | FaultSpec::Blackout { every, lasting } => {
            longest(*every)?;
            if lasting < every {
                return Ok(());
            }
            Err(DirectionSpecError::Window {
                lasting: format_span(*lasting),
                every: format_span(*every),
            })
        }
        FaultSpec::Periodic(_) | FaultSpec::Listed(_) | FaultSpec::Partition => Ok(()),
    }
}

fn check_delay(distribution: &DelayDistribution) -> Result<(), DirectionSpecError> {
    match distribution {
        DelayDistribution::Constant(delay) => longest(*delay),
        DelayDistribution::Uniform { min, max } if min > max => {
            Err(DirectionSpecError::Delay("least is longer than its most; exchange them"))
        }
        DelayDistribution::Uniform { max, .. } => longest(*max),
        DelayDistribution::Normal { mean, deviation } => {
            longest(*mean)?;
            longest(*deviation)
        }
        DelayDistribution::Pareto { shape_thousandths, .. } if *shape_thousandths <= 1_000 => {
            Err(DirectionSpecError::Delay("shape must be above 1, or there is no mean"))
        }
        DelayDistribution::Pareto { scale, .. } => longest(*scale),
        DelayDistribution::Replayed { delays, .. } if delays.is_empty() => {
            Err(DirectionSpecError::Delay("file has no delay in it; give one a line"))
        }
        DelayDistribution::Replayed { delays, .. } => delays.iter().copied().try_for_each(longest),
    }
}

fn longest(span: Span) -> Result<(), DirectionSpecError> {
    if span > DELAY_MAX { Err(DirectionSpecError::DelayLong(format_span(span))) } else { Ok(()) }
}
