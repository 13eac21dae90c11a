//! Transfers over a TAP, in real time: plumb's TCP at one side, Linux's at the other, and a link that loses frames.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, monotonic_ns};
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::program_task::ProgramRun;
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{TransferLoad, TransferSpec};
use plumb_netdev::device::Device as _;
use plumb_netdev::device::DeviceWait;
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::fault::{FaultRates, FaultyDevice};
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::lab::{TestBed, TestBedOptions, become_root};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::service::{HostApplication, HostNode};
use plumb_stack::tcp::{ListenerId, Received, TcpId, TcpInfo};
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::{Pool, PoolConfig};

use super::{MTU, PORT, add_samples, segment_samples, tcp_config};

/// Time after which a transfer is given up: what was carried until then counts.
const GIVEN_UP: Span = Span::from_secs(4);
/// Frames as they could be on a wire, so that one that is lost is one segment.
const PLAIN: TapOptions = TapOptions {
    medium: Medium::Ethernet,
    wait: DeviceWait::Block,
    offload: TapOffload::None,
    mtu: Some(MTU),
};
/// How often the stack's thread looks whether it is to end.
const LOOK: Span = Span::from_ms(20);

/// A TAP with Linux at its other side.
///
/// # Errors
/// This user may make none.
pub(crate) fn open_tap() -> Result<(TestBed, TapDevice), LaunchFault> {
    let lack = |error: &dyn std::error::Error| LaunchFault::Unavailable(error.to_string());
    become_root().map_err(|error| lack(&error))?;
    let options = TestBedOptions { offloads: false, neighbors: true, ..TestBedOptions::default() };
    let bed = TestBed::tap(options).map_err(|error| lack(&error))?;
    let tap = bed.in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, PLAIN));
    let tap = tap.map_err(|error| lack(&error))?.map_err(|error| lack(&error))?;
    bed.bring_up_near().map_err(|error| lack(&error))?;
    Ok((bed, tap))
}

/// plumb's host at this side of it.
pub(crate) fn tap_host(
    capabilities: DeviceCapabilities,
    seed: Seed,
) -> Result<IpHost, LaunchFault> {
    let mut host = IpHost::new(HostConfig::default(), seed);
    let interface =
        InterfaceConfig { capabilities, ..InterfaceConfig::ethernet(TestBed::FAR_MAC, MTU) };
    host.add_interface(&interface.with_address(TestBed::FAR_V4, TestBed::PREFIX_LEN.0))
        .map_err(|error| LaunchFault::Failed(error.to_string()))?;
    Ok(host)
}

/// Carries out the transfers of a block: one of a file.
pub(super) fn run(
    spec: &TransferSpec,
    (sends, loss_ppm): (bool, u32),
    run: &ProgramRun,
) -> Result<NamedSamples, LaunchFault> {
    let TransferLoad::Bulk { bytes, write, .. } = spec.load else {
        return Err(LaunchFault::Failed("a transfer over a TAP is of a file".to_owned()));
    };
    let (bed, tap) = open_tap()?;
    let lose = f64::from(loss_ppm) * 1e-6;
    let faults = FaultRates { lose, ..FaultRates::default() };
    let device = FaultyDevice::new(tap, faults, faults, Seed(run.seed));
    let task = TapTask { sends, bytes, write: write as usize };
    let (finished, arrival) = channel();
    let progress = Arc::new(TapProgress::default());
    let stack_side =
        TapApplication::host(spec, task, Seed(run.seed), &device, (&progress, finished))?;
    let watch = run.watch;
    let stack = std::thread::spawn({
        let progress = Arc::clone(&progress);
        move || {
            let pool = Pool::new(PoolConfig { count: 1_024, size: 2_048, large: 8 });
            let mut driver = Driver::new(
                vec![device],
                pool,
                InstantClock::begin(watch),
                DriverOptions::default(),
            );
            let mut node = stack_side;
            let ended =
                driver.run(&mut node, |_, _, _| progress.stop.load(Ordering::Relaxed)).map(drop);
            let application = &node.application;
            (ended, application.id.and_then(|id| node.host.tcp_info(id)))
        }
    });
    let began = watch.begin();
    let carried = linux(&bed, task, &arrival)
        .map(|sent| if sends { sent } else { progress.received.load(Ordering::Acquire) });
    let ns = watch.ns(watch.end().wrapping_sub(began));
    progress.stop.store(true, Ordering::Relaxed);
    let failed = |what: &str| LaunchFault::Failed(format!("a transfer over a TAP failed: {what}"));
    let (ended, info): (_, Option<TcpInfo>) =
        stack.join().map_err(|_| failed("its thread panicked"))?;
    ended.map_err(|error| failed(&error.to_string()))?;
    let carried = carried.map_err(|error| failed(&error.to_string()))?;
    let mut samples = NamedSamples::new();
    add_samples(&mut samples, "throughput", [carried as f64 / (ns * 1e-9)]);
    // Of Linux's segments nothing is known here.
    let info = info.filter(|_| sends);
    let segments = info.map(|info| segment_samples(&info, carried));
    for (response, value) in segments.into_iter().flatten() {
        add_samples(&mut samples, response, [value]);
    }
    Ok(samples)
}

