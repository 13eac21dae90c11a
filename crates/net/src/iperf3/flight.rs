//! A test while its data flows: workers for its streams, looked at once an interval, drained at the end.
//!
//! Both sides have one. Left out: who says when it begins and ends ([`super::client`], [`super::server`]).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use plumb_base::time::{Instant, Span};
use plumb_sys::tcp_info::{self, TcpInfo};
use plumb_sys::{process, socket, timer};

use super::now;
use super::parameters::{Parameters, Protocol};
use super::record::{Extent, Interval, Record, StreamRecord};
use super::stream::tcp::Shared;
use super::stream::{Count, Goal, Meter, Socket, Switch, tcp, udp};
use crate::crew;

/// Most intervals that are kept, over all streams: some 20 MB.
const INTERVALS_MAX: usize = 1 << 17;

/// How often draining looks at what has come.
const LOOK: Span = Span::from_ms(1);

/// A stream that is connected.
#[derive(Debug)]
pub struct Flow {
    /// Its number in the protocol.
    pub id: u32,
    /// Whether this side sends.
    pub sends: bool,
    /// Its socket.
    pub socket: Socket,
}

/// A test that is under way.
#[derive(Debug)]
pub struct Flight {
    lanes: Vec<Lane>,
    /// Threads that send, then threads that receive.
    threads: [Vec<JoinHandle<()>>; 2],
    switch: Arc<Switch>,
    began: Instant,
    /// When what is counted began.
    counted: Instant,
    /// When the interval under way began.
    interval: Instant,
    ended: Option<Instant>,
    usage: process::Usage,
    kept: usize,
    truncated: bool,
}

/// One stream.
#[derive(Debug)]
struct Lane {
    id: u32,
    sends: bool,
    /// This side's and the other's: a connection that is reset does not tell them any more.
    addresses: (SocketAddr, SocketAddr),
    socket: Arc<Socket>,
    meter: Arc<Meter>,
    /// What was there when counting began.
    base: (Count, u64),
    /// What was there when the last interval began.
    earlier: (Count, u64),
    /// What was there when it ended, and the one under way began.
    before: (Count, u64),
    facts: Option<TcpInfo>,
    window: Extent,
    offered: Extent,
    rtt_us: Extent,
    intervals: Vec<Interval>,
    drained: bool,
}

impl Flight {
    /// Starts the streams' workers. `answers` is set on a server.
    ///
    /// # Errors
    /// The kernel's: a socket that cannot be set, or no more threads.
    pub fn begin(
        flows: Vec<Flow>,
        parameters: &Arc<Parameters>,
        goal: &Arc<Goal>,
        answers: bool,
    ) -> io::Result<Self> {
        let switch = Arc::new(Switch::default());
        let began = now();
        let usage = process::usage()?;
        let mut flight = Self {
            lanes: Vec::with_capacity(flows.len()),
            threads: Default::default(),
            switch,
            began,
            counted: began,
            interval: began,
            ended: None,
            usage,
            kept: 0,
            truncated: false,
        };
        for flow in flows {
            flow.socket.limit_waits()?;
            flight.lanes.push(Lane::new(flow)?);
        }
        let shared = Shared {
            parameters: Arc::clone(parameters),
            switch: Arc::clone(&flight.switch),
            goal: Arc::clone(goal),
        };
        match parameters.protocol {
            Protocol::Tcp => flight.start_streams(&shared)?,
            Protocol::Udp => flight.start_datagrams(&shared, answers)?,
        }
        Ok(flight)
    }

    fn start_streams(&mut self, shared: &Shared) -> io::Result<()> {
        for sends in [true, false] {
            let lanes = self.lanes.iter().filter(|lane| lane.sends == sends);
            let workers = lanes.map(|lane| lane.worker(shared)).collect::<io::Result<Vec<_>>>()?;
            for (crew, number) in crew::deal(workers).into_iter().zip(1..) {
                let parameters = Arc::clone(&shared.parameters);
                self.start(sends, number, move || {
                    let mut crew = crew;
                    crew::serve(&mut crew, &mut tcp::buffer(&parameters, sends));
                })?;
            }
        }
        Ok(())
    }

