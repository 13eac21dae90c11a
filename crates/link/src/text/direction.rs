//! One direction as text: `rate=10mbit,delay=25ms,loss=0.1%,queue=fq-codel,…`.
//!
//! What is given changes a direction and leaves the rest as it was, so that options come on top of a preset.

use std::fmt;

use plumb_base::time::Span;
use plumb_base::units::quantity::format_span;

use crate::spec::{
    BucketSpec, DelayDistribution, DelaySpec, DirectionSpec, HopMtuSpec, QueueSpec, RateSpec,
};
use crate::text::{LinkTextFiles, TextError, fault, queue, value};

/// The keys of all but faults.
const PLAIN_KEYS: [&str; 25] = [
    "rate",
    "burst",
    "on",
    "off",
    "overhead",
    "police",
    "delay",
    "jitter",
    "distribution",
    "shape",
    "overtake",
    "queue",
    "limit",
    "min",
    "max",
    "p-max",
    "ecn",
    "target",
    "interval",
    "flows",
    "quantum",
    "update",
    "average",
    "rtt",
    "mtu",
];

/// Every key, in the order of a help text.
pub fn keys() -> impl Iterator<Item = &'static str> {
    PLAIN_KEYS.into_iter().chain(fault::KEYS).chain(["faults"])
}

/// The values of a text by their keys, in the order in which they stand.
pub(super) struct KeyValues<'a> {
    pairs: Vec<(&'static str, &'a str)>,
}

impl<'a> KeyValues<'a> {
    pub fn read(text: &'a str) -> Result<Self, TextError> {
        let mut pairs: Vec<(&'static str, &'a str)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part.is_empty() || part == "plain" {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                return Err(TextError::says_nothing(part));
            };
            let key = known(key.trim())?;
            if !fault::KEYS.contains(&key) && pairs.iter().any(|(other, _)| *other == key) {
                return Err(TextError::Message(format!("'{key}' is given twice; give it once")));
            }
            pairs.push((key, value.trim()));
        }
        Ok(Self { pairs })
    }

    /// The value of a key.
    pub fn value_of(&self, key: &'static str) -> Option<&'a str> {
        self.pairs.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// The value of a key, parsed by `read`.
    pub fn parse_with<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&'static str, &str) -> Result<T, TextError>,
    ) -> Result<Option<T>, TextError> {
        self.value_of(key).map(|text| read(key, text)).transpose()
    }

    /// Keys and values in the order in which they stand.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'a str)> {
        self.pairs.iter().copied()
    }
}

impl DirectionSpec {
    /// The direction that a text describes.
    ///
    /// # Errors
    /// [`TextError`] says which part is wrong and what could have been written.
    pub fn parse(text: &str, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let mut direction = Self::default();
        direction.apply(text, files)?;
        Ok(direction)
    }

    /// Changes what a text gives, and nothing else.
    ///
    /// A fault replaces those of its kind; `faults=none` removes all.
    ///
    /// # Errors
    /// [`TextError`]; the direction is then unchanged.
    pub fn apply(&mut self, text: &str, files: &dyn LinkTextFiles) -> Result<(), TextError> {
        let given = KeyValues::read(text)?;
        let rate = apply_rate(&self.rate, &given, files)?;
        let delay = apply_delay(&self.delay, &given, files)?;
        // A queue goes with the rate that it is for.
        let goes = rate == RateSpec::Unlimited && self.rate != RateSpec::Unlimited;
        let queue = if goes { QueueSpec::default() } else { self.queue };
        let queue = queue::apply(queue, &given)?;
        let faults = fault::apply(&self.faults, &given)?;
        let overhead = given.parse_with("overhead", value::whole_number)?.unwrap_or(self.overhead);
        let policer = given.parse_with("police", policer)?.unwrap_or(self.policer);
        let mtu = given.parse_with("mtu", mtu)?.unwrap_or(self.mtu);
        *self = Self { rate, overhead, queue, policer, faults, delay, mtu };
        Ok(())
    }
}

