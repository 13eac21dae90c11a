//! A link measured from outside, in real time, by plain kernel sockets.
//!
//! Two namespaces with the link between them; an independent sender and the kernel's own time of reception on each
//! side.

use std::fmt;
use std::sync::mpsc;
use std::thread::JoinHandle;

use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, Stopwatch};
use plumb_link::link::Link;
use plumb_link::report::Network as _;
use plumb_link::report::NetworkReport;
use plumb_link::spec::{LinkSpec, SpecError};
use plumb_wire::machine::{Medium, PortId};
use plumb_wire::packet::{Pool, PoolConfig};

use super::{
    Emulator, EmulatorControl, EmulatorOptions, EmulatorReport, EmulatorState, EmulatorTiming,
    InterfaceDropCounter, TapPairError, raise_priority, tap_pair,
};
use crate::device::tap::TapDevice;
use crate::device::{Device as _, DeviceError};
use crate::lab::{LabError, TestBed, TestBedOptions, set_sysctl};

mod judge;
mod plan;
mod traffic;

pub use super::timing::Lateness;
pub use judge::{Property, Verdict};
pub use traffic::{ObservedTraffic, ProbeSendTimes, ProbeTraffic, ReceivedProbe, exchange};

use judge::UnmodeledDrops;
use plan::{BusyTraffic, CheckPlan, OneWayPath};

/// Bytes of an IP packet that the bed carries.
const MTU: u32 = 1_500;

/// Frames that are there from the beginning: others take memory once they are used.
const LEAST: u32 = 16_384;

/// What a check found.
#[derive(Clone, Debug)]
pub struct LinkCheckReport {
    /// A line a way and property.
    pub properties: Vec<Property>,
    /// What the link's driver says about itself.
    pub driver: EmulatorReport,
    /// How long it took.
    pub took: Span,
}

/// Why a link could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum LinkCheckError {
    /// The link.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The namespaces and devices.
    #[error(transparent)]
    Taps(#[from] TapPairError),
    /// The namespaces.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Longer than one may wait.
    #[error(
        "a check of this link would take about {needed}, which a time of {time} does not allow; allow more, or check one that is shorter or faster"
    )]
    TooLong {
        /// How long it would.
        needed: Span,
        /// How long was asked for.
        time: Span,
    },
    /// The traffic, a device or the driver.
    #[error("{0}")]
    Failed(String),
}

impl LinkCheckError {
    fn driver(why: impl fmt::Display) -> Self {
        Self::Failed(format!("the link's driver cannot run: {why}"))
    }
}

