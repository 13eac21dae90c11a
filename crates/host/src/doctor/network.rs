//! Whether TCP and UDP over the loopback behave as a reader expects.
//!
//! Left out: real devices and paths.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_base::units::format_bytes;
use plumb_sys::socket::IntOption;

use super::{Check, Question};
use crate::environment::network::has_loopback6;
use crate::environment::tree::Tree;

/// Socket buffers up to this size are asked for when buffers are a factor.
const BUFFER_BYTES: u64 = 4 << 20;

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    vec![
        loopback(tree),
        version_six(tree, UdpSocket::bind(("::1", 0)).map(drop)),
        congestion(tree),
        buffers(tree),
        zerocopy(try_zerocopy()),
    ]
}

fn loopback(tree: &Tree) -> Check {
    let question = Question { id: "net.loopback", what: "loopback device" };
    let state: Option<u64> = tree
        .text("sys/class/net/lo/flags")
        .ok()
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let mtu = tree.number::<u64>("sys/class/net/lo/mtu");
    match (state, mtu) {
        // IFF_UP is bit 0 (netdevice(7)).
        (Some(flags), _) if flags & 1 == 0 => Check::missing(
            question,
            "down",
            "no mechanism over TCP or UDP can be measured",
            "sudo ip link set lo up",
        ),
        (_, Some(65_536)) => Check::ok(question, "up, MTU 65536"),
        (_, Some(mtu)) => Check::limited(
            question,
            format!("up, MTU {mtu}"),
            "the kernel's own is 65536: with another, long messages travel in more packets",
            "sudo ip link set lo mtu 65536",
        ),
        (_, None) => Check::ok(question, "not visible in /sys"),
    }
}

fn version_six(tree: &Tree, answer: io::Result<()>) -> Check {
    let question = Question { id: "net.ipv6", what: "IPv6 loopback" };
    let Err(error) = answer else { return Check::ok(question, "::1 answers") };
    let listed = tree.text("proc/net/if_inet6").is_ok_and(|text| has_loopback6(&text));
    let fix = if listed {
        "nothing plain can: ::1 is there, but a filter or a policy refuses it"
    } else if tree.number("proc/sys/net/ipv6/conf/lo/disable_ipv6") == Some(1_u8) {
        "sudo sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
    } else if tree.exists("proc/sys/net/ipv6") {
        "sudo ip -6 addr add ::1/128 dev lo"
    } else {
        "boot without ipv6.disable=1; nothing can if the kernel is built without IPv6"
    };
    Check::missing(question, format!("refused: {error}"), "tcp6 and udp6 cannot be measured", fix)
}

fn congestion(tree: &Tree) -> Check {
    let question = Question { id: "tcp.congestion", what: "default congestion control" };
    let path = "proc/sys/net/ipv4/tcp_congestion_control";
    match tree.text(path) {
        Ok(name) if name == "bbr" => Check::limited(
            question,
            name,
            "BBR paces what it sends, even over the loopback: TCP figures differ from those of \
             machines with cubic, which most have",
            "plumb run … --set congestion=cubic   (or sudo sysctl -w \
             net.ipv4.tcp_congestion_control=cubic)",
        ),
        Ok(name) => Check::ok(question, name),
        Err(missing) => Check::limited(
            question,
            missing.to_string(),
            "results cannot say which algorithm they were taken with",
            "nothing can, unless /proc/sys is hidden on purpose: mount it",
        ),
    }
}

