//! plumb's stack on a device in real time, running an application.

use std::path::Path;
use std::{fmt, io};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, Stopwatch};
use plumb_stack::host::IpHost;
use plumb_stack::service::{HostApplication, HostNode};
use plumb_stack::tcp::TcpOpenError;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::udp::BindError;
use plumb_sys::{signal, timer};
use plumb_wire::machine::DeviceCapabilities;
use plumb_wire::packet::{HEADROOM, Pool, PoolConfig};

use crate::device::driver::{Driver, DriverExit, DriverOptions};
use crate::device::fault::{FaultCounters, FaultRates, FaultyDevice};
use crate::device::recording::{RecordedDirections, RecordingDevice};
use crate::device::{Device, DeviceError, DeviceLayer, DeviceWait, memory};
use echo_test::{EchoSender, EchoTest};
use http_get::HttpGet;
use ping::{PingApplication, PingRequest};
use services::OfferedServices;
use stream_client::StreamClient;
use stream_transfer::StreamTransfer;

pub mod echo_test;
pub mod http_get;
pub mod http_server;
pub mod ping;
pub mod replay;
pub mod served_socket;
pub mod services;
pub mod stream_client;
pub mod stream_services;
pub mod stream_transfer;

/// Interval of interruptions of blocking calls, so that requests to stop are noticed.
const TICK: Span = Span::from_ms(50);

/// Duration of the calibration of the counter against the kernel's clock.
const CALIBRATION: Span = Span::from_ms(50);

/// Largest MTU of ordinary frames in a pool, that of jumbo frames; also for devices of unknown MTU.
pub const LARGEST_MTU: u32 = 9_000;
/// Number of large frames if every packet may need one.
const LARGE_FRAMES: u32 = 256;
/// The same if super-segments may come or go: several batches of either.
const SUPER_SEGMENT_FRAMES: u32 = 128;

/// A calibrated clock.
pub fn calibrated_clock() -> InstantClock {
    InstantClock::begin(Stopwatch::new(plumb_clock::calibrate(CALIBRATION).ticks_per_ns))
}

/// Counts SIGINT and its like and SIGUSR1 from now on, and interrupts blocking calls periodically.
///
/// # Errors
/// The kernel refuses a handler or a timer.
pub fn install_signal_handlers() -> io::Result<()> {
    signal::count_stop_requests()?;
    signal::count_status_requests()?;
    timer::start_periodic_tick(u32::try_from(TICK.as_ns() / 1_000).expect("a short time"))
}

/// A pool whose frames hold packets of this MTU with link header and tags; beyond jumbo frames it has more large frames
/// instead.
pub fn pool_for(mtu: u32) -> Pool {
    Pool::new(pool_config(mtu, 0))
}

/// At least `large` large frames.
fn pool_config(mtu: u32, large: u32) -> PoolConfig {
    const LINK_HEADER: u32 = 22;
    let headroom = u32::try_from(HEADROOM).unwrap_or(u32::MAX);
    let size = (mtu.min(LARGEST_MTU) + LINK_HEADER + headroom).next_multiple_of(64);
    let frames = PoolConfig::default();
    let least = if mtu > LARGEST_MTU { LARGE_FRAMES } else { frames.large };
    PoolConfig { size: size.max(frames.size), large: large.max(least), ..frames }
}

/// The pool of a device, with enough large frames for super-segments where it has them.
pub fn pool_for_device(capabilities: DeviceCapabilities) -> Pool {
    let has_super_segments = capabilities.coalesces || capabilities.segments_tcp;
    let large = if has_super_segments { SUPER_SEGMENT_FRAMES } else { 0 };
    Pool::new(pool_config(capabilities.mtu, large))
}

/// Starts a host with services at the far end of a link in memory, on a thread that ends with the near end, which is
/// returned.
pub fn start_memory_peer(
    mut node: HostNode<OfferedServices>,
    capabilities: DeviceCapabilities,
    batch: usize,
    wait: DeviceWait,
) -> Box<dyn Device> {
    let (near, far) = memory::pair(capabilities, wait);
    let timeline = calibrated_clock();
    std::thread::spawn(move || {
        let options = DriverOptions { batch, wait, ..DriverOptions::default() };
        let mut driver = Driver::new(vec![far], pool_for(capabilities.mtu), timeline, options);
        // Ends with the near end; nobody is left to report an error to.
        let _ = driver.run(&mut node, |_, _, _| false);
    });
    Box::new(near)
}

/// The device of a stack with its instrumentation.
pub enum AttachedDevice {
    /// Not instrumented.
    Bare(Box<dyn Device>),
    /// With faults.
    Faulty(FaultyDevice<Box<dyn Device>>),
    /// Recorded.
    Recorded(RecordingDevice<Box<dyn Device>>),
    /// Recorded after faults.
    RecordedFaulty(RecordingDevice<FaultyDevice<Box<dyn Device>>>),
}

