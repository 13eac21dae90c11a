//! Where the two ends of a channel over sockets stand: on one machine's loopback, or apart, in two
//! network namespaces with a network between them, or on another host.
//!
//! A socket stays in the namespace that it was opened in, so that its descriptor can be handed to
//! whichever process shall use it. Left out: what the network between them is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::end::{OpenError, Setup};
use crate::harness::spec::{HostSpec, LaunchSpec};
use crate::harness::steward::reach::Shared;
use crate::lab::{LabError, Namespace};

/// Where both ends of a channel stand.
#[derive(Debug, Default)]
pub(crate) enum Ground {
    /// On the loopback of the namespace that this process is in.
    #[default]
    Loopback,
    /// In two namespaces.
    Apart(Apart),
    /// The peer's on another host.
    Host(Box<OtherHost>),
}

/// Another host, where a steward opens what the peer shall have.
#[derive(Debug)]
pub(crate) struct OtherHost {
    pub(crate) steward: Shared,
    pub(crate) spec: HostSpec,
    /// The launch that the peer is for.
    pub(crate) launch: LaunchSpec,
}

impl OtherHost {
    /// Where its sockets of a version of IP are reached.
    pub(crate) fn address(&self, ipv6: bool) -> Result<SocketAddr, OpenError> {
        let address = if ipv6 { self.spec.v6 } else { self.spec.v4 };
        address.ok_or_else(|| {
            let (version, name) = (if ipv6 { 6 } else { 4 }, &self.spec.name);
            OpenError::Unavailable(format!("{name} is not reached over IPv{version} from here"))
        })
    }

    /// Its address of any version, the older first.
    pub(crate) fn any_address(&self) -> Result<SocketAddr, OpenError> {
        self.address(false).or_else(|_| self.address(true))
    }

    /// Opens both ends of a channel: the near one.
    pub(crate) fn open(
        &self,
        setup: &Setup<'_>,
        ipv6: bool,
        is_datagram: bool,
    ) -> Result<OwnedFd, OpenError> {
        let at = self.address(ipv6)?;
        self.steward.lock().open_channel(setup, at, &self.launch, is_datagram)
    }
}

/// Two namespaces between which packets travel.
#[derive(Debug)]
pub(crate) struct Apart {
    /// Where the worker's end is; the process' own when absent.
    pub(crate) near: Option<Namespace>,
    /// Where the peer's end is.
    pub(crate) far: Namespace,
    /// The far side's address of version 4.
    pub(crate) far_v4: Option<Ipv4Addr>,
    /// The same of version 6.
    pub(crate) far_v6: Option<Ipv6Addr>,
}

impl Ground {
    /// Opens something at the worker's end.
    pub(crate) fn in_near<R>(&self, open: impl FnOnce() -> R) -> Result<R, OpenError> {
        match self {
            Self::Apart(Apart { near: Some(near), .. }) => near.enter(open).map_err(lack),
            _ => Ok(open()),
        }
    }

    /// Opens something at the peer's end.
    pub(crate) fn in_far<R>(&self, open: impl FnOnce() -> R) -> Result<R, OpenError> {
        match self {
            Self::Apart(apart) => apart.far.enter(open).map_err(lack),
            Self::Loopback => Ok(open()),
            Self::Host(host) => Err(OpenError::Unavailable(format!(
                "this is measured with both ends on one machine: choose another link than the host {}",
                host.spec.name
            ))),
        }
    }

    /// Where the peer's end is reached, at a port that the kernel chooses.
    pub(crate) fn far(&self, ipv6: bool) -> Result<SocketAddr, OpenError> {
        if let Self::Host(host) = self {
            return host.address(ipv6);
        }
        let address: Option<IpAddr> = match (self, ipv6) {
            (Self::Loopback, false) => Some(Ipv4Addr::LOCALHOST.into()),
            (Self::Loopback, true) => Some(Ipv6Addr::LOCALHOST.into()),
            (Self::Apart(apart), false) => apart.far_v4.map(IpAddr::from),
            (Self::Apart(apart), true) => apart.far_v6.map(IpAddr::from),
            (Self::Host(_), _) => None,
        };
        let version = if ipv6 { 6 } else { 4 };
        address.map(|address| SocketAddr::new(address, 0)).ok_or_else(|| {
            OpenError::Unavailable(format!(
                "the far side has no IPv{version} address: IPv{version} is switched off there"
            ))
        })
    }
}

/// Namespaces that cannot be made or entered are a result with its reason.
#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
pub(crate) fn lack(error: LabError) -> OpenError {
    OpenError::Unavailable(error.to_string())
}
