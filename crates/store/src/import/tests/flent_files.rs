//! flent's data files as runs.

use super::*;

#[test]
fn flent_series_are_cells_with_the_means_that_flent_prints() {
    let run = only_run("flent-tcp-upload.flent");
    let ping = "flent.tcp_upload series=Ping (ms) ICMP [round-trip]";
    let upload = "flent.tcp_upload interval_ms=500 series=TCP upload [throughput]";
    // flent's own summary: 0.04 ms and 8413.73, 8635.79 Mbits/s.
    assert_values(&run, &[(ping, 43_000.0), (upload, 8413.73e6 / 8.0)]);
    let found = summary(&run, upload);
    assert_eq!((found.statistic.as_str(), found.max), ("mean", Some(10_007.52e6 / 8.0)));
    assert_eq!(summary(&run, ping).min, Some(27_000.0));
    assert_eq!(run.run.created_unix_ms, 1_795_253_805_141);
    assert_eq!(run.run.provenance["tcp.congestion"], "bbr");
    assert_eq!(run.run.notes["import.tool"], "flent 2.1.1");
}

#[test]
fn packed_flent_files_with_many_series_are_read_in_flents_order() {
    let run = only_run("flent-rrul-be.flent.gz");
    assert_eq!(run.cells.len(), 18);
    let names: Vec<_> = run.cells.iter().map(|cell| cell.factors.text("series").unwrap()).collect();
    assert_eq!((names[0], names[17]), ("TCP upload BE", "Ping (ms) avg"));
    // Series that flent computes have a mean and no samples.
    let sum = summary(&run, "flent.rrul_be series=TCP upload sum [throughput]");
    assert_eq!((sum.value, sum.n), (8200.92e6 / 8.0, None));
    assert!(!run.run.notes.contains_key("import.skipped"));
}

#[test]
fn damaged_or_newer_flent_files_are_refused() {
    let packed = fixture("flent-rrul-be.flent.gz");
    for cut in [3, 20, 1000, packed.len() - 1] {
        let message = parse(ImportFormat::Flent, &packed[..cut]).unwrap_err().to_string();
        assert!(message.contains("a whole gzip file"), "{message}");
    }
    let mut flipped = packed.clone();
    flipped[packed.len() - 6] ^= 1;
    let message = parse(ImportFormat::Flent, &flipped).unwrap_err().to_string();
    assert!(message.contains("a whole gzip file"), "{message}");
    let text = fixture("flent-tcp-upload.flent");
    for cut in (0..text.len() - 2).step_by(97) {
        assert!(parse(ImportFormat::Flent, &text[..cut]).is_err(), "{cut}");
    }
    let plain = "flent-tcp-upload.flent";
    let message = refusal(ImportFormat::Flent, plain, "\"version\": 4", "\"version\": 5");
    assert!(message.contains("a file format of at most 4"), "{message}");
    let message = refusal(ImportFormat::Flent, plain, "\"val\": 0.027", "\"val\": \"0.027\"");
    assert!(message.contains("a number in the series 'Ping (ms) ICMP'"), "{message}");
}

#[test]
fn series_in_other_units_are_skipped_and_named() {
    let text = String::from_utf8(fixture("flent-tcp-upload.flent")).unwrap();
    let text = text.replacen("\"UNITS\": \"Mbits/s\"", "\"UNITS\": \"packets\"", 1);
    let run = &parse(ImportFormat::Flent, text.as_bytes()).unwrap()[0];
    assert_eq!((run.cells.len(), run.run.notes["import.skipped"].as_str()), (1, "TCP upload"));
}
