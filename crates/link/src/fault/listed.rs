//! Chosen frames lost: by their numbers, from 1, in the order in which they leave the rate.
//!
//! Left out: choosing by content.

use std::sync::Arc;

use plumb_base::time::Instant;

use super::Fault;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct Listed {
    sorted: Vec<u64>,
    next: usize,
    seen: u64,
}

impl Listed {
    /// The numbers may come in any order, and repeatedly.
    #[expect(clippy::needless_pass_by_value, reason = "the list is the description's")]
    pub(super) fn new(numbers: Arc<[u64]>) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let next = sorted.partition_point(|number| *number == 0);
        Self { sorted, next, seen: 0 }
    }
}

impl Fault for Listed {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        self.seen += 1;
        if self.sorted.get(self.next) == Some(&self.seen) {
            self.next += 1;
            context.discard(frame, Reason::Lost);
        } else {
            out.push((at, frame));
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Listed(numbers) = spec else { return false };
        let seen = self.seen;
        *self = Self::new(numbers.clone());
        // Those that have passed have passed.
        self.next = self.sorted.partition_point(|number| *number <= seen);
        self.seen = seen;
        true
    }
}
