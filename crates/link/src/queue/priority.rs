//! Strict priority: three bands by the type of service, as Linux's `pfifo_fast`.
//!
//! The band is what `ip_tos2prio` and `prio2band` of Linux make of bits 3 and 4 of the octet (RFC 1349's throughput and delay);
//! of other than IP it is the middle one. So the code points of RFC 2474 fall where these bits fall: EF (46) has both, and
//! goes into the middle. Left out: any other map.

use plumb_base::time::Instant;

use super::fifo::Fifo;
use super::{Backlog, Limit, Queue};
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::header::traffic_class;

/// Three queues; a band is served when those before it are empty.
#[derive(Debug)]
pub(super) struct Priority {
    limit: Limit,
    bands: [Fifo; 3],
}

impl Priority {
    /// With the limit in each band.
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, bands: Default::default() }
    }
}

/// The band of an octet of class: 0 goes first.
const fn band(class: u8) -> usize {
    match class >> 3 & 0b11 {
        0b10 => 0,
        0b01 => 2,
        _ => 1,
    }
}

impl Queue for Priority {
    fn enqueue(&mut self, _: Instant, frame: Frame, context: &mut Context<'_>) {
        let class = traffic_class(context.medium, context.pool.bytes(&frame.packet));
        let fifo = &mut self.bands[class.map_or(1, |class| band(class.0))];
        if self.limit.takes(fifo.backlog(), &frame) {
            fifo.push(frame);
        } else {
            context.discard(frame, Reason::Full);
        }
    }

    fn dequeue(&mut self, _: Instant, _: &mut Context<'_>) -> Option<Frame> {
        self.bands.iter_mut().find_map(Fifo::pop)
    }

    fn backlog(&self) -> Backlog {
        let [a, b, c] = self.bands.each_ref().map(Fifo::backlog);
        Backlog { frames: a.frames + b.frames + c.frames, bytes: a.bytes + b.bytes + c.bytes }
    }

    fn drain(&mut self, out: &mut Vec<Frame>) {
        for fifo in &mut self.bands {
            fifo.drain(out);
        }
        out.sort_by_key(|frame| frame.arrived);
    }

    fn set_limit(&mut self, limit: Limit, context: &mut Context<'_>) {
        self.limit = limit;
        for fifo in &mut self.bands {
            fifo.shrink(limit, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::traffic_class::TrafficClass;

    use super::*;
    use crate::bench::{Bench, udp};

    /// Linux's tables, as they stand in net/ipv4/route.c and net/sched/sch_generic.c.
    #[test]
    fn every_octet_falls_into_the_band_that_linuxs_two_tables_give() {
        const TOS_TO_PRIORITY: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
        const PRIORITY_TO_BAND: [usize; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        for octet in 0..=255_u8 {
            let priority = TOS_TO_PRIORITY[usize::from((octet & 0x1e) >> 1)];
            assert_eq!(band(octet), PRIORITY_TO_BAND[priority], "{octet:#04x}");
        }
    }

    #[test]
    fn urgent_frames_overtake_others_and_a_full_band_leaves_room_in_the_rest() {
        for v6 in [false, true] {
            let mut bench = Bench::new(16);
            let mut priority = Priority::new(Limit::Frames(2));
            let now = Instant::ORIGIN;
            for class in [0x08, 0x00, 0x08, 0x08, 0x10, 0x00] {
                let bytes = udp(v6, TrafficClass(class), (1, 2), 4);
                let frame = bench.frame(now, &bytes, 100, class.into());
                priority.enqueue(now, frame, &mut bench.context());
            }
            assert_eq!((priority.backlog().frames, bench.discarded(Reason::Full)), (5, 1));
            let mut order = Vec::new();
            while let Some(frame) = priority.dequeue(now, &mut bench.context()) {
                order.push(frame.flow);
                bench.free(frame);
            }
            assert_eq!(order, [0x10, 0, 0, 8, 8]);
        }
    }
}
