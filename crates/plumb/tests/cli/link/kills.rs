//! SIGKILLs at random moments, to the link or the lab, to the command, or to both: nothing remains but a
//! name at most, and that until the next link.
//!
//! In a user namespace of its own, where the kernel counts network namespaces, those included that
//! nobody can see any more. Forty in the ordinary run; as many as `PLUMB_LINK_KILLS` says where it is set.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use plumb_base::seed::Seed;
use rand::RngExt as _;

use super::test_home::LinkTestHome;
use crate::home::{installed, is_alive, text};
use crate::support::{skip, wait_for};

/// Says to this program that it is the one in a user namespace of its own.
const ROLE: &str = "PLUMB_TEST_KILLS";
/// How many network namespaces the users of a user namespace may have, which is asked at each new one.
const LIMIT: &str = "/proc/sys/user/max_net_namespaces";

/// Kills in the ordinary run.
const KILLS: u32 = 40;
/// The longest time to let a link live: a little more than it takes to be there.
const LIFE_MAX_MS: u64 = 500;

/// What a link can leave: processes, by their mark in the environment; mounts; devices.
#[derive(Debug, PartialEq, Eq)]
struct LinkLeftovers {
    processes: Vec<u32>,
    devices: BTreeSet<String>,
    mounts: String,
}

/// Every process that carries the mark of this test in its environment.
fn processes(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_marked = |process: &u32| {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(mark)
    };
    numbers.filter(is_marked).collect()
}

/// Whether a process is a lab's keeper, with which all of it ends.
fn is_keeper(process: u32) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    line.contains("--keeper=") && !line.contains("--inside=")
}

fn kill(processes: &[u32]) {
    let numbers = processes.iter().map(u32::to_string);
    Command::new("kill").arg("-KILL").args(numbers).stderr(Stdio::null()).status().unwrap();
}

/// Waits until there are no network namespaces of this user namespace any more: there is room for one, and
/// who finds none makes none.
fn expect_no_namespaces() {
    let limit = std::fs::read_to_string(LIMIT).unwrap();
    std::fs::write(LIMIT, "1").unwrap();
    let make = || {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "true"]).stderr(Stdio::null()).status().unwrap().success()
    };
    // The kernel takes its time to let one go.
    wait_for("every network namespace to be gone", make);
    std::fs::write(LIMIT, limit).unwrap();
}

fn leftovers(mark: &str) -> LinkLeftovers {
    let processes = processes(mark);
    let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let devices = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("plumb"))
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    LinkLeftovers { processes, devices, mounts }
}

#[test]
fn whatever_is_killed_a_clean_leaves_nothing() {
    if !installed("unshare") {
        return;
    }
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "link::kills::kill_loop_in_user_namespace", "--nocapture"])
        .env(ROLE, "kills")
        .output()
        .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("unshare failed") {
        skip("user namespaces are not allowed here");
        return;
    }
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Does nothing when it runs as one of the tests.
#[test]
fn kill_loop_in_user_namespace() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let Some(bench) = LinkTestHome::new() else { return };
    expect_no_namespaces();
    let kills = std::env::var("PLUMB_LINK_KILLS").ok().and_then(|text| text.parse().ok());
    let kills: u32 = kills.unwrap_or(KILLS);
    let seed = Seed(4_711);
    println!("seed {}, {kills} kills", seed.0);
    let mut dice = seed.stream("kills");
    let mark = format!("PLUMB_KILLED_BY={}", std::process::id());
    let (key, value) = mark.split_once('=').unwrap();
    let before = leftovers(&mark);
    let mut seen = BTreeSet::new();
    for number in 0..kills {
        let lab = format!("lab{number}");
        let script = "sleep 1000 & setsid sleep 1000 & sleep 1000";
        let is_lab = dice.random_range(0..4) == 0;
        let words: &[&str] = if is_lab {
            &["up", &lab, "--hosts", "a,b,c", "--delay", "1ms"]
        } else {
            &["--delay", "1ms", "--", "sh", "-c", script]
        };
        let mut link = bench
            .link(words)
            .env(key, value)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let life = Duration::from_millis(dice.random_range(0..LIFE_MAX_MS));
        #[expect(clippy::disallowed_methods, reason = "the moment is what is tried")]
        std::thread::sleep(life);
        let victims: Vec<u32> = match dice.random_range(0..3) {
            0 => vec![link.id()],
            // Any of those that are there now: keeper, helper, root, command.
            1 => {
                let all = processes(&mark);
                let some = dice.random_range(0..all.len().max(1));
                all.get(some).copied().into_iter().collect()
            }
            _ => processes(&mark),
        };
        seen.extend(processes(&mark));
        kill(&victims);
        // A helper or a sleeper alone is not the link: end that too.
        kill(&[link.id()]);
        link.wait().unwrap();
        wait_for(&format!("everything of kill {number} to end"), || {
            let now = processes(&mark);
            // A lab outlives the command that made it.
            kill(&now.iter().copied().filter(|&one| is_keeper(one)).collect::<Vec<u32>>());
            seen.extend(now);
            seen.retain(|&process| is_alive(process));
            seen.is_empty()
        });
        if number % 10 == 9 {
            bench.stdout_of("clean");
            assert_eq!(bench.names(), Vec::<String>::new());
        }
    }
    bench.stdout_of("clean");
    assert_eq!(bench.names(), Vec::<String>::new());
    assert_eq!(leftovers(&mark), before);
    expect_no_namespaces();
}
