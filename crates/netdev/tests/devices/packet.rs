//! The packet socket: by calls and from its ring, asleep and awake.

use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_netdev::device::packet::{PacketDevice, PacketOptions, PacketReceiveMode};
use plumb_netdev::device::{Device, DeviceError, DeviceWait};
use plumb_netdev::lab::{InterfaceChange, TestBed};
use plumb_wire::packet::{ChecksumState, Pool, PoolConfig, SegmentKind};

use crate::bed::{
    MirrorThread, client, client_v4_after_first_answer, drain, end_of_removed, exchange,
    exchange_in_every_family, silent, wait_for,
};

fn open(bed: &TestBed, options: &PacketOptions) -> PacketDevice {
    bed.in_far(|| PacketDevice::open(TestBed::FAR_DEVICE, options)).unwrap().unwrap()
}

fn ways() -> Vec<PacketOptions> {
    let way = |wait, receive| PacketOptions { wait, receive: Some(receive), ..Default::default() };
    vec![
        way(DeviceWait::Block, PacketReceiveMode::Calls),
        way(DeviceWait::Block, PacketReceiveMode::Ring),
        way(DeviceWait::Poll(Span::from_us(50)), PacketReceiveMode::Ring),
        way(DeviceWait::Spin, PacketReceiveMode::Ring),
    ]
}

#[test]
fn datagrams_come_back_in_both_families_however_the_device_waits_and_receives() {
    for options in ways() {
        for offloads in [true, false] {
            let Some(bed) = silent(1_500, offloads) else { return };
            let mirror =
                MirrorThread::start(open(&bed, &options), Pool::new(PoolConfig::default()), 0);
            exchange_in_every_family(&bed, mirror);
        }
    }
}

#[test]
fn a_hundred_thousand_datagrams_return_without_loss_past_the_end_of_the_ring() {
    for receive in [PacketReceiveMode::Calls, PacketReceiveMode::Ring] {
        let Some(bed) = silent(1_500, true) else { return };
        let options =
            PacketOptions { receive: Some(receive), slots: 32, ..PacketOptions::default() };
        let frames = PoolConfig { count: 64, ..PoolConfig::default() };
        let mirror = MirrorThread::start(open(&bed, &options), Pool::new(frames), 0);
        let socket = client_v4_after_first_answer(&bed);
        exchange(&socket, 18, 50_000);
        let left = mirror.stop();
        assert_eq!(left.frames_missing, 0);
        assert_eq!((left.counters.rx_dropped, left.counters.tx_dropped), (0, 0), "{left:?}");
    }
}

#[test]
fn a_blocking_exchange_costs_two_calls_a_packet() {
    let Some(bed) = silent(1_500, true) else { return };
    let mirror = MirrorThread::start(
        open(&bed, &PacketOptions::default()),
        Pool::new(PoolConfig::default()),
        0,
    );
    let socket = client_v4_after_first_answer(&bed);
    exchange(&socket, 18, 5_000);
    let left = mirror.stop();
    let calls = left.counters.calls;
    // One for the answer, one that waits; a few for the time limits and for ends of waits.
    assert!(calls < 2 * left.counters.tx_packets + 200, "{calls} calls, {left:?}");
}

#[test]
fn a_burst_that_nobody_reads_is_counted_as_dropped() {
    for receive in [PacketReceiveMode::Calls, PacketReceiveMode::Ring] {
        let Some(bed) = silent(1_500, true) else { return };
        let options =
            PacketOptions { receive: Some(receive), slots: 32, ..PacketOptions::default() };
        let mut device = open(&bed, &options);
        let mut pool = Pool::new(PoolConfig::default());
        let socket = client(&bed, TestBed::NEAR_V4.into(), TestBed::FAR_V4.into());
        let mut batch = Vec::new();
        exchange_with(&bed, &mut device, &mut pool);
        drain(&mut device, &mut pool);
        let before = device.counters().rx_packets;
        for _ in 0..2_000 {
            socket.send(&[1; 1_000]).unwrap();
        }
        let mut seen = 0;
        wait_for("every datagram to be received or counted", || {
            device.wait(Some(Span::from_ms(1)), &mut pool).unwrap();
            device.receive(Instant::ORIGIN, &mut batch, 64, &mut pool).unwrap();
            pool.free_all(&mut batch);
            let counters = device.counters();
            seen = counters.rx_packets - before + counters.rx_dropped;
            seen >= 2_000
        });
        drain(&mut device, &mut pool);
        let counters = device.counters();
        seen = counters.rx_packets - before + counters.rx_dropped;
        // The near kernel may have said something of its own as well: it joined its groups.
        assert!(seen < 2_020, "{receive:?}, {counters:?}");
        assert!(counters.rx_dropped > 0, "{counters:?}");
        assert_eq!(device.counters().rx_dropped, counters.rx_dropped, "asked twice");
    }
}

