//! Corruption: a frame now and then has one bit changed, and is delivered.
//!
//! The bit lies behind the Ethernet header: what is modelled is the error that every check sequence
//! on the way missed, because it was made inside a device. Left out: errors that a wire makes, and
//! its check sequence finds ([`super::bit_errors`]).

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
pub(super) struct Corrupt {
    chance: Chance,
    stream: Stream,
}

impl Corrupt {
    pub(super) fn new(share: f64, stream: Stream) -> Self {
        Self { chance: Chance::new(share), stream }
    }
}

impl Fault for Corrupt {
    fn strike(
        &mut self,
        at: Instant,
        mut frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        if self.chance.strikes(&mut self.stream) {
            settle_checksum(&mut frame, context);
            let behind = match context.medium {
                Medium::Ethernet => ethernet::HEADER_LEN,
                Medium::Ip => 0,
            };
            let bytes = context.pool.bytes_mut(&mut frame.packet);
            if let Some(bytes) = bytes.get_mut(behind..).filter(|bytes| !bytes.is_empty()) {
                let bit = below(&mut self.stream, bytes.len() as u64 * 8);
                let byte = usize::try_from(bit / 8).expect("an index into a slice");
                bytes[byte] ^= 1 << (bit % 8);
                context.changes.corrupted += u64::from(frame.count);
            }
        }
        out.push((at, frame));
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Corrupt(share) = spec else { return false };
        self.chance = Chance::new(*share);
        true
    }
}
