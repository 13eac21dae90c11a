//! netperf's outputs as runs.

use super::*;

const STREAM: &str = "throughput.local mechanism=tcp4 placement=unknown size=16384 [throughput]";

#[test]
fn bits_of_netperf_are_decimal_and_its_bytes_binary() {
    assert_values(&only_run("netperf-tcp-stream.txt"), &[(STREAM, 15_586.54e6 / 8.0)]);
    assert_values(&only_run("netperf-tcp-stream-mbytes.txt"), &[(STREAM, 1873.71 * 1_048_576.0)]);
    let message = refusal(ImportFormat::Netperf, "netperf-tcp-stream.txt", "10^6bits", "furlongs");
    assert!(message.contains("line 5") && message.contains("furlongs"), "{message}");
}

#[test]
fn utilisation_columns_of_netperf_are_notes_and_not_mistaken_for_figures() {
    let run = only_run("netperf-tcp-stream-cpu.txt");
    assert_values(&run, &[(STREAM, 16_444.19e6 / 8.0)]);
    assert_eq!(run.run.notes["netperf.cpu.remote_percent"], "100");
    assert_eq!(run.run.notes["netperf.cpu.local_demand"], "0.996 us/KB");

    let run = only_run("netperf-tcp-rr-cpu.txt");
    let key = "latency.local mechanism=tcp4 placement=unknown response_size=1024 size=64 [latency]";
    assert_values(&run, &[(key, 1e9 / 31_198.73 / 2.0)]);
    assert_eq!(run.run.notes["netperf.cpu.local_demand"], "64.105 us/Tr");
}

#[test]
fn datagrams_count_where_they_arrive() {
    let key = |response: &str| {
        format!("throughput.local mechanism=udp4 placement=unknown size=1400 [{response}]")
    };
    for (name, rate, received, sent) in [
        ("netperf-udp-stream.txt", 392.23e6, 35_306.0, 127_681.0),
        ("netperf-udp-stream-cpu.txt", 344.9e6, 30_921.0, 122_229.0),
    ] {
        let run = only_run(name);
        assert_values(
            &run,
            &[(&key("throughput"), rate / 8.0), (&key("delivered"), received / sent)],
        );
    }
}

#[test]
fn a_transaction_is_halved_and_several_in_flight_share_its_time() {
    let key = "latency.local mechanism=udp4 placement=unknown size=1 [latency]";
    assert_values(&only_run("netperf-udp-rr.txt"), &[(key, 1e9 / 33_434.76 / 2.0)]);
    assert_values(
        &only_run("netperf-udp-rr.csv"),
        &[(
            "latency.local mechanism=udp4 placement=unknown size=1 [latency]",
            1e9 / 36_534.27 / 2.0,
        )],
    );
    // netperf's own round trip confirms it: 51.904 µs.
    let verbose = only_run("netperf-tcp-rr-verbose.txt");
    assert!((verbose.cells[0].imported.as_ref().unwrap().value / 25_952.0 - 1.0).abs() < 1e-4);

    let burst = only_run("netperf-rr-burst.txt");
    let key = "latency.local burst=4 mechanism=tcp6 nodelay=on placement=unknown size=1 [latency]";
    assert_values(&burst, &[(key, 5e9 / 68_421.32 / 2.0)]);
}

#[test]
fn every_test_of_a_netperf_log_is_a_cell() {
    let run = only_run("netperf-several.txt");
    let keys: Vec<String> = run.cells.iter().map(Cell::key).collect();
    assert_eq!(
        keys,
        [
            "throughput.local direction=reverse mechanism=tcp4 placement=unknown size=16384 \
             [throughput]",
            "throughput.local mechanism=tcp4 placement=unknown send=sendfile size=16384 \
             [throughput]",
            "latency.local mechanism=tcp4 placement=unknown size=1 [latency]",
            "netperf.connect-transaction mechanism=tcp4 placement=unknown size=1 [time]",
            "netperf.connect mechanism=tcp4 placement=unknown size=1 [time]",
        ]
    );
    // A transaction with its connection is filed whole.
    assert_values(&run, &[(&keys[3], 1e9 / 8983.22)]);
    assert!(!run.run.notes.contains_key("import.unread"), "{:?}", run.run.notes);
}

