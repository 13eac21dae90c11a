//! A process that writes blocks is killed at random moments; nothing but the block in flight may
//! be lost.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use plumb_base::seed::Seed;
use plumb_store::lock::{self, MeasureLock};
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock,
};
use plumb_store::sqlite::{Store, StoreError, StoreMode};

const RUN: &str = "crash-20261121-0001";

/// Tells the child where to write; its absence makes the child's test pass at once.
const STORE: &str = "PLUMB_TEST_CRASH_STORE";

const KILLS: u32 = 30;

/// The block that belongs to a launch and pass, so that a reader can tell whether it is whole.
fn block(launch: i64, pass: u32) -> SampleBlock {
    let seed = Seed(7).derive(&format!("{launch} {pass}"));
    let samples: Vec<f64> =
        (0..400 + pass % 300).map(|i| (seed.derive(&i.to_string()).0 >> 40) as f64 / 3.0).collect();
    SampleBlock {
        cell: 1,
        launch,
        pass,
        batch: 1,
        n: samples.len() as u64,
        warmup: 0,
        histogram: seed.0.to_le_bytes().repeat(100),
        histogram_scale: 0.001,
        n_eff: None,
        samples,
        effort: BlockUsage { operations: u64::from(pass), ..BlockUsage::default() },
        counters: BTreeMap::new(),
        flags: Vec::new(),
    }
}

fn begin(store: &mut Store) -> Result<(), StoreError> {
    let run = RunRecord {
        id: RUN.to_owned(),
        title: "crash".to_owned(),
        created_unix_ms: 0,
        status: RunStatus::Running,
        plan_toml: String::new(),
        seed: 7,
        code_version: String::new(),
        provenance: BTreeMap::new(),
        notes: BTreeMap::new(),
    };
    let (launches, blocks) = (Vec::new(), Vec::new());
    store.insert(&RunData { run, cells: vec![cell()], launches, blocks })
}

fn cell() -> Cell {
    Cell {
        id: 1,
        experiment: "latency.local".to_owned(),
        factors: Factors::default().with("mechanism", "pipe"),
        response: "latency".to_owned(),
        unit: "ns".to_owned(),
        better: Better::Lower,
        status: CellStatus::Open,
        imported: None,
    }
}

/// Not a test by itself: the process that the test below starts and kills.
#[test]
fn the_writer_that_is_killed() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let path = Path::new(&path);
    let _lock = MeasureLock::acquire(path, std::process::id(), RUN).unwrap();
    let mut store = Store::open(path, StoreMode::Write).unwrap();
    if store.header(RUN).unwrap().is_none() {
        begin(&mut store).unwrap();
    }
    let stored = store.load(RUN).unwrap();
    let id = stored.launches.last().map_or(1, |launch| launch.id + 1);
    let launch = LaunchRecord { id, round: 1, group: "pipe".to_owned(), started_ns: 0 };
    store.add_launch(RUN, &launch).unwrap();
    for pass in 0..20_000 {
        store.add_block(RUN, &block(id, pass)).unwrap();
        // Ends this process when its parent is gone.
        writeln!(io::stdout(), "stored {id} {pass}").unwrap();
    }
}

/// Starts the writer, kills it at a moment drawn from `seed`, and returns the blocks that it said
/// were stored.
fn write_and_kill(path: &Path, seed: Seed) -> io::Result<Vec<(i64, u32)>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["the_writer_that_is_killed", "--exact", "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let mut stored = Vec::new();
    // One in four is killed while it opens the store or makes it.
    let wanted = match seed.0 % 4 {
        0 => 0,
        _ => (seed.0 >> 8) % 60,
    };
    while (stored.len() as u64) < wanted {
        let Some(line) = lines.next() else { break };
        stored.extend(acknowledged(&line?));
    }
    for _ in 0..(seed.0 >> 20) % 200_000 {
        std::hint::spin_loop();
    }
    child.kill()?;
    child.wait()?;
    // A line cut short by the kill reads as an earlier block, which must be there too.
    stored.extend(lines.map_while(Result::ok).filter_map(|line| acknowledged(&line)));
    Ok(stored)
}

/// The launch and pass in a whole line of the writer.
fn acknowledged(line: &str) -> Option<(i64, u32)> {
    // The test runner's own words may stand before it on the same line.
    let mut words = line.split_once("stored ")?.1.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn assert_whole(data: &RunData) {
    for stored in &data.blocks {
        assert_eq!(*stored, block(stored.launch, stored.pass));
    }
    for launch in &data.launches {
        let passes: Vec<u32> =
            data.blocks.iter().filter(|b| b.launch == launch.id).map(|b| b.pass).collect();
        let expected: Vec<u32> = (0..).take(passes.len()).collect();
        assert_eq!(passes, expected, "launch {} has a hole", launch.id);
    }
}

#[test]
fn a_kill_at_any_moment_loses_at_most_the_block_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plumb.db");
    let mut acknowledged: Vec<(i64, u32)> = Vec::new();
    for kill in 0..KILLS {
        let seed = Seed(2026).derive(&format!("kill {kill}"));
        acknowledged.extend(write_and_kill(&path, seed).unwrap());
        assert_eq!(lock::current_holder(&path), None, "the lock outlived its holder");
        let store = match Store::open(&path, StoreMode::Read) {
            Ok(store) => store,
            // Killed before there was anything.
            Err(StoreError::Missing { .. } | StoreError::Empty { .. }) => continue,
            Err(error) => panic!("after kill {kill}: {error}"),
        };
        assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new(), "after kill {kill}");
        let Ok(data) = store.load(RUN) else {
            assert!(acknowledged.is_empty(), "the run is gone");
            continue;
        };
        assert_whole(&data);
        for (launch, pass) in &acknowledged {
            let kept = data.blocks.iter().any(|b| (b.launch, b.pass) == (*launch, *pass));
            assert!(kept, "block {pass} of launch {launch} was acknowledged and lost");
        }
        // One block in flight for each writer so far, no more.
        assert!(data.blocks.len() <= acknowledged.len() + data.launches.len());
    }
    assert!(acknowledged.len() > 300, "only {} blocks were written", acknowledged.len());

    let mut store = Store::open(&path, StoreMode::Write).unwrap();
    let status = |store: &Store| store.header(RUN).unwrap().map(|run| run.status);
    assert_eq!(status(&store), Some(RunStatus::Running));
    store.update_run(RUN, RunStatus::Complete, &BTreeMap::new()).unwrap();
    assert_eq!(status(&store), Some(RunStatus::Complete));
}
