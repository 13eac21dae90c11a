//! What stands between the two ends of a remote channel: two namespaces, and the network that the
//! launch asked for; or the way to another host.
//!
//! The worker makes it, and holds it as long as the launch lasts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use plumb_netdev::lab::{
    EthtoolOffload, FarEndMode, NetNamespace, RouterChain, TestBed, TestBedOptions, become_root,
    set_sysctl,
};

use crate::channel::{
    ChannelSetup, EndpointLocation, IoResultExt as _, NamespacePair, RemoteOpener, unavailable,
};
use crate::report::{BlockReport, LaunchFault};
use crate::spec::{DeviceOptions, HostSpec, LaunchSpec, PathKind, PathSpec, RemoteSpec};
use crate::supervisor::client::{SharedSupervisor, SupervisorClient};

pub mod emulator_process;
pub(super) mod path_probe;

use emulator_process::{EmulationCounters, EmulatorProcess};

/// Names the link that this process runs behind, where it does: its text.
pub const OUTER_LINK_ENV: &str = "PLUMB_LINK";
/// Names the namespace at that link's far side: a path.
pub const OUTER_FAR_NAMESPACE_ENV: &str = "PLUMB_LINK_FAR";
/// Names the addresses at that link's far side, in words apart.
pub const OUTER_FAR_ADDRESSES_ENV: &str = "PLUMB_LINK_FAR_ADDR";

/// Names the socket at which that link answers questions about itself: a path.
pub const OUTER_CONTROL_ENV: &str = "PLUMB_LINK_CONTROL";

/// The text of the link that this process runs behind, as it began, if it runs behind one that can be measured: one
/// whose far side is told too. On a host of a lab there is none, as there any other host may be it.
pub fn outer_link() -> Option<String> {
    outer_link_of(|name| std::env::var(name).ok())
}

fn outer_link_of(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let told = |name: &str| variable(name).filter(|value| !value.is_empty());
    told(OUTER_FAR_NAMESPACE_ENV).and(told(OUTER_FAR_ADDRESSES_ENV)).and(told(OUTER_LINK_ENV))
}

/// Bytes that a receiver may use however small its window is: the kernel's own default for other
/// sockets.
const RECEIVE_MOST_MIN: u64 = 256 << 10;

/// Two sides with a network between them, as long as this lives; loopback by default.
#[derive(Debug, Default)]
pub(crate) struct LaunchNetwork {
    /// Where sockets are opened.
    pub(crate) location: EndpointLocation,
    /// The other host, where the far end is on one.
    pub(crate) remote_host: Option<RemotePeerHost>,
    /// What is known about the network, for the record.
    pub(crate) facts: BTreeMap<String, String>,
    /// Devices that nobody else holds.
    #[expect(dead_code, reason = "held, not read")]
    bed: Option<TestBed>,
    /// Hosts and routers, which would be gone with their last descriptor.
    chain: Option<RouterChain>,
    /// The process that is the link.
    emulation: Option<EmulatorProcess>,
    counters_before: EmulationCounters,
}

impl LaunchNetwork {
    fn at(location: EndpointLocation, link: impl Into<String>) -> Self {
        let facts = BTreeMap::from([("link".to_owned(), link.into())]);
        Self { location, facts, ..Self::default() }
    }

    /// Makes the two sides that a remote channel asks for; a link runs on the CPUs given.
    pub(crate) fn for_channel(
        remote: &RemoteSpec,
        launch: &LaunchSpec,
        cpus: &[u32],
    ) -> Result<Self, LaunchFault> {
        let site = Self::for_path(&remote.path, launch, cpus)?;
        if let Some(window) = remote.channel.options.window {
            site.open_windows(window)?;
        }
        Ok(site)
    }

    /// Makes two sides with this between them; a link runs on the CPUs given.
    pub(crate) fn for_path(
        path: &PathSpec,
        launch: &LaunchSpec,
        cpus: &[u32],
    ) -> Result<Self, LaunchFault> {
        let mut site = match &path.kind {
            PathKind::Veth => Self::veth(path)?,
            PathKind::Outer(text) => Self::outer(text)?,
            PathKind::Link(text) => Self::link(text, path, launch, cpus)?,
            PathKind::Routers(routers) => Self::routers(*routers, path)?,
            PathKind::NarrowRouters(mtu) => {
                let site = Self::routers(2, path)?;
                let narrowed = site.chain.as_ref().map(|chain| chain.narrow_middle(*mtu));
                narrowed.transpose().map_err(unavailable)?;
                site
            }
            // Its devices are as they are.
            PathKind::Host(host) => return Self::host(host, launch),
        };
        site.facts.insert("mtu".to_owned(), path.mtu.to_string());
        Ok(site)
    }

    /// Packets that the near device has received; none where it is not this site's own.
    pub(crate) fn packets_received(&self) -> Option<u64> {
        let device = self.sides().next()?.netlink().ok()?.interface(TestBed::NEAR_DEVICE).ok()?;
        Some(device.stats.rx_packets)
    }

