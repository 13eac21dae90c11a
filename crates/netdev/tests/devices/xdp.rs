//! The AF_XDP socket: in the driver and before the stack, one queue and several, asleep and awake.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use plumb_base::time::{Instant, Span};
use plumb_netdev::device::xdp::{XdpAttachMode, XdpCopyMode, XdpDevice, XdpOptions};
use plumb_netdev::device::{Device, DeviceError, DeviceOpenFailure, DeviceWait};
use plumb_netdev::lab::{InterfaceChange, TestBed};
use plumb_wire::packet::Pool;

use crate::bed::{
    MirrorThread, client, client_v4_after_first_answer, drain, end_of_removed, exchange,
    exchange_in_every_family, hold_process_starts, silent, start, wait_for,
};

/// Opened at the far end; none, with a word about it, where this process may not.
fn open(bed: &TestBed, options: &XdpOptions) -> Option<(XdpDevice, Pool)> {
    match bed.in_far(|| XdpDevice::open(TestBed::FAR_DEVICE, options)).unwrap() {
        Err(error) if error.failure == DeviceOpenFailure::Lacking => {
            println!("skipped: {error}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        opened => Some(opened.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// Longer than anything takes that comes at all.
const SECONDS: Span = Span::from_secs(30);

fn near_client(bed: &TestBed) -> UdpSocket {
    client(bed, TestBed::NEAR_V4.into(), TestBed::FAR_V4.into())
}

/// Whether `ip link` names an XDP program on the far device.
fn is_attached(bed: &TestBed) -> bool {
    let mut command = Command::new("ip");
    command.args(["link", "show", TestBed::FAR_DEVICE]).stdout(Stdio::piped());
    let output = bed.in_far(|| start(&mut command).wait_with_output().unwrap()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(TestBed::FAR_DEVICE), "{text}");
    text.contains("xdp")
}

#[test]
fn datagrams_come_back_in_both_families_in_every_mode_and_way_to_wait() {
    for mode in [XdpAttachMode::Native, XdpAttachMode::Generic] {
        for wait in [DeviceWait::Block, DeviceWait::Poll(Span::from_us(50)), DeviceWait::Spin] {
            let Some(bed) = silent(1_500, false) else { return };
            let options = XdpOptions { wait, mode: Some(mode), ..XdpOptions::default() };
            let Some((device, pool)) = open(&bed, &options) else { return };
            assert_eq!((device.mode, device.copying), (mode, XdpCopyMode::Copy));
            let mirror = MirrorThread::start(device, pool, 2_048 + 32);
            assert_eq!(exchange_in_every_family(&bed, mirror).rx_dropped, 0, "{options:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_datagrams_return_without_loss_past_the_ends_of_all_rings() {
    let ways = [
        (XdpAttachMode::Native, DeviceWait::Block),
        (XdpAttachMode::Native, DeviceWait::Spin),
        (XdpAttachMode::Generic, DeviceWait::Block),
        (XdpAttachMode::Generic, DeviceWait::Spin),
    ];
    for (mode, wait) in ways {
        let Some(bed) = silent(1_500, false) else { return };
        let options = XdpOptions { wait, mode: Some(mode), frames: 64, ..XdpOptions::default() };
        let Some((device, pool)) = open(&bed, &options) else { return };
        let mirror = MirrorThread::start(device, pool, 32 + 16);
        let socket = client_v4_after_first_answer(&bed);
        exchange(&socket, 18, 25_000);
        let left = mirror.stop();
        assert_eq!(left.frames_missing, 0);
        assert_eq!((left.counters.rx_dropped, left.counters.tx_dropped), (0, 0), "{left:?}");
    }
}

#[test]
fn a_blocking_exchange_costs_one_call_a_packet() {
    let Some(bed) = silent(1_500, false) else { return };
    let Some((device, pool)) = open(&bed, &XdpOptions::default()) else { return };
    let mirror = MirrorThread::start(device, pool, 4_096);
    let socket = client_v4_after_first_answer(&bed);
    exchange(&socket, 18, 5_000);
    let left = mirror.stop();
    let calls = left.counters.calls;
    assert!(calls < left.counters.tx_packets * 3 / 2, "{calls} calls, {left:?}");
}

#[test]
fn an_answer_leaves_with_a_flush_where_nobody_waits_again() {
    let Some(bed) = silent(1_500, false) else { return };
    let Some((mut device, mut pool)) = open(&bed, &XdpOptions::default()) else { return };
    let socket = near_client(&bed);
    wait_for("a datagram to be answered", || {
        socket.send(b"anybody?").unwrap();
        let mut batch = Vec::new();
        crate::mirror::turn(&mut device, &mut pool, &mut batch, 1).unwrap();
        device.counters().tx_packets > 0
    });
    device.flush().unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 8);
}

#[test]
fn a_burst_larger_than_all_frames_is_counted_and_every_frame_comes_back() {
    let Some(bed) = silent(1_500, false) else { return };
    let options = XdpOptions { frames: 64, ..XdpOptions::default() };
    let Some((mut device, mut pool)) = open(&bed, &options) else { return };
    let socket = near_client(&bed);
    let mut batch = Vec::new();
    for _ in 0..5 {
        for _ in 0..500 {
            socket.send(&[1; 1_000]).unwrap();
        }
        while device.wait(Some(Span::from_ms(5)), &mut pool).unwrap() {
            crate::mirror::turn(&mut device, &mut pool, &mut batch, 64).unwrap();
        }
    }
    let counters = device.counters();
    assert!(counters.rx_dropped > 500 && counters.rx_packets > 32, "{counters:?}");
    assert_eq!(pool.available().0 + device.lent(), 64, "{counters:?}");
}

#[test]
fn each_of_two_queues_gives_its_packets_and_takes_its_answers() {
    let Some(bed) = silent(1_500, false) else { return };
    // The bed's own link has one queue; another with two, beside it.
    let (near, far) = ("two0", "two1");
    let mut make = Command::new("ip");
    make.args(["link", "add", near, "numtxqueues", "2", "numrxqueues", "2", "type", "veth"])
        .args(["peer", "name", far, "numtxqueues", "2", "numrxqueues", "2"]);
    let made = bed.in_near(|| start(&mut make).wait().unwrap()).unwrap();
    assert!(made.success());
    let mut netlink = bed.near().netlink().unwrap();
    for name in [near, far] {
        let index = netlink.interface(name).unwrap().index;
        netlink.set_up(index, true).unwrap();
    }
    let options = XdpOptions { frames: 1_024, ..XdpOptions::default() };
    let opened = bed.in_near(|| XdpDevice::open(far, &options)).unwrap();
    let (mut device, mut pool) = match opened {
        Err(error) if error.failure == DeviceOpenFailure::Lacking => return,
        opened => opened.unwrap(),
    };
    // One socket on each queue of the other end, the second once the first is gone.
    let _alone = hold_process_starts();
    for queue in [0, 1] {
        let options = XdpOptions { queue, queues: Some(1), frames: 64, ..XdpOptions::default() };
        let (mut other, mut others) =
            bed.in_near(|| XdpDevice::open(near, &options)).unwrap().unwrap();
        let mut batch = Vec::new();
        for number in 0..20_u8 {
            let frame = [number; 60];
            batch.push(others.packet_of(&frame).unwrap());
            other.transmit(&mut batch, &mut others).unwrap();
            // A blocking device sends when it waits.
            other.wait(Some(Span::ZERO), &mut others).unwrap();
            while device.wait(Some(SECONDS), &mut pool).unwrap() {
                device.receive(Instant::ORIGIN, &mut batch, 1, &mut pool).unwrap();
                if batch.len() == 1 && pool.bytes(&batch[0]) == frame {
                    break;
                }
                pool.free_all(&mut batch);
            }
            assert_eq!(batch.len(), 1, "queue {queue}, frame {number}");
            batch[0].meta.flow = queue;
            device.transmit(&mut batch, &mut pool).unwrap();
            device.wait(Some(Span::ZERO), &mut pool).unwrap();
            while other.wait(Some(SECONDS), &mut others).unwrap() {
                other.receive(Instant::ORIGIN, &mut batch, 1, &mut others).unwrap();
                if batch.len() == 1 && others.bytes(&batch[0]) == frame {
                    break;
                }
                others.free_all(&mut batch);
            }
            assert_eq!(batch.len(), 1, "the answer on queue {queue}");
            others.free_all(&mut batch);
        }
    }
    assert_eq!(pool.available().0 + device.lent(), 1_024);
}

#[test]
fn the_program_goes_with_the_device() {
    let Some(bed) = silent(1_500, false) else { return };
    let Some((device, _pool)) = open(&bed, &XdpOptions::default()) else { return };
    assert!(is_attached(&bed));
    // A process that another test starts at this moment holds the device too, until it runs `ip`.
    drop(device);
    wait_for("the program to go", || !is_attached(&bed));
}

/// Set in the process of [`holds_the_device_until_it_is_killed`].
const HOLDER: &str = "PLUMB_TEST_XDP_HOLDER";

#[test]
fn a_killed_process_leaves_nothing_attached() {
    let Some(bed) = silent(1_500, false) else { return };
    let alone = hold_process_starts();
    let Some(probe) = open(&bed, &XdpOptions::default()) else { return };
    drop((probe, alone));
    let spawn = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "xdp::holds_the_device_until_it_is_killed", "--nocapture"])
            .env(HOLDER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        start(&mut command)
    };
    let mut child = bed.in_far(spawn).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")));
    assert!(is_attached(&bed));
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel closes a dead process's descriptors in its own time.
    wait_for("the program to go", || !is_attached(&bed));
    assert!(open(&bed, &XdpOptions::default()).is_some(), "the queue is free again");
}

/// The other process of [`a_killed_process_leaves_nothing_attached`]; does nothing in a run of all tests.
#[test]
fn holds_the_device_until_it_is_killed() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let device = XdpDevice::open(TestBed::FAR_DEVICE, &XdpOptions::default()).unwrap();
    println!("holding");
    // Until the parent closes the pipe, should it die first.
    let _ = std::io::stdin().read(&mut [0]);
    drop(device);
}

#[test]
fn a_second_device_is_told_who_is_in_the_way() {
    let Some(bed) = silent(1_500, false) else { return };
    let Some(_first) = open(&bed, &XdpOptions::default()) else { return };
    let again =
        bed.in_far(|| XdpDevice::open(TestBed::FAR_DEVICE, &XdpOptions::default())).unwrap();
    let error = again.unwrap_err();
    assert!(error.to_string().contains("ip link show plumb1"), "{error}");
}

#[test]
fn a_device_opens_again_at_once_after_it_was_closed() {
    let Some(bed) = silent(1_500, false) else { return };
    let _alone = hold_process_starts();
    for _ in 0..10 {
        let Some(_device) = open(&bed, &XdpOptions::default()) else { return };
    }
}

#[test]
fn what_cannot_be_opened_is_refused_with_its_reason() {
    let Some(bed) = silent(9_000, false) else { return };
    let far = |name: &str, options: &XdpOptions| {
        bed.in_far(|| XdpDevice::open(name, options)).unwrap().map(drop).unwrap_err()
    };
    let default = XdpOptions::default();
    let says = |name: &str, options: &XdpOptions, what: &str| {
        let error = far(name, options);
        assert!(error.to_string().contains(what), "{error}");
    };
    says("nosuch0", &default, "no network interface `nosuch0`");
    says("lo", &default, "its ARPHRD type is 772");
    says(TestBed::FAR_DEVICE, &default, "ip link set plumb1 mtu 3822");

    let mut netlink = bed.far().unwrap().netlink().unwrap();
    let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
    let change = InterfaceChange { mtu: Some(1_500), ..InterfaceChange::default() };
    netlink.change_interface(index, &change).unwrap();
    let queue = XdpOptions { queue: 7, ..default };
    says(TestBed::FAR_DEVICE, &queue, "has 1 receiving queue(s)");
    let zero = XdpOptions { copying: Some(XdpCopyMode::Zero), ..default };
    if far(TestBed::FAR_DEVICE, &zero).failure == DeviceOpenFailure::Lacking {
        return;
    }
    says(TestBed::FAR_DEVICE, &zero, "has no zero-copy AF_XDP");
    netlink.set_up(index, false).unwrap();
    says(TestBed::FAR_DEVICE, &default, "ip link set plumb1 up");
    wait_for("what failed to leave nothing", || !is_attached(&bed));
}

#[test]
fn a_large_mtu_gets_larger_frames_and_the_generic_mode_where_the_driver_has_none() {
    let Some(bed) = silent(3_800, false) else { return };
    let Some((device, pool)) = open(&bed, &XdpOptions::default()) else { return };
    // A virtual Ethernet's driver takes about 3,500 bytes.
    assert_eq!(device.mode, XdpAttachMode::Generic);
    assert_eq!(pool.frames().size, 4_096);
    let mirror = MirrorThread::start(device, pool, 4_096);
    let socket = client_v4_after_first_answer(&bed);
    exchange(&socket, 3_700, 100);
    mirror.stop();
}

#[test]
fn an_interface_that_is_down_is_quiet_and_one_that_is_removed_is_gone() {
    for wait in [DeviceWait::Block, DeviceWait::Spin] {
        let Some(bed) = silent(1_500, false) else { return };
        let options = XdpOptions { wait, ..XdpOptions::default() };
        let Some((mut device, mut pool)) = open(&bed, &options) else { return };
        let mut netlink = bed.far().unwrap().netlink().unwrap();
        let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
        netlink.set_up(index, false).unwrap();
        let mut batch = vec![pool.packet_of(&[0; 60]).unwrap()];
        device.transmit(&mut batch, &mut pool).unwrap();
        // After whatever came while it was up.
        drain(&mut device, &mut pool);
        netlink.set_up(index, true).unwrap();
        netlink.remove_interface(index).unwrap();
        let gone = end_of_removed(&mut device, &mut pool, None);
        assert!(matches!(gone, Some(DeviceError::Gone { .. })), "{options:?}: {gone:?}");
    }
}
