//! The factor `link`: what stands between two network namespaces, or between this host and another.

use std::fmt::Write as _;

use plumb_base::time::Span;
use plumb_base::units::quantity::parse_rate;
use plumb_harness::launch_network::emulator_process::DiskFiles;
use plumb_harness::spec::{DeviceOptions, PathKind, PathSpec};
use plumb_link::preset::{LinkPreset, PRESETS};
use plumb_link::spec::LinkSpec;
use plumb_store::record::{FactorLevel, Factors};

use super::PresetLevels::{Found, Words};
use super::{Factor, FactorDomain, LevelContext, LevelParser, words};
use crate::definition::{DesignPoint, Exclusion};
use crate::preset::RunPreset;
use crate::surroundings::Surroundings;

/// What stands between the two sides.
pub(crate) const LINK: Factor = Factor::new(
    "link",
    "what stands between the two hosts; outer is the link that plumb itself runs behind, host the host of --host",
    FactorDomain::Parsed(&LevelParser { parse, describe }),
    Found(|context| {
        outer_or(context, || match context.preset {
            RunPreset::Quick => &[LOOPBACK, VETH, "lan-1g"],
            RunPreset::Default => &[LOOPBACK, VETH, "lan-1g", "lan-100m"],
            RunPreset::Paper => {
                &[LOOPBACK, VETH, "lan-10g", "lan-1g", "lan-100m", "ethernet-10m", "transatlantic"]
            }
        })
    }),
);

/// The link that plumb runs behind, where there is one, and otherwise these.
pub(crate) fn outer_or(
    context: &LevelContext<'_>,
    others: impl FnOnce() -> &'static [&'static str],
) -> Vec<FactorLevel> {
    words(if context.surroundings.outer_link.is_some() { &[OUTER] } else { others() })
}

/// The rate of a link, in whatever words rates are written.
pub(crate) const RATE: Factor = Factor::new(
    "rate",
    "rate of the link",
    FactorDomain::Parsed(&LevelParser {
        parse: |text| match parse_rate(text) {
            Ok(_) => Ok(text.into()),
            Err(error) => Err(error.to_string()),
        },
        describe: || "a rate such as 100mbit".to_owned(),
    }),
    Words(&["100mbit"]),
);

/// No network: both sides on one host.
pub(crate) const LOOPBACK: &str = "loopback";
/// A virtual Ethernet, and nothing else.
pub(crate) const VETH: &str = "veth";
/// The link that plumb runs behind.
pub(crate) const OUTER: &str = "outer";
/// Another host, reached by `--host`.
pub(crate) const HOST: &str = "host";
/// Prefix of the level of a cell that was measured against one: its name follows.
const HOST_PREFIX: &str = "host:";
/// Prefix of the level of a cell that was measured over it: the link's text follows.
const OUTER_PREFIX: &str = "outer:";

/// The level of cells measured over the link that plumb runs behind: it says which one that was.
pub(crate) fn outer_level(surroundings: &Surroundings) -> FactorLevel {
    surroundings
        .outer_link
        .as_ref()
        .map_or_else(|| OUTER.into(), |text| format!("{OUTER_PREFIX} {text}").as_str().into())
}

/// The level of cells measured against the other host: it says which one that is.
pub(crate) fn host_level(surroundings: &Surroundings) -> FactorLevel {
    surroundings.other_host.as_ref().map_or_else(
        || HOST.into(),
        |host| format!("{HOST_PREFIX} {}", host.spec.name).as_str().into(),
    )
}

/// Whether a level of the factor is another host.
pub fn is_host_level(level: &str) -> bool {
    level == HOST || level.starts_with(HOST_PREFIX)
}

/// Whether a setting is measured against another host.
pub(crate) fn is_host(factors: &Factors) -> bool {
    factors.text(LINK.name).is_some_and(is_host_level)
}

/// Why something that is between two namespaces of one host is not measured when another host was asked for.
pub(crate) fn require_own_devices(
    surroundings: &Surroundings,
    what: &str,
) -> Result<(), Exclusion> {
    if !surroundings.is_host_requested {
        return Ok(());
    }
    Err(Exclusion::unavailable(format!(
        "plumb does not change the devices of real hosts: {what} on both, then run host.peak with the same --host, or \
         leave --host out to measure it over a virtual Ethernet"
    )))
}

/// Whether a cell is measured over that link.
pub(crate) fn is_outer(factors: &Factors) -> bool {
    factors.text(LINK.name).is_some_and(|link| link.starts_with(OUTER))
}

/// MTU of both hosts' devices unless an experiment says otherwise: Ethernet's (RFC 894).
pub(crate) const MTU: u32 = 1500;

/// Bytes of a small message's frame.
const SMALL_FRAME: u64 = 128;

/// Reads a level of the factor: a word, the name of a preset, or a link's text, which is kept in its
/// one form.
fn parse(text: &str) -> Result<FactorLevel, String> {
    if matches!(text, LOOPBACK | VETH | OUTER | HOST)
        || text.strip_prefix(HOST_PREFIX).is_some_and(|name| name.starts_with(' '))
        || text.strip_prefix(OUTER_PREFIX).is_some_and(|text| text.starts_with(' '))
        || LinkPreset::named(text).is_some()
    {
        return Ok(text.into());
    }
    match LinkSpec::parse(text, &DiskFiles) {
        Ok(spec) => Ok(spec.to_string().as_str().into()),
        Err(error) if text.contains('=') => Err(error.to_string()),
        Err(_) => Err(format!("it takes {}", describe())),
    }
}

