//! Tests of the importers: golden values from real files, and robustness against any bytes.

#![expect(clippy::float_cmp, reason = "figures are copied, not computed")]

mod flent_files;
mod netperf_files;
mod qperf_files;
mod whole_files;

use std::path::Path;

use plumb_sys::clock::{ClockId, read_ns};
use proptest::prelude::*;

use super::*;
use crate::record::{Cell, CellStatus, ImportedSummary, RunStatus};
use crate::sqlite::{Store, StoreMode};

/// Files that hold no result, and those of the store.
const REFUSED: [&str; 7] = [
    "README.md",
    "iperf3-error.json",
    "netperf-bare.txt",
    "netperf-no-banner.txt",
    "netperf-refused.txt",
    "netperf-rr-bits.txt",
    "qperf-err.txt",
];

/// Every file with results, and the tool that its name begins with.
fn fixtures() -> Vec<(String, ImportFormat)> {
    let names = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"));
    let names = names.unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let held = names.filter(|name| !REFUSED.contains(&name.as_str()) && !name.starts_with("store"));
    let format = |name: &str| ImportFormat::from_name(name.split(['-', '.']).next()?);
    let mut fixtures: Vec<(String, ImportFormat)> =
        held.map(|name| (name.clone(), format(&name).expect("the name of a tool"))).collect();
    fixtures.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(fixtures.len() >= 46, "{fixtures:?}");
    fixtures
}

/// Checks that every figure of every beginning of a file is a figure of the whole file, except
/// where a cell of the part is `excused`.
#[track_caller]
fn assert_parts_agree(name: &str, format: ImportFormat, excused: impl Fn(&Cell) -> bool) {
    let whole = fixture(name);
    let cells = only_run(name).cells;
    for end in 0..whole.len().saturating_sub(1) {
        for run in parse(format, &whole[..end]).unwrap_or_default() {
            for cell in &run.cells {
                let same = |known: &Cell| {
                    known.imported == cell.imported && known.response == cell.response
                };
                let agrees = cells.iter().any(same) || excused(cell);
                assert!(agrees, "{name} cut at {end}: {cell:?}");
            }
        }
    }
}

/// The refusal of a fixture, after replacing some of its text.
#[track_caller]
fn refusal(format: ImportFormat, name: &str, from: &str, to: &str) -> String {
    let text = String::from_utf8_lossy(&fixture(name)).into_owned();
    assert!(text.contains(from), "{name} has no {from}");
    parse(format, text.replacen(from, to, 1).as_bytes()).unwrap_err().to_string()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).unwrap()
}

fn runs(name: &str) -> Vec<RunData> {
    let bytes = fixture(name);
    parse(detect(&bytes).unwrap(), &bytes).unwrap()
}

fn only_run(name: &str) -> RunData {
    let mut runs = runs(name);
    assert_eq!(runs.len(), 1, "{name}");
    runs.remove(0)
}

/// The cell with this key.
fn cell<'a>(run: &'a RunData, key: &str) -> &'a Cell {
    let keys = || run.cells.iter().map(Cell::key).collect::<Vec<_>>().join("\n");
    run.cells.iter().find(|cell| cell.key() == key).unwrap_or_else(|| panic!("{key}\n{}", keys()))
}

fn summary<'a>(run: &'a RunData, key: &str) -> &'a ImportedSummary {
    cell(run, key).imported.as_ref().unwrap()
}

#[track_caller]
fn assert_values(run: &RunData, expected: &[(&str, f64)]) {
    for (key, value) in expected {
        let found = summary(run, key).value;
        assert!((found / value - 1.0).abs() < 1e-9, "{key}: {found}, not {value}");
    }
}

#[test]
fn every_fixture_is_recognised_and_can_be_stored() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("plumb.db"), StoreMode::Write).unwrap();
    for (name, format) in fixtures() {
        assert_eq!(detect(&fixture(&name)), Some(format), "{name}");
        for (index, mut run) in runs(&name).into_iter().enumerate() {
            assert_eq!(run.run.status, RunStatus::Imported);
            run.run.id = format!("{name}-{index}");
            store.insert(&run).unwrap();
            assert_eq!(store.load(&run.run.id).unwrap(), run, "{name}");
            let mut keys: Vec<String> = run.cells.iter().map(Cell::key).collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), run.cells.len(), "{name} has a cell twice");
        }
    }
    assert_eq!(detect(b""), None);
    assert_eq!(detect(b"{\"hello\": 1}"), None);
    assert_eq!(detect(&fixture("store-v1.db")), None);
}

