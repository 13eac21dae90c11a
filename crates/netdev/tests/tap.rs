//! TAP devices and the driver against Linux: a mirror that only swaps addresses, and a wire between
//! two TAPs.
//!
//! Needs root; says `skipped:` without, and fails for that under CI=true.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at what it did not expect, and says what it skips"
)]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_clock::{InstantClock, Stopwatch};
use plumb_netdev::device::driver::{Driver, DriverOptions};
use plumb_netdev::device::tap::{TapDevice, TapOffload, TapOptions};
use plumb_netdev::device::{Device, DeviceError, DeviceWait};
use plumb_netdev::lab::{NetNamespace, TestBed, TestBedOptions};
use plumb_sys::socket::{IntOption, set_option};
use plumb_wire::machine::{Machine, PortId};
use plumb_wire::packet::{Batch, Packet, Pool, PoolConfig};

#[path = "support/allowed.rs"]
mod allowed;

use allowed::allowed;

/// A bed with a TAP in it, its kernel's side up and with addresses.
fn bed_with_tap(settings: TapOptions) -> Option<(TestBed, TapDevice)> {
    let bed =
        allowed(TestBed::tap(TestBedOptions { neighbors: true, ..TestBedOptions::default() }))?;
    let tap = bed.in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, settings)).unwrap().unwrap();
    bed.bring_up_near().unwrap();
    Some((bed, tap))
}

/// Answers every UDP packet by swapping its addresses and ports: no checksum changes.
#[derive(Default)]
struct UdpSwapMachine {
    out: Vec<Packet>,
    handled: usize,
    super_segments: usize,
    due: Option<Instant>,
    deadlines: usize,
}

fn swap(bytes: &mut [u8], at: usize, len: usize) {
    let (first, second) = bytes[at..at + 2 * len].split_at_mut(len);
    first.swap_with_slice(second);
}

impl Machine for UdpSwapMachine {
    fn handle_packets(&mut self, _: Instant, _: PortId, batch: &mut Batch, pool: &mut Pool) {
        for mut packet in batch.drain(..) {
            let bytes = pool.bytes_mut(&mut packet);
            let (protocol, addresses, len) = match (bytes[12], bytes[13]) {
                (0x08, 0x00) => (bytes[23], 26, 4),
                (0x86, 0xdd) => (bytes[20], 22, 16),
                _ => (0, 0, 0),
            };
            if protocol != 17 {
                pool.free(packet);
                continue;
            }
            swap(bytes, 0, 6);
            swap(bytes, addresses, len);
            swap(bytes, addresses + 2 * len, 2);
            self.handled += 1;
            self.super_segments += usize::from(packet.meta.segments.is_some());
            self.out.push(packet);
        }
    }

    fn poll_packets(&mut self, _: Instant, _: PortId, batch: &mut Batch, max: usize, _: &mut Pool) {
        let count = self.out.len().min(max);
        batch.extend(self.out.drain(..count));
    }

    fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn handle_deadline(&mut self, now: Instant, _: &mut Pool) {
        self.deadlines += 1;
        self.due = Some(now + Span::from_ms(5));
    }
}

/// A wire between two devices: what comes in at one goes out at the other, as it is.
#[derive(Default)]
struct PatchMachine {
    out: [Vec<Packet>; 2],
    super_segments: usize,
}

impl Machine for PatchMachine {
    fn handle_packets(&mut self, _: Instant, port: PortId, batch: &mut Batch, _: &mut Pool) {
        self.super_segments += batch.iter().filter(|packet| packet.meta.segments.is_some()).count();
        self.out[1 - usize::from(port.0)].append(batch);
    }

    fn poll_packets(
        &mut self,
        _: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        _: &mut Pool,
    ) {
        let out = &mut self.out[usize::from(port.0)];
        let count = out.len().min(max);
        batch.extend(out.drain(..count));
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant, _: &mut Pool) {}
}

fn driver<D: Device>(devices: Vec<D>, options: DriverOptions) -> Driver<D> {
    let timeline = InstantClock::begin(Stopwatch::new(None));
    Driver::new(devices, Pool::new(PoolConfig::default()), timeline, options)
}

