//! Whether TCP and UDP over the loopback behave as expected, and whether plumb's own stack finds a device: a test bed,
//! TAP, packet and AF_XDP sockets.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_base::units::format_bytes;
use plumb_netdev::lab;
use plumb_sys::probe::{self, PacketFamily, ProbedNamespace};
use plumb_sys::socket::IntOption;

use super::access::namespace_fix;
use super::{CheckFinding, HostCheck, RefusalKind, limited, missing, ok, refused};
use crate::environment::KernelFiles;
use crate::environment::kernel::has_loopback6;

/// Socket buffers up to this size are asked for when buffers are a factor.
const BUFFER_BYTES: u64 = 4 << 20;

pub(super) fn examine(tree: &KernelFiles) -> Vec<HostCheck> {
    vec![
        loopback(tree).of("net.loopback", "loopback device"),
        ipv6_loopback(tree, UdpSocket::bind(("::1", 0)).map(drop)).of("net.ipv6", "IPv6 loopback"),
        congestion(tree).of("tcp.congestion", "default congestion control"),
        buffers(tree).of("net.buffers", "largest socket buffers"),
        zerocopy(try_zerocopy()).of("net.zerocopy", "MSG_ZEROCOPY"),
    ]
}

fn loopback(tree: &KernelFiles) -> CheckFinding {
    let state: Option<u64> = tree
        .text("sys/class/net/lo/flags")
        .ok()
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let mtu = tree.number::<u64>("sys/class/net/lo/mtu");
    match (state, mtu) {
        // IFF_UP is bit 0 (netdevice(7)).
        (Some(flags), _) if flags & 1 == 0 => missing(
            "down",
            "no mechanism over TCP or UDP can be measured",
            "sudo ip link set lo up",
        ),
        (_, Some(65_536)) => ok("up, MTU 65536"),
        (_, Some(mtu)) => limited(
            format!("up, MTU {mtu}"),
            "the kernel's own is 65536: with another, long messages travel in more packets",
            "sudo ip link set lo mtu 65536",
        ),
        (_, None) => ok("not visible in /sys"),
    }
}

fn ipv6_loopback(tree: &KernelFiles, answer: io::Result<()>) -> CheckFinding {
    let Err(error) = answer else { return ok("::1 answers") };
    let listed = tree.text("proc/net/if_inet6").is_ok_and(|text| has_loopback6(&text));
    let fix = if listed {
        "nothing can here: ::1 is there, but a filter or policy refuses it"
    } else if tree.number("proc/sys/net/ipv6/conf/lo/disable_ipv6") == Some(1_u8) {
        "sudo sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
    } else if tree.exists("proc/sys/net/ipv6") {
        "sudo ip -6 addr add ::1/128 dev lo"
    } else {
        "boot without ipv6.disable=1; nothing can if the kernel is built without IPv6"
    };
    refused(&error, "tcp6 and udp6 cannot be measured", fix)
}

fn congestion(tree: &KernelFiles) -> CheckFinding {
    let path = "proc/sys/net/ipv4/tcp_congestion_control";
    match tree.text(path) {
        Ok(name) if name == "bbr" => limited(
            name,
            "BBR paces what it sends, even over the loopback: TCP figures differ from those of \
             machines with cubic, which most have",
            "plumb run … --set congestion=cubic   (or sudo sysctl -w \
             net.ipv4.tcp_congestion_control=cubic)",
        ),
        Ok(name) => ok(name),
        Err(missing) => limited(
            missing.to_string(),
            "results cannot say which algorithm they were taken with",
            "nothing can, unless /proc/sys is hidden on purpose: mount it",
        ),
    }
}

fn buffers(tree: &KernelFiles) -> CheckFinding {
    let limit = |name: &str| tree.number::<u64>(&format!("proc/sys/net/core/{name}"));
    let (Some(receive), Some(send)) = (limit("rmem_max"), limit("wmem_max")) else {
        return limited(
            "not visible",
            "a buffer that is asked for may silently be smaller; each result says what it got",
            "nothing can in this network namespace: only the first one shows net.core.rmem_max",
        );
    };
    let finding = format!("receive {}, send {}", format_bytes(receive), format_bytes(send));
    if receive.min(send) >= BUFFER_BYTES {
        return ok(finding);
    }
    limited(
        finding,
        format!(
            "larger buffers, up to {}, cannot be measured as a factor",
            format_bytes(BUFFER_BYTES)
        ),
        format!("sudo sysctl -w net.core.rmem_max={BUFFER_BYTES} net.core.wmem_max={BUFFER_BYTES}"),
    )
}

fn zerocopy(answer: io::Result<()>) -> CheckFinding {
    match answer {
        // Linux's Documentation/networking/msg_zerocopy.rst, "Loopback".
        Ok(()) => ok("allowed; to local sockets the kernel copies all the same"),
        Err(error) => refused(
            &error,
            "the tcp-zerocopy mechanism cannot be measured",
            "nothing can: the kernel is older than 4.14, or hides it",
        ),
    }
}

fn try_zerocopy() -> io::Result<()> {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    plumb_sys::socket::set_option(socket.as_fd(), IntOption::Zerocopy, 1)
}

/// Where TUN and TAP devices are made.
const TUN: &str = "/dev/net/tun";

