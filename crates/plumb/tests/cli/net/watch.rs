//! `plumb net --watch` on a terminal: it draws, ends as it is asked to, and leaves the terminal as it was.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Stdio};

use super::agent;
use crate::home::{TestHome, installed};
use crate::support::{PLUMB, signal};

/// What a terminal is told to show the program's own screen, the old one again, and the cursor.
const OWN_SCREEN: &str = "\x1b[?1049h";
const OLD_SCREEN: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// A measurement under way on a terminal of its own.
struct TerminalSession {
    child: Child,
    stdout: ChildStdout,
    shown: String,
}

impl TerminalSession {
    /// Starts it; nothing, visibly, where there is no program that makes terminals.
    fn start(bench: &TestHome, words: &str) -> Option<Self> {
        let command = format!(
            "stty cols 80 rows 24; echo pid $$; exec {PLUMB} net --via '{}' 127.0.0.1 --watch {words}",
            agent()
        );
        if !installed("script") {
            return None;
        }
        let mut script = bench.command_of("script", &["-qefc", &command, "/dev/null"]);
        script.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let stdout = child.stdout.take().expect("a pipe");
        Some(Self { child, stdout, shown: String::new() })
    }

    /// Reads on until this was shown.
    fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4_096];
        while !self.shown.contains(text) {
            let len = self.stdout.read(&mut buffer).expect("the terminal's output");
            assert!(len > 0, "it ended before '{text}': {}", self.shown);
            self.shown += &String::from_utf8_lossy(&buffer[..len]);
        }
    }

    fn press(&mut self, key: &str) {
        let keyboard = self.child.stdin.as_mut().expect("a pipe");
        keyboard.write_all(key.as_bytes()).expect("it takes keys");
    }

    fn terminate(&mut self) {
        let pid = self.shown.split("pid ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let pid = pid.expect("its number").parse().expect("a number");
        assert!(signal(pid, "TERM"));
    }

    /// What was shown in all, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("the terminal's output");
        self.shown += &String::from_utf8_lossy(&rest);
        (self.shown, self.child.wait().expect("an end").code())
    }
}

/// Whether it says which CPU drew; a busy host may give it more to say than the first screen holds.
fn tells_who_drew(answer: &str) -> bool {
    answer.contains("watched: ") || answer.contains(" more: --details")
}

#[test]
fn a_stop_leaves_the_terminal_as_it_was() {
    let bench = TestHome::new();
    for way in ["q", "\x03", "SIGTERM"] {
        let Some(mut watched) =
            TerminalSession::start(&bench, "--idle 300ms --only idle,up -t 10min")
        else {
            return;
        };
        watched.wait_for(OWN_SCREEN);
        // The name of the phase that is to be cut short, on the screen.
        watched.wait_for("up:");
        if way == "SIGTERM" {
            watched.terminate();
        } else {
            watched.press(way);
        }
        let (shown, code) = watched.end();
        assert_eq!(code, Some(130), "{way:?}: {shown}");
        let (_, after) = shown.rsplit_once(OLD_SCREEN).expect("the old screen is back");
        assert!(!after.contains(OWN_SCREEN) && after.contains(CURSOR), "{way:?}: {shown}");
        for part in ["stopped: these are the results so far", "p50 idle"] {
            assert!(after.contains(part), "{way:?}: no '{part}' in {after}");
        }
        assert!(tells_who_drew(after), "{way:?}: {after}");
    }
}

#[test]
fn left_alone_it_draws_and_prints_its_result() {
    let bench = TestHome::new();
    let words = "--idle 300ms -t 700ms --warm-up 100ms --color never";
    let Some(mut watched) = TerminalSession::start(&bench, words) else { return };
    // Which phases it draws depends on how busy the host is; that it draws does not.
    watched.wait_for(OWN_SCREEN);
    let (shown, code) = watched.end();
    // Others may take the CPUs for so long that it looks as if the path had been cut (1); there is a result all the same.
    assert!(matches!(code, Some(0 | 1)), "{shown}");
    let (screen, after) = shown.rsplit_once(OLD_SCREEN).expect("the old screen is back");
    assert!(screen.contains("Ctrl-C") && screen.contains("drawn"), "{screen}");
    assert!(!screen.contains("[38;5"), "without colours there are none: {screen}");
    for part in ["p50 idle", "down  ", "up  "] {
        assert!(after.contains(part), "no '{part}' in {after}");
    }
    assert!(tells_who_drew(after), "{after}");
}
