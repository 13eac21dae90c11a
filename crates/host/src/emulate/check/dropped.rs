//! Frames of a check that went no further though no loss model took them, as the link and its driver tell.
//!
//! A queue that fills when the driver or a sender was put aside is no loss of the link's. Left out: what a
//! loss model took, which is what a check measures.

use plumb_link::context::Reason;
use plumb_link::report::NetworkReport;

use crate::emulate::{DriverReport, Losses};

/// The frames of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// A queue was full, kept short, or a policer found them beyond its rate.
    pub by_queues: u64,
    /// A device or its driver had no room for them.
    pub by_driver: u64,
}

impl Dropped {
    /// Those of both ways: up, down.
    pub fn both(network: &NetworkReport, driver: &DriverReport) -> [Self; 2] {
        let near = driver.losses.first().copied().unwrap_or_default();
        let far = driver.losses.get(1).copied().unwrap_or_default();
        [("up", near, far), ("down", far, near)]
            .map(|(way, from, to)| of_way(network, way, from, to))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_queues + self.by_driver
    }
}

fn of_way(network: &NetworkReport, way: &str, from: Losses, to: Losses) -> Dropped {
    let hops = || network.directions.iter().filter(|direction| direction.name.ends_with(way));
    let of = |reason| hops().map(|direction| direction.discards.of(reason).0).sum::<u64>();
    Dropped {
        by_queues: of(Reason::Full) + of(Reason::Early) + of(Reason::Policed),
        by_driver: from.received + to.sent + of(Reason::NoMemory),
    }
}