pub(super) fn stack(tree: &KernelFiles) -> Vec<HostCheck> {
    let as_root = lab::NetNamespace::new().is_ok();
    vec![
        test_bed(tree, as_root, probe::namespace(ProbedNamespace::Network))
            .of("stack.lab", "test bed of network namespaces"),
        tun(File::options().read(true).write(true).open(TUN).map(drop))
            .of("stack.tun", "TUN and TAP devices"),
        packet(probe::packet_socket(PacketFamily::Packet)).of("stack.packet", "packet sockets"),
        xdp(probe::packet_socket(PacketFamily::Xdp)).of("stack.xdp", "AF_XDP sockets"),
    ]
}

fn test_bed(tree: &KernelFiles, as_root: bool, user: io::Result<()>) -> CheckFinding {
    match user {
        _ if as_root => ok("allowed"),
        Ok(()) => ok("allowed, in a user namespace"),
        Err(error) => refused(
            &error,
            "'plumb stack lab' and every measurement between two network namespaces need it",
            format!("sudo plumb …   (or {})", namespace_fix(tree, &error)),
        ),
    }
}

fn tun(answer: io::Result<()>) -> CheckFinding {
    let Err(error) = answer else { return ok("may be opened") };
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => "sudo chmod 666 /dev/net/tun",
        _ => "sudo modprobe tun   (in a container: docker run --device /dev/net/tun …)",
    };
    missing(format!("{TUN}: {error}"), "the stack cannot be tried or measured on a TAP device", fix)
}

fn packet(answer: io::Result<()>) -> CheckFinding {
    socket_family(
        answer,
        "the stack cannot run on the packets of an existing interface",
        "sudo plumb …   (inside 'plumb stack lab' they are allowed)",
        "nothing can: the kernel is built without CONFIG_PACKET",
    )
}

fn xdp(answer: io::Result<()>) -> CheckFinding {
    socket_family(
        answer,
        "the stack cannot take packets before the kernel's own has seen them",
        "sudo plumb …   (a user namespace is not enough: their program is the kernel's)",
        "nothing can: the kernel is built without CONFIG_XDP_SOCKETS, or is older than 4.18",
    )
}

/// A kind of socket that may be forbidden to this user, or absent from this kernel.
fn socket_family(
    answer: io::Result<()>,
    why: &str,
    if_forbidden: &str,
    if_absent: &str,
) -> CheckFinding {
    match answer {
        Ok(()) => ok("allowed"),
        Err(error) if RefusalKind::from(&error) == RefusalKind::Forbidden => {
            limited(format!("refused: {error}"), why, if_forbidden)
        }
        Err(error) => missing(format!("none: {error}"), why, if_absent),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{AddrNotAvailable, NotFound, PermissionDenied, Unsupported};

    use super::*;
    use crate::doctor::CheckStatus::{Limited, Missing, Ok as Well};
    use crate::doctor::tests::each_says;
    use crate::environment::tests::MachineFixture;

    fn net(path: &str, value: &str) -> MachineFixture {
        MachineFixture::with(&format!("proc/sys/net/{path}"), value)
    }

    fn lo(flags: &str, mtu: &str) -> CheckFinding {
        let fixture = MachineFixture::with("sys/class/net/lo/flags", flags);
        loopback(&fixture.file("sys/class/net/lo/mtu", mtu))
    }

    #[test]
    fn each_setting_that_changes_figures_has_its_own_fix() {
        let congestion = |name| congestion(&net("ipv4/tcp_congestion_control", name));
        let switched = |off| net("ipv6/conf/lo/disable_ipv6", off);
        let buffers = |receive, send| {
            buffers(&net("core/rmem_max", receive).file("proc/sys/net/core/wmem_max", send))
        };
        let refused = || Err(AddrNotAvailable.into());
        each_says([
            (congestion("bbr\n"), Limited, "--set congestion=cubic"),
            (congestion("cubic\n"), Well, ""),
            (lo("0x8", "65536"), Missing, ""),
            (lo("0x9", "1500"), Limited, ""),
            (lo("0x9", "65536"), Well, ""),
            (lo("zz", "zz"), Well, ""),
            (ipv6_loopback(&switched("1"), refused()), Missing, "disable_ipv6=0"),
            (ipv6_loopback(&switched("0"), refused()), Missing, "ip -6 addr add"),
            (ipv6_loopback(&MachineFixture::new(), refused()), Missing, "ipv6.disable"),
            (ipv6_loopback(&switched("0"), Ok(())), Well, ""),
            (buffers("212992", "8388608"), Limited, "receive 208Ki, send 8Mi"),
            (buffers("212992", "8388608"), Limited, "rmem_max=4194304"),
            (buffers("4194304", "4194304"), Well, ""),
        ]);
    }

    #[test]
    fn forbidden_and_absent_devices_have_different_fixes() {
        let denied = || Err(PermissionDenied.into());
        let restricted = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";
        let bed = |root, tried| test_bed(&MachineFixture::with(restricted, "1\n"), root, tried);
        each_says([
            (bed(true, denied()), Well, ""),
            (bed(false, Ok(())), Well, ""),
            (bed(false, denied()), Missing, "apparmor_restrict_unprivileged_userns=0"),
            (tun(denied()), Missing, "chmod"),
            (tun(Err(NotFound.into())), Missing, "modprobe tun"),
        ]);
        for check in [packet as fn(io::Result<()>) -> CheckFinding, xdp] {
            each_says([
                (check(Ok(())), Well, ""),
                (check(denied()), Limited, "; sudo"),
                (check(Err(Unsupported.into())), Missing, "; nothing can"),
            ]);
        }
    }
}
