//! A network that only delays: two ports, one span each way.
//!
//! Left out: everything else.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_host::emulate::{Due, Network};
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

/// A wire of some length.
#[derive(Debug)]
pub struct Delay {
    span: Span,
    lines: [VecDeque<Due>; 2],
}

impl Delay {
    pub fn new(span: Span) -> Self {
        Self { span, lines: [VecDeque::new(), VecDeque::new()] }
    }
}

impl Machine for Delay {
    fn handle_packets(&mut self, now: Instant, port: Port, batch: &mut Vec<Packet>, _: &mut Pool) {
        let line = &mut self.lines[1 - usize::from(port.0)];
        line.extend(batch.drain(..).map(|packet| Due { at: now + self.span, packet }));
    }

    fn poll_packets(&mut self, _: Instant, _: Port, _: &mut Vec<Packet>, _: usize, _: &mut Pool) {}

    fn deadline(&self) -> Option<Instant> {
        self.lines.iter().filter_map(|line| Some(line.front()?.at)).min()
    }

    fn handle_deadline(&mut self, _: Instant, _: &mut Pool) {}
}

impl Network for Delay {
    fn ports(&self) -> u16 {
        2
    }

    fn poll_due(&mut self, now: Instant, port: Port, out: &mut Vec<Due>, max: usize, _: &mut Pool) {
        let line = &mut self.lines[usize::from(port.0)];
        let due = line.iter().take(max).take_while(|due| due.at <= now).count();
        out.extend(line.drain(..due));
    }
}
