//! Word to an emulator that runs, from other threads: changes, questions, and the end.
//!
//! What is asked is done by the driver's own thread between two of its turns, so nothing is locked
//! while frames pass. Left out: words from other processes.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use plumb_sys::fd;
use plumb_wire::machine::Port;

use super::inside::DriverReport;
use super::interface::Interface;

/// The emulator has ended, and does nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link has ended: start it again")]
pub struct Ended;

/// What is done between two turns.
type Job<E> = Box<dyn FnOnce(&mut E) + Send>;

struct Shared<E> {
    /// `None` once the emulator has ended.
    jobs: Mutex<Option<Vec<Job<E>>>>,
    pending: AtomicBool,
    stopped: AtomicBool,
    wake: OwnedFd,
    /// Read by whoever asks, on its own thread: the kernel takes its time for an answer.
    interfaces: Mutex<Vec<(Port, Interface)>>,
}

/// A way to talk to an emulator that runs; `E` is what it lets others see.
pub struct Control<E> {
    shared: Arc<Shared<E>>,
}

impl<E> Clone for Control<E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<E> fmt::Debug for Control<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("stopped", &self.shared.stopped).finish_non_exhaustive()
    }
}

impl<E> Control<E> {
    /// Asks it to end after its present turn.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Has something done between two turns, and waits for its answer.
    ///
    /// # Errors
    /// [`Ended`] when the emulator ends before it is done.
    pub fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut E) -> R + Send + 'static,
    ) -> Result<R, Ended> {
        let (answer, answered) = mpsc::sync_channel(1);
        let job = Box::new(move |inside: &mut E| {
            // Whoever asked may have given up.
            let _ = answer.send(work(inside));
        });
        match &mut *self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(jobs) => jobs.push(job),
            None => return Err(Ended),
        }
        self.wake();
        answered.recv().map_err(|_| Ended)
    }

    /// Adds to what a driver has told what the kernel lost before its devices, which the driver does not
    /// wait for.
    pub fn complete(&self, report: &mut DriverReport) {
        for (port, frames) in self.shared.overruns() {
            if let Some(losses) = report.losses.get_mut(usize::from(port.0)) {
                losses.received += frames;
            }
        }
    }

    fn wake(&self) {
        self.shared.pending.store(true, Ordering::Release);
        // It can only be full, and then it wakes too.
        let _ = fd::write(self.shared.wake.as_fd(), &1_u64.to_ne_bytes());
    }
}

impl<E> Shared<E> {
    fn overruns(&self) -> Vec<(Port, u64)> {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.iter_mut().map(|(port, interface)| (*port, interface.overrun())).collect()
    }
}

/// The emulator's side of it.
pub(super) struct Ear<E> {
    shared: Arc<Shared<E>>,
}

impl<E> fmt::Debug for Ear<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").finish_non_exhaustive()
    }
}

impl<E> Ear<E> {
    /// # Errors
    /// There are no more descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let wake = fd::eventfd()?;
        fd::set_nonblocking(wake.as_fd(), true)?;
        let (pending, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let (jobs, interfaces) = (Mutex::new(Some(Vec::new())), Mutex::default());
        let shared = Shared { jobs, pending, stopped, wake, interfaces };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(super) fn control(&self) -> Control<E> {
        Control { shared: Arc::clone(&self.shared) }
    }

    /// Counts what the kernel loses at the interface of a port as lost.
    pub(super) fn watch(&self, port: Port, interface: Interface) {
        let mut interfaces = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.retain(|(watched, _)| *watched != port);
        interfaces.push((port, interface));
    }

    /// What the kernel lost at each interface.
    pub(super) fn overruns(&self) -> Vec<(Port, u64)> {
        self.shared.overruns()
    }

    /// What a sleep must be ended by.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Whether there is anything to do: one load, for every turn.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// What is to be done now.
    pub(super) fn jobs(&self) -> Vec<Job<E>> {
        // In this order what comes between is found now or wakes again.
        self.shared.pending.store(false, Ordering::Release);
        let _ = fd::read(self.shared.wake.as_fd(), &mut [0; 8]);
        let mut jobs = self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<E> Drop for Ear<E> {
    fn drop(&mut self) {
        // Those who wait for an answer learn that none will come.
        *self.shared.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_answered_by_the_thread_that_listens() {
        let ear = Ear::<u32>::new().unwrap();
        let control = ear.control();
        let asker = std::thread::spawn(move || {
            let first = control.ask(|number| {
                *number += 1;
                *number
            });
            let second = control.ask(|number| *number * 10);
            control.stop();
            (first, second)
        });
        let mut number = 41;
        while !ear.is_stopped() {
            fd::poll_readable(ear.fd(), -1).unwrap();
            for job in ear.jobs() {
                job(&mut number);
            }
        }
        assert_eq!(asker.join().unwrap(), (Ok(42), Ok(420)));
    }

    #[test]
    fn whoever_asks_one_that_has_ended_or_ends_is_told() {
        let ear = Ear::<()>::new().unwrap();
        let (early, late) = (ear.control(), ear.control());
        let asker = std::thread::spawn(move || early.ask(|()| ()));
        while !ear.is_pending() {
            std::thread::yield_now();
        }
        drop(ear);
        assert_eq!(asker.join().unwrap(), Err(Ended));
        assert_eq!(late.ask(|()| ()), Err(Ended));
    }
}
