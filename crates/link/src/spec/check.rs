//! Whether there can be such a link: what is wrong, why, and what would not be.

use std::ops::RangeInclusive;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_base::units::quantity::format_span;

use super::{
    BucketSpec, DelayDistribution, DirectionSpec, FaultSpec, LimitSpec, LinkSpec, QueueSpec,
    RateSpec,
};

/// The fastest link.
const RATE_MAX_BPS: u64 = 1_000_000_000_000;
/// The longest delay.
const DELAY_MAX: Span = Span::from_secs(86_400);
/// Most hops of a link: what its routers' addresses are enough for.
const HOPS_MAX: usize = 64;
/// A full frame of Ethernet without its check sequence.
const FULL_FRAME: u64 = 1_514;
/// The least MTU of IPv4 (RFC 791 §3.2).
const MTU_MIN: u32 = 68;
/// The least MTU of IPv6 (RFC 8200 §5).
const MTU_MIN_V6: u32 = 1_280;

/// Why there cannot be such a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It cannot be, or not become of one that runs: what is wrong, and what would not be.
    #[error("{0}")]
    Impossible(String),
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

impl SpecError {
    pub(crate) fn hop_count(count: usize) -> Self {
        Self::Impossible(format!("a link has 1 to {HOPS_MAX} hops, not {count}"))
    }

    pub(crate) fn hops_fixed(now: usize, asked: usize) -> Self {
        Self::Impossible(format!(
            "the link has {now} hops and cannot get {asked} while it runs; start a new link"
        ))
    }
}

