//! Tests of the driver over memory.

use plumb_clock::Stopwatch;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::{Batch, PoolConfig};

use super::*;
use crate::device::memory::{loopback, pair};
use crate::device::replay::{ReplayCount, ReplaySource};

const PLAIN: DeviceCapabilities = DeviceCapabilities::plain(Medium::Ethernet, 1_500);

/// Passes what comes in at a port out at another, and counts what is due.
#[derive(Default)]
struct Relay {
    waiting: Vec<(usize, Packet)>,
    route: Vec<usize>,
    passed: usize,
    largest: usize,
    due: Option<Instant>,
    late: Vec<Span>,
}

impl Relay {
    fn over(route: &[usize]) -> Self {
        Self { route: route.to_vec(), ..Self::default() }
    }
}

impl Machine for Relay {
    fn handle_packets(&mut self, _: Instant, port: PortId, batch: &mut Batch, _: &mut Pool) {
        self.passed += batch.len();
        self.largest = self.largest.max(batch.len());
        let out = self.route[usize::from(port.0)];
        self.waiting.extend(batch.drain(..).map(|packet| (out, packet)));
    }

    fn poll_packets(
        &mut self,
        _: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        _: &mut Pool,
    ) {
        let mine = |waiting: &mut (usize, Packet)| waiting.0 == usize::from(port.0);
        batch.extend(self.waiting.extract_if(.., mine).take(max).map(|(_, packet)| packet));
    }

    fn deadline(&self) -> Option<Instant> {
        self.due
    }

    fn handle_deadline(&mut self, now: Instant, _: &mut Pool) {
        self.late.extend(self.due.map(|due| now - due));
        self.due = Some(now + Span::from_ms(5));
    }
}

/// Counts packets at the device edges.
#[derive(Default)]
struct Edges {
    received: usize,
    transmitted: usize,
}

impl PacketObserver for Edges {
    fn on_received(&mut self, _: PortId, batch: &[Packet]) {
        assert!(!batch.is_empty());
        self.received += batch.len();
    }

    fn on_transmit(&mut self, _: PortId, batch: &[Packet]) {
        assert!(!batch.is_empty());
        self.transmitted += batch.len();
    }
}

fn timeline() -> InstantClock {
    InstantClock::begin(Stopwatch::new(None))
}

fn options(batch: usize) -> DriverOptions {
    DriverOptions { batch, alarm: false, wait: DeviceWait::Block }
}

#[test]
fn a_run_passes_every_packet_in_batches_no_larger_than_asked_and_ends_with_its_source() {
    for batch in [1, 7, 32] {
        let frames: [&[u8]; 2] = [b"one", b"two"];
        let source = ReplaySource::new(PLAIN, frames, ReplayCount::Times(50));
        let pool = Pool::new(PoolConfig::default());
        let edges = Edges::default();
        let mut driver =
            Driver::with_observer(vec![source], pool, timeline(), options(batch), edges);
        let mut relay = Relay::over(&[0]);
        let end = driver.run(&mut relay, |_, _, _| false).unwrap();
        assert_eq!(end, DriverExit::Finished);
        assert_eq!((relay.passed, relay.largest), (100, batch));
        let edges = &driver.observer;
        assert_eq!((edges.received, edges.transmitted), (100, 100));
        assert_eq!(driver.devices[0].counters().tx_packets, 100);
        assert_eq!(driver.pool.available(), (1_024, 16));
    }
}

#[test]
fn a_run_stops_when_it_is_told_and_has_sent_everything() {
    let source = ReplaySource::new(PLAIN, [&b"frame"[..]], ReplayCount::Forever);
    let mut driver =
        Driver::new(vec![source], Pool::new(PoolConfig::default()), timeline(), options(32));
    let mut relay = Relay::over(&[0]);
    let end = driver.run(&mut relay, |relay, _, _| relay.passed >= 1_000).unwrap();
    assert_eq!(end, DriverExit::Stopped);
    assert_eq!(driver.devices[0].counters().tx_packets, relay.passed as u64);
}

#[test]
fn packets_cross_from_one_device_to_another_whatever_kind_they_are() {
    let (mut near, inner) = pair(PLAIN, DeviceWait::Block);
    let (outer, mut far) = pair(PLAIN, DeviceWait::Block);
    let devices: Vec<Box<dyn Device>> = vec![Box::new(inner), Box::new(outer)];
    let mut pool = Pool::new(PoolConfig::default());
    let mut batch = vec![pool.packet_of(b"across").unwrap()];
    near.transmit(&mut batch, &mut pool).unwrap();
    let mut driver = Driver::new(devices, Pool::new(PoolConfig::default()), timeline(), options(8));
    let mut relay = Relay::over(&[1, 0]);
    driver.run(&mut relay, |relay, _, _| relay.passed > 0).unwrap();
    assert_eq!(far.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 1);
    assert_eq!(pool.bytes(&batch[0]), b"across");
    pool.free_all(&mut batch);
    drop(near);
    let end = driver.run(&mut relay, |_, _, _| false).unwrap();
    assert_eq!(end, DriverExit::Finished, "the link's other end is gone");
}

#[test]
fn a_deadline_is_met_and_never_early_though_nothing_arrives() {
    for alarm in [false, true] {
        let (_other, idle) = pair(PLAIN, DeviceWait::Block);
        let options = DriverOptions { alarm, ..options(8) };
        let mut driver =
            Driver::new(vec![idle], Pool::new(PoolConfig::default()), timeline(), options);
        let due = driver.read_clock() + Span::from_ms(5);
        let mut relay = Relay { due: Some(due), ..Relay::over(&[0]) };
        driver
            .run(&mut relay, |relay, now, _| {
                assert!(relay.due.is_some_and(|due| due > now) || relay.late.is_empty());
                relay.late.len() >= 3
            })
            .unwrap();
    }
}

#[test]
fn what_the_machine_has_before_the_first_wait_is_sent_before_it() {
    let device = loopback(PLAIN, DeviceWait::Block);
    let mut driver =
        Driver::new(vec![device], Pool::new(PoolConfig::default()), timeline(), options(8));
    let packet = driver.pool.packet_of(b"first").unwrap();
    let mut relay = Relay { waiting: vec![(0, packet)], ..Relay::over(&[0]) };
    assert_eq!(driver.run_once(&mut relay).unwrap(), 1);
}
