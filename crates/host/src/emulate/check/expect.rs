//! What one way through a link should do to a datagram, in closed form, and where there is none.
//!
//! Left out: queues, which the check's traffic keeps short; what was measured.

use plumb_base::time::Span;
use plumb_base::units::rate::Rate;
use plumb_link::queue::Limit;
use plumb_link::spec::{
    DelayDistribution, DirectionSpec, FaultSpec, LinkSpec, QueueSpec, RateSpec,
};

use super::traffic::HEADERS;

/// One way: the directions of its hops.
#[derive(Clone, Debug)]
pub struct Way<'a> {
    /// `up` or `down`.
    pub name: &'static str,
    /// In the order in which they are passed.
    pub hops: Vec<&'a DirectionSpec>,
    round_trip: Span,
}

/// The hop that is slowest for a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    /// Its rate in the long run.
    pub rate: Rate,
    /// Bytes that it sends at once, before the rate shows.
    pub burst: u64,
    /// What a frame costs it beyond its bytes.
    pub overhead: u32,
    /// How much may wait before it.
    pub limit: Limit,
    /// Bytes from which on its queue drops early, if it does so by length.
    pub early: Option<u64>,
}

/// What is lost of frames of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The share.
    pub share: f64,
    /// By how much more the count varies than if each were lost independently.
    pub inflation: f64,
}

impl<'a> Way<'a> {
    /// Both ways of a link: up, down.
    pub fn both(spec: &'a LinkSpec) -> [Self; 2] {
        let round_trip = spec.round_trip();
        let up = spec.hops.iter().map(|hop| &hop.up).collect();
        let down = spec.hops.iter().rev().map(|hop| &hop.down).collect();
        [("up", up), ("down", down)].map(|(name, hops)| Self { name, hops, round_trip })
    }

    /// Bytes of the longest payload that is not cut.
    pub fn longest_payload(&self) -> usize {
        let mtu = self.hops.iter().filter_map(|hop| hop.mtu).map(|mtu| mtu.bytes).min();
        let mtu = usize::try_from(mtu.unwrap_or(1_500).min(1_500)).expect("at most 1,500");
        mtu - (HEADERS - 14)
    }

    /// How long a frame is being sent, at all hops together.
    ///
    /// # Errors
    /// What makes that vary.
    pub fn serialisation(&self, payload: usize) -> Result<Span, &'static str> {
        let each = |hop: &&DirectionSpec| match &hop.rate {
            RateSpec::Unlimited | RateSpec::Bucket(_) => Ok(Span::ZERO),
            RateSpec::Constant(rate) => Ok(sending(*rate, wire_len(payload, hop.overhead))),
            RateSpec::OnOff { .. } => Err("its rate has pauses"),
            RateSpec::Trace(_) => Err("its rate follows a trace"),
        };
        self.hops.iter().map(each).try_fold(Span::ZERO, |sum, each| Ok(sum + each?))
    }

    /// The hop that limits how many such frames pass in a second.
    ///
    /// # Errors
    /// There is none, or none that a steady sender could see.
    pub fn bottleneck(&self, payload: usize) -> Result<Bottleneck, &'static str> {
        if self.hops.iter().any(|hop| hop.policer.is_some()) {
            return Err("a policer drops what a queue would need to be kept busy");
        }
        self.serialisation(payload)?;
        let limited = |hop: &&&DirectionSpec| hop.rate.mean().is_some();
        let time = |hop: &&&DirectionSpec| {
            hop.rate.mean().map(|rate| sending(rate, wire_len(payload, hop.overhead)))
        };
        let slowest = self.hops.iter().filter(limited).max_by_key(time);
        let hop = slowest.ok_or("its rate is not limited")?;
        Ok(Bottleneck {
            rate: hop.rate.mean().expect("only such hops were looked at"),
            burst: if let RateSpec::Bucket(bucket) = &hop.rate { bucket.burst } else { 0 },
            overhead: hop.overhead,
            limit: hop.limit(self.round_trip),
            early: if let QueueSpec::Red { min, .. } = hop.queue { Some(min) } else { None },
        })
    }

    /// The delays that are always the same, together, and the one that varies, if one does.
    ///
    /// # Errors
    /// What makes it more than that.
    pub fn delay(&self) -> Result<(Span, Option<&'a DelayDistribution>), &'static str> {
        let (mut constant, mut varying) = (Span::ZERO, None);
        for hop in &self.hops {
            match &hop.delay.distribution {
                DelayDistribution::Constant(delay) => constant += *delay,
                other if varying.is_none() => varying = Some(other),
                _ => return Err("the delays of several hops vary"),
            }
        }
        let clogs = |fault: &FaultSpec| matches!(fault, FaultSpec::Clog { .. });
        if self.faults().any(clogs) {
            return Err("it is clogged now and then");
        }
        Ok((constant, varying))
    }

    /// How far delays lie apart, about: frames that are sent farther apart than that do not hold
    /// each other up.
    pub fn spread(&self) -> Span {
        let spread = |hop: &&DirectionSpec| match &hop.delay.distribution {
            DelayDistribution::Constant(_) => Span::ZERO,
            DelayDistribution::Uniform { min, max } => max.saturating_sub(*min),
            DelayDistribution::Normal { deviation, .. } => *deviation * 5,
            other => other.mean() * 3,
        };
        self.hops.iter().map(spread).fold(Span::ZERO, |sum, spread| sum + spread)
    }

    /// Whether a delay that varies lets frames overtake each other.
    pub fn may_overtake(&self) -> bool {
        let overtakes = |hop: &&DirectionSpec| {
            hop.delay.may_overtake
                && !matches!(hop.delay.distribution, DelayDistribution::Constant(_))
        };
        self.hops.iter().any(overtakes)
    }

    /// The share of frames that go late by more than `apart`, for others to overtake them.
    pub fn reordered(&self, apart: Span) -> f64 {
        let stays = |fault: &FaultSpec| match fault {
            FaultSpec::Reorder { share, by } if *by > apart => 1.0 - share,
            _ => 1.0,
        };
        1.0 - self.faults().map(stays).product::<f64>()
    }

    /// What is lost of datagrams of this payload: what is damaged is, as its receiver does not take it.
    ///
    /// # Errors
    /// What makes that depend on the time or on the number of a frame.
    pub fn loss(&self, payload: usize) -> Result<Loss, &'static str> {
        let (mut kept, mut inflation) = (1.0, 1.0_f64);
        for fault in self.faults() {
            kept *= 1.0
                - match *fault {
                    FaultSpec::Loss(share)
                    | FaultSpec::Corrupt(share)
                    | FaultSpec::Truncate(share) => share,
                    FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
                        // The chain forgets by 1 − p − r a frame.
                        let memory = (1.0 - p - r).clamp(0.0, 0.999);
                        inflation = inflation.max((1.0 + memory) / (1.0 - memory));
                        if p + r <= 0.0 {
                            loss_good
                        } else {
                            (r * loss_good + p * loss_bad) / (p + r)
                        }
                    }
                    FaultSpec::Periodic(every) => 1.0 / every.max(1) as f64,
                    FaultSpec::BitErrors(rate) => {
                        let bits = 8.0 * (payload + HEADERS) as f64;
                        -f64::exp_m1(bits * f64::ln_1p(-rate))
                    }
                    FaultSpec::Partition => 1.0,
                    FaultSpec::Listed(_) => return Err("frames of certain numbers are lost"),
                    FaultSpec::Blackout { .. } => return Err("it is dark now and then"),
                    FaultSpec::Reorder { .. }
                    | FaultSpec::Duplicate(_)
                    | FaultSpec::Clog { .. } => 0.0,
                };
        }
        Ok(Loss { share: 1.0 - kept, inflation })
    }

    fn faults(&self) -> impl Iterator<Item = &'a FaultSpec> + '_ {
        self.hops.iter().flat_map(|hop| &hop.faults)
    }
}

