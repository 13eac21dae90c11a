//! Screens of commands whose answer is the same every time: stored runs of files, simulations, archives. Each is printed for 40 columns
//! without colour, 80 with it and 140 in ASCII. Screens of what is measured have their snapshots in `plumb-report`.

use crate::home::TestHome;

/// Latency of pipe and tcp4 in four sizes, quiet and beside a busy loop on every CPU, by
/// `plumb export --format plumb --anonymous`; of what was recorded of the machine, a few facts are kept.
const RUNS: [&str; 2] = ["before.plumb", "after.plumb"];

/// Two transfers over a modem, one of them with lost packets.
const SCENARIO: &str = r#"
title = "a transfer over a modem"
duration = "20s"
[topology]
kind = "pair"
link = "rate=56kbit,delay=40ms,limit=20packets,loss=$loss"
[[flow]]
from = "left"
to = "right"
[sweep]
loss = ["0%", "2%"]
"#;

const SCREENS: [(&str, &str); 19] = [
    ("runs", "runs"),
    ("show", "show last~1"),
    ("show with claims", "show last --claims"),
    ("compare", "compare last~1 last"),
    ("model", "model last"),
    ("predict a faster processor", "predict last --cpu 2x"),
    ("predict a link", "predict last --mechanism tcp4 --rtt 50ms --rate 1gbit --mtu 9000"),
    ("predict scored", "predict last --score left-out"),
    ("sensitivity", "sensitivity last"),
    ("claims of a document", "claims --document stack"),
    ("claims of a topic", "claims scaling.lan --details"),
    ("scale", "scale archive"),
    ("simulations of a sweep", "sim modem.toml --no-store"),
    ("a simulation", "sim modem.toml --no-store --set loss=2%"),
    ("a scenario checked", "sim modem.toml --check"),
    ("chatty", "chatty modem.pcapng"),
    ("advise", "advise --items 1000 --rtt 40ms --rate 10mbit --message 10us"),
    ("an unknown experiment", "run latancy.local"),
    ("a glossary", "help glossary"),
];

/// What a command prints on standard output and on standard error, without its progress.
fn screen(place: &TestHome, command: &str, columns: &str, style: &str) -> [String; 2] {
    let line = format!("{style} --no-progress {command}");
    let output = place.command(line.trim_start()).env("COLUMNS", columns).output().unwrap();
    let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    // How long a simulation took is another figure every time.
    let out = match out.split_once("20.0 s simulated") {
        Some((before, took)) => before.to_owned() + took.split_once("\n\n").unwrap().1,
        None => out,
    };
    [out, error].map(|text| text.replace('\x1b', "␛"))
}

#[test]
fn screens_of_stored_runs_simulations_and_archives_are_as_reviewed() {
    let place = TestHome::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    for run in RUNS {
        place.assert_success(&["import", "plumb", &format!("{fixtures}{run}")]);
    }
    place.file("modem.toml", SCENARIO);
    place.assert_success("sim modem.toml --no-store --set loss=2% --pcap modem.pcapng");
    let mut too_wide = Vec::new();
    for (name, command) in SCREENS {
        let plain = screen(&place, command, "40", "--color never");
        let color = screen(&place, command, "80", "--color always");
        let ascii = screen(&place, command, "140", "--color never --ascii");
        for ([text, _], columns) in [(&plain, 40), (&ascii, 140)] {
            // A name is never cut.
            let is_wide = |line: &&str| line.chars().count() > columns && line.trim().contains(' ');
            let wide = text.lines().find(is_wide);
            too_wide.extend(wide.map(|line| format!("{name}, {columns} columns: {line}")));
        }
        let [plain, color, ascii] = [plain, color, ascii].map(|texts| texts.concat());
        assert!(!plain.contains('␛') && ascii.is_ascii(), "{name}: {ascii}");
        let all = format!("$ plumb {command}\n\n{plain}\n{color}\n{ascii}");
        insta::assert_snapshot!(name.replace(' ', "_"), all);
    }
    assert!(too_wide.is_empty(), "{too_wide:#?}");
}
