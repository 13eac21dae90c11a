//! One direction as text: `rate=10mbit,delay=25ms,loss=0.1%,queue=fq-codel,…`.
//!
//! What is given changes a direction and leaves the rest as it was, so that options come on top of a preset.
//! Left out: the values of single keys.

use std::fmt;

use super::{Files, TextError, delay, fault, queue, rate, value};
use crate::spec::{BucketSpec, DirectionSpec, MtuSpec, QueueSpec, RateSpec};

/// The keys of all but faults.
const PLAIN_KEYS: [&str; 23] = [
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
    "mtu",
];

/// Every key, in a line.
pub fn listed() -> String {
    keys().collect::<Vec<_>>().join(", ")
}

/// Every key, in the order of a help text.
pub fn keys() -> impl Iterator<Item = &'static str> {
    PLAIN_KEYS.into_iter().chain(fault::KEYS).chain(["faults"])
}

/// The values of a text by their keys, in the order in which they stand.
pub(super) struct Given<'a> {
    pairs: Vec<(&'static str, &'a str)>,
}

impl<'a> Given<'a> {
    pub fn read(text: &'a str) -> Result<Self, TextError> {
        let mut pairs: Vec<(&'static str, &'a str)> = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part.is_empty() || part == "plain" {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                return Err(TextError::Part { part: part.to_owned() });
            };
            let key = known(key.trim())?;
            if !fault::KEYS.contains(&key) && pairs.iter().any(|(other, _)| *other == key) {
                return Err(TextError::Twice { key });
            }
            pairs.push((key, value.trim()));
        }
        Ok(Self { pairs })
    }

    /// What a key is given as.
    pub fn of(&self, key: &'static str) -> Option<&'a str> {
        self.pairs.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// What a key is given as, read by `read`.
    pub fn read_with<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&'static str, &str) -> Result<T, TextError>,
    ) -> Result<Option<T>, TextError> {
        self.of(key).map(|text| read(key, text)).transpose()
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
    pub fn parse(text: &str, files: &dyn Files) -> Result<Self, TextError> {
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
    pub fn apply(&mut self, text: &str, files: &dyn Files) -> Result<(), TextError> {
        let given = Given::read(text)?;
        let rate = rate::apply(&self.rate, &given, files)?;
        let delay = delay::apply(&self.delay, &given, files)?;
        // A queue goes with the rate that it is for.
        let goes = rate == RateSpec::Unlimited && self.rate != RateSpec::Unlimited;
        let queue = if goes { QueueSpec::default() } else { self.queue };
        let queue = queue::apply(queue, &given)?;
        let faults = fault::apply(&self.faults, &given)?;
        let overhead = given.read_with("overhead", value::whole)?.unwrap_or(self.overhead);
        let policer = given.read_with("police", policer)?.unwrap_or(self.policer);
        let mtu = given.read_with("mtu", mtu)?.unwrap_or(self.mtu);
        *self = Self { rate, overhead, queue, policer, faults, delay, mtu };
        Ok(())
    }
}

impl fmt::Display for DirectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        rate::write(&self.rate, &mut parts);
        if self.overhead != 0 {
            parts.push(format!("overhead={}", self.overhead));
        }
        if self.rate != RateSpec::Unlimited || self.queue != QueueSpec::default() {
            queue::write(&self.queue, &mut parts);
        }
        if let Some(BucketSpec { rate, burst }) = self.policer {
            parts.push(format!("police={rate}/{}", value::written_bytes(burst)));
        }
        fault::write(&self.faults, &mut parts);
        delay::write(&self.delay, &mut parts);
        if let Some(MtuSpec { bytes, tells }) = self.mtu {
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

fn mtu(key: &'static str, text: &str) -> Result<Option<MtuSpec>, TextError> {
    if text == "none" {
        return Ok(None);
    }
    let (bytes, tells) = match text.strip_suffix("/silent") {
        Some(bytes) => (bytes, false),
        None => (text, true),
    };
    let fail = |_| {
        value::unusable(key, text, "bytes of an IP packet: 1400; 1400/silent tells nobody; or none")
    };
    Ok(Some(MtuSpec { bytes: bytes.parse().map_err(fail)?, tells }))
}

fn known(key: &str) -> Result<&'static str, TextError> {
    if let Some(known) = keys().find(|known| *known == key) {
        return Ok(known);
    }
    let close = keys().find(|known| known.starts_with(key) || key.starts_with(known));
    let hint = close.filter(|_| !key.is_empty()).map(|close| format!(" (did you mean {close}?)"));
    Err(TextError::Key { key: key.to_owned(), hint: hint.unwrap_or_default() })
}
