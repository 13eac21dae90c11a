//! Bad input and trouble: each a clear message with its fix and its exit code, and nothing left.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use plumb_netdev::lab::{InterfaceChange, TestBed};

use super::test_bed::{RunningStack, assert_error, plumb, tap, veth};
use crate::home::{NOBODY, devices, is_root, public_copy};
use crate::support::skip;

#[test]
fn strange_words_are_answered_with_those_there_are() {
    let with = |device: &str, told: &[&str]| {
        assert_error(&["serve", "--addr=10.0.0.2/24", "--device", device], 2, told);
    };
    with("zebra", &["packet:INTERFACE"]);
    with("tpa:x", &["did you mean 'tap'?"]);
    with("tap:", &["'tap' needs a name"]);
    with("tap:a-name-that-is-too-long", &["no name of an interface"]);
    with("memory", &["nobody at its other end", "fix: "]);
    with("packet:nosuch0", &["there is no network interface `nosuch0`", "fix: "]);
    with("xdp:nosuch0", &["there is no network interface `nosuch0`", "fix: "]);
    assert_error(&["serve"], 2, &["needs a device", "fix: "]);
    assert_error(&["serve", "--device", "tap:x"], 2, &["needs an address", "fix: "]);
    assert_error(&["serve", "--device=tap:x", "--addr=10.0.0.2"], 2, &["10.77.0.2/24"]);
    assert_error(&["serve", "--service=ecko"], 2, &["did you mean 'echo'?"]);
    assert_error(&["ping", "nowhere"], 2, &["nowhere"]);
    assert_error(&["send", "10.0.0.2"], 2, &["10.77.0.2:1997"]);
    assert_error(&["send", "10.0.0.2:7", "--size=40"], 2, &["too short", "fix: "]);
    assert_error(&["send", "10.0.0.2:7", "--mac=02:00:00:00:00:01"], 2, &["--mac is for", "fix: "]);
    assert_error(&["send", "10.0.0.2:7", "--device=memory", "--faults=los=1%"], 2, &["'loss'"]);
}

#[test]
fn impossible_addresses_are_refused_and_the_kernels_is_named() {
    let Some(bed) = tap() else { return };
    let with = |addr: &str, code: i32, told: &[&str]| {
        let words = ["serve", "--device=tap:plumb0", "--addr", addr];
        bed.in_near(|| assert_error(&words, code, told)).unwrap();
    };
    with("10.77.0.255/24", 2, &["cannot be the address of one host", "fix: "]);
    with("10.77.0.1/24", 2, &["this machine's kernel too", "ip addr del 10.77.0.1/24"]);
    let words = ["serve", "--device=tap:plumb0", "--addr=10.77.0.2/24", "--gateway=192.0.2.1"];
    bed.in_near(|| assert_error(&words, 2, &["is on no network of the stack", "fix: "])).unwrap();
    let bed = veth().unwrap();
    let words = ["serve", "--device=packet:plumb0", "--addr=10.77.0.1/24"];
    let output = bed.in_near(|| plumb(&words).args(["--duration=1ms"]).output()).unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("will answer as well; to silence it: ip addr del"), "{said}");
    assert_eq!(output.status.code(), Some(0), "a warning, for the experiment of both: {said}");
}

#[test]
fn a_device_that_is_taken_down_or_too_small_is_said_to_be() {
    let Some(bed) = tap() else { return };
    let serve = ["serve", "--device=tap:plumb0", "--addr=10.77.0.2/24"];
    let running = bed.in_near(|| RunningStack::start(&serve)).unwrap();
    bed.in_near(|| assert_error(&serve, 4, &["in use by another process"])).unwrap();
    running.stop();
    let mut netlink = bed.near().netlink().unwrap();
    let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
    let change = InterfaceChange { mtu: Some(1_000), ..InterfaceChange::default() };
    netlink.change_interface(index, &change).unwrap();
    let six = ["serve", "--device=tap:plumb0", "--addr=fd77::2/64"];
    bed.in_near(|| assert_error(&six, 2, &["MTU of 1000 is too small", "fix: "])).unwrap();
    let down = veth().unwrap();
    let mut netlink = down.far().unwrap().netlink().unwrap();
    let index = netlink.interface(TestBed::FAR_DEVICE).unwrap().index;
    netlink.set_up(index, false).unwrap();
    for device in ["packet:plumb1", "xdp:plumb1"] {
        let words = ["serve", "--addr=10.77.0.2/24", "--device", device];
        down.in_far(|| assert_error(&words, 4, &["is down", "ip link set plumb1 up"])).unwrap();
    }
}

