//! Links of a user other than root: in user namespaces, with a /dev/net/tun that everybody may open.
//!
//! Needs root to become that user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::test_home::LinkTestHome;
use crate::home::{Arguments, NOBODY, as_nobody, installed, is_root, public_copy, text};
use crate::support::skip;

/// A place of that user's own, with the program in it.
struct UnprivilegedUser {
    directory: TempDir,
}

impl UnprivilegedUser {
    /// `None`, said so, where there is no such user or may be no links of it.
    fn new() -> Option<Self> {
        LinkTestHome::new()?;
        if !is_root() {
            skip("only root can become somebody else");
            return None;
        }
        if !installed("setpriv") || !installed("unshare") {
            return None;
        }
        let nobody = Self { directory: public_copy() };
        for place in [nobody.directory.path().to_owned(), nobody.runtime()] {
            fs::create_dir_all(&place).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let (code, said) = nobody.link("--isolated -- true");
        if said.contains("may not make a network namespace") {
            skip("no user namespaces here");
            return None;
        }
        assert_eq!(code, Some(0), "{said}");
        Some(nobody)
    }

    fn runtime(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// `plumb` as that user, with a /dev/net/tun of this mode.
    fn command(&self, tun_mode: &str) -> Command {
        let mut command = as_nobody(&self.directory.path().join("plumb"), tun_mode);
        command.env("XDG_RUNTIME_DIR", self.runtime()).env("HOME", self.directory.path());
        command.current_dir(self.directory.path());
        command
    }

    /// Runs it; code, and everything that was said.
    fn link(&self, arguments: &(impl Arguments + ?Sized)) -> (Option<i32>, String) {
        let output = self.command("666").arg("link").args(arguments.list()).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    /// Expects success; standard output and error.
    fn said(&self, arguments: &(impl Arguments + ?Sized)) -> String {
        let (code, said) = self.link(arguments);
        assert_eq!(code, Some(0), "{:?}: {said}", arguments.list());
        said
    }
}

#[test]
fn without_root_a_command_has_its_link_and_its_files() {
    let Some(nobody) = UnprivilegedUser::new() else { return };
    if !installed("ping") {
        return;
    }
    let script =
        "ping -q -c 1 -W 30 10.77.0.2 && ping -q -c 1 -W 30 127.0.0.1 && ping -q -c 1 -W 30 ::1
        cat /etc/resolv.conf; touch made; id -u";
    let words = ["--delay", "20ms", "--report", "report.json", "--pcap", "seen.pcapng", "--"];
    let said = nobody.said(&[&words[..], &["sh", "-c", script]].concat());
    assert_eq!(said.matches(" 0% packet loss").count(), 3, "{said}");
    assert!(said.contains("nameserver 10.77.0.2"), "{said}");
    for name in ["made", "report.json", "seen.pcapng"] {
        let found = fs::metadata(nobody.directory.path().join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{name}");
    }
    for place in ["plumb", "plumb/link"] {
        let found = fs::metadata(nobody.runtime().join(place)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (NOBODY, 0o700), "{place}");
    }
}

#[test]
fn without_root_a_host_in_a_namespace_is_said_to_need_it() {
    let Some(nobody) = UnprivilegedUser::new() else { return };
    let output = nobody.command("666").args(["net", "netns:b"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("only root may enter 'netns:b'") && said.contains("sudo"), "{said}");
}

#[test]
fn without_root_a_lab_works_from_up_to_down() {
    let Some(nobody) = UnprivilegedUser::new() else { return };
    if !installed("ping") {
        return;
    }
    nobody.said("up lab --hosts a,b --rate 10mbit --delay 2ms");
    let said = nobody.said("exec lab a -- ping -q -c 1 -W 5 b");
    assert!(said.contains("1 received"), "{said}");
    nobody.said("set lab --delay 30ms");
    assert!(nobody.said("show lab").contains("delay=30ms"));
    assert!(nobody.said("list").contains("lab  rate=10mbit"));
    // Root is another user: it has a directory of its own, and does not find it.
    let bench = LinkTestHome::new().unwrap();
    assert_eq!(bench.exit_and_stderr("down lab").0, Some(2));
    nobody.said("down lab");
    assert!(nobody.said("clean").contains("0 names"));
    let names = fs::read_dir(nobody.runtime().join("plumb/link")).unwrap();
    assert_eq!(names.count(), 0);
}

#[test]
fn a_tun_device_that_is_roots_alone_is_named_with_its_fix() {
    let Some(nobody) = UnprivilegedUser::new() else { return };
    let output = nobody.command("600").args(["link", "--isolated", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("/dev/net/tun"), "{said}");
}