fn buffers(tree: &Tree) -> Check {
    let question = Question { id: "net.buffers", what: "largest socket buffers" };
    let limit = |name: &str| tree.number::<u64>(&format!("proc/sys/net/core/{name}"));
    let (Some(receive), Some(send)) = (limit("rmem_max"), limit("wmem_max")) else {
        return Check::limited(
            question,
            "not visible",
            "a buffer that is asked for may silently be smaller; each result says what it got",
            "nothing can in this network namespace: only the first one shows net.core.rmem_max",
        );
    };
    let finding = format!("receive {}, send {}", format_bytes(receive), format_bytes(send));
    if receive.min(send) >= BUFFER_BYTES {
        return Check::ok(question, finding);
    }
    Check::limited(
        question,
        finding,
        format!(
            "larger buffers, up to {}, cannot be measured as a factor",
            format_bytes(BUFFER_BYTES)
        ),
        format!("sudo sysctl -w net.core.rmem_max={BUFFER_BYTES} net.core.wmem_max={BUFFER_BYTES}"),
    )
}

fn zerocopy(answer: io::Result<()>) -> Check {
    let question = Question { id: "net.zerocopy", what: "MSG_ZEROCOPY" };
    match answer {
        // Linux's Documentation/networking/msg_zerocopy.rst, "Loopback".
        Ok(()) => Check::ok(question, "allowed; to local sockets the kernel copies all the same"),
        Err(error) => Check::missing(
            question,
            format!("refused: {error}"),
            "the tcp-zerocopy mechanism cannot be measured",
            "nothing can: the kernel is older than 4.14, or hides it",
        ),
    }
}

fn try_zerocopy() -> io::Result<()> {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    plumb_sys::socket::set_option(socket.as_fd(), IntOption::Zerocopy, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;

    #[test]
    fn bbr_as_the_default_is_worth_a_word() {
        let path = "proc/sys/net/ipv4/tcp_congestion_control";
        let check = congestion(&Fixture::new().file(path, "bbr\n").tree());
        assert_eq!(check.status, Status::Limited);
        assert!(check.fix.contains("--set congestion=cubic"), "{}", check.fix);
        assert_eq!(congestion(&Fixture::new().file(path, "cubic\n").tree()).status, Status::Ok);
    }

    #[test]
    fn a_loopback_that_is_down_or_odd_is_told() {
        let lo = |flags: &str, mtu: &str| {
            Fixture::new().file("sys/class/net/lo/flags", flags).file("sys/class/net/lo/mtu", mtu)
        };
        assert_eq!(loopback(&lo("0x8", "65536").tree()).status, Status::Missing);
        assert_eq!(loopback(&lo("0x9", "1500").tree()).status, Status::Limited);
        assert_eq!(loopback(&lo("0x9", "65536").tree()).status, Status::Ok);
        assert_eq!(loopback(&lo("zz", "zz").tree()).status, Status::Ok);
    }

    #[test]
    fn each_way_of_lacking_ipv6_has_its_own_remedy() {
        let refused = || Err(io::ErrorKind::AddrNotAvailable.into());
        let switched = Fixture::new().file("proc/sys/net/ipv6/conf/lo/disable_ipv6", "1");
        assert!(version_six(&switched.tree(), refused()).fix.contains("disable_ipv6=0"));
        let empty = Fixture::new().file("proc/sys/net/ipv6/conf/lo/disable_ipv6", "0");
        assert!(version_six(&empty.tree(), refused()).fix.contains("ip -6 addr add"));
        assert!(version_six(&Fixture::new().tree(), refused()).fix.contains("ipv6.disable"));
        assert_eq!(version_six(&empty.tree(), Ok(())).status, Status::Ok);
    }

    #[test]
    fn small_buffers_are_a_limit_with_the_sizes_to_set() {
        let core = |receive: &str, send: &str| {
            Fixture::new()
                .file("proc/sys/net/core/rmem_max", receive)
                .file("proc/sys/net/core/wmem_max", send)
        };
        let check = buffers(&core("212992", "8388608").tree());
        assert_eq!(check.finding, "receive 208Ki, send 8Mi");
        assert!(check.fix.contains("rmem_max=4194304"), "{}", check.fix);
        assert_eq!(buffers(&core("4194304", "4194304").tree()).status, Status::Ok);
        assert_eq!(buffers(&Fixture::new().tree()).status, Status::Limited);
    }
}
