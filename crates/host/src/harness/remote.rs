//! What stands between the two ends of a remote channel: two namespaces, and the network that the
//! launch asked for.
//!
//! The worker makes it, and holds it as long as the launch lasts. Left out: the channel's sockets,
//! which are opened as any others (`crate::local`), and how a link is emulated.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::spec::{PathSpec, Wire};
use crate::lab::{Far, LinkOptions, Namespace, TestBed, become_root};
use crate::local::ground::{Apart, Ground, lack};
use crate::local::{Attempt as _, OpenError};

/// Names the link that this process runs behind, where it does: its text.
pub const OUTER_LINK: &str = "PLUMB_LINK";
/// Names the namespace at that link's far side: a path.
pub const OUTER_FAR: &str = "PLUMB_LINK_FAR";
/// Names the addresses at that link's far side, in words apart.
pub const OUTER_ADDRESS: &str = "PLUMB_LINK_FAR_ADDR";

/// The text of the link that this process runs behind, if it runs behind one.
pub fn outer_link() -> Option<String> {
    std::env::var(OUTER_LINK).ok().filter(|text| !text.is_empty())
}

/// Two sides with a network between them, as long as this lives.
#[derive(Debug)]
pub(crate) struct Site {
    /// Where sockets are opened.
    pub(crate) ground: Ground,
    /// What is known of the network, for the record.
    pub(crate) facts: BTreeMap<String, String>,
    /// Devices that nobody else holds.
    bed: Option<TestBed>,
}

impl Site {
    /// On loopback: no network at all.
    pub(crate) fn loopback() -> Self {
        Self { ground: Ground::Loopback, facts: BTreeMap::new(), bed: None }
    }

    /// Makes the two sides that a path asks for.
    pub(crate) fn make(path: &PathSpec) -> Result<Self, OpenError> {
        let mut site = match &path.wire {
            Wire::Veth => Self::veth(path)?,
            Wire::Outer => Self::outer()?,
            Wire::Link(text) => {
                return Err(OpenError::Unavailable(format!(
                    "this version of plumb does not emulate links yet ({text})"
                )));
            }
        };
        site.facts.insert("mtu".to_owned(), path.mtu.to_string());
        Ok(site)
    }

    /// A virtual Ethernet.
    fn veth(path: &PathSpec) -> Result<Self, OpenError> {
        become_root().map_err(lack)?;
        let options = LinkOptions { mtu: path.mtu, ..LinkOptions::default() };
        let bed = TestBed::veth(Far::Answers, options).map_err(lack)?;
        let facts = BTreeMap::from([("link".to_owned(), "veth".to_owned())]);
        Ok(Self { ground: apart(&bed)?, facts, bed: Some(bed) })
    }

    /// The link that this process runs behind already.
    fn outer() -> Result<Self, OpenError> {
        let variable = |name: &str| -> Result<OsString, OpenError> {
            std::env::var_os(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                OpenError::Unavailable(format!(
                    "plumb does not run behind a link here ({name} is not set): put it behind one \
                     with 'plumb link … -- plumb …', or choose another link"
                ))
            })
        };
        let far = File::open(variable(OUTER_FAR)?).attempt("open the outer link's far side")?;
        let addresses = variable(OUTER_ADDRESS)?;
        let addresses = far_addresses(&addresses.to_string_lossy());
        let text = variable(OUTER_LINK)?.to_string_lossy().into_owned();
        let ground = Ground::Apart(Apart {
            near: None,
            far: Namespace::from(std::os::fd::OwnedFd::from(far)),
            far_v4: addresses.0,
            far_v6: addresses.1,
        });
        Ok(Self { ground, facts: BTreeMap::from([("link".to_owned(), text)]), bed: None })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The devices go after the sockets that use them.
        drop(self.bed.take());
    }
}

/// The two sides of a bed.
fn apart(bed: &TestBed) -> Result<Ground, OpenError> {
    let duplicate = |side: &Namespace| {
        use std::os::fd::AsFd as _;
        let fd = side.as_fd().try_clone_to_owned();
        fd.map(Namespace::from).attempt("duplicate a namespace's descriptor")
    };
    let missing = || OpenError::Unavailable("the test bed has no far side".to_owned());
    let far = duplicate(bed.b().ok_or_else(missing)?)?;
    let has_v6 = bed.addresses().any(|(_, far, _)| far.is_ipv6());
    Ok(Ground::Apart(Apart {
        near: Some(duplicate(bed.a())?),
        far,
        far_v4: Some(TestBed::FAR_V4),
        far_v6: has_v6.then_some(TestBed::FAR_V6),
    }))
}

/// The first address of each version among words.
fn far_addresses(words: &str) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let addresses = || {
        let words = words.split([' ', ',', ';']).filter(|word| !word.is_empty());
        words.filter_map(|word| word.parse::<IpAddr>().ok())
    };
    let v4 = addresses().find_map(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses().find_map(|address| match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    });
    (v4, v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_by_version_however_they_are_written() {
        let both = (Some(TestBed::FAR_V4), Some(TestBed::FAR_V6));
        assert_eq!(far_addresses("10.77.0.2 fd77::2"), both);
        assert_eq!(far_addresses("fd77::2,10.77.0.2"), both);
        assert_eq!(far_addresses("10.77.0.2"), (Some(TestBed::FAR_V4), None));
        assert_eq!(far_addresses("nowhere"), (None, None));
    }
}