#[test]
fn a_device_that_vanishes_ends_the_command_with_its_counts() {
    for device in ["tap:plumb0", "packet:plumb1", "xdp:plumb1"] {
        let Some(bed) = (if device.starts_with("tap") { tap() } else { veth() }) else { return };
        let words = ["serve", "--addr=10.77.0.2/24", "--device", device];
        let running = bed.in_far(|| RunningStack::start(&words)).unwrap();
        let mut netlink = bed.near().netlink().unwrap();
        let index = netlink.interface(TestBed::NEAR_DEVICE).unwrap().index;
        netlink.remove_interface(index).unwrap();
        let (status, stdout, said) = running.wait();
        assert_eq!(status.code(), Some(4), "{device}: {said}");
        assert!(said.contains("error: ") && said.contains("fix: "), "{device}: {said}");
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(document["ended"], "device");
    }
}

#[test]
fn a_peer_that_is_silent_or_refuses_is_given_up_with_counts() {
    let Some(bed) = tap() else { return };
    let station = ["--device=tap:plumb0", "--addr=10.77.0.2/24"];
    let with = |words: &[&str], told: &[&str]| {
        let words = [words, &station].concat();
        bed.in_near(|| assert_error(&words, 4, told)).unwrap();
    };
    with(
        &["ping", "10.77.0.9", "--count=2", "--interval=1ms", "--timeout=50ms"],
        &["10.77.0.9 did not answer", "2 request(s)", "fix: "],
    );
    with(&["send", "10.77.0.1:4444"], &["port unreachable", "fix: "]);
    let bed_veth = veth().unwrap();
    // Nobody is at that address, and Linux says so after a while, or plumb gives up before.
    let words = ["send", "10.77.0.1:4444", "--timeout=50ms", "--max-consecutive-losses=2"];
    let told = ["port unreachable"];
    bed_veth.in_near(|| assert_error(&words[..2], 4, &["10.77.0.1:4444"])).unwrap();
    let quiet = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = quiet.local_addr().unwrap().to_string();
    let words = ["send", &remote, words[2], words[3]];
    assert_error(&words, 4, &["does not answer", "0 of 1", "fix: "]);
    drop(quiet);
    assert_error(&["send", &remote], 4, &told);
}

#[test]
fn a_user_without_rights_is_told_which_and_the_way_round() {
    if !is_root() {
        return skip("only root can become nobody");
    }
    let directory = public_copy();
    for (device, told) in [
        ("tap:plumb0", "plumb stack lab"),
        ("packet:lo", "CAP_NET_RAW"),
        ("xdp:lo", "interface lo does not carry Ethernet"),
    ] {
        let words = ["stack", "serve", "--addr=10.99.0.2/24", "--device", device];
        let mut command = Command::new(directory.path().join("plumb"));
        command.args(words).current_dir("/").uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 4)), "{device}: {said}");
        assert!(said.contains(told) || said.contains("/dev/net/tun"), "{device}: {said}");
    }
}

#[test]
fn killed_at_once_it_leaves_no_device_and_no_program_behind() {
    let Some(bed) = veth() else { return };
    let words = ["serve", "--device=xdp:plumb1", "--addr=10.77.0.2/24"];
    let running = bed.in_far(|| RunningStack::start(&words)).unwrap();
    running.signal("KILL");
    let (status, ..) = running.wait();
    assert_eq!(status.signal(), Some(9));
    // The same queue can be had again: nothing holds it, and no program is attached.
    bed.in_far(|| RunningStack::start(&words)).unwrap().stop();
    let before = devices();
    let made = ["serve", "--device=tap:plumb%d", "--addr=10.98.0.2/24"];
    let running = bed.in_far(|| RunningStack::start(&made)).unwrap();
    running.signal("KILL");
    running.wait();
    assert_eq!(devices(), before);
}

#[test]
fn counters_are_told_on_request_and_every_so_often() {
    let Some(bed) = tap() else { return };
    let words = ["serve", "--device=tap:plumb0", "--addr=10.77.0.2/24", "--stats=20ms"];
    let running = bed.in_near(|| RunningStack::start(&words)).unwrap();
    running.wait_for_line("0 datagrams");
    running.wait_for_line("0 datagrams");
    running.stop();
    let running = bed.in_near(|| RunningStack::start(&words[..3])).unwrap();
    running.signal("USR1");
    running.wait_for_line("0 datagrams");
    let result = running.stop();
    assert_eq!(result["ended"], "interrupted");
}