impl fmt::Display for DirectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        write_rate(&self.rate, &mut parts);
        if self.overhead != 0 {
            parts.push(format!("overhead={}", self.overhead));
        }
        if self.rate != RateSpec::Unlimited || self.queue != QueueSpec::default() {
            queue::write(&self.queue, &mut parts);
        }
        if let Some(BucketSpec { rate, burst }) = self.policer {
            parts.push(format!("police={rate}/{}", value::format_bytes_value(burst)));
        }
        fault::write(&self.faults, &mut parts);
        write_delay(&self.delay, &mut parts);
        if let Some(HopMtuSpec { bytes, sends_icmp: tells }) = self.mtu {
            parts.push(format!("mtu={bytes}{}", if tells { "" } else { "/silent" }));
        }
        f.pad(&if parts.is_empty() { "plain".to_owned() } else { parts.join(",") })
    }
}

fn policer(key: &'static str, text: &str) -> Result<Option<BucketSpec>, TextError> {
    if text == "none" {
        return Ok(None);
    }
    let (rate, burst) = value::pair(key, text, "RATE/BYTES, as 10mbit/64KiB, or none")?;
    // A rate may have a slash of its own: 10Mb/s/64KiB.
    let (rate, burst) = match burst.split_once('/') {
        Some((unit, burst)) => (format!("{rate}/{unit}"), burst),
        None => (rate.to_owned(), burst),
    };
    Ok(Some(BucketSpec { rate: value::rate(key, &rate)?, burst: value::bytes(key, burst)? }))
}

fn mtu(key: &'static str, text: &str) -> Result<Option<HopMtuSpec>, TextError> {
    if text == "none" {
        return Ok(None);
    }
    let (bytes, tells) = match text.strip_suffix("/silent") {
        Some(bytes) => (bytes, false),
        None => (text, true),
    };
    let fail = |_| {
        value::invalid_value(
            key,
            text,
            "bytes of an IP packet: 1400; 1400/silent sends no ICMP error; or none",
        )
    };
    Ok(Some(HopMtuSpec { bytes: bytes.parse().map_err(fail)?, sends_icmp: tells }))
}

fn known(key: &str) -> Result<&'static str, TextError> {
    if let Some(known) = keys().find(|known| *known == key) {
        return Ok(known);
    }
    let close = keys().find(|known| known.starts_with(key) || key.starts_with(known));
    let hint = close.filter(|_| !key.is_empty()).map(|close| format!(" (did you mean {close}?)"));
    let (hint, keys) = (hint.unwrap_or_default(), keys().collect::<Vec<_>>().join(", "));
    Err(TextError::Message(format!("there is no '{key}' in a link{hint}; there are: {keys}")))
}

/// What stands before the name of a trace.
pub(super) const TRACE: &str = "trace:";

/// `old` with what is given.
fn apply_rate(
    old: &RateSpec,
    given: &KeyValues<'_>,
    files: &dyn LinkTextFiles,
) -> Result<RateSpec, TextError> {
    let burst = given.parse_with("burst", value::bytes)?;
    let on = given.parse_with("on", value::span)?;
    let off = given.parse_with("off", value::span)?;
    let base = match given.value_of("rate") {
        Some(text) => read_rate(text, files)?,
        None => old.clone(),
    };
    if burst.is_none() && on.is_none() && off.is_none() {
        return Ok(base);
    }
    let rate = match &base {
        RateSpec::Constant(rate) | RateSpec::OnOff { rate, .. } => *rate,
        RateSpec::Bucket(bucket) => bucket.rate,
        RateSpec::Unlimited | RateSpec::Trace(_) => {
            let key = if burst.is_some() { "burst" } else { "on" };
            return Err(TextError::conflict(key, "needs a rate beside it: rate=10mbit"));
        }
    };
    let (old_on, old_off) = match base {
        RateSpec::OnOff { on, off, .. } => (Some(on), Some(off)),
        _ => (None, None),
    };
    match (burst, on.or(old_on), off.or(old_off)) {
        (Some(burst), ..) if on.is_none() && off.is_none() => {
            Ok(RateSpec::Bucket(BucketSpec { rate, burst }))
        }
        (None, Some(on), Some(off)) => Ok(RateSpec::OnOff { rate, on, off }),
        (Some(_), ..) => Err(TextError::conflict(
            "burst",
            "cannot be combined with on= and off=; give one of them",
        )),
        (None, ..) => {
            let key = if on.is_some() { "on" } else { "off" };
            Err(TextError::conflict(key, "needs its other half: give both on= and off="))
        }
    }
}

