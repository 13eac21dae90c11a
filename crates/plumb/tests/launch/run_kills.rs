//! Two hundred SIGKILLs at random moments, of four runs beside each other: the store always opens whole, the run resumes to the
//! same cells, and no process, queue or file is left.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_store::record::{Cell, CellStatus, RunData, RunStatus};
use plumb_store::sqlite::{Store, StoreMode};
use rand::{Rng, RngExt as _};

use super::support::{PLUMB, signal};
use super::{alone, wait_for_the_end};

/// Runs at a time, each killed and resumed, and then another, until it was killed so often.
const RUNS: usize = 4;
const KILLS_EACH: u32 = 50;

/// The longest time to let the first run live: a little more than the plan takes undisturbed.
const LIFE_MAX_MS: u64 = 400;

/// Sixteen cells in four groups over mechanisms that leave names behind if anything does.
const PLAN: &str = r#"
title = "killed"
seed = "7"
[limits]
launches_min = 2
launches_max = 2
passes = 1
block = "2ms"
samples_max = 2000
precision = 0.02
[[experiment]]
id = "latency.local"
[experiment.factors]
mechanism = ["unix-dgram", "fifo", "mq-sysv", "udp4"]
placement = ["same-cpu"]
size = [4, 64, "1Ki", "4Ki"]
wake = ["block"]
"#;

fn plumb(store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PLUMB);
    command.arg("--store").arg(store).arg("--quiet").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Kills a run after a while, unless it ends by itself first; whether it had to be killed.
fn kill_after(mut child: Child, life: Duration) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let pid = child.id();
    let killer = std::thread::spawn(move || {
        let undisturbed = told.recv_timeout(life).is_ok();
        if !undisturbed {
            signal(pid, "KILL");
        }
        !undisturbed
    });
    let status = child.wait().unwrap();
    tell.send(()).ok();
    killer.join().unwrap() && !status.success()
}

fn load(store: &Path) -> Option<RunData> {
    if !store.exists() {
        return None;
    }
    let store = match Store::open(store, StoreMode::Read) {
        Ok(store) => store,
        // Killed before its schema was there: nothing to lose yet.
        Err(plumb_store::sqlite::StoreError::Empty { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
    let id = store.runs().unwrap().first().map(|listing| listing.run.id.clone())?;
    Some(store.load(&id).unwrap())
}

fn keys(data: &RunData) -> Vec<String> {
    data.cells.iter().map(Cell::key).collect()
}

#[test]
fn two_hundred_kills_lose_no_stored_block() {
    let _alone = alone();
    let seed = Seed(2014);
    println!("seed {}", seed.0);
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let killed = |run: usize| {
        let directory = directory.path().join(run.to_string());
        std::fs::create_dir(&directory).unwrap();
        kill_and_resume(&directory, &plan, &mut seed.stream(&format!("lives {run}")))
    };
    let expected = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..RUNS).map(|run| scope.spawn(move || killed(run))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(expected.iter().all(|cells| *cells == expected[0] && !cells.is_empty()));
    wait_for_the_end();
    plumb_harness::mechanisms::sweep_leftovers();
    let queues = std::fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
    assert!(!queues.lines().skip(1).any(is_ours), "{queues}");
}

/// Kills one run after the other and resumes it until it is complete; the cells, which all of them have.
fn kill_and_resume(directory: &Path, plan: &Path, lives: &mut impl Rng) -> Vec<String> {
    let mut life_max_ms = LIFE_MAX_MS;
    let mut kills = 0;
    let mut completed = 0;
    let mut expected = None;
    while kills < KILLS_EACH {
        let store = directory.join(format!("{completed}.db"));
        let mut blocks_before = 0;
        loop {
            let before = load(&store);
            let child = match &before {
                None => plumb(&store, &["run", plan.to_str().unwrap()]).spawn().unwrap(),
                Some(data) => plumb(&store, &["run", "--resume", &data.run.id]).spawn().unwrap(),
            };
            let life = Duration::from_millis(lives.random_range(0..life_max_ms));
            let killed = kill_after(child, life);
            kills += u32::from(killed);
            // However slow the machine is at this moment: two in three are killed, and a run ends.
            life_max_ms = if killed { life_max_ms * 9 / 8 } else { life_max_ms * 3 / 4 }.max(50);
            let Some(data) = load(&store) else { continue };
            assert!(data.blocks.len() >= blocks_before, "a stored block was lost");
            blocks_before = data.blocks.len();
            let cells = keys(&data);
            assert_eq!(*expected.get_or_insert_with(|| cells.clone()), cells);
            if data.run.status == RunStatus::Complete {
                assert_complete(&data);
                completed += 1;
                break;
            }
        }
    }
    expected.unwrap()
}

/// Every cell is done, and none has fewer launches than the plan asks for.
fn assert_complete(data: &RunData) {
    for cell in &data.cells {
        match &cell.status {
            CellStatus::Done(_) => {
                let mut launches: Vec<i64> = data
                    .blocks
                    .iter()
                    .filter(|block| block.cell == cell.id)
                    .map(|block| block.launch)
                    .collect();
                launches.sort_unstable();
                launches.dedup();
                assert!(launches.len() >= 2, "{} has {}", cell.key(), launches.len());
            }
            CellStatus::Unavailable(_) => {}
            other => panic!("{}: {other:?}", cell.key()),
        }
    }
}

/// System V queues under plumb's keys.
fn is_ours(line: &str) -> bool {
    let key = line.split_whitespace().next().and_then(|key| key.parse::<i64>().ok());
    key.is_some_and(|key| key >> 16 == 0x504C)
}
