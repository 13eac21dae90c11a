//! A page that was fetched over HTTP as a run of the store: a cell for each way and each time of a visit.
//!
//! All visits of a way are one block of one launch, since they are made in turn with those of the others. Left out:
//! writing it, and fetching (`plumb_interop::http`).

use std::collections::BTreeMap;

use plumb_analysis::document::host_notes;
use plumb_analysis::document::http::{HttpDocument, HttpModeResult, HttpPageLoad};
use plumb_base::units::Unit;
use plumb_store::record::{
    Better, BlockUsage, Cell, CellStatus, Factors, LaunchRecord, RunData, SampleBlock, SideCpu,
};

use super::stored_run::NetRunHeader;

/// Something that is known of every visit, in nanoseconds.
struct PageMetric {
    name: &'static str,
    of: fn(&HttpPageLoad) -> u64,
}

const RESPONSES: &[PageMetric] = &[
    PageMetric { name: "page", of: |visit| visit.total_ns },
    PageMetric { name: "page-ready", of: |visit| visit.connected_ns },
    PageMetric { name: "page-itself", of: |visit| visit.page_ns },
    PageMetric { name: "client-cpu", of: |visit| visit.cpu_ns },
];

/// All of it as a run; `None` when no visit counts.
pub fn run(header: NetRunHeader, document: &HttpDocument) -> Option<RunData> {
    if document.ways.iter().all(|way| way.visits.is_empty()) {
        return None;
    }
    let mut notes = BTreeMap::from([
        ("net.host".to_owned(), document.url.clone()),
        ("net.address".to_owned(), document.address.clone()),
        (host_notes::COMMAND.to_owned(), header.command.clone()),
        ("net.ended".to_owned(), document.ended.clone()),
    ]);
    let failed = |way: &HttpModeResult| Some(format!("{}: {}", way.way, way.error.as_ref()?));
    let problems: Vec<String> = document.ways.iter().filter_map(failed).collect();
    if !problems.is_empty() {
        notes.insert("net.problems".to_owned(), problems.join(" | "));
    }
    let is_cut = document.ended != "complete";
    let (mut cells, mut blocks) = (Vec::new(), Vec::new());
    for way in &document.ways {
        for response in RESPONSES {
            let id = i64::try_from(cells.len()).unwrap_or(i64::MAX - 1) + 1;
            let cell = cell(id, way, response, is_cut);
            if !way.visits.is_empty() {
                blocks.push(block(&cell, way, response));
            }
            cells.push(cell);
        }
    }
    let group = format!("page={}", document.url);
    Some(RunData {
        run: header.into_run(notes, document.seed),
        cells,
        launches: vec![LaunchRecord { id: 1, round: 0, group, started_ns: 0 }],
        blocks,
    })
}

fn cell(id: i64, way: &HttpModeResult, response: &PageMetric, is_cut: bool) -> Cell {
    let status = match &way.error {
        Some(error) if way.visits.is_empty() => CellStatus::Failed(error.clone()),
        Some(_) => CellStatus::Done("partial".to_owned()),
        None if is_cut => CellStatus::Done("partial".to_owned()),
        None => CellStatus::Done("visits".to_owned()),
    };
    Cell {
        id,
        experiment: "net.http".to_owned(),
        factors: Factors::default()
            .with("way", way.way.as_str())
            .with("encryption", if way.is_encrypted { "tls" } else { "none" }),
        response: response.name.to_owned(),
        unit: Unit::Nanoseconds.name().to_owned(),
        better: Better::Lower,
        status,
        imported: None,
    }
}

fn block(cell: &Cell, way: &HttpModeResult, response: &PageMetric) -> SampleBlock {
    let samples: Vec<f64> = way.visits.iter().map(|visit| (response.of)(visit) as f64).collect();
    let sum = |of: fn(&HttpPageLoad) -> u64| way.visits.iter().map(of).fold(0, u64::saturating_add);
    let visits = way.visits.len() as u64;
    let is_partial = cell.status == CellStatus::Done("partial".to_owned());
    SampleBlock {
        cell: cell.id,
        launch: 1,
        pass: 0,
        batch: 1,
        n: visits,
        // The visit that comes before those that count.
        warmup: 1,
        samples,
        histogram: Vec::new(),
        histogram_scale: 1.0,
        effort: BlockUsage {
            local: SideCpu { process_ns: sum(|visit| visit.cpu_ns), ..SideCpu::default() },
            wall_ns: sum(|visit| visit.total_ns),
            operations: visits,
            ..BlockUsage::default()
        },
        counters: BTreeMap::from([
            ("bytes".to_owned(), sum(|visit| visit.bytes)),
            ("connections".to_owned(), sum(|visit| u64::from(visit.connections))),
            ("objects".to_owned(), sum(|visit| u64::from(visit.objects))),
        ]),
        flags: if is_partial { vec!["partial".to_owned()] } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> NetRunHeader {
        NetRunHeader {
            id: "net-20261122-0001".to_owned(),
            created_unix_ms: 1,
            provenance: BTreeMap::new(),
            command: "plumb net --http x".to_owned(),
            code_version: "0".to_owned(),
        }
    }

    fn way(name: &str, totals: &[u64], error: Option<&str>) -> HttpModeResult {
        let visit =
            |&total_ns: &u64| HttpPageLoad { total_ns, cpu_ns: 7, ..HttpPageLoad::default() };
        HttpModeResult {
            way: name.to_owned(),
            visits: totals.iter().map(visit).collect(),
            error: error.map(str::to_owned),
            ..HttpModeResult::default()
        }
    }

    #[test]
    fn a_way_that_broke_keeps_its_visits_as_partial_and_one_without_any_its_reason() {
        let ways = vec![
            way("keep-alive", &[3, 5], None),
            way("http2", &[9], Some("the server hung up")),
            way("http3", &[], Some("no answer")),
        ];
        let ended = "complete".to_owned();
        let document = HttpDocument { ended, ways, ..HttpDocument::default() };
        let data = run(header(), &document).expect("there are visits");
        assert_eq!((data.cells.len(), data.blocks.len()), (12, 8));
        let of = |way: &str| {
            let is_it =
                |cell: &&Cell| cell.factors.text("way") == Some(way) && cell.response == "page";
            let cell = data.cells.iter().find(is_it).expect("a cell each");
            (cell.status.clone(), data.blocks.iter().find(|block| block.cell == cell.id))
        };
        let (status, block) = of("keep-alive");
        assert_eq!(status, CellStatus::Done("visits".to_owned()));
        let block = block.expect("visits");
        assert_eq!((&block.samples, block.n), (&vec![3.0, 5.0], 2));
        assert_eq!((block.effort.wall_ns, block.effort.local.process_ns), (8, 14));
        let (status, block) = of("http2");
        assert_eq!(status, CellStatus::Done("partial".to_owned()));
        assert_eq!(block.expect("a visit").flags, ["partial"]);
        assert_eq!(of("http3"), (CellStatus::Failed("no answer".to_owned()), None));
        assert!(data.run.notes["net.problems"].contains("http3: no answer"));
    }

    #[test]
    fn a_page_that_nobody_brought_is_no_run_and_an_interrupted_one_is_partial() {
        let ended = "interrupted".to_owned();
        let nothing = vec![way("http2", &[], Some("no"))];
        let mut document = HttpDocument { ended, ways: nothing, ..HttpDocument::default() };
        assert_eq!(run(header(), &document), None);
        document.ways = vec![way("http2", &[4], None)];
        let data = run(header(), &document).expect("a visit");
        assert!(data.blocks.iter().all(|block| block.flags == ["partial"]), "{data:?}");
    }
}
