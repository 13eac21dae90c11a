//! Two namespaces with an emulator between them, in a thread of its own.
//!
//! Left out: what crosses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use plumb_base::time::Instant;
use plumb_host::clock::{Stopwatch, Timeline};
use plumb_host::device::{Device, DeviceCounters};
use plumb_host::emulate::{Emulator, Network, Options, Punctuality, TapsError, taps};
use plumb_host::lab::{LabError, LinkOptions, TestBed};
use plumb_wire::machine::Port;
use plumb_wire::packet::{Frames, Pool};

/// What was left when the emulator was stopped.
#[derive(Debug)]
pub struct Left {
    pub punctuality: Punctuality,
    pub counters: Vec<DeviceCounters>,
    /// Frames that nobody gave back.
    pub missing: (usize, usize),
}

/// A bed with an emulator that runs.
pub struct Running {
    pub bed: TestBed,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Left>,
}

const FRAMES: Frames = Frames { count: 8_192, size: 2_048, large: 64 };

/// Two TAPs and a network between them; none, with a word about it, where this process may not.
pub fn start<N: Network + Send + 'static>(network: N, options: Options) -> Option<Running> {
    let made = taps(LinkOptions { neighbours: true, ..LinkOptions::default() });
    let (bed, devices) = match made {
        Err(TapsError::Lab(error @ LabError::NotPermitted { .. })) => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            return None;
        }
        made => made.unwrap_or_else(|error| panic!("{error}")),
    };
    let (stop, thread) = spawn(network, devices.into(), Pool::new(FRAMES), options);
    Some(Running { bed, stop, thread })
}

fn spawn<N: Network + Send + 'static, D: Device + Send + 'static>(
    network: N,
    devices: Vec<D>,
    pool: Pool,
    options: Options,
) -> (Arc<AtomicBool>, JoinHandle<Left>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let timeline = Timeline::begin(Stopwatch::new(None));
        let mut emulator = Emulator::new(network, devices, pool, timeline, options);
        emulator.run(|_, _| stopped.load(Ordering::Relaxed)).unwrap();
        let (punctuality, counters) = (emulator.punctuality(), emulator.counters());
        let (mut network, _, mut pool) = emulator.into_parts();
        // What is still on its way.
        let mut rest = Vec::new();
        for port in 0..network.ports() {
            network.poll_due(Instant::NEVER, Port(port), &mut rest, usize::MAX, &mut pool);
        }
        for due in rest {
            pool.free(due.packet);
        }
        let (frames, free) = (pool.frames(), pool.available());
        let missing = (frames.count as usize - free.0, frames.large as usize - free.1);
        Left { punctuality, counters, missing }
    });
    (stop, thread)
}

impl Running {
    pub fn stop(self) -> Left {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Sockets at both ends, connected to each other.
    pub fn pair(&self, near: IpAddr, far: IpAddr) -> (UdpSocket, UdpSocket) {
        let bind = |address| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
        let (a, b) = (self.bed.in_a(|| bind(near)).unwrap(), self.bed.in_b(|| bind(far)).unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        for socket in [&a, &b] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        (a, b)
    }
}
