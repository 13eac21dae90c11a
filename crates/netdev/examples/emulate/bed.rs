//! Two namespaces and what is between them: plumb's link over a device, Linux's token bucket, or nothing.

use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_clock::{InstantClock, Stopwatch, calibrate};
use plumb_link::link::Link;
use plumb_link::spec::LinkSpec;
use plumb_netdev::device::packet::{PacketDevice, PacketOptions, PacketReceiveMode};
use plumb_netdev::device::xdp::{XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceCounters, DeviceWait};
use plumb_netdev::emulator::{
    Emulator, EmulatorControl, EmulatorOptions, EmulatorReport, EmulatorState,
    InterfaceDropCounter, TimerPrecision, tap_pair,
};
use plumb_netdev::lab::{FarEndMode, NetNamespace, TestBed, TestBedOptions};
use plumb_sys::sched;
use plumb_wire::machine::{Medium, PortId};
use plumb_wire::packet::{Pool, PoolConfig};

use crate::BenchTask;
use crate::steal::{self, StealWatchedDevice, StolenInterval};

/// What is between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchWire {
    /// plumb's link over two TAPs, offloaded.
    Tap,
    /// The same, a frame at a time.
    TapPlain,
    /// plumb's link over packet sockets.
    Packet,
    /// plumb's link over AF_XDP.
    Xdp,
    /// A virtual Ethernet with Linux's token bucket filter on it.
    TokenBucket,
    /// A virtual Ethernet.
    Plain,
    /// A thread that only spins, and no network.
    Bare,
}

impl BenchWire {
    pub fn named(name: &str) -> Self {
        match name {
            "tap" => Self::Tap,
            "tap-plain" => Self::TapPlain,
            "packet" => Self::Packet,
            "xdp" => Self::Xdp,
            "tbf" => Self::TokenBucket,
            "none" => Self::Plain,
            "bare" => Self::Bare,
            _ => panic!("{name} is no wire"),
        }
    }
}

/// What the driver's thread had to say at its end.
pub struct DriverOutcome {
    report: EmulatorReport,
    counters: Vec<DeviceCounters>,
    /// When its CPU was taken from it; of one that never sleeps.
    pub taken: Vec<StolenInterval>,
}

/// Two namespaces, and what is between them.
pub struct BenchBed {
    pub bed: TestBed,
    driver: Option<(EmulatorControl<EmulatorState<Link>>, JoinHandle<DriverOutcome>)>,
}

const FRAMES: PoolConfig = PoolConfig { count: 32_768, size: 2_048, large: 256 };