#[test]
fn a_super_segment_arrives_whole_with_its_shape() {
    use std::io::{Read, Write};
    for receive in [PacketReceiveMode::Calls, PacketReceiveMode::Ring] {
        let Some(bed) = silent(1_500, true) else { return };
        let options = PacketOptions { receive: Some(receive), ..PacketOptions::default() };
        let mut netlink = bed.near().netlink().unwrap();
        let index = netlink.interface("lo").unwrap().index;
        let change =
            InterfaceChange { up: Some(true), mtu: Some(1_500), ..InterfaceChange::default() };
        netlink.change_interface(index, &change).unwrap();
        let mut device = bed.in_near(|| PacketDevice::open("lo", &options)).unwrap().unwrap();
        let (mut near, mut far) = bed
            .in_near(|| {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                (near, listener.accept().unwrap().0)
            })
            .unwrap();
        near.write_all(&vec![7; 60_000]).unwrap();
        far.read_exact(&mut vec![0; 60_000]).unwrap();
        let mut pool = Pool::new(PoolConfig::default());
        let mut batch = Vec::new();
        wait_for("the stream", || {
            device.wait(Some(Span::from_ms(1)), &mut pool).unwrap();
            device.receive(Instant::ORIGIN, &mut batch, 64, &mut pool).unwrap();
            batch.iter().map(|packet| packet.len().saturating_sub(66)).sum::<usize>() >= 60_000
        });
        let longest = batch.iter().max_by_key(|packet| packet.len()).unwrap();
        assert!(longest.len() > 5_000, "{receive:?}: {}", longest.len());
        assert!(matches!(longest.meta.checksum, ChecksumState::Partial { start: 34, offset: 16 }));
        let segments = longest.meta.segments.unwrap();
        assert_eq!((segments.kind, segments.header_len), (SegmentKind::Tcp4, 66));
        let payload = &pool.bytes(longest)[66..];
        assert!(payload.iter().all(|&byte| byte == 7), "{receive:?}");
        pool.free_all(&mut batch);
        assert_eq!(pool.available(), (1_024, 16));
    }
}

#[test]
fn an_interface_that_is_down_is_quiet_and_one_that_is_removed_is_gone() {
    for options in ways() {
        let Some(bed) = silent(1_500, true) else { return };
        let mut device = open(&bed, &options);
        let mut pool = Pool::new(PoolConfig::default());
        let mut netlink = bed.far().unwrap().netlink().unwrap();
        let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
        netlink.set_up(index, false).unwrap();
        let mut batch = vec![pool.packet_of(&[0; 60]).unwrap()];
        device.transmit(&mut batch, &mut pool).unwrap();
        assert_eq!(device.counters().tx_dropped, 1, "{options:?}");
        // After whatever came while it was up.
        drain(&mut device, &mut pool);
        netlink.set_up(index, true).unwrap();
        exchange_with(&bed, &mut device, &mut pool);
        netlink.remove_interface(index).unwrap();
        let gone = end_of_removed(&mut device, &mut pool, Some(Span::from_ms(20)));
        assert!(matches!(gone, Some(DeviceError::Gone { .. })), "{options:?}: {gone:?}");
        assert_eq!(pool.available().0, 1_024);
    }
}

/// One datagram to a device that nobody drives.
fn exchange_with(bed: &TestBed, device: &mut PacketDevice, pool: &mut Pool) {
    let socket = client(bed, TestBed::NEAR_V4.into(), TestBed::FAR_V4.into());
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut batch = Vec::new();
    wait_for("an answer", || {
        socket.send(b"still there?").unwrap();
        crate::mirror::turn(device, pool, &mut batch, 64).unwrap();
        socket.recv(&mut [0; 64]).is_ok()
    });
}

#[test]
fn an_interface_that_is_down_is_refused_with_the_command_that_helps() {
    let Some(bed) = silent(1_500, true) else { return };
    let mut netlink = bed.far().unwrap().netlink().unwrap();
    let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
    let down = InterfaceChange { up: Some(false), ..InterfaceChange::default() };
    netlink.change_interface(index, &down).unwrap();
    let error = bed
        .in_far(|| PacketDevice::open(TestBed::FAR_DEVICE, &PacketOptions::default()))
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("ip link set plumb1 up"), "{error}");
}
