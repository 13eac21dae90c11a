//! The factor `link`: what stands between two network namespaces.
//!
//! Left out: making it, which the worker does.

use plumb_host::harness::remote::outer_link;
use plumb_host::harness::spec::{PathSpec, Wire};
use plumb_store::record::{Factors, Level};

use super::Exclusion;
use super::factor::{Domain, Factor, always, keep, words};

/// What stands between the two sides.
pub(crate) const LINK: Factor = Factor {
    name: "link",
    meaning: "what stands between the two hosts; outer is the link that plumb itself runs behind",
    domain: Domain::Links,
    levels: |_| match outer_link() {
        Some(_) => words(&[OUTER]),
        None => words(&[LOOPBACK, VETH]),
    },
    applies: always,
    fit: keep,
};

/// No network: both sides on one host.
pub(crate) const LOOPBACK: &str = "loopback";
/// A virtual Ethernet, and nothing else.
pub(crate) const VETH: &str = "veth";
/// The link that plumb runs behind.
pub(crate) const OUTER: &str = "outer";

/// Reads a level of the factor.
///
/// # Errors
/// What it takes.
pub(crate) fn parse(text: &str) -> Result<Level, String> {
    match text {
        LOOPBACK | VETH | OUTER => Ok(text.into()),
        _ => Err(format!("it takes {}", describe())),
    }
}

/// What the factor takes, in words.
pub(crate) fn describe() -> String {
    format!("{LOOPBACK}, {VETH}, {OUTER}")
}

/// The path that a setting names; `None` where both sides are on one host.
pub(crate) fn of(factors: &Factors) -> Result<Option<PathSpec>, Exclusion> {
    let name = factors.text(LINK.name).unwrap_or(VETH);
    let wire = match name {
        LOOPBACK => return Ok(None),
        VETH => Wire::Veth,
        OUTER if outer_link().is_none() => {
            return Err(Exclusion::Lacking(
                "plumb does not run behind a link here: put it behind one with 'plumb link … -- \
                 plumb …', or choose another link"
                    .to_owned(),
            ));
        }
        OUTER => Wire::Outer,
        text => Wire::Link(text.to_owned()),
    };
    let name = name.to_owned();
    Ok(Some(PathSpec { name, wire, mtu: 1500, round_trip_ns: 0, rate: None }))
}
