//! Prints where the round trip of a pipe, a Unix, a UDP and a TCP socket goes, on one CPU and
//! across two: `breakdown [--events] [pipe|unix|udp|tcp …]`.
//!
//! Left out: intervals and everything else that makes a figure worth trusting.
#![expect(clippy::print_stdout, reason = "an example's output")]

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_host::clock::{Stopwatch, calibrate};
use plumb_host::trace::{
    Breakdown, EventSet, ProbeCost, Recorder, RoundTrip, Shape, Timeline, Tracepoint,
};
use plumb_sys::{affinity, process, socket};

const SIZE: usize = 64;
const ROUNDS: usize = 30;
const TRIPS: usize = 400;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, cpu] = &arguments[..]
        && role == "--peer"
    {
        return echo(name, cpu.parse()?);
    }
    let events = arguments.iter().any(|argument| argument == "--events");
    arguments.retain(|argument| !argument.starts_with("--"));
    if arguments.is_empty() {
        arguments = ["pipe", "unix", "udp", "tcp"].map(str::to_owned).to_vec();
    }
    let watch = Stopwatch::new(calibrate(Span::from_ms(200)).ticks_per_ns);
    let cpus = affinity::allowed_cpus()?;
    let here = *cpus.first().ok_or("no CPU")?;
    affinity::bind(&[here])?;
    let hit_ns = ProbeCost::measure_hit_ns(here, watch)?;
    for name in &arguments {
        for there in [Some(here), cpus.get(1).copied()].into_iter().flatten() {
            explain(name, [here, there], watch, hit_ns, events)?;
        }
    }
    Ok(())
}

/// Measures one mechanism at one placement, probes absent, open but off, and on, in turn.
fn explain(
    name: &str,
    [here, there]: [u32; 2],
    watch: Stopwatch,
    hit_ns: f64,
    events: bool,
) -> Result<(), Failure> {
    let (mut end, mut peer) = open(name, there)?;
    let mut set = match name {
        "pipe" => EventSet::pipe(),
        "unix" => EventSet::unix(),
        _ => EventSet::network(),
    };
    if here != there {
        set = set.with(Tracepoint::Woken);
    }
    let threads = [std::process::id(), peer.id()];
    let shape = Shape { worker: threads[0], peer: threads[1] };
    let mut trips = Vec::with_capacity(TRIPS);
    exchange(&mut end, watch, 2000, &mut Vec::with_capacity(2000))?;
    let (mut absent, mut off, mut on) = (Vec::new(), Vec::new(), Vec::new());
    let mut timelines: Vec<(Timeline, Vec<RoundTrip>)> = Vec::new();
    for _ in 0..ROUNDS {
        exchange(&mut end, watch, TRIPS, &mut trips)?;
        absent.extend(ns(watch, &trips));
        let mut recorder = Recorder::open(&threads, &[here, there], set, watch)?;
        exchange(&mut end, watch, TRIPS, &mut trips)?;
        off.extend(ns(watch, &trips));
        recorder.enable()?;
        exchange(&mut end, watch, TRIPS, &mut trips)?;
        recorder.disable()?;
        on.extend(ns(watch, &trips));
        timelines.push((recorder.drain(), trips.clone()));
    }
    // A datagram socket says nothing when it is closed.
    end.send(&[])?;
    drop(end);
    peer.wait()?;
    println!("\n== {name}, {}", if here == there { "one CPU" } else { "two CPUs" });
    if events && let Some((timeline, trips)) = timelines.last() {
        print_events(timeline, trips, watch);
    }
    print_parts(&timelines, shape, hit_ns, [&absent, &off, &on]);
    Ok(())
}

fn print_events(timeline: &Timeline, trips: &[RoundTrip], watch: Stopwatch) {
    let Some(trip) = trips.get(trips.len() / 2) else { return };
    for event in timeline.events().iter().filter(|e| trip.start <= e.at && e.at <= trip.end) {
        let after = watch.ns(event.at - trip.start);
        println!("{after:9.0} cpu {} thread {} {:?}", event.cpu, event.thread, event.kind);
    }
    println!("{:9.0} end", watch.ns(trip.end - trip.start));
}