fn describe() -> String {
    let mut all = format!("{LOOPBACK}, {VETH}, {OUTER}, {HOST}");
    for preset in &PRESETS {
        // Writing to a string cannot fail.
        let _ = write!(all, ", {}", preset.name);
    }
    all + ", or a link's text such as rate=10mbit,delay=25ms (one a --set)"
}

/// The path that a setting's link names; `None` where both sides are on one host.
pub(crate) fn path_of(point: &DesignPoint<'_>) -> Result<Option<PathSpec>, Exclusion> {
    match point.text(LINK.name).unwrap_or(VETH) {
        LOOPBACK => Ok(None),
        VETH => Ok(Some(path(VETH, PathKind::Veth))),
        outer if outer == OUTER || outer.starts_with(OUTER_PREFIX) => {
            let Some(text) = &point.surroundings.outer_link else {
                return Err(Exclusion::unavailable(
                    "plumb does not run behind a link here: put it behind one with 'plumb link … \
                     -- plumb …', or choose another link",
                ));
            };
            // A link that the text does not describe is unknown, and then no cell is left out.
            let expected = LinkSpec::parse(text, &DiskFiles).ok().map(|spec| expected(&spec));
            let (round_trip_ns, rate) = expected.unwrap_or_default();
            let path = path(OUTER, PathKind::Outer(text.clone()));
            Ok(Some(PathSpec { round_trip_ns, rate, ..path }))
        }
        host if is_host_level(host) => {
            let Some(host) = &point.surroundings.other_host else {
                return Err(Exclusion::unavailable(
                    "no other host was named: name it with --host user@host, or choose another link",
                ));
            };
            let path = path(HOST, PathKind::Host(host.spec.clone()));
            Ok(Some(PathSpec { round_trip_ns: host.round_trip.as_ns(), ..path }))
        }
        name => path_over_link(name, name, MTU).map(Some),
    }
}

/// A path of Ethernet's MTU that adds no delay and has no rate of its own.
pub(crate) fn path(name: &str, kind: PathKind) -> PathSpec {
    PathSpec {
        name: name.to_owned(),
        kind,
        mtu: MTU,
        round_trip_ns: 0,
        rate: None,
        device: DeviceOptions::default(),
    }
}

/// The path over a link of this text.
pub(crate) fn path_over_link(name: &str, text: &str, mtu: u32) -> Result<PathSpec, Exclusion> {
    let spec = LinkSpec::parse(text, &DiskFiles)
        .map_err(|error| Exclusion::impossible(format!("'{text}' is not a link: {error}")))?;
    let (round_trip_ns, rate) = expected(&spec);
    Ok(PathSpec { mtu, round_trip_ns, rate, ..path(name, PathKind::Link(spec.to_string())) })
}

/// About how long a small message and its answer take, in nanoseconds, and the slowest rate.
fn expected(spec: &LinkSpec) -> (u64, Option<u64>) {
    let mut round_trip = spec.round_trip();
    let mut slowest: Option<u64> = None;
    for direction in spec.hops.iter().flat_map(|hop| [&hop.up, &hop.down]) {
        let Some(rate) = direction.rate.mean() else { continue };
        let rate = rate.bits_per_second();
        round_trip += Span::from_ns(SMALL_FRAME * 8 * 1_000_000_000 / rate.max(1));
        slowest = Some(slowest.map_or(rate, |least| least.min(rate)));
    }
    (round_trip.as_ns(), slowest)
}

#[cfg(test)]
mod tests {
    use plumb_analysis::ladder::METROPOLITAN;

    use super::*;
    use crate::scaling::scaling_http::LOSSY;

    #[test]
    fn a_link_is_a_word_a_preset_or_a_text_in_its_one_form() {
        for text in
            [VETH, LOOPBACK, OUTER, HOST, "host: me@b", "arpanet", "lan-1g", METROPOLITAN, LOSSY]
        {
            assert_eq!(parse(text), Ok(text.into()));
        }
        assert_eq!(
            parse("delay=25ms,rate=10000kbit"),
            Ok("rate=10mbit,queue=drop-tail,limit=1bdp,delay=25ms".into())
        );
        assert!(parse("rate=0").unwrap_err().contains("rate"), "{:?}", parse("rate=0"));
        assert!(parse("arpanot").unwrap_err().contains("arpanet"));
    }

    #[test]
    fn what_a_message_will_take_is_known_from_the_link() {
        let path = path_over_link("dsl", "rate=1mbit,delay=10ms", MTU).unwrap();
        // 20 ms of delay, 2 × 1.024 ms for the small frame, 8 ms for a thousand bytes.
        assert_eq!(path.exchange_ns(1_000, 0), 20_000_000 + 2 * 1_024_000 + 8_000_000);
        assert_eq!(path.rate, Some(1_000_000));
    }
}
