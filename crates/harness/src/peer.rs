//! The peer: the process at the far end, which does as it is told and never times anything.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use plumb_base::time::Span;
use plumb_clock::Stopwatch;
use plumb_result::CpuUsage;
use plumb_sys::memory::PageAlignedBuffer;
use plumb_sys::{fd, timer};

use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, EndpointLocation, LossMarker,
    MessageOrMarker, PeerHandover, PeerWatchdog, RECEIVE_SLACK,
};
use crate::effort::{CpuReading, postpone_tick};
use crate::launch_protocol::{
    AttachPeer, ControlPage, ControlSocket, DeliveryCounts, PeerEnd, PeerReport, PeerRole,
    PeerTask, PeerToWorker, WorkerToPeer,
};
use crate::mechanisms::{ChannelVisitor, visit_channel};
use crate::spec::{ChannelSpec, PeerContext};
use crate::{child_process, launch_protocol};

/// Runs a peer over an inherited control socket; its exit code.
pub fn main(control: RawFd) -> u8 {
    child_process::main(control, serve)
}

fn serve(control_fd: OwnedFd) -> io::Result<()> {
    let watch_fd = Arc::new(control_fd.try_clone()?);
    let mut control = ControlSocket::new(control_fd);
    let WorkerToPeer::Attach(attach) = control.receive()? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let AttachPeer { end, fds, page_fd, context } = *attach;
    let PeerEnd::Channel { channel, numbers, is_remote } = end else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let page = child_process::set_up_process(context.cpu, page_fd)?;
    let fds = fds.into_iter().map(fd::adopt).collect::<io::Result<_>>()?;
    let service = PeerService {
        channel,
        handover: PeerHandover { fds, numbers, facts: Vec::new() },
        is_remote,
        context,
        control,
        watch_fd,
        page,
        lent_buffers: Default::default(),
    };
    visit_channel(service.channel.mechanism, service)
}

/// Serves one channel until told to quit.
struct PeerService {
    channel: ChannelSpec,
    /// What the worker opened for this end.
    handover: PeerHandover,
    is_remote: bool,
    context: PeerContext,
    control: ControlSocket,
    watch_fd: Arc<OwnedFd>,
    page: ControlPage,
    /// Buffers of the last task: their pages may be lent to the channel until the next begins.
    lent_buffers: (PageAlignedBuffer, PageAlignedBuffer),
}

impl ChannelVisitor for PeerService {
    type Output = io::Result<()>;

    fn visit<C: ChannelMechanism>(mut self) -> io::Result<()> {
        let handover = std::mem::take(&mut self.handover);
        // Obeying the stop flag at a tick is for channels whose last message may be lost.
        let stop = C::Peer::LOSSY.then(|| self.page.map());
        let watch = PeerWatchdog::new(Arc::clone(&self.watch_fd), u32::MAX, stop);
        let setup = ChannelSetup {
            channel: &self.channel,
            watchdog: &watch,
            location: &EndpointLocation::Loopback,
            seed: self.context.seed,
        };
        let mut end = match C::attach(&setup, handover) {
            Ok(end) => end,
            Err(error) => return self.control.send(&PeerToWorker::Attached(Err(error))),
        };
        self.control.send(&PeerToWorker::Attached(Ok(())))?;
        loop {
            // A channel that fails now fails its next task, which says so.
            drop(end.keep_going(self.watch_fd.as_fd()));
            match self.control.receive()? {
                WorkerToPeer::Begin(task) => self.perform(&mut end, task)?,
                _ => return Ok(()),
            }
        }
    }
}

impl PeerService {
    /// The part in a task, with its buffers made and touched.
    fn task_run(&self, task: PeerTask) -> io::Result<PeerTaskRun> {
        let size = usize::try_from(task.size).map_err(io::Error::other)?;
        let ack = usize::try_from(task.ack).map_err(io::Error::other)?;
        let watch = Stopwatch::new(self.context.ticks_per_ns);
        let delay_ticks = match self.page.delay_ns() {
            0 => 0,
            ns => watch.calibrated_spin_ticks(watch.ticks(ns as f64)).max(1),
        };
        Ok(PeerTaskRun {
            page: self.page.clone(),
            watch,
            is_remote: self.is_remote,
            delay_ticks,
            tx: launch_protocol::payload_pattern(self.context.seed, size.max(ack)),
            rx: PageAlignedBuffer::filled(1, size.max(ack) + RECEIVE_SLACK),
            size,
            ack,
            delivery: DeliveryCounts::default(),
        })
    }

    fn perform<E: ChannelEnd>(&mut self, end: &mut E, task: PeerTask) -> io::Result<()> {
        let mut part = self.task_run(task)?;
        let outcome = end.prepare(&part.tx, &mut part.rx).and_then(|()| end.drain());
        drop(end.take_counters());
        if let Err(fault) = outcome {
            return self.control.send(&PeerToWorker::Failed(fault.to_string()));
        }
        postpone_tick(task.quiet_ns);
        let ticks = timer::ticks();
        let before = CpuReading::now();
        self.control.send(&PeerToWorker::Armed)?;
        let outcome = match task.role {
            PeerRole::Echo => part.echo(end),
            PeerRole::Sink => part.sink(end),
            PeerRole::Ack => part.acknowledge(end),
            PeerRole::Source => part.source(end),
            PeerRole::Check => part.check(end),
            PeerRole::Replay { .. } => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        };
        let cpu = CpuReading::now().since(before);
        let interruptions = timer::ticks().wrapping_sub(ticks);
        postpone_tick(0);
        let checked = part.delivery;
        self.lent_buffers = (part.tx, part.rx);
        let mut counters = end.take_counters();
        counters.push(("interruptions", interruptions.into()));
        self.report(cpu, checked, counters, outcome)
    }

