//! The measurements: sockets of Linux at both ends, on one thread that never sleeps where times are
//! taken.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_netdev::lab::TestBed;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::datagram::{enable_receive_timestamps, receive_with_timestamp};
use plumb_sys::socket::{self, InetSocketKind, IntOption, congestion, set_congestion, set_option};
use plumb_sys::{fd, sched};

use crate::BenchTask;
use crate::bed::BenchBed;
use crate::steal::{self, StolenInterval};

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

fn now() -> u64 {
    read_ns(ClockId::MonotonicRaw)
}

/// The moment so many seconds after another.
fn after(moment: u64, seconds: f64) -> u64 {
    moment + Span::from_secs_f64(seconds).as_ns()
}

fn pair(bed: &BenchBed) -> (UdpSocket, UdpSocket) {
    let bind = |address| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let near = bed.bed.in_near(|| bind(TestBed::NEAR_V4.into())).unwrap();
    let far = bed.bed.in_far(|| bind(TestBed::FAR_V4.into())).unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    for socket in [&near, &far] {
        set_option(socket.as_fd(), IntOption::ReceiveBuffer, 1 << 23).unwrap();
        set_option(socket.as_fd(), IntOption::SendBuffer, 1 << 23).unwrap();
    }
    (near, far)
}

/// A datagram whose sending took longer, in nanoseconds, was disturbed: when it entered is not known.
const DISTURBED: u64 = 20_000;

/// What happened to the datagrams of a measurement of delay.
pub struct DatagramDelays {
    /// When each was sent, at the earliest and at the latest.
    sent: Vec<(u64, u64)>,
    /// When the kernel had it at the other end.
    arrived: Vec<Option<u64>>,
}