fn read_rate(text: &str, files: &dyn LinkTextFiles) -> Result<RateSpec, TextError> {
    if matches!(text, "unlimited" | "none") {
        return Ok(RateSpec::Unlimited);
    }
    let Some(name) = text.strip_prefix(TRACE) else {
        return value::rate("rate", text).map(RateSpec::Constant);
    };
    Ok(RateSpec::Trace(files.trace(&value::unescape_file_name("rate", name)?)?))
}

/// Appends what [`apply_rate`] makes the same rate of.
fn write_rate(rate: &RateSpec, parts: &mut Vec<String>) {
    match rate {
        RateSpec::Unlimited => {}
        RateSpec::Constant(rate) => parts.push(format!("rate={rate}")),
        RateSpec::Bucket(BucketSpec { rate, burst }) => {
            parts.push(format!("rate={rate}"));
            parts.push(format!("burst={}", value::format_bytes_value(*burst)));
        }
        RateSpec::OnOff { rate, on, off } => {
            parts.push(format!("rate={rate}"));
            parts.push(format!("on={}", format_span(*on)));
            parts.push(format!("off={}", format_span(*off)));
        }
        RateSpec::Trace(trace) => {
            parts.push(format!("rate=trace:{}", value::escape_file_name(&trace.file)));
        }
    }
}

/// What stands before the name of a file of delays.
///
/// Jitter is uniform, ± so much around the delay; `distribution=normal` makes it a standard deviation, and
/// `distribution=pareto` takes the delay as the minimum, with `shape=`.
pub(super) const REPLAY: &str = "replay:";
const FORMS: &str = "uniform, normal or pareto";
const SHAPE: &str = "a number above 1 with up to three decimals: 2.5";
/// The shape of a Pareto distribution when none is given.
const SHAPE_THOUSANDTHS: u64 = 2_500;

/// `old` with what is given.
fn apply_delay(
    old: &DelaySpec,
    given: &KeyValues<'_>,
    files: &dyn LinkTextFiles,
) -> Result<DelaySpec, TextError> {
    let may_overtake = given.parse_with("overtake", value::yes_or_no)?.unwrap_or(old.may_overtake);
    let base = match given.value_of("delay") {
        Some(text) => read_delay(text, files)?,
        None => old.distribution.clone(),
    };
    let jitter = given.parse_with("jitter", value::span)?;
    let shape = given.parse_with("shape", |key, text| value::thousandths(key, text, SHAPE))?;
    let kind = match (given.value_of("distribution"), &base) {
        (Some(kind), _) => Some(kind),
        (None, DelayDistribution::Normal { .. }) => Some("normal"),
        (None, DelayDistribution::Pareto { .. }) => Some("pareto"),
        (None, _) if shape.is_some() => Some("pareto"),
        (None, _) => jitter.map(|_| "uniform"),
    };
    let distribution = match kind {
        None => base,
        Some(kind) => shaped(kind, &base, jitter, shape)?,
    };
    Ok(DelaySpec { distribution, may_overtake })
}

