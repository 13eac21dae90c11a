//! What a running emulator lets others see, and what it tells of itself.
//!
//! Left out: what the network tells of itself.

use plumb_base::time::{Instant, Span};
use plumb_link::network::Network;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_wire::packet::Pool;

use super::control::{Control, Ended};
use super::precision::{MeasuredPrecision, Precision};
use super::punctuality::{Account, Punctuality};

/// What a running emulator shows to whoever asks through its [`super::Control`].
#[derive(Debug)]
pub struct Inside<N> {
    /// The moment it is.
    pub now: Instant,
    /// The network.
    pub network: N,
    /// The pool of all frames.
    pub pool: Pool,
    pub(super) account: Account,
    pub(super) losses: Vec<Losses>,
    pub(super) precision: Precision,
    pub(super) measured: MeasuredPrecision,
    pub(super) margin: Span,
    pub(super) nice: i32,
}

/// How an emulation went so far, its network's own account aside.
#[derive(Clone, Debug)]
pub struct DriverReport {
    /// How moments are waited for.
    pub precision: Precision,
    /// What that was worth when it was tried.
    pub measured: MeasuredPrecision,
    /// How long before a moment it spins.
    pub margin: Span,
    /// The nice value of its thread, −20 to 19: the less, the greater its weight against others.
    pub nice: i32,
    /// How punctual it was.
    pub punctuality: Punctuality,
    /// What was lost at each port.
    pub losses: Vec<Losses>,
}

/// What was lost at one device, which the network did not mean to lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Frames that came and found no room: the kernel's queue was full, or no frame of the pool was free.
    pub received: u64,
    /// Frames that the kernel did not take.
    pub sent: u64,
}

impl Losses {
    /// Both.
    pub fn total(&self) -> u64 {
        self.received + self.sent
    }
}

impl<N: Network> Inside<N> {
    /// How it went so far: through a [`Control`] without what the kernel lost before the devices, which
    /// [`Control::complete`] adds.
    pub fn report(&self) -> DriverReport {
        DriverReport {
            precision: self.precision,
            measured: self.measured,
            margin: self.margin,
            nice: self.nice,
            punctuality: self.account.punctuality(),
            losses: self.losses.clone(),
        }
    }
}

impl<N: Network> Inside<N> {
    /// The same into a [`DriverReport::form`], without a copy of what may be long: its empty distribution is exchanged
    /// for that of what happened since it was last done. That of every report after that begins there too.
    pub fn hand_over(&mut self, form: &mut DriverReport) {
        self.account.hand_over(&mut form.punctuality);
        form.losses.clone_from(&self.losses);
    }
}

impl<N: Network + 'static> Control<Inside<N>> {
    /// Makes the network what `spec` says from now on; what is in flight stays so.
    ///
    /// # Errors
    /// [`Ended`], or within it what the network has against it.
    pub fn set(&self, spec: LinkSpec) -> Result<Result<(), SpecError>, Ended> {
        self.ask(move |inside| inside.network.set(inside.now, &spec, &mut inside.pool))
    }

    /// How it went so far.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn report(&self) -> Result<DriverReport, Ended> {
        let mut report = self.ask(|inside| inside.report())?;
        self.complete(&mut report);
        Ok(report)
    }
}

impl DriverReport {
    /// The same with an empty distribution, for [`Inside::hand_over`].
    #[must_use]
    pub fn form(&self) -> Self {
        let mut form = self.clone();
        form.punctuality.lateness = form.punctuality.lateness.empty_like();
        form
    }

    /// Adds the distribution of an earlier report to that of what happened since.
    pub fn add_earlier(&mut self, earlier: &Self) {
        self.punctuality.lateness.merge(&earlier.punctuality.lateness);
    }

    /// Whether the emulation was what it says: no deadline missed, nothing lost that was not meant to
    /// be, no frame that may have entered late, and the machine awake throughout.
    pub fn is_faithful(&self) -> bool {
        self.punctuality.missed.count == 0
            && self.punctuality.entered_late == 0
            && self.punctuality.suspended == Span::ZERO
            && self.losses.iter().all(|losses| losses.total() == 0)
    }
}