#[test]
fn raw_lmbench_latencies_are_half_of_the_round_trips_printed() {
    let run = only_run("lmbench-raw-v3-riscv-visionfive2.txt");
    assert_values(
        &run,
        &[
            ("call.kernel call=getppid via=libc [call]", 156.8),
            ("call.kernel call=write-dev-null via=libc [call]", 313.9),
            (
                "latency.local mechanism=pipe placement=unknown size=1 wake=block [latency]",
                15_884.9 / 2.0,
            ),
            (
                "latency.local mechanism=socketpair-stream placement=unknown size=1 wake=block \
                 [latency]",
                30_640.9 / 2.0,
            ),
            (
                "latency.local mechanism=udp4 placement=unknown size=4 wake=block [latency]",
                37_362.5 / 2.0,
            ),
            (
                "latency.local mechanism=tcp4 placement=unknown size=1 wake=block [latency]",
                54_487.7 / 2.0,
            ),
            ("lmbench.connect operation=tcp4 [time]", 95_672.7),
            (
                "throughput.local mechanism=pipe placement=unknown size=65536 wake=block \
                 [throughput]",
                521.17e6,
            ),
            (
                "throughput.local mechanism=tcp4 placement=unknown size=1437 wake=block \
                 [throughput]",
                358.23e6,
            ),
            ("lmbench.context-switch processes=96 size=65536 [time]", 67_550.0),
        ],
    );
    assert_eq!(run.run.provenance["cpu.mhz"], "1500");
    assert_eq!(run.run.provenance["kernel.release"], "5.15.0-7.oe2303.riscv64");
    assert_eq!(run.cells[0].status, CellStatus::Done("imported".to_owned()));
    assert_eq!(run.run.notes["import.tool"], "lmbench 3.0");
}

#[test]
fn a_summary_agrees_with_the_raw_results_it_was_made_of() {
    let raw = only_run("lmbench-raw-v3-riscv-visionfive2.txt");
    let made = only_run("lmbench-summary-v3-riscv-visionfive2.txt");
    let mut shared = 0;
    for theirs in &made.cells {
        let Some(ours) = raw.cells.iter().find(|cell| cell.key() == theirs.key()) else { continue };
        let (a, b) = (ours.imported.as_ref().unwrap(), theirs.imported.as_ref().unwrap());
        // Summaries keep two to four digits, some of them cut off rather than rounded.
        assert!((a.value / b.value - 1.0).abs() < 0.025, "{}: {} {}", ours.key(), a.value, b.value);
        shared += 1;
    }
    assert!(shared >= 35, "only {shared} cells in common");
}

#[test]
fn each_machine_of_a_summary_is_a_run_and_its_repetitions_a_median() {
    let site = runs("lmbench-summary-v1.1-1996-site.txt");
    let hosts: Vec<&str> = site.iter().map(|r| r.run.provenance["host.name"].as_str()).collect();
    assert_eq!(hosts.len(), 10);
    assert_eq!(&hosts[..3], ["6000-990", "powerpc", "K210"]);
    // Same host, two kernels; the last row measured nothing but one number.
    let mips = runs("lmbench-summary-v1.9-1998-mips.txt");
    assert_eq!(mips.len(), 6);
    assert_eq!(mips[4].run.provenance["kernel.release"], "Linux 2.1.90");

    let tony = only_run("lmbench-summary-v2.0-2002-i686.txt");
    let connect = summary(&tony, "lmbench.connect operation=tcp4 [time]");
    assert_eq!((connect.value, connect.n, connect.max), (44_600.0, Some(5), Some(599e6)));
}

#[test]
fn old_versions_keep_their_meanings() {
    let early = &runs("lmbench-summary-v1.0-1996-sparc.txt")[0];
    let later = &runs("lmbench-summary-v1.9-1998-mips.txt")[2];
    assert_values(
        early,
        &[
            // The null call of 1.x is a write to /dev/null, and its megabytes are 2^20 bytes.
            ("call.kernel call=write-dev-null via=libc [call]", 15_000.0),
            (
                "throughput.local mechanism=tcp4 placement=unknown wake=block [throughput]",
                4.8 * 1_048_576.0,
            ),
            ("lmbench.process operation=fork-execve [time]", 40.9e6),
        ],
    );
    assert_values(
        later,
        &[
            ("call.kernel call=getppid via=libc [call]", 1_100.0),
            ("throughput.local mechanism=tcp4 placement=unknown wake=block [throughput]", 23e6),
            (
                "latency.local mechanism=socketpair-stream placement=unknown size=1 wake=block \
                 [latency]",
                18_000.0,
            ),
        ],
    );
}