    /// An emulated link.
    fn link(
        text: &str,
        path: &PathSpec,
        launch: &LaunchSpec,
        cpus: &[u32],
    ) -> Result<Self, LaunchFault> {
        become_root().map_err(unavailable)?;
        let mut emulation = EmulatorProcess::start(text, path, launch, cpus)?;
        let (Some(near), Some(far)) = (emulation.near.take(), emulation.far.take()) else {
            return Err(LaunchFault::Unavailable("the link has no two sides".to_owned()));
        };
        let ground = EndpointLocation::Namespaces(NamespacePair {
            near: Some(near),
            far,
            far_v4: Some(TestBed::FAR_V4),
            far_v6: emulation.has_v6.then_some(TestBed::FAR_V6),
        });
        Ok(Self { emulation: Some(emulation), ..Self::at(ground, text) })
    }

    /// Both namespaces, where both are this launch's own.
    fn sides(&self) -> impl Iterator<Item = &NetNamespace> {
        let sides = match &self.location {
            EndpointLocation::Namespaces(NamespacePair { near: Some(near), far, .. }) => {
                Some([near, far])
            }
            _ => None,
        };
        sides.into_iter().flatten()
    }

    /// Lets TCP use windows of this size on both sides, and keeps little unsent: what waits at a
    /// sender is none of a window's.
    ///
    /// The most that a receiver may ever use decides in what steps it tells its window, and what it
    /// tells is rounded up: no more than needed, so that a small window is told in small steps.
    fn open_windows(&self, window: u64) -> Result<(), LaunchFault> {
        let most = window.saturating_mul(2).max(RECEIVE_MOST_MIN);
        for side in self.sides() {
            for (name, value) in [
                ("ipv4/tcp_rmem", format!("4096 131072 {most}")),
                ("ipv4/tcp_wmem", "4096 131072 268435456".to_owned()),
                ("ipv4/tcp_notsent_lowat", "131072".to_owned()),
            ] {
                set_sysctl(side, name, &value).map_err(unavailable)?;
            }
        }
        Ok(())
    }

    /// Has TCP learn nothing from connections that are over: what one lost is none of the next one's.
    pub(crate) fn forget_connections(&self) -> Result<(), LaunchFault> {
        for side in self.sides() {
            set_sysctl(side, "ipv4/tcp_no_metrics_save", "1").map_err(unavailable)?;
        }
        Ok(())
    }

    /// Adds to a block's report what the link did not do as it should have since the last.
    pub(crate) fn add_counters(&mut self, report: &mut BlockReport) {
        let Some(account) = self.emulation.as_mut().and_then(EmulatorProcess::counters) else {
            return;
        };
        let since = account.since(std::mem::replace(&mut self.counters_before, account));
        report.counters.insert("link_frames".to_owned(), since.frames);
        if since.late > 0 {
            report.counters.insert("link_late".to_owned(), since.late);
        }
        if since.lost > 0 {
            report.counters.insert("link_overrun".to_owned(), since.lost);
        }
        // One frame in a thousand late is what this clock and this scheduler do.
        if since.late > since.frames / 1_000 || since.lost > 0 {
            report.flags.push("link-late".to_owned());
        }
    }

    /// A virtual Ethernet.
    fn veth(path: &PathSpec) -> Result<Self, LaunchFault> {
        become_root().map_err(unavailable)?;
        let options = TestBedOptions { mtu: path.mtu, ..TestBedOptions::default() };
        let bed = TestBed::veth(FarEndMode::Answers, options).map_err(unavailable)?;
        set_device(&bed, path.device)?;
        let ground = namespaces_of(&bed)?;
        Ok(Self { bed: Some(bed), ..Self::at(ground, "veth") })
    }

    /// Linux's routers in a row.
    fn routers(routers: u8, path: &PathSpec) -> Result<Self, LaunchFault> {
        become_root().map_err(unavailable)?;
        let options = TestBedOptions { mtu: path.mtu, ..TestBedOptions::default() };
        let chain = RouterChain::new(routers, options).map_err(unavailable)?;
        let (far_v4, far_v6) = chain.far_addresses();
        let ground = EndpointLocation::Namespaces(NamespacePair {
            near: Some(chain.near().try_clone().map_err(unavailable)?),
            far: chain.far().try_clone().map_err(unavailable)?,
            far_v4: Some(far_v4),
            far_v6,
        });
        let link = format!("{routers} of Linux's routers");
        Ok(Self { chain: Some(chain), ..Self::at(ground, link) })
    }

    /// Another host, where a supervisor is started for this launch.
    fn host(spec: &HostSpec, launch: &LaunchSpec) -> Result<Self, LaunchFault> {
        let reached = SupervisorClient::connect(spec)
            .map_err(|error| LaunchFault::failed("reach the other host", error))?;
        let supervisor = SharedSupervisor::new(reached);
        let host = RemotePeerHost { supervisor, spec: spec.clone(), launch: launch.clone() };
        let location = EndpointLocation::RemoteHost(Box::new(host.clone()));
        let link = format!("host: {}", spec.name);
        Ok(Self { remote_host: Some(host), ..Self::at(location, link) })
    }

