//! Invalid input and failures: one error each, with its exit code, and nothing left behind.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use plumb_netdev::lab::{InterfaceChange, TestBed};

use super::test_bed::{RunningStack, assert_error, plumb, tap, veth};
use crate::home::{NOBODY, assert_ended, devices, is_root, public_copy};
use crate::support::skip;

#[test]
fn invalid_options_are_rejected_with_a_valid_value() {
    for (line, name) in [
        ("serve --addr=10.0.0.2/24 --device zebra", "packet:INTERFACE"),
        ("serve --addr=10.0.0.2/24 --device tpa:x", "'tap'?"),
        ("serve --addr=10.0.0.2/24 --device tap:", "tap:NAME"),
        ("serve --addr=10.0.0.2/24 --device tap:a-name-that-is-too-long", "a-name-that"),
        ("serve --addr=10.0.0.2/24 --device memory", "--device tap:NAME"),
        ("serve --addr=10.0.0.2/24 --device packet:nosuch0", "nosuch0"),
        ("serve --addr=10.0.0.2/24 --device xdp:nosuch0", "nosuch0"),
        ("serve", "--device tap:NAME"),
        ("serve --device tap:x", "--addr"),
        ("serve --device=tap:x --addr=10.0.0.2", "10.77.0.2/24"),
        ("serve --service=ecko", "'echo'?"),
        ("ping nowhere", "nowhere"),
        ("send 10.0.0.2", "10.77.0.2:1997"),
        ("send 10.0.0.2:7 --size=40", "--size 50"),
        ("send 10.0.0.2:7 --mac=02:00:00:00:00:01", "--mac"),
        ("send 10.0.0.2:7 --device=memory --faults=los=1%", "'loss'?"),
    ] {
        assert_error(line, 2, name);
    }
}

#[test]
fn invalid_and_kernel_addresses_are_rejected() {
    let Some(bed) = tap() else { return };
    for (options, name) in [
        ("--addr 10.77.0.255/24", "10.77.0.255"),
        ("--addr 10.77.0.1/24", "ip addr del 10.77.0.1/24"),
        ("--addr=10.77.0.2/24 --gateway=192.0.2.1", "192.0.2.1"),
    ] {
        let line = format!("serve --device=tap:plumb0 {options}");
        bed.in_near(|| assert_error(&line, 2, name)).unwrap();
    }
    let bed = veth().unwrap();
    let line = "serve --device=packet:plumb0 --addr=10.77.0.1/24 --duration=1ms";
    let output = bed.in_near(|| plumb(line).output()).unwrap().unwrap();
    // A warning only, since both stacks may be compared.
    assert_ended(&output, 0, &["ip addr del 10.77.0.1/24"]);
}

#[test]
fn busy_small_and_down_devices_are_named() {
    let Some(bed) = tap() else { return };
    let serve = "serve --device=tap:plumb0 --addr=10.77.0.2/24";
    let running = bed.in_near(|| RunningStack::start(serve)).unwrap();
    bed.in_near(|| assert_error(serve, 4, "another process")).unwrap();
    running.stop();
    let mut netlink = bed.near().netlink().unwrap();
    let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
    let change = InterfaceChange { mtu: Some(1_000), ..InterfaceChange::default() };
    netlink.change_interface(index, &change).unwrap();
    let six = "serve --device=tap:plumb0 --addr=fd77::2/64";
    bed.in_near(|| assert_error(six, 2, "MTU of 1000")).unwrap();
    let down = veth().unwrap();
    let mut netlink = down.far().unwrap().netlink().unwrap();
    let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
    netlink.set_up(index, false).unwrap();
    for device in ["packet:plumb1", "xdp:plumb1"] {
        let line = format!("serve --addr=10.77.0.2/24 --device {device}");
        down.in_far(|| assert_error(&line, 4, "ip link set plumb1 up")).unwrap();
    }
}

#[test]
fn a_device_that_vanishes_ends_the_command_with_its_counts() {
    for device in ["tap:plumb0", "packet:plumb1", "xdp:plumb1"] {
        let Some(bed) = (if device.starts_with("tap") { tap() } else { veth() }) else { return };
        let line = format!("serve --addr=10.77.0.2/24 --device {device}");
        let running = bed.in_far(|| RunningStack::start(&line)).unwrap();
        let mut netlink = bed.near().netlink().unwrap();
        let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
        netlink.remove_interface(index).unwrap();
        let (status, stdout, said) = running.wait();
        assert_eq!(status.code(), Some(4), "{device}: {said}");
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["ended"], "device");
    }
}

#[test]
fn a_silent_or_refusing_peer_ends_the_command() {
    let Some(bed) = tap() else { return };
    let host = "--device=tap:plumb0 --addr=10.77.0.2/24";
    for (line, name) in [
        ("ping 10.77.0.9 --count=2 --interval=1ms --timeout=50ms", "10.77.0.9"),
        ("send 10.77.0.1:4444", "port unreachable"),
    ] {
        bed.in_near(|| assert_error(&format!("{line} {host}"), 4, name)).unwrap();
    }
    let bed = veth().unwrap();
    bed.in_near(|| assert_error("send 10.77.0.1:4444", 4, "10.77.0.1:4444")).unwrap();
    let quiet = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let line = format!("send {}", quiet.local_addr().unwrap());
    assert_error(&format!("{line} --timeout=50ms --max-consecutive-losses=2"), 4, "0 of 1");
    drop(quiet);
    assert_error(&line, 4, "port unreachable");
}

#[test]
fn a_user_without_rights_is_told_which() {
    if !is_root() {
        return skip("only root can become nobody");
    }
    let directory = public_copy();
    for (device, name) in [
        ("tap:plumb0", "plumb stack lab"),
        ("packet:lo", "CAP_NET_RAW"),
        ("xdp:lo", "interface lo"),
    ] {
        let words = ["stack", "serve", "--addr=10.99.0.2/24", "--device", device];
        let mut command = Command::new(directory.path().join("plumb"));
        command.args(words).current_dir("/").uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 4)), "{device}: {said}");
        assert!(said.contains(name) || said.contains("/dev/net/tun"), "{device}: {said}");
    }
}

#[test]
fn killed_at_once_it_leaves_no_device_and_no_program_behind() {
    let Some(bed) = veth() else { return };
    let line = "serve --device=xdp:plumb1 --addr=10.77.0.2/24";
    let running = bed.in_far(|| RunningStack::start(line)).unwrap();
    running.signal("KILL");
    let (status, ..) = running.wait();
    assert_eq!(status.signal(), Some(9));
    // The queue is free again, and no program is attached.
    bed.in_far(|| RunningStack::start(line)).unwrap().stop();
    let before = devices();
    let line = "serve --device=tap:plumb%d --addr=10.98.0.2/24";
    let running = bed.in_far(|| RunningStack::start(line)).unwrap();
    running.signal("KILL");
    running.wait();
    assert_eq!(devices(), before);
}

#[test]
fn counters_are_printed_on_sigusr1_and_periodically() {
    let Some(bed) = tap() else { return };
    let line = "serve --device=tap:plumb0 --addr=10.77.0.2/24";
    let periodic = format!("{line} --stats=20ms");
    let running = bed.in_near(|| RunningStack::start(&periodic)).unwrap();
    running.wait_for_line("0 datagrams");
    running.wait_for_line("0 datagrams");
    running.stop();
    let running = bed.in_near(|| RunningStack::start(line)).unwrap();
    running.signal("USR1");
    running.wait_for_line("0 datagrams");
    let result = running.stop();
    assert_eq!(result["ended"], "interrupted");
}