#[test]
fn what_lmbench_did_not_measure_is_skipped_and_named() {
    let site = runs("lmbench-summary-v1.1-1996-site.txt");
    assert_eq!(site[0].run.notes["import.skipped"], "null call, sig inst, prot fault");
    assert!(site[0].cells.iter().all(|c| c.imported.as_ref().unwrap().value > 0.0));
}

#[test]
fn sockperf_latency_is_half_a_round_trip_however_it_was_printed() {
    let half = only_run("sockperf-pingpong-tcp.txt");
    let key = "latency.local mechanism=tcp4 placement=unknown wake=block [latency]";
    let found = summary(&half, key);
    assert_values(&half, &[(key, 29_924.0)]);
    assert_eq!((found.n, found.statistic.as_str()), (Some(8785), "median"));
    assert_eq!((found.min, found.max), (Some(9_724.0), Some(459_867.0)));
    assert_eq!(found.percentiles["p99.9"], 240_482.0);
    assert_eq!(found.percentiles.len(), 8);
    assert_eq!(found.tool, "sockperf 3.7-no.git");

    let whole = only_run("sockperf-pingpong-udp-fullrtt.txt");
    let key = "latency.local mechanism=udp4 placement=unknown wake=block [latency]";
    assert_values(&whole, &[(key, 51_206.0 / 2.0)]);
    assert_eq!(summary(&whole, key).min, Some(9_183.0 / 2.0));
}

#[test]
fn sockperf_throughput_counts_mebibytes() {
    let udp = only_run("sockperf-throughput-udp.txt");
    let key = "throughput.local mechanism=udp4 placement=unknown size=1400 [throughput]";
    assert_values(&udp, &[(key, 405.708 * 1_048_576.0)]);
    // The message rate printed beside it confirms the unit.
    let from_rate = 303_868.0 * 1400.0;
    assert!((summary(&udp, key).value / from_rate - 1.0).abs() < 1e-5);
}

#[test]
fn a_full_log_gives_the_samples_that_sockperf_summarised() {
    let log = only_run("sockperf-fulllog.csv");
    let printed = only_run("sockperf-fulllog-stdout.txt");
    let printed = printed.cells[0].imported.as_ref().unwrap();
    let block = &log.blocks[0];
    assert_eq!((block.n, block.samples.len(), log.cells[0].imported.is_none()), (110, 110, true));
    assert_eq!(block.samples[0], f64::from(405_734_040 - 405_665_838) / 2.0);
    let max = block.samples.iter().copied().fold(0.0, f64::max);
    let min = block.samples.iter().copied().fold(f64::MAX, f64::min);
    // sockperf prints microseconds with three decimals, cut off.
    assert!((max - printed.max.unwrap()).abs() <= 1.0, "{max}");
    assert!((min - printed.min.unwrap()).abs() <= 1.0, "{min}");
    assert_eq!(block.counters["lost"], 0);
    assert_eq!(log.cells[0].factors.int("size"), Some(14));
}

#[test]
fn iperf3_throughput_is_what_the_receiver_got() {
    let tcp = only_run("iperf3-tcp.json");
    let sent = 27_648_793_540.0 / 8.0;
    let key = "throughput.local direction=forward mechanism=tcp4 placement=unknown size=65536 \
               [throughput]";
    let got = summary(&tcp, key).value;
    assert!(got < sent && got > 0.9 * sent, "{got}");
    assert_eq!(tcp.run.created_unix_ms, 1_795_230_985_000);
    assert_eq!(tcp.run.provenance["tcp.congestion"], "bbr");

    let udp = only_run("iperf3-udp.json");
    assert_values(
        &udp,
        &[(
            "throughput.local direction=forward mechanism=udp4 placement=unknown rate=50mbit \
             size=32768 [delivered]",
            1.0,
        )],
    );
    let reverse = only_run("iperf3-tcp-reverse.json");
    assert_values(
        &reverse,
        &[(
            "throughput.local direction=reverse mechanism=tcp4 placement=unknown size=131072 \
             streams=2 [throughput]",
            30_691_453_331.853_374 / 8.0,
        )],
    );
}

#[test]
fn iperf3_runs_of_another_direction_or_rate_are_other_cells() {
    let document: serde_json::Value = serde_json::from_slice(&fixture("iperf3-udp.json")).unwrap();
    let keys = |field: &str, value: u64| {
        let mut document = document.clone();
        document["start"]["test_start"][field] = value.into();
        let run = iperf3::parse(document.to_string().as_bytes()).unwrap();
        run.cells.iter().map(Cell::key).collect::<Vec<_>>()
    };
    let (usual, reverse) = (keys("reverse", 0), keys("reverse", 1));
    let (slower, unlimited) = (keys("target_bitrate", 1_000_000), keys("target_bitrate", 0));
    for other in [reverse, slower, unlimited] {
        assert!(usual.iter().all(|key| !other.contains(key)), "{usual:?} {other:?}");
    }
}

