//! The peer: the process at the far end, which does as it is told and never times anything.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use plumb_base::time::Span;
use plumb_sys::fd;
use plumb_sys::pages::Pages;

use super::control::{
    Attach, Checked, Control, PeerReport, PeerTask, PeerToWorker, Role, WorkerToPeer,
};
use super::effort::CpuReading;
use super::page::Page;
use super::spec::CpuUse;
use super::{payload, subordinate};
use crate::clock::Stopwatch;
use crate::local::{
    Channel, End, Fault, Ground, Handover, Mark, OpenError, Received, SLACK, Setup, Visitor, Watch,
    visit,
};

/// Runs a peer whose control socket is the inherited descriptor that the second argument names;
/// its exit code.
pub fn main() -> u8 {
    subordinate::main(serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let watch_fd = Arc::new(control_fd.try_clone()?);
    let mut control = Control::new(control_fd);
    let WorkerToPeer::Attach(attach) = control.hear()? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let page = subordinate::settle(attach.cpu, attach.page_fd)?;
    let mechanism = attach.channel.mechanism;
    visit(mechanism, Service { attach, control, watch_fd, page, lent: Default::default() })
}

/// Serves one channel until told to quit.
struct Service {
    attach: Attach,
    control: Control,
    watch_fd: Arc<OwnedFd>,
    page: Page,
    /// Buffers of the last task: their pages may be lent to the channel until the next begins.
    lent: (Pages, Pages),
}

impl Visitor for Service {
    type Output = io::Result<()>;

    fn visit<C: Channel>(mut self) -> io::Result<()> {
        let handover = self.handover()?;
        // Obeying the stop flag at a tick is for channels whose last message may be lost.
        let stop = C::Peer::LOSSY.then(|| self.page.map());
        let watch = Watch::new(Arc::clone(&self.watch_fd), u32::MAX, stop);
        let setup = Setup {
            channel: &self.attach.channel,
            watch: &watch,
            ground: &Ground::Loopback,
            seed: self.attach.seed,
        };
        let mut end = match C::attach(&setup, handover) {
            Ok(end) => end,
            Err(error) => return self.decline(error),
        };
        self.control.say(&PeerToWorker::Attached)?;
        loop {
            match self.control.hear()? {
                WorkerToPeer::Begin(task) => self.perform(&mut end, task)?,
                _ => return Ok(()),
            }
        }
    }
}

impl Service {
    /// What the worker opened for this end.
    fn handover(&mut self) -> io::Result<Handover> {
        let fds = self.attach.fds.iter().map(|&number| fd::adopt(number));
        let fds = fds.collect::<io::Result<Vec<_>>>()?;
        let numbers = std::mem::take(&mut self.attach.numbers);
        Ok(Handover { fds, numbers, facts: Vec::new() })
    }

    /// Says why this end cannot be taken over.
    fn decline(&mut self, error: OpenError) -> io::Result<()> {
        self.control.say(&match error {
            OpenError::Unavailable(reason) => PeerToWorker::Unavailable(reason),
            error @ OpenError::Io { .. } => PeerToWorker::Failed(error.to_string()),
        })
    }

    /// The part in a task, with its buffers made and touched.
    fn part(&self, task: PeerTask) -> io::Result<Part> {
        let size = usize::try_from(task.size).map_err(io::Error::other)?;
        let ack = usize::try_from(task.ack).map_err(io::Error::other)?;
        let watch = Stopwatch::new(self.attach.ticks_per_ns);
        let delay_ticks = match self.page.delay_ns() {
            0 => 0,
            ns => watch.spin_argument(watch.ticks(ns as f64)).max(1),
        };
        Ok(Part {
            page: self.page.clone(),
            watch,
            is_apart: self.attach.is_apart,
            delay_ticks,
            tx: payload::pattern(self.attach.seed, size.max(ack)),
            rx: Pages::filled(1, size.max(ack) + SLACK),
            size,
            ack,
            checked: Checked::default(),
        })
    }

    fn perform<E: End>(&mut self, end: &mut E, task: PeerTask) -> io::Result<()> {
        let mut part = self.part(task)?;
        let outcome = end.prepare(&part.tx, &mut part.rx).and_then(|()| end.drain());
        drop(end.tally());
        if let Err(fault) = outcome {
            return self.control.say(&PeerToWorker::Failed(fault.to_string()));
        }
        let before = CpuReading::now();
        self.control.say(&PeerToWorker::Armed)?;
        let outcome = match task.role {
            Role::Echo => part.echo(end),
            Role::Sink => part.sink(end),
            Role::Ack => part.acknowledge(end),
            Role::Source => part.source(end),
            Role::Check => part.check(end),
            Role::Replay { .. } => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        };
        let cpu = CpuReading::now().since(before);
        let checked = part.checked;
        self.lent = (part.tx, part.rx);
        self.account(cpu, checked, end.tally(), outcome)
    }

    /// Reports on a task that ended.
    fn account(
        &mut self,
        cpu: CpuUse,
        checked: Checked,
        tally: Vec<(&'static str, u64)>,
        outcome: Result<(), Fault>,
    ) -> io::Result<()> {
        match outcome {
            Ok(()) | Err(Fault::Stopped) => {
                let tally = tally.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
                let report = PeerReport { cpu, tally, checked, times: Vec::new() };
                self.control.say(&PeerToWorker::Done(Box::new(report)))
            }
            Err(fault) => self.control.say(&PeerToWorker::Failed(fault.to_string())),
        }
    }
}

/// The peer's part in one task.
struct Part {
    page: Page,
    watch: Stopwatch,
    is_apart: bool,
    delay_ticks: u64,
    tx: Pages,
    rx: Pages,
    size: usize,
    ack: usize,
    checked: Checked,
}

impl Part {
    fn echo<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        if E::LOSSY {
            return self.echo_lossy(end);
        }
        let mut done = 0;
        loop {
            if self.delay_ticks == 0 {
                end.echo(&mut self.rx, self.size)?;
            } else {
                end.receive(&mut self.rx, self.size)?;
                self.watch.spin(self.delay_ticks);
                end.send(&self.rx[..self.size])?;
            }
            done += 1;
            if done == self.page.last() {
                return Ok(());
            }
        }
    }

    fn echo_lossy<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                Received::Message => {
                    if self.delay_ticks > 0 {
                        self.watch.spin(self.delay_ticks);
                    }
                    end.send(&self.rx[..self.size])?;
                }
                Received::Mark(_) if self.page.stop() => return Ok(()),
                Received::Mark(_) => {}
            }
        }
    }

    fn sink<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        if E::LOSSY {
            return self.sink_lossy(end, |_| {});
        }
        let mut done = 0;
        loop {
            end.discard(&mut self.rx, self.size)?;
            // The worker sets the count before it sends the first message.
            let count = self.page.count();
            for _ in 1..count {
                end.discard(&mut self.rx, self.size)?;
            }
            done += 1;
            if E::STAMPED && !E::QUEUES {
                // A word that is written again must change to be seen.
                let len = payload::stamp_len(self.ack);
                payload::stamp(&mut self.tx, len, done);
            }
            end.send(&self.tx[..self.ack])?;
            if done == self.page.last() {
                return Ok(());
            }
        }
    }

    /// Sends one message after another; the last of them says that it is.
    fn source<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        loop {
            let is_last = self.page.stop();
            self.tx[0] = u8::from(is_last);
            end.send(&self.tx[..self.size])?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Answers every message with its first byte, until a mark ends the task.
    fn acknowledge<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                Received::Message => end.send(&self.rx[..1])?,
                Received::Mark(_) if self.page.stop() => return Ok(()),
                Received::Mark(_) => {}
            }
        }
    }

    /// Counts messages up to each mark and answers it; a repeated mark gets the same answer.
    fn sink_lossy<E: End>(
        &mut self,
        end: &mut E,
        mut on_message: impl FnMut(&mut Self),
    ) -> Result<(), Fault> {
        let mut delivered = 0;
        let (mut first_at, mut last_at) = (0, 0);
        let mut answered: Option<(u64, Mark)> = None;
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                Received::Message => {
                    last_at = self.watch.end();
                    if delivered == 0 {
                        first_at = last_at;
                    }
                    delivered += 1;
                    on_message(self);
                }
                Received::Mark(question) => {
                    let answer = match answered {
                        Some((last, answer)) if last == question.value => answer,
                        _ => Mark {
                            value: question.value << 32 | std::mem::take(&mut delivered),
                            at: self.told(first_at, std::mem::take(&mut last_at)),
                        },
                    };
                    answered = Some((question.value, answer));
                    end.send_mark(answer)?;
                    if self.page.stop() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// When the last message came, for whose counter is the same; how long after the first, in nanoseconds, for
    /// others.
    fn told(&self, first_at: u64, last_at: u64) -> u64 {
        if !self.is_apart {
            return last_at;
        }
        Span::from_secs_f64(self.watch.ns(last_at.saturating_sub(first_at)) * 1e-9).as_ns()
    }

    fn check<E: End>(&mut self, end: &mut E) -> Result<(), Fault> {
        let count = self.page.count();
        let mut seen = vec![false; usize::try_from(count).unwrap_or(0) + 1];
        let mut highest = 0;
        if E::LOSSY {
            return self.sink_lossy(end, |part| part.inspect::<E>(&mut seen, &mut highest));
        }
        for _ in 0..count {
            end.receive(&mut self.rx, self.size)?;
            self.inspect::<E>(&mut seen, &mut highest);
        }
        Ok(())
    }

    /// Looks at one message, then is as slow as it was asked to be.
    fn inspect<E: End>(&mut self, seen: &mut [bool], highest: &mut u64) {
        self.checked.arrived += 1;
        let len = payload::stamp_len(self.size);
        let rest_is_whole = self.rx[len..self.size] == self.tx[len..self.size];
        if E::STAMPED && !E::LENDS {
            let number = payload::number(&self.rx, len);
            match usize::try_from(number).ok().and_then(|index| seen.get_mut(index)) {
                Some(slot) if rest_is_whole => {
                    self.checked.duplicated += u64::from(std::mem::replace(slot, true));
                    self.checked.reordered += u64::from(number < *highest);
                    *highest = number.max(*highest);
                }
                _ => self.checked.corrupted += 1,
            }
        } else {
            let stamp_is_whole = self.rx[..len] == self.tx[..len];
            self.checked.corrupted += u64::from(!(rest_is_whole && stamp_is_whole));
        }
        if self.delay_ticks > 0 {
            self.watch.spin(self.delay_ticks);
        }
    }
}
