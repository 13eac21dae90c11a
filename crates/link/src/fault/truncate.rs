//! Truncation: a frame now and then is cut short, anywhere behind its link header, and is delivered.
//!
//! It has used the wire at its whole length, and counts so. Left out: padding.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;
use plumb_wire::ethernet;
use plumb_wire::medium::Medium;

use super::{Fault, settle_checksum};
use crate::chance::{Chance, below};
use crate::context::Context;
use crate::frame::Frame;
use crate::spec::FaultSpec;

#[derive(Debug)]
pub(super) struct Truncate {
    chance: Chance,
    stream: Stream,
}

impl Truncate {
    pub(super) fn new(share: f64, stream: Stream) -> Self {
        Self { chance: Chance::new(share), stream }
    }
}

impl Fault for Truncate {
    fn strike(
        &mut self,
        at: Instant,
        mut frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        // What a device takes: a link header, or the first byte of a packet, which tells its family.
        let least = match context.medium {
            Medium::Ethernet => ethernet::HEADER_LEN,
            Medium::Ip => 1,
        };
        let strikes = self.chance.strikes(&mut self.stream);
        if let Some(excess) = frame.packet.len().checked_sub(least).filter(|n| strikes && *n > 0) {
            settle_checksum(&mut frame, context);
            let kept = below(&mut self.stream, excess as u64);
            let kept = usize::try_from(kept).expect("less than a frame's length");
            context.pool.truncate(&mut frame.packet, least + kept);
            frame.packet.meta.segments = None;
            context.changes.truncated += u64::from(frame.count);
        }
        out.push((at, frame));
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Truncate(share) = spec else { return false };
        self.chance = Chance::new(*share);
        true
    }
}