    /// Datagrams keep their times best in threads of their own.
    fn start_datagrams(&mut self, shared: &Shared, answers: bool) -> io::Result<()> {
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get(index) else { break };
            let (sends, number) = (lane.sends, lane.id);
            let (socket, meter) = (Arc::clone(&lane.socket), Arc::clone(&lane.meter));
            let Shared { parameters, switch, goal } = shared.clone();
            self.start(sends, number, move || {
                let result = if sends {
                    udp::send(&socket, &parameters, &meter, &switch, &goal)
                } else {
                    udp::receive(&socket, &parameters, &meter, &switch, &goal, answers)
                };
                meter.end(result.as_ref().copied(), &switch, &goal);
            })?;
        }
        Ok(())
    }

    fn start(
        &mut self,
        sends: bool,
        number: u32,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let name = format!("iperf3-{number}");
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        self.threads[usize::from(!sends)].push(thread);
        Ok(())
    }

    /// Waits for the threads that send, or that receive: they have been told to end.
    fn join(&mut self, sends: bool) {
        for thread in std::mem::take(&mut self.threads[usize::from(!sends)]) {
            if thread.join().is_err() {
                for lane in self.lanes.iter().filter(|lane| lane.sends == sends && !lane.is_over())
                {
                    lane.meter.set_trouble("its worker panicked".to_owned());
                }
            }
        }
    }

    /// When data began to flow.
    pub const fn began(&self) -> Instant {
        self.began
    }

    /// When what is counted began.
    pub const fn counted(&self) -> Instant {
        self.counted
    }

    /// Ends an interval.
    pub fn tick(&mut self, at: Instant, omitted: bool) {
        let (start, end, origin) = (self.interval, at, self.counted);
        let span = |moment: Instant| moment.saturating_since(origin);
        for lane in &mut self.lanes {
            let (count, facts) = (lane.meter.count(), lane.look());
            let retransmits = facts.map_or(0, |facts| u64::from(facts.total_retrans));
            lane.earlier = std::mem::replace(&mut lane.before, (count, retransmits));
            if self.kept >= INTERVALS_MAX {
                self.truncated = true;
                continue;
            }
            self.kept += 1;
            lane.add_interval(span(start), span(end), facts, omitted);
        }
        self.interval = at;
    }

    /// Ends the last interval; one that would be short is a part of the one before it.
    fn end_intervals(&mut self, at: Instant) {
        let rest = at.saturating_since(self.interval);
        let last = self.lanes.first().and_then(|lane| lane.intervals.last());
        let Some(last) = last.filter(|last| !last.omitted && !self.truncated) else {
            return self.tick(at, false);
        };
        let (start, len) = (last.start, last.end.saturating_sub(last.start));
        if rest.as_ps() > len.as_ps() / 10 {
            return self.tick(at, false);
        }
        let end = at.saturating_since(self.counted);
        for lane in &mut self.lanes {
            let (count, facts) = (lane.meter.count(), lane.look());
            lane.before = (count, facts.map_or(0, |facts| u64::from(facts.total_retrans)));
            if lane.intervals.pop().is_some() {
                lane.add_interval(start, end, facts, false);
            }
        }
    }

    /// Counts from here on.
    pub fn end_omission(&mut self, at: Instant) {
        for lane in &mut self.lanes {
            let retransmits = lane.look().map_or(0, |facts| u64::from(facts.total_retrans));
            lane.base = (lane.meter.count(), retransmits);
            lane.before = lane.base;
            (lane.window, lane.offered, lane.rtt_us) = Default::default();
        }
        (self.counted, self.interval) = (at, at);
    }

    /// The sum of what was sent and of what was received, without what was omitted.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |sends| {
            let lanes = self.lanes.iter().filter(move |lane| lane.sends == sends);
            lanes.map(|lane| lane.counted().bytes).sum()
        };
        (sum(true), sum(false))
    }

    /// All that was sent and received, with what was omitted.
    pub fn moved(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.meter.count().bytes).sum()
    }

    /// The first stream that ended before it was told to, and why.
    pub fn trouble(&self) -> Option<(u32, String)> {
        self.lanes.iter().find_map(|lane| Some((lane.id, lane.meter.trouble()?)))
    }

    /// Whether no worker is left.
    pub fn is_over(&self) -> bool {
        let ended = |thread: &JoinHandle<()>| thread.is_finished();
        self.lanes.iter().all(Lane::is_over) || self.threads.iter().flatten().all(ended)
    }

    /// Stops sending, and tells receivers of TCP that no more comes. What was sent is on its way.
    pub fn stop(&mut self) {
        self.switch.stop();
        self.join(true);
        self.ended.get_or_insert_with(now);
    }

    /// Has the other sides of this side's senders see the end of their streams.
    pub fn end_streams(&self) {
        for lane in self.lanes.iter().filter(|lane| lane.sends) {
            if let Socket::Tcp(socket) = &*lane.socket {
                // One that is gone has ended anyhow.
                socket.shutdown(Shutdown::Write).ok();
            }
        }
    }

    /// Waits until receivers have what was sent: until a stream has ended, or so many bytes or
    /// datagrams have come as `sent` says of it, or nothing comes any more for `quiet`, or
    /// `patience` is over.
    pub fn drain(&mut self, sent: impl Fn(u32) -> Option<(u64, u64)>, quiet: Span, patience: Span) {
        let began = now();
        loop {
            let at = now();
            let mut waiting = false;
            for lane in self.lanes.iter_mut().filter(|lane| !lane.sends && !lane.drained) {
                let count = lane.counted();
                lane.drained = lane.is_over()
                    || sent(lane.id).is_some_and(|(bytes, packets)| match &*lane.socket {
                        Socket::Tcp(_) => count.bytes >= bytes,
                        // All of them came, none is missing.
                        Socket::Udp(_) => count.packets >= packets && count.lost <= 0,
                    });
                let last = lane.meter.last().max(began);
                waiting |= !lane.drained && at.saturating_since(last) < quiet;
            }
            if !waiting || at.saturating_since(began) >= patience {
                return;
            }
            timer::sleep_ns(LOOK.as_ns());
        }
    }

    /// Ends every worker; what was recorded.
    pub fn finish(mut self, parameters: &Parameters) -> Record {
        self.stop();
        self.switch.turn_off();
        self.join(false);
        let ended = self.ended.unwrap_or(self.interval).max(self.counted);
        let last = self.lanes.iter().filter(|lane| !lane.sends).map(|lane| lane.meter.last()).max();
        let last = last.unwrap_or(ended).max(ended);
        if last > self.interval {
            self.end_intervals(last);
        }
        let wall = now().saturating_since(self.began).as_secs_f64();
        let usage = process::usage().unwrap_or(self.usage);
        let seconds = |now: u64, then: u64| Span::from_ns(now.saturating_sub(then)).as_secs_f64();
        let cpu_s = [
            seconds(usage.user_ns, self.usage.user_ns),
            seconds(usage.system_ns, self.usage.system_ns),
        ];
        let percent = |seconds: f64| if wall > 0.0 { 100.0 * seconds / wall } else { 0.0 };
        let cpu_percent = [percent(cpu_s[0] + cpu_s[1]), percent(cpu_s[0]), percent(cpu_s[1])];
        let congestion = self.lanes.first().and_then(|lane| match parameters.protocol {
            Protocol::Tcp => socket::congestion(lane.socket.as_fd()).ok(),
            Protocol::Udp => None,
        });
        let counted = self.counted;
        let streams = std::mem::take(&mut self.lanes);
        let streams = streams.into_iter().map(|lane| lane.record(counted, ended)).collect();
        let truncated = self.truncated;
        let duration = ended.saturating_since(counted);
        Record { streams, cpu_percent, cpu_s, congestion, duration, truncated }
    }
}

