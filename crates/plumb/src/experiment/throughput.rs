//! `throughput.local`: how many bytes a second one process can give another on one machine.

use plumb_base::units::Unit;
use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::{Carries, Mechanism};
use plumb_store::record::Better;

use super::local::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::{Experiment, Form, Response};

/// Both definitions of throughput, for every local mechanism that carries data.
pub static LOCAL: Experiment = Experiment {
    id: "throughput.local",
    study: "ipc",
    question: "How many bytes a second can one process give another on this machine?",
    hypothesis: "Throughput grows with message size until copying bounds it; a transfer \
                 acknowledged once is faster than one acknowledged message by message; dividing \
                 size by latency gives neither.",
    factors: &[MECHANISM, PLACEMENT, WAKE, SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    form: |setting| {
        let size = local::size_of(setting.factors);
        let mechanism = local::mechanism_of(setting.factors);
        if let Some(Carries::Fixed(bytes)) = mechanism.map(Mechanism::carries) {
            return Form::impossible(format!(
                "{} carries a token of {bytes} bytes, not data",
                mechanism.map_or("it", Mechanism::name)
            ));
        }
        let acked = setting.response == ACKED.name;
        let task = if acked { Task::ThroughputAcked { size } } else { Task::Throughput { size } };
        Form::of(local::group(setting), task)
    },
};

/// A long transfer.
pub(crate) const THROUGHPUT: Response = Response {
    name: "throughput",
    unit: Unit::BytesPerSecond,
    better: Better::Higher,
    meaning: "a long transfer with one final one-byte acknowledgement",
};

/// Message by message.
pub(crate) const ACKED: Response = Response {
    name: "throughput.acked",
    unit: Unit::BytesPerSecond,
    better: Better::Higher,
    meaning: "one message, one one-byte acknowledgement",
};
