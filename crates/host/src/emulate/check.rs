//! A link measured from outside, in real time, by plain kernel sockets.
//!
//! Two namespaces with the link between them; an independent sender and the kernel's own time of reception on each
//! side. Left out: how the outcome is printed.

use std::sync::mpsc;
use std::thread::JoinHandle;

use plumb_base::time::{Instant, Span};
use plumb_link::link::Link;
use plumb_link::network::Network as _;
use plumb_link::report::NetworkReport;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Pool};

use super::{
    Control, DriverReport, Emulator, Inside, Interface, Options, Punctuality, TapsError,
    take_precedence, taps,
};
use crate::clock::{Stopwatch, Timeline};
use crate::device::tap::Tap;
use crate::device::{Device as _, DeviceError};
use crate::lab::{LabError, LinkOptions, TestBed, set_sysctl};

mod dropped;
mod expect;
mod judge;
mod lateness;
mod plan;
mod traffic;

pub use judge::{Line, Verdict};
pub use lateness::Lateness;
pub use traffic::{CheckError, Received, Seen, Sent, Traffic, exchange};

use dropped::Dropped;
use expect::Way;
use plan::{Busy, Plan};

/// Bytes of an IP packet that the bed carries.
const MTU: u32 = 1_500;

/// Frames that are there from the beginning: others take memory once they are used.
const LEAST: u32 = 16_384;

/// What a check found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// A line a way and property.
    pub lines: Vec<Line>,
    /// What the link's driver says of itself.
    pub driver: DriverReport,
    /// How long it took.
    pub took: Span,
}

/// Why a link could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckFault {
    /// The link.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The namespaces and devices.
    #[error(transparent)]
    Taps(#[from] TapsError),
    /// The namespaces.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The traffic.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Longer than one may wait.
    #[error(
        "a check of this link would take about {needed}, which a time of {time} does not allow; allow more, or check one that is shorter or faster"
    )]
    Long {
        /// How long it would.
        needed: Span,
        /// How long was asked for.
        time: Span,
    },
    /// The driver.
    #[error("the link's driver cannot run: {0}")]
    Driver(String),
}

/// Measures a link in about so much time.
///
/// # Errors
/// No namespaces, no TUN, no such link.
pub fn check(spec: &LinkSpec, options: Options, time: Span) -> Result<Outcome, CheckFault> {
    let ways = Way::both(spec);
    let plans = ways.each_ref().map(|way| plan::plan(way, time));
    let needed = plan::needed(&plans);
    if needed > plan::allowed(time) {
        return Err(CheckFault::Long { needed, time });
    }
    let begun = Timeline::begin(Stopwatch::new(None));
    let start = begun.now();
    let (bed, mut devices) = taps(LinkOptions { mtu: MTU, offloads: true, neighbours: true })?;
    silence(&bed, &mut devices)?;
    let frames = plan::frames(spec, &plans);
    let driven = Driven::start(spec.clone(), frames, &bed, devices, options)?;
    let sparse = observe(&driven, &bed, Some(&plans[0].sparse), Some(&plans[1].sparse))?;
    let busy = keep_busy(&driven, &bed, &plans)?;
    let (driver, network) = driven.finish()?;
    let dropped = Dropped::both(&network, &driver);
    let mut lines = Vec::new();
    for (index, way) in ways.iter().enumerate() {
        let (sparse, busy) = (&sparse[index], busy[index].as_ref());
        lines.extend(judge::judge(way, &plans[index], sparse, busy, dropped[index]));
    }
    Ok(Outcome { lines, driver, took: begun.now().saturating_since(start) })
}

/// Lets nobody but the check speak: what Linux says of its IPv6 addresses would keep a slow link
/// busy for seconds.
fn silence(bed: &TestBed, devices: &mut [Tap; 2]) -> Result<(), CheckFault> {
    for side in [Some(bed.a()), bed.b()].into_iter().flatten() {
        // A kernel without IPv6 has nothing to say.
        set_sysctl(side, "ipv6/conf/all/disable_ipv6", "1").ok();
    }
    let mut pool = Pool::new(Frames { count: 64, large: 1, ..Frames::default() });
    let mut heard = Vec::new();
    for device in devices {
        loop {
            device.receive(Instant::ORIGIN, &mut heard, 64, &mut pool)?;
            if heard.is_empty() {
                break;
            }
            pool.free_all(&mut heard);
        }
    }
    Ok(())
}

