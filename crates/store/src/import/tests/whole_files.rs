//! What happened to a file before it was imported: cut off, or mixed with other lines.

use super::*;

#[test]
fn a_sockperf_or_lmbench_file_that_was_cut_gives_no_figure_that_the_whole_does_not_give() {
    for (name, format) in &fixtures() {
        match format {
            ImportFormat::Sockperf if name != "sockperf-fulllog.csv" => {
                assert_parts_agree(name, *format, |_| false);
            }
            // A suite is refused unless it is whole.
            ImportFormat::Lmbench if name.contains("raw") => {
                let whole = fixture(name);
                let kept = whole.len() - whole.iter().rev().position(|b| *b == b']').unwrap();
                for end in (0..kept - 1).rev().step_by(61).chain([kept - 1]) {
                    assert!(parse(*format, &whole[..end]).is_err(), "{name} cut at {end}");
                }
            }
            ImportFormat::Lmbench if name.contains("programs") => {
                assert_parts_agree(name, *format, |_| false);
            }
            _ => {}
        }
    }
    // Above its rows a log has the summary of all of them.
    let log = fixture("sockperf-fulllog.csv");
    let rows = log.windows(14).position(|bytes| bytes == b"packet, txTime").unwrap();
    for end in (rows + 40..log.len() - 32).step_by(7) {
        assert!(parse(ImportFormat::Sockperf, &log[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn lines_that_are_not_understood_are_reported() {
    let text = String::from_utf8(fixture("sockperf-pingpong-tcp.txt")).unwrap();
    let odd = text.replacen("sockperf: Test ended", "sockperf: The moon is full", 1);
    let run = &parse(ImportFormat::Sockperf, odd.as_bytes()).unwrap()[0];
    let unread = &run.run.notes["import.unread"];
    assert!(unread.contains("line 8: \"The moon is full\""), "{unread}");
    for (name, format) in fixtures().iter().filter(|(name, _)| !name.starts_with("lmbench")) {
        for run in parse(*format, &fixture(name)).unwrap() {
            let unread = run.run.notes.get("import.unread");
            assert!(unread.is_none() || name == "qperf-uu.txt", "{name}: {unread:?}");
        }
    }
}