/// What is to be carried.
#[derive(Clone, Copy, Debug)]
struct TapTask {
    /// Whether plumb sends.
    sends: bool,
    bytes: u64,
    write: usize,
}

/// What both threads know.
#[derive(Debug, Default)]
struct TapProgress {
    stop: AtomicBool,
    received: AtomicU64,
}

/// plumb's side: it listens, and sends or receives.
struct TapApplication {
    listener: ListenerId,
    id: Option<TcpId>,
    task: TapTask,
    done: u64,
    progress: Arc<TapProgress>,
    /// Told when all has been received.
    finished: Sender<()>,
    look: Instant,
}

impl TapApplication {
    fn host(
        spec: &TransferSpec,
        task: TapTask,
        seed: Seed,
        device: &FaultyDevice<TapDevice>,
        (progress, finished): (&Arc<TapProgress>, Sender<()>),
    ) -> Result<HostNode<Self>, LaunchFault> {
        let fault = |error: &dyn std::error::Error| LaunchFault::Failed(error.to_string());
        let mut host = tap_host(device.info().capabilities, seed)?;
        let local = SocketAddr::from((TestBed::FAR_V4, PORT));
        let listener =
            host.tcp_listen(local, 1, tcp_config(&spec.tcp)).map_err(|error| fault(&error))?;
        let progress = Arc::clone(progress);
        let application =
            Self { listener, id: None, task, done: 0, progress, finished, look: Instant::ORIGIN };
        Ok(HostNode { host, application })
    }
}

impl HostApplication for TapApplication {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        self.look = now + LOOK;
        while host.poll_tcp_event().is_some() {}
        self.id = self.id.or_else(|| host.tcp_accept(self.listener));
        let Some(id) = self.id else { return };
        if self.task.sends {
            let block = vec![b'x'; self.task.write];
            while self.done < self.task.bytes {
                let left = usize::try_from(self.task.bytes - self.done).unwrap_or(usize::MAX);
                let Ok(sent @ 1..) = host.tcp_send(now, id, &block[..left.min(block.len())]) else {
                    break;
                };
                self.done += sent as u64;
            }
        } else {
            while let Ok(Received::Data(len)) = host.tcp_receive_with(now, id, <[u8]>::len) {
                self.done += len as u64;
                self.progress.received.store(self.done, Ordering::Release);
            }
            if self.done == self.task.bytes {
                // Nobody waits for it where the transfer was given up.
                let _ = self.finished.send(());
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.look)
    }
}

/// Linux's side: the bytes that it received, or sent and had time for.
fn linux(bed: &TestBed, task: TapTask, arrival: &Receiver<()>) -> io::Result<u64> {
    let to = SocketAddr::from((TestBed::FAR_V4, PORT));
    let open = || TcpStream::connect_timeout(&to, GIVEN_UP.into());
    let mut stream = bed.in_near(open).map_err(io::Error::other)??;
    let deadline = monotonic_ns() + GIVEN_UP.as_ns();
    let mut chunk = vec![b'x'; task.write.max(65_536)];
    let mut carried = 0;
    stream.set_read_timeout(Some(GIVEN_UP.into()))?;
    stream.set_write_timeout(Some(GIVEN_UP.into()))?;
    while carried < task.bytes && monotonic_ns() < deadline {
        let left = usize::try_from(task.bytes - carried).unwrap_or(usize::MAX);
        let moved = if task.sends {
            stream.read(&mut chunk)
        } else {
            stream.write(&chunk[..left.min(task.write)])
        };
        match moved {
            Ok(0) => break,
            Ok(len) => carried += len as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if !task.sends {
        let left = Span::from_ns(deadline.saturating_sub(monotonic_ns()));
        // Counts what has arrived by then.
        let _ = arrival.recv_timeout(left.into());
    }
    Ok(carried)
}