#[test]
fn netperf_fields_mean_the_same_in_keywords_csv_and_columns() {
    let key = "latency.local mechanism=tcp4 placement=unknown size=1 [latency]";
    let keywords = only_run("netperf-omni-keywords.txt");
    let found = summary(&keywords, key);
    assert_eq!((found.value, found.statistic.as_str()), (8_000.0, "median"));
    assert_eq!((found.min, found.max), (Some(6_500.0), Some(6_533_500.0)));
    assert_eq!(found.percentiles["p99"], 1_621_000.0);
    assert_eq!(keywords.run.provenance["tcp.congestion"], "bbr");

    let csv = only_run("netperf-omni-csv.csv");
    assert_values(&csv, &[(STREAM, 8705.90e6 / 8.0)]);
    assert!(csv.run.notes["netperf.command"].ends_with("-d send -o all"));

    let columns = only_run("netperf-omni-columns.txt");
    let key = "latency.local mechanism=unknown placement=unknown [latency]";
    let found = summary(&columns, key);
    assert_eq!((found.value, found.max), (8_000.0, Some(4_617_500.0)));
    assert_values(
        &only_run("netperf-omni-default.txt"),
        &[(
            "throughput.local mechanism=unknown placement=unknown size=16384 [throughput]",
            8159.86e6 / 8.0,
        )],
    );
}

#[test]
fn a_missed_confidence_interval_of_netperf_is_noted() {
    let run = only_run("netperf-tcp-stream-confidence.txt");
    assert_eq!(run.run.notes["netperf.confidence-missed"], "throughput ±79.431%");
}

#[test]
fn netperf_outputs_that_name_no_units_are_refused() {
    for (name, part) in [
        ("netperf-no-banner.txt", "there is no netperf result"),
        ("netperf-bare.txt", "there is no netperf result"),
        ("netperf-rr-bits.txt", "the units 'bytes Bytes bytes bytes secs. per sec'"),
        ("netperf-refused.txt", "are you sure there is a netserver listening"),
    ] {
        let message = parse(ImportFormat::Netperf, &fixture(name)).unwrap_err().to_string();
        assert!(message.contains(part), "{name}: {message}");
    }
    let keywords = "netperf-omni-keywords.txt";
    let message =
        refusal(ImportFormat::Netperf, keywords, "DIRECTION=Send|Recv", "DIRECTION=Sideways");
    assert!(message.contains("a DIRECTION that netperf has"), "{message}");
    let message =
        refusal(ImportFormat::Netperf, "netperf-omni-default.txt", "10^6bits/s", "Usec/s");
    assert!(message.contains("THROUGHPUT_UNITS in bytes or bits"), "{message}");
}

#[test]
fn a_netperf_file_that_was_cut_gives_no_figure_that_the_whole_does_not_give() {
    for (name, _) in fixtures().iter().filter(|(_, format)| *format == ImportFormat::Netperf) {
        assert_parts_agree(name, ImportFormat::Netperf, |part| {
            // A list of keywords that was cut may lack percentiles; what it has is right.
            let right: &[f64] = match name.as_str() {
                "netperf-omni-keywords.txt" => &[8_000.0, 42_534.0],
                "netperf-rr-selected.txt" => &[8_000.0, 18_476.0, 18_380.0],
                _ => &[],
            };
            let value = part.imported.as_ref().map_or(0.0, |found| found.value);
            right.iter().any(|right| (value / right - 1.0).abs() < 1e-4)
        });
    }
}

#[test]
fn a_rate_whose_transactions_in_flight_are_not_told_is_marked() {
    let told = |name: &str| only_run(name).run.notes.contains_key("import.assumed");
    assert!(told("netperf-omni-columns.txt") && !told("netperf-omni-keywords.txt"));
    assert!(!told("netperf-udp-rr.txt"));
}