    /// The link that this process runs behind already, which is this one now.
    fn outer(text: &str) -> Result<Self, LaunchFault> {
        let variable = |name: &str| -> Result<OsString, LaunchFault> {
            std::env::var_os(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                LaunchFault::Unavailable(format!(
                    "plumb does not run behind a link here ({name} is not set): put it behind one \
                     with 'plumb link … -- plumb …', or choose another link"
                ))
            })
        };
        let far = File::open(variable(OUTER_FAR_NAMESPACE_ENV)?)
            .attempt("open the outer link's far side")?;
        let addresses = variable(OUTER_FAR_ADDRESSES_ENV)?;
        let addresses = far_addresses(&addresses.to_string_lossy());
        let ground = EndpointLocation::Namespaces(NamespacePair {
            near: None,
            far: NetNamespace::from(OwnedFd::from(far)),
            far_v4: addresses.0,
            far_v6: addresses.1,
        });
        Ok(Self::at(ground, text))
    }
}

/// Another host, where a supervisor opens what the peer is given.
#[derive(Clone, Debug)]
pub(crate) struct RemotePeerHost {
    pub(crate) supervisor: SharedSupervisor,
    spec: HostSpec,
    /// The launch that the peer is for.
    launch: LaunchSpec,
}

impl RemotePeerHost {
    /// Its address of any version, the older first.
    pub(crate) fn any_address(&self) -> Result<SocketAddr, LaunchFault> {
        self.address(false).or_else(|_| self.address(true))
    }
}

impl RemoteOpener for RemotePeerHost {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn address(&self, ipv6: bool) -> Result<SocketAddr, LaunchFault> {
        let address = if ipv6 { self.spec.v6 } else { self.spec.v4 };
        address.ok_or_else(|| {
            let (version, name) = (if ipv6 { 6 } else { 4 }, &self.spec.name);
            LaunchFault::Unavailable(format!("{name} is not reached over IPv{version} from here"))
        })
    }

    fn open(&self, setup: &ChannelSetup<'_>, ipv6: bool) -> Result<OwnedFd, LaunchFault> {
        let at = self.address(ipv6)?;
        self.supervisor.lock().open_channel(setup, at, &self.launch)
    }
}

/// Has both devices of a bed do by themselves what they shall.
fn set_device(bed: &TestBed, device: DeviceOptions) -> Result<(), LaunchFault> {
    let cuts = device.segmentation.map(|on| [(EthtoolOffload::Tso, on), (EthtoolOffload::Gso, on)]);
    let joins = device.coalescing.map(|on| (EthtoolOffload::Gro, on));
    let wanted: Vec<(EthtoolOffload, bool)> = cuts.into_iter().flatten().chain(joins).collect();
    let near = (Some(bed.near()), TestBed::NEAR_DEVICE);
    for (side, name) in [near, (bed.far(), TestBed::FAR_DEVICE)] {
        let Some(side) = side else { continue };
        side.set_offloads(name, &wanted).map_err(unavailable)?;
        if let Some(ns) = device.interrupt_delay_ns {
            side.set_interrupt_delay(name, ns).map_err(unavailable)?;
        }
    }
    Ok(())
}

/// The two sides of a bed.
fn namespaces_of(bed: &TestBed) -> Result<EndpointLocation, LaunchFault> {
    let missing = || LaunchFault::Unavailable("the test bed has no far side".to_owned());
    let far = bed.far().ok_or_else(missing)?.try_clone().map_err(unavailable)?;
    let has_v6 = bed.addresses().any(|(_, far, _)| far.is_ipv6());
    Ok(EndpointLocation::Namespaces(NamespacePair {
        near: Some(bed.near().try_clone().map_err(unavailable)?),
        far,
        far_v4: Some(TestBed::FAR_V4),
        far_v6: has_v6.then_some(TestBed::FAR_V6),
    }))
}

/// The first address of each version among words.
fn far_addresses(words: &str) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let words = words.split([' ', ',', ';']);
    let addresses: Vec<IpAddr> = words.filter_map(|word| word.parse().ok()).collect();
    let v4 = addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.iter().find_map(|address| match address {
        IpAddr::V6(address) => Some(*address),
        IpAddr::V4(_) => None,
    });
    (v4, v6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_a_far_side_cannot_be_measured() {
        let all = [OUTER_LINK_ENV, OUTER_FAR_NAMESPACE_ENV, OUTER_FAR_ADDRESSES_ENV];
        let without = |absent: &str| {
            outer_link_of(|name| {
                Some(if name == absent { String::new() } else { format!("of {name}") })
            })
        };
        assert_eq!(without("nothing"), Some(format!("of {OUTER_LINK_ENV}")));
        assert!(all.into_iter().all(|absent| without(absent).is_none()));
    }

    #[test]
    fn far_addresses_are_told_apart_by_version() {
        let both = (Some(TestBed::FAR_V4), Some(TestBed::FAR_V6));
        assert_eq!(far_addresses("10.77.0.2 fd77::2"), both);
        assert_eq!(far_addresses("fd77::2,10.77.0.2"), both);
        assert_eq!(far_addresses("10.77.0.2"), (Some(TestBed::FAR_V4), None));
        assert_eq!(far_addresses("nowhere"), (None, None));
    }
}
