//! Who runs on which CPU: one for a driver that spins, the others for everybody else.
//!
//! Left out: which CPUs suit each other (`crate::topology`).

use std::io;

use plumb_sys::affinity;

/// A division of the CPUs that this process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats {
    /// For the driver.
    pub own: u32,
    others: Vec<u32>,
}

impl Seats {
    /// The last CPU for the driver; `None` where there is only one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn divide() -> io::Result<Option<Self>> {
        let mut others = affinity::allowed_cpus()?;
        let own = others.pop();
        Ok(own.filter(|_| !others.is_empty()).map(|own| Self { own, others }))
    }

    /// Puts this thread, and what it starts from now on, on the CPUs that are not the driver's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join_others(&self) -> io::Result<()> {
        affinity::bind(&self.others)
    }

    /// Puts this thread on the driver's CPU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_own(&self) -> io::Result<()> {
        affinity::bind(&[self.own])
    }
}
