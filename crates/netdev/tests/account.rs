//! What it costs a link's driver to tell how it stands, in memory that it asks for: its frames wait meanwhile.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use plumb_base::time::Instant;
use plumb_clock::{InstantClock, Stopwatch};
use plumb_link::link::Link;
use plumb_link::report::Network as _;
use plumb_netdev::device::memory::{MemoryDevice, pair};
use plumb_netdev::device::{Device as _, DeviceWait};
use plumb_netdev::emulator::{Emulator, EmulatorOptions, EmulatorState, TimerPrecision};
use plumb_sys::memory::{AllocationCount, CountingAllocator};
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::{Pool, PoolConfig};

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator;

/// What this thread asks for while it does something.
fn asked<T>(work: impl FnOnce() -> T) -> (T, AllocationCount) {
    let before = AllocationCount::by_this_thread();
    let done = work();
    let after = AllocationCount::by_this_thread();
    let (times, bytes) = (after.times - before.times, after.bytes - before.bytes);
    (done, AllocationCount { times, bytes })
}

/// Sends frames into one end and waits until they have come out of the other.
fn pass(from: &mut MemoryDevice, to: &mut MemoryDevice, pool: &mut Pool, count: usize) {
    let mut batch: Vec<_> = (0..count).map(|_| pool.packet_of(&[7; 200]).unwrap()).collect();
    from.transmit(&mut batch, pool).unwrap();
    let (mut come, mut waits) = (0, 0);
    while come < count {
        // Twenty milliseconds at the most, if nothing comes.
        to.wait(None, pool).unwrap();
        waits += 1;
        assert!(waits < 3_000, "{come} of {count} frames came");
        come += to.receive(Instant::ORIGIN, &mut batch, count, pool).unwrap();
        pool.free_all(&mut batch);
    }
}

#[test]
fn a_driver_tells_how_it_stands_without_asking_for_memory_and_each_frame_is_told_of_once() {
    let capabilities = DeviceCapabilities::plain(Medium::Ethernet, 1_500);
    let ((mut near, near_device), (mut far, far_device)) =
        (pair(capabilities, DeviceWait::Block), pair(capabilities, DeviceWait::Block));
    let (tell, told) = std::sync::mpsc::channel();
    let driver = std::thread::spawn(move || {
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let spec = "rate=100mbit,delay=1ms,limit=1000packets;rate=50mbit,limit=1000packets"
            .parse()
            .unwrap();
        let link = Link::new(&spec, Medium::Ethernet, timeline.now()).unwrap();
        let options =
            EmulatorOptions { precision: TimerPrecision::Timer, ..EmulatorOptions::default() };
        let pool = Pool::new(PoolConfig { count: 4_096, ..PoolConfig::default() });
        let mut emulator =
            Emulator::new(link, vec![near_device, far_device], pool, timeline, options).unwrap();
        tell.send(emulator.control()).unwrap();
        emulator.run().unwrap();
    });
    let control = told.recv().unwrap();
    let whole =
        |inside: &mut EmulatorState<Link>| (inside.report(), inside.network.report(inside.now));
    let (mut report, mut network) = control.call(whole).unwrap();
    let mut pool = Pool::new(PoolConfig::default());
    let (mut frames, mut waited) = (0, 0);
    for _ in 0..3 {
        pass(&mut near, &mut far, &mut pool, 300);
        pass(&mut far, &mut near, &mut pool, 200);
        let (_, copied) = control.call(move |inside| asked(|| whole(inside))).unwrap();
        let (mut form, mut network_form) =
            (report.with_empty_histograms(), network.with_empty_histograms());
        let hand_over = move |inside: &mut EmulatorState<Link>| {
            let ((), asked) = asked(|| {
                inside.exchange_report(&mut form);
                inside.network.exchange_report(inside.now, false, &mut network_form);
            });
            (form, network_form, asked)
        };
        let exchanged;
        (report, network, exchanged) = control.call(hand_over).unwrap();
        println!("copied: {copied:?}; exchanged: {exchanged:?}");
        assert_eq!(exchanged, AllocationCount::default(), "a frame that is due waits for it");
        assert!(copied.times > 10 && copied.bytes > 100_000, "what it would cost: {copied:?}");
        frames += report.timing.lateness.len();
        waited += network.directions[0].sojourns.len();
        assert_eq!((frames, waited), (report.timing.frames, network.directions[0].left.frames));
        assert_eq!(network.violations, []);
    }
    assert_eq!((frames, waited), (1_500, 900));
    control.stop();
    driver.join().unwrap();
}
