//! `latency.local`: how long a message takes between two processes of one machine.

use plumb_base::units::Unit;
use plumb_host::harness::spec::Task;
use plumb_store::record::Better;

use super::local::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::{Experiment, Form, Response};

/// Half the time of a message and its echo, for every local mechanism.
pub static LOCAL: Experiment = Experiment {
    id: "latency.local",
    study: "ipc",
    question: "How long does a message take from one process to another on this machine?",
    hypothesis: "Latency grows with size once copying outweighs waking; at each placement the \
                 mechanisms keep one order, pipes slower than sockets, UDP faster than TCP.",
    factors: &[MECHANISM, PLACEMENT, WAKE, SIZE, CONGESTION],
    responses: &[LATENCY],
    form: |setting| {
        let size = local::size_of(setting.factors);
        Form::of(local::group(setting), Task::Latency { size })
    },
};

/// Half a round trip.
pub(crate) const LATENCY: Response = Response {
    name: "latency",
    unit: Unit::Nanoseconds,
    better: Better::Lower,
    meaning: "half the round trip of a message echoed whole",
};
