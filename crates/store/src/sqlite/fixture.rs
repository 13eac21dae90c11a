//! A small run with everything in it, for tests.

use std::collections::BTreeMap;

use plumb_result::CpuUsage;

use super::{Store, StoreMode};
use crate::record::{
    Better, BlockUsage, Cell, CellStatus, FactorLevel, Factors, ImportedSummary, LaunchRecord,
    RunData, RunRecord, RunStatus, SampleBlock,
};

/// An empty store in a directory of its own.
pub(super) fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("plumb.db"), StoreMode::Write).unwrap();
    (directory, store)
}

pub(super) fn run(id: &str, created_unix_ms: i64) -> RunRecord {
    RunRecord {
        id: id.to_owned(),
        title: "ladder".to_owned(),
        created_unix_ms,
        status: RunStatus::Running,
        plan_toml: "[[experiment]]\nid = \"latency.local\"\n".to_owned(),
        seed: u64::MAX - 1,
        code_version: "0.1.0 (abc)".to_owned(),
        provenance: words(&[("cpu.model", "Imaginary 3000"), ("kernel.release", "6.18 \"x\"")]),
        notes: words(&[("clock", "tsc")]),
    }
}

/// A run that has nothing yet.
pub(crate) fn bare(id: &str, created_unix_ms: i64) -> RunData {
    let run = run(id, created_unix_ms);
    RunData { run, cells: Vec::new(), launches: Vec::new(), blocks: Vec::new() }
}

pub(super) fn cell(id: i64, mechanism: &str) -> Cell {
    Cell {
        id,
        experiment: "latency.local".to_owned(),
        factors: Factors::default()
            .with("mechanism", mechanism)
            .with("placement", "same-cpu")
            .with("size", FactorLevel::Int(64)),
        response: "latency".to_owned(),
        unit: "ns".to_owned(),
        better: Better::Lower,
        status: CellStatus::Open,
        imported: None,
    }
}

pub(super) fn launch(id: i64) -> LaunchRecord {
    LaunchRecord {
        id,
        round: 1,
        group: "pipe same-cpu block".to_owned(),
        started_ns: id * 1_000_000,
    }
}

pub(super) fn block(cell: i64, launch: i64, pass: u32) -> SampleBlock {
    let side = CpuUsage { process_ns: 1234, thread_ns: 1200, user_ns: 1, ..CpuUsage::default() };
    SampleBlock {
        cell,
        launch,
        pass,
        batch: 1,
        n: 1000,
        warmup: 17,
        samples: (0..200).map(|i| 2500.5 + f64::from(i % 7)).collect(),
        histogram: vec![0, 255, 3, 4],
        histogram_scale: 0.001,
        n_eff: Some([950.5, 900.0, 0.1 + 0.2, 1.0]),
        effort: BlockUsage {
            local: side,
            peer: side,
            canary_ns: 0.1 + 0.2,
            wall_ns: 5_000_000,
            operations: 1000,
            ..BlockUsage::default()
        },
        counters: BTreeMap::from([("short_reads".to_owned(), 3)]),
        flags: vec!["steal".to_owned()],
    }
}

/// Two cells measured over two launches, one that could not be and one that was imported.
pub(crate) fn run_data(id: &str) -> RunData {
    let unavailable = Cell {
        status: CellStatus::Unavailable("no such queue: ENOSYS".to_owned()),
        ..cell(3, "mq-posix")
    };
    let imported = Cell {
        status: CellStatus::Done("imported".to_owned()),
        imported: Some(ImportedSummary {
            tool: "lmbench 3".to_owned(),
            value: 7942.45,
            statistic: "median".to_owned(),
            n: Some(11),
            min: None,
            max: Some(8000.1),
            percentiles: BTreeMap::from([("p50".to_owned(), 7942.45)]),
        }),
        ..cell(4, "tcp4")
    };
    RunData {
        run: run(id, 1_795_230_985_123),
        cells: vec![cell(1, "pipe"), cell(2, "unix-stream"), unavailable, imported],
        launches: vec![launch(1), launch(2)],
        blocks: vec![
            block(2, 1, 0),
            block(1, 1, 0),
            block(1, 2, 0),
            block(2, 2, 0),
            block(2, 2, 1),
        ],
    }
}

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