fn read_delay(text: &str, files: &dyn LinkTextFiles) -> Result<DelayDistribution, TextError> {
    if let Some(name) = text.strip_prefix(REPLAY) {
        let file = value::unescape_file_name("delay", name)?;
        let delays = files.delays(&file)?;
        return Ok(DelayDistribution::Replayed { file, delays });
    }
    if let Some((min, max)) = text.split_once("..") {
        let (min, max) = (value::span("delay", min)?, value::span("delay", max)?);
        if max < min {
            return Err(value::invalid_value("delay", text, "the shorter one first: 20ms..30ms"));
        }
        return Ok(DelayDistribution::Uniform { min, max });
    }
    value::span("delay", text).map(DelayDistribution::Constant)
}

/// A distribution of this kind around what `base` has.
fn shaped(
    kind: &str,
    base: &DelayDistribution,
    jitter: Option<Span>,
    shape: Option<u64>,
) -> Result<DelayDistribution, TextError> {
    let beside = |key, why| Err(TextError::conflict(key, why));
    let (centre, spread) = match base {
        DelayDistribution::Constant(delay) => (*delay, None),
        DelayDistribution::Uniform { min, max } => {
            let half = max.saturating_sub(*min) / 2;
            (*min + half, Some(half))
        }
        DelayDistribution::Normal { mean, deviation } => (*mean, Some(*deviation)),
        DelayDistribution::Pareto { scale, .. } => (*scale, None),
        DelayDistribution::Replayed { .. } => {
            return beside("jitter", "cannot be combined with replayed delays");
        }
    };
    if kind != "pareto" && shape.is_some() {
        return beside("shape", "belongs to distribution=pareto");
    }
    let spread = jitter.or(spread);
    match (kind, spread) {
        ("uniform" | "normal", None) => {
            beside("distribution", "needs jitter= beside it: delay=25ms,jitter=5ms")
        }
        ("uniform", Some(jitter)) if jitter > centre => beside(
            "jitter",
            "is longer than the delay, which would be negative; make it at most the delay",
        ),
        ("uniform", Some(jitter)) => {
            Ok(DelayDistribution::Uniform { min: centre - jitter, max: centre + jitter })
        }
        ("normal", Some(deviation)) => Ok(DelayDistribution::Normal { mean: centre, deviation }),
        ("pareto", _) if jitter.is_some() => beside(
            "jitter",
            "cannot be combined with distribution=pareto, which takes delay= as the least, and shape=",
        ),
        ("pareto", _) => {
            let old = match base {
                DelayDistribution::Pareto { shape_thousandths, .. } => *shape_thousandths,
                _ => SHAPE_THOUSANDTHS,
            };
            let shape_thousandths = shape.unwrap_or(old);
            Ok(DelayDistribution::Pareto { scale: centre, shape_thousandths })
        }
        _ => Err(value::invalid_value("distribution", kind, FORMS)),
    }
}

/// Appends what [`apply_delay`] makes the same delay of.
fn write_delay(delay: &DelaySpec, parts: &mut Vec<String>) {
    match &delay.distribution {
        DelayDistribution::Constant(Span::ZERO) => {}
        DelayDistribution::Constant(delay) => parts.push(format!("delay={}", format_span(*delay))),
        DelayDistribution::Uniform { min, max } => {
            parts.push(format!("delay={}..{}", format_span(*min), format_span(*max)));
        }
        DelayDistribution::Normal { mean, deviation } => {
            parts.push(format!("delay={}", format_span(*mean)));
            parts.push(format!("jitter={}", format_span(*deviation)));
            parts.push("distribution=normal".to_owned());
        }
        DelayDistribution::Pareto { scale, shape_thousandths } => {
            parts.push(format!("delay={}", format_span(*scale)));
            parts.push(format!("shape={}", value::format_thousandths(*shape_thousandths)));
            parts.push("distribution=pareto".to_owned());
        }
        DelayDistribution::Replayed { file, .. } => {
            parts.push(format!("delay=replay:{}", value::escape_file_name(file)));
        }
    }
    if delay.may_overtake {
        parts.push("overtake=yes".to_owned());
    }
}