fn print_parts(
    timelines: &[(Timeline, Vec<RoundTrip>)],
    shape: Shape,
    hit_ns: f64,
    turns: [&Vec<f64>; 3],
) {
    let [absent, off, on] = turns.map(|values| {
        let sorted = quantile::sorted(values);
        (trimmed_mean(&sorted), quantile::of_sorted(&sorted, 0.5))
    });
    let breakdowns: Vec<Breakdown> =
        timelines.iter().map(|(timeline, trips)| Breakdown::of(timeline, trips, shape)).collect();
    let Some(all) = Breakdown::merged(breakdowns) else { return };
    let typical = all.without_slowest(0.02);
    let cost = ProbeCost { with_ns: typical.whole_mean_ns(), without_ns: absent.0, hit_ns };
    let corrected = typical.corrected(&cost);
    println!(
        "mean without slowest 2 % (median): probes absent {:.0} ({:.0}), open {:.0} ({:.0}), on \
         {:.0} ({:.0}) ns; cost {:.1} %, {:.1} hits, {:.0} ns each, scale {:.2}; torn {}, unseen {}, lost {}",
        absent.0,
        absent.1,
        off.0,
        off.1,
        on.0,
        on.1,
        100.0 * cost.share(),
        typical.events_per_trip(),
        hit_ns,
        corrected.scale,
        all.torn,
        all.unseen,
        all.lost,
    );
    println!(
        "{:<6}{:<26}{:>9}{:>9}{:>9}{:>7}{:>11}",
        "", "part", "mean", "median", "p90", "hits", "corrected"
    );
    for (part, (_, _, ns)) in typical.parts.iter().zip(&corrected.parts) {
        let sorted = quantile::sorted(&part.per_trip_ns);
        println!(
            "{:<6}{:<26}{:>9.0}{:>9.0}{:>9.0}{:>7.1}{:>11.0}",
            part.leg.name(),
            part.part.name(),
            part.mean_ns(),
            quantile::of_sorted(&sorted, 0.5),
            quantile::of_sorted(&sorted, 0.9),
            part.events,
            ns,
        );
    }
    let unexplained = 100.0 * typical.unexplained_share();
    println!(
        "      unexplained {unexplained:.1} % ({:.1} % corrected)",
        100.0 * corrected.unexplained_ns / corrected.whole_ns
    );
    for (edges, ns) in &all.unexplained_edges {
        println!("            {:9.0} {edges}", ns / all.whole_ns.len() as f64);
    }
}

fn trimmed_mean(sorted: &[f64]) -> f64 {
    let kept = &sorted[..sorted.len() - sorted.len() / 50];
    kept.iter().sum::<f64>() / kept.len().max(1) as f64
}

fn ns(watch: Stopwatch, trips: &[RoundTrip]) -> Vec<f64> {
    trips.iter().map(|trip| watch.ns(trip.end.saturating_sub(trip.start))).collect()
}

/// Round trips, one after another, each timed.
fn exchange(
    end: &mut End,
    watch: Stopwatch,
    count: usize,
    trips: &mut Vec<RoundTrip>,
) -> io::Result<()> {
    trips.clear();
    let (message, mut answer) = ([7; SIZE], [0; SIZE]);
    for _ in 0..count {
        let start = watch.begin();
        end.send(&message)?;
        end.receive(&mut answer)?;
        let end = watch.end();
        trips.push(RoundTrip { start, end });
    }
    Ok(())
}

/// The peer: answers until the other end is closed.
fn echo(name: &str, cpu: u32) -> Result<(), Failure> {
    process::die_with_parent()?;
    affinity::bind(&[cpu])?;
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut end = End {
        from: stdin.as_fd().try_clone_to_owned()?,
        to: stdout.as_fd().try_clone_to_owned()?,
        socket: name != "pipe",
    };
    let mut message = [0; SIZE];
    while end.receive(&mut message).is_ok() {
        end.send(&message)?;
    }
    Ok(())
}

/// A descriptor to read from and one to write to.
struct End {
    from: OwnedFd,
    to: OwnedFd,
    socket: bool,
}

impl End {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if self.socket {
            socket::send(self.to.as_fd(), message).map(drop)
        } else {
            plumb_sys::fd::write(self.to.as_fd(), message).map(drop)
        }
    }

    fn receive(&mut self, message: &mut [u8]) -> io::Result<()> {
        let len = if self.socket {
            socket::receive(self.from.as_fd(), message, true)?
        } else {
            plumb_sys::fd::read(self.from.as_fd(), message)?
        };
        // A peer that is gone sends an empty message.
        if len == message.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Opens a channel and starts the peer at its other end.
fn open(name: &str, cpu: u32) -> Result<(End, Child), Failure> {
    let both = |socket: OwnedFd| io::Result::Ok((socket.try_clone()?, socket));
    let ((from, to), (peer_from, peer_to)): ((OwnedFd, OwnedFd), (OwnedFd, OwnedFd)) = match name {
        "pipe" => {
            let (there, to) = io::pipe()?;
            let (from, back) = io::pipe()?;
            ((from.into(), to.into()), (there.into(), back.into()))
        }
        "unix" => {
            let (own, peer) = UnixStream::pair()?;
            (both(own.into())?, both(peer.into())?)
        }
        "udp" => {
            let (own, peer) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
            own.connect(peer.local_addr()?)?;
            peer.connect(own.local_addr()?)?;
            (both(own.into())?, both(peer.into())?)
        }
        "tcp" => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let own = TcpStream::connect(listener.local_addr()?)?;
            let (peer, _) = listener.accept()?;
            own.set_nodelay(true)?;
            peer.set_nodelay(true)?;
            (both(own.into())?, both(peer.into())?)
        }
        other => return Err(format!("no mechanism {other}; there are pipe, unix, udp, tcp").into()),
    };
    let child = Command::new("/proc/self/exe")
        .args(["--peer", name, &cpu.to_string()])
        .stdin(Stdio::from(peer_from))
        .stdout(Stdio::from(peer_to))
        .spawn()?;
    Ok((End { from, to, socket: name != "pipe" }, child))
}