#[test]
fn an_iperf3_stream_of_events_is_the_same_run_as_its_document() {
    let bytes = fixture("iperf3-tcp.json");
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    // `--json-stream` (3.17) writes the parts of the document as events, one a line.
    let mut stream = String::new();
    for event in ["start", "interval", "end"] {
        let line = serde_json::json!({ "event": event, "data": document[event] });
        stream.push_str(&line.to_string());
        stream.push('\n');
    }
    assert_eq!(detect(stream.as_bytes()), Some(ImportFormat::Iperf3));
    assert_eq!(iperf3::parse(stream.as_bytes()), iperf3::parse(&bytes));

    stream.insert_str(0, "{\"event\":\"start\",\n");
    let error = iperf3::parse(stream.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("line "), "{error}");
}

#[test]
fn both_directions_of_an_iperf3_run_are_cells() {
    let mut document: serde_json::Value =
        serde_json::from_slice(&fixture("iperf3-tcp.json")).unwrap();
    document["end"]["sum_received_bidir_reverse"] = serde_json::json!({ "bits_per_second": 8e9 });
    let run = iperf3::parse(document.to_string().as_bytes()).unwrap();
    let directions: Vec<_> =
        run.cells.iter().map(|cell| cell.factors.text("direction").unwrap()).collect();
    assert_eq!(directions, ["forward", "reverse"]);
    assert_eq!(run.cells[1].imported.as_ref().unwrap().value, 1e9);
}

#[test]
fn iperf3_tells_both_directions_of_a_real_run_apart() {
    let key = |mechanism: &str, asked: &str, direction: &str| {
        format!(
            "throughput.local direction={direction} mechanism={mechanism} placement=unknown \
             {asked} [throughput]"
        )
    };
    let tcp = only_run("iperf3-tcp-bidir.json");
    assert_values(
        &tcp,
        &[
            (&key("tcp4", "size=131072", "forward"), 10_292_505_898.905_294 / 8.0),
            (&key("tcp4", "size=131072", "reverse"), 8_850_717_432.700_556 / 8.0),
        ],
    );
    let udp = only_run("iperf3-udp-bidir.json");
    assert_values(
        &udp,
        &[(&key("udp6", "rate=20mbit size=1200", "reverse"), 19_992_321.719_934_735 / 8.0)],
    );
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let edited = |name: &str, from: &str, to: &str| {
        let text = String::from_utf8_lossy(&fixture(name)).into_owned();
        assert!(text.contains(from), "{name} has no {from}");
        let text = text.replacen(from, to, 1);
        parse(detect(text.as_bytes()).unwrap(), text.as_bytes()).unwrap_err().to_string()
    };
    for (message, parts) in [
        (
            edited("lmbench-raw-v3-riscv-visionfive2.txt", "latency: 15.8849", "latency: abc"),
            ["line 122", "a number after \"Pipe latency\"", "found \"abc microseconds\""],
        ),
        (
            edited("lmbench-summary-v2.0-2002-i686.txt", "4.991", "4.9x1"),
            ["line 47", "a number under 'pipe'", "found \"4.9x1\""],
        ),
        (
            edited("sockperf-pingpong-tcp.txt", "240.482", "24o.482"),
            ["line 19", "a time in microseconds", "found \"24o.482\""],
        ),
        (
            edited("sockperf-fulllog.csv", "0, 2.405665838,", "0,"),
            ["line 22", "packet, txTime, rxTime and latency", "found \"0, 2.405734040"],
        ),
        (
            edited("iperf3-tcp.json", "\"end\":\t{", "end:\t{"),
            ["line 67", "the JSON of `iperf3 --json`", "expected"],
        ),
        (
            edited("sockperf-pingpong-tcp.txt", "Server No: 0", "Server No: 1"),
            ["line 10", "the statistics of several servers", "a run against one server"],
        ),
    ] {
        for part in parts {
            assert!(message.contains(part), "'{part}' is not in: {message}");
        }
    }
}

