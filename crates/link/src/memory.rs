//! How much memory the frames inside a link may need, before there is one.
//!
//! An estimate from above for frames of one length; short frames may need more, and what then finds no memory is
//! a counted loss. Where the rate is limited, it limits what is under way, and all of that must fit. Where it is
//! not, senders' windows do: room for many of those is wanted, and little of it is needed for a link to
//! begin.

use plumb_base::time::Span;
use plumb_base::units::Rate;

use crate::spec::{
    DelayDistribution, DirectionSpec, FaultSpec, LinkSpec, QueueLimit, QueueSpec, RateSpec,
    SpecError,
};

/// What a direction without a rate is taken to carry: ten gigabits a second, more than one core does.
pub const UNLIMITED: u64 = 10_000_000_000;

/// Bytes under way that a direction without a rate is given room for at most: twenty connections of TCP with the
/// largest window that Linux gives them (6 MiB, tcp_rmem) have no more.
pub const UNLIMITED_FLIGHT_MAX: u64 = 128 << 20;

/// Frames under way that it cannot do without.
const UNLIMITED_FLIGHT_MIN: u64 = 2_048;

/// Memory that frames inside a link may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Frames at once that there must be room for.
    pub frames: u64,
    /// Frames at once that there should be room for: more than `frames` where a rate is not limited.
    pub wanted: u64,
    /// Bytes of the memory that `frames` lie in.
    pub bytes: u64,
}

/// Memory that a network has for its frames while it runs: what it becomes must do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAllowance {
    /// Bytes of the longest frame.
    pub frame_len: u32,
    /// Bytes of memory that each lies in.
    pub frame_size: u32,
    /// Bytes in all, of one line.
    pub bytes: u64,
}

impl MemoryAllowance {
    /// Whether it is enough for a link.
    ///
    /// # Errors
    /// [`SpecError::Memory`] with the estimate.
    pub fn check(&self, spec: &LinkSpec) -> Result<(), SpecError> {
        spec.check_memory(self.frame_len, self.frame_size, self.bytes)
    }
}

impl LinkSpec {
    /// What frames of `frame_len` bytes may need, each in `frame_size` bytes of memory.
    pub fn memory_need(&self, frame_len: u32, frame_size: u32) -> MemoryNeed {
        let round_trip = self.round_trip();
        let directions = self.directions();
        let (frames, wanted) = directions
            .map(|(direction, ..)| direction.most_frames(frame_len, round_trip))
            .fold((0_u64, 0_u64), |sum, one| {
                (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
            });
        MemoryNeed { frames, wanted, bytes: frames.saturating_mul(frame_size.into()) }
    }

    /// Whether that is no more than `allowed` bytes.
    ///
    /// # Errors
    /// [`SpecError::Memory`] with the estimate.
    pub fn check_memory(
        &self,
        frame_len: u32,
        frame_size: u32,
        allowed: u64,
    ) -> Result<(), SpecError> {
        let need = self.memory_need(frame_len, frame_size);
        if need.bytes <= allowed {
            return Ok(());
        }
        let words = |bytes: u64| match bytes {
            0..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
            _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        };
        Err(SpecError::Memory { needed: words(need.bytes), allowed: words(allowed) })
    }
}

impl DirectionSpec {
    /// Packets of this length that may travel at once, and wait before that, on a path with this round trip; short ones may be more.
    pub fn packets_max(&self, len: u32, round_trip: Span) -> (u64, u64) {
        let (_, all) = self.most_frames(len, round_trip);
        let cost = u64::from(len.saturating_add(self.overhead).max(1));
        let waiting = match (self.limit(round_trip), &self.rate) {
            (_, RateSpec::Unlimited) => 0,
            (QueueLimit::Frames(frames), _) => frames,
            (QueueLimit::Bytes(bytes), _) => bytes.div_ceil(cost),
        };
        (all.saturating_sub(waiting), waiting)
    }