impl LinkSpec {
    /// Whether there can be such a link.
    ///
    /// # Errors
    /// [`SpecError`] says what is wrong and what would not be.
    pub fn check(&self) -> Result<(), SpecError> {
        if !(1..=HOPS_MAX).contains(&self.hops.len()) {
            return Err(SpecError::hop_count(self.hops.len()));
        }
        for (direction, hop, name) in self.directions() {
            let wrong = |fault| SpecError::Impossible(format!("hop {hop} {name}: {fault}"));
            direction.check().map_err(wrong)?;
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
    /// It has another number of hops, or other random draws.
    pub fn check_reconfiguration(&self, that: &Self) -> Result<(), SpecError> {
        if that.hops.len() != self.hops.len() {
            return Err(SpecError::hops_fixed(self.hops.len(), that.hops.len()));
        }
        if that.seed != self.seed {
            return Err(SpecError::Impossible(format!(
                "the link's random draws come from seed {} for as long as it runs; start a new link \
                 for {}",
                self.seed.0, that.seed.0
            )));
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
    fn check(&self) -> Result<(), String> {
        check_rate(&self.rate)?;
        if let Some(bucket) = self.policer {
            check_bucket(bucket)?;
        }
        if self.overhead > 65_535 {
            return Err(format!(
                "an overhead of {} bytes a frame is more than a frame has; give at most 65535",
                self.overhead
            ));
        }
        check_queue(&self.queue)?;
        if self.rate == RateSpec::Unlimited && self.queue != QueueSpec::default() {
            let why = "the queue that is asked for would limit nothing: frames wait for a rate, and \
                       this direction has none; give it rate=, or leave queue= and limit= out";
            return Err(why.to_owned());
        }
        self.faults.iter().try_for_each(check_fault)?;
        check_delay(&self.delay.distribution)?;
        match self.mtu.map(|mtu| mtu.bytes) {
            Some(mtu) if !(MTU_MIN..=65_535).contains(&mtu) => Err(format!(
                "an MTU of {mtu} is not possible; IPv4 needs 68 (RFC 791), IPv6 1280 (RFC 8200), and \
                 65535 is the most"
            )),
            _ => Ok(()),
        }
    }
}

fn check_rate(rate: &RateSpec) -> Result<(), String> {
    match rate {
        RateSpec::Unlimited => Ok(()),
        RateSpec::Constant(rate) => check_bits(*rate),
        RateSpec::Bucket(bucket) => check_bucket(*bucket),
        RateSpec::OnOff { on: Span::ZERO, .. } => {
            Err("on= is zero, so that nothing is ever sent; give it a length".to_owned())
        }
        RateSpec::OnOff { rate, on, off } => {
            check_span(*on)?;
            check_span(*off)?;
            check_bits(*rate)
        }
        RateSpec::Trace(trace) => {
            let sends = trace.opportunities.iter().any(|here| here.bytes > 0);
            let fault = || {
                let file = &trace.file;
                format!(
                    "the trace '{file}' has nothing in it that could be sent; give it opportunities"
                )
            };
            (sends && trace.period > Span::ZERO).then_some(()).ok_or_else(fault)
        }
    }
}

fn check_bits(rate: Rate) -> Result<(), String> {
    if rate.bits_per_second() <= RATE_MAX_BPS {
        return Ok(());
    }
    Err(format!(
        "a rate of {rate} is too high; the fastest here is 1tbit: leave rate= out for no limit"
    ))
}

fn check_bucket(bucket: BucketSpec) -> Result<(), String> {
    if bucket.burst < FULL_FRAME {
        return Err(format!(
            "a burst of {} bytes is shorter than a full frame, which would never pass; make it at \
             least {FULL_FRAME} bytes",
            bucket.burst
        ));
    }
    check_bits(bucket.rate)
}

fn check_queue(queue: &QueueSpec) -> Result<(), String> {
    const FLOWS: RangeInclusive<u32> = 1..=65_536;
    /// Below it, a full frame takes so many turns that turns are all that is done.
    const QUANTUM_MIN: u32 = 64;
    /// Shorter, and updating is all that is done.
    const UPDATE_MIN: Span = Span::from_us(100);
    /// Shorter, and it is no average.
    const AVERAGE_MIN: Span = Span::from_ms(1);
    let limit = queue.limit();
    if matches!(limit, LimitSpec::Frames(0) | LimitSpec::Bytes(0) | LimitSpec::Bdp(0)) {
        return Err("a queue limited at zero drops everything; allow at least 1packet".to_owned());
    }
    let fault = match *queue {
        QueueSpec::Red { min, max, .. } | QueueSpec::RedPd { min, max, .. }
            if min == 0 || max <= min =>
        {
            "min= must be above 0 and below max="
        }
        QueueSpec::Red { p_max, .. } | QueueSpec::RedPd { p_max, .. }
            if !(p_max > 0.0 && p_max <= 1.0) =>
        {
            "p-max= must be above 0 and at most 1"
        }
        QueueSpec::CoDel { target: Span::ZERO, .. }
        | QueueSpec::FqCoDel { target: Span::ZERO, .. }
        | QueueSpec::Pie { target: Span::ZERO, .. } => "target= must be above 0",
        QueueSpec::CoDel { target, interval, .. } | QueueSpec::FqCoDel { target, interval, .. }
            if interval <= target =>
        {
            "interval= must be longer than target="
        }
        QueueSpec::Pie { update, .. } if update < UPDATE_MIN => "update= must be at least 100us",
        QueueSpec::Csfq { average, .. } if average < AVERAGE_MIN => "average= must be at least 1ms",
        QueueSpec::RedPd { rtt, .. } if rtt < AVERAGE_MIN => "rtt= must be at least 1ms",
        QueueSpec::FqCoDel { flows, .. }
        | QueueSpec::Drr { flows, .. }
        | QueueSpec::Csfq { flows, .. }
            if !FLOWS.contains(&flows) =>
        {
            "flows= must be from 1 to 65536"
        }
        QueueSpec::FqCoDel { quantum, .. } | QueueSpec::Drr { quantum, .. }
            if quantum < QUANTUM_MIN =>
        {
            "quantum= must be at least 64 bytes"
        }
        _ => return Ok(()),
    };
    Err(format!("the queue's {fault}"))
}

fn check_fault(fault: &FaultSpec) -> Result<(), String> {
    let share = |share: f64| {
        let is_one = (0.0..=1.0).contains(&share);
        is_one.then_some(()).ok_or(format!("{share} is not a share; give one between 0 and 1"))
    };
    let uncounted = || Err("frames are counted from 1; give numbers above 0".to_owned());
    match fault {
        FaultSpec::Loss(p)
        | FaultSpec::BitErrors(p)
        | FaultSpec::Duplicate(p)
        | FaultSpec::Corrupt(p)
        | FaultSpec::Truncate(p) => share(*p),
        FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
            [*p, *r, *loss_good, *loss_bad].into_iter().try_for_each(share)
        }
        FaultSpec::Periodic(0) => uncounted(),
        FaultSpec::Listed(numbers) if numbers.is_empty() || numbers.contains(&0) => uncounted(),
        FaultSpec::Reorder { share: p, by } => {
            share(*p)?;
            check_span(*by)
        }
        FaultSpec::Clog { every, lasting } | FaultSpec::Blackout { every, lasting } => {
            check_span(*every)?;
            if lasting < every {
                return Ok(());
            }
            let (lasting, every) = (format_span(*lasting), format_span(*every));
            Err(format!(
                "a window of {lasting} every {every} never ends; make it shorter than its distance"
            ))
        }
        FaultSpec::Periodic(_) | FaultSpec::Listed(_) | FaultSpec::Partition => Ok(()),
    }
}

fn check_delay(distribution: &DelayDistribution) -> Result<(), String> {
    let fault = match distribution {
        DelayDistribution::Uniform { min, max } if min > max => {
            "minimum exceeds its maximum; swap them"
        }
        DelayDistribution::Pareto { shape_thousandths, .. } if *shape_thousandths <= 1_000 => {
            "shape must be above 1, or there is no mean"
        }
        DelayDistribution::Replayed { delays, .. } if delays.is_empty() => {
            "file has no delay in it; give one a line"
        }
        DelayDistribution::Replayed { delays, .. } => {
            return delays.iter().copied().try_for_each(check_span);
        }
        DelayDistribution::Normal { mean, deviation } => {
            return check_span(*mean).and(check_span(*deviation));
        }
        DelayDistribution::Constant(longest)
        | DelayDistribution::Uniform { max: longest, .. }
        | DelayDistribution::Pareto { scale: longest, .. } => return check_span(*longest),
    };
    Err(format!("the delay's {fault}"))
}

fn check_span(span: Span) -> Result<(), String> {
    if span <= DELAY_MAX {
        return Ok(());
    }
    Err(format!("a delay of {} is longer than a day; shorten it", format_span(span)))
}
