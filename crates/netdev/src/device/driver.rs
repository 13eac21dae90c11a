//! The loop that drives a machine over devices and the real clock.
//!
//! Generic over both, so that the hot path is one piece of code; devices of several kinds are
//! driven as `Box<dyn Device>`.

use std::io;
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_clock::InstantClock;
use plumb_sys::fd;
use plumb_sys::timer::ThreadAlarm;
use plumb_wire::machine::{Machine, PortId};
use plumb_wire::packet::{Packet, Pool};

use super::{Device, DeviceError, DeviceWait};

/// Sees packets at the device edges: between the two, they are in the stack.
///
/// Its hooks do nothing unless it says so, and then cost nothing.
pub trait PacketObserver {
    /// Packets have come from the device and go to the machine next.
    #[inline]
    fn on_received(&mut self, port: PortId, batch: &[Packet]) {
        let _ = (port, batch);
    }

    /// Packets have come from the machine and go to the device next.
    #[inline]
    fn on_transmit(&mut self, port: PortId, batch: &[Packet]) {
        let _ = (port, batch);
    }
}

impl PacketObserver for () {}

/// How a driver works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Most packets a device is asked for, or given, at a time. With one, a device that blocks is
    /// never asked in vain.
    pub batch: usize,
    /// Whether a wait for one device that blocks ends at a deadline by a signal to the thread, which is set rarely, rather than by a
    /// time limit of its own, which costs some devices a kernel call each time.
    pub alarm: bool,
    /// How several devices are waited for; one alone waits in its own way.
    pub wait: DeviceWait,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { batch: 32, alarm: false, wait: DeviceWait::Block }
    }
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverExit {
    /// The callback wanted no more.
    Stopped,
    /// A device that replays has nothing more.
    Finished,
}

/// Devices, their pool and a clock, ready to drive a machine: device `n` is at its port `n`.
#[derive(Debug)]
pub struct Driver<D, O = ()> {
    /// The devices.
    pub devices: Vec<D>,
    /// The pool that all packets come from.
    pub pool: Pool,
    batch: Vec<Packet>,
    timeline: InstantClock,
    options: DriverOptions,
    alarm: DeadlineAlarm,
    now: Instant,
    /// The observer.
    pub observer: O,
}

impl<D: Device> Driver<D> {
    /// A driver that nobody observes.
    pub fn new(
        devices: Vec<D>,
        pool: Pool,
        timeline: InstantClock,
        options: DriverOptions,
    ) -> Self {
        Self::with_observer(devices, pool, timeline, options, ())
    }
}

impl<D: Device, O: PacketObserver> Driver<D, O> {
    /// A driver whose device edges are observed.
    ///
    /// Panics without devices, with more than ports have numbers, or with a batch of none.
    pub fn with_observer(
        devices: Vec<D>,
        pool: Pool,
        timeline: InstantClock,
        options: DriverOptions,
        observer: O,
    ) -> Self {
        assert!(!devices.is_empty() && u16::try_from(devices.len()).is_ok(), "a port each");
        assert!(options.batch > 0, "packets in a batch");
        let batch = Vec::with_capacity(options.batch);
        let (now, alarm) = (timeline.now(), DeadlineAlarm::default());
        Self { devices, pool, batch, timeline, options, alarm, now, observer }
    }

    /// The moment at which the last turn received: `now` for whoever calls the machine between
    /// turns.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Reads the clock; the moment it is from now on.
    pub fn read_clock(&mut self) -> Instant {
        self.now = self.timeline.now();
        self.now
    }

