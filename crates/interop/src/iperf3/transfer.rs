//! A test while its data flows: workers for its streams, looked at once an interval, drained at the end.
//!
//! Both sides have one. Left out: who says when it begins and ends ([`super::client`], [`super::server`]).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use plumb_base::time::{Instant, Span};
use plumb_sys::socket::TcpInfo;
use plumb_sys::{fd, process, socket, timer};

use super::parameters::{Iperf3Parameters, Iperf3Transport};
use super::record::{Iperf3Interval, Iperf3Stream, Iperf3TestRecord, MinMaxMean};
use super::stream::tcp::Iperf3Context;
use super::stream::{ByteBudget, Iperf3Count, Iperf3Socket, StopFlag, StreamMeter, tcp, udp};
use plumb_clock::now;
use plumb_net::connection_pool;

/// Most intervals that are kept, over all streams: some 20 MB.
const INTERVALS_MAX: usize = 1 << 17;

/// How often draining looks at what has come.
const DRAIN_POLL_INTERVAL: Span = Span::from_ms(1);

/// A stream that is connected.
#[derive(Debug)]
pub struct Iperf3Flow {
    /// Its number in the protocol.
    pub id: u32,
    /// Whether this side sends.
    pub sends: bool,
    /// Its socket.
    pub socket: Iperf3Socket,
}

/// A test that is under way.
#[derive(Debug)]
pub struct Iperf3Transfer {
    streams: Vec<TransferStream>,
    /// Threads that send, then threads that receive.
    threads: [Vec<JoinHandle<()>>; 2],
    stop_flag: Arc<StopFlag>,
    began: Instant,
    /// When what is counted began.
    counted: Instant,
    /// When the interval under way began.
    interval: Instant,
    ended: Option<Instant>,
    usage: process::ResourceUsage,
    intervals_kept: usize,
    truncated: bool,
}

/// One stream.
#[derive(Debug)]
struct TransferStream {
    id: u32,
    sends: bool,
    /// This side's and the other's: a connection that is reset does not tell them any more.
    addresses: (SocketAddr, SocketAddr),
    socket: Arc<Iperf3Socket>,
    meter: Arc<StreamMeter>,
    /// The counts when counting began.
    counted_base: (Iperf3Count, u64),
    /// The counts when the last interval began.
    earlier: (Iperf3Count, u64),
    /// The counts when it ended, and the one under way began.
    before: (Iperf3Count, u64),
    tcp_info: Option<TcpInfo>,
    congestion_window: MinMaxMean,
    send_window: MinMaxMean,
    rtt_us: MinMaxMean,
    intervals: Vec<Iperf3Interval>,
    drained: bool,
}

impl Iperf3Transfer {
    /// Starts the streams' workers. `answers` is set on a server.
    ///
    /// # Errors
    /// The kernel's: a socket that cannot be set, or no more threads.
    pub fn begin(
        flows: Vec<Iperf3Flow>,
        parameters: &Arc<Iperf3Parameters>,
        budget: &Arc<ByteBudget>,
        answers: bool,
    ) -> io::Result<Self> {
        let stop_flag = Arc::new(StopFlag::default());
        let began = now();
        let usage = process::usage()?;
        let mut transfer = Self {
            streams: Vec::with_capacity(flows.len()),
            threads: Default::default(),
            stop_flag,
            began,
            counted: began,
            interval: began,
            ended: None,
            usage,
            intervals_kept: 0,
            truncated: false,
        };
        for flow in flows {
            flow.socket.limit_waits()?;
            transfer.streams.push(TransferStream::new(flow)?);
        }
        let shared = Iperf3Context {
            parameters: Arc::clone(parameters),
            stop_flag: Arc::clone(&transfer.stop_flag),
            budget: Arc::clone(budget),
        };
        match parameters.protocol {
            Iperf3Transport::Tcp => transfer.start_streams(&shared)?,
            Iperf3Transport::Udp => transfer.start_datagrams(&shared, answers)?,
        }
        Ok(transfer)
    }

    fn start_streams(&mut self, shared: &Iperf3Context) -> io::Result<()> {
        for sends in [true, false] {
            let streams = self.streams.iter().filter(|stream| stream.sends == sends);
            let workers =
                streams.map(|stream| stream.worker(shared)).collect::<io::Result<Vec<_>>>()?;
            for (group, number) in connection_pool::assign_to_threads(workers).into_iter().zip(1..)
            {
                let parameters = Arc::clone(&shared.parameters);
                self.start(sends, number, move || {
                    let mut group = group;
                    connection_pool::serve(&mut group, &mut tcp::buffer(&parameters, sends));
                })?;
            }
        }
        Ok(())
    }

