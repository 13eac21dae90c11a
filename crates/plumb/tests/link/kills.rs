//! SIGKILLs at random moments, to the link, to the command, or to both: nothing remains but a name at
//! most, and that until the next link.
//!
//! Forty in the ordinary run; as many as `PLUMB_LINK_KILLS` says where it is set.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use plumb_base::seed::Seed;
use rand::RngExt as _;

use crate::bench::{Bench, wait_for};

/// Kills in the ordinary run.
const KILLS: u32 = 40;
/// The longest time to let a link live: a little more than it takes to be there.
const LIFE_MAX_MS: u64 = 500;

/// What a link can leave: processes, by their mark in the environment; mounts; devices; sockets.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    processes: Vec<u32>,
    namespaces: BTreeSet<String>,
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

/// Whether a process has anything left: its environment goes before its sockets, and those before it is
/// a zombie.
fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

fn network(process: u32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

fn left(mark: &str) -> Left {
    let processes = processes(mark);
    let namespaces = processes.iter().filter_map(|&process| network(process)).collect();
    let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let devices = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("plumb"))
        .collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    Left { processes, namespaces, devices, mounts }
}

#[test]
fn whoever_is_killed_whenever_nothing_is_left_after_the_next_clean() {
    let Some(bench) = Bench::new() else { return };
    let kills = std::env::var("PLUMB_LINK_KILLS").ok().and_then(|text| text.parse().ok());
    let kills: u32 = kills.unwrap_or(KILLS);
    let seed = Seed(4_711);
    println!("seed {}, {kills} kills", seed.0);
    let mut dice = seed.stream("kills");
    let mark = format!("PLUMB_KILLED_BY={}", std::process::id());
    let (key, value) = mark.split_once('=').unwrap();
    let before = left(&mark);
    let mut seen = BTreeSet::new();
    for number in 0..kills {
        let script = "sleep 1000 & setsid sleep 1000 & sleep 1000";
        let mut link = bench
            .link(&["--delay", "1ms", "--", "sh", "-c", script])
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
        let numbers = victims.iter().map(u32::to_string);
        Command::new("kill").arg("-KILL").args(numbers).stderr(Stdio::null()).status().unwrap();
        // A helper or a sleeper alone is not the link: end that too.
        Command::new("kill").args(["-KILL", &link.id().to_string()]).status().unwrap();
        link.wait().unwrap();
        wait_for(&format!("everything of kill {number} to end"), || {
            seen.extend(processes(&mark));
            seen.retain(|&process| lives(process));
            seen.is_empty()
        });
        if number % 10 == 9 {
            bench.said(&["clean"]);
            assert_eq!(bench.names(), Vec::<String>::new());
        }
    }
    bench.said(&["clean"]);
    assert_eq!(bench.names(), Vec::<String>::new());
    assert_eq!(left(&mark), before);
}
