//! The measurements: sockets of Linux at both ends, on one thread that never sleeps where times are
//! taken.
//!
//! Left out: what is between.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_host::lab::TestBed;
use plumb_sys::affinity;
use plumb_sys::clock::{Clock, read_ns};
use plumb_sys::datagram::{receive_stamped, stamp_receptions};
use plumb_sys::socket::{IntOption, congestion, set_congestion, set_option};

use crate::Task;
use crate::bed::Bed;

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

fn now() -> u64 {
    read_ns(Clock::MonotonicRaw)
}

/// The moment so many seconds after another.
fn after(moment: u64, seconds: f64) -> u64 {
    moment + Span::from_secs_f64(seconds).as_ns()
}

fn pair(bed: &Bed) -> (UdpSocket, UdpSocket) {
    let bind = |address| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
    let near = bed.bed.in_a(|| bind(TestBed::NEAR_V4.into())).unwrap();
    let far = bed.bed.in_b(|| bind(TestBed::FAR_V4.into())).unwrap();
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

/// Sends at `load` of the rate; what each datagram took beyond what the model says, from before its
/// sending to the moment at which the kernel has it at the other end.
pub fn delay(bed: &Bed, task: &Task) {
    let real = || read_ns(Clock::Realtime);
    let (near, far) = pair(bed);
    stamp_receptions(far.as_fd()).unwrap();
    let mut pace = Pace::new(task);
    let mut payload = vec![0; task.size.max(16)];
    let mut buffer = vec![0; 65_536];
    let mut errors = Vec::new();
    let mut arrived = 0;
    let end = after(real(), task.seconds);
    let grace = task.delay_us * 1_000 + 200_000_000;
    loop {
        let at = real();
        if at >= end + grace || (at >= end && arrived == pace.due.len()) {
            break;
        }
        if at < end && pace.is_time(at) {
            payload[..8].copy_from_slice(&(pace.due.len() as u64).to_le_bytes());
            let begun = real();
            if near.send(&payload).is_ok() {
                pace.sent(begun, real());
            }
        }
        match receive_stamped(far.as_fd(), &mut buffer) {
            Ok((_, at)) => {
                arrived += 1;
                let number = u64::from_le_bytes(buffer[..8].try_into().unwrap());
                if let Some(due) = pace.due[usize::try_from(number).unwrap()] {
                    errors.push((at.unwrap() as f64 - due) / 1e3);
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }
    tell_delay(task, &pace, errors);
}

/// The same without any network: a thread on the driver's CPU that spins until each moment is
/// there. What it is late by is what this machine takes from whoever spins.
pub fn bare(task: &Task) {
    let mut pace = Pace::new(task);
    let begin = now();
    let end = after(begin, task.seconds);
    let (tell, told) = std::sync::mpsc::channel::<f64>();
    let relay = std::thread::spawn(move || {
        let cpus = affinity::allowed_cpus().unwrap();
        affinity::bind(&[cpus[cpus.len() - 1]]).unwrap();
        let mut errors = Vec::new();
        let mut waiting = std::collections::VecDeque::new();
        let mut is_over = false;
        while !is_over || !waiting.is_empty() {
            match told.try_recv() {
                Ok(due) => waiting.push_back(due),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => is_over = true,
            }
            let at = now() as f64;
            while waiting.front().is_some_and(|due| *due <= at) {
                errors.extend(waiting.pop_front().map(|due| (at - due) / 1e3));
            }
        }
        errors
    });
    affinity::bind(&affinity::allowed_cpus().unwrap()[..1]).unwrap();
    while now() < end {
        if pace.is_time(now()) {
            let begun = now();
            pace.sent(begun, now());
            tell.send(pace.due.last().copied().flatten().unwrap_or(begun as f64)).unwrap();
        }
    }
    drop(tell);
    tell_delay(task, &pace, relay.join().unwrap());
}

/// When datagrams are sent, and when the model of the link delivers them.
struct Pace {
    interval: f64,
    wire_ns: f64,
    delay_ns: f64,
    next: f64,
    /// When the model's link is free again.
    free: f64,
    /// When each is due, in nanoseconds; absent where its sending was disturbed.
    due: Vec<Option<f64>>,
}

impl Pace {
    fn new(task: &Task) -> Self {
        let bits = (task.size + HEADERS) as f64 * 8.0;
        let wire_ns = task.rate.map_or(0.0, |rate| bits * 1e9 / rate as f64);
        let interval = if wire_ns > 0.0 { wire_ns / task.load } else { 50_000.0 };
        let delay_ns = task.delay_us as f64 * 1e3;
        Self { interval, wire_ns, delay_ns, next: 0.0, free: 0.0, due: Vec::new() }
    }

    fn is_time(&self, at: u64) -> bool {
        at as f64 >= self.next
    }

    /// One was sent between these two moments.
    fn sent(&mut self, begun: u64, done: u64) {
        let is_disturbed = done - begun > DISTURBED;
        let entered = if is_disturbed { done } else { begun } as f64;
        self.free = self.free.max(entered) + self.wire_ns;
        self.due.push((!is_disturbed).then_some(self.free + self.delay_ns));
        // What was missed is not made up for: it would queue.
        self.next = (self.next + self.interval).max(begun as f64);
    }
}

fn tell_delay(task: &Task, pace: &Pace, mut errors: Vec<f64>) {
    errors.sort_by(f64::total_cmp);
    let q = |p| quantile::of_sorted(&errors, p);
    println!(
        "{{\"measure\":\"delay\",\"wire\":\"{:?}\",\"sent\":{},\"disturbed\":{},\"received\":{},\"min_us\":{:.2},\"p50_us\":{:.2},\"p99_us\":{:.2},\"p999_us\":{:.2},\"max_us\":{:.2}}}",
        task.wire,
        pace.due.len(),
        pace.due.iter().filter(|due| due.is_none()).count(),
        errors.len(),
        errors[0],
        q(0.5),
        q(0.99),
        q(0.999),
        errors[errors.len() - 1],
    );
}

/// Offers more than the rate; what comes out, between two moments long after the beginning.
pub fn rate(bed: &Bed, task: &Task) {
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
pub fn datagrams(bed: &Bed, task: &Task) {
    let (near, _far) = pair(bed);
    let payload = vec![0; task.size];
    let stats = || {
        let link = bed.bed.b().unwrap().netlink().unwrap().link(TestBed::FAR_DEVICE).unwrap();
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

/// A TCP stream for a while; what the receiver got of it.
pub fn stream(bed: &Bed, task: &Task) {
    if let Some(segments) = task.burst {
        bed.limit_bursts(segments);
    }
    let address = SocketAddr::from((TestBed::FAR_V4, 9));
    let listener = bed.bed.in_b(|| TcpListener::bind(address).unwrap()).unwrap();
    let window = task.window;
    // Inherited by what it accepts, before the first window is offered.
    let clamp = move |fd: BorrowedFd<'_>| {
        if let Some(window) = window {
            set_option(fd, IntOption::WindowClamp, window).unwrap();
        }
    };
    clamp(listener.as_fd());
    let seconds = task.seconds;
    // The slow start, and the queue's filling, are not what is asked.
    let warm = 2.0 + 40.0 * task.delay_us as f64 * 2e-6;
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 20];
        let begin = now();
        let (mut first, mut count) = (None, 0_u64);
        loop {
            let len = stream.read(&mut buffer).unwrap();
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
    let mut stream = bed.bed.in_a(|| TcpStream::connect(address).unwrap()).unwrap();
    if let Some(name) = &task.congestion {
        set_congestion(stream.as_fd(), name).unwrap();
    }
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