impl From<DeviceError> for LinkCheckError {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Measures a link in about so much time.
///
/// # Errors
/// No namespaces, no TUN, no such link.
pub fn check(
    spec: &LinkSpec,
    options: EmulatorOptions,
    time: Span,
) -> Result<LinkCheckReport, LinkCheckError> {
    let ways = OneWayPath::both(spec);
    let plans = ways.each_ref().map(|way| plan::plan(way, time));
    let needed = plan::duration_max(&plans);
    if needed > plan::duration_allowed(time) {
        return Err(LinkCheckError::TooLong { needed, time });
    }
    let begun = InstantClock::begin(Stopwatch::new(None));
    let start = begun.now();
    let (bed, mut devices) =
        tap_pair(TestBedOptions { mtu: MTU, offloads: true, neighbors: true })?;
    disable_ipv6_chatter(&bed, &mut devices)?;
    let frames = plan::frames(spec, &plans);
    let driven = EmulatorThread::start(spec.clone(), frames, &bed, devices, options)?;
    let sparse = measure_sparse(&driven, &bed, Some(&plans[0].sparse), Some(&plans[1].sparse))?;
    let busy = measure_busy(&driven, &bed, &plans)?;
    let (driver, network) = driven.finish()?;
    let dropped = UnmodeledDrops::both(&network, &driver);
    let mut lines = Vec::new();
    for (index, way) in ways.iter().enumerate() {
        let (sparse, busy) = (&sparse[index], busy[index].as_ref());
        lines.extend(judge::judge(way, &plans[index], sparse, busy, dropped[index]));
    }
    Ok(LinkCheckReport { properties: lines, driver, took: begun.now().saturating_since(start) })
}

/// Lets nobody but the check speak: what Linux says about its IPv6 addresses would keep a slow link
/// busy for seconds.
fn disable_ipv6_chatter(bed: &TestBed, devices: &mut [TapDevice; 2]) -> Result<(), LinkCheckError> {
    for side in [Some(bed.near()), bed.far()].into_iter().flatten() {
        // A kernel without IPv6 has nothing to say.
        set_sysctl(side, "ipv6/conf/all/disable_ipv6", "1").ok();
    }
    let mut pool = Pool::new(PoolConfig { count: 64, large: 1, ..PoolConfig::default() });
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
fn measure_sparse(
    driven: &EmulatorThread,
    bed: &TestBed,
    up: Option<&ProbeTraffic>,
    down: Option<&ProbeTraffic>,
) -> Result<[ObservedTraffic; 2], LinkCheckError> {
    let before = driven.timing()?;
    let seen = exchange(bed, up, down)?;
    let lateness = Lateness::between(&before, &driven.timing()?);
    Ok(seen.map(|seen| ObservedTraffic { lateness: lateness.clone(), ..seen }))
}

/// Keeps each way busy: one after the other, or both at once where they are slow.
fn measure_busy(
    driven: &EmulatorThread,
    bed: &TestBed,
    plans: &[CheckPlan; 2],
) -> Result<[Option<ObservedTraffic>; 2], LinkCheckError> {
    let [up, down] = plans.each_ref().map(|plan| plan.busy.as_ref().ok());
    let traffic = |busy: Option<&'_ BusyTraffic>| busy.map(|busy| busy.traffic.clone());
    let seen = if plan::are_simultaneous(plans) {
        measure_sparse(driven, bed, traffic(up).as_ref(), traffic(down).as_ref())?
    } else {
        let [first, _] = measure_sparse(driven, bed, traffic(up).as_ref(), None)?;
        let [_, second] = measure_sparse(driven, bed, None, traffic(down).as_ref())?;
        [first, second]
    };
    let [first, second] = seen;
    Ok([up.map(|_| first), down.map(|_| second)])
}

/// A link that is driven by a thread of its own.
struct EmulatorThread {
    control: EmulatorControl<EmulatorState<Link>>,
    thread: JoinHandle<Result<(), DeviceError>>,
}

impl EmulatorThread {
    fn start(
        spec: LinkSpec,
        frames: u32,
        bed: &TestBed,
        devices: [TapDevice; 2],
        options: EmulatorOptions,
    ) -> Result<Self, LinkCheckError> {
        let mut interfaces = vec![InterfaceDropCounter::watch(bed.near(), TestBed::NEAR_DEVICE)?];
        if let Some(far) = bed.far() {
            interfaces.push(InterfaceDropCounter::watch(far, TestBed::FAR_DEVICE)?);
        }
        let (tell, told) = mpsc::sync_channel(1);
        let drive = move || {
            raise_priority();
            let timeline = InstantClock::begin(Stopwatch::new(None));
            let begin = || {
                let link = Link::new(&spec, Medium::Ethernet, timeline.now())?;
                let room = PoolConfig { count: frames, large: 256, ..PoolConfig::default() };
                let pool = Pool::reserve(room, LEAST);
                Emulator::new(link, devices.into(), pool, timeline, options)
                    .map_err(LinkCheckError::driver)
            };
            let mut emulator = match begin() {
                Ok(emulator) => emulator,
                Err(error) => {
                    tell.send(Err(error)).ok();
                    return Ok(());
                }
            };
            for (port, interface) in (0..).zip(interfaces) {
                emulator.watch(PortId(port), interface);
            }
            tell.send(Ok(emulator.control())).ok();
            emulator.run()
        };
        let named = std::thread::Builder::new().name("link".to_owned());
        let thread = named.spawn(drive).map_err(LinkCheckError::driver)?;
        let gone = |_| LinkCheckError::driver("it ended before it began");
        let control = told.recv().map_err(gone)??;
        Ok(Self { control, thread })
    }

    /// How punctual the driver was so far.
    fn timing(&self) -> Result<EmulatorTiming, LinkCheckError> {
        self.control.report().map(|report| report.timing).map_err(LinkCheckError::driver)
    }

    fn finish(self) -> Result<(EmulatorReport, NetworkReport), LinkCheckError> {
        let ask =
            |inside: &mut EmulatorState<Link>| (inside.report(), inside.network.report(inside.now));
        let report = self.control.call(ask).map(|(mut driver, network)| {
            self.control.add_interface_drops(&mut driver);
            (driver, network)
        });
        self.control.stop();
        let ended = self.thread.join();
        ended.map_err(|_| LinkCheckError::driver("it has a bug"))??;
        report.map_err(LinkCheckError::driver)
    }
}