    /// Reports on a task that ended.
    fn report(
        &mut self,
        cpu: CpuUsage,
        checked: DeliveryCounts,
        tally: Vec<(&'static str, u64)>,
        outcome: Result<(), ChannelError>,
    ) -> io::Result<()> {
        match outcome {
            Ok(()) | Err(ChannelError::Stopped) => {
                let tally = tally.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
                let report =
                    PeerReport { cpu, counters: tally, delivery: checked, times: Vec::new() };
                self.control.send(&PeerToWorker::Done(Box::new(report)))
            }
            Err(fault) => self.control.send(&PeerToWorker::Failed(fault.to_string())),
        }
    }
}

/// The peer's part in one task.
struct PeerTaskRun {
    page: ControlPage,
    watch: Stopwatch,
    is_remote: bool,
    delay_ticks: u64,
    tx: PageAlignedBuffer,
    rx: PageAlignedBuffer,
    size: usize,
    ack: usize,
    delivery: DeliveryCounts,
}

impl PeerTaskRun {
    fn echo<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
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

    fn echo_lossy<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                MessageOrMarker::Message => {
                    if self.delay_ticks > 0 {
                        self.watch.spin(self.delay_ticks);
                    }
                    end.send(&self.rx[..self.size])?;
                }
                MessageOrMarker::Marker(_) if self.page.stop() => return Ok(()),
                MessageOrMarker::Marker(_) => {}
            }
        }
    }

    fn sink<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
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
            if E::SENDS_GIVEN_BYTES && !E::QUEUES {
                // A word that is written again must change to be seen.
                let len = launch_protocol::payload_stamp_len(self.ack);
                launch_protocol::stamp_payload(&mut self.tx, len, done);
            }
            end.send(&self.tx[..self.ack])?;
            if done == self.page.last() {
                return Ok(());
            }
        }
    }

    /// Sends one message after another; the last of them says that it is.
    fn source<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
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
    fn acknowledge<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                MessageOrMarker::Message => end.send(&self.rx[..1])?,
                MessageOrMarker::Marker(_) if self.page.stop() => return Ok(()),
                MessageOrMarker::Marker(_) => {}
            }
        }
    }

    /// Counts messages up to each mark and answers it; a repeated mark gets the same answer.
    fn sink_lossy<E: ChannelEnd>(
        &mut self,
        end: &mut E,
        mut on_message: impl FnMut(&mut Self),
    ) -> Result<(), ChannelError> {
        let mut delivered = 0;
        let (mut first_at, mut last_at) = (0, 0);
        let mut answered: Option<(u64, LossMarker)> = None;
        loop {
            match end.receive_any(&mut self.rx, self.size)? {
                MessageOrMarker::Message => {
                    last_at = self.watch.end();
                    if delivered == 0 {
                        first_at = last_at;
                    }
                    delivered += 1;
                    on_message(self);
                }
                MessageOrMarker::Marker(question) => {
                    let answer = match answered {
                        Some((last, answer)) if last == question.value => answer,
                        _ => LossMarker {
                            value: question.value << 32 | std::mem::take(&mut delivered),
                            at: self.reported_arrival(first_at, std::mem::take(&mut last_at)),
                        },
                    };
                    answered = Some((question.value, answer));
                    end.send_marker(answer)?;
                    if self.page.stop() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// When the last message came, for whose counter is the same; how long after the first, in nanoseconds, for
    /// others.
    fn reported_arrival(&self, first_at: u64, last_at: u64) -> u64 {
        if !self.is_remote {
            return last_at;
        }
        Span::from_secs_f64(self.watch.ns(last_at.saturating_sub(first_at)) * 1e-9).as_ns()
    }

    fn check<E: ChannelEnd>(&mut self, end: &mut E) -> Result<(), ChannelError> {
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
    fn inspect<E: ChannelEnd>(&mut self, seen: &mut [bool], highest: &mut u64) {
        self.delivery.arrived += 1;
        let len = launch_protocol::payload_stamp_len(self.size);
        let rest_is_whole = self.rx[len..self.size] == self.tx[len..self.size];
        if E::SENDS_GIVEN_BYTES && !E::LENDS_PAGES {
            let number = launch_protocol::payload_number(&self.rx, len);
            match usize::try_from(number).ok().and_then(|index| seen.get_mut(index)) {
                Some(slot) if rest_is_whole => {
                    self.delivery.duplicated += u64::from(std::mem::replace(slot, true));
                    self.delivery.reordered += u64::from(number < *highest);
                    *highest = number.max(*highest);
                }
                _ => self.delivery.corrupted += 1,
            }
        } else {
            let stamp_is_whole = self.rx[..len] == self.tx[..len];
            self.delivery.corrupted += u64::from(!(rest_is_whole && stamp_is_whole));
        }
        if self.delay_ticks > 0 {
            self.watch.spin(self.delay_ticks);
        }
    }
}