/// A client's socket in side `A`, to port 7 of side `B`.
fn client(bed: &TestBed, near: IpAddr, far: IpAddr) -> UdpSocket {
    let socket = bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0)).unwrap()).unwrap();
    socket.connect(SocketAddr::new(far, 7)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

/// The same queue opened a second time, and to be waited for in another way.
fn again(tap: &TapDevice, wait: DeviceWait) -> TapDevice {
    let file = tap.as_fd().try_clone_to_owned().unwrap();
    TapDevice::adopt(file, TapOptions { wait, mtu: Some(1_500), ..TapOptions::default() }).unwrap()
}

/// Sends datagrams of several lengths in both families through a mirror, which then has to stop.
fn mirror_answers(
    bed: &TestBed,
    tap: TapDevice,
    options: DriverOptions,
    timed: bool,
) -> UdpSwapMachine {
    let said = format!("{tap:?} {options:?}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stops = StopOnDrop { stop: &stop, bed };
        let mirror = scope.spawn(|| {
            let mut driver = driver(vec![tap], options);
            let mut swap =
                UdpSwapMachine { due: timed.then(|| driver.now()), ..UdpSwapMachine::default() };
            driver.run(&mut swap, |_, _, _| stop.load(Ordering::Relaxed)).unwrap();
            assert_eq!(driver.pool.available(), (1_024, 16), "every frame came back");
            let counters = driver.devices[0].counters();
            assert_eq!(
                (counters.rx_malformed, counters.rx_dropped, counters.tx_dropped),
                (0, 0, 0)
            );
            swap
        });
        for (near, far, _) in bed.addresses() {
            let socket = client(bed, near, far);
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            let mut buffer = [0; 2_000];
            for len in [0, 1, 18, 500, 1_452] {
                let sent = pattern(len);
                let said = format!("{far}, {len} bytes, {said}");
                // Datagrams may be lost, and the first of a family was on a busy machine.
                let answered = (0..10).find_map(|_| {
                    socket.send(&sent).unwrap();
                    let answer = socket.recv(&mut buffer);
                    answer.inspect_err(|error| println!("{said}: {error}")).ok()
                });
                let len = answered.unwrap_or_else(|| panic!("{said}: no answer"));
                assert_eq!(buffer[..len], sent[..], "{said}");
            }
        }
        drop(stops);
        mirror.join().unwrap()
    })
}

/// Stops a mirror when it goes out of scope: also when a test gives up, whose thread would otherwise
/// wait for the mirror's for ever.
struct StopOnDrop<'a> {
    stop: &'a AtomicBool,
    bed: &'a TestBed,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let (near, far, _) = self.bed.addresses().next().unwrap();
        client(self.bed, near, far).send(b"wake up, and look").unwrap();
    }
}

const WAITS: [DeviceWait; 3] =
    [DeviceWait::Block, DeviceWait::Poll(Span::from_us(50)), DeviceWait::Spin];

#[test]
fn a_mirror_on_a_tap_answers_linux_however_it_waits_and_whatever_is_offloaded() {
    for offload in [TapOffload::None, TapOffload::Checksum, TapOffload::Segments] {
        let Some((bed, tap)) = bed_with_tap(TapOptions { offload, ..TapOptions::default() }) else {
            return;
        };
        for wait in WAITS {
            for batch in [1, 32] {
                let options = DriverOptions { batch, ..DriverOptions::default() };
                let swap = mirror_answers(&bed, again(&tap, wait), options, false);
                assert!(swap.handled >= 10, "{}", swap.handled);
            }
        }
    }
}

#[test]
fn deadlines_are_met_while_packets_come_however_the_device_waits() {
    let Some((bed, tap)) = bed_with_tap(TapOptions::default()) else { return };
    for wait in WAITS {
        let swap = mirror_answers(&bed, again(&tap, wait), DriverOptions::default(), true);
        assert!(swap.deadlines >= 1);
    }
}

#[test]
fn a_udp_super_segment_crosses_whole_both_ways() {
    let Some((bed, tap)) = bed_with_tap(TapOptions::default()) else { return };
    if !tap.info().capabilities.segments_udp {
        println!("skipped: this kernel has no UDP super-segments on a TAP (Linux 6.2 has)");
        return;
    }
    for (near, far, _) in bed.addresses() {
        let socket = client(&bed, near, far);
        let mut driver = driver(vec![again(&tap, DeviceWait::Block)], DriverOptions::default());
        set_option(socket.as_fd(), IntOption::UdpSegment, 1_000).unwrap();
        let sent = pattern(29_500);
        // Datagrams may be lost, and were once in some hundred times on a busy machine; those that
        // come must be whole.
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let crossed = (0..5).any(|_| {
            socket.send(&sent).unwrap();
            let mut swap = UdpSwapMachine::default();
            driver.run(&mut swap, |swap, _, _| swap.handled > 0).unwrap();
            assert_eq!((swap.handled, swap.super_segments), (1, 1), "{far}");
            let mut buffer = [0; 2_000];
            sent.chunks(1_000).all(|chunk| match socket.recv(&mut buffer) {
                Ok(len) => {
                    assert_eq!(buffer[..len], *chunk, "{far}");
                    true
                }
                Err(error) => {
                    println!("{far}: {error}");
                    false
                }
            })
        });
        assert!(crossed, "{far}");
    }
}