    /// What it must have room for, and what it should.
    fn most_frames(&self, frame_len: u32, round_trip: Span) -> (u64, u64) {
        let cost = u64::from(frame_len.saturating_add(self.overhead).max(1));
        let bands = if matches!(self.queue, QueueSpec::Priority { .. }) { 3 } else { 1 };
        let waiting = match (self.limit(round_trip), &self.rate) {
            (_, RateSpec::Unlimited) => 0,
            (QueueLimit::Frames(frames), _) => frames,
            (QueueLimit::Bytes(bytes), _) => bytes.div_ceil(cost),
        };
        let peak = match &self.rate {
            RateSpec::OnOff { rate, .. } => *rate,
            rate => rate.mean().or(Rate::from_bits_per_second(UNLIMITED)).expect("not zero"),
        };
        let bits = u128::from(peak.bits_per_second()) * u128::from(self.longest_flight().as_ps());
        let flying = bits / u128::from(crate::rate::SECOND) / (u128::from(cost) * 8);
        let copies =
            self.faults.iter().filter(|fault| matches!(fault, FaultSpec::Duplicate(_))).count();
        let flying = u64::try_from(flying).unwrap_or(u64::MAX);
        let (least, most) = match &self.rate {
            RateSpec::Unlimited => {
                let most = flying.min(UNLIMITED_FLIGHT_MAX / cost);
                (most.min(UNLIMITED_FLIGHT_MIN), most)
            }
            _ => (flying, flying),
        };
        let all = |flying: u64| {
            let flying = flying.saturating_mul(1 << copies.min(16));
            waiting.saturating_mul(bands).saturating_add(flying).saturating_add(2)
        };
        (all(least), all(most))
    }

    /// From a frame's last bit until it leaves, all but one in ten thousand.
    pub fn longest_flight(&self) -> Span {
        let delay = match &self.delay.distribution {
            DelayDistribution::Constant(delay) => *delay,
            DelayDistribution::Uniform { max, .. } => *max,
            DelayDistribution::Normal { mean, deviation } => *mean + *deviation * 4,
            DelayDistribution::Pareto { scale, shape_thousandths } => {
                // P(X > x) = (scale / x)^shape.
                let stretch = 1e4_f64.powf(1e3 / *shape_thousandths as f64);
                Span::from_secs_f64(scale.as_secs_f64() * stretch)
            }
            DelayDistribution::Replayed { delays, .. } => {
                delays.iter().max().copied().unwrap_or_default()
            }
        };
        let held = self.faults.iter().map(|fault| match fault {
            FaultSpec::Reorder { by, .. } => *by,
            FaultSpec::Clog { lasting, .. } => *lasting,
            _ => Span::ZERO,
        });
        held.fold(delay, |sum, held| sum + held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(text: &str) -> u64 {
        text.parse::<LinkSpec>().expect("a link").memory_need(1_514, 2_048).frames
    }

    #[test]
    fn a_link_needs_its_queue_and_its_product_of_rate_and_delay_both_ways() {
        // 10 Mb/s × 121.12 ms are 100 frames in flight; 64 wait; 2 are between.
        assert_eq!(need("rate=10mbit,delay=121.12ms,limit=64packets"), 2 * (100 + 64 + 2));
        assert_eq!(
            need("rate=10mbit,delay=121.12ms"),
            2 * (100 + 200 + 2),
            "one product both ways"
        );
        assert_eq!(need("rate=10mbit,queue=priority,limit=10packets"), 2 * (30 + 2));
    }

    #[test]
    fn without_a_rate_ten_gigabits_a_second_have_room_up_to_the_windows_of_many_and_little_must() {
        let both = |text: &str| text.parse::<LinkSpec>().expect("a link").memory_need(1_250, 2_048);
        // 10 Gb/s × 1 ms are 1,000 frames of 1,250 bytes.
        assert_eq!((both("delay=1ms").wanted, both("delay=1ms").frames), (2 * 1_002, 2 * 1_002));
        assert_eq!(both("delay=30ms").wanted, 2 * 30_002);
        let most = UNLIMITED_FLIGHT_MAX / 1_250 + 2;
        for delay in ["1s", "60s", "1h"] {
            let need = both(&format!("delay={delay}"));
            assert_eq!((need.wanted, need.frames), (2 * most, 2 * (UNLIMITED_FLIGHT_MIN + 2)));
        }
        let limited = both("rate=10gbit,delay=30ms");
        assert_eq!(limited.wanted, limited.frames, "a rate that is asked for must be had");
    }

    #[test]
    fn what_will_not_fit_is_refused_with_the_estimate() {
        let spec: LinkSpec = "rate=1tbit,delay=1s".parse().expect("a link");
        let error = spec.check_memory(1_514, 2_048, 1 << 30).expect_err("too much").to_string();
        assert!(error.contains("1.0 GiB is allowed") && error.contains("lower"), "{error}");
        let modest: LinkSpec = "rate=100mbit,delay=100ms".parse().expect("a link");
        assert_eq!(modest.check_memory(1_514, 2_048, 1 << 30), Ok(()));
    }
}