impl Drop for Flight {
    /// Leaves no worker behind, however the test ended.
    fn drop(&mut self) {
        self.switch.turn_off();
        self.join(true);
        self.join(false);
    }
}

impl Lane {
    fn new(flow: Flow) -> io::Result<Self> {
        Ok(Self {
            id: flow.id,
            sends: flow.sends,
            addresses: flow.socket.addresses()?,
            socket: Arc::new(flow.socket),
            meter: Arc::default(),
            base: Default::default(),
            earlier: Default::default(),
            before: Default::default(),
            facts: None,
            window: Extent::default(),
            offered: Extent::default(),
            rtt_us: Extent::default(),
            intervals: Vec::new(),
            drained: false,
        })
    }

    fn worker(&self, shared: &Shared) -> io::Result<tcp::Worker> {
        let (socket, meter) = (Arc::clone(&self.socket), Arc::clone(&self.meter));
        tcp::Worker::new(socket, meter, self.sends, shared.clone())
    }

    /// Looks at what the connection says of itself, of a TCP sender.
    fn look(&mut self) -> Option<TcpInfo> {
        if !self.sends || !matches!(&*self.socket, Socket::Tcp(_)) {
            return None;
        }
        let facts = tcp_info::read(self.socket.as_fd()).ok()?;
        self.window.add(u64::from(facts.snd_cwnd) * u64::from(facts.snd_mss));
        self.offered.add(facts.snd_wnd.into());
        self.rtt_us.add(facts.rtt_us.into());
        self.facts = Some(facts);
        Some(facts)
    }

    /// Notes what came between the last two looks.
    fn add_interval(&mut self, start: Span, end: Span, facts: Option<TcpInfo>, omitted: bool) {
        let ((count, resent), (earlier, resent_earlier)) = (self.before, self.earlier);
        self.intervals.push(Interval {
            start,
            end,
            count: count.since(earlier),
            retransmits: facts.map(|_| resent.saturating_sub(resent_earlier)),
            facts,
            omitted,
        });
    }

    fn counted(&self) -> Count {
        self.meter.count().since(self.base.0)
    }

    fn is_over(&self) -> bool {
        self.meter.is_over()
    }

    fn record(self, counted: Instant, ended: Instant) -> StreamRecord {
        let (local, remote) = self.addresses;
        let last = if self.sends { ended } else { self.meter.last().max(ended) };
        let resent = self.facts.map(|facts| u64::from(facts.total_retrans));
        StreamRecord {
            id: self.id,
            socket: self.socket.number(),
            sends: self.sends,
            local,
            remote,
            count: self.counted(),
            retransmits: resent.map(|resent| resent.saturating_sub(self.base.1)),
            duration: last.saturating_since(counted),
            window: self.window,
            offered: self.offered,
            rtt_us: self.rtt_us,
            reordering: self.facts.map_or(0, |facts| facts.reordering),
            drained: self.drained,
            trouble: self.meter.trouble(),
            intervals: self.intervals,
        }
    }
}
