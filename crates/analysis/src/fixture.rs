//! Synthetic runs whose truth is known, for tests.
#![expect(clippy::unwrap_used, reason = "only tests call it")]

use std::collections::BTreeMap;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::stats::simulation::normal;
use plumb_base::time::Span;
use plumb_result::CpuUsage;
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock,
};

/// How cells are measured.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticDesign {
    /// Launches of each cell.
    pub rounds: u32,
    /// Samples of a launch.
    pub samples: usize,
    /// Relative standard deviation of samples within a launch.
    pub spread: f64,
    /// Relative standard deviation of launches.
    pub launch_sd: f64,
}

impl Default for SyntheticDesign {
    fn default() -> Self {
        Self { rounds: 10, samples: 400, spread: 0.05, launch_sd: 0.005 }
    }
}

/// A run being made up.
#[derive(Debug)]
pub struct SyntheticRun {
    /// Its records.
    pub data: RunData,
    /// How the next cells are measured.
    pub design: SyntheticDesign,
    stream: RandomStream,
}

impl SyntheticRun {
    /// A run without cells.
    pub fn new(seed: u64) -> Self {
        let run = RunRecord {
            id: format!("synthetic-{seed}"),
            title: "synthetic".to_owned(),
            created_unix_ms: 1_795_000_000_000,
            status: RunStatus::Complete,
            plan_toml: String::new(),
            seed,
            code_version: "0.1.0".to_owned(),
            provenance: BTreeMap::from([("cpu.model".to_owned(), "synthetic".to_owned())]),
            notes: BTreeMap::new(),
        };
        Self {
            data: RunData { run, cells: vec![], launches: vec![], blocks: vec![] },
            design: SyntheticDesign::default(),
            stream: Seed(seed).stream("synthetic"),
        }
    }

    /// Adds a cell without blocks.
    pub fn cell(&mut self, experiment: &str, response: &str, factors: Factors) -> &mut Cell {
        let (unit, better) = match response {
            "throughput" | "throughput.acked" | "goodput" | "sender-cpu" | "receiver-cpu"
            | "useful" => ("B/s", Better::Higher),
            "packets" | "rate" => ("count", Better::Higher),
            "delivered" | "connected" | "filled" | "served" | "used" => ("share", Better::Higher),
            "pieces" => ("count", Better::Lower),
            "payload" => ("B", Better::Higher),
            "display-file" | "bitmap" => ("B", Better::Lower),
            "in-stack" | "lost" | "duplicated" | "reordered" | "corrupted" | "retransmitted"
            | "busy" => ("share", Better::Lower),
            _ => ("ns", Better::Lower),
        };
        let id = i64::try_from(self.data.cells.len()).unwrap() + 1;
        self.data.cells.push(Cell {
            id,
            experiment: experiment.to_owned(),
            factors,
            response: response.to_owned(),
            unit: unit.to_owned(),
            better,
            status: CellStatus::Done("precise".to_owned()),
            imported: None,
        });
        self.data.cells.last_mut().unwrap()
    }

    /// Adds a cell of this median, with a launch in every round.
    pub fn measure(&mut self, experiment: &str, response: &str, factors: Factors, median: f64) {
        let cell = self.cell(experiment, response, factors).id;
        for round in 0..self.design.rounds {
            let shift = 1.0 + self.design.launch_sd * normal(&mut self.stream);
            let samples = (0..self.design.samples)
                .map(|_| median * shift * (1.0 + self.design.spread * normal(&mut self.stream)))
                .collect();
            self.block(cell, round, samples);
        }
    }

    /// Adds a cell all of whose samples are the same.
    pub fn constant(&mut self, experiment: &str, response: &str, factors: Factors, value: f64) {
        let cell = self.cell(experiment, response, factors).id;
        for round in 0..self.design.rounds {
            self.block(cell, round, vec![value; self.design.samples]);
        }
    }

    /// Adds a launch with one block of these samples.
    pub fn block(&mut self, cell: i64, round: u32, samples: Vec<f64>) -> &mut SampleBlock {
        let id = i64::try_from(self.data.launches.len()).unwrap() + 1;
        let group = format!("cell {cell}");
        self.data.launches.push(LaunchRecord { id, round, group, started_ns: id * 1_000_000 });
        let n = samples.len() as u64;
        let side = |cpu_ns: u64| CpuUsage {
            process_ns: cpu_ns * n,
            thread_ns: cpu_ns * n,
            user_ns: cpu_ns * n / 4,
            system_ns: cpu_ns * n * 3 / 4,
            ..CpuUsage::default()
        };
        let mean = samples.iter().sum::<f64>() / n.max(1) as f64;
        let wall = Span::from_secs_f64(2.0 * mean * 1e-9).as_ns();
        self.data.blocks.push(SampleBlock {
            cell,
            launch: id,
            pass: 0,
            batch: 1,
            n,
            warmup: 10,
            samples,
            histogram: Vec::new(),
            histogram_scale: 0.001,
            n_eff: None,
            effort: BlockUsage {
                local: side(wall / 4),
                peer: side(wall / 5),
                canary_ns: 600_000.0,
                wall_ns: wall * n,
                operations: n,
                ..BlockUsage::default()
            },
            counters: BTreeMap::from([("short_reads".to_owned(), 1)]),
            flags: Vec::new(),
        });
        self.data.blocks.last_mut().unwrap()
    }
}

/// The factors of a local mechanism.
pub fn local(mechanism: &str, placement: &str, size: u64) -> Factors {
    Factors::default()
        .with("mechanism", mechanism)
        .with("placement", placement)
        .with("wake", "block")
        .with("size", size)
}