impl fmt::Debug for AttachedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.below().info().name)
    }
}

impl AttachedDevice {
    /// A device with faults in both directions, whose packets are recorded as the stack sees them.
    ///
    /// # Errors
    /// The recording cannot be created.
    pub fn new(
        device: Box<dyn Device>,
        record: Option<&Path>,
        faults: Option<FaultRates>,
        timeline: InstantClock,
        seed: Seed,
    ) -> io::Result<Self> {
        const BOTH: RecordedDirections = RecordedDirections::Both;
        let faulty = |device, faults| FaultyDevice::new(device, faults, faults, seed);
        Ok(match (record, faults) {
            (None, None) => Self::Bare(device),
            (None, Some(faults)) => Self::Faulty(faulty(device, faults)),
            (Some(path), None) => {
                Self::Recorded(RecordingDevice::new(device, path, BOTH, timeline)?)
            }
            (Some(path), Some(faults)) => {
                let device = faulty(device, faults);
                Self::RecordedFaulty(RecordingDevice::new(device, path, BOTH, timeline)?)
            }
        })
    }

    /// Counters of faults on received and on sent packets.
    pub fn faults(&self) -> Option<(FaultCounters, FaultCounters)> {
        match self {
            Self::Bare(_) | Self::Recorded(_) => None,
            Self::Faulty(device) => Some(device.faults()),
            Self::RecordedFaulty(device) => Some(device.device().faults()),
        }
    }

    /// Writes the rest of the recording.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&mut self) -> Result<(), DeviceError> {
        match self {
            Self::Bare(_) | Self::Faulty(_) => Ok(()),
            Self::Recorded(device) => device.flush(),
            Self::RecordedFaulty(device) => device.flush(),
        }
    }
}

impl DeviceLayer for AttachedDevice {
    type Below = dyn Device;

    fn below(&self) -> &Self::Below {
        match self {
            Self::Bare(device) => device,
            Self::Faulty(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedFaulty(device) => device,
        }
    }

    #[inline]
    fn below_mut(&mut self) -> &mut Self::Below {
        match self {
            Self::Bare(device) => device,
            Self::Faulty(device) => device,
            Self::Recorded(device) => device,
            Self::RecordedFaulty(device) => device,
        }
    }
}

/// Why a run ended.
#[derive(Debug)]
pub enum StackEndReason {
    /// The application is complete.
    Complete,
    /// The time is up.
    Duration,
    /// Interrupted by the user.
    Interrupted,
    /// The device failed or has ended.
    Device(DeviceError),
}

impl StackEndReason {
    /// Its name in documents.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Duration => "duration",
            Self::Interrupted => "interrupted",
            Self::Device(_) => "device",
        }
    }
}

/// An application whose run its owner watches.
pub trait WatchedApplication: HostApplication {
    /// Whether nothing remains to be done.
    fn is_complete(&self) -> bool;

    /// Whether it has messages for its owner.
    fn has_news(&self) -> bool {
        false
    }
}

/// How the owner of a run watches and limits it.
pub struct RunWatch<'a, A> {
    /// Ends the run after this time.
    pub duration: Option<Span>,
    /// Time between two looks at the status; SIGUSR1 asks for one too.
    pub status_every: Option<Span>,
    /// Called between two turns when the application has news or, with `true`, a look at the status is due. Ends the
    /// run by returning `false`.
    pub notify: &'a mut dyn FnMut(&mut HostNode<A>, bool) -> bool,
}

impl<A> fmt::Debug for RunWatch<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWatch").field("duration", &self.duration).finish_non_exhaustive()
    }
}

/// When the status is due.
struct StatusSchedule {
    every: Option<Span>,
    next: Option<Instant>,
    requests_seen: u32,
}

impl StatusSchedule {
    #[inline]
    fn is_due(&mut self, now: Instant) -> bool {
        let requests = signal::status_requests();
        let mut is_due = requests != self.requests_seen;
        self.requests_seen = requests;
        if let Some(every) = self.every {
            let next = self.next.get_or_insert(now + every);
            if now >= *next {
                is_due = true;
                *next = now + every;
            }
        }
        is_due
    }
}

/// A host on its device.
#[derive(Debug)]
pub struct AttachedHost {
    /// The stack.
    pub host: IpHost,
    /// The clock.
    pub timeline: InstantClock,
    driver: Driver<AttachedDevice>,
}

/// The result of a run.
#[derive(Debug)]
pub struct StackRun<A> {
    /// The application.
    pub application: A,
    /// The stack.
    pub host: IpHost,
    /// Its device.
    pub device: AttachedDevice,
    /// Why it ended.
    pub ended: StackEndReason,
    /// Duration.
    pub seconds: f64,
}

