//! `breakdown.local`: where the time of one round trip over a rung of the ladder goes.

use plumb_report::figure::breakdown;

use crate::factor::channel::{self, CONGESTION, PLACEMENT};
use crate::pages::{WHERE, is};
use crate::prelude::*;

/// The parts of a round trip between two processes that block, from the kernel's own tracepoints.
pub static EXPERIMENT: Experiment = Experiment {
    id: "breakdown.local",
    study: "stack",
    question: "Where does the time of one round trip between two processes go?",
    hypothesis: "On one CPU the context switches and on two the wake-up take more time than the \
                 protocols do.",
    factors: &[
        Factor::new(
            "mechanism",
            "how the bytes cross",
            FactorDomain::Mechanisms(is_broken_down),
            Words(&["pipe", "unix-stream", "udp4", "tcp4"]),
        ),
        PLACEMENT,
        Factor::of_words(
            "wake",
            "how a receiver waits for the next message: who spins never switches",
            &["block"],
        ),
        Factor::new("size", "message size in bytes", FactorDomain::Sizes, Numbers(&[64])),
        CONGESTION,
    ],
    responses: &PARTS,
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        Ok((channel::group(point)?, BlockTask::Breakdown { size }))
    },
    analysis: ExperimentAnalysis::PLAIN,
    page: ExperimentPage {
        title: "Where a round trip goes",
        figures: Some(|_| Vec::new()),
        sentences,
        tiles,
        is_breakdown: true,
        ..ExperimentPage::PLAIN
    },
};

/// The rungs whose round trips the tracepoints explain.
fn is_broken_down(mechanism: Mechanism) -> bool {
    matches!(
        mechanism,
        Mechanism::Pipe
            | Mechanism::UnixStream
            | Mechanism::Udp4
            | Mechanism::Udp6
            | Mechanism::Tcp4
            | Mechanism::Tcp6
    )
}

const fn part(name: &'static str, meaning: &'static str) -> ResponseVariable {
    ResponseVariable::time(name, meaning)
}

/// Every part that a round trip may have, in the order of its path; the whole last.
const PARTS: [ResponseVariable; 21] = [
    part("call-entry", "from the worker's clock read into its sending call"),
    part("send-path", "the sending call, to the device or to the receiver's queue"),
    part("device", "from the driver's taking a frame to the start of the receive path"),
    part("receive-path", "from the start of the receive path to the socket's queue"),
    part("wake-up", "waking the receiver, until its CPU turns to it"),
    part("wake-up-and-switch", "waking an idle CPU and switching to the receiver there"),
    part("send-returns", "the rest of the sending call, where the receiver waits for its CPU"),
    part("user-space-between-calls", "a process in user space between two of its calls"),
    part("receive-call-sleeps", "the sender's next call, until its CPU turns to the receiver"),
    part("idle", "a CPU with nothing to run"),
    part("context-switch", "the switch, and the return from waiting"),
    part("receive-call", "a receiving call that need not sleep"),
    part("copy-and-return", "copying the message to the receiver, and the rest of its call"),
    part("needless-wake-up", "waking a process that has nothing to do"),
    part("other-tasks", "other tasks on the same CPU"),
    part("peer-in-user-space", "the peer between receiving and answering"),
    part("peer-other-calls", "the peer's other calls between receiving and answering"),
    part("call-exit", "from the end of the worker's receiving call to its clock read"),
    part("unexplained", "what no probe accounts for"),
    part("rtt", "round trip, with no probe there"),
    part("rtt-probed", "round trip of the same messages with the probes on"),
];

fn sentences(data: &PageData<'_>) -> Vec<String> {
    let parts = data.document.breakdowns.iter().filter(|entry| entry.experiment == data.id);
    breakdown::ordered(parts).into_iter().map(breakdown::sentence).collect()
}

fn tiles(data: &PageData<'_>) -> Vec<HeadlineTile> {
    let explained = breakdown::ordered(data.document.breakdowns.iter());
    let explained = explained.into_iter().find(|entry| is(&entry.factors, "mechanism", "tcp4"));
    let tile = explained.map(|entry| HeadlineTile {
        label: "of TCP's round trip unexplained".to_owned(),
        value: format!("{:.1}%", entry.unexplained_share.mean * 100.0),
        interval: entry.unexplained_share.ci95.map_or_else(String::new, |[low, high]| {
            format!("[{:.1}, {:.1}]", low * 100.0, high * 100.0)
        }),
        conditions: name::levels(&entry.factors, &WHERE),
    });
    tile.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use plumb_harness::trace::PathPart;

    use super::*;

    #[test]
    fn every_part_that_the_tracepoints_tell_apart_is_a_response() {
        let named: Vec<&str> = PARTS.iter().map(|response| response.name).collect();
        let known: Vec<&str> = PathPart::ALL.iter().map(|part| part.name()).collect();
        assert_eq!(named[..known.len()], known);
        assert_eq!(named[known.len()..], ["rtt", "rtt-probed"]);
    }
}