    /// Datagrams keep their times best in threads of their own.
    fn start_datagrams(&mut self, shared: &Iperf3Context, answers: bool) -> io::Result<()> {
        for index in 0..self.streams.len() {
            let Some(stream) = self.streams.get(index) else { break };
            let (sends, number) = (stream.sends, stream.id);
            let (socket, meter) = (Arc::clone(&stream.socket), Arc::clone(&stream.meter));
            let Iperf3Context { parameters, stop_flag, budget } = shared.clone();
            self.start(sends, number, move || {
                let result = if sends {
                    udp::send(&socket, &parameters, &meter, &stop_flag, &budget)
                } else {
                    udp::receive(&socket, &parameters, &meter, &stop_flag, &budget, answers)
                };
                meter.end(result.as_ref().copied(), &stop_flag, &budget);
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
                for stream in
                    self.streams.iter().filter(|stream| stream.sends == sends && !stream.is_over())
                {
                    stream.meter.set_error("its worker panicked".to_owned());
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
        for stream in &mut self.streams {
            let (reading, facts) = stream.read();
            stream.earlier = std::mem::replace(&mut stream.before, reading);
            if self.intervals_kept >= INTERVALS_MAX {
                self.truncated = true;
                continue;
            }
            self.intervals_kept += 1;
            stream.add_interval(span(start), span(end), facts, omitted);
        }
        self.interval = at;
    }

    /// Ends the last interval; one that would be short is a part of the one before it.
    fn end_intervals(&mut self, at: Instant) {
        let rest = at.saturating_since(self.interval);
        let last = self.streams.first().and_then(|stream| stream.intervals.last());
        let Some(last) = last.filter(|last| !last.omitted && !self.truncated) else {
            return self.tick(at, false);
        };
        let (start, len) = (last.start, last.end.saturating_sub(last.start));
        if rest.as_ps() > len.as_ps() / 10 {
            return self.tick(at, false);
        }
        let end = at.saturating_since(self.counted);
        for stream in &mut self.streams {
            let (reading, facts) = stream.read();
            stream.before = reading;
            if stream.intervals.pop().is_some() {
                stream.add_interval(start, end, facts, false);
            }
        }
    }

    /// Counts from here on.
    pub fn end_omission(&mut self, at: Instant) {
        for stream in &mut self.streams {
            stream.counted_base = stream.read().0;
            stream.before = stream.counted_base;
            (stream.congestion_window, stream.send_window, stream.rtt_us) = Default::default();
        }
        (self.counted, self.interval) = (at, at);
    }

    /// The sum of what was sent and of what was received, without what was omitted.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |sends| {
            let streams = self.streams.iter().filter(move |stream| stream.sends == sends);
            streams.map(|stream| stream.counted().bytes).sum()
        };
        (sum(true), sum(false))
    }

    /// All that was sent and received, with what was omitted.
    pub fn total_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.meter.count().bytes).sum()
    }

    /// The first stream that ended before it was told to, and why.
    pub fn stream_error(&self) -> Option<(u32, String)> {
        self.streams.iter().find_map(|stream| Some((stream.id, stream.meter.error()?)))
    }

    /// Whether no worker is left.
    pub fn is_over(&self) -> bool {
        let ended = |thread: &JoinHandle<()>| thread.is_finished();
        self.streams.iter().all(TransferStream::is_over) || self.threads.iter().flatten().all(ended)
    }

    /// Stops sending, and tells receivers of TCP that no more comes. What was sent is on its way.
    pub fn stop(&mut self) {
        self.stop_flag.stop();
        self.join(true);
        self.ended.get_or_insert_with(now);
    }

    /// Has the other sides of this side's senders see the end of their streams.
    pub fn end_streams(&self) {
        for stream in self.streams.iter().filter(|stream| stream.sends) {
            if let Iperf3Socket::Tcp(socket) = &*stream.socket {
                // One that is gone has ended anyhow.
                socket.shutdown(Shutdown::Write).ok();
            }
        }
    }

    /// Waits until receivers have what was sent: until a stream has ended, or so many bytes or
    /// datagrams have come as `sent` says about it, or nothing comes any more for `quiet` and
    /// nothing is unread, or `patience` is over.
    pub fn drain(&mut self, sent: impl Fn(u32) -> Option<(u64, u64)>, quiet: Span, patience: Span) {
        let began = now();
        loop {
            let at = now();
            let mut waiting = false;
            for stream in self.streams.iter_mut().filter(|stream| !stream.sends && !stream.drained)
            {
                let count = stream.counted();
                stream.drained = stream.is_over()
                    || sent(stream.id).is_some_and(|(bytes, packets)| match &*stream.socket {
                        Iperf3Socket::Tcp(_) => count.bytes >= bytes,
                        // All of them came, none is missing.
                        Iperf3Socket::Udp(_) => count.packets >= packets && count.lost <= 0,
                    });
                let last = stream.meter.last().max(began);
                let is_unread = || fd::poll_readable(stream.socket.as_fd(), 0).unwrap_or(false);
                waiting |= !stream.drained && (at.saturating_since(last) < quiet || is_unread());
            }
            if !waiting || at.saturating_since(began) >= patience {
                return;
            }
            timer::sleep_ns(DRAIN_POLL_INTERVAL.as_ns());
        }
    }

