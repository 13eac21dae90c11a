//! `cargo xtask CHORE`: the chores of the project from the command line.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

const USAGE: &str = "usage: cargo xtask CHORE

  tidy                 check what the compiler cannot: dependencies, cycles, links, words
  stats [FOLDER] [--details]  lines, names, import cycles and long functions, per crate and in all
  clauses              write docs/rfc9293.md: the MUSTs of RFC 9293 and what names them
  packetdrill --packetdrill FILE [--system NAME] SCRIPTS  run scripts by packetdrill itself against plumb's TCP
  mutations [--only N,M] put each known fault of the statistics back, and see a test fail
  race [OPTIONS]       plumb against sockperf, iperf3 and qperf on the same CPUs
  race-stack [OPTIONS] plumb's stack against Linux's and smoltcp's
  race-tcp [OPTIONS]   plumb's TCP against smoltcp's, and copies alone
  race-link [OPTIONS]  plumb's emulated link against what it promises, and Linux's beside it
  race-sim [OPTIONS]   plumb's simulator against ns-3
  race-net [OPTIONS]   plumb's client and agent against iperf3's and sockperf's, between two namespaces
    --launches N       launches of each side in each contest (default 10, at least 6)
    --seconds S        how long each peer measures in one launch (default 1)
    --only TEXT        only contests whose name contains TEXT
    --plumb FILE       the binary to race (default target/release/plumb)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout().lock();
    match run(&arguments, &mut out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let told = writeln!(std::io::stderr(), "xtask: {error:#}");
            ExitCode::from(if told.is_ok() { 2 } else { 3 })
        }
    }
}

/// Whether the chore found everything in order.
fn run(arguments: &[String], out: &mut dyn Write) -> anyhow::Result<bool> {
    let root = workspace_root()?;
    match arguments.split_first().map(|(chore, rest)| (chore.as_str(), rest)) {
        Some(("tidy", [])) => {
            let findings = xtask::tidy::check(&root)?;
            for finding in &findings {
                writeln!(out, "{finding}")?;
            }
            writeln!(out, "tidy: {} finding(s)", findings.len())?;
            Ok(findings.is_empty())
        }
        Some(("stats", rest)) => {
            let folder = rest.iter().find(|argument| *argument != "--details");
            let root = folder.map_or(root, PathBuf::from);
            let stats = xtask::stats::WorkspaceStats::measure(&root)?;
            write!(out, "{stats}")?;
            if rest.iter().any(|argument| argument == "--details") {
                write!(out, "{}", stats.details())?;
            }
            Ok(true)
        }
        Some(("clauses", [])) => {
            std::fs::write(root.join(xtask::clauses::PAGE), xtask::clauses::page(&root)?)?;
            Ok(true)
        }
        Some(("packetdrill", rest)) => xtask::packetdrill::run(rest, &root, out),
        Some(("mutations", [])) => xtask::mutations::run(&root, &[], out),
        Some(("mutations", [only, findings])) if only == "--only" => {
            let findings: Result<Vec<i64>, _> = findings.split(',').map(str::parse).collect();
            xtask::mutations::run(&root, &findings?, out)
        }
        Some((chore, rest)) => {
            let race = match chore {
                "race" => xtask::peer_bench::run,
                "race-stack" => xtask::peer_bench::stack::run,
                "race-link" => xtask::peer_bench::link::run,
                "race-sim" => xtask::peer_bench::sim::run,
                "race-tcp" => xtask::peer_bench::tcp::run,
                "race-net" => xtask::peer_bench::net::run,
                _ => anyhow::bail!("no such chore\n\n{USAGE}"),
            };
            race(&xtask::peer_bench::BenchOptions::parse(rest, &root)?, out)
        }
        None => anyhow::bail!("no such chore\n\n{USAGE}"),
    }
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.map(Path::to_path_buf).context("xtask's folder has no parent")
}
