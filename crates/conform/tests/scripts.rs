//! Runs the scripts of this crate.

use std::path::Path;

use plumb_base::seed::Seed;
use plumb_conform::outcome::ScriptOutcome;
use plumb_conform::runner::run;
use plumb_conform::settings::{RunSettings, ScriptSystem};

fn outcome(text: &str) -> ScriptOutcome {
    run(text, &RunSettings::new(ScriptSystem::Linux), Seed(1))
}

#[test]
fn every_script_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut count = 0;
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let outcome = outcome(&text);
        if outcome != ScriptOutcome::Passed {
            faults.push(format!("{}: {outcome:?}", path.display()));
        }
        count += 1;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 30, "{count} scripts");
}

/// A connection that the script opened to the stack.
const OPEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.05 < . 1:1(0) ack 1 win 5000
+0 accept(3, ..., ...) = 4
";

fn failure(rest: &str) -> (u32, String) {
    match outcome(&format!("{OPEN}{rest}")) {
        ScriptOutcome::Failed { at, reason } => (at.line, reason),
        other => panic!("{rest}: {other:?}"),
    }
}

#[test]
fn what_differs_is_said_with_its_line() {
    for (rest, expected) in [
        ("+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 2", "acknowledgement number is 1"),
        ("+0 write(4, ..., 100) = 100\n+0 > . 1:101(100) ack 1", "flags"),
        ("+0 write(4, ..., 100) = 100\n+.5 > P. 1:101(100) ack 1", "was sent at 0.05"),
        ("+0 write(4, ..., 3000) = 3000\n+0 > . 1:3001(3000) ack 1", "flags"),
        ("+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1 win 7", "window"),
        ("+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1 <nop,nop>", "options"),
        (
            "+0 getsockopt(4, SOL_TCP, TCP_MAXSEG, [1000], [4]) = 0\n+0 > . 1:1(0) ack 1",
            "no segment",
        ),
        ("+0 write(4, ..., 100) = 100\n+0 write(4, ..., 100) = 99", "write returned 100"),
        ("+0 write(4, ..., 100) = 100\n+0 read(4, ..., 10) = 0", "read blocks"),
        ("+0 write(4, ..., 100) = 100\n+0 %{ assert tcpi_unacked == 2 }%", "tcpi_unacked is 1"),
    ] {
        let (line, reason) = failure(rest);
        assert_eq!(line, 9, "{rest}: {reason}");
        assert!(reason.contains(expected), "{rest}: {reason}");
    }
}

#[test]
fn what_the_interpreter_lacks_is_unsupported() {
    for rest in ["+0 splice(4, 5) = 0", "+0 `reboot`", "+0 setsockopt(4, SOL_TCP, 99, [1], 4) = 0"]
    {
        let outcome = outcome(&format!("{OPEN}{rest}"));
        assert!(matches!(outcome, ScriptOutcome::Unsupported { .. }), "{rest}: {outcome:?}");
    }
}
