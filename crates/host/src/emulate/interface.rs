//! What the kernel loses at a TAP's own side, where the device cannot see it.
//!
//! Left out: packet sockets and AF_XDP, whose devices ask for their losses themselves.

use crate::lab::{LabError, LinkStats, Namespace, Netlink};

/// An interface whose counters are watched.
#[derive(Debug)]
pub struct Interface {
    netlink: Netlink,
    name: String,
    before: LinkStats,
}

impl Interface {
    /// The one of this name in a namespace, from now on.
    ///
    /// # Errors
    /// There is none.
    pub fn watch(namespace: &Namespace, name: &str) -> Result<Self, LabError> {
        let mut netlink = namespace.netlink()?;
        let before = netlink.link(name)?.stats;
        Ok(Self { netlink, name: name.to_owned(), before })
    }

    /// Frames that the kernel sent and that found its queue full; those of an interface that is gone
    /// are not known any more.
    pub(super) fn overrun(&mut self) -> u64 {
        let stats = self.netlink.link(&self.name).map(|link| link.stats);
        stats.map_or(0, |stats| stats.tx_dropped.saturating_sub(self.before.tx_dropped))
    }
}
