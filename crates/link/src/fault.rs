//! Faults of the wire: what happens to frames that have used it, one model a file.
//!
//! Left out: in which order several strike, which the hop's description says.

use plumb_base::seed::Stream;
use plumb_base::time::Instant;

use crate::context::Context;
use crate::frame::Frame;
use crate::spec::FaultSpec;

mod bernoulli;
mod bit_errors;
mod corrupt;
mod duplicate;
mod gilbert_elliott;
mod listed;
mod periodic;
mod reorder;
mod truncate;
mod window;

/// A fault. Frames are given in the order in which they leave the rate; after one that reorders,
/// their moments are not.
pub trait Fault: std::fmt::Debug + Send {
    /// Takes a frame that leaves the wire at `at`, and appends what becomes of it to `out`, each with the
    /// moment at which it leaves the wire. Frames of equal moments go on in the order in which they were given.
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    );

    /// Becomes what `spec` says, where that is a fault of this kind; whether it is. What it has counted, the state
    /// that it is in and its place among its random draws stay.
    fn retune(&mut self, spec: &FaultSpec) -> bool;
}

/// The fault that a description asks for.
///
/// What comes by the clock is counted from `start`; `stream` is what random choices come from.
pub fn make(spec: &FaultSpec, start: Instant, stream: Stream) -> Box<dyn Fault> {
    match spec {
        FaultSpec::Loss(share) => Box::new(bernoulli::Bernoulli::new(*share, stream)),
        FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
            let shares = gilbert_elliott::Shares {
                to_bad: *p,
                to_good: *r,
                loss_good: *loss_good,
                loss_bad: *loss_bad,
            };
            Box::new(gilbert_elliott::GilbertElliott::new(shares, stream))
        }
        FaultSpec::Periodic(every) => Box::new(periodic::Periodic::new(*every)),
        FaultSpec::Listed(numbers) => Box::new(listed::Listed::new(numbers.clone())),
        FaultSpec::BitErrors(rate) => Box::new(bit_errors::BitErrors::new(*rate, stream)),
        FaultSpec::Reorder { share, by } => Box::new(reorder::Reorder::new(*share, *by, stream)),
        FaultSpec::Duplicate(share) => Box::new(duplicate::Duplicate::new(*share, stream)),
        FaultSpec::Corrupt(share) => Box::new(corrupt::Corrupt::new(*share, stream)),
        FaultSpec::Truncate(share) => Box::new(truncate::Truncate::new(*share, stream)),
        FaultSpec::Clog { every, lasting } => {
            Box::new(window::Clog(window::Window::new(start, *every, *lasting)))
        }
        FaultSpec::Blackout { every, lasting } => {
            Box::new(window::Blackout(window::Window::new(start, *every, *lasting)))
        }
        FaultSpec::Partition => Box::new(window::Partition),
    }
}

/// Makes the transport's checksum complete and the packet one that its receiver verifies: before a
/// model changes its bytes.
fn settle_checksum(frame: &mut Frame, context: &mut Context<'_>) {
    use plumb_wire::checksum::complete;
    use plumb_wire::packet::ChecksumState;
    if let ChecksumState::Partial { start, offset } = frame.packet.meta.checksum {
        let bytes = context.pool.bytes_mut(&mut frame.packet);
        complete(bytes, start.into(), offset.into());
    }
    frame.packet.meta.checksum = ChecksumState::Plain;
}

#[cfg(test)]
mod tests;
