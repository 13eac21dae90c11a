//! Where the CPU time of some threads goes: each stretch between two events of a CPU, by what they say.
//!
//! Where a stretch holds the end of one thing and the beginning of another, it counts as what is not the stack, so
//! that the stack's share is rather too small than too large.

use super::recorder::TraceTimeline;
use super::tracepoint::{SyscallKind, TraceEvent, TraceEventKind};

/// What a CPU did for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuActivity {
    /// Between two calls.
    User,
    /// A call that sends or receives, or the receive path: sockets, protocols and copies.
    Stack,
    /// From the driver's taking a frame to the receive path.
    Device,
    /// Waking threads and switching to them.
    Scheduler,
    /// Other calls and interrupts.
    Unexplained,
}

/// CPU time of the recorded threads by what it went to, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTimeShares {
    /// See [`CpuActivity`], in its order.
    ns: [f64; 5],
}

impl CpuTimeShares {
    /// The time of these threads in a timeline, `hit_ns` for each event taken off.
    pub(crate) fn of(timeline: &TraceTimeline, threads: &[u32], hit_ns: f64) -> Self {
        let mut shares = Self::default();
        let mut last: Vec<TraceEvent> = Vec::new();
        for event in timeline.between(0, u64::MAX) {
            let Some(before) = last.iter_mut().find(|before| before.cpu == event.cpu) else {
                last.push(*event);
                continue;
            };
            let previous = std::mem::replace(before, *event);
            // An event is of the thread that ran until then.
            if threads.contains(&event.thread) {
                let ns = timeline.watch.ns(event.at.saturating_sub(previous.at)) - hit_ns;
                shares.ns[activity(previous.kind, event.kind) as usize] += ns.max(0.0);
            }
        }
        shares
    }

    /// The share of the protocol stack; none where nothing was recorded.
    pub(crate) fn stack(&self) -> Option<f64> {
        self.share(CpuActivity::Stack)
    }

    /// The share of what no event explains.
    pub(crate) fn unexplained(&self) -> Option<f64> {
        self.share(CpuActivity::Unexplained)
    }

    fn share(&self, of: CpuActivity) -> Option<f64> {
        let total: f64 = self.ns.iter().sum();
        (total > 0.0).then(|| self.ns[of as usize] / total)
    }
}

/// What goes on between two events that follow each other on a CPU.
fn activity(from: TraceEventKind, to: TraceEventKind) -> CpuActivity {
    use TraceEventKind::{
        Copy, DataReady, DeviceTransmit, Enter, Exit, StackReceive, Switch, Waking, Woken,
    };
    match (from, to) {
        (_, Switch { .. }) | (Switch { .. } | Waking(_), _) => CpuActivity::Scheduler,
        (Exit(_), Enter(_)) => CpuActivity::User,
        (DeviceTransmit, _) => CpuActivity::Device,
        (
            Enter(SyscallKind::Send | SyscallKind::Receive)
            | StackReceive
            | DataReady
            | Copy
            | Woken(_),
            _,
        ) => CpuActivity::Stack,
        (Enter(SyscallKind::Other) | Exit(_), _) => CpuActivity::Unexplained,
    }
}

#[cfg(test)]
mod tests {
    use plumb_clock::Stopwatch;

    use super::*;

    #[test]
    fn time_on_each_cpu_goes_to_what_the_events_say() {
        use TraceEventKind::*;
        let (sender, receiver, other) = (7, 8, 99);
        let (send, receive) = (SyscallKind::Send, SyscallKind::Receive);
        let events = [
            (0, 0, sender, Exit(send)),
            (10, 0, sender, Enter(send)),
            (5, 1, receiver, Enter(receive)),
            (8, 1, receiver, Switch { from: receiver, to: 0 }),
            (40, 0, sender, DeviceTransmit),
            (45, 0, sender, StackReceive),
            (60, 0, sender, DataReady),
            (62, 0, sender, Waking(receiver)),
            (70, 0, sender, Exit(send)),
            // The idle task's time is nobody's.
            (90, 1, 0, Switch { from: 0, to: receiver }),
            (95, 1, receiver, Copy),
            (115, 1, receiver, Exit(receive)),
            (118, 1, receiver, Switch { from: receiver, to: other }),
            (150, 1, other, Switch { from: other, to: receiver }),
        ];
        let event = |(at, cpu, thread, kind)| TraceEvent { at, cpu, thread, kind };
        let timeline =
            TraceTimeline::new(Stopwatch::new(None), events.map(event).to_vec(), Vec::new());
        let shares = CpuTimeShares::of(&timeline, &[sender, receiver], 0.0);
        // Sender: 10 user, 30 + 15 + 2 stack, 5 device, 8 waking; receiver: 3 + 5 + 3 switching, 20 stack.
        let expected = [10.0, 67.0, 5.0, 19.0, 0.0];
        assert!(shares.ns.iter().zip(expected).all(|(ns, expected)| (ns - expected).abs() < 1e-9));
        assert!((shares.stack().unwrap() - 67.0 / 101.0).abs() < 1e-9);
        // A hit costs each stretch as much, and none less than nothing.
        let shares = CpuTimeShares::of(&timeline, &[sender, receiver], 4.0);
        assert!((shares.ns[CpuActivity::Stack as usize] - (26.0 + 11.0 + 16.0)).abs() < 1e-9);
        assert_eq!(CpuTimeShares::of(&timeline, &[5], 0.0).stack(), None);
    }
}