fn spec(task: &BenchTask) -> LinkSpec {
    // Nothing waits where there is no rate.
    let rate =
        task.rate.map_or_else(String::new, |bits| format!(",rate={bits},limit={}", task.limit));
    let text = format!("delay={}us{rate}", task.delay_us);
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl BenchBed {
    pub fn new(task: &BenchTask) -> Self {
        let offloads = !matches!(task.wire, BenchWire::TapPlain | BenchWire::Xdp);
        let options = TestBedOptions { neighbors: true, offloads, ..TestBedOptions::default() };
        match task.wire {
            BenchWire::Tap | BenchWire::TapPlain => {
                let (bed, devices) = tap_pair(options).unwrap();
                let interfaces = vec![
                    InterfaceDropCounter::watch(bed.near(), TestBed::NEAR_DEVICE).unwrap(),
                    InterfaceDropCounter::watch(bed.far().unwrap(), TestBed::FAR_DEVICE).unwrap(),
                ];
                let driver = drive(task, devices.into(), Pool::new(FRAMES), interfaces);
                Self { bed, driver: Some(driver) }
            }
            BenchWire::Packet => {
                let (bed, middle) = TestBed::veths_via_middle(options).unwrap();
                let devices = TestBed::MIDDLE_DEVICES.map(|name| packet(&middle, name));
                let driver = drive(task, devices.into(), Pool::new(FRAMES), Vec::new());
                Self { bed, driver: Some(driver) }
            }
            BenchWire::Xdp => {
                let (bed, middle) = TestBed::veths_via_middle(options).unwrap();
                let (devices, pool) = xdp(&middle);
                let driver = drive(task, devices, pool, Vec::new());
                Self { bed, driver: Some(driver) }
            }
            BenchWire::TokenBucket | BenchWire::Plain | BenchWire::Bare => {
                let bed = TestBed::veth(FarEndMode::Answers, options).unwrap();
                if let (BenchWire::TokenBucket, Some(rate)) = (task.wire, task.rate) {
                    token_bucket(&bed, rate);
                }
                Self { bed, driver: None }
            }
        }
    }

    /// Lets Linux hand over no more segments at once to the near device.
    pub fn limit_bursts(&self, segments: u32) {
        let limit = || {
            let mut command = Command::new("ip");
            command.args(["link", "set", TestBed::NEAR_DEVICE, "gso_max_segs"]);
            command.arg(segments.to_string()).status().unwrap()
        };
        assert!(self.bed.in_near(limit).unwrap().success(), "ip link set");
    }

    /// Stops the driver; what it has to say.
    pub fn end(self) -> Option<DriverOutcome> {
        let (control, thread) = self.driver?;
        control.stop();
        Some(thread.join().unwrap())
    }
}

impl DriverOutcome {
    /// Prints it.
    pub fn print(self, measure: &str, task: &BenchTask) {
        let Self { report, counters, .. } = self;
        let late = |p: f64| report.timing.lateness.quantile(p);
        println!(
            "{{\"driver\":\"{measure}\",\"wire\":\"{:?}\",\"precision\":\"{}\",\"margin_ns\":{},\"tolerance_ns\":{},\"frames\":{},\
             \"late_p50_ns\":{},\"late_p99_ns\":{},\"late_p999_ns\":{},\"missed\":{},\"missed_worst_ns\":{},\"absences\":{},\
             \"absence_worst_ns\":{},\"waited_for_cpu_ns\":{},\"lost\":{}}}",
            task.wire,
            report.precision,
            report.margin.as_ns(),
            report.timing.tolerance.as_ns(),
            report.timing.frames,
            late(0.5),
            late(0.99),
            late(0.999),
            report.timing.missed.count,
            report.timing.missed.worst.as_ns(),
            report.timing.stalls.count,
            report.timing.stalls.worst.as_ns(),
            report.timing.waited_for_cpu.unwrap_or_default().as_ns(),
            report.losses.iter().map(plumb_netdev::emulator::PortLosses::total).sum::<u64>(),
        );
        if std::env::var_os("VERBOSE").is_some() {
            println!("{counters:?} {:?}", report.measured);
        }
    }
}

fn packet(middle: &NetNamespace, name: &str) -> PacketDevice {
    let options = PacketOptions {
        wait: DeviceWait::Spin,
        receive: Some(PacketReceiveMode::Ring),
        slots: 4_096,
        promiscuous: true,
        ..PacketOptions::default()
    };
    middle.enter(|| PacketDevice::open(name, &options)).unwrap().unwrap()
}

fn xdp(middle: &NetNamespace) -> (Vec<XdpDevice>, Pool) {
    let [near, far] = TestBed::MIDDLE_DEVICES;
    let options = XdpOptions {
        wait: DeviceWait::Spin,
        frames: FRAMES.count,
        rx_frames: Some(4_096),
        large: 0,
        ..XdpOptions::default()
    };
    let open = || {
        let (first, mut pool) = XdpDevice::open(near, &options).unwrap();
        let second = XdpDevice::open_sharing_umem(&first, &mut pool, far, &options).unwrap();
        (vec![first, second], pool)
    };
    middle.enter(open).unwrap()
}

/// The driver in a thread of its own, on the last CPU; this thread on the first.
fn drive<D: Device + Send + 'static>(
    task: &BenchTask,
    devices: Vec<D>,
    pool: Pool,
    interfaces: Vec<InterfaceDropCounter>,
) -> (EmulatorControl<EmulatorState<Link>>, JoinHandle<DriverOutcome>) {
    let cpus = sched::allowed_cpus().unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (spec, precision) = (spec(task), task.precision);
    let (said, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        sched::bind(&[last]).unwrap();
        let watch = Stopwatch::new(calibrate(Span::from_ms(50)).ticks_per_ns);
        let timeline = InstantClock::begin(watch);
        let link = Link::new(&spec, Medium::Ethernet, timeline.now()).unwrap();
        let options = EmulatorOptions { precision, ..EmulatorOptions::default() };
        let devices = devices.into_iter().map(StealWatchedDevice).collect();
        let mut emulator = Emulator::new(link, devices, pool, timeline, options).unwrap();
        for (port, interface) in (0..).zip(interfaces) {
            emulator.watch(PortId(port), interface);
        }
        said.send(emulator.control()).unwrap();
        emulator.run().unwrap();
        let report = emulator.state().report();
        let counters = emulator.devices.iter().map(Device::counters).collect();
        // A sleep is a look that comes late, too.
        let taken = if precision == TimerPrecision::Busy { steal::stolen() } else { Vec::new() };
        DriverOutcome { report, counters, taken }
    });
    sched::bind(&[first]).unwrap();
    (hears.recv().unwrap(), thread)
}

/// Linux's token bucket at both ends.
fn token_bucket(bed: &TestBed, rate: u64) {
    let set = |device: &str| {
        // As tc-tbf(8) asks: a bucket that holds what flows in one timer tick, here of 1 kHz.
        let burst = (rate / 8_000).max(3_100).to_string();
        let rate = format!("{rate}bit");
        let status = Command::new("tc")
            .args(["qdisc", "add", "dev", device, "root", "tbf", "rate", &rate])
            .args(["burst", &burst, "limit", "1000000"])
            .status()
            .unwrap();
        assert!(status.success(), "tc");
    };
    bed.in_near(|| set(TestBed::NEAR_DEVICE)).unwrap();
    bed.in_far(|| set(TestBed::FAR_DEVICE)).unwrap();
}
