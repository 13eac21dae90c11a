//! What an operation costs in CPU time, summed over all blocks before dividing.
//!
//! Left out: halving round trips; the result states costs per operation and their wall time.

use plumb_store::record::{SampleBlock, SideCpu};

use super::rounded;
use crate::document::CpuCost;

/// CPU cost per operation: sums over sums, so that long blocks count for more.
pub fn cost(blocks: &[&SampleBlock], has_peer: bool) -> CpuCost {
    let sum = |part: fn(&SampleBlock) -> u64| {
        blocks.iter().map(|block| part(block)).fold(0, u64::saturating_add)
    };
    let operations = sum(|block| block.effort.operations);
    if operations == 0 {
        return CpuCost::default();
    }
    let each = |total: u64| rounded(total as f64 / operations as f64);
    let recorded = |total: u64| (total > 0).then(|| each(total));
    let peer = |total: u64| recorded(total).filter(|_| has_peer);
    let switches = sum(|block| {
        let (local, peer) = (&block.effort.local, &block.effort.peer);
        local.switches_voluntary.saturating_add(peer.switches_voluntary)
    });
    CpuCost {
        local: recorded(sum(|block| block.effort.local.process_ns)),
        local_kernel_share: kernel_share(blocks, |block| &block.effort.local),
        peer: peer(sum(|block| block.effort.peer.process_ns)),
        peer_kernel_share: kernel_share(blocks, |block| &block.effort.peer).filter(|_| has_peer),
        softirq: Some(each(sum(|block| block.effort.softirq_ns))),
        wall: recorded(sum(|block| block.effort.wall_ns)),
        switches: Some(each(switches)),
    }
}

fn kernel_share(blocks: &[&SampleBlock], side: fn(&SampleBlock) -> &SideCpu) -> Option<f64> {
    let system: f64 = blocks.iter().map(|block| side(block).system_ns as f64).sum();
    let user: f64 = blocks.iter().map(|block| side(block).user_ns as f64).sum();
    let total = system + user;
    (total > 0.0).then(|| rounded(system / total))
}