/// Sends at `load` of the rate, and notes when each datagram was sent, and when the kernel had it at the
/// other end.
pub fn delay(bed: &BenchBed, task: &BenchTask) -> DatagramDelays {
    let (near, far) = pair(bed);
    enable_receive_timestamps(far.as_fd()).unwrap();
    let mut pace = LoadPacer::new(task);
    let mut payload = vec![0; task.size.max(16)];
    let mut buffer = vec![0; 65_536];
    let mut delays = DatagramDelays { sent: Vec::new(), arrived: Vec::new() };
    let mut arrived = 0;
    let end = after(steal::now(), task.seconds);
    let grace = task.delay_us * 1_000 + 200_000_000;
    loop {
        let at = steal::now();
        if at >= end + grace || (at >= end && arrived == delays.sent.len()) {
            break;
        }
        if at < end && pace.is_time(at) {
            payload[..8].copy_from_slice(&(delays.sent.len() as u64).to_le_bytes());
            let begun = steal::now();
            if near.send(&payload).is_ok() {
                delays.sent.push((begun, steal::now()));
                delays.arrived.push(None);
                pace.sent(begun);
            }
        }
        match receive_with_timestamp(far.as_fd(), &mut buffer) {
            Ok((_, at)) => {
                arrived += 1;
                let number = u64::from_le_bytes(buffer[..8].try_into().unwrap());
                delays.arrived[usize::try_from(number).unwrap()] = at;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }
    delays
}

/// The same without any network: a thread on the driver's CPU that spins until each moment is
/// there. What it is late by is what this machine takes from whoever spins.
pub fn bare(task: &BenchTask) {
    let mut pace = LoadPacer::new(task);
    let begin = steal::now();
    let end = after(begin, task.seconds);
    let (tell, told) = std::sync::mpsc::channel::<u64>();
    let relay_task = task.clone();
    let relay = std::thread::spawn(move || {
        let cpus = sched::allowed_cpus().unwrap();
        sched::bind(&[cpus[cpus.len() - 1]]).unwrap();
        let mut model = IdealLink::new(&relay_task);
        let mut waiting = std::collections::VecDeque::new();
        let mut arrived = Vec::new();
        let mut is_over = false;
        while !is_over || !waiting.is_empty() {
            let at = steal::read_clock();
            match told.try_recv() {
                Ok(sent) => waiting.push_back(model.due(sent)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => is_over = true,
            }
            while waiting.front().is_some_and(|due| *due <= at) {
                waiting.pop_front();
                arrived.push(Some(at));
            }
        }
        (arrived, steal::stolen())
    });
    sched::bind(&sched::allowed_cpus().unwrap()[..1]).unwrap();
    let mut sent = Vec::new();
    while steal::now() < end {
        let at = steal::now();
        if pace.is_time(at) {
            pace.sent(at);
            sent.push((at, at));
            tell.send(at).unwrap();
        }
    }
    drop(tell);
    let (arrived, taken) = relay.join().unwrap();
    print_delay(task, &DatagramDelays { sent, arrived }, &taken);
}

/// When datagrams are sent.
struct LoadPacer {
    interval: f64,
    next: f64,
}

impl LoadPacer {
    fn new(task: &BenchTask) -> Self {
        let wire = IdealLink::new(task).wire;
        let interval =
            if wire > Span::ZERO { wire.as_ps() as f64 / 1e3 / task.load } else { 50_000.0 };
        Self { interval, next: 0.0 }
    }

    fn is_time(&self, at: u64) -> bool {
        at as f64 >= self.next
    }

    fn sent(&mut self, at: u64) {
        // Missed sends are not made up for: they would queue.
        self.next = (self.next + self.interval).max(at as f64);
    }
}

/// When the model of the link delivers what enters.
struct IdealLink {
    wire: Span,
    delay: Span,
    /// When the link is free again, and the remainder that is no whole nanosecond.
    free: (u64, Span),
}

impl IdealLink {
    fn new(task: &BenchTask) -> Self {
        let bits = (task.size + HEADERS) as u64 * 8;
        let wire =
            task.rate.map_or(Span::ZERO, |rate| Span::from_ps(bits * 1_000_000_000_000 / rate));
        Self { wire, delay: Span::from_us(task.delay_us), free: (0, Span::ZERO) }
    }

    /// The nanosecond at which it comes out.
    fn due(&mut self, entered: u64) -> u64 {
        let (free, rest) = self.free.max((entered, Span::ZERO));
        let left = rest + self.wire;
        self.free = (free + left.as_ns(), left - Span::from_ns(left.as_ns()));
        self.free.0 + self.delay.as_ns()
    }
}

/// From one nanosecond to another, in microseconds; negative where the other was earlier.
fn microseconds(from: u64, to: u64) -> f64 {
    if to < from { -microseconds(to, from) } else { (to - from) as f64 / 1e3 }
}

/// What datagrams took beyond what the model says, in microseconds: of all, and of those in whose way the
/// machine gave the driver its CPU. A datagram that was sent, or was due, while the CPU was taken is not of
/// the latter; for those behind it, it enters when the CPU is back.
pub fn print_delay(task: &BenchTask, delays: &DatagramDelays, taken: &[StolenInterval]) {
    let during = |at: u64| {
        let next = taken.partition_point(|taken| taken.end <= at);
        taken.get(next).filter(|taken| taken.begin <= at)
    };
    let (mut blind, mut told) = (IdealLink::new(task), IdealLink::new(task));
    let (mut all, mut given) = (Vec::new(), Vec::new());
    let mut disturbed = 0;
    for (&(begun, done), arrived) in delays.sent.iter().zip(&delays.arrived) {
        let is_disturbed = done - begun > DISTURBED;
        disturbed += u64::from(is_disturbed);
        let entered = if is_disturbed { done } else { begun };
        let away = during(entered);
        let due = told.due(away.map_or(entered, |taken| taken.end));
        let blind_due = blind.due(entered);
        let Some(arrived) = *arrived else { continue };
        if is_disturbed {
            continue;
        }
        all.push(microseconds(blind_due, arrived));
        if away.is_none() && during(due).is_none() {
            given.push(microseconds(due, arrived));
        }
    }
    all.sort_by(f64::total_cmp);
    given.sort_by(f64::total_cmp);
    let q = |p| quantile::of_sorted(&all, p);
    let given_q = |p| quantile::of_sorted(&given, p);
    let taken_ns: u64 = taken.iter().map(|taken| taken.end - taken.begin).sum();
    println!(
        "{{\"measure\":\"delay\",\"wire\":\"{:?}\",\"sent\":{},\"disturbed\":{disturbed},\"received\":{},\
         \"min_us\":{:.2},\"p50_us\":{:.2},\"p99_us\":{:.2},\"p999_us\":{:.2},\"max_us\":{:.2},\
         \"taken\":{},\"taken_share\":{:.5},\"given\":{},\"given_p50_us\":{:.2},\"given_p99_us\":{:.2},\"given_p999_us\":{:.2}}}",
        task.wire,
        delays.sent.len(),
        all.len(),
        all[0],
        q(0.5),
        q(0.99),
        q(0.999),
        all[all.len() - 1],
        taken.len(),
        taken_ns as f64 / 1e9 / task.seconds,
        given.len(),
        given_q(0.5),
        given_q(0.99),
        given_q(0.999),
    );
}

/// Offers more than the rate; what comes out, between two moments long after the beginning.
pub fn rate(bed: &BenchBed, task: &BenchTask) {
    let (near, far) = pair(bed);
    let asked = task.rate.expect("--rate") as f64;
    let interval = (task.size + HEADERS) as f64 * 8e9 / asked / 1.25;
    let payload = vec![0; task.size];
    let mut buffer = vec![0; 65_536];
    let begin = now();
    let warm = begin + 200_000_000;
    let end = after(warm, task.seconds);
    let mut next = begin as f64;
    let (mut first, mut last, mut count) = (0, 0, 0_u64);
    loop {
        let at = now();
        if at >= end {
            break;
        }
        if at as f64 >= next {
            // Full buffers are what this is about.
            let _ = near.send(&payload);
            next += interval;
        }
        while far.recv(&mut buffer).is_ok() {
            let at = now();
            if at < warm {
                continue;
            }
            if first == 0 {
                first = at;
            } else {
                count += 1;
                last = at;
            }
        }
    }
    let got = count as f64 * (task.size + HEADERS) as f64 * 8e9 / (last - first) as f64;
    println!(
        "{{\"measure\":\"rate\",\"wire\":\"{:?}\",\"asked\":{asked},\"got\":{got:.0},\"error\":{:.6}}}",
        task.wire,
        got / asked - 1.0,
    );
}

/// Sends as fast as a socket can; what comes to the far device.
pub fn datagrams(bed: &BenchBed, task: &BenchTask) {
    let (near, _far) = pair(bed);
    let payload = vec![0; task.size];
    let stats = || {
        let link =
            bed.bed.far().unwrap().netlink().unwrap().interface(TestBed::FAR_DEVICE).unwrap();
        (now(), link.stats.rx_packets, link.stats.rx_bytes)
    };
    let run = |seconds: f64| {
        let end = after(now(), seconds);
        let mut sent = 0_u64;
        while now() < end {
            for _ in 0..32 {
                sent += u64::from(near.send(&payload).is_ok());
            }
        }
        sent
    };
    run(0.2);
    let before = stats();
    let sent = run(task.seconds);
    let after = stats();
    let seconds = (after.0 - before.0) as f64 / 1e9;
    let frames = (after.1 - before.1) as f64;
    println!(
        "{{\"measure\":\"datagrams\",\"wire\":\"{:?}\",\"offered_per_s\":{:.0},\"frames_per_s\":{:.0},\"bits_per_s\":{:.0}}}",
        task.wire,
        sent as f64 / seconds,
        frames / seconds,
        (after.2 - before.2) as f64 * 8.0 / seconds,
    );
}

/// A connection whose congestion control is set before it begins: one that began with bbr stays paced.
fn connect(address: SocketAddr, congestion: Option<&str>) -> TcpStream {
    let socket = socket::open(address.is_ipv6(), InetSocketKind::Stream).unwrap();
    if let Some(name) = congestion {
        set_congestion(socket.as_fd(), name).unwrap();
    }
    fd::set_nonblocking(socket.as_fd(), false).unwrap();
    socket::connect(socket.as_fd(), address).unwrap();
    TcpStream::from(socket)
}

/// A TCP stream for a while; what the receiver got of it.
pub fn stream(bed: &BenchBed, task: &BenchTask) {
    if let Some(segments) = task.burst {
        bed.limit_bursts(segments);
    }
    let address = SocketAddr::from((TestBed::FAR_V4, 9));
    let listener = bed.bed.in_far(|| TcpListener::bind(address).unwrap()).unwrap();
    let window = task.window;
    // Inherited by what it accepts, before the first window is offered.
    let clamp = move |fd: BorrowedFd<'_>| {
        if let Some(window) = window {
            set_option(fd, IntOption::WindowClamp, window).unwrap();
        }
    };
    clamp(listener.as_fd());
    let (seconds, acknowledges_each) = (task.seconds, task.acknowledges_each);
    // The slow start, and the queue's filling, are not what is asked.
    let warm = 2.0 + 40.0 * task.delay_us as f64 * 2e-6;
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 20];
        let begin = now();
        let (mut first, mut count) = (None, 0_u64);
        loop {
            let len = stream.read(&mut buffer).unwrap();
            if acknowledges_each {
                // Linux takes it back by itself.
                set_option(stream.as_fd(), IntOption::QuickAck, 1).unwrap();
            }
            // Linux forgets the limit whenever it learns what segments cost in memory (since 6.9).
            clamp(stream.as_fd());
            let at = now();
            let since = (at - begin) as f64 / 1e9;
            assert!(len > 0, "the sender goes on until it is told");
            match first {
                None if since >= warm => first = Some(at),
                None => {}
                Some(first) => {
                    count += len as u64;
                    if since >= warm + seconds {
                        return count as f64 * 8e9 / (at - first) as f64;
                    }
                }
            }
        }
    });
    let mut stream = bed.bed.in_near(|| connect(address, task.congestion.as_deref())).unwrap();
    let name = congestion(stream.as_fd()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let chunk = vec![0; 256 << 10];
    while !receiver.is_finished() {
        if stream.write(&chunk).is_err() {
            break;
        }
    }
    let got = receiver.join().unwrap();
    // Of each frame of a stream, as TCP over IPv4 with timestamps sends it.
    let share = 1_448.0 / 1_514.0;
    let utilisation = task.rate.map_or(0.0, |rate| got / share / rate as f64);
    // There and back, and a full frame and an acknowledgement on the wire.
    let on_wire = task.rate.map_or(0.0, |rate| (1_514.0 + 66.0) * 8.0 / rate as f64);
    let round_trip = task.delay_us as f64 * 2e-6 + on_wire;
    let window = task.window.map_or(0.0, |window| got * round_trip / 8.0 / f64::from(window));
    println!(
        "{{\"measure\":\"stream\",\"wire\":\"{:?}\",\"congestion\":\"{name}\",\"bits_per_s\":{got:.0},\"utilisation\":{utilisation:.4},\"window_share\":{window:.4}}}",
        task.wire
    );
}