#[test]
fn failed_runs_of_other_tools_are_refused_with_their_reason() {
    let message = iperf3::parse(&fixture("iperf3-error.json")).unwrap_err().to_string();
    assert!(message.contains("unable to connect to server: Connection refused"), "{message}");
    let none = b"sockperf: No messages were received from the server. Is the server down?\n";
    let message = sockperf::parse(none).unwrap_err().to_string();
    assert!(message.contains("No messages were received"), "{message}");
    for format in ImportFormat::ALL {
        let error = parse(format, b"{}").unwrap_err();
        assert!(matches!(error, ImportError::NoResults { .. }), "{error}");
    }
}

/// Numbers that neither JSON nor the store could hold must not come out.
fn is_storable(run: &RunData) -> bool {
    let summaries = run.cells.iter().filter_map(|cell| cell.imported.as_ref());
    let mut numbers = summaries.flat_map(|s| {
        let optional = [s.min, s.max].into_iter().flatten();
        [s.value].into_iter().chain(optional).chain(s.percentiles.values().copied())
    });
    numbers.all(f64::is_finite)
        && run.blocks.iter().all(|block| block.samples.iter().all(|sample| sample.is_finite()))
}

proptest! {
    #[test]
    fn no_bytes_make_an_importer_panic(bytes: Vec<u8>, text: String) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            detect(bytes);
            for format in ImportFormat::ALL {
                for run in parse(format, bytes).unwrap_or_default() {
                    prop_assert!(is_storable(&run));
                }
            }
        }
    }

    #[test]
    fn no_damage_to_a_real_file_makes_an_importer_panic(
        (name, format) in prop::sample::select(fixtures()),
        at: prop::sample::Index,
        removed in 0_usize..200,
        patch in prop_oneof!["[ -~\n]{0,20}", "-?[0-9]{1,4}e?[0-9]{1,4}", "\\PC{0,8}"],
    ) {
        let mut bytes = fixture(&name);
        let from = at.index(bytes.len());
        let to = (from + removed).min(bytes.len());
        bytes.splice(from..to, patch.bytes());
        for run in parse(format, &bytes).unwrap_or_default() {
            prop_assert!(is_storable(&run));
        }
    }
}

/// A file of a tool whose length grows with a number.
type LongFile = (ImportFormat, &'static str, fn(usize) -> String);

const LONG_FILES: [LongFile; 6] = [
    (ImportFormat::Lmbench, "distinct results", |n| {
        let line = |i| format!("Select on {i} fd's: 1.5 microseconds\n");
        (0..n).map(line).collect()
    }),
    (ImportFormat::Lmbench, "results not measured", |n| {
        let missing = (0..n).map(|i| format!("Select on {i} fd's: 0 microseconds\n"));
        missing.chain(["Simple syscall: 0.1 microseconds\n".to_owned()]).collect()
    }),
    (ImportFormat::Lmbench, "hosts of a summary", |n| {
        let rows = (0..n).map(|i| format!("host{i:05}  Linux 1  90    2\n"));
        let head = "L M B E N C H 3.0 SUMMARY\n\nProcessor, Processes\n---\n";
        let head = format!("{head}Host       OS      Mhz stat\n---------  ------- --- ----\n");
        [head].into_iter().chain(rows).collect()
    }),
    (ImportFormat::Lmbench, "columns of a summary", |n| {
        let head = "L M B E N C H 3.0 SUMMARY\n\nProcessor, Processes\n---\n";
        let line = |word: &str| format!("{}\n", format!("{word} ").repeat(n));
        format!("{head}{}{}{}", line("stat"), line("----"), line("1234"))
    }),
    (ImportFormat::Qperf, "distinct facts", |n| {
        let test = |i| format!("tcp_lat:\n    latency  =  1 us\n    msg_rate  =  {i} /sec\n");
        (0..n).map(test).collect()
    }),
    (ImportFormat::Netperf, "columns without an end", |n| {
        let banner = "OMNI Send TEST from 0.0.0.0 () port 0 AF_INET to h () port 0 AF_INET\n";
        format!("{banner}{}{}\n", "a\n".repeat(n), "b".repeat(n))
    }),
];

#[test]
fn the_time_of_an_import_is_proportional_to_its_length() {
    for (format, what, file) in LONG_FILES {
        let cpu_ns = |n| {
            let bytes = file(n).into_bytes();
            let once = || {
                let begun = read_ns(ClockId::ThreadCpu);
                drop(parse(format, &bytes));
                read_ns(ClockId::ThreadCpu) - begun
            };
            (0..5).map(|_| once()).min().unwrap()
        };
        let (short, long) = (cpu_ns(4_000), cpu_ns(32_000));
        // Eight times the length; 64 times the time where it is quadratic.
        assert!(long < 32 * short, "{what}: {short} ns, then {long} ns");
    }
}