/// Around the longest packet that an ordinary frame of this pool holds, and the longest of all: a large
/// frame is then the first that a read goes to, and the only one.
#[test]
fn packets_of_every_mtu_come_whole_and_super_segments_too() {
    let frames = PoolConfig { count: 64, size: 9_152, large: 2 };
    for mtu in [9_001, 9_002, 65_521] {
        let options = TestBedOptions { mtu, neighbors: true, ..TestBedOptions::default() };
        let Some(bed) = allowed(TestBed::tap(options)) else { return };
        let tap = bed.in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, TapOptions::default()));
        let tap = tap.unwrap().unwrap();
        bed.bring_up_near().unwrap();
        let has_segments = tap.info().capabilities.segments_udp;
        let timeline = InstantClock::begin(Stopwatch::new(None));
        let mut driver =
            Driver::new(vec![tap], Pool::new(frames), timeline, DriverOptions::default());
        let (near, far, _) = bed.addresses().next().unwrap();
        let socket = client(&bed, near, far);
        let longest = usize::try_from(mtu).unwrap() - 28;
        let mut exchange = |sent: &[u8], of: usize| {
            let said = format!("MTU {mtu}, {} bytes", sent.len());
            socket.send(sent).unwrap();
            let mut swap = UdpSwapMachine::default();
            driver.run(&mut swap, |swap, _, _| swap.handled > 0).unwrap();
            assert_eq!(swap.super_segments, usize::from(of < sent.len()), "{said}");
            let mut buffer = vec![0; 65_535];
            for part in sent.chunks(of) {
                let len = socket.recv(&mut buffer).unwrap();
                assert_eq!(buffer[..len], *part, "{said}");
            }
        };
        exchange(&pattern(longest), longest);
        if has_segments {
            set_option(socket.as_fd(), IntOption::UdpSegment, 1_000).unwrap();
            exchange(&pattern(60_000), 1_000);
        }
        assert_eq!(driver.pool.available(), (64, 2), "every frame came back");
        let counters = driver.devices[0].counters();
        assert_eq!((counters.rx_malformed, counters.rx_dropped, counters.tx_dropped), (0, 0, 0));
    }
}

#[test]
fn a_stream_between_two_taps_arrives_whole_and_in_super_segments() {
    let settings = TapOptions::default();
    let Some(a) = allowed(NetNamespace::new()) else { return };
    let b = NetNamespace::new().unwrap();
    let mut taps = Vec::new();
    let address = |host| Ipv4Addr::new(10, 78, 0, host);
    for (namespace, host) in [(&a, 1), (&b, 2)] {
        taps.push(namespace.enter(|| TapDevice::open("tap%d", settings)).unwrap().unwrap());
        let mut netlink = namespace.netlink().unwrap();
        let index = netlink.interface("tap0").unwrap().index;
        netlink.add_address(index, address(host).into(), 24).unwrap();
        netlink.set_up(index, true).unwrap();
    }
    let stop = AtomicBool::new(false);
    let sent = pattern(4_000_000);
    std::thread::scope(|scope| {
        let wire = scope.spawn(|| {
            let mut wire = PatchMachine::default();
            let mut driver = driver(taps, DriverOptions::default());
            driver.run(&mut wire, |_, _, _| stop.load(Ordering::Relaxed)).unwrap();
            wire
        });
        let listener = b.enter(|| TcpListener::bind((address(2), 9)).unwrap()).unwrap();
        let received = scope.spawn(move || {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let mut stream = a.enter(|| TcpStream::connect((address(2), 9)).unwrap()).unwrap();
        stream.write_all(&sent).unwrap();
        drop(stream);
        assert!(received.join().unwrap() == sent, "what arrived is what was sent");
        let waker = a.enter(|| UdpSocket::bind((address(1), 0)).unwrap()).unwrap();
        stop.store(true, Ordering::Relaxed);
        // The wire sleeps until a frame comes. One of the stream's may have ended it already, and the TAPs
        // with it, so that this cannot be sent.
        waker.send_to(b"wake up, and look", (address(2), 9)).ok();
        let wire = wire.join().unwrap();
        assert!(wire.super_segments > 0);
    });
}

#[test]
fn an_interface_that_is_removed_under_a_sleeping_reader_is_gone() {
    for wait in [DeviceWait::Block, DeviceWait::Spin] {
        let Some((bed, tap)) = bed_with_tap(TapOptions { wait, ..TapOptions::default() }) else {
            return;
        };
        let asleep = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mirror = scope.spawn(|| {
                let mut driver = driver(vec![tap], DriverOptions::default());
                driver.run(&mut UdpSwapMachine::default(), |_, _, _| {
                    asleep.store(true, Ordering::Relaxed);
                    false
                })
            });
            while !asleep.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let mut netlink = bed.near().netlink().unwrap();
            let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
            netlink.remove_interface(index).unwrap();
            let error = mirror.join().unwrap().unwrap_err();
            assert!(matches!(error, DeviceError::Gone { .. }), "{wait:?}: {error}");
            assert!(error.to_string().contains("plumb0 was removed"), "{error}");
        });
    }
}

