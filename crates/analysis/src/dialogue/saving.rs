//! What a connection would save by other use of its path.

use crate::document::chatty::{ChattyConnection, ChattySaving};

/// What is assumed of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedChange {
    /// Round-trip time after moving closer.
    pub near_rtt_ns: u64,
    /// Requests of a batch; at least one.
    pub batch: u64,
}

/// What each change would save, where the round-trip time is known.
pub(super) fn savings(found: &ChattyConnection, change: AssumedChange) -> Vec<ChattySaving> {
    let mut savings = Vec::new();
    let mut put = |change: &str, saved_ns: u64, computed: &str| {
        savings.push(ChattySaving {
            change: change.to_owned(),
            saved_ns,
            computed: computed.to_owned(),
        });
    };
    let trips = found.round_trips;
    if let (Some(to_client), Some(to_server)) = (found.client_rtt_ns, found.server_rtt_ns)
        && trips > 0
    {
        let rtt = to_client.saturating_add(to_server);
        // Nothing can be saved that was not waited.
        let waited = found.waiting_ns + found.thinking_ns;
        let times = |count: u64, each: u64| count.saturating_mul(each).min(waited);
        put(
            "pipelining",
            times(trips - 1, rtt),
            "(round trips − 1) · RTT, all requests sent at once",
        );
        let batches = trips.div_ceil(change.batch.max(1));
        put("batching", times(trips - batches, rtt), "(round trips − batches) · RTT");
        put(
            "moving-closer",
            times(trips, rtt.saturating_sub(change.near_rtt_ns)),
            "round trips · (RTT − the nearer RTT)",
        );
    }
    if found.stalls > 0 {
        put(
            "no-delay",
            found.stalled_ns,
            "waits of a small segment for the acknowledgment of the last",
        );
    }
    savings
}

/// Adds savings of a connection to a sum.
pub(super) fn add(sum: &mut Vec<ChattySaving>, savings: &[ChattySaving]) {
    for saving in savings {
        match sum.iter_mut().find(|known| known.change == saving.change) {
            Some(known) => known.saved_ns = known.saved_ns.saturating_add(saving.saved_ns),
            None => sum.push(saving.clone()),
        }
    }
}
