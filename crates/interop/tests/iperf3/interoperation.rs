//! plumb's client with iperf3's server, and iperf3's client with plumb's server, in every mode.

use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::fixture::{RunningIperf3Server, client, run};
use crate::modes::{MODES, assert_sound, in_parts};

fn program() -> String {
    std::env::var("PLUMB_IPERF3").unwrap_or_else(|_| "iperf3".to_owned())
}

/// How many ports were tried.
static PORTS_TRIED: AtomicU32 = AtomicU32::new(0);

/// How many tests each way.
fn runs() -> usize {
    let asked = std::env::var("PLUMB_IPERF3_RUNS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(MODES.len())
}

/// Whether it is installed; says so where not.
fn installed() -> bool {
    let found = Command::new(program()).arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    println!("skipped: {} is not installed", program());
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
    false
}

/// iperf3's server, ended with this.
struct Iperf3Process {
    child: Child,
    port: u16,
}

impl Iperf3Process {
    fn start() -> Self {
        // It closes its port between two tests, so the port is below those that the kernel gives to
        // others, and differs between processes.
        let next = || {
            let tried = PORTS_TRIED.fetch_add(1, Ordering::Relaxed);
            20_000 + u16::try_from((std::process::id() * 16 + tried) % 10_000).unwrap()
        };
        let is_free =
            |port| TcpListener::bind(("::", port)).is_ok() && UdpSocket::bind(("::", port)).is_ok();
        let mut ports = std::iter::repeat_with(next).take(1_000);
        let port = ports.find(|port| is_free(*port)).expect("a port that is free for TCP and UDP");
        let child = Command::new(program())
            .args(["-s", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let theirs = Self { child, port };
        let suffix = format!(":{port:04X}");
        let listens = |table: &str| {
            let text = std::fs::read_to_string(table).unwrap_or_default();
            text.lines().any(|line| {
                let mut words = line.split_whitespace();
                words.nth(1).is_some_and(|local| local.ends_with(&suffix))
                    && words.nth(1) == Some("0A")
            })
        };
        // It does not say that it listens where it could be waited for.
        let mut looks = 0;
        while !listens("/proc/net/tcp6") && !listens("/proc/net/tcp") {
            looks += 1;
            assert!(looks < 100_000, "{} does not listen", program());
            std::thread::yield_now();
        }
        theirs
    }
}

impl Drop for Iperf3Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// As many of the modes in turn as were asked for.
fn asked() -> Vec<&'static str> {
    MODES.iter().copied().cycle().take(runs()).collect()
}

#[test]
fn our_client_tests_with_their_server_in_every_mode() {
    if !installed() {
        return;
    }
    in_parts(&asked(), |modes| {
        let theirs = Iperf3Process::start();
        for words in modes {
            let mut options = client(theirs.port, words);
            options.parameters.version = "3.21".to_owned();
            let test = run(&options).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_sound(words, &test);
        }
    });
}

#[test]
fn their_client_tests_with_our_server_in_every_mode() {
    if installed() {
        in_parts(&asked(), assert_serves_theirs);
    }
}

fn assert_serves_theirs(modes: &[&str]) {
    let served = RunningIperf3Server::alone();
    let port = served.port().to_string();
    for words in modes {
        let host = if words.contains("-6") { "::1" } else { "127.0.0.1" };
        let output = Command::new("timeout")
            .args(["60", &program(), "-J", "-c", host, "-p", &port])
            .args(words.split(' '))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}: {text}"));
        assert!(output.status.success() && report.get("error").is_none(), "{words}: {report}");
        let end = &report["end"];
        let sum = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
        assert!(sum["bytes"].as_u64().unwrap() > 0, "{words}: {end}");
        if words.contains("-u") {
            // A receiver that waits for a CPU loses some; with misread counters nearly all would seem lost.
            let [lost, all] = ["lost_packets", "packets"].map(|name| end["sum"][name].as_i64());
            assert!(lost >= Some(0) && lost < all.map(|all| all / 2), "{words}: {end}");
        }
        if words.contains("--get-server-output") {
            assert!(report["server_output_json"]["end"].is_object(), "{words}");
        }
    }
    for notice in served.end() {
        if let plumb_interop::iperf3::server::Iperf3ServerEvent::Ended(test) = notice {
            assert_eq!(test.error, None, "{:?}", test.parameters);
        }
    }
}