    /// Takes turns until `until` says that it is enough; it is asked before every wait.
    ///
    /// # Errors
    /// The first of a device's that is not the end of what it replays.
    pub fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        mut until: impl FnMut(&mut M, Instant, &mut Pool) -> bool,
    ) -> Result<DriverExit, DeviceError> {
        loop {
            if until(machine, self.now, &mut self.pool) {
                self.send(machine)?;
                self.devices.iter_mut().try_for_each(Device::flush)?;
                return Ok(DriverExit::Stopped);
            }
            match self.run_once(machine) {
                Ok(_) => {}
                Err(DeviceError::Finished) => return Ok(DriverExit::Finished),
                Err(error) => return Err(error),
            }
        }
    }

    /// One turn: sends what the machine has, waits, receives, lets the machine handle it and what
    /// is due, and sends again. How many packets came.
    ///
    /// # Errors
    /// A device's; what it gave before has been handled.
    #[inline]
    pub fn run_once<M: Machine>(&mut self, machine: &mut M) -> Result<usize, DeviceError> {
        self.send(machine)?;
        self.wait(machine.deadline())?;
        self.now = self.timeline.now();
        let mut count = 0;
        let mut outcome = Ok(());
        for (index, device) in self.devices.iter_mut().enumerate() {
            let port = port(index);
            let received =
                device.receive(self.now, &mut self.batch, self.options.batch, &mut self.pool);
            if !self.batch.is_empty() {
                count += self.batch.len();
                self.observer.on_received(port, &self.batch);
                machine.handle_packets(self.now, port, &mut self.batch, &mut self.pool);
            }
            outcome = outcome.and(received.map(drop));
        }
        if machine.deadline().is_some_and(|deadline| deadline <= self.now) {
            machine.handle_deadline(self.now, &mut self.pool);
        }
        self.send(machine)?;
        outcome.map(|()| count)
    }

    /// Sends all that the machine has to send.
    ///
    /// # Errors
    /// A device's.
    #[inline]
    pub fn send<M: Machine>(&mut self, machine: &mut M) -> Result<(), DeviceError> {
        for (index, device) in self.devices.iter_mut().enumerate() {
            let port = port(index);
            loop {
                let max = self.options.batch;
                machine.poll_packets(self.now, port, &mut self.batch, max, &mut self.pool);
                if self.batch.is_empty() {
                    break;
                }
                let full = self.batch.len() >= max;
                self.observer.on_transmit(port, &self.batch);
                device.transmit_from(&mut self.batch, &mut self.pool, machine)?;
                if !full {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until a packet may have come, or `deadline`.
    #[inline]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), DeviceError> {
        let mut timeout = deadline.map(|deadline| deadline.saturating_since(self.now));
        if self.options.alarm
            && self.devices.len() == 1
            && self.alarm.interrupts_at(self.now, deadline)
        {
            timeout = None;
        }
        if let [device] = &mut self.devices[..] {
            device.wait(timeout, &mut self.pool)?;
            return Ok(());
        }
        self.wait_for_any(timeout)
    }

    /// Waits for several devices: in poll(2), or by returning at once where they spin or one of
    /// them cannot be polled.
    fn wait_for_any(&mut self, timeout: Option<Span>) -> Result<(), DeviceError> {
        let spun = match self.options.wait {
            DeviceWait::Spin => return Ok(()),
            DeviceWait::Block => Span::ZERO,
            DeviceWait::Poll(span) => span,
        };
        let fds: Option<Vec<BorrowedFd<'_>>> = self.devices.iter().map(Device::fd).collect();
        let Some(fds) = fds else { return Ok(()) };
        let mut ready = vec![false; fds.len()];
        let end = self.timeline.now() + spun;
        loop {
            let spinning = spun > Span::ZERO && self.timeline.now() < end;
            let ns = timeout.map(|timeout| timeout.as_ps().div_ceil(1_000));
            let ns = if spinning { Some(0) } else { ns };
            match fd::wait_readable(&fds, &mut ready, ns) {
                Ok(0) if spinning => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                Err(source) => {
                    let names: Vec<&str> =
                        self.devices.iter().map(|device| device.info().name.as_str()).collect();
                    let name = names.join(", ");
                    return Err(DeviceError::Io { what: "wait for", name, source });
                }
            }
        }
    }
}

/// A signal that comes at the deadline or before. It is moved only for an earlier deadline: most deadlines are put off again before they
/// come.
#[derive(Debug, Default)]
struct DeadlineAlarm {
    timer: Option<ThreadAlarm>,
    /// When it comes first, if it is set; then it repeats until it is set again.
    at: Option<Instant>,
}

impl DeadlineAlarm {
    /// Below this a time limit costs less.
    const SHORT: Span = Span::from_ms(2);
    /// In case that the signal comes just before the call that it is to interrupt.
    const REPEATED: Span = Span::from_ms(1);

    /// Whether a call that blocks from now on is interrupted at the deadline, or before.
    #[inline]
    fn interrupts_at(&mut self, now: Instant, deadline: Option<Instant>) -> bool {
        match (self.at, deadline) {
            (None, None) => return true,
            (Some(at), Some(deadline)) if at > now && at <= deadline => return true,
            (_, Some(deadline)) if deadline <= now + Self::SHORT => return false,
            _ => {}
        }
        self.set(now, deadline)
    }

    #[cold]
    fn set(&mut self, now: Instant, deadline: Option<Instant>) -> bool {
        if self.timer.is_none() {
            self.timer = ThreadAlarm::new().ok();
        }
        let Some(timer) = &self.timer else { return false };
        let set = match deadline.map(|deadline| deadline.saturating_since(now)) {
            None => timer.set(0, 0),
            Some(left) => timer.set(left.as_ns().max(1), Self::REPEATED.as_ns()),
        };
        self.at = deadline.filter(|_| set.is_ok());
        set.is_ok()
    }
}

#[inline]
fn port(index: usize) -> PortId {
    PortId(u16::try_from(index).expect("as many devices as ports have numbers"))
}

#[cfg(test)]
mod tests;