/// As [`exchange`], with how late the driver said meanwhile that it was.
fn observe(
    driven: &Driven,
    bed: &TestBed,
    up: Option<&Traffic>,
    down: Option<&Traffic>,
) -> Result<[Seen; 2], CheckFault> {
    let before = driven.punctuality()?;
    let seen = exchange(bed, up, down)?;
    let lateness = Lateness::between(&before, &driven.punctuality()?);
    Ok(seen.map(|seen| Seen { lateness: lateness.clone(), ..seen }))
}

/// Keeps each way busy: one after the other, or both at once where they are slow.
fn keep_busy(
    driven: &Driven,
    bed: &TestBed,
    plans: &[Plan; 2],
) -> Result<[Option<Seen>; 2], CheckFault> {
    let [up, down] = plans.each_ref().map(|plan| plan.busy.as_ref().ok());
    let traffic = |busy: Option<&'_ Busy>| busy.map(|busy| busy.traffic.clone());
    let seen = if plan::are_together(plans) {
        observe(driven, bed, traffic(up).as_ref(), traffic(down).as_ref())?
    } else {
        let [first, _] = observe(driven, bed, traffic(up).as_ref(), None)?;
        let [_, second] = observe(driven, bed, None, traffic(down).as_ref())?;
        [first, second]
    };
    let [first, second] = seen;
    Ok([up.map(|_| first), down.map(|_| second)])
}

/// A link that is driven by a thread of its own.
struct Driven {
    control: Control<Inside<Link>>,
    thread: JoinHandle<Result<(), DeviceError>>,
}

impl Driven {
    fn start(
        spec: LinkSpec,
        frames: u32,
        bed: &TestBed,
        devices: [Tap; 2],
        options: Options,
    ) -> Result<Self, CheckFault> {
        let mut interfaces = vec![Interface::watch(bed.a(), TestBed::NEAR_DEVICE)?];
        if let Some(far) = bed.b() {
            interfaces.push(Interface::watch(far, TestBed::FAR_DEVICE)?);
        }
        let (tell, told) = mpsc::sync_channel(1);
        let driver = |why: std::io::Error| CheckFault::Driver(why.to_string());
        let drive = move || {
            take_precedence();
            let timeline = Timeline::begin(Stopwatch::new(None));
            let begin = || {
                let link = Link::new(&spec, Medium::Ethernet, timeline.now())?;
                let room = Frames { count: frames, large: 256, ..Frames::default() };
                let pool = Pool::reserve(room, LEAST);
                Emulator::new(link, devices.into(), pool, timeline, options).map_err(driver)
            };
            let mut emulator = match begin() {
                Ok(emulator) => emulator,
                Err(error) => {
                    tell.send(Err(error)).ok();
                    return Ok(());
                }
            };
            for (port, interface) in (0..).zip(interfaces) {
                emulator.watch(Port(port), interface);
            }
            tell.send(Ok(emulator.control())).ok();
            emulator.run()
        };
        let named = std::thread::Builder::new().name("link".to_owned());
        let thread = named.spawn(drive).map_err(driver)?;
        let gone = |_| CheckFault::Driver("it ended before it began".to_owned());
        let control = told.recv().map_err(gone)??;
        Ok(Self { control, thread })
    }

    /// How punctual the driver was so far.
    fn punctuality(&self) -> Result<Punctuality, CheckFault> {
        let report = self.control.report();
        report
            .map(|report| report.punctuality)
            .map_err(|ended| CheckFault::Driver(ended.to_string()))
    }

    fn finish(self) -> Result<(DriverReport, NetworkReport), CheckFault> {
        let ask = |inside: &mut Inside<Link>| (inside.report(), inside.network.report(inside.now));
        let report = self.control.ask(ask).map(|(mut driver, network)| {
            self.control.complete(&mut driver);
            (driver, network)
        });
        self.control.stop();
        let ended = self.thread.join();
        ended.map_err(|_| CheckFault::Driver("it has a bug".to_owned()))??;
        report.map_err(|error| CheckFault::Driver(error.to_string()))
    }
}