/// Bytes that a rate is spent on for a datagram of this payload.
pub fn wire_len(payload: usize, overhead: u32) -> u64 {
    (payload + HEADERS) as u64 + u64::from(overhead)
}

/// How long so many bytes are being sent.
pub fn sending(rate: Rate, bytes: u64) -> Span {
    let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(rate.bits_per_second());
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> LinkSpec {
        text.parse().unwrap()
    }

    #[test]
    fn serialisation_and_delay_add_up_over_the_hops_of_each_way() {
        let spec =
            spec("rate=1mbit,delay=10ms|rate=8mbit,delay=1ms;rate=2mbit,overhead=58,delay=5ms");
        let [up, down] = Way::both(&spec);
        // 42 bytes of headers and 58 of payload: 800 µs at 1 Mb/s, and with 58 more 632 µs at 2.
        assert_eq!(up.serialisation(58), Ok(Span::from_us(800 + 632)));
        assert_eq!(down.serialisation(58), Ok(Span::from_us(100 + 632)));
        assert_eq!(up.delay(), Ok((Span::from_ms(15), None)));
        assert_eq!(down.delay(), Ok((Span::from_ms(6), None)));
        assert_eq!(up.bottleneck(58).unwrap().rate.bits_per_second(), 1_000_000);
        assert_eq!(down.bottleneck(58).unwrap().rate.bits_per_second(), 2_000_000);
    }

    #[test]
    fn loss_of_several_faults_is_what_none_of_them_spares() {
        let spec = spec("loss=10%,bit-errors=1e-4;gilbert-elliott=1%/9%");
        let loss = Way::both(&spec)[0].loss(58).unwrap();
        let expected = 1.0 - 0.9 * (1.0 - 1e-4_f64).powi(800) * 0.9;
        assert!((loss.share - expected).abs() < 1e-9, "{loss:?}");
        assert!((loss.inflation - 19.0).abs() < 1e-9, "1.9 / 0.1");
    }

    #[test]
    fn what_has_no_closed_form_says_so() {
        assert!(Way::both(&spec("delay=1ms"))[0].bottleneck(58).is_err());
        assert!(Way::both(&spec("delay=1ms..2ms;delay=1ms..2ms"))[0].delay().is_err());
    }
}
