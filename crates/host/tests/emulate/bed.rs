//! Two namespaces with an emulator between them, in a thread of its own.
//!
//! Left out: what crosses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_host::clock::{Stopwatch, Timeline};
use plumb_host::device::{Device, DeviceCounters};
use plumb_host::emulate::{Control, DriverReport, Emulator, Inside, Options, TapsError, taps};
use plumb_host::lab::{LabError, LinkOptions, TestBed};
use plumb_link::link::Link;
use plumb_link::network::Network as _;
use plumb_link::spec::{DelayDistribution, DelaySpec, DirectionSpec, HopSpec, LinkSpec};
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Pool};

/// What was left when the emulator was stopped.
#[derive(Debug)]
pub struct Left {
    pub report: DriverReport,
    pub counters: Vec<DeviceCounters>,
    /// Frames that nobody gave back.
    pub missing: (usize, usize),
}

/// A bed with an emulator that runs.
pub struct Running {
    pub bed: TestBed,
    pub control: Control<Inside<Link>>,
    thread: JoinHandle<Left>,
}

const FRAMES: Frames = Frames { count: 8_192, size: 2_048, large: 64 };

/// One hop that does nothing but take its time, each way.
pub fn delay(span: Span) -> LinkSpec {
    let distribution = DelayDistribution::Constant(span);
    let delay = DelaySpec { distribution, ..DelaySpec::default() };
    symmetric(DirectionSpec { delay, ..DirectionSpec::default() })
}

/// One hop that is the same both ways.
pub fn symmetric(direction: DirectionSpec) -> LinkSpec {
    LinkSpec { hops: vec![HopSpec { up: direction.clone(), down: direction }], seed: Seed(1) }
}

/// Whether this process may make beds; a word about it where it may not.
pub fn can_make_beds() -> bool {
    start(&delay(Span::ZERO), Options::default()).is_some_and(|running| {
        running.stop();
        true
    })
}

/// Two TAPs and a network between them; none, with a word about it, where this process may not.
pub fn start(spec: &LinkSpec, options: Options) -> Option<Running> {
    let made = taps(LinkOptions { neighbours: true, ..LinkOptions::default() });
    let (bed, devices) = match made {
        Err(TapsError::Lab(error @ LabError::NotPermitted { .. })) => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            return None;
        }
        made => made.unwrap_or_else(|error| panic!("{error}")),
    };
    let (control, thread) = spawn(spec.clone(), devices.into(), Pool::new(FRAMES), options);
    Some(Running { bed, control, thread })
}

fn spawn<D: Device + Send + 'static>(
    spec: LinkSpec,
    devices: Vec<D>,
    pool: Pool,
    options: Options,
) -> (Control<Inside<Link>>, JoinHandle<Left>) {
    let (said, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let timeline = Timeline::begin(Stopwatch::new(None));
        let link = Link::new(&spec, Medium::Ethernet, timeline.now()).unwrap();
        let mut emulator = Emulator::new(link, devices, pool, timeline, options).unwrap();
        said.send(emulator.control()).unwrap();
        emulator.run().unwrap();
        let report = emulator.inside().report();
        let counters = emulator.devices().iter().map(Device::counters).collect();
        let (mut network, _, mut pool) = emulator.into_parts();
        network.clear(&mut pool);
        let (frames, free) = (pool.frames(), pool.available());
        let missing = (frames.count as usize - free.0, frames.large as usize - free.1);
        Left { report, counters, missing }
    });
    (hears.recv().unwrap(), thread)
}

impl Running {
    pub fn stop(self) -> Left {
        self.control.stop();
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