    /// Ends every worker; what was recorded.
    pub fn finish(mut self, parameters: &Iperf3Parameters) -> Iperf3TestRecord {
        self.stop();
        self.stop_flag.stop_all();
        self.join(false);
        let ended = self.ended.unwrap_or(self.interval).max(self.counted);
        let last = self
            .streams
            .iter()
            .filter(|stream| !stream.sends)
            .map(|stream| stream.meter.last())
            .max();
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
        let congestion = self.streams.first().and_then(|stream| match parameters.protocol {
            Iperf3Transport::Tcp => socket::congestion(stream.socket.as_fd()).ok(),
            Iperf3Transport::Udp => None,
        });
        let counted = self.counted;
        let streams = std::mem::take(&mut self.streams);
        let streams = streams.into_iter().map(|stream| stream.record(counted, ended)).collect();
        let truncated = self.truncated;
        let duration = ended.saturating_since(counted);
        Iperf3TestRecord { streams, cpu_percent, cpu_s, congestion, duration, truncated }
    }
}

impl Drop for Iperf3Transfer {
    /// Leaves no worker behind, however the test ended.
    fn drop(&mut self) {
        self.stop_flag.stop_all();
        self.join(true);
        self.join(false);
    }
}

impl TransferStream {
    fn new(flow: Iperf3Flow) -> io::Result<Self> {
        Ok(Self {
            id: flow.id,
            sends: flow.sends,
            addresses: flow.socket.addresses()?,
            socket: Arc::new(flow.socket),
            meter: Arc::default(),
            counted_base: Default::default(),
            earlier: Default::default(),
            before: Default::default(),
            tcp_info: None,
            congestion_window: MinMaxMean::default(),
            send_window: MinMaxMean::default(),
            rtt_us: MinMaxMean::default(),
            intervals: Vec::new(),
            drained: false,
        })
    }

    fn worker(&self, shared: &Iperf3Context) -> io::Result<tcp::Iperf3TcpWorker> {
        let (socket, meter) = (Arc::clone(&self.socket), Arc::clone(&self.meter));
        tcp::Iperf3TcpWorker::new(socket, meter, self.sends, shared.clone())
    }

    /// What was counted, with segments sent again, and what the connection says about itself.
    fn read(&mut self) -> ((Iperf3Count, u64), Option<TcpInfo>) {
        let (count, facts) = (self.meter.count(), self.sample_tcp_info());
        ((count, facts.map_or(0, |facts| facts.total_retrans.into())), facts)
    }

    /// Looks at what the connection says about itself, of a TCP sender.
    fn sample_tcp_info(&mut self) -> Option<TcpInfo> {
        if !self.sends || !matches!(&*self.socket, Iperf3Socket::Tcp(_)) {
            return None;
        }
        let facts = socket::tcp_info(self.socket.as_fd()).ok()?;
        self.congestion_window.add(u64::from(facts.snd_cwnd) * u64::from(facts.snd_mss));
        self.send_window.add(facts.snd_wnd.into());
        self.rtt_us.add(facts.rtt_us.into());
        self.tcp_info = Some(facts);
        Some(facts)
    }

    /// Notes what came between the last two looks.
    fn add_interval(&mut self, start: Span, end: Span, facts: Option<TcpInfo>, omitted: bool) {
        let ((count, resent), (earlier, resent_earlier)) = (self.before, self.earlier);
        self.intervals.push(Iperf3Interval {
            start,
            end,
            count: count.since(earlier),
            retransmits: facts.map(|_| resent.saturating_sub(resent_earlier)),
            tcp_info: facts,
            omitted,
        });
    }

    fn counted(&self) -> Iperf3Count {
        self.meter.count().since(self.counted_base.0)
    }

    fn is_over(&self) -> bool {
        self.meter.is_over()
    }

    fn record(self, counted: Instant, ended: Instant) -> Iperf3Stream {
        let (local, remote) = self.addresses;
        let last = if self.sends { ended } else { self.meter.last().max(ended) };
        let resent = self.tcp_info.map(|facts| u64::from(facts.total_retrans));
        Iperf3Stream {
            id: self.id,
            socket: self.socket.number(),
            sends: self.sends,
            local,
            remote,
            count: self.counted(),
            retransmits: resent.map(|resent| resent.saturating_sub(self.counted_base.1)),
            duration: last.saturating_since(counted),
            congestion_window: self.congestion_window,
            send_window: self.send_window,
            rtt_us: self.rtt_us,
            reordering: self.tcp_info.map_or(0, |facts| facts.reordering),
            drained: self.drained,
            error: self.meter.error(),
            intervals: self.intervals,
        }
    }
}