#[test]
fn what_is_sent_while_the_interface_is_down_is_counted_and_the_device_lives_on() {
    let Some((bed, mut tap)) = bed_with_tap(TapOptions::default()) else { return };
    let mut netlink = bed.near().netlink().unwrap();
    let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
    let mut pool = Pool::new(PoolConfig::default());
    let mut send = |tap: &mut TapDevice| {
        let mut batch = vec![pool.packet_of(&pattern(60)).unwrap()];
        tap.transmit(&mut batch, &mut pool).unwrap();
        assert!(batch.is_empty());
        (tap.counters().tx_packets, tap.counters().tx_dropped)
    };
    netlink.set_up(index, false).unwrap();
    assert_eq!(send(&mut tap), (0, 1));
    netlink.set_up(index, true).unwrap();
    assert_eq!(send(&mut tap), (1, 1));
}

#[test]
fn packets_that_find_no_frame_are_counted_and_the_next_ones_come() {
    for offload in [TapOffload::None, TapOffload::Segments] {
        let Some((bed, mut tap)) = bed_with_tap(TapOptions { offload, ..TapOptions::default() })
        else {
            return;
        };
        let (near, far, _) = bed.addresses().next().unwrap();
        let socket = client(&bed, near, far);
        let mut pool = Pool::new(PoolConfig { count: 2, size: 2_048, large: 0 });
        let mut batch = Vec::new();
        for _ in 0..5 {
            socket.send(b"datagram").unwrap();
        }
        // Of these five, and of what the kernel itself has to say.
        assert_eq!(tap.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 2);
        assert!(tap.counters().rx_dropped >= 3, "{:?}", tap.counters());
        pool.free_all(&mut batch);
        socket.send(b"datagram").unwrap();
        assert!(tap.wait(None, &mut pool).unwrap());
        assert!(tap.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap() >= 1);
    }
}

#[test]
fn a_wait_that_nothing_ends_ends_by_itself() {
    let Some((_bed, tap)) = bed_with_tap(TapOptions::default()) else { return };
    for wait in WAITS {
        let mut tap = again(&tap, wait);
        let mut pool = Pool::new(PoolConfig::default());
        let timeline = InstantClock::begin(Stopwatch::new(None));
        // The kernel's own multicast of a new interface may come first.
        let waited = loop {
            let before = timeline.now();
            if !tap.wait(Some(Span::from_ms(3)), &mut pool).unwrap() {
                break timeline.now() - before;
            }
            tap.receive(timeline.now(), &mut Vec::new(), 8, &mut pool).unwrap();
        };
        assert!(waited >= Span::from_ms(3), "{wait:?} {waited}");
    }
}

#[test]
fn trouble_in_opening_says_what_to_do() {
    let Some((bed, tap)) = bed_with_tap(TapOptions::default()) else { return };
    let open = |name: &str, settings| {
        bed.in_near(|| TapDevice::open(name, settings)).unwrap().unwrap_err()
    };
    let small = TapOptions { mtu: Some(67), ..TapOptions::default() };
    for (name, settings, fix) in [
        (TestBed::NEAR_DEVICE, TapOptions::default(), "choose another name"),
        ("lo", TapOptions::default(), "`ip link delete lo`"),
        ("a name", TapOptions::default(), "is not an interface name"),
        ("sixteen_bytes_xx", TapOptions::default(), "is not an interface name"),
        ("small", small, "`ip link set small mtu 1500`"),
    ] {
        let error = open(name, settings).to_string();
        assert!(error.contains(fix), "{error}");
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Out of its namespace, nobody knows its MTU.
    let file = tap.as_fd().try_clone_to_owned().unwrap();
    for (fd, said) in [(socket.into(), "not attached to a TAP"), (file, "cannot be asked for")] {
        let error = TapDevice::adopt(fd, TapOptions::default()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
