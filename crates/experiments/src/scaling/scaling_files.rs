//! `scaling.files`: a file by itself over HTTP, with a connection of its own, by its size.
//!
//! After Markatos (2001, §3.5), who explains by the small files of the web why HTTP gains less from processors than TCP's benchmarks.

use plumb_harness::spec::PageLoadSpec;

use crate::claims::MARKATOS;
use crate::factor::channel::{self, SIZE};
use crate::factor::remote::SAME_CPU;
use crate::prelude::*;

/// A size a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "scaling.files",
    study: "scaling",
    question: "What does a small file cost more than its bytes?",
    hypothesis: "Up to tens of kilobytes the connection and the request cost more than the bytes.",
    factors: &[SIZE.at(Numbers(&[MEDIAN, MEAN, WRITE])), SAME_CPU],
    responses: &[ResponseVariable::time(
        "file",
        "from the connection attempt to the last byte of the file, over loopback",
    )],
    plan_cell: |point| {
        let placement = channel::placement_of(point, WakeMode::Block)?;
        let bytes: u64 = channel::level_number(point.factors, "size");
        if bytes > LARGEST {
            return Err(Exclusion::impossible("the server has files of up to 1 MiB"));
        }
        let spec = PageLoadSpec { path: None, fetch_mode: format!("/file/{bytes}") };
        Ok((
            LaunchGroup::new(LaunchSubject::PageLoads(Box::new(spec)), placement),
            BlockTask::PageLoad,
        ))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "A file over HTTP", ..ExperimentPage::PLAIN },
};

/// Bytes of the median and the mean file of the web, and of the writes of TCP's benchmarks.
const MEDIAN: u64 = 3 << 10;
const MEAN: u64 = 8 << 10;
const WRITE: u64 = 64 << 10;

/// Bytes of the largest file that the server has.
const LARGEST: u64 = 1 << 20;

/// From where on an overhead is large: a tenth more time for each byte.
const LARGE: (f64, f64) = (1.1, f64::INFINITY);

const CLAIMS: &[PublishedClaim] = &[PublishedClaim {
    id: "scaling.http.small-files-cost-their-connections",
    claim: "Transfers of small files suffer large initialization overheads (judged by the time for each byte of files of 3 and 8 KB against \
            64 KB).",
    historical: Some("the reason that is given for 30 %"),
    figures: &[
        PublishedFigure::alone("average file", 8_192.0, Unit::Bytes, "§3.5"),
        PublishedFigure::alone("median file", 3_072.0, Unit::Bytes, "§3.5"),
    ],
    judge: |evidence| {
        let per_byte = |bytes: u64| {
            let cell = evidence.cells(EXPERIMENT.id, "file").find(|cell| cell.is("size", bytes))?;
            let ([low, high], each) = (cell.ends()?, |ns: f64| ns / bytes as f64);
            Some([low, cell.median(), high].map(each))
        };
        let cases = [MEDIAN, MEAN].into_iter().filter_map(|bytes| {
            let (small, large) = (per_byte(bytes)?, per_byte(WRITE)?);
            let ends = Some([small[0] / large[2], small[2] / large[0]]);
            let label = format!("{} KiB/{} KiB", bytes >> 10, WRITE >> 10);
            Some(ClaimCase::quantity("", label, small[1] / large[1], ends, LARGE, Unit::Count))
        });
        judge_all(cases.collect(), "plumb run scaling.files")
    },
    ..PublishedClaim::of(MARKATOS)
}];
