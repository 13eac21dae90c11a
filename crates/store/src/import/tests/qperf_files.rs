//! qperf's outputs as runs.

use super::*;

#[test]
fn qperf_results_without_hosts_are_filed_under_its_own_name() {
    assert_values(
        &only_run("qperf.txt"),
        &[
            ("qperf.throughput mechanism=tcp placement=unknown [throughput]", 2.56e9),
            // Its latency is half a round trip as it stands.
            ("qperf.latency mechanism=tcp placement=unknown [latency]", 12_400.0),
            // The receiver's rate, not the sender's.
            ("qperf.throughput mechanism=udp placement=unknown [throughput]", 1.35e9),
            ("qperf.latency mechanism=udp placement=unknown [latency]", 9_600.0),
        ],
    );
}

#[test]
fn qperf_conf_says_where_it_was_measured() {
    let run = only_run("qperf-conf-v.txt");
    assert_values(&run, &[("latency.local mechanism=tcp placement=unknown [latency]", 12_600.0)]);
    assert_eq!(run.run.provenance["host.name"], "vm");
    assert_eq!(run.run.notes["import.tool"], "qperf 0.4.11");
    assert_eq!(run.run.notes["qperf.udp_bw.send_cost"], "590 ms/GB");
    let elsewhere = String::from_utf8(fixture("qperf-conf-v.txt")).unwrap();
    let elsewhere = elsewhere.replace("rem_node   =  vm", "rem_node   =  other");
    let run = &parse(ImportFormat::Qperf, elsewhere.as_bytes()).unwrap()[0];
    assert_eq!(run.cells[0].experiment, "throughput.remote");
}

#[test]
fn qperf_sizes_and_counts_are_exact_where_it_prints_them() {
    let run = only_run("qperf-vv.txt");
    let key = "qperf.throughput mechanism=tcp placement=unknown size=65536 [throughput]";
    assert_values(&run, &[(key, 1.4e9)]);
    let run = only_run("qperf-vvs.txt");
    let key = "qperf.throughput mechanism=udp placement=unknown [delivered]";
    assert_values(&run, &[(key, 21_813.0 / 109_370.0)]);
    let run = only_run("qperf-uu.txt");
    let key = "qperf.throughput mechanism=tcp placement=unknown [throughput]";
    assert_values(&run, &[(key, 1_860_239_360.0)]);
    assert!(run.run.notes["import.unread"].contains("obsolete option"));
}

#[test]
fn results_of_a_qperf_loop_are_never_averaged() {
    let sizes: Vec<_> =
        only_run("qperf-sweep.txt").cells.iter().map(|cell| cell.factors.int("size")).collect();
    assert_eq!(sizes, [Some(1), Some(64), Some(4096)]);
    let run = only_run("qperf-sweep-silent.txt");
    assert_eq!(run.cells.len(), 3);
    let key = "qperf.throughput mechanism=tcp nth=3 placement=unknown [throughput]";
    assert_values(&run, &[(key, 686e6)]);
}

#[test]
fn qperf_outputs_without_a_figure_or_a_known_unit_are_refused() {
    let message = parse(ImportFormat::Qperf, &fixture("qperf-err.txt")).unwrap_err().to_string();
    assert!(message.contains("127.0.0.1: failed to connect"), "{message}");
    let message = refusal(ImportFormat::Qperf, "qperf.txt", "GB/sec", "GiB/sec");
    assert!(message.contains("line 2") && message.contains("GiB/sec"), "{message}");
    let message = refusal(ImportFormat::Qperf, "qperf.txt", "    latency  =  12.4 us\n", "");
    assert!(message.contains("line 3") && message.contains("the latency of tcp_lat"), "{message}");
}

#[test]
fn a_qperf_file_that_was_cut_gives_no_figure_that_the_whole_does_not_give() {
    for name in ["qperf.txt", "qperf-conf-v.txt", "qperf-vvs.txt", "qperf-sweep.txt"] {
        assert_parts_agree(name, ImportFormat::Qperf, |_| false);
    }
}
