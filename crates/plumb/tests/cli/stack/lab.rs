//! The test bed as a user gets it: both sides answer, with and without root, and nothing is left
//! whoever is killed.
//!
//! Says `skipped:` where namespaces are not allowed, and fails for that under CI=true.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::home::{Arguments, TestHome, as_nobody, devices, installed, is_root, public_copy, text};
use crate::support::{PLUMB, signal, skip, wait_for, with_descendants};

fn lab(arguments: &(impl Arguments + ?Sized)) -> Command {
    let mut command = Command::new(PLUMB);
    command.args(["stack", "lab"]).args(arguments.list()).stdin(Stdio::null());
    command
}

/// Whether a bed can be made at all; says so where not.
fn allowed() -> bool {
    let output = lab("-- true").output().unwrap();
    let said = text(&output.stderr);
    if !output.status.success() && said.contains("may not make a network namespace") {
        skip("no network namespaces here");
        return false;
    }
    assert!(output.status.success(), "{said}");
    true
}

#[test]
fn ping_is_answered_and_the_exit_code_is_the_commands() {
    if !allowed() || !installed("ping") {
        return;
    }
    for address in ["10.77.0.2", "fd77::2"] {
        let Output { status, stdout, .. } =
            lab(&["--", "ping", "-c", "1", "-W", "30", address]).output().unwrap();
        let text = String::from_utf8_lossy(&stdout);
        assert!(status.success() && text.contains("1 received"), "{text}");
    }
    let nobody = lab("--far silent --neighbors -- ping -c1 -W1 10.77.0.2").output().unwrap();
    assert_eq!(nobody.status.code(), Some(1), "a silent far end does not answer");
    assert_eq!(lab(&["--", "sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
    assert_eq!(lab(&["--", "sh", "-c", "kill -9 $$"]).status().unwrap().code(), Some(137));
}

#[test]
fn plumbs_stack_answers_linux_and_its_own_sender() {
    if !allowed() || !installed("ping") {
        return;
    }
    let script = "ping -c 1 -W 30 10.77.0.2 && ping -c 1 -W 30 fd77::2 && \
                  plumb stack send 10.77.0.2:1997 --count 50 --size 60 --timeout 30s";
    let Output { status, stdout, stderr } =
        lab(&["--far", "plumb", "--", "sh", "-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{text}{}", String::from_utf8_lossy(&stderr));
    assert_eq!(text.matches("1 received").count(), 2, "{text}");
}

#[test]
fn frames_without_offloads_are_whole_and_no_checksum_is_left_open() {
    if !allowed() || !installed("tshark") {
        return;
    }
    let script = "nsenter --net=$PLUMB_LAB_FAR tshark -l -n -i plumb1 -a packets:6 \
                  -o udp.check_checksum:TRUE -o tcp.check_checksum:TRUE -f udp \
                  -T fields -e udp.checksum.status -e udp.length 2>$0 & \
                  until grep -q 'Capturing on' $0; do :; done; \
                  while kill -0 $! 2>&-; do echo some words > /dev/udp/10.77.0.2/9; done; wait";
    let directory = tempfile::tempdir().unwrap();
    let notes = directory.path().join("notes");
    std::fs::write(&notes, "").unwrap();
    let words = ["--no-offloads", "--neighbors", "--", "bash", "-c", script];
    let output = lab(&words).arg(&notes).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let notes = std::fs::read_to_string(&notes).unwrap();
    // 1 is Wireshark's word for a good checksum; 8 bytes of header and 11 of text.
    assert!(text.lines().count() >= 6, "{text}\n{notes}");
    assert!(text.lines().all(|line| line == "1\t19"), "{text}\n{notes}");
}

#[test]
fn a_user_who_is_not_root_gets_a_bed_too() {
    if !allowed() {
        return;
    }
    let directory = public_copy();
    let plumb = directory.path().join("plumb");
    let script = "grep -c plumb0 /proc/net/dev; \
                  nsenter --net=$PLUMB_LAB_FAR grep -c plumb1 /proc/net/dev; grep ^Uid: /proc/self/status";
    for far in ["linux", "silent", "tap"] {
        let mut command = nobody(&plumb);
        command.args(["stack", "lab", "--far", far, "--", "sh", "-c", script]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("may not make a network namespace") {
            skip("user namespaces are not allowed here");
            return;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let far_devices = if far == "tap" { "" } else { "1\n" };
        assert!(text.starts_with(&format!("1\n{far_devices}Uid:\t0")), "{far}: {text}{said}");
    }
}

fn nobody(program: &Path) -> Command {
    if is_root() { as_nobody(program, "666") } else { Command::new(program) }
}

/// A bed in which a shell, a process beside it and one that left its session are running.
struct RunningLab {
    keeper: Child,
    /// Every process of it, the keeper first, then the root, then the shell.
    processes: Vec<u32>,
    /// The network namespaces of the bed, held so that their numbers are given to no other meanwhile.
    namespaces: BTreeMap<String, File>,
}

impl RunningLab {
    fn start() -> Self {
        let script = "sleep 1000 & setsid sleep 1000 & echo up; read line; exit 0";
        let mut keeper = lab(&["--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let mut processes = Vec::new();
        wait_for("five processes", || {
            processes = with_descendants(keeper.id());
            processes.len() >= 5
        });
        let open = |process: u32| File::open(format!("/proc/{process}/ns/net")).unwrap();
        let of = |&process: &u32| Some((network(process)?, open(process)));
        let mut namespaces: BTreeMap<String, File> = processes.iter().filter_map(of).collect();
        namespaces.remove(&network(std::process::id()).unwrap());
        assert!(!namespaces.is_empty(), "the bed is in a namespace of its own");
        Self { keeper, processes, namespaces }
    }

    fn assert_gone(mut self) {
        wait_for("every process to end", || {
            self.keeper.try_wait().unwrap().is_some()
                && self.processes[1..].iter().all(|&process| network(process).is_none())
        });
        let all = std::fs::read_dir("/proc").unwrap();
        let numbers = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let is_inside = |&process: &u32| {
            network(process).is_some_and(|name| self.namespaces.contains_key(&name))
        };
        let left: Vec<u32> = numbers.filter(is_inside).collect();
        assert!(left.is_empty(), "still in the bed: {left:?}");
    }
}

/// The network namespace of a process, by name; none once it has ended.
fn network(process: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

#[test]
fn whichever_process_is_killed_nothing_of_the_bed_remains() {
    if !allowed() {
        return;
    }
    let before = devices();
    for victim in 0..3 {
        for name in ["KILL", "TERM"] {
            // The root is a process 1 and hears of no signal but SIGKILL.
            if (victim, name) == (1, "TERM") {
                continue;
            }
            let running = RunningLab::start();
            assert!(signal(running.processes[victim], name));
            running.assert_gone();
            assert_eq!(devices(), before);
        }
    }
}

#[test]
fn a_shell_that_leaves_takes_what_it_started_with_it() {
    if !allowed() {
        return;
    }
    let mut running = RunningLab::start();
    running.keeper.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    running.assert_gone();
}

#[test]
fn invalid_requests_are_rejected() {
    let place = TestHome::new();
    place.assert_errors(&[
        ("stack lab --json", 2, "--json"),
        ("stack lab --mtu 60", 2, "68..=65535"),
    ]);
    if allowed() {
        place.assert_errors(&[("stack lab -- no-such-program", 2, "'no-such-program'")]);
    }
}
