//! What the file of an experiment is written with.

pub(crate) use plumb_analysis::claim::{
    CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, Expectation, PublishedClaim,
    PublishedFigure, judge_all, judge_any,
};
pub(crate) use plumb_analysis::document::CellResult;
pub(crate) use plumb_analysis::registry::{ExperimentAnalysis, RungLabel};
pub(crate) use plumb_analysis::summary::MeasuredCell;
pub(crate) use plumb_base::units::{Unit, format_bytes, format_size, significant};
pub(crate) use plumb_harness::spec::{BlockTask, LaunchSubject, Mechanism, WakeMode};
pub(crate) use plumb_harness::topology::CpuPlacement;
pub(crate) use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, Series, slug};
pub(crate) use plumb_report::registry::{ExperimentPage, HeadlineTile, PageData, cell_tile};
pub(crate) use plumb_report::table::TextTable;
pub(crate) use plumb_report::{name, value};
pub(crate) use plumb_store::record::{Better, FactorLevel, Factors};

pub(crate) use crate::definition::{
    CellDecision, DesignPoint, Exclusion, Experiment, LaunchGroup, ResponseVariable,
};
pub(crate) use crate::factor::PresetLevels::{Found, Numbers, Words};
pub(crate) use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, words};
pub(crate) use crate::preset::RunPreset;