impl AttachedHost {
    /// A host whose driver takes `batch` packets at most at a time.
    pub fn new(
        host: IpHost,
        device: AttachedDevice,
        pool: Pool,
        timeline: InstantClock,
        batch: usize,
        wait: DeviceWait,
    ) -> Self {
        let options = DriverOptions { batch, alarm: true, wait };
        let driver = Driver::new(vec![device], pool, timeline, options);
        Self { host, timeline, driver }
    }

    /// Sends echo requests until all are answered or lost.
    pub fn ping(
        self,
        request: PingRequest,
        watch: RunWatch<'_, PingApplication>,
    ) -> StackRun<PingApplication> {
        self.run(PingApplication::new(request), watch).of_whole_test()
    }

    /// Runs an echo test with a peer.
    ///
    /// # Errors
    /// There is no route to the peer.
    pub fn run_echo_test(
        mut self,
        test: EchoTest,
        remote: std::net::SocketAddr,
        watch: RunWatch<'_, EchoSender>,
    ) -> Result<StackRun<EchoSender>, BindError> {
        let sender = EchoSender::open(&mut self.host, remote, test, self.timeline)?;
        Ok(self.run(sender, watch).of_whole_test())
    }

    /// Opens a connection to `remote`, given up after `timeout` without progress.
    ///
    /// # Errors
    /// [`TcpOpenError`].
    pub fn connect(
        &mut self,
        remote: std::net::SocketAddr,
        config: TcpConfig,
        timeout: Span,
    ) -> Result<StreamClient, TcpOpenError> {
        let now = self.driver.read_clock();
        StreamClient::open(&mut self.host, now, remote, (config, timeout), &self.driver.pool)
    }

    /// Moves bulk data over a connection.
    pub fn transfer(
        self,
        transfer: StreamTransfer,
        watch: RunWatch<'_, StreamTransfer>,
    ) -> StackRun<StreamTransfer> {
        self.run(transfer, watch).of_whole_test()
    }

    /// Gets a resource over HTTP.
    pub fn get(self, get: HttpGet, watch: RunWatch<'_, HttpGet>) -> StackRun<HttpGet> {
        self.run(get, watch).of_whole_test()
    }

    /// Offers services.
    pub fn serve(
        self,
        services: OfferedServices,
        watch: RunWatch<'_, OfferedServices>,
    ) -> StackRun<OfferedServices> {
        self.run(services, watch)
    }

    /// Runs an application until it is complete, its owner or the user ends it, or the device ends.
    fn run<A: WatchedApplication>(self, application: A, watch: RunWatch<'_, A>) -> StackRun<A> {
        let Self { host, mut driver, .. } = self;
        let RunWatch { duration, status_every: every, notify } = watch;
        let mut status = StatusSchedule { every, next: None, requests_seen: 0 };
        let mut node = HostNode { host, application };
        let begun = driver.read_clock();
        node.application.handle(begun, &mut node.host, &mut driver.pool);
        let mut ended = StackEndReason::Complete;
        let outcome = driver.run(&mut node, |node, now, _| {
            let is_status_due = status.is_due(now);
            let is_news = is_status_due || node.application.has_news();
            if signal::stop_requests() > 0 {
                ended = StackEndReason::Interrupted;
            } else if (is_news && !notify(node, is_status_due)) || node.application.is_complete() {
                ended = StackEndReason::Complete;
            } else if duration.is_some_and(|span| now.saturating_since(begun) >= span) {
                ended = StackEndReason::Duration;
            } else {
                return false;
            }
            true
        });
        let seconds = driver.read_clock().saturating_since(begun).as_secs_f64();
        let mut devices = driver.devices;
        let mut device = devices.pop().expect("one device");
        let ended = match (outcome, device.finish()) {
            (Err(error), _) | (Ok(_), Err(error)) => StackEndReason::Device(error),
            (Ok(DriverExit::Finished), Ok(())) => StackEndReason::Complete,
            (Ok(DriverExit::Stopped), Ok(())) => ended,
        };
        StackRun { application: node.application, host: node.host, device, ended, seconds }
    }
}

impl<A: WatchedApplication> StackRun<A> {
    /// The run of a test: if the test is not over, the device has ended before it.
    fn of_whole_test(mut self) -> Self {
        if matches!(self.ended, StackEndReason::Complete) && !self.application.is_complete() {
            self.ended = StackEndReason::Device(DeviceError::Finished);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_frames_hold_packets_of_the_mtu() {
        assert_eq!(pool_for(1_500).frames().size, 2_048);
        assert!(pool_for(9_000).frames().size as usize >= 9_022 + HEADROOM);
        let mut pool = pool_for(65_535);
        let mut packets: Vec<_> = (0..32).map(|_| pool.allocate_for(65_535).unwrap()).collect();
        pool.free_all(&mut packets);
    }
}
