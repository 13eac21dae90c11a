//! Whether plumb's own network stack finds a wire here: a test bed, TAP, packet and AF_XDP sockets.
//!
//! Left out: tracepoints (`super::tracing`), and real network cards.

use std::fs::File;
use std::io;

use plumb_sys::probe::{self, Namespace, PacketFamily};

use super::access::namespace_fix;
use super::{Check, Question, Refusal};
use crate::environment::tree::Tree;
use crate::lab;

/// Where TUN and TAP devices are made.
const TUN: &str = "/dev/net/tun";

pub(super) fn examine(tree: &Tree) -> Vec<Check> {
    let as_root = lab::Namespace::new().is_ok();
    vec![
        bed(tree, as_root, probe::namespace(Namespace::Network)),
        tun(File::options().read(true).write(true).open(TUN).map(drop)),
        packet(probe::packet_socket(PacketFamily::Packet)),
        xdp(probe::packet_socket(PacketFamily::Xdp)),
    ]
}

fn bed(tree: &Tree, as_root: bool, user: io::Result<()>) -> Check {
    let question = Question { id: "stack.lab", what: "test bed of network namespaces" };
    match user {
        _ if as_root => Check::ok(question, "allowed"),
        Ok(()) => Check::ok(question, "allowed, in a user namespace"),
        Err(error) => Check::missing(
            question,
            format!("refused: {error}"),
            "'plumb stack lab' and every measurement between two network namespaces need it",
            format!("sudo plumb …   (or {})", namespace_fix(tree, &error)),
        ),
    }
}

fn tun(answer: io::Result<()>) -> Check {
    let question = Question { id: "stack.tun", what: "TUN and TAP devices" };
    let Err(error) = answer else { return Check::ok(question, "may be opened") };
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => "sudo chmod 666 /dev/net/tun",
        _ => "sudo modprobe tun   (in a container: docker run --device /dev/net/tun …)",
    };
    Check::missing(
        question,
        format!("{TUN}: {error}"),
        "the stack cannot be tried or measured on a TAP device",
        fix,
    )
}

fn packet(answer: io::Result<()>) -> Check {
    let question = Question { id: "stack.packet", what: "packet sockets" };
    let why = "the stack cannot run on the packets of an existing interface";
    match answer {
        Ok(()) => Check::ok(question, "allowed"),
        Err(error) if Refusal::from(&error) == Refusal::Forbidden => Check::limited(
            question,
            format!("refused: {error}"),
            why,
            "sudo plumb …   (inside 'plumb stack lab' they are allowed)",
        ),
        Err(error) => Check::missing(
            question,
            format!("none: {error}"),
            why,
            "nothing can: the kernel is built without CONFIG_PACKET",
        ),
    }
}

fn xdp(answer: io::Result<()>) -> Check {
    let question = Question { id: "stack.xdp", what: "AF_XDP sockets" };
    let why = "the stack cannot take packets before the kernel's own has seen them";
    match answer {
        Ok(()) => Check::ok(question, "allowed"),
        Err(error) if Refusal::from(&error) == Refusal::Forbidden => Check::limited(
            question,
            format!("refused: {error}"),
            why,
            "sudo plumb …   (a user namespace is not enough: their program is the kernel's)",
        ),
        Err(error) => Check::missing(
            question,
            format!("none: {error}"),
            why,
            "nothing can: the kernel is built without CONFIG_XDP_SOCKETS, or is older than 4.18",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;
    use std::io::ErrorKind::{NotFound, PermissionDenied};

    #[test]
    fn a_bed_needs_root_or_a_user_namespace_and_says_which_switch_forbids_it() {
        let path = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";
        let fixture = Fixture::new().file(path, "1\n");
        let refused = || Err(PermissionDenied.into());
        assert_eq!(bed(&fixture.tree(), true, refused()).status, Status::Ok);
        assert_eq!(bed(&fixture.tree(), false, Ok(())).status, Status::Ok);
        let check = bed(&fixture.tree(), false, refused());
        assert_eq!(check.status, Status::Missing);
        assert!(check.fix.contains("apparmor_restrict_unprivileged_userns=0"), "{}", check.fix);
    }

    #[test]
    fn what_is_forbidden_and_what_is_not_there_have_different_remedies() {
        assert!(tun(Err(PermissionDenied.into())).fix.contains("chmod"));
        assert!(tun(Err(NotFound.into())).fix.contains("modprobe tun"));
        for check in [packet as fn(io::Result<()>) -> Check, xdp] {
            assert_eq!(check(Ok(())).status, Status::Ok);
            assert!(check(Err(PermissionDenied.into())).fix.starts_with("sudo"));
            assert!(check(Err(io::ErrorKind::Unsupported.into())).fix.starts_with("nothing can"));
        }
    }
}
