//! Two namespaces and what is between them: plumb's link over a device, Linux's token bucket, or nothing.
//!
//! Left out: what crosses.

use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use plumb_base::time::Span;
use plumb_host::clock::{Stopwatch, Timeline, calibrate};
use plumb_host::device::packet::{PacketDevice, PacketOptions, Receive};
use plumb_host::device::xdp::{XdpDevice, XdpOptions};
use plumb_host::device::{Device, DeviceCounters, Wait};
use plumb_host::emulate::{
    Control, DriverReport, Emulator, Inside, Interface, Options, Precision, taps,
};
use plumb_host::lab::{Far, LinkOptions, Namespace, TestBed};
use plumb_link::link::Link;
use plumb_link::spec::LinkSpec;
use plumb_sys::affinity;
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Pool};

use crate::Task;
use crate::witness::{self, Taken, Watched};

/// What is between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
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

impl Wire {
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
pub struct Left {
    report: DriverReport,
    counters: Vec<DeviceCounters>,
    /// When its CPU was taken from it; of one that never sleeps.
    pub taken: Vec<Taken>,
}

/// Two namespaces, and what is between them.
pub struct Bed {
    pub bed: TestBed,
    driver: Option<(Control<Inside<Link>>, JoinHandle<Left>)>,
}

const FRAMES: Frames = Frames { count: 32_768, size: 2_048, large: 256 };

fn spec(task: &Task) -> LinkSpec {
    // Nothing waits where there is no rate.
    let rate =
        task.rate.map_or_else(String::new, |bits| format!(",rate={bits},limit={}", task.limit));
    let text = format!("delay={}us{rate}", task.delay_us);
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Bed {
    pub fn new(task: &Task) -> Self {
        let offloads = !matches!(task.wire, Wire::TapPlain | Wire::Xdp);
        let options = LinkOptions { neighbours: true, offloads, ..LinkOptions::default() };
        match task.wire {
            Wire::Tap | Wire::TapPlain => {
                let (bed, devices) = taps(options).unwrap();
                let interfaces = vec![
                    Interface::watch(bed.a(), TestBed::NEAR_DEVICE).unwrap(),
                    Interface::watch(bed.b().unwrap(), TestBed::FAR_DEVICE).unwrap(),
                ];
                let driver = drive(task, devices.into(), Pool::new(FRAMES), interfaces);
                Self { bed, driver: Some(driver) }
            }
            Wire::Packet => {
                let (bed, middle) = TestBed::veths(options).unwrap();
                let devices = TestBed::MIDDLE_DEVICES.map(|name| packet(&middle, name));
                let driver = drive(task, devices.into(), Pool::new(FRAMES), Vec::new());
                Self { bed, driver: Some(driver) }
            }
            Wire::Xdp => {
                let (bed, middle) = TestBed::veths(options).unwrap();
                let (devices, pool) = xdp(&middle);
                let driver = drive(task, devices, pool, Vec::new());
                Self { bed, driver: Some(driver) }
            }
            Wire::TokenBucket | Wire::Plain | Wire::Bare => {
                let bed = TestBed::veth(Far::Answers, options).unwrap();
                if let (Wire::TokenBucket, Some(rate)) = (task.wire, task.rate) {
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
        assert!(self.bed.in_a(limit).unwrap().success(), "ip link set");
    }

    /// Stops the driver; what it has to say.
    pub fn end(self) -> Option<Left> {
        let (control, thread) = self.driver?;
        control.stop();
        Some(thread.join().unwrap())
    }
}

impl Left {
    /// Prints it.
    pub fn tell(self, measure: &str, task: &Task) {
        let Self { report, counters, .. } = self;
        let late = |p: f64| report.punctuality.lateness.quantile(p);
        println!(
            "{{\"driver\":\"{measure}\",\"wire\":\"{:?}\",\"precision\":\"{}\",\"margin_ns\":{},\"tolerance_ns\":{},\"frames\":{},\
             \"late_p50_ns\":{},\"late_p99_ns\":{},\"late_p999_ns\":{},\"missed\":{},\"missed_worst_ns\":{},\"absences\":{},\
             \"absence_worst_ns\":{},\"waited_for_cpu_ns\":{},\"lost\":{}}}",
            task.wire,
            report.precision,
            report.margin.as_ns(),
            report.punctuality.tolerance.as_ns(),
            report.punctuality.frames,
            late(0.5),
            late(0.99),
            late(0.999),
            report.punctuality.missed.count,
            report.punctuality.missed.worst.as_ns(),
            report.punctuality.absences.count,
            report.punctuality.absences.worst.as_ns(),
            report.punctuality.waited_for_cpu.unwrap_or_default().as_ns(),
            report.losses.iter().map(plumb_host::emulate::Losses::total).sum::<u64>(),
        );
        if std::env::var_os("VERBOSE").is_some() {
            println!("{counters:?} {:?}", report.measured);
        }
    }
}

fn packet(middle: &Namespace, name: &str) -> PacketDevice {
    let options = PacketOptions {
        wait: Wait::Spin,
        receive: Some(Receive::Ring),
        slots: 4_096,
        promiscuous: true,
        ..PacketOptions::default()
    };
    middle.enter(|| PacketDevice::open(name, &options)).unwrap().unwrap()
}

fn xdp(middle: &Namespace) -> (Vec<XdpDevice>, Pool) {
    let [near, far] = TestBed::MIDDLE_DEVICES;
    let options = XdpOptions {
        wait: Wait::Spin,
        frames: FRAMES.count,
        lent: Some(4_096),
        large: 0,
        ..XdpOptions::default()
    };
    let open = || {
        let (first, mut pool) = XdpDevice::open(near, &options).unwrap();
        let second = XdpDevice::open_beside(&first, &mut pool, far, &options).unwrap();
        (vec![first, second], pool)
    };
    middle.enter(open).unwrap()
}

/// The driver in a thread of its own, on the last CPU; this thread on the first.
fn drive<D: Device + Send + 'static>(
    task: &Task,
    devices: Vec<D>,
    pool: Pool,
    interfaces: Vec<Interface>,
) -> (Control<Inside<Link>>, JoinHandle<Left>) {
    let cpus = affinity::allowed_cpus().unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (spec, precision) = (spec(task), task.precision);
    let (said, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        affinity::bind(&[last]).unwrap();
        let watch = Stopwatch::new(calibrate(Span::from_ms(50)).ticks_per_ns);
        let timeline = Timeline::begin(watch);
        let link = Link::new(&spec, Medium::Ethernet, timeline.now()).unwrap();
        let options = Options { precision, ..Options::default() };
        let devices = devices.into_iter().map(Watched).collect();
        let mut emulator = Emulator::new(link, devices, pool, timeline, options).unwrap();
        for (port, interface) in (0..).zip(interfaces) {
            emulator.watch(Port(port), interface);
        }
        said.send(emulator.control()).unwrap();
        emulator.run().unwrap();
        let report = emulator.inside().report();
        let counters = emulator.devices().iter().map(Device::counters).collect();
        // A sleep is a look that comes late, too.
        let taken = if precision == Precision::Busy { witness::taken() } else { Vec::new() };
        Left { report, counters, taken }
    });
    affinity::bind(&[first]).unwrap();
    (hears.recv().unwrap(), thread)
}

/// Linux's token bucket at both ends.
fn token_bucket(bed: &TestBed, rate: u64) {
    let set = |device: &str| {
        // What its manual asks for: a bucket of as much as flows in a tick of the clock, here of 1 kHz.
        let burst = (rate / 8_000).max(3_100).to_string();
        let rate = format!("{rate}bit");
        let status = Command::new("tc")
            .args(["qdisc", "add", "dev", device, "root", "tbf", "rate", &rate])
            .args(["burst", &burst, "limit", "1000000"])
            .status()
            .unwrap();
        assert!(status.success(), "tc");
    };
    bed.in_a(|| set(TestBed::NEAR_DEVICE)).unwrap();
    bed.in_b(|| set(TestBed::FAR_DEVICE)).unwrap();
}
