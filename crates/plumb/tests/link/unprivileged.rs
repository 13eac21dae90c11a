//! Links of a user who is not root: in user namespaces, with a /dev/net/tun that everybody may open.
//!
//! Needs root to become somebody else. Left out: what does not depend on who one is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::bench::{Bench, PLUMB, installed, skip, text};

/// The user and the group: nobody's.
const NOBODY: u32 = 65_534;

/// A place of that user's own, with the program in it: the way to where it was built may be closed to others.
struct Nobody {
    directory: TempDir,
}

impl Nobody {
    /// `None`, said so, where there is no such user or may be no links of it.
    fn new() -> Option<Self> {
        Bench::new()?;
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            skip("only root can become somebody else");
            return None;
        }
        if !installed("setpriv") || !installed("unshare") {
            return None;
        }
        let nobody = Self { directory: tempfile::tempdir().unwrap() };
        for place in [nobody.directory.path().to_owned(), nobody.runtime()] {
            fs::create_dir_all(&place).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::copy(PLUMB, nobody.program()).unwrap();
        fs::set_permissions(nobody.program(), fs::Permissions::from_mode(0o755)).unwrap();
        let (code, said) = nobody.link(&["--isolated", "--", "true"]);
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

    fn program(&self) -> PathBuf {
        self.directory.path().join("plumb")
    }

    /// Runs it; code, and everything that was said.
    fn link(&self, words: &[&str]) -> (Option<i32>, String) {
        // Seen by this command alone: the machine's own device may be root's.
        let script =
            "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";
        let nobody = NOBODY.to_string();
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh", "setpriv"])
            .args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"])
            .arg(self.program())
            .arg("link")
            .args(words)
            .env("XDG_RUNTIME_DIR", self.runtime())
            .env("HOME", self.directory.path())
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn said(&self, words: &[&str]) -> String {
        let (code, said) = self.link(words);
        assert_eq!(code, Some(0), "{words:?}: {said}");
        said
    }
}

#[test]
fn without_root_a_command_has_its_link_its_loopback_and_its_names_and_its_files_are_its_users() {
    let Some(nobody) = Nobody::new() else { return };
    if !installed("ping") {
        return;
    }
    let script =
        "ping -q -c 2 -i 0.3 -W 5 10.77.0.2 && ping -q -c 1 -W 5 127.0.0.1 && ping -q -c 1 -W 5 ::1
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
fn without_root_a_lab_is_made_entered_changed_shown_and_taken_down() {
    let Some(nobody) = Nobody::new() else { return };
    if !installed("ping") {
        return;
    }
    nobody.said(&["up", "lab", "--hosts", "a,b", "--rate", "10mbit", "--delay", "2ms"]);
    let said = nobody.said(&["exec", "lab", "a", "--", "ping", "-q", "-c", "1", "-W", "5", "b"]);
    assert!(said.contains("1 received"), "{said}");
    nobody.said(&["set", "lab", "--delay", "30ms"]);
    assert!(nobody.said(&["show", "lab"]).contains("delay=30ms"));
    assert!(nobody.said(&["list"]).contains("lab  rate=10mbit"));
    // Root is another user: it has a directory of its own, and does not find it.
    let bench = Bench::new().unwrap();
    assert_eq!(bench.failed(&["down", "lab"]).0, Some(2));
    nobody.said(&["down", "lab"]);
    assert!(nobody.said(&["clean"]).contains("0 names"));
    let names = fs::read_dir(nobody.runtime().join("plumb/link")).unwrap();
    assert_eq!(names.count(), 0);
}

#[test]
fn a_tun_device_that_is_roots_alone_is_named_with_its_fix() {
    let Some(nobody) = Nobody::new() else { return };
    let script =
        "mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200 && exec \"$@\"";
    let id = NOBODY.to_string();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", "setpriv", "--reuid", &id, "--regid", &id])
        .arg("--clear-groups")
        .arg(nobody.program())
        .args(["link", "--isolated", "--", "true"])
        .env("XDG_RUNTIME_DIR", nobody.runtime())
        .current_dir("/")
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("/dev/net/tun may not be opened"), "{said}");
}
